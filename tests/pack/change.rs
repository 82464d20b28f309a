//! `zrfs append` and `zrfs rm`.

use crate::common::*;
use crate::zrfs;
use std::fs;
use std::path::{Path, PathBuf};
use zrfs::dataset::{RaggedWriter, Values};
use zrfs::format::dtype::DType;
use zrfs::format::{Codec, npy};
use zrfs::{Dataset, OpenOptions, Selection, Stream, WriterOptions};

/// A .npy file at `path`.
fn npy(path: &Path, dtype: &str, shape: &[u64], bytes: &[u8]) -> PathBuf {
    let mut file = npy::header_bytes(&DType::parse(dtype).unwrap(), shape);
    file.extend(bytes);
    fs::write(path, file).unwrap();
    path.to_path_buf()
}

fn all(path: &Path) -> Vec<u8> {
    let stream = Stream::open(path).unwrap();
    (0..stream.len()).flat_map(|i| stream.store().read(i).unwrap()).collect()
}

#[test]
fn arrays_go_to_a_dense_store() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let rows = npy(&at("rows.npy"), "|u1", &[3, 2], &[0, 0, 1, 1, 2, 2]);
    ok(&mut zrfs!["pack", &rows, at("s")]);
    let out = run(&mut zrfs!["append", at("s"), &rows, npy(&at("more.npy"), "|u1", &[1, 2], &[3, 3])]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(stderr(&out).contains("appended 4 records") && stderr(&out).contains("has 7 now"), "{}", stderr(&out));
    assert_eq!(all(&at("s")), [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2, 3, 3]);

    let one = npy(&at("one.npy"), "|u1", &[2], &[9, 9]);
    let said = fails(&mut zrfs!["append", at("s"), &one], 1);
    assert!(said.contains("one.npy") && said.contains("[2]") && said.contains("--whole"), "{said}");
    ok(&mut zrfs!["append", "--whole", at("s"), &one]);
    assert_eq!(all(&at("s"))[14..], [9, 9]);
    let said = fails(&mut zrfs!["append", "--whole", at("s"), &rows], 1);
    assert!(said.contains("without --whole"), "{said}");

    // What does not fit is refused before anything is written, though the first source fits.
    let before = all(&at("s"));
    let floats = npy(&at("f.npy"), "<f4", &[1, 2], &[0; 8]);
    let said = fails(&mut zrfs!["append", at("s"), &rows, &floats], 1);
    assert!(said.contains("<f4") && said.contains("|u1") && said.contains("f.npy"), "{said}");
    fs::write(at("cut.npy"), &fs::read(&rows).unwrap()[..130]).unwrap();
    fails(&mut zrfs!["append", at("s"), &rows, at("cut.npy")], 1);
    fails(&mut zrfs!["append", at("s"), dir.path()], 1);
    fails(&mut zrfs!["append", at("s")], 1);
    fails(&mut zrfs!["append", at("missing"), &rows], 1);
    fails(&mut zrfs!["append", at("s"), at("missing")], 1);
    fails(&mut zrfs!["append", at("s"), "--stream", "x=y"], 1);
    fails(&mut zrfs!["append"], 2);
    assert_eq!(all(&at("s")), before);
}

#[test]
fn files_go_to_ragged_stores_and_stores_of_bytes() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let files = at("files");
    fs::create_dir_all(files.join("b")).unwrap();
    fs::write(files.join("a"), "one").unwrap();
    fs::write(files.join("b/c"), "three").unwrap();
    fs::write(files.join("empty"), "").unwrap();
    ok(tool("tar").arg("cf").arg(at("t.tar")).arg("-C").arg(&files).args(["a", "b"]));
    let u1 = DType::parse("|u1").unwrap();
    let i2 = DType::parse("<i2").unwrap();
    WriterOptions::new(Codec::Zstd).create(at("bytes")).unwrap().close().unwrap();
    RaggedWriter::create(&at("ragged"), WriterOptions::new(Codec::Zstd), u1).unwrap().close().unwrap();
    RaggedWriter::create(&at("i2"), WriterOptions::new(Codec::Raw), i2).unwrap().close().unwrap();
    let array = npy(&at("x.npy"), "<i2", &[2, 1], &[1, 0, 2, 0]);
    // Beside each other and of one length, they look like a dataset.
    let said = fails(&mut zrfs!["append", at("bytes"), &files], 1);
    assert!(said.contains("is a stream of the dataset") && said.contains("--alone"), "{said}");
    for store in ["bytes", "ragged"] {
        let out = run(&mut zrfs!["append", "--alone", at(store), &files, at("t.tar"), files.join("a")]);
        assert!(out.status.success() && stderr(&out).contains("left out"), "{}", stderr(&out));
        assert_eq!(all(&at(store)), b"onethreeonethreeone", "{store}");
    }
    let ragged = Stream::open(at("ragged")).unwrap();
    assert_eq!(ragged.shape(1).unwrap(), Some(vec![5]));
    ok(&mut zrfs!["append", at("i2"), &array, &array]);
    let i2 = Stream::open(at("i2")).unwrap();
    assert_eq!((i2.len(), i2.shape(1).unwrap()), (2, Some(vec![2, 1])));
    for wrong in [files.join("a"), at("t.tar"), npy(&at("f.npy"), "<f4", &[1], &[0; 4])] {
        fails(&mut zrfs!["append", at("i2"), &wrong], 1);
    }
    assert_eq!(Stream::open(at("i2")).unwrap().len(), 2);
}

/// A dataset of `n` records with the streams `a` (two bytes) and `b` (one float).
fn dataset(dir: &Path, n: u8) -> PathBuf {
    let path = dir.join("d");
    let a: Vec<u8> = (0..n).flat_map(|i| [i, i]).collect();
    let b: Vec<u8> = (0..n).flat_map(|i| f32::from(i).to_le_bytes()).collect();
    npy(&dir.join("a.npy"), "|u1", &[n.into(), 2], &a);
    npy(&dir.join("b.npy"), "<f4", &[n.into()], &b);
    let stream = |name: &str| format!("{name}={}", dir.join(format!("{name}.npy")).display());
    ok(&mut zrfs!["pack", "--stream", stream("a"), "--stream", stream("b"), &path]);
    path
}

/// The dataset's records, by the number that each stream has of them.
fn numbers(path: &Path) -> Vec<u8> {
    let dataset = Dataset::open_with(&OpenOptions::new(), path).unwrap();
    let values = dataset.get(&Selection::all()).unwrap();
    let [(_, Values::Dense { bytes: a, .. }), (_, Values::Dense { bytes: b, .. })] = &values[..] else { panic!() };
    let a: Vec<u8> = a.chunks(2).map(|r| r[0]).collect();
    let b: Vec<u8> = b.chunks(4).map(|r| f32::from_le_bytes(r.try_into().unwrap()) as u8).collect();
    assert_eq!(a, b, "the streams are not aligned");
    a
}

#[test]
fn datasets_stay_aligned() {
    let dir = scratch();
    let path = dataset(dir.path(), 6);
    let stream = |name: &str, file: &str| format!("{name}={}", dir.path().join(file).display());
    ok(&mut zrfs!["append", &path, "--stream", stream("b", "b.npy"), "--stream", stream("a", "a.npy")]);
    assert_eq!(numbers(&path), [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]);
    npy(&dir.path().join("short.npy"), "<f4", &[1], &[0; 4]);
    for (b, why) in [(Some("b=short.npy"), "1"), (Some("c=b.npy"), "a, b"), (None, "a, b"), (Some("b=a.npy"), "|u1")] {
        let mut command = zrfs!["append", &path, "--stream", "a=a.npy"];
        command.current_dir(dir.path());
        b.map(|b| command.args(["--stream", b]));
        let said = fails(&mut command, 1);
        assert!(said.contains(why), "{said}");
    }
    let said = fails(&mut zrfs!["append", &path, dir.path().join("a.npy")], 1);
    assert!(said.contains("--stream NAME=SOURCE"), "{said}");
    for command in
        [&mut zrfs!["append", path.join("a"), dir.path().join("a.npy")], &mut zrfs!["rm", path.join("a"), "0"]]
    {
        let said = fails(command, 1);
        assert!(said.contains("name the dataset"), "{said}");
    }
    assert_eq!(numbers(&path).len(), 12);
    ok(&mut zrfs!["rm", &path, "0,-1", "2:4"]);
    let mut left = vec![0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5];
    for i in [11, 3, 2, 0] {
        left.swap_remove(i);
    }
    assert_eq!(numbers(&path), left);
    assert_eq!(names(&path), ["a", "b"]);
}

#[test]
fn records_are_removed_by_any_form_of_index() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let rows = npy(&at("rows.npy"), "|u1", &[20], &(0..20).collect::<Vec<u8>>());
    let fresh = || ok(&mut zrfs!["pack", "--force", &rows, at("s")]);
    let model = |doomed: &[usize]| {
        let mut left: Vec<u8> = (0..20).collect();
        let mut doomed = doomed.to_vec();
        doomed.sort_unstable();
        doomed.dedup();
        doomed.iter().rev().for_each(|&i| {
            left.swap_remove(i);
        });
        left
    };
    fs::write(at("lines"), "3\n\n-1\n5-6, 0\n").unwrap();
    npy(&at("mask.npy"), "|b1", &[20], &(0..20).map(|i| u8::from(i % 5 == 2)).collect::<Vec<u8>>());
    let forms: [(&[&str], &[usize]); 6] = [
        (&["17"], &[17]),
        (&["5,17,0-2,-1", "5"], &[0, 1, 2, 5, 17, 19]),
        (&["-3:"], &[17, 18, 19]),
        (&["::-4"], &[3, 7, 11, 15, 19]),
        (&["--from", "lines"], &[0, 3, 5, 6, 19]),
        (&["--mask", "mask.npy", "1"], &[1, 2, 7, 12, 17]),
    ];
    for (args, doomed) in forms {
        fresh();
        let said = stderr(&run(zrfs!["rm", at("s"), "--dry-run"].args(args).current_dir(dir.path())));
        assert!(said.contains(&format!("{} of 20 records would be removed", doomed.len())), "{said}");
        assert_eq!(all(&at("s")).len(), 20);
        let out = run(zrfs!["rm", at("s")].args(args).current_dir(dir.path()));
        assert!(out.status.success(), "{args:?}: {}", stderr(&out));
        assert!(
            stderr(&out).contains("took the freed indices") && stderr(&out).contains("compact"),
            "{}",
            stderr(&out)
        );
        assert_eq!(all(&at("s")), model(doomed), "{args:?}");
    }
    fresh();
    let short = npy(&at("short.npy"), "|b1", &[3], &[1, 1, 1]);
    let (lines, wrong) = (at("lines"), at("wrong"));
    fs::write(&wrong, "1\nx\n").unwrap();
    for (args, status, why) in [
        (vec!["20".as_ref()], 1, "20"),
        (vec!["0".as_ref(), "-21".as_ref()], 1, "-21"),
        (vec!["x".as_ref()], 2, "is no index"),
        (vec![], 1, "--from"),
        (vec!["--mask".as_ref(), short.as_os_str()], 1, "mask of 3"),
        (vec!["--mask".as_ref(), rows.as_os_str()], 1, "|b1"),
        (vec!["--from".as_ref(), wrong.as_os_str()], 1, "line 2"),
        (vec!["--from".as_ref(), lines.as_os_str(), "99".as_ref()], 1, "99"),
    ] {
        let args: Vec<&std::ffi::OsStr> = args;
        let said = fails(zrfs!["rm", at("s")].args(&args), status);
        assert!(said.contains(why), "{args:?}: {said}");
    }
    let reader = Stream::open(at("s")).unwrap();
    let said = fails(&mut zrfs!["rm", at("s"), "0"], 1);
    assert!(said.contains("open for reading or mounted"), "{said}");
    drop(reader);
    assert_eq!(all(&at("s")), model(&[]));

    // The paths of a tree are bound to its records.
    fs::create_dir(at("files")).unwrap();
    fs::write(at("files/f"), "x").unwrap();
    ok(&mut zrfs!["pack", at("files"), at("tree.zr")]);
    for command in [&mut zrfs!["rm", at("tree.zr"), "0"], &mut zrfs!["rm", "--dry-run", at("tree.zr"), "0"]] {
        let said = fails(command, 1);
        assert!(said.contains("pack it again"), "{said}");
    }
    let said = fails(&mut zrfs!["rm", at("tree.zr/data"), "0"], 1);
    assert!(said.contains("name the dataset"), "{said}");
}
