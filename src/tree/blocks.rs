//! A bounded cache of a file's blocks, shared by all threads that read a tree.
//!
//! Blocks are small because what a look-up reads is scattered: larger ones would copy bytes that nobody asked for. A
//! listing is sequential, so the kernel's read-ahead makes small blocks cheap.

use crate::error::Result;
use crate::fork::Cached;
use crate::format::tree::NODE_LEN;
use crate::storage::{StoreFile, read_exact_at};
use lru::LruCache;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a block: a whole number of nodes.
pub(super) const BLOCK: u64 = 4 << 10;
/// Nodes in a block.
pub(super) const BLOCK_NODES: u64 = BLOCK / NODE_LEN as u64;
/// Shards, each behind its own lock. Neighbouring blocks are in different ones.
const SHARDS: u64 = 8;
/// Blocks a shard keeps: 2 MiB in all.
const SHARD_BLOCKS: NonZeroUsize = NonZeroUsize::new((2 << 20) / (BLOCK * SHARDS) as usize).unwrap();

type Shard = Cached<LruCache<u64, Arc<[u8]>>>;

/// A file of known length, read by blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    file: Arc<dyn StoreFile>,
    path: PathBuf,
    len: u64,
    shards: Box<[Shard]>,
}

impl Blocks {
    /// The first `len` bytes of `file`; `path` is for errors.
    pub(super) fn new(file: Arc<dyn StoreFile>, path: &Path, len: u64) -> Blocks {
        // Unbounded and trimmed on insertion, as the bounded kind would claim all its memory now.
        let shards = (0..SHARDS).map(|_| Cached::new(LruCache::unbounded)).collect();
        Blocks { file, path: path.to_path_buf(), len, shards }
    }

    pub(super) fn file(&self) -> &dyn StoreFile {
        &*self.file
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Block `number`, bytes `number * BLOCK` on; the last one is as short as the file is, and one beyond it is empty.
    ///
    /// # Errors
    /// The file cannot be read, or became shorter since it was opened.
    fn block(&self, number: u64) -> Result<Arc<[u8]>> {
        let index = usize::try_from(number.rem_euclid(SHARDS)).unwrap_or_default();
        let Some(shard) = self.shards.get(index) else { return Ok(Arc::default()) };
        if let Some(block) = shard.lock().get(&number) {
            return Ok(Arc::clone(block));
        }
        // Read without the lock: two threads may read the same block, none waits for another's disk.
        let start = number.saturating_mul(BLOCK);
        let bytes = usize::try_from(self.len.saturating_sub(start).min(BLOCK)).unwrap_or_default();
        let mut block: Arc<[u8]> = std::iter::repeat_n(0, bytes).collect();
        if let Some(buf) = Arc::get_mut(&mut block) {
            read_exact_at(&*self.file, &self.path, buf, start, "the tree index")?;
        }
        let mut cache = shard.lock();
        cache.put(number, Arc::clone(&block));
        if cache.len() > SHARD_BLOCKS.get() {
            cache.pop_lru();
        }
        Ok(block)
    }

    #[cfg(test)]
    pub(super) fn cached_bytes(&self) -> usize {
        self.shards.iter().map(|s| s.lock().iter().map(|(_, b)| b.len()).sum::<usize>()).sum()
    }
}

/// One reader's place in a file: it holds the block it used last, so reading on in it takes no lock.
#[derive(Debug, Default)]
pub(super) struct Slot {
    number: u64,
    block: Option<Arc<[u8]>>,
}

impl Slot {
    /// The bytes from `offset` to the end of its block; empty only at the end of the file.
    pub(super) fn at(&mut self, blocks: &Blocks, offset: u64) -> Result<&[u8]> {
        let number = offset.div_euclid(BLOCK);
        let block = match self.block.take() {
            Some(block) if self.number == number => block,
            _ => blocks.block(number)?,
        };
        self.number = number;
        let within = usize::try_from(offset.rem_euclid(BLOCK)).unwrap_or(usize::MAX);
        Ok(self.block.insert(block).get(within..).unwrap_or_default())
    }

    /// Replaces `into` with the `len` bytes at `offset`. Callers bound `len` by what the format allows.
    ///
    /// # Errors
    /// Those of reading a block. At the end of the file `into` is shorter than `len`.
    pub(super) fn copy(&mut self, blocks: &Blocks, mut offset: u64, len: usize, into: &mut Vec<u8>) -> Result<()> {
        into.clear();
        while into.len() < len {
            let some = self.at(blocks, offset)?;
            if some.is_empty() {
                break;
            }
            let some = some.get(..len.saturating_sub(into.len())).unwrap_or(some);
            into.extend_from_slice(some);
            offset = offset.saturating_add(some.len() as u64);
        }
        Ok(())
    }
}
