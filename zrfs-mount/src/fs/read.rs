//! Reading files: raw records straight from their chunk, compressed ones into the reply or through the cache.

use super::{Failure, Fs};
use crate::errno::Errno;
use crate::namespace::Node;
use zrfs::format::Codec;
use zrfs::tree::NodeKind;
use zrfs::{Error, Stream};

impl Fs {
    /// Reads from byte `offset` of a file until `dst` is full or the file ends; returns the bytes read, 0 at or after
    /// the end.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`; `EIO` where the store is damaged.
    pub fn read(&self, ino: u64, offset: u64, dst: &mut [u8]) -> Result<usize, Errno> {
        self.try_read(ino, offset, dst).map_err(|e| self.fail(ino, None, e))
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

    fn try_read(&self, ino: u64, offset: u64, dst: &mut [u8]) -> Result<usize, Failure> {
        match self.node(ino)? {
            Node::Record(s, index) => self.read_record(s, self.stream(s)?, index, offset, dst),
            Node::Npy(s, index) => self.read_npy(s, index, offset, dst),
            Node::Tree(id) => self.read_tree(id, offset, dst),
            Node::Png(s, index) => self.read_png(s, index, offset, dst),
            Node::Info => Ok(copy_from(&self.info(), offset, dst)),
            Node::Stats => Ok(copy_from(&self.stats_file(), offset, dst)),
            _ => Err(Errno::ISDIR.into()),
        }
    }

    /// A read that covers a whole record decodes it into `dst`; other reads of compressed records go through the
    /// cache, so that a record read in pieces is decoded once.
    fn read_record(&self, s: u16, stream: &Stream, index: u64, offset: u64, dst: &mut [u8]) -> Result<usize, Failure> {
        let store = stream.store();
        if store.codec() == Codec::Raw {
            return Ok(store.read_range(index, offset, dst)?);
        }
        let length = u64::from(store.entry(index)?.logic_length);
        if offset >= length || dst.is_empty() {
            return Ok(0);
        }
        if offset == 0 && dst.len() as u64 >= length {
            return Ok(store.read_range(index, 0, dst)?);
        }
        let decode = |bytes: &mut [u8]| store.read_range(index, 0, bytes).map(|_| ());
        let bytes = self.cache.get((s.into(), index), length, decode)?;
        Ok(copy_from(&bytes, offset, dst))
    }

    fn read_npy(&self, s: u16, index: u64, offset: u64, dst: &mut [u8]) -> Result<usize, Failure> {
        let stream = self.stream(s)?;
        let header = stream.npy_header(index)?.ok_or(Errno::NOENT)?;
        let n = copy_from(&header, offset, dst);
        let at = offset.saturating_add(n as u64).saturating_sub(header.len() as u64);
        Ok(n + self.read_record(s, stream, index, at, &mut dst[n..])?)
    }

    fn read_tree(&self, id: u64, mut offset: u64, dst: &mut [u8]) -> Result<usize, Failure> {
        let (tree, (s, data)) = (self.tree()?, self.data_stream()?);
        let kind = match tree.node(id)?.kind {
            NodeKind::Dir { .. } => return Err(Errno::ISDIR.into()),
            NodeKind::Symlink { .. } => return Err(Errno::INVAL.into()),
            file @ NodeKind::File { .. } => file,
        };
        let mut done = 0;
        while done < dst.len() {
            let Some(piece) = tree.piece(&kind, offset) else { break };
            let length = u64::from(data.store().entry(piece.record)?.logic_length);
            if length != piece.len {
                // Tree and records are not of one pack; what is there is some other file's bytes.
                let reason = format!("it has {length} bytes where the tree index says {}", piece.len);
                return Err(Error::corrupt(data.store().path(), 0, reason).at_record(piece.record).into());
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

/// Copies what `bytes` has from `offset` on into `dst`; returns how much that was.
pub(super) fn copy_from(bytes: &[u8], offset: u64, dst: &mut [u8]) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    let n = rest.len().min(dst.len());
    dst[..n].copy_from_slice(&rest[..n]);
    n
}
