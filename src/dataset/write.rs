//! Writing a stream of any type: what dense and ragged stores and stores of plain bytes have in common.

use super::dense::DenseWriter;
use super::ragged::RaggedWriter;
use crate::error::{Error, Result};
use crate::format::dtype::DType;
use crate::format::{Kind, Schema};
use crate::store::shapes::Typed;
use crate::store::{Others, Writer, WriterOptions, check_lengths};
use std::path::Path;

/// Records to append to one stream.
#[derive(Debug, Clone, Copy)]
pub enum Batch<'a> {
    /// Records of a dense store one after the other, in C order.
    Dense(&'a [u8]),
    /// Records of a ragged store: each with its shape and its bytes in C order.
    Ragged(&'a [(&'a [u64], &'a [u8])]),
    /// Records of a store without a type.
    Bytes(&'a [&'a [u8]]),
}

/// A store of any type, opened to append to it and delete from it.
///
/// A stream of a dataset is better changed through [`DatasetWriter`](super::DatasetWriter): changed alone it differs in
/// length from the others, and the dataset does not open any more.
#[derive(Debug)]
pub enum StreamWriter {
    /// A store without a type.
    Bytes(Writer),
    /// A store whose records have one shape.
    Dense(DenseWriter),
    /// A store whose records have a shape each.
    Ragged(RaggedWriter),
}

impl StreamWriter {
    /// Creates an empty store at `path` whose records have the type of `schema`, with all its keys; without one, they are
    /// plain bytes.
    ///
    /// # Errors
    /// As [`DenseWriter::create`] and [`RaggedWriter::create`].
    pub fn create(path: &Path, options: WriterOptions, schema: Option<&Schema>) -> Result<Self> {
        let Some(schema) = schema else { return options.create(path).map(StreamWriter::Bytes) };
        let schema = schema.clone();
        Ok(match schema.kind {
            Kind::Dense { .. } => StreamWriter::Dense(DenseWriter::create_with(path, options, schema)?),
            Kind::Ragged => StreamWriter::Ragged(RaggedWriter::create_with(path, options, schema)?),
        })
    }

    /// Opens the existing store at `path`. Its codec and type hold; of the options only the level, the storage and the
    /// layout count.
    ///
    /// # Errors
    /// As [`WriterOptions::open`], [`DenseWriter::open`] and [`RaggedWriter::open`].
    pub fn open(path: &Path, options: WriterOptions) -> Result<Self> {
        let writer = options.open(path)?;
        Ok(match open_typed(&writer)? {
            None => StreamWriter::Bytes(writer),
            Some(typed) => match typed.schema.kind {
                Kind::Dense { .. } => StreamWriter::Dense(DenseWriter::of(writer, typed.schema)?),
                Kind::Ragged => StreamWriter::Ragged(RaggedWriter::of(writer, typed)?),
            },
        })
    }

    /// The number of records in `batch`, once it is known that all of them can be appended.
    ///
    /// # Errors
    /// [`Error::Invalid`] or [`Error::RecordLength`] for the first record that cannot.
    pub fn check(&self, batch: &Batch<'_>) -> Result<u64> {
        match (self, batch) {
            (StreamWriter::Bytes(_), Batch::Bytes(records)) => check_lengths(records).map(|()| records.len() as u64),
            (StreamWriter::Dense(writer), Batch::Dense(bytes)) => writer.count(bytes),
            (StreamWriter::Ragged(writer), Batch::Ragged(records)) => {
                writer.check(records).map(|()| records.len() as u64)
            }
            (_, batch) => {
                let given = match batch {
                    Batch::Dense(_) => "dense records",
                    Batch::Ragged(_) => "ragged records",
                    Batch::Bytes(_) => "records without a type",
                };
                Err(Error::invalid(format!("{} is a {} and takes no {given}", self.path().display(), self.kind())))
            }
        }
    }

    /// Appends the records of `batch`.
    ///
    /// # Errors
    /// As [`check`](StreamWriter::check), before anything is written, and [`Writer::append`].
    pub fn append(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.check(batch)?;
        match (self, batch) {
            (StreamWriter::Bytes(writer), Batch::Bytes(records)) => writer.append(records).map(drop),
            (StreamWriter::Dense(writer), Batch::Dense(bytes)) => writer.append(bytes),
            (StreamWriter::Ragged(writer), Batch::Ragged(records)) => writer.append(records),
            _ => Ok(()),
        }
    }

    /// Deletes records; see [`Writer::delete`].
    ///
    /// # Errors
    /// As [`Writer::delete`].
    pub fn delete(&mut self, indices: &[u64]) -> Result<()> {
        self.delete_with(indices, Others::KeptOut)
    }

    pub(super) fn delete_with(&mut self, indices: &[u64], others: Others) -> Result<()> {
        match self {
            StreamWriter::Ragged(writer) => writer.delete_with(indices, others),
            other => other.writer_mut().delete_with(indices, others, |_, _| Ok(())),
        }
    }

    /// Makes everything appended so far survive a power cut.
    ///
    /// # Errors
    /// As [`Writer::sync`].
    pub fn sync(&mut self) -> Result<()> {
        match self {
            StreamWriter::Ragged(writer) => writer.sync(),
            other => other.writer_mut().sync(),
        }
    }

    /// Makes the store survive a power cut, and closes it.
    ///
    /// # Errors
    /// As [`Writer::sync`].
    pub fn close(self) -> Result<()> {
        match self {
            StreamWriter::Bytes(writer) => writer.close(),
            StreamWriter::Dense(writer) => writer.close(),
            StreamWriter::Ragged(writer) => writer.close(),
        }
    }

    /// The type of the records; `None` for a store of plain bytes.
    pub fn schema(&self) -> Option<&Schema> {
        match self {
            StreamWriter::Bytes(_) => None,
            StreamWriter::Dense(writer) => Some(writer.schema()),
            StreamWriter::Ragged(writer) => Some(writer.schema()),
        }
    }

    /// The number of records.
    pub fn len(&self) -> u64 {
        self.writer().len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the next record goes: the header's `tail_chunk` and `tail_offset`.
    pub fn end(&self) -> (u32, u32) {
        self.writer().end()
    }

    /// The directory of the store.
    pub fn path(&self) -> &Path {
        self.writer().path()
    }

    pub(super) fn writer(&self) -> &Writer {
        match self {
            StreamWriter::Bytes(writer) => writer,
            StreamWriter::Dense(writer) => &writer.writer,
            StreamWriter::Ragged(writer) => &writer.writer,
        }
    }

    fn writer_mut(&mut self) -> &mut Writer {
        match self {
            StreamWriter::Bytes(writer) => writer,
            StreamWriter::Dense(writer) => &mut writer.writer,
            StreamWriter::Ragged(writer) => &mut writer.writer,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            StreamWriter::Bytes(_) => "store of bytes",
            StreamWriter::Dense(_) => "dense store",
            StreamWriter::Ragged(_) => "ragged store",
        }
    }
}

/// The schema of a store that is open for writing, if it has one.
///
/// # Errors
/// [`Error::Corrupt`] if it is damaged or contradicts the header.
pub(super) fn open_typed(writer: &Writer) -> Result<Option<Typed>> {
    let typed = Typed::open(&**writer.storage(), writer.path(), false)?;
    if let Some(typed) = &typed
        && let Some(said) = typed.schema.codec
        && said != writer.codec()
    {
        let reason = format!("the schema says {said}, the header says {}", writer.codec());
        return Err(Error::corrupt(&typed.path, 0, reason));
    }
    Ok(typed)
}

/// # Errors
/// [`Error::Invalid`], naming both, if `given` is not the store's type.
pub(super) fn check_dtype(store: &Path, have: &DType, given: &DType) -> Result<()> {
    if have == given {
        return Ok(());
    }
    let (have, given) = (have.as_str(), given.as_str());
    Err(Error::invalid(format!("the records of {} are of {have}, these are of {given}", store.display())))
}
