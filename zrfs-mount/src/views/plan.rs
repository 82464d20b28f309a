//! Where everything stands in a slab, and all of its bytes but the records.

use rustix::io::Errno;
use std::ops::Range;
use zrfs_abi::{ALIGN, MAGIC, SlabHeader, SlabStream, VERSION, Zero};

/// What a stream puts into a slab.
#[derive(Debug, Clone)]
pub struct Part {
    /// The stream's number.
    pub number: u16,
    /// Its name.
    pub name: String,
    /// `KIND_…`.
    pub kind: u32,
    /// numpy's string for the type of items, empty for bytes without one.
    pub dtype: String,
    /// Bytes of an item.
    pub itemsize: u64,
    /// Bytes of each record, where all have the same.
    pub record_bytes: Option<u64>,
    /// Where each record begins and the last one ends, where they have different lengths.
    pub offsets: Vec<u64>,
    /// As [`SlabStream::shapes`] has it.
    pub shapes: Vec<u64>,
}

impl Part {
    /// Bytes of `count` records.
    fn data_bytes(&self, count: u64) -> Option<u64> {
        match self.record_bytes {
            Some(bytes) => bytes.checked_mul(count),
            None => Some(self.offsets.last().copied().unwrap_or(0)),
        }
    }
}

/// The layout of a slab.
#[derive(Debug)]
pub struct Plan {
    /// The bytes in use.
    pub bytes: u64,
    /// Where the records of each part stand.
    pub data: Vec<Range<u64>>,
    streams: Vec<SlabStream>,
    indices: u64,
    /// Where the front ends: all that is not records.
    front: u64,
}

/// Gives places, one after the other.
struct Cursor(u64);

impl Cursor {
    fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let at = self.0.checked_next_multiple_of(align)?;
        self.0 = at.checked_add(bytes)?;
        Some(at)
    }
}

impl Plan {
    /// The layout for `count` records of these streams.
    ///
    /// # Errors
    /// `ENOSPC` if no memory is so large.
    pub fn new(parts: &[Part], count: u64) -> Result<Plan, Errno> {
        Self::try_new(parts, count).ok_or(Errno::NOSPC)
    }

    fn try_new(parts: &[Part], count: u64) -> Option<Plan> {
        let numbers = |n: u64| n.checked_mul(8);
        let mut at = Cursor((SlabHeader::BYTES + parts.len() * SlabStream::BYTES) as u64);
        let indices = at.take(numbers(count)?, 8)?;
        let mut streams = Vec::with_capacity(parts.len());
        for part in parts {
            let shapes_bytes = numbers(part.shapes.len() as u64)?;
            let stream = SlabStream {
                number: part.number.into(),
                kind: part.kind,
                data: 0,
                data_bytes: part.data_bytes(count)?,
                offsets: at.take(numbers(count.checked_add(1)?)?, 8)?,
                shapes: at.take(shapes_bytes, 8)?,
                shapes_bytes,
                itemsize: part.itemsize,
                dtype: at.take(part.dtype.len() as u64, 1)?,
                name: at.take(part.name.len() as u64, 1)?,
                dtype_len: part.dtype.len() as u32,
                name_len: part.name.len() as u32,
                record_bytes: part.record_bytes.unwrap_or(0),
                zero: Zero,
            };
            streams.push(stream);
        }
        let front = at.0;
        let mut data = Vec::with_capacity(parts.len());
        for stream in &mut streams {
            stream.data = at.take(stream.data_bytes, ALIGN)?;
            data.push(stream.data..stream.data + stream.data_bytes);
        }
        // Everything can be a length in memory from here on.
        isize::try_from(at.0).ok()?;
        Some(Plan { bytes: at.0, data, streams, indices, front })
    }

    /// Writes all that is not records to the front of a slab of at least [`bytes`](Plan::bytes); `seal`, `length` and `step`
    /// are as in [`SlabHeader`].
    pub fn write(&self, to: &mut [u8], parts: &[Part], indices: &[u64], [seal, length, step]: [u64; 3]) {
        let count = indices.len() as u64;
        let header = SlabHeader {
            magic: MAGIC,
            version: VERSION,
            streams: parts.len() as u32,
            seal,
            count,
            bytes: self.bytes,
            indices: self.indices,
            length,
            step,
        };
        let Some(front) = to.get_mut(..self.front as usize) else { return };
        front[..SlabHeader::BYTES].copy_from_slice(&header.encode());
        put(front, self.indices, indices.iter().copied());
        for (k, (stream, part)) in self.streams.iter().zip(parts).enumerate() {
            let at = SlabHeader::BYTES + k * SlabStream::BYTES;
            front[at..at + SlabStream::BYTES].copy_from_slice(&stream.encode());
            match part.record_bytes {
                Some(bytes) => put(front, stream.offsets, (0..=count).map(|k| k * bytes)),
                None => put(front, stream.offsets, part.offsets.iter().copied()),
            }
            put(front, stream.shapes, part.shapes.iter().copied());
            for (at, text) in [(stream.dtype, &part.dtype), (stream.name, &part.name)] {
                front[at as usize..][..text.len()].copy_from_slice(text.as_bytes());
            }
        }
    }
}

/// Writes numbers from `at` on, where there is room for them.
fn put(to: &mut [u8], at: u64, numbers: impl Iterator<Item = u64>) {
    let Some(to) = to.get_mut(at as usize..) else { return };
    for (to, number) in to.chunks_exact_mut(8).zip(numbers) {
        to.copy_from_slice(&number.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zrfs_abi::{KIND_BYTES, KIND_DENSE};

    fn part(kind: u32) -> Part {
        Part {
            number: 3,
            name: "image".into(),
            kind,
            dtype: if kind == KIND_DENSE { "<f4".into() } else { String::new() },
            itemsize: 4,
            record_bytes: (kind == KIND_DENSE).then_some(20),
            offsets: if kind == KIND_DENSE { Vec::new() } else { vec![0, 1, 5000] },
            shapes: if kind == KIND_DENSE { vec![5] } else { Vec::new() },
        }
    }

    #[test]
    fn records_are_aligned_and_nothing_overlaps() {
        let parts = [part(KIND_DENSE), part(KIND_BYTES), part(KIND_DENSE)];
        let plan = Plan::new(&parts, 2).unwrap();
        assert_eq!(plan.data, [4096..4136, 8192..13192, 16384..16424]);
        assert_eq!(plan.bytes, 16424);
        let mut slab = vec![0xff; 20000];
        plan.write(&mut slab, &parts, &[7, 9], [11, 100, 5]);
        let header = SlabHeader::decode_front(&slab).unwrap();
        assert_eq!((header.magic, header.streams, header.count, header.seal), (MAGIC, 3, 2, 11));
        assert_eq!((header.length, header.step, header.bytes), (100, 5, 16424));
        let number = |at: u64| u64::from_ne_bytes(slab[at as usize..][..8].try_into().unwrap());
        assert_eq!([number(header.indices), number(header.indices + 8)], [7, 9]);
        let stream = |k: usize| SlabStream::decode_front(&slab[SlabHeader::BYTES + k * SlabStream::BYTES..]).unwrap();
        let [dense, bytes] = [stream(0), stream(1)];
        assert_eq!([0, 8, 16].map(|k| number(dense.offsets + k)), [0, 20, 40]);
        assert_eq!([0, 8, 16].map(|k| number(bytes.offsets + k)), [0, 1, 5000]);
        assert_eq!((number(dense.shapes), dense.shapes_bytes, bytes.shapes_bytes), (5, 8, 0));
        assert_eq!(&slab[dense.dtype as usize..][..dense.dtype_len as usize], b"<f4");
        assert_eq!(&slab[bytes.name as usize..][..bytes.name_len as usize], b"image");
        assert!(slab[4096..].iter().all(|&b| b == 0xff), "the records are not its business");
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let huge = Part { record_bytes: Some(1 << 40), ..part(KIND_DENSE) };
        for count in [1 << 24, 1 << 61, u64::MAX] {
            assert_eq!(Plan::new(std::slice::from_ref(&huge), count).map(|p| p.bytes), Err(Errno::NOSPC), "{count}");
        }
        assert_eq!(Plan::new(&[], 0).unwrap().bytes, 64);
    }
}
