//! `shapes.zr`: the shapes of records that were appended to a ragged store since its schema was last written.
//!
//! ```text
//! head   0 magic 8 · 8 bytes of the schema u64 · 16 shapes in the schema u64 · 24 crc32 of the schema's start u32
//!        28 crc32 of its last bytes u32 · 32 crc32 u32 of all before
//! block  0 index of its first record u64 · 8 shapes u32 · 12 bytes u32 · 16 crc32 u32 of the 16 bytes before and the shapes
//!        20 the shapes, as the schema has them
//! ```
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

/// First bytes of the file.
const MAGIC: [u8; 8] = *b"ZRSHP\0\0\x01";
/// Length of the head in bytes.
pub const HEAD_LEN: usize = 36;
/// Length in bytes of what stands before the shapes of a block.
pub const BLOCK_HEAD_LEN: usize = 20;
/// A block has at most so many shapes, so that one of them is found with a short read.
pub const BLOCK_SHAPES: usize = 256;
/// A block's shapes have at most so many bytes: 64 dimensions of 9 bytes and 3 for their number, each.
const MAX_BLOCK: u32 = BLOCK_SHAPES as u32 * (64 * 9 + 3);
/// So many bytes before the end of the schema's shapes tell it from another one.
pub const TAIL: u64 = 512;

/// The schema that the file continues. Where another one stands there now, the file does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Base {
    /// The schema's length in bytes, which is where its last shape ends.
    pub end: u64,
    /// The number of shapes in it.
    pub count: u64,
    /// The CRC-32 of its bytes before the list of shapes.
    pub start_crc: u32,
    /// The CRC-32 of the last [`TAIL`] bytes of its shapes.
    pub tail_crc: u32,
}

impl Base {
    /// The file's head.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_LEN);
        out.extend(MAGIC);
        out.extend(self.end.to_le_bytes());
        out.extend(self.count.to_le_bytes());
        out.extend(self.start_crc.to_le_bytes());
        out.extend(self.tail_crc.to_le_bytes());
        out.extend(crc32fast::hash(&out).to_le_bytes());
        out
    }

    /// Reads the head. `None` if it is not whole: then nothing was promised yet of what follows.
    pub fn decode(bytes: &[u8; HEAD_LEN]) -> Option<Base> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return None;
        }
        let (magic, rest) = body.split_first_chunk::<8>()?;
        let (end, rest) = rest.split_first_chunk::<8>()?;
        let (count, rest) = rest.split_first_chunk::<8>()?;
        let (start, rest) = rest.split_first_chunk::<4>()?;
        let (tail, _) = rest.split_first_chunk::<4>()?;
        let base = Base {
            end: u64::from_le_bytes(*end),
            count: u64::from_le_bytes(*count),
            start_crc: u32::from_le_bytes(*start),
            tail_crc: u32::from_le_bytes(*tail),
        };
        (*magic == MAGIC).then_some(base)
    }
}

/// What stands before the shapes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHead {
    /// The index of the record that the first shape is of.
    pub first: u64,
    /// The number of shapes, 1 to [`BLOCK_SHAPES`].
    pub count: u32,
    /// Their length in bytes.
    pub bytes: u32,
    crc: u32,
}

impl BlockHead {
    /// A block's bytes: `shapes` are `count` shapes, the first of them that of record `first`.
    pub fn encode(first: u64, count: u32, shapes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK_HEAD_LEN.saturating_add(shapes.len()));
        out.extend(first.to_le_bytes());
        out.extend(count.to_le_bytes());
        out.extend((shapes.len() as u32).to_le_bytes());
        let crc = crc(&out, shapes);
        out.extend(crc.to_le_bytes());
        out.extend(shapes);
        out
    }

    /// Reads what stands before the shapes; `None` if it cannot be true.
    pub fn decode(bytes: &[u8; BLOCK_HEAD_LEN]) -> Option<BlockHead> {
        let (first, rest) = bytes.split_first_chunk::<8>()?;
        let (count, rest) = rest.split_first_chunk::<4>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let head = BlockHead {
            first: u64::from_le_bytes(*first),
            count: u32::from_le_bytes(*count),
            bytes: u32::from_le_bytes(*len),
            crc: u32::from_le_bytes(*rest.first_chunk::<4>()?),
        };
        let possible = head.count >= 1 && head.count <= BLOCK_SHAPES as u32 && head.bytes <= MAX_BLOCK;
        possible.then_some(head)
    }

    /// Whether `shapes` are those that the block was written with.
    pub fn holds(&self, shapes: &[u8]) -> bool {
        let mut start = Vec::with_capacity(16);
        start.extend(self.first.to_le_bytes());
        start.extend(self.count.to_le_bytes());
        start.extend(self.bytes.to_le_bytes());
        crc(&start, shapes) == self.crc
    }
}

fn crc(start: &[u8], shapes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(start);
    hasher.update(shapes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_damage() {
        let base = Base { end: 5, count: 6, start_crc: 7, tail_crc: 8 };
        let head: [u8; HEAD_LEN] = base.encode().try_into().unwrap();
        assert_eq!(Base::decode(&head), Some(base));
        for at in 0..HEAD_LEN {
            let mut bad = head;
            bad[at] ^= 1;
            assert_eq!(Base::decode(&bad), None);
        }
        let block = BlockHead::encode(9, 2, &[0x91, 3, 0x91, 4]);
        for at in 0..block.len() {
            let mut bad = block.clone();
            bad[at] ^= 1;
            let (head, shapes) = bad.split_first_chunk().unwrap();
            assert!(BlockHead::decode(head).is_none_or(|head| !head.holds(shapes)), "byte {at}");
        }
        let (head, shapes) = block.split_first_chunk().unwrap();
        let head = BlockHead::decode(head).unwrap();
        assert_eq!((head.first, head.count, head.bytes), (9, 2, 4));
        assert!(head.holds(shapes));
        assert_eq!(BlockHead::decode(&[0; BLOCK_HEAD_LEN]), None, "a hole is no block");
    }
}
