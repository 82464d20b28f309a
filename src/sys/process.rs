//! A number of this process that none of the processes has that it was forked from.
//!
//! Its pid is no such number: each pid namespace begins with 1, and pids are given out again. Nor would a handler of
//! `pthread_atfork` do, of which a fork by system call knows nothing. But however a process forks, memory with
//! `MADV_WIPEONFORK` is zeros in the child. So the number stands in such memory, and who finds none there takes the next of a
//! counter in ordinary memory, which in a child goes on from where its parent had got: past the numbers of all that it was
//! forked from. A child by `vfork`, or by another clone that shares its memory, shares the number and the locks with it.
//!
//! Nothing here waits for another thread, which a child may not have.

use memmap2::MmapMut;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Where there is no such memory (Linux before 4.14, a sandbox, an emulator) pids have to do. They have this bit then, which
/// no number of the counter has.
const PID: u64 = 1 << 63;

/// The number of this process, never 0. Two loads.
pub(crate) fn this_process() -> u64 {
    static NUMBERS: Numbers = Numbers::new();
    NUMBERS.here()
}

struct Numbers {
    /// Where this process's number stands; there is 0 until it has one. Null until somebody asks for a number, and
    /// [`WITHOUT`] if there was no memory for it then. From there on it stays as it is, here and in all children.
    place: AtomicPtr<AtomicU64>,
    /// The last number that was given out, here or before this process was forked.
    last: AtomicU64,
}

/// In the place of memory where there is none. Never written to.
static WITHOUT: AtomicU64 = AtomicU64::new(0);

impl Numbers {
    const fn new() -> Numbers {
        Numbers { place: AtomicPtr::new(ptr::null_mut()), last: AtomicU64::new(0) }
    }

    fn here(&self) -> u64 {
        let place = self.place().unwrap_or_else(|| self.find_place(wiped_on_fork()));
        if ptr::eq(place, &WITHOUT) {
            return PID | u64::from(std::process::id());
        }
        match place.load(Ordering::Acquire) {
            0 => self.next(place),
            number => number,
        }
    }

    fn place(&self) -> Option<&'static AtomicU64> {
        // SAFETY: null, or what `find_place` put there.
        unsafe { self.place.load(Ordering::Acquire).as_ref() }
    }

    /// Has numbers stand in `memory`, or pids used without any, unless another thread settled that meanwhile.
    #[cold]
    fn find_place(&self, memory: Option<MmapMut>) -> &'static AtomicU64 {
        let new = memory.as_ref().map_or(&raw const WITHOUT, |memory| memory.as_ptr().cast()).cast_mut();
        match self.place.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: `WITHOUT`, or the start of a mapping that is zeros, which is nobody else's and now stays.
            Ok(_) => unsafe {
                std::mem::forget(memory);
                &*new
            },
            // SAFETY: another thread put it there in the same way.
            Err(other) => unsafe { &*other },
        }
    }

    /// Gives this process its number. A thread that comes later takes the number of the first; the one it drew is nobody's.
    #[cold]
    fn next(&self, place: &AtomicU64) -> u64 {
        let number = self.last.fetch_add(1, Ordering::AcqRel) + 1;
        place.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire).map_or_else(|first| first, |_| number)
    }
}

/// Memory for a number that is zeros in a forked child.
fn wiped_on_fork() -> Option<MmapMut> {
    let memory = MmapMut::map_anon(size_of::<AtomicU64>()).ok()?;
    let (start, len) = (memory.as_ptr().cast_mut().cast(), memory.len());
    // SAFETY: nobody uses the memory yet, and what there is at most done to it is to be other memory to a child.
    let takes = |advice| unsafe { libc::madvise(start, len, advice) == 0 };
    // Emulators (versions of QEMU's) say yes to any advice and follow none: also to one that does not exist.
    (takes(libc::MADV_WIPEONFORK) && !takes(-1)).then_some(memory)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Barrier;

    pub(in super::super) fn fork() -> libc::pid_t {
        // SAFETY: the child does nothing for which a lock is needed, and ends with `_exit`.
        unsafe { libc::fork() }
    }

    /// By the system call, which no handler in the C library hears of.
    fn raw_clone() -> libc::pid_t {
        // SAFETY: the same.
        unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t }
    }

    /// What `work` says in a child that is made by `fork`.
    pub(in super::super) fn in_child(fork: fn() -> libc::pid_t, work: impl FnOnce() -> bool) -> bool {
        let child = match fork() {
            // SAFETY: ends the process.
            0 => unsafe { libc::_exit(i32::from(!work())) },
            child => child,
        };
        assert!(child > 0, "no child: {}", std::io::Error::last_os_error());
        let mut status = 0;
        // SAFETY: `status` is a place for the status of this process's own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status == 0
    }

    #[test]
    fn a_child_has_a_number_of_its_own_however_it_was_made() {
        let here = this_process();
        assert!(here != 0 && here & PID == 0, "this system has memory that is wiped on fork");
        for how in [fork, raw_clone] {
            assert!(in_child(how, || {
                let child = this_process();
                // And its own child, also where that is the first to ask for a number after one that did not.
                let grandchild = || ![here, child, 0].contains(&this_process());
                child > here && child == this_process() && in_child(how, grandchild)
            }));
            assert!(in_child(how, || in_child(how, || this_process() > here)));
        }
        assert_eq!(this_process(), here);
    }

    #[test]
    fn threads_agree() {
        for _ in 0..200 {
            let (numbers, begin) = (Numbers::new(), Barrier::new(4));
            let ask = || {
                begin.wait();
                numbers.here()
            };
            let seen: BTreeSet<u64> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(seen, BTreeSet::from([numbers.here()]));
        }
    }

    #[test]
    fn without_such_memory_it_is_the_pid_and_stays_that() {
        let numbers = Numbers::new();
        numbers.find_place(None);
        let pid = || PID | u64::from(std::process::id());
        assert_eq!(numbers.here(), pid());
        numbers.find_place(wiped_on_fork());
        assert_eq!(numbers.here(), pid());
        assert!(in_child(fork, || numbers.here() == pid()));
    }
}
