//! Attributes of inodes, all computed from what they stand for.

use super::{FOREVER, Failure, Fs, SOON, counters, mtime_of};
use crate::errno::Errno;
use crate::namespace::{Node, ROOT};
use std::sync::PoisonError;
use std::time::{Duration, SystemTime};
use zrfs::Source;
use zrfs::tree::{Mtime, NodeKind};

/// What kind of file an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Dir,
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
}

/// An inode's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: u64,
    /// Kind of file.
    pub kind: Kind,
    /// Length in bytes.
    pub size: u64,
    /// Permission bits, at most `0o7777`.
    pub perm: u16,
    /// Names of a file; of a directory 2 and one for each directory in it.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last change of the contents.
    pub mtime: Mtime,
    /// How long the kernel may go without asking again.
    pub ttl: Duration,
}

impl Attr {
    /// The file's length in blocks of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.size.div_ceil(512)
    }
}

impl Fs {
    /// The attributes of a node.
    pub(super) fn attr(&self, node: Node) -> Result<Attr, Failure> {
        match node {
            Node::Record(s, index) => {
                let entry = self.stream(s)?.store().entry(index)?;
                self.record_attr(node, s, entry.logic_length.into())
            }
            Node::Npy(s, index) => {
                let stream = self.stream(s)?;
                let header = stream.npy_header(index)?.ok_or(Errno::NOENT)?.len() as u64;
                let record = u64::from(stream.store().entry(index)?.logic_length);
                self.record_attr(node, s, header + record)
            }
            Node::Png(s, index) => {
                let image = self.image(s, index)?.ok_or(Errno::NOENT)?;
                self.record_attr(node, s, image.file_len())
            }
            Node::Tree(id) => Ok(self.tree_attr(&self.tree()?.node(id)?)?),
            Node::Records(s) | Node::Npys(s) | Node::Pngs(s) | Node::Files(s) => {
                self.check_dir(node, s)?;
                self.refresh(s)?;
                let mtime = *self.state(s)?.grown.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(Attr { mtime, ttl: SOON, ..self.blank(node, Kind::Dir)? })
            }
            Node::Info => {
                let size = self.info().len() as u64;
                Ok(Attr { size, ttl: SOON, mtime: self.last_grown(), ..self.blank(node, Kind::File)? })
            }
            // Other at each look, so that the kernel shows no old numbers.
            Node::Stats => {
                let (size, mtime) = (counters::STATS_BYTES as u64, mtime_of(SystemTime::now()));
                Ok(Attr { size, mtime, ttl: Duration::ZERO, ..self.blank(node, Kind::File)? })
            }
            Node::Spelled(id) => {
                let size = self.spelled_text(id)?.len() as u64;
                Ok(Attr { size, ttl: Duration::ZERO, ..self.blank(node, Kind::File)? })
            }
            Node::Batches
            | Node::At
            | Node::Spec(_)
            | Node::BatchDir(_)
            | Node::BatchIndices(_)
            | Node::BatchFile(..)
            | Node::Samples
            | Node::Sample(_) => self.batch_attr(node),
            Node::Control => Ok(self.blank(node, Kind::File)?),
            Node::View(seal) => self.view_attr(seal),
            Node::Streams | Node::Stream(_) if matches!(self.source, Source::Store(_)) => Err(Errno::NOENT.into()),
            Node::Stream(s) if self.stream(s).is_err() => Err(Errno::NOENT.into()),
            Node::Root | Node::Streams | Node::Stream(_) | Node::Zrfs | Node::Readahead | Node::Views => {
                let entries = (0..).map_while(|k| self.fixed_child(node, k));
                let dirs =
                    entries.filter(|(_, n)| !matches!(n, Node::Info | Node::Stats | Node::Control)).count() as u32;
                Ok(Attr { nlink: 2 + dirs, ..self.blank(node, Kind::Dir)? })
            }
        }
    }

    pub(super) fn record_attr(&self, node: Node, s: u16, size: u64) -> Result<Attr, Failure> {
        // A record that `files` names has a second name, and so has what `samples` has of a dataset.
        let named = matches!(node, Node::Record(..)) && self.options.names.is_some();
        let sample = matches!(node, Node::Record(..) | Node::Npy(..)) && matches!(self.source, Source::Dataset(_));
        let nlink = 1 + u32::from(named) + u32::from(sample);
        Ok(Attr { size, nlink, mtime: self.state(s)?.mtime, ..self.blank(node, Kind::File)? })
    }

    /// The attributes of the inode that a name in the tree has.
    pub(super) fn tree_attr(&self, node: &zrfs::tree::Node) -> Result<Attr, Errno> {
        let (kind, size) = match &node.kind {
            NodeKind::Dir { .. } => (Kind::Dir, 0),
            NodeKind::File { size, .. } => (Kind::File, *size),
            NodeKind::Symlink { target } => (Kind::Symlink, target.len() as u64),
        };
        let perm = if kind == Kind::Symlink { 0o777 } else { node.meta.mode & 0o7777 & !self.options.umask };
        let blank = self.blank(Node::Tree(node.ino), kind)?;
        Ok(Attr { size, perm, nlink: node.nlink, mtime: node.meta.mtime, ..blank })
    }

    /// What a node's attributes are where nothing else is known.
    pub(super) fn blank(&self, node: Node, kind: Kind) -> Result<Attr, Errno> {
        let (mode, nlink) = if kind == Kind::Dir { (0o555, 2) } else { (0o444, 1) };
        let ino = self.ino(node)?;
        Ok(Attr {
            ino,
            kind,
            size: 0,
            perm: mode & !self.options.umask,
            nlink,
            uid: self.options.uid,
            gid: self.options.gid,
            mtime: self.states.iter().map(|s| s.mtime).max_by_key(|m| (m.secs, m.nanos)).unwrap_or_default(),
            // Asking for the root is how people find out whether a mount is alive.
            ttl: if ino == ROOT { SOON } else { FOREVER },
        })
    }

    pub(super) fn last_grown(&self) -> Mtime {
        let grown = self.states.iter().map(|s| *s.grown.lock().unwrap_or_else(PoisonError::into_inner));
        grown.max_by_key(|m| (m.secs, m.nanos)).unwrap_or_default()
    }
}
