//! A store that is open for reading and writing at once, as loaderx has them.
//!
//! All handles of a process on one store are the same [`Live`] store: two writers would write over each other, and
//! loaderx lets a program open a store as often as it likes. The writer is opened when something is first written, so
//! whoever only reads does not keep other processes from writing. Gathers run side by side; a deletion and a compaction
//! wait for those that are under way, and keep new ones waiting.

use crate::error::{Error, Result};
use crate::fork::Maker;
use crate::format::{Codec, META_FILE};
use crate::pack::Progress;
use crate::store::{OpenOptions, Stats, Store, Writer, WriterOptions, create_empty};
use crate::sys::Once;
use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock, Weak};

/// The stores that this process has open, by device and inode of their directories.
type Open = HashMap<(u64, u64), Weak<Live>>;

fn open_stores() -> &'static (Maker, Mutex<Open>) {
    static OPEN: Once<(Maker, Mutex<Open>)> = Once::new();
    OPEN.get_or_make(|| (Maker::here(), Mutex::default()))
}

/// A store open for reading and writing.
#[derive(Debug)]
pub(super) struct Live {
    path: PathBuf,
    reading: OpenOptions,
    writing: WriterOptions,
    codec: Codec,
    maker: Maker,
    /// `None` where it could not be opened again after a change in place.
    store: RwLock<Option<Store>>,
    /// Locked before `store`, where both are.
    writer: Mutex<Option<Writer>>,
}

impl Live {
    /// Opens the store in the directory `path`, which is made where it is missing, with what leads there. A directory
    /// without a store becomes an empty one of `codec`; another has its own.
    pub(super) fn open(path: &Path, codec: Codec) -> Result<Arc<Live>> {
        let (maker, open) = open_stores();
        let mut open = maker.lock(open).ok_or_else(|| maker.refusal(path))?;
        std::fs::create_dir_all(path).map_err(Error::io("create", path))?;
        let found = std::fs::metadata(path).map_err(Error::io("open", path))?;
        let key = (found.dev(), found.ino());
        if let Some(live) = open.get(&key).and_then(Weak::upgrade) {
            return Ok(live);
        }
        // What is opened later is found through this directory, whatever its path has become by then.
        let path = std::path::absolute(path).map_err(Error::io("open", path))?;
        let (storage, writing) = WriterOptions::new(codec).untyped().pinned(&path)?;
        let reading = OpenOptions::new().storage(storage.clone());
        match storage.open(&path.join(META_FILE)) {
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => create_empty(&*storage, &path, codec)?,
            Err(e) => return Err(Error::io("open", path.join(META_FILE))(e)),
        }
        let store = reading.open(&path)?;
        let codec = store.codec();
        let (store, writer) = (RwLock::new(Some(store)), Mutex::new(None));
        let live = Arc::new(Live { path, reading, writing, codec, maker: Maker::here(), store, writer });
        open.retain(|_, live| live.strong_count() > 0);
        open.insert(key, Arc::downgrade(&live));
        Ok(live)
    }

    /// Gives back one handle's part in the store. What was appended is durable then, if that can be had; the last one
    /// closes the store.
    pub(super) fn close(self: Arc<Live>) {
        if let Err(e) = self.sync() {
            log::warn!("{e}");
        }
        // A store that is opened again meanwhile is to find the locks of this one gone.
        let (maker, open) = open_stores();
        let _open = maker.lock(open);
        drop(self);
    }

    /// How its records are compressed.
    pub(super) fn codec(&self) -> Codec {
        self.codec
    }

    /// The number of records.
    pub(super) fn len(&self) -> u64 {
        self.read(|store| Ok(store.len())).unwrap_or(0)
    }

    /// Whether a dictionary is installed.
    pub(super) fn has_dict(&self) -> bool {
        self.read(|store| Ok(store.has_dict())).unwrap_or(false)
    }

    /// As [`Store::lengths`].
    pub(super) fn lengths(&self, indices: &[u64]) -> Result<Vec<u32>> {
        self.read(|store| store.lengths(indices))
    }

    /// As [`Store::stats`].
    pub(super) fn stats(&self) -> Result<Stats> {
        self.read(Store::stats)
    }

    /// As [`Store::gather`], but places may overlap: then records are read one after the other, the later over the
    /// earlier. Of several mistakes, that of the first record is told.
    pub(super) fn gather(&self, indices: &[u64], dst: &mut [u8], offsets: &[u64]) -> Result<()> {
        self.read(|store| match store.gather(indices, dst, offsets) {
            Err(Error::OutOfRange { index, length }) => {
                let first = indices.iter().take_while(|&&index| index < length).count();
                let before = store.lengths(indices.get(..first).unwrap_or_default())?;
                let (have, mut ends) = (dst.len() as u64, offsets.iter().zip(before));
                let need = ends.find_map(|(at, n)| Some(at.saturating_add(n.into())).filter(|&end| end > have));
                Err(need.map_or(Error::OutOfRange { index, length }, |need| Error::BufferTooSmall { need, have }))
            }
            Err(Error::Invalid(_)) if indices.len() == offsets.len() => {
                indices.iter().zip(offsets).try_for_each(|(&index, &at)| store.gather(&[index], dst, &[at]))
            }
            done => done,
        })
    }

    /// Appends records and returns their indices; gathers see them from then on.
    pub(super) fn append(&self, records: &[&[u8]]) -> Result<Range<u64>> {
        let appended = self.write(|writer| writer.append(records));
        // After an error too: of a large batch the first part may be there.
        let seen = self.read(|store| store.refresh().map(drop));
        appended.and_then(|indices| seen.map(|()| indices))
    }

    /// Makes what was appended durable.
    pub(super) fn sync(&self) -> Result<()> {
        let writer = self.maker.lock(&self.writer).ok_or_else(|| self.maker.refusal(&self.path))?;
        if writer.is_none() {
            return Ok(());
        }
        drop(writer);
        self.write(Writer::sync)
    }

    /// As [`Writer::delete`], of ragged stores too: their shapes are the caller's part, as with loaderx.
    pub(super) fn delete(&self, indices: &[u64]) -> Result<()> {
        let length = self.len();
        if let Some(&index) = indices.iter().find(|&&index| index >= length) {
            return Err(Error::OutOfRange { index, length });
        }
        self.change(|writer| writer.delete(indices))
    }

    /// As [`Writer::compact`].
    pub(super) fn compact(&self) -> Result<()> {
        self.change(|writer| writer.compact(&Progress::default()).map(drop))
    }

    /// As [`WriterOptions::install_dict`]; in an empty store also in place of another dictionary.
    pub(super) fn install_dict(&self, dict: &[u8]) -> Result<()> {
        let mut writer = self.maker.lock(&self.writer).ok_or_else(|| self.maker.refusal(&self.path))?;
        if let Some(writer) = writer.take() {
            writer.close()?;
        }
        let mut store = self.maker.write(&self.store).ok_or_else(|| self.maker.refusal(&self.path))?;
        // Its lock on the directory would stand in the way, and it has the old dictionary.
        *store = None;
        let installed = self.writing.replace_dict(&self.path, dict);
        *store = Some(self.reading.open(&self.path)?);
        installed
    }

    fn read<T>(&self, work: impl FnOnce(&Store) -> Result<T>) -> Result<T> {
        let forked =
            || Error::invalid(format!("{} was being changed when this process was forked", self.path.display()));
        let store = self.maker.read(&self.store).ok_or_else(forked)?;
        if let Some(store) = &*store {
            return work(store);
        }
        drop(store);
        let mut store = self.maker.write(&self.store).ok_or_else(forked)?;
        if store.is_none() {
            *store = Some(self.reading.open(&self.path)?);
        }
        store.as_ref().map_or_else(|| Err(forked()), work)
    }

    fn write<T>(&self, work: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        let mut slot = self.maker.lock(&self.writer).ok_or_else(|| self.maker.refusal(&self.path))?;
        self.write_in(&mut slot, work)
    }

    fn write_in<T>(&self, slot: &mut Option<Writer>, work: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        let writer = match &mut *slot {
            Some(writer) => writer,
            None => slot.insert(self.writing.clone().open(&self.path)?),
        };
        let done = work(writer);
        if matches!(done, Err(Error::Io { .. } | Error::Full { .. } | Error::Latched { .. })) {
            // The next one finds out what the files hold, as a writer after a crash does.
            *slot = None;
        }
        done
    }

    /// Runs a step for which nobody may have the store open, not even this for reading.
    fn change(&self, work: impl FnOnce(&mut Writer) -> Result<()>) -> Result<()> {
        let mut slot = self.maker.lock(&self.writer).ok_or_else(|| self.maker.refusal(&self.path))?;
        self.write_in(&mut slot, |_| Ok(()))?;
        let mut store = self.maker.write(&self.store).ok_or_else(|| self.maker.refusal(&self.path))?;
        *store = None;
        let done = self.write_in(&mut slot, work);
        *store = Some(self.reading.open(&self.path)?);
        done
    }
}
