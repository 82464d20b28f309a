//! Large trees: the memory that they take, and their time.

use super::*;
use crate::storage::Disk;
use std::time::Instant;

#[test]
fn memory_is_bounded() {
    const FILES: u32 = 120_000;
    let mut b = builder();
    let root = b.root();
    for i in 0..FILES {
        // Scattered arrival, so that the scratch files are read out of order.
        let name = format!("{:08x}", i.wrapping_mul(0x9E37_79B1));
        b.file(root, name.as_bytes(), meta(1), u64::from(i), 1).unwrap();
        if i % 5000 < 2 {
            // One that just arrived, and one that went to the scratch file long ago.
            b.set_meta(EntryId(i + 1), meta(7)).unwrap();
            b.set_meta(EntryId(i / 2 + 1), meta(8)).unwrap();
        }
    }
    let entries = b.parents.capacity() * 4 + b.kinds.capacity() + b.aliases.capacity() * 8;
    assert!(entries <= FILES as usize * 12, "{entries} bytes for {FILES} entries");
    let (memory, summary) = finish(b);
    assert!(summary.index_bytes <= 192 + 64 + u64::from(FILES) * (64 + 8));
    let tree = memory.open().unwrap();
    assert_eq!(tree.blocks.cached_bytes(), 0, "opening reads the header only");
    for i in (0..FILES).step_by(5) {
        let name = format!("{:08x}", i.wrapping_mul(0x9E37_79B1));
        let id = tree.lookup(0, name.as_bytes()).unwrap().unwrap();
        assert_eq!(tree.lookup(0, format!("{name}!").as_bytes()).unwrap(), None);
        if i % 100 == 0 {
            let node = tree.node(id).unwrap();
            let (late, early) = (i % 5000 < 2, i % 2500 == 0 && i < FILES / 2);
            assert_eq!(
                node.meta,
                meta(if early {
                    8
                } else if late {
                    7
                } else {
                    1
                }),
                "file {i}"
            );
            assert_eq!(node.kind, NodeKind::File { first: u64::from(i), records: 1, size: 1 });
        }
    }
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let tree = &tree;
            scope.spawn(move || {
                for id in (1 + thread..=u64::from(FILES)).step_by(997) {
                    let name = tree.node(id).unwrap().name;
                    assert_eq!(tree.lookup(0, &name).unwrap(), Some(id));
                }
            });
        }
    });
    tree.verify().unwrap();
    let cached = tree.blocks.cached_bytes();
    assert!((1 << 20..=2 << 20).contains(&cached), "{cached} bytes cached");
    let kept = tree.probes.kept();
    assert!((1 << 10..=16 << 10).contains(&kept), "{kept} names kept");
}

fn resident_kib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// `cargo test --release --lib -p zrfs a_million_files -- --ignored --nocapture --test-threads 1`
#[test]
#[ignore = "a measurement; takes seconds in a release build"]
fn a_million_files() {
    const FILES: u64 = 1_000_000;
    let dir = tempfile::tempdir().unwrap();
    let shapes = [("one directory", FILES, true), ("1000 a directory", 1000, false), ("scattered", 1000, true)];
    for (shape, per_dir, scattered) in shapes {
        let path = dir.path().join(shape);
        let _ = std::fs::write("/proc/self/clear_refs", "5"); // Forgets the peak so far.
        let before = resident_kib("VmRSS");
        let mut start = Instant::now();
        let mut b = TreeBuilder::new(dir.path(), meta(1), 4 << 20).unwrap();
        let root = b.root();
        let dirs: Vec<EntryId> =
            (0..FILES / per_dir).map(|d| b.dir(root, format!("d{d:04}").as_bytes(), meta(1)).unwrap()).collect();
        // Scattered: bit-reversed, so the files of a directory arrive as far from each other as they can.
        let place = |i: u64| if scattered { (i.reverse_bits() >> 44).wrapping_mul(FILES) >> 20 } else { i };
        for i in 0..FILES {
            let name = format!("sample_{i:07}.jpg");
            b.file(dirs[(place(i) / per_dir) as usize], name.as_bytes(), meta(2), i, 100_000).unwrap();
        }
        let added = start.elapsed();
        start = Instant::now();
        let summary = b.finish(&Disk::default(), &path).unwrap();
        let (finished, peak) = (start.elapsed(), resident_kib("VmHWM"));

        start = Instant::now();
        let tree = Tree::open(&Disk::default(), &path).unwrap();
        let opened = start.elapsed();
        let held = resident_kib("VmRSS");
        let wanted: Vec<(u64, Vec<u8>)> = (0..200_000_u64)
            .map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % FILES)
            .map(|i| (1 + place(i) / per_dir, format!("sample_{i:07}.jpg").into_bytes()))
            .collect();
        start = Instant::now();
        for (dir, name) in &wanted {
            assert!(tree.lookup(*dir, name).unwrap().is_some());
        }
        let random = start.elapsed() / wanted.len() as u32;
        start = Instant::now();
        let mut listed = 0;
        for dir in tree.children(0).unwrap() {
            listed += tree.list(dir, 0).unwrap().map(Result::unwrap).count() as u64;
        }
        let list = start.elapsed() / listed as u32;
        assert_eq!(listed, FILES);
        start = Instant::now();
        for _ in 0..1000 {
            for node in tree.list(1, 0).unwrap().take(1000) {
                node.unwrap();
            }
        }
        let cached = start.elapsed() / 1_000_000;
        start = Instant::now();
        for id in 1..=FILES {
            tree.node(id).unwrap();
        }
        let node = start.elapsed() / FILES as u32;
        start = Instant::now();
        tree.verify().unwrap();
        println!(
            "{shape}: {} B a file; add {added:?}, finish {finished:?}, peak {} MiB over; open {opened:?}; \
             random lookup {random:?}; list {list:?} a node, cached {cached:?}; node(id) {node:?}; verify {:?}; \
             reading took {} MiB",
            summary.index_bytes / FILES,
            (peak.saturating_sub(before)) >> 10,
            start.elapsed(),
            resident_kib("VmRSS").saturating_sub(held) >> 10,
        );
        assert!(opened.as_millis() < 5);
    }
}
