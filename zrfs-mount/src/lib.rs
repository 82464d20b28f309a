//! `zrfs-mount`: a zrfs store or dataset as ordinary read-only files.
//!
//! [`fs`] is the file system in plain types, [`namespace`] the arithmetic of its inodes, [`names`] and [`png`] what files
//! it makes of records, [`fuse`] the adaptor to the kernel, [`timing`] what it counts, [`ahead`] what is done before
//! readers ask, [`follow`] where it runs, [`gathers`] on which threads, [`views`] the batches that programs ask for,
//! [`session`] the life of a mount with [`mountpoint`], [`mounting`], [`background`], [`notify`] and [`watch`], [`cli`], [`options`] and [`run`](mod@run)
//! what the user asks for.
// Only the mapping of memory that we share with clients is unsafe, in `views::slab`.
#![deny(unsafe_code)]

pub mod ahead;
pub mod background;
pub mod cli;
pub mod errno;
pub mod follow;
pub mod fs;
pub mod fuse;
pub mod gathers;
pub mod mounting;
pub mod mountpoint;
pub mod names;
pub mod namespace;
pub mod notify;
pub mod options;
pub mod png;
pub mod run;
pub mod session;
pub mod timing;
pub mod views;
pub mod watch;
