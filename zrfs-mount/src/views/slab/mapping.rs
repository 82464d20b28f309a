//! The mapping of a slab in this process.
#![allow(unsafe_code)]

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::ptr::null_mut;

/// Bytes of a huge page.
pub(super) const HUGE: usize = 2 << 20;

/// A file in memory, mapped whole at a place where huge pages fit.
#[derive(Debug)]
pub(super) struct Mapping {
    /// All that was reserved, to find that place in.
    reserved: *mut c_void,
    room: usize,
    start: *mut u8,
    len: usize,
}

// SAFETY: It is memory that this value alone refers to here; see `bytes_mut` for what others do with the file.
unsafe impl Send for Mapping {}
// SAFETY: A shared reference gives its length only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `file`, which must have them, and be sealed against shrinking.
    pub(super) fn new(file: &File, len: usize) -> Result<Mapping, Errno> {
        let room = len.checked_add(HUGE).ok_or(Errno::NOMEM)?;
        // SAFETY: It is new memory at a place of the kernel's choice.
        let reserved =
            unsafe { mmap_anonymous(null_mut(), room, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE) }?;
        let start = reserved.map_addr(|at| at.next_multiple_of(HUGE));
        let mapping = Mapping { reserved, room, start: start.cast(), len };
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: So many bytes from `start` are inside of what was just reserved, which nobody else knows of.
        unsafe { mmap(start, len, access, kind, file, 0) }?;
        Ok(mapping)
    }

    /// Has the memory made of huge pages, as far as there are any to be had at once: gathers and readers then take a tenth
    /// less time with large batches. Works where huge pages are left to those who ask for them, and where shared memory
    /// has none by itself (`shmem_enabled` is `never` on most systems); not where it is `deny`.
    ///
    /// # Errors
    /// `ENOSPC` or `ENOMEM` if there is no memory at all.
    pub(super) fn enlarge_pages(&mut self, file: &File) -> Result<(), Errno> {
        /// `MADV_COLLAPSE`, since Linux 6.1.
        const COLLAPSE: i32 = 25;
        for at in (0..self.len / HUGE).map(|n| n * HUGE) {
            // What has no page at all is not made a huge one.
            fallocate(file, FallocateFlags::empty(), at as u64, 1)?;
            // SAFETY: It is a part of our own memory, whose bytes stay as they are.
            if unsafe { libc::madvise(self.start.add(at).cast(), HUGE, COLLAPSE) } != 0 {
                break;
            }
        }
        Ok(())
    }

    /// Has all of it there, so that the first to write to it waits for no page faults.
    pub(super) fn populate(&mut self) {
        // SAFETY: It is our own memory, whose bytes stay as they are. A wish: it fails on old kernels.
        let _ = unsafe { madvise(self.start.cast(), self.len, Advice::LinuxPopulateWrite) };
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: The file is in memory, and sealed against shrinking and against further seals, so every page of the mapping
        // stays there: no access raises a signal, whatever the client does with its own descriptor. The client may write to
        // the same memory at the same time. That is outside what Rust's model of memory speaks of; it is kept harmless by
        // what is done with the bytes: gathers copy and decode into them, nothing is ever read back through this mapping,
        // and no length, place or decision is taken from them. (zstd does read what it has just written, to copy matches
        // from; it checks places against its input and its own bounds, not against those bytes, so a client that writes
        // there gets other bytes and nothing else.)
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: Nobody refers to it any more. It was mapped with these numbers, so this does not fail.
        let _ = unsafe { munmap(self.reserved, self.room) };
    }
}
