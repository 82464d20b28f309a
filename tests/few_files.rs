//! A store of hundreds of files in a process that may have 32 open, and hundreds of readers of one store.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;
use std::process::Command;
use zrfs::format::{Codec, Layout};
use zrfs::pack::Progress;
use zrfs::{OpenOptions, Store, WriterOptions};

/// The directory that the child works in.
const DIR: &str = "ZRFS_FEW_FILES_DIR";
/// Six records a chunk, five a segment.
const LAYOUT: Layout = Layout { segment_entries: 5, chunk_bytes: 7000 };

fn record(i: u64) -> Vec<u8> {
    (0..1000).map(|at| ((at * (i + 3)) >> 3) as u8).collect()
}

fn swap_remove(model: &mut Vec<u64>, doomed: &[u64]) {
    for &i in doomed.iter().rev() {
        model.swap_remove(i as usize);
    }
}

#[track_caller]
fn check(path: &Path, model: &[u64]) {
    let store = OpenOptions::new().layout(LAYOUT).open(path).unwrap();
    assert_eq!(store.len(), model.len() as u64);
    // Neighbours in the batch are in different chunks, and it is large enough to be shared out.
    let indices: Vec<u64> = (0..store.len()).map(|i| i * 389 % store.len()).collect();
    let (bytes, offsets) = store.gather_packed(&indices).unwrap();
    for (&i, at) in indices.iter().zip(offsets) {
        assert!(bytes[at as usize..].starts_with(&record(model[i as usize])), "record {i}");
    }
    let found = store.verify(&Progress::default(), &mut |bad| panic!("{}", bad.error)).unwrap();
    assert_eq!((found.records, found.bad), (store.len(), 0));
}

#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    setrlimit(Resource::Nofile, Rlimit { current: Some(32), maximum: Some(32) }).unwrap();
    let path = Path::new(&dir).join("s");
    let records: Vec<Vec<u8>> = (0..1400).map(record).collect();
    let slices: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    let mut writer = WriterOptions::new(Codec::Raw).layout(LAYOUT).create(&path).unwrap();
    writer.append(&slices[..700]).unwrap();
    for record in &slices[700..1300] {
        writer.append(&[record]).unwrap();
    }
    writer.close().unwrap();
    let mut model: Vec<u64> = (0..1300).collect();
    assert!(path.join("200.chunk").exists() && path.join("250.loc").exists());
    check(&path, &model);
    let mut writer = WriterOptions::new(Codec::Raw).layout(LAYOUT).open(&path).unwrap();
    let doomed: Vec<u64> = (0..1300).step_by(3).collect();
    writer.delete(&doomed).unwrap();
    swap_remove(&mut model, &doomed);
    drop(writer);
    check(&path, &model);
    let mut writer = WriterOptions::new(Codec::Raw).layout(LAYOUT).open(&path).unwrap();
    let done = writer.compact(&Progress::default()).unwrap();
    assert!(done.moved > 800 && done.freed() > 400_000, "{done:?}");
    drop(writer);
    check(&path, &model);
    let mut writer = WriterOptions::new(Codec::Raw).layout(LAYOUT).open(&path).unwrap();
    writer.append(&slices[1300..]).unwrap();
    writer.close().unwrap();
    model.extend(1300..1400);
    check(&path, &model);
}

#[test]
fn hundreds_of_chunks_do_with_32_open_files() {
    let dir = tempfile::tempdir().unwrap();
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env(DIR, dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("1 passed"), "{said}");
    let mut model: Vec<u64> = (0..1300).collect();
    swap_remove(&mut model, &(0..1300).step_by(3).collect::<Vec<_>>());
    model.extend(1300..1400);
    check(&dir.path().join("s"), &model);
}

#[test]
fn five_hundred_readers_of_one_store() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mut writer = WriterOptions::new(Codec::Zstd).create(&path).unwrap();
    let records: Vec<Vec<u8>> = (0..100).map(record).collect();
    writer.append(&records.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
    let stores: Vec<Store> = (0..500).map(|_| Store::open(&path).unwrap()).collect();
    // A writer is no hindrance to them, nor they to it.
    writer.append(&[&record(100)]).unwrap();
    std::thread::scope(|scope| {
        for some in stores.chunks(50) {
            scope.spawn(move || {
                for store in some {
                    assert_eq!(store.refresh().unwrap(), 101);
                    let (bytes, _) = store.gather_packed(&(0..101).collect::<Vec<_>>()).unwrap();
                    assert_eq!(bytes, (0..101).flat_map(record).collect::<Vec<_>>());
                }
            });
        }
    });
    assert!(writer.delete(&[0]).is_err());
    drop(stores);
    writer.delete(&[0]).unwrap();
}
