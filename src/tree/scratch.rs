//! A file without a name that a builder appends to and later reads back: entries on disk in place of in memory.

use crate::error::{Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes collected before they are written.
const TAIL: usize = 256 << 10;
/// Bytes read at once: some 16 entries, so that those which come back in the order they arrived cost few reads, and
/// those which don't cost little each.
const BLOCK: usize = 1 << 10;
/// Blocks a reader keeps, each in the place its number gives: 4 MiB.
const BLOCKS: usize = 4096;

/// The file while it is appended to. It has no name, so nothing is left behind however the process ends.
#[derive(Debug)]
pub(super) struct Scratch {
    file: File,
    dir: PathBuf,
    /// Bytes before `tail`, all of them in the file.
    flushed: u64,
    tail: Vec<u8>,
}

impl Scratch {
    pub(super) fn new(dir: &Path) -> Result<Scratch> {
        let file = tempfile::tempfile_in(dir).map_err(Error::io("create a scratch file in", dir))?;
        Ok(Scratch { file, dir: dir.to_path_buf(), flushed: 0, tail: Vec::with_capacity(TAIL) })
    }

    /// Appends all of `parts`, or after an error none, and returns where they start.
    pub(super) fn push(&mut self, parts: &[&[u8]]) -> Result<u64> {
        if self.tail.len() >= TAIL {
            self.flush()?;
        }
        let at = self.flushed + self.tail.len() as u64;
        for part in parts {
            self.tail.extend_from_slice(part);
        }
        Ok(at)
    }

    fn flush(&mut self) -> Result<()> {
        self.file.write_all_at(&self.tail, self.flushed).map_err(Error::io("write a scratch file in", &self.dir))?;
        self.flushed += self.tail.len() as u64;
        self.tail.clear();
        Ok(())
    }

    /// Replaces bytes that were pushed in one call; `update` gets them and changes them.
    pub(super) fn update<const N: usize>(&mut self, at: u64, update: impl FnOnce(&mut [u8; N])) -> Result<()> {
        let mut bytes = [0; N];
        // What one call pushed is wholly in the file or wholly in the tail.
        if let Some(start) = at.checked_sub(self.flushed) {
            let slot = &mut self.tail[start as usize..start as usize + N];
            bytes.copy_from_slice(slot);
            update(&mut bytes);
            slot.copy_from_slice(&bytes);
            return Ok(());
        }
        self.file.read_exact_at(&mut bytes, at).map_err(Error::io("read a scratch file in", &self.dir))?;
        update(&mut bytes);
        self.file.write_all_at(&bytes, at).map_err(Error::io("write a scratch file in", &self.dir))
    }

    /// Ends the appending.
    pub(super) fn into_reader(mut self) -> Result<Reader> {
        self.flush()?;
        Ok(Reader { file: self.file, dir: self.dir, len: self.flushed, blocks: vec![None; BLOCKS] })
    }
}

/// The file when it is complete.
#[derive(Debug)]
pub(super) struct Reader {
    file: File,
    dir: PathBuf,
    len: u64,
    blocks: Vec<Option<(u64, Vec<u8>)>>,
}

impl Reader {
    /// Appends the `len` bytes at `at` to `into`.
    pub(super) fn read(&mut self, mut at: u64, mut len: usize, into: &mut Vec<u8>) -> Result<()> {
        while len > 0 {
            let (number, within) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let slot = &mut self.blocks[(number % BLOCKS as u64) as usize];
            if slot.as_ref().is_none_or(|(have, _)| *have != number) {
                let mut block = slot.take().map(|(_, block)| block).unwrap_or_default();
                let start = number * BLOCK as u64;
                block.resize(self.len.saturating_sub(start).min(BLOCK as u64) as usize, 0);
                self.file.read_exact_at(&mut block, start).map_err(Error::io("read a scratch file in", &self.dir))?;
                *slot = Some((number, block));
            }
            let some = slot.as_ref().and_then(|(_, block)| block.get(within..)).unwrap_or_default();
            let some = &some[..len.min(some.len())];
            if some.is_empty() {
                let end = std::io::ErrorKind::UnexpectedEof.into();
                return Err(Error::io("read a scratch file in", &self.dir)(end));
            }
            into.extend_from_slice(some);
            at += some.len() as u64;
            len -= some.len();
        }
        Ok(())
    }
}
