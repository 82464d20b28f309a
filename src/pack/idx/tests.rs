#![allow(clippy::indexing_slicing, clippy::unwrap_used)]
use super::*;
use crate::error::Error;
use crate::pack::array::tests::{error, gzip, read_all, temp};
use std::io::Cursor;
use std::path::PathBuf;

const SMALL: &[u8] = b"\0\0\x0c\x02\0\0\0\x02\0\0\0\x01\0\0\0\x07\xff\xff\xff\xfe";

#[test]
fn items_keep_their_byte_order() {
    for (code, dtype, size) in
        [(8, "|u1", 1), (9, "|i1", 1), (11, ">i2", 2), (12, ">i4", 4), (13, ">f4", 4), (14, ">f8", 8)]
    {
        let items: Vec<u8> = (0..6 * size).collect();
        let file = [&[0, 0, code, 3, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2], items.as_slice()].concat();
        let (_dir, path) = temp("x", &file);
        let mut source = open(&path).unwrap();
        assert_eq!((source.records().dtype().as_str(), source.records().item_shape()), (dtype, [1, 2].as_slice()));
        assert_eq!(read_all(&mut *source, 2).unwrap(), items);
    }
    let (_dir, path) = temp("x", b"\0\0\x08\x02\0\0\0\0\0\0\0\x03");
    let source = open(&path).unwrap();
    assert!(source.records().is_empty() && source.records().item_shape() == [3]);
}

#[test]
fn refused_with_a_reason() {
    for (file, reason) in [
        (&b""[..], "no IDX file"),
        (b"\0\0\x0a\x01\0\0\0\0", "no IDX file"),
        (b"\0\0\x08\x00", "no IDX file"),
        (b"\0\0\x08\x09", "no IDX file"),
        (b"\0\0\x08\x03\0\0\0\x05\0\0\0\x01", "ends within its IDX header: 12 bytes of 16"),
        (b"\0\0\x08\x02\0\0\0\x05\0\0\0\0", "0 bytes"),
        (b"\0\0\x08\x02\0\0\0\x01\xff\xff\xff\xff", "2147483648"),
        (b"\0\0\x0e\x04\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "2147483648"),
        (&SMALL[..19], "cut short"),
        (b"\0\0\x08\x01\0\0\0\x01ab", "9 bytes long, but it has 10 bytes"),
    ] {
        let (_dir, path) = temp("x", file);
        let error = error(open(&path));
        assert!(error.contains(reason), "{file:?}: {error}");
    }
}

#[test]
fn flipped_bytes_never_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let read = |stream: Vec<u8>| crate::pack::detect::detect_stream(Box::new(Cursor::new(stream)), &path);
    for file in [SMALL.to_vec(), gzip(SMALL)] {
        for at in 0..file.len() {
            for mask in [1, 2, 4, 8, 16, 32, 64, 128, 255] {
                let mut bad = file.clone();
                bad[at] ^= mask;
                if bad.starts_with(&[0, 0]) {
                    std::fs::write(&path, &bad).unwrap();
                    let _ = open(&path).map(|mut source| read_all(&mut *source, 1).unwrap());
                }
                let Ok((_, stream)) = read(bad) else { continue };
                let _ = from_stream(stream, &path).and_then(|mut source| read_all(&mut *source, 1));
            }
        }
    }
}

fn fashion_mnist(name: &str) -> PathBuf {
    let path = Path::new("/usr/share/datasets/fashion-mnist").join(name);
    assert!(path.exists(), "{} is missing: apt-get install dataset-fashion-mnist", path.display());
    path
}

/// Real files, as Debian packs them. The checksums are numpy's and zlib's.
#[test]
fn reads_fashion_mnist() {
    for (name, len, item_shape, crc) in [
        ("train-images-idx3-ubyte.gz", 60_000, &[28, 28][..], 0xae65dccd),
        ("train-labels-idx1-ubyte.gz", 60_000, &[], 0x2ed6e46a),
        ("t10k-images-idx3-ubyte.gz", 10_000, &[28, 28], 0x12728439),
        ("t10k-labels-idx1-ubyte.gz", 10_000, &[], 0x242bc73f),
    ] {
        let mut source = crate::pack::array::open(&fashion_mnist(name)).unwrap();
        let records = source.records().clone();
        assert_eq!((records.dtype().as_str(), records.len(), records.item_shape()), ("|u1", len, item_shape));
        let all = read_all(&mut *source, 4096).unwrap();
        assert_eq!((all.len() as u64, crc32fast::hash(&all)), (records.total_bytes(), crc), "{name}");
    }
    let labels = std::fs::read(fashion_mnist("t10k-labels-idx1-ubyte.gz")).unwrap();
    let (_dir, path) = temp("cut.gz", &labels[..labels.len() / 2]);
    let cut = read_all(&mut *crate::pack::array::open(&path).unwrap(), 100);
    assert!(matches!(cut, Err(Error::Corrupt { .. })));
}
