//! `zrfs sample`.

use super::Done;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::str::FromStr;
use zrfs::sampler::{Sampler, Spec};
use zrfs::{Error, Source};

/// So many indices are drawn together; a batch may be larger than memory.
const PIECE: usize = 4096;

/// Print the record indices that a sampler draws, one batch a line
///
/// SPEC is a mode (sequential, iid, iid_counter or cyclic) and key=value pairs: batch (of all ranks together), seed
/// (42), rank and world (0 of 1), tail (drop, keep or wrap, the end of a cycle). The streams of sequential, iid and
/// cyclic are those of loaderx.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs sample cyclic,batch=256,seed=42 train.zr | head -1
  zrfs sample cyclic,batch=4,rank=1,world=2 --length 10 --steps 0..5
  zrfs sample sequential,batch=64,tail=keep --length 1000
  zrfs sample iid_counter,batch=8 --length 1000 --steps 1000000000 --flat")]
pub(super) struct Args {
    /// What to draw, as cyclic,batch=256,seed=42
    spec: Spec,
    /// The store or dataset whose records are drawn
    #[arg(required_unless_present = "length", conflicts_with = "length")]
    store: Option<PathBuf>,
    /// Draw from that many records, without a store
    #[arg(long, value_name = "N")]
    length: Option<u64>,
    /// The steps to print: A..B (without B), A.. (no end), ..B, or one step; by default one pass over the records
    #[arg(long, value_name = "A..B")]
    steps: Option<Steps>,
    /// Print one index a line
    #[arg(long)]
    flat: bool,
}

/// Steps from `from` on, to the one before `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Steps {
    from: u64,
    to: Option<u64>,
}

impl FromStr for Steps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let step = |text: &str| {
            let digits = text.bytes().all(|b| b.is_ascii_digit());
            let value = if digits { text.parse().ok() } else { None };
            value.ok_or_else(|| format!("{text:?} is no step, which is a whole number from 0 to {}", u64::MAX))
        };
        let Some((from, to)) = text.split_once("..") else {
            let from = step(text)?;
            // After the last step of all comes none, so it needs no end.
            return Ok(Steps { from, to: from.checked_add(1) });
        };
        let steps = Steps {
            from: if from.is_empty() { 0 } else { step(from)? },
            to: if to.is_empty() { None } else { Some(step(to)?) },
        };
        match steps.to {
            Some(to) if to < steps.from => Err(format!("step {to} comes before step {}", steps.from)),
            _ => Ok(steps),
        }
    }
}

pub(super) fn run(args: &Args) -> Done {
    let length = match (&args.store, args.length) {
        (Some(store), _) => {
            let source = Source::open(store)?;
            if source.is_empty() {
                return Err(Error::invalid(format!("{} is empty: there is nothing to draw", store.display())).into());
            }
            source.len()
        }
        (None, length) => length.unwrap_or_default(),
    };
    let mut sampler = Sampler::new(args.spec.clone(), length)?;
    let pass = || sampler.steps_per_cycle().unwrap_or_else(|| length.div_ceil(args.spec.batch));
    let steps = args.steps.unwrap_or_else(|| Steps { from: 0, to: Some(pass()) });
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let mut step = steps.from;
    while steps.to.is_none_or(|to| step < to) {
        batch(&mut out, &mut sampler, step, args.flat)?;
        let Some(next) = step.checked_add(1) else { break };
        step = next;
    }
    out.flush()?;
    Ok(())
}

/// Prints the batch of `step`.
fn batch(out: &mut impl Write, sampler: &mut Sampler, step: u64, flat: bool) -> Done {
    let mut piece = [0; PIECE];
    let len = sampler.batch_len(step);
    let mut offset = 0;
    while offset < len {
        let n = usize::try_from(len - offset).unwrap_or(PIECE).min(PIECE);
        sampler.part_at(step, offset, &mut piece[..n])?;
        for (k, index) in (offset..).zip(&piece[..n]) {
            match (flat, k) {
                (true, _) => writeln!(out, "{index}")?,
                (false, 0) => write!(out, "{index}")?,
                (false, _) => write!(out, " {index}")?,
            }
        }
        offset += n as u64;
    }
    if !flat {
        writeln!(out)?;
    }
    Ok(())
}
