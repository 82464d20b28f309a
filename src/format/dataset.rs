//! `dataset.zr`: what the writer of a dataset is doing, so that its streams stay aligned whatever interrupts it.
//!
//! ```text
//! 0 magic 8 · 8 what u32 (1 append, 2 delete) · 12 zero u32 · 16 length before u64 · 24 count u64 · 32 indices, 8 bytes each
//! crc32 u32 of all before
//! ```
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

/// First bytes of the file.
const MAGIC: [u8; 8] = *b"ZRSET\0\0\x01";
const APPEND: u32 = 1;
const DELETE: u32 = 2;

/// What a dataset's writer does to all of its streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// It appends: the streams may differ in length, and the shortest has the records that count.
    Append,
    /// It deletes: a stream of `length` records has it before it, a shorter one has been rid of the first of `indices`.
    Delete {
        /// The length of each stream before.
        length: u64,
        /// The records, from the highest to the lowest index, each once.
        indices: Vec<u64>,
    },
}

impl Intent {
    /// The bytes of `dataset.zr`.
    pub fn encode(&self) -> Vec<u8> {
        let (what, length, indices) = match self {
            Intent::Append => (APPEND, 0, &[][..]),
            Intent::Delete { length, indices } => (DELETE, *length, &indices[..]),
        };
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(what.to_le_bytes());
        out.extend([0; 4]);
        out.extend(length.to_le_bytes());
        out.extend((indices.len() as u64).to_le_bytes());
        indices.iter().for_each(|index| out.extend(index.to_le_bytes()));
        out.extend(crc32fast::hash(&out).to_le_bytes());
        out
    }

    /// Reads `dataset.zr`. `None` if it is not whole: it is made durable before any stream is changed, so none was.
    pub fn decode(bytes: &[u8]) -> Option<Intent> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return None;
        }
        let (magic, rest) = body.split_first_chunk::<8>()?;
        let (what, rest) = rest.split_first_chunk::<4>()?;
        let (_, rest) = rest.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let (count, rest) = rest.split_first_chunk::<8>()?;
        let (indices, odd) = rest.as_chunks::<8>();
        if *magic != MAGIC || !odd.is_empty() || indices.len() as u64 != u64::from_le_bytes(*count) {
            return None;
        }
        let length = u64::from_le_bytes(*length);
        let indices: Vec<u64> = indices.iter().map(|index| u64::from_le_bytes(*index)).collect();
        match u32::from_le_bytes(*what) {
            APPEND => Some(Intent::Append),
            DELETE => {
                let falling = indices.windows(2).all(|pair| matches!(pair, [a, b] if a > b));
                let inside = indices.first().is_none_or(|&highest| highest < length);
                (falling && inside).then_some(Intent::Delete { length, indices })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_damage() {
        for intent in [Intent::Append, Intent::Delete { length: 9, indices: vec![8, 3, 0] }] {
            let bytes = intent.encode();
            assert_eq!(Intent::decode(&bytes), Some(intent), "the layout changed: bump its magic");
            for at in 0..bytes.len() {
                let mut bad = bytes.clone();
                bad[at] ^= 1;
                assert_eq!(Intent::decode(&bad), None);
                assert_eq!(Intent::decode(&bytes[..at]), None);
            }
        }
        let wrong = Intent::Delete { length: 9, indices: vec![9] };
        assert_eq!(Intent::decode(&wrong.encode()), None);
        let wrong = Intent::Delete { length: 9, indices: vec![1, 1] };
        assert_eq!(Intent::decode(&wrong.encode()), None);
    }
}
