//! `zrfs verify`.

use super::{Done, Failure, bar, print, stores};
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;
use zrfs::format::Codec;
use zrfs::store::Bad;
use zrfs::{Error, Result, Source, WriterOptions};

/// So many damaged records of a store are named, the others counted: a store that is damaged everywhere would print a line
/// for each of billions, and nobody reads more than these.
const NAMED: u64 = 10_000;

/// Read everything and name what is damaged
///
/// Every record is read and decoded, on all cores, and compared with its checksum (compressed records carry it, those of
/// raw records are in sums.zr) and with its shape; the index of a tree is checked node by node. Damaged records are
/// named (of each store the first 10,000, the rest is counted), the others stay readable, and the exit status is 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs verify docs.zr
  zrfs verify images.zr --json
  zrfs verify --rebuild images.zr     raw records that another program wrote get checksums")]
pub(super) struct Args {
    /// A store or dataset
    store: PathBuf,
    /// Print one JSON object a damaged record, and one for each store at its end
    #[arg(long)]
    json: bool,
    /// Give a checksum to every raw record that has none that counts; damaged records keep theirs
    #[arg(long)]
    rebuild: bool,
}

pub(super) fn run(args: &Args) -> Done {
    let started = Instant::now();
    if args.rebuild {
        return rebuild(args);
    }
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
            let mut named = Named::new(args, name);
            let found = stream.verify(watch.progress, &mut |record| named.say(&record))?;
            let unnamed = named.end()?;
            bad += found.bad;
            say(&if args.json {
                json!({
                    "stream": name, "records": found.records, "bytes": found.bytes,
                    "bad": found.bad, "unnamed": unnamed, "unchecked": found.unchecked, "doubtful": found.doubtful,
                })
                .to_string()
            } else {
                let note = match found.unchecked - found.doubtful {
                    0 => String::new(),
                    n => format!(", {} of them without a checksum", print::count(n)),
                };
                let doubt = match found.doubtful {
                    0 => String::new(),
                    n => format!(
                        ", {} of them other than when zrfs wrote their checksums (the store was changed by another \
                         program since, or copied without its times)",
                        print::count(n)
                    ),
                };
                let label = stores::label(&args.store, name);
                let hint = if found.doubtful > 0 {
                    // Not the command alone: of a damaged copy it would make the damage count as right.
                    &format!(
                        "\n{label}: those may be damaged. Of a copy that is made again with its times (cp -a, rsync -a) the \
                         checksums count; where the records are right, `zrfs verify --rebuild` makes them count again"
                    )
                } else if found.unchecked > 0 && stream.store().codec() == Codec::Raw {
                    "; `zrfs verify --rebuild` makes checksums of the records as they are"
                } else {
                    ""
                };
                let what = if found.bad == 0 {
                    "no damage found".into()
                } else {
                    format!("{} damaged", print::count(found.bad))
                };
                let (records, bytes) = (print::counted(found.records, "record"), print::bytes(found.bytes));
                format!("{label}: {records} ({bytes}) read{note}{doubt}: {what}{hint}")
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
    // All records may be right, and yet nothing but this opens the store.
    if bad == 0
        && let Err(e) = Source::open(&args.store)
    {
        bad += 1;
        say(&if args.json { json!({ "error": e.to_string() }).to_string() } else { e.to_string() })?;
    }
    if !args.json {
        eprintln!("zrfs: verified in {}", print::seconds(started.elapsed()));
    }
    if bad == 0 { Ok(()) } else { Err(Failure::Partial) }
}

/// Makes the checksums of all raw streams.
fn rebuild(args: &Args) -> Done {
    let started = Instant::now();
    let (mut raw, mut compressed) = (Vec::new(), None);
    let mut total = 0;
    stores::each(&Source::open(&args.store)?, |name, stream| -> Result<()> {
        let store = stream.store();
        if store.codec() == Codec::Raw {
            total += store.stats()?.bytes;
            raw.push((name.to_string(), store.path().to_path_buf()));
        } else {
            compressed.get_or_insert_with(|| store.codec());
        }
        Ok(())
    })?;
    if let (true, Some(codec)) = (raw.is_empty(), compressed) {
        let store = print::path(&args.store);
        return Err(Error::invalid(format!("{store} is {codec}: its frames carry their checksums")).into());
    }
    let mut bad = 0;
    bar::run("record", |watch| {
        watch.progress.set_total_bytes(total);
        for (name, path) in &raw {
            let mut writer = WriterOptions::new(Codec::Raw).open(path)?;
            let mut named = Named::new(args, name);
            let done = writer.rebuild_sums(watch.progress, &mut |record| named.say(&record))?;
            let unnamed = named.end()?;
            writer.close()?;
            bad += done.bad;
            say(&if args.json {
                json!({
                    "stream": name, "records": done.records, "bytes": done.bytes,
                    "bad": done.bad, "unnamed": unnamed, "made": done.made, "replaced": done.replaced,
                })
                .to_string()
            } else {
                let (records, bytes) = (print::counted(done.records, "record"), print::bytes(done.bytes));
                let (made, replaced) = (print::counted(done.made, "checksum"), print::count(done.replaced));
                let kept = match done.bad {
                    0 => String::new(),
                    n => format!("; {} damaged, which keep their checksums", print::count(n)),
                };
                let label = stores::label(&args.store, name);
                format!("{label}: {records} ({bytes}) read, {made} made, {replaced} replaced{kept}")
            })?;
        }
        Ok(())
    })?;
    if !args.json {
        eprintln!("zrfs: rebuilt in {}", print::seconds(started.elapsed()));
    }
    if bad == 0 { Ok(()) } else { Err(Failure::Partial) }
}

/// Names the damaged records of one store, up to [`NAMED`].
struct Named<'a> {
    args: &'a Args,
    stream: &'a str,
    /// How many there were.
    count: u64,
    /// Whether all could be written.
    written: Result<()>,
}

impl<'a> Named<'a> {
    fn new(args: &'a Args, stream: &'a str) -> Self {
        Named { args, stream, count: 0, written: Ok(()) }
    }

    fn say(&mut self, record: &Bad) {
        self.count += 1;
        if self.count > NAMED || self.written.is_err() {
            return;
        }
        self.written = say(&if self.args.json {
            json!({ "stream": self.stream, "index": record.index, "error": record.error.to_string() }).to_string()
        } else {
            format!("{}: {}", stores::label(&self.args.store, self.stream), record.error)
        });
    }

    /// Says how many were not named, and returns it.
    fn end(self) -> Result<u64> {
        self.written?;
        let unnamed = self.count.saturating_sub(NAMED);
        if unnamed > 0 && !self.args.json {
            let label = stores::label(&self.args.store, self.stream);
            say(&format!("{label}: {} more lines like these, not shown", print::count(unnamed)))?;
        }
        Ok(unnamed)
    }
}

/// Prints a line of the result as soon as it is known; nothing piles up however much is damaged.
fn say(line: &str) -> Result<()> {
    writeln!(io::stdout(), "{line}").map_err(Error::io("write", "standard output"))
}
