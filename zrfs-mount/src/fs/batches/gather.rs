//! The bytes of batches: gathered once into the cache where they fit, otherwise only what a read asks for.
//!
//! Every size follows from the table or the shapes, before a record is read.

use super::packed::{MAX_PACKED, numbers};
use super::table::Order;
use crate::errno::Errno;
use crate::fs::ahead::Loaded;
use crate::fs::read::copy_from;
use crate::fs::{Answer, Failure, Fs};
use crate::namespace::{Batch, Node, Part};
use std::sync::Arc;
use zrfs::cache::Key;
use zrfs::format::Kind as SchemaKind;
use zrfs::format::dtype::DType;
use zrfs::format::npy::header_bytes;
use zrfs::{Error, Stream};

/// In the cache of decoded bytes, batches come after records and pictures, each by its inode number.
const BATCHES: u32 = 1 << 17;
/// Records of a batch that is gathered whole, at most: some tenths of a second.
const MAX_WHOLE: u64 = 1 << 20;
/// Records that are drawn and gathered at a time, so that memory beside the batch's own is bounded.
const CHUNK: usize = 1 << 14;

/// What the batches of a stream are arrays of.
pub(super) struct Form {
    pub(super) dtype: DType,
    /// Of a dense stream, the shape of a record and its bytes.
    pub(super) dense: Option<(Vec<u64>, u64)>,
}

impl Form {
    fn of(stream: &Stream) -> Result<Form, Failure> {
        Ok(match stream.schema() {
            Some(schema) => {
                let dense = match &schema.kind {
                    SchemaKind::Dense { item_shape } => {
                        Some((item_shape.clone(), schema.record_bytes().ok_or(Errno::FBIG)?))
                    }
                    SchemaKind::Ragged => None,
                };
                Form { dtype: schema.dtype.clone(), dense }
            }
            None => Form { dtype: DType::parse("|u1").map_err(|_| Errno::NOENT)?, dense: None },
        })
    }
}

/// A file of a batch: an array's header, and so many bytes behind it.
pub(super) struct File<'f> {
    pub(super) s: u16,
    pub(super) stream: &'f Stream,
    pub(super) batch: Batch,
    pub(super) order: Order,
    /// Records in the batch.
    pub(super) count: u64,
    pub(super) form: Form,
    pub(super) header: Vec<u8>,
    pub(super) body: u64,
}

impl File<'_> {
    /// Bytes of the whole file.
    fn size(&self) -> Result<u64, Errno> {
        let size = self.body.checked_add(self.header.len() as u64).filter(|&n| i64::try_from(n).is_ok());
        size.ok_or(Errno::FBIG)
    }

    pub(super) fn corrupt(&self, reason: String) -> Error {
        Error::corrupt(self.stream.store().path(), 0, reason)
    }
}

impl Fs {
    /// The size of a file of a batch.
    pub(in crate::fs) fn batch_size(&self, s: u16, batch: Batch, part: Part) -> Result<u64, Failure> {
        Ok(self.file(s, batch, part)?.size()?)
    }

    /// Reads a file of a batch.
    pub(in crate::fs) fn read_batch(
        &self,
        s: u16,
        batch: Batch,
        part: Part,
        offset: u64,
        dst: &mut [u8],
    ) -> Result<usize, Failure> {
        let file = match part {
            Part::Values => {
                let answer = self.read_values(s, batch, offset, dst)?;
                return Ok(match answer {
                    Answer::InBuffer(n) => n,
                    Answer::Shared(bytes, range) => copy_from(&bytes[..range.end], range.start as u64, dst),
                });
            }
            _ => self.file(s, batch, part)?,
        };
        if part == Part::Offsets {
            Ok(copy_from(&self.offsets(&file)?, offset, dst))
        } else {
            self.read_shapes(&file, offset, dst)
        }
    }

    /// Reads the values of a batch, and takes note of who reads steps in order. They are in `dst` or, so that they need not
    /// be copied, in the cache.
    pub(in crate::fs) fn read_values(
        &self,
        s: u16,
        batch: Batch,
        offset: u64,
        dst: &mut [u8],
    ) -> Result<Answer, Failure> {
        let file = self.file(s, batch, Part::Values)?;
        let size = file.size()?;
        if offset >= size || dst.is_empty() {
            return Ok(Answer::InBuffer(0));
        }
        let end = offset.saturating_add(dst.len() as u64).min(size);
        self.note_step(s, &file.order, offset == 0, end == size);
        let key = key(Node::BatchFile(s, batch, Part::Values));
        if offset == 0
            && end == size
            && let Some(dst) = dst.get_mut(..size as usize)
        {
            // The kernel keeps it from here on.
            if let Some(key) = key
                && let Some(bytes) = self.cache.join(key)
            {
                let n = copy_from(&bytes, 0, dst);
                drop(bytes);
                self.cache.forget(key);
                return Ok(Answer::InBuffer(n));
            }
            self.fill(&file, dst)?;
            return Ok(Answer::InBuffer(dst.len()));
        }
        match key.zip(self.whole(&file, size)?) {
            Some((key, bytes)) => {
                if let Some(read) = self.table.read(key, offset, end, size) {
                    self.cache.forget(read);
                }
                Ok(Answer::Shared(bytes, offset as usize..end as usize))
            }
            None => {
                self.counters.batch_ranges.add(1);
                Ok(Answer::InBuffer(self.read_range(&file, offset, dst)?))
            }
        }
    }

    /// Gathers the values of a batch into the cache, if it is not there and does not take more than its share.
    pub fn gather_ahead(&self, node: Node) -> Option<Loaded> {
        let Node::BatchFile(s, batch, Part::Values) = node else { return None };
        // Its reader gets the error.
        let file = self.file(s, batch, Part::Values).ok()?;
        let bytes = self.whole(&file, file.size().ok()?).ok()??;
        self.counters.batches_ahead.add(1);
        Some(Loaded::Shared(bytes, key(node)?))
    }

    fn file(&self, s: u16, batch: Batch, part: Part) -> Result<File<'_>, Failure> {
        let stream = self.stream(s)?;
        if !self.has_part(s, part) {
            return Err(Errno::NOENT.into());
        }
        let (order, form) = (self.table.order(batch)?, Form::of(stream)?);
        let count = self.table.count(&order)?;
        if form.dense.is_none() && count > MAX_PACKED {
            return Err(Errno::FBIG.into());
        }
        let mut file = File { s, stream, batch, order, count, form, header: Vec::new(), body: 0 };
        let (dtype, shape, item) = match (part, &file.form.dense) {
            (Part::Values, Some((item_shape, record))) => {
                let shape: Vec<u64> = std::iter::once(count).chain(item_shape.iter().copied()).collect();
                file.body = count.checked_mul(*record).ok_or(Errno::FBIG)?;
                file.header = header_bytes(&file.form.dtype, &shape);
                return Ok(file);
            }
            (Part::Values, None) => {
                let items = self.table.size((s, batch, part), || self.items(&file))?;
                (file.form.dtype.clone(), vec![items], file.form.dtype.itemsize())
            }
            (Part::Offsets, _) => (numbers()?, vec![count + 1], 8),
            (Part::Shapes, _) => {
                let dimensions = self.table.size((s, batch, part), || self.dimensions(&file))?;
                (numbers()?, vec![count, dimensions], 8)
            }
        };
        let items = shape.iter().try_fold(item, |n, &d| n.checked_mul(d));
        file.body = items.ok_or(Errno::FBIG)?;
        file.header = header_bytes(&dtype, &shape);
        Ok(file)
    }

    /// Calls `each` with the records of a batch from the `from`-th on, some at a time, until it has seen `count`.
    pub(super) fn for_chunks(
        &self,
        order: &Order,
        mut from: u64,
        count: u64,
        mut each: impl FnMut(u64, &[u64]) -> zrfs::Result<()>,
    ) -> zrfs::Result<()> {
        let end = from.saturating_add(count);
        let mut indices = Vec::new();
        while from < end {
            indices.resize((end - from).min(CHUNK as u64) as usize, 0);
            self.table.indices(order, from, &mut indices)?;
            each(from, &indices)?;
            from += indices.len() as u64;
        }
        Ok(())
    }

    /// All of a file of values from the cache, gathered there if it has to be, by one thread however many ask. `None` where
    /// it finds no room; of half the cache it takes no more, or two readers would each drive out the other's batch.
    fn whole(&self, file: &File<'_>, size: u64) -> zrfs::Result<Option<Arc<Vec<u8>>>> {
        let node = Node::BatchFile(file.s, file.batch, Part::Values);
        // Of very many small records the first piece would be long in coming.
        let fits = size <= self.cache.budget() / 2 && file.count <= MAX_WHOLE;
        match key(node).filter(|_| fits) {
            Some(key) => self.cache.get_if_room(key, size, |bytes| self.fill(file, bytes)),
            None => Ok(None),
        }
    }

    /// Gathers a whole file of values.
    fn fill(&self, file: &File<'_>, bytes: &mut [u8]) -> zrfs::Result<()> {
        self.counters.batches.add(1);
        let changed = || file.corrupt("the batch's records are not as long as the table said".into());
        let (head, mut rest) = bytes.split_at_mut_checked(file.header.len()).ok_or_else(changed)?;
        head.copy_from_slice(&file.header);
        self.for_chunks(&file.order, 0, file.count, |_, indices| {
            let rest = &mut rest;
            file.stream.gather_into(indices, |offsets| take(rest, offsets).ok_or_else(changed))?;
            Ok(())
        })?;
        if rest.is_empty() { Ok(()) } else { Err(changed()) }
    }
}

/// Cuts the place for records with these offsets off the front of a buffer.
pub(super) fn take<'a>(rest: &mut &'a mut [u8], offsets: &[u64]) -> Option<&'a mut [u8]> {
    let total = usize::try_from(*offsets.last()?).ok()?;
    let (now, after) = std::mem::take(rest).split_at_mut_checked(total)?;
    *rest = after;
    Some(now)
}

/// The place of a file in the cache.
pub(super) fn key(node: Node) -> Option<Key> {
    node.ino().map(|ino| (BATCHES, ino))
}
