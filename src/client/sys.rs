//! The two things that a client of a mount can't do without `unsafe`: its ioctls, and mapping the memory of a view.
#![allow(unsafe_code)]

use crate::sys::Descriptor;
use memmap2::{Advice, MmapMut};
use rustix::fs::{FileType, SealFlags, fcntl_get_seals, fstat, fstatfs};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};
use std::ffi::c_void;
use std::fs::File;
use std::io;

/// The kind of file system that FUSE is.
const FUSE: u64 = 0x6573_5546;

/// An open file or directory of a FUSE file system, where an ioctl reads and writes the bytes that its number says, and no
/// others.
#[derive(Debug)]
pub(super) struct FuseFile(Descriptor);

impl FuseFile {
    /// `None` if the file is on another file system, or no file.
    pub(super) fn new(file: File) -> io::Result<Option<FuseFile>> {
        let plain =
            matches!(FileType::from_raw_mode(fstat(&file)?.st_mode), FileType::RegularFile | FileType::Directory);
        let is_fuse = plain && fstatfs(&file)?.f_type as u64 == FUSE;
        is_fuse.then(|| Descriptor::new(file).map(FuseFile)).transpose()
    }

    /// Calls; `data` goes in and is overwritten by what comes out.
    ///
    /// # Errors
    /// The server's; `InvalidInput` if `data` has not the bytes that the number says.
    pub(super) fn ioctl(&self, number: u32, data: &mut [u8]) -> io::Result<()> {
        if data.len() != (number >> 16 & 0x3fff) as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: The file is a regular file or directory of FUSE, for which the kernel itself reads and writes as many bytes
        // as the number says, which is what `data` has; the server can't ask for others (that is for character devices only).
        Ok(unsafe { rustix::ioctl::ioctl(self.0.file()?, Call { number, data }) }?)
    }
}

struct Call<'a> {
    number: u32,
    data: &'a mut [u8],
}

// SAFETY: The pointer is that of `data`, which lives and is borrowed mutably as long as the call lasts.
unsafe impl Ioctl for Call<'_> {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        Opcode::from(self.number)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.data.as_mut_ptr().cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// Maps a view's memory.
///
/// # Errors
/// `InvalidData` if it is not sealed against being cut short, or has not the bytes that it is said to have; otherwise those
/// of the system.
pub(super) fn map(file: &File, capacity: u64) -> io::Result<MmapMut> {
    if !fcntl_get_seals(file)?.contains(SealFlags::SHRINK) || file.metadata()?.len() != capacity {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // SAFETY: The file is sealed against shrinking, so no access to the mapping raises a signal. The server writes to it
    // only from our call for a batch until it says that the batch is there, and nobody has a slice of it then: the memory of
    // a view is taken for the next batch when all parts of the last one were dropped. The several mappings of one view are
    // used for places that don't overlap. Bytes that another process of this user changes all the same are any bytes to us: what is in the
    // mapping decides no length or place without being checked.
    let memory = unsafe { MmapMut::map_mut(file) }?;
    if capacity >= 2 << 20 {
        // Only a wish.
        let _ = memory.advise(Advice::HugePage);
    }
    Ok(memory)
}
