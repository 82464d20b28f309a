//! Writing a store: create it or open it for appending, append, sync, close.

use super::delete::MAX_MOVES;
use super::encoded::{Encoded, MIN_SHARE, Piece, RAW_ROUND, RAW_SHARE, SMALL, shares};
use super::files::{Files, Part};
use super::locks::{InUse, lock_writer, vouch};
use super::shapes::Typed;
use super::sums::Sums;
use super::{check_files, read_dict, read_header};
use crate::codec::{Decoder, Encoder, check_dict, default_level};
use crate::error::{Error, Result};
use crate::fork::Maker;
use crate::format::header::Note;
use crate::format::{
    Codec, DICT_FILE, Entry, Header, Kind, Layout, MAX_RECORD, META_FILE, SCHEMA_FILE, Schema, table::ENTRY_LEN,
};
use crate::pool::pool;
use crate::storage::{Disk, Storage, StoreFile, write_all_at};
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An append compresses and writes at most about this many bytes of records at a time, so that its memory is bounded
/// whatever it is given (a single larger record excepted).
pub(super) const ROUND: usize = 32 << 20;

/// How a store is created or opened for writing.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    pub(super) storage: Arc<dyn Storage>,
    layout: Layout,
    codec: Codec,
    level: Option<i32>,
    dict: Option<Vec<u8>>,
    schema: Option<Schema>,
    journal_moves: usize,
    /// The schema is the caller's business.
    untyped: bool,
}

impl WriterOptions {
    /// A store of `codec` at the codec's usual level, on the real file system.
    pub fn new(codec: Codec) -> Self {
        let storage = Arc::new(Disk::default());
        let (layout, journal_moves) = (Layout::STANDARD, MAX_MOVES);
        WriterOptions { storage, layout, codec, level: None, dict: None, schema: None, journal_moves, untyped: false }
    }

    /// Compresses at this zstd level instead of 3 (19 for [`Codec::ZstdDict`]).
    #[must_use]
    pub fn level(mut self, level: Option<i32>) -> Self {
        self.level = level;
        self
    }

    /// Installs this dictionary in a new [`Codec::ZstdDict`] store.
    #[must_use]
    pub fn dict(mut self, dict: Vec<u8>) -> Self {
        self.dict = Some(dict);
        self
    }

    /// Gives a new store this schema.
    pub(crate) fn schema(mut self, schema: Schema) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Takes the records for bytes, whatever schema stands beside them: for callers who keep that themselves.
    #[cfg(feature = "capi")]
    pub(crate) fn untyped(mut self) -> Self {
        self.untyped = true;
        self
    }

    /// The storage, pinned to `dir`, and options that take the files from there.
    pub(crate) fn pinned(&self, dir: &Path) -> Result<(Arc<dyn Storage>, Self)> {
        let storage = self.storage.pin(dir).map_err(Error::io("open", dir))?;
        Ok((storage.clone(), self.clone().storage(storage)))
    }

    /// Puts the files into `storage`: the seam for tests.
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

    /// Deletes in journals of so many moves at most: the seam for tests of large deletions.
    #[cfg(test)]
    pub(crate) fn journal_moves(mut self, moves: usize) -> Self {
        self.journal_moves = moves;
        self
    }

    /// Creates an empty store in a new directory `path`.
    ///
    /// # Errors
    /// [`Error::Exists`] if `path` exists; [`Error::Invalid`] for a level that zstd does not have;
    /// [`Error::Dictionary`] if there is no dictionary where the codec needs one; [`Error::Io`].
    pub fn create(self, path: impl AsRef<Path>) -> Result<Writer> {
        let dir = path.as_ref();
        let dict_path = dir.join(DICT_FILE);
        if let Some(dict) = self.dict.as_deref().filter(|_| self.codec == Codec::ZstdDict) {
            check_dict(dict).map_err(|reason| Error::Dictionary { path: dict_path.clone(), reason })?;
        }
        let encoder = self.encoder(&dict_path, self.dict.as_deref())?;
        self.storage.create_dir(dir).map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => Error::Exists { path: dir.to_path_buf() },
            _ => Error::io("create", dir)(e),
        })?;
        // The directory's own name, which no later sync of what is in it makes durable.
        let parent = dir.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.storage.sync_dir(parent).map_err(Error::io("sync", parent))?;
        let storage = self.storage.pin(dir).map_err(Error::io("open", dir))?;
        let create = |path: &Path, bytes: &[u8]| -> Result<Arc<dyn StoreFile>> {
            let file = storage.create_new(path).map_err(Error::io("create", path))?;
            write_all_at(&*file, path, &mut [IoSlice::new(bytes)], 0)?;
            Ok(file)
        };
        if let Some(dict) = self.dict.as_deref().filter(|_| self.codec == Codec::ZstdDict) {
            create(&dict_path, dict)?.sync().map_err(Error::io("sync", &dict_path))?;
        }
        if let Some(schema) = &self.schema {
            let schema = Schema { codec: Some(self.codec), ..schema.clone() };
            let path = dir.join(SCHEMA_FILE);
            create(&path, &schema.encode(0))?.sync().map_err(Error::io("sync", &path))?;
        }
        create(&dir.join("0.chunk"), &[])?;
        let files = Files::new(storage.clone(), dir, true);
        let sums = (self.codec == Codec::Raw).then(|| Sums::create(&files)).transpose()?;
        // The header comes last: a directory with a header is a store.
        let header = Header::new(self.codec);
        let meta = create(&dir.join(META_FILE), &header.encode())?;
        let in_use = InUse::register(&files)?;
        lock_writer(&files, &*meta)?;
        let ragged = self.schema.as_ref().is_some_and(|schema| schema.kind == Kind::Ragged);
        let mut writer = self.writer(files, in_use, meta, header, encoder, sums);
        writer.vouch = Some(vouch(&writer.files)?);
        writer.ragged = ragged;
        Ok(writer)
    }

    /// Opens the existing store at `path` for appending. The store's own codec and dictionary hold; of the options
    /// only the level, the storage and the layout count.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process writes to it; otherwise as [`super::OpenOptions::open`].
    pub fn open(mut self, path: impl AsRef<Path>) -> Result<Writer> {
        let dir = path.as_ref();
        let storage = self.storage.pin(dir).map_err(Error::io("open", dir))?;
        let meta_path = dir.join(META_FILE);
        let meta = storage.open_rw(&meta_path).map_err(Error::io("open", &meta_path))?;
        let files = Files::new(storage, dir, true);
        let in_use = InUse::register(&files)?;
        lock_writer(&files, &*meta)?;
        let header = read_header(&*meta, &meta_path)?;
        let crashed = header.unsynced();
        check_files(&files, &header, self.layout, crashed)?;
        let dict_path = dir.join(DICT_FILE);
        let dict = match header.codec {
            Codec::Raw | Codec::Zstd => None,
            Codec::ZstdDict => read_dict(&**files.storage(), &dict_path, header.length == 0)?,
        };
        self.codec = header.codec;
        let decoder = Decoder::new(header.codec, dict.as_deref())
            .map_err(|reason| Error::Dictionary { path: dict_path.clone(), reason })?;
        let encoder = self.encoder(&dict_path, dict.as_deref())?;
        let raw = header.codec == Codec::Raw;
        let sums = raw.then(|| Sums::open_rw(&files, &*meta, header.length)).transpose()?;
        let untyped = self.untyped;
        let mut writer = self.writer(files, in_use, meta, header, encoder, sums);
        writer.finish_delete()?;
        let typed = if untyped { None } else { Typed::open(&**writer.files.storage(), dir, false)? };
        writer.ragged = typed.is_some_and(|typed| typed.shapes.is_some());
        if crashed {
            writer.recover(&decoder)?;
        }
        writer.guarded(|w| {
            // A header whose sync failed may not be the one on the disk, which counts on more than this one.
            w.commit()?;
            w.meta.sync().map_err(Error::io("sync", &w.meta_path))?;
            w.trim()
        })?;
        writer.vouch = Some(vouch(&writer.files)?);
        Ok(writer)
    }

    fn encoder(&self, dict_path: &Path, dict: Option<&[u8]>) -> Result<Encoder> {
        if self.codec == Codec::ZstdDict && dict.is_none() {
            let store = dict_path.parent().unwrap_or(dict_path).display();
            let reason = format!(
                "there is none, and a zstd_dict store needs one before its first record; train and install it with: \
                 zrfs train-dict SOURCE --install {store}"
            );
            return Err(Error::Dictionary { path: dict_path.to_path_buf(), reason });
        }
        let level = self.level.unwrap_or(default_level(self.codec));
        Encoder::new(self.codec, level, dict).map_err(Error::invalid)
    }

    fn writer(
        self,
        files: Files,
        in_use: InUse,
        meta: Arc<dyn StoreFile>,
        header: Header,
        encoder: Encoder,
        sums: Option<Sums>,
    ) -> Writer {
        Writer {
            meta_path: files.dir().join(META_FILE),
            files,
            in_use,
            meta,
            header,
            encoder: Arc::new(encoder),
            layout: self.layout,
            journal_moves: self.journal_moves,
            maker: Maker::here(),
            sums,
            latched: false,
            dirty: BTreeSet::new(),
            deletions: 0,
            ragged: false,
            staged: Vec::new(),
            vouch: None,
        }
    }
}

/// A store opened for appending: the only writer, by an advisory lock that ends with it or with its process.
///
/// What survives what: when [`append`](Writer::append) returns, its records survive the end of this process, however
/// it comes; when [`sync`](Writer::sync) returns, everything appended before survives a power cut.
///
/// It belongs to the process that opened it. In a forked child every call that writes gives [`Error::Invalid`]; the lock
/// stays until both have dropped it.
#[derive(Debug)]
pub struct Writer {
    pub(super) files: Files,
    pub(super) in_use: InUse,
    pub(super) meta: Arc<dyn StoreFile>,
    pub(super) meta_path: PathBuf,
    pub(super) header: Header,
    encoder: Arc<Encoder>,
    pub(super) layout: Layout,
    /// A deletion of more records takes several journals.
    pub(super) journal_moves: usize,
    maker: Maker,
    /// The checksums of a raw store.
    pub(super) sums: Option<Sums>,
    /// Set when a write or sync failed: what the files hold is not known any more, so nothing more is written.
    latched: bool,
    /// Parts written to since they were last synced.
    pub(super) dirty: BTreeSet<Part>,
    /// Deletions by this writer, which no rollback goes past.
    pub(super) deletions: u64,
    /// Tells readers, for as long as it is held, that the store is whole up to its header.
    vouch: Option<Arc<dyn StoreFile>>,
    /// Whether the records have shapes of their own, which have to be written and moved with them.
    ragged: bool,
    /// Room for small frames on their way to a chunk.
    staged: Vec<u8>,
}

/// From here on, a change of `meta.zr` is another program's.
impl Drop for Writer {
    fn drop(&mut self) {
        // A forked child's copy says nothing of what its parent goes on to write.
        let speaks = !self.latched && self.maker.is_here();
        if let Some(sums) = self.sums.as_mut().filter(|_| speaks)
            && let Err(e) = sums.end_lease(&*self.meta)
        {
            // What was said before holds; changes of the next minute are taken for ours.
            log::warn!("{e}");
        }
    }
}

/// Records whose frames are written, but which no header counts yet.
struct Placed {
    /// The header that will count them.
    header: Header,
    /// Their entries.
    table: Vec<u8>,
    /// Their checksums, where the store has some.
    sums: Vec<u32>,
}

/// A length of a store to go back to; see [`Writer::rollback`].
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    header: Header,
    deletions: u64,
}

impl Writer {
    /// The number of records.
    pub fn len(&self) -> u64 {
        self.header.length
    }

    /// Whether the store has no record.
    pub fn is_empty(&self) -> bool {
        self.header.length == 0
    }

    /// Where the next record goes: the header's `tail_chunk` and `tail_offset`.
    pub fn end(&self) -> (u32, u32) {
        (self.header.tail_chunk, self.header.tail_offset)
    }

    /// The directory of the store.
    pub fn path(&self) -> &Path {
        self.files.dir()
    }

    /// How records are compressed.
    pub fn codec(&self) -> Codec {
        self.header.codec
    }

    /// Appends `records` in order and returns their indices. They are compressed on all cores.
    ///
    /// Readers see the records when this returns, never a part of one; of a batch of more than 32 MiB they may see
    /// the first records before the last.
    ///
    /// # Errors
    /// [`Error::RecordLength`] for a record of 0 or more than 2^31 bytes, and [`Error::Invalid`] if the store is ragged
    /// ([`RaggedWriter`](crate::dataset::RaggedWriter) writes those), before anything is written; [`Error::Io`] or [`Error::Full`], after which the store holds what it held before (or the first rounds of this
    /// batch too), and every further call gives [`Error::Latched`].
    pub fn append(&mut self, records: &[&[u8]]) -> Result<Range<u64>> {
        self.refuse_ragged()?;
        self.append_shaped(records)
    }

    /// The same, where the records' shapes were written before.
    pub(crate) fn append_shaped(&mut self, records: &[&[u8]]) -> Result<Range<u64>> {
        let first = self.len();
        check_lengths(records)?;
        self.guarded(|w| {
            for round in shares(records, ROUND) {
                w.append_round(round)?;
            }
            Ok(())
        })?;
        Ok(first..self.len())
    }

    /// # Errors
    /// [`Error::Invalid`] if the records have shapes, which a change of the records alone would tear from them.
    pub(super) fn refuse_ragged(&self) -> Result<()> {
        if self.ragged {
            let reason = "is a ragged store, whose records have a shape each: RaggedWriter changes both";
            return Err(Error::invalid(format!("{} {reason}", self.path().display())));
        }
        Ok(())
    }

    /// The storage that the store's files are in, pinned to its directory.
    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        self.files.storage()
    }

    /// Makes everything appended so far survive a power cut: data first, then the table, then the header.
    ///
    /// # Errors
    /// [`Error::Io`], after which every further call gives [`Error::Latched`].
    pub fn sync(&mut self) -> Result<()> {
        self.guarded(Writer::sync_all)
    }

    /// Makes the bytes of all parts that were written to durable.
    pub(super) fn sync_parts(&mut self) -> Result<()> {
        // `Part` orders chunks before segments.
        for &part in &self.dirty {
            self.files.get(part)?.sync().map_err(Error::io("sync", self.files.path(part)))?;
        }
        if let Some(sums) = &mut self.sums {
            sums.sync()?;
        }
        self.dirty.clear();
        Ok(())
    }

    pub(super) fn sync_all(&mut self) -> Result<()> {
        self.sync_parts()?;
        // The names of new files, before the header that counts on them.
        self.files.storage().sync_dir(self.files.dir()).map_err(Error::io("sync", self.files.dir()))?;
        self.header.note = Note::Synced(self.header.length);
        self.commit()?;
        self.meta.sync().map_err(Error::io("sync", &self.meta_path))
    }

    /// Syncs and closes the store.
    ///
    /// # Errors
    /// As [`sync`](Writer::sync).
    pub fn close(mut self) -> Result<()> {
        self.sync()
    }

    /// The present length, to go back to.
    pub fn mark(&self) -> Mark {
        Mark { header: self.header, deletions: self.deletions }
    }

    /// Takes back everything appended since `mark`. For stores that nobody reads yet: a reader of the records that
    /// are taken back could read what comes in their place.
    ///
    /// When this returns, what is left survives a power cut.
    ///
    /// # Errors
    /// [`Error::Invalid`] if records were deleted since the mark, or the store was rolled back to before it; otherwise
    /// as [`append`](Writer::append).
    pub fn rollback(&mut self, mark: Mark) -> Result<()> {
        if mark.deletions != self.deletions || mark.header.length > self.header.length {
            return Err(Error::invalid("a store cannot be rolled back past a deletion or another rollback"));
        }
        self.guarded(|w| {
            // What is taken back is there until no header counts on it, whatever was synced since the mark.
            w.header = mark.header;
            w.commit()?;
            w.meta.sync().map_err(Error::io("sync", &w.meta_path))?;
            w.trim()?;
            w.sync_all()
        })
    }

    /// Runs a step that moves records, while nobody else has the store open.
    pub(super) fn alone(&mut self, step: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.check_process()?;
        // Refused for somebody's sake, it has changed nothing, so it does not latch.
        self.in_use.exchange(&self.files, true)?;
        let done = self.guarded(step);
        let back = self.in_use.exchange(&self.files, false);
        // Others stay locked out until this writer ends.
        self.latched |= back.is_err();
        done.and(back)
    }

    /// Keeps all others out of the store (`true`), or lets them in again.
    ///
    /// # Errors
    /// [`Error::Locked`] if anybody else has the store open.
    pub(crate) fn exclude(&self, others: bool) -> Result<()> {
        self.in_use.exchange(&self.files, others)
    }

    /// Runs a step that writes; if it fails, the writer latches.
    pub(crate) fn guarded(&mut self, step: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.check_process()?;
        if self.latched {
            return Err(Error::Latched { path: self.files.dir().to_path_buf() });
        }
        let done = step(self);
        self.latched = done.is_err();
        done
    }

    /// Two processes with one writer would write over each other.
    fn check_process(&self) -> Result<()> {
        if self.maker.is_here() { Ok(()) } else { Err(self.maker.refusal(self.path())) }
    }

    /// The process that may write.
    pub(super) fn maker(&self) -> Maker {
        self.maker
    }

    /// What compresses this store's records.
    pub(super) fn encoder(&self) -> Arc<Encoder> {
        self.encoder.clone()
    }

    pub(super) fn append_round(&mut self, records: &[&[u8]]) -> Result<()> {
        let (pool, encoder) = (pool(), self.encoder());
        let bytes: usize = records.iter().map(|r| r.len()).sum();
        let share = match self.codec() {
            // Of small records they are made while the records are copied together, which costs less than waking a thread.
            Codec::Raw if bytes < RAW_ROUND.max(SMALL * records.len()) || self.sums.is_none() => {
                return self.place(&Encoded::Raw(None), records);
            }
            Codec::Raw => RAW_SHARE,
            Codec::Zstd | Codec::ZstdDict => (bytes / (pool.threads() * 8)).max(MIN_SHARE),
        };
        let shares: Vec<&[&[u8]]> = shares(records, share).collect();
        let mut placed = self.placed();
        // One share is written while the next ones are compressed, or summed.
        pool.in_order(
            &shares,
            |records| Encoded::here(&encoder, records),
            |records, encoded| self.put(&mut placed, &encoded?, records),
        )?;
        self.count_in(placed)
    }

    /// Gives each frame of `records` its place, writes the frames behind the last ones, then what belongs to them, and at
    /// last the header that counts them.
    pub(super) fn place(&mut self, encoded: &Encoded, records: &[&[u8]]) -> Result<()> {
        let mut placed = self.placed();
        self.put(&mut placed, encoded, records)?;
        self.count_in(placed)
    }

    fn placed(&self) -> Placed {
        Placed { header: self.header, table: Vec::new(), sums: Vec::new() }
    }

    /// Writes frames behind the last ones that were placed, where no header counts them yet.
    fn put(&mut self, placed: &mut Placed, encoded: &Encoded, records: &[&[u8]]) -> Result<()> {
        let Placed { header, table, sums } = placed;
        table.reserve(records.len() * ENTRY_LEN);
        let make_sums = self.sums.is_some() && encoded.sums().is_none();
        sums.extend(encoded.sums().unwrap_or_default());
        let mut piece = Piece::new(std::mem::take(&mut self.staged), make_sums.then_some(sums));
        let dir = self.files.dir().to_path_buf();
        let full = || Error::Full { path: dir.clone() };
        let mut at = (header.tail_chunk, header.tail_offset);
        for (frame, length) in encoded.frames(records) {
            // A frame can only be longer than 2^32 - 1 if the record was, and those are refused.
            let phys = u32::try_from(frame.len()).map_err(|_| full())?;
            let full_chunk = u64::from(header.tail_offset) + u64::from(phys) >= self.layout.chunk_bytes;
            if full_chunk || piece.is_full() {
                self.write_piece(at, &mut piece)?;
            }
            if full_chunk {
                header.tail_chunk = header.tail_chunk.checked_add(1).ok_or_else(full)?;
                header.tail_offset = 0;
                if u64::from(phys) >= self.layout.chunk_bytes {
                    return Err(Error::RecordLength { length: length as u64 });
                }
            }
            if piece.is_empty() {
                at = (header.tail_chunk, header.tail_offset);
            }
            let (offset, chunk_id) = (header.tail_offset, header.tail_chunk);
            table.extend(Entry { offset, phys_length: phys, logic_length: length as u32, chunk_id }.encode());
            piece.push(frame);
            header.tail_offset += phys;
            header.length = header.length.checked_add(1).ok_or_else(full)?;
        }
        self.write_piece(at, &mut piece)?;
        self.staged = piece.into_room();
        Ok(())
    }

    /// Writes what belongs to the records that were written, and at last the header that counts them.
    fn count_in(&mut self, placed: Placed) -> Result<()> {
        let Placed { mut header, table, sums } = placed;
        if let Some(file) = &mut self.sums {
            file.put(self.header.length, &sums)?;
        }
        self.write_table(self.header.length, &table)?;
        if !matches!(header.note, Note::Unsynced(_)) {
            header.note = Note::Unsynced(self.header.length);
        }
        self.header = header;
        self.commit()
    }

    fn write_piece(&mut self, (chunk, offset): (u32, u32), piece: &mut Piece<'_>) -> Result<()> {
        let part = Part::Chunk(chunk);
        let file = self.files.get_or_create(part)?;
        self.dirty.insert(part);
        write_all_at(&*file, &self.files.path(part), &mut piece.take(), u64::from(offset))
    }

    /// Writes the entries of the records from `index` on, over as many segments as they reach.
    pub(super) fn write_table(&mut self, mut index: u64, mut entries: &[u8]) -> Result<()> {
        while !entries.is_empty() {
            let (segment, at) = (index / self.layout.segment_entries, index % self.layout.segment_entries);
            let full = |_| Error::Full { path: self.files.dir().to_path_buf() };
            let part = Part::Segment(u32::try_from(segment).map_err(full)?);
            let room = (self.layout.segment_entries - at).saturating_mul(ENTRY_LEN as u64);
            let (now, later) = entries.split_at(entries.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            let file = self.files.get_or_create(part)?;
            self.dirty.insert(part);
            write_all_at(&*file, &self.files.path(part), &mut [IoSlice::new(now)], at * ENTRY_LEN as u64)?;
            index += (now.len() / ENTRY_LEN) as u64;
            entries = later;
        }
        Ok(())
    }

    /// Makes the header true: from here on, readers see the new length.
    pub(super) fn commit(&mut self) -> Result<()> {
        if let Some(sums) = &mut self.sums {
            sums.lease(&self.files)?;
        }
        write_all_at(&*self.meta, &self.meta_path, &mut [IoSlice::new(&self.header.encode())], 0)
    }
}

/// # Errors
/// [`Error::RecordLength`] for the first record that is too short or too long to be stored.
pub(crate) fn check_lengths(records: &[&[u8]]) -> Result<()> {
    match records.iter().find(|r| r.is_empty() || r.len() as u64 > MAX_RECORD) {
        Some(bad) => Err(Error::RecordLength { length: bad.len() as u64 }),
        None => Ok(()),
    }
}
