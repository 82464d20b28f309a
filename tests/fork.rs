//! A process that forks while stores are open: the child reads on with what it inherited, on threads of its own, and
//! does not write with its parent's writer.

#[path = "common/child.rs"]
mod child;

use child::{alone, ends_well, fork};
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zrfs::dataset::RaggedWriter;
use zrfs::format::dtype::DType;
use zrfs::format::{Codec, Layout};
use zrfs::loader::{Failure, LoadError};
use zrfs::{Error, Loader, OpenOptions, SharedWriter, Source, Store, Stream, WriterOptions};

const FORKS: usize = 50;

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

/// Gathers everything, in an order that jumps from chunk to chunk, on as many threads as there are. Always true: what is not
/// well is said by a panic.
#[track_caller]
fn all_is_well(store: &Store) -> bool {
    let indices: Vec<u64> = (0..store.len()).map(|i| i * 7919 % store.len()).collect();
    let (bytes, offsets) = store.gather_packed(&indices).unwrap();
    for (i, at) in indices.into_iter().zip(offsets) {
        assert!(bytes[at as usize..].starts_with(&record(i)), "record {i} is another one");
    }
    true
}

/// Forks, so that the child is process 1 of a new pid namespace. With it ends all that it starts.
fn fork_as_process_1(work: impl FnOnce() -> bool) -> libc::pid_t {
    let ours = File::open("/proc/self/ns/pid").unwrap();
    // SAFETY: says where the next children of this thread go, and nothing else.
    let done = unsafe { libc::unshare(libc::CLONE_NEWPID) };
    assert_eq!(done, 0, "a pid namespace: {}; this needs root: `sudo -E scripts/test`", io::Error::last_os_error());
    let child = fork(|| std::process::id() == 1 && work());
    // SAFETY: the same. Elsewhere than here no thread could be started.
    let done = unsafe { libc::setns(ours.as_raw_fd(), libc::CLONE_NEWPID) };
    assert_eq!(done, 0, "setns: {}", io::Error::last_os_error());
    child
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

/// The system copies a forking process's descriptors before its memory. Where another thread closes one file and opens another
/// in between, the child's memory takes the one for the other.
#[test]
fn a_child_does_not_take_one_file_for_another() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    for codec in [Codec::Raw, Codec::Zstd] {
        let path = dir.path().join(codec.name());
        let store = store(&path, codec);
        assert!(all_is_well(&store));
        let child = fork(|| {
            let parts = descriptors_of_parts(&path);
            assert!(parts.len() > 8, "{parts:?}");
            let other = File::open(path.join("0.loc")).unwrap();
            for &part in &parts {
                // SAFETY: the store, which has the descriptor, is what is tested: that it leaves it alone.
                assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), part) }, part);
            }
            // One by one, they are read by system calls; those first that were open last.
            (0..1500).rev().for_each(|i| assert_eq!(store.read(i).unwrap(), record(i)));
            all_is_well(&store);
            // Nor are they closed with the store: they are others' now.
            drop(store);
            parts.iter().all(|part| std::fs::exists(format!("/proc/self/fd/{part}")).unwrap())
        });
        ends_well(child, codec.name());
    }
}

/// As daemons do.
#[test]
fn a_child_that_closes_what_it_inherited_is_told() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let store = store(&path, Codec::Raw);
    let child = fork(|| {
        // SAFETY: what has these descriptors is to notice.
        assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, 3, 1 << 20, 0) }, 0);
        // Others' files come to their places.
        let others: Vec<File> = (0..64).map(|_| File::open("/proc/self/exe").unwrap()).collect();
        let told = store.read(7).unwrap_err().to_string();
        assert!(
            told.contains("a fork of the one that opened it, does not have this file; open it here anew"),
            "{told}"
        );
        let indices: Vec<u64> = (0..1500).collect();
        assert!(store.gather_packed(&indices).is_err() && store.refresh().is_err());
        assert!(all_is_well(&OpenOptions::new().layout(LAYOUT).open(&path).unwrap()));
        drop(store);
        others.iter().all(|other| other.metadata().is_ok())
    });
    ends_well(child, "a daemon");
}

#[test]
fn a_child_reads_on_when_the_store_is_removed() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mut writer = WriterOptions::new(Codec::Raw).create(&path).unwrap();
    for i in 0..10 {
        writer.append(&[&record(i)]).unwrap();
    }
    writer.close().unwrap();
    let store = Store::open(&path).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    ends_well(fork(|| (0..10).all(|i| store.read(i).unwrap() == record(i))), "a child");
}

/// The descriptors of this process that are chunks and segments of the store.
fn descriptors_of_parts(store: &Path) -> Vec<i32> {
    let part = |entry: std::fs::DirEntry| {
        let file = std::fs::read_link(entry.path()).ok()?;
        let is_part = file.extension().is_some_and(|kind| kind == "chunk" || kind == "loc");
        (is_part && file.starts_with(store)).then(|| entry.file_name().to_str()?.parse().ok())?
    };
    std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(part).collect()
}

/// Does `work` while threads read the store in several ways, so that its locks are taken most of the time.
fn while_it_is_read(store: &Store, work: impl FnOnce()) {
    let read = |thread| match thread {
        0 => assert_eq!(store.refresh().unwrap(), 1500),
        // One after the other, so that the files' lock is taken all the time.
        1 => (0..300).for_each(|i| assert_eq!(store.read(i * 41 % 1500).unwrap(), record(i * 41 % 1500))),
        _ => assert!(all_is_well(store)),
    };
    while_threads(read, work);
}

/// Does `work` while four threads do theirs again and again.
fn while_threads(theirs: impl Fn(usize) + Sync, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (stop, theirs) = (&stop, &theirs);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    theirs(thread);
                }
            });
        }
        let done = catch_unwind(AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        done.unwrap();
    });
}

/// For these, too, threads take locks, and never wait for one in a child.
#[test]
fn a_child_finds_shapes_and_names_whatever_its_parents_threads_were_doing() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (path, files, packed) = (dir.path().join("s"), dir.path().join("files"), dir.path().join("packed"));
    let mut writer = RaggedWriter::create(&path, WriterOptions::new(Codec::Raw), DType::parse("|u1").unwrap()).unwrap();
    let (shape, content) = (|i: u64| [i % 5 + 1, 2], [0; 10]);
    for i in 0..2000 {
        writer.append(&[(&shape(i), &content[..shape(i)[0] as usize * 2])]).unwrap();
    }
    writer.close().unwrap();
    std::fs::create_dir(&files).unwrap();
    (0..500).for_each(|i| std::fs::write(files.join(format!("file {i}")), "x").unwrap());
    let pack = Command::new(env!("CARGO_BIN_EXE_zrfs")).arg("pack").args([&files, &packed]).output().unwrap();
    assert!(pack.status.success(), "{pack:?}");
    let (stream, packed) = (Stream::open(&path).unwrap(), Source::open(&packed).unwrap());
    let Source::Dataset(packed) = &packed else { panic!("no tree: {packed:?}") };
    let tree = packed.tree().unwrap();
    let all_are_found = || {
        (0..2000).step_by(9).for_each(|i| assert_eq!(stream.shape(i).unwrap(), Some(shape(i).to_vec())));
        (0..500).for_each(|i| assert!(tree.resolve(format!("file {i}").as_bytes()).unwrap().is_some(), "file {i}"));
        true
    };
    while_threads(
        |_| assert!(all_are_found()),
        || (0..FORKS).for_each(|n| ends_well(fork(all_are_found), &format!("fork {n}"))),
    );
}

#[test]
fn a_child_gathers_whatever_its_parents_threads_were_doing() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir.path().join("s"), Codec::Zstd);
    while_it_is_read(&store, || {
        for n in 0..FORKS {
            let child = fork(|| all_is_well(&store) && store.refresh().unwrap() == 1500 && !store.has_news().unwrap());
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
                        assert!(all_is_well(&store) && store.refresh().unwrap() == 1500);
                        let at_work = names_of_threads();
                        assert_eq!(at_work.len(), zrfs::threads(), "fork {k} of {n}: {at_work:?}");
                        let told = loader.next();
                        let forked = |e: &LoadError| matches!(e.failure, Failure::Forked(1));
                        assert!(matches!(&told, Some(Err(e)) if forked(e)), "fork {k} of {n}: {told:?}");
                        refused(writer.append(&[b"two"]))
                    });
                    ends_well(child, &format!("fork {k}"));
                }
            });
            true
        });
        ends_well(parent, &format!("parent {n}"));
    }
}

/// The threads of this process.
fn names_of_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap()).collect()
}

/// What a child is told that would write with its parent's writer. Always true, as `all_is_well` is.
#[track_caller]
fn refused<T: Debug>(done: Result<T, Error>) -> bool {
    assert!(matches!(&done, Err(Error::Invalid(text)) if text.contains("fork")), "{done:?}");
    true
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
        refused(writer.append(&[b"x"]))
            && refused(writer.sync())
            && refused(writer.delete(&[0]))
            && refused(writer.compact(&progress))
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
            let child = fork(|| refused(writer.append(&[b"x"])) && refused(writer.sync()) && writer.len() > 1);
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
    theirs.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let child = fork(|| theirs.read_exact(&mut [0]).is_ok() && all_is_well(&opened));
    drop(opened);
    let mut writer = WriterOptions::new(Codec::Raw).layout(LAYOUT).open(&path).unwrap();
    assert!(matches!(writer.delete(&[0]), Err(Error::Locked { .. })));
    ours.write_all(&[1]).unwrap();
    ends_well(child, "a reader's child");
    writer.delete(&[0]).unwrap();
}
