//! The same library as an example, for the tests: `cargo test` makes those anew, and of a library only what Rust links.

extern crate engine as _;
