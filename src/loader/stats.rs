//! What a loader did so far, and who waited for whom.

use std::time::Duration;

/// Time that a batch took to make.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spent {
    pub(super) reading: Duration,
    pub(super) transforming: Duration,
}

/// Sums over all steps.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) batches: u64,
    pub(super) failed: u64,
    pub(super) bytes: u64,
    pub(super) reading: Duration,
    pub(super) transforming: Duration,
    pub(super) consumer_waited: Duration,
    pub(super) workers_waited: Duration,
}

impl Counters {
    pub(super) fn spent(&mut self, spent: Spent) {
        self.reading += spent.reading;
        self.transforming += spent.transforming;
    }

    pub(super) fn delivered(&mut self, well: bool, bytes: u64) {
        if well {
            self.batches += 1;
            self.bytes += bytes;
        } else {
            self.failed += 1;
        }
    }
}

/// What a loader did since it was made; see [`Loader::stats`](super::Loader::stats).
#[derive(Debug, Clone, Copy, Default)]
pub struct Stats {
    /// Since the loader was made.
    pub elapsed: Duration,
    /// Batches delivered.
    pub batches: u64,
    /// Steps that gave an error instead.
    pub failed: u64,
    /// Bytes of the records delivered, of all streams, before any transform.
    pub bytes: u64,
    /// How long callers of [`next`](super::Loader::next) waited for a batch.
    pub consumer_waited: Duration,
    /// How long workers waited for room, all of them together.
    pub workers_waited: Duration,
    /// How long records were read and decoded, on all workers together.
    pub reading: Duration,
    /// How long the transform ran, on all workers together.
    pub transforming: Duration,
    /// Batches that are ready now.
    pub ready: usize,
    /// Batches that are being made now.
    pub working: usize,
    /// Buffers of the largest number of any stream, in use or to be used again.
    pub buffers: usize,
    /// The number of workers; 0 where the consumer makes its batches itself.
    pub workers: usize,
}
