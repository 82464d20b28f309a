//! A stream: a store together with the type of its records.

use super::shapes::{ShapeIndex, read_schema};
use crate::error::{Error, Result};
use crate::format::npy;
use crate::format::schema::bytes_of;
use crate::format::{Kind, SCHEMA_FILE, Schema};
use crate::pack::Progress;
use crate::storage::StoreFile;
use crate::store::{Bad, OpenOptions, Store, Verified};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A store and, where it has one, its schema.
#[derive(Debug)]
pub struct Stream {
    store: Store,
    schema: Option<Schema>,
    /// Kept open, as the shapes are read later, when the store may have been replaced and this one removed.
    schema_file: Option<Arc<dyn StoreFile>>,
    shapes: Mutex<Option<Arc<ShapeIndex>>>,
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
        let store = options.open(path)?;
        let schema_path = store.path().join(SCHEMA_FILE);
        let schema_file = match store.storage().open(&schema_path) {
            Ok(file) => Some(file),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(Error::io("open", &schema_path)(e)),
        };
        let schema = schema_file.as_ref().map(|file| read_schema(file, &schema_path)).transpose()?.map(|read| read.0);
        if let Some(said) = schema.as_ref().and_then(|s| s.codec)
            && said != store.codec()
        {
            let reason = format!("the schema says {said}, the header says {}", store.codec());
            return Err(Error::corrupt(schema_path, 0, reason));
        }
        Ok(Stream { store, schema, schema_file, shapes: Mutex::new(None) })
    }

    /// The store of bytes below.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The type of the records; `None` for a store of plain bytes.
    pub fn schema(&self) -> Option<&Schema> {
        self.schema.as_ref()
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
        let Some(schema) = &self.schema else { return Ok(None) };
        let length = u64::from(self.store.entry(index)?.logic_length);
        let shape = match &schema.kind {
            Kind::Dense { item_shape } => item_shape.clone(),
            Kind::Ragged => self.ragged_shape(index)?,
        };
        if bytes_of(&schema.dtype, &shape) != Some(length) {
            let reason = format!("shape {shape:?} of {} does not make {length} bytes", schema.dtype.as_str());
            return Err(Error::corrupt(self.schema_path(), 0, reason).at_record(index));
        }
        Ok(Some(shape))
    }

    /// The bytes that make record `index` a .npy file when they stand before its own; `None` for a store of plain
    /// bytes.
    ///
    /// # Errors
    /// As [`shape`](Stream::shape).
    pub fn npy_header(&self, index: u64) -> Result<Option<Vec<u8>>> {
        let shape = self.shape(index)?;
        Ok(self.schema.as_ref().zip(shape).map(|(schema, shape)| npy::header_bytes(&schema.dtype, &shape)))
    }

    /// The schema's file as it is now: an append by another process may have written it anew.
    fn newest_schema(&self, path: &Path) -> Result<Arc<dyn StoreFile>> {
        match (self.store.storage().open(path), &self.schema_file) {
            (Ok(file), _) => Ok(file),
            (Err(_), Some(kept)) => Ok(kept.clone()),
            (Err(e), None) => Err(Error::io("open", path)(e)),
        }
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
        for index in (0..found.records).filter(|_| self.schema.is_some()) {
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
        let known = {
            let mut shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
            match &*shapes {
                Some(known) if index < known.count() => known.clone(),
                // Not scanned yet, or before another process appended.
                _ => {
                    let path = self.schema_path();
                    let scanned = Arc::new(ShapeIndex::scan(self.newest_schema(&path)?, &path)?);
                    if index >= scanned.count() {
                        let reason =
                            format!("it has the shapes of {} records, the store has {}", scanned.count(), self.len());
                        return Err(Error::corrupt(path, 0, reason).at_record(index));
                    }
                    shapes.insert(scanned).clone()
                }
            }
        };
        known.shape(index)
    }
}
