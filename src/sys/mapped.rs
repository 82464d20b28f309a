//! Files read through memory maps, of which a reader gets copies and never a reference.

use super::bus::{self, Guard};
use super::copy::{Then, copy};
use memmap2::{Advice, Mmap, MmapOptions};
use std::cell::Cell;
use std::fs::File;
use std::io;

/// Bytes that the processor fetches at a time.
const LINE: usize = 64;
/// The processor itself notices that it is asked for one line after the other, and goes on.
const LINES_AHEAD: usize = 8;

/// The first bytes of a file, as memory. It may reach beyond the file's end: what is appended later is read through it, too.
#[derive(Debug)]
pub struct Mapped {
    /// Goes first: when the memory is another's, it is not listed any more.
    guard: Guard,
    map: Mmap,
}

/// The bytes could not be read: the file ends before them, or its disk fails, or this thread cannot be kept from ending
/// the process over it. Reading the file otherwise tells which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut;

/// What [`Mapped::read`] gives its closure to read from.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    start: *const u8,
    len: usize,
    /// Where the bytes that were copied end.
    end: &'a Cell<u64>,
}

impl Mapped {
    /// Maps the first `len` bytes of `file`, which stay mapped when it is closed.
    ///
    /// # Errors
    /// The operating system's: there is no room in the address space, or the file cannot be mapped.
    pub fn new(file: &File, len: u64) -> io::Result<Mapped> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::Unsupported)?;
        // SAFETY: the memory is never made a reference of: it is only copied out of, in `View::copy`, whose bytes may be
        // any, since another process may write to the file meanwhile.
        let map = unsafe { MmapOptions::new().len(len).map(file)? };
        // Batches are drawn at random: what lies around a record is not wanted.
        let _ = map.advise(Advice::Random);
        let start = map.as_ptr() as usize;
        // SAFETY: the mapping goes after the guard, and `read` is all that reads it.
        let guard = unsafe { Guard::new(start..start + map.len()) };
        Ok(Mapped { guard, map })
    }

    /// Runs `run` with a view to copy from, then asks for the file's size: within its last page, what lies beyond its end
    /// reads as zeros and raises nothing. What was copied is only to be used where this gives `Ok`.
    ///
    /// # Errors
    /// [`Cut`] if bytes could not be read, now or earlier.
    pub fn read<T>(&self, size: impl FnOnce() -> io::Result<u64>, run: impl FnOnce(View<'_>) -> T) -> Result<T, Cut> {
        if self.guard.is_cut() || !bus::ready() {
            return Err(Cut);
        }
        let end = Cell::new(0);
        let done = run(View { start: self.map.as_ptr(), len: self.map.len(), end: &end });
        let whole = size().is_ok_and(|size| size >= end.get());
        if whole && !self.guard.is_cut() { Ok(done) } else { Err(Cut) }
    }
}

impl View<'_> {
    /// Copies the bytes from `offset` on; `false`, and nothing copied, where the mapping does not reach so far.
    #[must_use]
    pub(crate) fn copy(&self, offset: u64, dst: &mut [u8], then: Then) -> bool {
        let Some(start) = self.place(offset, dst.len()) else { return false };
        self.end.set(self.end.get().max(offset + dst.len() as u64));
        // SAFETY: `place` is inside the mapping, and `dst` is memory of its own. Where the file has no byte, the handler
        // makes one, for the mapping is listed and `ready` was true.
        unsafe { copy(start, dst.as_mut_ptr().cast(), dst.len(), then) };
        true
    }

    /// Has the processor fetch the first of `len` bytes from `offset` on, while it does something else.
    pub fn prefetch(&self, offset: u64, len: usize) {
        #[cfg(target_arch = "x86_64")]
        if let Some(start) = self.place(offset, len) {
            for line in 0..len.div_ceil(LINE).min(LINES_AHEAD) {
                // SAFETY: inside the mapping; and a prefetch never faults.
                unsafe {
                    std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(start.add(line * LINE).cast())
                };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (offset, len, LINE, LINES_AHEAD);
    }

    fn place(&self, offset: u64, len: usize) -> Option<*const u8> {
        let offset = usize::try_from(offset).ok()?;
        // SAFETY: so many bytes from the start are inside the mapping.
        (offset.checked_add(len)? <= self.len).then(|| unsafe { self.start.add(offset) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    fn file(len: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; len]).unwrap();
        file
    }

    fn copied(mapped: &Mapped, file: &File, offset: u64, len: usize) -> Result<Vec<u8>, Cut> {
        let mut dst = vec![1; len];
        let size = || Ok(file.metadata()?.len());
        if mapped.read(size, |view| view.copy(offset, &mut dst, Then::Used))? { Ok(dst) } else { Err(Cut) }
    }

    #[test]
    fn reads_what_is_there_and_what_is_appended() {
        let file = file(10_000);
        let mapped = Mapped::new(&file, 1 << 32).unwrap();
        assert_eq!(copied(&mapped, &file, 9_000, 1000), Ok(vec![7; 1000]));
        file.write_all_at(&[8; 50_000], 10_000).unwrap();
        assert_eq!(copied(&mapped, &file, 9_999, 3), Ok(vec![7, 8, 8]));
        assert_eq!(copied(&mapped, &file, 59_000, 1000), Ok(vec![8; 1000]));
        assert_eq!(copied(&mapped, &file, (1 << 32) - 1, 2), Err(Cut), "beyond the mapping");
        assert_eq!(copied(&mapped, &file, u64::MAX, 1), Err(Cut));
        assert_eq!(copied(&mapped, &file, 59_000, 1000), Ok(vec![8; 1000]), "which breaks nothing");
        mapped.read(|| Ok(0), |view| view.prefetch(u64::MAX, 1)).unwrap();
    }

    #[test]
    fn a_file_cut_short_gives_an_error_and_no_signal() {
        let file = file(1 << 20);
        let mapped = Mapped::new(&file, 1 << 32).unwrap();
        let other = Mapped::new(&file, 1 << 32).unwrap();
        file.set_len(8192 - 100).unwrap();
        assert_eq!(copied(&mapped, &file, 8192 - 200, 150), Err(Cut), "beyond the end, in its page");
        assert_eq!(copied(&mapped, &file, 8192 - 200, 100), Ok(vec![7; 100]));
        assert_eq!(copied(&mapped, &file, 8192 - 10, 1000), Err(Cut));
        assert_eq!(copied(&mapped, &file, 0, 10), Err(Cut), "what was once cut is not trusted again");
        assert_eq!(copied(&other, &file, 0, 10), Ok(vec![7; 10]));
        assert_eq!(copied(&other, &file, 1 << 19, 1 << 18), Err(Cut));
    }

    /// Many threads read while the file is cut: each gets the file's bytes or an error, and never the handler's zeros.
    #[test]
    fn cut_while_threads_read() {
        for _ in 0..20 {
            let file = file(1 << 20);
            let mapped = Mapped::new(&file, 1 << 21).unwrap();
            std::thread::scope(|scope| {
                for k in 0..4 {
                    let (mapped, file) = (&mapped, &file);
                    scope.spawn(move || {
                        while let Ok(bytes) = copied(mapped, file, k * 1000, 1_000_000) {
                            assert!(bytes.iter().all(|&b| b == 7));
                        }
                    });
                }
                file.set_len(4096).unwrap();
            });
        }
    }

    #[test]
    fn a_thread_that_blocks_the_signal_reads_otherwise() {
        let file = file(100);
        let mapped = Mapped::new(&file, 100).unwrap();
        let blocked = || {
            // SAFETY: the set is whole; the mask is this short-lived thread's own.
            unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigfillset(&mut set);
                libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            }
            copied(&mapped, &file, 0, 10)
        };
        assert_eq!(std::thread::scope(|scope| scope.spawn(blocked).join().unwrap()), Err(Cut));
        assert_eq!(copied(&mapped, &file, 0, 10), Ok(vec![7; 10]));
    }
}
