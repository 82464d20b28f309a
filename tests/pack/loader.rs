//! `zrfs loader`: its lines, its summary, and how it ends.

use crate::common::*;
use crate::zrfs;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A store of `n` records of 4 KiB.
fn store(dir: &Path, name: &str, n: usize) -> PathBuf {
    let npy = dir.join(format!("{name}.npy"));
    let mut header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({n}, 4096), }}");
    header += &" ".repeat(63 - (header.len() + 10) % 64);
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(noise(7, n * 4096));
    fs::write(&npy, bytes).unwrap();
    let packed = dir.join(format!("{name}.zr"));
    ok(&mut zrfs!["pack", &npy, &packed]);
    packed
}

fn text(command: &mut Command) -> String {
    String::from_utf8(ok(command)).unwrap()
}

#[test]
fn a_run_ends_with_a_summary() {
    let dir = scratch();
    let one = store(dir.path(), "one", 1000);
    let said = text(&mut zrfs!["loader", &one, "--steps", "50", "--batch", "100"]);
    assert!(said.starts_with("50 batches (19.53 MiB) in "), "{said}");
    for words in ["batches/s", "the consumer waited ", "memory: ", "bottleneck: "] {
        assert!(said.contains(words), "{said}");
    }
    // With every option, and a training step that takes longer than the loading does.
    let two = store(dir.path(), "two", 1000);
    let mut command =
        zrfs!["loader", &one, &two, "--batch", "10", "--mode", "iid_counter", "--seed", "7", "--tail", "wrap"];
    command.args(["--rank", "1", "--world", "2", "--workers", "1", "--prefetch", "2", "--steps", "60", "--unordered"]);
    let said = text(command.args(["--step-time", "30"]));
    assert!(said.starts_with("60 batches (2.34 MiB)"), "of two streams, five records of ten: {said}");
    assert!(said.contains("bottleneck: the consumer"), "{said}");
    let said = text(&mut zrfs!["loader", &one, "--workers", "0", "--steps", "1"]);
    assert!(said.starts_with("1 batch (") && said.contains("makes its batches itself"), "{said}");
    assert!(text(&mut zrfs!["loader", &one, "--steps", "0"]).contains("nothing was loaded"));
}

#[test]
fn json_is_an_object_a_line() {
    let dir = scratch();
    let one = store(dir.path(), "one", 500);
    let said = text(&mut zrfs!["loader", &one, "--steps", "24", "--step-time", "100", "--json", "--workers", "1"]);
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() >= 2, "{said}");
    for line in &lines {
        for key in ["seconds", "batches", "bytes", "batches_per_second", "bytes_per_second", "memory"] {
            assert!(line[key].as_f64().is_some_and(|n| n > 0.0), "{key}: {line}");
        }
        assert!(line["consumer_waited"].as_f64().unwrap() < 0.5 && line["workers_waited"].as_f64().is_some(), "{line}");
        assert!(line["ready"].as_u64().unwrap() <= 5 && line["workers"] == 1, "{line}");
    }
    let last = lines.last().unwrap();
    assert_eq!((&last["batches"], &last["bottleneck"]), (&24.into(), &"consumer".into()));
    assert!(last["peak_memory"].as_u64().unwrap() >= last["memory"].as_u64().unwrap());
    // Whoever reads it may leave.
    let mut child = zrfs!["loader", &one, "--json"].stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with('{'), "{line}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_interrupt_ends_it_with_the_summary() {
    let dir = scratch();
    let one = store(dir.path(), "one", 500);
    for args in [&["--step-time", "0"][..], &["--step-time", "600000"], &["--workers", "0"]] {
        let mut command = zrfs_with_signals(&[&"loader", &one]);
        let mut child = command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // It says something a second when it runs.
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        assert!(line.contains("consumer waits") && line.contains("memory"), "{line}");
        assert!(args.contains(&"--workers") || line.contains(" of "), "{line}");
        let begin = Instant::now();
        ok(tool("kill").arg("-INT").arg(child.id().to_string()));
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8(out.stdout).unwrap();
        assert!(out.status.success() && said.contains("bottleneck: "), "{args:?}: {}, {said}", out.status);
        assert!(begin.elapsed() < Duration::from_secs(30), "{args:?}: {:?}", begin.elapsed());
    }
}

#[test]
fn mistakes_are_named() {
    let dir = scratch();
    let (one, short) = (store(dir.path(), "one", 100), store(dir.path(), "short", 99));
    let said = fails(&mut zrfs!["loader", &one, &short], 1);
    assert!(said.contains("one.zr has 100 records") && said.contains("short.zr has 99"), "{said}");
    for (args, status, words) in [
        (&["--batch", "0"][..], 1, "batch=0"),
        (&["--batch", "-1"], 2, "-1"),
        (&["--mode", "random"], 2, "sequential, iid, iid_counter, cyclic"),
        (&["--mode", "iid", "--tail", "keep"], 1, "tail=keep"),
        (&["--rank", "1"], 2, "--world"),
        (&["--rank", "2", "--world", "2"], 1, "ranks are 0 to 1"),
        (&["--workers", "100000"], 1, "at most 1024"),
        (&["--batch", "18446744073709551615", "--tail", "wrap"], 1, "no memory for a batch"),
    ] {
        let said = fails(zrfs!["loader", &one].args(args), status);
        assert!(said.contains(words), "{args:?}: {said}");
    }
    let said = fails(&mut zrfs!["loader", dir.path().join("nothing")], 1);
    assert!(said.contains("nothing"), "{said}");
    assert_eq!(run(&mut zrfs!["loader"]).status.code(), Some(2));
    // A damaged record ends it, and is named.
    let chunk = one.join("0.chunk");
    let length = fs::metadata(&chunk).unwrap().len();
    fs::File::options().write(true).open(&chunk).unwrap().set_len(length - 100).unwrap();
    let said = fails(&mut zrfs!["loader", &one], 1);
    assert!(said.contains("0.chunk"), "{said}");
}
