//! Any bytes as the files of a store: open it and read all of it in every way.
//!
//! Input: for each of meta.zr, 0.loc, 0.chunk, schema.msgpack and dict.zr its length (u16, little-endian) and its bytes;
//! a length of 0xffff leaves the file out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::Arc;
use zrfs::format::schema::bytes_of;
use zrfs::{OpenOptions, Stream};
use zrfs_fuzz::{Memory, take};

/// Records are read as far as they claim fewer bytes than this: a claim of up to 2 GiB is allowed.
const LARGE: u32 = 1 << 16;

fuzz_target!(|data: &[u8]| {
    let mut data = data;
    let dir = Path::new("/store");
    let mut files = Memory::default();
    for name in ["meta.zr", "0.loc", "0.chunk", "schema.msgpack", "dict.zr"] {
        let Ok(length) = take(&mut data, 2).try_into().map(u16::from_le_bytes) else { break };
        if length != u16::MAX {
            files.put(dir.join(name), take(&mut data, length.into()));
        }
    }
    for salvage in [false, true] {
        let options = OpenOptions::new().storage(Arc::new(files.clone())).salvage(salvage);
        let Ok(stream) = Stream::open_with(&options, dir) else { continue };
        let store = stream.store();
        let length = store.len();
        assert!(store.read(length).is_err(), "there is no record at the length");
        let indices: Vec<u64> = (0..length.min(16)).rev().collect();
        let mut readable = Vec::new();
        for &i in &indices {
            let Ok(entry) = store.entry(i) else { continue };
            if entry.logic_length > LARGE {
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
    }
});
