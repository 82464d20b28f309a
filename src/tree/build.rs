//! Collecting the entries of a tree, in the order in which an archive or a directory walk has them.

use super::scratch::Scratch;
use super::{Summary, finish};
use crate::error::{Error, Result};
use crate::format::tree::{
    DEPTH_MAX, Kind, MAX_NODES, Meta, NODE_LEN, NodeRecord, PIECE_MAX, SIZE_MAX, TARGET_MAX, name_is_valid,
};
use crate::storage::Storage;
use std::path::Path;

/// An entry given to a [`TreeBuilder`]; the number of its arrival, not its id in the finished tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub(super) u32);

/// Writes a tree index from entries in any order (only, a directory comes before what is in it).
///
/// Memory: 5 bytes an entry while they are collected (up to 10, as vectors double when they grow), 13 to 17 while the
/// tree is finished, and then the names of the largest directory with 16 bytes each; 28 bytes more a hard link. The
/// rest waits in files without a name in the scratch directory, 64 bytes an entry and its name. Finishing is fastest
/// when what is in one directory arrived together; of entries scattered over the input each costs a few reads.
///
/// Of entries with the same name in one directory the last to arrive wins. If it is a directory and those just before
/// it are too, they are one directory with the children of all and the last one's metadata; a directory that lost to
/// something else takes all that is in it along. A file that lost lives on at its hard links.
///
/// An entry that is refused with an error leaves the builder as it was, so that the caller may leave it out and go on.
#[derive(Debug)]
pub struct TreeBuilder {
    pub(super) piece_bytes: u32,
    /// An entry's 64 bytes at 64 times its arrival: `name_off` is into `names`, an alias's `first` its file's arrival.
    pub(super) nodes: Scratch,
    /// Names, each symlink's target after its name.
    pub(super) names: Scratch,
    pub(super) parents: Vec<u32>,
    pub(super) kinds: Vec<Kind>,
    /// Alias and file, ascending by the alias's arrival.
    pub(super) aliases: Vec<(u32, u32)>,
    pub(super) records: u64,
    pub(super) data_end: (u32, u32),
    bytes: u64,
}

impl TreeBuilder {
    /// Starts a tree with nothing but its root. `scratch_dir` should be on the disk of the dataset rather than in
    /// memory. Files longer than `piece_bytes` (1 to 2^31) are taken to be split in records of that many bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] for `piece_bytes` or `root`, [`Error::Io`] if no scratch file can be made.
    pub fn new(scratch_dir: &Path, root: Meta, piece_bytes: u32) -> Result<TreeBuilder> {
        if piece_bytes == 0 || piece_bytes > PIECE_MAX {
            return Err(Error::invalid(format!("pieces of {piece_bytes} bytes; they have 1 to {PIECE_MAX}")));
        }
        let mut builder = TreeBuilder {
            piece_bytes,
            nodes: Scratch::new(scratch_dir)?,
            names: Scratch::new(scratch_dir)?,
            parents: Vec::new(),
            kinds: Vec::new(),
            aliases: Vec::new(),
            records: 0,
            data_end: (0, 0),
            bytes: 0,
        };
        builder.push(EntryId(0), b"", b"", entry(Kind::Dir, root))?;
        Ok(builder)
    }

    /// The root directory.
    pub fn root(&self) -> EntryId {
        EntryId(0)
    }

    /// Entries so far, the root and those that were overwritten included.
    pub fn len(&self) -> u64 {
        self.kinds.len() as u64
    }

    /// Whether there is nothing but the root.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// Adds a directory to the directory `parent`. The bits of `meta.mode` beyond the permissions are dropped, here
    /// and below.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `parent` is no directory, the name is not 1 to 255 bytes without `/` and NUL or is `.` or
    /// `..`, the nanoseconds are no part of a second, the tree has 2^32 - 1 entries, or there are 4096 directories
    /// above. [`Error::Io`] if the scratch files cannot be written.
    pub fn dir(&mut self, parent: EntryId, name: &[u8], meta: Meta) -> Result<EntryId> {
        let mut above = parent;
        for depth in 0.. {
            if above == self.root() {
                break;
            }
            if depth + 1 >= DEPTH_MAX {
                return Err(Error::invalid(format!("a tree is at most {DEPTH_MAX} directories deep")));
            }
            above = EntryId(self.parents.get(above.0 as usize).copied().unwrap_or(0));
        }
        self.add(parent, name, b"", entry(Kind::Dir, meta))
    }

    /// Adds a regular file of `size` bytes, whose bytes are the records from `first_record` on of the stream `data`,
    /// as many as its size needs (none if it is empty; `first_record` is then ignored).
    ///
    /// # Errors
    /// Those of [`dir`](Self::dir) but for the depth; [`Error::Invalid`] for more than 2^63 - 1 bytes, more than
    /// 2^64 - 1 in all files, or records beyond 2^64 - 1.
    pub fn file(&mut self, parent: EntryId, name: &[u8], meta: Meta, first_record: u64, size: u64) -> Result<EntryId> {
        let records = size.div_ceil(u64::from(self.piece_bytes));
        let first = if records == 0 { 0 } else { first_record };
        let end = first.checked_add(records);
        let (Some(end), Some(bytes), true) = (end, self.bytes.checked_add(size), size <= SIZE_MAX) else {
            return Err(Error::invalid(format!("a file of {size} bytes from record {first_record} on is too large")));
        };
        let id = self.add(parent, name, b"", NodeRecord { first, size, ..entry(Kind::File, meta) })?;
        self.records = self.records.max(end);
        self.bytes = bytes;
        Ok(id)
    }

    /// Adds a symbolic link to `target`, 1 to 4095 bytes without NUL that are kept as they are.
    ///
    /// # Errors
    /// Those of [`dir`](Self::dir) but for the depth, and [`Error::Invalid`] for the target.
    pub fn symlink(&mut self, parent: EntryId, name: &[u8], meta: Meta, target: &[u8]) -> Result<EntryId> {
        if target.is_empty() || target.len() > TARGET_MAX || target.contains(&0) {
            return Err(Error::invalid(format!(
                "a symlink's target has 1 to {TARGET_MAX} bytes and no NUL; this one has {} bytes",
                target.len()
            )));
        }
        self.add(parent, name, target, NodeRecord { size: target.len() as u64, ..entry(Kind::Symlink, meta) })
    }

    /// Adds a further name of the file `target`, which may itself be such a name. It stays a name of that file
    /// whatever happens to the file's other names.
    ///
    /// # Errors
    /// Those of [`dir`](Self::dir) but for the depth, and [`Error::Invalid`] if `target` is no regular file.
    pub fn hardlink(&mut self, parent: EntryId, name: &[u8], target: EntryId) -> Result<EntryId> {
        let file = self.file_at(target);
        if self.kinds.get(file.0 as usize) != Some(&Kind::File) {
            return Err(Error::invalid("a hard link leads to a regular file"));
        }
        let record = NodeRecord { first: u64::from(file.0), ..entry(Kind::Alias, Meta::default()) };
        let id = self.add(parent, name, b"", record)?;
        self.aliases.push((id.0, file.0));
        Ok(id)
    }

    /// Replaces an entry's metadata; for a hard link that of its file, which all of its names share.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such entry or the nanoseconds are no part of a second, [`Error::Io`].
    pub fn set_meta(&mut self, id: EntryId, meta: Meta) -> Result<()> {
        let meta = checked(meta)?;
        let file = self.file_at(id);
        if file.0 as usize >= self.kinds.len() {
            return Err(Error::invalid("no such entry"));
        }
        self.nodes.update::<NODE_LEN>(at(file.0), |bytes| {
            // Always decodes: it is what `push` encoded.
            if let Ok(record) = NodeRecord::decode(bytes) {
                *bytes = NodeRecord { meta, ..record }.encode(u64::from(file.0), b"", b"");
            }
        })
    }

    /// Binds the tree to the stream `data` as it is now, by its header's `tail_chunk` and `tail_offset`: a stream that is
    /// changed later is then noticed.
    pub fn bind(&mut self, data_end: (u32, u32)) {
        self.data_end = data_end;
    }

    /// Writes the tree to `path`, which must not exist, and syncs it; the header last, so that a file cut off by a
    /// crash is never taken for a tree. Making the name itself durable is the caller's (sync the directory), and so is
    /// removing the file after an error.
    ///
    /// # Errors
    /// [`Error::Exists`] if something is at `path`, [`Error::Io`] if a file cannot be read or written.
    pub fn finish(self, storage: &dyn Storage, path: &Path) -> Result<Summary> {
        finish::write(self, storage, path)
    }

    /// The file an alias stands for, or the entry itself.
    fn file_at(&self, id: EntryId) -> EntryId {
        match self.aliases.binary_search_by_key(&id.0, |&(alias, _)| alias) {
            Ok(found) => EntryId(self.aliases[found].1),
            Err(_) => id,
        }
    }

    fn add(&mut self, parent: EntryId, name: &[u8], target: &[u8], record: NodeRecord) -> Result<EntryId> {
        if self.kinds.get(parent.0 as usize) != Some(&Kind::Dir) {
            return Err(Error::invalid("files are added to directories"));
        }
        if !name_is_valid(name) {
            return Err(Error::invalid(format!(
                "{:?} is no file name: it has 1 to 255 bytes, no '/', no NUL, and is not \".\" or \"..\"",
                String::from_utf8_lossy(name)
            )));
        }
        self.push(parent, name, target, record)
    }

    fn push(&mut self, parent: EntryId, name: &[u8], target: &[u8], mut record: NodeRecord) -> Result<EntryId> {
        let id = u32::try_from(self.kinds.len()).unwrap_or(u32::MAX);
        if u64::from(id) >= MAX_NODES {
            return Err(Error::invalid(format!("a tree has at most {MAX_NODES} files and directories")));
        }
        record.meta = checked(record.meta)?;
        record.name_off = self.names.push(&[name, target])?;
        record.name_len = name.len() as u16; // At most 255.
        self.nodes.push(&[&record.encode(u64::from(id), b"", b"")])?;
        self.parents.push(parent.0);
        self.kinds.push(record.kind);
        Ok(EntryId(id))
    }
}

/// Where an entry's bytes are among the scratch nodes.
pub(super) fn at(arrival: u32) -> u64 {
    u64::from(arrival) * NODE_LEN as u64
}

fn checked(meta: Meta) -> Result<Meta> {
    if meta.mtime.nanos >= 1_000_000_000 {
        return Err(Error::invalid(format!("{} nanoseconds are no part of a second", meta.mtime.nanos)));
    }
    Ok(Meta { mode: meta.mode & 0o7777, ..meta })
}

fn entry(kind: Kind, meta: Meta) -> NodeRecord {
    NodeRecord { name_off: 0, name_len: 0, kind, meta, nlink: 0, parent: 0, first: 0, size: 0 }
}
