//! A disk that is full and a limit on the size of files, at each operation of a writer: what was there stays, whole and
//! readable; the writer refuses to go on and says to open the store again; and with room it goes on.

#[path = "common/forked.rs"]
mod forked;

use forked::{Kind, complain, delete_from, doomed, fork, wait};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use zrfs::format::Codec;
use zrfs::{Error, Result};

/// One test after the other: a forked child inherits the locks that another test holds just then.
static ALONE: Mutex<()> = Mutex::new(());

/// A file system of 1 MiB in memory, unmounted when dropped.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        assert!(rustix::process::geteuid().is_root(), "this test mounts, so it needs root: run `sudo -E scripts/test`");
        rustix::mount::mount("tmpfs", dir.path(), "tmpfs", rustix::mount::MountFlags::empty(), Some(c"size=1m"))
            .unwrap();
        Tmpfs(dir)
    }

    /// Fills the disk up to `free` pages of 4 KiB.
    fn fill(&self, free: u64) {
        let stat = rustix::fs::statvfs(self.0.path()).unwrap();
        let room = stat.f_bavail.saturating_sub(free) * stat.f_frsize;
        fs::write(self.ballast(), vec![1; room as usize]).unwrap();
    }

    fn free(&self) {
        let _ = fs::remove_file(self.ballast());
    }

    fn ballast(&self) -> PathBuf {
        self.0.path().join("ballast")
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let gone = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
        if !std::thread::panicking() {
            gone.unwrap();
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Op {
    Append,
    Sync,
    Delete,
    Compact,
    Close,
}

const OPS: [Op; 5] = [Op::Append, Op::Sync, Op::Delete, Op::Compact, Op::Close];
const KINDS: [Kind; 3] = [Kind::Bytes, Kind::Ragged, Kind::Dataset];

/// Records that are there before, and numbers of those that are appended.
const OLD: u64 = 300;
const NEW: std::ops::Range<u64> = 1000..1400;

/// A store of `OLD` records, and what it holds.
fn make(kind: Kind, codec: Codec, path: &Path) -> Vec<u64> {
    kind.create(path, codec);
    let mut writer = kind.open(path).unwrap();
    writer.append(0..OLD).unwrap();
    let mut model: Vec<u64> = (0..OLD).collect();
    // Holes, for a compaction to fill.
    let holes = doomed(5, OLD);
    writer.delete(&holes).unwrap();
    delete_from(&mut model, &holes);
    writer.close().unwrap();
    model
}

/// What may be there after `op` on `model`, whether it failed or not; the last is that it was done.
fn states(op: Op, model: &[u64]) -> Vec<Vec<u64>> {
    let mut states = vec![model.to_vec()];
    match op {
        Op::Append | Op::Sync | Op::Close => {
            states
                .extend((1..=NEW.end - NEW.start).map(|n| model.iter().copied().chain(NEW.take(n as usize)).collect()));
        }
        Op::Delete => {
            let mut after = model.to_vec();
            delete_from(&mut after, &doomed(1, model.len() as u64));
            states.push(after);
        }
        Op::Compact => {}
    }
    states
}

/// Appends and syncs, deletes, or compacts, with `before` called before the operation that counts. Of an error, the
/// operation after it must refuse.
fn act(kind: Kind, path: &Path, op: Op, before: impl FnOnce()) -> Result<()> {
    if op == Op::Compact {
        before();
        return kind.compact(path);
    }
    let mut writer = kind.open(path)?;
    if matches!(op, Op::Sync | Op::Close) {
        writer.append(NEW)?;
    }
    before();
    let done = match op {
        Op::Append => writer.append(NEW),
        Op::Sync => writer.sync(),
        Op::Close => return writer.close(),
        Op::Delete => writer.delete(&doomed(1, writer.len())),
        Op::Compact => Ok(()),
    };
    if done.is_err() {
        let next = [writer.append(NEW), writer.sync(), writer.delete(&[0])];
        for error in next.into_iter().map(Result::unwrap_err) {
            assert!(matches!(error, Error::Latched { .. }) && error.to_string().contains("open"), "{error}");
        }
    }
    done
}

/// Goes on with what is left: it is one of `states`, and everything works on it.
fn go_on(kind: Kind, path: &Path, states: &[Vec<u64>], context: &str) {
    let mut model = kind.read(path).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert!(states.contains(&model), "{context}: {} records are none of the states", model.len());
    let mut writer = kind.open(path).unwrap_or_else(|e| panic!("{context}: {e}"));
    writer.append(5000..5100).unwrap();
    model.extend(5000..5100);
    let holes = doomed(2, model.len() as u64);
    writer.delete(&holes).unwrap();
    delete_from(&mut model, &holes);
    writer.close().unwrap();
    kind.compact(path).unwrap();
    assert_eq!(kind.read(path).unwrap(), model, "{context}: going on");
}

#[test]
fn a_full_disk_costs_nothing_that_was_there() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut failed, mut all) = (0, 0);
    let disk = Tmpfs::new();
    for (codec, kind) in [Codec::Raw, Codec::Zstd].into_iter().flat_map(|codec| KINDS.map(|kind| (codec, kind))) {
        for op in OPS {
            // From no room at all to enough for some, most, and all that the operation needs.
            for free in [0, 1, 2, 4, 6, 9, 40] {
                let context = format!("{op:?} of a {codec} {kind:?} with {free} pages free");
                let path = disk.0.path().join("s");
                let model = make(kind, codec, &path);
                let states = states(op, &model);
                let done = act(kind, &path, op, || disk.fill(free));
                all += 1;
                match &done {
                    Ok(()) => assert_eq!(kind.read(&path).unwrap(), *states.last().unwrap(), "{context}"),
                    Err(Error::Io { source, .. }) => {
                        assert_eq!(source.raw_os_error(), Some(libc::ENOSPC), "{context}: {source}");
                        failed += 1;
                    }
                    Err(e) => panic!("{context}: {e}"),
                }
                // Also while there is no room still: to read needs none, and a writer says it if it does.
                disk.fill(0);
                let seen = kind.read(&path).unwrap_or_else(|e| panic!("{context}: {e}"));
                assert!(states.contains(&seen), "{context}: {} records", seen.len());
                if let Err(e) = kind.open(&path).map(drop) {
                    assert!(
                        matches!(&e, Error::Io { source, .. } if source.raw_os_error() == Some(libc::ENOSPC)),
                        "{e}"
                    );
                }
                disk.free();
                go_on(kind, &path, &states, &context);
                fs::remove_dir_all(&path).unwrap();
            }
        }
    }
    println!("full disk: {all} operations, {failed} of which failed for want of space");
    assert!(failed > all / 10, "only {failed} of {all} operations failed");
}

/// Lets no file of this process grow beyond `bytes`.
fn limit_files(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}

#[test]
fn a_limit_on_files_costs_nothing_that_was_there() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let (mut failed, mut killed, mut all) = (0, 0, 0);
    for (codec, kind) in [Codec::Raw, Codec::Zstd].into_iter().flat_map(|codec| KINDS.map(|kind| (codec, kind))) {
        for op in OPS {
            for limit in [0, 2000, 8000, 24_000] {
                // A process that does not ignore the signal dies of it.
                for ignored in [true, false] {
                    let context = format!("{op:?} of a {codec} {kind:?}, files up to {limit} bytes");
                    let path = dir.path().join("s");
                    let model = make(kind, codec, &path);
                    let states = states(op, &model);
                    let child = fork(|| {
                        // SAFETY: changes only what the signal does.
                        unsafe { libc::signal(libc::SIGXFSZ, if ignored { libc::SIG_IGN } else { libc::SIG_DFL }) };
                        match act(kind, &path, op, || limit_files(limit)) {
                            Ok(()) => true,
                            // Ends with 2, which tells it from a failed assertion.
                            Err(Error::Io { source, .. }) if source.raw_os_error() == Some(libc::EFBIG) => {
                                // SAFETY: ends the process.
                                unsafe { libc::_exit(2) }
                            }
                            Err(e) => {
                                complain(&e);
                                false
                            }
                        }
                    });
                    let status = wait(child);
                    all += 1;
                    if libc::WIFSIGNALED(status) {
                        assert!(libc::WTERMSIG(status) == libc::SIGXFSZ && !ignored, "{context}: {status:#x}");
                        killed += 1;
                    } else {
                        match libc::WEXITSTATUS(status) {
                            0 => assert_eq!(kind.read(&path).unwrap(), *states.last().unwrap(), "{context}"),
                            2 => failed += 1,
                            other => panic!("{context}: the child ended with {other}"),
                        }
                    }
                    go_on(kind, &path, &states, &context);
                    fs::remove_dir_all(&path).unwrap();
                }
            }
        }
    }
    println!("limits: {all} operations, {failed} failed, {killed} ended by the signal");
    assert!(failed > 0 && killed > 0, "{failed} failed and {killed} were killed");
}
