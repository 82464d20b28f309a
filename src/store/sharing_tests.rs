//! Several threads, handles and processes on one store.

use super::*;
use crate::storage::sim::{Call, Fault, Sim};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A record whose thread, number and length can be told from it.
fn record(thread: usize, number: usize) -> Vec<u8> {
    let word = format!("thread {thread} record {number} ");
    word.bytes().cycle().take(1 + (thread * 7919 + number * 104_729) % 3000).collect()
}

#[test]
fn each_thread_finds_its_records_where_it_was_told() {
    for codec in Codec::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let layout = Layout { segment_entries: 100, chunk_bytes: 60_000 };
        let options = WriterOptions::new(codec).layout(layout).level(Some(1));
        let samples: Vec<Vec<u8>> = (0..400).map(|n| record(9, n)).collect();
        let sizes: Vec<usize> = samples.iter().map(Vec::len).collect();
        let dict = crate::codec::train_dict(&samples.concat(), &sizes, 2048).unwrap();
        let writer = SharedWriter::from(options.dict(dict).create(&path).unwrap());
        let wrote: Mutex<Vec<(u64, Vec<u8>)>> = Mutex::default();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (writer, wrote) = (&writer, &wrote);
                scope.spawn(move || {
                    let mut number = 0;
                    for batch in 0..40 {
                        let records: Vec<Vec<u8>> = (number..number + batch % 7).map(|n| record(thread, n)).collect();
                        number += records.len();
                        let range = writer.append(&records.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
                        assert_eq!(range.end - range.start, records.len() as u64);
                        assert!(writer.len() >= range.end);
                        wrote.lock().unwrap().extend(range.zip(records));
                        if batch % 16 == thread {
                            writer.sync().unwrap();
                        }
                    }
                });
            }
        });
        let (length, mut wrote) = (writer.len(), wrote.into_inner().unwrap());
        writer.close().unwrap();
        wrote.sort();
        assert_eq!(wrote.len(), 8 * (0..40).map(|batch| batch % 7).sum::<usize>());
        let store = OpenOptions::new().layout(layout).open(&path).unwrap();
        assert_eq!((store.len(), wrote.len() as u64), (length, length));
        for (want, (index, record)) in (0..).zip(wrote) {
            assert_eq!((index, &store.read(index).unwrap()), (want, &record), "{codec}");
        }
    }
}

#[test]
fn a_large_batch_of_one_thread_stays_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let writer = SharedWriter::from(WriterOptions::new(Codec::Raw).create(&path).unwrap());
    let (large, small) = (vec![vec![1; 5 << 20]; 9], vec![2; 10]);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let range = writer.append(&large.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
            assert_eq!(range.end - range.start, 9);
            done.store(range.start + 1, Ordering::Release);
        });
        while done.load(Ordering::Acquire) == 0 {
            writer.append(&[&small]).unwrap();
        }
    });
    let first = done.into_inner() - 1;
    assert!(matches!(writer.append(&[b"a", b""]), Err(Error::RecordLength { length: 0 })));
    let length = writer.len();
    assert_eq!(writer.append(&[]).unwrap(), length..length);
    writer.into_inner().close().unwrap();
    let store = Store::open(&path).unwrap();
    for index in 0..length {
        let wanted = if (first..first + 9).contains(&index) { 5 << 20 } else { 10 };
        assert_eq!(store.lengths(&[index]).unwrap(), [wanted]);
    }
}

#[test]
fn news_are_told_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mut writer = WriterOptions::new(Codec::Zstd).create(&path).unwrap();
    writer.append(&[b"a"]).unwrap();
    let store = Store::open(&path).unwrap();
    assert!(!store.has_news().unwrap());
    writer.append(&[b"b"]).unwrap();
    assert!(store.has_news().unwrap() && store.has_news().unwrap());
    assert_eq!(store.len(), 1);
    assert_eq!(store.refresh().unwrap(), 2);
    assert!(!store.has_news().unwrap());
}

/// Threads that refresh at the same time see the store grow, never shrink.
#[test]
fn refreshes_at_the_same_time_agree() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mut writer = WriterOptions::new(Codec::Raw).create(&path).unwrap();
    let store = Store::open(&path).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut last = 0;
                while last < 500 {
                    let length = store.refresh().unwrap();
                    assert!(length >= last && store.len() >= length);
                    last = length;
                }
            });
        }
        for _ in 0..500 {
            writer.append(&[b"a"]).unwrap();
        }
    });
}

#[test]
fn a_chunk_cut_short_under_a_reader_is_named_and_the_store_lives() {
    let dir = tempfile::tempdir().unwrap();
    for codec in [Codec::Raw, Codec::Zstd] {
        let path = dir.path().join(codec.name());
        let layout = Layout { segment_entries: 100, chunk_bytes: 4000 };
        let mut writer = WriterOptions::new(codec).layout(layout).create(&path).unwrap();
        let records: Vec<Vec<u8>> = (0..20).map(|n| history::record(n, 900)).collect();
        writer.append(&records.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        writer.close().unwrap();
        let store = OpenOptions::new().layout(layout).open(&path).unwrap();
        let entry = store.entry(6).unwrap();
        let chunk = path.join(format!("{}.chunk", entry.chunk_id));
        let file = std::fs::OpenOptions::new().write(true).open(&chunk).unwrap();
        file.set_len(u64::from(entry.offset) + 5).unwrap();
        let error = store.gather_packed(&(0..20).collect::<Vec<_>>()).unwrap_err().to_string();
        assert!(error.contains("record 6") && error.contains(chunk.to_str().unwrap()), "{error}");
        assert!(error.contains("the file ends here"), "{error}");
        for i in (0..20).filter(|i| store.entry(*i).unwrap().chunk_id != entry.chunk_id) {
            assert_eq!(store.read(i).unwrap(), records[i as usize]);
        }
    }
}

/// What was logged as a warning.
static WARNED: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Collect;

impl log::Log for Collect {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        WARNED.lock().unwrap().push(record.args().to_string());
    }
    fn flush(&self) {}
}

#[test]
fn without_locks_a_store_is_read_with_a_warning() {
    log::set_logger(&Collect).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let sim = Sim::new();
    let mut writer = WriterOptions::new(Codec::Zstd).storage(Arc::new(sim.clone())).create("unlockable").unwrap();
    writer.append(&[b"a record"]).unwrap();
    writer.close().unwrap();
    let no_locks = Fault::Errno(rustix::io::Errno::NOLCK.raw_os_error());
    let mut refused = 0;
    for call in 0.. {
        sim.fail(call, no_locks);
        let opened = OpenOptions::new().storage(Arc::new(sim.clone())).open("unlockable");
        let failed = sim.failed();
        sim.heal();
        match failed {
            Some(Call::Lock) => {
                assert_eq!(opened.unwrap().read(0).unwrap(), b"a record");
                refused += 1;
            }
            Some(_) => {}
            None => break,
        }
    }
    assert_eq!(refused, 1);
    let warned = WARNED.lock().unwrap();
    let about = |text: &&String| text.starts_with("unlockable cannot be locked (No locks available");
    assert_eq!(warned.iter().filter(about).count(), 1, "{warned:?}");
}

/// A lock that cannot be had for a fault of the disk is not taken for a file system without locks.
#[test]
fn no_fault_lets_a_deletion_pass_under_a_reader() {
    let sim = Sim::new();
    let options = || WriterOptions::new(Codec::Raw).storage(Arc::new(sim.clone()));
    let mut writer = options().create("./s").unwrap();
    writer.append(&[b"one", b"two"]).unwrap();
    writer.close().unwrap();
    let reader = OpenOptions::new().storage(Arc::new(sim.clone())).open("./s").unwrap();
    for at in 0.. {
        sim.fail(at, Fault::Errno(rustix::io::Errno::IO.raw_os_error()));
        let writer = options().open("./s");
        let hit = sim.failed();
        sim.heal();
        if let Ok(mut writer) = writer {
            let deleted = writer.delete(&[0]);
            assert!(matches!(deleted, Err(Error::Locked { .. })), "{at}, {hit:?}: {deleted:?}");
        }
        if hit.is_none() {
            break;
        }
    }
    assert_eq!(reader.read(0).unwrap(), b"one");
}
