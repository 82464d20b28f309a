//! The files below a store, behind a trait: the seam at which tests inject faults and power cuts.
//!
//! [`Disk`] is the real thing. Everything that a store does to files goes through [`Storage`] and [`StoreFile`], so a
//! test can count operations, fail one of them, or forget what was not synced.

#[cfg(test)]
pub(crate) mod sim;

use crate::error::{Error, Result};
use crate::sys::{Descriptor, Mapped};
use rustix::fs::{Advice, AtFlags, CWD, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};
use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, BufReader, IoSlice, IoSliceMut, Read};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The numbers of tmpfs and ramfs.
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// A file system that stores live in.
pub trait Storage: Debug + Send + Sync {
    /// Opens an existing file for reading. A missing file is `io::ErrorKind::NotFound`.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>>;
    /// Opens an existing file for reading and writing.
    fn open_rw(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>>;
    /// Opens a directory, to lock or sync it.
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>>;
    /// Creates a file that must not exist yet, for reading and writing.
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>>;
    /// Creates a directory that must not exist yet.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, in no particular order, without `.` and `..`.
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Gives a file another name in the same directory, at once in place of the file that has that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the directory's entries (created, renamed, removed files) survive a power cut.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// The same files, where everything below `dir` is found through an open handle of that directory: whoever holds
    /// it goes on reading the old files when another directory is renamed to the path.
    fn pin(&self, dir: &Path) -> io::Result<Arc<dyn Storage>>;
}

/// An open file with positioned reads and writes, which alone may be interrupted or come out short; it has no cursor, so threads share it freely.
pub trait StoreFile: Debug + Send + Sync {
    /// Whether this process has it: a forked child may not have all that its memory says.
    fn is_here(&self) -> bool {
        true
    }
    /// Reads up to `buf.len()` bytes at `offset`; 0 means the end of the file. May read fewer than asked.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// The same, of what is in the page cache and costs no wait for a disk; `io::ErrorKind::WouldBlock` where that is nothing.
    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let _ = (buf, offset);
        Err(io::ErrorKind::WouldBlock.into())
    }
    /// Starts to read `len` bytes at `offset` into the page cache, and does not wait for them. Only a hint.
    fn will_need(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }
    /// Has the system forget what it has of the file in the page cache. Only a hint.
    fn forget(&self) {}
    /// Whether the file has no other place than memory, so that the system cannot forget it.
    fn is_in_memory(&self) -> bool {
        false
    }
    /// The file's first `len` bytes as memory, where this kind of file has that.
    fn map(&self, len: u64) -> Option<Mapped> {
        let _ = len;
        None
    }
    /// Writes some of the buffers at `offset`, returns how many bytes.
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;
    /// The file's length in bytes.
    fn size(&self) -> io::Result<u64>;
    /// When the file was last written to.
    fn modified(&self) -> io::Result<SystemTime>;
    /// Cuts or extends the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes the file's bytes and length survive a power cut.
    fn sync(&self) -> io::Result<()>;
    /// Takes the file's advisory lock (shared, or alone) without waiting, in exchange for the one that is held;
    /// `false` if another holder is in the way. The lock goes with the last handle.
    fn try_lock(&self, alone: bool) -> io::Result<bool>;
    /// Gives the lock back.
    fn unlock(&self) -> io::Result<()>;
    /// A process that holds a lock on the file, where that can be found out.
    fn lock_holder(&self) -> Option<u32>;
}

/// The real file system.
#[derive(Debug, Default)]
pub struct Disk {
    /// A directory's handle and the path it stands for; without it, paths mean what they mean to the process.
    pinned: Option<(Arc<DiskFile>, PathBuf)>,
}

impl Disk {
    /// The handle and the path from there by which `path` is reached.
    fn locate<'a>(&'a self, path: &'a Path) -> io::Result<(BorrowedFd<'a>, &'a Path)> {
        if let Some((handle, dir)) = &self.pinned
            && let Ok(below) = path.strip_prefix(dir)
        {
            return Ok((handle.0.file()?.as_fd(), if below.as_os_str().is_empty() { Path::new(".") } else { below }));
        }
        Ok((CWD, path))
    }

    fn open_shared(&self, path: &Path, flags: OFlags) -> io::Result<Arc<DiskFile>> {
        Ok(Arc::new(DiskFile(Descriptor::new(self.open_with(path, flags)?)?)))
    }

    fn open_with(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let (dir, path) = self.locate(path)?;
        let mode = Mode::from_raw_mode(0o666);
        Ok(File::from(retry_on_intr(|| rustix::fs::openat(dir, path, flags | OFlags::CLOEXEC, mode))?))
    }
}

impl Storage for Disk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>> {
        Ok(self.open_shared(path, OFlags::RDONLY)?)
    }
    fn open_rw(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>> {
        Ok(self.open_shared(path, OFlags::RDWR)?)
    }
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>> {
        // A lock on the pinned directory is on the handle by which all is opened: a child has both, or none.
        if let Some((handle, dir)) = &self.pinned
            && path == dir
        {
            return Ok(handle.clone());
        }
        Ok(self.open_shared(path, OFlags::RDONLY | OFlags::DIRECTORY)?)
    }
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>> {
        Ok(self.open_shared(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let (dir, path) = self.locate(path)?;
        Ok(retry_on_intr(|| rustix::fs::mkdirat(dir, path, Mode::from_raw_mode(0o777)))?)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let dir = self.open_with(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(dir)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        let (dir, path) = self.locate(path)?;
        Ok(retry_on_intr(|| rustix::fs::unlinkat(dir, path, AtFlags::empty()))?)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_dir, from), (to_dir, to)) = (self.locate(from)?, self.locate(to)?);
        Ok(retry_on_intr(|| rustix::fs::renameat(from_dir, from, to_dir, to))?)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.open_with(path, OFlags::RDONLY | OFlags::DIRECTORY)?.sync_all()
    }
    fn pin(&self, dir: &Path) -> io::Result<Arc<dyn Storage>> {
        let handle = self.open_shared(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Arc::new(Disk { pinned: Some((handle, dir.to_path_buf())) }))
    }
}

#[derive(Debug)]
struct DiskFile(Descriptor);

impl StoreFile for DiskFile {
    fn is_here(&self) -> bool {
        self.0.file().is_ok()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.file()?.read_at(buf, offset)
    }
    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let buf = &mut [IoSliceMut::new(buf)];
        match rustix::io::preadv2(self.0.file()?, buf, offset, ReadWriteFlags::NOWAIT) {
            // A file system that does not know the flag: as well as any, it may have to wait.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Err(io::ErrorKind::WouldBlock.into()),
            done => Ok(done?),
        }
    }
    fn will_need(&self, offset: u64, len: u64) {
        if let Ok(file) = self.0.file() {
            let _ = rustix::fs::fadvise(file, offset, NonZeroU64::new(len), Advice::WillNeed);
        }
    }
    fn forget(&self) {
        if let Ok(file) = self.0.file() {
            // What is not on the disk yet cannot be forgotten.
            let _ = rustix::fs::fdatasync(file);
            let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
        }
    }
    fn is_in_memory(&self) -> bool {
        let Ok(file) = self.0.file() else { return false };
        rustix::fs::fstatfs(file).is_ok_and(|found| IN_MEMORY.contains(&(found.f_type as u32)))
    }
    fn map(&self, len: u64) -> Option<Mapped> {
        let mapped = self.0.file().and_then(|file| Mapped::new(file, len));
        mapped.inspect_err(|e| log::debug!("not mapped, but read: {e}")).ok()
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(self.0.file()?, bufs, offset)?)
    }
    fn size(&self) -> io::Result<u64> {
        // Less work for the system than all that `metadata` asks for; each batch asks.
        Ok(rustix::fs::fstat(self.0.file()?)?.st_size.try_into().unwrap_or(0))
    }
    fn modified(&self) -> io::Result<SystemTime> {
        self.0.file()?.metadata()?.modified()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.file()?.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.file()?.sync_data()
    }
    fn try_lock(&self, alone: bool) -> io::Result<bool> {
        let file = self.0.file()?;
        let tried = if alone { file.try_lock() } else { file.try_lock_shared() };
        match tried {
            Ok(()) => Ok(true),
            Err(std::fs::TryLockError::WouldBlock) => Ok(false),
            Err(std::fs::TryLockError::Error(e)) => Err(e),
        }
    }
    fn unlock(&self) -> io::Result<()> {
        self.0.file()?.unlock()
    }
    fn lock_holder(&self) -> Option<u32> {
        let meta = self.0.file().ok()?.metadata().ok()?;
        let (dev, ino) = (meta.dev(), meta.ino());
        let file = format!("{:02x}:{:02x}:{ino}", rustix::fs::major(dev), rustix::fs::minor(dev));
        // The list is not read at one moment: while others lock and unlock, a line can be missed.
        (0..3).find_map(|_| lock_holder(&std::fs::read_to_string("/proc/locks").ok()?, &file))
    }
}

/// Finds the first holder of a lock on `file` ("major:minor:inode") in the text of `/proc/locks`.
fn lock_holder(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        // "7: FLOCK  ADVISORY  WRITE 4242 fe:00:1081346 0 EOF"; one who waits has "->" in the second place.
        let mut words = line.split_whitespace().skip(1);
        let (kind, pid) = (words.next()?, words.nth(2)?);
        (kind == "FLOCK" && words.next()? == file).then(|| pid.parse().ok())?
    })
}

/// At most this many buffers go to the kernel in one call (Linux's `UIO_MAXIOV`).
const MAX_SLICES: usize = 1024;

/// Reads from `offset` of `file` until `buf` is full or the file ends; returns the bytes read. Goes on after short
/// reads and `EINTR`.
///
/// # Errors
/// [`Error::Io`] with the operating system's reason.
pub fn read_at_most(file: &dyn StoreFile, path: &Path, buf: &mut [u8], offset: u64) -> Result<usize> {
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io("read", path)(e)),
        }
    }
    Ok(done)
}

/// Fills `buf` from `offset` of `file`.
///
/// # Errors
/// [`Error::Corrupt`] if the file ends before the buffer is full, where `what` names what was being read;
/// [`Error::Io`] with the operating system's reason.
pub fn read_exact_at(file: &dyn StoreFile, path: &Path, buf: &mut [u8], offset: u64, what: &str) -> Result<()> {
    let done = read_at_most(file, path, buf, offset)?;
    if done < buf.len() {
        let (end, wanted) = (offset.saturating_add(done as u64), offset.saturating_add(buf.len() as u64));
        return Err(Error::corrupt(path, end, format!("the file ends here, but {what} reaches to byte {wanted}")));
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

/// Bytes that [`rewrite`] writes together.
const PIECE: u64 = 1 << 20;

/// Writes the bytes `from..to` of `file` over themselves, as far as the file reaches, so that the next sync makes them
/// durable. After a sync that failed, the kernel holds pages for clean that the disk does not have; a sync alone would
/// pass over them and succeed.
///
/// # Errors
/// [`Error::Io`] with the operating system's reason.
pub(crate) fn rewrite(file: &dyn StoreFile, path: &Path, mut from: u64, to: u64) -> Result<()> {
    let mut piece = Vec::new();
    while from < to {
        piece.resize(PIECE.min(to - from) as usize, 0);
        let n = read_at_most(file, path, &mut piece, from)?;
        piece.truncate(n);
        if n == 0 {
            return Ok(());
        }
        write_all_at(file, path, &mut [IoSlice::new(&piece)], from)?;
        from += n as u64;
    }
    Ok(())
}

/// A file from an offset on, read as a stream.
pub(crate) struct At<'a> {
    file: &'a dyn StoreFile,
    path: &'a Path,
    at: u64,
}

impl<'a> At<'a> {
    /// The file from `offset` on, through a buffer of `capacity` bytes.
    pub(crate) fn buffered(file: &'a dyn StoreFile, path: &'a Path, offset: u64, capacity: usize) -> BufReader<Self> {
        BufReader::with_capacity(capacity, At { file, path, at: offset })
    }

    /// The offset in the file of the next byte that the reader gives.
    pub(crate) fn position(input: &BufReader<Self>) -> u64 {
        input.get_ref().at - input.buffer().len() as u64
    }
}

impl Read for At<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = read_at_most(self.file, self.path, buf, self.at).map_err(io::Error::other)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// A file written as a stream, from an offset on.
pub(crate) struct Out<'a> {
    file: &'a dyn StoreFile,
    path: &'a Path,
    at: u64,
    waiting: Vec<u8>,
}

impl<'a> Out<'a> {
    /// Bytes that are written together.
    const BUFFER: usize = 1 << 20;

    pub(crate) fn new(file: &'a dyn StoreFile, path: &'a Path, offset: u64) -> Self {
        Out { file, path, at: offset, waiting: Vec::new() }
    }

    /// Writes `bytes` after what was written before.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.waiting.extend(bytes);
        if self.waiting.len() < Self::BUFFER { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<()> {
        write_all_at(self.file, self.path, &mut [IoSlice::new(&self.waiting)], self.at)?;
        self.at += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }

    /// Writes what waits; returns the offset after the last byte.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.flush()?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_read_from_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:5 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 22 fe:00:55 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 33 fe:00:5 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 44 fe:00:5 0 EOF\n\
                     nonsense\n";
        assert_eq!(lock_holder(locks, "fe:00:5"), Some(44));
        assert_eq!(lock_holder(locks, "fe:00:6"), None);
        let dir = tempfile::tempdir().unwrap();
        let file = Disk::default().create_new(&dir.path().join("f")).unwrap();
        assert_eq!(file.lock_holder(), None);
        assert!(file.try_lock(true).unwrap());
        assert_eq!(file.lock_holder(), Some(std::process::id()));
        let other = Disk::default().open(&dir.path().join("f")).unwrap();
        assert!(!other.try_lock(false).unwrap());
        file.unlock().unwrap();
        assert!(other.try_lock(false).unwrap());
    }
}
