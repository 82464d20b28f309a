//! Writing a store whose records all have one shape.

use super::write::{check_dtype, open_typed};
use crate::error::{Error, Result};
use crate::format::dtype::DType;
use crate::format::schema::bytes_of;
use crate::format::{Kind, MAX_RECORD, Schema};
use crate::store::{Mark, Writer, WriterOptions};
use std::path::Path;

/// Writes a store whose records all have one shape.
#[derive(Debug)]
pub struct DenseWriter {
    pub(super) writer: Writer,
    schema: Schema,
    item_shape: Vec<u64>,
    record_bytes: usize,
}

impl DenseWriter {
    /// Creates an empty store at `path` for records of `item_shape` items of `dtype`.
    ///
    /// # Errors
    /// [`Error::RecordLength`] if such records have 0 or more than 2^31 bytes; otherwise as [`WriterOptions::create`].
    pub fn create(path: &Path, options: WriterOptions, dtype: DType, item_shape: Vec<u64>) -> Result<Self> {
        let schema = Schema { kind: Kind::Dense { item_shape }, dtype, codec: None, extra: Vec::new() };
        Self::create_with(path, options, schema)
    }

    /// The same with a schema's own keys.
    pub(super) fn create_with(path: &Path, options: WriterOptions, schema: Schema) -> Result<Self> {
        let (item_shape, record_bytes) = item(&schema, path)?;
        let writer = options.schema(schema.clone()).create(path)?;
        Ok(DenseWriter { writer, schema, item_shape, record_bytes })
    }

    /// Opens the existing dense store at `path` to append to it and delete from it. Its codec, type and shape hold; of
    /// the options only the level, the storage and the layout count.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the store is not dense; [`Error::Corrupt`] if the schema is damaged or contradicts the
    /// header; otherwise as [`WriterOptions::open`].
    pub fn open(path: &Path, options: WriterOptions) -> Result<Self> {
        let writer = options.open(path)?;
        let schema = open_typed(&writer)?.map(|typed| typed.schema);
        match schema {
            Some(schema) if matches!(schema.kind, Kind::Dense { .. }) => Self::of(writer, schema),
            _ => Err(Error::invalid(format!("{} is not a dense store", path.display()))),
        }
    }

    pub(super) fn of(writer: Writer, schema: Schema) -> Result<Self> {
        let (item_shape, record_bytes) = item(&schema, writer.path())?;
        Ok(DenseWriter { writer, schema, item_shape, record_bytes })
    }

    /// Appends the records that stand one after the other in `bytes`, in C order.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `bytes` does not divide into records; otherwise as [`Writer::append`].
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.count(bytes)?;
        let records: Vec<&[u8]> = bytes.chunks_exact(self.record_bytes).collect();
        self.writer.append(&records).map(|_| ())
    }

    /// Appends the rows of an array of `dtype` and `shape`, whose first dimension counts the records.
    ///
    /// # Errors
    /// [`Error::Invalid`], naming both, if its type or the shape of its rows are not those of the store, or do not make
    /// as many bytes; otherwise as [`append`](DenseWriter::append).
    pub fn append_array(&mut self, dtype: &DType, shape: &[u64], bytes: &[u8]) -> Result<()> {
        check_dtype(self.writer.path(), &self.schema.dtype, dtype)?;
        self.check_rows(shape)?;
        if bytes_of(dtype, shape) != Some(bytes.len() as u64) {
            let reason = format!("shape {shape:?} of {} does not make {} bytes", dtype.as_str(), bytes.len());
            return Err(Error::invalid(reason));
        }
        self.append(bytes)
    }

    /// # Errors
    /// [`Error::Invalid`] if the rows of an array of `shape` are no records of this store.
    pub fn check_rows(&self, shape: &[u64]) -> Result<()> {
        match shape.split_first() {
            Some((_, row)) if row == self.item_shape => Ok(()),
            _ => {
                let (path, have) = (self.writer.path().display(), &self.item_shape);
                let rows = shape.get(1..).unwrap_or_default();
                Err(Error::invalid(format!("the records of {path} have the shape {have:?}, these have {rows:?}")))
            }
        }
    }

    /// The number of records in `bytes`.
    pub(super) fn count(&self, bytes: &[u8]) -> Result<u64> {
        if bytes.len().is_multiple_of(self.record_bytes) {
            return Ok((bytes.len() / self.record_bytes) as u64);
        }
        let reason = format!("{} bytes are no number of records of {}", bytes.len(), self.record_bytes);
        Err(Error::invalid(reason))
    }

    /// Deletes records; see [`Writer::delete`].
    ///
    /// # Errors
    /// As [`Writer::delete`].
    pub fn delete(&mut self, indices: &[u64]) -> Result<()> {
        self.writer.delete(indices)
    }

    /// The type of the records.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The shape of a record.
    pub fn item_shape(&self) -> &[u64] {
        &self.item_shape
    }

    /// Bytes of a record.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// The number of records.
    pub fn len(&self) -> u64 {
        self.writer.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.writer.is_empty()
    }

    /// The present length, to go back to.
    pub fn mark(&self) -> Mark {
        self.writer.mark()
    }

    /// Takes back everything appended since `mark`; see [`Writer::rollback`].
    ///
    /// # Errors
    /// As [`Writer::rollback`].
    pub fn rollback(&mut self, mark: Mark) -> Result<()> {
        self.writer.rollback(mark)
    }

    /// Makes everything appended so far survive a power cut.
    ///
    /// # Errors
    /// As [`Writer::sync`].
    pub fn sync(&mut self) -> Result<()> {
        self.writer.sync()
    }

    /// Makes the store survive a power cut, and closes it.
    ///
    /// # Errors
    /// As [`Writer::sync`].
    pub fn close(self) -> Result<()> {
        self.writer.close()
    }
}

/// The shape of a record, and its bytes.
fn item(schema: &Schema, path: &Path) -> Result<(Vec<u64>, usize)> {
    let Kind::Dense { item_shape } = &schema.kind else {
        return Err(Error::invalid(format!("{} is ragged", path.display())));
    };
    let length = bytes_of(&schema.dtype, item_shape).unwrap_or(u64::MAX);
    if length == 0 || length > MAX_RECORD {
        return Err(Error::RecordLength { length });
    }
    Ok((item_shape.clone(), length as usize))
}
