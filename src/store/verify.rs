//! Verify: read everything, and name what is not right.

use super::Store;
use super::files::Part;
use crate::error::{Error, Result};
use crate::format::Codec;
use crate::format::table::ENTRY_LEN;
use crate::pack::Progress;
use crate::pool::pool;

/// Records that are looked up together.
const BLOCK: u64 = 4096;

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
    /// Records that could be read but carry no checksum, so that a changed byte would not show.
    pub unchecked: u64,
}

impl Store {
    /// Reads and decodes every record, on all cores, and calls `bad` for each that is not right, in the order of their
    /// indices. zstd frames are checked against the checksums that they carry; frames written without one, and raw
    /// records, count as unchecked.
    ///
    /// # Errors
    /// [`Error::Interrupted`]. What is wrong with records is no error of the verification.
    pub fn verify(&self, progress: &Progress, bad: &mut dyn FnMut(Bad)) -> Result<Verified> {
        let mut found = Verified::default();
        let length = self.table_reach()?;
        if length < self.len() {
            let missing = self.len() - length;
            found.bad += missing;
            let reason = format!("the record table ends here: records {length} to {} are missing", self.len() - 1);
            let segment = u32::try_from(length / self.layout.segment_entries).unwrap_or(u32::MAX);
            let offset = length % self.layout.segment_entries * ENTRY_LEN as u64;
            bad(Bad { index: length, error: Error::corrupt(self.files.path(Part::Segment(segment)), offset, reason) });
        }
        for start in (0..length).step_by(BLOCK as usize) {
            progress.check()?;
            let indices: Vec<u64> = (start..length.min(start.saturating_add(BLOCK))).collect();
            let results: Vec<Result<(u64, bool)>> = pool().map(&indices, |&index| {
                progress.check()?;
                let bytes = self.read(index)?.len() as u64;
                progress.add(1, bytes);
                Ok((bytes, self.carries_checksum(index)?))
            });
            for (&index, result) in indices.iter().zip(results) {
                found.records += 1;
                match result {
                    Ok((bytes, checked)) => {
                        found.bytes += bytes;
                        found.unchecked += u64::from(!checked);
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

    /// How many records the files of the table have room for, up to the store's length: a damaged header can claim any
    /// number.
    fn table_reach(&self) -> Result<u64> {
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
        Ok(reach.min(length))
    }

    /// Whether the record's frame has a checksum of its contents: bit 2 of the descriptor behind the magic number.
    fn carries_checksum(&self, index: u64) -> Result<bool> {
        if self.codec() == Codec::Raw {
            return Ok(false);
        }
        let mut start = [0; 5];
        let n = self.read_stored(index, &mut start)?;
        Ok(n == start.len() && start[4] & 4 != 0)
    }
}
