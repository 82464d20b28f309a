//! The fuzz targets (`fuzz/src`) on mutated golden stores, for a minute in all, without libFuzzer: it needs nightly Rust,
//! and this runs wherever the tests do. The order of the inputs is always the same, their number depends on the machine.
//! `ZRFS_FUZZ_SECONDS` asks for another time. What fails is left in `target/tmp/fuzz-TARGET`; copied to
//! `fuzz/regressions/TARGET/NAME`, it runs first from then on.

#[path = "common/forked.rs"]
mod forked;
#[path = "../fuzz/src/lib.rs"]
mod fuzz;

use fuzz::store::FILES;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zrfs::WriterOptions;
use zrfs::dataset::RaggedWriter;
use zrfs::format::dataset::Intent;
use zrfs::format::dtype::DType;
use zrfs::format::header::Note;
use zrfs::format::journal::{Journal, Moved};
use zrfs::format::tree::NODE_LEN;
use zrfs::format::{Codec, Entry, Header};

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 7] = [
    ("store", fuzz::store::target),
    ("dataset", fuzz::dataset::target),
    ("side_files", fuzz::side_files::target),
    ("header_table_schema", fuzz::header_table_schema::target),
    ("dictionary", fuzz::dictionary::target),
    ("tree_index", fuzz::tree_index::target),
    ("npy_idx", fuzz::npy_idx::target),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A store's files, as the target reads them, each if it is there and not too long.
fn blob(store: &Path, with: impl Fn(&str) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::new();
    for name in FILES {
        match with(name).or_else(|| fs::read(store.join(name)).ok()).filter(|bytes| bytes.len() < 0xffff) {
            Some(bytes) => {
                out.extend((bytes.len() as u16).to_le_bytes());
                out.extend(bytes);
            }
            None => out.extend([0xff, 0xff]),
        }
    }
    out
}

/// The journal of the deletion of the first record of a store of two or more.
fn journal(store: &Path) -> Option<Vec<u8>> {
    let before = Header::decode(&fs::read(store.join("meta.zr")).ok()?).ok()?;
    let length = before.length.checked_sub(1).filter(|&length| length > 0)?;
    let table = fs::read(store.join("0.loc")).ok()?;
    let last = Entry::decode(table.get(length as usize * 16..)?.first_chunk()?);
    let after = Header { length, note: Note::Synced(length), ..before };
    Some(Journal { before, after, moves: vec![(0, Moved { entry: last, sum: 0 })] }.encode())
}

fn golden() -> Vec<PathBuf> {
    let mut stores: Vec<PathBuf> =
        fs::read_dir(root().join("tests/golden/stores")).unwrap().map(|e| e.unwrap().path()).collect();
    stores.sort();
    assert!(stores.len() >= 7, "no golden stores");
    stores
}

/// Stores with each of the files that zrfs adds: sums, shapes and a journal.
fn ours(dir: &Path) -> Vec<PathBuf> {
    for codec in [Codec::Raw, Codec::Zstd] {
        let mut writer = WriterOptions::new(codec).create(dir.join(format!("bytes-{codec}"))).unwrap();
        writer.append(&[b"one", b"two and more", b"three"]).unwrap();
        writer.close().unwrap();
        let path = dir.join(format!("ragged-{codec}"));
        let mut writer = RaggedWriter::create(&path, WriterOptions::new(codec), DType::parse("<i2").unwrap()).unwrap();
        writer.append(&[(&[2, 2], b"12345678"), (&[1], b"ab")]).unwrap();
        writer.close().unwrap();
        let mut writer = RaggedWriter::open(&path, WriterOptions::new(codec)).unwrap();
        writer.append(&[(&[4], b"87654321"), (&[1, 1, 1], b"ba")]).unwrap();
        // Not closed, so the shapes stay in their own file.
    }
    let mut stores: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    stores.sort();
    stores
}

/// The first inputs of a target.
fn seeds(target: &str, stores: &[PathBuf]) -> Vec<Vec<u8>> {
    let read = |store: &Path, name: &str| fs::read(store.join(name)).unwrap_or_default();
    let length = |bytes: &[u8]| (bytes.len() as u16).to_le_bytes();
    let mut seeds = Vec::new();
    for store in stores {
        match target {
            "store" => {
                seeds.push(blob(store, |_| None));
                seeds.push(blob(store, |name| if name == "delete.zr" { journal(store) } else { None }));
                seeds.push(blob(
                    store,
                    |name| if name == "schema.new" { Some(read(store, "schema.msgpack")) } else { None },
                ));
            }
            "dataset" => {
                let header = Header::decode(&read(store, "meta.zr")).unwrap();
                let indices: Vec<u64> = (0..header.length / 2).rev().collect();
                let intents = [Intent::Append, Intent::Delete { length: header.length, indices }];
                for intent in intents.map(|intent| intent.encode()).into_iter().chain([Vec::new()]) {
                    let plain = blob(store, |_| None);
                    seeds.push([&length(&intent)[..], &intent, &plain, &plain].concat());
                }
            }
            "side_files" => {
                for (k, name) in fuzz::side_files::FILES.iter().enumerate() {
                    seeds.push([&[k as u8][..], &read(store, name)].concat());
                }
                seeds.push([&[0][..], &journal(store).unwrap_or_default()].concat());
                seeds.push([&[3][..], &Intent::Delete { length: 9, indices: vec![7, 1] }.encode()].concat());
            }
            "header_table_schema" => {
                let (meta, table) = (read(store, "meta.zr"), read(store, "0.loc"));
                seeds.push([&[0][..], &meta].concat());
                seeds.push([&[1][..], &meta, &table].concat());
                seeds.push([&[2][..], &read(store, "schema.msgpack")].concat());
                seeds.push([&[3][..], &[0x91, 3, 0x92, 2, 3, 0x90, 0x91, 0xcd, 1, 0]].concat());
            }
            "dictionary" => {
                let (mut dict, chunk, table) = (read(store, "dict.zr"), read(store, "0.chunk"), read(store, "0.loc"));
                dict.truncate(0xffff);
                let entry = table.first_chunk().map(Entry::decode).unwrap_or_default();
                let frame = chunk.get(entry.offset as usize..).unwrap_or_default();
                let frame = frame.get(..entry.phys_length as usize).unwrap_or_default();
                let decoded = (entry.logic_length as u16).to_le_bytes();
                seeds.push([&length(&dict)[..], &dict, &decoded, frame].concat());
            }
            _ => {}
        }
    }
    match target {
        "tree_index" => {
            let node = |kind: u8, at: u64, len: u16, parent: u32, first: u64, size: u64| {
                let mut node = [0; NODE_LEN];
                node[..8].copy_from_slice(&at.to_le_bytes());
                node[8..10].copy_from_slice(&len.to_le_bytes());
                node[10] = kind;
                node[12..14].copy_from_slice(&0o755u16.to_le_bytes());
                node[28..32].copy_from_slice(&2u32.to_le_bytes());
                node[40..44].copy_from_slice(&parent.to_le_bytes());
                node[48..56].copy_from_slice(&first.to_le_bytes());
                node[56..].copy_from_slice(&size.to_le_bytes());
                node
            };
            let head = [&[1][..], &4096u32.to_le_bytes(), &1u32.to_le_bytes(), &2u16.to_le_bytes(), b"ab"].concat();
            let (root, file, dir) = (node(1, 0, 0, 0, 1, 2), node(2, 0, 1, 0, 0, 10), node(1, 1, 1, 0, 3, 0));
            seeds.push([&head[..], &root, &file, &dir].concat());
            seeds.push([&[0][..], b"ZRTREE\0\0", &[0; 120]].concat());
        }
        "npy_idx" => {
            let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }\n";
            seeds.push([b"\x93NUMPY\x01\0", &length(text.as_bytes())[..], text.as_bytes(), &[7; 24]].concat());
            seeds.push([&[0, 0, 8, 2, 0, 0, 0, 3, 0, 0, 0, 2][..], &[5; 6]].concat());
        }
        _ => {}
    }
    assert!(!seeds.is_empty());
    seeds
}

/// A sequence of numbers, the same every time.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Changes an input somewhere, in one of the ways in which files go wrong or are made to.
fn mutate(dice: &mut Dice, input: &mut Vec<u8>, other: &[u8]) {
    const EDGES: [u64; 10] = [0, 1, 2, 0x7f, 0xff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, i64::MAX as u64, u64::MAX];
    let at = dice.below(input.len());
    match dice.below(8) {
        0 => input.truncate(at),
        1 => {
            let n = dice.below(8);
            input.splice(at..at, (0..n).map(|k| k as u8)).for_each(drop);
        }
        2 => {
            let end = input.len().min(at + dice.below(16));
            input.drain(at..end);
        }
        3 => {
            let from = dice.below(other.len());
            let piece = &other[from..other.len().min(from + dice.below(64))];
            let end = input.len().min(at + piece.len());
            input.splice(at..end, piece.iter().copied()).for_each(drop);
        }
        4 | 5 => {
            let width = [1, 2, 4, 8][dice.below(4)];
            let value = EDGES[dice.below(EDGES.len())].to_le_bytes();
            input.iter_mut().skip(at).zip(&value[..width]).for_each(|(byte, edge)| *byte = *edge);
        }
        6 => input.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << dice.below(8)),
        _ => input
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|byte| *byte = byte.wrapping_add(dice.below(5) as u8).wrapping_sub(2)),
    }
}

fn run(name: &str, target: Target, input: &[u8], what: &str) {
    if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
        let left = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}"));
        fs::write(&left, input).unwrap();
        panic!("the target {name} fails on {what}, which is left in {}", left.display());
    }
}

#[test]
fn what_failed_once() {
    let mut inputs = 0;
    for (name, target) in TARGETS {
        let Ok(dir) = fs::read_dir(root().join("fuzz/regressions").join(name)) else { continue };
        for entry in dir {
            let path = entry.unwrap().path();
            run(name, target, &fs::read(&path).unwrap(), &path.display().to_string());
            inputs += 1;
        }
    }
    println!("fuzz: {inputs} inputs that failed once");
}

#[test]
fn mutated_stores_are_read_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let stores = [golden(), ours(dir.path())].concat();
    let time: Duration = forked::seconds("ZRFS_FUZZ_SECONDS", 60) / TARGETS.len() as u32;
    for (name, target) in TARGETS {
        let seeds = seeds(name, &stores);
        for (k, seed) in seeds.iter().enumerate() {
            run(name, target, seed, &format!("its seed {k}"));
        }
        let (begin, mut dice, mut inputs) = (Instant::now(), Dice(crc32fast::hash(name.as_bytes()).into()), 0u64);
        while begin.elapsed() < time {
            let mut input = seeds[dice.below(seeds.len())].clone();
            let other = &seeds[dice.below(seeds.len())];
            for _ in 0..1 + dice.below(6) {
                mutate(&mut dice, &mut input, other);
            }
            let one = Instant::now();
            run(name, target, &input, &format!("input {inputs}"));
            assert!(one.elapsed() < Duration::from_secs(20), "{name}: input {inputs} takes {:?}", one.elapsed());
            inputs += 1;
        }
        println!("fuzz: {name}, {inputs} inputs");
        assert!(inputs > 10);
    }
}
