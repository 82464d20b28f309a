//! A tree dataset in which every byte of every file is changed in turn, and every file is cut at every length. What
//! comes out must be an error that names a file, or what was packed; never a panic, a hang, or memory without bound.

mod common;

use common::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zrfs::dataset::RaggedWriter;
use zrfs::format::Codec;
use zrfs::format::tree::{HEADER_LEN, Header};
use zrfs::pack::{self, Notice, PackOptions, Progress, Watch};
use zrfs::{Error, Source, WriterOptions};

/// Set in the process that does the work, whose memory is limited.
const CHILD: &str = "ZRFS_DAMAGE_CHILD";
/// Address space of that process: what it maps anyway, and room for twice the largest record that a few hundred
/// stored bytes could ever decode to.
const LIMIT: &str = "--as=1073741824";
/// No case may take this long.
const PATIENCE: u64 = 30;

/// Runs one test of this file again, in a child with limited memory.
fn in_a_limited_child(test: &str, work: impl FnOnce(&Path)) {
    if let Some(dir) = std::env::var_os(CHILD) {
        return work(Path::new(&dir));
    }
    let dir = scratch();
    let mut child = tool("prlimit");
    child.arg(LIMIT).arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    let out = run(child.env(CHILD, dir.path()).env("RAYON_NUM_THREADS", "2").env("RUST_BACKTRACE", "0"));
    let said = String::from_utf8_lossy(&out.stdout);
    println!("{said}");
    assert!(out.status.success(), "{}\n{said}\n{}", out.status, stderr(&out));
    assert!(said.contains("1 passed"), "the child ran no test: {said}");
}

/// What the dataset must hold.
struct Good {
    tree: BTreeMap<PathBuf, Entry>,
    streams: BTreeMap<String, Vec<Vec<u8>>>,
}

/// A dataset in whose files every byte counts: files of different lengths (so that one cannot pass for another), all
/// kinds of entries, and the stream `data` compressed against a dictionary small enough to be damaged byte by byte.
fn make(dir: &Path) -> (PathBuf, Good) {
    let (source, packed) = (dir.join("source"), dir.join("packed"));
    fs::create_dir_all(source.join("sub/empty")).unwrap();
    for i in 0..6usize {
        let text = format!("a line of file {i} and some more, much the same every time\n");
        fs::write(source.join(format!("sub/file {i}")), text.repeat(i + 1)).unwrap();
    }
    fs::write(source.join("noise"), noise(1, 200)).unwrap();
    fs::write(source.join("none"), "").unwrap();
    fs::hard_link(source.join("noise"), source.join("sub/same noise")).unwrap();
    std::os::unix::fs::symlink("noise", source.join("link")).unwrap();
    let watch = Progress::default();
    // Pieces of 256 bytes: some files are several records.
    let options = PackOptions { piece_bytes: 256, ..PackOptions::default() };
    pack::pack(&source, &packed, &options, Watch { progress: &watch, notice: &|_| panic!("a notice") }).unwrap();

    let Source::Dataset(dataset) = Source::open(&packed).unwrap() else { panic!("not a dataset") };
    let records = |name: &str| -> Vec<Vec<u8>> {
        let store = dataset.stream(name).unwrap().store();
        (0..store.len()).map(|i| store.read(i).unwrap()).collect()
    };
    let streams: BTreeMap<_, _> = ["data", "path"].map(|name| (name.to_string(), records(name))).into();
    let data = &streams["data"];
    let samples: Vec<u8> =
        (0..200).flat_map(|i| format!("a line of file {i} and some more, {i}").into_bytes()).collect();
    let sizes = vec![samples.len() / 100; 100];
    let dict = zrfs::codec::train_dict(&samples[..sizes.iter().sum()], &sizes, 700).unwrap();
    let dtype = dataset.stream("data").unwrap().schema().unwrap().dtype.clone();
    fs::remove_dir_all(packed.join("data")).unwrap();
    let options = WriterOptions::new(Codec::ZstdDict).level(Some(3)).dict(dict);
    let mut writer = RaggedWriter::create(&packed.join("data"), options, dtype).unwrap();
    for record in data {
        writer.append(&[(&[record.len() as u64], record)]).unwrap();
    }
    let end = writer.end();
    writer.close().unwrap();
    bind_tree(&packed.join("tree.zr"), end);
    (packed, Good { tree: tree(&source), streams })
}

/// Tells the tree index that the stream `data`, made again with the same records, ends at `end`.
fn bind_tree(path: &Path, end: (u32, u32)) {
    let mut bytes = fs::read(path).unwrap();
    let header = bytes.first_chunk::<HEADER_LEN>().unwrap();
    let header = Header { data_end: end, ..Header::decode(header, bytes.len() as u64).unwrap() };
    bytes[..HEADER_LEN].copy_from_slice(&header.encode());
    fs::write(path, bytes).unwrap();
}

/// How a damaged dataset behaved.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// An error named the damage.
    Noticed,
    /// All reads gave what was packed.
    Harmless,
    /// Some reads gave something else.
    Wrong,
}

/// Every file that a message may name.
fn assert_named(message: &str, packed: &Path, copy: &Path) {
    let named = message.contains(packed.to_str().unwrap()) || message.contains(copy.to_str().unwrap());
    assert!(named || message.contains("out of range"), "{message:?} names no file");
}

/// Opens the dataset and reads all of it in every way there is.
fn read_all(packed: &Path, scratch: &Path, good: &Good) -> Result<Outcome, Error> {
    let source = Source::open(packed)?;
    zrfs::info::info(&source);
    let Source::Dataset(dataset) = source else { return Ok(Outcome::Wrong) };
    let mut outcome = Outcome::Harmless;
    let mut worst = |now: Outcome| {
        if now != Outcome::Harmless && outcome != Outcome::Wrong {
            outcome = now;
        }
    };
    for (name, records) in &good.streams {
        let Some(stream) = dataset.stream(name) else {
            worst(Outcome::Wrong);
            continue;
        };
        let indices: Vec<u64> = (0..stream.len()).collect();
        let (bytes, _) = stream.store().gather_packed(&indices)?;
        if bytes != records.concat() {
            worst(Outcome::Wrong);
        }
        for &i in &indices {
            if stream.shape(i)?.as_deref() != Some(&[records[i as usize].len() as u64]) {
                worst(Outcome::Wrong);
            }
            stream.npy_header(i)?;
        }
    }
    let Some(tree) = dataset.tree() else { return Ok(Outcome::Wrong) };
    tree.verify()?;
    for id in 0..tree.node_count() {
        let path = tree.path_of(id)?;
        if tree.resolve(&path)? != Some(id) {
            worst(Outcome::Wrong);
        }
    }
    let copy = scratch.join("copy");
    let failures = Mutex::new(Vec::new());
    let notice = |notice: Notice<'_>| {
        let Notice::Failed(path, reason) = notice else { panic!("nothing can be left out") };
        failures.lock().unwrap().push(format!("{}: {reason}", path.display()));
    };
    let report = zrfs::unpack::unpack(&dataset, &copy, Watch { progress: &Progress::default(), notice: &notice })?;
    let failures = failures.into_inner().unwrap();
    assert_eq!(report.failed as usize, failures.len());
    failures.iter().for_each(|text| assert_named(text, packed, &copy));
    if failures.is_empty() {
        assert_same_entries(good.tree.clone(), common::tree(&copy), Compare::All);
    } else {
        worst(Outcome::Noticed);
    }
    fs::remove_dir_all(&copy).unwrap();
    Ok(outcome)
}

/// Everything that may be changed without notice, and why.
fn may_differ(file: &str, at: u64) -> bool {
    match file {
        // A shorter length is how a store looks before its last append; a longer one finds no entries.
        "data/meta.zr" | "path/meta.zr" => (14..22).contains(&at),
        // A place, length or chunk could be another record's by chance.
        "data/0.loc" | "path/0.loc" => true,
        // Another type of the same size, another codec's absence, a shape that makes the same bytes.
        "data/schema.msgpack" | "path/schema.msgpack" => true,
        // Bytes of the dictionary that no frame refers to change nothing; the others are told by the frames' checksums.
        _ => false,
    }
}

#[test]
fn every_byte_and_every_length() {
    in_a_limited_child("every_byte_and_every_length", |dir| {
        let (packed, good) = make(dir);
        assert_eq!(read_all(&packed, dir, &good).unwrap(), Outcome::Harmless);
        // A case that hangs ends the process.
        let (case, last) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(String::new())));
        let (watched, doing) = (case.clone(), last.clone());
        std::thread::spawn(move || {
            loop {
                let before = watched.load(Ordering::Relaxed);
                std::thread::sleep(Duration::from_secs(PATIENCE));
                if watched.load(Ordering::Relaxed) == before {
                    eprintln!("{} takes more than {PATIENCE} s", doing.lock().unwrap());
                    std::process::exit(99);
                }
            }
        });
        let mut counts = BTreeMap::<String, [u64; 3]>::new();
        let mut check = |file: &str, what: String, at: u64| {
            case.fetch_add(1, Ordering::Relaxed);
            let what = format!("{file} {what}");
            last.lock().unwrap().clone_from(&what);
            let outcome = match catch_unwind(AssertUnwindSafe(|| read_all(&packed, dir, &good))) {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(e)) => {
                    assert_named(&e.to_string(), &packed, &dir.join("copy"));
                    Outcome::Noticed
                }
                Err(_) => panic!("{what}: a panic"),
            };
            let _ = fs::remove_dir_all(dir.join("copy"));
            // Without its tree index, a dataset is a plain one, whose records are all there.
            let plain = what == "tree.zr removed";
            assert!(
                outcome != Outcome::Wrong || plain || may_differ(file, at),
                "{what} gives wrong records without an error"
            );
            counts.entry(file.to_string()).or_default()[outcome as usize] += 1;
        };
        let files = ["data", "path"].into_iter().flat_map(|stream| {
            let names = names(&packed.join(stream)).into_iter();
            names.map(move |name| format!("{stream}/{name}"))
        });
        let files: Vec<String> = files.chain(["tree.zr".to_string()]).collect();
        assert_eq!(files.len(), 4 + 5 + 1, "{files:?}");
        for file in &files {
            let path = packed.join(file);
            let bytes = fs::read(&path).unwrap();
            let handle = fs::OpenOptions::new().write(true).open(&path).unwrap();
            for (at, byte) in (0..).zip(&bytes) {
                for change in [0x01, 0x80, 0xff] {
                    handle.write_all_at(&[byte ^ change], at).unwrap();
                    check(file, format!("byte {at} ^ {change:#x}"), at);
                }
                handle.write_all_at(&[*byte], at).unwrap();
            }
            for length in 0..bytes.len() as u64 {
                handle.set_len(length).unwrap();
                check(file, format!("cut to {length}"), u64::MAX);
                handle.write_all_at(&bytes, 0).unwrap();
            }
            // A file that is missing, and one that goes on.
            fs::remove_file(&path).unwrap();
            check(file, "removed".into(), if file.ends_with("meta.zr") { 14 } else { u64::MAX });
            fs::write(&path, [&bytes[..], &bytes].concat()).unwrap();
            check(file, "twice as long".into(), u64::MAX);
            fs::write(&path, &bytes).unwrap();
        }
        assert_eq!(read_all(&packed, dir, &good).unwrap(), Outcome::Harmless);
        for (file, [noticed, harmless, wrong]) in &counts {
            println!("{file}: {noticed} noticed, {harmless} harmless, {wrong} explainable");
            assert!(noticed > harmless, "hardly anything in {file} was noticed");
        }
        assert!(counts.values().flatten().sum::<u64>() > 10_000, "{counts:?}");
    });
}

/// A raw store: `verify` names the record of every byte that is changed, whether it is the record's own, its place's or
/// its checksum's.
#[test]
fn every_byte_of_a_raw_store() {
    let dir = scratch();
    let path = dir.path().join("raw");
    let records: Vec<Vec<u8>> = (0..9).map(|i| noise(i, 20 + 13 * i as usize)).collect();
    let mut writer = WriterOptions::new(Codec::Raw).create(&path).unwrap();
    writer.append(&records.iter().map(|r| &r[..]).collect::<Vec<_>>()).unwrap();
    writer.close().unwrap();
    let verify = || -> Result<(Vec<u64>, u64), Error> {
        let mut bad = Vec::new();
        let store = zrfs::OpenOptions::new().salvage(true).open(&path)?;
        let found = store.verify(&Progress::default(), &mut |record| bad.push(record.index))?;
        Ok((bad, found.unchecked))
    };
    assert_eq!(verify().unwrap(), (vec![], 0));
    let ends: Vec<usize> = records
        .iter()
        .scan(0, |end, r| {
            *end += r.len();
            Some(*end)
        })
        .collect();
    // The header comes last: whoever writes to it may have changed all the rest.
    for file in ["0.chunk", "0.loc", "sums.zr", "meta.zr"] {
        let bytes = fs::read(path.join(file)).unwrap();
        let handle = fs::OpenOptions::new().write(true).open(path.join(file)).unwrap();
        for at in 0..bytes.len() {
            for change in [0x01, 0x80, 0xff] {
                handle.write_all_at(&[bytes[at] ^ change], at as u64).unwrap();
                let record = match file {
                    "0.chunk" => Some(ends.iter().position(|&end| at < end).unwrap()),
                    "0.loc" => Some(at / 16),
                    "sums.zr" if at >= 32 => Some((at - 32) / 4),
                    _ => None,
                };
                let what = format!("{file}, byte {at} ^ {change:#x}");
                match (verify(), record) {
                    (Ok((bad, unchecked)), Some(record)) => {
                        assert_eq!((bad, unchecked), (vec![record as u64], 0), "{what}")
                    }
                    (Ok((bad, unchecked)), None) if file == "sums.zr" => {
                        assert_eq!((bad, unchecked), (vec![], 9), "{what}")
                    }
                    (Ok(_), None) => {}
                    (Err(e), None) if file == "meta.zr" => assert_named(&e.to_string(), &path, &path),
                    (Err(e), _) => panic!("{what}: {e}"),
                }
            }
            handle.write_all_at(&bytes[at..=at], at as u64).unwrap();
        }
        for length in 0..bytes.len() as u64 {
            handle.set_len(length).unwrap();
            match verify() {
                Ok((bad, unchecked)) => assert!(!bad.is_empty() || unchecked > 0, "{file} cut to {length}"),
                Err(e) => assert_named(&e.to_string(), &path, &path),
            }
            handle.write_all_at(&bytes, 0).unwrap();
        }
    }
}

/// The same through the command, at some places of every file: exit status 0 or 1, a message that names a file.
#[test]
fn the_command_survives_damage() {
    let dir = scratch();
    let (packed, _) = make(dir.path());
    let copy = dir.path().join("copy");
    let mut failed = 0;
    for file in ["data/meta.zr", "data/0.loc", "data/0.chunk", "data/dict.zr", "path/schema.msgpack", "tree.zr"] {
        let path = packed.join(file);
        let bytes = fs::read(&path).unwrap();
        let places: Vec<usize> = (0..bytes.len()).step_by(bytes.len().div_ceil(12)).collect();
        for at in places {
            for cut in [false, true] {
                let mut bad = bytes.clone();
                if cut {
                    bad.truncate(at);
                } else {
                    bad[at] ^= 0xff;
                }
                fs::write(&path, bad).unwrap();
                for args in [&["info", "--json"][..], &["ls"], &["cat"], &["unpack"]] {
                    let mut command = tool("prlimit");
                    command.arg(LIMIT).arg(ZRFS).args(args).arg(&packed).env("RAYON_NUM_THREADS", "2");
                    match args[0] {
                        "cat" => drop(command.args(["0", "sub/file 5"])),
                        "unpack" => drop(command.arg(&copy)),
                        _ => {}
                    }
                    let out = run(&mut command);
                    let said = stderr(&out);
                    let what = format!("{args:?} with {file}, byte {at}, cut: {cut}: {}\n{said}", out.status);
                    assert!(matches!(out.status.code(), Some(0 | 1)), "{what}");
                    assert!(!said.contains("panicked"), "{what}");
                    if out.status.code() == Some(1) {
                        failed += 1;
                        assert!(
                            said.contains(packed.to_str().unwrap()) || said.contains(copy.to_str().unwrap()),
                            "{what}"
                        );
                    }
                    let _ = fs::remove_dir_all(&copy);
                }
            }
        }
        fs::write(&path, &bytes).unwrap();
    }
    assert!(failed > 200, "only {failed} runs failed");
    assert_eq!(names(dir.path()), ["packed", "source"]);
}
