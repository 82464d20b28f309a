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
        assert_eq!(rates(&store["copy"]), 2, "{store}");
        assert!(rates(&store["gather"]) >= 2, "{store}");
        assert_eq!(store["decode"].is_array(), decodes, "{store}");
        assert!(store["verdict"].as_str().unwrap().ends_with('.'));
        assert!(measured(&["--warm"], &path(name))[0]["cold"].is_null());
        let text = ok(Command::new(ZRFS).arg("bench").arg(path(name)).args(["--seconds", "0.2"]));
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("the limit") && text.contains("gather, batches of "), "{text}");
    }
}

#[test]
fn batches_have_no_more_records_than_the_store_and_no_size_is_there_twice() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dense");
    dense(&path, 300);
    for (asked, most) in [(1, 16), (32, 300), (300, 300), (100_000, 300)] {
        let all = measured(&["--batch", &asked.to_string()], &path);
        let sizes = |what: &str| -> Vec<u64> {
            all[0][what].as_array().unwrap().iter().map(|rate| rate["batch"].as_u64().unwrap()).collect()
        };
        let gather = sizes("gather");
        // One thread's rate and that of all stand for each size, which the time may make smaller.
        assert!(gather.chunks(2).all(|both| both[0] >= both[1]), "{gather:?}");
        assert!(gather.chunks(2).is_sorted_by(|a, b| a[1] < b[1]) && gather.iter().max() <= Some(&most), "{gather:?}");
        // A limit is that of batches that were gathered, and none is larger.
        assert!(["copy", "decode"].iter().all(|what| sizes(what).iter().all(|n| gather.iter().any(|g| g >= n))));
        if asked == 100_000 {
            let note = all[0]["note"].as_str().unwrap();
            assert!(note.contains("are measured, not of 100,000: "), "{note}");
        }
    }
    let text = ok(Command::new(ZRFS).arg("bench").arg(&path).args(["--seconds", "2", "--batch", "4096"]));
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("Batches of 300 are measured, not of 4,096: the store has 300 records."), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("gather, batches of 300 ")).count(), 1, "{text}");
}

/// The system cannot forget what is in memory alone.
#[test]
fn what_stays_in_memory_has_no_cold_rate() {
    const TMPFS: i64 = 0x0102_1994;
    if !rustix::fs::statfs("/dev/shm").is_ok_and(|found| found.f_type == TMPFS) {
        eprintln!("/dev/shm is no tmpfs here: what bench says of one is not tested");
        return;
    }
    let dir = tempfile::Builder::new().prefix("zrfs-test-").tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("dense");
    dense(&path, 300);
    let store = &measured(&[], &path)[0];
    assert!(
        store["cold"].is_null() && store["verdict"].as_str().unwrap().contains("could not be measured cold"),
        "{store}"
    );
    let bench = |args: &[&str]| {
        let text = ok(Command::new(ZRFS).arg("bench").arg(&path).args(["--seconds", "0.2"]).args(args));
        String::from_utf8(text).unwrap()
    };
    let cold = "\ncold: not measurable here: the files stay in memory\n";
    let text = bench(&[]);
    assert!(text.contains(cold) && !text.contains("not in the page cache"), "{text}");
    assert!(!bench(&["--warm"]).contains("cold"));
}

#[test]
fn a_measurement_of_few_large_records_ends_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large");
    let record = noise(1, 1 << 20);
    bytes(&path, &vec![&record[..]; 200]);
    let begin = std::time::Instant::now();
    measured(&["--batch", "200"], &path);
    // At most four times 0.2 s, but for what is done once and for what else the machine does: without an end it takes minutes.
    assert!(begin.elapsed() < std::time::Duration::from_secs(20), "{:?}", begin.elapsed());
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
