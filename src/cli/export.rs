//! `zrfs export`.

use super::{Done, Failure, bar, print};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Instant;
use zrfs::export::{ExportOptions, Exported, Format, export, export_to};
use zrfs::names::NamePattern;
use zrfs::pack::{Watch, is_stdin};
use zrfs::{Error, Result, Source};

/// Write a store back as an .npy array or a tar archive
///
/// A store whose records all have one shape becomes one .npy array. Any store becomes a tar archive with a file a record:
/// .npy files where records have a type, their bytes otherwise. A dataset packed from files becomes the archive that
/// `tar c` would make of them; any other dataset a directory with a file for each stream. `zrfs pack` reads them all.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs export images.zr images.npy
  zrfs export docs.zr - | tar t
  zrfs export train.zr train/                        train/image.npy, train/label.npy
  zrfs export blobs.zr blobs.tar --names '{index:08}.bin'")]
pub(super) struct Args {
    /// A store or dataset
    store: PathBuf,
    /// The file to make, ending in .npy or .tar; - for standard output; the directory to make for several streams
    out: PathBuf,
    /// Call the files of records like this in an archive [default: {index}.npy, or {index} without a type]
    #[arg(long, value_name = "PATTERN")]
    names: Option<NamePattern>,
    /// The format on standard output: npy or tar [default: npy where all records have one shape]
    #[arg(long, value_parser = ["npy", "tar"])]
    format: Option<String>,
    /// Replace the file that is there
    #[arg(long)]
    force: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

pub(super) fn run(args: &Args) -> Done {
    let started = Instant::now();
    let options = ExportOptions { names: args.names.clone(), replace: args.force };
    let piped = is_stdin(&args.out);
    let done =
        bar::run(
            "record",
            |watch| {
                if piped { to_stdout(args, &options, watch) } else { to_file(args, &options, watch) }
            },
        );
    let done = done.map_err(|e| match e {
        // Nobody reads on, which is how `head` and `tar t | head` end it.
        Error::Io { source, .. } if piped && source.kind() == io::ErrorKind::BrokenPipe => Failure::Closed,
        e => Failure::Error(e),
    })?;
    if !args.quiet {
        eprintln!(
            "zrfs: exported {} ({}) to {} in {}",
            print::counted(done.entries, "record")
                .replace("record", if is_tree(&args.store) { "path" } else { "record" }),
            print::bytes(done.bytes),
            if piped { "standard output".into() } else { print::path(&args.out) },
            print::seconds(started.elapsed())
        );
    }
    Ok(())
}

fn is_tree(store: &Path) -> bool {
    store.join(zrfs::format::TREE_FILE).exists()
}

fn to_file(args: &Args, options: &ExportOptions, watch: Watch<'_>) -> Result<Exported> {
    if args.format.is_some() {
        return Err(Error::invalid("--format is for standard output; a file's name says its format"));
    }
    export(&args.store, &args.out, options, watch)
}

fn to_stdout(args: &Args, options: &ExportOptions, watch: Watch<'_>) -> Result<Exported> {
    let name = Path::new("standard output");
    if io::stdout().is_terminal() {
        return Err(Error::invalid("standard output is a terminal; pipe it into a program or redirect it into a file"));
    }
    let source = Source::open_checked(&args.store)?;
    let format = match args.format.as_deref() {
        Some("npy") => Format::Npy,
        Some(_) => Format::Tar,
        // Several streams are refused with the reason.
        None => Format::of(&source).unwrap_or(Format::Tar),
    };
    // A file of its own, without the line buffer.
    let out = io::stdout().as_fd().try_clone_to_owned().map_err(Error::io("open", name))?;
    let mut out = io::BufWriter::with_capacity(1 << 20, File::from(out));
    let done = export_to(&source, format, &mut out, name, options, watch)?;
    out.into_inner().map_err(|e| Error::io("write", name)(e.into_error()))?;
    Ok(done)
}
