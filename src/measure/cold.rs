//! Records that the page cache has not.

use super::{Bench, FIRST, LONGEST, Rate, rate};
use crate::buffer::BufferPool;
use crate::error::Result;
use crate::store::Threads;
use std::time::{Duration, Instant};

impl Bench<'_> {
    /// The rate at which records come that the page cache has not; `None` where the system keeps them there. It forgets
    /// what it has of the store first.
    ///
    /// # Errors
    /// As [`Store::gather`](crate::Store::gather).
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
}
