//! What those who ask a mount for batches are told when it has none for them: by the Rust client, the examples and the command.

// Each test program uses a part of it.
#[allow(dead_code, unused_imports)]
mod common;

use common::{Mount, TempDir, bytes, mounter, names_the_way_out, run, shell, store, succeeds, wait_until};
use std::path::Path;
use zrfs::dataset::RaggedWriter;
use zrfs::format::dtype::DType;
use zrfs::{Error, WriterOptions, client};

/// What the mount has no room for, or no records.
#[test]
fn examples_name_limits() {
    let dir = TempDir::new().unwrap();
    let [path, empty] = ["s.zr", "empty.zr"].map(|name| dir.path().join(name));
    store(&path, "raw", &(0..400).map(|i| bytes(i, 12_000)).collect::<Vec<_>>());
    store(&empty, "raw", &[]);
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/mount_client.py");
    let program = dir.path().join("view");
    let program = program.to_str().unwrap();
    succeeds(&shell(&format!(
        "cc -std=c99 -I {0}/../include {0}/../examples/c/view.c -o {program}",
        env!("CARGO_MANIFEST_DIR")
    )));
    let says = |args: &[&str], words: &[&str]| {
        let out = run(args[0], &args[1..]);
        let named = words.iter().all(|word| out.err.contains(word));
        assert!(out.code == Some(1) && out.err.lines().count() == 1 && named, "{args:?}: {out:?}");
    };
    let mount = Mount::new(&path, &["--max-views", "1"]);
    let at = mount.path();
    // With one view, one batch after the other; with none to be had there is no batch.
    let drawn = |views: &client::Mount| {
        let spec = "cyclic,batch=100,seed=42".parse().unwrap();
        crc32fast::hash(views.sample(&spec, 4).unwrap().parts()[0].bytes())
    };
    let views = client::Mount::open(mount.mountpoint()).unwrap();
    let crc = format!("crc {:08x}\n", drawn(&views));
    let limit = ["at most 1 ", "--max-views"];
    says(&["python3", python, &at, "--sample", "100", "--steps", "5"], &limit);
    says(&["python3", python, &at, "5"], &limit);
    says(&[program, &at, "5"], &limit);
    drop(views);
    let stats = mount.mountpoint().join(".zrfs/stats.json");
    wait_until("the view is gone", || std::fs::read_to_string(&stats).unwrap().contains("\"views\": 0"));
    let said = succeeds(&run("python3", &[python, &at, "--sample", "100", "--steps", "5"]));
    assert!(said.contains(&crc) && said.contains("5 batches"), "{said} without {crc}");
    says(&[program, &at, "-s", "5"], &limit);
    drop(mount);

    let mount = Mount::new(&path, &["--view-memory", "2M"]);
    let limit = ["2097152 bytes", "--view-memory"];
    says(&["python3", python, &mount.path(), "--sample", "256"], &limit);
    says(&[program, &mount.path(), "-s", "1"], &limit);
    drop(mount);

    let mount = Mount::new(&empty, &[]);
    says(&["python3", python, &mount.path(), "--sample", "256"], &["no records"]);
    says(&[program, &mount.path(), "-s", "1"], &["no records"]);
    let views = client::Mount::open(mount.mountpoint()).unwrap();
    let refused = views.sample(&"cyclic,batch=8".parse().unwrap(), 0).unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)) && refused.to_string().contains("has no records"), "{refused}");
}

/// A sampler that can't jump is replayed within a bound; beyond it the client says so.
#[test]
fn what_cannot_be_drawn_says_why() {
    let dir = TempDir::new().unwrap();
    store(&dir.path().join("s.zr"), "raw", &(0..10).map(|i| bytes(i, 10)).collect::<Vec<_>>());
    let mount = Mount::new(&dir.path().join("s.zr"), &[]);
    let views = client::Mount::open(mount.mountpoint()).unwrap();
    let far = views.sample(&"iid,batch=1000,seed=1".parse().unwrap(), 1 << 40).unwrap_err();
    assert!(matches!(far, Error::Invalid(_)) && far.to_string().contains("too far"), "{far}");
    let long = views.sample_among(11, &"cyclic,batch=5".parse().unwrap(), 0).unwrap_err();
    assert!(matches!(long, Error::Invalid(_)) && long.to_string().contains("has 10 records"), "{long}");
    assert_eq!(views.sample(&"iid_counter,batch=1000,seed=1".parse().unwrap(), 1 << 40).unwrap().len(), 1000);
}

/// The Rust client in a container: run by the test below in namespaces of its own, with what it sees of the mount.
#[test]
#[ignore = "a part of the next one"]
fn in_a_container() {
    let Some(at) = std::env::var_os("ZRFS_TEST_CONTAINER") else { return };
    let views = client::Mount::open(at).unwrap();
    match views.gather(&[7, 5]) {
        Ok(batch) => println!("has {:08x}", crc32fast::hash(batch.parts()[0].bytes())),
        Err(e) => println!("refused: {e}"),
    }
}

#[test]
fn a_container_that_sees_a_part_is_told_what_to_do() {
    let dir = TempDir::new().unwrap();
    let part = dir.path().join("part");
    std::fs::create_dir(&part).unwrap();
    let records: Vec<Vec<u8>> = (0..30).map(|i| bytes(i, 1000)).collect();
    store(&dir.path().join("s.zr"), "zstd", &records);
    let want = format!("has {:08x}\n", crc32fast::hash(&[&records[7][..], &records[5]].concat()));
    let ask = |mount: &Mount, bound: &str| {
        let test = std::env::current_exe().unwrap();
        let at = part.display();
        let script = format!(
            "mount --bind {}/{bound} {at} && ZRFS_TEST_CONTAINER={at} exec {} --ignored --exact in_a_container --nocapture",
            mount.path(),
            test.display()
        );
        succeeds(&run("unshare", &["-nm", "sh", "-c", &script]))
    };
    let mount = Mount::new(&dir.path().join("s.zr"), &[]);
    assert!(ask(&mount, "").contains(&want));
    let refused = |mount: &Mount, bound: &str| {
        let said = ask(mount, bound);
        let line = said.lines().find_map(|line| line.split_once("refused: ")).map(|(_, line)| line.to_string());
        assert!(line.as_ref().is_some_and(|line| names_the_way_out(line)), "{said}");
    };
    refused(&mount, "records");
    drop(mount);
    refused(&Mount::new(&dir.path().join("s.zr"), &["--root", "records"]), "");
}

/// What `zrfs gather` says of a mount.
#[test]
fn the_command_on_a_mount() {
    let zrfs = Path::new(mounter()).with_file_name("zrfs");
    assert!(zrfs.is_file(), "{} is missing: cargo build -p zrfs", zrfs.display());
    let dir = TempDir::new().unwrap();
    let zrfs = zrfs.to_str().unwrap();
    store(&dir.path().join("s.zr"), "raw", &[b"zero".to_vec(), b"one".to_vec()]);
    let refused = |args: &[&str], words: &[&str]| {
        let out = run(zrfs, &[&["gather"], args].concat());
        assert!(out.code == Some(1) && words.iter().all(|word| out.err.contains(word)), "{args:?}: {out:?}");
    };
    let one = Mount::new(&dir.path().join("s.zr"), &[]);
    assert_eq!(succeeds(&run(zrfs, &["gather", &one.path(), "1", "0"])), "onezero");
    let path = dir.path().join("s.zr");
    for path in [&one.path(), path.to_str().unwrap()] {
        refused(&[path, "--stream", "s", "1"], &["is one store and has no streams"]);
    }
    let npy = dir.path().join("batch.npy");
    let npy = npy.to_str().unwrap();
    let set = dir.path().join("set");
    std::fs::create_dir(&set).unwrap();
    let floats = DType::parse("<f4").unwrap();
    let mut ragged =
        RaggedWriter::create(&set.join("ragged"), WriterOptions::new("raw".parse().unwrap()), floats).unwrap();
    (0..3).for_each(|i| ragged.append(&[(&[i + 1][..], &bytes(i, 4 * (i + 1) as usize))]).map(drop).unwrap());
    ragged.close().unwrap();
    store(&set.join("plain"), "raw", &(0..3).map(|i| bytes(i, 5)).collect::<Vec<_>>());
    let many = Mount::new(&set, &[]);
    for path in [&many.path(), set.to_str().unwrap()] {
        for stream in ["ragged", "plain"] {
            let words = [&format!("stream \"{stream}\" of {path}"), "leave --npy out"];
            refused(&[path, "--stream", stream, "1", "--npy", npy], &words);
        }
        refused(&[path, "--stream", "x", "1"], &["no stream \"x\""]);
    }
    assert!(!Path::new(npy).exists());
}
