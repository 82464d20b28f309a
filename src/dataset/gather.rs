//! Gathering the records of a stream into memory of the caller's choice.

use super::Stream;
use crate::error::{Error, Result};
use crate::store::{self, Threads};

/// Records of a stream that were looked up, and are still to be read.
#[derive(Debug)]
pub struct Found<'s>(store::Found<'s>);

impl Found<'_> {
    /// Where each record begins when they stand one after the other, and where the last one ends.
    pub fn offsets(&self) -> &[u64] {
        self.0.offsets()
    }

    /// Reads them one after the other into `dst`, whose length must be the last of the offsets; on all cores, where there is
    /// enough to do.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`]; [`Error::Record`], which names the index, if one cannot be read.
    pub fn read(self, dst: &mut [u8]) -> Result<()> {
        self.0.read(dst, Threads::All).map(drop)
    }

    /// The same on the calling thread alone: for who gathers several batches at the same time.
    ///
    /// # Errors
    /// As [`read`](Found::read).
    pub fn read_here(self, dst: &mut [u8]) -> Result<()> {
        self.0.read(dst, Threads::One).map(drop)
    }

    /// The bytes of memory that looking up and reading so many records takes beside their destination, at most: 24 for each,
    /// and 192 more for each of the first 32,768.
    pub fn memory(count: u64) -> u64 {
        store::Found::memory(count)
    }
}

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

    /// The same on threads of the caller's choice.
    pub(crate) fn gather_on<'a>(
        &self,
        indices: &[u64],
        threads: Threads,
        room: impl FnOnce(&[u64]) -> Result<&'a mut [u8]>,
    ) -> Result<Vec<u64>> {
        let found = self.look_up(indices)?;
        let dst = room(found.offsets())?;
        found.0.read(dst, threads)
    }

    /// Looks the records `indices` up, to be read together once there is room for them.
    ///
    /// # Errors
    /// As [`gather_into`](Stream::gather_into), except for what is only seen when they are read.
    pub fn look_up<'s>(&'s self, indices: &'s [u64]) -> Result<Found<'s>> {
        let found = self.store().look_up(indices)?;
        if let Some(length) = self.schema().and_then(|schema| schema.record_bytes()) {
            self.all_have(indices, &mut found.offsets().windows(2).map(|at| at[1] - at[0]), length)?;
        }
        Ok(Found(found))
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
