//! A stream: a store together with the type of its records.

use super::shapes::ShapeIndex;
use crate::error::{Error, Result};
use crate::fork::Cached;
use crate::format::npy;
use crate::format::schema::bytes_of;
use crate::format::{Kind, SCHEMA_FILE, Schema};
use crate::pack::Progress;
use crate::store::shapes::Typed;
use crate::store::{Bad, OpenOptions, Store, Verified};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A shape is looked for so often while a writer completes the schema.
const TRIES: usize = 4;

fn open_both(options: &OpenOptions, path: &Path) -> Result<(Store, Option<Typed>)> {
    let store = options.open(path)?;
    let typed = Typed::open(&**store.storage(), store.path(), store.deleted())?;
    Ok((store, typed))
}

/// A store and, where it has one, its schema.
#[derive(Debug)]
pub struct Stream {
    store: Store,
    /// The schema, with its files kept open, as the shapes are read later, when the store may have been replaced and
    /// this one removed.
    typed: Option<Typed>,
    shapes: Cached<Option<Arc<ShapeIndex>>>,
    /// Where the shapes of records are that a deletion of the dataset has yet to move.
    moved: HashMap<u64, u64>,
}

impl Stream {
    /// Opens the store at `path` with its schema, if it has one. The shapes of a ragged store are not read before one
    /// is asked for.
    ///
    /// # Errors
    /// As [`OpenOptions::open`]; [`Error::Corrupt`] if the schema is damaged or contradicts the header.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(&OpenOptions::new(), path)
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`open`](Stream::open).
    pub fn open_with(options: &OpenOptions, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (mut store, mut typed) = open_both(options, path)?;
        for _ in 1..TRIES {
            // The schema that a deletion brings is another's, once a writer goes on with the next.
            if !store.deleted() || store.still_deleted()? {
                break;
            }
            (store, typed) = open_both(options, path)?;
        }
        if let Some(typed) = &typed
            && let Some(said) = typed.schema.codec
            && said != store.codec()
        {
            let reason = format!("the schema says {said}, the header says {}", store.codec());
            return Err(Error::corrupt(&typed.path, 0, reason));
        }
        Ok(Stream { store, typed, shapes: Cached::new(|| None), moved: HashMap::new() })
    }

    /// Reads from now on as if `doomed`, sorted from high to low, were deleted.
    pub(super) fn delete_in_memory(&mut self, doomed: &[u64]) -> Result<()> {
        self.moved.extend(self.store.delete_in_memory(doomed)?);
        Ok(())
    }

    /// The store of bytes below.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The type of the records; `None` for a store of plain bytes.
    pub fn schema(&self) -> Option<&Schema> {
        self.typed.as_ref().map(|typed| &typed.schema)
    }

    /// The number of records.
    pub fn len(&self) -> u64 {
        self.store.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// The shape of record `index`, outermost dimension first; `None` for a store of plain bytes.
    ///
    /// The first call on a ragged store reads all shapes once (about 10 ns a record) and keeps 8 bytes for 32 of them.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Record`] if shape and bytes of the record do not agree.
    pub fn shape(&self, index: u64) -> Result<Option<Vec<u64>>> {
        let Some(schema) = self.schema() else { return Ok(None) };
        let length = u64::from(self.store.entry(index)?.logic_length);
        let shape = match &schema.kind {
            Kind::Dense { item_shape } => item_shape.clone(),
            Kind::Ragged => self.ragged_shape(self.moved.get(&index).copied().unwrap_or(index))?,
        };
        if bytes_of(&schema.dtype, &shape) != Some(length) {
            let reason = format!("shape {shape:?} of {} does not make {length} bytes", schema.dtype.as_str());
            return Err(Error::corrupt(self.schema_path(), 0, reason).at_record(index));
        }
        Ok(Some(shape))
    }

    /// The number of dimensions of each of the first `length` records, where that is known to be the same: always for a dense
    /// store, for a ragged one mostly. One look, whatever the length.
    ///
    /// # Errors
    /// As [`shape`](Stream::shape).
    pub fn dimensions(&self, length: u64) -> Result<Option<usize>> {
        match self.schema().map(|schema| &schema.kind) {
            Some(Kind::Dense { item_shape }) => Ok(Some(item_shape.len())),
            Some(Kind::Ragged) if self.moved.is_empty() => {
                length.checked_sub(1).map_or(Ok(None), |last| Ok(self.known(last)?.dimensions()))
            }
            _ => Ok(None),
        }
    }

    /// The bytes that make record `index` a .npy file when they stand before its own; `None` for a store of plain
    /// bytes.
    ///
    /// # Errors
    /// As [`shape`](Stream::shape).
    pub fn npy_header(&self, index: u64) -> Result<Option<Vec<u8>>> {
        let shape = self.shape(index)?;
        Ok(self.schema().zip(shape).map(|(schema, shape)| npy::header_bytes(&schema.dtype, &shape)))
    }

    /// Verifies the store (see [`Store::verify`]), and that each record has as many bytes as its shape and type make.
    ///
    /// # Errors
    /// As [`Store::verify`].
    pub fn verify(&self, progress: &Progress, bad: &mut dyn FnMut(Bad)) -> Result<Verified> {
        let mut known = HashSet::new();
        let mut found = self.store.verify(progress, &mut |record| {
            // Said once is enough, and few are remembered: a store that is damaged everywhere says so at length.
            if known.len() < 1 << 16 {
                known.insert(record.index);
            }
            bad(record);
        })?;
        for index in (0..found.records).filter(|_| self.typed.is_some()) {
            if index % 4096 == 0 && progress.stopped() {
                return Err(Error::Interrupted);
            }
            if let Err(error) = self.shape(index)
                && !known.contains(&index)
            {
                found.bad += 1;
                bad(Bad { index, error });
            }
        }
        Ok(found)
    }

    fn schema_path(&self) -> PathBuf {
        self.store.path().join(SCHEMA_FILE)
    }

    fn ragged_shape(&self, index: u64) -> Result<Vec<u64>> {
        self.known(index)?.shape(index)
    }

    /// The index of the shapes, with that of record `index`.
    fn known(&self, index: u64) -> Result<Arc<ShapeIndex>> {
        let mut shapes = self.shapes.lock();
        match &*shapes {
            Some(known) if index < known.count() => Ok(known.clone()),
            // Not scanned yet, or before another process appended.
            known => {
                let found = Arc::new(self.find(known.as_deref(), index)?);
                Ok(shapes.insert(found).clone())
            }
        }
    }

    /// An index that has the shape of record `index`, made from what is `known` already.
    fn find(&self, known: Option<&ShapeIndex>, index: u64) -> Result<ShapeIndex> {
        let mut tried = match known {
            Some(known) => known.grown(),
            None => match &self.typed {
                Some(typed) => ShapeIndex::scan(typed.clone()),
                None => Err(Error::corrupt(self.schema_path(), 0, "the store has no schema")),
            },
        };
        // A writer may be completing the schema between one look and the next.
        for _ in 0..TRIES {
            match &tried {
                Ok(found) if index < found.count() => break,
                _ => {}
            }
            // Of a store that was removed, what was opened is all there is.
            let Some(now) = Typed::open(&**self.store.storage(), self.store.path(), self.store.deleted())? else {
                break;
            };
            tried = match tried.as_ref().ok().or(known) {
                Some(known) => known.update(now),
                None => ShapeIndex::scan(now),
            };
        }
        let found = tried?;
        if index >= found.count() {
            let reason = format!("it has the shapes of {} records, the store has {}", found.count(), self.len());
            return Err(Error::corrupt(self.schema_path(), 0, reason).at_record(index));
        }
        Ok(found)
    }
}
