//! Which records make up which batch: index streams for training, computed and never stored.
//!
//! Every batch is a function of (length, batch size, seed, mode, tail, step) alone, so a [`Sampler`] resumes from a step
//! number, and any number of ranks can share a stream. Nothing here does I/O; memory does not grow with the length.
//! The streams of modes `sequential`, `iid` and `cyclic` equal those of `loaderx` 1.5.2 bit for bit.
//! `docs/SAMPLER.md` has the formulas.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

mod counter;
mod feistel;
mod iid;
mod keys;
mod lemire;
mod plan;
mod sfc64;
mod spec;

pub use iid::MAX_REPLAY;
pub use keys::{parse_length, parse_with};
pub use spec::{DEFAULT_SEED, Mode, Spec, Tail};

use crate::error::{Error, Result};
use counter::Counter;
use feistel::Cycles;
use iid::{Cursor, Iid};
use plan::Plan;

/// A stream of batches of record indices, at a step.
///
/// ```
/// # fn main() -> zrfs::Result<()> {
/// use zrfs::sampler::Sampler;
///
/// let mut sampler = Sampler::new("cyclic,batch=4,seed=123".parse()?, 10)?;
/// let mut batch = [0; 4];
/// sampler.next(&mut batch)?;
/// assert_eq!(batch, [1, 4, 3, 2]);
/// sampler.seek(5)?;
/// sampler.next(&mut batch)?;
/// assert_eq!((batch, sampler.step()), ([8, 1, 7, 4], 6));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Sampler {
    spec: Spec,
    plan: Plan,
    source: Source,
    step: u64,
}

/// What turns positions of the stream into indices.
#[derive(Debug, Clone)]
enum Source {
    Sequential,
    Cyclic(Cycles),
    Iid(Box<Iid>),
    Counter(Counter),
}

impl Sampler {
    /// A sampler over `length` records, at step 0. Takes at most 128 KiB of memory, whatever the length.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `length` is 0, or if [`Spec::validate`] refuses `spec`.
    pub fn new(spec: Spec, length: u64) -> Result<Self> {
        spec.validate()?;
        if length == 0 {
            return Err(Error::invalid("there are no records to draw batches from: the length is 0"));
        }
        let source = match spec.mode {
            Mode::Sequential => Source::Sequential,
            Mode::Cyclic => Source::Cyclic(Cycles::new(length, spec.seed)),
            Mode::Iid => Source::Iid(Box::new(Iid::new(length, spec.seed))),
            Mode::IidCounter => Source::Counter(Counter::new(length, spec.seed)),
        };
        Ok(Self { plan: Plan::new(length, spec.batch, spec.tail), spec, source, step: 0 })
    }

    /// What it draws.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The number of records it draws from.
    pub fn length(&self) -> u64 {
        self.plan.length()
    }

    /// The step whose batch [`next`](Sampler::next) gives. Together with the spec and the length it is all the state
    /// that there is.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The number of steps after which a cycle ends with the end of a batch; `None` where batches run on from one cycle
    /// into the next (tail `wrap`, and both iid modes).
    pub fn steps_per_cycle(&self) -> Option<u64> {
        self.plan.steps_per_cycle()
    }

    /// The number of indices that this rank has in the batch of `step`.
    pub fn batch_len(&self, step: u64) -> u64 {
        let (start, end) = self.share(step);
        end.wrapping_sub(start)
    }

    /// The most indices that this rank ever has in a batch: a buffer of that length fits every step.
    pub fn max_batch_len(&self) -> u64 {
        // No batch is larger than the first, and a rank's part never grows when the batch shrinks.
        self.batch_len(0)
    }

    /// Puts this rank's part of the next batch into the front of `out` and returns its length, which is
    /// [`batch_len`](Sampler::batch_len); it may be 0 where there are more ranks than indices. Allocates nothing. After
    /// step 2^64 − 1 comes step 0.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] if `out` is too short, and [`Error::Invalid`] if more than [`MAX_REPLAY`] draws of
    /// `iid` would have to be replayed. The sampler stays where it was.
    pub fn next(&mut self, out: &mut [u64]) -> Result<usize> {
        let n = self.draw_batch(self.step, out, Cursor::Stream)?;
        self.step = self.step.wrapping_add(1);
        Ok(n)
    }

    /// The same for the batch of any step, without moving the stream.
    ///
    /// Costs what `next` costs, but for mode `iid`, which replays the draws before it: about a nanosecond for each of
    /// [`replay`](Sampler::replay). The sampler remembers states of its generator on the way, which is why this
    /// takes `&mut self`; another thread clones the sampler.
    ///
    /// # Errors
    /// As [`next`](Sampler::next).
    pub fn batch_at(&mut self, step: u64, out: &mut [u64]) -> Result<usize> {
        self.draw_batch(step, out, Cursor::Lookup)
    }

    /// Fills `out` with the indices `offset..offset + out.len()` of this rank's part of the batch of `step`: a batch of
    /// any size in pieces of the caller's choice.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the part has fewer indices, and as for [`batch_at`](Sampler::batch_at).
    pub fn part_at(&mut self, step: u64, offset: u64, out: &mut [u64]) -> Result<()> {
        let (start, end) = self.share(step);
        let len = end.wrapping_sub(start);
        if offset.checked_add(out.len() as u64).is_none_or(|last| last > len) {
            return Err(Error::invalid(format!(
                "{} indices from {offset} on of the batch of step {step}: it has {len}",
                out.len()
            )));
        }
        self.draw(step, start.wrapping_add(offset), out, Cursor::Lookup)
    }

    /// Makes `step` the next one. O(1), but for mode `iid`, which replays: see [`replay`](Sampler::replay).
    ///
    /// # Errors
    /// [`Error::Invalid`] if more than [`MAX_REPLAY`] draws of `iid` would have to be replayed. The sampler stays where
    /// it was.
    pub fn seek(&mut self, step: u64) -> Result<()> {
        self.draw(step, self.share(step).0, &mut [], Cursor::Stream)?;
        self.step = step;
        Ok(())
    }

    /// How many draws [`batch_at`](Sampler::batch_at) has to replay to reach `step`: 0 for every mode but `iid`, where
    /// it is the distance from the nearest state that the sampler remembers. Each takes about a nanosecond.
    pub fn replay(&self, step: u64) -> u128 {
        match &self.source {
            Source::Iid(iid) => iid.distance(self.plan.place(step, self.share(step).0)),
            _ => 0,
        }
    }

    /// The batches from [`step`](Sampler::step) on, without end, each in a new `Vec`.
    pub fn batches(&mut self) -> impl Iterator<Item = Result<Vec<u64>>> {
        std::iter::from_fn(move || {
            let mut batch = Vec::new();
            let len = self.batch_len(self.step);
            if usize::try_from(len).ok().is_none_or(|len| batch.try_reserve_exact(len).is_err()) {
                return Some(Err(Error::invalid(format!("there is no memory for a batch of {len} indices"))));
            }
            batch.resize(len as usize, 0);
            Some(self.next(&mut batch).map(|_| batch))
        })
    }

    /// Where this rank's part of the batch of `step` starts and ends in the batch.
    fn share(&self, step: u64) -> (u64, u64) {
        plan::share(self.plan.batch_len(step), self.spec.rank, self.spec.world)
    }

    fn draw_batch(&mut self, step: u64, out: &mut [u64], cursor: Cursor) -> Result<usize> {
        let (start, end) = self.share(step);
        let (have, len) = (out.len() as u64, end.wrapping_sub(start));
        // The length fits usize if it is at most that of a slice.
        let Some(out) = out.get_mut(..usize::try_from(len).unwrap_or(usize::MAX)) else {
            return Err(Error::BufferTooSmall { need: len.saturating_mul(8), have: have.saturating_mul(8) });
        };
        self.draw(step, start, out, cursor)?;
        Ok(out.len())
    }

    /// The indices of the global batch of `step` from `offset` on; the caller has checked that it has so many.
    fn draw(&mut self, step: u64, offset: u64, out: &mut [u64], cursor: Cursor) -> Result<()> {
        match &mut self.source {
            Source::Iid(iid) => return iid.draw(self.plan.place(step, offset), out, cursor),
            Source::Counter(counter) => counter.draw(self.plan.place(step, offset), out),
            Source::Sequential => self.plan.runs(step, offset, out, |_, position, run| {
                for (index, at) in run.iter_mut().zip(position..) {
                    *index = at;
                }
            }),
            Source::Cyclic(cycles) => self.plan.runs(step, offset, out, |cycle, position, run| {
                cycles.permute(cycle, position, run);
            }),
        }
        Ok(())
    }
}

/// A copy with the original's capacity, so that it can be filled without allocating: `Vec`'s own clone has none to spare.
fn copy_with_capacity<T: Copy>(vec: &Vec<T>) -> Vec<T> {
    let mut copy = Vec::with_capacity(vec.capacity());
    copy.extend_from_slice(vec);
    copy
}

#[cfg(test)]
mod tests;
