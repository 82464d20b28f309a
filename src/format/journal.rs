//! `delete.zr`: a deletion that is under way, so that it is done wholly or not at all.
//!
//! ```text
//! 0 magic 8 · 8 header before 32 · 40 header after 32 · 72 count u64 · 80 moves, 24 bytes each · crc32 u32 of all before
//! move  0 index u64 · 8 entry 16 · 24 sum u32
//! ```
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

use super::header::{HEADER_LEN, Header};
use super::sums::{NO_SUM, SUM_LEN};
use super::table::{ENTRY_LEN, Entry};

/// First bytes of a journal.
const MAGIC: [u8; 8] = *b"ZRDEL\0\0\x02";
/// Bytes before the moves.
const START: usize = 80;
/// Bytes of a move.
pub const MOVE_LEN: usize = 8 + ENTRY_LEN + SUM_LEN;
/// Bytes after the moves.
const CRC_LEN: usize = 4;

/// What a record is known by: where it is, and in a raw store its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// The record's table entry.
    pub entry: Entry,
    /// Its sum in `sums.zr`, or [`NO_SUM`].
    pub sum: u32,
}

impl Default for Moved {
    fn default() -> Self {
        Moved { entry: Entry::default(), sum: NO_SUM }
    }
}

/// Everything that a deletion changes in the table, the sums and the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    /// The header that the deletion begins from.
    pub before: Header,
    /// The header that it ends with.
    pub after: Header,
    /// What each index, below `after.length`, gets.
    pub moves: Vec<(u64, Moved)>,
}

impl Journal {
    /// The bytes of `delete.zr`.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(self.before.encode());
        out.extend(self.after.encode());
        out.extend((self.moves.len() as u64).to_le_bytes());
        for (index, moved) in &self.moves {
            out.extend(index.to_le_bytes());
            out.extend(moved.entry.encode());
            out.extend(moved.sum.to_le_bytes());
        }
        out.extend(crc32fast::hash(&out).to_le_bytes());
        out
    }

    /// Reads `delete.zr`. `None` if it is not whole, which is so where writing it was interrupted: then nothing was
    /// deleted yet.
    pub fn decode(bytes: &[u8]) -> Option<Journal> {
        let (body, crc) = bytes.split_last_chunk::<CRC_LEN>()?;
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return None;
        }
        let (start, moves) = body.split_at_checked(START)?;
        let (magic, start) = start.split_first_chunk::<8>()?;
        let (before, start) = start.split_at_checked(HEADER_LEN)?;
        let (after, count) = start.split_at_checked(HEADER_LEN)?;
        let (moves, rest) = moves.as_chunks::<MOVE_LEN>();
        let count = u64::from_le_bytes(*count.first_chunk::<8>()?);
        if *magic != MAGIC || !rest.is_empty() || moves.len() as u64 != count {
            return None;
        }
        let (before, after) = (Header::decode(before).ok()?, Header::decode(after).ok()?);
        let decode = |m: &[u8; MOVE_LEN]| {
            let (index, rest) = m.split_first_chunk::<8>()?;
            let (entry, sum) = rest.split_first_chunk::<ENTRY_LEN>()?;
            let index = u64::from_le_bytes(*index);
            let sum = u32::from_le_bytes(*sum.first_chunk::<SUM_LEN>()?);
            (index < after.length).then_some((index, Moved { entry: Entry::decode(entry), sum }))
        };
        let moves = moves.iter().map(decode).collect::<Option<Vec<_>>>()?;
        Some(Journal { before, after, moves })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Codec;

    #[test]
    fn round_trip_and_damage() {
        let before = Header { length: 9, ..Header::new(Codec::Zstd) };
        let after = Header { length: 7, ..before };
        let entry = Entry { offset: 1, phys_length: 2, logic_length: 3, chunk_id: 4 };
        let moves = vec![(3, Moved { entry, sum: 5 }), (0, Moved::default())];
        let journal = Journal { before, after, moves };
        let bytes = journal.encode();
        assert_eq!(bytes.len(), 80 + 2 * 28 + 4, "the journal's layout changed: bump its magic");
        assert_eq!(Journal::decode(&bytes), Some(journal));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(Journal::decode(&bad), None);
            assert_eq!(Journal::decode(&bytes[..at]), None);
        }
    }
}
