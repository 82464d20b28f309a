//! What the end-to-end tests share: running the built command, random bytes, trees compared entry by entry.
#![allow(dead_code)] // Each test binary uses its own part.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The command as cargo built it for these tests.
pub const ZRFS: &str = env!("CARGO_BIN_EXE_zrfs");

/// A fresh directory on a real file system (sparse files, rename flags), removed when dropped.
pub fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("zrfs-test-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// `zrfs` with arguments of any kind.
#[macro_export]
macro_rules! zrfs {
    ($($arg:expr),* $(,)?) => {{
        let mut command = std::process::Command::new($crate::common::ZRFS);
        $(command.arg($arg);)*
        command.stdin(std::process::Stdio::null());
        command
    }};
}

/// The same for a process that is sent signals: it ignores none, though the tests may run under `nohup`.
pub fn zrfs_with_signals(args: &[&dyn AsRef<OsStr>]) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", ZRFS]).args(args.iter().map(|arg| arg.as_ref())).stdin(Stdio::null());
    command
}

/// Runs a command to its end; its status and both outputs.
#[track_caller]
pub fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// Copies our program to `to`, by another process: what a thread of ours has open for writing, a child that another thread
/// starts at the same moment has open, too, and what is open for writing cannot be run.
pub fn copy_of_zrfs(to: &Path) {
    ok(Command::new("cp").arg(ZRFS).arg(to));
}

/// Runs a command that must succeed; its standard output.
#[track_caller]
pub fn ok(command: &mut Command) -> Vec<u8> {
    let out = run(command);
    assert!(out.status.success(), "{command:?}: {}\n{}", out.status, stderr(&out));
    out.stdout
}

/// Runs a command that must fail with this exit status and without a panic; what it said on standard error.
#[track_caller]
pub fn fails(command: &mut Command, status: i32) -> String {
    let out = run(command);
    let text = stderr(&out);
    assert_eq!(out.status.code(), Some(status), "{command:?}: {}\n{text}", out.status);
    assert!(!text.contains("panicked"), "{command:?}\n{text}");
    text
}

pub fn stderr(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// A tool that the tests need, and `scripts/setup` installs; a missing one is a failure, not a reason to skip.
#[track_caller]
pub fn tool(name: &str) -> Command {
    let found =
        std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()));
    assert!(found, "{name} is missing, which this test needs; `scripts/setup` installs it");
    let mut command = Command::new(name);
    command.stdin(Stdio::null());
    command
}

/// Fails the test unless it runs as root, which scripts/test says beforehand.
#[track_caller]
pub fn need_root() {
    let root = rustix::process::geteuid().is_root();
    assert!(root, "this test makes devices and mounts, so it needs root: run `sudo -E scripts/test`");
}

/// Bytes that do not compress, the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend(state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    out.truncate(len);
    out
}

/// The names in a directory, the hidden ones too, sorted.
pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// What is compared of one entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: &'static str,
    pub mode: u32,
    pub mtime: (i64, i64),
    pub owner: (u32, u32),
    pub nlink: u64,
    /// The first path, in order, that has the same inode.
    pub same_as: PathBuf,
    /// Of a file its length and hash, of a symbolic link its target.
    pub content: String,
}

/// What of a tree is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// Everything.
    All,
    /// Everything but the root's own mode and time, which an archive need not have.
    AllButRoot,
}

/// Every entry of the tree below `root`, by its path.
pub fn tree(root: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut paths = vec![];
    let mut dirs = vec![root.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        paths.push(dir.clone());
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                dirs.push(path);
            } else {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let mut first = HashMap::new();
    let entry = |path: PathBuf| {
        let meta = path.symlink_metadata().unwrap();
        let relative = path.strip_prefix(root).unwrap().to_path_buf();
        let kind = meta.file_type();
        let (kind, content) = if kind.is_dir() {
            ("dir", String::new())
        } else if kind.is_symlink() {
            ("symlink", format!("{:?}", fs::read_link(&path).unwrap()))
        } else if kind.is_file() {
            ("file", format!("{} {:016x}", meta.len(), hash(&path)))
        } else {
            ("other", String::new())
        };
        let same_as = first.entry((meta.dev(), meta.ino())).or_insert_with(|| relative.clone()).clone();
        let entry = Entry {
            kind,
            mode: meta.mode() & 0o7777,
            mtime: (meta.mtime(), meta.mtime_nsec()),
            owner: (meta.uid(), meta.gid()),
            nlink: if meta.is_dir() { 0 } else { meta.nlink() },
            same_as,
            content,
        };
        (relative, entry)
    };
    paths.into_iter().map(entry).collect()
}

/// Two trees must be the same, down to times and inode sharing.
#[track_caller]
pub fn assert_same(a: &Path, b: &Path, compare: Compare) {
    assert_same_entries(tree(a), tree(b), compare);
}

/// The same for trees that were read before.
#[track_caller]
pub fn assert_same_entries(mut a: BTreeMap<PathBuf, Entry>, mut b: BTreeMap<PathBuf, Entry>, compare: Compare) {
    if compare == Compare::AllButRoot {
        a.remove(Path::new(""));
        b.remove(Path::new(""));
    }
    let mut differences = String::new();
    for path in a.keys().chain(b.keys().filter(|p| !a.contains_key(*p))) {
        if a.get(path) != b.get(path) {
            let _ = writeln!(differences, "{path:?}\n  {:?}\n  {:?}", a.get(path), b.get(path));
        }
    }
    assert!(differences.is_empty(), "the trees differ:\n{differences}");
}

/// A hash of a file's bytes (FNV-1a over 8-byte words): good enough to tell two files of a test apart.
pub fn hash(path: &Path) -> u64 {
    let mut file = File::open(path).unwrap();
    let (mut hash, mut buf) = (0xcbf2_9ce4_8422_2325_u64, vec![0; 1 << 20]);
    loop {
        let mut n = 0;
        while n < buf.len() {
            match file.read(&mut buf[n..]).unwrap() {
                0 => break,
                got => n += got,
            }
        }
        if n == 0 {
            return hash;
        }
        let (words, rest) = buf[..n].as_chunks::<8>();
        for word in words {
            hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x0100_0000_01b3);
            hash ^= hash >> 32;
        }
        for &byte in rest {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Sets a path's time of modification, also of a symbolic link and before 1970.
pub fn set_mtime(path: &Path, secs: i64, nanos: i64) {
    let time = rustix::fs::Timespec { tv_sec: secs, tv_nsec: nanos };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// A path from bytes that need not be text.
pub fn name(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
