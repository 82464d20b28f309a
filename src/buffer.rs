//! Batch buffers that are used again and again.
//!
//! The page faults of fresh memory cost more than filling it does, so buffers go back to their pool when they are
//! dropped, and large ones lie on huge pages, where a fault makes 2 MiB at a time.

use crate::error::{Error, Result};
use crate::fork::Maker;
use memmap2::{Advice, MmapMut};
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, MutexGuard};

/// The size of a huge page on most machines. Buffers from this size on ask for such pages.
const HUGE: usize = 2 << 20;
/// Buffers from this size on take whole huge pages: at most an eighth more than they need.
const WHOLE: usize = 8 * HUGE;
const PAGE: usize = 4 << 10;

/// Where buffers come from, and return to. Clones are the same pool.
#[derive(Debug, Clone)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    keep: usize,
    maker: Maker,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Buffers that nobody has, the one returned last at the end: its bytes are the likeliest to be in a cache.
    free: Vec<MmapMut>,
    /// How many there are, free or not.
    live: usize,
}

impl BufferPool {
    /// A pool that keeps at most `keep` buffers, those in use included. More can be in use; they are given back to the
    /// system when they return.
    pub fn new(keep: usize) -> Self {
        BufferPool { shared: Arc::new(Shared { keep, maker: Maker::here(), state: Mutex::default() }) }
    }

    /// A buffer of `len` bytes that starts at a page's boundary. What is in it is unspecified: zeros, or what it was
    /// used for before.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no memory for it.
    pub fn get(&self, len: usize) -> Result<Buffer> {
        let fits = |memory: &MmapMut| memory.len() >= len;
        let (found, outgrown) = match self.shared.lock() {
            Some(mut state) => {
                let found = state.free.iter().rposition(fits).map(|k| state.free.remove(k));
                // In place of one that is too small there will be a larger one.
                let outgrown = if found.is_none() { state.free.pop() } else { None };
                if found.is_none() && outgrown.is_none() {
                    state.live += 1;
                }
                (found, outgrown)
            }
            None => (None, None),
        };
        let memory = match found {
            Some(memory) => Some(memory),
            None => {
                let mut least = PAGE;
                if let Some(outgrown) = outgrown {
                    // Batches that differ a little in size are not to outgrow it again and again.
                    least = outgrown.len();
                    least += least / 8;
                }
                match allocate(len.max(least)) {
                    Ok(memory) => Some(memory),
                    Err(e) => {
                        if let Some(mut state) = self.shared.lock() {
                            state.live -= 1;
                        }
                        return Err(Error::invalid(format!("there is no memory for a batch of {len} bytes: {e}")));
                    }
                }
            }
        };
        Ok(Buffer { memory, place: 0..len, home: Home::Pool(self.clone()) })
    }

    /// How many buffers there are, in use or waiting to be used again.
    pub fn live(&self) -> usize {
        self.shared.lock().map_or(0, |state| state.live)
    }
}

impl Shared {
    /// `None` in a forked child, whose copies of buffers are not worth keeping.
    fn lock(&self) -> Option<MutexGuard<'_, State>> {
        if self.maker.is_here() { self.maker.lock(&self.state) } else { None }
    }
}

/// Fresh memory of at least `len` bytes.
fn allocate(len: usize) -> std::io::Result<MmapMut> {
    let unit = if len < WHOLE { PAGE } else { HUGE };
    let rounded = len.checked_next_multiple_of(unit).ok_or(std::io::ErrorKind::OutOfMemory)?;
    let memory = MmapMut::map_anon(rounded)?;
    if rounded >= HUGE {
        // Only a wish: a kernel without huge pages, or told to give none, gives small ones.
        let _ = memory.advise(Advice::HugePage);
    }
    Ok(memory)
}

/// Bytes of a [`BufferPool`], or of memory that is shared with a mount, to which they return when this is dropped.
#[derive(Debug)]
pub struct Buffer {
    /// `None` only while it is dropped.
    memory: Option<MmapMut>,
    /// Which of it are its bytes.
    place: Range<usize>,
    home: Home,
}

/// Where the memory of a buffer goes back to.
#[derive(Debug)]
enum Home {
    Pool(BufferPool),
    Lender(Box<dyn Lender>),
}

/// Who lends memory for a buffer.
pub(crate) trait Lender: std::fmt::Debug + Send + Sync {
    /// Takes it back.
    fn give_back(&mut self, memory: MmapMut);
}

impl Buffer {
    /// The bytes at `place` of memory that is lent; `None` if it has not so many, and then it is back.
    pub(crate) fn lent(memory: MmapMut, place: Range<usize>, mut lender: Box<dyn Lender>) -> Option<Buffer> {
        if memory.get(place.clone()).is_none() {
            lender.give_back(memory);
            return None;
        }
        Some(Buffer { memory: Some(memory), place, home: Home::Lender(lender) })
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_ref().and_then(|memory| memory.get(self.place.clone())).unwrap_or_default()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().and_then(|memory| memory.get_mut(self.place.clone())).unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Unmapping is left to the end, after the lock.
        let mut memory = self.memory.take();
        let pool = match &mut self.home {
            Home::Pool(pool) => pool,
            Home::Lender(lender) => return memory.into_iter().for_each(|memory| lender.give_back(memory)),
        };
        let shared = &pool.shared;
        if let Some(mut state) = shared.lock() {
            if state.live > shared.keep {
                state.live -= 1;
            } else {
                state.free.extend(memory.take());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returned_buffer_is_used_again() {
        let pool = BufferPool::new(2);
        let mut first = pool.get(10).unwrap();
        first.copy_from_slice(&[7; 10]);
        let place = first.as_ptr();
        assert_eq!(place.align_offset(4096), 0);
        drop(first);
        let again = pool.get(4096).unwrap();
        assert_eq!((again.as_ptr(), again.len(), &again[..10]), (place, 4096, &[7; 10][..]));
        // In use, so the next one is another.
        assert_ne!(pool.get(1).unwrap().as_ptr(), place);
        assert_eq!(pool.live(), 2);
    }

    #[test]
    fn no_more_are_kept_than_it_says() {
        let pool = BufferPool::new(2);
        let many: Vec<Buffer> = (0..5).map(|_| pool.get(100).unwrap()).collect();
        assert_eq!(pool.live(), 5);
        drop(many);
        assert_eq!((pool.live(), pool.shared.lock().unwrap().free.len()), (2, 2));
        let none = BufferPool::new(0);
        drop(none.get(100).unwrap());
        assert_eq!(none.live(), 0);
    }

    #[test]
    fn one_that_is_too_small_is_replaced() {
        let pool = BufferPool::new(4);
        drop(pool.get(5000).unwrap());
        let large = pool.get(100_000).unwrap();
        assert_eq!((pool.live(), large.len()), (1, 100_000));
        drop(large);
        // Sizes that creep upwards do not outgrow it each time.
        let places: Vec<*const u8> = (0..10).map(|k| pool.get(100_000 + k * 1000).unwrap().as_ptr()).collect();
        let mut distinct = places.clone();
        distinct.dedup();
        assert!(distinct.len() <= 3, "{places:?}");
        assert_eq!(pool.live(), 1);
        // The smallest that is large enough is not looked for, but one that is large enough is.
        let (small, large) = (pool.get(10).unwrap(), pool.get(3 << 20).unwrap());
        drop(large);
        drop(small);
        assert_eq!(pool.get(3 << 20).unwrap().len(), 3 << 20);
        assert_eq!(pool.live(), 2);
    }

    #[test]
    fn nothing_and_too_much() {
        let pool = BufferPool::new(1);
        assert_eq!(pool.get(0).unwrap().len(), 0);
        for len in [usize::MAX, isize::MAX as usize, 1 << 60] {
            let text = pool.get(len).unwrap_err().to_string();
            assert!(text.contains(&len.to_string()), "{text}");
        }
        assert!(pool.live() <= 1);
        drop(pool.get(100).unwrap());
    }
}
