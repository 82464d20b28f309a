//! SIGBUS: what a thread gets that reads a page of a mapped file beyond the file's end, or that its disk cannot read.
//!
//! Left alone, it ends the process. Here the thread says beforehand which memory it reads ([`guarded`]); the handler puts
//! zeros where the file was and sets a flag, and the reader, which looks at the flag when it is done, takes nothing that
//! it read for the file's bytes. Wayland's servers read their clients' memory in this way. Whatever else raises SIGBUS
//! goes to the handler that was there before ours.

use std::cell::Cell;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What a thread reads just now.
#[derive(Clone, Copy)]
struct Guarded {
    start: usize,
    end: usize,
    /// Set by the handler. Valid as long as `start..end` is not empty.
    cut: *const AtomicBool,
}

thread_local! {
    /// Without a destructor and made at compile time, so that a signal handler may look at it.
    static GUARDED: Cell<Guarded> = const { Cell::new(Guarded { start: 0, end: 0, cut: ptr::null() }) };
}

/// The handler that was there before ours.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
static PAGE: AtomicUsize = AtomicUsize::new(4096);

/// Whether a guarded read is safe in this thread at this moment: our handler is the one, and the signal reaches it. The
/// first call installs it. Two system calls.
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

/// Runs `read`, which may read `memory` though the file below it is cut short; where it was, `cut` is set, and `memory`
/// reads as zeros from there on, for all threads.
///
/// # Safety
/// `memory` is a mapping of the caller's, which stays as long as this runs and is used by nothing else, and [`ready`] was
/// true in this thread a moment ago.
pub(super) unsafe fn guarded<T>(memory: Range<usize>, cut: &AtomicBool, read: impl FnOnce() -> T) -> T {
    /// Also put back when `read` panics.
    struct Restore(Guarded);
    impl Drop for Restore {
        fn drop(&mut self) {
            GUARDED.set(self.0);
        }
    }
    let _restore = Restore(GUARDED.replace(Guarded { start: memory.start, end: memory.end, cut }));
    read()
}

fn install() {
    // SAFETY: sysconf has no preconditions; sigaction gets structures that are whole; the handler does only what a signal
    // handler may: it reads a thread-local without destructor and makes system calls.
    unsafe {
        if let Ok(page) = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)) {
            PAGE.store(page, Ordering::Relaxed);
        }
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, ptr::null(), &mut before) != 0 {
            return;
        }
        // Known to the handler before it can run; of several threads that come here at once one installs.
        if BEFORE.set(before).is_err() {
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
    let guarded = GUARDED.get();
    // Positive codes are the kernel's own: the address is one that was read.
    if code > 0 && (guarded.start..guarded.end).contains(&address) {
        let page = address & !(PAGE.load(Ordering::Relaxed) - 1);
        // SAFETY: `cut` is valid while the range is not empty. It is set before there are zeros to read. The rest of the
        // mapping is the guarded reader's own, and nobody takes it for the file's bytes any more once `cut` is set.
        unsafe {
            (*guarded.cut).store(true, Ordering::SeqCst);
            let errno = *libc::__errno_location();
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
            let zeros = libc::mmap(page as *mut _, guarded.end - page, libc::PROT_READ, flags, -1, 0);
            *libc::__errno_location() = errno;
            if zeros != libc::MAP_FAILED {
                return;
            }
        }
    }
    chain(signal, info, context, code);
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
