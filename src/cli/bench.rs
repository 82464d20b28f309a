//! `zrfs bench`.

use super::{Done, print, stores};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;
use zrfs::format::Codec;
use zrfs::measure::{Bench, Bound, Rate};
use zrfs::{Error, Result, Source, Stream};

/// From this share of a limit on, the limit is what bounds a gather.
const AT_THE_LIMIT: f64 = 0.8;
/// From this many times the speed on, larger batches are said to help.
const FASTER: f64 = 1.1;
/// Records below this many bytes, on average, cost more to find than to copy.
const SMALL: f64 = 1024.0;
/// Measurements that a store takes, at most; the time is shared out to them.
const MEASUREMENTS: f64 = 12.0;

/// Measure how fast batches of a store come on this machine, and say what bounds that
///
/// Random batches are gathered into memory that is used again, as a loader does: by one thread and by all, small and large,
/// and of records that the page cache has not (it is told to forget this store, which is read again from the disk; nothing
/// is written). Beside them stand the limits: copying as many bytes in memory, and decoding what is in memory already.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs bench images.zr
  zrfs bench train.zr --batch 64 --stream image
  zrfs bench images.zr --seconds 20 --json | jq .gather")]
pub(super) struct Args {
    /// A store or dataset
    store: PathBuf,
    /// Records in a batch
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch: u32,
    /// Of a dataset, measure this stream only
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// How long it takes, about, for each stream
    #[arg(long, value_name = "S", default_value_t = 4.0, value_parser = seconds)]
    seconds: f64,
    /// Leave what the page cache has of the store as it is, and measure nothing cold
    #[arg(long)]
    warm: bool,
    /// Print one JSON object a stream, with rates in bytes and records a second
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|s: &f64| (0.1..=3600.0).contains(s));
    value.ok_or_else(|| "a number of seconds from 0.1 to 3600 is wanted".into())
}

pub(super) fn run(args: &Args) -> Done {
    let source = Source::open(&args.store)?;
    let mut out = io::stdout().lock();
    let mut found = false;
    stores::each(&source, |name, stream| -> Result<()> {
        if args.stream.as_deref().is_some_and(|wanted| wanted != name) {
            return Ok(());
        }
        found = true;
        let measured = Measured::of(stream, args)?;
        let text = if args.json { measured.json(name) } else { measured.text(&stores::label(&args.store, name)) };
        writeln!(out, "{text}").map_err(Error::io("write", "standard output"))
    })?;
    if let (false, Some(name)) = (found, &args.stream) {
        let names = match &source {
            Source::Store(_) => "it is a single store".into(),
            Source::Dataset(dataset) => {
                let names: Vec<&str> = dataset.streams().iter().map(|(name, _)| name.as_ref()).collect();
                format!("it has {}", names.join(", "))
            }
        };
        return Err(Error::invalid(format!("{} has no stream {name:?}; {names}", args.store.display())).into());
    }
    Ok(())
}

/// All rates of one store, each by one thread and by all.
struct Measured {
    codec: Codec,
    records: u64,
    copy: [Rate; 2],
    decode: Option<[Rate; 2]>,
    /// For each size of batch, in ascending order.
    gather: Vec<[Rate; 2]>,
    /// Which of them is of the batch that was asked for, or as near to that as can be.
    main: usize,
    /// Why it is smaller than was asked for.
    note: Option<String>,
    /// `None` where it was not measured; within, where nothing could be.
    cold: Option<Option<Rate>>,
}

impl Measured {
    fn of(stream: &Stream, args: &Args) -> Result<Self> {
        let store = stream.store();
        let mut bench = Bench::new(store, Duration::from_secs_f64(args.seconds / MEASUREMENTS))?;
        let asked = args.batch as usize;
        let cold = (!args.warm).then(|| bench.cold(asked)).transpose()?;
        bench.warm()?;
        let (most, mut bound) = bench.most(asked)?;
        let mut main = bench.gather(most)?;
        if main[0].batch < most {
            bound = Some(Bound::Time);
        }
        let decode = bench.decode(main[0].batch)?;
        // Batches are compared with others of the same size.
        if let Some(decode) = decode.filter(|decode| decode[0].batch < main[0].batch) {
            bound = Some(Bound::Time);
            main = bench.gather(decode[0].batch)?;
        }
        let n = main[0].batch;
        let copy = bench.copy(n)?;
        let mut gather = vec![main];
        if n > 1 {
            gather.insert(0, bench.gather(n.div_ceil(16))?);
        }
        let (larger, _) = bench.most(n.saturating_mul(16))?;
        // Where the time bounds the batch already, a larger one would not be larger.
        if larger > n && bound != Some(Bound::Time) {
            gather.push(bench.gather(larger)?);
        }
        let position = usize::from(n > 1);
        // Nor does a size stand there twice: the time may have made a batch smaller.
        gather.dedup_by(|next, before| next[1].batch <= before[1].batch);
        let note = bound.filter(|_| n < asked).map(|bound| note(asked, n, bound, store.len()));
        Ok(Measured {
            codec: store.codec(),
            records: store.len(),
            copy,
            decode,
            main: position.min(gather.len() - 1),
            gather,
            note,
            cold,
        })
    }

    /// The gather of the batch that was asked for, by all threads.
    fn main(&self) -> Rate {
        self.gather[self.main][1]
    }

    /// How many times as fast the larger batches came, and what they have, where that was measured and is worth it.
    fn larger(&self) -> Option<(f64, usize)> {
        let larger = self.gather.get(self.main + 1)?[1];
        let times = larger.bytes_per_second / self.main().bytes_per_second;
        (times >= FASTER).then_some((times, larger.batch))
    }

    fn text(&self, label: &str) -> String {
        let main = self.main();
        let record = main.bytes_per_second / main.records_per_second;
        let about = print::bytes(record.round() as u64);
        let mut text =
            format!("{label}: {} of about {about}, {}\n", print::counted(self.records, "record"), self.codec.name());
        if let Some(note) = &self.note {
            text += note;
            text.push('\n');
        }
        let threads = self.copy[1].threads;
        text += &format!("{:34}{:>14}{:>14}\n", "", "one thread", format!("{threads} threads"));
        let mut line = |what: String, rates: [Option<Rate>; 2]| {
            let shown =
                rates.map(|rate| rate.map_or("-".into(), |r| format!("{}/s", print::bytes(r.bytes_per_second as u64))));
            text += format!("{what:34}{:>14}{:>14}", shown[0], shown[1]).trim_end();
            text.push('\n');
        };
        line("copying in memory, the limit".into(), self.copy.map(Some));
        if let Some(decode) = self.decode {
            line("decoding in memory, the limit".into(), decode.map(Some));
        }
        for rates in &self.gather {
            line(format!("gather, batches of {}", print::count(rates[1].batch as u64)), rates.map(Some));
        }
        match self.cold {
            Some(Some(cold)) => {
                let what = if cold.batch == main.batch {
                    "the same, not in the page cache".into()
                } else {
                    format!("not in the page cache, of {}", print::count(cold.batch as u64))
                };
                line(what, [None, Some(cold)]);
            }
            Some(None) => text += "cold: not measurable here: the files stay in memory\n",
            None => {}
        }
        text += &self.verdict();
        text
    }

    /// What bounds it, in words.
    fn verdict(&self) -> String {
        let main = self.main();
        let share = |of: Rate| main.bytes_per_second / of.bytes_per_second;
        let record = main.bytes_per_second / main.records_per_second;
        let mut text = if let Some([_, all]) = self.decode {
            let spent = (share(all) * 100.0).min(100.0);
            if share(all) >= AT_THE_LIMIT {
                format!(
                    "Decoding bounds it: {spent:.0}% of a batch's time. More cores help, or a codec that decodes faster (zrfs recode)."
                )
            } else {
                format!("Decoding takes {spent:.0}% of a batch's time; finding and fetching records the rest.")
            }
        } else if share(self.copy[1]) >= AT_THE_LIMIT {
            let share = (share(self.copy[1]) * 100.0).min(100.0);
            format!("Memory bounds it: batches come at {share:.0}% of the speed at which it is copied.")
        } else if record < SMALL {
            format!(
                "Records are small: each costs {:.0} ns, of which copying is a part. Several records in one help.",
                1e9 / main.records_per_second
            )
        } else {
            format!("Batches come at {:.0}% of the speed at which memory is copied.", share(self.copy[1]) * 100.0)
        };
        if let Some((times, batch)) = self.larger() {
            let batch = print::count(batch as u64);
            text += &format!(" Larger batches help: those of {batch} come {times:.1} times as fast.");
        }
        match self.cold {
            Some(Some(cold)) if cold.bytes_per_second < main.bytes_per_second / 2.0 => {
                let times = main.bytes_per_second / cold.bytes_per_second;
                text += &format!(" Until the store is in the page cache the disk bounds it, {times:.0} times lower.");
            }
            Some(None) => {
                text += " It could not be measured cold: the system keeps the store in memory, most likely because a \
                         process has it mapped or mounted, or because its file system is in memory.";
            }
            _ => {}
        }
        text
    }

    fn json(&self, name: &str) -> String {
        let rate = |r: &Rate| {
            json!({
                "batch": r.batch, "threads": r.threads, "bytes_per_second": r.bytes_per_second,
                "records_per_second": r.records_per_second,
            })
        };
        let rates = |rates: &[Rate]| rates.iter().map(rate).collect::<Vec<Value>>();
        json!({
            "stream": name, "records": self.records, "codec": self.codec.name(),
            "copy": rates(&self.copy), "decode": self.decode.as_ref().map(|both| rates(both)),
            "gather": rates(&self.gather.concat()), "note": self.note, "cold": self.cold.flatten().as_ref().map(rate),
            "verdict": self.verdict(),
        })
        .to_string()
    }
}

/// Says that batches are smaller than was asked for, and why.
fn note(asked: usize, n: usize, bound: Bound, records: u64) -> String {
    let why = match bound {
        Bound::Records => format!("the store has {}", print::counted(records, "record")),
        Bound::Warm => "so many could be read into the page cache before; more --seconds may allow more".into(),
        Bound::Memory => "a batch has at most 512 MiB".into(),
        Bound::Time => "more do not fit into a measurement's time and memory; more --seconds may allow more".into(),
    };
    format!("Batches of {} are measured, not of {}: {why}.", print::count(n as u64), print::count(asked as u64))
}
