//! Decoding nodes out of cached blocks: every node that leaves this module passed all of its checks.

use super::blocks::Slot;
use super::{Node, NodeKind, Tree};
use crate::error::{Error, Result};
use crate::format::tree::{Flaw, Header, Kind, NODE_LEN, NodeRecord, check_node};
use std::iter::FusedIterator;
use std::ops::Range;

/// One reader's view of a tree. It keeps its last blocks and two buffers, so it is cheap to use many times.
#[derive(Debug)]
pub(super) struct View<'t> {
    tree: &'t Tree,
    nodes: Slot,
    heap: Slot,
    /// The name of the node read last.
    pub(super) name: Vec<u8>,
    /// Its target if it is a symlink, else empty.
    pub(super) target: Vec<u8>,
}

impl<'t> View<'t> {
    pub(super) fn new(tree: &'t Tree) -> View<'t> {
        View { tree, nodes: Slot::default(), heap: Slot::default(), name: Vec::new(), target: Vec::new() }
    }

    fn corrupt(&self, id: u64, flaw: Flaw) -> Error {
        let at = self.tree.header.node_offset(id).saturating_add(flaw.at);
        Error::corrupt(self.tree.blocks.path(), at, flaw.reason)
    }

    fn misplaced(&self, id: u64, reason: impl Into<String>) -> Error {
        self.corrupt(id, Flaw { at: 0, reason: reason.into() })
    }

    /// Reads node `id` and, into `self`, its name and target; all checked.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such node; [`Error::Corrupt`] at the first field that is wrong.
    pub(super) fn record(&mut self, id: u64) -> Result<NodeRecord> {
        let header = &self.tree.header;
        if id >= header.node_count {
            return Err(Error::invalid(format!(
                "{} has no node {id}: it has {}",
                self.tree.blocks.path().display(),
                header.node_count
            )));
        }
        let bytes = self.nodes.at(&self.tree.blocks, header.node_offset(id))?;
        // Blocks are multiples of a node long, so only a wrong header, which does not open, could cut one.
        let Some(bytes) = bytes.first_chunk::<NODE_LEN>().copied() else {
            return Err(self.misplaced(id, "the file ends in a node"));
        };
        let record = NodeRecord::decode(&bytes).map_err(|flaw| self.corrupt(id, flaw))?;
        record.validate(id, header).map_err(|flaw| self.corrupt(id, flaw))?;
        let (blocks, heap) = (&self.tree.blocks, Header::HEAP_OFFSET);
        // Both lengths and places are inside the heap now, at most 255 and 4095 bytes.
        let at = heap.saturating_add(record.name_off);
        self.heap.copy(blocks, at, usize::from(record.name_len), &mut self.name)?;
        self.target.clear();
        if record.kind == Kind::Symlink {
            let len = usize::try_from(record.size).unwrap_or_default();
            self.heap.copy(blocks, heap.saturating_add(record.first), len, &mut self.target)?;
        }
        check_node(id, &bytes, &self.name, &self.target).map_err(|flaw| self.corrupt(id, flaw))?;
        Ok(record)
    }

    /// Reads node `id` as a child of `dir`.
    ///
    /// # Errors
    /// Those of [`record`](Self::record), and [`Error::Corrupt`] if it belongs to another directory.
    pub(super) fn child(&mut self, dir: u64, id: u64) -> Result<NodeRecord> {
        let record = self.record(id)?;
        if u64::from(record.parent) != dir {
            return Err(self.misplaced(id, format!("node {id} is listed in {dir} but belongs to {}", record.parent)));
        }
        Ok(record)
    }

    /// The ids of the children of directory `dir`.
    ///
    /// # Errors
    /// Those of [`record`](Self::record), and [`Error::Invalid`] if it is not a directory.
    pub(super) fn dir(&mut self, dir: u64) -> Result<Range<u64>> {
        self.dir_if_one(dir)?.ok_or_else(|| {
            Error::invalid(format!("node {dir} of {} is no directory", self.tree.blocks.path().display()))
        })
    }

    /// As [`dir`](Self::dir), but `None` for what is not a directory.
    pub(super) fn dir_if_one(&mut self, id: u64) -> Result<Option<Range<u64>>> {
        let record = self.record(id)?;
        Ok((record.kind == Kind::Dir).then(|| children(&record)))
    }

    /// The node that `record`, read last and at `id`, stands for, following an alias to its file.
    ///
    /// # Errors
    /// Those of [`record`](Self::record), and [`Error::Corrupt`] if an alias does not lead to a file.
    pub(super) fn node(&mut self, id: u64, record: &NodeRecord) -> Result<Node> {
        let name = std::mem::take(&mut self.name);
        let mut owner = *record;
        let mut ino = id;
        if record.kind == Kind::Alias {
            ino = record.first;
            owner = self.record(ino)?;
            if owner.kind != Kind::File {
                return Err(self.misplaced(id, format!("a further name of node {ino}, which is no file")));
            }
        }
        let kind = match owner.kind {
            Kind::Dir => NodeKind::Dir { children: children(&owner) },
            Kind::Symlink => NodeKind::Symlink { target: std::mem::take(&mut self.target) },
            Kind::File | Kind::Alias => NodeKind::File {
                first: owner.first,
                records: owner.size.div_ceil(u64::from(self.tree.header.piece_bytes.max(1))),
                size: owner.size,
            },
        };
        Ok(Node { id, ino, parent: u64::from(record.parent), name, meta: owner.meta, nlink: owner.nlink, kind })
    }
}

fn children(dir: &NodeRecord) -> Range<u64> {
    dir.first..dir.first.saturating_add(dir.size)
}

/// The children of a directory in the order of their names; see [`Tree::list`].
#[derive(Debug)]
pub struct List<'t> {
    view: View<'t>,
    dir: u64,
    rest: Range<u64>,
    last: Vec<u8>,
}

impl<'t> List<'t> {
    pub(super) fn new(tree: &'t Tree, dir: u64, skip: u64) -> Result<List<'t>> {
        let mut view = View::new(tree);
        let all = view.dir(dir)?;
        let rest = all.start.saturating_add(skip).min(all.end)..all.end;
        Ok(List { view, dir, rest, last: Vec::new() })
    }

    fn read(&mut self, id: u64) -> Result<Node> {
        let record = self.view.child(self.dir, id)?;
        if self.view.name <= self.last {
            return Err(self.view.misplaced(id, "its name does not come after the one before it"));
        }
        self.last.clone_from(&self.view.name);
        self.view.node(id, &record)
    }
}

impl Iterator for List<'_> {
    type Item = Result<Node>;

    /// The next child; after an error the listing is over.
    fn next(&mut self) -> Option<Result<Node>> {
        let id = self.rest.next()?;
        let node = self.read(id);
        if node.is_err() {
            self.rest.start = self.rest.end;
        }
        Some(node)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, usize::try_from(self.rest.end.saturating_sub(self.rest.start)).ok())
    }
}

impl FusedIterator for List<'_> {}
