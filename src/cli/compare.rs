//! `zrfs compare`.

use super::{Done, Failure, bar, print};
use serde_json::json;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use zrfs::compare::{Compared, Difference, Place, compare};
use zrfs::{Error, Result, Source};

/// Compare what two stores or datasets hold
///
/// Streams are compared record by record (type, shape, length, bytes), trees path by path (kind, mode, time, link target,
/// bytes), whatever the codecs, levels and the order of a tree's records are. The exit status is 0 if nothing differs, 1 if
/// something does, 2 if they could not be compared.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs compare docs.zr copy.zr
  zrfs compare images.zr recoded.zr --json | jq -r .index")]
pub(super) struct Args {
    /// A store or dataset
    a: PathBuf,
    /// Another
    b: PathBuf,
    /// Name so many differences; all are counted
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: u64,
    /// Print one JSON object a difference, and one for the whole at the end
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

pub(super) fn run(args: &Args) -> Done {
    let started = Instant::now();
    let mut differs = false;
    let done = bar::run("record", |watch| {
        let (a, b) = (Source::open_checked(&args.a)?, Source::open_checked(&args.b)?);
        let (mut named, mut written) = (0, Ok(()));
        let done = compare(&a, &b, watch.progress, &mut |difference| {
            if named < args.limit && !args.quiet && written.is_ok() {
                written = say(&if args.json { as_json(difference) } else { as_text(args, difference) });
            }
            named += 1;
            differs = true;
        });
        // What could not be written comes first: it may be why the job was stopped.
        written.and(done)
    });
    let done = done.map_err(|e| match e {
        // Whoever reads no further has the status all the same.
        Error::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe && differs => Failure::Partial,
        Error::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => Failure::Closed,
        e => Failure::Trouble(e),
    })?;
    if !args.quiet {
        finish(args, &done, started)?;
    }
    if done.differences == 0 { Ok(()) } else { Err(Failure::Partial) }
}

fn finish(args: &Args, done: &Compared, started: Instant) -> Result<()> {
    if args.json {
        return say(&json!({
            "equal": done.differences == 0,
            "records": done.records,
            "entries": done.entries,
            "bytes": done.bytes,
            "differences": done.differences,
            "different_records": done.different_records,
            "different_paths": done.different_paths,
        })
        .to_string());
    }
    if done.differences > args.limit {
        say(&format!("… and {} more", print::count(done.differences - args.limit)))?;
    }
    let what = if done.entries > 0 {
        let entries = if done.entries == 1 { "1 path".into() } else { format!("{} paths", print::count(done.entries)) };
        if done.records > 0 { format!("{entries} and {}", print::counted(done.records, "record")) } else { entries }
    } else {
        print::counted(done.records, "record")
    };
    let found = match done.differences {
        0 => "equal".into(),
        n => print::counted(n, "difference"),
    };
    say(&format!("{what} ({}) compared: {found}", print::bytes(done.bytes)))?;
    eprintln!("zrfs: compared in {}", print::seconds(started.elapsed()));
    Ok(())
}

fn as_text(args: &Args, difference: &Difference) -> String {
    let stream = |name: &str| super::stores::label(&args.a, name);
    let place = match &difference.place {
        Place::Whole => format!("{} and {}", print::path(&args.a), print::path(&args.b)),
        Place::Stream(name) => stream(name),
        Place::Record(name, index) => format!("{}: record {index}", stream(name)),
        Place::Path(path) if path.is_empty() => ".".into(),
        Place::Path(path) => print::path_bytes(path),
    };
    format!("{place}: {}", difference.what)
}

fn as_json(difference: &Difference) -> String {
    let what = &difference.what;
    match &difference.place {
        Place::Whole => json!({ "difference": what }),
        Place::Stream(name) => json!({ "stream": name, "difference": what }),
        Place::Record(name, index) => json!({ "stream": name, "index": index, "difference": what }),
        Place::Path(path) => json!({ "path": text(path), "difference": what }),
    }
    .to_string()
}

/// A path for JSON, which has only text.
fn text(path: &[u8]) -> String {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(path)).to_string_lossy().into_owned()
}

/// Prints a line of the result as soon as it is known.
fn say(line: &str) -> Result<()> {
    writeln!(io::stdout(), "{line}").map_err(Error::io("write", "standard output"))
}
