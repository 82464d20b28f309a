//! The functions as a careless or hostile caller would use them, and the header against what is here.

use super::batch::*;
use super::code::*;
use super::draw::*;
use super::layout::*;
use super::loader::*;
use super::records::*;
use super::sampler::*;
use super::source::*;
use super::writer::*;
use std::ffi::{CStr, CString, c_char};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::{null, null_mut};

fn last_error() -> String {
    // SAFETY: a text that lives until the next failure of this thread.
    unsafe { CStr::from_ptr(zrfs_last_error()) }.to_str().unwrap().into()
}

fn text(path: &Path) -> CString {
    CString::new(path.to_str().unwrap()).unwrap()
}

/// The header's text, compiled after which each of `checks` must hold.
fn compile(compiler: &str, args: &[&str], checks: &[String]) {
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
    let mut source = String::from("#include <zrfs.h>\n#include <stddef.h>\n");
    for (k, check) in checks.iter().enumerate() {
        source += &format!("typedef char check_{k}[({check}) ? 1 : -1]; /* {check} */\n");
    }
    source += "int main(void) { return 0; }\n";
    let mut child = Command::new(compiler)
        .args(args)
        .args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", include, "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{compiler}: {e}"));
    child.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{compiler} {args:?}:\n{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn the_header_has_the_structs_and_numbers_that_are_here() {
    let mut checks = Vec::new();
    for (name, size, fields) in [
        Info::LAYOUT,
        StreamInfo::LAYOUT,
        CreateOptions::LAYOUT,
        LoaderOptions::LAYOUT,
        BatchInfo::LAYOUT,
        Part::LAYOUT,
    ] {
        checks.push(format!("sizeof({name}) == {size}"));
        for (field, offset, size) in fields {
            checks.push(format!("offsetof({name}, {field}) == {offset}"));
            checks.push(format!("sizeof((({name} *)0)->{field}) == {size}"));
        }
    }
    checks.extend(NAMES.iter().map(|(name, code)| format!("ZRFS_E_{name} == {code}")));
    for codec in crate::format::Codec::ALL {
        checks.push(format!("ZRFS_{} == {}", codec.name().to_uppercase(), codec.number()));
    }
    for (name, number) in [
        ("OK", 0),
        ("BYTES", BYTES),
        ("DENSE", DENSE),
        ("RAGGED", RAGGED),
        ("MAX_DIMS", MAX_DIMS as u32),
        ("LOADER_ANY_ORDER", ANY_ORDER),
        ("LOADER_NO_WORKERS", NO_WORKERS),
    ] {
        checks.push(format!("ZRFS_{name} == {number}"));
    }
    let header = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/include/zrfs.h")).unwrap();
    let defined = header.lines().filter(|line| line.trim_start().starts_with("ZRFS_E_")).count();
    assert_eq!(defined, NAMES.len(), "a code of the header is not here");
    assert!(checks.len() > 90, "{}", checks.len());
    compile("cc", &["-std=c99", "-xc"], &checks);
    if Command::new("c++").arg("--version").output().is_ok() {
        compile("c++", &["-std=c++11", "-xc++"], &checks);
    }
}

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

#[test]
fn samplers_take_anything() {
    for (length, batch, mode) in [(10, 4, 3), (0, 4, 0), (0, 4, 1), (10, 0, 2), (0, 0, 2), (0, 0, 0)] {
        assert!(cinit(length, batch, mode, 1).is_null(), "{length} {batch} {mode}");
    }
    let mut out = [7u64; 8];
    for (length, batch, mode) in [(0, 4, 2), (10, 0, 0), (10, 0, 1)] {
        let s = cinit(length, batch, mode, 1);
        cseek(s, u64::MAX);
        // SAFETY: a slice of our own.
        assert_eq!(unsafe { cnext(s, out.as_mut_ptr(), 8) }, 0);
        cdeinit(s);
    }
    let s = cinit(10, 4, 2, 123);
    // SAFETY: a slice of our own; null is found out.
    unsafe {
        assert_eq!((cnext(s, out.as_mut_ptr(), 3), cnext(s, null_mut(), 4), out), (0, 0, [7; 8]));
        assert_eq!((cnext(s, out.as_mut_ptr(), usize::MAX), out), (4, [1, 4, 3, 2, 7, 7, 7, 7]));
        cseek(s, 5);
        let odd = out.as_mut_ptr().cast::<u8>().add(4).cast::<u64>();
        assert_eq!((cnext(s, odd, 4), odd.read_unaligned(), odd.add(3).read_unaligned()), (4, 8, 4));
    }
    cdeinit(s);
    cdeinit(s);
    cseek(s, 3);
    // SAFETY: a slice of our own.
    assert_eq!(unsafe { cnext(s, out.as_mut_ptr(), 8) }, 0);
    // A step that a serial generator does not reach in a lifetime, and back.
    let s = cinit(1 << 40, 1 << 30, 1, 5);
    cseek(s, 1 << 40);
    // SAFETY: null is not written to.
    assert_eq!(unsafe { cnext(s, null_mut(), usize::MAX) }, 0);
    assert!(last_error().contains("cannot reach"), "{}", last_error());
    cseek(s, 0);
    cdeinit(s);
}

/// A dense store of 100 records of 2×3 floats; record k is full of k.
fn dense(path: &Path) {
    let mut writer = null_mut();
    let options =
        CreateOptions { size: size_of::<CreateOptions>() as u64, codec: 1, level: 5, dict: null(), dict_len: 0 };
    let bytes: Vec<u8> = (0..100).flat_map(|k| [k as f32; 6]).flat_map(f32::to_le_bytes).collect();
    let mut first = 9;
    // SAFETY: values, slices and texts of our own.
    unsafe {
        let path = text(path);
        let create = |shape: &[u64], writer| {
            zrfs_create_dense(path.as_ptr(), c"<f4".as_ptr(), shape.as_ptr(), shape.len() as u32, &options, writer)
        };
        assert_eq!(create(&[2, 3], null_mut()), BUFFER);
        assert_eq!(create(&[2, 3], &mut writer), 0, "{}", last_error());
        assert_eq!(create(&[2, 3], &mut null_mut()), EXISTS);
        assert_eq!(zrfs_append(writer, bytes.as_ptr().cast(), bytes.len() - 1, null_mut()), INVALID);
        assert_eq!(zrfs_append(writer, bytes.as_ptr().cast(), bytes.len(), &mut first), 0);
        assert_eq!(first, 0);
        assert_eq!(zrfs_open_dense(path.as_ptr(), &mut null_mut()), LOCKED);
    }
    assert_eq!(zrfs_writer_sync(writer), 0);
    assert_eq!((zrfs_writer_close(writer), zrfs_writer_close(writer), zrfs_writer_sync(writer)), (0, HANDLE, HANDLE));
}

#[test]
fn a_source_says_what_it_has_and_gives_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("images.zr");
    dense(&path);
    let mut source = null_mut();
    let path = text(&path);
    // SAFETY: values, slices and texts of our own, null where it says so.
    unsafe {
        assert_eq!(zrfs_open(null(), &mut source), INVALID);
        assert_eq!(zrfs_open(path.as_ptr(), null_mut()), BUFFER);
        assert_eq!(zrfs_open(c"/nowhere".as_ptr(), &mut source), NOT_A_STORE);
        assert!(source.is_null() && last_error().starts_with("/nowhere is not a zrfs store"), "{}", last_error());
        assert_eq!(zrfs_open(path.as_ptr(), &mut source), 0);

        let mut info: Info = std::mem::zeroed();
        assert_eq!(zrfs_get_info(source, &mut info), INVALID);
        assert!(last_error().contains("sizeof, which is 24"), "{}", last_error());
        info.size = 24;
        assert_eq!(zrfs_get_info(source, &mut info), 0);
        assert_eq!((info.size, info.records, info.streams, info.is_dataset), (24, 100, 1, 0));
        let mut stream: StreamInfo = std::mem::zeroed();
        stream.size = size_of::<StreamInfo>() as u64 + 8;
        let mut room = (stream, 77u64);
        assert_eq!(zrfs_get_stream_info(source, 0, &mut room.0), 0, "a caller of a later version");
        let stream = room.0;
        assert_eq!((stream.records, stream.record_bytes, stream.item_bytes), (100, 24, 4));
        assert_eq!((stream.kind, stream.codec, stream.ndim, &stream.shape[..3]), (DENSE, 1, 2, &[2, 3, 0][..]));
        assert_eq!(CStr::from_ptr(stream.dtype.as_ptr()).to_str(), Ok("<f4"));
        assert_eq!(CStr::from_ptr(stream.name.as_ptr()).to_str(), Ok("images"));
        assert_eq!((room.1, zrfs_get_stream_info(source, 1, &mut room.0)), (77, INVALID));
        let mut number = 9;
        assert_eq!((zrfs_find_stream(source, c"images".as_ptr(), &mut number), number), (0, 0));
        assert_eq!(zrfs_find_stream(source, c"labels".as_ptr(), &mut number), INVALID);
        assert_eq!(zrfs_find_stream(source, c"\xff".as_ptr(), &mut number), INVALID);

        let indices = [5u64, 99, 5];
        let (mut lengths, mut shape, mut ndim) = ([0; 3], [0; 4], 0);
        assert_eq!((zrfs_lengths(source, 0, indices.as_ptr(), 3, lengths.as_mut_ptr()), lengths), (0, [24; 3]));
        assert_eq!(zrfs_record_shape(source, 0, 5, shape.as_mut_ptr(), 4, &mut ndim), 0);
        assert_eq!((shape, ndim), ([2, 3, 0, 0], 2));
        assert_eq!(zrfs_record_shape(source, 0, 5, shape.as_mut_ptr(), 1, &mut ndim), BUFFER);
        assert_eq!(zrfs_record_shape(source, 0, 100, shape.as_mut_ptr(), 4, &mut ndim), INDEX);
        let mut dst = [0f32; 18];
        let mut gather =
            |len, offsets| zrfs_gather(source, 0, indices.as_ptr(), 3, dst.as_mut_ptr().cast(), len, offsets);
        assert_eq!((gather(71, null()), gather(72, null())), (BUFFER, 0));
        assert_eq!(gather(72, [48, 0, 24].as_ptr()), 0);
        assert_eq!(gather(72, [0, 0, 24].as_ptr()), INVALID);
        assert_eq!(gather(72, [48, 0, 24].as_ptr()), 0);
        assert_eq!((dst[0], dst[6], dst[17]), (99.0, 5.0, 5.0));

        // Appended to, and seen after a refresh.
        let (mut writer, mut records) = (null_mut(), 0);
        assert_eq!(zrfs_open_dense(path.as_ptr(), &mut writer), 0);
        assert_eq!(zrfs_append(writer, dst.as_ptr().cast(), 48, &mut records), 0);
        assert_eq!((records, zrfs_writer_close(writer)), (100, 0));
        assert_eq!((zrfs_refresh(source, &mut records), records), (0, 102));
        zrfs_close(source);
        assert_eq!(zrfs_refresh(source, null_mut()), HANDLE);
    }
    zrfs_close(source);
    zrfs_close(null_mut());
}

#[test]
fn damage_of_a_dense_store_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("numbers.zr");
    let mut writer = null_mut();
    let options =
        CreateOptions { size: size_of::<CreateOptions>() as u64, codec: 0, level: 0, dict: null(), dict_len: 0 };
    let values = [1u8; 80];
    let name = text(&path);
    let open = |checked: bool| {
        let mut source = null_mut();
        let open = if checked { zrfs_open_checked } else { zrfs_open };
        // SAFETY: a text and a place of our own.
        assert_eq!(unsafe { open(name.as_ptr(), &mut source) }, 0, "{}", last_error());
        source
    };
    let gather = |source, index: u64, offsets: Option<&u64>| {
        let mut dst = [0u8; 8];
        let offsets = offsets.map_or(null(), |offset| &raw const *offset);
        // SAFETY: values and slices of our own.
        unsafe { zrfs_gather(source, 0, &index, 1, dst.as_mut_ptr().cast(), 8, offsets) }
    };
    // SAFETY: values, slices and texts of our own.
    unsafe {
        assert_eq!(zrfs_create_dense(name.as_ptr(), c"<i8".as_ptr(), null(), 0, &options, &mut writer), 0);
        assert_eq!(zrfs_append(writer, values.as_ptr().cast(), 80, null_mut()), 0);
    }
    assert_eq!(zrfs_writer_close(writer), 0);

    // A bit of record 3.
    let chunk = path.join("0.chunk");
    let mut bytes = std::fs::read(&chunk).unwrap();
    bytes[3 * 8 + 5] ^= 4;
    std::fs::write(&chunk, &bytes).unwrap();
    let (plain, checked) = (open(false), open(true));
    assert_eq!((gather(plain, 3, None), gather(checked, 2, None), gather(checked, 2, Some(&0))), (0, 0, 0));
    assert_eq!((gather(checked, 3, None), gather(checked, 3, Some(&0))), (CORRUPT, CORRUPT));
    assert!(last_error().starts_with("record 3"), "{}", last_error());
    zrfs_close(plain);
    zrfs_close(checked);

    // The lengths of records 4, longer than all others, and 5, shorter.
    let table = path.join("0.loc");
    let mut bytes = std::fs::read(&table).unwrap();
    for (index, length) in [(4, 16u32), (5, 4)] {
        bytes[index * 16 + 4..][..4].copy_from_slice(&length.to_le_bytes());
        bytes[index * 16 + 8..][..4].copy_from_slice(&length.to_le_bytes());
    }
    std::fs::write(&table, &bytes).unwrap();
    let source = open(false);
    for index in [4, 5] {
        assert_eq!(
            (gather(source, index, None), gather(source, index, Some(&0))),
            (CORRUPT, CORRUPT),
            "{}",
            last_error()
        );
        assert!(last_error().starts_with(&format!("record {index}")), "{}", last_error());
    }
    assert_eq!(gather(source, 6, None), 0);
    zrfs_close(source);
}

#[test]
fn a_writer_is_told_what_is_no_store() {
    let dir = tempfile::tempdir().unwrap();
    dense(&dir.path().join("numbers"));
    let file = dir.path().join("file");
    std::fs::write(&file, "text").unwrap();
    for (path, why) in [(dir.path(), "dataset"), (&file, "file"), (&dir.path().join("absent"), "nothing of that name")]
    {
        // SAFETY: a text and a place of our own.
        assert_eq!(unsafe { zrfs_open_dense(text(path).as_ptr(), &mut null_mut()) }, NOT_A_STORE, "{why}");
        assert!(last_error().contains(why), "{}", last_error());
    }
}

fn loader_options() -> LoaderOptions {
    // SAFETY: 0 is a value of each member.
    LoaderOptions { size: size_of::<LoaderOptions>() as u64, ..unsafe { std::mem::zeroed() } }
}

/// The step and first values of the next batch.
fn next(loader: *mut zrfs_loader) -> Result<(u64, Vec<f32>), i32> {
    let mut batch = null_mut();
    // SAFETY: values of our own, and what the library says there is.
    unsafe {
        match zrfs_loader_next(loader, &mut batch) {
            0 => {}
            code => return Err(code),
        }
        let (mut info, mut part): (BatchInfo, Part) = std::mem::zeroed();
        (info.size, part.size) = (size_of::<BatchInfo>() as u64, size_of::<Part>() as u64);
        assert_eq!((zrfs_get_batch_info(batch, &mut info), zrfs_batch_part(batch, 0, &mut part)), (0, 0));
        assert_eq!(zrfs_batch_part(batch, info.parts, &mut part), INVALID);
        assert_eq!((part.kind, part.ndim, part.bytes, info.records), (DENSE, 3, 8 * 24, 8));
        assert_eq!(std::slice::from_raw_parts(part.shapes, 3), [8, 2, 3]);
        assert!(part.shape_starts.is_null() && part.data.addr() % 4096 == 0);
        assert_eq!(CStr::from_ptr(part.dtype).to_str(), Ok("<f4"));
        let values = std::slice::from_raw_parts(part.data.cast::<f32>(), 48);
        let indices = std::slice::from_raw_parts(info.indices, 8);
        let offsets = std::slice::from_raw_parts(part.offsets, 9);
        assert!(indices.iter().enumerate().all(|(k, &i)| values[6 * k] == i as f32 && offsets[k] == 24 * k as u64));
        part.data.cast::<f32>().write(-1.0);
        let found = (info.step, values.iter().step_by(6).skip(1).copied().collect());
        zrfs_batch_release(batch);
        assert_eq!(zrfs_get_batch_info(batch, &mut info), HANDLE);
        zrfs_batch_release(batch);
        Ok(found)
    }
}

#[test]
fn a_loader_gives_batches_resumes_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("images.zr");
    dense(&path);
    let (mut source, mut loader) = (null_mut(), null_mut());
    let mut options = loader_options();
    options.sampler = c"cyclic,batch=8,seed=3".as_ptr();
    // SAFETY: values, slices and texts of our own, null where it says so.
    unsafe {
        assert_eq!(zrfs_open(text(&path).as_ptr(), &mut source), 0);
        let create = |options: &LoaderOptions, loader| zrfs_loader_create(&source, null(), 1, options, loader);
        assert_eq!(create(&options, null_mut()), BUFFER);
        assert_eq!(zrfs_loader_create(null(), null(), 1, &options, &mut loader), BUFFER);
        assert_eq!(zrfs_loader_create(null(), null(), 0, null(), &mut loader), INVALID);
        assert_eq!(create(&LoaderOptions { flags: 8, ..options }, &mut loader), INVALID);
        assert_eq!(create(&LoaderOptions { reserved: 1, ..options }, &mut loader), INVALID);
        assert!(last_error().contains("reserved"), "{}", last_error());
        assert_eq!(create(&LoaderOptions { workers: 2, flags: NO_WORKERS, ..options }, &mut loader), INVALID);
        assert_eq!(create(&LoaderOptions { size: 3, ..options }, &mut loader), INVALID);
        assert_eq!(create(&LoaderOptions { sampler: c"cyclic".as_ptr(), ..options }, &mut loader), INVALID);
        assert!(last_error().contains("batch size is missing"), "{}", last_error());
        // Of a later version: what is not known has to be 0.
        let longer = LoaderOptions { size: options.size + 8, ..options };
        for (rest, code) in [(1u64, INVALID), (0, 0)] {
            let later = [(longer, rest)];
            assert_eq!(create(&later[0].0, &mut loader), code, "{}", last_error());
        }
        zrfs_loader_destroy(loader);
        assert_eq!(create(&options, &mut loader), 0, "{}", last_error());
        zrfs_close(source);
        assert_eq!(create(&options, &mut null_mut()), HANDLE);
    }
    let first: Vec<_> = (0..5).map(|_| next(loader).unwrap()).collect();
    assert_eq!(first.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    let (mut state, mut len) = ([0; 400], 0);
    // SAFETY: values, slices and texts of our own, null where it says so.
    unsafe {
        assert_eq!((zrfs_loader_state(loader, null_mut(), 0, &mut len), len > 100), (BUFFER, true));
        assert_eq!(zrfs_loader_state(loader, state.as_mut_ptr(), len, &mut len), 0);
        let after = next(loader).unwrap();
        assert_eq!(zrfs_loader_seek(loader, 1), 0);
        assert_eq!(next(loader).unwrap(), first[1]);
        assert_eq!(zrfs_loader_restore(loader, state.as_ptr()), 0);
        assert_eq!(next(loader).unwrap(), after);
        assert_eq!(zrfs_loader_restore(loader, c"{}".as_ptr()), INVALID);
        // Another loader, from the text, without threads.
        let mut other = null_mut();
        assert_eq!(zrfs_open(text(&path).as_ptr(), &mut source), 0);
        let options = LoaderOptions { state: state.as_ptr(), flags: NO_WORKERS, ..options };
        assert_eq!(zrfs_loader_create(&source, &c"x".as_ptr(), 1, &options, &mut other), INVALID, "of another stream");
        assert_eq!(zrfs_loader_create(&source, null(), 1, &options, &mut other), 0, "{}", last_error());
        assert_eq!(next(other).unwrap(), after);
        zrfs_loader_destroy(other);
        zrfs_close(source);
    }
    // Ended from another thread while one waits.
    let handle = loader.expose_provenance();
    let waits = std::thread::spawn(move || {
        let loader = std::ptr::with_exposed_provenance_mut(handle);
        while next(loader).is_ok() {}
        next(loader)
    });
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(zrfs_loader_stop(loader), 0);
    assert_eq!(waits.join().unwrap(), Err(ENDED));
    zrfs_loader_destroy(loader);
    assert_eq!((next(loader), zrfs_loader_stop(loader)), (Err(HANDLE), HANDLE));
}

#[test]
fn samplers_by_their_text() {
    let (mut sampler, mut n, mut most) = (null_mut(), 0, 0);
    let mut out = [0; 4];
    // SAFETY: values, slices and texts of our own, null where it says so.
    unsafe {
        assert_eq!(zrfs_sampler_create(c"cyclic,batch=0".as_ptr(), 10, &mut sampler), INVALID);
        assert_eq!(zrfs_sampler_create(c"cyclic,batch=4,seed=123".as_ptr(), 10, &mut sampler), 0);
        assert_eq!((zrfs_sampler_max_batch(sampler, &mut most), most), (0, 4));
        assert_eq!(zrfs_sampler_next(sampler, out.as_mut_ptr(), 3, &mut n), BUFFER);
        assert_eq!(zrfs_sampler_next(sampler, out.as_mut_ptr(), 4, null_mut()), BUFFER);
        assert_eq!((zrfs_sampler_at(sampler, 5, out.as_mut_ptr(), 4, &mut n), n, out), (0, 4, [8, 1, 7, 4]));
        assert_eq!((zrfs_sampler_next(sampler, out.as_mut_ptr(), 4, &mut n), n, out), (0, 4, [1, 4, 3, 2]));
        assert_eq!(zrfs_sampler_seek(sampler, 5), 0);
        assert_eq!((zrfs_sampler_next(sampler, out.as_mut_ptr(), 9, &mut n), out), (0, [8, 1, 7, 4]));
        zrfs_sampler_destroy(sampler);
        assert_eq!(zrfs_sampler_max_batch(sampler, &mut most), HANDLE);
    }
}

#[test]
fn a_panic_is_a_code() {
    assert_eq!(code(|| panic!("on purpose")), INTERNAL);
    assert_eq!(last_error(), "a defect in zrfs: on purpose");
    let other = std::thread::spawn(last_error).join().unwrap();
    assert_eq!(other, "", "a thread has failures of its own");
    // SAFETY: a text of the library's.
    assert_eq!(unsafe { CStr::from_ptr(zrfs_version() as *const c_char) }.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}
