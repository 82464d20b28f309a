//! Who may do what at the same time.
//!
//! Advisory locks, all of kinds that ask for no write access and leave no file behind:
//! - `meta.zr`, held alone by the writer: there is one at a time.
//! - `0.chunk`, held alone by the writer from when it has mended what a crash left: then what the header calls unsynced
//!   is there, and readers need not check it. Without it, a reader that comes during a recovery could not tell.
//! - the store's directory, shared by everybody who has the store open, taken alone to delete or compact: those move
//!   records under their indices, so nobody may be reading.
//!
//! Where a file system has no locks, stores open all the same, with a warning in the log.

use super::files::{Files, Part};
use crate::error::{Error, Result};
use crate::storage::StoreFile;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A reader that looks whether a writer vouches holds that lock for an instant, as a writer that looks whether there is
/// another holds the other, and a process that was just forked to become another program holds all of them; a writer tries
/// again so often and so soon before it gives up.
const TRIES: usize = 10;
const PAUSE: Duration = Duration::from_millis(5);

/// The store's directory, and with it the reader's lock, which goes when this is dropped.
#[derive(Debug)]
pub(super) struct InUse {
    dir: Arc<dyn StoreFile>,
    /// Whether the file system has locks.
    locks: bool,
}

impl InUse {
    /// Registers a user of the store.
    ///
    /// # Errors
    /// [`Error::Locked`] while another process deletes or compacts; [`Error::Io`] if the lock fails otherwise than for want
    /// of locks: to go on without it would let a deletion pass under a reader.
    pub(super) fn register(files: &Files) -> Result<Self> {
        let path = files.dir();
        let dir = files.storage().open_dir(path).map_err(Error::io("open", path))?;
        match dir.try_lock(false) {
            Ok(true) => Ok(InUse { dir, locks: true }),
            Ok(false) => Err(locked(files, "being changed in place", &*dir)),
            Err(e) if !has_none(&e) => Err(Error::io("lock", path)(e)),
            Err(e) => {
                log::warn!(
                    "{} cannot be locked ({e}): nothing keeps others from changing it meanwhile",
                    path.display()
                );
                Ok(InUse { dir, locks: false })
            }
        }
    }

    /// Keeps all others out of the store (`alone`), or lets them in again.
    ///
    /// # Errors
    /// [`Error::Locked`] if anybody else has the store open.
    pub(super) fn exchange(&self, files: &Files, alone: bool) -> Result<()> {
        if !self.locks {
            return Ok(());
        }
        let failed = |e| Error::io("lock", files.dir())(e);
        // An exchange that fails may have given up the lock that was held. Nobody else takes it alone: only writers do.
        if patiently(|| self.dir.try_lock(alone)).map_err(failed)? {
            return Ok(());
        }
        let error = locked(files, "open for reading or mounted", &*self.dir);
        self.dir.try_lock(false).map_err(failed)?;
        Err(error)
    }
}

/// Whether an error says that the file system has no locks, or none for directories (NFS makes them of locks that need
/// write access).
fn has_none(e: &io::Error) -> bool {
    const NONE: [Errno; 6] = [Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP, Errno::INVAL, Errno::BADF, Errno::ISDIR];
    Errno::from_io_error(e).is_some_and(|e| NONE.contains(&e))
}

/// Takes the writer's lock on `meta`.
///
/// # Errors
/// [`Error::Locked`] if another process has it; [`Error::Io`] if it cannot be had at all, for unlike a reader a writer
/// could do damage.
pub(super) fn lock_writer(files: &Files, meta: &dyn StoreFile) -> Result<()> {
    if patiently(|| meta.try_lock(true)).map_err(Error::io("lock", files.dir()))? {
        return Ok(());
    }
    Err(locked(files, "being written to", meta))
}

/// Tries for a lock that others may hold for an instant.
fn patiently(mut try_lock: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    for _ in 1..TRIES {
        if try_lock()? {
            return Ok(true);
        }
        std::thread::sleep(PAUSE);
    }
    try_lock()
}

/// Says to readers, until the handle that is returned is dropped, that the store is whole up to its header. Where that
/// cannot be said, they check for themselves.
pub(super) fn vouch(files: &Files) -> Result<Arc<dyn StoreFile>> {
    let file = files.get_or_create(Part::Chunk(0))?;
    if let Err(e) = patiently(|| file.try_lock(true)) {
        log::debug!("{} cannot be locked: {e}", files.path(Part::Chunk(0)).display());
    }
    Ok(file)
}

/// Whether a writer vouches now for what the header calls unsynced. Says yes where locks do not work.
pub(super) fn is_vouched_for(files: &Files) -> bool {
    let Ok(file) = files.get(Part::Chunk(0)) else { return false };
    match file.try_lock(false) {
        Ok(true) => {
            // The lock goes with the handle at the latest, and a writer tries several times.
            let _ = file.unlock();
            false
        }
        Ok(false) | Err(_) => true,
    }
}

fn locked(files: &Files, use_: &'static str, file: &dyn StoreFile) -> Error {
    Error::Locked { path: files.dir().to_path_buf(), use_, holder: file.lock_holder() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_a_lock_for_an_instant_is_in_nobodys_way() {
        let mut tries = 0;
        let mut free_after = |held| {
            tries = 0;
            let try_lock = || {
                tries += 1;
                Ok(tries > held)
            };
            (patiently(try_lock).unwrap(), tries)
        };
        assert_eq!([0, 1, TRIES - 1].map(&mut free_after), [(true, 1), (true, 2), (true, TRIES)]);
        assert_eq!(free_after(TRIES), (false, TRIES));
        assert!(patiently(|| Err(io::ErrorKind::Other.into())).is_err());
    }
}
