//! Installing a dictionary in an empty `zstd_dict` store, which may be created before there is anything to train on.

use super::files::Files;
use super::locks::{InUse, lock_writer};
use super::{WriterOptions, read_dict, read_header};
use crate::codec::check_dict;
use crate::error::{Error, Result};
use crate::format::{Codec, DICT_FILE, META_FILE, NEW_DICT_FILE};
use crate::storage::write_all_at;
use std::io::{ErrorKind, IoSlice};
use std::path::Path;

impl WriterOptions {
    /// Gives the empty [`Codec::ZstdDict`] store at `path` its dictionary, durably, and wholly or not at all. Of the
    /// options only the storage counts. Installing the dictionary that is there already does nothing.
    ///
    /// # Errors
    /// [`Error::Dictionary`], with the reason, if the store has records, another dictionary or another codec, or `dict`
    /// is no trained zstd dictionary; [`Error::Locked`] if another process writes to the store; [`Error::Io`].
    pub fn install_dict(&self, path: impl AsRef<Path>, dict: &[u8]) -> Result<()> {
        self.install(path.as_ref(), dict, false)
    }

    /// The same, and of a store that has another dictionary and no records, in place of that.
    ///
    /// # Errors
    /// As [`install_dict`](WriterOptions::install_dict); [`Error::Locked`] if there is another dictionary, and anybody has
    /// the store open.
    #[cfg(feature = "capi")]
    pub(crate) fn replace_dict(&self, path: &Path, dict: &[u8]) -> Result<()> {
        self.install(path, dict, true)
    }

    fn install(&self, dir: &Path, dict: &[u8], replace: bool) -> Result<()> {
        let (meta_path, dict_path, new_path) = (dir.join(META_FILE), dir.join(DICT_FILE), dir.join(NEW_DICT_FILE));
        let refuse = |reason: String| Err(Error::Dictionary { path: dict_path.clone(), reason });
        let storage = self.storage.pin(dir).map_err(Error::io("open", dir))?;
        let meta = storage.open_rw(&meta_path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::NotAStore { path: dir.to_path_buf(), reason: "it has no meta.zr".into() },
            _ => Error::io("open", &meta_path)(e),
        })?;
        let files = Files::new(storage.clone(), dir, true);
        let in_use = InUse::register(&files)?;
        lock_writer(&files, &*meta)?;
        let header = read_header(&*meta, &meta_path)?;
        if header.codec != Codec::ZstdDict {
            let codec = header.codec;
            return refuse(format!(
                "the store's codec is {codec}, which uses none; recode it to zstd_dict: zrfs recode"
            ));
        }
        if let Err(reason) = check_dict(dict) {
            return refuse(reason);
        }
        match read_dict(&*storage, &dict_path, true) {
            Ok(Some(old)) if old == dict => return Ok(()),
            _ if header.length > 0 => {
                let n = header.length;
                return refuse(format!("the store has {n} records, which only their own dictionary decodes"));
            }
            // A reader that has the store open would decode what is appended with the dictionary that it loaded.
            Ok(Some(_)) if replace => in_use.exchange(&files, true)?,
            Ok(Some(_)) => return refuse("the store has another one already; make a new store for this one".into()),
            Ok(None) | Err(Error::Dictionary { .. }) => {}
            Err(e) => return Err(e),
        }
        match storage.remove(&new_path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::io("remove", new_path)(e)),
            _ => {}
        }
        let file = storage.create_new(&new_path).map_err(Error::io("create", &new_path))?;
        write_all_at(&*file, &new_path, &mut [IoSlice::new(dict)], 0)?;
        file.sync().map_err(Error::io("sync", &new_path))?;
        storage.rename(&new_path, &dict_path).map_err(Error::io("rename to", &dict_path))?;
        storage.sync_dir(dir).map_err(Error::io("sync", dir))
    }
}
