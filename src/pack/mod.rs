//! Packing: directories, archives and arrays into a new store, which appears under its name only when it is whole.

mod archive;
mod dir;
mod files;
mod progress;
mod staging;

pub use files::{PIECE_BYTES, Report};
pub use progress::{Notice, Progress, Watch};
