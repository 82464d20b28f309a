//! Recoding: a store, dataset or tree copied to another codec or level, in the order of the indices.

use crate::dataset::{DATA_STREAM, PATH_STREAM, Source, Stream, StreamWriter};
use crate::dict::{DictTier, train_on};
use crate::error::{Error, Result};
use crate::format::{Codec, TREE_FILE};
use crate::in_order::{self, InOrder};
use crate::pack::Watch;
use crate::pool::pool;
use crate::staging::{Existing, Staging};
use crate::storage::{Disk, Storage};
use crate::store::WriterOptions;
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
    let opened = Source::open_checked(source)?;
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
    let mut writer = StreamWriter::create(to, writer, stream.schema())?;
    let mut records = InOrder::new(store, 0..store.len());
    while let Some(batch) = records.next_batch()? {
        watch.progress.check()?;
        append(&mut writer, stream, batch)?;
        let (n, bytes) = (batch.indices().len() as u64, batch.bytes().len() as u64);
        done.records += n;
        done.bytes += bytes;
        watch.progress.add(n, bytes);
    }
    let (chunk, offset) = writer.end();
    done.before += store.chunk_bytes();
    done.after += (u64::from(chunk) << 32) + u64::from(offset);
    writer.close()?;
    Ok((chunk, offset))
}

/// Appends a batch in the form that the new store's type asks for.
fn append(writer: &mut StreamWriter, stream: &Stream, batch: &in_order::Batch) -> Result<()> {
    match writer {
        StreamWriter::Bytes(writer) => writer.append(&batch.records().collect::<Vec<_>>()).map(drop),
        StreamWriter::Dense(writer) => {
            let lengths = stream.store().lengths(batch.indices())?;
            let odd = batch.indices().iter().zip(lengths).find(|&(_, have)| have as usize != writer.record_bytes());
            if let Some((&index, _)) = odd {
                // Asked for its shape, it says what is wrong.
                stream.shape(index)?;
            }
            writer.append(batch.bytes())
        }
        StreamWriter::Ragged(writer) => {
            let shapes = pool().map(batch.indices(), |&index| stream.shape(index));
            let shapes = shapes.into_iter().map(|shape| Ok(shape?.unwrap_or_default())).collect::<Result<Vec<_>>>()?;
            let records: Vec<(&[u64], &[u8])> = shapes.iter().map(Vec::as_slice).zip(batch.records()).collect();
            writer.append(&records)
        }
    }
}
