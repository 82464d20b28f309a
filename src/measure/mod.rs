//! How fast batches of a store come, and how fast they could: what `zrfs bench` shows.
//!
//! A rate is that of the median batch, so that a turn of another program does not count. Each limit is measured on the
//! same records as the gather it belongs to.

mod cold;
mod limits;

use crate::buffer::{Buffer, BufferPool};
use crate::error::{Error, Result};
use crate::pool::pool;
use crate::sampler::{Mode, Sampler, Spec, Tail};
use crate::store::{Store, Threads};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Of a larger store, so many decoded bytes are read into the page cache, and drawn from.
const WARM: u64 = 512 << 20;
/// A batch has at most so many bytes, whatever is asked for.
const LARGEST: u64 = 512 << 20;
/// A measurement takes at least so many batches, where they are not too slow for that.
const LEAST: usize = 5;
/// A measurement takes at most so many times the time it should.
const LONGEST: u32 = 4;
/// The first batch has so many records, which tell how long a larger one will take.
const FIRST: usize = 16;
/// A next batch is at most so many times as large.
const GROWTH: usize = 8;

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Records in a batch: fewer than were asked for where the time or [`Bench::most`] allows no more.
    pub batch: usize,
    /// Threads that worked.
    pub threads: usize,
    /// Decoded bytes a second.
    pub bytes_per_second: f64,
    /// Records a second.
    pub records_per_second: f64,
}

/// Why a batch is smaller than was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The store has so many records.
    Records,
    /// So many could be read into the page cache: half a GiB, or what the time allowed.
    Warm,
    /// A batch has at most half a GiB.
    Memory,
    /// More does not fit into the time of a measurement, or the memory that it decodes from.
    Time,
}

/// Measures one store.
#[derive(Debug)]
pub struct Bench<'a> {
    store: &'a Store,
    /// Records that are drawn from.
    length: u64,
    /// Draws them.
    sampler: Sampler,
    /// How long one measurement takes, about.
    time: Duration,
}

impl<'a> Bench<'a> {
    /// Measures `store`, about `time` long each, and at most about four times as long.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty store.
    pub fn new(store: &'a Store, time: Duration) -> Result<Self> {
        if store.is_empty() {
            return Err(Error::invalid(format!("{} has no records to measure with", store.path().display())));
        }
        Ok(Bench { store, length: store.len(), sampler: sampler(1, store.len(), 0)?, time })
    }

    /// How many of `n` records a batch can have, and why not more.
    ///
    /// # Errors
    /// As [`Store::lengths`].
    pub fn most(&mut self, n: usize) -> Result<(usize, Option<Bound>)> {
        const SAMPLE: usize = 4096;
        let length = usize::try_from(self.length).unwrap_or(usize::MAX);
        let (mut most, mut bound) = (n, None);
        if n > length {
            bound = Some(if self.length == self.store.len() { Bound::Records } else { Bound::Warm });
            most = length;
        }
        let (sample, offsets) = self.draw(most.min(SAMPLE))?;
        let bytes = offsets.last().map_or(1, |&total| total.max(1));
        let fits = (u128::from(LARGEST) * sample.len() as u128 / u128::from(bytes)).max(1);
        if (most as u128) > fits {
            return Ok((fits as usize, Some(Bound::Memory)));
        }
        Ok((most, bound))
    }

    /// A batch of `n` random indices, no two the same, and where each record starts; fewer where the records are large or
    /// the store has not so many.
    fn draw(&mut self, n: usize) -> Result<(Vec<u64>, Vec<u64>)> {
        if (self.sampler.length(), self.sampler.spec().batch) != (self.length, n as u64) {
            // Another order, so that a larger batch does not begin as the one before.
            self.sampler = sampler(n as u64, self.length, self.sampler.spec().seed.wrapping_add(1))?;
        }
        let mut indices = vec![0; n.min(self.sampler.max_batch_len() as usize)];
        self.sampler.next(&mut indices)?;
        let mut total = 0;
        let mut offsets = vec![0];
        for length in self.store.lengths(&indices)? {
            total += u64::from(length);
            if total > LARGEST && offsets.len() > 1 {
                break;
            }
            offsets.push(total);
        }
        indices.truncate(offsets.len() - 1);
        Ok((indices, offsets))
    }

    /// Reads records from the first on until they are in the page cache: all, or as many as half a GiB, or as time allows. The
    /// next measurements draw from these.
    ///
    /// # Errors
    /// As [`Store::gather`].
    pub fn warm(&mut self) -> Result<()> {
        const STEP: u64 = 1024;
        let (buffers, begin) = (BufferPool::new(1), Instant::now());
        let (mut next, mut bytes) = (0, 0);
        // The disk may be slow: the steps are small until it is known that they may be larger.
        let (mut records, mut most) = (FIRST as u64, 1 << 20);
        while next < self.store.len() && bytes < WARM && (next == 0 || begin.elapsed() < self.time * (LONGEST - 1)) {
            let start = Instant::now();
            let (step, mut total) = ((next..self.store.len().min(next + records)).collect::<Vec<u64>>(), 0);
            let lengths = self.store.lengths(&step)?;
            let fits = lengths.iter().take_while(|&&n| {
                total += u64::from(n);
                total <= most
            });
            let indices = &step[..fits.count().max(1)];
            let mut room = None;
            let offsets = self.store.gather_into(indices, Threads::All, |offsets| {
                Ok(room.insert(buffers.get(offsets.last().map_or(0, |&total| total as usize))?))
            })?;
            bytes += offsets.last().copied().unwrap_or(0);
            next += indices.len() as u64;
            if start.elapsed() < self.time / 4 {
                (records, most) = ((records * 2).min(STEP), (most * 2).min(LARGEST / 8));
            }
        }
        self.length = next;
        Ok(())
    }

    /// The rates at which batches of `n` records are gathered into memory that is used again, by the calling thread and by
    /// all.
    ///
    /// # Errors
    /// As [`Store::gather`].
    pub fn gather(&mut self, n: usize) -> Result<[Rate; 2]> {
        let mut buffers = BufferPool::new(1);
        self.both(n, |bench, n, threads| bench.one(n, threads, &mut buffers))
    }

    /// One batch: its time, bytes and records.
    fn one(&mut self, n: usize, threads: Threads, buffers: &mut BufferPool) -> Result<Batch> {
        let (indices, _) = self.draw(n)?;
        let mut room: Option<Buffer> = None;
        let begin = Instant::now();
        let offsets = self.store.gather_into(&indices, threads, |offsets| {
            let room = room.insert(buffers.get(offsets.last().map_or(0, |&total| total as usize))?);
            Ok(room)
        })?;
        let time = begin.elapsed();
        black_box(room.as_deref());
        Ok(Batch { time, bytes: offsets.last().copied().unwrap_or(0), records: indices.len() })
    }

    /// The rates of batches of the same size by the calling thread and by all.
    fn both(
        &mut self,
        n: usize,
        mut batch: impl FnMut(&mut Self, usize, Threads) -> Result<Batch>,
    ) -> Result<[Rate; 2]> {
        let one = self.batches(n, |bench, n| batch(bench, n, Threads::One))?;
        let all = self.batches(one.0, |bench, n| batch(bench, n, Threads::All))?;
        let ((_, mut one), (_, mut all)) = (one, all);
        Ok([rate(&mut one, Threads::One), rate(&mut all, Threads::All)])
    }

    /// Batches of `n` records, or of as many as the time allows, and that number. The first are smaller and do not count:
    /// they tell how long one takes, and what they find out and set up is not their successors' cost.
    fn batches(
        &mut self,
        n: usize,
        mut batch: impl FnMut(&mut Self, usize) -> Result<Batch>,
    ) -> Result<(usize, Vec<Batch>)> {
        let (begin, limit) = (Instant::now(), self.time * LONGEST);
        let mut size = n.min(FIRST);
        let (last, took) = loop {
            let start = Instant::now();
            let last = batch(self, size)?;
            let took = start.elapsed();
            // The next one is made twice: once more to be measured.
            let left = limit.saturating_sub(begin.elapsed()).as_secs_f64() / 2.0;
            let fits = (left / took.as_secs_f64().max(1e-9) * size as f64) as usize;
            let next = n.min(size * GROWTH).min(fits);
            if next <= size {
                break (last, took);
            }
            size = next;
        };
        let mut batches = Vec::new();
        while (batches.len() < LEAST || begin.elapsed() < self.time) && begin.elapsed() + took <= limit {
            batches.push(batch(self, size)?);
        }
        if batches.is_empty() {
            batches.push(last);
        }
        Ok((size, batches))
    }
}

/// Draws batches as a loader does: in a random order of all records, one after the other.
fn sampler(n: u64, length: u64, seed: u64) -> Result<Sampler> {
    Sampler::new(Spec { seed, tail: Tail::Drop, ..Spec::new(Mode::Cyclic, n) }, length)
}

#[derive(Debug, Clone, Copy)]
struct Batch {
    time: Duration,
    bytes: u64,
    records: usize,
}

impl Batch {
    fn per_byte(&self) -> f64 {
        self.time.as_secs_f64().max(1e-9) / self.bytes.max(1) as f64
    }
}

/// The rate of the median batch.
fn rate(batches: &mut [Batch], threads: Threads) -> Rate {
    batches.sort_unstable_by(|a, b| a.per_byte().total_cmp(&b.per_byte()));
    let median = batches[batches.len() / 2];
    Rate {
        batch: median.records,
        threads: if threads == Threads::All { pool().threads() } else { 1 },
        bytes_per_second: 1.0 / median.per_byte(),
        records_per_second: median.records as f64 / median.time.as_secs_f64().max(1e-9),
    }
}

#[cfg(test)]
mod tests;
