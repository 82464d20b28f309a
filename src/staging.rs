//! A new directory or file under a temporary name, until it is whole.
//!
//! Everything is written below a hidden directory beside the target, and renamed to it in one step. Whatever goes wrong
//! before, there is nothing under the target's name; after it, all of it.

use crate::dataset::Source;
use crate::error::{Error, Result};
use crate::format::header::MAGIC;
use crate::format::{
    DATASET_FILE, DELETE_FILE, DICT_FILE, META_FILE, NEW_DICT_FILE, NEW_SCHEMA_FILE, SCHEMA_FILE, SHAPES_FILE,
    SUMS_FILE, TREE_FILE,
};
use crate::storage::{Disk, Storage};
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use std::io::Read;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What may stand at the target already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// Nothing.
    Refuse,
    /// An empty directory, which gives way.
    EmptyDir,
    /// A store or dataset, which gives way.
    Store,
    /// A regular file, which gives way.
    File,
}

impl Existing {
    /// What may stand where a new store goes, if `replace` says that a store may.
    pub(crate) fn store(replace: bool) -> Self {
        if replace { Existing::Store } else { Existing::Refuse }
    }

    /// What may stand where a new file goes, if `replace` says that a file may.
    pub(crate) fn file(replace: bool) -> Self {
        if replace { Existing::File } else { Existing::Refuse }
    }

    /// Refuses a source that is what would be replaced, or in it, whatever links lead there: it would be gone after.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub(crate) fn spare(self, source: &Path, target: &Path) -> Result<()> {
        let inside = self != Existing::Refuse
            && matches!((source.canonicalize(), target.canonicalize()), (Ok(s), Ok(t)) if s.starts_with(&t));
        if inside {
            let (source, target) = (source.display(), target.display());
            let reason = format!("{source} is in {target}, which --force would replace; give another target");
            return Err(Error::invalid(reason));
        }
        Ok(())
    }
}

/// The place where a store or an unpacked tree grows. Dropped before [`publish`](Staging::publish), it removes all of it.
#[derive(Debug)]
pub(crate) struct Staging {
    target: PathBuf,
    parent: PathBuf,
    temp: TempDir,
    existing: Existing,
}

impl Staging {
    /// Prepares to make `target`, where nothing stands but what `existing` allows.
    ///
    /// # Errors
    /// [`Error::Exists`] if something is there that may not be replaced; [`Error::Invalid`] if it is not what may be;
    /// [`Error::Io`].
    pub(crate) fn new(target: &Path, existing: Existing) -> Result<Self> {
        let name = target.file_name().ok_or_else(|| {
            Error::invalid(format!("{} is no name for something new; give one like data.zr", target.display()))
        })?;
        if target.symlink_metadata().is_ok() {
            let taken = || Error::Exists { path: target.to_path_buf() };
            match existing {
                Existing::Refuse => return Err(taken()),
                Existing::File => {
                    if !target.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
                        let reason = format!("{} is no file, so --force does not replace it", target.display());
                        return Err(Error::invalid(reason));
                    }
                }
                Existing::EmptyDir => {
                    let mut names = std::fs::read_dir(target).map_err(|_| taken())?;
                    if names.next().is_some() {
                        return Err(Error::invalid(format!("{} exists and is not empty", target.display())));
                    }
                }
                Existing::Store => only_ours(target).map_err(|reason| {
                    Error::invalid(format!("{} {reason}, so --force does not replace it", target.display()))
                })?,
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
        Ok(Staging { target: target.to_path_buf(), parent, temp, existing })
    }

    /// Where to make it: a path that does not exist yet.
    pub(crate) fn path(&self) -> PathBuf {
        self.temp.path().join("new")
    }

    /// The hidden directory, which a source that contains the target has to leave out.
    pub(crate) fn dir(&self) -> &Path {
        self.temp.path()
    }

    /// Gives what was made its name. Everything in it must have been synced.
    ///
    /// # Errors
    /// [`Error::Exists`] if something came to stand at the target meanwhile; [`Error::Io`].
    pub(crate) fn publish(self) -> Result<()> {
        let made = self.path();
        let disk = Disk::default();
        let rename = |flags| rustix::fs::renameat_with(CWD, &made, CWD, &self.target, flags);
        let exists = self.target.symlink_metadata().is_ok();
        let done = match self.existing {
            // The old store goes to where the new one was made, and away with the hidden directory.
            Existing::Store if exists => rename(RenameFlags::EXCHANGE),
            // A plain rename replaces an empty directory, and no other.
            // So it does a file.
            Existing::EmptyDir | Existing::File if exists => rename(RenameFlags::empty()),
            Existing::Refuse | Existing::EmptyDir | Existing::Store | Existing::File => {
                match rename(RenameFlags::NOREPLACE) {
                    // A file system without the flag.
                    Err(Errno::INVAL | Errno::NOSYS) if !exists => rename(RenameFlags::empty()),
                    other => other,
                }
            }
        };
        done.map_err(|e| match e {
            Errno::EXIST | Errno::NOTEMPTY => Error::Exists { path: self.target.clone() },
            e => Error::io("rename what was made to", &self.target)(e.into()),
        })?;
        disk.sync_dir(&self.parent).map_err(Error::io("sync", &self.parent))
    }
}

/// Checks that `target` is a store or dataset and holds nothing else. Only what zrfs made is ever removed: a slip of the
/// hand must not cost somebody's directory, nor the notes that somebody keeps in it.
///
/// # Errors
/// What speaks against it, to be put after the name.
fn only_ours(target: &Path) -> Result<(), String> {
    let list = |dir: &Path| -> Result<Vec<(PathBuf, std::fs::FileType)>, String> {
        let entries = std::fs::read_dir(dir).map_err(|e| format!("cannot be listed ({e})"))?;
        let typed = entries.map(|e| e.and_then(|e| Ok((e.path(), e.file_type()?))));
        typed.collect::<Result<_, _>>().map_err(|e| format!("cannot be listed ({e})"))
    };
    let store = |dir: &Path| -> Result<(), String> {
        let mut magic = [0; MAGIC.len()];
        let header = std::fs::File::open(dir.join(META_FILE)).and_then(|mut f| f.read_exact(&mut magic));
        if header.is_err() || magic != MAGIC {
            return Err(format!("is not a store ({} has no header of one)", dir.display()));
        }
        match list(dir)?.iter().find(|(path, kind)| !kind.is_file() || !is_part(path)) {
            Some((path, _)) => Err(format!("holds {}, which is no part of a store", path.display())),
            None => Ok(()),
        }
    };
    if !target.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        return Err("is not a store".into());
    }
    if target.join(META_FILE).exists() {
        return store(target);
    }
    for (path, kind) in list(target)? {
        if kind.is_dir() {
            store(&path)?;
        } else if ![TREE_FILE, DATASET_FILE].iter().any(|own| path.file_name() == Some(own.as_ref())) {
            return Err(format!("holds {}, which is no part of a dataset", path.display()));
        }
    }
    // A directory that somebody keeps several stores in looks like a dataset, but its stores do not belong together.
    if !target.join(TREE_FILE).exists()
        && let Err(e) = Source::open(target)
    {
        return Err(format!("is not a store or dataset ({e})"));
    }
    Ok(())
}

/// Whether a file has a name that files of a store have.
fn is_part(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let numbered = name.strip_suffix(".chunk").or(name.strip_suffix(".loc"));
    let parts =
        [META_FILE, DICT_FILE, NEW_DICT_FILE, SCHEMA_FILE, NEW_SCHEMA_FILE, SHAPES_FILE, SUMS_FILE, DELETE_FILE];
    parts.contains(&name) || numbered.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}
