//! Any bytes as the files of a store: open it and read all of it in every way.
//!
//! Input: for each of [`FILES`] its length (u16, little-endian) and its bytes; a length of 0xffff leaves the file out.
//! Checksums would stop nearly every change at the door, so they are made to match.

use super::{Memory, take};
use std::path::Path;
use std::sync::Arc;
use zrfs::format::schema::bytes_of;
use zrfs::pack::Progress;
use zrfs::{OpenOptions, Stream};

/// The files of a store, in the order of the input.
pub const FILES: [&str; 9] =
    ["meta.zr", "0.loc", "0.chunk", "schema.msgpack", "dict.zr", "sums.zr", "delete.zr", "shapes.zr", "schema.new"];

/// Records are read as far as they claim fewer bytes than this: a claim of up to 2 GiB is allowed.
const LARGE: u32 = 1 << 16;

/// Takes any bytes.
pub fn target(data: &[u8]) {
    let (mut data, dir) = (data, Path::new("/store"));
    let mut files = Memory::default();
    put_store(&mut data, dir, &mut files);
    for salvage in [false, true] {
        let options = OpenOptions::new().storage(Arc::new(files.clone())).verify_on_read(salvage).salvage(salvage);
        if let Ok(stream) = Stream::open_with(&options, dir) {
            read_all(&stream);
        }
    }
}

/// Takes the files of a store off the front of `data`.
pub fn put_store(data: &mut &[u8], dir: &Path, files: &mut Memory) {
    let mut meta = Vec::new();
    for name in FILES {
        let Ok(length) = take(data, 2).try_into().map(u16::from_le_bytes) else { break };
        if length != u16::MAX {
            let mut bytes = take(data, length.into()).to_vec();
            if name == "meta.zr" {
                meta.clone_from(&bytes);
            }
            seal(name, &mut bytes, &meta);
            files.put(dir.join(name), &bytes);
        }
    }
}

/// Makes the checksums of a file match what it holds now.
pub fn seal(name: &str, bytes: &mut [u8], meta: &[u8]) {
    let end = bytes.len();
    match name {
        "sums.zr" => seal_at(bytes, 0, 28),
        "delete.zr" => {
            // Begun from the header that is there, or it is of no account.
            if let (Some(before), Some(meta)) = (bytes.get_mut(8..40), meta.get(..32)) {
                before.copy_from_slice(meta);
            }
            seal_at(bytes, 0, end.saturating_sub(4));
        }
        "dataset.zr" => seal_at(bytes, 0, end.saturating_sub(4)),
        "shapes.zr" => {
            seal_at(bytes, 0, 32);
            let mut at = 36;
            while let Some(length) = bytes.get(at + 12..at + 16) {
                let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
                let Some(shapes) = bytes.get(at + 20..).and_then(|rest| rest.get(..length)) else { break };
                let crc = crc32fast::hash(&[&bytes[at..at + 16], shapes].concat());
                bytes[at + 16..at + 20].copy_from_slice(&crc.to_le_bytes());
                at += 20 + length;
            }
        }
        _ => {}
    }
}

/// Puts the checksum of the bytes `from..to` behind them.
fn seal_at(bytes: &mut [u8], from: usize, to: usize) {
    let Some(crc) = bytes.get(from..to).map(crc32fast::hash) else { return };
    if let Some(place) = bytes.get_mut(to..to + 4) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

/// Reads a stream in every way there is.
pub fn read_all(stream: &Stream) {
    let store = stream.store();
    let length = store.len();
    assert!(store.read(length).is_err(), "there is no record at the length");
    let indices: Vec<u64> = (0..length.min(16)).rev().collect();
    let (mut readable, mut small) = (Vec::new(), length <= 16);
    for &i in &indices {
        let Ok(entry) = store.entry(i) else { continue };
        if entry.logic_length > LARGE {
            small = false;
            continue;
        }
        if let Ok(bytes) = store.read(i) {
            assert_eq!(bytes.len(), entry.logic_length as usize);
            let mut tail = vec![0; bytes.len()];
            let middle = bytes.len() / 2;
            let n = store.read_range(i, middle as u64, &mut tail).expect("it was read before");
            assert_eq!(tail[..n], bytes[middle..]);
            readable.push((i, bytes));
        }
        if let (Ok(Some(shape)), Some(schema)) = (stream.shape(i), stream.schema()) {
            assert_eq!(bytes_of(&schema.dtype, &shape), Some(entry.logic_length.into()));
            let header = stream.npy_header(i).expect("it has a shape").expect("and a type");
            zrfs::format::npy::NpyHeader::parse(&header).expect("our own headers parse");
        }
    }
    let indices: Vec<u64> = readable.iter().map(|(i, _)| *i).collect();
    let (bytes, _) = store.gather_packed(&indices).expect("each was read before");
    assert!(readable.iter().flat_map(|(_, record)| record).eq(&bytes), "a batch differs from single records");
    if small {
        let mut said = 0;
        if let Ok(found) = stream.verify(&Progress::default(), &mut |_| said += 1) {
            assert!(found.records <= length && said <= 2 * length + 1);
        }
    }
}
