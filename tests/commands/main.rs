//! `zrfs recode`, `compare`, `export` and `train-dict` end to end, through the command as it is built.

#[path = "../common/mod.rs"]
mod common;

mod bench;
mod compare;
mod dicts;
mod export;
mod recode;
mod safety;

use common::{ZRFS, noise, ok};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use zrfs::dataset::{DenseWriter, RaggedWriter};
use zrfs::format::Codec;
use zrfs::format::dtype::DType;
use zrfs::{Store, WriterOptions};

/// A ragged store of `n` records of small arrays.
fn ragged(path: &Path, n: u64) {
    let mut writer = RaggedWriter::create(path, WriterOptions::new(Codec::Zstd), DType::parse("<i2").unwrap()).unwrap();
    for i in 0..n {
        let shape = [i % 5 + 1, 3];
        writer.append(&[(&shape, &noise(i, 6 * shape[0] as usize))]).unwrap();
    }
    writer.close().unwrap();
}

/// A dense store of `n` records that compress.
fn dense(path: &Path, n: u64) {
    let options = WriterOptions::new(Codec::Zstd);
    let mut writer = DenseWriter::create(path, options, DType::parse(">f4").unwrap(), vec![4, 8]).unwrap();
    let bytes: Vec<u8> = noise(7, n as usize * 128).into_iter().map(|b| b & 0x41).collect();
    writer.append(&bytes).unwrap();
    writer.close().unwrap();
}

/// A store of plain bytes.
fn bytes(path: &Path, records: &[&[u8]]) {
    let mut writer = WriterOptions::new(Codec::Zstd).create(path).unwrap();
    writer.append(records).unwrap();
    writer.close().unwrap();
}

/// A tree packed by the command, with what makes trees difficult.
fn packed_tree(dir: &Path) -> (PathBuf, PathBuf) {
    let (source, packed) = (dir.join("source"), dir.join("tree.zr"));
    let deep = source.join(format!("sub/{}/{}", "d".repeat(120), "e".repeat(200)));
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir(source.join("empty dir")).unwrap();
    for i in 0..300 {
        fs::write(source.join(format!("sub/{i}.txt")), format!("line {i}\n").repeat(i % 40 + 1)).unwrap();
    }
    fs::write(deep.join(common::name(b"no \xff text\n")), "x").unwrap();
    fs::write(source.join("large"), noise(3, 9 << 20)).unwrap();
    fs::write(source.join("empty"), "").unwrap();
    fs::hard_link(source.join("large"), source.join("sub/same")).unwrap();
    std::os::unix::fs::symlink("../".repeat(60) + "nowhere", source.join("sub/long link")).unwrap();
    std::os::unix::fs::symlink(common::name(b"\xfe"), source.join("link")).unwrap();
    common::set_mtime(&source.join("sub/1.txt"), -5, 250_000_000);
    common::set_mtime(&source.join("sub/2.txt"), 1_700_000_000, 123_456_789);
    common::set_mtime(&source.join("sub/3.txt"), 1_700_000_000, 0);
    common::set_mtime(&source.join("link"), 1 << 34, 1);
    ok(Command::new(ZRFS).arg("pack").args([&source, &packed]));
    (source, packed)
}

fn records(path: &Path) -> Vec<Vec<u8>> {
    let store = Store::open(path).unwrap();
    (0..store.len()).map(|i| store.read(i).unwrap()).collect()
}
