//! Writing a typed store: records of one shape, or records with a shape each.

use crate::error::{Error, Result};
use crate::format::dtype::DType;
use crate::format::schema::{bytes_of, encode_shape};
use crate::format::{Kind, MAX_RECORD, SCHEMA_FILE, Schema};
use crate::storage::{Disk, Storage, write_all_at};
use crate::store::{Mark, Writer, WriterOptions};
use std::fs::File;
use std::io::{BufWriter, IoSlice, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Writes a new store whose records all have one shape.
#[derive(Debug)]
pub struct DenseWriter {
    writer: Writer,
    record_bytes: usize,
}

impl DenseWriter {
    /// Creates an empty store at `path` for records of `item_shape` items of `dtype`.
    ///
    /// # Errors
    /// [`Error::RecordLength`] if such records have 0 or more than 2^31 bytes; otherwise as [`WriterOptions::create`].
    pub fn create(path: &Path, options: WriterOptions, dtype: DType, item_shape: Vec<u64>) -> Result<Self> {
        let length = bytes_of(&dtype, &item_shape).unwrap_or(u64::MAX);
        if length == 0 || length > MAX_RECORD {
            return Err(Error::RecordLength { length });
        }
        let writer = options.create(path)?;
        let schema = Schema { kind: Kind::Dense { item_shape }, dtype, codec: Some(writer.codec()), extra: Vec::new() };
        write_schema(path, &schema.encode(0), None)?;
        Ok(DenseWriter { writer, record_bytes: length as usize })
    }

    /// Appends the records that stand one after the other in `bytes`, in C order.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `bytes` does not divide into records; otherwise as [`Writer::append`].
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if !bytes.len().is_multiple_of(self.record_bytes) {
            let reason = format!("{} bytes are no number of records of {}", bytes.len(), self.record_bytes);
            return Err(Error::invalid(reason));
        }
        let records: Vec<&[u8]> = bytes.chunks_exact(self.record_bytes).collect();
        self.writer.append(&records).map(|_| ())
    }

    /// The number of records.
    pub fn len(&self) -> u64 {
        self.writer.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.writer.is_empty()
    }

    /// Makes the store survive a power cut, and closes it.
    ///
    /// # Errors
    /// As [`Writer::sync`].
    pub fn close(self) -> Result<()> {
        self.writer.close()
    }
}

/// Writes a new store whose records have a shape each. Memory does not grow with the records: shapes wait in an
/// unnamed file, and become part of the schema when the store is closed.
#[derive(Debug)]
pub struct RaggedWriter {
    writer: Writer,
    dtype: DType,
    shapes: BufWriter<File>,
    shapes_path: PathBuf,
    encoded: Vec<u8>,
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
        let writer = options.create(path)?;
        let shapes = tempfile::tempfile_in(path).map_err(Error::io("create a temporary file in", path))?;
        let shapes_path = path.join(SCHEMA_FILE);
        Ok(RaggedWriter { writer, dtype, shapes: BufWriter::new(shapes), shapes_path, encoded: Vec::new() })
    }

    /// Appends `records`, each with its shape and its bytes in C order.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a shape and its bytes do not agree; otherwise as [`Writer::append`].
    pub fn append(&mut self, records: &[(&[u64], &[u8])]) -> Result<()> {
        self.encoded.clear();
        for (shape, bytes) in records {
            if bytes_of(&self.dtype, shape) != Some(bytes.len() as u64) {
                let reason = format!("shape {shape:?} of {} does not make {} bytes", self.dtype.as_str(), bytes.len());
                return Err(Error::invalid(reason));
            }
            encode_shape(shape, &mut self.encoded);
        }
        if self.len() + records.len() as u64 > u64::from(u32::MAX) {
            return Err(Error::Full { path: self.writer.path().to_path_buf() });
        }
        let bytes: Vec<&[u8]> = records.iter().map(|(_, bytes)| *bytes).collect();
        self.writer.append(&bytes)?;
        self.shapes.write_all(&self.encoded).map_err(Error::io("write", &self.shapes_path))
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
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn mark(&mut self) -> Result<RaggedMark> {
        let shapes = self.shapes.stream_position().map_err(Error::io("write", &self.shapes_path))?;
        Ok(RaggedMark { store: self.writer.mark(), shapes })
    }

    /// Takes back everything appended since `mark`.
    ///
    /// # Errors
    /// As [`Writer::rollback`].
    pub fn rollback(&mut self, mark: RaggedMark) -> Result<()> {
        self.writer.rollback(mark.store)?;
        let seek = self.shapes.seek(std::io::SeekFrom::Start(mark.shapes));
        seek.and_then(|_| self.shapes.get_ref().set_len(mark.shapes)).map_err(Error::io("cut", &self.shapes_path))
    }

    /// Writes the schema, makes the store survive a power cut, and closes it.
    ///
    /// # Errors
    /// As [`Writer::sync`].
    pub fn close(self) -> Result<()> {
        let RaggedWriter { writer, dtype, shapes, shapes_path, .. } = self;
        let schema = Schema { kind: Kind::Ragged, dtype, codec: Some(writer.codec()), extra: Vec::new() };
        // `append` refuses more records than the list can have.
        let prefix = schema.encode(writer.len() as u32);
        let mut shapes = shapes.into_inner().map_err(|e| Error::io("write", &shapes_path)(e.into_error()))?;
        shapes.rewind().map_err(Error::io("read", &shapes_path))?;
        write_schema(writer.path(), &prefix, Some(shapes))?;
        writer.close()
    }
}

/// Writes `schema.msgpack` into the new store `dir`: `prefix`, then everything in `rest`. Synced, but for its name,
/// which the store's own sync makes durable.
pub(crate) fn write_schema(dir: &Path, prefix: &[u8], rest: Option<File>) -> Result<()> {
    let path = dir.join(SCHEMA_FILE);
    let file = Disk::default().create_new(&path).map_err(Error::io("create", &path))?;
    write_all_at(&*file, &path, &mut [IoSlice::new(prefix)], 0)?;
    let mut at = prefix.len() as u64;
    if let Some(mut rest) = rest {
        let mut buf = vec![0; 1 << 20];
        loop {
            let n = rest.read(&mut buf).map_err(Error::io("read", &path))?;
            if n == 0 {
                break;
            }
            write_all_at(&*file, &path, &mut [IoSlice::new(&buf[..n])], at)?;
            at += n as u64;
        }
    }
    file.sync().map_err(Error::io("sync", &path))
}
