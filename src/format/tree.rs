//! The bytes of `tree.zr`, the index that gives the files of a tree their paths. All integers are little-endian.
//!
//! ```text
//! 0            128                    nodes_offset                                  end of the file
//! | header     | heap (names, symlink | zeros to a multiple of 64 | node 0 | node 1 | … |
//! |            |       targets)       |                           | 64 B   | 64 B   |   |
//!
//! header  0 magic 8 · 8 version u32 · 12 piece_bytes u32 · 16 node_count u64 · 24 heap_offset u64 · 32 heap_len u64
//!         40 nodes_offset u64 · 48 file_count u64 · 56 dir_count u64 · 64 symlink_count u64 · 72 total_bytes u64
//!         80 record_count u64 · 88 data_chunk u32 · 92 data_offset u32 · 96 zeros 28 · 124 crc32 u32 of bytes 0..124
//! node    0 name_off u64 · 8 name_len u16 · 10 kind u8 · 11 zero u8 · 12 mode u16 · 14 zeros 2 · 16 mtime_s i64
//!         24 mtime_ns u32 · 28 nlink u32 · 32 uid u32 · 36 gid u32 · 40 parent u32 · 44 crc32 u32 · 48 first u64
//!         56 size u64
//! ```
//!
//! A node is named by its position. Nodes stand in breadth-first order: node 0 is the root, the children of a directory
//! are neighbours sorted by the bytes of their names, so a name is found by a binary search and a listing is one
//! sequential read. The heap has each node's name, and after it a symlink's target, in the same order. `first` and
//! `size` depend on the kind:
//!
//! | kind | `first` | `size` |
//! |---|---|---|
//! | 1 directory | its first child, 0 if it has none | how many children |
//! | 2 file | its first record in the stream `data`, 0 if it is empty | bytes |
//! | 3 symlink | its target's offset in the heap | bytes of the target, 1 to 4095 |
//! | 4 alias (a further name of a hard-linked file) | the node with the file, an earlier one | 0 |
//!
//! An alias has zeros for mode, times, owners and `nlink`: they are the file's. A node's crc32 covers its position as
//! u64, its bytes 0..44 and 48..64, its name and its target, so a node is right wherever it is read from.
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation
)]

/// The first bytes of a tree index.
pub const MAGIC: [u8; 8] = *b"ZRTREE\0\x01";
/// The version written and read here.
pub const VERSION: u32 = 1;
/// Bytes of the header; the heap starts here.
pub const HEADER_LEN: usize = 128;
/// Bytes of a node, and the alignment of the first: a node never straddles a block whose size is a multiple of it.
pub const NODE_LEN: usize = 64;
/// The most nodes a tree has: a node's position fits in its children's `parent`.
pub const MAX_NODES: u64 = u32::MAX as u64;
/// The longest name in bytes.
pub const NAME_MAX: usize = 255;
/// The longest symlink target in bytes.
pub const TARGET_MAX: usize = 4095;
/// The most directories between the root and a node, so that a path has a bounded length (1 MiB).
pub const DEPTH_MAX: usize = 4096;
/// The largest `piece_bytes`: the longest record of a store.
pub const PIECE_MAX: u32 = 1 << 31;
/// The largest file in bytes, as `st_size` is signed.
pub const SIZE_MAX: u64 = i64::MAX as u64;

/// Where the fields of the header stand.
mod head {
    pub(super) const VERSION: usize = 8;
    pub(super) const PIECE_BYTES: usize = 12;
    pub(super) const NODE_COUNT: usize = 16;
    pub(super) const HEAP_OFFSET: usize = 24;
    pub(super) const HEAP_LEN: usize = 32;
    pub(super) const NODES_OFFSET: usize = 40;
    pub(super) const FILE_COUNT: usize = 48;
    pub(super) const DIR_COUNT: usize = 56;
    pub(super) const SYMLINK_COUNT: usize = 64;
    pub(super) const TOTAL_BYTES: usize = 72;
    pub(super) const RECORD_COUNT: usize = 80;
    pub(super) const DATA_CHUNK: usize = 88;
    pub(super) const DATA_OFFSET: usize = 92;
    pub(super) const RESERVED: usize = 96;
    pub(super) const CRC: usize = 124;
}

/// Where the fields of a node stand.
mod node {
    pub(super) const NAME_OFF: usize = 0;
    pub(super) const NAME_LEN: usize = 8;
    pub(super) const KIND: usize = 10;
    pub(super) const ZERO: usize = 11;
    pub(super) const MODE: usize = 12;
    pub(super) const ZEROS: usize = 14;
    pub(super) const MTIME_S: usize = 16;
    pub(super) const MTIME_NS: usize = 24;
    pub(super) const NLINK: usize = 28;
    pub(super) const UID: usize = 32;
    pub(super) const GID: usize = 36;
    pub(super) const PARENT: usize = 40;
    pub(super) const CRC: usize = 44;
    pub(super) const FIRST: usize = 48;
    pub(super) const SIZE: usize = 56;
}

/// What is wrong with a structure, and at which byte of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// Bytes from the structure's start.
    pub at: u64,
    /// What is wrong there.
    pub reason: String,
}

fn flaw<T>(at: usize, reason: impl Into<String>) -> Result<T, Flaw> {
    Err(Flaw { at: at as u64, reason: reason.into() })
}

/// `N` bytes at `at`. Every caller passes a constant inside its structure; beyond it the bytes would be zeros.
#[inline(always)]
fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}

#[inline(always)]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(bytes, at))
}

#[inline(always)]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(bytes, at))
}

#[inline(always)]
fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(slot) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()) {
        *slot = value;
    }
}

/// A header that agrees with itself and with its file's length: of the fields below, every sum that the methods make
/// is inside the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// A file longer than this is several records, all of exactly this many bytes but the last.
    pub piece_bytes: u32,
    /// Nodes of every kind, the root among them.
    pub node_count: u64,
    /// Bytes of names and symlink targets.
    pub heap_len: u64,
    /// Names of regular files, further names of hard-linked ones included.
    pub file_count: u64,
    /// Directories, the root included.
    pub dir_count: u64,
    /// Symbolic links.
    pub symlink_count: u64,
    /// Sum of the sizes of the distinct regular files in bytes.
    pub total_bytes: u64,
    /// Records of the stream `data` that the tree may point to: 0 to this, exclusive.
    pub record_count: u64,
    /// Where the stream `data` ended when the tree was made: its header's `tail_chunk` and `tail_offset`. Any change to
    /// the stream moves its end, and the tree no longer holds. Zeros where nobody said.
    pub data_end: (u32, u32),
}

impl Header {
    /// Where the heap starts in the file.
    pub const HEAP_OFFSET: u64 = HEADER_LEN as u64;

    /// Where node 0 starts in the file: after the heap, at a multiple of [`NODE_LEN`].
    pub fn nodes_offset(&self) -> u64 {
        Self::HEAP_OFFSET.saturating_add(self.heap_len).checked_next_multiple_of(NODE_LEN as u64).unwrap_or(u64::MAX)
    }

    /// Where node `id` starts in the file.
    pub fn node_offset(&self, id: u64) -> u64 {
        self.nodes_offset().saturating_add(id.saturating_mul(NODE_LEN as u64))
    }

    /// The file's length in bytes.
    pub fn file_len(&self) -> u64 {
        self.node_offset(self.node_count)
    }

    /// The version in `bytes`, or `None` if they don't start with [`MAGIC`]. To be asked before [`decode`](Self::decode):
    /// another version may place everything else differently.
    pub fn version(bytes: &[u8; HEADER_LEN]) -> Option<u32> {
        (get::<8>(bytes, 0) == MAGIC).then(|| u32_at(bytes, head::VERSION))
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        put(&mut out, 0, MAGIC);
        put(&mut out, head::VERSION, VERSION.to_le_bytes());
        put(&mut out, head::PIECE_BYTES, self.piece_bytes.to_le_bytes());
        put(&mut out, head::NODE_COUNT, self.node_count.to_le_bytes());
        put(&mut out, head::HEAP_OFFSET, Self::HEAP_OFFSET.to_le_bytes());
        put(&mut out, head::HEAP_LEN, self.heap_len.to_le_bytes());
        put(&mut out, head::NODES_OFFSET, self.nodes_offset().to_le_bytes());
        put(&mut out, head::FILE_COUNT, self.file_count.to_le_bytes());
        put(&mut out, head::DIR_COUNT, self.dir_count.to_le_bytes());
        put(&mut out, head::SYMLINK_COUNT, self.symlink_count.to_le_bytes());
        put(&mut out, head::TOTAL_BYTES, self.total_bytes.to_le_bytes());
        put(&mut out, head::RECORD_COUNT, self.record_count.to_le_bytes());
        put(&mut out, head::DATA_CHUNK, self.data_end.0.to_le_bytes());
        put(&mut out, head::DATA_OFFSET, self.data_end.1.to_le_bytes());
        let crc = header_crc(&out);
        put(&mut out, head::CRC, crc.to_le_bytes());
        out
    }

    /// Reads a header and holds it against the length of the file it came from.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn decode(bytes: &[u8; HEADER_LEN], file_len: u64) -> Result<Header, Flaw> {
        match Self::version(bytes) {
            Some(VERSION) => {}
            Some(other) => return flaw(head::VERSION, format!("version {other} where {VERSION} is known")),
            None => return flaw(0, "a tree index starts with ZRTREE"),
        }
        if u32_at(bytes, head::CRC) != header_crc(bytes) {
            return flaw(head::CRC, "the header's checksum does not match");
        }
        if get::<{ head::CRC - head::RESERVED }>(bytes, head::RESERVED) != [0; head::CRC - head::RESERVED] {
            return flaw(head::RESERVED, "reserved bytes are not zero");
        }
        let header = Header {
            piece_bytes: u32_at(bytes, head::PIECE_BYTES),
            node_count: u64_at(bytes, head::NODE_COUNT),
            heap_len: u64_at(bytes, head::HEAP_LEN),
            file_count: u64_at(bytes, head::FILE_COUNT),
            dir_count: u64_at(bytes, head::DIR_COUNT),
            symlink_count: u64_at(bytes, head::SYMLINK_COUNT),
            total_bytes: u64_at(bytes, head::TOTAL_BYTES),
            record_count: u64_at(bytes, head::RECORD_COUNT),
            data_end: (u32_at(bytes, head::DATA_CHUNK), u32_at(bytes, head::DATA_OFFSET)),
        };
        if header.piece_bytes == 0 || header.piece_bytes > PIECE_MAX {
            return flaw(head::PIECE_BYTES, format!("pieces of {} bytes; they have 1 to 2^31", header.piece_bytes));
        }
        if header.node_count == 0 || header.node_count > MAX_NODES {
            return flaw(head::NODE_COUNT, format!("{} nodes; a tree has 1 to {MAX_NODES}", header.node_count));
        }
        if u64_at(bytes, head::HEAP_OFFSET) != Self::HEAP_OFFSET {
            return flaw(head::HEAP_OFFSET, "the names do not start after the header");
        }
        if u64_at(bytes, head::NODES_OFFSET) != header.nodes_offset() {
            return flaw(head::NODES_OFFSET, "the nodes do not start after the names");
        }
        if header.file_len() != file_len {
            let wanted = header.file_len();
            return flaw(head::NODE_COUNT, format!("the file has {file_len} bytes where its header needs {wanted}"));
        }
        let kinds = header.file_count.checked_add(header.dir_count).and_then(|n| n.checked_add(header.symlink_count));
        if header.dir_count == 0 || kinds != Some(header.node_count) {
            return flaw(head::FILE_COUNT, "files, directories and symlinks do not add up to the nodes");
        }
        Ok(header)
    }
}

fn header_crc(bytes: &[u8; HEADER_LEN]) -> u32 {
    crc32fast::hash(&get::<{ head::CRC }>(bytes, 0))
}

/// A time of last modification: `secs` since 1970 (negative before it) and `nanos` after that second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mtime {
    /// Seconds since 1970-01-01 UTC.
    pub secs: i64,
    /// Nanoseconds, 0 to 999,999,999, always towards the future.
    pub nanos: u32,
}

/// What a file system says about a file beside its kind, links and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Meta {
    /// Permission bits, `0o7777` at most.
    pub mode: u16,
    /// When the content was last modified.
    pub mtime: Mtime,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
}

/// What a node stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A directory.
    Dir = 1,
    /// A regular file, at the first of its names.
    File = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A further name of a regular file.
    Alias = 4,
}

/// A node's fields. After [`decode`](Self::decode) each is a possible value; after [`validate`](Self::validate) they
/// also fit the node's place and the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeRecord {
    /// Where the name starts in the heap.
    pub name_off: u64,
    /// Bytes of the name; 0 for the root only.
    pub name_len: u16,
    /// What it is; says what `first` and `size` mean.
    pub kind: Kind,
    /// Permissions, time and owner; all zero for an alias.
    pub meta: Meta,
    /// Names of the file, or 2 and the number of subdirectories; 0 for an alias.
    pub nlink: u32,
    /// The directory it is in; the root is in itself.
    pub parent: u32,
    /// See the module's table.
    pub first: u64,
    /// See the module's table.
    pub size: u64,
}

impl NodeRecord {
    /// The bytes of this node at position `id`, with the checksum over its name and, for a symlink, its target (else
    /// empty).
    pub fn encode(&self, id: u64, name: &[u8], target: &[u8]) -> [u8; NODE_LEN] {
        let mut out = [0; NODE_LEN];
        put(&mut out, node::NAME_OFF, self.name_off.to_le_bytes());
        put(&mut out, node::NAME_LEN, self.name_len.to_le_bytes());
        put(&mut out, node::KIND, [self.kind as u8]);
        put(&mut out, node::MODE, self.meta.mode.to_le_bytes());
        put(&mut out, node::MTIME_S, self.meta.mtime.secs.to_le_bytes());
        put(&mut out, node::MTIME_NS, self.meta.mtime.nanos.to_le_bytes());
        put(&mut out, node::NLINK, self.nlink.to_le_bytes());
        put(&mut out, node::UID, self.meta.uid.to_le_bytes());
        put(&mut out, node::GID, self.meta.gid.to_le_bytes());
        put(&mut out, node::PARENT, self.parent.to_le_bytes());
        put(&mut out, node::FIRST, self.first.to_le_bytes());
        put(&mut out, node::SIZE, self.size.to_le_bytes());
        let crc = node_crc(id, &out, name, target);
        put(&mut out, node::CRC, crc.to_le_bytes());
        out
    }

    /// Reads a node's fields, each of them checked on its own.
    ///
    /// # Errors
    /// The first field that has no meaning.
    #[inline]
    pub fn decode(bytes: &[u8; NODE_LEN]) -> Result<NodeRecord, Flaw> {
        let [kind] = get(bytes, node::KIND);
        let kind = match kind {
            1 => Kind::Dir,
            2 => Kind::File,
            3 => Kind::Symlink,
            4 => Kind::Alias,
            other => return flaw(node::KIND, format!("kind {other} where 1 to 4 are known")),
        };
        if get(bytes, node::ZERO) != [0] || get(bytes, node::ZEROS) != [0; 2] {
            return flaw(node::ZERO, "reserved bytes are not zero");
        }
        let mode = u16::from_le_bytes(get(bytes, node::MODE));
        if mode > 0o7777 {
            return flaw(node::MODE, format!("mode {mode:o} has more than permission bits"));
        }
        let mtime = Mtime { secs: i64::from_le_bytes(get(bytes, node::MTIME_S)), nanos: u32_at(bytes, node::MTIME_NS) };
        if mtime.nanos >= 1_000_000_000 {
            return flaw(node::MTIME_NS, format!("{} nanoseconds are no part of a second", mtime.nanos));
        }
        Ok(NodeRecord {
            name_off: u64_at(bytes, node::NAME_OFF),
            name_len: u16::from_le_bytes(get(bytes, node::NAME_LEN)),
            kind,
            meta: Meta { mode, mtime, uid: u32_at(bytes, node::UID), gid: u32_at(bytes, node::GID) },
            nlink: u32_at(bytes, node::NLINK),
            parent: u32_at(bytes, node::PARENT),
            first: u64_at(bytes, node::FIRST),
            size: u64_at(bytes, node::SIZE),
        })
    }

    /// Holds the fields against the node's position and the header, so that what they point to exists: the name and
    /// target are inside the heap and no longer than allowed, children come later and are nodes, records are below
    /// the header's count.
    ///
    /// # Errors
    /// The first field that contradicts them.
    #[inline]
    pub fn validate(&self, id: u64, header: &Header) -> Result<(), Flaw> {
        if !within(self.name_off, u64::from(self.name_len), header.heap_len) {
            return flaw(node::NAME_OFF, "the name is not inside the names");
        }
        if id == 0 {
            if self.kind != Kind::Dir || self.name_len != 0 || self.parent != 0 {
                return flaw(node::KIND, "the first node is not a root directory");
            }
        } else {
            if self.name_len == 0 || usize::from(self.name_len) > NAME_MAX {
                return flaw(node::NAME_LEN, format!("a name of {} bytes; names have 1 to {NAME_MAX}", self.name_len));
            }
            if u64::from(self.parent) >= id {
                return flaw(node::PARENT, format!("its directory {} does not come before it", self.parent));
            }
        }
        match self.kind {
            Kind::Dir => {
                let placed = if self.size == 0 { self.first == 0 } else { self.first > id };
                if !placed || !within(self.first, self.size, header.node_count) {
                    return flaw(node::FIRST, format!("{} children from node {} on", self.size, self.first));
                }
                if self.nlink.checked_sub(2).is_none_or(|dirs| u64::from(dirs) > self.size) {
                    return flaw(node::NLINK, format!("{} links for {} children", self.nlink, self.size));
                }
            }
            Kind::File => {
                if self.size > SIZE_MAX {
                    return flaw(node::SIZE, format!("a file of {} bytes", self.size));
                }
                let records = self.size.div_ceil(u64::from(header.piece_bytes.max(1)));
                let placed = records > 0 || self.first == 0;
                if !placed || !within(self.first, records, header.record_count) {
                    return flaw(node::FIRST, format!("records from {} for {} bytes", self.first, self.size));
                }
                if self.nlink == 0 {
                    return flaw(node::NLINK, "a file without a name");
                }
            }
            Kind::Symlink => {
                if self.size == 0 || self.size > TARGET_MAX as u64 {
                    return flaw(node::SIZE, format!("a target of {} bytes; it has 1 to {TARGET_MAX}", self.size));
                }
                if !within(self.first, self.size, header.heap_len) {
                    return flaw(node::FIRST, "the target is not inside the names");
                }
                if self.nlink != 1 {
                    return flaw(node::NLINK, format!("a symlink with {} names", self.nlink));
                }
            }
            Kind::Alias => {
                if self.first >= id {
                    return flaw(node::FIRST, format!("its file {} does not come before it", self.first));
                }
                if self.size != 0 || self.nlink != 0 || self.meta != Meta::default() {
                    return flaw(node::SIZE, "a further name has data of its own");
                }
            }
        }
        Ok(())
    }
}

/// Holds a node's bytes, name and target against its checksum, and the name and target against the rules for them.
///
/// # Errors
/// What does not match.
#[inline]
pub fn check_node(id: u64, bytes: &[u8; NODE_LEN], name: &[u8], target: &[u8]) -> Result<(), Flaw> {
    if u32_at(bytes, node::CRC) != node_crc(id, bytes, name, target) {
        return flaw(node::CRC, format!("the checksum of node {id} does not match"));
    }
    if id != 0 && !name_is_valid(name) {
        return flaw(node::NAME_OFF, format!("{:?} is no file name", String::from_utf8_lossy(name)));
    }
    if target.contains(&0) {
        return flaw(node::FIRST, "a target with a NUL byte");
    }
    Ok(())
}

/// Whether a file may have this name: 1 to 255 bytes, no `/`, no NUL, not `.` or `..`.
#[inline]
pub fn name_is_valid(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= NAME_MAX
        && name != b"."
        && name != b".."
        && !name.iter().any(|&b| b == b'/' || b == 0)
}

#[inline]
fn within(first: u64, count: u64, end: u64) -> bool {
    first.checked_add(count).is_some_and(|last| last <= end)
}

#[inline]
fn node_crc(id: u64, bytes: &[u8; NODE_LEN], name: &[u8], target: &[u8]) -> u32 {
    // One contiguous piece in place of four: the checksum is much faster over 64 bytes and more at once.
    const FIXED: usize = 8 + NODE_LEN - 4;
    let mut head = [0; FIXED + NAME_MAX];
    put(&mut head, 0, id.to_le_bytes());
    put(&mut head, 8, get::<{ node::CRC }>(bytes, 0));
    put(&mut head, 8 + node::CRC, get::<{ NODE_LEN - node::FIRST }>(bytes, node::FIRST));
    let end = FIXED.saturating_add(name.len());
    let mut crc = crc32fast::Hasher::new();
    match head.get_mut(FIXED..end) {
        Some(slot) => {
            slot.copy_from_slice(name);
            crc.update(head.get(..end).unwrap_or_default());
        }
        // Longer than a name can be; no valid node comes here.
        None => {
            crc.update(head.get(..FIXED).unwrap_or_default());
            crc.update(name);
        }
    }
    crc.update(target);
    crc.finalize()
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
