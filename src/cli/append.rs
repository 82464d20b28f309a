//! `zrfs append`.

use super::pack::named;
use super::{Done, Failure, bar, print, stores};
use std::path::PathBuf;
use std::time::Instant;
use zrfs::Error;
use zrfs::pack::{AppendOptions, Appended, append, append_streams};

/// Append records to a store or dataset
///
/// To a dense store go arrays (.npy, IDX, also compressed, or - for standard input): each row is a record; with --whole
/// each array is one. To a ragged store go arrays, each one record; to one of |u1 any other file too, and directories and
/// tar archives of them. To a store of bytes go files as they are, each one record, and directories and tar archives of
/// them. To a dataset goes one source for each stream.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs append images.zr more-images.npy
  zrfs append --whole images.zr one-image.npy
  zrfs append train.zr --stream image=images.npy --stream label=labels.npy

Readers see what is appended. An interrupt leaves a whole store, with what was appended before it.")]
pub(super) struct Args {
    /// The store or dataset
    store: PathBuf,
    /// What to append
    #[arg(value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// The source for one stream of a dataset; give one for each
    #[arg(long = "stream", value_name = "NAME=SOURCE", value_parser = named)]
    streams: Vec<(String, PathBuf)>,
    /// Append each array to a dense store as one record
    #[arg(long)]
    whole: bool,
    /// zstd's level [default: 3, and 19 for zstd_dict]
    #[arg(long, allow_negative_numbers = true)]
    level: Option<i32>,
    /// Append to a store although the stores beside it have as many records, as the streams of a dataset have
    #[arg(long)]
    alone: bool,
    /// Print nothing but warnings and errors
    #[arg(short, long)]
    quiet: bool,
}

pub(super) fn run(args: &Args) -> Done {
    let started = Instant::now();
    let options = AppendOptions { level: args.level, whole: args.whole };
    let is_dataset = stores::is_dataset(&args.store)?;
    let store = args.store.display();
    match (is_dataset, &args.sources[..], &args.streams[..]) {
        (true, [], [_, ..]) | (false, [_, ..], []) => {}
        (true, ..) => {
            let reason = format!("{store} is a dataset; give one source for each stream: --stream NAME=SOURCE");
            return Err(Error::invalid(reason).into());
        }
        (false, [], []) => return Err(Error::invalid("give what to append: zrfs append STORE SOURCE").into()),
        (false, ..) => return Err(Error::invalid(format!("{store} is one store and has no streams")).into()),
    }
    stores::refuse_stream(&args.store, args.alone)?;
    let mut appended = Appended::default();
    let done = bar::run("record", |watch| {
        if is_dataset {
            append_streams(&args.store, &args.streams, &options, watch, &mut appended)
        } else {
            append(&args.store, &args.sources, &options, watch, &mut appended)
        }
    });
    let count = print::counted(appended.records, "record");
    match done {
        Ok(()) => {}
        Err(Error::Interrupted) => return Err(Failure::Interrupted(format!("{count} were appended before, and stay"))),
        Err(e) if appended.records > 0 => {
            eprintln!("zrfs: {e}; {count} were appended before, and stay");
            return Err(Failure::Partial);
        }
        Err(e) => return Err(e.into()),
    }
    if !args.quiet {
        eprintln!(
            "zrfs: appended {count} ({}) to {}, which has {} now, in {}",
            print::bytes(appended.bytes),
            print::path(&args.store),
            print::count(appended.first + appended.records),
            print::seconds(started.elapsed())
        );
    }
    Ok(())
}
