//! One writer for many threads.

use super::append::{ROUND, Writer, check_lengths};
use super::encoded::{Encoded, shares};
use crate::codec::Encoder;
use crate::error::Result;
use crate::fork::Maker;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A [`Writer`] that threads share: each compresses what it appends by itself, at the same time as the others, and only
/// the writing is done by one after the other.
///
/// It is a type of its own because [`Writer::append`] compresses on all cores already, and one thread with large
/// batches needs nothing else. This is for threads that each have few records at a time.
#[derive(Debug)]
pub struct SharedWriter {
    writer: Mutex<Writer>,
    encoder: Arc<Encoder>,
    maker: Maker,
    path: PathBuf,
    length: AtomicU64,
}

impl From<Writer> for SharedWriter {
    fn from(writer: Writer) -> Self {
        let (encoder, length) = (writer.encoder(), AtomicU64::new(writer.len()));
        SharedWriter {
            encoder,
            length,
            maker: writer.maker(),
            path: writer.path().to_path_buf(),
            writer: Mutex::new(writer),
        }
    }
}

impl SharedWriter {
    /// Appends `records` and returns their indices, which follow each other, whatever other threads append meanwhile.
    /// The calling thread compresses them. Of a batch of more than 32 MiB, only the first 32 MiB are compressed while
    /// others write; they wait for the rest.
    ///
    /// # Errors
    /// As [`Writer::append`]; after an error of the disk all threads get [`Error::Latched`](crate::Error::Latched).
    pub fn append(&self, records: &[&[u8]]) -> Result<Range<u64>> {
        check_lengths(records)?;
        let mut rounds = shares(records, ROUND);
        let Some(first) = rounds.next() else {
            let length = self.len();
            return Ok(length..length);
        };
        if !self.maker.is_here() {
            return Err(self.maker.refusal(&self.path));
        }
        let encoded = Encoded::here(&self.encoder, first)?;
        let mut writer = self.writer()?;
        let start = writer.len();
        writer.guarded(|w| {
            w.place(&encoded, first)?;
            rounds.try_for_each(|round| w.append_round(round))
        })?;
        self.length.store(writer.len(), Ordering::Release);
        Ok(start..writer.len())
    }

    /// As [`Writer::sync`], for the records of all threads whose append has returned.
    ///
    /// # Errors
    /// As [`Writer::sync`].
    pub fn sync(&self) -> Result<()> {
        self.writer()?.sync()
    }

    /// The number of records.
    pub fn len(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    /// Whether the store has no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The writer itself, to delete or compact.
    pub fn into_inner(self) -> Writer {
        self.writer.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Syncs and closes the store.
    ///
    /// # Errors
    /// As [`Writer::sync`].
    pub fn close(self) -> Result<()> {
        self.into_inner().close()
    }

    fn writer(&self) -> Result<MutexGuard<'_, Writer>> {
        self.maker.lock(&self.writer).ok_or_else(|| self.maker.refusal(&self.path))
    }
}
