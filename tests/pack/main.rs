//! `zrfs pack`, `unpack`, `ls`, `cat`, `info`, `sample` and `loader` end to end, through the command as it is built.

#[path = "../common/mod.rs"]
mod common;

mod archives;
mod change;
mod failures;
mod limits;
mod loader;
mod sample;
mod show;
mod trees;
