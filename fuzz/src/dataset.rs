//! Any bytes as a dataset of two streams, with what its writer was doing when it was interrupted: open it, refresh it, and
//! read all streams.
//!
//! Input: the length of dataset.zr (u16, little-endian, 0xffff for none) and its bytes, whose checksum is made to match;
//! then the two stores as in [`super::store`].

use super::store::{put_store, read_all, seal};
use super::{Memory, take};
use std::path::Path;
use std::sync::Arc;
use zrfs::{Dataset, OpenOptions};

/// Takes any bytes.
pub fn target(data: &[u8]) {
    let (mut data, dir) = (data, Path::new("/dataset"));
    let mut files = Memory::default();
    let length = take(&mut data, 2).try_into().map_or(u16::MAX, u16::from_le_bytes);
    if length != u16::MAX {
        let mut bytes = take(&mut data, length.into()).to_vec();
        seal("dataset.zr", &mut bytes, &[]);
        files.put(dir.join("dataset.zr"), &bytes);
    }
    for name in ["a", "b"] {
        put_store(&mut data, &dir.join(name), &mut files);
    }
    let options = OpenOptions::new().storage(Arc::new(files)).verify_on_read(true);
    let Ok(dataset) = Dataset::open_with(&options, dir) else { return };
    for (name, stream) in dataset.streams() {
        assert_eq!(stream.len(), dataset.len(), "stream {name}");
        read_all(stream);
    }
    if let Ok(length) = dataset.refresh() {
        assert_eq!(length, dataset.len());
    }
}
