//! Checksums of raw records: what they notice, and that what another program did is never called damage.

use super::*;
use crate::pack::Progress;
use crate::storage::Storage as _;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

const LEN: usize = 40;

fn record(i: usize) -> Vec<u8> {
    (0..LEN).map(|b| (b * 7 + i * 31) as u8).collect()
}

/// A closed raw store of `n` records.
fn make(dir: &tempfile::TempDir, n: usize) -> PathBuf {
    let path = dir.path().join("s");
    let mut writer = WriterOptions::new(Codec::Raw).create(&path).unwrap();
    append(&mut writer, 0..n);
    writer.close().unwrap();
    path
}

fn append(writer: &mut Writer, ids: std::ops::Range<usize>) {
    let records: Vec<Vec<u8>> = ids.map(record).collect();
    writer.append(&records.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
}

fn writer(path: &Path) -> Writer {
    WriterOptions::new(Codec::Raw).open(path).unwrap()
}

fn write_at(file: PathBuf, at: u64, bytes: &[u8]) {
    fs::OpenOptions::new().write(true).open(file).unwrap().write_all_at(bytes, at).unwrap();
}

/// Changes a byte of record `i`, as a disk might.
fn flip(path: &Path, i: usize) {
    let file = path.join("0.chunk");
    let byte = fs::read(&file).unwrap()[i * LEN];
    write_at(file, (i * LEN) as u64, &[byte ^ 4]);
}

/// Records that are bad, the number without a checksum that counts, and of those that differ from theirs.
fn verify(path: &Path) -> (Vec<u64>, u64, u64) {
    let mut bad = Vec::new();
    let found = Store::open(path).unwrap().verify(&Progress::default(), &mut |b| bad.push(b.index)).unwrap();
    assert_eq!(found.bad, bad.len() as u64);
    (bad, found.unchecked, found.doubtful)
}

fn rebuild(path: &Path) -> (Vec<u64>, u64, u64) {
    let mut bad = Vec::new();
    let done = writer(path).rebuild_sums(&Progress::default(), &mut |b| bad.push(b.index)).unwrap();
    assert_eq!(done.bad, bad.len() as u64);
    (bad, done.made, done.replaced)
}

/// Writes the header as loaderx does: new numbers, and zrfs's note as it was. Time passes before, as it would.
fn foreign_header(path: &Path, length: u64, tail: u32) {
    std::thread::sleep(Duration::from_millis(20));
    write_at(path.join("meta.zr"), 10, &[&tail.to_le_bytes()[..], &length.to_le_bytes()].concat());
}

/// Appends a record of the usual length as another program would.
fn foreign_append(path: &Path, id: usize) {
    let header = Store::open(path).unwrap().header();
    let at = u64::from(header.tail_offset);
    write_at(path.join("0.chunk"), at, &record(id));
    let (offset, n) = (header.tail_offset, LEN as u32);
    let entry = Entry { offset, phys_length: n, logic_length: n, chunk_id: 0 };
    write_at(path.join("0.loc"), header.length * 16, &entry.encode());
    foreign_header(path, header.length + 1, header.tail_offset + n);
}

#[test]
fn a_changed_byte_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(&dir, 10);
    assert_eq!(verify(&path), (vec![], 0, 0));
    flip(&path, 3);
    assert_eq!(verify(&path), (vec![3], 0, 0));
    let store = OpenOptions::new().verify_on_read(true).open(&path).unwrap();
    let error = store.gather_packed(&[9, 3, 0]).unwrap_err().to_string();
    assert!(error.contains("record 3") && error.contains("0.chunk") && error.contains("sums.zr"), "{error}");
    assert!(store.read(3).is_err());
    assert_eq!(store.read(4).unwrap(), record(4));
    // Of a small record the piece is not given either; without comparing, everything is.
    store.read_range(3, 1, &mut [0; 5]).unwrap_err();
    assert_eq!(Store::open(&path).unwrap().read_range(3, 1, &mut [0; 5]).unwrap(), 5);
    Store::open(&path).unwrap().read(3).unwrap();
    // The damage stays named.
    assert_eq!(rebuild(&path), (vec![3], 0, 0));
    assert_eq!(verify(&path), (vec![3], 0, 0));
}

#[test]
fn what_is_in_the_page_cache_is_compared_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(&dir, 40);
    let all: Vec<u64> = (0..40).collect();
    let store = OpenOptions::new().verify_on_read(true).open(&path).unwrap();
    // Whether the store is in the page cache is only known after this one.
    store.gather_packed(&all[..20]).unwrap();
    store.gather_packed(&all[..20]).unwrap();
    flip(&path, 3);
    flip(&path, 30);
    let packed = |indices: &[u64]| store.gather_packed(indices).map(drop).map_err(|e| e.to_string());
    packed(&[19, 3, 0, 1, 2]).unwrap();
    for _ in 0..2 {
        assert!(packed(&[19, 1, 0, 30, 2]).unwrap_err().contains("record 30"));
    }
    // Of a few it does not show whether they came from the disk.
    assert!(packed(&[3, 0]).unwrap_err().contains("record 3"));
    assert!(store.read(3).is_err());
    // From the disk again, it is compared again.
    store.forget().unwrap();
    for _ in 0..5 {
        assert!(packed(&[19, 3, 0, 1, 2]).unwrap_err().contains("record 3"));
    }
    packed(&all[5..25]).unwrap();
}

#[test]
fn a_changed_checksum_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(&dir, 4);
    let file = path.join("sums.zr");
    let good = fs::read(&file).unwrap();
    assert_eq!(good.len(), 32 + 4 * 4);
    for at in 0..good.len() {
        write_at(file.clone(), at as u64, &[good[at] ^ 0x20]);
        let want = if at < 32 { (vec![], 4, 0) } else { (vec![(at as u64 - 32) / 4], 0, 0) };
        assert_eq!(verify(&path), want, "byte {at}");
        fs::write(&file, &good).unwrap();
    }
    // Without a head that counts, the records may be newer than their sums; they can be given new ones.
    write_at(file.clone(), 9, &[7]);
    flip(&path, 1);
    assert_eq!(rebuild(&path), (vec![], 0, 1));
    assert_eq!(verify(&path), (vec![], 0, 0));
    fs::remove_file(&file).unwrap();
    assert_eq!(verify(&path), (vec![], 4, 0));
    assert_eq!(rebuild(&path), (vec![], 4, 0));
    assert_eq!(verify(&path), (vec![], 0, 0));
}

#[test]
fn deletions_and_rollbacks_move_and_cut_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(&dir, 20);
    let mut w = writer(&path);
    w.delete(&[0, 7, 19]).unwrap();
    append(&mut w, 20..25);
    let mark = w.mark();
    append(&mut w, 25..30);
    w.rollback(mark).unwrap();
    append(&mut w, 30..31);
    w.close().unwrap();
    assert_eq!(Store::open(&path).unwrap().len(), 23);
    assert_eq!(verify(&path), (vec![], 0, 0));
}

#[test]
fn what_another_program_appends_is_unchecked() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(&dir, 5);
    foreign_append(&path, 5);
    assert_eq!(verify(&path), (vec![], 1, 0));
    // A record that differs is not known to be damaged any more.
    flip(&path, 2);
    assert_eq!(verify(&path), (vec![], 2, 1));
    // Our own records are covered again, and the doubt about the others stays.
    let mut w = writer(&path);
    append(&mut w, 6..9);
    w.close().unwrap();
    assert_eq!(verify(&path), (vec![], 2, 1));
    flip(&path, 7);
    assert_eq!(verify(&path), (vec![7], 2, 1));
    assert_eq!(rebuild(&path), (vec![7], 1, 1));
    assert_eq!(verify(&path), (vec![7], 0, 0));
}

#[test]
fn what_another_program_deletes_or_compacts_is_never_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(&dir, 6);
    // The last record moves into the hole, and a shorter length is written.
    let table = fs::read(path.join("0.loc")).unwrap();
    write_at(path.join("0.loc"), 16, &table[5 * 16..]);
    foreign_header(&path, 5, 6 * LEN as u32);
    assert_eq!(verify(&path), (vec![], 1, 1));
    // One record replaced, and the store compacted: the header is the one that was there.
    let dir = tempfile::tempdir().unwrap();
    let path = make(&dir, 6);
    let header = fs::read(path.join("meta.zr")).unwrap();
    write_at(path.join("0.chunk"), 2 * LEN as u64, &record(77));
    foreign_header(&path, 6, 6 * LEN as u32);
    assert_eq!(fs::read(path.join("meta.zr")).unwrap(), header);
    assert_eq!(verify(&path), (vec![], 1, 1));
    let store = OpenOptions::new().verify_on_read(true).open(&path).unwrap();
    assert_eq!(store.read(2).unwrap(), record(77));
    drop(store);
    assert_eq!(rebuild(&path), (vec![], 0, 1));
    assert_eq!(verify(&path), (vec![], 0, 0));
}

#[test]
fn a_copy_stays_checked() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(&dir, 5);
    for (times, want) in [(true, (vec![1], 0, 0)), (false, (vec![], 1, 1))] {
        let copy = dir.path().join(format!("copy-{times}"));
        std::thread::sleep(Duration::from_millis(20));
        fs::create_dir(&copy).unwrap();
        for entry in fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            let to = copy.join(entry.file_name());
            fs::copy(entry.path(), &to).unwrap();
            if times {
                let modified = entry.metadata().unwrap().modified().unwrap();
                fs::File::options().write(true).open(&to).unwrap().set_modified(modified).unwrap();
            }
        }
        assert_eq!(verify(&copy), (vec![], 0, 0), "whole, it is checked, times or not");
        flip(&copy, 1);
        assert_eq!(verify(&copy), want, "times kept: {times}");
    }
}

/// A writer that ended without a sync; what it left is held against the checksums.
#[test]
fn the_end_of_a_crash_is_cut_where_a_checksum_fails() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(&dir, 3);
    append(&mut writer(&path), 3..8);
    flip(&path, 5);
    assert_eq!(Store::open(&path).unwrap().len(), 5);
    let mut w = writer(&path);
    assert_eq!(w.len(), 5);
    append(&mut w, 40..41);
    w.close().unwrap();
    assert_eq!(verify(&path), (vec![], 0, 0));
}

/// The same, but then another program goes on with the store: nothing of its own is cut.
#[test]
fn what_another_program_writes_after_a_crash_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(&dir, 3);
    append(&mut writer(&path), 3..6);
    foreign_append(&path, 6);
    flip(&path, 4);
    assert_eq!(Store::open(&path).unwrap().len(), 7);
    assert_eq!(writer(&path).len(), 7);
    assert_eq!(verify(&path), (vec![], 2, 1));
    // Also where it replaced a record and compacted, so that the header is as it was.
    let dir = tempfile::tempdir().unwrap();
    let path = make(&dir, 3);
    append(&mut writer(&path), 3..6);
    write_at(path.join("0.chunk"), 4 * LEN as u64, &record(50));
    foreign_header(&path, 6, 6 * LEN as u32);
    assert_eq!(writer(&path).len(), 6);
    assert_eq!(verify(&path), (vec![], 1, 1));
}

#[test]
fn a_store_without_checksums_gets_some_for_what_is_appended() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(&dir, 3);
    fs::remove_file(path.join("sums.zr")).unwrap();
    let mut w = writer(&path);
    append(&mut w, 3..5);
    w.close().unwrap();
    assert_eq!(verify(&path), (vec![], 3, 0));
    flip(&path, 1);
    flip(&path, 3);
    assert_eq!(verify(&path), (vec![3], 3, 0));
}

#[test]
fn compressed_stores_need_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("z");
    let mut w = WriterOptions::new(Codec::Zstd).create(&path).unwrap();
    w.append(&[b"abc"]).unwrap();
    let error = w.rebuild_sums(&Progress::default(), &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("frames carry their checksums"), "{error}");
    w.close().unwrap();
    assert!(!path.join("sums.zr").exists());
    assert_eq!(verify(&path), (vec![], 0, 0));
}

/// While a writer is at work, its word holds for what it writes; when that was long ago, it is given again.
#[test]
fn a_lease_is_renewed() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(&dir, 3);
    let disk = Disk::default();
    let files = Files::new(disk.pin(&path).unwrap(), &path, true);
    let meta = disk.open(&path.join("meta.zr")).unwrap();
    let mut sums = Sums::open_rw(&files, &*meta, 3).unwrap();
    assert!(sums.trusted());
    let head = fs::read(path.join("sums.zr")).unwrap();
    sums.lease(&files).unwrap();
    assert_eq!(fs::read(path.join("sums.zr")).unwrap(), head, "it still holds");
    sums.end_lease(&*meta).unwrap();
    sums.lease(&files).unwrap();
    assert_ne!(fs::read(path.join("sums.zr")).unwrap(), head);
    assert_eq!(sums.sure_from(&*meta).unwrap(), 0);
}

/// Batches of a size that one thread sums while another writes, over chunks that roll over.
#[test]
fn large_batches_are_checked_too() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout { chunk_bytes: 3 << 20, ..Layout::STANDARD };
    let records: Vec<Vec<u8>> = (0..700).map(|i| record(i).repeat(1 + i * 7 % 300)).collect();
    let slices: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    assert!(slices.iter().map(|r| r.len()).sum::<usize>() > 3 << 20);
    let mut writer = WriterOptions::new(Codec::Raw).layout(layout).create(dir.path().join("s")).unwrap();
    writer.append(&slices[..350]).unwrap();
    writer.append(&slices).unwrap();
    writer.close().unwrap();
    let store = OpenOptions::new().layout(layout).verify_on_read(true).open(dir.path().join("s")).unwrap();
    let found = store.verify(&Progress::default(), &mut |bad| panic!("{bad:?}")).unwrap();
    assert_eq!((found.records, found.unchecked, found.bad), (1050, 0, 0));
    for (k, want) in slices[..350].iter().chain(&slices).enumerate() {
        assert_eq!(store.read(k as u64).unwrap(), *want, "record {k}");
    }
}
