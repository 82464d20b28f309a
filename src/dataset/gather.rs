//! Gathering the records of a stream into memory of the caller's choice.

use super::Stream;
use crate::error::{Error, Result};
use crate::store::Threads;

impl Stream {
    /// Reads the records `indices` (any order, repeats allowed) one after the other into the buffer that `room` gives for
    /// their offsets in bytes, the last of which is the total; its length must be that. Returns these offsets, one more
    /// than there are indices.
    ///
    /// Of a dense stream it is sure by then that every record has as many bytes as its type makes. Large batches are read
    /// and decoded on all cores.
    ///
    /// # Errors
    /// Those of `room`, before anything is read; [`Error::OutOfRange`]; [`Error::Record`], which names the index, if one
    /// cannot be read or does not have the stream's type.
    pub fn gather_into<'a>(
        &self,
        indices: &[u64],
        room: impl FnOnce(&[u64]) -> Result<&'a mut [u8]>,
    ) -> Result<Vec<u64>> {
        self.gather_on(indices, Threads::All, room)
    }

    /// The same on the calling thread alone: for who gathers several batches at the same time.
    ///
    /// # Errors
    /// As [`gather_into`](Stream::gather_into).
    pub fn gather_here_into<'a>(
        &self,
        indices: &[u64],
        room: impl FnOnce(&[u64]) -> Result<&'a mut [u8]>,
    ) -> Result<Vec<u64>> {
        self.gather_on(indices, Threads::One, room)
    }

    /// The same on threads of the caller's choice.
    pub(crate) fn gather_on<'a>(
        &self,
        indices: &[u64],
        threads: Threads,
        room: impl FnOnce(&[u64]) -> Result<&'a mut [u8]>,
    ) -> Result<Vec<u64>> {
        let dense = self.schema().and_then(|schema| schema.record_bytes());
        self.store().gather_into(indices, threads, |offsets| {
            if let Some(length) = dense {
                self.all_have(indices, &mut offsets.windows(2).map(|at| at[1] - at[0]), length)?;
            }
            room(offsets)
        })
    }

    /// Reads the records `indices` into `dst`, each to its own of the `offsets`; as [`Store::gather`](crate::Store::gather).
    ///
    /// # Errors
    /// Those of that; [`Error::Record`], which names the index, if one does not have the stream's type.
    #[cfg(feature = "capi")]
    pub(crate) fn gather_to(&self, indices: &[u64], dst: &mut [u8], offsets: &[u64]) -> Result<()> {
        let dense = self.schema().and_then(|schema| schema.record_bytes());
        self.store().gather_to(indices, dst, offsets, |lengths| match dense {
            Some(length) => self.all_have(indices, lengths, length),
            None => Ok(()),
        })
    }

    /// Checks that each of these records has `length` bytes, so that they are one array.
    fn all_have(&self, indices: &[u64], lengths: &mut dyn Iterator<Item = u64>, length: u64) -> Result<()> {
        let Some((got, &index)) = lengths.zip(indices).find(|&(got, _)| got != length) else { return Ok(()) };
        // The stream says what is wrong with it.
        self.shape(index)?;
        Err(Error::invalid(format!("it has {got} bytes, where the others have {length}")).at_record(index))
    }
}
