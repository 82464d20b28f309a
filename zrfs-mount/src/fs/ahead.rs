//! What the workers of [`crate::ahead`] need of the file system: where reads are, which files come next, their bytes.

use super::read::Via;
use super::{Failure, Fs};
use crate::ahead::order::{Claim, Cursor, Item, Place, Space};
use crate::ahead::{Ahead, MAX_FILE, Record};
use crate::namespace::Node;
use std::sync::Arc;
use zrfs::cache::Key;
use zrfs::format::Codec;
use zrfs::tree::NodeKind;

/// Nodes of a tree that are looked at for one claim, at most: a tree may have few files among many links.
const MAX_STEPS: usize = 1024;

/// The bytes of a file.
#[derive(Debug)]
pub enum Loaded {
    /// A record that readers can get from the cache meanwhile.
    Shared(Arc<Vec<u8>>, Key),
    /// In the buffer that was given.
    InBuffer,
}

impl Loaded {
    /// The bytes; `buffer` is the one that was given.
    pub fn bytes<'a>(&'a self, buffer: &'a [u8]) -> &'a [u8] {
        match self {
            Loaded::Shared(bytes, _) => bytes,
            Loaded::InBuffer => buffer,
        }
    }
}

impl Fs {
    /// The readers, and the work for them.
    pub fn ahead(&self) -> &Ahead {
        &self.ahead
    }

    /// Takes note that a reader is at the start of a file.
    pub(super) fn note(&self, space: Space, at: u64, records: u64, node: Node) {
        if self.ahead.is_on() {
            self.ahead.note(Place { space, at, end: at.saturating_add(records), node });
        }
    }

    /// Adds to `to` the next files of an order, until there are enough of them or of their bytes; where to go on, `None`
    /// at the end.
    pub fn next_files(&self, claim: &Claim, bytes: u64, to: &mut Vec<Item>) -> Option<Cursor> {
        // A damaged table or tree ends an order; its reader gets the error.
        match (claim.space, claim.cursor) {
            (Space::Tree, Cursor::After(id)) => self.next_in_tree(id, claim.files, bytes, to).ok()?.map(Cursor::After),
            (space, Cursor::Index { next, stride }) => self.next_records(space, next, stride, claim.files, bytes, to),
            (space, Cursor::Announced(place)) => self.next_announced(space, place, &claim.indices, bytes, to),
            _ => None,
        }
    }

    fn next_announced(
        &self,
        space: Space,
        mut place: u64,
        indices: &[u64],
        mut bytes: u64,
        to: &mut Vec<Item>,
    ) -> Option<Cursor> {
        for &index in indices {
            let (node, length) = self.file_in(space, index)?;
            to.push(Item { node, at: place, end: place.checked_add(1)?, bytes: length });
            place = place.checked_add(1)?;
            bytes = bytes.saturating_sub(length);
            if bytes == 0 {
                break;
            }
        }
        (!indices.is_empty()).then_some(Cursor::Announced(place))
    }

    /// The file of a record, and its length; 0 for one with a damaged entry, which is left out. `None` where files are no
    /// records.
    fn file_in(&self, space: Space, index: u64) -> Option<(Node, u64)> {
        let node = match space {
            Space::Records(s) => Node::Record(s, index),
            Space::Npys(s) => Node::Npy(s, index),
            Space::Tree => return None,
        };
        Some((node, self.attr(node).map_or(0, |attr| attr.size)))
    }

    fn next_records(
        &self,
        space: Space,
        mut next: u64,
        stride: i64,
        files: usize,
        mut bytes: u64,
        to: &mut Vec<Item>,
    ) -> Option<Cursor> {
        let (Space::Records(s) | Space::Npys(s)) = space else { return None };
        let store = self.stream(s).ok()?.store();
        for _ in 0..files {
            if next >= store.len() {
                return None;
            }
            let (node, length) = self.file_in(space, next)?;
            to.push(Item { node, at: next, end: next + 1, bytes: length });
            next = next.checked_add_signed(stride)?;
            bytes = bytes.saturating_sub(length);
            if bytes == 0 {
                break;
            }
        }
        Some(Cursor::Index { next, stride })
    }

    /// The regular files after node `at` in the order of a walk: depth first, as listings have them.
    fn next_in_tree(
        &self,
        mut at: u64,
        files: usize,
        mut bytes: u64,
        to: &mut Vec<Item>,
    ) -> Result<Option<u64>, Failure> {
        let tree = self.tree()?;
        let mut steps = 0;
        'directories: loop {
            let here = tree.node(at)?;
            let (dir, skip) = match here.kind {
                NodeKind::Dir { children } if !children.is_empty() => (at, 0),
                _ => {
                    let (mut id, mut parent) = (at, here.parent);
                    loop {
                        if id == 0 {
                            return Ok(None);
                        }
                        let siblings = tree.children(parent)?;
                        if id + 1 < siblings.end {
                            break (parent, id + 1 - siblings.start);
                        }
                        (id, parent) = (parent, tree.node(parent)?.parent);
                    }
                }
            };
            for node in tree.list(dir, skip)? {
                let node = node?;
                (at, steps) = (node.id, steps + 1);
                match node.kind {
                    NodeKind::File { first, records, size } if size > 0 && node.ino == node.id => {
                        let end = first.saturating_add(records);
                        to.push(Item { node: Node::Tree(at), at: first, end, bytes: size });
                        bytes = bytes.saturating_sub(size);
                    }
                    NodeKind::Dir { .. } => continue 'directories,
                    _ => {}
                }
                if to.len() >= files || bytes == 0 || steps >= MAX_STEPS {
                    return Ok(Some(at));
                }
            }
        }
    }

    /// The record that is all of a file, if it is compressed.
    fn sole_record(&self, node: Node, length: u64) -> Option<(u16, u64)> {
        let (s, index) = match node {
            Node::Record(s, index) => (s, index),
            Node::Tree(id) => {
                let (tree, (s, _)) = (self.tree().ok()?, self.data_stream().ok()?);
                let piece = tree.piece(&tree.node(id).ok()?.kind, 0)?;
                (s, (piece.len == length).then_some(piece.record)?)
            }
            _ => return None,
        };
        (self.stream(s).ok()?.store().codec() != Codec::Raw).then_some((s, index))
    }

    /// The bytes of a file of `length`; `None` if it can't be read, which its reader will hear of.
    pub fn load(&self, node: Node, length: u64, buffer: &mut Vec<u8>) -> Option<Loaded> {
        if length > MAX_FILE {
            return None;
        }
        if let Some((s, index)) = self.sole_record(node, length) {
            let bytes = self.shared_record(s, self.stream(s).ok()?, index, length).ok()?;
            return (bytes.len() as u64 == length).then_some(Loaded::Shared(bytes, (s.into(), index)));
        }
        buffer.resize(length as usize, 0);
        let read = self.read_node(node, 0, buffer, Via::Ahead).ok()?;
        (read as u64 == length).then_some(Loaded::InBuffer)
    }

    /// Decodes a file of `length` bytes into the cache, from where its reader gets it.
    pub fn decode_ahead(&self, node: Node, length: u64) {
        if length <= MAX_FILE
            && let Some((s, index)) = self.sole_record(node, length)
            && let Ok(stream) = self.stream(s)
        {
            // Its reader gets the error.
            let _ = self.shared_record(s, stream, index, length);
        }
    }

    /// Takes note of a read in a file of several compressed records, and has the next ones decoded if it is in order.
    pub(super) fn note_within(&self, id: u64, kind: &NodeKind, offset: u64, length: usize) -> Result<(), Failure> {
        let (NodeKind::File { records, .. }, (stream, data)) = (kind, self.data_stream()?) else { return Ok(()) };
        let piece = u64::from(self.tree()?.piece_bytes());
        // Half of the cache at most, or what is decoded ahead would drive out what is being read.
        let fits = self.cache.budget() / 2 / piece.max(1);
        if *records < 2 || data.store().codec() == Codec::Raw || fits == 0 {
            return Ok(());
        }
        let tree = self.tree()?;
        self.ahead.note_within(id, offset, length as u64, piece, |numbers| {
            let pieces = numbers.take(fits as usize).map_while(|n| tree.piece(kind, n.checked_mul(piece)?));
            pieces.map(|p| Record { stream, index: p.record, length: p.len }).collect()
        });
        Ok(())
    }

    /// Decodes a record into the cache; its reader gets the error.
    pub fn decode_record(&self, record: Record) {
        if let Ok(stream) = self.stream(record.stream)
            && self.shared_record(record.stream, stream, record.index, record.length).is_ok()
        {
            self.counters.records_ahead.add(1);
        }
    }

    /// Lets go of the bytes of a file that the kernel has now.
    pub fn release(&self, loaded: Loaded) {
        if let Loaded::Shared(bytes, key) = loaded {
            drop(bytes);
            self.cache.forget(key);
        }
    }
}
