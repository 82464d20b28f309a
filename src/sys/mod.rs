//! What the operating system offers only through unsafe calls: the one place of the engine that makes any.
//!
//! [`mapped`] reads files through memory maps, [`bus`] lives through a file that is cut short meanwhile, [`copy`] is how
//! large records are copied, [`team`] are threads that work for callers that wait, [`process`] tells a process from those that
//! it was forked from, [`descriptor`] does so for open files, [`once`] makes values that nobody waits for.
#![allow(unsafe_code)]

mod bus;
mod copy;
mod descriptor;
mod mapped;
mod once;
mod process;
mod team;

pub(crate) use copy::{Then, copy_slice};
pub(crate) use descriptor::Descriptor;
pub use mapped::Mapped;
pub(crate) use mapped::View;
pub(crate) use once::Once;
pub(crate) use process::this_process;
pub(crate) use team::Team;

/// Major page faults of the calling thread so far: those that waited for a disk.
pub(crate) fn major_faults() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage fills the structure that it is given, and zeros are a valid one where it fails.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_majflt.try_into().unwrap_or(0)
}
