//! A value that is made once, and that nobody waits for.
//!
//! `std::sync::OnceLock` has others wait while one makes the value: a child that was forked at that moment has nobody who goes
//! on, and waits for ever. Here several may make one at the same time, of which the first stays.

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Room for a value. Looking at it is a load, which a signal handler may do.
#[derive(Debug)]
pub(crate) struct Once<T> {
    /// Null, or from a box of this value's own.
    value: AtomicPtr<T>,
    owned: PhantomData<Box<T>>,
}

impl<T> Once<T> {
    /// Nothing yet.
    pub(crate) const fn new() -> Once<T> {
        Once { value: AtomicPtr::new(ptr::null_mut()), owned: PhantomData }
    }

    /// The value, if there is one.
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: null, or what `set` put there, which stays until this is dropped.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }
}

/// What is set here is used by other threads, and may be dropped by another.
impl<T: Send + Sync> Once<T> {
    /// Puts a value there, unless there is one: says whether it did.
    pub(crate) fn set(&self, value: T) -> bool {
        let new = Box::into_raw(Box::new(value));
        let set = self.value.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
        if set.is_err() {
            // SAFETY: it came from a box just now, and nobody else knows of it.
            drop(unsafe { Box::from_raw(new) });
        }
        set.is_ok()
    }

    /// The value, or what `make` makes where there is none yet.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        if self.get().is_none() {
            self.set(make());
        }
        // SAFETY: set by now, here or by another thread.
        unsafe { &*self.value.load(Ordering::Acquire) }
    }
}

impl<T> Drop for Once<T> {
    fn drop(&mut self) {
        let value = std::mem::replace(self.value.get_mut(), ptr::null_mut());
        if !value.is_null() {
            // SAFETY: it came from a box, and nobody refers to it any more.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn the_first_stays_and_each_is_dropped_once() {
        struct Counted(usize, Arc<AtomicUsize>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.1.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (dropped, made) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        for round in 1..200 {
            let once = Once::new();
            assert!(once.get().is_none());
            let make = || Counted(made.fetch_add(1, Ordering::Relaxed), dropped.clone());
            let seen: Vec<usize> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| once.get_or_make(make).0)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(seen.iter().all(|&n| n == seen[0] && n == once.get().unwrap().0), "{round}: {seen:?}");
            assert!(!once.set(make()));
            drop(once);
            assert_eq!(dropped.load(Ordering::Relaxed), made.load(Ordering::Relaxed));
        }
        drop(Once::<Counted>::new());
    }
}
