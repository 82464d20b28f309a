//! `zrfs export`.

use crate::common::{Compare, ZRFS, assert_same, fails, names, noise, ok, run, scratch, stderr, tool};
use crate::zrfs;
use crate::{bytes, dense, packed_tree, ragged, records};
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use zrfs::Stream;
use zrfs::format::npy::NpyHeader;

#[test]
fn a_dense_store_becomes_the_array_it_was_packed_from() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    dense(&at("a"), 1234);
    let said = stderr(&run(&mut zrfs!["export", at("a"), at("a.npy")]));
    assert!(said.contains("1,234 records"), "{said}");
    let array = fs::read(at("a.npy")).unwrap();
    let header = NpyHeader::parse(&array).unwrap();
    assert_eq!((header.dtype.as_str(), &header.shape[..], header.fortran), (">f4", &[1234, 4, 8][..], false));
    assert_eq!(array[header.data_offset as usize..], records(&at("a")).concat());
    assert_eq!(ok(&mut zrfs!["export", at("a"), "-"]), array);
    for kind in ["pack", "import"] {
        ok(&mut zrfs![kind, at("a.npy"), at(kind)]);
        ok(&mut zrfs!["compare", at("a"), at(kind)]);
    }
    // Its records can be files, too.
    let tar = ok(&mut zrfs!["export", at("a"), "-", "--format", "tar", "--names", "x/{index:04}.npy"]);
    let mut archive = tar::Archive::new(&tar[..]);
    let mut n = 0;
    for (i, entry) in archive.entries().unwrap().enumerate() {
        let mut entry = entry.unwrap();
        assert_eq!(*entry.path_bytes(), *format!("x/{i:04}.npy").as_bytes());
        let mut file = Vec::new();
        entry.read_to_end(&mut file).unwrap();
        assert_eq!(NpyHeader::parse(&file).unwrap().shape, [4, 8]);
        n += 1;
    }
    assert_eq!(n, 1234);
}

#[test]
fn fashion_mnist_comes_back_as_it_was() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let source = "/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz";
    assert!(fs::exists(source).unwrap(), "{source} is missing: `scripts/setup` installs dataset-fashion-mnist");
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(fs::File::open(source).unwrap()).read_to_end(&mut plain).unwrap();
    ok(&mut zrfs!["pack", source, at("images")]);
    ok(&mut zrfs!["export", at("images"), at("images.npy")]);
    let array = fs::read(at("images.npy")).unwrap();
    assert_eq!(NpyHeader::parse(&array).unwrap().shape, [10_000, 28, 28]);
    assert!(array[128..] == plain[16..], "the items differ");
    for codec in ["raw", "zstd", "zstd_dict"] {
        ok(&mut zrfs!["recode", at("images"), at(codec), "--codec", codec, "--level", "3", "--tier", "fast"]);
        ok(&mut zrfs!["compare", at("images"), at(codec)]);
    }
}

#[test]
fn ragged_and_plain_records_become_files() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    ragged(&at("r"), 40);
    ok(&mut zrfs!["export", at("r"), at("r.tar"), "-q"]);
    let stream = Stream::open(at("r")).unwrap();
    fs::create_dir(at("out")).unwrap();
    ok(tool("tar").arg("xf").arg(at("r.tar")).arg("-C").arg(at("out")));
    assert_eq!(names(&at("out")).len(), 40);
    for i in 0..40 {
        let file = fs::read(at("out").join(format!("{i}.npy"))).unwrap();
        let header = stream.npy_header(i).unwrap().unwrap();
        assert_eq!(file, [header, stream.store().read(i).unwrap()].concat());
    }
    let all: Vec<Vec<u8>> = (1..30).map(|i| noise(i, i as usize * 97)).collect();
    bytes(&at("b"), &all.iter().map(|r| &r[..]).collect::<Vec<_>>());
    ok(&mut zrfs!["export", at("b"), at("b.tar"), "--names", "{index:08}.bin"]);
    // The files of an archive come back as a tree whose records are the same, in the same order.
    ok(&mut zrfs!["import", at("b.tar"), at("b-tree")]);
    assert_eq!(records(&at("b-tree/data")), all);
    assert_eq!(records(&at("b-tree/path"))[17], b"00000017.bin");
    assert_eq!(ok(&mut zrfs!["cat", at("b-tree"), "00000017.bin"]), all[17]);
}

#[test]
fn a_tree_becomes_the_archive_that_tar_reads_and_pack_too() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let (source, packed) = packed_tree(dir.path());
    ok(&mut zrfs!["export", &packed, at("t.tar")]);
    ok(&mut zrfs!["import", at("t.tar"), at("again")]);
    let out = run(&mut zrfs!["compare", &packed, at("again")]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    ok(&mut zrfs!["unpack", at("again"), at("copy")]);
    assert_same(&source, &at("copy"), Compare::All);
    // GNU tar.
    fs::create_dir(at("tar")).unwrap();
    let mut child =
        Command::new(ZRFS).args(["export", "-q"]).arg(&packed).arg("-").stdout(Stdio::piped()).spawn().unwrap();
    ok(tool("tar").args(["xp", "--same-owner", "-C"]).arg(at("tar")).stdin(child.stdout.take().unwrap()));
    assert!(child.wait().unwrap().success());
    assert_same(&source, &at("tar"), Compare::All);
}

#[test]
fn a_dataset_becomes_a_directory() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    dense(&at("x"), 20);
    ok(&mut zrfs!["export", at("x"), at("x.npy")]);
    let stream = |name: &str| format!("{name}={}", at("x.npy").display());
    ok(&mut zrfs!["pack", "--stream", stream("image"), "--stream", stream("label"), at("d")]);
    ok(&mut zrfs!["export", at("d"), at("out")]);
    assert_eq!(names(&at("out")), ["image.npy", "label.npy"]);
    assert_eq!(fs::read(at("out/label.npy")).unwrap(), fs::read(at("x.npy")).unwrap());
    let said = fails(&mut zrfs!["export", at("d"), "-"], 1);
    assert!(said.contains("several streams") && said.contains("d/image"), "{said}");
    let said = fails(&mut zrfs!["export", at("d"), at("out")], 1);
    assert!(said.contains("exists already"), "{said}");
}

#[test]
fn mistakes_are_refused_and_leave_nothing() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    ragged(&at("r"), 5);
    dense(&at("d"), 5);
    bytes(&at("b"), &[b"x"]);
    for (args, what) in [
        (vec!["r", "r.npy"], "different shapes"),
        (vec!["b", "b.npy"], "has no type"),
        (vec!["d", "d.npz"], "says no format"),
        (vec!["d", "d.npy", "--names", "{index}"], "an array has no names"),
        (vec!["d", "d.npy", "--format", "npy"], "a file's name says its format"),
        (vec!["d", "none/d.npy"], "none"),
    ] {
        let mut command = zrfs!["export", at(args[0]), at(args[1])];
        let said = fails(command.args(&args[2..]), 1);
        assert!(said.contains(what), "{said}");
    }
    let said = fails(&mut zrfs!["export", at("b"), at("b.tar"), "--names", "same"], 2);
    assert!(said.contains("{index:08}.bin"), "{said}");
    fs::write(at("old.npy"), "old").unwrap();
    let said = fails(&mut zrfs!["export", at("d"), at("old.npy")], 1);
    assert!(said.contains("--force"), "{said}");
    assert_eq!(fs::read(at("old.npy")).unwrap(), b"old");
    let said = fails(&mut zrfs!["export", at("d"), at("r"), "--force"], 1);
    assert!(said.contains("says no format"), "{said}");
    // A damaged record: nothing is made, and the old file stays.
    let chunk = at("d").join("0.chunk");
    let good = fs::read(&chunk).unwrap();
    let mut damaged = good.clone();
    damaged[10] ^= 1;
    fs::write(&chunk, damaged).unwrap();
    let said = fails(&mut zrfs!["export", at("d"), at("old.npy"), "--force"], 1);
    assert!(said.contains("record 0"), "{said}");
    assert_eq!(fs::read(at("old.npy")).unwrap(), b"old");
    fs::write(&chunk, good).unwrap();
    ok(&mut zrfs!["export", at("d"), at("old.npy"), "--force"]);
    assert_eq!(names(dir.path()), ["b", "d", "old.npy", "r"]);
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let dir = scratch();
    let store = dir.path().join("a");
    dense(&store, 100_000);
    for format in ["npy", "tar"] {
        let mut command = zrfs!["export", &store, "-", "--format", format];
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 10];
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut first).unwrap();
        drop(out);
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success() && out.stderr.is_empty(), "{} {}", out.status, stderr(&out));
    }
    // A full disk is one, though.
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let child = zrfs!["export", &store, "-"].stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.code() == Some(1) && stderr(&out).contains("No space left"), "{}", stderr(&out));
}
