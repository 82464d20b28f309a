//! How fast batches of a store come, and how fast they could: what `zrfs bench` shows.
//!
//! A rate is that of the median batch, so that a turn of another program does not count. Each limit is measured on the
//! same records as the gather it belongs to.

use crate::buffer::{Buffer, BufferPool};
use crate::error::{Error, Result};
use crate::format::Codec;
use crate::pool::pool;
use crate::sampler::{Mode, Sampler, Spec, Tail};
use crate::store::{Store, Threads, worth_sharing};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Memory that is copied from, or decoded from, at most: well beyond a processor's caches.
const SOURCE: usize = 256 << 20;
/// Of a larger store, so many decoded bytes are read into the page cache, and drawn from.
const WARM: u64 = 512 << 20;
/// A batch has at most so many bytes, whatever is asked for.
const LARGEST: u64 = 512 << 20;
/// So many frames are decoded from memory, at most.
const FRAMES: usize = 1 << 17;
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

    /// The rate at which records come that the page cache has not; `None` where the system keeps them there. It forgets
    /// what it has of the store first.
    ///
    /// # Errors
    /// As [`Store::gather`].
    pub fn cold(&mut self, n: usize) -> Result<Option<Rate>> {
        let (mut buffers, threads) = (BufferPool::new(1), Threads::All);
        self.store.forget()?;
        self.length = self.store.len();
        let (n, _) = self.most(n)?;
        let (indices, _) = self.draw(n.min(256))?;
        if self.store.are_cached(&indices)? {
            return Ok(None);
        }
        // Few records tell how many come in the time; what they brought into the page cache is forgotten again.
        let (begin, limit) = (Instant::now(), self.time * LONGEST);
        let mut fits = n;
        for probe in [1, FIRST / 2] {
            let took = self.one(probe.min(n), threads, &mut buffers)?.time.as_secs_f64();
            fits = (limit.as_secs_f64() / 2.0 / took.max(1e-9) * probe as f64) as usize;
            if fits < FIRST {
                break;
            }
        }
        let n = n.min(fits.max(1));
        self.store.forget()?;
        // A record that was drawn before is not cold any more.
        let (most, mut batches) = ((self.length / n as u64).max(1) as usize, Vec::new());
        let mut took = Duration::ZERO;
        while batches.is_empty() || begin.elapsed() < self.time && batches.len() < most {
            if !batches.is_empty() && begin.elapsed() + took > limit {
                break;
            }
            let batch = self.one(n, threads, &mut buffers)?;
            took = batch.time;
            batches.push(batch);
        }
        Ok(Some(rate(&mut batches, threads)))
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

    /// The rates at which pieces as long as the records are copied within memory, from random places, by the calling
    /// thread and by all: what no raw gather can exceed.
    ///
    /// # Errors
    /// As [`Store::lengths`]; [`Error::Invalid`] where there is no memory for it.
    pub fn copy(&mut self, n: usize) -> Result<[Rate; 2]> {
        let mut source = BufferPool::new(1).get(SOURCE)?;
        let (begin, mut filled) = (Instant::now(), 0);
        for piece in source.chunks_mut(SOURCE / 32) {
            piece.fill(1);
            filled += piece.len();
            if begin.elapsed() > self.time {
                break;
            }
        }
        let (source, buffers) = (&source[..filled], BufferPool::new(1));
        self.both(n, |bench, n, threads| {
            let (indices, offsets) = bench.draw(n)?;
            let bytes = offsets.last().copied().unwrap_or(0);
            let mut room = buffers.get(bytes as usize)?;
            let tasks = cut(&mut room, &offsets);
            let start = Instant::now();
            let places = indices.iter().map(|&index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut tasks: Vec<(&mut [u8], u64)> = tasks.into_iter().zip(places).collect();
            share(&mut tasks, threads == Threads::All, bytes >= worth_sharing(Codec::Raw), |(dst, place)| {
                for piece in dst.chunks_mut(source.len()) {
                    let start = (*place % (source.len() - piece.len() + 1) as u64) as usize;
                    piece.copy_from_slice(&source[start..start + piece.len()]);
                }
                Ok(())
            })?;
            let time = start.elapsed();
            black_box(&*room);
            Ok(Batch { time, bytes, records: indices.len() })
        })
    }

    /// The rates at which frames of the store are decoded that are in memory already, by the calling thread and by all:
    /// what no gather of compressed records can exceed. Batches are smaller than `n` where not so many frames could be
    /// collected: none is decoded twice in one, for that would be faster. `None` for raw stores.
    ///
    /// # Errors
    /// As [`Store::gather`].
    pub fn decode(&mut self, n: usize) -> Result<Option<[Rate; 2]>> {
        if self.store.codec() == Codec::Raw {
            return Ok(None);
        }
        // More than a processor's caches hold, as the store's own frames are.
        let mut frames = Vec::new();
        let (mut held, begin) = (0, Instant::now());
        let (indices, _) = self.draw(FRAMES.min(usize::try_from(self.length).unwrap_or(FRAMES)))?;
        'all: for some in indices.chunks(FIRST) {
            for (&index, entry) in some.iter().zip(self.store.entries(some)?) {
                let mut frame = vec![0; entry.phys_length as usize];
                self.store.read_stored(index, &mut frame)?;
                held += frame.len();
                frames.push((frame, index, entry.logic_length));
                if held > SOURCE || held > SOURCE / 2 && frames.len() >= n || begin.elapsed() > self.time * 2 {
                    break 'all;
                }
            }
        }
        let (buffers, mut first) = (BufferPool::new(1), 0);
        let rates = self.both(n.min(frames.len()), |bench, n, threads| {
            let some: Vec<_> = (first..first + n).map(|i| &frames[i % frames.len()]).collect();
            first = (first + n) % frames.len();
            let mut offsets = vec![0];
            offsets.extend(some.iter().scan(0, |total, frame| {
                *total += u64::from(frame.2);
                Some(*total)
            }));
            let bytes = offsets.last().copied().unwrap_or(0);
            let mut room = buffers.get(bytes as usize)?;
            let mut tasks: Vec<_> = cut(&mut room, &offsets).into_iter().zip(some).collect();
            let (all, enough) = (threads == Threads::All, bytes >= worth_sharing(bench.store.codec()));
            let start = Instant::now();
            share(&mut tasks, all, enough, |(dst, (frame, index, _))| bench.store.decode(*index, frame, dst))?;
            let time = start.elapsed();
            black_box(&*room);
            Ok(Batch { time, bytes, records: n })
        })?;
        Ok(Some(rates))
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

/// The place of each record in `room`.
fn cut<'a>(mut room: &'a mut [u8], offsets: &[u64]) -> Vec<&'a mut [u8]> {
    let lengths = offsets.windows(2).map(|pair| (pair[1] - pair[0]) as usize);
    lengths
        .map(|n| {
            let (place, rest) = std::mem::take(&mut room).split_at_mut(n);
            room = rest;
            place
        })
        .collect()
}

/// Does the tasks as a gather does them: on all threads where there is enough to do.
fn share<T: Send>(
    tasks: &mut [T],
    all: bool,
    enough: bool,
    work: impl Fn(&mut T) -> Result<()> + Sync + Send,
) -> Result<()> {
    if !all || !enough {
        return tasks.iter_mut().try_for_each(work);
    }
    let size = tasks.len().div_ceil(pool().threads() * 4).max(1);
    pool().try_chunks(tasks, size, |some| some.iter_mut().try_for_each(&work))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WriterOptions;
    use std::collections::HashSet;

    fn store(dir: &tempfile::TempDir, n: usize, bytes: usize) -> Store {
        let path = dir.path().join("store");
        let mut writer = WriterOptions::new(Codec::Zstd).create(&path).unwrap();
        let record = vec![b'x'; bytes];
        writer.append(&vec![&record[..]; n]).unwrap();
        writer.close().unwrap();
        Store::open(&path).unwrap()
    }

    #[test]
    fn no_record_is_twice_in_a_batch_and_none_has_more_than_there_are() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir, 100, 3);
        let mut bench = Bench::new(&store, Duration::from_millis(20)).unwrap();
        for n in [1, 7, 64, 100, 1000] {
            for _ in 0..20 {
                let (indices, _) = bench.draw(n).unwrap();
                assert_eq!(indices.len(), n.min(100));
                assert_eq!(indices.iter().collect::<HashSet<_>>().len(), indices.len(), "{indices:?}");
            }
        }
        assert_eq!(bench.most(64).unwrap(), (64, None));
        assert_eq!(bench.most(1 << 24).unwrap(), (100, Some(Bound::Records)));
        bench.length = 50;
        assert_eq!(bench.most(64).unwrap(), (50, Some(Bound::Warm)));
        assert!(bench.decode(1000).unwrap().unwrap().iter().all(|rate| rate.batch <= 50));
    }

    #[test]
    fn memory_bounds_a_batch() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir, 20, 64 << 20);
        let mut bench = Bench::new(&store, Duration::from_millis(20)).unwrap();
        assert_eq!(bench.most(20).unwrap(), (8, Some(Bound::Memory)));
        assert_eq!(bench.draw(20).unwrap().0.len(), 8);
    }

    #[test]
    fn slow_batches_end_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir, 100, 3);
        let mut bench = Bench::new(&store, Duration::from_millis(50)).unwrap();
        let begin = Instant::now();
        // A record takes a millisecond: a batch of 1000 would take five times as long as all may.
        let (size, batches) = bench
            .batches(1000, |_, n| {
                let time = Duration::from_millis(n as u64);
                std::thread::sleep(time);
                Ok(Batch { time, bytes: 1, records: n })
            })
            .unwrap();
        assert!((16..200).contains(&size) && batches.iter().all(|batch| batch.records == size), "{size}");
        assert!(begin.elapsed() < Duration::from_millis(600), "{:?}", begin.elapsed());
    }
}
