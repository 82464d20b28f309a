//! Stores to mount, mounts that go away whatever happens, and programs with a deadline.

pub mod random;

pub use tempfile::TempDir;

use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zrfs::dataset::{DATA_STREAM, PATH_STREAM};
use zrfs::format::TREE_FILE;
use zrfs::storage::Disk;
use zrfs::tree::{Meta, Mtime, TreeBuilder};
use zrfs::{Writer, WriterOptions};

const DEADLINE: Duration = Duration::from_secs(60);

/// The program under test.
pub fn mounter() -> &'static str {
    env!("CARGO_BIN_EXE_zrfs-mount")
}

/// A program that ignores no signal, though the tests may run under `nohup`, whose children ignore SIGHUP.
fn command(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", program]);
    command
}

/// What a program did.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs a program; it is killed, and the test fails, when it takes longer than the deadline.
pub fn run(program: &str, args: &[&str]) -> Done {
    run_for(DEADLINE, program, args)
}

/// The same with a deadline of its own.
pub fn run_for(deadline: Duration, program: &str, args: &[&str]) -> Done {
    let mut command = command(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // In a group of its own, so that what it started goes with it, and no terminal's keys are for it.
    let mut child = command.process_group(0).spawn().unwrap_or_else(|e| panic!("{program}: {e}"));
    let mut pipes = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = std::thread::spawn(move || {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let _ = (pipes.0.read_to_end(&mut out), pipes.1.read_to_end(&mut err));
        [out, err].map(|b| String::from_utf8_lossy(&b).into_owned())
    });
    let start = Instant::now();
    while !read.is_finished() && start.elapsed() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    if !read.is_finished() {
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status();
        panic!("{program} {args:?} hangs");
    }
    let code = child.wait().unwrap().code();
    let [out, err] = read.join().unwrap();
    Done { code, out, err }
}

pub fn shell(script: &str) -> Done {
    run("bash", &["-c", script])
}

/// Runs a program as another user, without any of root's rights.
pub fn run_as(user: u32, args: &[&str]) -> Done {
    let (uid, gid) = (format!("--reuid={user}"), format!("--regid={user}"));
    run("setpriv", &[&[uid.as_str(), &gid, "--clear-groups"], args].concat())
}

/// The output of what must have succeeded.
#[track_caller]
pub fn succeeds(done: &Done) -> String {
    assert!(done.code == Some(0), "{done:?}");
    done.out.clone()
}

#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What `measure` finds, up to three times until it is good enough: a machine that is busy with other things has no processor for
/// what is done ahead of a reader.
pub fn at_best<T>(mut measure: impl FnMut() -> T, good: impl Fn(&T) -> bool) -> T {
    (1..3).map(|_| measure()).find(&good).unwrap_or_else(measure)
}

/// Whether what is said of a batch that can't be reached has the cause and what to do.
pub fn names_the_way_out(said: &str) -> bool {
    let words = ["socket", "view", "part of the mount", "--root", "network namespace of zrfs-mount"];
    said.lines().count() == 1 && words.iter().all(|word| said.contains(word))
}

/// Bytes that differ from seed to seed and don't compress to nothing.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b"abcdefgh"[(x >> 61) as usize]
    };
    (0..length).map(next).collect()
}

pub fn store(path: &Path, codec: &str, records: &[Vec<u8>]) -> Writer {
    let mut writer = WriterOptions::new(codec.parse().unwrap()).create(path).unwrap();
    for round in records.chunks(10_000) {
        let slices: Vec<&[u8]> = round.iter().map(Vec::as_slice).collect();
        writer.append(&slices).unwrap();
    }
    writer.sync().unwrap();
    writer
}

/// The same files twice: as files, and as a dataset with a tree.
pub fn tree(files: &Path, dataset: &Path) {
    let meta = |mode| Meta { mode, mtime: Mtime { secs: 1_000_000_000, nanos: 0 }, uid: 0, gid: 0 };
    std::fs::create_dir(dataset).unwrap();
    let mut tree = TreeBuilder::new(dataset, meta(0o755), 50_000).unwrap();
    let (mut records, mut paths) = (Vec::new(), Vec::new());
    let root = tree.root();
    let sub = tree.dir(root, b"sub", meta(0o755)).unwrap();
    let deep = tree.dir(sub, b"deep", meta(0o755)).unwrap();
    tree.dir(root, b"hollow", meta(0o755)).unwrap();
    std::fs::create_dir_all(files.join("sub/deep")).unwrap();
    std::fs::create_dir(files.join("hollow")).unwrap();
    let names: [(usize, &[u8], usize); 7] = [
        (0, b"empty", 0),
        (0, b"one", 1),
        (1, b"\xff", 49_999),
        (1, b"new\nline", 50_000),
        (2, "\u{e9}".as_bytes(), 50_001),
        (2, "e\u{301}".as_bytes(), 250_000),
        (2, &[b'n'; 255], 1_234_567),
    ];
    let mut one = None;
    for (k, (dir, name, length)) in names.into_iter().enumerate() {
        let content = bytes(k as u64, length);
        let id = tree.file([root, sub, deep][dir], name, meta(0o644), records.len() as u64, length as u64).unwrap();
        one = one.or((length == 1).then_some(id));
        let path = files.join(["", "sub", "sub/deep"][dir]).join(std::ffi::OsStr::from_bytes(name));
        std::fs::write(&path, &content).unwrap();
        for piece in content.chunks(50_000) {
            records.push(piece.to_vec());
            paths.push(name.to_vec());
        }
    }
    tree.hardlink(sub, b"hard", one.unwrap()).unwrap();
    std::fs::hard_link(files.join("one"), files.join("sub/hard")).unwrap();
    for (name, target) in
        [("broken", "no/where"), ("self", "self"), ("good", "sub/hard"), ("absolute", "/etc/hostname")]
    {
        tree.symlink(root, name.as_bytes(), meta(0o777), target.as_bytes()).unwrap();
        std::os::unix::fs::symlink(target, files.join(name)).unwrap();
    }
    store(&dataset.join(DATA_STREAM), "zstd", &records);
    store(&dataset.join(PATH_STREAM), "raw", &paths);
    tree.finish(&Disk::default(), &dataset.join(TREE_FILE)).unwrap();
}

/// Whether something is mounted there; asks the kernel's list, not the mount.
pub fn is_mounted(mountpoint: &Path) -> bool {
    let mounts = zrfs_mount::mounting::mounts();
    mounts.iter().any(|m| m.mountpoint == mountpoint)
}

/// Takes a mount away when it goes out of scope.
pub struct Unmount(pub PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        while is_mounted(&self.0) {
            if zrfs_mount::mounting::unmount(&self.0, true).is_err() {
                break;
            }
        }
    }
}

/// Where a program says that it is ready, as to systemd.
struct Readiness(UnixDatagram);

impl Readiness {
    /// Lets a program that is to be started know of it.
    fn of(command: &mut Command) -> Readiness {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("zrfs-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        command.env("NOTIFY_SOCKET", format!("@{name}"));
        Readiness(socket)
    }

    /// Waits for a moment.
    fn is_said(&self) -> bool {
        let mut text = [0; 32];
        self.0.recv(&mut text).is_ok_and(|n| &text[..n] == b"READY=1")
    }
}

/// A mount by a process of ours in the foreground. Both go when it goes out of scope.
pub struct Mount {
    child: Child,
    mountpoint: PathBuf,
    own: Option<TempDir>,
}

impl Mount {
    pub fn new(store: &Path, args: &[&str]) -> Mount {
        let own = TempDir::new().unwrap();
        let mountpoint = own.path().join("m");
        std::fs::create_dir(&mountpoint).unwrap();
        std::fs::set_permissions(own.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut mount = Mount::at(store, &mountpoint, args);
        mount.own = Some(own);
        mount
    }

    pub fn at(store: &Path, mountpoint: &Path, args: &[&str]) -> Mount {
        let mut log = tempfile::tempfile().unwrap();
        let mut command = command(mounter());
        command.arg("-f").arg(store).arg(mountpoint).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.try_clone().unwrap());
        let ready = Readiness::of(&mut command);
        let mut child = command.spawn().unwrap();
        let start = Instant::now();
        // What answers before is not all of it yet: what watches it, say, is started later.
        while !ready.is_said() {
            let ended = child.try_wait().unwrap();
            if ended.is_some() || start.elapsed() > Duration::from_secs(20) {
                let _ = child.kill();
                let mut text = String::new();
                let _ = std::io::Seek::rewind(&mut log).and_then(|()| log.read_to_string(&mut text));
                panic!("no mount: {ended:?} {text}");
            }
        }
        assert!(is_mounted(mountpoint));
        Mount { child, mountpoint: mountpoint.to_path_buf(), own: None }
    }

    pub fn path(&self) -> String {
        self.mountpoint.to_str().unwrap().into()
    }

    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    pub fn is_mounted(&self) -> bool {
        is_mounted(&self.mountpoint)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory of the process in KiB.
    pub fn resident(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most that it ever was.
    pub fn peak(&self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_end_matches("kB").trim().parse().unwrap()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn signal(&self, signal: &str) {
        succeeds(&run("kill", &["-s", signal, &self.child.id().to_string()]));
    }

    /// Waits for the process to end; its exit code.
    pub fn wait(&mut self) -> Option<i32> {
        wait_until("the process ends", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(Unmount(self.mountpoint.clone()));
        let _ = self.child.kill();
        let _ = self.child.wait();
        drop(Unmount(self.mountpoint.clone()));
    }
}
