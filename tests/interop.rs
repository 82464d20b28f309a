//! PyPI's loaderx 1.5.2 and zrfs on the same stores, in both directions: each reads what the other wrote, appended to,
//! deleted from and compacted. `interop.py` is the other side.

mod common;
#[path = "common/loaderx.rs"]
mod side;

use common::{ZRFS, noise, ok, scratch};
use serde_json::{Value, json};
use side::served::Loaderx;
use side::{assert_equal, describe, open, python};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use zrfs::dataset::{DenseWriter, RaggedWriter};
use zrfs::format::dtype::DType;
use zrfs::format::{Codec, Kind};
use zrfs::pack::Progress;
use zrfs::{Error, Source, WriterOptions};

thread_local! {
    /// The other side, a process for each test: to start Python costs more than most commands.
    static SIDE: RefCell<Loaderx> =
        RefCell::new(Loaderx::start(Command::new(python()), Path::new(env!("CARGO_MANIFEST_DIR"))));
}

/// Runs a command of `interop.py`; what it found.
#[track_caller]
fn loaderx<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Value {
    let args: Vec<Value> = args.into_iter().map(|arg| arg.as_ref().to_str().unwrap().into()).collect();
    SIDE.with_borrow_mut(|side| side.ask(args))
}

/// Both sides must say the same of a store.
#[track_caller]
fn assert_agreed(path: &Path, theirs: &Value) {
    assert_equal(&describe(&open(path)), theirs, &path.display().to_string());
}

/// Loaderx's own description of the store at `path`.
#[track_caller]
fn read(path: &Path) -> Value {
    loaderx(["read".as_ref(), path.as_os_str()])[path.file_name().unwrap().to_str().unwrap()].take()
}

/// Stores of every codec and several types, written by loaderx; what they hold.
fn written_by_loaderx(dir: &Path) -> Vec<(PathBuf, Value)> {
    let spec = loaderx(["write".as_ref(), dir.as_os_str()]);
    let stores: Vec<_> = spec.as_object().unwrap().iter().map(|(name, s)| (dir.join(name), s.clone())).collect();
    assert_eq!(stores.len(), 24);
    stores
}

fn slices(records: &[Vec<u8>]) -> Vec<&[u8]> {
    records.iter().map(|r| &r[..]).collect()
}

/// Dense and ragged stores of several types and all codecs, written by zrfs.
fn written_by_us(dir: &Path) -> Vec<PathBuf> {
    let mut stores = Vec::new();
    let samples: Vec<u8> = (0..40_000u32).map(|i| (i % 64 + i / 64 % 7) as u8).collect();
    let dict = zrfs::codec::train_dict(&samples, &vec![64; 625], 32 << 10).unwrap();
    for codec in Codec::ALL {
        let options = || WriterOptions::new(codec).dict(dict.clone());
        for (dtype, shape) in [
            ("|u1", vec![64]),
            ("<f4", vec![2, 3]),
            (">f4", vec![5]),
            ("<i8", vec![]),
            (">u2", vec![]),
            ("|b1", vec![4, 1, 2]),
            ("<c16", vec![2]),
            ("<U5", vec![]),
            ("|u1", vec![1 << 20]),
        ] {
            let dtype = DType::parse(dtype).unwrap();
            let path = dir.join(format!("dense-{}-{codec}", stores.len()));
            let bytes = (dtype.itemsize() * shape.iter().product::<u64>()) as usize;
            // Booleans and text of any bytes are no values, so these hold zeros and ones.
            let plain = matches!(dtype.kind(), 'b' | 'U');
            let item = |i: u64| {
                let mut item = noise(i, bytes);
                item.iter_mut().for_each(|b| *b &= if plain { u8::from(dtype.kind() == 'b') } else { 0x3f });
                item
            };
            let mut writer = DenseWriter::create(&path, options(), dtype.clone(), shape).unwrap();
            writer.append(&(0..9).flat_map(item).collect::<Vec<u8>>()).unwrap();
            writer.append(&item(9)).unwrap();
            writer.close().unwrap();
            stores.push(path);
        }
        let path = dir.join(format!("ragged-{codec}"));
        let mut writer = RaggedWriter::create(&path, options(), DType::parse("<i2").unwrap()).unwrap();
        for shape in [vec![3], vec![2, 5], vec![1, 1, 1, 1], vec![300_000], vec![128], vec![65_536]] {
            let bytes = noise(shape[0], 2 * shape.iter().product::<u64>() as usize);
            writer.append(&[(&shape, &bytes)]).unwrap();
        }
        writer.close().unwrap();
        stores.push(path);
    }
    stores
}

/// A dataset packed by the command from a directory with files of many sizes.
fn packed_tree(dir: &Path) -> PathBuf {
    let source = dir.join("source");
    fs::create_dir_all(source.join("sub/deeper")).unwrap();
    for (i, size) in [1, 100, 4096, 131_072, 5 << 20, 9 << 20].into_iter().enumerate() {
        fs::write(source.join(format!("file {i}")), noise(i as u64, size)).unwrap();
        fs::write(source.join(format!("sub/deeper/{i}.txt")), "line\n".repeat(size / 5 + 1)).unwrap();
    }
    fs::write(source.join("empty"), "").unwrap();
    let packed = dir.join("tree.zr");
    ok(Command::new(ZRFS).arg("pack").args([&source, &packed]));
    packed
}

#[test]
fn loaderx_writes_and_zrfs_reads() {
    let dir = scratch();
    for (path, spec) in written_by_loaderx(dir.path()) {
        assert_agreed(&path, &spec);
    }
}

#[test]
fn zrfs_appends_to_loaderx_stores() {
    let dir = scratch();
    let mut appended = 0;
    for (path, spec) in written_by_loaderx(dir.path()) {
        // `both_change_one_ragged_store` is about the others.
        let Some(bytes) = open(&path).schema().unwrap().record_bytes() else { continue };
        let mut writer = WriterOptions::new(Codec::Raw).open(&path).unwrap();
        // Text must stay text: what is there already, backwards.
        let n = spec["records"].as_array().unwrap().len() as u64;
        let again: Vec<Vec<u8>> = (0..n).rev().map(|i| open(&path).store().read(i).unwrap()).collect();
        assert!(again.iter().all(|r| r.len() as u64 == bytes));
        writer.append(&slices(&again)).unwrap();
        writer.close().unwrap();
        let theirs = read(&path);
        assert_eq!(theirs["records"].as_array().unwrap().len() as u64, 2 * n);
        assert_agreed(&path, &theirs);
        appended += 1;
    }
    assert_eq!(appended, 21);
}

#[test]
fn zrfs_writes_and_loaderx_reads() {
    let dir = scratch();
    let stores = written_by_us(dir.path());
    let theirs = loaderx(["read".as_ref()].into_iter().chain(stores.iter().map(|p| p.as_os_str())));
    for path in &stores {
        assert_agreed(path, &theirs[path.file_name().unwrap().to_str().unwrap()]);
    }
    assert_eq!(stores.len(), 30);
}

#[test]
fn loaderx_changes_our_stores() {
    let dir = scratch();
    for path in written_by_us(dir.path()) {
        let text = path.to_str().unwrap();
        let before = describe(&open(&path));
        let deleted = loaderx(["delete", text, "0", "4", "2"]);
        assert_agreed(&path, &deleted);
        // The last record that stays moves into each hole.
        let mut left = before["records"].as_array().unwrap().clone();
        for i in [4, 2, 0] {
            left.swap_remove(i);
        }
        assert_eq!(deleted["records"], json!(left), "{text}");
        let appended = loaderx(["append", text, "5"]);
        assert_eq!(appended["records"].as_array().unwrap().len(), left.len() + 5);
        assert_agreed(&path, &appended);
        assert_agreed(&path, &loaderx(["compact", text]));
        // And once more by us, on what loaderx left.
        if let Some(bytes) = open(&path).schema().unwrap().record_bytes() {
            let mut writer = WriterOptions::new(Codec::Raw).open(&path).unwrap();
            writer.append(&[&vec![0; bytes as usize][..]]).unwrap();
            writer.close().unwrap();
            assert_agreed(&path, &read(&path));
        }
    }
}

/// What `zrfs verify` says of a store that has no damage: records, and of those without a checksum that counts.
#[track_caller]
fn checked(path: &Path) -> (u64, u64) {
    let out = ok(Command::new(ZRFS).args(["verify", "--json"]).arg(path));
    let said: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(said["bad"], 0, "{}", path.display());
    (said["records"].as_u64().unwrap(), said["unchecked"].as_u64().unwrap())
}

#[test]
fn loaderx_changes_checked_stores() {
    let dir = scratch();
    let mut stores = written_by_us(dir.path());
    stores.retain(|path| ["dense-0-raw", "dense-3-raw", "ragged-raw"].iter().any(|name| path.ends_with(name)));
    assert_eq!(stores.len(), 3);
    for path in &stores {
        let text = path.to_str().unwrap();
        let n = read(path)["records"].as_array().unwrap().len() as u64;
        assert_eq!(checked(path), (n, 0), "reading changes nothing");
        loaderx(["append", text, "2"]);
        assert_eq!(checked(path), (n + 2, 2));
        let length = checked_and_agreed(path, &loaderx(["delete", text, "1"]));
        assert_eq!(length, n + 1);
        checked_and_agreed(path, &loaderx(["compact", text]));
        if let Some(bytes) = open(path).schema().unwrap().record_bytes() {
            let before = checked(path).1;
            let mut writer = WriterOptions::new(Codec::Raw).open(path).unwrap();
            writer.append(&[&vec![1; bytes as usize][..]]).unwrap();
            writer.close().unwrap();
            assert_eq!(checked(path), (n + 2, before), "what zrfs appends is covered");
        }
        ok(Command::new(ZRFS).args(["verify", "--rebuild"]).arg(path));
        let length = checked(path).0;
        assert_eq!(checked(path), (length, 0));
        // One deleted, one appended, compacted: where all records have one length, the header is the one that was.
        loaderx(["compact", text]);
        ok(Command::new(ZRFS).args(["verify", "--rebuild"]).arg(path));
        let header = fs::read(path.join("meta.zr")).unwrap();
        loaderx(["delete", text, "0"]);
        loaderx(["append", text, "1"]);
        checked_and_agreed(path, &loaderx(["compact", text]));
        if open(path).schema().unwrap().record_bytes().is_some() {
            assert_eq!(fs::read(path.join("meta.zr")).unwrap(), header);
            assert!(checked(path).1 > 0, "{text}: the record that was replaced passes for the old one");
        }
    }
}

/// Both sides agree on a store that loaderx changed, and zrfs calls nothing damaged; the number of records.
#[track_caller]
fn checked_and_agreed(path: &Path, theirs: &Value) -> u64 {
    assert_agreed(path, theirs);
    checked(path).0
}

#[test]
fn loaderx_goes_on_with_what_we_compacted() {
    let dir = scratch();
    let stores = written_by_us(dir.path());
    let (mut deleted, mut moved) = (Vec::new(), 0);
    for path in &stores {
        // loaderx keeps the shapes of a ragged store in step with what it deletes.
        deleted.push(loaderx(["delete", path.to_str().unwrap(), "0", "4", "2"]));
        let mut writer = WriterOptions::new(Codec::Raw).open(path).unwrap();
        moved += writer.compact(&Progress::default()).unwrap().moved;
    }
    assert!(moved > 100, "{moved} records moved");
    let theirs = loaderx(["read".as_ref()].into_iter().chain(stores.iter().map(|p| p.as_os_str())));
    for (path, deleted) in stores.iter().zip(&deleted) {
        assert_equal(&theirs[path.file_name().unwrap().to_str().unwrap()], deleted, "compacted");
        assert_agreed(path, deleted);
        assert_agreed(path, &loaderx(["append", path.to_str().unwrap(), "5"]));
    }
}

#[test]
fn loaderx_reads_a_store_that_we_emptied_and_compacted() {
    let dir = scratch();
    let path = dir.path().join("empty");
    let mut writer =
        DenseWriter::create(&path, WriterOptions::new(Codec::Zstd), DType::parse("<f4").unwrap(), vec![2]).unwrap();
    writer.append(&[1; 800]).unwrap();
    writer.close().unwrap();
    let mut writer = WriterOptions::new(Codec::Zstd).open(&path).unwrap();
    writer.delete(&(0..100).collect::<Vec<_>>()).unwrap();
    writer.compact(&Progress::default()).unwrap();
    drop(writer);
    assert_eq!(read(&path)["records"], json!([]));
    assert_agreed(&path, &loaderx(["append", path.to_str().unwrap(), "5"]));
}

#[test]
fn dictionaries_of_either_serve_both() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let text = |name: &str| at(name).to_str().unwrap().to_string();
    let item = |i: u64| -> Vec<u8> { (0..64).map(|k| ((i * 31 + k * (i % 5)) % 23) as u8 + b'a').collect() };
    let records: Vec<Vec<u8>> = (0..3000).map(item).collect();
    let mut writer =
        DenseWriter::create(&at("plain"), WriterOptions::new(Codec::Zstd), DType::parse("|u1").unwrap(), vec![64])
            .unwrap();
    writer.append(&records.concat()).unwrap();
    writer.close().unwrap();
    loaderx(["train", &text("plain"), &text("theirs.dict")]);
    ok(Command::new(ZRFS).args(["train-dict", "--tier", "fast", "-o"]).args([at("ours.dict"), at("plain")]));
    for dict in ["theirs.dict", "ours.dict"] {
        // Loaderx makes the store, zrfs installs the dictionary, and both append in turn.
        let store = at(&format!("{dict}.zr"));
        let path = store.to_str().unwrap();
        loaderx(["waiting", path]);
        let error = WriterOptions::new(Codec::ZstdDict).open(&store).unwrap_err().to_string();
        assert!(error.contains("zrfs train-dict SOURCE --install"), "{error}");
        let options = WriterOptions::new(Codec::ZstdDict);
        options.install_dict(&store, &fs::read(at(dict)).unwrap()).unwrap();
        for (from, to) in [(0, 1000), (1000, 2000)] {
            let mut writer = options.clone().open(&store).unwrap();
            writer.append(&slices(&records[from..to])).unwrap();
            writer.close().unwrap();
            assert_agreed(&store, &loaderx(["append", path, "7"]));
        }
        assert_eq!(open(&store).len(), 2014);
        // Loaderx packs with it, and zrfs reads.
        let packed = at(&format!("{dict}.packed"));
        loaderx(["pack-with", &text("plain"), packed.to_str().unwrap(), &text(dict)]);
        assert_agreed(&packed, &read(&at("plain")));
        ok(Command::new(ZRFS).arg("compare").args([&at("plain"), &packed]));
    }
}

#[test]
fn loaderx_reads_packed_arrays() {
    let dir = scratch();
    let arrays = loaderx(["npy".as_ref(), dir.path().as_os_str()]);
    assert_eq!(arrays.as_object().unwrap().len(), 20);
    for (name, spec) in arrays.as_object().unwrap() {
        let packed = dir.path().join(name);
        ok(Command::new(ZRFS).arg("pack").arg(dir.path().join(format!("{name}.npy"))).arg(&packed));
        if name.ends_with("-fortran") {
            // numpy counts the bytes of each record in C order, as zrfs stores them.
            assert_equal(spec, &arrays[name.trim_end_matches("-fortran")], name);
        }
        assert_equal(&read(&packed), spec, name);
        assert_agreed(&packed, spec);
    }
}

#[test]
fn loaderx_reads_packed_idx_files() {
    let dir = scratch();
    // Magic: two zeros, the type (unsigned byte), the number of dimensions; then the dimensions, big-endian.
    let mut images = b"\0\0\x08\x03\0\0\0\x0a\0\0\0\x05\0\0\0\x03".to_vec();
    images.extend(noise(1, 150));
    let mut labels = b"\0\0\x08\x01\0\0\0\x0a".to_vec();
    labels.extend(0..10);
    let (image_file, label_file) = (dir.path().join("images-idx3-ubyte"), dir.path().join("labels-idx1-ubyte"));
    fs::write(&image_file, &images).unwrap();
    fs::write(&label_file, &labels).unwrap();
    let packed = dir.path().join("train.zr");
    let named = |name: &str, path: &Path| format!("{name}={}", path.display());
    ok(Command::new(ZRFS)
        .args(["pack", "--stream", &named("image", &image_file), "--stream", &named("label", &label_file)])
        .arg(&packed));
    let theirs = loaderx(["streams".as_ref(), packed.as_os_str()]);
    let want = |data: &[u8], item: usize, shape: Value| {
        let records: Vec<Value> = data.chunks(item).map(|r| json!([shape, item, crc32fast::hash(r)])).collect();
        json!({ "kind": "dense", "dtype": "|u1", "records": records })
    };
    let want = json!({ "image": want(&images[16..], 15, json!([5, 3])), "label": want(&labels[8..], 1, json!([])) });
    assert_eq!(theirs, want);
    let left = loaderx(["delete-samples", packed.to_str().unwrap(), "9", "0"]);
    let Source::Dataset(dataset) = Source::open(&packed).unwrap() else { panic!("not a dataset") };
    assert_eq!(dataset.len(), 8);
    for (name, stream) in dataset.streams() {
        assert_eq!(describe(stream), left[name], "{name}");
    }
}

#[test]
fn loaderx_reads_packed_trees() {
    let dir = scratch();
    let packed = packed_tree(dir.path());
    let theirs = loaderx(["streams".as_ref(), packed.as_os_str()]);
    let Source::Dataset(dataset) = Source::open(&packed).unwrap() else { panic!("not a dataset") };
    assert_eq!(theirs.as_object().unwrap().len(), 2);
    for (name, stream) in dataset.streams() {
        assert_eq!(describe(stream), theirs[name], "{name}");
    }
    // The first record is the first file, and its path is beside it.
    assert_eq!(dataset.stream("path").unwrap().store().read(0).unwrap(), b"file 0");
    assert_eq!(theirs["data"]["records"][0], json!([[1], 1, crc32fast::hash(&noise(0, 1))]));
}

#[test]
fn a_tree_that_loaderx_deleted_from_is_noticed() {
    let dir = scratch();
    let packed = packed_tree(dir.path());
    loaderx(["delete-samples", packed.to_str().unwrap(), "1"]);
    let error = Source::open(&packed).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("tree.zr") && error.to_string().contains("records"), "{error}");
}

#[test]
fn a_tree_whose_records_were_exchanged_is_noticed() {
    let dir = scratch();
    let packed = packed_tree(dir.path());
    // As many records as before, but not the same.
    for stream in ["data", "path"] {
        let mut writer = RaggedWriter::open(&packed.join(stream), WriterOptions::new(Codec::Zstd)).unwrap();
        writer.delete(&[1]).unwrap();
        writer.append(&[(&[1], b"x")]).unwrap();
        writer.close().unwrap();
    }
    let error = Source::open(&packed).unwrap_err().to_string();
    assert!(error.contains("tree.zr") && error.contains("changed since"), "{error}");
}

/// Appends records of `shapes` to a ragged store.
fn append_ragged(writer: &mut RaggedWriter, shapes: &[Vec<u64>]) {
    let itemsize = writer.schema().dtype.itemsize();
    let bytes: Vec<Vec<u8>> =
        shapes.iter().map(|s| noise(s[0], (s.iter().product::<u64>() * itemsize) as usize)).collect();
    let records: Vec<(&[u64], &[u8])> = shapes.iter().zip(&bytes).map(|(s, b)| (&s[..], &b[..])).collect();
    writer.append(&records).unwrap();
}

#[test]
fn both_change_one_ragged_store() {
    let dir = scratch();
    let options = || WriterOptions::new(Codec::Zstd);
    let theirs = written_by_loaderx(dir.path()).into_iter().map(|(path, _)| path).filter(|path| {
        let schema = open(path).schema().unwrap().clone();
        schema.kind == Kind::Ragged
    });
    let ours = written_by_us(&{
        let ours = dir.path().join("ours");
        fs::create_dir(&ours).unwrap();
        ours
    });
    let ours = ours.into_iter().filter(|path| open(path).schema().unwrap().kind == Kind::Ragged);
    let mut stores = 0;
    for path in theirs.chain(ours) {
        let text = path.to_str().unwrap();
        for round in 0..3u64 {
            let shapes: Vec<Vec<u64>> =
                (1..9).map(|k| vec![k, round + 1]).chain([vec![70_000], vec![1, 1, 1]]).collect();
            let mut writer = RaggedWriter::open(&path, options()).unwrap();
            append_ragged(&mut writer, &shapes);
            writer.close().unwrap();
            let theirs = read(&path);
            assert_agreed(&path, &theirs);

            let appended = loaderx(["append", text, "3"]);
            assert_agreed(&path, &appended);

            let len = open(&path).len();
            let mut left = appended["records"].as_array().unwrap().clone();
            let doomed = [0, 4, len - 1, len / 2];
            let mut writer = RaggedWriter::open(&path, options()).unwrap();
            writer.delete(&doomed).unwrap();
            append_ragged(&mut writer, &[vec![5, 1]]);
            writer.close().unwrap();
            let mut falling = doomed.to_vec();
            falling.sort_unstable_by(|a, b| b.cmp(a));
            falling.iter().for_each(|&i| drop(left.swap_remove(i as usize)));
            let theirs = read(&path);
            assert_eq!(theirs["records"].as_array().unwrap()[..left.len()], left[..], "{text}: {doomed:?}");
            assert_agreed(&path, &theirs);

            assert_agreed(&path, &loaderx(["delete", text, "1", "3"]));
        }
        stores += 1;
    }
    assert_eq!(stores, 6);
}
