#![allow(clippy::indexing_slicing, clippy::unwrap_used)]
use super::*;
use crate::pack::array::tests::{gzip, temp};

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

fn tar() -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(3);
    tar.append_data(&mut header, "a/b.txt", &b"abc"[..]).unwrap();
    tar.into_inner().unwrap()
}

/// A header from before POSIX: no magic, so only its checksum tells.
fn old_tar() -> Vec<u8> {
    let mut header = tar::Header::new_old();
    header.set_path("a").unwrap();
    header.set_size(0);
    header.set_mode(0o644);
    header.set_cksum();
    let mut tar = header.as_bytes().to_vec();
    assert_ne!(&tar[257..262], b"ustar");
    tar.resize(1536, 0);
    tar
}

#[test]
fn told_by_content_in_any_compression() {
    let npy = [MAGIC.as_slice(), b"\x01\0v\0"].concat();
    let idx = b"\0\0\x08\x01\0\0\0\x05hello".to_vec();
    let skippable = |bytes: &[u8]| [b"\x50\x2a\x4d\x18\x04\0\0\0abcd", zstd(bytes).as_slice()].concat();
    let empty_member = |bytes: &[u8]| [gzip(b""), gzip(bytes)].concat();
    type Make = fn(Compression) -> Kind;
    for (plain, kind) in
        [(npy, Kind::Npy as Make), (idx, Kind::Idx as Make), (tar(), Kind::Tar as Make), (old_tar(), Kind::Tar as Make)]
    {
        for (bytes, compression) in [
            (plain.clone(), Compression::None),
            (gzip(&plain), Compression::Gzip),
            (empty_member(&plain), Compression::Gzip),
            (zstd(&plain), Compression::Zstd),
            (skippable(&plain), Compression::Zstd),
        ] {
            let (_dir, path) = temp("x.jpeg", &bytes);
            assert_eq!(detect(&path).unwrap(), kind(compression));
            let (seen, mut stream) = detect_stream(Box::new(Cursor::new(bytes)), &path).unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            assert_eq!((seen, all), (kind(compression), plain.clone()), "given back decompressed, from its start");
        }
    }
    assert_eq!(detect(tempfile::tempdir().unwrap().path()).unwrap(), Kind::Directory);
}

#[test]
fn refused_with_a_way_out() {
    let mut broken_tar = old_tar();
    broken_tar[0] ^= 1;
    for (bytes, reason) in [
        (b"".to_vec(), "is empty"),
        (b"hello".to_vec(), "does not know; zrfs takes directories"),
        (vec![0; 2048], "empty tar"),
        (broken_tar, "does not know"),
        (b"\xfd7zXZ\0abc".to_vec(), "xz -dc x.tar.xz | zrfs pack - store.zr"),
        (b"BZh91AY".to_vec(), "bzip2 -dc"),
        (b"PK\x03\x04abc".to_vec(), "unzip"),
        (b"\x89HDF\r\n\x1a\nabc".to_vec(), "HDF5"),
        (b"PAR1abc".to_vec(), "Parquet"),
        (b"\x80\x04\x95abc".to_vec(), "pickle"),
        (b"\x1f\x8b\x08".to_vec(), "cannot be decompressed further"),
        (b"\x1f\x8b\x07".to_vec(), "no valid gzip"),
        (b"\x28\xb5\x2f\xfdgarbage".to_vec(), "cannot be decompressed further"),
        (gzip(b"a,b\n1,2\n"), "is compressed; decompressed, it is of a kind"),
        (gzip(&gzip(&tar())), "decompressed, it is no valid gzip"),
        (zstd(&zstd(&tar())), "zstd twice"),
        (gzip(b""), "decompressed, it is empty"),
        (gzip(b"PK\x03\x04"), "zip"),
    ] {
        let (_dir, path) = temp("some-name", &bytes);
        let error = detect(&path).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("some-name"), "{reason}: {error}");
    }
    assert!(detect(Path::new("/dev/null")).unwrap_err().to_string().contains("neither a file nor a directory"));
}

#[test]
fn any_start_is_told_or_refused() {
    for first in 0..=255u8 {
        for second in (0..=255u8).step_by(5) {
            for len in [1, 2, 4, 512] {
                let head: Vec<u8> = [first, second].iter().cycle().take(len).copied().collect();
                let _ = kind(&head, compression(&head));
            }
        }
    }
}
