//! The checksums of a raw store's records, in `sums.zr`.
//!
//! A sum that matches is proof enough. One that differs names a damaged record only where it is sure that the record is
//! the one that the sum was made for. loaderx leaves the file alone when it changes the store, which is noticed so: an
//! append or a deletion breaks the seal of the header (see [`Note`](crate::format::header::Note)); a compaction may
//! bring back the very header that was there, but writes `meta.zr` later than zrfs said it would.

use super::files::{FEW, Files, read_near};
use super::read_header;
use crate::error::{Error, Result};
use crate::format::sums::{HEAD_LEN, Head, NO_SUM, SUM_LEN, offset_of, sum_of};
use crate::format::{META_FILE, SUMS_FILE};
use crate::storage::{StoreFile, read_at_most, write_all_at};
use crate::sys::{Mapped, Then};
use std::io::{ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// No index is so high: of no record it is sure that its sum is its own.
pub(super) const NEVER: u64 = u64::MAX;

/// A writer says so long in advance until when it may write `meta.zr`. Shorter, it would sync the side file more often;
/// longer, changes by other programs would go unnoticed for longer after a writer was killed.
const LEASE: Duration = Duration::from_secs(60);
/// It says so again when less than this is left.
const MARGIN: Duration = Duration::from_secs(5);

/// So many sums are kept as memory, where they are; those after them are read.
const MAPPED: u64 = 1 << 30;

/// A record's bytes are read in pieces of this length to be summed.
const PIECE: usize = 1 << 20;

/// `sums.zr`, opened by a reader or a writer.
#[derive(Debug)]
pub(super) struct Sums {
    file: Arc<dyn StoreFile>,
    path: PathBuf,
    head: Head,
    /// The first index whose sum was sure to be its own when the store was opened; see [`Sums::sure_from`].
    sure_from: u64,
    /// A writer has written sums since it last synced them.
    dirty: bool,
    /// The file's name is durable.
    named: bool,
    /// The file as memory, for who asks for many sums again and again.
    map: Option<Mapped>,
}

impl Sums {
    /// Opens the sums for reading. `None` where there are none that count.
    pub(super) fn open(files: &Files, meta: &dyn StoreFile) -> Result<Option<Self>> {
        let path = files.dir().join(SUMS_FILE);
        let file = match files.storage().open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("open", &path)(e)),
        };
        let Some(head) = read_head(&*file, &path)? else {
            log::warn!("{}: the checksums do not count, for their head is damaged", path.display());
            return Ok(None);
        };
        let mut sums = Sums { file, path, head, sure_from: NEVER, dirty: false, named: true, map: None };
        sums.sure_from = sums.sure_from(meta)?;
        Ok(Some(sums))
    }

    /// Keeps the file as memory from now on, where that is possible.
    pub(super) fn map(mut self) -> Self {
        self.map = self.file.map(offset_of(MAPPED));
        self
    }

    /// The sums of a new store.
    pub(super) fn create(files: &Files) -> Result<Self> {
        let path = files.dir().join(SUMS_FILE);
        let file = files.storage().create_new(&path).map_err(Error::io("create", &path))?;
        let head = Head { doubtful: 0, until: UNIX_EPOCH };
        let sums = Sums { file, path, head, sure_from: 0, dirty: false, named: false, map: None };
        sums.write_head()?;
        Ok(sums)
    }

    /// Opens the sums of an existing store of `length` records for writing; they are made where there are none yet.
    /// What another program may have changed is noted as doubtful, durably, before the header is written again.
    pub(super) fn open_rw(files: &Files, meta: &dyn StoreFile, length: u64) -> Result<Self> {
        let path = files.dir().join(SUMS_FILE);
        let mut sums = match files.storage().open_rw(&path) {
            Ok(file) => {
                let (head, dirty) = (Head { doubtful: length, until: UNIX_EPOCH }, false);
                let mut sums = Sums { file, path, head, sure_from: NEVER, dirty, named: true, map: None };
                sums.sure_from = sums.sure_from(meta)?;
                if sums.sure_from != NEVER {
                    sums.head.doubtful = sums.sure_from.min(length);
                }
                sums
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Sums { sure_from: NEVER, ..Sums::create(files)? },
            Err(e) => return Err(Error::io("open", &path)(e)),
        };
        sums.head.until = UNIX_EPOCH;
        sums.lease(files)?;
        Ok(sums)
    }

    /// The first index whose sum is sure to be of the record that stands there now, or [`NEVER`]. Time and header are
    /// read before the head, whose word a writer may extend meanwhile.
    pub(super) fn sure_from(&self, meta: &dyn StoreFile) -> Result<u64> {
        let Ok(modified) = meta.modified() else { return Ok(NEVER) };
        let header = read_header(meta, &self.path.with_file_name(META_FILE))?;
        match read_head(&*self.file, &self.path)? {
            Some(head) if header.sealed() && head.covers(modified) => Ok(head.doubtful),
            _ => Ok(NEVER),
        }
    }

    /// Whether the store was as zrfs left it when it was opened, so that the sums may judge the records of a crash.
    pub(super) fn trusted(&self) -> bool {
        self.sure_from != NEVER
    }

    /// Records below this, as the writer knows it, may not be those that their sums were made for.
    pub(super) fn doubtful(&self) -> u64 {
        self.head.doubtful
    }

    /// The sums of the records `indices`, in the order given; [`NO_SUM`] where there is none.
    pub(super) fn get(&self, indices: &[u64]) -> Result<Vec<u32>> {
        if let Some(sums) = self.mapped(indices) {
            return Ok(sums);
        }
        let mut sums = Vec::with_capacity(indices.len());
        read_near::<SUM_LEN>(
            indices,
            u64::MAX,
            |first, bytes| {
                let n = read_at_most(&*self.file, &self.path, bytes, offset_of(first))?;
                bytes[n..].fill(0);
                Ok(())
            },
            |bytes| sums.push(u32::from_le_bytes(*bytes)),
        )?;
        Ok(sums)
    }

    /// The same from memory; `None` where that is not possible, or not worth it.
    fn mapped(&self, indices: &[u64]) -> Option<Vec<u32>> {
        let map = self.map.as_ref().filter(|_| indices.len() >= FEW)?;
        let size = self.file.size().ok()?;
        let read = map.read(
            || self.file.size(),
            |view| {
                let sum = |&index: &u64| {
                    let mut bytes = [0; SUM_LEN];
                    // Records may have been appended by a program that makes no sums.
                    let is_there = offset_of(index).checked_add(SUM_LEN as u64).is_some_and(|end| end <= size);
                    (!is_there || view.copy(offset_of(index), &mut bytes, Then::Used))
                        .then(|| u32::from_le_bytes(bytes))
                };
                indices.iter().map(sum).collect()
            },
        );
        read.ok().flatten()
    }

    /// Writes the sums of the records from `first` on.
    pub(super) fn put(&mut self, first: u64, sums: &[u32]) -> Result<()> {
        let bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        self.dirty = true;
        write_all_at(&*self.file, &self.path, &mut [IoSlice::new(&bytes)], offset_of(first))
    }

    /// Makes the sums durable; [`lease`](Sums::lease) did so for the file's name.
    pub(super) fn sync(&mut self) -> Result<()> {
        if std::mem::take(&mut self.dirty) {
            self.file.sync().map_err(Error::io("sync", &self.path))?;
        }
        Ok(())
    }

    /// Cuts off the sums of records beyond `length`, durably: none of them may pass for a later record's.
    pub(super) fn cut(&mut self, length: u64) -> Result<()> {
        self.head.doubtful = self.head.doubtful.min(length);
        let end = offset_of(length);
        if self.file.size().map_err(Error::io("stat", &self.path))? > end {
            self.file.set_len(end).map_err(Error::io("cut", &self.path))?;
        }
        // Also where it has the right length: a writer may have been killed between the cut and this.
        self.dirty = true;
        self.sync()
    }

    /// Says, durably, that zrfs goes on writing `meta.zr` for a while. Called before each time that it does; costs
    /// nothing while the last word still holds.
    pub(super) fn lease(&mut self, files: &Files) -> Result<()> {
        let now = SystemTime::now();
        if now + MARGIN <= self.head.until {
            return Ok(());
        }
        self.head.until = now + LEASE;
        self.write_head()?;
        self.dirty = true;
        self.sync()?;
        if !self.named {
            files.storage().sync_dir(files.dir()).map_err(Error::io("sync", files.dir()))?;
            self.named = true;
        }
        Ok(())
    }

    /// Says that `meta.zr` was written for the last time. It need not be durable: the lease that was says no less.
    pub(super) fn end_lease(&mut self, meta: &dyn StoreFile) -> Result<()> {
        self.head.until = meta.modified().map_err(Error::io("stat", self.path.with_file_name(META_FILE)))?;
        self.write_head()
    }

    /// Says, durably, that every record that has a sum is the one that it was made for.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.dirty = true;
        self.sync()?;
        self.head.doubtful = 0;
        self.write_head()?;
        self.dirty = true;
        self.sync()
    }

    fn write_head(&self) -> Result<()> {
        write_all_at(&*self.file, &self.path, &mut [IoSlice::new(&self.head.encode())], 0)
    }
}

fn read_head(file: &dyn StoreFile, path: &Path) -> Result<Option<Head>> {
    let mut bytes = [0; HEAD_LEN];
    let n = read_at_most(file, path, &mut bytes, 0)?;
    Ok(if n == HEAD_LEN { Head::decode(&bytes) } else { None })
}

/// The sum of a record.
pub(super) fn sum(record: &[u8]) -> u32 {
    sum_of(crc32fast::hash(record))
}

/// The sum of `length` bytes at `offset` of a chunk. Memory does not grow with the record.
///
/// # Errors
/// [`Error::Corrupt`] if the file ends before; [`Error::Io`].
pub(super) fn sum_at(file: &dyn StoreFile, path: &Path, offset: u64, length: u32) -> Result<u32> {
    let (mut at, end) = (offset, offset.saturating_add(length.into()));
    let mut crc = crc32fast::Hasher::new();
    let mut piece = vec![0; PIECE.min(length as usize)];
    while at < end {
        let n = piece.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        crate::storage::read_exact_at(file, path, &mut piece[..n], at, "the record")?;
        crc.update(&piece[..n]);
        at += n as u64;
    }
    Ok(sum_of(crc.finalize()))
}

/// What a record's sum says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    /// The record is right.
    Yes,
    /// There is no sum.
    Unknown,
    /// The record is another.
    No,
}

/// Compares a record's sum with the one that is stored.
pub(super) fn compare(stored: u32, found: u32) -> Match {
    match stored {
        NO_SUM => Match::Unknown,
        stored if stored == found => Match::Yes,
        _ => Match::No,
    }
}

/// The error for a record that is not the one that its sum was made for.
pub(super) fn mismatch(path: &Path, offset: u64) -> Error {
    Error::corrupt(path, offset, "the record's bytes do not match its checksum in sums.zr")
}
