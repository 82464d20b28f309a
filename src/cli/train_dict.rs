//! `zrfs train-dict`.

use super::{Done, bar, print};
use std::path::PathBuf;
use std::time::Instant;
use zrfs::dict::{DictTier, Sample, Trained, save};
use zrfs::format::Codec;
use zrfs::pack::{Watch, sample};
use zrfs::{Error, Result, WriterOptions};

/// Train a dictionary for a zstd_dict store
///
/// It is trained on a strided subset of the records of the sources, and tested on others of them that it was not trained
/// on. A dictionary helps where records are small and resemble each other.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs train-dict notes.zr -o dict.zr
  zrfs train-dict notes/ more.npy -o dict.zr --tier max
  zrfs train-dict notes.zr --install new.zr     new.zr is an empty zstd_dict store")]
pub(super) struct Args {
    /// Stores, directories of files, .npy or IDX arrays
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<PathBuf>,
    /// The file to write the dictionary to
    #[arg(short, long, value_name = "FILE", required_unless_present = "install")]
    output: Option<PathBuf>,
    /// Install the dictionary in this store, an empty one of the codec zstd_dict
    #[arg(long, value_name = "STORE")]
    install: Option<PathBuf>,
    /// The size: fast (32 KiB, trained on 4 MiB of records), balanced (128 KiB on 16 MiB) or max (1 MiB on 64 MiB)
    #[arg(long, default_value_t)]
    tier: DictTier,
    /// Replace the file that is there
    #[arg(long)]
    force: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

pub(super) fn run(args: &Args) -> Done {
    let started = Instant::now();
    if let Some(output) = args.output.as_deref().filter(|path| path.symlink_metadata().is_ok() && !args.force) {
        return Err(Error::Exists { path: output.to_path_buf() }.into());
    }
    let trained = bar::run("record", |watch| train(args, watch))?;
    // The store first: where it refuses, no file is left that looks like the result.
    if let Some(store) = &args.install {
        WriterOptions::new(Codec::ZstdDict).install_dict(store, &trained.dict)?;
    }
    if let Some(output) = &args.output {
        save(&trained.dict, output, args.force)?;
    }
    if !args.quiet {
        report(args, &trained, started);
    }
    Ok(())
}

fn train(args: &Args, watch: Watch<'_>) -> Result<Trained> {
    let limit = Sample::tested_bytes(args.tier);
    let mut all = Sample::new(limit);
    for source in &args.sources {
        all.append(&sample(source, limit / args.sources.len(), watch)?);
    }
    let source = args.sources.iter().map(|path| print::path(path)).collect::<Vec<_>>().join(", ");
    all.train_and_test(args.tier, &source, watch.progress)
}

fn report(args: &Args, trained: &Trained, started: Instant) {
    let places = [&args.output, &args.install].into_iter().flatten().map(|path| print::path(path));
    eprintln!(
        "zrfs: trained a dictionary of {} on {} ({}) for {} in {}",
        print::bytes(trained.dict.len() as u64),
        print::counted(trained.records, "record"),
        print::bytes(trained.bytes),
        places.collect::<Vec<_>>().join(" and "),
        print::seconds(started.elapsed())
    );
    let tested = trained.tested;
    if tested.records == 0 {
        eprintln!("zrfs: there were too few records to test it on others than it was trained on");
        return;
    }
    eprintln!(
        "zrfs: on {} ({}) that it was not trained on: {} with it, {} without, both at level 19{}",
        print::counted(tested.records, "other record"),
        print::bytes(tested.bytes),
        print::ratio(tested.bytes, tested.with),
        print::ratio(tested.bytes, tested.without),
        if tested.with >= tested.without { "; it does not help here, so use --codec zstd" } else { "" }
    );
}
