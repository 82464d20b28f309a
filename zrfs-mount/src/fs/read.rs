//! Reading files: raw records straight from their chunk, compressed ones into the reply or through the cache.

use super::{Failure, Fs};
use crate::ahead::order::Space;
use crate::errno::Errno;
use crate::namespace::{Node, Part};
use std::ops::Range;
use std::sync::Arc;
use zrfs::format::Codec;
use zrfs::tree::NodeKind;
use zrfs::{Error, Stream};

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Via {
    /// A reader of the mount.
    Reader,
    /// A worker that goes ahead of one.
    Ahead,
}

/// The bytes that a read gives.
#[derive(Debug)]
pub enum Answer {
    /// So many, at the start of the buffer that was given.
    InBuffer(usize),
    /// Those of a batch, where they are.
    Shared(Arc<Vec<u8>>, Range<usize>),
}

impl Answer {
    /// The bytes; `buffer` is the one that was given.
    pub fn bytes<'a>(&'a self, buffer: &'a [u8]) -> &'a [u8] {
        match self {
            Answer::InBuffer(n) => buffer.get(..*n),
            Answer::Shared(bytes, range) => bytes.get(range.clone()),
        }
        .unwrap_or_default()
    }
}

impl Fs {
    /// The same as [`read`](Fs::read), but a part of a batch that is in memory is not copied to `dst`.
    ///
    /// # Errors
    /// As [`read`](Fs::read).
    pub fn answer(&self, ino: u64, offset: u64, dst: &mut [u8]) -> Result<Answer, Errno> {
        let Ok(Node::BatchFile(s, batch, Part::Values)) = self.node(ino) else {
            return self.read(ino, offset, dst).map(Answer::InBuffer);
        };
        let answer = self.read_values(s, batch, offset, dst).map_err(|e| self.fail(ino, None, e))?;
        self.counters.reads.add(1);
        self.counters.read_bytes.add(answer.bytes(dst).len() as u64);
        Ok(answer)
    }

    /// Reads from byte `offset` of a file until `dst` is full or the file ends; returns the bytes read, 0 at or after
    /// the end.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`; `EIO` where the store is damaged.
    pub fn read(&self, ino: u64, offset: u64, dst: &mut [u8]) -> Result<usize, Errno> {
        let read =
            self.node(ino).map_err(Failure::Errno).and_then(|node| self.read_node(node, offset, dst, Via::Reader));
        self.counters.reads.add(1);
        self.counters.read_bytes.add(*read.as_ref().unwrap_or(&0) as u64);
        read.map_err(|e| self.fail(ino, None, e))
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// `ENOENT`; `EINVAL` if it is no symbolic link; `EIO` where the tree is damaged.
    pub fn readlink(&self, ino: u64) -> Result<Vec<u8>, Errno> {
        let target = || -> Result<Vec<u8>, Failure> {
            let Node::Tree(id) = self.node(ino)? else { return Err(Errno::INVAL.into()) };
            match self.tree()?.node(id)?.kind {
                NodeKind::Symlink { target } => Ok(target),
                _ => Err(Errno::INVAL.into()),
            }
        };
        target().map_err(|e| self.fail(ino, None, e))
    }

    /// Reads a file, and takes note of a reader at its start.
    pub(super) fn read_node(&self, node: Node, offset: u64, dst: &mut [u8], via: Via) -> Result<usize, Failure> {
        let starts = via == Via::Reader && offset == 0;
        match node {
            Node::Record(s, index) => {
                if starts {
                    self.note(Space::Records(s), index, 1, node);
                }
                Ok(self.read_record(s, self.stream(s)?, index, offset, dst)?)
            }
            Node::Npy(s, index) => {
                if starts {
                    self.note(Space::Npys(s), index, 1, node);
                }
                self.read_npy(s, index, offset, dst)
            }
            Node::Tree(id) => self.read_tree(id, offset, dst, via),
            Node::Png(s, index) => self.read_png(s, index, offset, dst),
            Node::Info => Ok(copy_from(&self.info(), offset, dst)),
            Node::Stats => Ok(copy_from(&self.stats(), offset, dst)),
            Node::BatchIndices(batch) => self.read_indices(batch, offset, dst),
            Node::BatchFile(s, batch, part) => self.read_batch(s, batch, part, offset, dst),
            Node::Control => Ok(0),
            Node::View(seal) => self.read_view(seal, offset, dst),
            Node::Spelled(id) => Ok(copy_from(self.read_spelled(id)?.as_bytes(), offset, dst)),
            _ => Err(Errno::ISDIR.into()),
        }
    }

    /// A read that covers a whole record decodes it into `dst`, unless somebody has it decoded already; other reads of
    /// compressed records go through the cache, so that a record read in pieces is decoded once.
    pub(super) fn read_record(
        &self,
        s: u16,
        stream: &Stream,
        index: u64,
        offset: u64,
        dst: &mut [u8],
    ) -> zrfs::Result<usize> {
        let store = stream.store();
        if store.codec() == Codec::Raw {
            return store.read_range(index, offset, dst);
        }
        let length = u64::from(store.entry(index)?.logic_length);
        if offset >= length || dst.is_empty() {
            return Ok(0);
        }
        if offset == 0 && dst.len() as u64 >= length {
            let key = (s.into(), index);
            if let Some(bytes) = self.cache.join(key) {
                self.counters.decoded_already.add(1);
                let n = copy_from(&bytes, 0, dst);
                // The kernel keeps it from here on.
                drop(bytes);
                self.cache.forget(key);
                return Ok(n);
            }
            self.counters.decoded_bytes.add(length);
            return store.read_range(index, 0, dst);
        }
        let bytes = self.shared_record(s, stream, index, length)?;
        Ok(copy_from(&bytes, offset, dst))
    }

    /// All of a compressed record, which has `length` bytes, from the cache; decoded there if it has to be.
    pub(super) fn shared_record(&self, s: u16, stream: &Stream, index: u64, length: u64) -> zrfs::Result<Arc<Vec<u8>>> {
        self.cache.get((s.into(), index), length, |bytes| {
            self.counters.decoded_bytes.add(length);
            let store = stream.store();
            let have = u64::from(store.entry(index)?.logic_length);
            if have != length {
                return Err(other_bytes(stream, index, have, length));
            }
            store.read_range(index, 0, bytes).map(|_| ())
        })
    }

    fn read_npy(&self, s: u16, index: u64, offset: u64, dst: &mut [u8]) -> Result<usize, Failure> {
        let stream = self.stream(s)?;
        let header = stream.npy_header(index)?.ok_or(Errno::NOENT)?;
        let n = copy_from(&header, offset, dst);
        let at = offset.saturating_add(n as u64).saturating_sub(header.len() as u64);
        Ok(n + self.read_record(s, stream, index, at, &mut dst[n..])?)
    }

    fn read_tree(&self, id: u64, mut offset: u64, dst: &mut [u8], via: Via) -> Result<usize, Failure> {
        let (tree, (s, data)) = (self.tree()?, self.data_stream()?);
        let kind = match tree.node(id)?.kind {
            NodeKind::Dir { .. } => return Err(Errno::ISDIR.into()),
            NodeKind::Symlink { .. } => return Err(Errno::INVAL.into()),
            file @ NodeKind::File { .. } => file,
        };
        if via == Via::Reader
            && let NodeKind::File { first, records, .. } = kind
        {
            if offset == 0 {
                self.note(Space::Tree, first, records, Node::Tree(id));
            }
            self.note_within(id, &kind, offset, dst.len())?;
        }
        let mut done = 0;
        while done < dst.len() {
            let Some(piece) = tree.piece(&kind, offset) else { break };
            let length = u64::from(data.store().entry(piece.record)?.logic_length);
            if length != piece.len {
                return Err(other_bytes(data, piece.record, length, piece.len).into());
            }
            let n = self.read_record(s, data, piece.record, piece.offset, &mut dst[done..])?;
            if n == 0 {
                break;
            }
            done += n;
            offset += n as u64;
        }
        Ok(done)
    }
}

/// Tree and records are not of one pack; what is there is some other file's bytes.
fn other_bytes(data: &Stream, record: u64, have: u64, want: u64) -> Error {
    let reason = format!("it has {have} bytes where the tree index says {want}");
    Error::corrupt(data.store().path(), 0, reason).at_record(record)
}

/// Copies what `bytes` has from `offset` on into `dst`; returns how much that was.
pub(super) fn copy_from(bytes: &[u8], offset: u64, dst: &mut [u8]) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    let n = rest.len().min(dst.len());
    dst[..n].copy_from_slice(&rest[..n]);
    n
}
