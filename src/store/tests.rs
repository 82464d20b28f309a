//! The store against a plain `Vec`, over codecs and layouts small enough to roll over.

use super::*;
use crate::format::header::HEADER_LEN;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::FileExt;

fn dict(records: &[Vec<u8>]) -> Vec<u8> {
    let sizes: Vec<usize> = records.iter().map(Vec::len).collect();
    crate::codec::train_dict(&records.concat(), &sizes, 4096).unwrap()
}

/// Records that resemble each other, so that a dictionary can be trained on them.
pub(super) fn samples(n: usize) -> Vec<Vec<u8>> {
    (0..n).map(|i| format!("record {i} of a kind, with value {} and tail {}", i * 7919, i % 13).into_bytes()).collect()
}

fn options(codec: Codec, layout: Layout) -> WriterOptions {
    let options = WriterOptions::new(codec).layout(layout);
    if codec == Codec::ZstdDict { options.level(Some(3)).dict(dict(&samples(500))) } else { options }
}

pub(super) fn write(path: &Path, codec: Codec, layout: Layout, batches: &[&[Vec<u8>]]) {
    let mut writer = options(codec, layout).create(path).unwrap();
    for batch in batches {
        let records: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
        let first = writer.len();
        assert_eq!(writer.append(&records).unwrap(), first..first + records.len() as u64);
    }
    writer.close().unwrap();
}

fn check(store: &Store, records: &[Vec<u8>]) {
    assert_eq!(store.len(), records.len() as u64);
    let indices: Vec<u64> = (0..store.len()).rev().collect();
    let (bytes, offsets) = store.gather_packed(&indices).unwrap();
    let lengths = store.lengths(&indices).unwrap();
    for ((&i, &at), &len) in indices.iter().zip(&offsets).zip(&lengths) {
        let want = &records[i as usize];
        assert_eq!(len as usize, want.len());
        assert_eq!(&bytes[at as usize..at as usize + want.len()], want, "record {i}");
        assert_eq!(&store.read(i).unwrap(), want);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn round_trip(
        records in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..60),
        cut in 0usize..60,
        codec in prop::sample::select(Codec::ALL.to_vec()),
        segment_entries in 1u64..9,
        chunk_bytes in 700u64..3000,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let layout = Layout { segment_entries, chunk_bytes };
        let cut = cut.min(records.len());
        write(&path, codec, layout, &[&records[..cut], &records[cut..]]);
        let open = OpenOptions::new().layout(layout);
        check(&open.open(&path).unwrap(), &records);
        // Opened again, it goes on where it was.
        let mut writer = options(codec, layout).open(&path).unwrap();
        writer.append(&[b"one more"]).unwrap();
        drop(writer);
        let all: Vec<Vec<u8>> = records.iter().cloned().chain([b"one more".to_vec()]).collect();
        check(&open.open(&path).unwrap(), &all);
    }
}

#[test]
fn gather_puts_records_where_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let records = samples(100);
    write(dir.path().join("s").as_path(), Codec::Zstd, Layout::STANDARD, &[&records]);
    let store = Store::open(dir.path().join("s")).unwrap();
    let mut dst = vec![0xee; 400];
    // Out of order, repeated, with gaps.
    store.gather(&[7, 99, 7], &mut dst, &[200, 0, 300]).unwrap();
    for (at, i) in [(200, 7), (0, 99), (300, 7)] {
        assert_eq!(&dst[at..at + records[i].len()], &records[i][..]);
    }
    assert_eq!(&dst[records[99].len()..200], &vec![0xee; 200 - records[99].len()][..]);

    let err = |i: &[u64], o: &[u64]| store.gather(i, &mut vec![0; 400], o).unwrap_err().to_string();
    assert!(err(&[100], &[0]).contains("index 100 is out of range: the store has 100 records"));
    assert!(err(&[1, 2], &[0, 10]).contains("overlaps"));
    assert!(err(&[1], &[390]).contains("buffer"));
    assert!(err(&[1], &[u64::MAX]).contains("buffer"));
    assert!(err(&[1], &[]).contains("offsets"));
}

/// Batches of more records than are read at once, with repeats near and far.
#[test]
fn large_batches() {
    let dir = tempfile::tempdir().unwrap();
    let records = samples(700);
    let indices: Vec<u64> = (0..70_001).map(|i| i * i % 700).collect();
    let want: Vec<u8> = indices.iter().flat_map(|&i| &records[i as usize]).copied().collect();
    for codec in Codec::ALL {
        let path = dir.path().join(codec.name());
        write(&path, codec, Layout::STANDARD, &[&records]);
        let (bytes, offsets) = Store::open(&path).unwrap().gather_packed(&indices).unwrap();
        assert!(bytes == want, "{codec}");
        assert_eq!((offsets.len(), offsets[70_000]), (indices.len(), (want.len() - records[0].len()) as u64));
    }
}

#[test]
fn ranges() {
    let dir = tempfile::tempdir().unwrap();
    for codec in Codec::ALL {
        let path = dir.path().join(codec.name());
        let record = samples(1000).concat();
        write(&path, codec, Layout::STANDARD, &[std::slice::from_ref(&record)]);
        let store = Store::open(&path).unwrap();
        for (offset, len) in [(0, 10), (5, 1000), (0, record.len() + 9), (record.len() as u64 - 3, 10), (1 << 40, 4)] {
            let mut buf = vec![0; len];
            let n = store.read_range(0, offset, &mut buf).unwrap();
            let start = (offset as usize).min(record.len());
            assert_eq!(&buf[..n], &record[start..record.len().min(start + len)], "{codec} {offset} {len}");
        }
    }
}

#[test]
fn refused_records_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mut writer = WriterOptions::new(Codec::Raw).create(&path).unwrap();
    writer.append(&[b"a"]).unwrap();
    assert!(matches!(writer.append(&[b"b", b""]), Err(Error::RecordLength { length: 0 })));
    assert_eq!(writer.append(&[b"c"]).unwrap(), 1..2);
    writer.close().unwrap();
    check(&Store::open(&path).unwrap(), &[b"a".to_vec(), b"c".to_vec()]);
}

#[test]
fn files_have_their_real_length() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    write(&path, Codec::Raw, Layout::STANDARD, &[&[vec![1; 10], vec![2; 20]]]);
    assert_eq!(fs::metadata(path.join("0.chunk")).unwrap().len(), 30);
    assert_eq!(fs::metadata(path.join("0.loc")).unwrap().len(), 32);
    assert_eq!(fs::metadata(path.join("meta.zr")).unwrap().len(), HEADER_LEN as u64);
}

#[test]
fn only_one_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let writer = WriterOptions::new(Codec::Raw).create(&path).unwrap();
    assert!(matches!(WriterOptions::new(Codec::Raw).open(&path), Err(Error::Locked { .. })));
    drop(writer);
    WriterOptions::new(Codec::Raw).open(&path).unwrap();
    assert!(matches!(WriterOptions::new(Codec::Raw).create(&path), Err(Error::Exists { .. })));
}

#[test]
fn refresh_shows_what_was_appended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mut writer = WriterOptions::new(Codec::Zstd).create(&path).unwrap();
    writer.append(&[b"a"]).unwrap();
    let store = Store::open(&path).unwrap();
    writer.append(&[b"b"]).unwrap();
    assert_eq!(store.len(), 1);
    assert_eq!(store.refresh().unwrap(), 2);
    assert_eq!(store.read(1).unwrap(), b"b");
}

#[test]
fn a_store_renamed_over_keeps_its_readers() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let layout = Layout { segment_entries: 2, chunk_bytes: 64 };
    write(&old, Codec::Raw, layout, &[&samples(20)]);
    let store = OpenOptions::new().layout(layout).open(&old).unwrap();
    fs::rename(&old, dir.path().join("gone")).unwrap();
    write(&new, Codec::Raw, layout, &[&vec![vec![0; 50]; 20]]);
    fs::rename(&new, &old).unwrap();
    check(&store, &samples(20));
}

#[test]
fn a_store_removed_under_a_reader_reads_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    // As many chunks and segments as a reader keeps open of each.
    let layout = Layout { segment_entries: 3, chunk_bytes: 220 };
    write(&path, Codec::Raw, layout, &[&samples(20)]);
    let store = OpenOptions::new().layout(layout).open(&path).unwrap();
    assert!(path.join("4.chunk").exists() && path.join("6.loc").exists());
    fs::remove_dir_all(&path).unwrap();
    check(&store, &samples(20));
}

#[test]
fn rollback_takes_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let layout = Layout { segment_entries: 4, chunk_bytes: 100 };
    let mut writer = WriterOptions::new(Codec::Raw).layout(layout).create(&path).unwrap();
    writer.append(&[&[1; 60]]).unwrap();
    let mark = writer.mark();
    writer.append(&[&[2; 60], &[3; 60], &[4; 10]]).unwrap();
    writer.rollback(mark).unwrap();
    writer.append(&[&[5; 30]]).unwrap();
    writer.close().unwrap();
    check(&OpenOptions::new().layout(layout).open(&path).unwrap(), &[vec![1; 60], vec![5; 30]]);
    assert!(!path.join("2.chunk").exists());
}

#[test]
fn rollback_goes_past_no_deletion() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = WriterOptions::new(Codec::Raw).create(dir.path().join("s")).unwrap();
    writer.append(&[b"a", b"b", b"c"]).unwrap();
    let mark = writer.mark();
    writer.append(&[b"d"]).unwrap();
    writer.delete(&[0]).unwrap();
    assert!(matches!(writer.rollback(mark), Err(Error::Invalid(_))));
    assert_eq!(writer.append(&[b"e"]).unwrap(), 3..4);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn delete_is_swap_last(
        n in 1usize..40,
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..50),
        codec in prop::sample::select(vec![Codec::Raw, Codec::Zstd]),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let layout = Layout { segment_entries: 7, chunk_bytes: 400 };
        let mut model = samples(n);
        write(&path, codec, layout, &[&model]);
        let doomed: Vec<u64> = picks.iter().map(|p| p.index(n) as u64).collect();
        let mut writer = options(codec, layout).open(&path).unwrap();
        writer.delete(&doomed).unwrap();
        let mut sorted = doomed;
        sorted.sort_unstable();
        sorted.dedup();
        for &i in sorted.iter().rev() {
            model.swap_remove(i as usize);
        }
        prop_assert_eq!(writer.len(), model.len() as u64);
        writer.append(&[b"after"]).unwrap();
        writer.close().unwrap();
        model.push(b"after".to_vec());
        check(&OpenOptions::new().layout(layout).open(&path).unwrap(), &model);
    }
}

#[test]
fn delete_needs_the_store_to_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    write(&path, Codec::Zstd, Layout::STANDARD, &[&samples(5)]);
    let reader = Store::open(&path).unwrap();
    let mut writer = WriterOptions::new(Codec::Zstd).open(&path).unwrap();
    let error = writer.delete(&[1]).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    assert!(matches!(writer.delete(&[1, 5]), Err(Error::OutOfRange { index: 5, length: 5 })));
    check(&reader, &samples(5));
    drop(reader);
    // Refused, it does not latch.
    writer.delete(&[1]).unwrap();
    assert_eq!(Store::open(&path).unwrap().len(), 4);
}

/// Every byte of every file is changed in turn, and every file is cut at every length. What comes out must be an error
/// that names a file, or exactly the records that went in; a changed byte of a raw record shows where records are
/// verified as they are read.
#[test]
fn damage_is_an_error_and_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let records = samples(12);
    for codec in Codec::ALL {
        let path = dir.path().join(codec.name());
        write(&path, codec, Layout::STANDARD, &[&records]);
        let names: Vec<_> =
            fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        let mut told = 0;
        for name in names {
            let file = path.join(&name);
            let good = fs::read(&file).unwrap();
            let step = if name == "dict.zr" { 97 } else { 1 };
            for at in (0..good.len()).step_by(step) {
                for change in [0x01u8, 0x80, 0xff] {
                    let handle = fs::OpenOptions::new().write(true).open(&file).unwrap();
                    handle.write_all_at(&[good[at] ^ change], at as u64).unwrap();
                    // A shorter length or another record's bytes, moved there by chance or by hand.
                    let blind = name == "0.loc" || (name == "meta.zr" && at >= 6);
                    told += usize::from(read_damaged(&path, &records, !blind));
                    handle.write_all_at(&good[at..=at], at as u64).unwrap();
                }
            }
            for len in (0..good.len()).step_by(step) {
                fs::write(&file, &good[..len]).unwrap();
                // Sums that are cut off are none, which is no damage.
                let noticed = read_damaged(&path, &records, true);
                assert!(noticed || name == "sums.zr", "{name} cut to {len} is noticed");
            }
            fs::write(&file, &good).unwrap();
        }
        assert!(told > 300, "{codec}: only {told} of the changes were noticed");
        check(&Store::open(&path).unwrap(), &records);
    }
}

/// Whether opening or reading gave an error; if not, and `strict`, the records must be the right ones.
fn read_damaged(path: &Path, records: &[Vec<u8>], strict: bool) -> bool {
    let named = |e: Error| {
        let text = e.to_string();
        assert!(text.contains(path.to_str().unwrap()) || text.contains("index"), "{text} names no file");
        true
    };
    let store = match OpenOptions::new().verify_on_read(true).open(path) {
        Ok(store) => store,
        Err(e) => return named(e),
    };
    let indices: Vec<u64> = (0..store.len().min(1000)).collect();
    match store.gather_packed(&indices) {
        Err(e) => named(e),
        Ok((bytes, _)) => {
            assert!(!strict || bytes == records.concat(), "damage gave wrong bytes");
            false
        }
    }
}

#[test]
fn the_start_of_a_record() {
    let length = |k: usize| [1, 511, 512, 513, 65_536, 65_537, 131_073, 3_000_000][k];
    let mut records: Vec<Vec<u8>> =
        (0..8).map(|k| samples(length(k) / 40 + 1).concat()[..length(k)].to_vec()).collect();
    // What does not compress is in blocks of another kind.
    records.push((0..200_000u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect());
    for codec in Codec::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        write(&path, codec, Layout::default(), &[&records]);
        let store = Store::open(&path).unwrap();
        for (i, record) in records.iter().enumerate() {
            for wanted in [0, 1, 512, 4096, 140_000] {
                let mut head = vec![0; wanted];
                let n = store.read_head(i as u64, &mut head).unwrap();
                assert_eq!(n, wanted.min(record.len()));
                assert_eq!(head[..n], record[..n], "{codec} record {i}");
            }
        }
        assert!(store.read_head(9, &mut [0; 8]).is_err());
    }
}
