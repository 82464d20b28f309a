//! A new store under a temporary name, until it is whole.
//!
//! Everything is written below a hidden directory beside the target, and renamed to it in one step. Whatever goes wrong
//! before, there is nothing under the target's name; after it, all of it.

use crate::dataset::Source;
use crate::error::{Error, Result};
use crate::storage::{Disk, Storage};
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The place where a store grows. Dropped before [`publish`](Staging::publish), it removes all of it.
#[derive(Debug)]
pub(super) struct Staging {
    target: PathBuf,
    parent: PathBuf,
    temp: TempDir,
    replace: bool,
}

impl Staging {
    /// Prepares to make `target`; with `replace`, an existing store or dataset there gives way.
    ///
    /// # Errors
    /// [`Error::Exists`] if there is something and it may not be replaced, or is no store; [`Error::Io`].
    pub(super) fn new(target: &Path, replace: bool) -> Result<Self> {
        let name = target.file_name().ok_or_else(|| {
            Error::invalid(format!("{} is no name for a new store; give one like data.zr", target.display()))
        })?;
        if target.symlink_metadata().is_ok() {
            if !replace {
                return Err(Error::Exists { path: target.to_path_buf() });
            }
            // Only what zrfs made is ever removed: a slip of the hand must not cost somebody's directory.
            if matches!(Source::open(target), Err(Error::NotAStore { .. })) {
                let reason = format!("{} is not a store, so --force does not replace it", target.display());
                return Err(Error::invalid(reason));
            }
        }
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let mut prefix = std::ffi::OsString::from(".");
        prefix.push(name);
        prefix.push(".zrfs-");
        let temp = tempfile::Builder::new().prefix(&prefix).tempdir_in(&parent);
        let temp = temp.map_err(Error::io("create a directory in", &parent))?;
        Ok(Staging { target: target.to_path_buf(), parent, temp, replace })
    }

    /// Where to make the store: a path that does not exist yet.
    pub(super) fn path(&self) -> PathBuf {
        self.temp.path().join("store")
    }

    /// The hidden directory, which a source that contains the target has to leave out.
    pub(super) fn dir(&self) -> &Path {
        self.temp.path()
    }

    /// Gives the store its name. Everything in it must have been synced.
    ///
    /// # Errors
    /// [`Error::Exists`] if something came to stand at the target meanwhile; [`Error::Io`].
    pub(super) fn publish(self) -> Result<()> {
        let made = self.path();
        let disk = Disk::default();
        let rename = |flags| rustix::fs::renameat_with(CWD, &made, CWD, &self.target, flags);
        let exists = self.target.symlink_metadata().is_ok();
        let done = if exists && self.replace {
            // The old store goes to where the new one was made, and away with the hidden directory.
            rename(RenameFlags::EXCHANGE)
        } else {
            match rename(RenameFlags::NOREPLACE) {
                // A file system without the flag: a rename that cannot replace anything but an empty directory.
                Err(Errno::INVAL | Errno::NOSYS) if !exists => rename(RenameFlags::empty()),
                other => other,
            }
        };
        done.map_err(|e| match e {
            Errno::EXIST | Errno::NOTEMPTY => Error::Exists { path: self.target.clone() },
            e => Error::io("rename the finished store to", &self.target)(e.into()),
        })?;
        disk.sync_dir(&self.parent).map_err(Error::io("sync", &self.parent))
    }
}
