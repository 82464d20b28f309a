//! The records in the order of their places, a bounded number at a time.

use crate::error::{Error, Result};
use crate::format::Entry;
use crate::format::table::ENTRY_LEN;
use crate::storage::read_exact_at;
use crate::store::Writer;
use crate::store::files::Part;

/// Bytes of the table that are read together.
const SCAN: usize = 1 << 20;

/// A record by its place: the order is that of the places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Placed {
    /// Its address: the chunk in the upper 32 bits, the offset in the lower ones.
    pub(super) at: u64,
    pub(super) index: u64,
    pub(super) phys_length: u32,
    logic_length: u32,
}

/// A record and the address that it goes to.
pub(super) type Move = (Placed, u64);

/// The chunk of an address.
pub(super) fn chunk_of(address: u64) -> u32 {
    (address >> 32) as u32
}

/// The offset of an address in its chunk.
pub(super) fn offset_of(address: u64) -> u64 {
    address & u64::from(u32::MAX)
}

impl Placed {
    fn new(index: u64, entry: &Entry) -> Self {
        let at = u64::from(entry.chunk_id) << 32 | u64::from(entry.offset);
        Placed { at, index, phys_length: entry.phys_length, logic_length: entry.logic_length }
    }

    /// The address behind its last byte.
    pub(super) fn end(&self) -> u64 {
        self.at.saturating_add(self.phys_length.into())
    }

    /// The entry that it has at another address.
    pub(super) fn entry(&self, at: u64) -> Entry {
        let (phys_length, logic_length) = (self.phys_length, self.logic_length);
        Entry { offset: offset_of(at) as u32, phys_length, logic_length, chunk_id: chunk_of(at) }
    }
}

impl Writer {
    /// The `count` records, or as many as there are, with the lowest places behind `after`, an address and an index.
    /// Costs one scan of the table, and memory for twice as many.
    ///
    /// # Errors
    /// [`Error::Record`] for an entry that cannot be true; [`Error::Io`].
    pub(super) fn lowest(&self, after: Option<(u64, u64)>, count: usize) -> Result<Vec<Placed>> {
        self.select(count, |record| after.is_none_or(|after| (record.at, record.index) > after))
    }

    /// The same from the address `from` on.
    pub(super) fn lowest_from(&self, from: u64, count: usize) -> Result<Vec<Placed>> {
        self.select(count, |record| record.at >= from)
    }

    fn select(&self, count: usize, wanted: impl Fn(&Placed) -> bool) -> Result<Vec<Placed>> {
        let mut found: Vec<Placed> = Vec::new();
        // Beyond the last of `count` found ones nothing is of interest any more.
        let mut limit = None;
        self.scan(|record| {
            if wanted(&record) && limit.is_none_or(|limit| record < limit) {
                found.push(record);
                if found.len() >= count.saturating_mul(2) {
                    let (_, middle, _) = found.select_nth_unstable(count);
                    limit = Some(*middle);
                    found.truncate(count);
                }
            }
        })?;
        found.sort_unstable();
        found.truncate(count);
        Ok(found)
    }

    /// Calls `each` for all records in the order of their indices, after checking their entries.
    fn scan(&self, mut each: impl FnMut(Placed)) -> Result<()> {
        let segment_entries = self.layout.segment_entries;
        let mut buffer = vec![0; SCAN];
        let mut index = 0;
        while index < self.header.length {
            let (segment, at) = (index / segment_entries, index % segment_entries);
            let part =
                Part::Segment(u32::try_from(segment).map_err(|_| Error::Full { path: self.path().to_path_buf() })?);
            let n = (self.header.length - index).min(segment_entries - at).min((SCAN / ENTRY_LEN) as u64);
            let bytes = &mut buffer[..n as usize * ENTRY_LEN];
            let file = self.files.get(part)?;
            read_exact_at(&*file, &self.files.path(part), bytes, at * ENTRY_LEN as u64, "the record table")?;
            let (entries, _) = bytes.as_chunks::<ENTRY_LEN>();
            for (index, bytes) in (index..).zip(entries) {
                let entry = Entry::decode(bytes);
                entry
                    .validate(&self.header, self.layout)
                    .map_err(|reason| self.files.entry_error(index, segment_entries, reason))?;
                each(Placed::new(index, &entry));
            }
            index += n;
        }
        Ok(())
    }
}
