//! The fuzz targets, each a module with a function that takes any bytes, and what they share: files in memory.
//!
//! `fuzz_targets` runs them under libFuzzer; `tests/fuzz.rs` in the main crate runs them on mutated golden stores, for a
//! minute, on any machine.

pub mod dataset;
pub mod dictionary;
pub mod header_table_schema;
pub mod npy_idx;
pub mod side_files;
pub mod store;
pub mod tree_index;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
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
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let below = |path: &PathBuf| Some(path.strip_prefix(dir).ok()?.iter().next()?.to_os_string());
        let mut names: Vec<OsString> = self.0.keys().filter_map(below).collect();
        names.sort();
        names.dedup();
        Ok(names)
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
    /// Time stands still here.
    fn modified(&self) -> io::Result<SystemTime> {
        Ok(UNIX_EPOCH + Duration::new(1, 1))
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
