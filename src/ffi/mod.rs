//! The C library: the functions of loaderx's two shared objects (`zr_*` and `cinit` to `cdeinit`), and our own
//! (`zrfs_*`). `include/zrfs.h` declares them, `docs/C.md` says how they are used.
//!
//! There is `unsafe` code here, but only in what a C function has to do with its caller's pointers:
//! the work is done by the engine. Each function
//! - turns what it is given into Rust's types first (`memory`), so that null, misaligned and impossible arguments are
//!   codes;
//! - finds what a handle stands for in a table (`handles`), so that one that was closed, or is of another kind, is a code;
//! - runs inside [`code::run`], which keeps panics from crossing and the text of a failure for `zrfs_last_error`.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod batch;
mod code;
mod draw;
mod handles;
mod layout;
mod live;
mod loader;
mod memory;
mod records;
mod sampler;
mod source;
#[cfg(test)]
mod tests;
mod view;
mod writer;
