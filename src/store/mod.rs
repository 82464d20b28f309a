//! A store opened for reading: lengths, gathers, and records by index or in pieces.

mod append;
mod compact;
#[cfg(test)]
mod compact_tests;
mod compared;
#[cfg(test)]
mod crash_tests;
mod delete;
#[cfg(feature = "capi")]
mod empty;
mod encoded;
#[cfg(test)]
mod fault_tests;
mod fetch;
#[cfg(test)]
mod fetch_tests;
mod files;
mod gather;
#[cfg(test)]
mod history;
mod install;
mod locks;
mod rebuild;
mod recover;
pub(crate) mod shapes;
mod shared;
#[cfg(test)]
mod sharing_tests;
mod sums;
#[cfg(test)]
mod sums_tests;
#[cfg(test)]
mod tests;
mod verify;

pub(crate) use append::check_lengths;
pub use append::{Mark, Writer, WriterOptions};
pub use compact::Compacted;
pub(crate) use delete::{Others, doomed, moves};
#[cfg(feature = "capi")]
pub(crate) use empty::create_empty;
pub(crate) use gather::{Found, Threads, worth_sharing};
pub use rebuild::Rebuilt;
pub use shared::SharedWriter;
pub use verify::{Bad, Verified};

use crate::codec::{Decoder, MAX_DICT};
use crate::error::{Error, Result};
use crate::fork::Maker;
use crate::format::journal::Moved;
use crate::format::table::ENTRY_LEN;
use crate::format::{Codec, DICT_FILE, Entry, Header, Layout, META_FILE, header::HEADER_LEN};
use crate::storage::{Disk, Storage, StoreFile, read_at_most, read_exact_at};
use compared::Compared;
use fetch::Place;
use files::{FEW, Files, Part};
use locks::{InUse, is_vouched_for};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use sums::Sums;

/// A reader tries so often to open a store that is being changed.
const TRIES: usize = 4;

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    storage: Arc<dyn Storage>,
    layout: Layout,
    salvage: bool,
    verify_on_read: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            storage: Arc::new(Disk::default()),
            layout: Layout::STANDARD,
            salvage: false,
            verify_on_read: false,
        }
    }
}

impl OpenOptions {
    /// The real file system, the standard layout, and no damage tolerated.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the files from `storage`: the seam for tests.
    #[must_use]
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Self {
        self.storage = storage;
        self
    }

    /// Rolls over at other sizes than the format's: the seam for tests of roll-over.
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Opens a store whose chunk files end too early as well: reading the records that are missing gives errors, the
    /// others stay readable.
    #[must_use]
    pub fn salvage(mut self, yes: bool) -> Self {
        self.salvage = yes;
        self
    }

    /// Compares raw records with their checksums when one is first read whole, so that a damaged one is an error instead
    /// of wrong bytes. Later, those that are read alone or by a few are compared each time, and a batch whenever some of it
    /// came from the disk, as its page faults show: what stays in the page cache is trusted, and what another program reads
    /// into it anew. Records without a checksum, and parts of large raw records ([`read_range`](Store::read_range)), are read
    /// as they are. Compressed records are always compared. Costs three small reads a batch and the sum of the bytes, at
    /// several GB/s a core, as long as there is anything to compare; and a bit of memory for each record up to the last one
    /// that was read, in pieces of 1 KiB where any was.
    #[must_use]
    pub fn verify_on_read(mut self, yes: bool) -> Self {
        self.verify_on_read = yes;
        self
    }

    /// Opens the store at `path` for reading. Costs a few file reads, whatever the number of records.
    ///
    /// # Errors
    /// [`Error::NotAStore`] if there is no `meta.zr`; [`Error::Corrupt`] if its files contradict each other;
    /// [`Error::Dictionary`] if the dictionary cannot be used; [`Error::Io`] from the operating system.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store> {
        let dir = path.as_ref();
        let storage = self.pinned(dir)?;
        let meta_path = dir.join(META_FILE);
        let meta = storage.open(&meta_path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Error::NotAStore { path: dir.to_path_buf(), reason: "it has no meta.zr".into() }
            }
            _ => Error::io("open", &meta_path)(e),
        })?;
        // A writer may be finishing a deletion or mending the end of the store meanwhile: then what was read does not go
        // together. Where one is merely appending, the last try is as good as any.
        for _ in 1..TRIES {
            let opened = self.open_once(storage.clone(), dir, meta.clone());
            let settled = match &opened {
                Ok(store) => store.known().written == read_header(&*meta, &meta_path)?,
                Err(_) => false,
            };
            if settled {
                return opened;
            }
        }
        self.open_once(storage, dir, meta)
    }

    fn open_once(&self, storage: Arc<dyn Storage>, dir: &Path, meta: Arc<dyn StoreFile>) -> Result<Store> {
        let meta_path = dir.join(META_FILE);
        let files = Files::new(storage, dir, false);
        let in_use = InUse::register(&files)?;
        let written = read_header(&*meta, &meta_path)?;
        let mut header = written;
        let crashed = header.unsynced() && !is_vouched_for(&files);
        check_files(&files, &header, self.layout, self.salvage || crashed)?;
        let decoder = load_decoder(&files, &header)?;
        let sums = if header.codec == Codec::Raw { Sums::open(&files, &*meta)? } else { None };
        let sums = if self.verify_on_read { sums.map(Sums::map) } else { sums };
        // An interrupted deletion is finished by the next writer; until then a reader reads as if it were.
        let (moved, deleted) = match delete::read_journal(&files)? {
            delete::Found::Journal(journal) if delete::is_pending(&journal, &header) => {
                header = journal.after;
                (journal.moves.into_iter().collect(), Some(header))
            }
            delete::Found::Journal(_) | delete::Found::Broken | delete::Found::Nothing => (HashMap::new(), None),
        };
        if crashed {
            header.length = recover::whole_length(&files, &header, self.layout, &decoder, sums.as_ref())?;
        }
        files.open_first(u64::from(header.tail_chunk) + 1, header.length.div_ceil(self.layout.segment_entries));
        let opened = Known { written, header, limit: u64::MAX };
        let (maker, header, layout, verify_on_read) =
            (Maker::here(), RwLock::new(opened), self.layout, self.verify_on_read);
        Ok(Store {
            files,
            meta,
            maker,
            opened,
            header,
            decoder,
            layout,
            moved,
            deleted,
            sums,
            verify_on_read,
            compared: Mutex::default(),
            place: Place::default(),
            _in_use: in_use,
        })
    }

    /// The storage, pinned to `dir`, which must be a directory.
    pub(crate) fn pinned(&self, dir: &Path) -> Result<Arc<dyn Storage>> {
        let not_a_store = |reason: &str| Error::NotAStore { path: dir.to_path_buf(), reason: reason.into() };
        self.storage.pin(dir).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => not_a_store("there is nothing of that name"),
            std::io::ErrorKind::NotADirectory => not_a_store("it is a file, and a store is a directory; pack it first"),
            _ => Error::io("open", dir)(e),
        })
    }
}

/// A store opened for reading. It needs no write access, and waits for nobody; threads share it freely. While it is
/// open, nobody deletes from the store or compacts it.
///
/// It sees the records that were there when it was opened, and those appended since after a
/// [`refresh`](Store::refresh).
///
/// A child that is forked while the store is open reads on with its copy of it, on threads of its own, whatever the
/// parent's threads were doing. The lock that keeps deletions away belongs to both, and stays until both have closed the
/// store.
#[derive(Debug)]
pub struct Store {
    files: Files,
    meta: Arc<dyn StoreFile>,
    maker: Maker,
    /// What was known when it was opened.
    opened: Known,
    header: RwLock<Known>,
    decoder: Decoder,
    layout: Layout,
    /// Records that an interrupted deletion has yet to move.
    moved: HashMap<u64, Moved>,
    /// The header after such a deletion, where there is one.
    deleted: Option<Header>,
    /// The checksums of a raw store that has some.
    sums: Option<Sums>,
    verify_on_read: bool,
    /// The raw records that were found to match their checksums.
    compared: Mutex<Compared>,
    place: Place,
    _in_use: InUse,
}

/// The header, as it stands in `meta.zr` and as it counts: after a crash, records that are not whole are left out, and
/// an interrupted deletion is taken for done.
#[derive(Debug, Clone, Copy)]
struct Known {
    written: Header,
    header: Header,
    /// Records from here on are not to be seen: the other streams of the dataset do not have them.
    limit: u64,
}

impl Known {
    /// The header with the records that are to be seen.
    fn seen(&self) -> Header {
        Header { length: self.header.length.min(self.limit), ..self.header }
    }

    /// What is known once `new` stands in `meta.zr`.
    fn followed_by(self, new: Header, dir: &Path) -> Result<Known> {
        if new == self.written {
            return Ok(self);
        }
        if new.length < self.seen().length || new.codec != self.header.codec {
            let reason = "the store was deleted from or replaced; open it again";
            return Err(Error::corrupt(dir.join(META_FILE), 0, reason));
        }
        Ok(Known { written: new, header: new, ..self })
    }
}

impl Store {
    /// Opens the store at `path` for reading; see [`OpenOptions::open`].
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Store> {
        OpenOptions::new().open(path)
    }

    /// The directory that the store was opened at.
    pub fn path(&self) -> &Path {
        self.files.dir()
    }

    /// The number of records: every index below it is one.
    pub fn len(&self) -> u64 {
        self.header().length
    }

    /// Whether the store has no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How the records are compressed.
    pub fn codec(&self) -> Codec {
        self.header().codec
    }

    /// Whether a dictionary is loaded. A `zstd_dict` store without records may have none yet.
    pub fn has_dict(&self) -> bool {
        self.decoder.has_dict()
    }

    /// The header as it was last read, without what a crash took.
    pub fn header(&self) -> Header {
        self.known().seen()
    }

    fn known(&self) -> Known {
        match self.maker.read(&self.header) {
            Some(known) => *known,
            // In a child whose parent was refreshing just when it forked.
            None => self.read_header().and_then(|new| self.opened.followed_by(new, self.path())).unwrap_or(self.opened),
        }
    }

    fn read_header(&self) -> Result<Header> {
        read_header(&*self.meta, &self.path().join(META_FILE))
    }

    /// Bytes that the chunks reach to, those of deleted records and of chunk ends included.
    pub fn chunk_bytes(&self) -> u64 {
        let header = self.header();
        u64::from(header.tail_chunk) * self.layout.chunk_bytes + u64::from(header.tail_offset)
    }

    /// What the store takes and what of that its records need.
    ///
    /// Reads the whole table: about 10 ms for a million records.
    ///
    /// # Errors
    /// As [`entry`](Store::entry), for the first record that fails.
    pub fn stats(&self) -> Result<Stats> {
        const BLOCK: u64 = 1 << 16;
        let mut stats = Stats { records: self.len(), chunk_bytes: self.chunk_bytes(), ..Stats::default() };
        for start in (0..stats.records).step_by(BLOCK as usize) {
            let indices: Vec<u64> = (start..stats.records.min(start + BLOCK)).collect();
            for entry in self.entries(&indices)? {
                stats.live_bytes += u64::from(entry.phys_length);
                stats.bytes += u64::from(entry.logic_length);
            }
        }
        Ok(stats)
    }

    /// Reads the header again, so that records appended by another process become visible; returns the new length.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the store became shorter or changed its codec, which appends never do: it was deleted from
    /// or replaced in place, and has to be opened again.
    pub fn refresh(&self) -> Result<u64> {
        // Read under the lock, so that of two threads that refresh the later one has the later header.
        let known = self.maker.write(&self.header);
        let new = self.read_header()?;
        let now = known.as_ref().map_or(&self.opened, |known| &**known).followed_by(new, self.path())?;
        if new.codec == Codec::ZstdDict && new.length > 0 && !self.decoder.has_dict() {
            // It was empty when it was opened, and got its dictionary since.
            let path = self.path().join(DICT_FILE);
            if let Some(dict) = read_dict(&**self.storage(), &path, false)? {
                self.decoder.set_dict(&dict).map_err(|reason| Error::Dictionary { path, reason })?;
            }
        }
        if let Some(mut known) = known {
            *known = now;
        }
        Ok(now.seen().length)
    }

    /// Whether a [`refresh`](Store::refresh) would find something new: records appended by another process, or that the
    /// store was changed otherwise. Changes nothing, and costs one read of 32 bytes.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the header is damaged; [`Error::Io`].
    pub fn has_news(&self) -> Result<bool> {
        Ok(self.read_header()? != self.known().written)
    }

    /// The number of records, those beyond the limit too.
    pub(crate) fn whole_len(&self) -> u64 {
        self.known().header.length
    }

    /// Shows no records from `limit` on, until another limit is set.
    pub(crate) fn limit(&self, limit: u64) {
        if let Some(mut known) = self.maker.write(&self.header) {
            known.limit = limit;
        }
    }

    /// Whether a deletion is pending, which is read as if it were done.
    pub(crate) fn deleted(&self) -> bool {
        self.deleted.is_some()
    }

    /// Whether the deletion that was pending when the store was opened still is. A writer may have finished it since, and
    /// begun the next.
    pub(crate) fn still_deleted(&self) -> Result<bool> {
        Ok(match delete::read_journal(&self.files)? {
            delete::Found::Journal(journal) => self.deleted == Some(journal.after),
            delete::Found::Broken | delete::Found::Nothing => false,
        })
    }

    /// Reads from now on as if `doomed`, sorted from high to low, were deleted.
    ///
    /// # Errors
    /// As [`entries`](Store::entries); [`Error::Locked`] if a writer is just doing it.
    pub(crate) fn delete_in_memory(&mut self, doomed: &[u64]) -> Result<Vec<(u64, u64)>> {
        let moves = moves(doomed, self.len());
        let sources: Vec<u64> = moves.iter().map(|&(_, source)| source).collect();
        let (entries, sums) = (self.entries(&sources)?, self.stored_sums(&sources)?);
        // The last entries are in their old places until the header counts them no more.
        if self.has_news()? {
            let path = self.path().to_path_buf();
            return Err(Error::Locked { path, use_: "being changed in place", holder: self.meta.lock_holder() });
        }
        let moved = entries.into_iter().zip(sums).map(|(entry, sum)| Moved { entry, sum });
        self.moved.extend(moves.iter().map(|&(index, _)| index).zip(moved));
        let known = self.header.get_mut().unwrap_or_else(PoisonError::into_inner);
        known.header.length -= doomed.len() as u64;
        self.opened = *known;
        Ok(moves)
    }

    /// Where record `index` is: its table entry, checked against the header.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Corrupt`], naming the entry, if it cannot be true; [`Error::Io`].
    pub fn entry(&self, index: u64) -> Result<Entry> {
        let entries = self.entries(&[index])?;
        entries.first().copied().ok_or(Error::OutOfRange { index, length: self.len() })
    }

    /// Where the records `indices` are, in the order given.
    ///
    /// # Errors
    /// As [`entry`](Store::entry), for the first that fails.
    pub fn entries(&self, indices: &[u64]) -> Result<Vec<Entry>> {
        let header = self.header();
        if let Some(&index) = indices.iter().find(|&&i| i >= header.length) {
            return Err(Error::OutOfRange { index, length: header.length });
        }
        if indices.len() >= FEW && self.place.is_cold() {
            self.files.will_need_entries(indices, self.layout.segment_entries);
        }
        let mut entries = self.files.entries(indices, self.layout.segment_entries)?;
        if !self.moved.is_empty() {
            for (entry, index) in entries.iter_mut().zip(indices) {
                *entry = self.moved.get(index).map_or(*entry, |moved| moved.entry);
            }
        }
        for (entry, &index) in entries.iter().zip(indices) {
            entry
                .validate(&header, self.layout)
                .map_err(|reason| self.files.entry_error(index, self.layout.segment_entries, reason))?;
        }
        Ok(entries)
    }

    /// The storage that the store's files come from, pinned to its directory.
    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        self.files.storage()
    }
}

/// What a store takes on disk; see [`Store::stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Live records.
    pub records: u64,
    /// Bytes of the live records, before compression.
    pub bytes: u64,
    /// Bytes that the live records occupy in the chunks.
    pub live_bytes: u64,
    /// Bytes that the chunks reach to.
    pub chunk_bytes: u64,
}

impl Stats {
    /// An upper bound of what compacting would free: it includes the unused ends of chunks, which stay.
    pub fn reclaimable(&self) -> u64 {
        self.chunk_bytes.saturating_sub(self.live_bytes)
    }
}

/// Reads and decodes `meta.zr`.
fn read_header(file: &dyn StoreFile, path: &Path) -> Result<Header> {
    let mut bytes = [0; HEADER_LEN + 1];
    let n = read_at_most(file, path, &mut bytes, 0)?;
    Header::decode(&bytes[..n]).map_err(|(offset, reason)| Error::corrupt(path, offset, reason))
}

/// Checks that the files reach as far as the header says: the table's last segment and the last chunk. With `salvage`,
/// files that do not are only warned of.
fn check_files(files: &Files, header: &Header, layout: Layout, salvage: bool) -> Result<()> {
    let reaches = |part: Part, need: u64, what: &str| -> Result<()> {
        if need == 0 {
            return Ok(());
        }
        let path = files.path(part);
        let file = match files.get(part) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::corrupt(path, 0, format!("the file is missing, but {what} reaches to byte {need}")));
            }
            file => file?,
        };
        let have = file.size().map_err(Error::io("stat", &path))?;
        if have < need {
            return Err(Error::corrupt(path, have, format!("the file ends here, but {what} reaches to byte {need}")));
        }
        Ok(())
    };
    let tolerate = |reached: Result<()>| match reached {
        Err(e) if salvage => {
            log::warn!("{e}; the records that are missing give errors");
            Ok(())
        }
        other => other,
    };
    if u64::from(header.tail_offset) >= layout.chunk_bytes {
        let reason = format!("the tail is at {} of a chunk of {} bytes", header.tail_offset, layout.chunk_bytes);
        return Err(Error::corrupt(files.dir().join(META_FILE), 10, reason));
    }
    if header.length > 0 {
        let last = header.length - 1;
        let segment = u32::try_from(last / layout.segment_entries).map_err(|_| {
            let reason = format!("a length of {} needs more segments than there can be", header.length);
            Error::corrupt(files.dir().join(META_FILE), 14, reason)
        })?;
        let need = (last % layout.segment_entries + 1) * ENTRY_LEN as u64;
        let what = format!("the table of {} records", header.length);
        tolerate(reaches(Part::Segment(segment), need, &what))?;
    }
    let tail = Part::Chunk(header.tail_chunk);
    tolerate(reaches(tail, u64::from(header.tail_offset), "the last record"))
}

/// Loads the dictionary of a `zstd_dict` store. An empty store may not have one yet.
fn load_decoder(files: &Files, header: &Header) -> Result<Decoder> {
    let path = files.dir().join(DICT_FILE);
    let dict = match header.codec {
        Codec::Raw | Codec::Zstd => None,
        Codec::ZstdDict => read_dict(&**files.storage(), &path, header.length == 0)?,
    };
    Decoder::new(header.codec, dict.as_deref()).map_err(|reason| Error::Dictionary { path, reason })
}

/// The bytes of `dict.zr`, or `None` where there is none and none is needed.
fn read_dict(storage: &dyn Storage, path: &Path, optional: bool) -> Result<Option<Vec<u8>>> {
    let file = match storage.open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && optional => return Ok(None),
        Err(e) => return Err(Error::io("open", path)(e)),
    };
    let size = file.size().map_err(Error::io("stat", path))?;
    if size == 0 || size > MAX_DICT {
        let reason = format!("it has {size} bytes; a dictionary has 1 to {MAX_DICT}");
        return Err(Error::Dictionary { path: path.to_path_buf(), reason });
    }
    let mut bytes = vec![0; size as usize];
    read_exact_at(&*file, path, &mut bytes, 0, "the dictionary")?;
    Ok(Some(bytes))
}
