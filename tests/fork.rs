//! A process that forks while stores are open: the child reads on with what it inherited, on threads of its own, and
//! does not write with its parent's writer.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zrfs::format::{Codec, Layout};
use zrfs::loader::Failure;
use zrfs::{Error, Loader, OpenOptions, SharedWriter, Source, Store, WriterOptions};

const FORKS: usize = 50;
/// A child that is not done by then hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The tests fork one after the other: a child inherits whatever locks another test holds just then.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// More chunks and segments than a store keeps open, so that files are opened again and again.
const LAYOUT: Layout = Layout { segment_entries: 64, chunk_bytes: 40_000 };

fn record(i: u64) -> Vec<u8> {
    let word = format!("record {i} of many ");
    word.bytes().cycle().take(1500 + (i * 7919 % 1000) as usize).collect()
}

fn store(path: &Path, codec: Codec) -> Store {
    let mut writer = WriterOptions::new(codec).layout(LAYOUT).create(path).unwrap();
    let records: Vec<Vec<u8>> = (0..1500).map(record).collect();
    writer.append(&records.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
    writer.close().unwrap();
    OpenOptions::new().layout(LAYOUT).open(path).unwrap()
}

/// Gathers everything, in an order that jumps from chunk to chunk, on as many threads as there are.
fn all_is_well(store: &Store) -> bool {
    let indices: Vec<u64> = (0..store.len()).map(|i| i * 7919 % store.len()).collect();
    let Ok((bytes, offsets)) = store.gather_packed(&indices) else { return false };
    indices.iter().zip(offsets).all(|(&i, at)| bytes[at as usize..].starts_with(&record(i)))
}

/// Forks; the child does `work` and ends. Returns the child.
fn fork(work: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child calls `work`, which this test means to be sound in a fork of a process with several threads, and
    // ends with `_exit`, so that nothing of the parent's runs there twice.
    match unsafe { libc::fork() } {
        0 => {
            let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
            // SAFETY: ends the process.
            unsafe { libc::_exit(if done { 0 } else { 1 }) }
        }
        -1 => panic!("cannot fork: {}", io::Error::last_os_error()),
        child => child,
    }
}

/// The same, where the child is process 1 of a new pid namespace. With it ends all that it starts.
fn fork_as_process_1(work: impl FnOnce() -> bool) -> libc::pid_t {
    let ours = std::fs::File::open("/proc/self/ns/pid").unwrap();
    // SAFETY: says where the next children of this thread go, and nothing else.
    let done = unsafe { libc::unshare(libc::CLONE_NEWPID) };
    assert_eq!(done, 0, "a pid namespace: {}; this needs root: `sudo -E scripts/test`", io::Error::last_os_error());
    let child = fork(|| std::process::id() == 1 && work());
    // SAFETY: the same. Elsewhere than here no thread could be started.
    let done = unsafe { libc::setns(ours.as_raw_fd(), libc::CLONE_NEWPID) };
    assert_eq!(done, 0, "setns: {}", io::Error::last_os_error());
    child
}

/// Waits until the child ends well; one that hangs is killed.
#[track_caller]
fn ends_well(child: libc::pid_t, what: &str) {
    let begin = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: `status` is a place for the status.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        if ended == child {
            assert_eq!(status, 0, "{what}: the child ended with wait status {status:#x}");
            return;
        }
        assert_eq!(ended, 0, "waitpid: {}", io::Error::last_os_error());
        if begin.elapsed() > PATIENCE {
            // SAFETY: the child is this process's own, and not waited for yet.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("{what}: the child hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_child_gathers_on_threads_of_its_own() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    for codec in [Codec::Raw, Codec::Zstd] {
        let store = store(&dir.path().join(codec.name()), codec);
        assert!(all_is_well(&store));
        for n in 0..FORKS {
            let child = fork(|| {
                // A child's child does as well.
                all_is_well(&store) && {
                    n % 10 != 0 || {
                        ends_well(fork(|| all_is_well(&store)), "grandchild");
                        true
                    }
                }
            });
            ends_well(child, &format!("{codec}, fork {n}"));
        }
        assert!(all_is_well(&store));
    }
}

/// Does `work` while threads read the store in several ways, so that its locks are taken most of the time.
fn while_it_is_read(store: &Store, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    match thread {
                        0 => assert_eq!(store.refresh().unwrap(), 1500),
                        // One after the other, so that the files' lock is taken all the time.
                        1 => {
                            (0..300).for_each(|i| assert_eq!(store.read(i * 41 % 1500).unwrap(), record(i * 41 % 1500)))
                        }
                        _ => assert!(all_is_well(store)),
                    }
                }
            });
        }
        let done = catch_unwind(AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        done.unwrap();
    });
}

#[test]
fn a_child_gathers_whatever_its_parents_threads_were_doing() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir.path().join("s"), Codec::Zstd);
    while_it_is_read(&store, || {
        for n in 0..FORKS {
            let child = fork(|| all_is_well(&store) && store.refresh().is_ok() && !store.has_news().unwrap_or(true));
            ends_well(child, &format!("fork {n}"));
        }
    });
}

/// Both are process 1, each of its own pid namespace.
#[test]
fn a_child_with_its_parents_pid_is_a_child_all_the_same() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    drop(store(&path, Codec::Zstd));
    for n in 0..FORKS / 10 {
        let parent = fork_as_process_1(|| {
            let store = OpenOptions::new().layout(LAYOUT).open(&path).unwrap();
            let written = dir.path().join(n.to_string());
            let mut writer = WriterOptions::new(Codec::Zstd).create(&written).unwrap();
            writer.append(&[b"one"]).unwrap();
            let source = Arc::new(Source::open(&written).unwrap());
            let loader = Loader::builder().source(source).batch(1).workers(1).build().unwrap();
            while_it_is_read(&store, || {
                for k in 0..FORKS / 5 {
                    let child = fork_as_process_1(|| {
                        let gathered = all_is_well(&store) && store.refresh().is_ok();
                        let at_work = std::fs::read_dir("/proc/self/task").unwrap().count();
                        let told = matches!(loader.next(), Some(Err(e)) if matches!(e.failure, Failure::Forked(1)));
                        let helped = at_work == zrfs::threads();
                        let refused = refused(writer.append(&[b"two"]).err());
                        let all = [("gathered", gathered), ("helped", helped), ("told", told), ("refused", refused)];
                        let wrong: Vec<_> = all.iter().filter(|(_, is)| !is).collect();
                        if !wrong.is_empty() {
                            // The macros write to what the test's thread catches, which ends with this process.
                            let _ = writeln!(io::stderr(), "fork {k} of {n}: {wrong:?}, {at_work} at work");
                        }
                        wrong.is_empty()
                    });
                    ends_well(child, &format!("fork {k}"));
                }
            });
            true
        });
        ends_well(parent, &format!("parent {n}"));
    }
}

/// What a child is told that would write with its parent's writer.
fn refused(error: Option<Error>) -> bool {
    matches!(error, Some(Error::Invalid(text)) if text.contains("fork"))
}

#[test]
fn a_child_does_not_write_with_its_parents_writer() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mut writer = WriterOptions::new(Codec::Zstd).create(&path).unwrap();
    writer.append(&[b"one"]).unwrap();
    let child = fork(|| {
        let progress = zrfs::pack::Progress::default();
        refused(writer.append(&[b"x"]).err())
            && refused(writer.sync().err())
            && refused(writer.delete(&[0]).err())
            && refused(writer.compact(&progress).err())
            && matches!(WriterOptions::new(Codec::Zstd).open(&path), Err(Error::Locked { .. }))
    });
    ends_well(child, "a writer's child");
    writer.append(&[b"two"]).unwrap();
    let writer = SharedWriter::from(writer);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                writer.append(&[b"more"]).unwrap();
            }
        });
        for _ in 0..FORKS {
            let child =
                fork(|| refused(writer.append(&[b"x"]).err()) && refused(writer.sync().err()) && writer.len() > 1);
            ends_well(child, "a shared writer's child");
        }
        stop.store(true, Ordering::Relaxed);
        work.join().unwrap();
    });
    let length = writer.len();
    writer.close().unwrap();
    let store = Store::open(&path).unwrap();
    assert_eq!(store.len(), length);
    assert!((0..length).all(|i| store.read(i).is_ok()));
}

#[test]
fn the_readers_lock_stays_with_whoever_lives_longest() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let opened = store(&path, Codec::Raw);
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.set_read_timeout(Some(PATIENCE)).unwrap();
    let child = fork(|| theirs.read_exact(&mut [0]).is_ok() && all_is_well(&opened));
    drop(opened);
    let mut writer = WriterOptions::new(Codec::Raw).layout(LAYOUT).open(&path).unwrap();
    assert!(matches!(writer.delete(&[0]), Err(Error::Locked { .. })));
    ours.write_all(&[1]).unwrap();
    ends_well(child, "a reader's child");
    writer.delete(&[0]).unwrap();
}
