//! `zrfs loader`.

mod verdict;
mod view;

use super::{Done, bar, stores};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use view::View;
use zrfs::format::Codec;
use zrfs::loader::{Loader, LoaderBuilder};
use zrfs::sampler::{DEFAULT_SEED, Mode, Spec, Tail};
use zrfs::{Error, Result, Source};

/// How often it is looked whether to stop.
const TICK: Duration = Duration::from_millis(50);

/// Load batches as a training run would, and show how fast that is and what holds it up
///
/// Runs until Ctrl-C or for --steps, and ends with a summary that names the bottleneck. Several stores and datasets of
/// equal length are loaded together. Nothing is done with a batch, but --step-time pretends that training takes a while.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs loader images.zr
  zrfs loader images.zr labels.zr --batch 512 --steps 1000
  zrfs loader train.zr --step-time 20          would this loader keep up with 20 ms a step?
  zrfs loader train.zr --rank 3 --world 8 --json")]
pub(super) struct Args {
    /// Stores or datasets of equal length
    #[arg(required = true, value_name = "STORE")]
    stores: Vec<PathBuf>,
    /// Records in a batch of all ranks together
    #[arg(long, value_name = "N", default_value_t = 256)]
    batch: u64,
    /// How records are drawn
    #[arg(long, default_value = "cyclic", value_parser = one_of(&Mode::ALL, Mode::name))]
    mode: Mode,
    /// Chooses the order of the records
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED)]
    seed: u64,
    /// The end of a cycle that is no whole batch [default: drop when cyclic, else wrap]
    #[arg(long, value_parser = one_of(&Tail::ALL, Tail::name))]
    tail: Option<Tail>,
    /// Load the part of this rank
    #[arg(long, value_name = "N", requires = "world")]
    rank: Option<u64>,
    /// Of so many ranks
    #[arg(long, value_name = "N", requires = "rank")]
    world: Option<u64>,
    /// Threads that make batches; 0 makes them when they are asked for [default: one a core]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Batches that are kept ready
    #[arg(long, value_name = "N", default_value_t = 4)]
    prefetch: usize,
    /// End after so many batches
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Pretend that training on a batch takes so long
    #[arg(long, value_name = "MS", default_value_t = 0)]
    step_time: u64,
    /// Compare raw records with their checksums, as compressed ones always are
    #[arg(long)]
    verify: bool,
    /// Take batches as they are ready instead of in order
    #[arg(long)]
    unordered: bool,
    /// Print a JSON object a second, and one at the end
    #[arg(long)]
    json: bool,
}

/// One of `all`, by name.
fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.iter().map(|&value| name(value)))
        .try_map(move |text| all.iter().copied().find(|&value| name(value) == text).ok_or("unknown"))
}

pub(super) fn run(args: &Args) -> Done {
    let (builder, decodes) = builder(args)?;
    let loader = builder.build()?;
    let stop = Arc::new(AtomicBool::new(false));
    bar::stop_on_signals(&stop)?;
    let mut view = View::new(args.json, args.prefetch, decodes);
    let stopper = loader.stopper();
    let result = std::thread::scope(|scope| {
        let (done, ticks) = channel::<()>();
        let ticker = scope.spawn(|| {
            let ticks = ticks;
            while let Err(RecvTimeoutError::Timeout) = ticks.recv_timeout(TICK) {
                if stop.load(Ordering::Relaxed) {
                    stopper.stop();
                }
                if let Err(e) = view.tick(&loader) {
                    stopper.stop();
                    return Err(e);
                }
            }
            Ok(())
        });
        let consumed = consume(&loader, args, &stop);
        drop(done);
        // A thread that panicked has said so.
        let shown = ticker.join().unwrap_or(Ok(()));
        consumed.map(|()| shown)
    });
    view.clear();
    match result {
        Ok(shown) => shown?,
        Err(e) => return Err(e.into()),
    }
    Ok(view.summary(&loader)?)
}

/// What the arguments say, and whether any of the stores is compressed.
fn builder(args: &Args) -> Result<(LoaderBuilder, bool)> {
    let spec = Spec {
        seed: args.seed,
        rank: args.rank.unwrap_or(0),
        world: args.world.unwrap_or(1),
        ..Spec::new(args.mode, args.batch)
    };
    let mut builder = Loader::builder().spec(spec).prefetch(args.prefetch);
    if let Some(tail) = args.tail {
        builder = builder.tail(tail);
    }
    if let Some(workers) = args.workers {
        builder = builder.workers(workers);
    }
    if args.unordered {
        builder = builder.in_completion_order();
    }
    let mut decodes = false;
    for store in &args.stores {
        let source = if args.verify { Source::open_checked(store) } else { Source::open(store) }?;
        stores::each(&source, |_, stream| -> Result<()> {
            decodes |= stream.store().codec() != Codec::Raw;
            Ok(())
        })?;
        builder = builder.source(source);
    }
    Ok((builder, decodes))
}

/// Takes batches until it is to stop.
fn consume(loader: &Loader, args: &Args, stop: &AtomicBool) -> Result<()> {
    let step_time = Duration::from_millis(args.step_time);
    let mut left = args.steps;
    while left != Some(0)
        && let Some(batch) = loader.next()
    {
        let _batch = batch.map_err(|e| Error::invalid(e.to_string()))?;
        let begin = Instant::now();
        while let Some(rest) = step_time.checked_sub(begin.elapsed())
            && !rest.is_zero()
            && !stop.load(Ordering::Relaxed)
        {
            std::thread::sleep(rest.min(TICK));
        }
        left = left.map(|left| left - 1);
    }
    Ok(())
}
