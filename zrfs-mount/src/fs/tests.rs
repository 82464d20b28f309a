//! The file system without a kernel: every operation against what was packed.

use super::list::Entry;
use super::*;
use crate::png::Image;
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use tempfile::TempDir;
use zrfs::dataset::{DATA_STREAM, DenseWriter, PATH_STREAM, RaggedWriter};
use zrfs::format::Codec;
use zrfs::format::dtype::DType;
use zrfs::storage::Disk;
use zrfs::tree::{Meta, TreeBuilder};
use zrfs::{Writer, WriterOptions};

pub(super) fn options() -> FsOptions {
    FsOptions { uid: 7, gid: 8, cache_bytes: 1 << 20, ahead_bytes: 1 << 20, xattrs: true, ..FsOptions::default() }
}

pub(super) fn open(path: &Path) -> Fs {
    open_with(path, options())
}

pub(super) fn open_with(path: &Path, options: FsOptions) -> Fs {
    Fs::new(Source::open(path).unwrap(), options).unwrap()
}

/// Bytes that differ from record to record and don't compress to nothing.
pub(super) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b"abcdefgh"[(x >> 61) as usize]
    };
    (0..length).map(next).collect()
}

pub(super) fn plain_store(path: &Path, codec: Codec, records: &[Vec<u8>]) -> Writer {
    let mut writer = WriterOptions::new(codec).create(path).unwrap();
    let slices: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    writer.append(&slices).unwrap();
    writer.sync().unwrap();
    writer
}

pub(super) fn walk(fs: &Fs, path: &str) -> Result<Attr, Errno> {
    let root = fs.getattr(ROOT)?;
    path.split('/').filter(|p| !p.is_empty()).try_fold(root, |dir, name| fs.lookup(dir.ino, name.as_bytes()))
}

pub(super) fn read_all(fs: &Fs, ino: u64, step: usize) -> Result<Vec<u8>, Errno> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; step]);
    loop {
        let n = fs.read(ino, all.len() as u64, &mut buffer)?;
        if n == 0 {
            return Ok(all);
        }
        all.extend_from_slice(&buffer[..n]);
    }
}

/// A listing in rounds of at most `round` entries; each entry's `next` and attributes by name.
pub(super) fn list(
    fs: &Fs,
    ino: u64,
    mut offset: u64,
    round: usize,
    plus: bool,
) -> Result<Vec<(Vec<u8>, u64, Attr)>, Errno> {
    let mut all = Vec::new();
    loop {
        let before = all.len();
        let mut sink = |e: &Entry<'_>| {
            if all.len() - before == round {
                return true;
            }
            all.push((e.name.to_vec(), e.next, e.attr));
            false
        };
        if plus {
            fs.readdirplus(ino, offset, &mut sink)?
        } else {
            fs.readdir(ino, offset, &mut sink)?
        };
        match all.last() {
            Some((_, next, _)) if all.len() > before => offset = *next,
            _ => return Ok(all),
        }
    }
}

pub(super) fn names(fs: &Fs, path: &str) -> Vec<String> {
    let ino = walk(fs, path).unwrap().ino;
    let listed = list(fs, ino, 0, 1000, false).unwrap();
    listed.into_iter().skip(2).map(|(name, ..)| String::from_utf8(name).unwrap()).collect()
}

#[test]
fn a_store_reads_as_it_was_written() {
    let lengths = [1, 511, 512, 513, 4095, 4096, 4097, 4655, 110_593, 300_001];
    let records: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(i, &n)| bytes(i as u64, n)).collect();
    for codec in [Codec::Raw, Codec::Zstd] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s.zr");
        plain_store(&path, codec, &records);
        let fs = open(&path);
        assert_eq!(names(&fs, ""), ["records", "batches", ".zrfs"]);
        for (i, record) in records.iter().enumerate() {
            let attr = walk(&fs, &format!("records/{i}")).unwrap();
            let got = (attr.kind, attr.size, attr.perm, attr.nlink, attr.uid, attr.gid, attr.ttl);
            assert_eq!(got, (Kind::File, record.len() as u64, 0o444, 1, 7, 8, FOREVER));
            assert_eq!(attr.blocks(), record.len().div_ceil(512) as u64);
            assert_eq!(fs.getattr(attr.ino), Ok(attr));
            for step in [record.len(), record.len() + 1, 4096, 131_072, 1009] {
                if record.len() / step < 500 {
                    assert!(read_all(&fs, attr.ino, step).unwrap() == *record, "record {i} in steps of {step}");
                }
            }
            let mut tail = [0; 100];
            let at = record.len() as u64 - 1;
            assert_eq!(fs.read(attr.ino, at, &mut tail), Ok(1));
            assert_eq!(tail[0], record[record.len() - 1]);
            for beyond in [record.len() as u64, record.len() as u64 + 1, 1 << 40, u64::MAX] {
                assert_eq!(fs.read(attr.ino, beyond, &mut tail), Ok(0));
            }
            assert_eq!(fs.read(attr.ino, 0, &mut []), Ok(0));
        }
        let statfs = fs.statfs().unwrap();
        assert_eq!(statfs.files, 10);
        assert!(statfs.blocks > 0 && fs.lists_all_attributes());
        assert!(fs.cache.used() <= fs.cache.budget());
    }
}

#[test]
fn only_canonical_names_are_files() {
    let dir = TempDir::new().unwrap();
    plain_store(&dir.path().join("s"), Codec::Raw, &vec![vec![1]; 11]);
    let fs = open(&dir.path().join("s"));
    for name in
        ["007", "+5", "-1", "1e3", " 5", "0x5", "５", "18446744073709551615", "18446744073709551616", "11", "", "5.npy"]
    {
        assert_eq!(walk(&fs, "records").and_then(|d| fs.lookup(d.ino, name.as_bytes())), Err(Errno::NOENT), "{name:?}");
    }
    assert_eq!(walk(&fs, "records/0/x"), Err(Errno::NOTDIR));
    assert_eq!(walk(&fs, "npy"), Err(Errno::NOENT));
    let records = walk(&fs, "records").unwrap().ino;
    assert_eq!(fs.lookup(records, &[b'9'; 255]), Err(Errno::NOENT));
    assert_eq!(fs.lookup(records, &[b'9'; 256]), Err(Errno::NAMETOOLONG));
    assert_eq!(fs.lookup(ROOT, &[b'x'; 256]), Err(Errno::NAMETOOLONG));
    for ino in [
        0,
        2,
        u64::MAX,
        Node::Record(0, 11).ino().unwrap(),
        Node::Record(1, 0).ino().unwrap(),
        Node::Tree(0).ino().unwrap(),
    ] {
        assert!(fs.getattr(ino).is_err(), "{ino:#x}");
        assert!(fs.read(ino, 0, &mut [0; 8]).is_err(), "{ino:#x}");
    }
    let mut nothing = |_: &Entry<'_>| true;
    assert_eq!(fs.readdir(Node::Record(0, 1).ino().unwrap(), 0, &mut nothing), Err(Errno::NOTDIR));
    assert_eq!(fs.read(ROOT, 0, &mut [0; 8]), Err(Errno::ISDIR));
    assert_eq!(fs.readlink(ROOT), Err(Errno::INVAL));
}

#[test]
fn listings_go_on_from_any_offset() {
    let dir = TempDir::new().unwrap();
    plain_store(&dir.path().join("s"), Codec::Raw, &(0..700).map(|i| bytes(i, 1 + i as usize % 9)).collect::<Vec<_>>());
    let fs = open(&dir.path().join("s"));
    let records = walk(&fs, "records").unwrap();
    assert_eq!((records.kind, records.nlink, records.ttl), (Kind::Dir, 2, SOON));
    let all = list(&fs, records.ino, 0, usize::MAX, false).unwrap();
    assert_eq!(all.len(), 702);
    assert_eq!((&*all[0].0, all[0].2.ino, &*all[1].0, all[1].2.ino), (&b"."[..], records.ino, &b".."[..], ROOT));
    for (i, (name, ..)) in all[2..].iter().enumerate() {
        assert_eq!(*name, i.to_string().into_bytes());
    }
    for round in [1, 3, 127, 128, 129] {
        assert_eq!(list(&fs, records.ino, 0, round, false).unwrap(), all);
    }
    for at in [0, 1, 2, 130, 699, 701] {
        assert_eq!(list(&fs, records.ino, all[at].1, 50, false).unwrap(), all[at + 1..], "after entry {at}");
    }
    for (name, _, attr) in list(&fs, records.ino, 0, 100, true).unwrap().into_iter().skip(2) {
        assert_eq!(Ok(attr), fs.lookup(records.ino, &name));
    }
    assert_eq!(list(&fs, records.ino, u64::MAX, 10, false).unwrap(), []);
    let root = list(&fs, ROOT, 0, 1, true).unwrap();
    assert_eq!(
        root.iter().map(|(n, ..)| n.as_slice()).collect::<Vec<_>>(),
        [&b"."[..], b"..", b"records", b"batches", b".zrfs"]
    );
    assert_eq!(fs.getattr(ROOT).unwrap().nlink, 5);
}

#[test]
fn typed_records_are_npy_files() {
    let dir = TempDir::new().unwrap();
    let (dense, ragged) = (dir.path().join("d"), dir.path().join("r"));
    let data = bytes(1, 5 * 24);
    let mut writer =
        DenseWriter::create(&dense, WriterOptions::new(Codec::Zstd), DType::parse("<f4").unwrap(), vec![2, 3]).unwrap();
    writer.append(&data).unwrap();
    writer.close().unwrap();
    let mut writer =
        RaggedWriter::create(&ragged, WriterOptions::new(Codec::Raw), DType::parse("|u1").unwrap()).unwrap();
    let items: Vec<Vec<u8>> = (1..400).map(|n| bytes(n, n as usize)).collect();
    for item in &items {
        writer.append(&[(&[1, item.len() as u64], item)]).unwrap();
    }
    writer.close().unwrap();

    let fs = open(&dense);
    assert_eq!(names(&fs, ""), ["records", "npy", "batches", ".zrfs"]);
    assert_eq!(names(&fs, "npy"), ["0.npy", "1.npy", "2.npy", "3.npy", "4.npy"]);
    for name in ["0", "00.npy", "0.npy.npy", ".npy", "5.npy", "0.NPY"] {
        assert_eq!(walk(&fs, &format!("npy/{name}")), Err(Errno::NOENT), "{name}");
    }
    let check = |fs: &Fs, i: usize, record: &[u8], shape: &str| {
        let attr = walk(fs, &format!("npy/{i}.npy")).unwrap();
        let file = read_all(fs, attr.ino, 1 << 20).unwrap();
        assert_eq!(attr.size, file.len() as u64);
        let (header, body) = file.split_at(file.len() - record.len());
        assert!(header.starts_with(b"\x93NUMPY") && header.len() % 64 == 0);
        assert!(String::from_utf8_lossy(header).contains(shape), "{shape}");
        assert_eq!(body, record);
        for step in [7, 127, 128, 129].into_iter().take(if i.is_multiple_of(97) { 4 } else { 0 }) {
            assert_eq!(read_all(fs, attr.ino, step).unwrap(), file);
        }
    };
    for (i, record) in data.chunks(24).enumerate() {
        check(&fs, i, record, "'shape': (2, 3)");
    }
    let fs = open(&ragged);
    for (i, item) in items.iter().enumerate() {
        check(&fs, i, item, &format!("'shape': (1, {})", item.len()));
    }
    let npy = walk(&fs, "npy").unwrap().ino;
    for (name, _, attr) in list(&fs, npy, 0, 100, true).unwrap().into_iter().skip(2) {
        assert_eq!(Ok(attr), fs.lookup(npy, &name));
    }
    let info = walk(&fs, ".zrfs/info.json").unwrap();
    let text = String::from_utf8(read_all(&fs, info.ino, 10).unwrap()).unwrap();
    assert_eq!(info.size, text.len() as u64);
    assert!(text.ends_with("}\n"));
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let want = serde_json::json!({
        "codec": "raw", "dtype": "|u1", "kind": "ragged", "name": "r", "records": 399, "stored_bytes": 399 * 400 / 2,
        "version": env!("CARGO_PKG_VERSION"),
    });
    assert_eq!(value, want);
}

#[test]
fn appended_records_appear() {
    let dir = TempDir::new().unwrap();
    let mut writer = plain_store(&dir.path().join("s"), Codec::Zstd, &[bytes(0, 100)]);
    let fs = open(&dir.path().join("s"));
    let records = walk(&fs, "records").unwrap();
    assert_eq!(walk(&fs, "records/1"), Err(Errno::NOENT));
    writer.append(&[&bytes(1, 200)]).unwrap();
    writer.sync().unwrap();
    std::thread::sleep(Duration::from_millis(REFRESH_MS + 10));
    assert_eq!(walk(&fs, "records/1").unwrap().size, 200);
    assert_eq!(names(&fs, "records"), ["0", "1"]);
    let grown = walk(&fs, "records").unwrap();
    assert_ne!(grown.mtime, records.mtime, "the kernel drops its listing by this");
    assert_eq!(walk(&fs, "records/1").unwrap().mtime, records.mtime, "but keeps the records' pages by that");
}

/// Others rely on a look that is noted, and look no further.
#[test]
fn a_look_for_new_records_is_noted_when_it_is_done() {
    let dir = TempDir::new().unwrap();
    let mut writer = plain_store(&dir.path().join("s"), Codec::Zstd, &[bytes(0, 100)]);
    let fs = open(&dir.path().join("s"));
    writer.append(&[&bytes(1, 200)]).unwrap();
    writer.sync().unwrap();
    std::thread::sleep(Duration::from_millis(REFRESH_MS + 10));
    let refreshed = || fs.states[0].refreshed.load(Ordering::Acquire);
    std::thread::scope(|scope| {
        // It ends with this.
        let held = fs.states[0].grown.lock().unwrap();
        scope.spawn(|| assert!(fs.refresh(0).is_ok()));
        while fs.stream(0).unwrap().len() == 1 {
            std::thread::sleep(Duration::from_micros(100));
        }
        assert_eq!(refreshed(), 0);
        drop(held);
    });
    assert!(refreshed() > REFRESH_MS);
}

#[test]
fn damage_is_an_error_of_its_record_alone() {
    for codec in [Codec::Raw, Codec::Zstd] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s");
        plain_store(&path, codec, &(0..300).map(|i| bytes(i, 1000)).collect::<Vec<_>>());
        // Record 5's table entry points beyond the chunks.
        let mut table = std::fs::OpenOptions::new().write(true).open(path.join("0.loc")).unwrap();
        table.seek(SeekFrom::Start(5 * 16)).unwrap();
        table.write_all(&u32::MAX.to_le_bytes()).unwrap();
        let fs = open(&path);
        assert_eq!(walk(&fs, "records/5"), Err(Errno::IO));
        assert_eq!(fs.read(Node::Record(0, 5).ino().unwrap(), 0, &mut [0; 9]), Err(Errno::IO));
        assert_eq!(read_all(&fs, Node::Record(0, 6).ino().unwrap(), 4096), Ok(bytes(6, 1000)));
        let listed = list(&fs, walk(&fs, "records").unwrap().ino, 0, 64, true).unwrap();
        assert_eq!(listed.len(), 302, "a damaged record is listed, or nobody would see that it is damaged");
        for (name, _, attr) in &listed[2..] {
            let want = if name == b"5" { Duration::ZERO } else { FOREVER };
            assert_eq!(attr.ttl, want);
        }
        let reports = fs.reported.lock().unwrap().len();
        for _ in 0..3 {
            let _ = fs.read(Node::Record(0, 5).ino().unwrap(), 0, &mut [0; 9]);
        }
        assert_eq!(fs.reported.lock().unwrap().len(), reports, "logged once");

        // A chunk cut short under the mount.
        let chunk = std::fs::OpenOptions::new().write(true).open(path.join("0.chunk")).unwrap();
        let before = chunk.metadata().unwrap().len();
        chunk.set_len(before / 2).unwrap();
        assert_eq!(fs.read(Node::Record(0, 299).ino().unwrap(), 0, &mut [0; 2000]), Err(Errno::IO));
        assert_eq!(fs.read(Node::Record(0, 299).ino().unwrap(), 10, &mut [0; 20]), Err(Errno::IO));
        assert_eq!(read_all(&fs, Node::Record(0, 0).ino().unwrap(), 4096), Ok(bytes(0, 1000)));
    }
}

const PIECE: u32 = 5000;

/// A tree of 3 directories, an empty file, files of several pieces, links of both kinds and names that are no text.
fn tree_dataset(path: &Path, codec: Codec) -> BTreeMap<Vec<u8>, Vec<u8>> {
    std::fs::create_dir(path).unwrap();
    let meta = |mode, secs| Meta { mode, mtime: Mtime { secs, nanos: 5 }, uid: 1, gid: 1 };
    let mut tree = TreeBuilder::new(path, meta(0o755, 1), PIECE).unwrap();
    let (mut records, mut paths, mut files) = (Vec::new(), Vec::new(), BTreeMap::new());
    let root = tree.root();
    let sub = tree.dir(root, b"sub", meta(0o750, 2)).unwrap();
    let deep = tree.dir(sub, b"deep", meta(0o700, -3)).unwrap();
    let all: [(&[u8], &[u8], usize); 7] = [
        (b"", b"empty", 0),
        (b"", b"one", 1),
        (b"sub/", b"\xff\xfe", 4999),
        (b"sub/", b"new\nline", 5000),
        (b"sub/deep/", "é".as_bytes(), 5001),
        (b"sub/deep/", "e\u{301}".as_bytes(), 15_000),
        (b"sub/deep/", &[b'n'; 255], 32_768),
    ];
    let mut first = None;
    for (k, (dir, name, length)) in all.into_iter().enumerate() {
        let content = bytes(k as u64, length);
        let parent = [root, sub, deep][dir.iter().filter(|&&b| b == b'/').count()];
        let id = tree.file(parent, name, meta(0o640, 9), records.len() as u64, length as u64).unwrap();
        first = first.or((length > 0).then_some(id));
        for piece in content.chunks(PIECE as usize) {
            records.push(piece.to_vec());
            paths.push([dir, name].concat());
        }
        files.insert([dir, name].concat(), content);
    }
    tree.hardlink(deep, b"hard", first.unwrap()).unwrap();
    files.insert(b"sub/deep/hard".to_vec(), files[&b"one"[..]].clone());
    tree.symlink(root, b"link", meta(0o777, 4), b"sub/../nowhere \xff").unwrap();
    plain_store(&path.join(DATA_STREAM), codec, &records);
    plain_store(&path.join(PATH_STREAM), Codec::Raw, &paths);
    tree.finish(&Disk::default(), &path.join(zrfs::format::TREE_FILE)).unwrap();
    files
}

fn collect(fs: &Fs, ino: u64, path: &[u8], to: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut dirs = 0;
    for (name, _, attr) in list(fs, ino, 0, 2, true).unwrap().into_iter().skip(2) {
        assert_eq!(fs.lookup(ino, &name), Ok(attr));
        let full = [path, &name].concat();
        match attr.kind {
            Kind::Dir => {
                dirs += 1;
                let listed = list(fs, attr.ino, 0, 9, false).unwrap();
                assert_eq!((listed[0].2.ino, listed[1].2.ino), (attr.ino, ino));
                collect(fs, attr.ino, &[&full[..], b"/"].concat(), to);
            }
            Kind::File => {
                for step in [1 << 20, 5000, 4096, 777] {
                    let content = read_all(fs, attr.ino, step).unwrap();
                    assert_eq!(attr.size, content.len() as u64);
                    assert!(to.insert(full.clone(), content.clone()).is_none_or(|old| old == content));
                }
            }
            Kind::Symlink => assert_eq!(fs.readlink(attr.ino).unwrap().len() as u64, attr.size),
        }
    }
    assert_eq!(fs.getattr(ino).unwrap().nlink, 2 + dirs);
}

#[test]
fn a_tree_reads_as_it_was_packed() {
    for codec in [Codec::Raw, Codec::Zstd] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("d.zr");
        let files = tree_dataset(&path, codec);
        let whole = open(&path);
        assert_eq!(names(&whole, ""), ["streams", "samples", "batches", "tree", ".zrfs"]);
        assert_eq!(names(&whole, "streams"), ["data", "path"]);
        assert_eq!(names(&whole, "streams/path"), ["records"]);
        assert_eq!(whole.getattr(ROOT).unwrap().nlink, 7);
        assert_eq!(walk(&whole, "streams").unwrap().nlink, 4);
        assert_eq!(walk(&whole, "streams/path").unwrap().nlink, 3);
        let attr = walk(&whole, "streams/data/records/0").unwrap();
        assert_eq!(read_all(&whole, attr.ino, 4096).unwrap(), files[&b"one"[..]]);

        let part = open_with(&path, FsOptions { root: Some("tree".into()), ..options() });
        for (fs, root) in [(&whole, walk(&whole, "tree").unwrap().ino), (&part, ROOT)] {
            let mut found = BTreeMap::new();
            collect(fs, root, b"", &mut found);
            assert_eq!(found.len(), files.len());
            assert!(found == files);
        }
        assert_eq!(part.getattr(ROOT).unwrap().ino, ROOT);
        let (one, hard) = (walk(&part, "one").unwrap(), walk(&part, "sub/deep/hard").unwrap());
        assert_eq!(one, hard, "hard links are one inode");
        assert_eq!((one.nlink, one.perm, one.mtime), (2, 0o640, Mtime { secs: 9, nanos: 5 }));
        assert_eq!(walk(&part, "sub/deep").unwrap().perm, 0o700);
        let link = walk(&part, "link").unwrap();
        assert_eq!((link.kind, link.size, link.perm), (Kind::Symlink, 16, 0o777));
        assert_eq!(part.readlink(link.ino).unwrap(), b"sub/../nowhere \xff");
        assert_eq!(walk(&part, "one/x"), Err(Errno::NOTDIR));
        assert_eq!(walk(&part, "absent"), Err(Errno::NOENT));
        assert_eq!(fs_umask(&path).perm, 0o600);
        assert!(part.statfs().unwrap().files >= 11);

        let nested = open_with(&path, FsOptions { root: Some("/tree/sub/deep/".into()), ..options() });
        assert_eq!(walk(&nested, "hard").unwrap().size, 1);
        for bad in ["absent", "files", "tree/one", "tree/../tree", ".zrfs/info.json"] {
            let options = FsOptions { root: Some(bad.into()), ..options() };
            let error = Fs::new(Source::open(&path).unwrap(), options).unwrap_err();
            assert!(error.contains(bad), "{error}");
        }
    }
}

fn fs_umask(path: &Path) -> Attr {
    walk(&open_with(path, FsOptions { umask: 0o077, ..options() }), "tree/one").unwrap()
}

#[test]
fn a_tree_over_other_records_is_an_error() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("d.zr");
    tree_dataset(&path, Codec::Zstd);
    std::fs::remove_dir_all(path.join(DATA_STREAM)).unwrap();
    let length = std::fs::File::open(path.join(PATH_STREAM).join("meta.zr")).and_then(|mut f| {
        let mut header = [0; 32];
        f.read_exact(&mut header).map(|()| u64::from_le_bytes(header[14..22].try_into().unwrap()))
    });
    let wrong: Vec<Vec<u8>> = (0..length.unwrap()).map(|i| bytes(i, 6000)).collect();
    plain_store(&path.join(DATA_STREAM), Codec::Zstd, &wrong);
    let fs = open(&path);
    let one = walk(&fs, "tree/one").unwrap();
    assert_eq!(fs.read(one.ino, 0, &mut [0; 4096]), Err(Errno::IO), "never the bytes of another file");
}

fn value(fs: &Fs, path: &str, name: &str) -> Result<String, Errno> {
    let ino = walk(fs, path)?.ino;
    fs.getxattr(ino, name.as_bytes()).map(|v| String::from_utf8(v).unwrap())
}

#[test]
fn attributes_tell_what_the_engine_knows() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let mut writer =
        DenseWriter::create(&path, WriterOptions::new(Codec::Zstd), DType::parse("<f4").unwrap(), vec![2, 3]).unwrap();
    writer.append(&bytes(1, 5 * 24)).unwrap();
    writer.close().unwrap();
    let fs = open(&path);
    for file in ["records/4", "npy/4.npy"] {
        assert_eq!(value(&fs, file, "user.zrfs").unwrap(), "codec dtype index shape stored");
        for (name, want) in [("codec", "zstd"), ("dtype", "<f4"), ("index", "4"), ("shape", "[2,3]")] {
            assert_eq!(value(&fs, file, &format!("user.zrfs.{name}")).unwrap(), want);
        }
        assert!(value(&fs, file, "user.zrfs.stored").unwrap().parse::<u64>().unwrap() > 9);
    }
    for dir in ["", "records", "npy"] {
        assert_eq!(value(&fs, dir, "user.zrfs").unwrap(), "codec dtype kind records shape");
        assert_eq!(value(&fs, dir, "user.zrfs.kind").unwrap(), "dense");
        assert_eq!(value(&fs, dir, "user.zrfs.records").unwrap(), "5");
    }
    for none in ["user.zrfs.", "user.zrfs.records", "user.zrfsindex", "user.zrfs.Index", "user.other"] {
        assert_eq!(value(&fs, "records/0", none), Err(Errno::NODATA), "{none}");
    }
    assert_eq!(value(&fs, ".zrfs/info.json", "user.zrfs.codec"), Err(Errno::NODATA));
    for foreign in ["system.posix_acl_access", "security.capability", "trusted.x", "zrfs"] {
        assert_eq!(value(&fs, "records/0", foreign), Err(Errno::OPNOTSUPP), "{foreign}");
    }
    assert_eq!(fs.getxattr(Node::Record(0, 5).ino().unwrap(), b"user.zrfs.stored"), Err(Errno::NOENT));
    let without = open_with(&path, FsOptions { xattrs: false, ..options() });
    assert_eq!(value(&without, "records/0", "user.zrfs.codec"), Err(Errno::NOSYS));

    let tree = dir.path().join("d.zr");
    tree_dataset(&tree, Codec::Zstd);
    let fs = open(&tree);
    assert_eq!(value(&fs, "tree/one", "user.zrfs").unwrap(), "codec index pieces");
    assert_eq!(value(&fs, "tree/empty", "user.zrfs").unwrap(), "codec pieces");
    assert_eq!(value(&fs, "tree/sub", "user.zrfs"), Ok(String::new()));
    assert_eq!(value(&fs, "", "user.zrfs.kind").unwrap(), "dataset");
    assert_eq!(value(&fs, "streams/data/records/0", "user.zrfs.stream").unwrap(), "data");
}

#[test]
fn records_have_names_by_pattern_and_content() {
    let mut records: Vec<Vec<u8>> = (0..300).map(|i| bytes(i, 40)).collect();
    records[1] = b"\xff\xd8\xff\xe0 a picture".to_vec();
    records[2] = [b"\x89PNG\r\n\x1a\n".as_slice(), &bytes(9, 200_000)].concat();
    records[3] = b"{\"a\": 1}".to_vec();
    records[4] = vec![0; 9];
    for codec in [Codec::Raw, Codec::Zstd] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("s");
        plain_store(&path, codec, &records);
        let auto = open_with(&path, FsOptions { names: Some("auto".parse().unwrap()), ..options() });
        assert_eq!(names(&auto, ""), ["records", "files", "batches", ".zrfs"]);
        let listed = names(&auto, "files");
        let start = ["00000000.txt", "00000001.jpg", "00000002.png", "00000003.json", "00000004.bin", "00000005.txt"];
        assert_eq!((listed.len(), &listed[..6]), (300, &start.map(String::from)[..]));
        let files = walk(&auto, "files").unwrap().ino;
        for plus in [false, true] {
            for (i, (name, _, attr)) in list(&auto, files, 0, 100, plus).unwrap().into_iter().skip(2).enumerate() {
                let found = auto.lookup(files, &name).unwrap();
                assert_eq!(found.ino, attr.ino);
                assert_eq!((found, found.nlink), (walk(&auto, &format!("records/{i}")).unwrap(), 2));
            }
        }
        for wrong in ["00000001.png", "00000001", "1.jpg", "00000001.jpg.jpg", "00000300.txt", "00000001.JPG", "x"] {
            assert_eq!(auto.lookup(files, wrong.as_bytes()), Err(Errno::NOENT), "{wrong}");
        }
        let fixed = FsOptions { names: Some("img-{index:03}.jpg".parse().unwrap()), ..options() };
        let fixed = open_with(&path, FsOptions { root: Some("files".into()), ..fixed });
        assert_eq!(names(&fixed, "")[298..], ["img-298.jpg", "img-299.jpg"]);
        assert_eq!(read_all(&fixed, walk(&fixed, "img-003.jpg").unwrap().ino, 4096).unwrap(), records[3]);
        assert_eq!(walk(&fixed, "img-3.jpg"), Err(Errno::NOENT));
        let plain = open(&path);
        assert_eq!(walk(&plain, "files"), Err(Errno::NOENT));
        assert_eq!(plain.getattr(Node::Files(0).ino().unwrap()), Err(Errno::NOENT));
        assert_eq!(plain.readdir(Node::Files(0).ino().unwrap(), 2, &mut |_| true), Err(Errno::NOENT));
    }
}

#[test]
fn statistics_fit_their_file_whatever_they_are() {
    let dir = TempDir::new().unwrap();
    plain_store(&dir.path().join("s"), Codec::Raw, &[vec![1]]);
    let fs = open(&dir.path().join("s"));
    for op in crate::timing::Op::ALL {
        fs.timings().count(op, Duration::from_nanos(u64::MAX), true);
    }
    fs.counters().read_bytes.add(u64::MAX / 2);
    let attr = walk(&fs, ".zrfs/stats.json").unwrap();
    let text = read_all(&fs, attr.ino, 1 << 20).unwrap();
    assert_eq!(text.len() as u64, attr.size);
    let stats: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(stats["requests"]["listxattr"]["errors"], 1);
    assert!(text[3000..].iter().all(u8::is_ascii_whitespace), "there is room for larger numbers");
}

#[test]
fn pictures_are_png_files() {
    let dir = TempDir::new().unwrap();
    let u1 = DType::parse("|u1").unwrap();
    let dense = dir.path().join("d");
    let pixels = bytes(1, 3 * 20 * 30 * 3);
    let mut writer = DenseWriter::create(&dense, WriterOptions::new(Codec::Zstd), u1.clone(), vec![20, 30, 3]).unwrap();
    writer.append(&pixels).unwrap();
    writer.close().unwrap();
    let fs = open(&dense);
    assert_eq!(names(&fs, ""), ["records", "npy", "png", "batches", ".zrfs"]);
    assert_eq!(names(&fs, "png"), ["0.png", "1.png", "2.png"]);
    for i in 0..3 {
        let attr = walk(&fs, &format!("png/{i}.png")).unwrap();
        let want = Image::of(&u1, &[20, 30, 3]).unwrap().encode(&pixels[i * 1800..][..1800]);
        for step in [1 << 20, 4096, 100] {
            assert_eq!(read_all(&fs, attr.ino, step).unwrap(), want);
        }
        assert_eq!(attr.size, want.len() as u64);
    }
    assert_eq!(walk(&fs, "png/3.png"), Err(Errno::NOENT));
    assert_eq!(walk(&fs, "png/0"), Err(Errno::NOENT));

    // Of a ragged store those records that are pictures.
    let ragged = dir.path().join("r");
    let mut writer = RaggedWriter::create(&ragged, WriterOptions::new(Codec::Raw), u1).unwrap();
    for (shape, n) in [(&[2, 3][..], 6), (&[6], 6), (&[1, 2, 4], 8), (&[1, 2, 5], 10)] {
        writer.append(&[(shape, &bytes(1, n))]).unwrap();
    }
    writer.close().unwrap();
    let fs = open(&ragged);
    assert_eq!(names(&fs, "png"), ["0.png", "2.png"]);
    let png = walk(&fs, "png").unwrap().ino;
    for round in [1, 2, 50] {
        let rounds: Vec<u64> = list(&fs, png, 0, round, true).unwrap().into_iter().map(|(_, next, _)| next).collect();
        assert_eq!(rounds, [1, 2, 3, 5], "offsets are places, those of others included");
    }
    assert_eq!(walk(&fs, "png/1.png"), Err(Errno::NOENT));
    assert_eq!(fs.getattr(Node::Png(0, 3).ino().unwrap()), Err(Errno::NOENT));

    let plain = dir.path().join("p");
    plain_store(&plain, Codec::Raw, &[bytes(1, 9)]);
    assert_eq!(walk(&open(&plain), "png"), Err(Errno::NOENT));
}
