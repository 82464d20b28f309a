//! `zrfs sample`: what it prints, and the mistakes people make with it.

use crate::common::*;
use crate::zrfs;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

fn text(command: &mut Command) -> String {
    String::from_utf8(ok(command)).unwrap()
}

#[test]
fn streams() {
    // The first are loaderx's (tests/golden/sampler.json).
    let cyclic = "cyclic,batch=4,seed=123";
    assert_eq!(text(&mut zrfs!["sample", cyclic, "--length", "10"]), "1 4 3 2\n6 9 8 5\n", "one pass, its end dropped");
    assert_eq!(text(&mut zrfs!["sample", cyclic, "--length", "10", "--steps", "2..3"]), "7 4 2 9\n");
    assert_eq!(text(&mut zrfs!["sample", cyclic, "--length", "10", "--steps", "5", "--flat"]), "8\n1\n7\n4\n");
    assert_eq!(text(&mut zrfs!["sample", cyclic, "--length", "10", "--steps", "..1"]), "1 4 3 2\n");
    assert_eq!(text(&mut zrfs!["sample", cyclic, "--length", "10", "--steps", "3..3"]), "");
    let keep = "sequential,batch=4,tail=keep";
    assert_eq!(text(&mut zrfs!["sample", keep, "--length", "10"]), "0 1 2 3\n4 5 6 7\n8 9\n");
    let rank = "sequential,batch=4,rank=1,world=3";
    assert_eq!(text(&mut zrfs!["sample", rank, "--length", "10", "--steps", "0..3"]), "2\n6\n0\n");
    let idle = "sequential,batch=1,rank=1,world=3";
    assert_eq!(text(&mut zrfs!["sample", idle, "--length", "2"]), "\n\n", "a line a batch, also of none");
    // The last step there is, and a batch that is drawn in pieces.
    let last = ["--length", "18446744073709551615", "--steps", "18446744073709551615"];
    assert_eq!(text(zrfs!["sample", "sequential,batch=2"].args(last)), "0 1\n");
    let large = text(&mut zrfs!["sample", "sequential,batch=10000", "--length", "9999", "--flat", "--steps", "0"]);
    let want: Vec<u64> = (0..9999).chain([0]).collect();
    assert_eq!(large.lines().map(|line| line.parse().unwrap()).collect::<Vec<u64>>(), want);
}

#[test]
fn a_store_gives_its_length() {
    let dir = scratch();
    let (source, packed) = (dir.path().join("source"), dir.path().join("packed"));
    fs::create_dir(&source).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(source.join(name), name).unwrap();
    }
    ok(&mut zrfs!["pack", &source, &packed]);
    assert_eq!(text(&mut zrfs!["sample", "sequential,batch=2,tail=keep", packed.join("data")]), "0 1\n2\n");
    let whole = text(&mut zrfs!["sample", "sequential,batch=9,tail=keep", &packed]);
    assert_eq!(whole.split_whitespace().count(), 3, "a dataset's length is that of its streams");

    let said = fails(&mut zrfs!["sample", "cyclic,batch=2", &packed, "--length", "3"], 2);
    assert!(said.contains("cannot be used with"), "{said}");
    let said = fails(&mut zrfs!["sample", "cyclic,batch=2", dir.path().join("nothing")], 1);
    assert!(said.contains("nothing"), "{said}");
    fs::create_dir(dir.path().join("none")).unwrap();
    ok(&mut zrfs!["pack", dir.path().join("none"), dir.path().join("empty")]);
    let said = fails(&mut zrfs!["sample", "cyclic,batch=2", dir.path().join("empty")], 1);
    assert!(said.contains("there is nothing to draw"), "{said}");
}

#[test]
fn mistakes_are_named() {
    let ten = ["--length", "10"];
    for (spec, more, status, reason) in [
        ("cyclic", &ten[..], 2, "the batch size is missing"),
        ("random,batch=4", &ten, 2, "the modes are sequential, iid, iid_counter, cyclic"),
        ("cyclic,batch=4,sed=1", &ten, 2, "unknown key \"sed\""),
        ("cyclic,batch=4,seed=-1", &ten, 2, "seed=-1: not a whole number"),
        ("cyclic,batch=4,seed=18446744073709551616", &ten, 2, "the largest is 18446744073709551615"),
        ("cyclic,batch=4,rank=4,world=4", &ten, 2, "ranks are 0 to 3"),
        ("cyclic,batch=4", &[], 2, "required"),
        ("cyclic,batch=4", &["--length", "0"], 1, "the length is 0"),
        ("cyclic,batch=4", &["--length=-1"], 2, "invalid digit"),
        ("cyclic,batch=4", &["--length", "10", "--steps", "5..2"], 2, "step 2 comes before step 5"),
        ("cyclic,batch=4", &["--length", "10", "--steps", "a..b"], 2, "\"a\" is no step"),
        ("cyclic,batch=4", &["--length", "10", "--steps=-1"], 2, "\"-1\" is no step"),
        ("cyclic,batch=4", &["--length", "10", "--steps", ""], 2, "\"\" is no step"),
        ("iid,batch=4", &["--length", "10", "--steps", "1000000000000"], 1, "iid_counter seeks at once"),
    ] {
        let said = fails(zrfs!["sample", spec].args(more), status);
        assert!(said.contains(reason), "{spec} {more:?}: {said}");
    }
}

/// As `head` does: reads a line of an endless stream and goes away.
#[test]
fn a_closed_pipe_ends_it_quietly() {
    let mut child = zrfs!["sample", "iid,batch=4", "--length", "10", "--steps", "0.."]
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.split(' ').count(), 4);
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
}
