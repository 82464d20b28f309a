//! Handles: what the caller has in place of an object is a number in the shape of a pointer, never an address.
//!
//! A number is given out once in the life of the process, so a handle that was closed, one that never was one, and one of
//! another kind are all found out. The price is a look into a table at each call, some 50 ns.

use super::code::{self, Failure};
use super::memory;
use crate::fork::Maker;
use crate::sys::Once;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

/// Numbers are multiples of this, as addresses of objects are.
const STEP: usize = 16;
static NEXT: AtomicUsize = AtomicUsize::new(0x1000);

/// A forked child waits so long for a lock: it is only ever held for an instant, so a lock that is not given back by
/// then was held by a thread of its parent.
const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

type Table<T> = (Maker, RwLock<HashMap<usize, Arc<T>>>);

fn new_table<T>() -> Table<T> {
    (Maker::here(), RwLock::default())
}

/// What a kind of handles stands for. `H` is the opaque type that C sees.
pub(super) struct Handles<H, T> {
    kind: &'static str,
    table: Once<Table<T>>,
    opaque: std::marker::PhantomData<fn(H)>,
}

impl<H, T: Send + Sync> Handles<H, T> {
    /// The table of one kind, which is named in errors.
    pub(super) const fn new(kind: &'static str) -> Self {
        Handles { kind, table: Once::new(), opaque: std::marker::PhantomData }
    }

    /// Puts `object` into the table.
    pub(super) fn add(&self, object: impl Into<Arc<T>>) -> Result<*mut H, Failure> {
        let number = NEXT.fetch_add(STEP, Ordering::Relaxed);
        let (maker, table) = self.table.get_or_make(new_table);
        patiently(|| maker.write(table))?.insert(number, object.into());
        Ok(std::ptr::without_provenance_mut(number))
    }

    /// Puts what `make` makes into the table and its handle where the caller wants it. Null is told before anything is made,
    /// and is what stands there after a failure.
    ///
    /// # Safety
    /// If `out` is not null, there is room for a handle.
    pub(super) unsafe fn hand_over<M: Into<Arc<T>>>(
        &self,
        out: *mut *mut H,
        what: &str,
        make: impl FnOnce() -> Result<M, Failure>,
    ) -> Result<(), Failure> {
        // SAFETY: the caller's promise is the same.
        unsafe { memory::put(out, &[std::ptr::null_mut()], what) }?;
        let handle = self.add(make()?)?;
        // SAFETY: the caller's promise is the same.
        unsafe { memory::put(out, &[handle], what) }
    }

    /// What the handle stands for. It lives on for as long as this is held, also if it is closed meanwhile.
    pub(super) fn get(&self, handle: *const H) -> Result<Arc<T>, Failure> {
        let (maker, table) = self.table.get_or_make(new_table);
        let object = patiently(|| maker.read(table))?.get(&handle.addr()).cloned();
        object.ok_or_else(|| self.unknown(handle))
    }

    /// Takes the handle out of the table.
    pub(super) fn remove(&self, handle: *const H) -> Result<Arc<T>, Failure> {
        let (maker, table) = self.table.get_or_make(new_table);
        let object = patiently(|| maker.write(table))?.remove(&handle.addr());
        object.ok_or_else(|| self.unknown(handle))
    }

    fn unknown(&self, handle: *const H) -> Failure {
        let what = if handle.is_null() { "null" } else { "closed, or never was one" };
        Failure::new(code::HANDLE, format!("the handle of a {} is {what}", self.kind))
    }
}

/// What one thread uses at a time. In a fork of the process that made it, it may be in the midst of a change for good.
pub(super) struct Exclusive<T> {
    maker: Maker,
    value: Mutex<T>,
}

impl<T> Exclusive<T> {
    pub(super) fn new(value: T) -> Self {
        Exclusive { maker: Maker::here(), value: Mutex::new(value) }
    }

    /// Waits until no other thread uses it.
    pub(super) fn lock(&self) -> Result<MutexGuard<'_, T>, Failure> {
        patiently(|| self.maker.lock(&self.value))
    }
}

fn patiently<G>(mut lock: impl FnMut() -> Option<G>) -> Result<G, Failure> {
    for _ in 0..TRIES {
        if let Some(guard) = lock() {
            return Ok(guard);
        }
        std::thread::sleep(PAUSE);
    }
    Err(Failure::new(
        code::INTERNAL,
        "this process was forked while another thread was using the handle, or opening or closing one",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Opaque;

    #[test]
    fn a_handle_is_known_until_it_is_removed_and_by_its_own_table_alone() {
        static ONES: Handles<Opaque, u32> = Handles::new("one");
        static TWOS: Handles<Opaque, u32> = Handles::new("two");
        let (one, two) = (ONES.add(1).unwrap(), TWOS.add(2).unwrap());
        assert_eq!((*ONES.get(one).unwrap(), *TWOS.get(two).unwrap()), (1, 2));
        assert_eq!(ONES.get(two).unwrap_err().code, code::HANDLE);
        let held = ONES.get(one).unwrap();
        assert_eq!(*ONES.remove(one).unwrap(), 1);
        assert_eq!(ONES.remove(one).unwrap_err().text, "the handle of a one is closed, or never was one");
        assert_eq!(ONES.get(std::ptr::null()).unwrap_err().text, "the handle of a one is null");
        assert_eq!(*held, 1);
        assert_ne!(ONES.add(3).unwrap(), one);
    }

    #[test]
    fn a_fork_is_told_of_what_was_in_use() {
        let mut used = Exclusive::new(5);
        assert_eq!(*used.lock().unwrap(), 5);
        // As it is in a child.
        used.maker = Maker::default();
        let held = used.value.lock().unwrap();
        let told = used.lock().unwrap_err();
        assert!(
            told.code == code::INTERNAL && told.text.contains("forked while another thread was using"),
            "{}",
            told.text
        );
        drop(held);
        assert_eq!(*used.lock().unwrap(), 5);
    }
}
