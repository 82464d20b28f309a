//! How fast batches of a store come, and how fast they could: what `zrfs bench` shows.
//!
//! A rate is that of the median batch, so that a turn of another program does not count. Each limit is measured on the
//! same records as the gather it belongs to.

use crate::buffer::{Buffer, BufferPool};
use crate::error::{Error, Result};
use crate::format::Codec;
use crate::pool::pool;
use crate::store::{Store, Threads};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Memory that is copied from, or decoded from, at most: well beyond a processor's caches.
const SOURCE: u64 = 256 << 20;
/// Of a larger store, so many decoded bytes are read into the page cache, and drawn from.
const WARM: u64 = 512 << 20;
/// A batch has at most so many bytes, whatever is asked for.
const LARGEST: u64 = 512 << 20;
/// So many frames are decoded from memory, at most.
const FRAMES: usize = 1 << 17;
/// A measurement takes at least so many batches.
const LEAST: usize = 5;

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Records in a batch.
    pub batch: usize,
    /// Threads that worked.
    pub threads: usize,
    /// Decoded bytes a second.
    pub bytes_per_second: f64,
    /// Records a second.
    pub records_per_second: f64,
}

/// Measures one store.
#[derive(Debug)]
pub struct Bench<'a> {
    store: &'a Store,
    /// Records that are drawn from.
    length: u64,
    random: u64,
    /// How long one measurement takes, about.
    time: Duration,
}

impl<'a> Bench<'a> {
    /// Measures `store`, about `time` long each.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty store.
    pub fn new(store: &'a Store, time: Duration) -> Result<Self> {
        if store.is_empty() {
            return Err(Error::invalid(format!("{} has no records to measure with", store.path().display())));
        }
        Ok(Bench { store, length: store.len(), random: 0x9e37_79b9_7f4a_7c15, time })
    }

    /// A batch of `n` random indices; fewer where the records are large.
    fn draw(&mut self, n: usize) -> Result<(Vec<u64>, Vec<u64>)> {
        let length = self.length;
        let random = &mut self.random;
        let mut indices: Vec<u64> = (0..n)
            .map(|_| {
                *random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                (*random >> 16) % length
            })
            .collect();
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
        while next < self.store.len() && bytes < WARM && (next == 0 || begin.elapsed() < self.time * 4) {
            // Records may be large: of each batch the bytes are bounded as those of the others.
            let (step, mut total) = ((next..self.store.len().min(next + STEP)).collect::<Vec<u64>>(), 0);
            let lengths = self.store.lengths(&step)?;
            let fits = lengths.iter().take_while(|&&n| {
                total += u64::from(n);
                total <= LARGEST / 8
            });
            let indices = &step[..fits.count().max(1)];
            let mut room = None;
            let offsets = self.store.gather_into(indices, Threads::All, |offsets| {
                Ok(room.insert(buffers.get(offsets.last().map_or(0, |&total| total as usize))?))
            })?;
            bytes += offsets.last().copied().unwrap_or(0);
            next += indices.len() as u64;
        }
        self.length = next;
        Ok(())
    }

    /// The rate at which batches of `n` records are gathered into memory that is used again, by the calling thread or by
    /// all.
    ///
    /// # Errors
    /// As [`Store::gather`].
    pub fn gather(&mut self, n: usize, all: bool) -> Result<Rate> {
        let (mut buffers, threads) = (BufferPool::new(1), if all { Threads::All } else { Threads::One });
        // What the first batches find out and set up is not their successors' cost.
        self.one(n, threads, &mut buffers)?;
        let (begin, mut batches) = (Instant::now(), Vec::new());
        while batches.len() < LEAST || begin.elapsed() < self.time {
            batches.push(self.one(n, threads, &mut buffers)?);
            if begin.elapsed() > self.time * 4 {
                break;
            }
        }
        Ok(rate(&mut batches, threads))
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
        let (indices, _) = self.draw(n)?;
        if self.store.are_cached(&indices)? {
            return Ok(None);
        }
        let (begin, mut batches) = (Instant::now(), Vec::new());
        while batches.is_empty() || begin.elapsed() < self.time {
            batches.push(self.one(n, threads, &mut buffers)?);
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

    /// The rate at which pieces as long as the records are copied within memory, from random places: what no raw gather
    /// can exceed.
    ///
    /// # Errors
    /// As [`Store::lengths`]; [`Error::Invalid`] where there is no memory for it.
    pub fn copy(&mut self, n: usize, all: bool) -> Result<Rate> {
        let mut source = BufferPool::new(1).get(SOURCE as usize)?;
        source.fill(1);
        let buffers = BufferPool::new(1);
        let (begin, mut batches) = (Instant::now(), Vec::new());
        while batches.len() < LEAST || begin.elapsed() < self.time {
            let (indices, offsets) = self.draw(n)?;
            let bytes = offsets.last().copied().unwrap_or(0);
            let mut room = buffers.get(bytes as usize)?;
            if batches.is_empty() {
                room.fill(1);
            }
            let mut tasks = cut(&mut room, &offsets);
            let start = Instant::now();
            let places = indices.iter().map(|&index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut tasks: Vec<(&mut [u8], u64)> = tasks.drain(..).zip(places).collect();
            share(&mut tasks, all, bytes >= 1 << 20, |(dst, place)| {
                for piece in dst.chunks_mut(SOURCE as usize) {
                    let start = (*place % (SOURCE - piece.len() as u64 + 1)) as usize;
                    piece.copy_from_slice(&source[start..start + piece.len()]);
                }
                Ok(())
            })?;
            batches.push(Batch { time: start.elapsed(), bytes, records: indices.len() });
            black_box(&*room);
        }
        Ok(rate(&mut batches, if all { Threads::All } else { Threads::One }))
    }

    /// The rate at which the same frames are decoded that are in memory already: what no gather of compressed records can
    /// exceed. `None` for raw stores.
    ///
    /// # Errors
    /// As [`Store::gather`].
    pub fn decode(&mut self, n: usize, all: bool) -> Result<Option<Rate>> {
        if self.store.codec() == Codec::Raw {
            return Ok(None);
        }
        // More than a processor's caches hold, as the store's own frames are.
        let mut frames = Vec::new();
        let (mut held, begin) = (0, Instant::now());
        while held < SOURCE / 2 && frames.len() < FRAMES && (frames.is_empty() || begin.elapsed() < self.time) {
            let (indices, _) = self.draw(256)?;
            for (&index, entry) in indices.iter().zip(self.store.entries(&indices)?) {
                let mut frame = vec![0; entry.phys_length as usize];
                self.store.read_stored(index, &mut frame)?;
                held += u64::from(entry.phys_length);
                frames.push((frame, index, entry.logic_length));
                if held > SOURCE {
                    break;
                }
            }
        }
        let batch = n.min(frames.len());
        let buffers = BufferPool::new(1);
        let (begin, mut batches) = (Instant::now(), Vec::new());
        while batches.len() < LEAST || begin.elapsed() < self.time {
            let first = (batches.len() * batch) % frames.len();
            let some: Vec<_> = frames.iter().cycle().skip(first).take(batch).collect();
            let mut offsets = vec![0];
            offsets.extend(some.iter().scan(0, |total, frame| {
                *total += u64::from(frame.2);
                Some(*total)
            }));
            let bytes = offsets.last().copied().unwrap_or(0);
            let mut room = buffers.get(bytes as usize)?;
            if batches.is_empty() {
                room.fill(1);
            }
            let mut tasks: Vec<_> = cut(&mut room, &offsets).into_iter().zip(some).collect();
            let start = Instant::now();
            share(&mut tasks, all, true, |(dst, (frame, index, _))| self.store.decode(*index, frame, dst))?;
            batches.push(Batch { time: start.elapsed(), bytes, records: batch });
            black_box(&*room);
        }
        Ok(Some(rate(&mut batches, if all { Threads::All } else { Threads::One })))
    }
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
