//! `meta.zr`: the 32 bytes that say how much of the other files is the store.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

use std::fmt;
use std::str::FromStr;

/// First bytes of every `meta.zr`.
pub const MAGIC: [u8; 4] = *b"ZREC";
/// The format version that this crate reads and writes.
pub const VERSION: u8 = 3;
/// Length of `meta.zr` in bytes.
pub const HEADER_LEN: usize = 32;

/// How the records of a store are compressed; fixed when the store is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Stored as they are.
    Raw,
    /// One zstd frame a record.
    Zstd,
    /// One zstd frame a record, against the store's dictionary.
    ZstdDict,
}

impl Codec {
    /// Every codec, in the order of their numbers in the header.
    pub const ALL: [Codec; 3] = [Codec::Raw, Codec::Zstd, Codec::ZstdDict];

    /// The codec's number in the header.
    pub fn number(self) -> u8 {
        match self {
            Codec::Raw => 0,
            Codec::Zstd => 1,
            Codec::ZstdDict => 2,
        }
    }

    /// The codec's name in schemas and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Codec::Raw => "raw",
            Codec::Zstd => "zstd",
            Codec::ZstdDict => "zstd_dict",
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Codec {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Codec::ALL
            .into_iter()
            .find(|c| c.name() == s)
            .ok_or_else(|| format!("no codec is called {s:?}; there are raw, zstd and zstd_dict"))
    }
}

/// The decoded `meta.zr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// How records are compressed.
    pub codec: Codec,
    /// The chunk that the next record goes to; the chunks are exactly `0..=tail_chunk`.
    pub tail_chunk: u32,
    /// Where in that chunk the next record goes.
    pub tail_offset: u32,
    /// Number of live records, which are exactly the indices below it.
    pub length: u64,
    /// What zrfs notes of its own in the header.
    pub note: Note,
}

/// What is in the ten bytes that the format leaves free and loaderx keeps as they are: how far the store is known to
/// survive a power cut. A note of zrfs carries a check of the header that it was written with (the *seal*), so that a
/// header that another program has changed since is told from one that zrfs wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// Nothing of zrfs's: all records count as durable.
    None([u8; NOTE_LEN]),
    /// zrfs synced the store when it had this length. Records beyond it are another writer's, and count as durable.
    Synced(u64),
    /// zrfs has written since it last synced, at this length. After a power cut, records beyond it may be missing.
    Unsynced(u64),
    /// A note of zrfs's, as it stands, in a header that another program has changed since.
    Changed([u8; NOTE_LEN]),
}

/// Bytes of the note.
const NOTE_LEN: usize = 10;
/// Bytes of the seal, at the end of the header.
const SEAL_LEN: usize = 3;

impl Note {
    const SYNCED: u8 = 1;
    const UNSYNCED: u8 = 2;
    /// A note has six bytes for its length. A longer store notes this one, which is safe: more is checked after a crash.
    const MAX_LENGTH: u64 = (1 << 48) - 1;

    /// The note without its seal.
    fn encode(self) -> [u8; NOTE_LEN] {
        let (length, kind) = match self {
            Note::None(bytes) | Note::Changed(bytes) => return bytes,
            Note::Synced(length) => (length, Note::SYNCED),
            Note::Unsynced(length) => (length, Note::UNSYNCED),
        };
        let [a, b, c, d, e, f, ..] = length.min(Note::MAX_LENGTH).to_le_bytes();
        [a, b, c, d, e, f, kind, 0, 0, 0]
    }

    /// The note in `bytes`, which may be one of ours or not, whatever its seal says.
    fn decode(bytes: [u8; NOTE_LEN]) -> Note {
        let [a, b, c, d, e, f, kind, ..] = bytes;
        let length = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        match kind {
            Note::SYNCED => Note::Synced(length),
            Note::UNSYNCED => Note::Unsynced(length),
            _ => Note::None(bytes),
        }
    }

    /// The note as it was before another program changed the header around it.
    fn meant(self) -> Note {
        match self {
            Note::Changed(bytes) => Note::decode(bytes),
            note => note,
        }
    }
}

/// The check of everything before the seal.
fn seal(bytes: &[u8; HEADER_LEN]) -> [u8; SEAL_LEN] {
    let (sealed, _) = bytes.split_at(HEADER_LEN - SEAL_LEN);
    let [a, b, c, _] = crc32fast::hash(sealed).to_le_bytes();
    [a, b, c]
}

impl Header {
    /// The header of an empty store.
    pub fn new(codec: Codec) -> Self {
        Header { codec, tail_chunk: 0, tail_offset: 0, length: 0, note: Note::None([0; 10]) }
    }

    /// The length that a power cut cannot have taken from the store: records below it were synced, or written by a
    /// program that leaves no notes.
    pub fn durable(&self) -> u64 {
        match self.note.meant() {
            Note::Unsynced(length) => length.min(self.length),
            _ => self.length,
        }
    }

    /// Whether a power cut may have taken some of the store: the files need not reach as far as the header says.
    pub fn unsynced(&self) -> bool {
        matches!(self.note.meant(), Note::Unsynced(_))
    }

    /// Whether zrfs wrote the header as it is: no other program has appended or deleted since.
    pub fn sealed(&self) -> bool {
        matches!(self.note, Note::Synced(_) | Note::Unsynced(_))
    }

    /// The bytes of `meta.zr`.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        let fields = [
            &MAGIC[..],
            &[VERSION, self.codec.number()],
            &self.tail_chunk.to_le_bytes(),
            &self.tail_offset.to_le_bytes(),
            &self.length.to_le_bytes(),
            &self.note.encode(),
        ];
        for (to, from) in out.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *from;
        }
        if self.sealed() {
            let seal = seal(&out);
            out.iter_mut().rev().zip(seal.iter().rev()).for_each(|(to, from)| *to = *from);
        }
        out
    }

    /// Reads `meta.zr`.
    ///
    /// # Errors
    /// The offset in the file and the reason.
    pub fn decode(bytes: &[u8]) -> Result<Self, (u64, String)> {
        let (fields, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or_else(|| {
            (bytes.len() as u64, format!("a header has {HEADER_LEN} bytes, this has {}", bytes.len()))
        })?;
        if !rest.is_empty() {
            return Err((HEADER_LEN as u64, format!("a header has {HEADER_LEN} bytes, this has {}", bytes.len())));
        }
        let [
            m0,
            m1,
            m2,
            m3,
            version,
            codec,
            c0,
            c1,
            c2,
            c3,
            o0,
            o1,
            o2,
            o3,
            l0,
            l1,
            l2,
            l3,
            l4,
            l5,
            l6,
            l7,
            reserved @ ..,
        ] = *fields;
        if [m0, m1, m2, m3] != MAGIC {
            return Err((0, "it does not begin with ZREC".into()));
        }
        if version != VERSION {
            return Err((4, format!("format version {version}; this program reads version {VERSION}")));
        }
        let codec = Codec::ALL
            .into_iter()
            .find(|c| c.number() == codec)
            .ok_or_else(|| (5, format!("codec number {codec}; there are 0, 1 and 2")))?;
        let note = match Note::decode(reserved) {
            Note::Synced(_) | Note::Unsynced(_) if !fields.ends_with(&seal(fields)) => Note::Changed(reserved),
            note => note,
        };
        Ok(Header {
            codec,
            tail_chunk: u32::from_le_bytes([c0, c1, c2, c3]),
            tail_offset: u32::from_le_bytes([o0, o1, o2, o3]),
            length: u64::from_le_bytes([l0, l1, l2, l3, l4, l5, l6, l7]),
            note,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let header = Header {
            codec: Codec::ZstdDict,
            tail_chunk: 0x0403_0201,
            tail_offset: 0x0807_0605,
            length: 0x100f_0e0d_0c0b_0a09,
            note: Note::None(*b"0123456789"),
        };
        let bytes = *b"ZREC\x03\x02\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x100123456789";
        assert_eq!(header.encode(), bytes, "the header's layout changed: bump the version");
        assert_eq!(Header::decode(&bytes), Ok(header));
    }

    #[test]
    fn notes() {
        let header = |note| Header { length: 9, note, ..Header::new(Codec::Raw) };
        for (note, bytes, durable) in [
            (Note::Synced(5), *b"\x05\0\0\0\0\0\x01\x73\x82\xf6", 9),
            (Note::Unsynced(5), *b"\x05\0\0\0\0\0\x02\xc9\xd3\xff", 5),
            (Note::Unsynced(50), *b"\x32\0\0\0\0\0\x02\x15\x48\x3b", 9),
            (Note::None([3; 10]), [3; 10], 9),
        ] {
            let encoded = header(note).encode();
            assert_eq!(encoded[22..], bytes, "the header's layout changed: bump the version");
            assert_eq!(Header::decode(&encoded), Ok(header(note)));
            assert_eq!(header(note).durable(), durable);
            assert_eq!(header(note).unsynced(), matches!(note, Note::Unsynced(_)));
        }
        assert_eq!(header(Note::Synced(u64::MAX)).encode()[22..28], [0xff; 6]);
    }

    /// What another program changes breaks the seal; what the note said goes on counting.
    #[test]
    fn a_changed_header_is_noticed() {
        let header = Header { length: 9, tail_offset: 500, note: Note::Unsynced(5), ..Header::new(Codec::Raw) };
        let good = header.encode();
        for at in 6..HEADER_LEN {
            for bit in 0..8 {
                let mut bad = good;
                bad[at] ^= 1 << bit;
                let changed = Header::decode(&bad).unwrap();
                assert!(!changed.sealed(), "bit {bit} of byte {at}");
                assert_eq!(changed.encode(), bad, "it is kept as it stands");
            }
        }
        let mut longer = good;
        longer[14] = 12;
        let longer = Header::decode(&longer).unwrap();
        assert_eq!((longer.durable(), longer.unsynced()), (5, true));
    }

    #[test]
    fn wrong_bytes_are_named() {
        let good = Header::new(Codec::Raw).encode();
        assert_eq!(Header::decode(&good[..31]).unwrap_err().0, 31);
        assert_eq!(Header::decode(&[&good[..], &[0]].concat()).unwrap_err().0, 32);
        for (at, value) in [(0, b'z'), (3, 0), (4, 2), (4, 4), (5, 3), (5, 255)] {
            let mut bad = good;
            bad[at] = value;
            let (offset, reason) = Header::decode(&bad).unwrap_err();
            assert_eq!(offset, if at < 4 { 0 } else { at as u64 }, "{reason}");
        }
    }
}
