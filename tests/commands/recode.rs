//! `zrfs recode`.

use crate::common::{Compare, assert_same, fails, names, ok, run, scratch, stderr};
use crate::zrfs;
use crate::{bytes, dense, packed_tree, ragged, records};
use std::fs;
use zrfs::format::Codec;
use zrfs::{Source, Store, Stream, WriterOptions};

#[test]
fn every_codec_keeps_records_types_and_the_users_keys() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    dense(&at("dense"), 3000);
    ragged(&at("ragged"), 400);
    bytes(&at("bytes"), &[b"one", b"two", b"three"]);
    // A key of the user's, behind the others of a dense schema and before the shapes of a ragged one.
    for (name, keys) in [("dense", 6), ("ragged", 6)] {
        let path = at(name).join("schema.msgpack");
        let schema = fs::read(&path).unwrap();
        assert_eq!(schema[0], 0x80 + keys);
        let mut with = vec![schema[0] + 1];
        with.extend(b"\xa5owner\x92\xa3Ada\x2a");
        with.extend(&schema[1..]);
        fs::write(&path, with).unwrap();
    }
    for name in ["dense", "ragged", "bytes"] {
        for codec in ["raw", "zstd", "zstd_dict"] {
            if codec == "zstd_dict" && name == "bytes" {
                continue;
            }
            let new = at(&format!("{name}-{codec}"));
            let out = run(&mut zrfs!["recode", at(name), &new, "--codec", codec, "--tier", "fast"]);
            let said = stderr(&out);
            assert!(out.status.success() && said.contains("before") && said.contains("after"), "{said}");
            ok(&mut zrfs!["compare", at(name), &new]);
            ok(&mut zrfs!["verify", &new]);
            assert_eq!(records(&new), records(&at(name)));
            let (old, new) = (Stream::open(at(name)).unwrap(), Stream::open(&new).unwrap());
            assert_eq!(new.store().codec().name(), codec);
            assert_eq!(old.schema().map(|s| &s.extra), new.schema().map(|s| &s.extra));
            assert_eq!(old.schema().map(|s| s.extra.len()), (name != "bytes").then_some(1));
            assert_eq!(new.schema().and_then(|s| s.codec), (name != "bytes").then_some(new.store().codec()));
        }
    }
}

#[test]
fn the_same_codec_leaves_deleted_bytes_behind() {
    let dir = scratch();
    let (store, new) = (dir.path().join("a"), dir.path().join("b"));
    dense(&store, 1000);
    let mut writer = WriterOptions::new(Codec::Zstd).open(&store).unwrap();
    writer.delete(&(0..900).collect::<Vec<u64>>()).unwrap();
    writer.close().unwrap();
    assert!(Store::open(&store).unwrap().stats().unwrap().reclaimable() > 0);
    ok(&mut zrfs!["recode", &store, &new, "--codec", "zstd"]);
    let stats = Store::open(&new).unwrap().stats().unwrap();
    assert_eq!((stats.records, stats.reclaimable()), (100, 0));
    ok(&mut zrfs!["compare", &store, &new]);
}

#[test]
fn a_tree_keeps_its_paths_and_is_bound_to_its_new_records() {
    let dir = scratch();
    let (source, packed) = packed_tree(dir.path());
    for codec in ["raw", "zstd", "zstd_dict"] {
        let (new, copy) = (dir.path().join(codec), dir.path().join(format!("{codec}-copy")));
        ok(&mut zrfs!["recode", &packed, &new, "--codec", codec, "--tier", "fast"]);
        ok(&mut zrfs!["unpack", &new, &copy]);
        assert_same(&source, &copy, Compare::All);
        ok(&mut zrfs!["verify", &new]);
        ok(&mut zrfs!["compare", &packed, &new]);
        let Source::Dataset(dataset) = Source::open(&new).unwrap() else { panic!("not a dataset") };
        let data = dataset.stream("data").unwrap().store();
        assert_eq!(data.codec().name(), codec);
        let header = data.header();
        assert_eq!(dataset.tree().unwrap().summary().data_end, (header.tail_chunk, header.tail_offset));
    }
}

#[test]
fn mistakes_are_refused_and_leave_nothing() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    dense(&at("a"), 50);
    fails(&mut zrfs!["recode", at("a"), at("b")], 2);
    let said = fails(&mut zrfs!["recode", at("a"), at("b"), "--codec", "gzip"], 2);
    assert!(said.contains("raw, zstd and zstd_dict"), "{said}");
    let said = fails(&mut zrfs!["recode", at("a"), at("b"), "--codec", "zstd_dict", "--tier", "huge"], 2);
    assert!(said.contains("fast, balanced and max"), "{said}");
    let said = fails(&mut zrfs!["recode", at("a"), at("b"), "--codec", "zstd", "--level", "99"], 1);
    assert!(said.contains("level 99"), "{said}");
    let said = fails(&mut zrfs!["recode", at("none"), at("b"), "--codec", "raw"], 1);
    assert!(said.contains("none"), "{said}");
    let said = fails(&mut zrfs!["recode", at("a"), at("a"), "--codec", "raw"], 1);
    assert!(said.contains("exists already"), "{said}");
    let said = fails(&mut zrfs!["recode", at("a"), at("a"), "--codec", "raw", "--force"], 1);
    assert!(said.contains("which --force would replace"), "{said}");
    bytes(&at("few"), &[b"x", b"y"]);
    let said = fails(&mut zrfs!["recode", at("few"), at("b"), "--codec", "zstd_dict"], 1);
    assert!(said.contains("no dictionary can be trained on 2 records"), "{said}");
    // A damaged record is named, and there is no copy with a hole.
    let chunk = at("a").join("0.chunk");
    let mut damaged = fs::read(&chunk).unwrap();
    let n = damaged.len();
    damaged[n - 3] ^= 1;
    fs::write(&chunk, damaged).unwrap();
    let said = fails(&mut zrfs!["recode", at("a"), at("b"), "--codec", "raw"], 1);
    assert!(said.contains("record 49"), "{said}");
    assert_eq!(names(dir.path()), ["a", "few"]);
    // --force replaces a store.
    ok(&mut zrfs!["recode", at("few"), at("a"), "--codec", "raw", "--force", "-q"]);
    assert_eq!(records(&at("a")), [b"x", b"y"]);
}
