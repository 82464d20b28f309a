//! The threads that work is shared out on: a pool of this process's own.
//!
//! A forked child has none of its parent's threads, and what its parent handed to a pool there would never be done. So
//! each process makes a pool of its own, when it first has something to share out. Nothing here waits for another thread:
//! while one makes the pool, or where none can be made, callers do their work themselves.

use crate::sys::{Team, this_process};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A process's pool, in the order of the processes: each inherits those before its own.
struct Slot {
    /// The number of the process, or 0 while there is none.
    process: AtomicU64,
    /// Set once it is made.
    team: OnceLock<Team>,
}

/// So many generations of processes that fork and then gather have a pool; those after them do without.
const GENERATIONS: usize = 32;
/// Items that are handled one by one are taken in so many pieces a thread, to even out those that take longer.
const PIECES: usize = 16;
/// Records, each of which takes some time, are cut into so many shares a thread.
const SHARES: usize = 8;

static SLOTS: [Slot; GENERATIONS] = [const { Slot { process: AtomicU64::new(0), team: OnceLock::new() } }; GENERATIONS];

/// What work is shared out on: the calling thread, and those that help it.
#[derive(Clone, Copy)]
pub(crate) struct Pool(Option<&'static Team>);

/// The pool of this process; the first call starts its threads.
pub(crate) fn pool() -> Pool {
    let process = this_process();
    for slot in &SLOTS {
        match slot.claim(process) {
            // This thread is the one to fill it, so setting it waits for nobody.
            Ok(_) => {
                let _ = slot.team.set(start());
                return Pool(slot.team.get());
            }
            Err(owner) if owner == process => return Pool(slot.team.get()),
            Err(_) => {}
        }
    }
    Pool(None)
}

impl Slot {
    /// Makes it that of a process; gives the one that has it already.
    fn claim(&self, process: u64) -> Result<u64, u64> {
        match self.process.load(Ordering::Acquire) {
            0 => self.process.compare_exchange(0, process, Ordering::AcqRel, Ordering::Acquire),
            owner => Err(owner),
        }
    }
}

/// On how many threads this process shares out work, the calling one included. The first call starts the others, and they
/// run on the processors that the calling thread may use: a program that binds its threads calls this before.
pub fn threads() -> usize {
    pool().threads()
}

fn start() -> Team {
    // The caller is one of them.
    Team::start(std::thread::available_parallelism().map_or(1, usize::from) - 1)
}

impl Pool {
    /// How many threads work, the caller's included.
    pub(crate) fn threads(self) -> usize {
        1 + self.0.map_or(0, Team::members)
    }

    /// Runs `work` on the calling thread and on others, all in all on up to `threads`, until it has ended on all of them.
    fn run(self, threads: usize, work: &(dyn Fn() + Sync)) {
        match self.0 {
            Some(team) if threads > 1 => team.with(threads - 1, work, work),
            _ => work(),
        }
    }

    /// What `work` makes of each item, in their order.
    pub(crate) fn map<T: Sync, R: Send>(self, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
        let size = items.len().div_ceil(self.threads() * PIECES).max(1);
        let (left, made) = (Mutex::new(items.chunks(size).enumerate()), Mutex::new(BTreeMap::new()));
        self.run(items.len().div_ceil(size), &|| {
            loop {
                // Taken in a statement of its own, which ends the lock.
                let Some((k, piece)) = lock(&left).next() else { break };
                let results: Vec<R> = piece.iter().map(&work).collect();
                lock(&made).insert(k, results);
            }
        });
        made.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().flatten().collect()
    }

    /// Does `work` on shares of the items; stops at an error, though not at once.
    ///
    /// Some shares a thread: small enough to even out items of different lengths.
    pub(crate) fn try_shares<T: Send, E: Send>(
        self,
        items: &mut [T],
        work: impl Fn(&mut [T]) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let size = items.len().div_ceil(self.threads() * SHARES).max(1);
        self.try_chunks(items, size, work)
    }

    /// Does `work` on each `size` items; stops at an error, though not at once.
    fn try_chunks<T: Send, E: Send>(
        self,
        items: &mut [T],
        size: usize,
        work: impl Fn(&mut [T]) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let threads = items.len().div_ceil(size);
        let (left, failed) = (Mutex::new(items.chunks_mut(size)), Mutex::new(None));
        self.run(threads, &|| {
            loop {
                let Some(chunk) = lock(&left).next() else { break };
                if let Err(e) = work(chunk) {
                    lock(&failed).get_or_insert(e);
                    lock(&left).by_ref().for_each(drop);
                }
            }
        });
        lock(&failed).take().map_or(Ok(()), Err)
    }

    /// Does `work` on each item on all threads, and hands what it makes to `take` on the calling thread, in the order of the
    /// items, as soon as it is there. Stops at the first error, though not at once.
    pub(crate) fn in_order<T: Sync, R: Send, E>(
        self,
        items: &[T],
        work: impl Fn(&T) -> R + Sync,
        mut take: impl FnMut(&T, R) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(team) = self.0.filter(|_| items.len() > 1) else {
            return items.iter().try_for_each(|item| take(item, work(item)));
        };
        let next = AtomicUsize::new(0);
        // Whoever takes an item tells what came of it, so that nobody waits for it in vain.
        let one = || {
            let k = next.fetch_add(1, Ordering::Relaxed);
            items.get(k).map(|item| (k, catch_unwind(AssertUnwindSafe(|| work(item)))))
        };
        let (done, inbox) = channel();
        let help = || {
            // Nobody listens after an error.
            while one().is_some_and(|made| done.send(made).is_ok()) {}
        };
        let here = || {
            let mut early = BTreeMap::new();
            for (k, item) in items.iter().enumerate() {
                let made = loop {
                    early.extend(inbox.try_iter());
                    if let Some(made) = early.remove(&k) {
                        break made;
                    }
                    // Instead of waiting for another thread, and being woken in the middle of its work, do as it does.
                    // Where nothing is left to do, another one has what is missed here.
                    if let Some((at, made)) = one().or_else(|| inbox.recv().ok()) {
                        early.insert(at, made);
                    }
                };
                let taken = made.map(|made| take(item, made));
                if !matches!(taken, Ok(Ok(()))) {
                    next.store(items.len(), Ordering::Relaxed);
                }
                taken.unwrap_or_else(|panic| resume_unwind(panic))?;
            }
            Ok(())
        };
        team.with((team.members()).min(items.len() - 1), &help, here)
    }
}

/// A panic in the work is passed on; what it left behind the lock is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;

    #[test]
    fn with_a_pool_and_without_it_is_the_same() {
        for pool in [pool(), Pool(None)] {
            let items: Vec<u64> = (0..1000).collect();
            assert_eq!(pool.map(&items, |i| i * 2), items.iter().map(|i| i * 2).collect::<Vec<_>>());
            let mut numbers = items.clone();
            pool.try_chunks(&mut numbers, 7, |some| {
                assert!(some.len() <= 7);
                some.iter_mut().for_each(|n| *n += 1);
                Ok::<(), ()>(())
            })
            .unwrap();
            assert!(numbers.iter().zip(&items).all(|(n, i)| *n == i + 1));
            assert_eq!(
                pool.try_chunks(&mut numbers, 7, |some| if some.contains(&500) { Err(5) } else { Ok(()) }),
                Err(5)
            );
        }
        assert!(pool().threads() >= 1 && Pool(None).threads() == 1);
    }

    #[test]
    fn results_come_in_order_and_stop_at_an_error() {
        let items: Vec<u64> = (0..500).collect();
        for pool in [pool(), Pool(None)] {
            let mut taken = Vec::new();
            let take = |item: &u64, made: u64| {
                assert_eq!(made, item * 3);
                taken.push(*item);
                if *item == 400 { Err("enough") } else { Ok(()) }
            };
            assert_eq!(pool.in_order(&items, |n| n * 3, take), Err("enough"));
            assert_eq!(taken, items[..=400]);
            let (mut sum, nothing): (u64, &[u64]) = (0, &[]);
            let add = |_: &u64, n| {
                sum += n;
                Ok::<(), ()>(())
            };
            assert_eq!(pool.in_order(&items, |n| n + 1, add), Ok(()));
            assert_eq!(sum, 500 * 501 / 2);
            assert_eq!(pool.in_order(nothing, |n| *n, |_, _| Err(())), Ok(()));
        }
        let panics = || pool().in_order(&items, |n| assert!(*n != 250), |_, ()| Ok::<(), ()>(()));
        assert!(catch_unwind(panics).is_err());
    }

    /// Callers with a pool of their own, whose threads all wait for ours at once.
    #[test]
    fn work_within_the_work_of_another_pool_ends() {
        let outer: Vec<u64> = (0..20_000).collect();
        let callers = rayon::ThreadPoolBuilder::new().num_threads(4).stack_size(256 << 10).build().unwrap();
        let inner: Vec<u64> = (0..100).collect();
        let one = |n: &u64| pool().map(&inner, |i| i + n).iter().sum::<u64>();
        let sums: Vec<u64> = callers.install(|| outer.par_iter().map(one).collect());
        assert!(sums.iter().zip(&outer).all(|(sum, n)| *sum == 4950 + 100 * n));
    }

    #[test]
    fn work_within_work_ends() {
        let outer: Vec<u64> = (0..50).collect();
        let sums = pool().map(&outer, |n| {
            let inner: Vec<u64> = (0..*n).collect();
            pool().map(&inner, |i| i + 1).iter().sum::<u64>()
        });
        assert!(sums.iter().zip(&outer).all(|(sum, n)| *sum == n * (n + 1) / 2));
    }
}
