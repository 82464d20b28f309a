//! `zrfs-mount`: a zrfs store or dataset as ordinary read-only files.
//!
//! [`fs`] is the file system in plain types, [`namespace`] the arithmetic of its inodes, [`fuse`] the adaptor to the
//! kernel, [`ahead`] what is done before readers ask, [`session`] the life of a mount, [`cli`] and [`options`] what the user asks for.
#![forbid(unsafe_code)]

pub mod ahead;
pub mod cli;
pub mod errno;
pub mod fs;
pub mod fuse;
pub mod mounting;
pub mod namespace;
pub mod options;
pub mod session;
