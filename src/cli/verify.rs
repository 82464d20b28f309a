//! `zrfs verify`.

use super::{Done, Failure, bar, print, stores};
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;
use zrfs::{Error, Result, Source};

/// Read everything and name what is damaged
///
/// Every record is read and decoded, on all cores, and compared with the checksum that its frame carries (raw records
/// have none, so a changed byte of theirs does not show) and with its shape; the index of a tree is checked node by node. Damaged records are named, the others stay readable, and the exit status is 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs verify docs.zr
  zrfs verify images.zr --json")]
pub(super) struct Args {
    /// A store or dataset
    store: PathBuf,
    /// Print one JSON object a damaged record, and one for each store at its end
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Done {
    let started = Instant::now();
    // A store whose end is missing has records that can still be read.
    let source = Source::open_with(&zrfs::OpenOptions::new().salvage(true), &args.store)?;
    let mut bad = 0;
    bar::run("record", |watch| {
        let mut total = 0;
        stores::each(&source, |_, stream| -> Result<()> {
            total += stream.store().stats().map_or(0, |stats| stats.bytes);
            Ok(())
        })?;
        watch.progress.set_total_bytes(total);
        stores::each(&source, |name, stream| -> Result<()> {
            let mut written = Ok(());
            let found = stream.verify(watch.progress, &mut |record| {
                let line = if args.json {
                    json!({ "stream": name, "index": record.index, "error": record.error.to_string() }).to_string()
                } else {
                    format!("{}: {}", stores::label(&args.store, name), record.error)
                };
                written = std::mem::replace(&mut written, Ok(())).and_then(|()| say(&line));
            })?;
            written?;
            bad += found.bad;
            say(&if args.json {
                json!({
                    "stream": name, "records": found.records, "bytes": found.bytes,
                    "bad": found.bad, "unchecked": found.unchecked,
                })
                .to_string()
            } else {
                let note = match found.unchecked {
                    0 => String::new(),
                    n => format!(", {} of them without a checksum", print::count(n)),
                };
                let what = if found.bad == 0 {
                    "no damage found".into()
                } else {
                    format!("{} damaged", print::count(found.bad))
                };
                let label = stores::label(&args.store, name);
                let (records, bytes) = (print::counted(found.records, "record"), print::bytes(found.bytes));
                format!("{label}: {records} ({bytes}) read{note}: {what}")
            })
        })
    })?;
    if let Source::Dataset(dataset) = &source
        && let Some(tree) = dataset.tree()
        && let Err(e) = tree.verify()
    {
        bad += 1;
        say(&if args.json { json!({ "error": e.to_string() }).to_string() } else { e.to_string() })?;
    }
    if !args.json {
        eprintln!("zrfs: verified in {}", print::seconds(started.elapsed()));
    }
    if bad == 0 { Ok(()) } else { Err(Failure::Partial) }
}

/// Prints a line of the result as soon as it is known; nothing piles up however much is damaged.
fn say(line: &str) -> Result<()> {
    writeln!(io::stdout(), "{line}").map_err(Error::io("write", "standard output"))
}
