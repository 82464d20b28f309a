//! The numbered files of a store (`N.chunk`, `N.loc`), opened when they are needed and few at a time.

use crate::error::{Error, Result};
use crate::fork::Maker;
use crate::format::Entry;
use crate::format::table::ENTRY_LEN;
use crate::storage::{Storage, StoreFile, read_exact_at};
use crate::sys::{Mapped, Then};
use lru::LruCache;
use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// So many numbered files of one store are open at most, however many it has.
const MAX_OPEN: NonZeroUsize = NonZeroUsize::new(16).unwrap();

/// So many are mapped at most: each takes 4 GiB of the address space, and of memory what the kernel needs to find the pages
/// that were read.
const MAX_MAPPED: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Fewer items than this are read by system calls, which costs no more than getting ready to read a map.
pub(super) const FEW: usize = 4;

/// So many entries before its turn, an entry is asked for.
const ENTRIES_AHEAD: usize = 16;

/// A table read fetches the entries between two wanted ones along with them when they span at most this many bytes.
const NEAR: u64 = 4096;

/// Which numbered file.
/// The order is the order in which parts are made durable: data before the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Part {
    /// `N.chunk`: record bytes.
    Chunk(u32),
    /// `N.loc`: a segment of the record table.
    Segment(u32),
}

impl Part {
    fn kind(self) -> &'static str {
        match self {
            Part::Chunk(_) => "chunk",
            Part::Segment(_) => "loc",
        }
    }

    fn name(self) -> String {
        let (Part::Chunk(number) | Part::Segment(number)) = self;
        format!("{number}.{}", self.kind())
    }

    /// The part of that name, if it is one's.
    fn of(name: &OsStr) -> Option<Part> {
        let (number, kind) = name.to_str()?.split_once('.')?;
        let number = number.parse().ok()?;
        let part = [Part::Chunk(number), Part::Segment(number)].into_iter().find(|part| part.kind() == kind)?;
        (part.name() == name.to_str()?).then_some(part)
    }
}

/// The files of one store's directory.
#[derive(Debug)]
pub(crate) struct Files {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    writable: bool,
    maker: Maker,
    open: Mutex<LruCache<Part, Arc<dyn StoreFile>>>,
    /// `None` for a file that cannot be mapped.
    mapped: Mutex<LruCache<Part, Option<Arc<Mapped>>>>,
}

impl Files {
    /// `storage` must be pinned to `dir`, so that all files come from the same directory.
    pub(crate) fn new(storage: Arc<dyn Storage>, dir: &Path, writable: bool) -> Self {
        Files {
            storage,
            dir: dir.to_path_buf(),
            writable,
            maker: Maker::here(),
            open: Mutex::new(LruCache::new(MAX_OPEN)),
            mapped: Mutex::new(LruCache::new(MAX_MAPPED)),
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    pub(crate) fn path(&self, part: Part) -> PathBuf {
        self.dir.join(part.name())
    }

    /// The file of an existing part.
    pub(crate) fn get(&self, part: Part) -> Result<Arc<dyn StoreFile>> {
        // The lock is held while the file is opened, so that no two threads open the same one.
        let Some(mut open) = self.maker.lock(&self.open) else { return self.open(part) };
        if let Some(file) = open.get(&part).filter(|file| file.is_here()) {
            return Ok(file.clone());
        }
        let file = self.open(part)?;
        open.put(part, file.clone());
        Ok(file)
    }

    /// The first `len` bytes of an existing part as memory, which has to be the same length each time. `None` where they
    /// can only be read by system calls.
    pub(crate) fn mapped(&self, part: Part, len: u64) -> Result<Option<Arc<Mapped>>> {
        // A forked child finds the lock taken, perhaps for good, and does without.
        let Some(mut mapped) = self.maker.lock(&self.mapped) else { return Ok(None) };
        if let Some(map) = mapped.get(&part) {
            return Ok(map.clone());
        }
        let map = self.get(part)?.map(len).map(Arc::new);
        mapped.put(part, map.clone());
        Ok(map)
    }

    /// Has the system forget what it has of all parts in the page cache.
    pub(crate) fn forget(&self) -> Result<()> {
        // What is mapped stays.
        if let Some(mut mapped) = self.maker.lock(&self.mapped) {
            mapped.clear();
        }
        for part in self.parts()? {
            self.open(part)?.forget();
        }
        Ok(())
    }

    fn open(&self, part: Part) -> Result<Arc<dyn StoreFile>> {
        let path = self.path(part);
        let file = if self.writable { self.storage.open_rw(&path) } else { self.storage.open(&path) };
        file.map_err(Error::io("open", &path))
    }

    /// Opens the first files already now, as many as stay open anyway: whoever has them reads on when the store is
    /// replaced and the old one removed. What is missing is told when it is read.
    pub(crate) fn open_first(&self, chunks: u64, segments: u64) {
        let few = |n: u64| 0..n.min(MAX_OPEN.get() as u64 / 2) as u32;
        for part in few(chunks).map(Part::Chunk).chain(few(segments).map(Part::Segment)) {
            let _ = self.get(part);
        }
    }

    /// The file of a part that a writer comes to; it is made if it is not there.
    pub(crate) fn get_or_create(&self, part: Part) -> Result<Arc<dyn StoreFile>> {
        match self.get(part) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            other => return other,
        }
        let path = self.path(part);
        let file = self.storage.create_new(&path).map_err(Error::io("create", &path))?;
        if let Some(mut open) = self.maker.lock(&self.open) {
            open.put(part, file.clone());
        }
        Ok(file)
    }

    /// All parts that there are, in no particular order.
    pub(crate) fn parts(&self) -> Result<Vec<Part>> {
        let names = self.storage.list(&self.dir).map_err(Error::io("list", &self.dir))?;
        Ok(names.iter().filter_map(|name| Part::of(name)).collect())
    }

    /// Removes a part's file.
    pub(crate) fn remove(&self, part: Part) -> Result<()> {
        if let Some(mut open) = self.maker.lock(&self.open) {
            open.pop(&part);
        }
        let path = self.path(part);
        self.storage.remove(&path).map_err(Error::io("remove", &path))
    }

    /// The error that the table's entry of record `index` cannot be true.
    pub(crate) fn entry_error(&self, index: u64, segment_entries: u64, reason: String) -> Error {
        let segment = u32::try_from(index / segment_entries).unwrap_or(u32::MAX);
        let offset = index % segment_entries * ENTRY_LEN as u64;
        Error::corrupt(self.path(Part::Segment(segment)), offset, reason).at_record(index)
    }

    /// Has the disk read what `entries` will want, all at once.
    pub(crate) fn will_need_entries(&self, indices: &[u64], segment_entries: u64) {
        let mut pages: Vec<(u64, u64)> = indices
            .iter()
            .map(|&index| (index / segment_entries, (index % segment_entries) * ENTRY_LEN as u64 / NEAR))
            .collect();
        pages.sort_unstable();
        pages.dedup();
        for (segment, page) in pages {
            // What cannot be opened is told when it is read.
            if let Some(file) = u32::try_from(segment).ok().and_then(|n| self.get(Part::Segment(n)).ok()) {
                file.will_need(page * NEAR, NEAR);
            }
        }
    }

    /// Reads the table entries `indices`, in any order. They are decoded, not validated.
    pub(crate) fn entries(&self, indices: &[u64], segment_entries: u64) -> Result<Vec<Entry>> {
        let mut entries = Vec::with_capacity(indices.len());
        let segment = |index: u64| Ok(Part::Segment(u32::try_from(index / segment_entries).map_err(|_| self.full())?));
        let mut rest = indices;
        while let Some(&first) = rest.first() {
            let file = first / segment_entries;
            let same = rest.iter().take_while(|&&i| i / segment_entries == file).count();
            let (run, others) = rest.split_at(same);
            let before = entries.len();
            if !self.mapped_entries(segment(first)?, run, segment_entries, &mut entries)? {
                entries.truncate(before);
                read_near::<ENTRY_LEN>(
                    run,
                    segment_entries,
                    |first, bytes| {
                        let (part, at) = (segment(first)?, (first % segment_entries) * ENTRY_LEN as u64);
                        read_exact_at(&*self.get(part)?, &self.path(part), bytes, at, "the record table")
                    },
                    |bytes| entries.push(Entry::decode(bytes)),
                )?;
            }
            rest = others;
        }
        Ok(entries)
    }

    /// Reads entries of one segment as memory; `false` where that is not possible, with some of them read.
    fn mapped_entries(
        &self,
        part: Part,
        indices: &[u64],
        segment_entries: u64,
        entries: &mut Vec<Entry>,
    ) -> Result<bool> {
        if indices.len() < FEW {
            return Ok(false);
        }
        let Some(map) = self.mapped(part, segment_entries * ENTRY_LEN as u64)? else { return Ok(false) };
        let file = self.get(part)?;
        let at = |index: u64| (index % segment_entries) * ENTRY_LEN as u64;
        let read = map.read(
            || file.size(),
            |view| {
                let mut bytes = [0; ENTRY_LEN];
                let coming = indices.iter().skip(ENTRIES_AHEAD).map(Some).chain(std::iter::repeat(None));
                indices.iter().zip(coming).all(|(&index, coming)| {
                    if let Some(&coming) = coming {
                        view.prefetch(at(coming), ENTRY_LEN);
                    }
                    let there = view.copy(at(index), &mut bytes, Then::Used);
                    entries.push(Entry::decode(&bytes));
                    there
                })
            },
        );
        Ok(read == Ok(true))
    }

    fn full(&self) -> Error {
        Error::Full { path: self.dir.clone() }
    }
}

/// Reads items of `N` bytes at `indices`, in any order, and hands each to `item`. Items that are near each other and in
/// one file of `per_file` items are read by one call of `read`, which gets the first one's index and the bytes to fill.
pub(super) fn read_near<const N: usize>(
    indices: &[u64],
    per_file: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<()>,
    mut item: impl FnMut(&[u8; N]),
) -> Result<()> {
    let mut window = [0; NEAR as usize];
    let mut rest = indices;
    while let Some((&first, _)) = rest.split_first() {
        // The longest run of indices from here that stays inside one window of one file.
        let file = first / per_file;
        let (mut low, mut high) = (first, first);
        let fits = |low: u64, high: u64| high - low < NEAR / N as u64;
        let run = rest
            .iter()
            .take_while(|&&i| {
                let (l, h) = (low.min(i), high.max(i));
                let ok = i / per_file == file && fits(l, h);
                if ok {
                    (low, high) = (l, h);
                }
                ok
            })
            .count();
        let bytes = &mut window[..(high - low + 1) as usize * N];
        read(low, bytes)?;
        let (items, _) = bytes.as_chunks::<N>();
        rest[..run].iter().for_each(|i| item(&items[(i - low) as usize]));
        rest = &rest[run..];
    }
    Ok(())
}
