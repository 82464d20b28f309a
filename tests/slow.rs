//! The real sizes at which a store rolls over. The first tests take seconds and run always; those of gigabytes are ignored
//! and run by `just slow`. Each leaves nothing behind, and prints its time.

#[path = "common/loaderx.rs"]
#[allow(dead_code)]
mod side;

use serde_json::json;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use zrfs::dataset::DenseWriter;
use zrfs::format::Codec;
use zrfs::format::dtype::DType;
use zrfs::pack::Progress;
use zrfs::{Store, WriterOptions};

/// Room for gigabytes, which `/tmp` need not have: beside the other build products.
fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("zrfs-slow-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Bytes that do not compress, and differ for each number.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    let mut out: Vec<u8> = words.take(len.div_ceil(8)).flatten().collect();
    out.truncate(len);
    out
}

#[track_caller]
fn verify(store: &Store, records: u64) {
    let found = store.verify(&Progress::default(), &mut |bad| panic!("{}", bad.error)).unwrap();
    assert_eq!((found.records, found.bad, found.unchecked), (records, 0, 0));
}

fn timed(what: &str, begin: Instant) {
    println!("{what}: {:.1} s", begin.elapsed().as_secs_f64());
}

/// One record of exactly 2^31 bytes, the most there can be, and of one more.
fn largest(codec: Codec) {
    let (begin, dir) = (Instant::now(), scratch());
    let path = dir.path().join("s");
    let piece = noise(1, 1 << 20);
    let mut record = Vec::with_capacity((1 << 31) + 1);
    // Compresses, so that it is the length that is tested and not the disk.
    (0..1 << 11).for_each(|_| record.extend(&piece));
    let mut writer = WriterOptions::new(codec).level(Some(1)).create(&path).unwrap();
    writer.append(&[&record]).unwrap();
    record.push(0);
    let error = writer.append(&[&record]).unwrap_err().to_string();
    assert!(error.contains("2147483649"), "{error}");
    record.pop();
    writer.append(&[b"the next"]).unwrap();
    writer.close().unwrap();
    let store = Store::open(&path).unwrap();
    let mut part = vec![0; 4096];
    assert_eq!(store.read_range(0, (1 << 31) - 100, &mut part).unwrap(), 100);
    assert_eq!(part[..100], record[(1 << 31) - 100..]);
    assert!(store.read(0).unwrap() == record, "the record differs");
    drop(record);
    assert_eq!(store.read(1).unwrap(), b"the next");
    verify(&store, 2);
    timed(&format!("a record of 2^31 bytes, {codec}"), begin);
}

#[test]
#[ignore = "takes gigabytes of memory and disk: `just slow`"]
fn the_largest_record_raw() {
    largest(Codec::Raw);
}

#[test]
#[ignore = "takes gigabytes of memory: `just slow`"]
fn the_largest_record_zstd() {
    largest(Codec::Zstd);
}

/// 2^24 - 1, 2^24 and 2^24 + 1 records: a float of 32 bits counts no further.
#[test]
fn sixteen_million_records() {
    let (begin, dir) = (Instant::now(), scratch());
    let path = dir.path().join("s");
    let content = |i: u64| (i as u32).to_le_bytes();
    let mut writer = WriterOptions::new(Codec::Raw).create(&path).unwrap();
    let append = |writer: &mut zrfs::Writer, range: std::ops::Range<u64>| {
        let bytes: Vec<[u8; 4]> = range.map(content).collect();
        writer.append(&bytes.iter().map(|b| &b[..]).collect::<Vec<_>>()).unwrap();
    };
    let count: u64 = (1 << 24) - 1;
    for first in (0..count).step_by(1 << 20) {
        append(&mut writer, first..count.min(first + (1 << 20)));
    }
    for len in count..count + 3 {
        if len > count {
            append(&mut writer, len - 1..len);
        }
        writer.sync().unwrap();
        let store = Store::open(&path).unwrap();
        assert_eq!(store.len(), len);
        for i in [0, 1, (1 << 23) + 1, len - 2, len - 1] {
            assert_eq!(store.read(i).unwrap(), content(i), "record {i} of {len}");
        }
        assert!(store.read(len).is_err());
        let indices: Vec<u64> = (0..len).step_by(997).chain([len - 1]).collect();
        let (bytes, _) = store.gather_packed(&indices).unwrap();
        assert!(bytes.chunks(4).zip(&indices).all(|(bytes, &i)| bytes == content(i)), "a gather of {len}");
    }
    drop(writer);
    timed("2^24 - 1, 2^24, 2^24 + 1 records", begin);
}

/// More than 4 GiB in one store: chunks roll over, both sides read all of it, and half of it goes again.
fn four_gigabytes(codec: Codec) {
    const RECORD: usize = 4 << 20;
    const COUNT: u64 = 1050;
    let (begin, dir) = (Instant::now(), scratch());
    let path = dir.path().join("s");
    let record = |i: u64| {
        let mut record = noise(i / 16, RECORD);
        record[..8].copy_from_slice(&i.to_le_bytes());
        record
    };
    let u1 = DType::parse("|u1").unwrap();
    let options = WriterOptions::new(codec).level(Some(1));
    let mut writer = DenseWriter::create(&path, options, u1, vec![RECORD as u64]).unwrap();
    for i in 0..COUNT {
        writer.append(&record(i)).unwrap();
    }
    writer.close().unwrap();
    timed(&format!("{codec}: {COUNT} records of 4 MiB written"), begin);
    for chunk in ["0.chunk", "1.chunk"] {
        assert!(path.join(chunk).metadata().unwrap().len() > 0, "{chunk}");
    }
    let store = Store::open(&path).unwrap();
    let across: Vec<u64> = (0..COUNT).filter(|&i| store.entry(i).unwrap().chunk_id == 1).collect();
    let first = across[0];
    for i in [0, first - 1, first, COUNT - 1] {
        assert!(store.read(i).unwrap() == record(i), "record {i}");
    }
    let (bytes, _) = store.gather_packed(&[first, first - 1]).unwrap();
    assert!(bytes == [record(first), record(first - 1)].concat(), "a gather across two chunks");
    verify(&store, COUNT);
    drop(store);
    timed(&format!("{codec}: and verified"), begin);
    loaderx_reads(&path, COUNT, [0, first - 1, first, COUNT - 1], &record);
    timed(&format!("{codec}: and read by loaderx"), begin);
    let mut writer = WriterOptions::new(codec).open(&path).unwrap();
    let doomed: Vec<u64> = (0..COUNT).filter(|i| i % 2 == 0).collect();
    writer.delete(&doomed).unwrap();
    writer.compact(&Progress::default()).unwrap();
    drop(writer);
    assert!(!path.join("1.chunk").exists(), "compacting did not free the second chunk");
    let store = Store::open(&path).unwrap();
    let left = COUNT - doomed.len() as u64;
    verify(&store, left);
    let mut seen: Vec<u64> = (0..left).map(|i| u64::from_le_bytes(first_bytes(&store, i))).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..COUNT).filter(|i| i % 2 == 1).collect::<Vec<_>>());
    timed(&format!("{codec}: and half of it deleted and compacted"), begin);
}

fn first_bytes(store: &Store, index: u64) -> [u8; 8] {
    let mut bytes = [0; 8];
    assert_eq!(store.read_range(index, 0, &mut bytes).unwrap(), 8);
    bytes
}

fn loaderx_reads(path: &Path, count: u64, indices: [u64; 4], record: &dyn Fn(u64) -> Vec<u8>) {
    let script = "import json, sys, zlib\n\
                  from loaderx.dataset import DenseDataset\n\
                  with DenseDataset(sys.argv[1]) as ds:\n    \
                  print(json.dumps([len(ds)] + [zlib.crc32(ds[int(i)].tobytes()) for i in sys.argv[2:]]))";
    let mut command = Command::new(side::python());
    command.args(["-c", script]).arg(path).args(indices.map(|i| i.to_string()));
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let sums = indices.map(|i| crc32fast::hash(&record(i)));
    assert_eq!(said, json!([count, sums[0], sums[1], sums[2], sums[3]]));
}

#[test]
#[ignore = "writes 4 GiB: `just slow`"]
fn rolling_over_raw() {
    four_gigabytes(Codec::Raw);
}

#[test]
#[ignore = "writes 4 GiB: `just slow`"]
fn rolling_over_zstd() {
    four_gigabytes(Codec::Zstd);
}
