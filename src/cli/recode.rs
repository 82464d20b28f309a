//! `zrfs recode`.

use super::{Done, bar, print};
use std::path::PathBuf;
use std::time::Instant;
use zrfs::dict::DictTier;
use zrfs::format::Codec;
use zrfs::recode::{RecodeOptions, recode};

/// Copy a store or dataset to another codec or level
///
/// Records are copied in the order of their indices, so the same codec gives a copy without the bytes of deleted records.
/// Types, the user's keys of the schema, names and the paths of a tree are kept; each record is checked as it is read.
/// The copy appears under its name only when it is whole.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs recode images.zr small.zr --codec zstd --level 19
  zrfs recode notes.zr notes-dict.zr --codec zstd_dict --tier max
  zrfs recode docs.zr fast.zr --codec raw && zrfs compare docs.zr fast.zr")]
pub(super) struct Args {
    /// A store or dataset
    store: PathBuf,
    /// The store or dataset to make
    new: PathBuf,
    /// How records are compressed: raw, zstd or zstd_dict (a dictionary is trained on the source)
    #[arg(long)]
    codec: Codec,
    /// zstd's level [default: 3, and 19 for zstd_dict]
    #[arg(long, allow_negative_numbers = true)]
    level: Option<i32>,
    /// The size of the dictionary for zstd_dict: fast, balanced or max
    #[arg(long, default_value_t)]
    tier: DictTier,
    /// Replace the store that is there
    #[arg(long)]
    force: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

pub(super) fn run(args: &Args) -> Done {
    let started = Instant::now();
    let options = RecodeOptions { codec: args.codec, level: args.level, tier: args.tier, replace: args.force };
    let done = bar::run("record", |watch| recode(&args.store, &args.new, &options, watch))?;
    if !args.quiet {
        eprintln!(
            "zrfs: recoded {} ({}) into {}: {} before ({}), {} after ({}), in {}",
            print::counted(done.records, "record"),
            print::bytes(done.bytes),
            print::path(&args.new),
            print::bytes(done.before),
            print::ratio(done.bytes, done.before),
            print::bytes(done.after),
            print::ratio(done.bytes, done.after),
            print::seconds(started.elapsed())
        );
    }
    Ok(())
}
