//! The files below a store, behind a trait: the seam at which tests inject faults and power cuts.
//!
//! [`Disk`] is the real thing. Everything that a store does to files goes through [`Storage`] and [`StoreFile`], so a
//! test can count operations, fail one of them, or forget what was not synced.

use crate::error::{Error, Result};
use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// A directory tree that stores live in.
pub trait Storage: Debug + Send + Sync {
    /// Opens an existing file for reading. A missing file is `io::ErrorKind::NotFound`.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>>;
    /// Opens an existing file for reading and writing.
    fn open_rw(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>>;
    /// Creates a file that must not exist yet, for reading and writing.
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>>;
    /// Creates a directory that must not exist yet.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the directory's entries (created, renamed, removed files) survive a power cut.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// An open file with positioned reads and writes; it has no cursor, so threads share it freely.
pub trait StoreFile: Debug + Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset`; 0 means the end of the file. May read fewer than asked.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes some of the buffers at `offset`, returns how many bytes.
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;
    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Cuts or extends the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes the file's bytes and length survive a power cut.
    fn sync(&self) -> io::Result<()>;
    /// Takes the file's exclusive advisory lock without waiting; `false` if another process holds it.
    fn try_lock(&self) -> io::Result<bool>;
}

/// The real file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

#[derive(Debug)]
struct DiskFile(File);

impl Storage for Disk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>> {
        Ok(Arc::new(DiskFile(File::open(path)?)))
    }
    fn open_rw(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>> {
        Ok(Arc::new(DiskFile(OpenOptions::new().read(true).write(true).open(path)?)))
    }
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>> {
        Ok(Arc::new(DiskFile(OpenOptions::new().read(true).write(true).create_new(true).open(path)?)))
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

impl StoreFile for DiskFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(&self.0, bufs, offset)?)
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn try_lock(&self) -> io::Result<bool> {
        match self.0.try_lock() {
            Ok(()) => Ok(true),
            Err(std::fs::TryLockError::WouldBlock) => Ok(false),
            Err(std::fs::TryLockError::Error(e)) => Err(e),
        }
    }
}

/// At most this many buffers go to the kernel in one call (Linux's `UIO_MAXIOV`).
const MAX_SLICES: usize = 1024;

/// Fills `buf` from `offset` of `file`, through short reads and `EINTR`.
///
/// # Errors
/// [`Error::Corrupt`] if the file ends before the buffer is full; `what` says what was being read.
pub fn read_exact_at(file: &dyn StoreFile, path: &Path, buf: &mut [u8], offset: u64, what: &str) -> Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64) {
            Ok(0) => {
                let end = offset + done as u64;
                let wanted = offset + buf.len() as u64;
                return Err(Error::corrupt(path, end, format!("the file ends here, but {what} reaches to {wanted}")));
            }
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io("read", path)(e)),
        }
    }
    Ok(())
}

/// Writes all of `bufs`, one after the other, from `offset` of `file`, through short writes and `EINTR`.
///
/// # Errors
/// [`Error::Io`] with the operating system's reason; some of the bytes may have been written.
pub fn write_all_at(file: &dyn StoreFile, path: &Path, bufs: &mut [IoSlice<'_>], mut offset: u64) -> Result<()> {
    let mut rest = bufs;
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let some = rest.len().min(MAX_SLICES);
        match file.write_vectored_at(&rest[..some], offset) {
            Ok(0) => return Err(Error::io("write", path)(io::ErrorKind::WriteZero.into())),
            Ok(n) => {
                offset += n as u64;
                IoSlice::advance_slices(&mut rest, n);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io("write", path)(e)),
        }
    }
    Ok(())
}
