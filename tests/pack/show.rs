//! What the commands print: `ls`, `info` and `cat`, for people and as JSON.

use crate::common::*;
use crate::zrfs;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

fn lines(command: &mut Command) -> Vec<Value> {
    let text = String::from_utf8(ok(command)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn npy(dtype: &str, shape: &[u64], bytes: &[u8]) -> Vec<u8> {
    [&zrfs::format::npy::header_bytes(&dtype.parse().unwrap(), shape)[..], bytes].concat()
}

#[test]
fn a_tree() {
    let dir = scratch();
    let (source, packed) = (dir.path().join("source"), dir.path().join("packed"));
    fs::create_dir_all(source.join("dir")).unwrap();
    let large = noise(4, (4 << 20) + 10);
    fs::write(source.join("a.txt"), "hello\n".repeat(100)).unwrap();
    fs::write(source.join(name(b"b\xff\n")), "odd").unwrap();
    fs::write(source.join("dir/large"), &large).unwrap();
    fs::write(source.join("empty"), "").unwrap();
    fs::write(source.join("7"), "the file called 7").unwrap();
    std::os::unix::fs::symlink("a.txt", source.join("link")).unwrap();
    ok(&mut zrfs!["pack", &source, &packed]);

    let listed = lines(&mut zrfs!["ls", "--json", &packed]);
    let what: Vec<(u64, u64, &str)> = listed
        .iter()
        .map(|r| (r["index"].as_u64().unwrap(), r["size"].as_u64().unwrap(), r["path"].as_str().unwrap()))
        .collect();
    let want =
        [(0, 17, "7"), (1, 600, "a.txt"), (2, 3, "b\u{fffd}\n"), (3, 4 << 20, "dir/large"), (4, 10, "dir/large")];
    assert_eq!(what, want);
    assert!(listed.iter().all(|r| r["stream"] == "data" && r["stored"].as_u64().unwrap() > 0));
    assert!(listed[1]["stored"].as_u64().unwrap() < 100, "text compresses");
    assert_eq!(listed[2]["path_bytes"], json!([98, 255, 10]), "the exact name where JSON has none");
    assert_eq!(listed[1].get("path_bytes"), None);
    let paths = lines(&mut zrfs!["ls", "--json", "--stream", "path", &packed]);
    assert_eq!((paths.len(), &paths[1]["size"]), (5, &json!(5)));
    let text = String::from_utf8(ok(&mut zrfs!["ls", &packed])).unwrap();
    assert_eq!(text.lines().count(), 6, "a header and a line a record, whatever the names are:\n{text}");
    assert!(text.contains(r#""b\xFF\n""#), "{text}");

    let info: Value = serde_json::from_slice(&ok(&mut zrfs!["info", "--json", &packed])).unwrap();
    assert_eq!((&info["kind"], &info["records"]), (&json!("dataset"), &json!(5)));
    let bytes = 600 + 3 + 17 + large.len();
    let tree = &info["tree"];
    for (key, want) in [("files", 5), ("directories", 2), ("symlinks", 1), ("bytes", bytes), ("piece_bytes", 4 << 20)] {
        assert_eq!(tree[key], json!(want), "{key}");
    }
    assert_eq!(tree["index_bytes"], json!(fs::metadata(packed.join("tree.zr")).unwrap().len()));
    assert_eq!(info["streams"]["data"]["codec"], "zstd");
    assert_eq!(info["streams"]["data"]["kind"], "ragged");
    let text = String::from_utf8(ok(&mut zrfs!["info", &packed])).unwrap();
    assert!(text.contains("records") && text.contains("4.00 MiB"), "{text}");

    // By path, by index, several at once; a path that looks like an index needs its ./.
    assert_eq!(ok(&mut zrfs!["cat", &packed, "dir/large"]), large);
    assert_eq!(ok(&mut zrfs!["cat", &packed, "3", "4"]), large);
    assert_eq!(ok(&mut zrfs!["cat", &packed, "/dir//large"]), large);
    assert_eq!(ok(&mut zrfs!["cat", &packed, name(b"b\xff\n"), "./7", "0"]), b"oddthe file called 7the file called 7");
    assert_eq!(ok(&mut zrfs!["cat", &packed, "empty"]), b"");
    assert_eq!(ok(&mut zrfs!["cat", "--stream", "path", &packed, "1"]), b"a.txt");
    for (what, reason) in [
        ("5", "index 5 is out of range"),
        ("nothing", "there is no such file"),
        ("dir", "it is a directory"),
        ("link", "it is a symbolic link to a.txt"),
        ("007", "there is no such file"),
        ("+1", "there is no such file"),
        ("../source/a.txt", "there is no such file"),
        ("18446744073709551616", "index 18446744073709551616 is out of range"),
    ] {
        let said = fails(&mut zrfs!["cat", &packed, what], 1);
        assert!(said.contains(reason), "{what}: {said}");
    }
    let said = fails(&mut zrfs!["ls", "--stream", "none", &packed], 1);
    assert!(said.contains("data, path"), "it names the streams that there are: {said}");
}

#[test]
fn arrays_and_streams() {
    let dir = scratch();
    let (images, labels) = (dir.path().join("images.npy"), dir.path().join("labels.npy"));
    let pixels = noise(5, 10 * 6 * 4);
    fs::write(&images, npy("|u1", &[10, 6, 4], &pixels)).unwrap();
    let values: Vec<u8> = (0..10i64).flat_map(|i| (i * i).to_le_bytes()).collect();
    fs::write(&labels, npy("<i8", &[10], &values)).unwrap();

    let one = dir.path().join("one.zr");
    ok(&mut zrfs!["pack", "--codec", "raw", &images, &one]);
    let info: Value = serde_json::from_slice(&ok(&mut zrfs!["info", "--json", &one])).unwrap();
    let want = json!({ "kind": "dense", "records": 10, "codec": "raw", "stored_bytes": 240, "dtype": "|u1",
        "shape": [6, 4], "bytes": 240 });
    assert_eq!(info, want);
    let listed = lines(&mut zrfs!["ls", "--json", &one]);
    assert_eq!(listed[9], json!({ "index": 9, "size": 24, "stored": 24, "shape": [6, 4] }));
    assert_eq!(ok(&mut zrfs!["cat", &one, "9"]), pixels[216..]);
    let said = fails(&mut zrfs!["unpack", &one, dir.path().join("copy")], 1);
    assert!(said.contains("not a tree"), "{said}");

    let both = dir.path().join("both.zr");
    let named = |name: &str, path: &std::path::Path| format!("{name}={}", path.display());
    let streams = [named("image", &images), named("label", &labels)];
    ok(zrfs!["pack", &both].args(streams.iter().flat_map(|s| ["--stream", s])));
    let info: Value = serde_json::from_slice(&ok(&mut zrfs!["info", "--json", &both])).unwrap();
    assert_eq!((&info["records"], info.get("tree")), (&json!(10), None));
    assert_eq!(info["streams"]["label"]["shape"], json!([]));
    assert_eq!(lines(&mut zrfs!["ls", "--json", &both]).len(), 20);
    assert_eq!(lines(&mut zrfs!["ls", "--json", "--stream", "label", &both]).len(), 10);
    assert_eq!(ok(&mut zrfs!["cat", "--stream", "label", &both, "9"]), 81i64.to_le_bytes());
    let said = fails(&mut zrfs!["cat", &both, "9"], 1);
    assert!(said.contains("--stream") && said.contains("image, label"), "{said}");
    let said = fails(&mut zrfs!["unpack", &both, dir.path().join("copy")], 1);
    assert!(said.contains("not packed from files"), "{said}");
    fs::write(&labels, npy("<i8", &[9], &values[..72])).unwrap();
    let said = fails(zrfs!["pack", dir.path().join("c")].args(streams.iter().flat_map(|s| ["--stream", s])), 1);
    assert!(said.contains("10 records") && said.contains("has 9"), "{said}");
}

#[test]
fn wrong_arguments_say_what_is_right() {
    let dir = scratch();
    fails(&mut zrfs!["pack"], 2);
    fails(&mut zrfs!["pack", "--codec", "lzma", "a", "b"], 2);
    fails(&mut zrfs!["frobnicate"], 2);
    let said = fails(&mut zrfs!["pack", "--level", "99", "/etc/hostname", dir.path().join("x")], 1);
    assert!(!said.is_empty());
    let said = fails(&mut zrfs!["ls", dir.path()], 1);
    assert!(said.contains("is not a zrfs store or dataset"), "{said}");
    let said = fails(&mut zrfs!["ls", dir.path().join("missing")], 1);
    assert!(said.contains("there is nothing of that name"), "{said}");
    let said = fails(&mut zrfs!["info", "/etc/hostname"], 1);
    assert!(said.contains("it is a file"), "{said}");
    assert!(names(dir.path()).is_empty());
    for command in ["pack", "unpack", "ls", "cat", "info"] {
        let help = String::from_utf8(ok(&mut zrfs![command, "--help"])).unwrap();
        assert!(help.contains("Examples:"), "{command} --help has no examples");
    }
}
