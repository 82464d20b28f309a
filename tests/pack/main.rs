//! `zrfs pack`, `unpack`, `ls`, `cat` and `info` end to end, through the command as it is built.

#[path = "../common/mod.rs"]
mod common;

mod archives;
mod change;
mod failures;
mod limits;
mod show;
mod trees;
