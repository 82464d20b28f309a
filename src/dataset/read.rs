//! Reading many records at once, by any choice of indices, and one after the other.

use super::{Dataset, Stream};
use crate::error::{Error, Result};
use crate::format::Kind;
use crate::format::dtype::DType;
use crate::in_order::InOrder;
use crate::select::Selection;
use crate::store::{Store, Threads};

/// What a read of several records gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Values {
    /// Of a dense store: one array.
    Dense {
        /// The type of its items.
        dtype: DType,
        /// Its shape: the number of records and then the shape of a record; for a single index the latter alone.
        shape: Vec<u64>,
        /// Its bytes, in C order.
        bytes: Vec<u8>,
    },
    /// Of a ragged store: each record's array.
    Ragged {
        /// The type of the items.
        dtype: DType,
        /// The arrays' bytes, one after the other, each in C order.
        bytes: Vec<u8>,
        /// Where in `bytes` each begins.
        offsets: Vec<u64>,
        /// The shape of each.
        shapes: Vec<Vec<u64>>,
    },
    /// Of a store without a type: each record's bytes.
    Bytes {
        /// The records, one after the other.
        bytes: Vec<u8>,
        /// Where in `bytes` each begins.
        offsets: Vec<u64>,
    },
}

impl Stream {
    /// Reads the records of `selection`, decoding on all cores where that pays.
    ///
    /// # Errors
    /// [`Error::Invalid`] or [`Error::OutOfRange`], naming index and length, if the selection does not fit the stream;
    /// [`Error::Record`], which names the index, if a record cannot be read or its bytes and shape do not agree.
    pub fn get(&self, selection: &Selection) -> Result<Values> {
        let indices = selection.resolve(self.len())?.to_vec();
        let (bytes, offsets) = self.store().gather_packed(&indices)?;
        let Some(schema) = self.schema() else { return Ok(Values::Bytes { bytes, offsets }) };
        let dtype = schema.dtype.clone();
        match &schema.kind {
            Kind::Ragged => {
                let shape = |&index: &u64| Ok(self.shape(index)?.unwrap_or_default());
                Ok(Values::Ragged { dtype, bytes, offsets, shapes: indices.iter().map(shape).collect::<Result<_>>()? })
            }
            Kind::Dense { item_shape } => {
                let record = schema.record_bytes().unwrap_or(0);
                let wrong = indices.iter().zip(&offsets).enumerate().find(|(k, (_, at))| **at != *k as u64 * record);
                // A record of another length shifts the ones after it; of the last one the total tells.
                if bytes.len() as u64 != record.saturating_mul(indices.len() as u64) || wrong.is_some() {
                    let mut bad = indices.iter().map(|&index| self.shape(index));
                    return match bad.find_map(Result::err) {
                        Some(e) => Err(e),
                        None => Err(Error::invalid("the records changed while they were read")),
                    };
                }
                let count = (!selection.is_one()).then_some(indices.len() as u64);
                Ok(Values::Dense { dtype, shape: count.into_iter().chain(item_shape.iter().copied()).collect(), bytes })
            }
        }
    }

    /// Reads the records `indices` (any order, repeats allowed) one after the other into the buffer that `room` gives for
    /// their offsets, the last of which is the total of bytes. Returns these offsets, one more than there are indices.
    ///
    /// # Errors
    /// Those of `room`, and [`Error::Record`] if a record of a dense stream has another length than its type makes, both
    /// before anything is read; otherwise as [`Store::gather`].
    pub fn gather_with<'a>(
        &self,
        indices: &[u64],
        room: impl FnOnce(&[u64]) -> Result<&'a mut [u8]>,
    ) -> Result<Vec<u64>> {
        self.gather_by(indices, Threads::All, room)
    }

    /// The same on the calling thread alone: for who gathers several batches at the same time.
    ///
    /// # Errors
    /// As [`gather_with`](Stream::gather_with).
    pub fn gather_here_with<'a>(
        &self,
        indices: &[u64],
        room: impl FnOnce(&[u64]) -> Result<&'a mut [u8]>,
    ) -> Result<Vec<u64>> {
        self.gather_by(indices, Threads::One, room)
    }

    /// The same by the threads that are said.
    pub(crate) fn gather_by<'a>(
        &self,
        indices: &[u64],
        threads: Threads,
        room: impl FnOnce(&[u64]) -> Result<&'a mut [u8]>,
    ) -> Result<Vec<u64>> {
        let dense = self.schema().and_then(|schema| schema.record_bytes());
        self.store().gather_into(indices, threads, |offsets| {
            if let Some(length) = dense {
                all_have(self, indices, offsets, length)?;
            }
            room(offsets)
        })
    }

    /// The records of `selection`, one after the other, read ahead and decoded in parallel; see [`Store::iter`].
    ///
    /// # Errors
    /// As [`get`](Stream::get), for a selection that does not fit.
    pub fn iter(&self, selection: &Selection) -> Result<Records<'_>> {
        Records::new(self.store(), selection)
    }
}

/// Checks that every record of a dense stream has as many bytes as its type makes, so that they are one array.
fn all_have(stream: &Stream, indices: &[u64], offsets: &[u64], length: u64) -> Result<()> {
    let wrong = offsets.windows(2).zip(indices).find(|(at, _)| at[1] - at[0] != length);
    let Some((at, &index)) = wrong else { return Ok(()) };
    let got = at[1] - at[0];
    // The stream says what is wrong with it.
    stream.shape(index)?;
    Err(Error::invalid(format!("it has {got} bytes, where the others have {length}")).at_record(index))
}

impl Dataset {
    /// Reads the records of `selection` from each stream, in the order of [`streams`](Dataset::streams).
    ///
    /// # Errors
    /// As [`Stream::get`].
    pub fn get(&self, selection: &Selection) -> Result<Vec<(&str, Values)>> {
        self.streams().iter().map(|(name, stream)| Ok((&name[..], stream.get(selection)?))).collect()
    }
}

/// The records of a store one after the other.
pub struct Records<'s> {
    records: InOrder<'s, Box<dyn Iterator<Item = u64> + Send>>,
    store: &'s Store,
    failed: bool,
}

impl std::fmt::Debug for Records<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").field("store", &self.store.path()).finish_non_exhaustive()
    }
}

impl Store {
    /// All records in the order of their indices, with their indices. They are read and decoded ahead in batches, on all
    /// cores; what waits has at most about 16 MiB, or one record.
    ///
    /// The iterator ends after an error.
    pub fn iter(&self) -> Records<'_> {
        Records::over(self, 0..self.len())
    }
}

impl<'s> Records<'s> {
    fn new(store: &'s Store, selection: &Selection) -> Result<Self> {
        Ok(Self::over(store, selection.resolve(store.len())?.into_iter()))
    }

    fn over(store: &'s Store, indices: impl Iterator<Item = u64> + Send + 'static) -> Self {
        Records { records: InOrder::new(store, Box::new(indices)), store, failed: false }
    }
}

impl Iterator for Records<'_> {
    type Item = Result<(u64, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.records.next();
        self.failed = next.is_err();
        next.map(|record| record.map(|(index, bytes)| (index, bytes.to_vec()))).transpose()
    }
}
