//! The memory of a view: a file in memory that is sealed against being cut short or grown, mapped here to be gathered into,
//! and handed to the client to be mapped there.

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

mod mapping;

use mapping::Mapping;

/// From several of these on, a slab is made of whole huge pages, where the system gives any.
const HUGE: u64 = mapping::HUGE as u64;
const PAGE: u64 = 4 << 10;
/// From here on, whether the system has so much is asked before it is taken: short of memory, it gives all that others use for
/// it, slower and slower, and then ends a process.
const LARGE: u64 = 64 << 20;

/// Shared memory of a fixed size. Dropping it gives the memory back at once, whoever still maps it: he sees zeros.
#[derive(Debug)]
pub struct Slab {
    memory: Mapping,
    file: Arc<File>,
}

impl Slab {
    /// The size that a slab for so many bytes has; `None` if there is none so large.
    pub fn size_for(bytes: u64) -> Option<u64> {
        let unit = if bytes < 8 * HUGE { PAGE } else { HUGE };
        bytes.max(1).checked_next_multiple_of(unit).filter(|&size| isize::try_from(size).is_ok())
    }

    /// A slab of `size` bytes, which [`size_for`](Slab::size_for) gave. Its memory is there when this returns, so that no
    /// write to it can fail.
    ///
    /// # Errors
    /// `ENOSPC` or `ENOMEM` if there is not so much memory, `EMFILE` if there are too many files.
    pub fn new(size: u64) -> Result<Slab, Errno> {
        if size >= LARGE && available().is_some_and(|available| size > available) {
            return Err(Errno::NOMEM);
        }
        let file = memfd_create("zrfs-view", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, size)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        let file = File::from(file);
        let mut memory = Mapping::new(&file, usize::try_from(size).map_err(|_| Errno::NOMEM)?)?;
        memory.enlarge_pages(&file)?;
        fallocate(&file, FallocateFlags::empty(), 0, size)?;
        memory.populate();
        Ok(Slab { memory, file: Arc::new(file) })
    }

    /// Its bytes. The client can change them at any time, so what was written is not what must be read back.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }

    /// Bytes of its memory.
    pub fn capacity(&self) -> u64 {
        self.memory.len() as u64
    }

    /// What the client maps.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // Sealed as it is, it can still be emptied. Fails for nothing but a lack of memory, and then it is the client's.
        let holes = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(&*self.file, holes, 0, self.memory.len() as u64);
    }
}

/// Bytes that the system can give, by its own estimate.
fn available() -> Option<u64> {
    let found = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 =
        found.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1 << 10)
}

/// Reads from a slab's file as another program may write to it.
pub fn read_at(file: &File, offset: u64, dst: &mut [u8]) -> Result<usize, Errno> {
    file.read_at(dst, offset).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_its_size_for_good() {
        let mut slab = Slab::new(Slab::size_for(5000).unwrap()).unwrap();
        assert_eq!((slab.capacity(), slab.bytes_mut().len()), (8192, 8192));
        slab.bytes_mut()[4095..4097].copy_from_slice(b"ab");
        let file = slab.file().clone();
        for size in [0, 4096, 8193] {
            assert_eq!(ftruncate(&*file, size), Err(Errno::PERM));
        }
        assert_eq!(fcntl_add_seals(&*file, SealFlags::WRITE), Err(Errno::PERM));
        let mut two = [0; 3];
        assert_eq!((read_at(&file, 4095, &mut two), &two), (Ok(3), b"ab\0"));
        // A client that gives its pages back does no harm.
        fallocate(&*file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 8192).unwrap();
        slab.bytes_mut().fill(7);
        drop(slab);
        assert_eq!((read_at(&file, 0, &mut two), two), (Ok(3), [0; 3]));
    }

    #[test]
    fn what_the_system_has_not_is_refused_before_it_is_taken() {
        let available = available().unwrap();
        assert!(available > 1 << 20);
        for size in [available.next_multiple_of(HUGE) * 2, 1 << 50] {
            assert_eq!(Slab::new(size).unwrap_err(), Errno::NOMEM, "{size}");
        }
    }

    #[test]
    fn sizes() {
        let sizes = [(0, 4096), (4096, 4096), (4097, 8192), (8 * HUGE, 8 * HUGE), (8 * HUGE + 1, 9 * HUGE)];
        for (bytes, size) in sizes {
            assert_eq!(Slab::size_for(bytes), Some(size));
        }
        assert_eq!(Slab::size_for(u64::MAX), None);
        assert_eq!(Slab::size_for(1 << 63), None);
    }
}
