//! Verify: read everything, and name what is not right.

use super::Store;
use super::files::Part;
use super::sums::{self, Match};
use crate::error::{Error, Result};
use crate::format::Codec;
use crate::format::sums::NO_SUM;
use crate::format::table::{ENTRY_LEN, Entry};
use crate::pack::Progress;
use crate::pool::pool;

/// Records that are looked up together.
const BLOCK: u64 = 4096;
/// Entries that are looked at together where the end of the table is looked for: a MiB of them.
const ZEROS: u64 = 1 << 16;

/// A record that is not right.
#[derive(Debug)]
pub struct Bad {
    /// Its index.
    pub index: u64,
    /// What is wrong, with the file and the offset.
    pub error: Error,
}

/// What a verification found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verified {
    /// Records that were read.
    pub records: u64,
    /// Bytes that they have, before compression.
    pub bytes: u64,
    /// Records that are not right.
    pub bad: u64,
    /// Records that could be read but have no checksum that counts, so that a changed byte would not show.
    pub unchecked: u64,
    /// Of those, raw records that differ from their checksum in a store that another program has changed since, or
    /// that was copied without its times: they are damaged, or newer than the checksum.
    pub doubtful: u64,
}

impl Store {
    /// Reads and decodes every record, on all cores, and calls `bad` for each that is not right, in the order of their
    /// indices. zstd frames are checked against the checksums that they carry, raw records against those in `sums.zr`;
    /// records without one count as unchecked.
    ///
    /// # Errors
    /// [`Error::Interrupted`]; [`Error::Io`] if the checksums cannot be read. What is wrong with records is no error of the verification.
    pub fn verify(&self, progress: &Progress, bad: &mut dyn FnMut(Bad)) -> Result<Verified> {
        let mut found = Verified::default();
        let length = self.table_reach(progress)?;
        if length < self.len() {
            let missing = self.len() - length;
            found.bad += missing;
            let reason = format!("the record table ends here: records {length} to {} are missing", self.len() - 1);
            let segment = u32::try_from(length / self.layout.segment_entries).unwrap_or(u32::MAX);
            let offset = length % self.layout.segment_entries * ENTRY_LEN as u64;
            bad(Bad { index: length, error: Error::corrupt(self.files.path(Part::Segment(segment)), offset, reason) });
        }
        let sure_from = self.sure_from()?;
        for start in (0..length).step_by(BLOCK as usize) {
            progress.check()?;
            let indices: Vec<u64> = (start..length.min(start.saturating_add(BLOCK))).collect();
            let sums = self.stored_sums(&indices)?;
            let records: Vec<(u64, u32)> = indices.iter().copied().zip(sums).collect();
            let results: Vec<Result<(u64, Match)>> = pool().map(&records, |&(index, stored)| {
                progress.check()?;
                let record = self.read(index);
                progress.add(1, record.as_ref().map_or(0, |record| record.len() as u64));
                let record = record?;
                let bytes = record.len() as u64;
                if self.codec() != Codec::Raw {
                    // A checksum that the frame carries was compared when it was decoded.
                    return Ok((bytes, if self.carries_checksum(index)? { Match::Yes } else { Match::Unknown }));
                }
                let found = sums::compare(stored, sums::sum(&record));
                if found == Match::No && index >= sure_from {
                    let entry = self.entry(index)?;
                    let path = self.files.path(Part::Chunk(entry.chunk_id));
                    return Err(sums::mismatch(&path, entry.offset.into()).at_record(index));
                }
                Ok((bytes, found))
            });
            for (&index, result) in indices.iter().zip(results) {
                found.records += 1;
                match result {
                    Ok((bytes, matches)) => {
                        found.bytes += bytes;
                        found.unchecked += u64::from(matches != Match::Yes);
                        found.doubtful += u64::from(matches == Match::No);
                    }
                    Err(Error::Interrupted) => return Err(Error::Interrupted),
                    Err(error) => {
                        found.bad += 1;
                        bad(Bad { index, error });
                    }
                }
            }
        }
        Ok(found)
    }

    /// The first index of which it is sure that its sum is its own.
    pub(super) fn sure_from(&self) -> Result<u64> {
        self.sums.as_ref().map_or(Ok(sums::NEVER), |sums| sums.sure_from(&*self.meta))
    }

    /// The sums of the records `indices`, as a finished deletion would have them.
    pub(super) fn stored_sums(&self, indices: &[u64]) -> Result<Vec<u32>> {
        let Some(sums) = &self.sums else { return Ok(vec![NO_SUM; indices.len()]) };
        let mut found = sums.get(indices)?;
        if !self.moved.is_empty() {
            for (sum, index) in found.iter_mut().zip(indices) {
                *sum = self.moved.get(index).map_or(*sum, |moved| moved.sum);
            }
        }
        Ok(found)
    }

    /// How many records the table has, up to the store's length: a damaged header can claim any number. The files may
    /// have room for many more than were ever appended (loaderx makes them sparse at 4 GiB), so entries of zero bytes
    /// at the end, which no append writes, are no records.
    fn table_reach(&self, progress: &Progress) -> Result<u64> {
        let (length, entries) = (self.len(), self.layout.segment_entries);
        let mut reach = 0;
        while reach < length {
            let Ok(segment) = u32::try_from(reach / entries) else { break };
            let part = Part::Segment(segment);
            let size = match self.files.get(part) {
                Ok(file) => file.size().map_err(Error::io("stat", self.files.path(part)))?,
                Err(_) => 0,
            };
            let here = (size / ENTRY_LEN as u64).min(entries);
            reach += here;
            if here < entries {
                break;
            }
        }
        // A deletion that was not finished has the places of these in its journal.
        let sure = self.moved.keys().max().map_or(0, |last| last + 1);
        let mut reach = reach.min(length);
        // Of a sound store this looks at one entry, and then at no more.
        let mut step = 1;
        while reach > sure {
            progress.check()?;
            let first = reach.saturating_sub(step).max(sure);
            let indices: Vec<u64> = (first..reach).collect();
            // What cannot be read is named when it is verified.
            let Ok(found) = self.files.entries(&indices, entries) else { break };
            if let Some(last) = found.iter().rposition(|entry| *entry != Entry::default()) {
                return Ok(first + last as u64 + 1);
            }
            reach = first;
            step = ZEROS;
        }
        Ok(reach)
    }

    /// Whether the record's frame has a checksum of its contents: bit 2 of the descriptor behind the magic number.
    fn carries_checksum(&self, index: u64) -> Result<bool> {
        let mut start = [0; 5];
        let n = self.read_stored(index, &mut start)?;
        Ok(n == start.len() && start[4] & 4 != 0)
    }
}
