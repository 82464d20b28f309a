//! Parts of batches that the cache has no room for: only the records that a read covers are gathered.

use super::gather::{File, take};
use super::packed::{header_of, number};
use crate::fs::read::copy_from;
use crate::fs::{Failure, Fs};
use std::sync::Arc;

impl Fs {
    /// Reads a part of a file of values: records that it has all of are gathered where they belong, others are read in
    /// part, or through the cache.
    pub(super) fn read_range(&self, file: &File<'_>, offset: u64, dst: &mut [u8]) -> Result<usize, Failure> {
        let mut done = copy_from(&file.header, offset, dst);
        let at = (offset + done as u64).saturating_sub(file.header.len() as u64);
        let room = dst.len() as u64 - done as u64;
        let end = at.saturating_add(room).min(file.body);
        if at >= end {
            return Ok(done);
        }
        let starts = self.starts(file)?;
        // The records from the one that `at` lies in to the one before which the read ends.
        let (first, last) = (before(file.count, |k| starts.of(k) <= at), before(file.count, |k| starts.of(k) < end));
        let first = first.saturating_sub(1);
        let mut dst = &mut dst[done..done + (end - at) as usize];
        let changed = || file.corrupt("the batch's records are not as long as the table said".into());
        self.for_chunks(&file.order, first, last - first, |from, indices| {
            let whole = |k: u64| starts.of(k) >= at && starts.of(k + 1) <= end;
            let mut k = 0;
            while k < indices.len() {
                let place = from + k as u64;
                let run = (k..indices.len()).take_while(|&k| whole(from + k as u64)).count();
                if run > 0 {
                    let dst = &mut dst;
                    let want = starts.of(place + run as u64) - starts.of(place);
                    file.stream.gather_into(&indices[k..k + run], |offsets| {
                        take(dst, offsets).filter(|now| now.len() as u64 == want).ok_or_else(changed)
                    })?;
                    (k, done) = (k + run, done + want as usize);
                    continue;
                }
                let (start, stop) = (starts.of(place), starts.of(place + 1));
                let (from, n) = (at.max(start) - start, (end.min(stop) - at.max(start)) as usize);
                let (now, after) = std::mem::take(&mut dst).split_at_mut_checked(n).ok_or_else(changed)?;
                self.read_piece(file, indices[k], stop - start, from, now)?;
                (dst, k, done) = (after, k + 1, done + n);
            }
            Ok(())
        })?;
        Ok(done)
    }

    /// Reads a part of one record, which must have `length` bytes.
    fn read_piece(&self, file: &File<'_>, index: u64, length: u64, offset: u64, dst: &mut [u8]) -> zrfs::Result<()> {
        let (stream, want) = (file.stream, dst.len());
        if u64::from(stream.store().entry(index)?.logic_length) != length {
            // The stream says what is wrong with it.
            stream.shape(index)?;
            return Err(file.corrupt(format!("the record has not the {length} bytes that it had")).at_record(index));
        }
        let read = self.read_record(file.s, stream, index, offset, dst)?;
        if read == want { Ok(()) } else { Err(file.corrupt("the record ends early".into()).at_record(index)) }
    }

    fn starts(&self, file: &File<'_>) -> zrfs::Result<Starts> {
        Ok(match &file.form.dense {
            Some((_, record)) => Starts::Dense(*record),
            None => {
                let offsets = self.offsets(file)?;
                let header = header_of(&offsets, file.count);
                Starts::Packed { offsets, header, item: file.form.dtype.itemsize() }
            }
        })
    }
}

/// Where in a batch's bytes each record begins.
enum Starts {
    Dense(u64),
    Packed { offsets: Arc<Vec<u8>>, header: usize, item: u64 },
}

impl Starts {
    fn of(&self, k: u64) -> u64 {
        match self {
            Starts::Dense(record) => k.saturating_mul(*record),
            Starts::Packed { offsets, header, item } => {
                number(offsets, *header, k).unwrap_or(u64::MAX).saturating_mul(*item)
            }
        }
    }
}

/// How many numbers below `count` are `so`, where those come first.
fn before(count: u64, so: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        (low, high) = if so(middle) { (middle + 1, high) } else { (low, middle) };
    }
    low
}
