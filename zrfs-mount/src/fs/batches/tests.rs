//! Batches by path without a kernel: names, numbers and what is there. That their bytes are the engine's is for
//! `equality_tests.rs` to show, with random ones.

use super::BRIEFLY;
use super::table::MAX_DRAWS;
use crate::ahead::device::PageCache;
use crate::ahead::start;
use crate::errno::Errno;
use crate::fs::equality_tests::random::{native, numbers};
use crate::fs::list::Entry;
use crate::fs::tests::{bytes, list, names, open, open_with, options, plain_store, read_all, walk};
use crate::fs::{Attr, FOREVER, Fs, FsOptions, Kind, REFRESH_MS};
use crate::namespace::{Batch, Node, Part, ROOT};
use std::collections::{HashMap, HashSet};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use zrfs::WriterOptions;
use zrfs::dataset::{DenseWriter, RaggedWriter};
use zrfs::format::Codec;
use zrfs::format::dtype::DType;
use zrfs::sampler::Sampler;
use zrfs::{Source, Stream};

fn dtype(text: &str) -> DType {
    DType::parse(text).unwrap()
}

fn dense(path: &Path, codec: Codec, count: usize) {
    let options = WriterOptions::new(codec);
    let mut writer = DenseWriter::create(path, options, dtype("<f4"), vec![5, 3]).unwrap();
    writer.append(&bytes(1, count * 60)).unwrap();
    writer.close().unwrap();
}

/// Records of other shapes each; of `mixed` ones the number of dimensions differs, too.
fn ragged(path: &Path, codec: Codec, count: u64, mixed: bool) {
    let mut writer = RaggedWriter::create(path, WriterOptions::new(codec), dtype("<i2")).unwrap();
    for k in 0..count {
        let shape: &[u64] = if mixed && k % 3 == 0 { &[k % 7 + 1] } else { &[k % 5 + 1, 3 + k % 11] };
        let data = bytes(k, 2 * shape.iter().product::<u64>() as usize);
        writer.append(&[(shape, &data)]).unwrap();
    }
    writer.close().unwrap();
}

/// The files that a batch of these indices has, by the ends of their names.
fn files(stream: &Stream, indices: &[u64]) -> HashMap<&'static str, Vec<u8>> {
    let files = native("", stream, indices).files().into_iter();
    files.chain([(".indices.npy", numbers(&[indices.len() as u64], indices))]).collect()
}

/// Compares a file, whole, in pieces of several sizes, and from somewhere on.
#[track_caller]
fn check(fs: &Fs, path: &str, want: &[u8]) {
    let attr = walk(fs, path).unwrap_or_else(|e| panic!("{path}: {e}"));
    assert_eq!((attr.kind, attr.size, attr.ttl), (Kind::File, want.len() as u64, BRIEFLY), "{path}");
    assert_eq!(fs.getattr(attr.ino), Ok(Attr { ttl: FOREVER, ..attr }));
    for step in [want.len() + 1, 64, 100, 1000] {
        assert!(read_all(fs, attr.ino, step).unwrap() == want, "{path} in steps of {step}");
    }
    let mut middle = vec![0; 77];
    for at in (0..want.len()).step_by(want.len() / 5 + 1) {
        let n = fs.read(attr.ino, at as u64, &mut middle).unwrap();
        assert_eq!(middle[..n], want[at..want.len().min(at + 77)], "{path} from {at}");
    }
    for beyond in [want.len() as u64, u64::MAX] {
        assert_eq!(fs.read(attr.ino, beyond, &mut middle), Ok(0));
    }
    assert!(fs.cache.used() <= fs.cache.budget());
}

#[test]
fn what_is_no_batch() {
    let dir = TempDir::new().unwrap();
    dense(&dir.path().join("s"), Codec::Raw, 38);
    let fs = open(&dir.path().join("s"));
    let absent = [
        "batches/cyclic",
        "batches/cyclic,batch=0",
        "batches/cyclic,batch=4,seed=1,seed=2",
        "batches/cyclic,batch=4,rank=3,world=3",
        "batches/cyclic,batch=4,length=0",
        "batches/cyclic,batch=4,length=39",
        "batches/cyclic,batch=4,length=18446744073709551615",
        "batches/cyclic,batch=4,length=9,length=9",
        "batches/cyclic,batch=4,length=09",
        "batches/cyclic,batch=4,length=x",
        "batches/cyclic,batch=4,length",
        "batches/cyclic,length=9",
        "batches/length=9,cyclic,batch=4",
        "batches/cyclic,batch=4,start=0",
        "batches/iid,batch=4,tail=keep",
        "batches/.hidden",
        "batches/\u{e9}",
        "batches/cyclic,batch=4/7",
        "batches/cyclic,batch=4/007.npy",
        "batches/cyclic,batch=4/-1.npy",
        "batches/cyclic,batch=4/7.npy.npy",
        "batches/cyclic,batch=4/7.offsets.npy",
        "batches/cyclic,batch=4/7.shapes.npy",
        "batches/cyclic,batch=4/18446744073709551616.npy",
        "batches/iid,batch=268435457/0.npy",
        "batches/iid,batch=2/134217728.npy",
        "batches/at/38.npy",
        "batches/at/0-38.npy",
        "batches/at/5",
        "batches/at/.npy",
        "batches/at/5,.npy",
        "batches/at/9-5.npy",
        "batches/at/-1.npy",
        "batches/at/05.npy",
        "batches/at/5.offsets.npy",
        "samples",
    ];
    for path in absent {
        assert_eq!(walk(&fs, path), Err(Errno::NOENT), "{path}");
    }
    let batches = walk(&fs, "batches").unwrap().ino;
    assert_eq!(fs.lookup(batches, b"\xff"), Err(Errno::NOENT));
    assert_eq!(fs.lookup(batches, &[b'1'; 256]), Err(Errno::NAMETOOLONG));
    assert_eq!(walk(&fs, "batches/cyclic,batch=4/7.npy/x"), Err(Errno::NOTDIR));
    assert_eq!(walk(&fs, "batches/at/7.indices.npy/x"), Err(Errno::NOTDIR));
    for there in [
        "batches/cyclic,batch=4/18446744073709551615.npy",
        "batches/cyclic,batch=18446744073709551615,tail=keep/0.npy",
        "batches/iid,batch=2/134217727.npy",
        "batches/iid,batch=268435456/0.npy",
        "batches/cyclic,batch=4,length=38/7.npy",
        "batches/cyclic,length=1,batch=4/7.npy",
    ] {
        assert!(walk(&fs, there).is_ok(), "{there}");
    }
    assert_eq!(MAX_DRAWS, 1 << 28);
    let huge = "batches/iid_counter,batch=18446744073709551615/0";
    assert_eq!(walk(&fs, &format!("{huge}.npy")), Err(Errno::FBIG));
    assert_eq!(walk(&fs, &format!("{huge}.indices.npy")), Err(Errno::FBIG));
    // Numbers that nothing was given, and directories where files are asked for.
    let batch = Batch { id: 1 << 20, step: 0 };
    for node in [Node::Spec(1 << 20), Node::BatchIndices(batch), Node::BatchFile(0, batch, Part::Values)] {
        assert_eq!(fs.getattr(node.ino().unwrap()), Err(Errno::STALE));
        assert!(fs.read(node.ino().unwrap(), 0, &mut [0; 8]).is_err());
    }
    for node in [Node::BatchDir(batch), Node::Samples, Node::Sample(0), Node::BatchFile(1, batch, Part::Values)] {
        assert!(fs.getattr(node.ino().unwrap()).is_err());
    }
    for dir in ["batches", "batches/at", "batches/cyclic,batch=4"] {
        assert_eq!(fs.read(walk(&fs, dir).unwrap().ino, 0, &mut [0; 8]), Err(Errno::ISDIR));
    }

    let empty = dir.path().join("empty");
    plain_store(&empty, Codec::Raw, &[]);
    let fs = open(&empty);
    assert_eq!(walk(&fs, "batches/cyclic,batch=4"), Err(Errno::NOENT));
    assert_eq!((names(&fs, "batches"), names(&fs, "batches/at")), (vec!["at".into()], vec![]));
}

/// Whatever is asked for, there is a file or an error.
#[test]
fn any_name_at_all() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("d");
    dataset(&path);
    let words = [
        "cyclic",
        "iid",
        "sequential",
        "batch=",
        "seed=",
        "rank=1",
        "world=2",
        "tail=keep",
        "tail=wrap",
        ",length=",
        ",",
        ",",
        "-",
        "=",
        "0",
        "1",
        "7",
        "37",
        "18446744073709551615",
        "9223372036854775807",
        ".npy",
        ".offsets",
        ".shapes.npy",
        ".indices.npy",
        "x",
        "y.offsets",
        "at",
        "\u{e9}",
    ];
    let mut state = 1u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for path in [path.clone(), path.join("y")] {
        let fs = open_with(&path, FsOptions { cache_bytes: 10_000, ..options() });
        let dirs =
            ["batches", "batches/at", "batches/cyclic,batch=3", "batches/iid,batch=9", "batches/at/1,2", "samples"];
        let dirs: Vec<u64> = dirs.iter().filter_map(|dir| walk(&fs, dir).ok()).map(|attr| attr.ino).collect();
        let mut found = 0;
        for _ in 0..20_000 {
            let name: String = (0..1 + next(7)).map(|_| words[next(words.len())]).collect();
            let mut dir = dirs[next(dirs.len())];
            if let Ok(attr) = fs.lookup(dir, name.as_bytes()) {
                found += 1;
                let _ = fs.read(attr.ino, next(3000) as u64, &mut [0; 500]);
                let _ = list(&fs, attr.ino, next(9) as u64, 3, true).map(|all| all.len() < 1000);
                dir = attr.ino;
            }
            let _ = fs.lookup(dir, words[next(words.len())].as_bytes());
        }
        assert!(found > 30, "{found}");
        assert!(fs.cache.used() <= fs.cache.budget());
    }
}

#[test]
fn only_batches_and_samples_as_they_are_can_be_the_root() {
    let dir = TempDir::new().unwrap();
    dense(&dir.path().join("s"), Codec::Raw, 38);
    let with_root = |root: &str| {
        Fs::new(Source::open(dir.path().join("s")).unwrap(), FsOptions { root: Some(root.into()), ..options() })
    };
    let fs = with_root("batches").unwrap();
    assert_eq!(names(&fs, ""), ["at"]);
    assert_eq!(walk(&fs, "at/1,2.npy").unwrap().size, 128 + 120);
    assert_eq!(names(&with_root("batches/at").unwrap(), ""), [""; 0]);
    let error = with_root("batches/cyclic,batch=4").unwrap_err();
    assert!(error.contains("can't be the root"), "{error}");
    assert!(with_root("batches/at/5.npy").is_err());
}

#[test]
fn listings_show_one_cycle() {
    let dir = TempDir::new().unwrap();
    let (one, other) = (dir.path().join("dense"), dir.path().join("ragged"));
    dense(&one, Codec::Raw, 38);
    ragged(&other, Codec::Raw, 38, true);
    let fs = open(&one);
    let steps = |spec: &str| {
        let names = names(&fs, &format!("batches/{spec}"));
        let values = |name: &&String| !name.ends_with(".indices.npy");
        assert_eq!(names.iter().filter(values).count() * 2, names.len());
        names.len() / 2
    };
    for (spec, count) in [
        ("cyclic,batch=7", 5),
        ("cyclic,batch=7,tail=keep", 6),
        ("cyclic,batch=7,tail=wrap", 6),
        ("sequential,batch=19", 2),
        ("iid,batch=7", 6),
        ("iid_counter,batch=100", 1),
        ("cyclic,batch=100", 1),
        ("iid,batch=268435457", 0),
    ] {
        assert_eq!(steps(spec), count, "{spec}");
    }
    let fs = open(&other);
    let spec = walk(&fs, "batches/cyclic,batch=7").unwrap();
    assert_eq!((spec.kind, spec.nlink), (Kind::Dir, 2));
    let all = list(&fs, spec.ino, 0, usize::MAX, true).unwrap();
    let found: Vec<&[u8]> = all.iter().map(|(name, ..)| name.as_slice()).collect();
    let first: [&[u8]; 6] = [b".", b"..", b"0.npy", b"0.offsets.npy", b"0.shapes.npy", b"0.indices.npy"];
    assert_eq!((found.len(), &found[..6]), (2 + 5 * 4, &first[..]));
    assert_eq!(all[1].2.ino, walk(&fs, "batches").unwrap().ino);
    for round in [1, 3, 7] {
        assert_eq!(list(&fs, spec.ino, 0, round, true).unwrap(), all);
    }
    for (name, next, attr) in &all[2..] {
        assert_eq!(fs.lookup(spec.ino, name), Ok(*attr));
        assert_eq!(list(&fs, spec.ino, *next, 100, true).unwrap(), all[*next as usize..]);
    }
    let plain = list(&fs, spec.ino, 0, usize::MAX, false).unwrap();
    assert!(plain.iter().zip(&all).all(|(a, b)| (&a.0, a.1, a.2.ino) == (&b.0, b.1, b.2.ino)));
    assert_eq!(list(&fs, spec.ino, u64::MAX, 10, false).unwrap(), []);
    assert_eq!(walk(&fs, "batches").unwrap().nlink, 3);
}

#[test]
fn a_million_steps_are_listed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let options = WriterOptions::new(Codec::Raw);
    let mut writer = DenseWriter::create(&path, options, dtype("|u1"), vec![]).unwrap();
    writer.append(&vec![7; 1_000_000]).unwrap();
    writer.close().unwrap();
    let fs = open(&path);
    let spec = walk(&fs, "batches/cyclic,batch=1").unwrap().ino;
    let (mut count, mut inodes, mut offset) = (0, HashSet::new(), 0);
    loop {
        let (before, from) = (count, offset);
        let mut sink = |e: &Entry<'_>| {
            if count - before == 1000 {
                return true;
            }
            assert!(inodes.insert(e.attr.ino));
            (count, offset) = (count + 1, e.next);
            false
        };
        fs.readdir(spec, from, &mut sink).unwrap();
        if count == before {
            break;
        }
    }
    assert_eq!(count, 2 + 2_000_000);
    // Far apart in one directory.
    for step in [0, 4095, 4096, 999_999] {
        assert!(inodes.contains(&fs.lookup(spec, format!("{step}.npy").as_bytes()).unwrap().ino));
    }
}

fn dataset(path: &Path) {
    std::fs::create_dir(path).unwrap();
    dense(&path.join("x"), Codec::Zstd, 38);
    ragged(&path.join("y"), Codec::Raw, 38, false);
    plain_store(&path.join("z"), Codec::Zstd, &(0..38).map(|k| bytes(k, 9 + k as usize)).collect::<Vec<_>>());
    // Called as parts of others would be.
    dense(&path.join("y.offsets"), Codec::Raw, 38);
    dense(&path.join("x.npy"), Codec::Raw, 38);
}

#[test]
fn the_streams_of_a_dataset_are_aligned() {
    let dir = TempDir::new().unwrap();
    dataset(&dir.path().join("d"));
    let fs = open(&dir.path().join("d"));
    let Source::Dataset(streams) = fs.source() else { panic!("no dataset") };
    let (spec, step) = ("cyclic,batch=6,seed=4", 9);
    let mut sampler = Sampler::new(spec.parse().unwrap(), 38).unwrap();
    let mut indices = vec![0; 6];
    sampler.batch_at(step, &mut indices).unwrap();
    let text: Vec<String> = indices.iter().map(u64::to_string).collect();
    for at in [format!("batches/{spec}/{step}"), format!("batches/at/{}", text.join(","))] {
        for (name, stream) in streams.streams() {
            for (end, want) in files(stream, &indices) {
                match end {
                    ".indices.npy" => check(&fs, &format!("{at}{end}"), &want),
                    ".offsets.npy" if name == "y" => {}
                    _ => check(&fs, &format!("{at}/{name}{end}"), &want),
                }
            }
        }
        let found = names(&fs, &at);
        let want = ["x.npy", "x.npy.npy", "y.npy", "y.shapes.npy", "y.offsets.npy", "z.npy", "z.offsets.npy"];
        assert_eq!(found, want);
        let dir = walk(&fs, &at).unwrap();
        for name in &found {
            assert!(fs.lookup(dir.ino, name.as_bytes()).is_ok());
        }
        let listed = list(&fs, dir.ino, 0, 2, true).unwrap();
        assert_eq!(listed.len(), 2 + found.len());
        let parent = walk(&fs, at.rsplit_once('/').unwrap().0).unwrap();
        assert_eq!(listed[1].2.ino, parent.ino);
        for absent in ["x", "x.offsets.npy", "z.shapes.npy", "q.npy", ".npy", "x.indices.npy"] {
            assert_eq!(fs.lookup(dir.ino, absent.as_bytes()), Err(Errno::NOENT), "{absent}");
        }
    }
    let listed = names(&fs, &format!("batches/{spec}"));
    assert_eq!(listed[..4], ["0", "0.indices.npy", "1", "1.indices.npy"]);
    let attr = walk(&fs, &format!("batches/{spec}")).unwrap();
    assert_eq!((listed.len(), attr.nlink), (12, 2 + 6));
    assert_eq!(walk(&fs, &format!("batches/{spec}/7.npy")), Err(Errno::NOENT));
    assert_eq!(fs.getxattr(attr.ino, b"user.zrfs.records"), Ok(b"38".to_vec()));
    let file = walk(&fs, &format!("batches/{spec}/7/y.npy")).unwrap().ino;
    assert_eq!(fs.getxattr(file, b"user.zrfs"), Ok(b"codec dtype kind records stream".to_vec()));
    assert_eq!(fs.getxattr(file, b"user.zrfs.records"), Ok(b"6".to_vec()));
}

#[test]
fn samples_have_a_record_of_each_stream() {
    let dir = TempDir::new().unwrap();
    dataset(&dir.path().join("d"));
    let fs = open(&dir.path().join("d"));
    assert_eq!(names(&fs, "samples"), (0..38).map(|i| i.to_string()).collect::<Vec<_>>());
    let samples = walk(&fs, "samples").unwrap();
    assert_eq!((samples.nlink, walk(&fs, "samples/17").unwrap().nlink), (40, 2));
    let want = ["x", "x.npy", "x.npy.npy", "y", "y.npy", "y.offsets", "y.offsets.npy", "z"];
    assert_eq!(names(&fs, "samples/17"), want);
    for (name, other) in [
        ("x", "x/records/17"),
        ("x.npy", "x.npy/records/17"),
        ("x.npy.npy", "x.npy/npy/17.npy"),
        ("y.npy", "y/npy/17.npy"),
        ("z", "z/records/17"),
    ] {
        let (a, b) = (walk(&fs, &format!("samples/17/{name}")), walk(&fs, &format!("streams/{other}")));
        assert!(a == b && a.unwrap().nlink == 2, "{name}: one file with two names");
    }
    for absent in ["samples/38", "samples/017", "samples/17/q", "samples/17/z.npy", "samples/17/x.offsets.npy"] {
        assert_eq!(walk(&fs, absent), Err(Errno::NOENT), "{absent}");
    }
    assert_eq!(walk(&fs, "samples/17/x/y"), Err(Errno::NOTDIR));
    let listed = list(&fs, walk(&fs, "samples/17").unwrap().ino, 0, 3, true).unwrap();
    assert_eq!(listed[1].2.ino, samples.ino);
    assert_eq!(list(&fs, samples.ino, 0, 1, true).unwrap()[1].2.ino, ROOT);
}

#[test]
fn a_spec_stays_with_the_records_that_there_were() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let mut writer = plain_store(&path, Codec::Raw, &vec![vec![1]; 20]);
    let fs = open(&path);
    let (old, new) = ("batches/cyclic,batch=4,seed=1", "batches/cyclic,seed=1,batch=4");
    let before = walk(&fs, &format!("{old}/3.indices.npy")).unwrap().ino;
    let before = read_all(&fs, before, 4096).unwrap();
    writer.append(&vec![&[2u8][..]; 20]).unwrap();
    writer.sync().unwrap();
    std::thread::sleep(Duration::from_millis(REFRESH_MS + 10));
    assert_eq!(walk(&fs, "batches/at/39,0.npy").unwrap().size, 130);
    let read = |spec: &str| read_all(&fs, walk(&fs, &format!("{spec}/3.indices.npy")).unwrap().ino, 4096).unwrap();
    assert_eq!(read(old), before);
    assert_ne!(read(new), before, "another spelling is another directory");
    let records = [old, new].map(|spec| fs.getxattr(walk(&fs, spec).unwrap().ino, b"user.zrfs.records").unwrap());
    assert_eq!(records, [b"20", b"40"]);
}

/// Whenever it is looked up, and in whichever mount.
#[test]
fn a_length_means_the_same_batches_for_ever() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let mut writer = plain_store(&path, Codec::Raw, &vec![vec![1]; 20]);
    let fs = open(&path);
    let read = |fs: &Fs, spec: &str| {
        let attr = walk(fs, &format!("batches/{spec}/3.indices.npy"))?;
        Ok((attr.ino, read_all(fs, attr.ino, 4096).unwrap()))
    };
    let (bare, fixed) = ("cyclic,batch=4,seed=1", "cyclic,batch=4,length=20,seed=1");
    let mut drawn = vec![0; 4];
    Sampler::new(bare.parse().unwrap(), 20).unwrap().batch_at(3, &mut drawn).unwrap();
    let want = numbers(&[4], &drawn);
    let number = read(&fs, fixed).unwrap().0;
    for spec in [bare, fixed] {
        assert_eq!(read(&fs, spec).unwrap().1, want, "{spec}");
    }
    let later = "cyclic,batch=4,length=40,seed=1";
    assert_eq!(read(&fs, later), Err(Errno::NOENT));
    writer.append(&vec![&[2u8][..]; 20]).unwrap();
    writer.sync().unwrap();
    std::thread::sleep(Duration::from_millis(REFRESH_MS + 10));
    assert!(read(&fs, later).is_ok(), "they are looked for");
    for seed in 0..2000 {
        walk(&fs, &format!("batches/sequential,batch=4,seed={seed}")).unwrap();
    }
    assert_ne!(read(&fs, fixed).unwrap().0, number, "it was forgotten");
    for fs in [&fs, &open(&path)] {
        assert_eq!(read(fs, fixed).unwrap().1, want);
        assert_ne!(read(fs, bare).unwrap().1, want, "begins anew");
        let dir = walk(fs, &format!("batches/{fixed}")).unwrap();
        assert_eq!(fs.getxattr(dir.ino, b"user.zrfs.records"), Ok(b"20".to_vec()));
        assert_eq!(names(fs, &format!("batches/{fixed}")).len(), 3 * 5, "its own cycle is listed");
    }
}

#[test]
fn what_was_forgotten_is_found_again() {
    let dir = TempDir::new().unwrap();
    dense(&dir.path().join("s"), Codec::Raw, 38);
    let fs = open(&dir.path().join("s"));
    let (list, spec) = ("batches/at/1,2.npy", "batches/cyclic,batch=3/0.npy");
    let (of_list, of_spec) = (walk(&fs, list).unwrap(), walk(&fs, spec).unwrap());
    for k in 0..5000 {
        walk(&fs, &format!("batches/at/{}-{},{}.npy", k % 19, 19 + k / 19 % 19, k / 361 % 38)).unwrap();
        walk(&fs, &format!("batches/cyclic,batch=4,seed={k}/0.npy")).unwrap();
    }
    for (attr, path) in [(of_list, list), (of_spec, spec)] {
        assert_eq!(fs.getattr(attr.ino), Err(Errno::STALE), "{path}");
        assert_eq!(fs.read(attr.ino, 0, &mut [0; 9]), Err(Errno::STALE));
        let again = walk(&fs, path).unwrap();
        assert!(again.ino != attr.ino && again.size == attr.size, "{path} has a number of its own");
    }
}

/// Breaks the table entry of a record.
fn damage(path: &Path, index: u64) {
    let mut table = std::fs::OpenOptions::new().write(true).open(path.join("0.loc")).unwrap();
    table.seek(SeekFrom::Start(index * 16)).unwrap();
    table.write_all(&u32::MAX.to_le_bytes()).unwrap();
}

#[test]
fn a_damaged_record_is_an_error_of_its_batches() {
    for cache_bytes in [1 << 20, 0] {
        let dir = TempDir::new().unwrap();
        let (one, other) = (dir.path().join("dense"), dir.path().join("ragged"));
        dense(&one, Codec::Zstd, 38);
        ragged(&other, Codec::Zstd, 38, false);
        damage(&one, 20);
        damage(&other, 20);
        let fs = open_with(&one, FsOptions { cache_bytes, ..options() });
        let bad = walk(&fs, "batches/sequential,batch=10/2.npy").unwrap();
        assert_eq!(bad.size, 128 + 600, "known without a look at the records");
        for (offset, length) in [(0, 1000), (0, 300), (128, 60), (130, 50)] {
            assert_eq!(fs.read(bad.ino, offset, &mut vec![0; length]), Err(Errno::IO), "{offset} {length}");
        }
        // It is the first of the batch. What is gathered in ranges has the others.
        let others = fs.read(bad.ino, 128 + 60, &mut [0; 300]);
        assert_eq!(others, if cache_bytes == 0 { Ok(300) } else { Err(Errno::IO) });
        for step in [0, 1, 3] {
            let good = walk(&fs, &format!("batches/sequential,batch=10/{step}.npy")).unwrap();
            assert_eq!(read_all(&fs, good.ino, 300).unwrap().len() as u64, good.size);
        }
        let fs = open_with(&other, FsOptions { cache_bytes, ..options() });
        for file in ["2.npy", "2.offsets.npy"] {
            let result = walk(&fs, &format!("batches/sequential,batch=10/{file}"));
            let result = result.and_then(|attr| read_all(&fs, attr.ino, 100));
            assert_eq!(result, Err(Errno::IO), "{file}: its size is not known");
        }
        assert_eq!(walk(&fs, "batches/sequential,batch=10/2.indices.npy").unwrap().size, 128 + 80);
        assert!(walk(&fs, "batches/sequential,batch=10/1.npy").is_ok());
    }
}

#[test]
fn many_readers_of_a_batch_have_it_gathered_once() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    dense(&path, Codec::Zstd, 2000);
    let fs = open_with(&path, FsOptions { ahead_bytes: 0, ..options() });
    let file = walk(&fs, "batches/cyclic,batch=1500/0.npy").unwrap();
    let barrier = Barrier::new(8);
    std::thread::scope(|s| {
        for k in 0..8 {
            let (fs, barrier) = (&fs, &barrier);
            s.spawn(move || {
                barrier.wait();
                assert_eq!(read_all(fs, file.ino, 4096 + k).unwrap().len() as u64, file.size);
            });
        }
    });
    assert_eq!((fs.counters.batches.get(), fs.counters.batch_ranges.get()), (1, 0));
    assert!(fs.cache.used() >= file.size && fs.cache.used() <= fs.cache.budget());
    // Larger than half of the cache: no more memory than that is taken.
    let fs = open_with(&path, FsOptions { cache_bytes: 100_000, ..options() });
    let file = walk(&fs, "batches/cyclic,batch=1500/0.npy").unwrap();
    assert_eq!(read_all(&fs, file.ino, 4096).unwrap().len() as u64, file.size);
    assert!(fs.counters.batches.get() == 0 && fs.counters.batch_ranges.get() > 10);
    assert!(fs.cache.used() <= 100_000);
}

/// The kernel, which knows all files or none, and keeps what is stored.
#[derive(Default)]
struct Kernel {
    knows: AtomicBool,
    pages: Mutex<HashMap<u64, Vec<u8>>>,
}

impl PageCache for Kernel {
    fn store(&self, ino: u64, bytes: &[u8]) -> Result<(), Errno> {
        if !self.knows.load(Ordering::Relaxed) {
            return Err(Errno::NOENT);
        }
        if !bytes.is_empty() {
            self.pages.lock().unwrap().insert(ino, bytes.to_vec());
        }
        Ok(())
    }
}

#[test]
fn the_next_step_is_gathered_ahead() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    dense(&path, Codec::Zstd, 400);
    let stream = Stream::open(&path).unwrap();
    for (knows, piece) in [(false, 1000), (false, 1 << 20), (true, 1000)] {
        let fs = Arc::new(open(&path));
        let kernel = Arc::new(Kernel::default());
        kernel.knows.store(knows, Ordering::Relaxed);
        let to: Arc<dyn PageCache> = kernel.clone();
        start(&fs, &to, 2).unwrap();
        let spec = "cyclic,batch=20,seed=5";
        let mut sampler = Sampler::new(spec.parse().unwrap(), 400).unwrap();
        let gathered = |want: u64| {
            let start = Instant::now();
            while fs.counters.batches_ahead.get() < want && start.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let mut pushed = 0;
        for step in 0..20 {
            let mut indices = vec![0; 20];
            sampler.batch_at(step, &mut indices).unwrap();
            let file = walk(&fs, &format!("batches/{spec}/{step}.npy")).unwrap();
            let want = &files(&stream, &indices)[".npy"];
            match kernel.pages.lock().unwrap().get(&file.ino) {
                Some(pages) => {
                    assert!(pages == want);
                    pushed += 1;
                    continue;
                }
                None => assert!(read_all(&fs, file.ino, piece).unwrap() == *want),
            }
            gathered(step + 1 - pushed);
        }
        let (batches, ahead) = (fs.counters.batches.get(), fs.counters.batches_ahead.get());
        // What is stored is stored some time after it was gathered.
        assert!((20..=22).contains(&batches) && ahead >= 10, "{ahead} of {batches}");
        assert!(if knows { pushed >= 5 } else { ahead == 20 }, "{pushed} of {ahead}");
        fs.ahead().end();
    }
}
