//! `zrfs gather` on stores; on mounts it is tested with the mount.

use crate::common::*;
use crate::{bytes, dense};
use std::fs;
use std::process::Command;

fn gather(args: &[&str]) -> Command {
    let mut command = Command::new(ZRFS);
    command.arg("gather").args(args);
    command
}

#[test]
fn records_come_one_after_the_other() {
    let dir = scratch();
    let [plain, numbers, npy] = ["plain.zr", "numbers.zr", "batch.npy"].map(|name| dir.path().join(name));
    let [plain, numbers, npy] = [&plain, &numbers, &npy].map(|path| path.to_str().unwrap());
    bytes(plain.as_ref(), &[b"zero", b"one", b"two", b"three"]);
    dense(numbers.as_ref(), 20);
    assert_eq!(ok(&mut gather(&[plain, "2", "0-1", "-1", "2,2"])), b"twozeroonethreetwotwo");
    assert_eq!(ok(&mut gather(&["--npy", npy, numbers, "5", "17", "0-2"])), b"");
    let made = fs::read(npy).unwrap();
    let one = zrfs::Store::open(numbers).unwrap();
    let want: Vec<u8> = [5, 17, 0, 1, 2].iter().flat_map(|&i| one.read(i).unwrap()).collect();
    assert!(made.ends_with(&want) && made.starts_with(b"\x93NUMPY"));
    let head = String::from_utf8_lossy(&made[..made.len() - want.len()]).into_owned();
    assert!(head.contains("'>f4'") && head.contains("(5, 4, 8)"), "{head}");
    assert!(fails(&mut gather(&["--npy", npy, plain, "1"]), 1).contains("plain.zr has no records of one type"));
    assert!(fails(&mut gather(&[plain, "4"]), 1).contains("out of range"));
    assert!(fails(&mut gather(&[plain, "x"]), 2).contains("x"));
    // Not even by the name that a mount gives its records after the path.
    for name in ["a", "plain"] {
        assert!(fails(&mut gather(&["--stream", name, plain, "1"]), 1).contains("is one store and has no streams"));
    }
    assert!(fails(&mut gather(&[dir.path().join("absent").to_str().unwrap(), "1"]), 1).contains("absent"));
}

/// The line that the README has.
#[test]
fn options_may_follow_the_indices() {
    let readme = include_str!("../../README.md");
    let line = readme.lines().find_map(|line| line.strip_prefix("zrfs gather mnt ")).unwrap();
    let dir = scratch();
    let store = dir.path().join("numbers.zr");
    dense(&store, 20);
    let run = |line: &str| {
        let mut command = gather(&["numbers.zr"]);
        command.args(line.split(' ')).current_dir(dir.path());
        command
    };
    assert_eq!(ok(&mut run(line)), b"");
    let made = fs::read(dir.path().join("batch.npy")).unwrap();
    assert!(String::from_utf8_lossy(&made).contains("(12, 4, 8)"));

    assert!(fails(&mut run(line), 1).contains("batch.npy"), "replaced an existing file");
    assert_eq!(ok(&mut run("-5: --npy batch.npy --force -1,0")), b"");
    let made = fs::read(dir.path().join("batch.npy")).unwrap();
    assert!(String::from_utf8_lossy(&made).contains("(7, 4, 8)"));
    assert_eq!(ok(&mut run("-5: --npy - -1,0")), made);
    assert!(fails(&mut run("1 --no-such"), 2).contains("--no-such"));
}
