//! `libzrfs.so`. What it exports is in the engine's `src/ffi`, where `include/zrfs.h` and `docs/C.md` are about.
//!
//! Built without the feature `capi` it exports nothing.

// Linked for its exported functions alone.
#[cfg(feature = "capi")]
extern crate engine as _;
