//! `zrfs pack`, `unpack`, `ls`, `cat`, `info` and `sample` end to end, through the command as it is built.

#[path = "../common/mod.rs"]
mod common;

mod archives;
mod change;
mod failures;
mod limits;
mod sample;
mod show;
mod trees;
