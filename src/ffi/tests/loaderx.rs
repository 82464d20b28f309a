//! The functions of loaderx's own library.

use super::super::code::*;
use super::super::records::*;
use super::last_error;
use std::path::Path;
use std::ptr::{null, null_mut};

/// `n` records of `(k % 251) + 1` bytes of value k.
fn packed(n: u64) -> (Vec<u8>, Vec<u64>) {
    let (mut bytes, mut offsets) = (Vec::new(), Vec::new());
    for k in 0..n {
        offsets.push(bytes.len() as u64);
        bytes.extend(vec![k as u8; (k % 251) as usize + 1]);
    }
    (bytes, offsets)
}

fn open(path: &Path, codec: u8) -> *mut Zrecord {
    let (bytes, mut code) = (path.to_str().unwrap().as_bytes(), 1);
    // SAFETY: slices and a number of our own.
    let zr = unsafe { zr_open(bytes.as_ptr(), bytes.len(), codec, &mut code) };
    assert!(!zr.is_null() && code == 1, "{code}: {}", last_error());
    zr
}

fn append(zr: *mut Zrecord, src: &[u8], offsets: &[u64]) -> i64 {
    // SAFETY: slices of our own.
    unsafe { zr_append(zr, src.as_ptr(), src.len(), offsets.as_ptr(), offsets.len()) }
}

fn gather(zr: *mut Zrecord, indices: &[u64], dst: &mut [u8], offsets: &[u64]) -> i32 {
    assert_eq!(indices.len(), offsets.len());
    // SAFETY: slices of our own.
    unsafe { zr_gather(zr, indices.as_ptr(), indices.len(), dst.as_mut_ptr(), dst.len(), offsets.as_ptr()) }
}

fn delete(zr: *mut Zrecord, indices: &[u64]) -> i32 {
    // SAFETY: a slice of our own.
    unsafe { zr_delete(zr, indices.as_ptr(), indices.len()) }
}

#[test]
fn what_loaderx_leaves_undefined_is_a_code() {
    let dir = tempfile::tempdir().unwrap();
    let zr = open(&dir.path().join("a/b/store"), 0);
    let (src, offsets) = packed(300);
    assert_eq!(append(zr, &src, &offsets), 0);
    assert_eq!((zr_len(zr), zr_codec(zr), zr_sync(zr), zr_has_dict(zr)), (300, 0, 0, 0));

    // Null, and lengths that no memory has.
    let mut dst = vec![0; 1000];
    let at = [0u64];
    // SAFETY: what is not null and not absurd is of our own; the rest is to be found out before it is followed.
    unsafe {
        let (none, out) = (null::<u64>(), dst.as_mut_ptr());
        assert_eq!(zr_gather(zr, none, 1, out, 1000, at.as_ptr()), BUFFER);
        assert!(last_error().contains("idxs is null"), "{}", last_error());
        assert_eq!(zr_gather(zr, at.as_ptr(), 1, out, 1000, none), BUFFER);
        assert_eq!(zr_gather(zr, at.as_ptr(), 1, null_mut(), 1000, at.as_ptr()), BUFFER);
        assert_eq!(zr_gather(zr, at.as_ptr(), usize::MAX / 8 + 2, out, 1000, at.as_ptr()), BUFFER);
        assert_eq!(zr_gather(zr, at.as_ptr(), 1, out, usize::MAX, at.as_ptr()), BUFFER);
        assert_eq!(zr_gather(zr, none, 0, null_mut(), 0, none), 0);
        assert_eq!(zr_lengths(zr, none, 3, null_mut()), BUFFER);
        assert_eq!(zr_lengths(zr, at.as_ptr(), 1, null_mut()), BUFFER);
        assert_eq!(zr_lengths(zr, none, 0, null_mut()), 0);
        assert_eq!(zr_append(zr, null(), 0, none, 0), 300);
        assert_eq!(zr_append(zr, null(), 5, at.as_ptr(), 1), i64::from(BUFFER));
        assert_eq!(zr_append(zr, null(), 0, at.as_ptr(), 1), i64::from(RECORD_LENGTH));
        assert_eq!(zr_delete(zr, none, 2), BUFFER);
        assert_eq!(zr_delete(zr, none, 0), 0);
        zr_stats(zr, null_mut(), null_mut(), null_mut());
        let mut code = 1;
        assert_eq!(zr_build_dict(null(), 9, null(), 3, 100, null_mut(), 0, &mut code), -1);
        assert_eq!(code, BUFFER);
        let sizes = [usize::MAX, 2];
        assert_eq!(zr_build_dict(src.as_ptr(), src.len(), sizes.as_ptr(), 2, 100, out, 100, null_mut()), -1);
        assert_eq!(zr_build_dict(src.as_ptr(), src.len(), sizes.as_ptr(), 0, usize::MAX, out, 100, &mut code), -1);
        assert_eq!(code, MEMORY);
        assert_eq!(zr_build_dict(src.as_ptr(), src.len(), [9].as_ptr(), 1, 100, out, 100, &mut code), -1);
        assert_eq!(code, DICTIONARY);
        assert_eq!(zr_install_dict(zr, null(), 7, &mut code), BUFFER);
        assert_eq!(zr_install_dict(zr, src.as_ptr(), 7, null_mut()), DICTIONARY);
        assert!(zr_open(null(), 4, 0, &mut code).is_null() && code == BUFFER);
        assert!(zr_open(b"".as_ptr(), 0, 0, &mut code).is_null() && code == IO);
        assert!(zr_open(b"a\0b".as_ptr(), 3, 0, &mut code).is_null() && code == IO);
        assert!(zr_open(b"a".as_ptr(), 1, 3, null_mut()).is_null());
        assert!(zr_open(b"a".as_ptr(), 1, 3, &mut code).is_null() && code == NOT_A_STORE);
    }

    // Geometry, with the codes that loaderx has for it; the first mistake of a batch is the one that is told.
    assert_eq!(gather(zr, &[300], &mut dst, &[0]), INDEX);
    assert_eq!(gather(zr, &[u64::MAX], &mut dst, &[0]), INDEX);
    assert_eq!(gather(zr, &[9], &mut dst, &[991]), BUFFER);
    assert_eq!(gather(zr, &[9], &mut dst, &[u64::MAX]), BUFFER);
    assert_eq!(gather(zr, &[9, 300], &mut dst, &[991, 0]), BUFFER);
    assert_eq!(gather(zr, &[300, 9], &mut dst, &[0, 991]), INDEX);
    for (offsets, code) in [
        (&[1001u64][..], BUFFER),
        (&[0, 1001], BUFFER),
        (&[5, 4], RECORD_LENGTH),
        (&[0, 0], RECORD_LENGTH),
        (&[1000], RECORD_LENGTH),
    ] {
        assert_eq!(append(zr, &dst, offsets), i64::from(code), "{offsets:?}");
    }
    assert_eq!((delete(zr, &[0, 300]), zr_len(zr)), (INDEX, 300));

    // Places that overlap: the later record of the batch is over the earlier.
    dst.fill(0);
    assert_eq!(gather(zr, &[9, 4, 9], &mut dst, &[0, 2, 12]), 0);
    assert_eq!(dst[..23], [9, 9, 4, 4, 4, 4, 4, 9, 9, 9, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0]);

    // Numbers that are not aligned, as numpy's may be.
    let mut words = vec![0u64; 8];
    // SAFETY: 64 bytes of our own, of which one more is left out than each use leaves.
    unsafe {
        let odd = words.as_mut_ptr().cast::<u8>().add(1).cast::<u64>();
        odd.write_unaligned(9);
        odd.add(1).write_unaligned(4);
        let lengths = odd.add(3).cast::<u32>();
        assert_eq!(zr_lengths(zr, odd, 2, lengths), 0);
        assert_eq!([lengths.read_unaligned(), lengths.add(1).read_unaligned()], [10, 5]);
        let places = odd.add(3);
        places.write_unaligned(100);
        places.add(1).write_unaligned(0);
        assert_eq!(zr_gather(zr, odd, 2, dst.as_mut_ptr(), 1000, places), 0);
        assert_eq!((dst[0], dst[4], dst[100], dst[109]), (4, 4, 9, 9));
        assert_eq!(zr_delete(zr, odd, 1), 0);
        assert_eq!(zr_append(zr, dst.as_ptr(), 1000, places.add(1), 1), 299);
    }

    // Handles that are none.
    zr_close(zr);
    zr_close(zr);
    zr_close(null_mut());
    assert_eq!(gather(zr, &[0], &mut dst, &[0]), NOT_A_STORE);
    assert!(last_error().contains("closed"), "{}", last_error());
    assert_eq!((zr_len(zr), zr_codec(zr), zr_has_dict(zr), zr_sync(zr)), (0, 255, 0, NOT_A_STORE));
    assert_eq!((append(zr, &src, &offsets), zr_compact(null_mut())), (i64::from(NOT_A_STORE), NOT_A_STORE));
    assert_eq!(zr_len(std::ptr::without_provenance_mut(12345)), 0);
}

#[test]
fn damaged_stores_and_other_things_are_codes() {
    let dir = tempfile::tempdir().unwrap();
    let why = |path: &Path| {
        let (bytes, mut code) = (path.to_str().unwrap().as_bytes(), 1);
        // SAFETY: slices and a number of our own.
        assert!(unsafe { zr_open(bytes.as_ptr(), bytes.len(), 1, &mut code) }.is_null());
        code
    };
    let file = dir.path().join("file");
    std::fs::write(&file, "text").unwrap();
    assert_eq!((why(&file), why(&file.join("below"))), (IO, IO));
    let path = dir.path().join("store");
    let zr = open(&path, 1);
    let (src, offsets) = packed(50);
    assert_eq!(append(zr, &src, &offsets), 0);
    zr_close(zr);
    // An existing store keeps its codec.
    let zr = open(&path, 0);
    assert_eq!((zr_codec(zr), zr_len(zr)), (1, 50));
    zr_close(zr);
    let chunk = path.join("0.chunk");
    let mut bytes = std::fs::read(&chunk).unwrap();
    let end = bytes.len();
    bytes[end - 6..].fill(0xa5);
    std::fs::write(&chunk, &bytes).unwrap();
    let zr = open(&path, 0);
    let mut dst = [0; 1000];
    assert_eq!((gather(zr, &[49], &mut dst, &[0]), gather(zr, &[3], &mut dst, &[0])), (CORRUPT, 0));
    assert!(last_error().starts_with("record 49"), "{}", last_error());
    zr_close(zr);
    let meta = path.join("meta.zr");
    let mut header = std::fs::read(&meta).unwrap();
    header[4] = 9;
    std::fs::write(&meta, &header).unwrap();
    assert_eq!(why(&path), NOT_A_STORE);
    std::fs::write(&meta, "short").unwrap();
    assert_eq!(why(&path), NOT_A_STORE);
}

#[test]
fn handles_of_one_store_are_one_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("schema.msgpack"), "the caller's").unwrap();
    let (src, offsets) = packed(200);
    let (one, two) = (open(&path, 0), open(&dir.path().join("./store"), 1));
    assert_ne!(one, two);
    assert_eq!(zr_codec(two), 0);
    assert_eq!((append(one, &src, &offsets), append(two, &src, &offsets)), (0, 200));
    let mut dst = vec![0; 60];
    assert_eq!(gather(one, &[252, 3], &mut dst, &[0, 56]), 0);
    assert_eq!((dst[0], dst[52], dst[56]), (52, 52, 3));
    assert_eq!((delete(one, &[0, 399, 7, 7]), zr_len(two)), (0, 397));
    let mut stats = [0u64; 3];
    let mut get = |zr| {
        let [records, live, chunk] = &mut stats;
        // SAFETY: numbers of our own.
        unsafe { zr_stats(zr, records, live, chunk) };
        stats
    };
    let [records, live, chunk] = get(two);
    assert_eq!((records, live + 1 + 200 + 8, chunk), (397, chunk, 2 * src.len() as u64));
    assert_eq!(zr_compact(two), 0);
    assert_eq!(get(one), [397, live, live]);
    zr_close(one);
    assert_eq!((append(two, &src, &offsets), zr_len(two)), (397, 597));
    // Through the handle of a directory that is called otherwise by now.
    std::fs::rename(&path, dir.path().join("moved")).unwrap();
    assert_eq!((append(two, &src, &offsets), delete(two, &[5])), (597, 0));
    zr_close(two);
    let store = crate::Store::open(dir.path().join("moved")).unwrap();
    // The last record came to the freed index.
    assert_eq!((store.len(), store.read(5).unwrap()), (796, vec![199; 200]));
}

#[test]
fn gathers_go_on_while_others_append_delete_and_compact() {
    let dir = tempfile::tempdir().unwrap();
    let zr = open(&dir.path().join("store"), 1).expose_provenance();
    let zr = move || std::ptr::with_exposed_provenance_mut::<Zrecord>(zr);
    let record = |k: u64| [k as u8; 100];
    let bytes: Vec<u8> = (0..100).flat_map(record).collect();
    let offsets: Vec<u64> = (0..100).map(|k| k * 100).collect();
    assert_eq!(append(zr(), &bytes, &offsets), 0);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..3u64 {
            let (offsets, done) = (&offsets[..50], &done);
            scope.spawn(move || {
                let mut dst = vec![0; 5000];
                let mut turns = 0;
                while turns < 50 || !done.load(std::sync::atomic::Ordering::Relaxed) {
                    // The first 50 stay where they are: others take the places of later ones alone.
                    let indices: Vec<u64> = (0..50).map(|k| (k * 7 + seed + turns) % 50).collect();
                    assert_eq!(gather(zr(), &indices, &mut dst, offsets), 0, "{}", last_error());
                    assert!(indices.iter().zip(dst.chunks(100)).all(|(&k, got)| got == [k as u8; 100]));
                    turns += 1;
                }
            });
        }
        for round in 0..4 {
            assert_eq!(append(zr(), &bytes, &offsets), 100 + round * 90);
            assert_eq!(delete(zr(), &(60..70).collect::<Vec<_>>()), 0, "{}", last_error());
            assert_eq!(zr_compact(zr()), 0, "{}", last_error());
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(zr_len(zr()), 460);
    zr_close(zr());
}

#[test]
fn dictionaries_come_after_the_store_and_may_be_replaced_before_the_records() {
    let dir = tempfile::tempdir().unwrap();
    let zr = open(&dir.path().join("store"), 2);
    let records: Vec<Vec<u8>> =
        (0..2000u64).map(|i| format!("record {} of {}, {}", i, i % 7, i * 31 % 1009).into_bytes()).collect();
    let samples = records.concat();
    let sizes: Vec<usize> = records.iter().map(Vec::len).collect();
    let build = |target: usize, out: &mut [u8]| {
        let mut code = 0;
        // SAFETY: slices and a number of our own.
        let n = unsafe {
            let (samples, n) = ((samples.as_ptr(), samples.len()), sizes.len());
            zr_build_dict(samples.0, samples.1, sizes.as_ptr(), n, target, out.as_mut_ptr(), out.len(), &mut code)
        };
        (n, code)
    };
    let mut small = vec![0; 2048];
    assert_eq!(build(2048, &mut small[..10]), (-1, BUFFER));
    let small = (build(2048, &mut small).0, small);
    let mut large = vec![0; 8192];
    let large = (build(8192, &mut large).0, large);
    assert!(0 < small.0 && small.0 <= 2048 && small.0 < large.0, "{} {}", small.0, large.0);
    // SAFETY: a slice of our own.
    let install = |dict: &(i64, Vec<u8>)| unsafe { zr_install_dict(zr, dict.1.as_ptr(), dict.0 as usize, null_mut()) };
    let offsets: Vec<u64> = sizes.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + *n as u64))).collect();
    assert_eq!((append(zr, &samples, &offsets), zr_has_dict(zr)), (i64::from(DICTIONARY), 0));
    assert_eq!((install(&large), zr_has_dict(zr), install(&small), install(&small)), (0, 1, 0, 0));
    assert_eq!(append(zr, &samples, &offsets), 0, "{}", last_error());
    // The one that is there, again; another would make the records unreadable.
    assert_eq!((install(&small), install(&large)), (0, DICTIONARY));
    let mut dst = vec![0; samples.len()];
    let all: Vec<u64> = (0..2000).collect();
    assert_eq!(gather(zr, &all, &mut dst, &offsets), 0);
    assert!(dst == samples);
    zr_close(zr);
}
