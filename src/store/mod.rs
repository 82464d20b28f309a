//! A store opened for reading: lengths, gathers, and records by index or in pieces.

mod append;
#[cfg(test)]
mod crash_tests;
mod delete;
#[cfg(test)]
mod fault_tests;
mod files;
mod gather;
#[cfg(test)]
mod history;
mod install;
mod locks;
mod recover;
#[cfg(test)]
mod tests;
mod verify;

pub use append::{Mark, Writer, WriterOptions};
pub use verify::{Bad, Verified};

use crate::codec::{Decoder, MAX_DICT};
use crate::error::{Error, Result};
use crate::format::table::ENTRY_LEN;
use crate::format::{Codec, DICT_FILE, Entry, Header, Layout, META_FILE, header::HEADER_LEN};
use crate::storage::{Disk, Storage, StoreFile, read_at_most, read_exact_at};
use files::{Files, Part};
use locks::{InUse, has_writer};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

/// A reader tries so often to open a store that is being changed.
const TRIES: usize = 4;

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    storage: Arc<dyn Storage>,
    layout: Layout,
    salvage: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions { storage: Arc::new(Disk::default()), layout: Layout::STANDARD, salvage: false }
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
        let crashed = header.unsynced() && !has_writer(&*meta);
        check_files(&files, &header, self.layout, self.salvage || crashed)?;
        let decoder = load_decoder(&files, &header)?;
        // An interrupted deletion is finished by the next writer; until then a reader reads as if it were.
        let moved = match delete::read_journal(&files)? {
            delete::Found::Journal(journal) if delete::is_pending(&journal, &header) => {
                header = journal.after;
                journal.moves.into_iter().collect()
            }
            delete::Found::Journal(_) | delete::Found::Broken | delete::Found::Nothing => HashMap::new(),
        };
        if crashed {
            header.length = recover::whole_length(&files, &header, self.layout, &decoder)?;
        }
        files.open_first(u64::from(header.tail_chunk) + 1, header.length.div_ceil(self.layout.segment_entries));
        let header = RwLock::new(Known { written, header });
        Ok(Store { files, meta, header, decoder, layout: self.layout, moved, _in_use: in_use })
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
#[derive(Debug)]
pub struct Store {
    files: Files,
    meta: Arc<dyn StoreFile>,
    header: RwLock<Known>,
    decoder: Decoder,
    layout: Layout,
    /// Entries that an interrupted deletion has yet to move.
    moved: HashMap<u64, Entry>,
    _in_use: InUse,
}

/// The header, as it stands in `meta.zr` and as it counts: after a crash, records that are not whole are left out, and
/// an interrupted deletion is taken for done.
#[derive(Debug, Clone, Copy)]
struct Known {
    written: Header,
    header: Header,
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

    /// The header as it was last read, without what a crash took.
    pub fn header(&self) -> Header {
        self.known().header
    }

    fn known(&self) -> Known {
        *self.header.read().unwrap_or_else(PoisonError::into_inner)
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
        let path = self.path().join(META_FILE);
        let new = read_header(&*self.meta, &path)?;
        let mut known = self.header.write().unwrap_or_else(PoisonError::into_inner);
        if new == known.written {
            return Ok(known.header.length);
        }
        if new.codec == Codec::ZstdDict && new.length > 0 && !self.decoder.has_dict() {
            // It was empty when it was opened, and got its dictionary since.
            let path = self.path().join(DICT_FILE);
            if let Some(dict) = read_dict(&**self.storage(), &path, false)? {
                self.decoder.set_dict(&dict).map_err(|reason| Error::Dictionary { path, reason })?;
            }
        }
        if new.length < known.header.length || new.codec != known.header.codec {
            return Err(Error::corrupt(path, 0, "the store was deleted from or replaced; open it again"));
        }
        *known = Known { written: new, header: new };
        Ok(new.length)
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
        let mut entries = self.files.entries(indices, self.layout.segment_entries)?;
        if !self.moved.is_empty() {
            for (entry, index) in entries.iter_mut().zip(indices) {
                *entry = self.moved.get(index).copied().unwrap_or(*entry);
            }
        }
        for (entry, &index) in entries.iter().zip(indices) {
            entry.validate(&header, self.layout).map_err(|reason| self.entry_error(index, reason))?;
        }
        Ok(entries)
    }

    /// The storage that the store's files come from, pinned to its directory.
    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        self.files.storage()
    }

    fn entry_error(&self, index: u64, reason: String) -> Error {
        let segment = u32::try_from(index / self.layout.segment_entries).unwrap_or(u32::MAX);
        let offset = index % self.layout.segment_entries * ENTRY_LEN as u64;
        Error::corrupt(self.files.path(Part::Segment(segment)), offset, reason).at_record(index)
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
