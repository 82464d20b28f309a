//! Gather: records at given indices into the caller's buffer, in parallel where that pays.

use super::files::Part;
use super::sums::{self, Match};
use super::{Files, Store};
use crate::codec::Decoder;
use crate::error::{Error, Result};
use crate::format::sums::NO_SUM;
use crate::format::{Codec, Entry};
use crate::pool::pool;
use crate::storage::{StoreFile, read_exact_at};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Below this many bytes a batch is gathered by the caller alone: waking other threads would cost more than it saves.
/// Decoding does more work a byte than copying, so it is shared out earlier.
fn worth_sharing(codec: Codec) -> u64 {
    match codec {
        Codec::Raw => 1 << 20,
        Codec::Zstd | Codec::ZstdDict => 128 << 10,
    }
}

thread_local! {
    /// Stored bytes on their way to the decoder. Kept from record to record, dropped when it grew beyond [`KEEP`].
    static STORED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A thread keeps at most this much room for stored bytes between records.
const KEEP: usize = 8 << 20;

/// Up to this length, decoding a record whole costs no more than setting up to decode its start.
const SMALL_HEAD: usize = 64 << 10;
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
struct Task<'a> {
    index: u64,
    entry: Entry,
    /// The checksum that the record must have, or [`NO_SUM`].
    sum: u32,
    dst: &'a mut [u8],
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
        if indices.len() != offsets.len() {
            return Err(Error::invalid(format!("{} indices with {} offsets", indices.len(), offsets.len())));
        }
        let entries = self.entries(indices)?;
        let mut tasks = places(indices, &entries, dst, offsets)?;
        self.run(&mut tasks, Threads::All)
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
        let entries = self.entries(indices)?;
        let mut offsets = Vec::with_capacity(entries.len() + 1);
        let mut total = 0;
        offsets.push(total);
        for entry in &entries {
            total += u64::from(entry.logic_length);
            offsets.push(total);
        }
        let dst = room(&offsets)?;
        let mut tasks = places(indices, &entries, dst, &offsets[..entries.len()])?;
        self.run(&mut tasks, threads)?;
        Ok(offsets)
    }

    /// Reads one record.
    ///
    /// # Errors
    /// As [`gather`](Store::gather).
    pub fn read(&self, index: u64) -> Result<Vec<u8>> {
        let entry = self.entry(index)?;
        let mut dst = vec![0; entry.logic_length as usize];
        self.run(&mut [Task { index, entry, sum: NO_SUM, dst: &mut dst }], Threads::All)?;
        Ok(dst)
    }

    /// Reads record `index` from its byte `offset` until `dst` is full or the record ends; returns the bytes read.
    ///
    /// A raw record is read in place, and not compared with its checksum unless it is read whole; a compressed one is decoded whole, so callers that read large ones in pieces
    /// keep what they decoded (see [`crate::cache`]).
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
            self.run(&mut [Task { index, entry, sum: NO_SUM, dst }], Threads::All)?;
        } else if self.codec() == Codec::Raw {
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
    fn run(&self, tasks: &mut [Task<'_>], threads: Threads) -> Result<()> {
        let codec = self.codec();
        if self.verify_on_read && self.sums.is_some() {
            let indices: Vec<u64> = tasks.iter().map(|t| t.index).collect();
            let sure_from = self.sure_from()?;
            for (task, sum) in tasks.iter_mut().zip(self.stored_sums(&indices)?) {
                task.sum = if task.index < sure_from { NO_SUM } else { sum };
            }
        }
        let bytes: u64 = tasks.iter().map(|t| t.dst.len() as u64).sum();
        let (files, decoder) = (&self.files, &self.decoder);
        if tasks.len() < 2 || threads == Threads::One || bytes < worth_sharing(codec) {
            return run_here(files, decoder, codec, tasks);
        }
        // A few shares a thread: small enough to even out records of different lengths.
        let pool = pool();
        let share = tasks.len().div_ceil(pool.threads() * 4);
        pool.try_chunks(tasks, share, |share| run_here(files, decoder, codec, share))
    }
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

/// Reads and decodes the tasks one after the other on this thread.
fn run_here(files: &Files, decoder: &Decoder, codec: Codec, tasks: &mut [Task<'_>]) -> Result<()> {
    // Records of a batch are mostly in the same chunk: its handle and its name are looked up once.
    let mut last: Option<(Part, Arc<dyn StoreFile>, PathBuf)> = None;
    for task in tasks {
        let part = Part::Chunk(task.entry.chunk_id);
        let (_, file, path) = match &mut last {
            Some(same) if same.0 == part => &*same,
            other => other.insert((part, files.get(part)?, files.path(part))),
        };
        let at = u64::from(task.entry.offset);
        let read = |buf: &mut [u8]| read_exact_at(&**file, path, buf, at, "the record");
        let done = match codec {
            Codec::Raw => read(task.dst).and_then(|()| match task.sum {
                NO_SUM => Ok(()),
                stored => match sums::compare(stored, sums::sum(task.dst)) {
                    Match::No => Err(sums::mismatch(path, at)),
                    Match::Yes | Match::Unknown => Ok(()),
                },
            }),
            Codec::Zstd | Codec::ZstdDict => STORED.with_borrow_mut(|stored| {
                let n = task.entry.phys_length as usize;
                if stored.len() < n {
                    // Reserved in step with what the file really holds, not with what the entry claims.
                    grow(stored, n, &**file, path, at)?;
                }
                read(&mut stored[..n])?;
                let decoded = decoder.decode(&stored[..n], task.dst);
                if stored.len() > KEEP {
                    *stored = Vec::new();
                }
                decoded.map_err(|reason| Error::corrupt(path, at, reason))
            }),
        };
        done.map_err(|e| e.at_record(task.index))?;
    }
    Ok(())
}

/// Grows the buffer for stored bytes to `n`, after checking that the chunk file holds so many from `at`.
fn grow(stored: &mut Vec<u8>, n: usize, file: &dyn StoreFile, path: &Path, at: u64) -> Result<()> {
    let end = at.saturating_add(n as u64);
    let have = file.size().map_err(Error::io("stat", path))?;
    if have < end {
        return Err(Error::corrupt(path, have, format!("the file ends here, but the record reaches to byte {end}")));
    }
    stored.resize(n, 0);
    Ok(())
}
