//! `zrfs bench`: that it measures every kind of store and says what it found; not how much that is.

use super::*;
use common::fails;
use serde_json::Value;

fn measured(args: &[&str], store: &Path) -> Vec<Value> {
    let out = ok(Command::new(ZRFS).arg("bench").arg(store).args(["--seconds", "0.2", "--json"]).args(args));
    String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn rates(rates: &Value) -> usize {
    let rates = rates.as_array().unwrap();
    assert!(rates.iter().all(|r| r["bytes_per_second"].as_f64().unwrap() > 1.0 && r["threads"].as_u64() >= Some(1)));
    rates.len()
}

#[test]
fn every_kind_of_store_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    dense(&path("dense"), 300);
    ragged(&path("ragged"), 100);
    let mut raw = WriterOptions::new(Codec::Raw).create(path("raw")).unwrap();
    raw.append(&[b"one", b"and another"]).unwrap();
    raw.close().unwrap();
    for (name, records, decodes) in [("dense", 300, true), ("ragged", 100, true), ("raw", 2, false)] {
        let all = measured(&["--batch", "32"], &path(name));
        let [store] = &all[..] else { panic!("{all:?}") };
        assert_eq!(store["records"], records);
        assert_eq!((rates(&store["copy"]), rates(&store["gather"])), (2, 6), "{store}");
        assert_eq!(store["decode"].is_array(), decodes, "{store}");
        assert!(store["verdict"].as_str().unwrap().ends_with('.'));
        assert!(measured(&["--warm"], &path(name))[0]["cold"].is_null());
        let text = ok(Command::new(ZRFS).arg("bench").arg(path(name)).args(["--seconds", "0.2"]));
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("the limit") && text.contains("gather, batches of 256"), "{text}");
    }
}

#[test]
fn a_datasets_streams_are_measured_each() {
    let dir = tempfile::tempdir().unwrap();
    let (_, packed) = packed_tree(dir.path());
    let names: Vec<Value> = measured(&[], &packed).into_iter().map(|store| store["stream"].clone()).collect();
    assert_eq!(names, ["data", "path"]);
    assert_eq!(measured(&["--stream", "path"], &packed).len(), 1);
    let error = fails(Command::new(ZRFS).arg("bench").arg(&packed).args(["--stream", "nothing"]), 1);
    assert!(error.contains("it has data, path"), "{error}");
}

#[test]
fn what_cannot_be_measured_is_said() {
    let dir = tempfile::tempdir().unwrap();
    bytes(&dir.path().join("empty"), &[]);
    let error = fails(Command::new(ZRFS).arg("bench").arg(dir.path().join("empty")), 1);
    assert!(error.contains("has no records to measure with"), "{error}");
    for wrong in [["--batch", "0"], ["--seconds", "nan"], ["--seconds", "0"]] {
        fails(Command::new(ZRFS).arg("bench").arg(dir.path()).args(wrong), 2);
    }
}
