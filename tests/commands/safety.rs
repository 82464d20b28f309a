//! What no command may do: spread damage, replace what it does not know, or tear a dataset apart.

use crate::common::{fails, noise, ok, run, scratch, stderr, tool};
use crate::zrfs;
use crate::{bytes, dense, packed_tree};
use std::fs;
use std::path::Path;
use std::process::Command;
use zrfs::format::Codec;
use zrfs::{Store, WriterOptions};

/// Changes a byte, and leaves the time of the file as it was.
fn flip(path: &Path, at: usize) {
    let mut all = fs::read(path).unwrap();
    let time = fs::metadata(path).unwrap().modified().unwrap();
    all[at] ^= 0x10;
    fs::write(path, all).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn damaged_raw_records_are_not_copied_as_good() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let mut writer = WriterOptions::new(Codec::Raw).create(at("raw")).unwrap();
    let records: Vec<Vec<u8>> = (0..50).map(|i| noise(i, 1000)).collect();
    writer.append(&records.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
    writer.close().unwrap();
    ok(&mut zrfs!["recode", at("raw"), at("good"), "--codec", "zstd"]);
    flip(&at("raw").join("0.chunk"), 7500);
    for args in [
        zrfs!["recode", at("raw"), at("new"), "--codec", "zstd"],
        zrfs!["recode", at("raw"), at("new"), "--codec", "raw"],
        zrfs!["export", at("raw"), at("new.tar")],
        zrfs!["cat", at("raw"), "7"],
    ]
    .iter_mut()
    {
        let said = fails(args, 1);
        assert!(said.contains("record 7") && said.contains("sums.zr"), "{said}");
    }
    let said = fails(&mut zrfs!["compare", at("good"), at("raw")], 2);
    assert!(said.contains("record 7"), "{said}");
    assert!(!at("new").exists() && !at("new.tar").exists());
    let (source, tree) = packed_tree(dir.path());
    let raw = at("tree-raw");
    ok(&mut zrfs!["pack", "--codec", "raw", &source, &raw]);
    flip(&raw.join("data/0.chunk"), 7500);
    ok(&mut zrfs!["unpack", &tree, at("good-files")]);
    let out = run(&mut zrfs!["unpack", &raw, at("files")]);
    assert!(out.status.code() == Some(1) && stderr(&out).contains("checksum"), "{}", stderr(&out));
}

#[test]
fn a_dictionary_replaces_nothing_but_a_dictionary() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let notes: Vec<String> = (0..3000).map(|i| format!("note {i} of user-{}", i * 7919)).collect();
    bytes(&at("store"), &notes.iter().map(|n| n.as_bytes()).collect::<Vec<_>>());
    fs::write(at("precious.npy"), "not a dictionary").unwrap();
    let train = |to: &Path| zrfs!["train-dict", at("store"), "-o", to, "--tier", "fast", "--force"];
    for to in [at("precious.npy"), at("store/0.chunk"), at("store/meta.zr")] {
        let before = fs::read(&to).unwrap();
        let said = fails(&mut train(&to), 1);
        assert!(said.contains("--force does not replace it"), "{said}");
        assert_eq!(fs::read(&to).unwrap(), before);
    }
    ok(&mut train(&at("dict")));
    ok(&mut train(&at("dict")));
}

#[test]
fn verify_does_not_pass_what_nothing_else_opens() {
    let dir = scratch();
    let store = dir.path().join("store");
    dense(&store, 300);
    for byte in [6, 10, 13] {
        flip(&store.join("meta.zr"), byte);
        if Store::open(&store).is_err() {
            let out = run(&mut zrfs!["verify", &store]);
            assert_eq!(out.status.code(), Some(1), "byte {byte}: {}", stderr(&out));
        }
        flip(&store.join("meta.zr"), byte);
    }
    flip(&store.join("meta.zr"), 13);
    let out = String::from_utf8(run(&mut zrfs!["verify", "--json", &store]).stdout).unwrap();
    assert!(out.contains("0.chunk is damaged"), "{out}");
}

#[test]
fn verify_names_many_damaged_records_and_counts_the_rest() {
    let dir = scratch();
    let store = dir.path().join("store");
    bytes(&store, &vec![&b"x"[..]; 10_321]);
    fs::write(store.join("0.loc"), vec![0xff; 10_321 * 16]).unwrap();
    let out = run(&mut zrfs!["verify", &store]);
    let said = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(said.lines().filter(|line| line.contains("0.loc is damaged")).count(), 10_000);
    let end: Vec<&str> = said.lines().skip(10_000).collect();
    assert!(end.len() == 2 && end[0].contains("321 more") && end[1].contains("10,321 damaged"), "{end:?}");
    let out = run(&mut zrfs!["verify", "--json", &store]);
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.code() == Some(1) && said.lines().count() == 10_001);
    let total: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((&total["bad"], &total["unnamed"]), (&10_321.into(), &321.into()));
}

#[test]
fn verify_reads_no_table_that_was_never_written() {
    let dir = scratch();
    let store = dir.path().join("store");
    dense(&store, 300);
    // As loaderx makes them, but smaller; and a header that claims more than even that has room for.
    fs::File::options().write(true).open(store.join("0.loc")).unwrap().set_len(256 << 20).unwrap();
    let mut header = fs::read(store.join("meta.zr")).unwrap();
    header[14..22].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    fs::write(store.join("meta.zr"), header).unwrap();
    let out = run(&mut zrfs!["verify", "--json", &store]);
    let said = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(out.status.code(), Some(1));
    let [missing, total, ..] = &lines[..] else { panic!("{said}") };
    assert!(missing["error"].as_str().unwrap().contains("records 300 to 1099511627775 are missing"), "{said}");
    assert_eq!((&total["records"], &total["bad"]), (&300.into(), &((1_u64 << 40) - 300).into()), "{said}");
}

#[test]
fn verify_says_what_makes_the_checksums_of_a_copy_count() {
    let dir = scratch();
    let (store, copy) = (dir.path().join("store"), dir.path().join("copy"));
    let mut writer = WriterOptions::new(Codec::Raw).create(&store).unwrap();
    writer.append(&[&[1; 100][..], &[2; 100], &[3; 100]]).unwrap();
    writer.close().unwrap();
    let verified = |args: &[&str]| {
        let out = run(zrfs!["verify"].args(args).arg(&copy));
        (out.status.code(), String::from_utf8(out.stdout).unwrap())
    };
    ok(Command::new("cp").arg("-r").arg(&store).arg(&copy));
    let (code, said) = verified(&[]);
    assert!(code == Some(0) && said.lines().count() == 1, "what matches needs nothing: {said}");
    flip(&copy.join("0.chunk"), 150);
    let (code, said) = verified(&[]);
    let [first, what] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert!(code == Some(0) && first.contains("1 of them other than when zrfs wrote"), "{said}");
    assert!(what.contains("may be damaged") && what.contains("cp -a") && what.contains("verify --rebuild"), "{said}");

    // Both ways do what the line says. As a copy with its times has it:
    let meta = |store: &Path| fs::File::options().write(true).open(store.join("meta.zr")).unwrap();
    let times = [&store, &copy].map(|store| meta(store).metadata().unwrap().modified().unwrap());
    meta(&copy).set_modified(times[0]).unwrap();
    let (code, said) = verified(&[]);
    assert!(code == Some(1) && said.starts_with(&format!("{}: record 1: ", copy.display())), "{said}");
    meta(&copy).set_modified(times[1]).unwrap();
    assert_eq!(verified(&["--rebuild"]).0, Some(0));
    let (code, said) = verified(&[]);
    assert!(code == Some(0) && said.ends_with("(300 B) read: no damage found\n"), "{said}");
    flip(&copy.join("0.chunk"), 250);
    assert_eq!(verified(&[]).0, Some(1));
}

#[test]
fn typical_slips_change_nothing() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("set")).unwrap();
    dense(&at("set/one"), 20);
    dense(&at("set/two"), 20);
    let said = fails(&mut zrfs!["export", at("set"), at("x.npy")], 1);
    assert!(said.contains("several streams") && !at("x.npy").exists(), "{said}");
    let (_, tree) = packed_tree(dir.path());
    let data = tree.join("data");
    let said = fails(&mut zrfs!["rm", "--alone", &data, "0"], 1);
    assert!(said.contains("pack them again"), "{said}");
    fs::write(at("more"), "more").unwrap();
    let said = fails(&mut zrfs!["append", "--alone", &data, at("more")], 1);
    assert!(said.contains("pack them again"), "{said}");
    ok(&mut zrfs!["verify", &tree]);
    // Options behind the indices.
    bytes(&at("plain"), &[b"one", b"two", b"three", b"four"]);
    let said = fails(&mut zrfs!["rm", at("plain"), "0", "--dry-run"], 2);
    assert!(said.contains("options come before"), "{said}");
    let out = run(&mut zrfs!["cat", at("plain"), "0", "--raw"]);
    assert!(out.stdout.is_empty() && stderr(&out).contains("options come before"), "{}", stderr(&out));
    // What a pipe gives comes by -, for opening its name would wait.
    ok(tool("mkfifo").arg(at("pipe")));
    let said = fails(&mut zrfs!["append", at("plain"), at("pipe")], 1);
    assert!(said.contains("give - for it"), "{said}");
    fs::write(at("indices"), "0 2\n1,1\n\n").unwrap();
    ok(&mut zrfs!["rm", "--from", at("indices"), at("plain")]);
    let store = Store::open(at("plain")).unwrap();
    assert_eq!((store.len(), store.read(0).unwrap()), (1, b"four".to_vec()));
}
