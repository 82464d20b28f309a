//! What a gather cannot exceed: copying in memory, and decoding what is in memory.

use super::{Batch, Bench, FIRST, Rate};
use crate::buffer::BufferPool;
use crate::error::Result;
use crate::format::Codec;
use crate::pool::pool;
use crate::store::{Threads, worth_sharing};
use std::hint::black_box;
use std::time::Instant;

/// Memory that is copied from, or decoded from, at most: well beyond a processor's caches.
const SOURCE: usize = 256 << 20;
/// So many frames are decoded from memory, at most.
const FRAMES: usize = 1 << 17;

impl Bench<'_> {
    /// The rates at which pieces as long as the records are copied within memory, from random places, by the calling
    /// thread and by all: what no raw gather can exceed.
    ///
    /// # Errors
    /// As [`Store::lengths`](crate::Store::lengths); [`Error::Invalid`](crate::Error::Invalid) where there is no memory for it.
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
    /// As [`Store::gather`](crate::Store::gather).
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
    pool().try_shares(tasks, |share| share.iter_mut().try_for_each(&work))
}
