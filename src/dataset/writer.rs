//! Appending to a dataset and deleting from it, all of its streams alike.
//!
//! What is done to one stream is all or nothing; what is done to all of them takes several steps, and `dataset.zr` says
//! which: while it says *append*, the streams may differ in length, and the shortest holds; while it says *delete*, the
//! streams that are still long have the deletion before them. A reader reads by it, the next writer finishes it.

use super::intent;
use super::write::{Batch, StreamWriter};
use super::{stream_names, uneven};
use crate::error::{Error, Result};
use crate::format::dataset::Intent;
use crate::format::{DATASET_FILE, TREE_FILE};
use crate::storage::Storage;
use crate::store::shapes::open_if_there;
use crate::store::{Others, WriterOptions, doomed};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A dataset opened to append to it and delete from it: the only writer of each of its streams.
///
/// When [`append`](DatasetWriter::append) returns, the new records survive the end of the process in all streams, when
/// [`sync`](DatasetWriter::sync) returns, a power cut. Whatever interrupts it, the streams stay aligned.
#[derive(Debug)]
pub struct DatasetWriter {
    path: PathBuf,
    storage: Arc<dyn Storage>,
    streams: Vec<(String, StreamWriter)>,
    /// Whether `dataset.zr` says that records are being appended.
    appending: bool,
    latched: bool,
}

impl DatasetWriter {
    /// Opens the dataset at `path`, and finishes what an interrupted writer left. Of the options only the level, the
    /// storage and the layout count.
    ///
    /// # Errors
    /// [`Error::NotAStore`] if there is no stream; [`Error::Invalid`] for a tree, whose paths are bound to its records;
    /// [`Error::Locked`] if one of the streams has a writer, and [`Error::Corrupt`] if they differ in length without a
    /// writer having been interrupted; otherwise as [`StreamWriter::open`]. All streams are open or none.
    pub fn open(path: &Path, options: &WriterOptions) -> Result<Self> {
        let (storage, options) = options.pinned(path)?;
        if open_if_there(&*storage, path.join(TREE_FILE))?.is_some() {
            let reason = "was packed from files, and its paths are bound to its records; pack it again";
            return Err(Error::invalid(format!("{} {reason}", path.display())));
        }
        let open = |name: String| StreamWriter::open(&path.join(&name), options.clone()).map(|writer| (name, writer));
        let streams = stream_names(&*storage, path)?.into_iter().map(open).collect::<Result<_>>()?;
        let mut dataset =
            DatasetWriter { path: path.to_path_buf(), storage, streams, appending: false, latched: false };
        dataset.repair()?;
        Ok(dataset)
    }

    /// Finishes what an interrupted writer left.
    fn repair(&mut self) -> Result<()> {
        match intent::read(&*self.storage, &self.path)? {
            None => {}
            Some(Intent::Append) => {
                let shortest = self.streams.iter().map(|(_, stream)| stream.len()).min().unwrap_or(0);
                for (name, stream) in &mut self.streams {
                    if stream.len() > shortest {
                        let path = self.path.join(name);
                        log::warn!(
                            "{}: cut to {shortest} records, as many as all streams got before the writer was interrupted",
                            path.display()
                        );
                        let surplus: Vec<u64> = (shortest..stream.len()).collect();
                        // No reader of the dataset sees these.
                        stream.delete_with(&surplus, Others::DoNotSee)?;
                    }
                }
            }
            Some(Intent::Delete { length, indices }) => {
                log::warn!("{}: finishing a deletion that was interrupted", self.path.display());
                intent::settle(&*self.storage, &self.path)?;
                for (name, stream) in &mut self.streams {
                    let rest = not_deleted(&self.path, name, stream.len(), length, &indices)?;
                    if !rest.is_empty() {
                        stream.delete_with(rest, Others::DoNotSee)?;
                    }
                }
            }
        }
        uneven(self.streams.iter().map(|(name, stream)| (&name[..], stream.len())), &self.path)?;
        // What the streams' own writers found done may not be durable yet.
        if open_if_there(&*self.storage, self.path.join(DATASET_FILE))?.is_some() {
            self.streams.iter_mut().try_for_each(|(_, stream)| stream.sync())?;
        }
        intent::remove(&*self.storage, &self.path)
    }

    /// Appends one batch to each stream, each named once, all of the same number of records.
    ///
    /// Readers see the records when this returns.
    ///
    /// # Errors
    /// [`Error::Invalid`] or [`Error::RecordLength`], before anything is written, if a stream is missing, unknown or
    /// given twice, if the batches differ in length, or if a record does not fit its stream. [`Error::Io`] or
    /// [`Error::Full`], after which every further call gives [`Error::Latched`], and the next writer brings the streams
    /// back to one length: of a batch of more than 32 MiB the first records may stay.
    pub fn append(&mut self, batches: &[(&str, Batch<'_>)]) -> Result<()> {
        let mut ordered: Vec<&Batch<'_>> = Vec::with_capacity(self.streams.len());
        let mut length: Option<(&str, u64)> = None;
        for (name, stream) in &self.streams {
            let mut given = batches.iter().filter(|(given, _)| given == name);
            let (Some((_, batch)), None) = (given.next(), given.next()) else {
                return Err(self.wrong_streams(batches));
            };
            let count = stream.check(batch).map_err(|e| match e {
                Error::Invalid(reason) => Error::invalid(format!("stream {name}: {reason}")),
                e => e,
            })?;
            if let Some((other, first)) = length
                && first != count
            {
                let reason =
                    format!("{first} records for the stream {other}, but {count} for {name}; give as many to each");
                return Err(Error::invalid(reason));
            }
            length = Some((name, count));
            ordered.push(batch);
        }
        if ordered.len() != batches.len() {
            return Err(self.wrong_streams(batches));
        }
        if length.is_none_or(|(_, count)| count == 0) {
            return Ok(());
        }
        self.guarded(|dataset| {
            if !dataset.appending {
                intent::write(&*dataset.storage, &dataset.path, &Intent::Append)?;
                dataset.appending = true;
            }
            dataset.streams.iter_mut().zip(ordered).try_for_each(|((_, stream), batch)| stream.append(batch))
        })
    }

    fn wrong_streams(&self, batches: &[(&str, Batch<'_>)]) -> Error {
        let have: Vec<&str> = self.streams.iter().map(|(name, _)| &name[..]).collect();
        let given: Vec<&str> = batches.iter().map(|(name, _)| *name).collect();
        let (path, have, given) = (self.path.display(), have.join(", "), given.join(", "));
        Error::invalid(format!("{path} has the streams {have}, one batch each; given were {given}"))
    }

    /// Deletes the records `indices` from all streams; see [`Writer::delete`](crate::Writer::delete).
    ///
    /// When this returns, the deletion survives a power cut, and so does everything appended before. A crash leaves it
    /// undone or done, or such that readers see it done and the next writer finishes it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if one of the indices is, and [`Error::Locked`] if anybody has one of the streams open for
    /// reading or mounted: nothing is changed then. [`Error::Io`], after which every further call gives
    /// [`Error::Latched`].
    pub fn delete(&mut self, indices: &[u64]) -> Result<()> {
        let length = self.len();
        let indices = doomed(indices, length)?;
        if indices.is_empty() {
            return Ok(());
        }
        self.sync()?;
        let mut taken = 0;
        let alone = self.streams.iter().try_for_each(|(_, stream)| {
            stream.writer().exclude(true)?;
            taken += 1;
            Ok(())
        });
        let done = alone.and_then(|()| {
            self.guarded(|dataset| {
                if dataset.appending {
                    // All streams are durable and of one length.
                    intent::remove(&*dataset.storage, &dataset.path)?;
                    dataset.appending = false;
                }
                let intent = Intent::Delete { length, indices: indices.clone() };
                intent::write(&*dataset.storage, &dataset.path, &intent)?;
                for (_, stream) in &mut dataset.streams {
                    // The lock is held over all streams; the deletion of one must not give it back.
                    stream.delete_with(&indices, Others::DoNotSee)?;
                }
                intent::remove(&*dataset.storage, &dataset.path)
            })
        });
        let back = self.streams.iter().take(taken).try_for_each(|(_, stream)| stream.writer().exclude(false));
        // Others stay locked out until this writer ends.
        self.latched |= back.is_err();
        done.and(back)
    }

    /// Makes everything appended so far survive a power cut.
    ///
    /// # Errors
    /// [`Error::Io`], after which every further call gives [`Error::Latched`].
    pub fn sync(&mut self) -> Result<()> {
        self.guarded(|dataset| dataset.streams.iter_mut().try_for_each(|(_, stream)| stream.sync()))
    }

    /// Makes the dataset survive a power cut, and closes it.
    ///
    /// # Errors
    /// As [`sync`](DatasetWriter::sync).
    pub fn close(mut self) -> Result<()> {
        self.sync()?;
        let DatasetWriter { path, storage, streams, appending, .. } = self;
        streams.into_iter().try_for_each(|(_, stream)| stream.close())?;
        if appending { intent::remove(&*storage, &path) } else { Ok(()) }
    }

    /// The number of records, the same in each stream.
    pub fn len(&self) -> u64 {
        self.streams.iter().map(|(_, stream)| stream.len()).min().unwrap_or(0)
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The streams by name, in the order of their names.
    pub fn streams(&self) -> impl Iterator<Item = (&str, &StreamWriter)> {
        self.streams.iter().map(|(name, stream)| (&name[..], stream))
    }

    /// The directory of the dataset.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a step that writes; if it fails, the writer latches.
    fn guarded(&mut self, step: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if self.latched {
            return Err(Error::Latched { path: self.path.clone() });
        }
        let done = step(self);
        self.latched = done.is_err();
        done
    }
}

/// Those of `indices`, sorted from high to low, that an interrupted deletion has yet to take from the stream `name`, which
/// had `length` records before and has `len` now. A large deletion takes several journals, each from where the one before
/// ended, so a stream may have any length in between.
///
/// # Errors
/// [`Error::Corrupt`] if the deletion cannot have left the stream at this length.
pub(super) fn not_deleted<'i>(
    dataset: &Path,
    name: &str,
    len: u64,
    length: u64,
    indices: &'i [u64],
) -> Result<&'i [u64]> {
    let rest = length.checked_sub(len).and_then(|done| indices.get(usize::try_from(done).ok()?..));
    rest.ok_or_else(|| {
        let after = length.saturating_sub(indices.len() as u64);
        let reason = format!(
            "a deletion was interrupted that takes each stream from {length} records to {after}, but the stream {name} \
             has {len}"
        );
        Error::corrupt(dataset.join(DATASET_FILE), 0, reason)
    })
}
