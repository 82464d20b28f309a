//! `zrfs compact`.

use super::{Done, Failure, bar, print, stores};
use std::io::{self, Write};
use std::path::PathBuf;
use zrfs::Error;

/// Give the space of deleted records back to the file system
///
/// Works in place and needs about 64 MiB of disk for a time. Records keep their indices. Nobody may be reading the store
/// or have it mounted. However it is interrupted, the store stays whole; run it again to go on.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs stats images.zr                    how much there is to free
  zrfs compact images.zr")]
pub(super) struct Args {
    /// A store, or a dataset, whose streams are compacted one after the other
    store: PathBuf,
}

pub(super) fn run(args: &Args) -> Done {
    let done = bar::run("record", |watch| {
        zrfs::dataset::compact(&args.store, watch.progress, |name, done| {
            let label = if name.is_empty() { String::new() } else { format!("{}: ", stores::label(&args.store, name)) };
            writeln!(
                io::stdout(),
                "{label}freed {} of {}; {} moved",
                print::bytes(done.freed()),
                print::bytes(done.before),
                print::counted(done.moved, "record")
            )
            .map_err(Error::io("write", "standard output"))
        })
    });
    match done {
        Err(Error::Interrupted) => Err(Failure::Interrupted("the store is whole; run it again to go on".into())),
        done => Ok(done?),
    }
}
