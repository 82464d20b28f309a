//! The command `zrfs-mount`.
fn main() {}
