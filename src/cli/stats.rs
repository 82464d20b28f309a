//! `zrfs stats`.

use super::{Done, print, stores};
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;
use zrfs::{Result, Source};

/// Say how much space a store takes, and how much of that deleted records hold
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  zrfs stats images.zr --json | jq .reclaimable")]
pub(super) struct Args {
    /// A store or dataset
    store: PathBuf,
    /// Print one JSON object a store
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Done {
    let source = Source::open(&args.store)?;
    let mut lines = Vec::new();
    stores::each(&source, |name, stream| -> Result<()> {
        let stats = stream.store().stats()?;
        lines.push(if args.json {
            json!({
                "stream": name, "records": stats.records, "bytes": stats.bytes, "live_bytes": stats.live_bytes,
                "chunk_bytes": stats.chunk_bytes, "reclaimable": stats.reclaimable(),
            })
            .to_string()
        } else {
            format!(
                "{}: {} ({}), stored in {}, of which {} could be reclaimed",
                stores::label(&args.store, name),
                print::counted(stats.records, "record"),
                print::bytes(stats.bytes),
                print::bytes(stats.chunk_bytes),
                print::bytes(stats.reclaimable())
            )
        });
        Ok(())
    })?;
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
