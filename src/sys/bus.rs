//! SIGBUS: what a thread gets that reads a page of a mapped file beyond the file's end, or that its disk cannot read.
//!
//! Left alone, it ends the process. Here each mapping is listed as long as it may be read ([`Guard`]); the handler puts
//! zeros where the file was and sets the mapping's flag, and its readers, which look at the flag when they are done, take
//! nothing that they read for the file's bytes. Wayland's servers read their clients' memory in this way. Whatever else
//! raises SIGBUS goes to the handler that was there before ours.
//!
//! The handler may run in any thread, also in one that never read a mapping, and between any two instructions. So all that
//! it looks at is atomics that are never freed. A thread-local would not do: in a library that came by `dlopen`, the first
//! use of one by a thread may allocate, which a signal handler must not. Nor is the thread asked for: what reads a listed
//! mapping is a reader of it, whichever thread that is.

use super::Once;
use std::iter::successors;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};

/// A mapping on the list, until this goes.
#[derive(Debug)]
pub(super) struct Guard(&'static Slot);

/// A place for one mapping.
#[derive(Debug)]
struct Slot {
    taken: AtomicBool,
    /// Odd while the slot has a mapping, and another number each time: two loads that find the same odd number had the
    /// start and the end of one mapping between them.
    turn: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    /// Set by the handler.
    cut: AtomicBool,
}

/// Places, and where there are more. Blocks are never freed; there are as many as there were mappings at a time.
#[derive(Debug)]
struct Block {
    slots: [Slot; 64],
    next: AtomicPtr<Block>,
}

static LIST: Block = Block::new();

impl Guard {
    /// Lists `memory`.
    ///
    /// # Safety
    /// It is a mapping of the caller's for reading, which outlives this value. It is read where [`ready`] was true in the
    /// thread a moment ago, and nothing that was read is taken for a file's bytes where [`Guard::is_cut`] is true after.
    pub(super) unsafe fn new(memory: Range<usize>) -> Guard {
        let mut block = &LIST;
        let slot = loop {
            if let Some(slot) = block.take() {
                break slot;
            }
            block = block.next_or_new();
        };
        // A handler that sees one of these sees, too, that the number is not the last mapping's any more.
        fence(Ordering::Release);
        slot.start.store(memory.start, Ordering::Relaxed);
        slot.end.store(memory.end, Ordering::Relaxed);
        slot.cut.store(false, Ordering::Relaxed);
        slot.turn.fetch_add(1, Ordering::Release);
        Guard(slot)
    }

    /// Whether bytes could not be read since, so that the mapping reads as zeros from some page on, for all threads.
    pub(super) fn is_cut(&self) -> bool {
        self.0.cut.load(Ordering::SeqCst)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.turn.fetch_add(1, Ordering::Relaxed);
        self.0.taken.store(false, Ordering::Release);
    }
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            taken: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            cut: AtomicBool::new(false),
        }
    }

    /// Where the mapping ends, if `address` is in it. One that comes or goes meanwhile is none: nobody reads it.
    fn end_of(&self, address: usize) -> Option<usize> {
        let turn = self.turn.load(Ordering::Acquire);
        let (start, end) = (self.start.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let whole = turn % 2 == 1 && self.turn.load(Ordering::Relaxed) == turn;
        (whole && (start..end).contains(&address)).then_some(end)
    }
}

impl Block {
    const fn new() -> Block {
        Block { slots: [const { Slot::new() }; 64], next: AtomicPtr::new(ptr::null_mut()) }
    }

    fn next(&self) -> Option<&'static Block> {
        // SAFETY: null, or a block that was leaked.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// No lock: a forked child would find it taken for good where another thread of its parent had it.
    fn next_or_new(&self) -> &'static Block {
        self.next().unwrap_or_else(|| {
            let new = Box::into_raw(Box::new(Block::new()));
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match self.next.compare_exchange(ptr::null_mut(), new, success, failure) {
                // SAFETY: leaked just now.
                Ok(_) => unsafe { &*new },
                // SAFETY: nobody else has the new one, and the other was leaked.
                Err(other) => unsafe {
                    drop(Box::from_raw(new));
                    &*other
                },
            }
        })
    }

    fn take(&'static self) -> Option<&'static Slot> {
        let take = |slot: &&Slot| !slot.taken.load(Ordering::Relaxed) && !slot.taken.swap(true, Ordering::Acquire);
        self.slots.iter().find(take)
    }
}

/// The handler that was there before ours.
static BEFORE: Once<libc::sigaction> = Once::new();
static PAGE: AtomicUsize = AtomicUsize::new(4096);

/// Whether a listed mapping may be read in this thread at this moment: our handler is the one, and the signal reaches it.
/// The first call installs it. Two system calls.
pub(super) fn ready() -> bool {
    if BEFORE.get().is_none() {
        install();
    }
    // SAFETY: both calls only fill the structures they are given.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        libc::sigaction(libc::SIGBUS, ptr::null(), &mut now) == 0
            && now.sa_sigaction == on_bus as *const () as usize
            && libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &mut blocked) == 0
            && libc::sigismember(&blocked, libc::SIGBUS) == 0
    }
}

fn install() {
    // SAFETY: sysconf has no preconditions; sigaction gets structures that are whole; the handler does only what a signal
    // handler may: it loads and stores atomics and makes system calls.
    unsafe {
        if let Ok(page) = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)) {
            PAGE.store(page, Ordering::Relaxed);
        }
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, ptr::null(), &mut before) != 0 {
            return;
        }
        // Known to the handler before it can run; of several threads that come here at once one installs.
        if !BEFORE.set(before) {
            return;
        }
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = on_bus as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigemptyset(&mut ours.sa_mask);
        libc::sigaction(libc::SIGBUS, &ours, ptr::null_mut());
    }
}

extern "C" fn on_bus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO a whole siginfo.
    let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    // Positive codes are the kernel's own: the address is one that was read, but for news of memory that broke somewhere.
    let was_read = code > 0 && code != libc::BUS_MCEERR_AO;
    let found = was_read.then(|| listed(address)).flatten();
    if let Some((slot, end)) = found {
        // Before there are zeros to read.
        slot.cut.store(true, Ordering::SeqCst);
        let page = address & !(PAGE.load(Ordering::Relaxed) - 1);
        // SAFETY: the mapping stays while it is read, which it is in this thread. From the page on it is of no use to anybody
        // who reads it, now that `cut` is set. errno is libc's own, which a thread has from its start.
        unsafe {
            let errno = *libc::__errno_location();
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
            let zeros = libc::mmap(page as *mut _, end - page, libc::PROT_READ, flags, -1, 0);
            *libc::__errno_location() = errno;
            if zeros != libc::MAP_FAILED {
                return;
            }
        }
    }
    chain(signal, info, context, code);
}

/// The mapping that has the address, and its end.
fn listed(address: usize) -> Option<(&'static Slot, usize)> {
    let mut slots = successors(Some(&LIST), |block| block.next()).flat_map(|block| &block.slots);
    slots.find_map(|slot| Some((slot, slot.end_of(address)?)))
}

/// Does what would have been done without us.
fn chain(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void, code: libc::c_int) {
    let handler = BEFORE.get().map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    let flags = BEFORE.get().map_or(0, |before| before.sa_flags);
    match handler {
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: the default action is taken when the instruction that faulted runs again, or, for a signal that was
            // sent, when this handler returns.
            unsafe {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, ptr::null_mut());
                if code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        // SAFETY: what was registered as a handler of this kind is one.
        _ if flags & libc::SA_SIGINFO != 0 => unsafe {
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(handler);
            handler(signal, info, context);
        },
        // SAFETY: the same.
        _ => unsafe {
            let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
            handler(signal);
        },
    }
}
