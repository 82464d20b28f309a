//! Listing directories: an entry's offset is its place, so a listing can go on from anywhere and holds no state.

use super::{Attr, Failure, Fs, Kind};
use crate::errno::Errno;
use crate::namespace::{Node, write_index};
use std::time::Duration;
use zrfs::{Source, Stream};

/// Table entries that are read at a time when attributes are listed.
const BATCH: u64 = 128;

/// One name in a directory.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The offset to go on from after this entry.
    pub next: u64,
    /// Its inode's attributes; in a listing without attributes only inode number and kind are right.
    pub attr: Attr,
}

/// What a listing gives its entries to; it returns `true` when it has no room for this one.
pub type Sink<'a> = dyn FnMut(&Entry<'_>) -> bool + 'a;

/// Where in a listing we are.
pub(super) struct Listing<'a, 's> {
    sink: &'a mut Sink<'s>,
    /// The place of the next entry, that of `.` being 0.
    at: u64,
    full: bool,
    /// Whether any entry was taken.
    any: bool,
}

impl Listing<'_, '_> {
    /// How many entries come before the next one, beside `.` and `..`.
    pub(super) fn place(&self) -> u64 {
        self.at - 2
    }

    /// Offers an entry; `false` if it was not taken.
    pub(super) fn put(&mut self, name: &[u8], attr: Attr) -> bool {
        self.full = (self.sink)(&Entry { name, next: self.at + 1, attr });
        if !self.full {
            self.at += 1;
            self.any = true;
        }
        !self.full
    }
}

impl Fs {
    /// Lists the directory from `offset` (0, or an entry's `next`) until its end or until `sink` is full.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`; `EIO` where the tree is damaged at the first entry (after others, the listing stops there
    /// and the next one says so).
    pub fn readdir(&self, ino: u64, offset: u64, sink: &mut Sink<'_>) -> Result<(), Errno> {
        self.list(ino, offset, false, sink)
    }

    /// The same with all attributes. The attributes of a damaged record are not to be kept, so that whoever opens it
    /// gets its error.
    ///
    /// # Errors
    /// As [`readdir`](Self::readdir).
    pub fn readdirplus(&self, ino: u64, offset: u64, sink: &mut Sink<'_>) -> Result<(), Errno> {
        self.list(ino, offset, true, sink)
    }

    fn list(&self, ino: u64, offset: u64, plus: bool, sink: &mut Sink<'_>) -> Result<(), Errno> {
        self.counters.listings.add(1);
        let mut listing = Listing { sink, at: offset, full: false, any: false };
        match self.try_list(ino, plus, &mut listing) {
            Err(e) if listing.any => {
                self.fail(ino, None, e);
                Ok(())
            }
            other => other.map_err(|e| self.fail(ino, None, e)),
        }
    }

    fn try_list(&self, ino: u64, plus: bool, to: &mut Listing<'_, '_>) -> Result<(), Failure> {
        let dir = self.node(ino)?;
        if to.at == 0 {
            if self.attr(dir)?.kind != Kind::Dir {
                return Err(Errno::NOTDIR.into());
            }
            to.put(b".", self.blank(dir, Kind::Dir)?);
        }
        if to.at == 1 && !to.full {
            to.put(b"..", self.blank(self.parent(dir)?, Kind::Dir)?);
        }
        if to.full {
            return Ok(());
        }
        match dir {
            Node::Records(s) | Node::Npys(s) | Node::Pngs(s) | Node::Files(s) => self.list_records(dir, s, plus, to),
            Node::Tree(id) => {
                for node in self.tree()?.list(id, to.place())? {
                    let node = node?;
                    if !to.put(&node.name, self.tree_attr(&node)?) {
                        break;
                    }
                }
                Ok(())
            }
            Node::Root | Node::Streams | Node::Stream(_) | Node::Zrfs | Node::Readahead | Node::Views => {
                while let Some((name, node)) = self.fixed_child(dir, to.place()).filter(|(_, n)| *n != Node::Stats) {
                    let attr = if plus { self.attr(node)? } else { self.blank(node, kind_of(node))? };
                    if !to.put(&name, attr) {
                        break;
                    }
                }
                Ok(())
            }
            Node::Batches | Node::At | Node::Spec(_) | Node::BatchDir(_) | Node::Samples | Node::Sample(_) => {
                self.list_batches(dir, plus, to)
            }
            Node::BatchIndices(_) | Node::BatchFile(..) => Err(Errno::NOTDIR.into()),
            Node::Record(..) | Node::Npy(..) | Node::Png(..) => Err(Errno::NOTDIR.into()),
            Node::Info | Node::Stats | Node::Spelled(_) | Node::Control | Node::View(_) => Err(Errno::NOTDIR.into()),
        }
    }

    fn list_records(&self, dir: Node, s: u16, plus: bool, to: &mut Listing<'_, '_>) -> Result<(), Failure> {
        self.check_dir(dir, s)?;
        let stream = self.stream(s)?;
        let (mut name, mut indices) = (Vec::with_capacity(32), Vec::new());
        let length = stream.len();
        while to.place() < length {
            let first = to.place();
            indices.clear();
            indices.extend(first..length.min(first.saturating_add(BATCH)));
            let are_records = matches!(dir, Node::Records(_) | Node::Files(_));
            // Where one entry of a batch is damaged they are looked at one by one.
            let lengths = if plus && are_records { stream.store().lengths(&indices).ok() } else { None };
            for (k, &index) in indices.iter().enumerate() {
                let Some(node) = self.member(dir, s, index, &mut name) else {
                    // The place stays: an offset is an index.
                    to.at += 1;
                    continue;
                };
                let attr = match lengths.as_ref().and_then(|l| l.get(k)) {
                    _ if !plus => self.blank(node, Kind::File)?,
                    Some(&length) => self.record_attr(node, s, length.into())?,
                    None => self.attr_or_unknown(node)?,
                };
                if !to.put(&name, attr) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The file of record `index` in a directory of records, and its name; `None` where the record has none there.
    fn member(&self, dir: Node, s: u16, index: u64, name: &mut Vec<u8>) -> Option<Node> {
        let (suffix, node): (&[u8], Node) = match dir {
            Node::Npys(_) => (b".npy", Node::Npy(s, index)),
            // One that can't be looked at is listed, so that whoever reads it gets its error.
            Node::Pngs(_) if matches!(self.image(s, index), Ok(None)) => return None,
            Node::Pngs(_) => (b".png", Node::Png(s, index)),
            Node::Files(_) => {
                self.write_name(s, index, name);
                return Some(Node::Record(s, index));
            }
            _ => (b"", Node::Record(s, index)),
        };
        write_index(index, suffix, name);
        Some(node)
    }

    pub(super) fn attr_or_unknown(&self, node: Node) -> Result<Attr, Failure> {
        match self.attr(node) {
            Ok(attr) => Ok(attr),
            Err(e) => {
                let ino = self.ino(node)?;
                self.fail(ino, None, e);
                Ok(Attr { ttl: Duration::ZERO, ..self.blank(node, Kind::File)? })
            }
        }
    }

    /// The directory that a directory is in; the root is in itself.
    fn parent(&self, dir: Node) -> Result<Node, Failure> {
        if dir == self.root {
            return Ok(dir);
        }
        Ok(match dir {
            Node::Tree(0) | Node::Root | Node::Streams | Node::Zrfs => Node::Root,
            Node::Tree(id) => Node::Tree(self.tree()?.node(id)?.parent),
            Node::Stream(_) => Node::Streams,
            Node::Readahead | Node::Views => Node::Zrfs,
            Node::Records(s) | Node::Npys(s) | Node::Pngs(s) | Node::Files(s) => match &self.source {
                Source::Store(_) => Node::Root,
                Source::Dataset(_) => Node::Stream(s),
            },
            Node::Batches | Node::At | Node::Spec(_) | Node::BatchDir(_) | Node::Samples | Node::Sample(_) => {
                self.batch_parent(dir)?
            }
            Node::BatchIndices(_) | Node::BatchFile(..) => return Err(Errno::NOTDIR.into()),
            Node::Record(..) | Node::Npy(..) | Node::Png(..) => return Err(Errno::NOTDIR.into()),
            Node::Info | Node::Stats | Node::Spelled(_) | Node::Control | Node::View(_) => {
                return Err(Errno::NOTDIR.into());
            }
        })
    }

    /// The stream that holds the bytes of the tree's files, and its number.
    pub(super) fn data_stream(&self) -> Result<(u16, &Stream), Errno> {
        let Source::Dataset(dataset) = &self.source else { return Err(Errno::NOENT) };
        let s = dataset.streams().iter().position(|(name, _)| name == zrfs::dataset::DATA_STREAM);
        let s = s.ok_or(Errno::IO)? as u16;
        Ok((s, self.stream(s)?))
    }
}

fn kind_of(node: Node) -> Kind {
    match node {
        Node::Record(..) | Node::Npy(..) | Node::Png(..) | Node::Info | Node::Stats | Node::Spelled(_) => Kind::File,
        Node::Control | Node::View(_) => Kind::File,
        _ => Kind::Dir,
    }
}
