//! A storage that is one file in memory.

use super::super::Tree;
use crate::error::Result;
use crate::storage::{Storage, StoreFile};
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// One file in memory under every name.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory(pub(super) Arc<Mutex<Option<Vec<u8>>>>);

impl Memory {
    pub(super) fn with(bytes: &[u8]) -> Memory {
        Memory(Arc::new(Mutex::new(Some(bytes.to_vec()))))
    }
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone().unwrap()
    }
    pub(super) fn open(&self) -> Result<Tree> {
        Tree::open(self, Path::new("tree.zr"))
    }
}

impl Storage for Memory {
    fn open(&self, _: &Path) -> io::Result<Arc<dyn StoreFile>> {
        Ok(Arc::new(self.clone()))
    }
    fn open_rw(&self, _: &Path) -> io::Result<Arc<dyn StoreFile>> {
        Ok(Arc::new(self.clone()))
    }
    fn open_dir(&self, _: &Path) -> io::Result<Arc<dyn StoreFile>> {
        Ok(Arc::new(self.clone()))
    }
    fn create_new(&self, _: &Path) -> io::Result<Arc<dyn StoreFile>> {
        let mut bytes = self.0.lock().unwrap();
        if bytes.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        *bytes = Some(Vec::new());
        Ok(Arc::new(self.clone()))
    }
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn list(&self, _: &Path) -> io::Result<Vec<OsString>> {
        Ok(Vec::new())
    }
    fn remove(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn pin(&self, _: &Path) -> io::Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.clone()))
    }
}

impl StoreFile for Memory {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.0.lock().unwrap();
        let rest = bytes.as_ref().unwrap().get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let mut bytes = self.0.lock().unwrap();
        let bytes = bytes.as_mut().unwrap();
        let new: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
        let end = offset as usize + new.len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset as usize..end].copy_from_slice(&new);
        Ok(new.len())
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().as_ref().unwrap().len() as u64)
    }
    fn modified(&self) -> io::Result<std::time::SystemTime> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
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
