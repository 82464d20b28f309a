//! Writing a store whose records have a shape each.
//!
//! The schema lists all shapes, so writing it costs as much as there are records. It is therefore left as it is while a
//! writer appends: the new shapes go to `shapes.zr`, before the header counts their records, and come to the end of the
//! schema when the writer closes. That takes the width of the list's length to stay the same; where it does not, and
//! where a foreign schema has other keys after its shapes, the schema is written anew.

use super::ragged_schema::{complete_schema, ragged, rename_new_schema, write_new_schema, write_schema_without};
use super::write::{check_dtype, open_typed};
use crate::error::{Error, Result};
use crate::format::dtype::DType;
use crate::format::schema::{MAX_DIMS, bytes_of, encode_shape};
use crate::format::shapes::{BLOCK_SHAPES, BlockHead, HEAD_LEN};
use crate::format::{Kind, NEW_SCHEMA_FILE, SCHEMA_FILE, SHAPES_FILE, Schema};
use crate::storage::{rewrite, write_all_at};
use crate::store::shapes::{Opened, Typed, open_if_there, remove_if_there};
use crate::store::{Mark, Others, Writer, WriterOptions, check_lengths};
use std::io::IoSlice;
use std::path::Path;

/// Writes a store whose records have a shape each. Memory does not grow with the records.
///
/// When [`append`](RaggedWriter::append) returns, records and shapes survive the end of the process, when
/// [`sync`](RaggedWriter::sync) returns, a power cut. loaderx reads the store after each [`close`](RaggedWriter::close);
/// a writer that ended without one is finished by the next.
#[derive(Debug)]
pub struct RaggedWriter {
    pub(super) writer: Writer,
    schema: Schema,
    log: Log,
}

/// A length of a ragged store to go back to; see [`RaggedWriter::rollback`].
#[derive(Debug, Clone, Copy)]
pub struct RaggedMark {
    store: Mark,
    shapes: u64,
}

impl RaggedWriter {
    /// Creates an empty store at `path` for records of `dtype`.
    ///
    /// # Errors
    /// As [`WriterOptions::create`].
    pub fn create(path: &Path, options: WriterOptions, dtype: DType) -> Result<Self> {
        Self::create_with(path, options, Schema { kind: Kind::Ragged, dtype, codec: None, extra: Vec::new() })
    }

    /// The same with a schema's own keys.
    pub(super) fn create_with(path: &Path, options: WriterOptions, schema: Schema) -> Result<Self> {
        let writer = options.schema(schema.clone()).create(path)?;
        Ok(RaggedWriter { writer, schema, log: Log::default() })
    }

    /// Opens the existing ragged store at `path` to append to it and delete from it. Its codec and type hold; of the
    /// options only the level, the storage and the layout count. Costs the same for any number of records, unless an
    /// earlier writer was interrupted.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the store is not ragged; [`Error::Corrupt`] if the schema is damaged, contradicts the
    /// header, or has not one shape a record; otherwise as [`WriterOptions::open`].
    pub fn open(path: &Path, options: WriterOptions) -> Result<Self> {
        let writer = options.open(path)?;
        match open_typed(&writer)? {
            Some(typed) if typed.shapes.is_some() => Self::of(writer, typed),
            _ => Err(Error::invalid(format!("{} is not a ragged store", path.display()))),
        }
    }

    pub(super) fn of(mut writer: Writer, typed: Typed) -> Result<Self> {
        let mut log = Log::default();
        writer.guarded(|w| {
            let (storage, dir) = (w.storage().clone(), w.path().to_path_buf());
            // Of a deletion that did not come so far that it counts.
            remove_if_there(&*storage, &dir.join(NEW_SCHEMA_FILE))?;
            log.settle(w)
        })?;
        let path = writer.path().join(SCHEMA_FILE);
        let count = open_typed(&writer)?.and_then(|typed| typed.shapes).map_or(0, |at| u64::from(at.count));
        if count != writer.len() {
            let reason = format!("it has the shapes of {count} records, the store has {}", writer.len());
            return Err(Error::corrupt(path, 0, reason));
        }
        Ok(RaggedWriter { writer, schema: typed.schema, log })
    }

    /// Appends `records`, each with its shape and its bytes in C order.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a shape and its bytes do not agree, or has more than 64 dimensions; [`Error::Full`] beyond
    /// 2^32 − 1 records, the most that a schema can list; otherwise as [`Writer::append`].
    pub fn append(&mut self, records: &[(&[u64], &[u8])]) -> Result<()> {
        self.check(records)?;
        if records.is_empty() {
            return Ok(());
        }
        let RaggedWriter { writer, log, .. } = self;
        writer.guarded(|w| log.append(w, records))?;
        let bytes: Vec<&[u8]> = records.iter().map(|(_, bytes)| *bytes).collect();
        writer.append_shaped(&bytes).map(drop)
    }

    /// Appends the records of an array type that is told, to be compared with the store's.
    ///
    /// # Errors
    /// [`Error::Invalid`], naming both, if `dtype` is not that of the store; otherwise as
    /// [`append`](RaggedWriter::append).
    pub fn append_arrays(&mut self, dtype: &DType, records: &[(&[u64], &[u8])]) -> Result<()> {
        check_dtype(self.writer.path(), &self.schema.dtype, dtype)?;
        self.append(records)
    }

    /// Whether these records can be appended.
    pub(super) fn check(&self, records: &[(&[u64], &[u8])]) -> Result<()> {
        for (shape, bytes) in records {
            if bytes_of(&self.schema.dtype, shape) != Some(bytes.len() as u64) {
                let dtype = self.schema.dtype.as_str();
                return Err(Error::invalid(format!("shape {shape:?} of {dtype} does not make {} bytes", bytes.len())));
            }
            if shape.len() > MAX_DIMS as usize {
                return Err(Error::invalid(format!("a shape of {} dimensions; there are at most 64", shape.len())));
            }
        }
        let bytes: Vec<&[u8]> = records.iter().map(|(_, bytes)| *bytes).collect();
        check_lengths(&bytes)?;
        if self.len().saturating_add(records.len() as u64) > u64::from(u32::MAX) {
            return Err(Error::Full { path: self.writer.path().to_path_buf() });
        }
        Ok(())
    }

    /// Deletes the records `indices` with their shapes; see [`Writer::delete`]. Costs as much as there are records, as
    /// the schema is written anew.
    ///
    /// # Errors
    /// As [`Writer::delete`].
    pub fn delete(&mut self, indices: &[u64]) -> Result<()> {
        self.delete_with(indices, Others::KeptOut)
    }

    pub(super) fn delete_with(&mut self, indices: &[u64], others: Others) -> Result<()> {
        let RaggedWriter { writer, log, .. } = self;
        // The header must not promise a record before its shape is durable.
        writer.guarded(|_| log.sync())?;
        writer.delete_with(indices, others, |w, doomed| {
            log.settle(w)?;
            write_schema_without(w, doomed)
        })
    }

    /// The type of the records.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The number of records.
    pub fn len(&self) -> u64 {
        self.writer.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.writer.is_empty()
    }

    /// Where the next record goes: the header's `tail_chunk` and `tail_offset`.
    pub fn end(&self) -> (u32, u32) {
        self.writer.end()
    }

    /// The present length, to go back to.
    pub fn mark(&self) -> RaggedMark {
        RaggedMark { store: self.writer.mark(), shapes: self.log.end }
    }

    /// Takes back everything appended since `mark`.
    ///
    /// # Errors
    /// As [`Writer::rollback`].
    pub fn rollback(&mut self, mark: RaggedMark) -> Result<()> {
        let RaggedWriter { writer, log, .. } = self;
        writer.guarded(|_| log.sync())?;
        writer.rollback(mark.store)?;
        writer.guarded(|_| log.cut(mark.shapes))
    }

    /// Makes everything appended so far survive a power cut.
    ///
    /// # Errors
    /// As [`Writer::sync`].
    pub fn sync(&mut self) -> Result<()> {
        let RaggedWriter { writer, log, .. } = self;
        writer.guarded(|_| log.sync())?;
        writer.sync()
    }

    /// Completes the schema, makes the store survive a power cut, and closes it.
    ///
    /// # Errors
    /// As [`Writer::sync`].
    pub fn close(mut self) -> Result<()> {
        self.sync()?;
        let RaggedWriter { writer, log, .. } = &mut self;
        writer.guarded(|w| log.settle(w))
    }
}

/// `shapes.zr` as it is being written; its file is made with the first shape.
#[derive(Debug, Default)]
struct Log {
    file: Option<Opened>,
    /// Where the next block goes; 0 without a file.
    end: u64,
    dirty: bool,
}

impl Log {
    /// Writes the shapes of `records`, which come to the end of the store next.
    fn append(&mut self, w: &Writer, records: &[(&[u64], &[u8])]) -> Result<()> {
        if self.file.is_none() {
            self.begin(w)?;
        }
        let (mut out, mut shapes, mut first) = (Vec::new(), Vec::new(), w.len());
        for part in records.chunks(BLOCK_SHAPES) {
            shapes.clear();
            part.iter().for_each(|(shape, _)| encode_shape(shape, &mut shapes));
            out.extend(BlockHead::encode(first, part.len() as u32, &shapes));
            first += part.len() as u64;
        }
        if let Some((file, path)) = &self.file {
            self.dirty = true;
            write_all_at(&**file, path, &mut [IoSlice::new(&out)], self.end)?;
            self.end += out.len() as u64;
        }
        Ok(())
    }

    /// Makes the file, for a schema that has a shape for each record.
    fn begin(&mut self, w: &Writer) -> Result<()> {
        let mut typed = ragged(w)?;
        if typed.at.end.is_some() {
            // Another program's, with other keys behind the shapes.
            let count = typed.at.count;
            write_new_schema(w, &typed, count, |out| typed.copy_shapes(out))?;
            rename_new_schema(w)?;
            typed = ragged(w)?;
        }
        let base = typed.typed.base(&typed.at, typed.typed.end()?)?;
        let path = w.path().join(SHAPES_FILE);
        let file = w.storage().create_new(&path).map_err(Error::io("create", &path))?;
        write_all_at(&*file, &path, &mut [IoSlice::new(&base.encode())], 0)?;
        *self = Log { file: Some((file, path)), end: HEAD_LEN as u64, dirty: true };
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        if let (true, Some((file, path))) = (self.dirty, &self.file) {
            file.sync().map_err(Error::io("sync", path))?;
            self.dirty = false;
        }
        Ok(())
    }

    /// Takes back the blocks from byte `end` on, durably, before others are written there.
    fn cut(&mut self, end: u64) -> Result<()> {
        if let Some((file, path)) = &self.file {
            self.end = end.max(HEAD_LEN as u64);
            file.set_len(self.end).map_err(Error::io("cut", path))?;
            self.dirty = true;
        }
        self.sync()
    }

    /// Brings the shapes of all records into the schema and removes the file, be it this writer's or one that an
    /// interrupted writer left. The records must have been synced, so that none of them goes any more.
    fn settle(&mut self, w: &mut Writer) -> Result<()> {
        let dir = w.path().to_path_buf();
        self.sync()?;
        *self = Log::default();
        let typed = ragged(w)?;
        if let Some((opened, base)) = &typed.typed.appended {
            if w.len() < base.count {
                let reason = format!("it has the shapes of {} records, the store has {}", base.count, w.len());
                return Err(Error::corrupt(&typed.typed.path, 0, reason));
            }
            complete_schema(w, &typed, opened, w.len())?;
        } else if open_if_there(&**w.storage(), dir.join(SHAPES_FILE))?.is_some() {
            // The schema is complete, but whoever did that may have been killed before it was durable, or seen the sync
            // of the list's length fail. The shapes themselves were durable before.
            let path = &typed.typed.path;
            let file = w.storage().open_rw(path).map_err(Error::io("open", path))?;
            rewrite(&*file, path, typed.at.head, typed.at.offset)?;
            file.sync().map_err(Error::io("sync", path))?;
            w.storage().sync_dir(&dir).map_err(Error::io("sync", &dir))?;
        }
        remove_if_there(&**w.storage(), &dir.join(SHAPES_FILE))
    }
}

/// Whether a file that only interrupted writers leave is there.
#[cfg(test)]
pub(super) fn is_settled(storage: &dyn crate::storage::Storage, dir: &Path) -> bool {
    [SHAPES_FILE, NEW_SCHEMA_FILE].iter().all(|name| matches!(open_if_there(storage, dir.join(name)), Ok(None)))
}
