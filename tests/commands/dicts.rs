//! `zrfs train-dict`.

use crate::common::{fails, names, ok, run, scratch, stderr};
use crate::zrfs;
use crate::{bytes, records};
use std::fs;
use std::path::Path;
use zrfs::WriterOptions;
use zrfs::format::Codec;

fn notes(n: u32) -> Vec<String> {
    (0..n).map(|i| format!("{{\"id\": {i}, \"name\": \"user-{}\", \"tags\": [\"{}\"]}}\n", i * 7919, i % 97)).collect()
}

/// An empty `zstd_dict` store without a dictionary, as loaderx makes one: the bytes of a header, and an empty chunk.
fn waiting(path: &Path) {
    fs::create_dir(path).unwrap();
    let mut header = [0; 32];
    header[..6].copy_from_slice(b"ZREC\x03\x02");
    fs::write(path.join("meta.zr"), header).unwrap();
    fs::write(path.join("0.chunk"), "").unwrap();
}

#[test]
fn stores_directories_and_arrays_train_a_dictionary() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let notes = notes(3000);
    bytes(&at("store"), &notes.iter().map(|n| n.as_bytes()).collect::<Vec<_>>());
    fs::create_dir(at("files")).unwrap();
    for (i, note) in notes.iter().take(1000).enumerate() {
        fs::write(at("files").join(i.to_string()), note).unwrap();
    }
    ok(&mut zrfs!["pack", at("files"), at("tree")]);
    let mut array = zrfs::format::npy::header_bytes(&zrfs::format::dtype::DType::parse("|S64").unwrap(), &[3000]);
    notes.iter().for_each(|n| array.extend(format!("{:_<64}", n.trim()).bytes().take(64)));
    fs::write(at("array.npy"), array).unwrap();
    for source in ["store", "files", "tree", "array.npy"] {
        let dict = at(&format!("{source}.dict"));
        let out = run(&mut zrfs!["train-dict", at(source), "-o", &dict, "--tier", "fast"]);
        let said = stderr(&out);
        assert!(out.status.success(), "{said}");
        assert!(said.contains("not trained on") && said.contains("x with it") && said.contains("x without"), "{said}");
        let len = fs::metadata(&dict).unwrap().len();
        assert!((1000..=32 << 10).contains(&len), "{len}");
    }
    ok(&mut zrfs!["train-dict", at("store"), at("files"), "-o", at("both.dict"), "-q"]);
}

#[test]
fn a_dictionary_is_installed_and_used() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let notes = notes(2000);
    let slices: Vec<&[u8]> = notes.iter().map(|n| n.as_bytes()).collect();
    bytes(&at("store"), &slices);
    waiting(&at("new"));
    ok(&mut zrfs!["info", at("new")]);
    let error = WriterOptions::new(Codec::ZstdDict).open(at("new")).unwrap_err().to_string();
    assert!(error.contains("zrfs train-dict SOURCE --install"), "{error}");
    ok(&mut zrfs!["train-dict", at("store"), "--install", at("new"), "-o", at("dict.zr"), "--tier", "fast"]);
    assert_eq!(fs::read(at("new/dict.zr")).unwrap(), fs::read(at("dict.zr")).unwrap());
    let mut writer = WriterOptions::new(Codec::Raw).open(at("new")).unwrap();
    writer.append(&slices).unwrap();
    writer.close().unwrap();
    assert_eq!(records(&at("new")), slices);
    ok(&mut zrfs!["compare", at("store"), at("new")]);
    assert_eq!(names(&at("new")), ["0.chunk", "0.loc", "dict.zr", "meta.zr"]);
}

#[test]
fn mistakes_are_refused_with_what_to_do() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    bytes(&at("few"), &[b"a", b"b", b"c"]);
    bytes(&at("store"), &notes(800).iter().map(|n| n.as_bytes()).collect::<Vec<_>>());
    fails(&mut zrfs!["train-dict", at("few")], 2);
    let said = fails(&mut zrfs!["train-dict", at("few"), "-o", at("d")], 1);
    assert!(said.contains("on 3 records") && said.contains("give more of them"), "{said}");
    let said = fails(&mut zrfs!["train-dict", at("none"), "-o", at("d")], 1);
    assert!(said.contains("none"), "{said}");
    let said = fails(&mut zrfs!["train-dict", at("store"), "-o", at("store")], 1);
    assert!(said.contains("exists already"), "{said}");
    let said = fails(&mut zrfs!["train-dict", at("store"), "--install", at("few"), "-o", at("d")], 1);
    assert!(said.contains("codec is zstd"), "{said}");
    let said = fails(&mut zrfs!["train-dict", at("store"), "--install", at("none")], 1);
    assert!(said.contains("none"), "{said}");
    fs::write(at("t.tar"), tar::Builder::new(Vec::new()).into_inner().unwrap()).unwrap();
    fails(&mut zrfs!["train-dict", at("t.tar"), "-o", at("d")], 1);
    assert_eq!(names(dir.path()), ["few", "store", "t.tar"]);
}
