//! `sums.zr`: a checksum for each record of a raw store, which has no frames that carry one.
//!
//! ```text
//! 0 magic 8 · 8 doubtful u64 · 16 until i64 seconds · 24 until u32 nanoseconds · 28 crc32 of all before · 32 sums, u32 each
//! ```
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// First bytes of the file.
const MAGIC: [u8; 8] = *b"ZRSUM\0\0\x01";
/// Bytes before the sums.
pub const HEAD_LEN: usize = 32;
/// Bytes of a sum.
pub const SUM_LEN: usize = 4;
/// Stands where there is no sum. It is also what a hole in the file reads as, so a sum that a power cut took never
/// passes for one.
pub const NO_SUM: u32 = 0;

/// The sum of a record with this CRC-32.
///
/// CRC-32 (that of zip and PNG) notices every error of up to 32 bits in a row and all but one in 2^32 of the others,
/// runs at several GB/s, and is what the journal and the tree index use. It is no defence against intent, as no
/// checksum beside the data is.
pub fn sum_of(crc: u32) -> u32 {
    if crc == NO_SUM { 1 } else { crc }
}

/// What stands before the sums: how far they can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Records below this may have been changed by another program since their sums were made: one that differs from
    /// its sum is not known to be damaged.
    pub doubtful: u64,
    /// zrfs last wrote `meta.zr` at this time or before. If the file was modified later, another program did.
    pub until: SystemTime,
}

impl Head {
    /// The first bytes of `sums.zr`.
    pub fn encode(&self) -> [u8; HEAD_LEN] {
        let since = self.until.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut out = [0; HEAD_LEN];
        let fields = [
            &MAGIC[..],
            &self.doubtful.to_le_bytes(),
            &since.as_secs().to_le_bytes(),
            &since.subsec_nanos().to_le_bytes(),
        ];
        for (to, from) in out.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *from;
        }
        let (body, _) = out.split_at(HEAD_LEN.saturating_sub(4));
        let crc = crc32fast::hash(body).to_le_bytes();
        out.iter_mut().rev().zip(crc.iter().rev()).for_each(|(to, from)| *to = *from);
        out
    }

    /// Reads the first bytes of `sums.zr`. `None` if they are damaged, or another version's: then no sum counts.
    pub fn decode(bytes: &[u8; HEAD_LEN]) -> Option<Head> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        let (magic, fields) = body.split_first_chunk::<8>()?;
        let (doubtful, fields) = fields.split_first_chunk::<8>()?;
        let (secs, nanos) = fields.split_first_chunk::<8>()?;
        if *magic != MAGIC || crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return None;
        }
        let nanos = u32::from_le_bytes(*nanos.first_chunk::<4>()?);
        let since = Duration::from_secs(u64::from_le_bytes(*secs)).checked_add(Duration::from_nanos(nanos.into()))?;
        Some(Head { doubtful: u64::from_le_bytes(*doubtful), until: UNIX_EPOCH.checked_add(since)? })
    }

    /// Whether a `meta.zr` modified at this time is as zrfs left it. A time of whole seconds proves nothing: the file
    /// system, or the program that copied the store, may have rounded it down.
    pub fn covers(&self, modified: SystemTime) -> bool {
        let whole = modified.duration_since(UNIX_EPOCH).is_ok_and(|since| since.subsec_nanos() == 0);
        modified <= self.until && !whole
    }
}

/// Where in the file the sum of record `index` stands. Past the largest file there is for an index that no store has.
pub fn offset_of(index: u64) -> u64 {
    index.saturating_mul(SUM_LEN as u64).saturating_add(HEAD_LEN as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_and_damage() {
        let head = Head { doubtful: 0x0102, until: UNIX_EPOCH + Duration::new(3, 4) };
        let bytes = head.encode();
        assert_eq!(bytes[..28], *b"ZRSUM\0\0\x01\x02\x01\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0", "bump the magic");
        assert_eq!(Head::decode(&bytes), Some(head));
        for at in 0..bytes.len() {
            let mut bad = bytes;
            bad[at] ^= 1;
            assert_eq!(Head::decode(&bad), None);
        }
        assert_eq!(Head::decode(&[0; HEAD_LEN]), None);
        assert_eq!((sum_of(0), sum_of(7)), (1, 7));
        assert!(head.covers(head.until) && !head.covers(UNIX_EPOCH + Duration::new(3, 5)));
        assert!(!head.covers(UNIX_EPOCH + Duration::new(2, 0)), "whole seconds prove nothing");
    }
}
