//! The server goes to its reader's processor.
//!
//! A reader that waits for an answer leaves its processor idle, and the scheduler wakes the server on another one, which is
//! idle, too: the request and the answer each wake a sleeping processor, which costs more than the work between them. On
//! the reader's own processor the two take turns and no processor is woken. So while one thread alone asks, again and
//! again, for little, the threads that serve are bound to the processor on which it runs; anything else frees them:
//! another reader, or large answers, which the reader uses while the next one is made.
//!
//! Only the threads that serve are bound. What works ahead of readers, and what shares out gathers, goes where it likes.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Requests of one thread, and of no other, before it is followed.
const STEADY: u64 = 32;
/// After so many more, where it runs is looked at again.
const AGAIN: u64 = 64;
/// A batch that is gathered counts as so many requests before its reader is followed: who asks for batches does little else.
const GATHER: u64 = 8;
/// Answers of more bytes are no reason to follow: meanwhile the reader has the bytes before them to work on.
const LITTLE: usize = 300 << 10;
/// Stands for all processors.
const FREE: u32 = u32::MAX;

thread_local! {
    /// The processor that this thread is bound to.
    static BOUND: Cell<u32> = const { Cell::new(FREE) };
}

/// Where the threads that serve a mount run.
#[derive(Debug)]
pub struct Follower {
    /// The processors that there were at the start; `None` where there is only one, or where they aren't known.
    all: Option<CpuSet>,
    /// The thread that asked last.
    reader: AtomicU32,
    /// Requests that it made since another one asked.
    requests: AtomicU64,
    /// At so many of them, where it runs is looked at.
    look: AtomicU64,
    /// The processor to serve on.
    home: AtomicU32,
}

impl Default for Follower {
    fn default() -> Self {
        let all = sched_getaffinity(None).ok().filter(|all| all.count() > 1);
        let [reader, home] = [0, FREE].map(AtomicU32::new);
        Follower { all, reader, requests: AtomicU64::new(0), look: AtomicU64::new(STEADY), home }
    }
}

impl Follower {
    /// Notes that the thread `reader` is given `bytes`, and binds or frees the calling thread, which serves.
    ///
    /// What several serving threads note at once may be mixed up; that costs a move, never an answer.
    pub fn served(&self, reader: u32, bytes: usize) {
        self.asked(reader, if bytes > LITTLE { None } else { Some(1) });
    }

    /// The same for a batch that is gathered into the reader's memory.
    pub fn gathered(&self, reader: u32) {
        self.asked(reader, Some(GATHER));
    }

    /// `None` is something that is no reason to follow.
    fn asked(&self, reader: u32, requests: Option<u64>) {
        let Some(all) = &self.all else { return };
        let known = reader != 0 && self.reader.load(Ordering::Relaxed) == reader;
        match requests {
            Some(more) if known => {
                let is_followed = self.home.load(Ordering::Relaxed) != FREE;
                let n = self.requests.fetch_add(if is_followed { 1 } else { more }, Ordering::Relaxed);
                if n >= self.look.load(Ordering::Relaxed) {
                    self.look.store(n + AGAIN, Ordering::Relaxed);
                    let home = processor_of(reader).filter(|&cpu| all.is_set(cpu as usize));
                    self.home.store(home.unwrap_or(FREE), Ordering::Relaxed);
                }
            }
            _ => {
                self.reader.store(reader, Ordering::Relaxed);
                self.requests.store(0, Ordering::Relaxed);
                self.look.store(STEADY, Ordering::Relaxed);
                self.home.store(FREE, Ordering::Relaxed);
            }
        }
        bind(self.home.load(Ordering::Relaxed), all);
    }
}

/// Binds the calling thread to a processor, or frees it.
fn bind(home: u32, all: &CpuSet) {
    if BOUND.get() == home {
        return;
    }
    let mut set = *all;
    if home != FREE {
        set.clear();
        set.set(home as usize);
    }
    // Where it is refused (a container's rules), it is not asked for again until the reader moves.
    if let Err(e) = sched_setaffinity(None, &set) {
        log::debug!("a serving thread stays where it is: {e}");
    }
    BOUND.set(home);
}

/// The processor that a thread ran on last; `None` if it is not seen from here, or gone.
fn processor_of(thread: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    // The name, in parentheses, may hold anything; the processor is the 39th field, the 37th after it.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::gettid;

    fn allowed() -> u32 {
        sched_getaffinity(None).unwrap().count()
    }

    /// On threads of their own, for they are bound.
    fn on_a_thread(run: impl FnOnce(&Follower, u32) + Send) {
        let reader = gettid().as_raw_pid() as u32;
        std::thread::scope(|scope| scope.spawn(|| run(&Follower::default(), reader)).join().unwrap());
    }

    #[test]
    fn a_steady_reader_is_followed_and_another_frees() {
        on_a_thread(|follower, reader| {
            let all = allowed();
            (0..STEADY).for_each(|_| follower.served(reader, 4096));
            assert_eq!(allowed(), all, "not yet");
            (0..2).for_each(|_| follower.served(reader, 4096));
            assert_eq!(allowed(), 1);
            follower.served(reader + 1, 4096);
            assert_eq!(allowed(), all);
        });
    }

    #[test]
    fn who_asks_for_batches_is_followed_soon() {
        on_a_thread(|follower, reader| {
            let all = allowed();
            (0..STEADY / GATHER).for_each(|_| follower.gathered(reader));
            assert_eq!(allowed(), all, "not yet");
            (0..2).for_each(|_| follower.gathered(reader));
            assert_eq!(allowed(), 1);
        });
    }

    #[test]
    fn large_answers_free_and_unknown_readers_are_not_followed() {
        on_a_thread(|follower, reader| {
            let all = allowed();
            (0..2 * STEADY).for_each(|_| follower.served(reader, 4096));
            assert_eq!(allowed(), 1);
            follower.served(reader, LITTLE + 1);
            assert_eq!(allowed(), all);
            // Of a kernel's own requests, and of readers that are gone.
            for reader in [0, u32::MAX - 1] {
                (0..4 * STEADY).for_each(|_| follower.served(reader, 0));
                assert_eq!(allowed(), all);
            }
        });
    }

    #[test]
    fn threads_have_a_processor() {
        let me = gettid().as_raw_pid() as u32;
        assert!(processor_of(me).is_some());
        assert_eq!(processor_of(u32::MAX - 1), None);
    }
}
