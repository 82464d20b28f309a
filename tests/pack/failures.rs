//! What stands in the way: targets that exist, signals, full disks. Nothing half-made is ever left under the target's
//! name.

use crate::common::*;
use crate::zrfs;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A child that is killed, should the test fail before it ends.
struct Guarded(Option<Child>);

impl Guarded {
    fn spawn(command: &mut Command) -> Self {
        Guarded(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }
    fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }
    fn signal(&mut self, signal: Signal) {
        kill_process(Pid::from_child(self.child()), signal).unwrap();
    }
    /// Waits until it has a handler for the signal.
    fn wait_until_handled(&mut self, signal: Signal) {
        let (path, start) = (format!("/proc/{}/status", self.child().id()), Instant::now());
        let is_handled = || {
            let status = fs::read_to_string(&path).unwrap();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
        };
        while !is_handled() {
            assert!(start.elapsed() < Duration::from_secs(60), "{signal:?} is not handled");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    /// Waits for its end, which must come within `limit`.
    fn ends_within(mut self, limit: Duration) -> Output {
        let start = Instant::now();
        while self.child().try_wait().unwrap().is_none() {
            assert!(start.elapsed() < limit, "it did not end within {limit:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits until a hidden directory beside `target` shows that it is being made, and has some data.
fn wait_until_busy(target: &Path) {
    let start = Instant::now();
    loop {
        let parent = target.parent().unwrap();
        let busy = |name: &String| {
            let staged = parent.join(name).join("new");
            name.starts_with('.') && (staged.join("data/0.chunk").exists() || staged.join("0").exists())
        };
        if names(parent).iter().any(busy) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "nothing began");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A directory that takes seconds to pack: many links of one file would be packed once, so these are copies.
fn much(dir: &Path) -> PathBuf {
    let source = dir.join("much");
    fs::create_dir(&source).unwrap();
    let bytes = noise(3, 3 << 20);
    for i in 0..150 {
        fs::write(source.join(i.to_string()), &bytes).unwrap();
    }
    source
}

#[test]
fn a_target_that_exists_stays_as_it_is() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("f"), "1").unwrap();
    let packed = dir.path().join("packed");
    ok(&mut zrfs!["pack", &source, &packed]);
    let before = tree(&packed);
    fs::write(source.join("f"), "2").unwrap();
    let said = fails(&mut zrfs!["pack", &source, &packed], 1);
    assert!(said.contains("exists already") && said.contains("--force"), "{said}");
    assert_same_entries(before, tree(&packed), Compare::All);
    ok(&mut zrfs!["pack", "--force", &source, &packed]);
    assert_eq!(ok(&mut zrfs!["cat", &packed, "f"]), b"2");

    // --force replaces stores, and nothing else.
    let (other, file, link, empty) =
        (dir.path().join("other"), dir.path().join("file"), dir.path().join("link"), dir.path().join("empty"));
    fs::create_dir_all(other.join("precious")).unwrap();
    fs::create_dir(&empty).unwrap();
    fs::write(&file, "precious").unwrap();
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let before = tree(dir.path());
    for target in [&other, &file, &link, &empty, &source] {
        let said = fails(&mut zrfs!["pack", "--force", &source, target], 1);
        let why = if *target == source { "which --force would replace" } else { "is not a store" };
        assert!(said.contains(why), "{said}");
        let said = fails(&mut zrfs!["pack", &source, target], 1);
        assert!(said.contains("exists already"), "{said}");
    }
    // The attempts made and removed their hidden directories, which is all that may have changed the time.
    assert_same_entries(before, tree(dir.path()), Compare::AllButRoot);

    // Unpacking takes an empty directory, and no other.
    for target in [&other, &file, &link, &source] {
        fails(&mut zrfs!["unpack", &packed, target], 1);
    }
    ok(&mut zrfs!["unpack", &packed, &empty]);
    for nameless in ["/", ".", ".."] {
        let said = fails(&mut zrfs!["pack", &source, dir.path().join(nameless)], 1);
        assert!(said.contains("exists") || said.contains("is no name"), "{said}");
    }
    let said = fails(&mut zrfs!["pack", &source, dir.path().join("not/there/packed")], 1);
    assert!(said.contains("not/there"), "{said}");
    assert_eq!(names(dir.path()), ["empty", "file", "link", "other", "packed", "source"]);
}

#[test]
fn force_never_takes_what_is_not_of_a_store() {
    let dir = scratch();
    let (source, work, packed) = (dir.path().join("source"), dir.path().join("work"), dir.path().join("packed"));
    fs::create_dir_all(&source).unwrap();
    fs::create_dir_all(&work).unwrap();
    fs::write(source.join("f"), "1").unwrap();
    ok(&mut zrfs!["pack", &source, &packed]);
    // Stores in a directory of one's own, alone and beside other things; notes in a store; a header that is none.
    ok(&mut zrfs!["pack", &source, work.join("a.zr")]);
    let in_dataset = fails(&mut zrfs!["pack", "--force", &source, &work], 1);
    assert!(in_dataset.contains("a.zr"), "{in_dataset}");
    let before = tree(dir.path());
    fs::write(work.join("notes.txt"), "precious").unwrap();
    fs::create_dir(packed.join("private")).unwrap();
    fs::write(packed.join("private/thesis"), "precious").unwrap();
    let fake = dir.path().join("fake");
    fs::create_dir(&fake).unwrap();
    fs::write(fake.join("meta.zr"), "not a header").unwrap();
    fs::write(fake.join("precious"), "1").unwrap();
    for (target, why) in [(&work, "notes.txt"), (&packed, "private"), (&fake, "no header")] {
        let said = fails(&mut zrfs!["pack", "--force", &source, target], 1);
        assert!(said.contains(why) || said.contains("a.zr"), "{said}");
    }
    assert_eq!(fs::read_to_string(packed.join("private/thesis")).unwrap(), "precious");
    for added in [work.join("notes.txt"), packed.join("private/thesis")] {
        fs::remove_file(added).unwrap();
    }
    fs::remove_dir(packed.join("private")).unwrap();
    fs::remove_dir_all(&fake).unwrap();
    assert_eq!(before.len(), tree(dir.path()).len());
    // A store cannot be packed over itself.
    let said = fails(&mut zrfs!["pack", "--force", packed.join("data"), &packed], 1);
    assert!(said.contains("which --force would replace"), "{said}");
    // A damaged store may be replaced.
    fs::write(packed.join("data/0.loc"), "").unwrap();
    ok(&mut zrfs!["pack", "--force", &source, &packed]);
}

#[test]
fn verify_says_damage_once_and_sees_shapes() {
    let dir = scratch();
    let (source, packed) = (dir.path().join("a.npy"), dir.path().join("packed"));
    let mut array = zrfs::format::npy::header_bytes(&zrfs::format::dtype::DType::parse("<f4").unwrap(), &[100, 7]);
    array.extend(noise(1, 2800));
    fs::write(&source, array).unwrap();
    ok(&mut zrfs!["pack", &source, &packed]);
    ok(&mut zrfs!["verify", &packed]);
    let (meta, schema) = (packed.join("meta.zr"), packed.join("schema.msgpack"));
    let (good_meta, good_schema) = (fs::read(&meta).unwrap(), fs::read(&schema).unwrap());
    // A length that no table could hold.
    let mut bad = good_meta.clone();
    bad[19] = 0x16;
    fs::write(&meta, &bad).unwrap();
    let out = run(&mut zrfs!["verify", &packed]);
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(said.lines().count() <= 2 && said.contains("records 100 to"), "{said}");
    let said = fails(&mut zrfs!["info", &packed], 1);
    assert!(said.contains("the file is missing"), "{said}");
    fs::write(&meta, &good_meta).unwrap();
    // Another shape than the records have.
    let mut bad = good_schema.clone();
    *bad.last_mut().unwrap() = 6;
    fs::write(&schema, &bad).unwrap();
    let out = run(&mut zrfs!["verify", &packed]);
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8(out.stdout).unwrap().contains("100 damaged"));
}

#[test]
fn verify_names_and_rebuilds_raw_records() {
    let dir = scratch();
    let (source, packed) = (dir.path().join("source"), dir.path().join("packed"));
    fs::create_dir(&source).unwrap();
    for i in 0..5 {
        fs::write(source.join(format!("file {i}")), noise(i, 1000)).unwrap();
    }
    ok(&mut zrfs!["pack", "--codec", "raw", &source, &packed]);
    let verify = |args: &[&str], status: i32| -> String {
        let out = run(zrfs!["verify"].args(args).arg(&packed));
        assert_eq!(out.status.code(), Some(status), "{}", stderr(&out));
        String::from_utf8(out.stdout).unwrap()
    };
    assert!(!verify(&[], 0).contains("checksum"));
    let mut bytes = fs::read(packed.join("data/0.chunk")).unwrap();
    bytes[2500] ^= 1;
    fs::write(packed.join("data/0.chunk"), &bytes).unwrap();
    let said = verify(&[], 1);
    assert!(said.contains("record 2") && said.contains("sums.zr") && said.contains("1 damaged"), "{said}");
    // Made anew, the checksums do not bless the damage.
    let said = verify(&["--rebuild"], 1);
    assert!(said.contains("record 2") && said.contains("1 damaged, which keep their checksums"), "{said}");
    assert!(verify(&[], 1).contains("record 2"));
    bytes[2500] ^= 1;
    fs::write(packed.join("data/0.chunk"), &bytes).unwrap();
    fs::remove_file(packed.join("data/sums.zr")).unwrap();
    let said = verify(&[], 0);
    assert!(said.contains("5 of them without a checksum") && said.contains("verify --rebuild"), "{said}");
    let said = verify(&["--rebuild", "--json"], 0);
    let line = said.lines().find(|line| line.contains("\"data\"")).unwrap();
    assert!(line.contains("\"made\":5") && line.contains("\"bad\":0"), "{line}");
    assert!(!verify(&[], 0).contains("checksum"));
    // Compressed records carry their own.
    let compressed = dir.path().join("compressed");
    ok(&mut zrfs!["pack", &source, &compressed]);
    let said = fails(&mut zrfs!["verify", "--rebuild", &compressed], 1);
    assert!(said.contains("frames carry their checksums"), "{said}");
}

#[test]
fn an_interrupt_leaves_nothing() {
    let dir = scratch();
    let source = much(dir.path());
    let target = dir.path().join("packed");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut child =
            Guarded::spawn(&mut zrfs_with_signals(&[&"pack", &"--codec", &"zstd", &"--level", &"9", &source, &target]));
        wait_until_busy(&target);
        child.signal(signal);
        let out = child.ends_within(Duration::from_secs(20));
        assert_eq!(out.status.code(), Some(130), "{signal:?}: {}", stderr(&out));
        assert!(stderr(&out).contains("interrupted; nothing was left behind"), "{}", stderr(&out));
        assert_eq!(names(dir.path()), ["much"], "{signal:?}");
    }
    // Unpacking, too.
    ok(&mut zrfs!["pack", "--codec", "raw", &source, &target]);
    let copy = dir.path().join("copy");
    let mut child = Guarded::spawn(&mut zrfs_with_signals(&[&"unpack", &target, &copy]));
    wait_until_busy(&copy);
    child.signal(Signal::INT);
    let out = child.ends_within(Duration::from_secs(20));
    assert_eq!(out.status.code(), Some(130), "{}", stderr(&out));
    assert_eq!(names(dir.path()), ["much", "packed"]);
}

/// `nohup` is for jobs that outlive the terminal they were started at.
#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let dir = scratch();
    let source = much(dir.path());
    let target = dir.path().join("packed");
    let mut command = tool("env");
    command.args(["--default-signal", "--ignore-signal=HUP", ZRFS, "pack", "--codec", "raw"]).args([&source, &target]);
    let mut child = Guarded::spawn(&mut command);
    wait_until_busy(&target);
    child.signal(Signal::HUP);
    let out = child.ends_within(Duration::from_secs(60));
    assert!(out.status.success(), "{}: {}", out.status, stderr(&out));
    ok(&mut zrfs!["verify", &target]);
}

#[test]
fn an_interrupt_is_heard_while_waiting_for_standard_input() {
    let dir = scratch();
    let target = dir.path().join("packed");
    // Before the first byte, inside an archive, and inside an array: nobody will ever write the rest.
    let npy = zrfs::format::npy::header_bytes(&zrfs::format::dtype::DType::parse("<f4").unwrap(), &[1 << 20, 16]);
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(1 << 30);
    header.set_path("large").unwrap();
    header.set_mode(0o644);
    header.set_cksum();
    tar.get_mut().extend(header.as_bytes());
    let tar = tar.get_ref().clone();
    for (what, start) in [("nothing", Vec::new()), ("npy", npy), ("tar", tar)] {
        let mut child = Guarded::spawn(zrfs_with_signals(&[&"pack", &"-", &target]).stdin(Stdio::piped()));
        let mut pipe = child.child().stdin.take().unwrap();
        if start.is_empty() {
            // The last that gets a handler.
            child.wait_until_handled(Signal::XFSZ);
        } else {
            pipe.write_all(&start).unwrap();
            pipe.write_all(&vec![1; 20 << 20]).unwrap();
            wait_until_busy_or(&target, what);
        }
        child.signal(Signal::INT);
        let out = child.ends_within(Duration::from_secs(20));
        assert_eq!(out.status.code(), Some(130), "{what}: {}", stderr(&out));
        assert!(stderr(&out).contains("nothing was left behind"), "{what}: {}", stderr(&out));
        assert!(names(dir.path()).is_empty(), "{what}: {:?}", names(dir.path()));
        drop(pipe);
    }
}

/// As [`wait_until_busy`]; an array's store has its files one level higher.
fn wait_until_busy_or(target: &Path, what: &str) {
    if what == "tar" {
        return wait_until_busy(target);
    }
    let start = Instant::now();
    while !names(target.parent().unwrap()).iter().any(|n| target.with_file_name(n).join("new/0.chunk").exists()) {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing began");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_kill_leaves_nothing_under_the_targets_name() {
    let dir = scratch();
    let source = much(dir.path());
    let target = dir.path().join("packed");
    let mut child = Guarded::spawn(&mut zrfs!["pack", "--level", "9", &source, &target]);
    wait_until_busy(&target);
    child.signal(Signal::KILL);
    let out = child.ends_within(Duration::from_secs(20));
    assert_eq!(out.status.signal(), Some(Signal::KILL.as_raw()));
    assert!(!target.exists());
    let left: Vec<_> = names(dir.path()).into_iter().filter(|n| n != "much").collect();
    assert!(left.iter().all(|n| n.starts_with(".packed.zrfs-")), "what is left says what it is: {left:?}");
    // It is no obstacle.
    ok(&mut zrfs!["pack", "--codec", "raw", &source, &target]);
    assert_eq!(names(&target), ["data", "path", "tree.zr"]);

    // Replacing a store: the old one stays whole.
    let before = tree(&target);
    let mut child = Guarded::spawn(&mut zrfs!["pack", "--force", "--level", "9", &source, &target]);
    let start = Instant::now();
    while names(dir.path()).len() < 3 + left.len() {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing began");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.signal(Signal::KILL);
    child.ends_within(Duration::from_secs(20));
    assert_same_entries(before, tree(&target), Compare::All);
}

#[test]
fn a_file_size_limit_is_an_error_and_leaves_nothing() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    for i in 0..30 {
        fs::write(source.join(i.to_string()), noise(i, 100_000)).unwrap();
    }
    let packed = dir.path().join("packed");
    for limit in [0, 1, 100, 4096, 100_000, 1_000_000, 2_999_999] {
        let mut limited = tool("prlimit");
        limited.arg(format!("--fsize={limit}")).arg(ZRFS).arg("pack").args([&source, &packed]);
        let said = fails(&mut limited, 1);
        assert!(said.contains("File too large") && said.contains(".packed.zrfs-"), "{limit}: {said}");
        assert_eq!(names(dir.path()), ["source"], "{limit}");
    }
    // The other way: files that cannot be written whole are not written, and named.
    ok(&mut zrfs!["pack", &source, &packed]);
    let mut limited = tool("prlimit");
    let copy = dir.path().join("copy");
    limited.arg("--fsize=50000").arg(ZRFS).arg("unpack").args([&packed, &copy]);
    let said = fails(&mut limited, 1);
    assert_eq!(said.matches("failed: ").count(), 30, "{said}");
    assert!(names(&copy).is_empty());
}

#[test]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    need_root();
    let dir = scratch();
    let (source, disk) = (dir.path().join("source"), dir.path().join("disk"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&disk).unwrap();
    for i in 0..30 {
        fs::write(source.join(i.to_string()), noise(i, 100_000)).unwrap();
    }
    // In a mount namespace of its own, the small disk is gone with the shell, however it ends.
    let script = r#"
        mount -t tmpfs -o size="$1" none "$2" || exit 99
        "$3" pack "$4" "$2/packed"; status=$?
        ls -A "$2" >&2
        exit "$status""#;
    let on = |size: &str| {
        let mut shell = tool("unshare");
        shell.args(["--mount", "sh", "-c", script, "sh", size]).arg(&disk).arg(ZRFS).arg(&source);
        shell
    };
    for size in ["32k", "1m", "2900k"] {
        let said = fails(&mut on(size), 1);
        assert!(said.contains("No space left on device"), "{said}");
        assert_eq!(said.lines().count(), 1, "{size}: the disk is not empty:\n{said}");
    }
    let out = run(&mut on("8m"));
    assert!(out.status.success() && stderr(&out).ends_with("packed\n"), "{}", stderr(&out));
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    for i in 0..3000 {
        fs::write(source.join(format!("a rather long name, so that the pipe fills up {i}")), "x").unwrap();
    }
    fs::write(source.join("large"), noise(1, 3 << 20)).unwrap();
    let packed = dir.path().join("packed");
    ok(&mut zrfs!["pack", &source, &packed]);
    for args in [&["ls"][..], &["ls", "--json"], &["cat"]] {
        let mut command = zrfs![];
        command.args(args).arg(&packed);
        if args == ["cat"] {
            command.arg("large");
        }
        let mut child = Guarded::spawn(&mut command);
        let mut out = child.child().stdout.take().unwrap();
        let mut first = [0; 10];
        out.read_exact(&mut first).unwrap();
        drop(out);
        let out = child.ends_within(Duration::from_secs(20));
        assert!(out.status.success() && out.stderr.is_empty(), "{args:?}: {} {}", out.status, stderr(&out));
    }
    // A disk that is full is one, though.
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let said = fails_with_stdout(zrfs!["ls", &packed].stdout(full));
    assert!(said.contains("No space left on device"), "{said}");
}

fn fails_with_stdout(command: &mut Command) -> String {
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    stderr(&out)
}
