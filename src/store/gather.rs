//! Gather: records at given indices into the caller's buffer, in parallel where that pays.

use super::Store;
use super::fetch::Fetch;
use super::files::Part;
use super::sums::{self, Match};
use crate::error::{Error, Result};
use crate::format::sums::NO_SUM;
use crate::format::{Codec, Entry};
use crate::pool::pool;
use crate::storage::read_exact_at;
use crate::sys::{Then, copy_slice};

/// Below this many bytes a batch is gathered by the caller alone: waking other threads would cost more than it saves.
/// Decoding does more work a byte than copying, so it is shared out earlier.
pub(crate) fn worth_sharing(codec: Codec) -> u64 {
    match codec {
        Codec::Raw => 1 << 20,
        Codec::Zstd | Codec::ZstdDict => 128 << 10,
    }
}

/// Up to this length, a piece of a raw record is compared with the whole record's checksum.
const CHECKED_WHOLE: u64 = 64 << 10;

/// Up to this length, decoding a record whole costs no more than setting up to decode its start.
const SMALL_HEAD: usize = 64 << 10;
/// Larger batches are read in pieces of so many records, so that what is known of each while it is read takes little memory.
const PIECE: usize = 1 << 15;
/// Holds the header of a zstd frame and its first block, which makes up to 128 KiB of the record.
const BLOCK_BOUND: usize = (128 << 10) + 64;

/// Who reads the records of a gather.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    /// The calling thread alone: others gather other batches at the same time.
    One,
    /// All cores, where there is enough to do.
    All,
}

/// One record to read and the place in the destination that it goes to.
pub(super) struct Task<'a> {
    pub(super) index: u64,
    pub(super) entry: Entry,
    /// The checksum that the record must have, or [`NO_SUM`].
    pub(super) sum: u32,
    pub(super) dst: &'a mut [u8],
}

/// Records that were looked up and are still to be read.
#[derive(Debug)]
pub(crate) struct Found<'s> {
    store: &'s Store,
    indices: &'s [u64],
    entries: Vec<Entry>,
    offsets: Vec<u64>,
}

impl Found<'_> {
    /// Where each begins when they stand one after the other, and where the last one ends.
    pub(crate) fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Reads them one after the other into `dst`; returns where each is.
    ///
    /// # Errors
    /// As [`Store::gather`].
    pub(crate) fn read(self, dst: &mut [u8], threads: Threads) -> Result<Vec<u64>> {
        let Found { store, indices, entries, offsets } = self;
        let (need, have) = (offsets.last().copied().unwrap_or(0), dst.len() as u64);
        if need > have {
            return Err(Error::BufferTooSmall { need, have });
        }
        let mut rest = dst;
        for (indices, entries) in indices.chunks(PIECE).zip(entries.chunks(PIECE)) {
            let mut tasks = Vec::with_capacity(entries.len());
            for (&index, &entry) in indices.iter().zip(entries) {
                let (dst, behind) = rest.split_at_mut(entry.logic_length as usize);
                tasks.push(Task { index, entry, sum: NO_SUM, dst });
                rest = behind;
            }
            store.run(tasks, threads)?;
        }
        Ok(offsets)
    }

    /// The bytes of memory that looking up and reading so many records takes beside their destination, at most.
    pub(crate) fn memory(count: u64) -> u64 {
        let looked_up = (size_of::<Entry>() + size_of::<u64>()) as u64;
        // What sorting out repeats makes of the tasks; looking up checksums takes less.
        let read = 4 * size_of::<Task<'_>>() as u64;
        count.saturating_mul(looked_up).saturating_add(count.min(PIECE as u64) * read)
    }
}

impl Store {
    /// The length in bytes of each of the records `indices`, in the order given.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Corrupt`] or [`Error::Io`] for the first index that fails.
    pub fn lengths(&self, indices: &[u64]) -> Result<Vec<u32>> {
        Ok(self.entries(indices)?.iter().map(|e| e.logic_length).collect())
    }

    /// Reads the records `indices` (any order, repeats allowed) into `dst`: record `indices[k]` goes to
    /// `dst[offsets[k]..]`, as many bytes as it has. Other bytes of `dst` stay as they are.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are not as many offsets as indices, or places overlap;
    /// [`Error::BufferTooSmall`] if a record would reach past the end of `dst`; [`Error::OutOfRange`];
    /// [`Error::Record`], which names the index, if one cannot be read. After an error the contents of `dst` are
    /// unspecified.
    pub fn gather(&self, indices: &[u64], dst: &mut [u8], offsets: &[u64]) -> Result<()> {
        self.gather_to(indices, dst, offsets, |_| Ok(()))
    }

    /// The same, where the records' lengths, in the order given, are checked before anything is read.
    ///
    /// # Errors
    /// Those of `check`; otherwise as [`gather`](Store::gather).
    pub(crate) fn gather_to(
        &self,
        indices: &[u64],
        dst: &mut [u8],
        offsets: &[u64],
        check: impl FnOnce(&mut dyn Iterator<Item = u64>) -> Result<()>,
    ) -> Result<()> {
        if indices.len() != offsets.len() {
            return Err(Error::invalid(format!("{} indices with {} offsets", indices.len(), offsets.len())));
        }
        let entries = self.entries(indices)?;
        check(&mut entries.iter().map(|entry| u64::from(entry.logic_length)))?;
        self.run(places(indices, &entries, dst, offsets)?, Threads::All)
    }

    /// Reads the records `indices` one after the other into a buffer of their own; returns it and the offset of each.
    ///
    /// # Errors
    /// As [`gather`](Store::gather).
    pub fn gather_packed(&self, indices: &[u64]) -> Result<(Vec<u8>, Vec<u64>)> {
        let mut dst = Vec::new();
        let mut offsets = self.gather_into(indices, Threads::All, |offsets| {
            dst = vec![0; offsets.last().map_or(0, |&total| total as usize)];
            Ok(&mut dst)
        })?;
        offsets.pop();
        Ok((dst, offsets))
    }

    /// Reads the records `indices` one after the other into the buffer that `room` gives for their offsets, the last of
    /// which is the total of bytes. Returns these offsets, one more than there are indices.
    ///
    /// # Errors
    /// Those of `room`, before anything is read; otherwise as [`gather`](Store::gather).
    pub(crate) fn gather_into<'a>(
        &self,
        indices: &[u64],
        threads: Threads,
        room: impl FnOnce(&[u64]) -> Result<&'a mut [u8]>,
    ) -> Result<Vec<u64>> {
        let found = self.look_up(indices)?;
        let dst = room(&found.offsets)?;
        found.read(dst, threads)
    }

    /// Looks the records `indices` up, to be read together.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Corrupt`] or [`Error::Io`] for the first index that fails.
    pub(crate) fn look_up<'s>(&'s self, indices: &'s [u64]) -> Result<Found<'s>> {
        let entries = self.entries(indices)?;
        let mut offsets = Vec::with_capacity(entries.len() + 1);
        let mut total = 0;
        offsets.push(total);
        for entry in &entries {
            total += u64::from(entry.logic_length);
            offsets.push(total);
        }
        Ok(Found { store: self, indices, entries, offsets })
    }

    /// Reads one record.
    ///
    /// # Errors
    /// As [`gather`](Store::gather).
    pub fn read(&self, index: u64) -> Result<Vec<u8>> {
        let entry = self.entry(index)?;
        let mut dst = vec![0; entry.logic_length as usize];
        self.run(vec![Task { index, entry, sum: NO_SUM, dst: &mut dst }], Threads::All)?;
        Ok(dst)
    }

    /// Reads record `index` from its byte `offset` until `dst` is full or the record ends; returns the bytes read.
    ///
    /// A raw record is read in place; where checksums are compared, it is read whole if it is small (64 KiB), and not compared
    /// if it is not. A compressed one is decoded whole, so callers that read large ones in pieces keep what they decoded (see
    /// [`crate::cache`]).
    ///
    /// # Errors
    /// As [`gather`](Store::gather).
    pub fn read_range(&self, index: u64, offset: u64, dst: &mut [u8]) -> Result<usize> {
        let entry = self.entry(index)?;
        let length = u64::from(entry.logic_length);
        let n = length.saturating_sub(offset).min(dst.len() as u64) as usize;
        let dst = &mut dst[..n];
        if n == 0 {
            return Ok(0);
        }
        if n as u64 == length {
            self.run(vec![Task { index, entry, sum: NO_SUM, dst }], Threads::All)?;
        } else if self.codec() == Codec::Raw && !(self.verify_on_read && length <= CHECKED_WHOLE) {
            let part = Part::Chunk(entry.chunk_id);
            let at = u64::from(entry.offset) + offset;
            read_exact_at(&*self.files.get(part)?, &self.files.path(part), dst, at, "the record")
                .map_err(|e| e.at_record(index))?;
        } else {
            let whole = self.read(index)?;
            let start = offset as usize;
            dst.copy_from_slice(&whole[start..start + n]);
        }
        Ok(n)
    }

    /// Reads the start of record `index` until `dst` is full or the record ends; returns the bytes read. Of a large
    /// compressed record only the start is read and decoded, without its checksum.
    ///
    /// # Errors
    /// As [`gather`](Store::gather).
    pub fn read_head(&self, index: u64, dst: &mut [u8]) -> Result<usize> {
        let length = self.entry(index)?.logic_length as usize;
        if self.codec() == Codec::Raw || length <= SMALL_HEAD || dst.len() >= length {
            return self.read_range(index, 0, dst);
        }
        let mut stored = vec![0; BLOCK_BOUND + dst.len()];
        let n = self.read_stored(index, &mut stored)?;
        match self.decoder.decode_head(&stored[..n], dst) {
            Ok(n) if n == dst.len() => Ok(n),
            // A frame of many small blocks, or with a large window: other writers make them.
            _ => self.read_range(index, 0, dst),
        }
    }

    /// Reads the first stored bytes of a record, compressed as they are, up to the length of `dst`.
    pub(crate) fn read_stored(&self, index: u64, dst: &mut [u8]) -> Result<usize> {
        let entry = self.entry(index)?;
        let part = Part::Chunk(entry.chunk_id);
        let n = dst.len().min(entry.phys_length as usize);
        let at = u64::from(entry.offset);
        read_exact_at(&*self.files.get(part)?, &self.files.path(part), &mut dst[..n], at, "the record")?;
        Ok(n)
    }

    /// Runs the tasks, shared out to all cores when there is enough to do and `threads` allows it.
    fn run(&self, mut tasks: Vec<Task<'_>>, threads: Threads) -> Result<()> {
        let codec = self.codec();
        let repeats = if codec == Codec::Raw { Vec::new() } else { take_repeats(&mut tasks) };
        let compares = self.verify_on_read && self.sums.is_some();
        let skipped = compares && self.give_sums(&mut tasks)?;
        let from_disk = self.share_out(&mut tasks, threads, skipped).inspect_err(|_| self.forget_compared())?;
        if skipped && from_disk {
            self.compare_skipped(&mut tasks)?;
        }
        if compares {
            self.note_compared(&tasks);
        }
        if !repeats.is_empty() {
            tasks.sort_unstable_by_key(|task| task.index);
        }
        for repeat in repeats {
            if let Ok(k) = tasks.binary_search_by_key(&repeat.index, |task| task.index) {
                copy_slice(repeat.dst, tasks[k].dst, Then::Used);
            }
        }
        Ok(())
    }

    /// Gives each task whose record is to be compared the checksum that it must have; returns whether there are others, which
    /// were compared before.
    fn give_sums(&self, tasks: &mut [Task<'_>]) -> Result<bool> {
        // What is read by system calls does not show whether it came from the disk.
        let shows = tasks.len() > 1 && Fetch::maps(tasks.len(), bytes_of(tasks)) && !self.place.is_cold();
        // In a forked child that finds the lock taken, perhaps for good, all are compared.
        let compared = if shows { self.maker.lock(&self.compared) } else { None };
        let known: Vec<bool> =
            tasks.iter().map(|task| compared.as_ref().is_some_and(|compared| compared.has(task.index))).collect();
        drop(compared);
        let new: Vec<_> = tasks.iter_mut().zip(&known).filter(|(_, known)| !**known).map(|(task, _)| task).collect();
        self.look_up_sums(new)?;
        Ok(known.contains(&true))
    }

    /// Gives these tasks the checksums that their records must have.
    fn look_up_sums(&self, tasks: Vec<&mut Task<'_>>) -> Result<()> {
        if tasks.is_empty() {
            return Ok(());
        }
        let sure_from = self.sure_from()?;
        let indices: Vec<u64> = tasks.iter().map(|task| task.index).collect();
        for (task, sum) in tasks.into_iter().zip(self.stored_sums(&indices)?) {
            task.sum = if task.index < sure_from { NO_SUM } else { sum };
        }
        Ok(())
    }

    /// Compares records that were compared before, after some of the batch came from the disk anew: all that was compared
    /// may have left the page cache meanwhile.
    fn compare_skipped(&self, tasks: &mut [Task<'_>]) -> Result<()> {
        self.forget_compared();
        let mut skipped: Vec<_> = tasks.iter_mut().filter(|task| task.sum == NO_SUM).collect();
        self.look_up_sums(skipped.iter_mut().map(|task| &mut **task).collect())?;
        match skipped.iter().find(|task| sums::compare(task.sum, sums::sum(task.dst)) == Match::No) {
            Some(Task { index, entry, .. }) => {
                let path = self.files.path(Part::Chunk(entry.chunk_id));
                Err(sums::mismatch(&path, entry.offset.into()).at_record(*index))
            }
            None => Ok(()),
        }
    }

    /// Has all records compared again: one that matched before may be found to be wrong now.
    fn forget_compared(&self) {
        if let Some(mut compared) = self.maker.lock(&self.compared) {
            compared.clear();
        }
    }

    /// Notes the records that were compared, all of which matched.
    fn note_compared(&self, tasks: &[Task<'_>]) {
        let mut new = tasks.iter().filter(|task| task.sum != NO_SUM).peekable();
        if new.peek().is_some()
            && let Some(mut compared) = self.maker.lock(&self.compared)
        {
            new.for_each(|task| compared.add(task.index));
        }
    }

    /// Returns whether some of it came from the disk, as far as that shows, where it is asked.
    fn share_out(&self, tasks: &mut [Task<'_>], threads: Threads, ask: bool) -> Result<bool> {
        let bytes = bytes_of(tasks);
        let fetch = Fetch::new(self, self.codec(), tasks.len(), bytes, ask);
        if tasks.len() < 2 {
            fetch.here(tasks)?;
            return Ok(fetch.was_on_disk());
        }
        fetch.begin(tasks);
        if threads == Threads::One || bytes < worth_sharing(self.codec()) {
            fetch.watch(tasks.len(), || fetch.here(tasks))?;
        } else {
            let pool = pool();
            fetch.watch(tasks.len() / pool.threads(), || pool.try_shares(tasks, |share| fetch.here(share)))?;
        }
        Ok(fetch.was_on_disk())
    }
}

fn bytes_of(tasks: &[Task<'_>]) -> u64 {
    tasks.iter().map(|task| task.dst.len() as u64).sum()
}

/// Takes out the tasks whose record another one reads, too, and sorts both kinds by index: what costs decoding is decoded
/// once.
fn take_repeats<'a>(tasks: &mut Vec<Task<'a>>) -> Vec<Task<'a>> {
    tasks.sort_unstable_by_key(|task| task.index);
    if tasks.windows(2).all(|pair| pair[0].index != pair[1].index) {
        return Vec::new();
    }
    let (mut firsts, mut repeats) = (Vec::with_capacity(tasks.len()), Vec::new());
    for task in tasks.drain(..) {
        let known = firsts.last().is_some_and(|first: &Task<'_>| first.index == task.index);
        if known { &mut repeats } else { &mut firsts }.push(task);
    }
    *tasks = firsts;
    repeats
}

/// Cuts `dst` into one place a record. Safe by construction: places that overlap are refused.
fn places<'a>(indices: &[u64], entries: &[Entry], dst: &'a mut [u8], offsets: &[u64]) -> Result<Vec<Task<'a>>> {
    let have = dst.len() as u64;
    for (entry, &offset) in entries.iter().zip(offsets) {
        let need = offset.saturating_add(u64::from(entry.logic_length));
        if need > have {
            return Err(Error::BufferTooSmall { need, have });
        }
    }
    let mut order: Vec<usize> = (0..indices.len()).collect();
    if !offsets.is_sorted() {
        order.sort_unstable_by_key(|&k| offsets[k]);
    }
    let mut tasks = Vec::with_capacity(order.len());
    let (mut rest, mut start) = (dst, 0u64);
    for k in order {
        let (entry, offset) = (entries[k], offsets[k]);
        let Some(gap) = offset.checked_sub(start) else {
            return Err(Error::invalid(format!("the place of record {} at {offset} overlaps another", indices[k])));
        };
        let (_, tail) = rest.split_at_mut(gap as usize);
        let (place, tail) = tail.split_at_mut(entry.logic_length as usize);
        tasks.push(Task { index: indices[k], entry, sum: NO_SUM, dst: place });
        (rest, start) = (tail, offset + u64::from(entry.logic_length));
    }
    Ok(tasks)
}
