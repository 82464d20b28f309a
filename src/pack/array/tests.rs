#![allow(clippy::indexing_slicing, clippy::unwrap_used)]
use super::*;

/// Everything a source has, read `step` records at a time.
pub(crate) fn read_all(source: &mut dyn ArraySource, step: u64) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let before = all.len() as u64;
        let got = source.read(step, &mut all)?;
        assert_eq!(all.len() as u64, before + got * source.records().record_bytes());
        if got == 0 {
            return Ok(all);
        }
    }
}

/// A file with these bytes, in a directory that lasts as long as the value.
pub(crate) fn temp(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (dir, path)
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn error(result: Result<Box<dyn ArraySource>>) -> String {
    result.map(|s| s.records().clone()).unwrap_err().to_string()
}

fn records(dtype: &str, shape: &[u64]) -> Result<Records, String> {
    Records::new(DType::parse(dtype).unwrap(), shape)
}

#[test]
fn records_of_shapes() {
    let r = records("<f4", &[7, 2, 3]).unwrap();
    assert_eq!((r.len(), r.item_shape(), r.record_bytes(), r.total_bytes()), (7, [2, 3].as_slice(), 24, 168));
    let r = records("<U5", &[7]).unwrap();
    assert_eq!((r.len(), r.item_shape(), r.record_bytes()), (7, [].as_slice(), 20));
    let r = records("|u1", &[0, 3]).unwrap();
    assert!(r.is_empty() && r.item_shape() == [3]);
    let r = records("|u1", &[1, 1 << 31]).unwrap();
    assert_eq!(r.record_bytes(), MAX_RECORD);
    for (dtype, shape, reason) in [
        ("|u1", vec![], "without dimensions"),
        ("|u1", vec![5, 0], "(5, 0): its records have 0 bytes"),
        ("|u1", vec![0, 0], "0 bytes"),
        ("|u1", vec![1, u64::MAX, 2, 0], "0 bytes"),
        ("|u1", vec![1, (1 << 31) + 1], "2147483648 bytes"),
        ("<f4", vec![0, u64::MAX, u64::MAX], "2147483648 bytes"),
        ("<f4", vec![1 << 62], "2^64"),
    ] {
        let error = records(dtype, &shape).unwrap_err();
        assert!(error.contains(reason), "{shape:?}: {error}");
    }
}

#[test]
fn open_tells_by_content() {
    let mut npy = crate::format::npy::header_bytes(&DType::parse("<i2").unwrap(), &[3, 2]);
    npy.extend(0..12);
    let mut idx = b"\0\0\x0b\x02\0\0\0\x03\0\0\0\x02".to_vec();
    idx.extend(0..12);
    for (plain, dtype) in [(&npy, "<i2"), (&idx, ">i2")] {
        for bytes in [plain.clone(), gzip(plain), zstd::encode_all(plain.as_slice(), 1).unwrap()] {
            let (_dir, path) = temp("misnamed.tar", &bytes);
            let mut source = open(&path).unwrap();
            assert_eq!((source.records().dtype().as_str(), source.records().len()), (dtype, 3));
            assert_eq!(source.seekable(), &bytes == plain);
            assert_eq!(read_all(&mut *source, 2).unwrap(), (0..12).collect::<Vec<u8>>());
            assert_eq!(source.read(1, &mut Vec::new()).unwrap(), 0);
            let mut one = [0; 5];
            if source.seekable() {
                source.read_at(1, &mut one).unwrap();
                assert_eq!(one, [4, 5, 6, 7, 0]);
                assert!(matches!(source.read_at(3, &mut one), Err(Error::OutOfRange { index: 3, length: 3 })));
                assert!(matches!(source.read_at(0, &mut one[..3]), Err(Error::BufferTooSmall { need: 4, have: 3 })));
            } else {
                assert!(source.read_at(1, &mut one).unwrap_err().to_string().contains("in order only"));
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    assert!(error(open(dir.path())).contains("directory"));
    assert!(error(open(&dir.path().join("none"))).contains("cannot open"));
}

/// A stream that promises more than it has costs what it has.
#[test]
fn a_promise_allocates_nothing() {
    let idx = gzip(b"\0\0\x08\x02\xff\xff\xff\xff\x80\0\0\0hello");
    let (_dir, path) = temp("x", &idx);
    let mut source = open(&path).unwrap();
    assert_eq!(source.records().record_bytes(), MAX_RECORD);
    let mut dst = b"kept".to_vec();
    let error = source.read(u64::MAX, &mut dst).unwrap_err().to_string();
    assert!(error.contains("byte 17") && error.contains("record 0 of 4294967295"), "{error}");
    assert!(dst == b"kept" && dst.capacity() < 1 << 20, "{}", dst.capacity());
}

#[test]
fn streams_end_exactly() {
    let idx = b"\0\0\x08\x01\0\0\0\x05hello";
    for (bytes, reason) in [
        (gzip(&idx[..11]), "cut short"),
        (gzip(b"\0\0\x08\x01\0\0\0\x05hello!"), "goes on"),
        (gzip(idx)[..gzip(idx).len() - 9].to_vec(), "cannot be decompressed further"),
        (gzip(idx)[..gzip(idx).len() - 1].to_vec(), "cannot be decompressed further"),
        ([gzip(idx), b"junk".to_vec()].concat(), "cannot be decompressed further"),
        (gzip(b"\0\0\x08\x01\0\0\0\0!"), "goes on"),
    ] {
        let (_dir, path) = temp("x.gz", &bytes);
        let error = open(&path).and_then(|mut source| read_all(&mut *source, 2)).unwrap_err();
        assert!(matches!(&error, Error::Corrupt { .. }) && error.to_string().contains(reason), "{error}");
    }
    let mut bad = gzip(idx);
    let crc = bad.len() - 8;
    bad[crc] ^= 1;
    let (_dir, path) = temp("x.gz", &bad);
    let error = open(&path).and_then(|mut source| read_all(&mut *source, 9)).unwrap_err().to_string();
    assert!(error.contains("cannot be decompressed further"), "{error}");
}

/// A file cut while it is read is an error, not a SIGBUS.
#[test]
fn cut_while_reading() {
    let mut npy = crate::format::npy::header_bytes(&DType::parse("|u1").unwrap(), &[5000, 4]);
    npy.resize(npy.len() + 20_000, 1);
    for fortran in [false, true] {
        if fortran {
            let at = npy.windows(5).position(|w| w == b"False").unwrap();
            npy[at..at + 5].copy_from_slice(b"True ");
        }
        let (_dir, path) = temp("x.npy", &npy);
        let mut source = open(&path).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(9000).unwrap();
        let mut dst = vec![9];
        let error = source.read(5000, &mut dst).unwrap_err();
        assert!(matches!(error, Error::Corrupt { offset: 9000, .. }), "{error}");
        assert_eq!(dst, [9]);
        assert!(matches!(source.read_at(4999, &mut [0; 4]), Err(Error::Corrupt { .. })));
    }
}
