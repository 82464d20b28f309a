//! `zrfs compact`: what it says, and what it refuses.

mod common;

use common::{fails, noise, ok, scratch};
use std::fs;
use std::path::Path;
use zrfs::dataset::DenseWriter;
use zrfs::format::Codec;
use zrfs::format::dtype::DType;
use zrfs::{Error, Source, Store, WriterOptions};

/// A stream of 400 records of `bytes` bytes, every fourth of which is deleted.
fn with_holes(path: &Path, bytes: usize) {
    let options = WriterOptions::new(Codec::Raw);
    let mut writer = DenseWriter::create(path, options, DType::parse("|u1").unwrap(), vec![bytes as u64]).unwrap();
    writer.append(&noise(bytes as u64, 400 * bytes)).unwrap();
    writer.close().unwrap();
    let mut writer = WriterOptions::new(Codec::Raw).open(path).unwrap();
    writer.delete(&(0..400).step_by(4).collect::<Vec<_>>()).unwrap();
}

fn all(path: &Path) -> Vec<Vec<u8>> {
    let store = Store::open(path).unwrap();
    (0..store.len()).map(|i| store.read(i).unwrap()).collect()
}

#[test]
fn a_store_is_compacted_and_says_what_was_freed() {
    let dir = scratch();
    let path = dir.path().join("s");
    with_holes(&path, 1 << 10);
    let before = all(&path);
    let reader = Store::open(&path).unwrap();
    let said = fails(&mut zrfs!("compact", &path), 1);
    assert!(said.contains("is open for reading or mounted by process"), "{said}");
    drop(reader);
    let said = String::from_utf8(ok(&mut zrfs!("compact", &path))).unwrap();
    assert!(said.starts_with("freed 100.00 KiB of 400.00 KiB; ") && said.ends_with(" records moved\n"), "{said}");
    assert_eq!(fs::metadata(path.join("0.chunk")).unwrap().len(), 300 << 10);
    assert!(all(&path) == before);
    assert_eq!(Store::open(&path).unwrap().stats().unwrap().reclaimable(), 0);
    let said = String::from_utf8(ok(&mut zrfs!("compact", &path))).unwrap();
    assert_eq!(said, "freed 0 B of 300.00 KiB; 0 records moved\n");
    assert!(fails(&mut zrfs!("compact", dir.path().join("nothing")), 1).contains("there is nothing of that name"));
}

#[test]
fn every_stream_of_a_dataset_is_compacted() {
    let dir = scratch();
    let path = dir.path().join("d");
    fs::create_dir(&path).unwrap();
    with_holes(&path.join("image"), 1000);
    with_holes(&path.join("label"), 1);
    let before = (all(&path.join("image")), all(&path.join("label")));
    let said = String::from_utf8(ok(&mut zrfs!("compact", &path))).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines.len() == 2
            && lines[0].contains("d/image: freed 97.66 KiB of")
            && lines[1].contains("d/label: freed 100 B")
    );
    assert_eq!((all(&path.join("image")), all(&path.join("label"))), before);
}

#[test]
fn a_tree_is_refused_whole_and_by_its_stream() {
    let dir = scratch();
    let (source, packed) = (dir.path().join("source"), dir.path().join("tree.zr"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "text").unwrap();
    ok(&mut zrfs!("pack", &source, &packed));
    assert!(fails(&mut zrfs!("compact", &packed), 1).contains("a tree has nothing to free"));
    assert!(fails(&mut zrfs!("compact", packed.join("data")), 1).contains("bound to"));
    // The paths are bound to nothing.
    ok(&mut zrfs!("compact", packed.join("path")));
    assert!(matches!(Source::open(&packed), Ok(Source::Dataset(d)) if d.tree().is_some()));
    assert!(matches!(Source::open(dir.path().join("none")), Err(Error::NotAStore { .. })));
}
