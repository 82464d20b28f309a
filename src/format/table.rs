//! `.loc` files: where each record's bytes are, 16 bytes a record.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

use super::header::{Codec, Header};
use super::{Layout, MAX_RECORD};

/// Length of one table entry in bytes.
pub const ENTRY_LEN: usize = 16;

/// The most that one compressed byte can stand for: zstd's densest block is 3 bytes of header and 1 of content for
/// 128 KiB of one byte. A record that claims more is damaged, which is known before anything is allocated for it.
const MAX_EXPANSION: u64 = 128 << 10;

/// One record's place: a decoded, not yet validated table entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    /// Byte offset in its chunk.
    pub offset: u32,
    /// Bytes it takes in the chunk.
    pub phys_length: u32,
    /// Bytes it has when decoded.
    pub logic_length: u32,
    /// Number of its chunk.
    pub chunk_id: u32,
}

impl Entry {
    /// The entry's bytes in the table.
    pub fn encode(&self) -> [u8; ENTRY_LEN] {
        let mut out = [0; ENTRY_LEN];
        let fields = [self.offset, self.phys_length, self.logic_length, self.chunk_id].map(u32::to_le_bytes);
        for (to, from) in out.iter_mut().zip(fields.iter().flatten()) {
            *to = *from;
        }
        out
    }

    /// Reads an entry. Any 16 bytes are one; [`validate`](Entry::validate) tells whether it can be true.
    pub fn decode(bytes: &[u8; ENTRY_LEN]) -> Self {
        let [o0, o1, o2, o3, p0, p1, p2, p3, l0, l1, l2, l3, c0, c1, c2, c3] = *bytes;
        Entry {
            offset: u32::from_le_bytes([o0, o1, o2, o3]),
            phys_length: u32::from_le_bytes([p0, p1, p2, p3]),
            logic_length: u32::from_le_bytes([l0, l1, l2, l3]),
            chunk_id: u32::from_le_bytes([c0, c1, c2, c3]),
        }
    }

    /// Checks the entry against the header of its store.
    ///
    /// # Errors
    /// Why no record can be where the entry says.
    pub fn validate(&self, header: &Header, layout: Layout) -> Result<(), String> {
        let (phys, logic) = (u64::from(self.phys_length), u64::from(self.logic_length));
        if logic == 0 || logic > MAX_RECORD {
            return Err(format!("the record's length is {logic}, records have 1 to {MAX_RECORD} bytes"));
        }
        if phys == 0 {
            return Err("the record's stored length is 0".into());
        }
        match header.codec {
            Codec::Raw if phys != logic => {
                return Err(format!("a raw record of {logic} bytes is stored in {phys}"));
            }
            Codec::Zstd | Codec::ZstdDict if logic > phys.saturating_mul(MAX_EXPANSION) => {
                return Err(format!("{phys} stored bytes cannot decode to {logic}"));
            }
            Codec::Raw | Codec::Zstd | Codec::ZstdDict => {}
        }
        if self.chunk_id > header.tail_chunk {
            return Err(format!("the record is in chunk {}, the last chunk is {}", self.chunk_id, header.tail_chunk));
        }
        let end = u64::from(self.offset).saturating_add(phys);
        let limit = if self.chunk_id == header.tail_chunk { u64::from(header.tail_offset) } else { layout.chunk_bytes };
        if end > limit {
            return Err(format!("the record reaches to byte {end} of chunk {}, which ends at {limit}", self.chunk_id));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let entry = Entry { offset: 0x0403_0201, phys_length: 0x0807_0605, logic_length: 9, chunk_id: 0x100f_0e0d };
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 13, 14, 15, 16];
        assert_eq!(entry.encode(), bytes, "the table's layout changed: bump the version");
        assert_eq!(Entry::decode(&bytes), entry);
    }

    #[test]
    fn impossible_entries_are_refused() {
        let header = Header { tail_chunk: 1, tail_offset: 100, length: 1, ..Header::new(Codec::Raw) };
        let good = Entry { offset: 90, phys_length: 10, logic_length: 10, chunk_id: 1 };
        let check = |e: Entry, codec| e.validate(&Header { codec, ..header }, Layout::STANDARD);
        assert_eq!(check(good, Codec::Raw), Ok(()));
        assert_eq!(check(Entry { chunk_id: 0, offset: u32::MAX - 9, ..good }, Codec::Raw), Ok(()));
        for bad in [
            Entry { logic_length: 0, phys_length: 0, ..good },
            Entry { logic_length: 11, ..good },
            Entry { offset: 91, ..good },
            Entry { chunk_id: 2, ..good },
            Entry { phys_length: u32::MAX, logic_length: u32::MAX, ..good },
        ] {
            check(bad, Codec::Raw).unwrap_err();
        }
        check(Entry { logic_length: 1 << 31, ..good }, Codec::Zstd).unwrap_err();
        check(Entry { phys_length: 0, ..good }, Codec::Zstd).unwrap_err();
        assert_eq!(check(Entry { logic_length: 1 << 20, ..good }, Codec::Zstd), Ok(()));
    }
}
