//! Recoding: a store, dataset or tree copied to another codec or level, in the order of the indices.

use crate::dataset::{DATA_STREAM, PATH_STREAM, Source, Stream, write_schema};
use crate::dict::{DictTier, train_on};
use crate::error::{Error, Result};
use crate::format::schema::encode_shape;
use crate::format::{Codec, Kind, Schema, TREE_FILE};
use crate::in_order::InOrder;
use crate::pack::Watch;
use crate::staging::{Existing, Staging};
use crate::storage::{Disk, Storage};
use crate::store::WriterOptions;
use rayon::prelude::*;
use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::path::Path;

/// How something is recoded.
#[derive(Debug, Clone)]
pub struct RecodeOptions {
    /// How records are compressed.
    pub codec: Codec,
    /// zstd's level; the codec's usual one where there is none.
    pub level: Option<i32>,
    /// The size of the dictionary that is trained for [`Codec::ZstdDict`], on each stream for itself.
    pub tier: DictTier,
    /// Whether an existing store at the target gives way.
    pub replace: bool,
}

/// What was recoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recoded {
    /// Records, those of all streams.
    pub records: u64,
    /// Bytes that they have.
    pub bytes: u64,
    /// Bytes that the chunks of the source reach to.
    pub before: u64,
    /// The same of what was made.
    pub after: u64,
}

/// Copies the store, dataset or tree at `source` to the new one `target`, record by record in the order of the indices:
/// deleted bytes stay behind. Types with all their keys, names and the index of a tree are kept. Each record is decoded,
/// and so checked, on the way. The paths of a tree are compressed with zstd, as when it is packed.
///
/// Memory is bounded whatever the source holds: some 64 MiB, what the codec needs a core, and the largest record.
///
/// # Errors
/// [`Error::Exists`]; [`Error::Record`] for the first record that cannot be read; [`Error::Invalid`] for a level that
/// zstd does not have, or where no dictionary can be trained; otherwise as [`Source::open`] and
/// [`crate::Writer::append`]. Nothing is left then.
pub fn recode(source: &Path, target: &Path, options: &RecodeOptions, watch: Watch<'_>) -> Result<Recoded> {
    let existing = Existing::store(options.replace);
    existing.spare(source, target)?;
    let opened = Source::open(source)?;
    let staging = Staging::new(target, existing)?;
    let to = staging.path();
    let mut done = Recoded::default();
    match &opened {
        Source::Store(stream) => {
            watch.progress.set_total_bytes(stream.store().stats()?.bytes);
            copy(stream, &to, options, watch, &mut done)?;
        }
        Source::Dataset(dataset) => {
            let sizes = dataset.streams().iter().map(|(_, stream)| Ok(stream.store().stats()?.bytes));
            watch.progress.set_total_bytes(sizes.sum::<Result<u64>>()?);
            let disk = Disk::default();
            disk.create_dir(&to).map_err(Error::io("create", &to))?;
            let mut data_end = (0, 0);
            for (name, stream) in dataset.streams() {
                let paths = dataset.tree().is_some() && name == PATH_STREAM;
                let options =
                    if paths { &RecodeOptions { codec: Codec::Zstd, level: None, ..*options } } else { options };
                let end = copy(stream, &to.join(name), options, watch, &mut done)?;
                if name == DATA_STREAM {
                    data_end = end;
                }
            }
            if let Some(tree) = dataset.tree() {
                tree.verify()?;
                tree.copy_to(&disk, &to.join(TREE_FILE), data_end)?;
            }
            disk.sync_dir(&to).map_err(Error::io("sync", &to))?;
        }
    }
    watch.progress.check()?;
    staging.publish()?;
    Ok(done)
}

/// Copies one store; returns where the new one ends.
fn copy(
    stream: &Stream,
    to: &Path,
    options: &RecodeOptions,
    watch: Watch<'_>,
    done: &mut Recoded,
) -> Result<(u32, u32)> {
    let store = stream.store();
    let mut writer = WriterOptions::new(options.codec).level(options.level);
    if options.codec == Codec::ZstdDict {
        writer = writer.dict(train_on(store, options.tier, watch.progress)?);
    }
    let mut writer = writer.create(to)?;
    let mut types = Types::new(stream, to)?;
    let mut records = InOrder::new(store, 0..store.len());
    while let Some(batch) = records.next_batch()? {
        watch.progress.check()?;
        types.take(batch.indices())?;
        writer.append(&batch.records().collect::<Vec<_>>())?;
        let (n, bytes) = (batch.indices().len() as u64, batch.bytes().len() as u64);
        done.records += n;
        done.bytes += bytes;
        watch.progress.add(n, bytes);
    }
    types.write(to, options.codec)?;
    let (chunk, offset) = writer.end();
    done.before += store.chunk_bytes();
    done.after += (u64::from(chunk) << 32) + u64::from(offset);
    writer.close()?;
    Ok((chunk, offset))
}

/// The type of a stream on its way: the shapes of a ragged one wait in an unnamed file, as they are as many as records.
struct Types<'s> {
    stream: &'s Stream,
    shapes: Option<BufWriter<File>>,
    count: u32,
}

impl<'s> Types<'s> {
    fn new(stream: &'s Stream, to: &Path) -> Result<Self> {
        let ragged = stream.schema().is_some_and(|schema| schema.kind == Kind::Ragged);
        let shapes = ragged.then(|| tempfile::tempfile_in(to).map(BufWriter::new)).transpose();
        let shapes = shapes.map_err(Error::io("create a temporary file in", to))?;
        Ok(Types { stream, shapes, count: 0 })
    }

    /// Checks that the records `indices` have the bytes that their shapes make, and takes the shapes along.
    fn take(&mut self, indices: &[u64]) -> Result<()> {
        let Some(schema) = self.stream.schema() else { return Ok(()) };
        if let Some(want) = schema.record_bytes() {
            let lengths = self.stream.store().lengths(indices)?;
            let odd = indices.iter().zip(lengths).find(|&(_, have)| u64::from(have) != want);
            // Asked for its shape, it says what is wrong.
            return odd.map_or(Ok(()), |(&index, _)| self.stream.shape(index).map(|_| ()));
        }
        let Some(file) = &mut self.shapes else { return Ok(()) };
        let shapes: Vec<Option<Vec<u64>>> =
            indices.par_iter().map(|&index| self.stream.shape(index)).collect::<Result<_>>()?;
        let mut encoded = Vec::new();
        for shape in shapes.into_iter().flatten() {
            encode_shape(&shape, &mut encoded);
            let full = || Error::Full { path: self.stream.store().path().to_path_buf() };
            self.count = self.count.checked_add(1).ok_or_else(full)?;
        }
        file.write_all(&encoded).map_err(Error::io("write the shapes of", self.stream.store().path()))
    }

    fn write(self, to: &Path, codec: Codec) -> Result<()> {
        let Some(schema) = self.stream.schema() else { return Ok(()) };
        let schema = Schema { codec: schema.codec.map(|_| codec), ..schema.clone() };
        let shapes = match self.shapes {
            None => None,
            Some(file) => {
                let mut file = file.into_inner().map_err(|e| Error::io("write", to)(e.into_error()))?;
                file.rewind().map_err(Error::io("read", to))?;
                Some(file)
            }
        };
        write_schema(to, &schema.encode(self.count), shapes)
    }
}
