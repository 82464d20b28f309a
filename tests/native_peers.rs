//! The comparison with other systems runs from end to end: a small one, with those that tests need anyway. What it finds
//! is no matter here, only that nothing is left out.

mod common;
#[path = "common/loaderx.rs"]
#[allow(dead_code)] // Of what is there this needs the Python.
mod side;

use common::{ZRFS, ok, scratch};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The contenders of a workload that the run must have figures of.
const ROWS: [(&str, &[&str]); 8] = [
    ("raw", &["zrfs raw", "copy from memory", "pread", "numpy, index", "numpy, take", "loaderx 1.5.2"]),
    ("zstd", &["zrfs zstd", "decode from memory", "loaderx 1.5.2"]),
    ("zstd_dict", &["zrfs zstd_dict", "decode from memory", "loaderx 1.5.2"]),
    (
        "append raw",
        &["zrfs", "zrfs, synced", "plain writes of 4 MiB", "plain writes, synced", "numpy, save", "loaderx 1.5.2"],
    ),
    ("append zstd", &["zrfs", "compressing in memory", "loaderx 1.5.2"]),
    ("order raw", &["random", "sorted", "clustered", "repeated"]),
    ("order zstd", &["random", "sorted", "clustered", "repeated"]),
    ("cold", &["zrfs raw"]),
];

#[test]
fn all_rows_are_there() {
    let dir = scratch();
    let bin = Path::new(ZRFS).parent().unwrap();
    let example = bin.join("examples/gather_time");
    // `cargo test` of the whole package builds examples, of one test it does not.
    assert!(example.is_file(), "{} is missing; run: cargo build --example gather_time", example.display());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(side::python());
    command.arg(root.join("benches/peers/native_peers.py")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.arg("--dir").arg(dir.path()).arg("--bin").arg(bin).arg("--out").arg(dir.path());
    command.args(["--sizes", "2048,12288", "--mib", "4", "--turns", "1", "--seconds", "0.001"]);
    command.args(["--records", "1000000", "--only", "numpy,numpy take,loaderx,loaderx zstd,loaderx dict"]);
    let printed = String::from_utf8(ok(&mut command)).unwrap();

    let all: Value = serde_json::from_slice(&fs::read(dir.path().join("native.json")).unwrap()).unwrap();
    assert!(all["machine"]["cores"].as_u64().unwrap() > 0);
    for (workload, rows) in ROWS {
        for (size, found) in all["turns"][workload].as_object().unwrap_or_else(|| panic!("no {workload}")) {
            for row in rows {
                let turns = found.as_object().unwrap().iter().find(|(name, _)| name.starts_with(row));
                let turns = turns.unwrap_or_else(|| panic!("{workload} of {size} bytes has no {row}: {found}")).1;
                assert!(turns[0].as_f64().unwrap() > 0.0, "{workload}, {size}, {row}: {turns}");
            }
        }
    }
    assert_eq!(all["turns"]["raw"].as_object().unwrap().len(), 2);
    assert_eq!(all["open"][0].as_array().unwrap().len(), 10);
    // Each target is there, measured or not, and what did not take part is named.
    let targets = all["targets"].as_array().unwrap();
    assert_eq!(targets.iter().filter(|row| row[3] == "–").count(), 9, "{targets:?}");
    assert_eq!(all["missing"]["fio"], "left out");
    assert_eq!(printed, fs::read_to_string(dir.path().join("native.md")).unwrap() + "\n");
    let plot = fs::read_to_string(dir.path().join("native.svg")).unwrap();
    assert!(plot.contains("zrfs raw") && plot.trim_end().ends_with("</svg>"), "{plot}");
}
