//! Workers against a page cache of ours, and orders alone.

use super::device::PageCache;
use super::order::{Cursor, Item, Orders, Place, Space};
use super::*;
use crate::fs::FsOptions;
use crate::namespace::Node;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use zrfs::format::Codec;
use zrfs::{Source, WriterOptions};

/// The kernel's part: inodes that it knows, and pages that it has.
#[derive(Default)]
struct Kernel {
    known: Mutex<Option<HashSet<u64>>>,
    pages: Mutex<HashMap<u64, Vec<u8>>>,
    gone: AtomicBool,
}

impl PageCache for Kernel {
    fn store(&self, ino: u64, bytes: &[u8]) -> Result<(), Errno> {
        if self.gone.load(Ordering::Relaxed) {
            return Err(Errno::NOTCONN);
        }
        if self.known.lock().unwrap().as_ref().is_some_and(|known| !known.contains(&ino)) {
            return Err(Errno::NOENT);
        }
        if !bytes.is_empty() {
            self.pages.lock().unwrap().insert(ino, bytes.to_vec());
        }
        Ok(())
    }
}

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|i| (i * i + seed * 31 + i / 7) as u8).collect()
}

struct Mounted {
    fs: Arc<Fs>,
    kernel: Arc<Kernel>,
    records: Vec<Vec<u8>>,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.fs.ahead().end();
    }
}

impl Mounted {
    fn new(dir: &Path, codec: Codec, records: Vec<Vec<u8>>, ahead_bytes: u64) -> Mounted {
        let mut writer = WriterOptions::new(codec).create(dir).unwrap();
        writer.append(&records.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        writer.close().unwrap();
        let options = FsOptions { cache_bytes: 4 << 20, ahead_bytes, ..FsOptions::default() };
        let fs = Arc::new(Fs::new(Source::open(dir).unwrap(), options).unwrap());
        let kernel = Arc::new(Kernel::default());
        if fs.ahead().is_on() {
            let to: Arc<dyn PageCache> = kernel.clone();
            start(&fs, &to, 2).unwrap();
        }
        Mounted { fs, kernel, records }
    }

    /// Reads a record as the kernel does for a reader: from its pages, or else by asking.
    fn read(&self, index: usize) {
        let ino = Node::Record(0, index as u64).ino().unwrap();
        let want = &self.records[index];
        if let Some(pages) = self.kernel.pages.lock().unwrap().get(&ino) {
            assert!(pages == want, "record {index} was pushed wrong");
            return;
        }
        let mut got = vec![0; want.len() + 1];
        let n = self.fs.read(ino, 0, &mut got).unwrap();
        assert!(got[..n] == want[..], "record {index}");
    }

    /// Waits until the workers have nothing to do, or have ended.
    fn rest(&self) {
        let start = Instant::now();
        let ahead = self.fs.ahead();
        let busy = || {
            let state = ahead.lock();
            let idle = ahead.waiting.load(Ordering::Relaxed) == 2 && !state.orders.has_work(ahead.budget);
            !idle && !ahead.ended.load(Ordering::Relaxed)
        };
        while busy() {
            assert!(start.elapsed() < Duration::from_secs(20), "the workers go on and on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn reads(&self) -> u64 {
        self.fs.counters().reads.get()
    }
}

fn lengths() -> Vec<usize> {
    let edges = [1, 4095, 4096, 4097, 12_288, 131_071, 131_072, 131_073, 5, 262_144];
    (0..400).map(|i| edges[i % edges.len()]).collect()
}

#[test]
fn a_reader_in_order_is_gone_ahead_of() {
    for (codec, stride) in [(Codec::Raw, 1), (Codec::Zstd, 1), (Codec::Zstd, 3), (Codec::Zstd, -1)] {
        let dir = TempDir::new().unwrap();
        let records: Vec<_> = lengths().into_iter().enumerate().map(|(i, n)| bytes(i as u64, n)).collect();
        let count = records.len();
        let mount = Mounted::new(&dir.path().join("s"), codec, records, 64 << 20);
        let order = (0..count).step_by(stride.max(1) as usize).map(|i| if stride < 0 { count - 1 - i } else { i });
        let files = order.clone().count() as u64;
        for i in order {
            mount.read(i);
            mount.rest();
        }
        let (reads, pushed) = (mount.reads(), mount.fs.counters().pushed.get());
        assert!(reads < 20 && pushed >= files - 20, "{codec:?} by {stride}: {reads} reads, {pushed} pushed");
        assert_eq!(mount.fs.counters().left_out.get(), 0);
    }
}

#[test]
fn several_readers_each_have_their_own() {
    let dir = TempDir::new().unwrap();
    let records: Vec<_> = (0..1200).map(|i| bytes(i, 500)).collect();
    let mount = Mounted::new(&dir.path().join("s"), Codec::Zstd, records, 64 << 20);
    std::thread::scope(|s| {
        for first in [0, 300, 601, 900] {
            let mount = &mount;
            s.spawn(move || {
                for i in first..first + 290 {
                    mount.read(i);
                    mount.rest();
                }
            });
        }
    });
    let (reads, pushed) = (mount.reads(), mount.fs.counters().pushed.get());
    assert!(reads < 400 && pushed > 800, "{reads} reads, {pushed} pushed");
}

#[test]
fn when_the_reader_stops_so_does_the_work() {
    let dir = TempDir::new().unwrap();
    let records: Vec<_> = (0..5000).map(|i| bytes(i, 100)).collect();
    let mount = Mounted::new(&dir.path().join("s"), Codec::Raw, records, 64 << 20);
    for i in 0..6 {
        mount.read(i);
        mount.rest();
    }
    let pushed = mount.fs.counters().pushed.get();
    assert!((1..=16).contains(&pushed), "{pushed} files for a reader of six");
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(mount.fs.counters().pushed.get(), pushed);

    // By bytes as well.
    let records: Vec<_> = (0..100).map(|i| bytes(i, 100_000)).collect();
    let mount = Mounted::new(&dir.path().join("bytes"), Codec::Raw, records, 1_000_000);
    for i in 0..60 {
        mount.read(i);
        mount.rest();
        let furthest = *mount.kernel.pages.lock().unwrap().keys().max().unwrap_or(&0) >> 16;
        assert!(furthest <= i as u64 + 16, "{furthest} is pushed for a reader at {i}");
    }
}

#[test]
fn hopping_about_is_left_alone() {
    let dir = TempDir::new().unwrap();
    let records: Vec<_> = (0..20_000).map(|i| bytes(i, 8)).collect();
    let mount = Mounted::new(&dir.path().join("s"), Codec::Raw, records, 64 << 20);
    let mut x = 1u64;
    for _ in 0..20_000 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        mount.read((x >> 33) as usize % 20_000);
    }
    mount.rest();
    let pushed = mount.fs.counters().pushed.get();
    assert!(pushed < 200, "{pushed} files were pushed for nobody");
}

#[test]
fn files_the_kernel_does_not_know_wait_decoded() {
    let dir = TempDir::new().unwrap();
    let records: Vec<_> = (0..200).map(|i| bytes(i, 3000)).collect();
    let mount = Mounted::new(&dir.path().join("s"), Codec::Zstd, records, 64 << 20);
    *mount.kernel.known.lock().unwrap() = Some(HashSet::new());
    for i in 0..100 {
        mount.read(i);
        mount.rest();
    }
    let counters = mount.fs.counters();
    assert_eq!((counters.reads.get(), counters.pushed.get()), (100, 0));
    assert!(counters.decoded_already.get() > 90);
    assert!(counters.decoded_bytes.get() <= (100 + 17) * 3000, "{}", counters.decoded_bytes.get());
    // As soon as the directory is listed, they are pushed.
    *mount.kernel.known.lock().unwrap() = None;
    for i in 100..200 {
        mount.read(i);
        mount.rest();
    }
    assert!(counters.reads.get() < 140, "{}", counters.reads.get());
}

#[test]
fn a_damaged_file_is_left_out() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let records: Vec<_> = (0..60).map(|i| bytes(i, 3000)).collect();
    let mount = Mounted::new(&path, Codec::Zstd, records, 64 << 20);
    let mut table = std::fs::read(path.join("0.loc")).unwrap();
    // Record 30 says that it is in a chunk that isn't there.
    table[30 * 16..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
    std::fs::write(path.join("0.loc"), table).unwrap();
    for i in (0..60).filter(|&i| i != 30) {
        mount.read(i);
        mount.rest();
    }
    let ino = Node::Record(0, 30).ino().unwrap();
    assert!(!mount.kernel.pages.lock().unwrap().contains_key(&ino));
    assert_eq!(mount.fs.read(ino, 0, &mut [0; 9]), Err(Errno::IO));
    assert!(mount.reads() < 30);
}

#[test]
fn nothing_is_pushed_where_it_is_off_and_after_the_end() {
    let dir = TempDir::new().unwrap();
    let records: Vec<_> = (0..100).map(|i| bytes(i, 300)).collect();
    let mount = Mounted::new(&dir.path().join("off"), Codec::Zstd, records.clone(), 0);
    (0..100).for_each(|i| mount.read(i));
    assert_eq!((mount.reads(), mount.fs.counters().pushed.get()), (100, 0));

    let mount = Mounted::new(&dir.path().join("gone"), Codec::Zstd, records, 1 << 20);
    mount.kernel.gone.store(true, Ordering::Relaxed);
    for i in 0..100 {
        mount.read(i);
        mount.rest();
    }
    let start = Instant::now();
    while Arc::strong_count(&mount.fs) > 1 {
        assert!(start.elapsed() < Duration::from_secs(10), "the workers outlive the mount");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_longest_file_that_is_pushed() {
    let dir = TempDir::new().unwrap();
    let lengths = [1, 1, 1, 1, MAX_FILE as usize, MAX_FILE as usize + 1, 7, 7, 7];
    let records: Vec<_> = lengths.iter().map(|&n| vec![5; n]).collect();
    let mount = Mounted::new(&dir.path().join("s"), Codec::Zstd, records, 1 << 30);
    for i in 0..lengths.len() {
        mount.read(i);
        mount.rest();
    }
    let pages = mount.kernel.pages.lock().unwrap();
    let has = |i| pages.contains_key(&Node::Record(0, i).ino().unwrap());
    assert!(has(4) && !has(5) && has(6));
}

/// A place in `records`.
fn at(index: u64) -> Place {
    Place { space: Space::Records(0), at: index, end: index.saturating_add(1), node: Node::Record(0, index) }
}

#[test]
fn what_makes_an_order() {
    let orders = |reads: &[u64]| {
        let mut orders = Orders::default();
        reads.iter().map(|&index| orders.note(at(index), 1 << 20)).collect::<Vec<_>>()
    };
    assert_eq!(orders(&[5, 6, 7]), [false, false, true]);
    assert_eq!(orders(&[0, 100, 1, 101, 2, 102]), [false, false, false, false, true, true]);
    assert_eq!(orders(&[0, 4, 8, 12]), [false, false, false, true]);
    assert_eq!(orders(&[9, 8, 7, 6]), [false, false, false, true]);
    assert_eq!(orders(&[1, 2, 4, 8, 16, 32, 64]), [false; 7]);
    assert_eq!(orders(&[0, 100, 200, 300, 400]), [false; 5], "too far for neighbours");
    assert_eq!(orders(&[7, 7, 7, 7]), [false; 4]);
    let far = u64::MAX - 3;
    assert_eq!(orders(&[far, far + 1, far + 2, far + 3, 0, 1]), [false, false, true, true, false, false]);
}

#[test]
fn claims_go_on_where_the_last_ended() {
    let mut orders = Orders::default();
    for index in [5, 6, 7] {
        orders.note(at(index), 1 << 20);
    }
    let claim = orders.claim(1 << 20, 3).unwrap();
    assert_eq!((claim.cursor, claim.files), (Cursor::Index { next: 8, stride: 1 }, 3));
    assert!(orders.claim(1 << 20, 3).is_none(), "one worker at a time looks for the next files");
    let items: Vec<_> = (8..11).map(|i| Item { node: Node::Record(0, i), at: i, end: i + 1, bytes: 10 }).collect();
    orders.give_back(claim.id, Some(Cursor::Index { next: 11, stride: 1 }), &items, 1 << 20);
    assert_eq!(orders.claim(1 << 20, 3).unwrap().files, 1, "four ahead at first");
    let last = Item { node: Node::Record(0, 11), at: 11, end: 12, bytes: 10 };
    orders.give_back(claim.id, Some(Cursor::Index { next: 12, stride: 1 }), &[last], 1 << 20);
    assert!(orders.claim(1 << 20, 3).is_none(), "its window is full");
    // A worker is not woken for each file, only when half of the window is free.
    assert!(!orders.note(at(8), 1 << 20) && orders.claim(1 << 20, 3).is_none());
    assert!(!orders.note(at(9), 20) && orders.claim(20, 3).is_none(), "no bytes left");
    assert!(orders.note(at(10), 1 << 20));
    // The reader leaps over all that was found for it, while a worker looks for more.
    let claim = orders.claim(1 << 20, 3).unwrap();
    orders.settle(claim.id, &[], false);
    assert!(!orders.note(at(12), 1 << 20), "a worker is at it already");
    assert!(claim.reader.has_passed(12) && !claim.reader.has_passed(13));
    orders.give_back(claim.id, Some(Cursor::Index { next: 13, stride: 1 }), &[], 1 << 20);
    assert_eq!(orders.claim(1 << 20, 3).unwrap().cursor, Cursor::Index { next: 13, stride: 1 });
    orders.give_back(claim.id, None, &[], 1 << 20);
    assert!(orders.claim(1 << 20, 3).is_none(), "at the end an order is forgotten");
}
