//! What holds in a forked child: a copy of its parent's memory, with none of the other threads that were at work in it.
//! A lock that one of them held is never given back there, so a child waits for no lock that it inherited.

use crate::error::Error;
use crate::sys::{Once, this_process};
use std::path::Path;
use std::sync::{
    Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult,
};

/// The process that made something, and is the one that may wait for its locks. By default it is none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Maker {
    /// What tells it from its forks, one of which may have its pid.
    number: u64,
    /// What people know it by.
    pid: u32,
}

impl Maker {
    /// This process.
    pub(crate) fn here() -> Self {
        Maker { number: this_process(), pid: std::process::id() }
    }

    /// Whether this process is the maker, and not a fork of it.
    pub(crate) fn is_here(self) -> bool {
        self.number == this_process()
    }

    /// The pid of the process that made it.
    pub(crate) fn pid(self) -> u32 {
        self.pid
    }

    /// The error of a child that would write to its parent's store at `path`.
    pub(crate) fn refusal(self, path: &Path) -> Error {
        let (path, maker) = (path.display(), self.pid);
        Error::invalid(format!(
            "{path} was opened for writing by process {maker}, of which this is a fork; write there"
        ))
    }

    /// Takes the lock. `None` in a forked child where it is taken, perhaps for good.
    pub(crate) fn lock<T>(self, lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        self.take(lock.try_lock(), || lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The same, for reading.
    pub(crate) fn read<T>(self, lock: &RwLock<T>) -> Option<RwLockReadGuard<'_, T>> {
        self.take(lock.try_read(), || lock.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The same, for writing.
    pub(crate) fn write<T>(self, lock: &RwLock<T>) -> Option<RwLockWriteGuard<'_, T>> {
        self.take(lock.try_write(), || lock.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// A lock that is free is as good as new, in a child too; the process is only looked at where it is not.
    fn take<G>(self, tried: TryLockResult<G>, wait: impl FnOnce() -> G) -> Option<G> {
        match tried {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => self.is_here().then(wait),
        }
    }
}

/// What the threads of a process keep together and could make again. A child that finds it taken begins another.
#[derive(Debug)]
pub(crate) struct Cached<T> {
    maker: Maker,
    new: fn() -> T,
    value: Mutex<T>,
    next: Once<Cached<T>>,
}

impl<T: Send> Cached<T> {
    /// What `new` makes, for the start.
    pub(crate) fn new(new: fn() -> T) -> Self {
        Cached { maker: Maker::here(), new, value: Mutex::new(new()), next: Once::new() }
    }

    /// Takes the lock. A panic of who had it changes nothing.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let mut cached = self;
        loop {
            match cached.maker.lock(&cached.value) {
                Some(guard) => return guard,
                None => cached = cached.next.get_or_make(|| Cached::new(cached.new)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_maker_waits() {
        let (here, elsewhere) = (Maker::here(), Maker::default());
        let (mutex, rw) = (Mutex::new(1), RwLock::new(2));
        for maker in [here, elsewhere] {
            assert_eq!(maker.lock(&mutex).map(|n| *n), Some(1));
            assert_eq!(maker.read(&rw).map(|n| *n), Some(2));
            assert_eq!(maker.write(&rw).map(|n| *n), Some(2));
        }
        let (held, written) = (mutex.lock().unwrap(), rw.write().unwrap());
        assert!(elsewhere.lock(&mutex).is_none() && elsewhere.read(&rw).is_none() && elsewhere.write(&rw).is_none());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| (here.lock(&mutex).map(|n| *n), here.read(&rw).map(|n| *n)));
            drop((held, written));
            assert_eq!(waits.join().unwrap(), (Some(1), Some(2)));
        });
    }

    #[test]
    fn a_child_that_finds_it_taken_has_its_own() {
        let mut cached: Cached<u32> = Cached::new(u32::default);
        *cached.lock() = 5;
        // As it is in a child.
        cached.maker = Maker::default();
        assert_eq!(*cached.lock(), 5);
        let held = cached.value.lock().unwrap();
        *cached.lock() += 1;
        assert_eq!((*cached.lock(), *held), (1, 5));
    }
}
