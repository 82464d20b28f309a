#![allow(clippy::indexing_slicing, clippy::unwrap_used)]
use super::*;
use crate::error::Error;
use crate::format::dtype::DType;
use crate::format::npy::header_bytes;
use crate::pack::array::tests::{error, gzip, read_all, temp};

/// What `np.save(x, np.arange(6, dtype='<i2').reshape(2, 3))` wrote (numpy 2.4), and the same in Fortran order.
const C_ORDER: &[u8] = b"\x93NUMPY\x01\x00v\x00{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }                                                          \n\0\0\x01\0\x02\0\x03\0\x04\0\x05\0";
const FORTRAN: &[u8] = b"\x93NUMPY\x01\x00v\x00{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }                                                           \n\0\0\x03\0\x01\0\x04\0\x02\0\x05\0";

fn npy(dtype: &str, shape: &[u64], bytes: usize) -> Vec<u8> {
    let mut npy = header_bytes(&DType::parse(dtype).unwrap(), shape);
    npy.extend((0..bytes).map(|i| i as u8));
    npy
}

#[test]
fn both_orders_give_the_same_records() {
    for file in [C_ORDER, FORTRAN] {
        let (_dir, path) = temp("x.npy", file);
        for step in 1..4 {
            let mut source = open(&path).unwrap();
            assert_eq!(read_all(&mut *source, step).unwrap(), [0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0]);
        }
        let mut source = open(&path).unwrap();
        let mut one = [0; 6];
        source.read_at(1, &mut one).unwrap();
        assert_eq!(one, [3, 0, 4, 0, 5, 0]);
    }
}

#[test]
fn every_plain_dtype() {
    for (dtype, size) in [
        (">f4", 4),
        ("|b1", 1),
        ("|V2", 2),
        ("<U5", 20),
        ("|S3", 3),
        ("<c16", 16),
        ("<M8[ns]", 8),
        ("<M8", 8),
        ("<f16", 16),
    ] {
        let file = npy(dtype, &[3, 2], 6 * size);
        let (_dir, path) = temp("x.npy", &file);
        let mut source = open(&path).unwrap();
        assert_eq!(source.records().dtype().as_str(), dtype);
        assert_eq!(read_all(&mut *source, 2).unwrap(), file[file.len() - 6 * size..], "{dtype}");
    }
}

#[test]
fn empty_and_scalar_shapes() {
    let (_dir, path) = temp("x.npy", &npy("<f4", &[0, 3], 0));
    let mut source = open(&path).unwrap();
    assert_eq!((source.records().len(), source.records().item_shape()), (0, [3].as_slice()));
    assert_eq!(source.read(9, &mut Vec::new()).unwrap(), 0);
    assert!(matches!(source.read_at(0, &mut [0; 12]), Err(Error::OutOfRange { .. })));

    let (_dir, path) = temp("x.npy", &npy("<f4", &[], 4));
    assert!(error(open(&path)).contains("a[None]"));
    let (_dir, path) = temp("x.npy", &npy("<f4", &[5, 0], 0));
    assert!(error(open(&path)).contains("0 bytes"));
    let (_dir, path) = temp("x.npy", &npy("<f4", &[1, 1 << 30], 0));
    assert!(error(open(&path)).contains("2147483648"));
}

#[test]
fn the_length_must_be_exact() {
    for file in [C_ORDER, FORTRAN] {
        for end in 128..file.len() {
            let (_dir, path) = temp("x.npy", &file[..end]);
            let error = error(open(&path));
            assert!(error.contains("140 bytes") && error.contains(&format!("byte {end}")), "{error}");
        }
        let (_dir, path) = temp("x.npy", &[file, b"more"].concat());
        let error = error(open(&path));
        assert!(error.contains("140 bytes") && error.contains("144 bytes") && error.contains("(2, 3)"), "{error}");
    }
    // A header alone cannot make anything be allocated, whatever it promises.
    let (_dir, path) = temp("x.npy", &npy("<f8", &[1 << 40, 1 << 10], 8));
    assert!(error(open(&path)).contains("cut short"));
    for start in
        [&b"\x93NUMPY\x02\x00\xff\xff\xff\xff"[..], b"\x93NUMPY\x03\x00\0\0\x10\0{", b"\x93NUMPY\x01\x00\0\0{}"]
    {
        let (_dir, path) = temp("x.npy", start);
        assert!(matches!(open(&path), Err(Error::Invalid(_))));
    }
}

#[test]
fn flipped_bytes_never_panic() {
    for file in [C_ORDER, FORTRAN] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        for at in 0..file.len() {
            for mask in [1, 8, 32, 128, 255] {
                let mut bad = file.to_vec();
                bad[at] ^= mask;
                std::fs::write(&path, &bad).unwrap();
                if let Ok(mut source) = open(&path) {
                    let all = read_all(&mut *source, 2).unwrap();
                    assert_eq!(all.len() as u64, source.records().total_bytes());
                }
                if let Ok(mut source) = from_stream(Box::new(std::io::Cursor::new(bad)), &path) {
                    let _ = read_all(&mut *source, 2);
                }
            }
        }
    }
}

#[test]
fn fortran_order_needs_a_file() {
    let (_dir, path) = temp("x.npy.gz", &gzip(FORTRAN));
    assert!(error(crate::pack::array::open(&path)).contains("decompress it first"));
    // One long dimension is the same in both orders.
    let flat = String::from_utf8_lossy(&FORTRAN[10..128]).replace("(2, 3)", "(6, 1)");
    let flat = [&FORTRAN[..10], flat.as_bytes(), &FORTRAN[128..]].concat();
    let (_dir, path) = temp("x.npy.gz", &gzip(&flat));
    assert_eq!(read_all(&mut *crate::pack::array::open(&path).unwrap(), 4).unwrap(), FORTRAN[128..]);
}
