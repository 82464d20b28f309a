//! A bounded cache of the names that look-ups compare with first.
//!
//! A binary search in a directory of a million goes through the same few thousand names before it comes down to one
//! block. Through the cache of blocks alone each of those names would hold a block of nodes and a block of names, far
//! more than it may keep, and a look-up would read a dozen blocks. Kept as names, they cost some 100 bytes each, and
//! a look-up reads two or three blocks whatever the directory's size.

use crate::fork::Cached;
use lru::LruCache;
use std::cmp::Ordering;

/// Names kept, over all shards: every step of a search among 2^20 but the last six, or among a thousand directories
/// of a thousand each. About 2 MiB with names of ordinary length, 6 MiB if every name has 255 bytes.
const NAMES: usize = 16 << 10;
/// Shards, each behind its own lock.
const SHARDS: usize = 8;

/// A node's directory and name, by the node's id.
type Shard = Cached<LruCache<u64, (u64, Box<[u8]>)>>;

/// The names; only those of nodes that passed all of their checks are put in.
#[derive(Debug)]
pub(super) struct Probes {
    shards: Box<[Shard]>,
}

impl Probes {
    pub(super) fn new() -> Probes {
        // Unbounded and trimmed on insertion, as the bounded kind would claim its table now.
        Probes { shards: (0..SHARDS).map(|_| Cached::new(LruCache::unbounded)).collect() }
    }

    fn shard(&self, id: u64) -> Option<&Shard> {
        // Probes of one directory are a power of two apart at each level, so the low bits alone would favour a shard.
        let mixed = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        self.shards.get(usize::try_from(mixed).unwrap_or_default().checked_rem(SHARDS)?)
    }

    /// How the name of node `id`, a child of `dir`, compares with `name`; `None` if it is not kept.
    pub(super) fn compare(&self, dir: u64, id: u64, name: &[u8]) -> Option<Ordering> {
        let mut shard = self.shard(id)?.lock();
        let (parent, kept) = shard.get(&id)?;
        (*parent == dir).then(|| kept.as_ref().cmp(name))
    }

    /// Keeps the name of node `id`, a child of `dir`.
    pub(super) fn keep(&self, dir: u64, id: u64, name: &[u8]) {
        let Some(shard) = self.shard(id) else { return };
        let mut shard = shard.lock();
        shard.put(id, (dir, name.into()));
        if shard.len() > NAMES / SHARDS {
            shard.pop_lru();
        }
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.shards.iter().map(|s| s.lock().len()).sum()
    }
}
