//! `zrfs info`.

use super::{Done, print};
use serde_json::Value;
use std::io::{self, Write};
use std::path::PathBuf;
use zrfs::Source;

/// Say what a store or dataset holds
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs info docs.zr
  zrfs info images.zr --json | jq .records")]
pub(super) struct Args {
    /// A store or dataset
    store: PathBuf,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Done {
    let source = Source::open(&args.store)?;
    let info = Value::Object(zrfs::info::info(&source));
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{info:#}")?;
    } else {
        writeln!(out, "{}", print::path(&args.store))?;
        lines(&mut out, &info, 2)?;
    }
    Ok(())
}

/// One line a value, nested ones indented.
fn lines(out: &mut impl Write, value: &Value, indent: usize) -> io::Result<()> {
    for (key, value) in value.as_object().into_iter().flatten() {
        let label = key.replace('_', " ");
        match value {
            Value::Object(_) => {
                writeln!(out, "{:indent$}{label}", "")?;
                lines(out, value, indent + 2)?;
            }
            Value::Number(n) => {
                let n = n.as_u64().unwrap_or_default();
                let size = if key.contains("bytes") { format!(" ({})", print::bytes(n)) } else { String::new() };
                writeln!(out, "{:indent$}{label:<14}{}{size}", "", print::count(n))?;
            }
            Value::String(text) => writeln!(out, "{:indent$}{label:<14}{text}", "")?,
            other => writeln!(out, "{:indent$}{label:<14}{other}", "")?,
        }
    }
    Ok(())
}
