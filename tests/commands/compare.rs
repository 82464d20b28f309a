//! `zrfs compare`.

use crate::common::{fails, name, noise, ok, run, scratch, set_mtime, stderr};
use crate::zrfs;
use crate::{bytes, dense, packed_tree, ragged};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use zrfs::dataset::RaggedWriter;
use zrfs::format::Codec;
use zrfs::format::dtype::DType;
use zrfs::{WriterOptions, dataset::DenseWriter};

fn text(out: &[u8]) -> String {
    String::from_utf8(out.to_vec()).unwrap()
}

#[test]
fn records_that_differ_are_named_and_counted() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let record = |i: u64| noise(i, 50 + i as usize % 7);
    let mut other: Vec<Vec<u8>> = (0..9000).map(record).collect();
    bytes(&at("a"), &other.iter().map(|r| &r[..]).collect::<Vec<_>>());
    bytes(&at("same"), &other.iter().map(|r| &r[..]).collect::<Vec<_>>());
    other[0][3] ^= 1;
    other[5000].push(0);
    other[8999][49] ^= 0x80;
    other.push(vec![1]);
    bytes(&at("b"), &other.iter().map(|r| &r[..]).collect::<Vec<_>>());
    let said = text(&ok(&mut zrfs!["compare", at("a"), at("same")]));
    assert!(said.contains("9,000 records") && said.contains("equal"), "{said}");
    let out = run(&mut zrfs!["cp-check", at("a"), at("b")]);
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(1), "{said}");
    for what in [
        "the first has 9000 records, the second 9001",
        "record 0: byte 3 differs",
        "record 5000: it has 52 bytes in the first and 53 in the second",
        "record 8999: byte 49 differs",
        "4 differences",
    ] {
        assert!(said.contains(what), "{what}\n{said}");
    }
    let out = run(&mut zrfs!["compare", at("a"), at("b"), "--limit", "2", "--json"]);
    let lines: Vec<Value> = text(&out.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[1]["index"], &lines[2]["equal"]), (&0.into(), &false.into()));
    assert_eq!((&lines[2]["different_records"], &lines[2]["differences"]), (&3.into(), &4.into()));
    let out = run(&mut zrfs!["compare", at("a"), at("b"), "-q"]);
    assert!(out.status.code() == Some(1) && out.stdout.is_empty() && out.stderr.is_empty());
}

#[test]
fn types_and_shapes_count() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let make = |name: &str, dtype: &str, shape: Vec<u64>| {
        let options = WriterOptions::new(Codec::Raw);
        let mut writer = DenseWriter::create(&at(name), options, DType::parse(dtype).unwrap(), shape).unwrap();
        writer.append(&[7; 48]).unwrap();
        writer.close().unwrap();
    };
    make("f4", "<f4", vec![2, 3]);
    make("i4", "<i4", vec![2, 3]);
    make("turned", "<f4", vec![3, 2]);
    // The same arrays, each with a shape of its own.
    let mut writer =
        RaggedWriter::create(&at("ragged"), WriterOptions::new(Codec::Zstd), DType::parse("<f4").unwrap()).unwrap();
    writer.append(&[(&[2, 3], &[7; 24]), (&[2, 3], &[7; 24])]).unwrap();
    writer.close().unwrap();
    bytes(&at("bytes"), &[&[7; 24], &[7; 24]]);
    ok(&mut zrfs!["compare", at("f4"), at("ragged")]);
    for (other, what, n) in
        [("i4", "the dtype is <f4", 1), ("turned", "[2, 3] in the first and [3, 2]", 2), ("bytes", "none", 1)]
    {
        let out = run(&mut zrfs!["compare", at("f4"), at(other)]);
        let said = text(&out.stdout);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains(what) && said.contains(&format!("{n} difference")), "{said}");
    }
}

#[test]
fn trees_are_compared_by_path() {
    let dir = scratch();
    let (source, _) = packed_tree(dir.path());
    // The reader of pax archives refuses a name with a newline.
    let deep = source.join(format!("sub/{}/{}", "d".repeat(120), "e".repeat(200)));
    fs::remove_file(deep.join(name(b"no \xff text\n"))).unwrap();
    let packed = dir.path().join("packed.zr");
    ok(&mut zrfs!["pack", &source, &packed]);
    // Another order of records and other pieces than the first's: an archive whose entries come backwards.
    let list: String = ["sub", "empty dir", "empty", "link", "large"].map(|n| format!("./{n}\n")).concat();
    let tar = dir.path().join("t.tar");
    fs::write(dir.path().join("list"), format!("{list}.\n")).unwrap();
    ok(crate::common::tool("tar")
        .args(["c", "--format=posix", "-C"])
        .arg(&source)
        .arg("-f")
        .arg(&tar)
        .arg("-T")
        .arg(dir.path().join("list")));
    let other = dir.path().join("other.zr");
    let out = run(&mut zrfs!["pack", &tar, &other]);
    assert!(out.status.success(), "{}", stderr(&out));
    let said = text(&ok(&mut zrfs!["compare", &packed, &other]));
    assert!(said.contains("paths") && said.contains("equal"), "{said}");

    fs::write(source.join("sub/7.txt"), "changed\n").unwrap();
    set_mtime(&source.join("sub/8.txt"), 7, 0);
    fs::set_permissions(source.join("sub/9.txt"), fs::Permissions::from_mode(0o600)).unwrap();
    let mtime = fs::metadata(source.join("sub/10.txt")).unwrap().modified().unwrap();
    let mut same_length = fs::read(source.join("sub/10.txt")).unwrap();
    same_length[2] ^= 1;
    fs::write(source.join("sub/10.txt"), same_length).unwrap();
    fs::File::options().write(true).open(source.join("sub/10.txt")).unwrap().set_modified(mtime).unwrap();
    fs::remove_file(source.join("link")).unwrap();
    std::os::unix::fs::symlink("elsewhere", source.join("link")).unwrap();
    fs::write(source.join("added"), "1").unwrap();
    let changed = dir.path().join("changed.zr");
    ok(&mut zrfs!["pack", &source, &changed]);
    let out = run(&mut zrfs!["compare", &packed, &changed, "--limit", "50"]);
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(1), "{said}");
    for what in [
        "sub/7.txt: the mtime",
        "the length is",
        "sub/8.txt: the mtime is",
        "sub/9.txt: the mode is 0644 in the first and 0600",
        "sub/10.txt: byte 2 differs",
        "the target is",
        "added: only the second has this file",
    ] {
        assert!(said.contains(what), "{what}\n{said}");
    }
    let out = run(&mut zrfs!["compare", &packed, packed.join("data")]);
    assert!(out.status.code() == Some(1) && text(&out.stdout).contains("one is a dataset, the other a store"));
}

#[test]
fn what_cannot_be_compared_is_not_called_different() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    dense(&at("a"), 100);
    ragged(&at("r"), 3);
    let said = fails(&mut zrfs!["compare", at("a"), at("none")], 2);
    assert!(said.contains("none"), "{said}");
    fails(&mut zrfs!["compare", at("a")], 2);
    ok(&mut zrfs!["recode", at("a"), at("b"), "--codec", "zstd"]);
    let chunk = at("b").join("0.chunk");
    let mut damaged = fs::read(&chunk).unwrap();
    damaged[12] ^= 1;
    fs::write(&chunk, damaged).unwrap();
    let said = fails(&mut zrfs!["compare", at("a"), at("b")], 2);
    assert!(said.contains("record 0"), "{said}");
}
