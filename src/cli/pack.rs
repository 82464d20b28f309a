//! `zrfs pack`.

use super::{Done, bar, print};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Instant;
use zrfs::dict::DictTier;
use zrfs::format::Codec;
use zrfs::pack::{self, PackOptions, Report, Watch};
use zrfs::{Error, Result};

/// Pack a directory, an archive or an array into a new store
///
/// A directory or tar archive (.tar, .tar.gz, .tar.zst, or - for standard input) becomes a dataset with the streams
/// `data` (one record a file; files above 4 MiB are several) and `path`, and an index of the tree. An .npy or IDX file
/// (also .gz) becomes a store with one record an item of its first dimension. The store appears under its name only when
/// it is whole.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs pack /usr/share/doc docs.zr
  zrfs pack photos.tar.gz photos.zr --codec raw
  ssh host tar c data | zrfs pack - data.zr
  zrfs pack train-images-idx3-ubyte.gz images.zr
  zrfs pack --stream image=images.npy --stream label=labels.npy train.zr

Devices, sockets and FIFOs are left out, each with a warning. A file that cannot be read, or changes while it is
packed, is named; the rest is packed, and the exit status is 1.")]
pub(super) struct Args {
    /// What to pack and the store to make; with --stream only the store
    #[arg(value_names = ["SOURCE", "STORE"], num_args = 1..=2, required = true)]
    paths: Vec<PathBuf>,
    /// Make a dataset of aligned streams, one a NAME=SOURCE; SOURCE is an array
    #[arg(long = "stream", value_name = "NAME=SOURCE", value_parser = named)]
    streams: Vec<(String, PathBuf)>,
    /// How records are compressed: raw, zstd or zstd_dict (a dictionary is trained on a sample of the source)
    #[arg(long, default_value = "zstd")]
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
    /// Print nothing but warnings and errors
    #[arg(short, long)]
    quiet: bool,
}

pub(super) fn named(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, source)) if !name.is_empty() && !source.is_empty() => Ok((name.into(), source.into())),
        _ => Err("a stream is given as NAME=SOURCE, like image=images.npy".into()),
    }
}

pub(super) fn run(args: &Args) -> Done {
    let started = Instant::now();
    let options = PackOptions {
        codec: args.codec,
        level: args.level,
        replace: args.force,
        tier: args.tier,
        ..PackOptions::default()
    };
    let (target, report) = match (&args.paths[..], &args.streams[..]) {
        ([target], streams) if !streams.is_empty() => {
            (target, bar::run("record", |watch| pack::pack_streams(streams, target, &options, watch))?)
        }
        ([source, target], []) => (target, bar::run("file", |watch| one(source, target, &options, watch))?),
        ([_], _) => return Err(Error::invalid("give a source and a store: zrfs pack SOURCE STORE").into()),
        _ => {
            return Err(
                Error::invalid("with --stream only the store is given: zrfs pack --stream A=a.npy STORE").into()
            );
        }
    };
    if !args.quiet {
        let files = if report.files + report.dirs > 0 {
            let dirs = print::counted(report.dirs, if report.dirs == 1 { "directory" } else { "directorie" });
            format!("{} in {dirs}, ", print::counted(report.files, "file"))
        } else {
            String::new()
        };
        eprintln!(
            "zrfs: packed {files}{} ({}) into {} ({}) in {}",
            print::counted(report.records, "record"),
            print::bytes(report.bytes),
            print::path(target),
            print::bytes(report.stored_bytes),
            print::seconds(started.elapsed())
        );
    }
    bar::end(report.failed)
}

/// Packs one source; beside it, counts what a directory holds, for a bar that knows its end.
fn one(source: &Path, target: &Path, options: &PackOptions, watch: Watch<'_>) -> Result<Report> {
    std::thread::scope(|scope| {
        if std::io::stderr().is_terminal() && source.is_dir() {
            scope.spawn(|| pack::measure(source, watch.progress));
        }
        pack::pack(source, target, options, watch)
    })
}
