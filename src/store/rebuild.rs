//! Rebuild: checksums for the records of a raw store that have none, or none that counts.

use super::sums::{Match, compare, mismatch, sum_at};
use super::{Bad, Part, Writer};
use crate::error::{Error, Result};
use crate::format::{Codec, Entry};
use crate::pack::Progress;
use crate::pool::pool;

/// Records whose sums are made together.
const BLOCK: u64 = 4096;

/// What making checksums anew found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rebuilt {
    /// Records that were read.
    pub records: u64,
    /// Bytes that they have.
    pub bytes: u64,
    /// Records that had no checksum and got one.
    pub made: u64,
    /// Records that differed from a checksum that may have been another record's (see
    /// [`Verified::doubtful`](super::Verified::doubtful)) and got a new one.
    pub replaced: u64,
    /// Damaged records, whose checksums stay as they were.
    pub bad: u64,
}

impl Writer {
    /// Reads every record of a raw store, on all cores, and gives those a checksum that have none that counts. A record
    /// that differs from a checksum that counts is damaged: it keeps the checksum, and `bad` is called for it.
    ///
    /// The checksums are written in their places, and only then said to count, durably: a crash in between leaves each
    /// record with its old checksum or the new one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a store of another codec; [`Error::Interrupted`]; [`Error::Io`], after which every
    /// further call gives [`Error::Latched`].
    pub fn rebuild_sums(&mut self, progress: &Progress, bad: &mut dyn FnMut(Bad)) -> Result<Rebuilt> {
        if self.codec() != Codec::Raw {
            let path = self.path().display();
            return Err(Error::invalid(format!("{path} has nothing to rebuild: its frames carry their checksums")));
        }
        let mut done = Rebuilt::default();
        let mut stopped = None;
        self.guarded(|w| {
            for first in (0..w.header.length).step_by(BLOCK as usize) {
                match w.rebuild_block(first, progress, &mut done, bad) {
                    // Stopped on request, the writer stays as good as it was.
                    Err(Error::Interrupted) => {
                        stopped = Some(Error::Interrupted);
                        return Ok(());
                    }
                    other => other?,
                }
            }
            w.sync_all()?;
            w.sums.as_mut().map_or(Ok(()), |sums| sums.settle())
        })?;
        stopped.map_or(Ok(done), Err)
    }

    fn rebuild_block(
        &mut self,
        first: u64,
        progress: &Progress,
        done: &mut Rebuilt,
        bad: &mut dyn FnMut(Bad),
    ) -> Result<()> {
        let indices: Vec<u64> = (first..self.header.length.min(first + BLOCK)).collect();
        let entries = self.files.entries(&indices, self.layout.segment_entries)?;
        let found: Vec<Result<u32>> = pool().map(&entries, |entry| {
            progress.check()?;
            let sum = self.sum_of_record(entry)?;
            progress.add(1, entry.phys_length.into());
            Ok(sum)
        });
        let Some(sums) = &mut self.sums else { return Ok(()) };
        let mut stored = sums.get(&indices)?;
        for (((&index, entry), found), stored) in indices.iter().zip(&entries).zip(found).zip(&mut stored) {
            done.records += 1;
            let found = match found {
                Ok(found) => found,
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(e) => {
                    done.bad += 1;
                    bad(Bad { index, error: e.at_record(index) });
                    continue;
                }
            };
            done.bytes += u64::from(entry.phys_length);
            match compare(*stored, found) {
                Match::Yes => {}
                Match::Unknown => {
                    done.made += 1;
                    *stored = found;
                }
                Match::No if index < sums.doubtful() => {
                    done.replaced += 1;
                    *stored = found;
                }
                Match::No => {
                    done.bad += 1;
                    let error = mismatch(&self.files.path(Part::Chunk(entry.chunk_id)), entry.offset.into());
                    bad(Bad { index, error: error.at_record(index) });
                }
            }
        }
        sums.put(first, &stored)
    }

    /// The sum of the record that stands there now.
    fn sum_of_record(&self, entry: &Entry) -> Result<u32> {
        let part = Part::Chunk(entry.chunk_id);
        let path = self.files.path(part);
        entry
            .validate(&self.header, self.layout)
            .map_err(|reason| Error::corrupt(&path, entry.offset.into(), reason))?;
        sum_at(&*self.files.get(part)?, &path, entry.offset.into(), entry.phys_length)
    }
}
