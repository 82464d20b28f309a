//! The command `zrfs`.
fn main() {}
