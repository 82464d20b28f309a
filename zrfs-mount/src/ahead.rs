//! Ahead of readers: files are decoded and stored in the kernel's page cache before they are asked for.
//!
//! A round trip to this process costs more than most files do, so what a reader will ask for next is pushed. [`order`]
//! finds the orders in which files are read; threads of ours take the next files of an order, decode them, and store
//! them in the kernel's page cache ([`device`]). That works for files that the kernel knows, after a listing say; others
//! wait decoded in the cache of records. How far it goes ahead is bounded in files and bytes, and starts small: when a
//! reader stops, so does what is done for it.
//!
//! Of a batch that is read as a file, the one of the next step is gathered likewise.
//!
//! Readers within large files are seen by `within`: there the kernel reads ahead itself, and what is done beforehand is
//! the decoding of the next records, on all threads.
//!
//! A damaged file is left out, for its reader to get the error.

pub mod announced;
pub mod device;
pub mod order;
#[cfg(test)]
mod tests;
mod within;

use crate::fs::Fs;
use crate::namespace::Node;
use announced::Line;
use device::PageCache;
use order::{Claim, Item, Orders, Place, Space};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use within::Within;

/// Larger files are not pushed: the kernel reads ahead in them, and their records are decoded ahead.
pub const MAX_FILE: u64 = 4 << 20;
/// Files that a worker takes at a time.
const BATCH: usize = 8;
/// Bytes after which a worker takes no further file.
const BATCH_BYTES: u64 = 256 << 10;

/// Records that wait to be decoded, at most; a reader whose record finds no place gets it a little later.
const MAX_RECORDS: usize = 64;
/// Batches that wait to be gathered, at most; of more the oldest are left to their readers.
const MAX_BATCHES: usize = 16;

/// What is known of readers of many files, and the records that readers of large files come to next.
#[derive(Debug, Default)]
struct State {
    orders: Orders,
    within: Within,
    records: VecDeque<Record>,
    batches: VecDeque<Node>,
}

/// A record of a large file, to be decoded into the cache.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    /// Its stream.
    pub stream: u16,
    /// Its index there.
    pub index: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// What a worker does next.
#[derive(Debug)]
enum Work {
    Push(Claim),
    Decode(Record),
    Gather(Node),
}

/// What is known of readers, and the work to do for them.
#[derive(Debug)]
pub struct Ahead {
    /// Bytes that may be ahead of all readers together; with 0 nothing is pushed.
    budget: u64,
    state: Mutex<State>,
    /// Records of large files to have decoded ahead of a reader.
    depth: AtomicUsize,
    work: Condvar,
    waiting: AtomicUsize,
    ended: AtomicBool,
}

impl Ahead {
    /// Goes at most `budget` bytes ahead.
    pub fn new(budget: u64) -> Ahead {
        Ahead {
            budget,
            state: Mutex::default(),
            depth: AtomicUsize::new(0),
            work: Condvar::new(),
            waiting: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything is pushed at all.
    pub fn is_on(&self) -> bool {
        self.budget > 0
    }

    /// Takes note of the first read of a file.
    pub fn note(&self, place: Place) {
        if self.lock().orders.note(place, self.budget) && self.waiting.load(Ordering::Relaxed) > 0 {
            self.work.notify_one();
        }
    }

    /// Follows an announced order, as soon as somebody reads in it.
    pub fn announce(&self, line: Line) {
        self.lock().orders.announce(line);
    }

    /// Whether an order in this space was announced.
    pub fn has_announced(&self, space: Space) -> bool {
        self.lock().orders.has_announced(space)
    }

    /// Takes note of a read in a large file of pieces of `piece` bytes; `find` tells the records of those pieces of it
    /// that a reader from front to back comes to next, as far as the file has them.
    pub fn note_within(
        &self,
        file: u64,
        offset: u64,
        length: u64,
        piece: u64,
        find: impl Fn(Range<u64>) -> Vec<Record>,
    ) {
        let depth = self.depth.load(Ordering::Relaxed);
        if depth == 0 {
            return;
        }
        let mut state = self.lock();
        let wanted = state.within.note(file, offset, length, piece, depth as u64);
        if wanted.is_empty() {
            return;
        }
        let room = MAX_RECORDS.saturating_sub(state.records.len());
        state.records.extend(find(wanted).into_iter().take(room));
        drop(state);
        self.work.notify_all();
    }

    /// Has the file of a batch gathered.
    pub fn gather(&self, node: Node) {
        let mut state = self.lock();
        if state.batches.contains(&node) {
            return;
        }
        if state.batches.len() == MAX_BATCHES {
            state.batches.pop_front();
        }
        state.batches.push_back(node);
        drop(state);
        self.work.notify_one();
    }

    /// Waits for work; `None` when there will be none any more.
    fn claim(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if self.ended.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(record) = state.records.pop_front() {
                return Some(Work::Decode(record));
            }
            if let Some(node) = state.batches.pop_front() {
                return Some(Work::Gather(node));
            }
            if let Some(claim) = state.orders.claim(self.budget, BATCH) {
                return Some(Work::Push(claim));
            }
            self.waiting.fetch_add(1, Ordering::Relaxed);
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Ends the workers, each after the file it is at.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        drop(self.lock());
        self.work.notify_all();
    }
}

/// Starts `threads` workers that push files of `fs`; they end with [`Ahead::end`] or with the mount.
///
/// # Errors
/// If a thread can't be started.
pub fn start(fs: &Arc<Fs>, to: &Arc<dyn PageCache>, threads: usize) -> io::Result<()> {
    fs.ahead().depth.store(threads + 1, Ordering::Relaxed);
    for k in 0..threads {
        let (fs, to) = (fs.clone(), to.clone());
        std::thread::Builder::new().name(format!("ahead-{k}")).spawn(move || {
            let mut worker = Worker { to: &*to, fs: &fs, buffer: Vec::new() };
            while let Some(work) = fs.ahead().claim() {
                let run = || match work {
                    Work::Push(claim) => worker.serve(claim),
                    Work::Decode(record) => fs.decode_record(record),
                    Work::Gather(node) => worker.gather(node),
                };
                // A bug in here must not end the mount, and costs no more than speed.
                if catch_unwind(AssertUnwindSafe(run)).is_err() {
                    log::error!("pushing files ahead panicked: this is a bug of zrfs-mount, please report it");
                    worker.buffer = Vec::new();
                }
            }
        })?;
    }
    Ok(())
}

/// Whether the kernel knows a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Yes,
    No,
    /// It should be asked before the file is decoded.
    Ask,
}

struct Worker<'a> {
    fs: &'a Fs,
    to: &'a dyn PageCache,
    buffer: Vec<u8>,
}

impl Worker<'_> {
    /// Gathers a batch into the cache, and stores it in the kernel's page cache if the kernel knows its file.
    fn gather(&mut self, node: Node) {
        let Some(loaded) = self.fs.gather_ahead(node) else { return };
        let bytes = loaded.bytes(&[]);
        let Some(ino) = node.ino().filter(|_| bytes.len() as u64 <= MAX_FILE) else { return };
        if self.to.store(ino, &[]).is_ok() && self.to.store(ino, bytes).is_ok() {
            let counters = self.fs.counters();
            counters.pushed.add(1);
            counters.pushed_bytes.add(bytes.len() as u64);
            self.fs.release(loaded);
        }
    }

    /// Finds the next files of an order and pushes them.
    fn serve(&mut self, claim: Claim) {
        let ahead = self.fs.ahead();
        let mut items = Vec::with_capacity(claim.files);
        let cursor = self.fs.next_files(&claim, BATCH_BYTES, &mut items);
        ahead.lock().orders.give_back(claim.id, cursor, &items, ahead.budget);
        if ahead.waiting.load(Ordering::Relaxed) > 0 {
            // Another worker goes on where this one stopped.
            ahead.work.notify_one();
        }
        let mut known = if claim.unlisted { Known::Ask } else { Known::Yes };
        let mut stored = Vec::with_capacity(items.len());
        for item in &items {
            if ahead.ended.load(Ordering::Relaxed) {
                return;
            }
            if item.bytes == 0 || item.bytes > MAX_FILE {
                continue;
            }
            if claim.reader.has_passed(item.at) {
                self.fs.counters().passed.add(1);
                continue;
            }
            match self.push(item, known, &claim) {
                Ok(Some(true)) => {
                    known = Known::Yes;
                    stored.push(item.at);
                }
                // What comes right after is not known either; the next claim asks again.
                Ok(Some(false)) => known = Known::No,
                Ok(None) => {}
                Err(Errno::NOTCONN | Errno::NODEV | Errno::CONNABORTED) => return ahead.end(),
                // Out of memory, say: the reader asks for it.
                Err(e) => log::debug!("a file was not pushed: {e}"),
            }
        }
        ahead.lock().orders.settle(claim.id, &stored, known != Known::Yes);
    }

    /// Pushes a file; whether the kernel knows it, if that was asked.
    fn push(&mut self, item: &Item, known: Known, claim: &Claim) -> Result<Option<bool>, Errno> {
        let (fs, counters) = (self.fs, self.fs.counters());
        let Some(ino) = item.node.ino() else { return Ok(None) };
        if known == Known::No || (known == Known::Ask && self.to.store(ino, &[]) == Err(Errno::NOENT)) {
            counters.unlisted.add(1);
            fs.decode_ahead(item.node, item.bytes);
            return Ok(Some(false));
        }
        let Some(loaded) = fs.load(item.node, item.bytes, &mut self.buffer) else {
            counters.left_out.add(1);
            return Ok(None);
        };
        // A read of it that came meanwhile waited for these bytes, and brings them to the kernel itself.
        if claim.reader.has_passed(item.at) {
            counters.passed.add(1);
            fs.release(loaded);
            return Ok(None);
        }
        let bytes = loaded.bytes(&self.buffer);
        match self.to.store(ino, bytes) {
            Ok(()) => {
                counters.pushed.add(1);
                counters.pushed_bytes.add(bytes.len() as u64);
                fs.release(loaded);
                Ok(Some(true))
            }
            Err(Errno::NOENT) => {
                counters.unlisted.add(1);
                Ok(Some(false))
            }
            Err(e) => Err(e),
        }
    }
}
