//! Sizes of batches, and their time.

use super::*;
use crate::WriterOptions;
use crate::format::Codec;
use std::collections::HashSet;

fn store(dir: &tempfile::TempDir, n: usize, bytes: usize) -> Store {
    let path = dir.path().join("store");
    let mut writer = WriterOptions::new(Codec::Zstd).create(&path).unwrap();
    let record = vec![b'x'; bytes];
    writer.append(&vec![&record[..]; n]).unwrap();
    writer.close().unwrap();
    Store::open(&path).unwrap()
}

#[test]
fn no_record_is_twice_in_a_batch_and_none_has_more_than_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir, 100, 3);
    let mut bench = Bench::new(&store, Duration::from_millis(20)).unwrap();
    for n in [1, 7, 64, 100, 1000] {
        for _ in 0..20 {
            let (indices, _) = bench.draw(n).unwrap();
            assert_eq!(indices.len(), n.min(100));
            assert_eq!(indices.iter().collect::<HashSet<_>>().len(), indices.len(), "{indices:?}");
        }
    }
    assert_eq!(bench.most(64).unwrap(), (64, None));
    assert_eq!(bench.most(1 << 24).unwrap(), (100, Some(Bound::Records)));
    bench.length = 50;
    assert_eq!(bench.most(64).unwrap(), (50, Some(Bound::Warm)));
    assert!(bench.decode(1000).unwrap().unwrap().iter().all(|rate| rate.batch <= 50));
}

#[test]
fn memory_bounds_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir, 20, 64 << 20);
    let mut bench = Bench::new(&store, Duration::from_millis(20)).unwrap();
    assert_eq!(bench.most(20).unwrap(), (8, Some(Bound::Memory)));
    assert_eq!(bench.draw(20).unwrap().0.len(), 8);
}

#[test]
fn slow_batches_end_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir, 100, 3);
    let mut bench = Bench::new(&store, Duration::from_millis(50)).unwrap();
    let mut all = Duration::ZERO;
    // A record takes a millisecond: a batch of 1000 would take five times as long as all may.
    let (size, batches) = bench
        .batches(1000, |_, n| {
            let time = Duration::from_millis(n as u64);
            std::thread::sleep(time);
            all += time;
            Ok(Batch { time, bytes: 1, records: n })
        })
        .unwrap();
    assert!((16..200).contains(&size) && batches.iter().all(|batch| batch.records == size), "{size}");
    assert!(all < Duration::from_millis(600), "{all:?}");
}
