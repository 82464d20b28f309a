//! How a mount starts and ends outside of a shell: fstab, systemd, a killed process, no descriptors left.

use crate::common::{Mount, TempDir, Unmount, bytes, is_mounted, mounter, run, shell, store, succeeds, wait_until};
use std::path::Path;
use std::time::{Duration, Instant};

/// Processes of the program that have this text among their arguments.
fn processes(text: &str) -> Vec<String> {
    let all = succeeds(&run("ps", &["-eo", "stat=,args="]));
    let ours = |line: &&str| line.contains("zrfs-mount") && line.contains(text) && !line.starts_with('Z');
    all.lines().filter(ours).map(str::to_string).collect()
}

/// From fstab and by mount -t: mount(8) runs mount.fuse3 (package fuse3), which finds the program on the system's path.
#[test]
fn fstab_and_mount_t() {
    let dir = TempDir::new().unwrap();
    store(&dir.path().join("s.zr"), "raw", &[b"hello".to_vec()]);
    let script = r#"
        set -e; cd "$1"; mkdir m
        mount -t tmpfs none /usr/local/sbin; cp "$2" /usr/local/sbin/zrfs-mount
        mount -t fuse.zrfs-mount s.zr m; cat m/records/0; umount m
        mount -t fuse.zrfs-mount "$1/s.zr" m -o rw,uid=77,noexec 2>err; stat -c ' %u' m/records/0; umount m
        echo "$1/s.zr $1/m fuse.zrfs-mount ro,allow_other,nofail,noauto,x-systemd.automount,gid=5 0 0" >fstab
        mount --fstab fstab "$1/m"; cat m/records/0; stat -c ' %g' m/records/0
        grep -q "^$1/s.zr $1/m fuse.zrfs ro,.*allow_other" /proc/mounts
        umount m
        ! mount -t fuse.zrfs-mount missing.zr m 2>err; grep -q 'missing.zr' err
        ! grep -q " $1/m " /proc/mounts
    "#;
    let args =
        ["-mpf", "--kill-child", "--mount-proc", "bash", "-c", script, "x", dir.path().to_str().unwrap(), mounter()];
    let done = run("unshare", &args);
    let said = std::fs::read_to_string(dir.path().join("err")).unwrap_or_default();
    assert_eq!(succeeds(&done), "hello 77\nhello 5\n", "{said}");
}

/// The unit in contrib is one that systemd takes, and the program tells systemd when it is ready.
#[test]
fn systemd_unit_and_notification() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../contrib/systemd/zrfs@.service");
    let text = std::fs::read_to_string(unit).unwrap();
    assert!(text.contains("Type=notify") && text.contains("zrfs-mount -f"));
    let dir = TempDir::new().unwrap();
    store(&dir.path().join("s"), "raw", &[b"x".to_vec()]);
    let script = r#"
import os, socket, subprocess, sys
os.chdir(sys.argv[1])
os.mkdir('m')
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind('notify'); s.settimeout(20)
p = subprocess.Popen([sys.argv[2], '-f', 's', 'm'], env={**os.environ, 'NOTIFY_SOCKET': sys.argv[1] + '/notify'})
try:
    assert s.recv(100) == b'READY=1'
    assert open('m/records/0').read() == 'x', 'ready means ready'
finally:
    p.terminate()
    assert p.wait(20) == 0
"#;
    let _guard = Unmount(dir.path().join("m"));
    succeeds(&run("python3", &["-c", script, dir.path().to_str().unwrap(), mounter()]));
}

/// --auto-unmount: the mount goes when its process is killed, and the process that watched goes too; also otherwise.
#[test]
fn auto_unmount_after_sigkill() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    store(&path, "raw", &[b"x".to_vec()]);
    for args in [&["--auto-unmount"][..], &["-o", "auto_unmount"]] {
        let mut mount = Mount::new(&path, args);
        let device = device(mount.mountpoint());
        let watcher = format!("--watch-mount {device}");
        assert_eq!(processes(&watcher).len(), 1);
        mount.signal("KILL");
        mount.wait();
        wait_until("the mount is taken away", || !mount.is_mounted());
        wait_until("the watcher ends", || processes(&watcher).is_empty());
    }
    let mut mount = Mount::new(&path, &["--auto-unmount"]);
    let watcher = format!("--watch-mount {}", device(mount.mountpoint()));
    mount.signal("TERM");
    assert_eq!(mount.wait(), Some(0));
    wait_until("the watcher ends", || processes(&watcher).is_empty());
}

fn device(mountpoint: &Path) -> String {
    let mounts = zrfs_mount::mounting::mounts();
    mounts.into_iter().find(|m| m.mountpoint == mountpoint).unwrap().device
}

/// A process that has no descriptors left still unmounts on the first SIGTERM, whether files are open or not.
#[test]
fn out_of_descriptors_it_still_unmounts() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    store(&path, "zstd", &[bytes(1, 3_000_000)]);
    for held in [false, true] {
        let mut mount = Mount::new(&path, &[]);
        let open = held.then(|| std::fs::File::open(format!("{}/records/0", mount.path())).unwrap());
        succeeds(&run("prlimit", &["--pid", &mount.pid().to_string(), "--nofile=3:3"]));
        mount.signal("TERM");
        wait_until("the mount is gone", || !mount.is_mounted());
        drop(open);
        assert_eq!(mount.wait(), Some(0));
    }
}

/// umount -l with an open file: the process serves it and ends with it.
#[test]
fn lazy_unmounts_end_with_the_last_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    store(&path, "zstd", &[bytes(1, 300_000)]);
    let mut mount = Mount::new(&path, &[]);
    let open = std::fs::File::open(format!("{}/records/0", mount.path())).unwrap();
    succeeds(&run("umount", &["-l", &mount.path()]));
    assert!(!mount.is_mounted() && mount.is_running());
    drop(open);
    assert_eq!(mount.wait(), Some(0));
}

/// fuser#686, #407: a busy mount is not taken away by --unmount, which says how; it ends in full by signal and close. No
/// process and no mount is left by any of the usual ways to end.
#[test]
fn fuser686_407_busy_mounts_and_leftovers() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("leftover-store");
    store(&path, "raw", &[b"x".to_vec()]);
    let place = dir.path().join("m");
    std::fs::create_dir(&place).unwrap();
    let _guard = Unmount(place.clone());
    let (s, m) = (path.to_str().unwrap(), place.to_str().unwrap());
    let ends = ["--unmount", "umount", "fusermount3", "TERM", "HUP", "INT"];
    for end in ends {
        succeeds(&run(mounter(), &[s, m]));
        let busy = run("bash", &["-c", &format!("cd {m} && {} --unmount {m}", mounter())]);
        assert!(busy.code == Some(1) && busy.err.contains("in use") && busy.err.contains("umount -l"), "{busy:?}");
        match end {
            "--unmount" => succeeds(&run(mounter(), &["--unmount", m])),
            "umount" => succeeds(&run("umount", &[m])),
            "fusermount3" => succeeds(&run("fusermount3", &["-u", m])),
            signal => {
                let pid = succeeds(&run("pgrep", &["-f", &format!("background-child {s} {m}")]));
                succeeds(&run("kill", &["-s", signal, pid.trim()]))
            }
        };
        wait_until("the mount is gone", || !is_mounted(&place));
        wait_until("the process ends", || processes("leftover-store").is_empty());
    }
}

/// A store that is damaged beyond opening, a bad option, a file as mountpoint: puzzlefs#66 is in tests/mount.rs; here, that
/// none of them takes long when the log can't be written either.
#[test]
fn a_log_that_cannot_be_written_is_said() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    store(&path, "raw", &[b"x".to_vec()]);
    let m = dir.path().join("m");
    std::fs::create_dir(&m).unwrap();
    let start = Instant::now();
    let done = run(mounter(), &[path.to_str().unwrap(), m.to_str().unwrap(), "--log", "/nowhere/log"]);
    assert!(done.code == Some(1) && done.err.contains("/nowhere/log"), "{done:?}");
    assert!(start.elapsed() < Duration::from_secs(20) && !is_mounted(&m));
}

/// -v and RUST_LOG show what is asked.
#[test]
fn the_log_shows_what_is_asked() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    store(&path, "raw", &[b"x".to_vec()]);
    for (args, variable) in [(&["-v", "-v"][..], ""), (&[][..], "RUST_LOG=debug ")] {
        let (m, log) = (dir.path().join("m"), dir.path().join("log"));
        std::fs::create_dir_all(&m).unwrap();
        let _guard = Unmount(m.clone());
        let all = [args, &["--log", log.to_str().unwrap()]].concat().join(" ");
        let script = format!(
            "{variable}{} {all} {} {m} && cat {m}/records/0 && umount {m}",
            mounter(),
            path.display(),
            m = m.display()
        );
        assert_eq!(succeeds(&shell(&script)), "x");
        wait_until("the log is written", || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            ["lookup 0x1", "read 0x5", " us: ok"].iter().all(|what| text.contains(what))
        });
        std::fs::remove_file(&log).unwrap();
    }
}
