//! Mounts by the kernel. A test that can't mount fails; none is skipped. `lf#41` is issue 41 of libfuse, and so on: cases
//! that broke systems like this one (see `tests/conformance/main.rs`).
//!
//! Whoever touches a mount whose server is stuck hangs with it, so every access is made by a program with a deadline,
//! and a guard takes the mount away whatever happens.

#[allow(dead_code)] // Each test binary uses its own part.
mod common;

use common::{Mount, TempDir, bytes, mounter, run, run_as, shell, store, succeeds, tree, wait_until};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[test]
fn records_are_ordinary_files() {
    let dir = TempDir::new().unwrap();
    let lengths = [1, 512, 513, 1 << 20, 4655, 110_591, 110_592, 110_593, 131_071, 131_073, 1_048_577];
    let records: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(i, &n)| bytes(i as u64, n)).collect();
    for codec in ["raw", "zstd"] {
        let path = dir.path().join(codec);
        store(&path, codec, &records);
        for (i, record) in records.iter().enumerate() {
            std::fs::write(dir.path().join(format!("want{i}")), record).unwrap();
        }
        let mount = Mount::new(&path, &[]);
        let at = mount.path();
        for i in 0..records.len() {
            succeeds(&shell(&format!("cmp {at}/records/{i} {}/want{i}", dir.path().display())));
        }
        let blocks = succeeds(&shell(&format!("cd {at}/records && stat -c '%s %b %i %h %a' 0 1 2 3")));
        assert_eq!(blocks, "1 1 5 1 444\n512 1 65541 1 444\n513 2 131077 1 444\n1048576 2048 196613 1 444\n");
        let names = shell(&format!(
            "cd {at}/records && stat 007 +5 -- -1 1e3 ' 5' 0x5 5 18446744073709551615 2>&1 | grep -c 'No such file'"
        ));
        assert_eq!(succeeds(&names), "7\n");
        assert!(shell(&format!("stat {at}/records/0/")).err.contains("Not a directory"));
        let long = format!("stat {at}/records/{} {at}/records/{}", "9".repeat(255), "9".repeat(256));
        let err = shell(&long).err;
        assert!(err.contains("No such file") && err.contains("File name too long"), "{err}");
        let statfs = succeeds(&shell(&format!("stat -f -c '%l %c %b' {at}")));
        assert!(statfs.starts_with("255 11 ") && !statfs.ends_with(" 0\n"), "{statfs}");
        assert!(shell(&format!("touch {at}/records/0 {at}/x")).err.contains("Read-only file system"));
        // Reads over, at and after the end; by the page cache and around it.
        let tail = format!(
            "dd if={at}/records/4 bs=4000 skip=1 status=none | cmp - <(tail -c 655 {}/want4)",
            dir.path().display()
        );
        succeeds(&shell(&tail));
        assert_eq!(succeeds(&shell(&format!("dd if={at}/records/4 bs=4655 skip=1 status=none | wc -c"))), "0\n");
        let direct =
            format!("dd if={at}/records/10 bs=12345 iflag=direct status=none | cmp - {}/want10", dir.path().display());
        succeeds(&shell(&direct));
        succeeds(&shell(&format!("cp -a {at}/records {0}/copy && rm -r {0}/copy", dir.path().display())));
        succeeds(&shell(&format!("tar --xattrs -cf - -C {at} . | tar -tf - | grep -q records/10")));
        assert_eq!(succeeds(&shell(&format!("grep -c abc {at}/records/3"))), "1\n");
        let probes = "import os, mmap, fcntl, sys\n\
             f = open(sys.argv[1] + '/records/3', 'rb')\n\
             assert os.lseek(f.fileno(), 0, os.SEEK_HOLE) == 1 << 20\n\
             assert not os.isatty(f.fileno())\n\
             try: fcntl.ioctl(f.fileno(), 0x5a5a, b'x' * 8); assert False\n\
             except OSError as e: assert e.errno == 25, e\n\
             m = mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)\n\
             assert m[:] == open(sys.argv[2] + '/want3', 'rb').read()\n";
        succeeds(&run("python3", &["-c", probes, &at, dir.path().to_str().unwrap()]));
    }
}

#[test]
fn large_directories_list_exactly() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    for count in [4095, 4097, 100_000, 100_001] {
        let _ = std::fs::remove_dir_all(&path);
        store(&path, "raw", &vec![b"x".to_vec(); count]);
        let mount = Mount::new(&path, &[]);
        let at = mount.path();
        assert_eq!(succeeds(&shell(&format!("ls -f {at}/records | sort -u | wc -l"))), format!("{}\n", count + 2));
        assert_eq!(succeeds(&shell(&format!("find {at}/records -type f | wc -l"))), format!("{count}\n"));
        let seek = r#"
            my ($dir, $count) = @ARGV; opendir(my $d, $dir) or die; my (@names, @at);
            while (1) { my $t = telldir $d; defined(my $n = readdir $d) or last; push @names, $n; push @at, $t }
            @names == $count + 2 or die scalar @names;
            for my $k (0, 1, 2, 777, $count / 2, $count + 1) {
                seekdir $d, $at[$k]; my @rest = readdir $d;
                "@rest" eq "@names[$k .. $#names]" or die "seekdir to $k";
            }
            rewinddir $d; my @again = readdir $d; "@again" eq "@names" or die "rewinddir";"#;
        succeeds(&run("perl", &["-e", seek, &format!("{at}/records"), &count.to_string()]));
    }
    let mount = Mount::new(&path, &[]);
    let held = "import os, sys, resource\n\
         resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n\
         fds = [os.open(sys.argv[1], os.O_RDONLY) for _ in range(3000)]\n\
         assert all(len(os.listdir(fd)) == 4 for fd in fds)\n";
    succeeds(&run("python3", &["-c", held, &format!("{}/.zrfs", mount.path())]));
}

#[test]
fn trees_keep_paths_links_and_names() {
    let dir = TempDir::new().unwrap();
    let files = dir.path().join("files");
    let path = dir.path().join("d.zr");
    tree(&files, &path);
    for root in [None, Some("tree")] {
        let args: Vec<&str> = root.map(|r| ["--root", r]).into_iter().flatten().collect();
        let mount = Mount::new(&path, &args);
        let at = if root.is_some() { mount.path() } else { format!("{}/tree", mount.path()) };
        let files = files.display();
        succeeds(&shell(&format!("diff -r --no-dereference {files} {at}")));
        let listing = "find . -printf '%P\\0%y %m %n %l %s\\0' | tr '\\0' '\\n'";
        let stats = |dir: &str| {
            succeeds(&shell(&format!("cd {dir} && find . ! -type d -printf '%P %y %m %n %l %s\\n' | LC_ALL=C sort")))
        };
        assert_eq!(stats(&at), stats(&files.to_string()), "{listing}");
        let finder = "use File::Find; my @f; find({no_chdir => 1, wanted => sub { push @f, $File::Find::name }}, $ARGV[0]); print scalar(@f)";
        let found = succeeds(&run("perl", &["-e", finder, &at]));
        assert_eq!(found, succeeds(&shell(&format!("find {files} -print0 | tr -dc '\\0' | wc -c"))).trim());
        let inodes = succeeds(&shell(&format!("stat -c %i {at}/one {at}/sub/hard")));
        let inodes: Vec<&str> = inodes.lines().collect();
        assert_eq!(inodes[0], inodes[1]);
    }
}

#[test]
fn umount_ends_the_process() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    store(&path, "raw", &[b"x".to_vec()]);
    let mut mount = Mount::new(&path, &[]);
    succeeds(&run("umount", &[&mount.path()]));
    assert_eq!(mount.wait(), Some(0));
    let mut mount = Mount::new(&path, &[]);
    succeeds(&run(mounter(), &["--unmount", &mount.path()]));
    assert_eq!(mount.wait(), Some(0));
    let again = run(mounter(), &["--unmount", &mount.path()]);
    assert!(again.code == Some(1) && again.err.contains("nothing is mounted"), "{again:?}");
}

/// charliecloud#1212, fuser#407.
#[test]
fn signals_unmount_even_with_open_files() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    store(&path, "zstd", &[bytes(1, 3_000_000)]);
    for signal in ["INT", "TERM", "HUP"] {
        let mut mount = Mount::new(&path, &[]);
        mount.signal(signal);
        assert_eq!(mount.wait(), Some(0), "{signal}");
        assert!(!mount.is_mounted());

        // With an open file the mount is gone at once, what is open still reads, and the end comes with the close.
        let mut mount = Mount::new(&path, &[]);
        let open = std::fs::File::open(format!("{}/records/0", mount.path())).unwrap();
        mount.signal(signal);
        wait_until("the mount is detached", || !mount.is_mounted());
        assert!(mount.is_running());
        let read = std::thread::spawn(move || {
            use std::os::unix::fs::FileExt;
            let mut tail = [0; 10];
            open.read_exact_at(&mut tail, 2_999_990).map(|()| (tail, open))
        });
        let (tail, open) = read.join().unwrap().unwrap();
        assert_eq!(tail[..], bytes(1, 3_000_000)[2_999_990..]);
        drop(open);
        assert_eq!(mount.wait(), Some(0), "{signal}");

        let mut mount = Mount::new(&path, &[]);
        let open = std::fs::File::open(format!("{}/records/0", mount.path())).unwrap();
        mount.signal(signal);
        wait_until("the mount is detached", || !mount.is_mounted());
        mount.signal(signal);
        assert_eq!(mount.wait(), Some(0), "a second {signal} does not wait");
        drop(open);
    }
}

/// lf#41.
#[test]
fn a_killed_server_is_cleaned_up_by_the_next_mount() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    store(&path, "raw", &[b"again".to_vec()]);
    let mut dead = Mount::new(&path, &[]);
    dead.signal("KILL");
    dead.wait();
    wait_until("the kernel says so", || shell(&format!("stat {}", dead.path())).err.contains("not connected"));
    let mut again = Mount::at(&path, dead.mountpoint(), &[]);
    assert_eq!(succeeds(&shell(&format!("cat {}/records/0", dead.path()))), "again");
    again.signal("KILL");
    again.wait();
    // At once, while the kernel still remembers everything; and in the background.
    let again = run(mounter(), &[path.to_str().unwrap(), &dead.path()]);
    assert!(again.code == Some(0) && again.err.contains("was still mounted"), "{again:?}");
    assert_eq!(succeeds(&shell(&format!("cat {}/records/0", dead.path()))), "again");
    succeeds(&run("umount", &[&dead.path()]));
    assert!(!dead.is_mounted(), "the dead mounts are not below it any more");
}

/// puzzlefs PR#46.
#[test]
fn the_background_mount_answers_and_lets_go() {
    let dir = TempDir::new().unwrap();
    store(&dir.path().join("s.zr"), "raw", &[b"hello".to_vec()]);
    std::fs::create_dir(dir.path().join("m")).unwrap();
    let place = dir.path().to_str().unwrap();
    let _guard = common::Unmount(dir.path().join("m"));
    // Relative paths; stdin closed; a caller that waits until the output ends.
    let script = "import subprocess, sys, os\n\
         os.chdir(sys.argv[1])\n\
         out = subprocess.check_output([sys.argv[2], 's.zr', 'm'], stderr=subprocess.STDOUT, timeout=20)\n\
         assert out == b'', out\n\
         assert open('m/records/0', 'rb').read() == b'hello'\n";
    let start = Instant::now();
    succeeds(&run("python3", &["-c", script, place, mounter()]));
    assert!(start.elapsed() < Duration::from_secs(10));
    succeeds(&shell(&format!(
        "umount {place}/m && cd {place} && {} s.zr m <&- && cat m/records/0 && umount m",
        mounter()
    )));
}

/// puzzlefs#66; gocryptfs#463: not over files, unless -o nonempty.
#[test]
fn what_is_wrong_is_said_at_once() {
    let dir = TempDir::new().unwrap();
    let place = dir.path().display().to_string();
    let good = format!("{place}/s");
    store(&dir.path().join("s"), "raw", &[b"x".to_vec()]);
    store(&dir.path().join("bad"), "raw", &[b"x".to_vec()]);
    std::fs::write(dir.path().join("bad/meta.zr"), b"ZREC").unwrap();
    for name in ["m", "full", "full/x", "s/inner"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    let (m, missing) = (format!("{place}/m"), format!("{place}/missing"));
    let file = format!("{place}/s/meta.zr");
    let cases: [(&[&str], &[&str]); 12] = [
        (&[&missing, &m], &["missing"]),
        (&[&m, &m], &["not a zrfs store"]),
        (&[&file, &m], &["meta.zr", "directory"]),
        (&[&format!("{place}/bad"), &m], &["bad/meta.zr", "damaged"]),
        (&[&good, &missing], &["missing", "does not exist"]),
        (&[&good, &file], &["not a directory"]),
        (&[&good, &format!("{place}/full")], &["not empty", "nonempty"]),
        (&[&good, &format!("{place}/s/inner")], &["inside the store"]),
        (&[&good, &place], &["hide"]),
        (&[&good, &m, "-o", "ro,frobnicate"], &["frobnicate"]),
        (&[&good, &m, "--root", "tree"], &["tree"]),
        (&[&good, &m, "--threads", "none"], &["none"]),
    ];
    for (args, said) in cases {
        for foreground in [false, true] {
            let all: Vec<&str> = args.iter().copied().chain(foreground.then_some("-f")).collect();
            let start = Instant::now();
            let done = run(mounter(), &all);
            assert!(
                done.code.is_some_and(|c| c != 0) && start.elapsed() < Duration::from_secs(20),
                "{args:?}: {done:?}"
            );
            assert!(said.iter().all(|s| done.err.contains(s)), "{args:?}: {}", done.err);
            assert!(args.contains(&"--threads") || done.err.lines().count() == 1, "{args:?}: {}", done.err);
        }
    }
    let mount = Mount::at(&dir.path().join("s"), &dir.path().join("full"), &["-o", "nonempty"]);
    assert_eq!(succeeds(&shell(&format!("ls {}", mount.path()))), "batches\nrecords\n");
}

/// mus#382.
#[test]
fn other_users() {
    let dir = TempDir::new().unwrap();
    succeeds(&run("chmod", &["755", dir.path().to_str().unwrap()]));
    let path = dir.path().join("s");
    store(&path, "raw", &[b"shared".to_vec()]);
    {
        let mount = Mount::new(&path, &[]);
        let denied = run_as(65534, &["cat", &format!("{}/records/0", mount.path())]);
        assert!(denied.err.contains("Permission denied"), "{denied:?}");
    }
    let mount = Mount::new(&path, &["-o", "allow_other,uid=123,gid=456"]);
    let file = format!("{}/records/0", mount.path());
    assert_eq!(succeeds(&run_as(65534, &["cat", &file])), "shared");
    assert_eq!(succeeds(&run_as(65534, &["stat", "-c", "%u %g %a", &file])), "123 456 444\n");
    drop(mount);
    let mount = Mount::new(&path, &["-o", "allow_other,umask=077"]);
    let denied = run_as(65534, &["cat", &format!("{}/records/0", mount.path())]);
    assert!(denied.err.contains("Permission denied"), "{denied:?}");
}

/// In namespaces of its own, where `/dev/fuse` is open to users as it is on a desktop; all ends with the shell.
/// docker/for-linux#321: the missing piece is named; rat#143: what fusermount3 says is passed on.
#[test]
fn a_user_mounts_without_root() {
    let dir = TempDir::new().unwrap();
    let place = dir.path().to_str().unwrap();
    // A comma in a name is a comma for fusermount3 too.
    let path = dir.path().join("a,b");
    store(&path, "zstd", &[bytes(3, 300_000)]);
    let script = r#"
        set -eu; place=$1 program=$2 store=$1/a,b at=$1/m
        fails() { if "$@" 2>$place/err; then echo "worked: $*"; exit 1; fi }
        user="setpriv --reuid=65534 --regid=65534 --clear-groups"
        chmod 755 $place; mkdir $at; chown 65534:65534 $at
        mount -t tmpfs none /mnt; mknod /mnt/fuse c 10 229; chmod 600 /mnt/fuse; mount --bind /mnt/fuse /dev/fuse
        fails $user $program $store $at; grep -q '/dev/fuse.*chmod 666' $place/err
        chmod 666 /mnt/fuse
        $user $program $store $at
        fails cat $at/records/0
        test $($user stat -c %s-%u-%a $at/records/0) = 300000-65534-444
        $user cat $at/records/0 | wc -c | grep -qx 300000
        grep -q "$store $at fuse.zrfs" /proc/mounts
        $user $program --unmount $at
        fails grep -q $at /proc/mounts
        $user $program -f $store $at & pid=$!
        until $user stat -f $at >/dev/null 2>&1 && grep -q $at /proc/mounts; do sleep 0.01; done
        kill -9 $pid; wait $pid || true
        $user $program $store $at 2>&1 | grep -q 'was still mounted'
        $user cat $at/records/0 | wc -c | grep -qx 300000
        $user $program --unmount $at
        $user $program -f $store $at & pid=$!
        until grep -q $at /proc/mounts; do sleep 0.01; done
        kill -TERM $pid; wait $pid
        fails grep -q $at /proc/mounts
        # A command's mount, one that goes when its process is killed, and one that has no descriptors left.
        $user env TMPDIR=/mnt $program run $store --at $at -- sh -c 'wc -c <$ZRFS_MOUNT/records/0; exit 5' >$place/said || test $? = 5
        grep -qx 300000 $place/said; fails grep -q $at /proc/mounts
        $user $program -f -v --log /mnt/log --auto-unmount $store $at & pid=$!
        until grep -q "is mounted at $at" /mnt/log; do sleep 0.01; done 2>/dev/null
        kill -9 $pid; wait $pid || true
        until ! grep -q $at /proc/mounts; do sleep 0.01; done
        $user $program -f -v --log /mnt/log2 $store $at & pid=$!
        until grep -q "is mounted at $at" /mnt/log2; do sleep 0.01; done 2>/dev/null
        $user prlimit --pid $pid --nofile=3:
        kill -TERM $pid; wait $pid
        fails grep -q $at /proc/mounts
        printf '' >$place/conf; mount --bind $place/conf /etc/fuse.conf
        fails $user $program $store $at -o allow_other; grep -q user_allow_other $place/err
        echo user_allow_other >$place/conf
        $user $program $store $at -o allow_other
        cat $at/records/0 | wc -c | grep -qx 300000
        $user $program --unmount $at
        # Neither the helper nor the device: each is named.
        chmod 600 /mnt/fuse; mount --bind /dev/null $(readlink -f $(command -v fusermount3))
        fails $user $program $store $at; grep -q 'install the package fuse3' $place/err
        mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3
        fails $program $store $at; grep -q '/dev/fuse is missing.*modprobe fuse' $place/err
        echo good
    "#;
    let unshare = ["-mpf", "--kill-child", "--mount-proc", "bash", "-c", script, "test", place, mounter()];
    let done = run("unshare", &unshare);
    assert_eq!(succeeds(&done), "good\n", "{done:?} {:?}", std::fs::read_to_string(dir.path().join("err")));
}

#[test]
fn appended_records_show_within_a_second() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let mut writer = store(&path, "zstd", &vec![b"x".to_vec(); 10]);
    let mount = Mount::new(&path, &[]);
    let at = mount.path();
    assert_eq!(succeeds(&shell(&format!("ls {at}/records | wc -l"))), "10\n");
    assert_eq!(shell(&format!("stat {at}/records/10")).code, Some(1));
    writer.append(&[b"new"]).unwrap();
    writer.sync().unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(succeeds(&shell(&format!("cat {at}/records/10"))), "new");
    assert_eq!(succeeds(&shell(&format!("ls {at}/records | wc -l"))), "11\n");
    assert_eq!(succeeds(&shell(&format!("grep -c '\"records\": 11' {at}/.zrfs/info.json"))), "1\n");
}

/// reth#24411.
#[test]
fn a_store_cut_short_gives_errors_and_lives() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    store(&path, "raw", &(0..20).map(|i| bytes(i, 100_000)).collect::<Vec<_>>());
    let mount = Mount::new(&path, &[]);
    let at = mount.path();
    let chunk = std::fs::OpenOptions::new().write(true).open(path.join("0.chunk")).unwrap();
    chunk.set_len(1_000_000).unwrap();
    let cut = shell(&format!("cat {at}/records/15"));
    assert!(cut.err.contains("Input/output error"), "{cut:?}");
    assert_eq!(succeeds(&shell(&format!("wc -c < {at}/records/3"))), "100000\n");
}

/// mus#683.
#[test]
fn a_store_replaced_by_rename_goes_on_as_it_was() {
    let dir = TempDir::new().unwrap();
    let (path, other, old) = (dir.path().join("s"), dir.path().join("other"), dir.path().join("old"));
    store(&path, "zstd", &(0..50).map(|i| bytes(i, 5000)).collect::<Vec<_>>());
    store(&other, "raw", &(100..150).map(|i| bytes(i, 5000)).collect::<Vec<_>>());
    let mount = Mount::new(&path, &[]);
    std::fs::write(dir.path().join("want"), (0..50).flat_map(|i| bytes(i, 5000)).collect::<Vec<_>>()).unwrap();
    std::fs::rename(&path, &old).unwrap();
    std::fs::rename(&other, &path).unwrap();
    let script =
        format!("for i in $(seq 0 49); do cat {}/records/$i; done | cmp - {}/want", mount.path(), dir.path().display());
    succeeds(&shell(&script));
}

#[test]
fn a_mount_that_fails_leaves_none() {
    let dir = tempfile::tempdir().unwrap();
    store(&dir.path().join("s"), "zstd", &[b"x".to_vec()]).close().unwrap();
    let (s, m) = (dir.path().join("s"), dir.path().join("m"));
    std::fs::create_dir(&m).unwrap();
    let _guard = common::Unmount(m.clone());
    // Too few files may be open, at every step of the way.
    for limit in 8..24 {
        let script = format!("ulimit -n {limit}; exec {} {} {}", mounter(), s.display(), m.display());
        let done = shell(&script);
        if done.code == Some(0) {
            // What was said to be there stays. The last that it does is to let go of its output.
            let pid = run("pgrep", &["-f", &format!("background-child {} {}", s.display(), m.display())]).out;
            let output = PathBuf::from(format!("/proc/{}/fd/1", pid.trim()));
            wait_until("it serves or has ended", || {
                std::fs::read_link(&output).map_or(true, |to| to == Path::new("/dev/null"))
            });
            assert!(common::is_mounted(&m), "with {limit} files");
            drop(common::Unmount(m.clone()));
        } else {
            assert!(!common::is_mounted(&m), "with {limit} files a dead mount is left: {}", done.err);
        }
    }
    // Mounted already is said so, and does not stack.
    let mount = Mount::at(&s, &m, &[]);
    let done = run(mounter(), &[s.to_str().unwrap(), m.to_str().unwrap()]);
    assert!(done.code != Some(0) && done.err.contains("already"), "{}", done.err);
    drop(mount);
}
