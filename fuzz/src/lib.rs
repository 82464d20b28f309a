//! What the fuzz targets share: files in memory.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zrfs::storage::{Storage, StoreFile};

/// A read-only file system in memory.
#[derive(Debug, Clone, Default)]
pub struct Memory(HashMap<PathBuf, Arc<[u8]>>);

impl Memory {
    /// Adds a file.
    pub fn put(&mut self, path: impl AsRef<Path>, bytes: &[u8]) {
        self.0.insert(path.as_ref().to_path_buf(), bytes.into());
    }
}

impl Storage for Memory {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>> {
        let bytes = self.0.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(MemoryFile(bytes.clone())))
    }
    fn open_rw(&self, _: &Path) -> io::Result<Arc<dyn StoreFile>> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn open_dir(&self, _: &Path) -> io::Result<Arc<dyn StoreFile>> {
        Ok(Arc::new(MemoryFile(Arc::default())))
    }
    fn create_new(&self, _: &Path) -> io::Result<Arc<dyn StoreFile>> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn list(&self, _: &Path) -> io::Result<Vec<OsString>> {
        Ok(self.0.keys().filter_map(|path| Some(path.file_name()?.to_os_string())).collect())
    }
    fn remove(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn pin(&self, _: &Path) -> io::Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.clone()))
    }
}

#[derive(Debug)]
struct MemoryFile(Arc<[u8]>);

impl StoreFile for MemoryFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.0.get(from..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
    fn write_vectored_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn try_lock(&self, _: bool) -> io::Result<bool> {
        Ok(true)
    }
    fn unlock(&self) -> io::Result<()> {
        Ok(())
    }
    fn lock_holder(&self) -> Option<u32> {
        None
    }
}

/// Takes `n` bytes off the front of `data`, or as many as there are.
pub fn take<'a>(data: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (front, rest) = data.split_at(n.min(data.len()));
    *data = rest;
    front
}
