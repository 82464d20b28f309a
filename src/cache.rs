//! Decoded records, kept in memory up to a budget of bytes.
//!
//! Whoever reads a large compressed record in pieces decodes it once. A record's bytes are accounted for before they
//! are allocated, so the cache never exceeds its budget, not even while records are being decoded; a record that finds
//! no room is decoded for its caller alone and forgotten.

use crate::error::Result;
use lru::LruCache;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Which record: the number of its stream, and its index there.
pub type Key = (u32, u64);

/// What an entry costs beside its record's bytes: the map's node and the allocation's header, rounded up.
const OVERHEAD: u64 = 256;

/// A cache of decoded records; threads share it freely.
#[derive(Debug)]
pub struct DecodedCache {
    budget: u64,
    state: Mutex<State>,
    /// Signalled when a decode ends, well or not.
    decoded: Condvar,
}

#[derive(Debug)]
struct State {
    entries: LruCache<Key, Slot>,
    used: u64,
}

#[derive(Debug)]
enum Slot {
    /// Some thread decodes it; its bytes are accounted for.
    Pending,
    /// There it is. Clones are made under the lock only, so a count of 1 seen under the lock means nobody reads it.
    Ready(Arc<Vec<u8>>),
}

impl DecodedCache {
    /// A cache of at most `budget` bytes. With a budget of 0 it keeps nothing.
    pub fn new(budget: u64) -> Self {
        let state = State { entries: LruCache::unbounded(), used: 0 };
        DecodedCache { budget, state: Mutex::new(state), decoded: Condvar::new() }
    }

    /// The budget in bytes.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes accounted for at present: what is kept and what is being decoded.
    pub fn used(&self) -> u64 {
        self.lock().used
    }

    /// The record `key` of `length` bytes, decoded by `decode` if it is not here. Of threads that ask for the same
    /// record at the same time one decodes, the others wait for it.
    ///
    /// A record without room (larger than the budget, or everything else is being read at the moment) is decoded for
    /// this caller alone.
    ///
    /// # Errors
    /// Those of `decode`. A failure is not kept: the next caller decodes again.
    pub fn get(&self, key: Key, length: u64, decode: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Arc<Vec<u8>>> {
        match self.get_or_reserve(key, length) {
            Found::Ready(bytes) => Ok(bytes),
            Found::Room(pending) => pending.fill(length, decode),
            Found::NoRoom => decode_new(length, decode).map(Arc::new),
        }
    }

    /// The same, but `None` for what finds no room, for callers who can do without all of it in memory.
    ///
    /// # Errors
    /// As [`get`](DecodedCache::get).
    pub fn get_if_room(
        &self,
        key: Key,
        length: u64,
        decode: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Option<Arc<Vec<u8>>>> {
        match self.get_or_reserve(key, length) {
            Found::Ready(bytes) => Ok(Some(bytes)),
            Found::Room(pending) => pending.fill(length, decode).map(Some),
            Found::NoRoom => Ok(None),
        }
    }

    /// Waits for the record where it is being decoded; where nobody does that, room for it.
    fn get_or_reserve(&self, key: Key, length: u64) -> Found<'_> {
        let cost = length.saturating_add(OVERHEAD);
        let mut state = self.lock();
        loop {
            match state.entries.get(&key) {
                Some(Slot::Ready(bytes)) => return Found::Ready(bytes.clone()),
                Some(Slot::Pending) => state = self.decoded.wait(state).unwrap_or_else(PoisonError::into_inner),
                None => break,
            }
        }
        if !state.make_room(cost, self.budget) {
            return Found::NoRoom;
        }
        state.used += cost;
        state.entries.put(key, Slot::Pending);
        Found::Room(Pending { cache: self, key, cost, done: None })
    }

    /// The record `key` if it is here, or as soon as the thread that decodes it is done; `None` if nobody decodes it.
    pub fn join(&self, key: Key) -> Option<Arc<Vec<u8>>> {
        let mut state = self.lock();
        loop {
            match state.entries.get(&key)? {
                Slot::Ready(bytes) => return Some(bytes.clone()),
                Slot::Pending => state = self.decoded.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Drops the record `key`, if it is here and nobody reads it: whoever asked for it won't ask again.
    pub fn forget(&self, key: Key) {
        let mut state = self.lock();
        if let Some(Slot::Ready(bytes)) = state.entries.peek(&key)
            && Arc::strong_count(bytes) == 1
        {
            let freed = bytes.len() as u64 + OVERHEAD;
            state.entries.pop(&key);
            state.used = state.used.saturating_sub(freed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Drops what was used longest ago until `cost` bytes fit; `false` if they can't. What somebody reads at the moment
    /// stays, since dropping it would free nothing.
    fn make_room(&mut self, cost: u64, budget: u64) -> bool {
        if cost > budget {
            return false;
        }
        while self.used > budget - cost {
            let unread = self.entries.iter().rev().find_map(|(key, slot)| match slot {
                Slot::Ready(bytes) if Arc::strong_count(bytes) == 1 => Some((*key, bytes.len() as u64 + OVERHEAD)),
                _ => None,
            });
            let Some((key, freed)) = unread else { return false };
            self.entries.pop(&key);
            self.used = self.used.saturating_sub(freed);
        }
        true
    }
}

/// What a record was found to be.
enum Found<'a> {
    Ready(Arc<Vec<u8>>),
    /// Nobody has it; its bytes are accounted for.
    Room(Pending<'a>),
    NoRoom,
}

/// A decode under way; when it is dropped, the cache learns how it ended.
struct Pending<'a> {
    cache: &'a DecodedCache,
    key: Key,
    cost: u64,
    done: Option<Arc<Vec<u8>>>,
}

impl Pending<'_> {
    /// Decodes it. The room is given back where that fails or panics; others must not wait for ever.
    fn fill(mut self, length: u64, decode: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Arc<Vec<u8>>> {
        let bytes = Arc::new(decode_new(length, decode)?);
        self.done = Some(bytes.clone());
        Ok(bytes)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.lock();
        match self.done.take() {
            Some(bytes) => {
                state.entries.put(self.key, Slot::Ready(bytes));
            }
            None => {
                state.entries.pop(&self.key);
                state.used = state.used.saturating_sub(self.cost);
            }
        }
        drop(state);
        self.cache.decoded.notify_all();
    }
}

fn decode_new(length: u64, decode: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Vec<u8>> {
    // A record's length is at most 2^31 and was checked against the store's header.
    let mut bytes = vec![0; length as usize];
    decode(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn fill(value: u8) -> impl FnOnce(&mut [u8]) -> Result<()> {
        move |bytes| {
            bytes.fill(value);
            Ok(())
        }
    }

    fn absent(_: &mut [u8]) -> Result<()> {
        Err(Error::invalid("not in the cache"))
    }

    #[test]
    fn keeps_what_fits_and_drops_the_oldest() {
        let cache = DecodedCache::new(2 * (1000 + OVERHEAD));
        for index in 0..3 {
            assert_eq!(*cache.get((0, index), 1000, fill(index as u8)).unwrap(), vec![index as u8; 1000]);
            assert!(cache.used() <= cache.budget());
        }
        assert_eq!(cache.get((0, 1), 1000, absent).unwrap()[0], 1);
        assert_eq!(cache.get((0, 2), 1000, absent).unwrap()[0], 2);
        assert!(cache.get((0, 0), 1000, absent).is_err(), "the oldest went");
        assert!(cache.get((1, 2), 1000, absent).is_err(), "another stream is another record");
    }

    #[test]
    fn a_record_without_room_is_served_and_forgotten() {
        let cache = DecodedCache::new(1000 + OVERHEAD);
        assert_eq!(cache.get((0, 0), 1001, fill(7)).unwrap().len(), 1001);
        assert_eq!(cache.used(), 0);
        let held = cache.get((0, 1), 1000, fill(1)).unwrap();
        assert_eq!(cache.get((0, 2), 10, fill(2)).unwrap().len(), 10, "served while another is held");
        assert_eq!(cache.used(), 1000 + OVERHEAD);
        assert!(cache.get((0, 2), 10, absent).is_err());
        drop(held);
        cache.get((0, 2), 10, fill(2)).unwrap();
        assert_eq!(cache.used(), 10 + OVERHEAD);
        assert_eq!(DecodedCache::new(0).get((0, 0), 1, fill(1)).unwrap().len(), 1);
        assert_eq!(cache.get_if_room((0, 3), 1001, |_| panic!("no room")).unwrap(), None);
        assert_eq!(*cache.get_if_room((0, 3), 10, fill(3)).unwrap().unwrap(), [3; 10]);
        assert_eq!(*cache.get_if_room((0, 3), 10, absent).unwrap().unwrap(), [3; 10]);
    }

    #[test]
    fn failures_and_panics_give_the_room_back() {
        let cache = DecodedCache::new(1 << 20);
        assert!(cache.get((0, 0), 10, absent).is_err());
        let caught =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cache.get((0, 0), 10, |_| panic!("decoder"))));
        assert!(caught.is_err());
        assert_eq!(cache.used(), 0);
        assert_eq!(cache.get((0, 0), 10, fill(3)).unwrap()[9], 3);
    }

    #[test]
    fn joins_what_is_decoded_and_forgets_what_nobody_reads() {
        let cache = DecodedCache::new(1 << 20);
        assert!(cache.join((0, 1)).is_none());
        let barrier = Barrier::new(2);
        std::thread::scope(|s| {
            s.spawn(|| {
                let decode = |bytes: &mut [u8]| {
                    barrier.wait();
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    fill(4)(bytes)
                };
                cache.get((0, 1), 10, decode).unwrap();
            });
            barrier.wait();
            let joined = cache.join((0, 1)).unwrap();
            assert_eq!(joined[9], 4);
            cache.forget((0, 1));
            assert_eq!(cache.used(), 10 + OVERHEAD, "it is being read");
        });
        cache.forget((0, 1));
        cache.forget((0, 2));
        assert_eq!(cache.used(), 0);
        assert!(cache.join((0, 1)).is_none());
    }

    #[test]
    fn one_thread_decodes_for_all() {
        let cache = DecodedCache::new(1 << 20);
        let (decodes, barrier) = (AtomicUsize::new(0), Barrier::new(8));
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    barrier.wait();
                    let bytes = cache.get((0, 5), 100, |bytes| {
                        decodes.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(std::time::Duration::from_millis(50));
                        fill(9)(bytes)
                    });
                    assert_eq!(bytes.unwrap()[99], 9);
                });
            }
        });
        assert_eq!(decodes.into_inner(), 1);
    }
}
