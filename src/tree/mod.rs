//! The tree index: paths for the records of a dataset that was packed from files.
//!
//! A dataset packed from a directory or an archive has its files' bytes as records of the stream `data`, and beside
//! the streams a file `tree.zr` that says which path has which records. [`TreeBuilder`] writes one, [`Tree`] reads it.
//! `format::tree` has the layout.
//!
//! Opening costs the same for ten files and for a hundred million: it reads the 128 bytes of the header. Everything
//! else is read where it is needed, through caches of about 4 MiB a tree, and checked as it is read: a node has a
//! checksum of its own over its fields, name and target, and points only forward (children) or only backward (parents,
//! hard links), so no walk can go in circles.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::arithmetic_side_effects)]

mod blocks;
// The builder parses nothing but what it wrote itself: its indices are ids that it gave out, its sums are bounded by
// the entries it counted.
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod build;
mod copy;
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod finish;
mod probes;
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod scratch;
mod verify;
mod view;

pub use crate::format::tree::{Meta, Mtime, name_is_valid};
pub use build::{EntryId, TreeBuilder};
pub use view::List;

use crate::error::{Error, Result};
use crate::format::tree::{DEPTH_MAX, HEADER_LEN, Header, VERSION};
use crate::storage::{Storage, read_exact_at};
use blocks::{BLOCK_NODES, Blocks};
use probes::Probes;
use std::cmp::Ordering;
use std::ops::Range;
use std::path::Path;
use view::View;

/// What a tree has in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Entries of every kind, the root among them; their ids are 0 to this, exclusive.
    pub nodes: u64,
    /// Names of regular files, further names of hard-linked ones included.
    pub files: u64,
    /// Directories, the root included.
    pub dirs: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Sum of the sizes of the distinct regular files in bytes.
    pub total_bytes: u64,
    /// Files point to records of the stream `data` below this.
    pub records: u64,
    /// A file longer than this is several records, all of exactly this many bytes but the last.
    pub piece_bytes: u32,
    /// Where the stream `data` ended when the tree was made, by its header's `tail_chunk` and `tail_offset`; zeros where
    /// nobody said.
    pub data_end: (u32, u32),
    /// Length of `tree.zr` in bytes.
    pub index_bytes: u64,
}

impl From<&Header> for Summary {
    fn from(header: &Header) -> Summary {
        Summary {
            nodes: header.node_count,
            files: header.file_count,
            dirs: header.dir_count,
            symlinks: header.symlink_count,
            total_bytes: header.total_bytes,
            records: header.record_count,
            piece_bytes: header.piece_bytes,
            data_end: header.data_end,
            index_bytes: header.file_len(),
        }
    }
}

/// A file, directory or symlink of a tree, at one of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// This name's id.
    pub id: u64,
    /// The same for all names of a hard-linked file: the id of the first of them. For all else it is `id`.
    pub ino: u64,
    /// The directory the name is in; the root is in itself.
    pub parent: u64,
    /// The name in that directory, any bytes but `/` and NUL; empty for the root.
    pub name: Vec<u8>,
    /// Permissions, time and owner.
    pub meta: Meta,
    /// A file's names, or 2 and the number of a directory's subdirectories.
    pub nlink: u32,
    /// What it is.
    pub kind: NodeKind,
}

/// What a node is, with what only its kind has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeKind {
    /// A directory.
    Dir {
        /// The ids of its children, in the order of their names.
        children: Range<u64>,
    },
    /// A regular file.
    File {
        /// Its first record in the stream `data`; 0 if it is empty.
        first: u64,
        /// How many records it has, one after the other.
        records: u64,
        /// Bytes.
        size: u64,
    },
    /// A symbolic link.
    Symlink {
        /// Where it leads, 1 to 4095 bytes, uninterpreted.
        target: Vec<u8>,
    },
}

/// Where a byte of a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The record of the stream `data`.
    pub record: u64,
    /// The byte's offset in that record.
    pub offset: u64,
    /// The record's length in bytes, more than `offset`.
    pub len: u64,
}

/// An open tree index; threads share it freely.
#[derive(Debug)]
pub struct Tree {
    header: Header,
    blocks: Blocks,
    probes: Probes,
}

impl Tree {
    /// Opens the tree index at `path` (the `tree.zr` of a dataset), reading its header only.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read, [`Error::Invalid`] if it has another version, [`Error::Corrupt`] if it is no
    /// tree index or its length is not what its header says.
    pub fn open(storage: &dyn Storage, path: &Path) -> Result<Tree> {
        let file = storage.open(path).map_err(Error::io("open", path))?;
        let len = file.size().map_err(Error::io("measure", path))?;
        let mut bytes = [0; HEADER_LEN];
        read_exact_at(&*file, path, &mut bytes, 0, "the header of a tree index")?;
        if let Some(version) = Header::version(&bytes).filter(|&v| v != VERSION) {
            return Err(Error::invalid(format!(
                "{} is a tree index of version {version} and this zrfs reads version {VERSION}; use the zrfs that wrote it, \
                 or pack the files again",
                path.display()
            )));
        }
        let header = Header::decode(&bytes, len).map_err(|flaw| Error::corrupt(path, flaw.at, flaw.reason))?;
        Ok(Tree { header, blocks: Blocks::new(file, path, len), probes: Probes::new() })
    }

    /// What the tree has in all.
    pub fn summary(&self) -> Summary {
        Summary::from(&self.header)
    }

    /// Entries of every kind, the root among them; their ids are 0 to this, exclusive.
    pub fn node_count(&self) -> u64 {
        self.header.node_count
    }

    /// A file longer than this is several records, all of exactly this many bytes but the last.
    pub fn piece_bytes(&self) -> u32 {
        self.header.piece_bytes
    }

    /// The node `id`; 0 is the root. For a further name of a hard-linked file it is the file at that name, with `ino`
    /// the id of its first name.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such node, [`Error::Corrupt`] if it is damaged, [`Error::Io`].
    pub fn node(&self, id: u64) -> Result<Node> {
        let mut view = View::new(self);
        let record = view.record(id)?;
        view.node(id, &record)
    }

    /// The ids of the children of directory `dir`, in the order of their names.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such directory, [`Error::Corrupt`], [`Error::Io`].
    pub fn children(&self, dir: u64) -> Result<Range<u64>> {
        View::new(self).dir(dir)
    }

    /// The children of directory `dir` without the first `skip`, in the order of their names (compared as bytes).
    /// Faster than a [`node`](Self::node) each, as it stays in a block without locking.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such directory, [`Error::Corrupt`], [`Error::Io`]; each item again.
    pub fn list(&self, dir: u64, skip: u64) -> Result<List<'_>> {
        List::new(self, dir, skip)
    }

    /// The id of the child of directory `dir` with this name, by a binary search; `None` if it has none (or the name
    /// is one that no file has).
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such directory, [`Error::Corrupt`], [`Error::Io`].
    pub fn lookup(&self, dir: u64, name: &[u8]) -> Result<Option<u64>> {
        let mut view = View::new(self);
        let children = view.dir(dir)?;
        self.search(&mut view, dir, children, name)
    }

    /// The id of the node at a path from the root, parts separated by `/`. Empty parts (leading, trailing or doubled
    /// slashes) are skipped, symlinks are not followed, `.` and `..` are names that no file has. `None` if there is no
    /// such path.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn resolve(&self, path: &[u8]) -> Result<Option<u64>> {
        let mut view = View::new(self);
        let mut id = 0;
        for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            let Some(children) = view.dir_if_one(id)? else { return Ok(None) };
            match self.search(&mut view, id, children, name)? {
                Some(child) => id = child,
                None => return Ok(None),
            }
        }
        Ok(Some(id))
    }

    /// The child of `dir`, among `children`, named `name`.
    fn search(&self, view: &mut View<'_>, dir: u64, children: Range<u64>, name: &[u8]) -> Result<Option<u64>> {
        if !name_is_valid(name) {
            return Ok(None);
        }
        let (mut low, mut high) = (children.start, children.end);
        while low < high {
            let middle = low.midpoint(high);
            // The last steps fall into a block or two, which are read once and not worth keeping name by name.
            let wide = high.saturating_sub(low) > BLOCK_NODES;
            let kept = if wide { self.probes.compare(dir, middle, name) } else { None };
            let order = match kept {
                Some(order) => order,
                None => {
                    view.child(dir, middle)?;
                    if wide {
                        self.probes.keep(dir, middle, &view.name);
                    }
                    view.name.as_slice().cmp(name)
                }
            };
            match order {
                Ordering::Less => low = middle.saturating_add(1),
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(Some(middle)),
            }
        }
        Ok(None)
    }

    /// The path of node `id` from the root, without a leading slash; empty for the root.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such node, [`Error::Corrupt`], [`Error::Io`].
    pub fn path_of(&self, id: u64) -> Result<Vec<u8>> {
        let mut view = View::new(self);
        let mut names = Vec::new();
        let mut at = id;
        // A parent's id is less than its child's, so this ends; the bound keeps a forged chain from growing a path.
        while at != 0 {
            let parent = u64::from(view.record(at)?.parent);
            names.push(std::mem::take(&mut view.name));
            let listed = view.dir_if_one(parent)?.is_some_and(|children| children.contains(&at));
            if !listed || names.len() > DEPTH_MAX.saturating_add(1) {
                let offset = self.header.node_offset(at);
                let reason = format!("node {at} is not where its parent {parent} lists its children");
                return Err(Error::corrupt(self.blocks.path(), offset, reason));
            }
            at = parent;
        }
        names.reverse();
        Ok(names.join(&b'/'))
    }

    /// Where byte `offset` of a file is: the record, the offset in it and its length. `None` at or beyond the file's
    /// end, and for what is no file. Reads nothing.
    pub fn piece(&self, kind: &NodeKind, offset: u64) -> Option<Piece> {
        let NodeKind::File { first, size, .. } = *kind else { return None };
        let piece = u64::from(self.header.piece_bytes);
        let rest = size.checked_sub(offset).filter(|&rest| rest > 0)?;
        let number = offset.checked_div(piece)?;
        let within = offset.checked_rem(piece)?;
        let len = rest.saturating_add(within).min(piece);
        Some(Piece { record: first.checked_add(number)?, offset: within, len })
    }
}

#[cfg(test)]
mod tests;
