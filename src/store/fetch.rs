//! Fetch: how the records of a batch get from the chunks to their places.
//!
//! What is in the page cache is copied from memory: a system call for each record costs more than copying a small one. What
//! is not there is asked for all at once, so that the disk has it all to choose from, and then read by system calls: a page
//! fault would wait for one page at a time. Which of the two holds for a store is seen from its last batch.

use super::files::{FEW, Part};
use super::gather::Task;
use super::sums::{self, Match};
use super::{Files, Store};
use crate::codec::Decoder;
use crate::error::{Error, Result};
use crate::format::sums::NO_SUM;
use crate::format::{Codec, Entry};
use crate::storage::{StoreFile, read_exact_at};
use crate::sys::{Then, View, major_faults};
use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// Stored bytes on their way to the decoder. Kept from record to record, dropped when it grew beyond [`KEEP`].
    static STORED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A thread keeps at most this much room for stored bytes between records.
const KEEP: usize = 8 << 20;
/// So many records before its turn, a record's first bytes are asked for.
const RECORDS_AHEAD: usize = 6;
/// Of a batch that may wait for a disk, at most so many bytes are asked for beforehand.
const ASKED: u64 = 64 << 20;
/// From so many bytes on, few records are worth the memory map, too.
const LONG: u64 = 64 << 10;
/// The processor's caches do not hold a batch of so many bytes until it is used.
const LARGE: u64 = 32 << 20;
/// One record in so many is looked for in the page cache, to see whether the others are there.
const SAMPLE: usize = 8;
/// More page faults that waited for a disk than one for so many records: the store is not in the page cache.
const FAULTS: u64 = 8;
/// From so many chunks on a batch is read chunk by chunk, for only some of them are kept open.
const MANY_CHUNKS: u32 = 8;

/// Where a store's records were found last.
#[derive(Debug)]
pub(super) struct Place {
    /// Not in the page cache, or it is not known.
    cold: AtomicBool,
}

impl Place {
    pub(super) fn is_cold(&self) -> bool {
        self.cold.load(Ordering::Relaxed)
    }
}

impl Default for Place {
    fn default() -> Self {
        Place { cold: AtomicBool::new(true) }
    }
}

impl Store {
    /// Has the system forget what it has of the store's files in the page cache.
    pub(crate) fn forget(&self) -> Result<()> {
        self.place.cold.store(true, Ordering::Relaxed);
        self.files.forget()
    }

    /// Whether the first byte of each of the records `indices` is in memory: in the page cache, or because its file is there.
    pub(crate) fn are_cached(&self, indices: &[u64]) -> Result<bool> {
        let cached = |e: Entry| {
            let file = self.files.get(Part::Chunk(e.chunk_id))?;
            Ok(is_cached(&*file, &e))
        };
        self.entries(indices)?.into_iter().try_fold(true, |all, entry| Ok(all && cached(entry)?))
    }

    /// Decodes the stored bytes of record `index`.
    pub(crate) fn decode(&self, index: u64, stored: &[u8], dst: &mut [u8]) -> Result<()> {
        let done = self.decoder.decode(stored, dst);
        done.map_err(|reason| Error::corrupt(self.path(), 0, reason).at_record(index))
    }
}

/// Whether a record is in the page cache. tmpfs does not say so, but has all that it has there.
fn is_cached(file: &dyn StoreFile, entry: &Entry) -> bool {
    file.read_cached_at(&mut [0], entry.offset.into()).is_ok() || file.is_in_memory()
}

/// Reads records of one store.
pub(super) struct Fetch<'a> {
    files: &'a Files,
    decoder: &'a Decoder,
    codec: Codec,
    chunk_bytes: u64,
    many_chunks: bool,
    cold: &'a AtomicBool,
    /// There is enough to read to go about it by memory.
    maps: bool,
    /// Whether something came from the disk is asked for, and was found.
    asks: bool,
    on_disk: AtomicBool,
    /// What becomes of the records.
    then: Then,
}

impl<'a> Fetch<'a> {
    /// For a batch of so many records and bytes.
    pub(super) fn new(store: &'a Store, codec: Codec, tasks: usize, bytes: u64, asks: bool) -> Self {
        Fetch {
            files: &store.files,
            decoder: &store.decoder,
            codec,
            chunk_bytes: store.layout.chunk_bytes,
            many_chunks: store.header().tail_chunk >= MANY_CHUNKS,
            cold: &store.place.cold,
            maps: Self::maps(tasks, bytes),
            asks,
            on_disk: AtomicBool::new(false),
            then: if bytes < LARGE { Then::Used } else { Then::Left },
        }
    }

    /// Whether so many records and bytes are read through memory, where they are there.
    pub(super) fn maps(tasks: usize, bytes: u64) -> bool {
        tasks >= FEW || bytes >= LONG
    }

    /// Whether something was read from the disk, or may have been.
    pub(super) fn was_on_disk(&self) -> bool {
        self.on_disk.load(Ordering::Relaxed)
    }

    /// Gets ready for a whole batch: puts it in the order of the disk where that matters, and has the disk begin.
    pub(super) fn begin(&self, tasks: &mut [Task<'_>]) {
        let cold = self.cold.load(Ordering::Relaxed);
        if cold || self.many_chunks {
            tasks.sort_unstable_by_key(|task| (task.entry.chunk_id, task.entry.offset));
        }
        if !cold {
            return;
        }
        // What cannot be opened is told when it is read.
        let file = |entry: &Entry| self.files.get(Part::Chunk(entry.chunk_id)).ok();
        let cached = |task: &Task<'_>| file(&task.entry).is_some_and(|file| is_cached(&*file, &task.entry));
        if tasks.iter().step_by(SAMPLE).all(cached) {
            self.cold.store(false, Ordering::Relaxed);
            return;
        }
        let mut asked = 0;
        for entry in tasks.iter().map(|task| task.entry) {
            asked += u64::from(entry.phys_length);
            if asked > ASKED {
                break;
            }
            if let Some(file) = file(&entry) {
                file.will_need(entry.offset.into(), entry.phys_length.into());
            }
        }
    }

    /// Runs `read`, which reads about so many records on this thread, and sees from its page faults whether they had to be
    /// waited for.
    pub(super) fn watch(&self, records: usize, read: impl FnOnce() -> Result<()>) -> Result<()> {
        let before = major_faults();
        let done = read();
        if major_faults().saturating_sub(before) * FAULTS > records as u64 {
            self.cold.store(true, Ordering::Relaxed);
        }
        done
    }

    /// Reads and decodes the tasks one after the other on this thread.
    pub(super) fn here(&self, mut tasks: &mut [Task<'_>]) -> Result<()> {
        while let Some(first) = tasks.first() {
            let chunk = first.entry.chunk_id;
            let same = tasks.iter().take_while(|task| task.entry.chunk_id == chunk).count();
            let (run, others) = tasks.split_at_mut(same);
            self.chunk(Part::Chunk(chunk), run)?;
            tasks = others;
        }
        Ok(())
    }

    /// The tasks whose records are in one chunk.
    fn chunk(&self, part: Part, tasks: &mut [Task<'_>]) -> Result<()> {
        let file = self.files.get(part)?;
        if self.maps
            && !self.cold.load(Ordering::Relaxed)
            && let Some(map) = self.files.mapped(part, self.chunk_bytes)?
        {
            let before = self.asks.then(major_faults);
            let done = map.read(|| file.size(), |view| self.each(part, &*file, tasks, &mut Source::Memory(view)));
            if before.is_some_and(|before| major_faults() != before) {
                self.on_disk.store(true, Ordering::Relaxed);
            }
            // Of a file that was cut short nothing counts that was read, errors included; read again, it gives its reason.
            if let Ok(done) = done {
                return done;
            }
        }
        self.on_disk.store(true, Ordering::Relaxed);
        self.each(part, &*file, tasks, &mut Source::File(&*file, &self.files.path(part)))
    }

    fn each(&self, part: Part, file: &dyn StoreFile, tasks: &mut [Task<'_>], from: &mut Source<'_>) -> Result<()> {
        for k in 0..tasks.len() {
            if let (Source::Memory(view), Some(coming)) = (&*from, tasks.get(k + RECORDS_AHEAD)) {
                view.prefetch(coming.entry.offset.into(), coming.entry.phys_length as usize);
            }
            let task = &mut tasks[k];
            self.record(part, file, task, from).map_err(|e| e.at_record(task.index))?;
        }
        Ok(())
    }

    fn record(&self, part: Part, file: &dyn StoreFile, task: &mut Task<'_>, from: &mut Source<'_>) -> Result<()> {
        let at = u64::from(task.entry.offset);
        match self.codec {
            Codec::Raw => {
                from.read(at, task.dst, self.then)?;
                match task.sum {
                    NO_SUM => Ok(()),
                    stored => match sums::compare(stored, sums::sum(task.dst)) {
                        Match::No => Err(sums::mismatch(&self.files.path(part), at)),
                        Match::Yes | Match::Unknown => Ok(()),
                    },
                }
            }
            Codec::Zstd | Codec::ZstdDict => STORED.with_borrow_mut(|stored| {
                let n = task.entry.phys_length as usize;
                if stored.len() < n {
                    // Reserved in step with what the file really holds, not with what the entry claims.
                    grow(stored, n, file, &self.files.path(part), at)?;
                }
                from.read(at, &mut stored[..n], Then::Used)?;
                // From a copy: the decoder is safe for any bytes, but not for bytes that change while it looks at them.
                let decoded = self.decoder.decode(&stored[..n], task.dst);
                if stored.len() > KEEP {
                    *stored = Vec::new();
                }
                decoded.map_err(|reason| Error::corrupt(self.files.path(part), at, reason))
            }),
        }
    }
}

/// Where a chunk's bytes come from.
enum Source<'a> {
    Memory(View<'a>),
    File(&'a dyn StoreFile, &'a Path),
}

impl Source<'_> {
    fn read(&self, at: u64, buf: &mut [u8], then: Then) -> Result<()> {
        match self {
            Source::Memory(view) if view.copy(at, buf, then) => Ok(()),
            // The map is as long as a chunk can be, and entries are checked against that.
            Source::Memory(_) => Err(Error::invalid(format!("byte {at} is beyond what a chunk can hold"))),
            Source::File(file, path) => read_exact_at(*file, path, buf, at, "the record"),
        }
    }
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
