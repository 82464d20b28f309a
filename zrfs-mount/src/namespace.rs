//! Which file an inode number stands for, by arithmetic alone: there is no table, nothing to forget, and numbers are
//! the same after a remount.
//!
//! ```text
//! 63                    16 15          4 3      0
//! ┌───────────────────────┬─────────────┬────────┐
//! │ index, 48 bits        │ stream, 12  │ kind, 4│
//! └───────────────────────┴─────────────┴────────┘
//! ```
//! The kind stands lowest, so that the numbers of small stores are small: below 2^37 records they fit the 53 bits of
//! tools that keep them in a double. No kind is 0, and the root alone is 1, the number that FUSE gives it.
//!
//! What a name spells freely, as the spec of a sampler or a list of indices, has no number of its own. A table gives it
//! one when it is looked up ([`Batch`]), which no other name ever gets.

/// The root's inode number.
pub const ROOT: u64 = 1;
/// Indices at or above this have no inode number.
pub const MAX_INDEX: u64 = 1 << 48;
/// Streams at or above this have no inode number.
pub const MAX_STREAM: u16 = 1 << 12;

/// The number that a list of indices was given, or a run of [`BATCH_STEPS`] steps of a sampler; and which of the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Batch {
    /// The number, below [`MAX_BATCH`].
    pub id: u64,
    /// The step's place in the run; 0 for a list.
    pub step: u16,
}

/// Steps in a run that has one number.
pub const BATCH_STEPS: u64 = 1 << 12;
/// Numbers at or above this are not given.
pub const MAX_BATCH: u64 = MAX_INDEX >> 14;

impl Batch {
    /// As an index, with two bits for a part.
    fn index(self, part: u64) -> u64 {
        // Both fit, but for numbers that are too large for an inode anyway.
        self.id.saturating_mul(BATCH_STEPS << 2) | u64::from(self.step) << 2 | part
    }

    fn of_index(index: u64) -> Batch {
        Batch { id: index >> 14, step: (index >> 2 & (BATCH_STEPS - 1)) as u16 }
    }
}

/// The files of a batch that each stream has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// The records: one array, or of a ragged stream all values one after the other.
    Values,
    /// Where each record's values begin.
    Offsets,
    /// Each record's shape.
    Shapes,
}

impl Part {
    /// All of them, by number.
    pub const ALL: [Part; 3] = [Part::Values, Part::Offsets, Part::Shapes];
}

/// A file or directory of the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Node {
    /// What was mounted: a store or a dataset.
    Root,
    /// `streams` of a dataset.
    Streams,
    /// `streams/NAME`.
    Stream(u16),
    /// `records` of a stream.
    Records(u16),
    /// `npy` of a typed stream.
    Npys(u16),
    /// `png` of a stream of pictures.
    Pngs(u16),
    /// `files` of a stream, where the mount names its records.
    Files(u16),
    /// `records/17` of a stream; also its name in `files`.
    Record(u16, u64),
    /// `npy/17.npy` of a stream.
    Npy(u16, u64),
    /// `png/17.png` of a stream.
    Png(u16, u64),
    /// A node of `tree`; 0 is its root. A hard-linked file is the node of its first name.
    Tree(u64),
    /// `.zrfs`.
    Zrfs,
    /// `.zrfs/info.json`.
    Info,
    /// `.zrfs/stats.json`.
    Stats,
    /// `.zrfs/readahead`.
    Readahead,
    /// A file in there, by the number that its look-up got.
    Spelled(u64),
    /// `batches`.
    Batches,
    /// `batches/at`.
    At,
    /// `batches/SPEC`, by the number that its look-up got.
    Spec(u64),
    /// `batches/SPEC/7` and `batches/at/LIST` of a dataset.
    BatchDir(Batch),
    /// `7.indices.npy` of a batch.
    BatchIndices(Batch),
    /// `7.npy`, `7.offsets.npy` … of a batch; of a dataset `7/STREAM.npy` ….
    BatchFile(u16, Batch, Part),
    /// `samples` of a dataset.
    Samples,
    /// `samples/17`.
    Sample(u64),
    /// `.zrfs/control`.
    Control,
    /// `.zrfs/views`.
    Views,
    /// A file in there, by the number of its batch.
    View(u64),
}

const FIXED: u64 = 1;
const STREAM: u64 = 2;
const RECORDS: u64 = 3;
const NPYS: u64 = 4;
const RECORD: u64 = 5;
const NPY: u64 = 6;
const TREE: u64 = 7;
const PNGS: u64 = 8;
const PNG: u64 = 9;
const FILES: u64 = 10;
const SPELLED: u64 = 11;
/// What belongs to no stream; the stream's bits tell which.
const NO_STREAM: u64 = 12;
const BATCH_FILE: u64 = 13;

const SAMPLE: u16 = 0;
const SPEC: u16 = 1;
const BATCH_DIR: u16 = 2;
const BATCH_INDICES: u16 = 3;
const VIEWS: u64 = 14;
const VIEW: u64 = 15;

impl Node {
    /// The node's inode number; `None` if its index or stream is too large to have one.
    pub fn ino(self) -> Option<u64> {
        let (kind, stream, index) = match self {
            Node::Root => (FIXED, 0, 0),
            Node::Streams => (FIXED, 0, 1),
            Node::Zrfs => (FIXED, 0, 2),
            Node::Info => (FIXED, 0, 3),
            Node::Stats => (FIXED, 0, 4),
            Node::Readahead => (FIXED, 0, 5),
            Node::Spelled(i) => (SPELLED, 0, i),
            Node::Batches => (FIXED, 0, 16),
            Node::At => (FIXED, 0, 17),
            Node::Samples => (FIXED, 0, 18),
            Node::Sample(i) => (NO_STREAM, SAMPLE, i),
            Node::Spec(id) => (NO_STREAM, SPEC, id),
            Node::BatchDir(batch) => (NO_STREAM, BATCH_DIR, batch.index(0)),
            Node::BatchIndices(batch) => (NO_STREAM, BATCH_INDICES, batch.index(0)),
            Node::BatchFile(s, batch, part) => (BATCH_FILE, s, batch.index(part as u64)),
            Node::Stream(s) => (STREAM, s, 0),
            Node::Records(s) => (RECORDS, s, 0),
            Node::Npys(s) => (NPYS, s, 0),
            Node::Pngs(s) => (PNGS, s, 0),
            Node::Files(s) => (FILES, s, 0),
            Node::Record(s, i) => (RECORD, s, i),
            Node::Npy(s, i) => (NPY, s, i),
            Node::Png(s, i) => (PNG, s, i),
            Node::Tree(i) => (TREE, 0, i),
            Node::Views => (VIEWS, 0, 0),
            Node::Control => (VIEWS, 0, 1),
            Node::View(i) => (VIEW, 0, i),
        };
        (stream < MAX_STREAM && index < MAX_INDEX).then_some(index << 16 | u64::from(stream) << 4 | kind)
    }

    /// Whether it is a file of a batch.
    pub fn is_batch_file(self) -> bool {
        matches!(self, Node::BatchIndices(_) | Node::BatchFile(..))
    }

    /// The node of an inode number; `None` for numbers that no node has.
    pub fn from_ino(ino: u64) -> Option<Node> {
        let (kind, stream, index) = (ino & 0xf, (ino >> 4 & 0xfff) as u16, ino >> 16);
        let node = match kind {
            FIXED => match index {
                0 => Node::Root,
                1 => Node::Streams,
                2 => Node::Zrfs,
                3 => Node::Info,
                4 => Node::Stats,
                5 => Node::Readahead,
                16 => Node::Batches,
                17 => Node::At,
                18 => Node::Samples,
                _ => return None,
            },
            STREAM => Node::Stream(stream),
            RECORDS => Node::Records(stream),
            NPYS => Node::Npys(stream),
            RECORD => Node::Record(stream, index),
            NPY => Node::Npy(stream, index),
            TREE => Node::Tree(index),
            PNGS => Node::Pngs(stream),
            PNG => Node::Png(stream, index),
            FILES => Node::Files(stream),
            SPELLED => Node::Spelled(index),
            NO_STREAM => match stream {
                SAMPLE => Node::Sample(index),
                SPEC => Node::Spec(index),
                BATCH_DIR => Node::BatchDir(Batch::of_index(index)),
                BATCH_INDICES => Node::BatchIndices(Batch::of_index(index)),
                _ => return None,
            },
            BATCH_FILE => {
                let part = *Part::ALL.get((index & 3) as usize)?;
                Node::BatchFile(stream, Batch::of_index(index), part)
            }
            VIEWS => match index {
                0 => Node::Views,
                1 => Node::Control,
                _ => return None,
            },
            VIEW => Node::View(index),
            _ => return None,
        };
        // Bits that the kind has no use for must be clear, so that each node has one number.
        (node.ino() == Some(ino)).then_some(node)
    }
}

/// The index that a name spells canonically: "7", never "007", "+7", "7.0" or what exceeds 64 bits.
pub fn parse_index(name: &[u8]) -> Option<u64> {
    let canonical = matches!(name, [b'0'] | [b'1'..=b'9', ..]) && name.iter().all(u8::is_ascii_digit);
    if !canonical {
        return None;
    }
    name.iter().try_fold(0u64, |n, digit| n.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

/// Spells an index into `name`, replacing what was there.
pub fn write_index(mut index: u64, suffix: &[u8], name: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (index % 10) as u8;
        index /= 10;
        if index == 0 {
            break;
        }
    }
    name.clear();
    name.extend_from_slice(&digits[at..]);
    name.extend_from_slice(suffix);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_are_unique_and_come_back() {
        let mut nodes =
            vec![Node::Root, Node::Streams, Node::Zrfs, Node::Info, Node::Stats, Node::Readahead, Node::Spelled(3)];
        nodes.extend([Node::Views, Node::Control, Node::View(0), Node::View(MAX_INDEX - 1)]);
        for s in [0, 1, 17, MAX_STREAM - 1] {
            nodes.extend([Node::Stream(s), Node::Records(s), Node::Npys(s), Node::Pngs(s), Node::Files(s)]);
            for i in [0, 1, 2, 255, 65535, 65536, u64::from(u32::MAX), 1 << 32, MAX_INDEX - 1] {
                nodes.extend([Node::Record(s, i), Node::Npy(s, i), Node::Png(s, i)]);
            }
        }
        nodes.extend([0, 1, 2, 1 << 32, MAX_INDEX - 1].map(Node::Tree));
        nodes.extend([0, 1, 2, 1 << 32, MAX_INDEX - 1].map(Node::Sample));
        nodes.extend([0, 1, 2, MAX_BATCH - 1].map(Node::Spec));
        nodes.extend([Node::Batches, Node::At, Node::Samples]);
        for id in [0, 1, 2, MAX_BATCH - 1] {
            for step in [0, 1, BATCH_STEPS as u16 - 1] {
                let batch = Batch { id, step };
                nodes.extend([Node::BatchDir(batch), Node::BatchIndices(batch)]);
                for s in [0, 17, MAX_STREAM - 1] {
                    nodes.extend(Part::ALL.map(|part| Node::BatchFile(s, batch, part)));
                }
            }
        }
        let mut seen = HashSet::new();
        for node in nodes {
            let ino = node.ino().unwrap();
            assert!(seen.insert(ino), "{node:?}");
            assert_eq!(Node::from_ino(ino), Some(node));
            assert!(ino != 0 && (ino == ROOT) == (node == Node::Root), "{node:?}");
        }
    }

    /// Numbers are part of what the mount promises: backup tools keep them.
    #[test]
    fn golden() {
        let numbers =
            [Node::Root, Node::Records(0), Node::Record(0, 0), Node::Record(3, 7), Node::Npy(0, 1), Node::Tree(2)];
        assert_eq!(numbers.map(|n| n.ino().unwrap()), [1, 3, 5, 0x70035, 0x10006, 0x20007]);
        let batch = Batch { id: 2, step: 3 };
        let numbers = [
            Node::Batches,
            Node::At,
            Node::Samples,
            Node::Sample(7),
            Node::Spec(5),
            Node::BatchDir(batch),
            Node::BatchIndices(batch),
            Node::BatchFile(4, batch, Part::Shapes),
        ];
        let want = [0x10_0001, 0x11_0001, 0x12_0001, 0x7_000c, 0x5_001c, 0x800c_002c, 0x800c_003c, 0x800e_004d];
        assert_eq!(numbers.map(|n| n.ino().unwrap()), want);
    }

    #[test]
    fn impossible_numbers_are_nobody() {
        for ino in [
            0,
            0x1f,
            0x2000e,
            0x11,
            0x60001,
            0x10002,
            0x10008,
            0x1000a,
            0x10003,
            0x17,
            0x4c,
            0x1_002c,
            0x3_000d,
            u64::MAX,
        ] {
            assert_eq!(Node::from_ino(ino), None, "{ino:#x}");
        }
        assert_eq!(Node::Record(0, MAX_INDEX).ino(), None);
        assert_eq!(Node::Record(MAX_STREAM, 0).ino(), None);
        assert_eq!(Node::BatchDir(Batch { id: MAX_BATCH, step: 0 }).ino(), None);
        assert_eq!(Node::BatchDir(Batch { id: u64::MAX, step: 0 }).ino(), None);
    }

    #[test]
    fn only_canonical_names() {
        for (name, index) in [("0", 0), ("7", 7), ("10", 10), ("18446744073709551615", u64::MAX)] {
            assert_eq!(parse_index(name.as_bytes()), Some(index));
            let mut spelled = b"old".to_vec();
            write_index(index, b".npy", &mut spelled);
            assert_eq!(spelled, format!("{name}.npy").as_bytes());
        }
        let wrong = ["", "00", "007", "+5", "-1", "-0", "1e3", " 5", "5 ", "0x5", "7.0", "５", "18446744073709551616"];
        for name in wrong {
            assert_eq!(parse_index(name.as_bytes()), None, "{name:?}");
        }
        assert_eq!(parse_index(b"5\0"), None);
        assert_eq!(parse_index(&[b'9'; 300]), None);
    }
}
