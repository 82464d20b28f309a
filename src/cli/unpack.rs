//! `zrfs unpack`.

use super::{Done, bar, print};
use std::path::PathBuf;
use std::time::Instant;
use zrfs::{Error, Source};

/// Restore the files that a dataset was packed from
///
/// Names, contents, symbolic and hard links, modes and times come back as they were; owners too, when run as root.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs unpack docs.zr copy
  diff -r --no-dereference /usr/share/doc copy

A file whose records are damaged is named; the rest is restored, and the exit status is 1.")]
pub(super) struct Args {
    /// A dataset packed from a directory or archive
    store: PathBuf,
    /// The directory to make; it may exist if it is empty
    dir: PathBuf,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

pub(super) fn run(args: &Args) -> Done {
    let started = Instant::now();
    let Source::Dataset(dataset) = Source::open_checked(&args.store)? else {
        let store = args.store.display();
        return Err(
            Error::invalid(format!("{store} is one store, not a tree; `zrfs cat` and zrfs-mount read it")).into()
        );
    };
    let report = bar::run("file", |watch| zrfs::unpack::unpack(&dataset, &args.dir, watch))?;
    if !args.quiet {
        eprintln!(
            "zrfs: restored {} ({}) below {} in {}",
            print::counted(report.files, "file"),
            print::bytes(report.bytes),
            print::path(&args.dir),
            print::seconds(started.elapsed())
        );
    }
    bar::end(report.failed)
}
