//! `dataset.zr` on disk: read, written durably, removed durably.

use crate::error::{Error, Result};
use crate::format::DATASET_FILE;
use crate::format::dataset::Intent;
use crate::storage::{Storage, StoreFile, read_exact_at, rewrite, write_all_at};
use crate::store::shapes::{open_if_there, remove_if_there};
use std::io::IoSlice;
use std::path::Path;

/// A larger file is none of ours: 2^28 indices.
const MAX_BYTES: u64 = 2 << 30;

/// What the writer of the dataset at `path` is doing, or was when it was interrupted. A file that is not whole says
/// nothing: it is made durable before any stream is changed.
pub(super) fn read(storage: &dyn Storage, path: &Path) -> Result<Option<Intent>> {
    let Some((file, path)) = open_if_there(storage, path.join(DATASET_FILE))? else { return Ok(None) };
    let size = file.size().map_err(Error::io("stat", &path))?;
    if size > MAX_BYTES {
        return Ok(None);
    }
    let mut bytes = vec![0; size as usize];
    match read_exact_at(&*file, &path, &mut bytes, 0, "the file") {
        Ok(()) => Ok(Intent::decode(&bytes)),
        // A writer removed or cut it meanwhile.
        Err(Error::Corrupt { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Writes what comes next, durably. No other intent may be there.
pub(super) fn write(storage: &dyn Storage, dir: &Path, intent: &Intent) -> Result<()> {
    let path = dir.join(DATASET_FILE);
    let file = storage.create_new(&path).map_err(Error::io("create", &path))?;
    write_all_at(&*file, &path, &mut [IoSlice::new(&intent.encode())], 0)?;
    sync(storage, dir, &*file)
}

/// Makes an intent that is there durable: whoever wrote it may have been killed before, or seen its sync fail.
pub(super) fn settle(storage: &dyn Storage, dir: &Path) -> Result<()> {
    let path = dir.join(DATASET_FILE);
    let file = storage.open_rw(&path).map_err(Error::io("open", &path))?;
    rewrite(&*file, &path, 0, u64::MAX)?;
    sync(storage, dir, &*file)
}

fn sync(storage: &dyn Storage, dir: &Path, file: &dyn StoreFile) -> Result<()> {
    let path = dir.join(DATASET_FILE);
    file.sync().map_err(Error::io("sync", &path))?;
    storage.sync_dir(dir).map_err(Error::io("sync", dir))
}

/// Says that all streams are as they should be.
pub(super) fn remove(storage: &dyn Storage, dir: &Path) -> Result<()> {
    remove_if_there(storage, &dir.join(DATASET_FILE))
}
