//! Making batches: what workers do, or the consumer where there are none.

use super::batch::Batch;
use super::error::{Failure, LoadError, TransformError, panic_message};
use super::queue::{Claim, Outcome, Queue};
use super::read::{Origin, from_mount};
use super::stats::Spent;
use crate::client::Ahead;
use crate::store::Threads;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What makes a batch into what is handed over.
pub(super) type Work<T> = Box<dyn Fn(Batch) -> Result<T, TransformError> + Send + Sync>;

/// What workers and consumers have in common.
pub(super) struct Shared<T> {
    pub(super) queue: Queue<T>,
    pub(super) origin: Origin,
    pub(super) threads: Threads,
    pub(super) work: Work<T>,
}

impl<T> Shared<T> {
    /// Makes the batch of a claim. Panics become errors of their step.
    pub(super) fn make(&self, claim: Claim) {
        self.make_by(claim, |step, indices| self.origin.read(step, indices, self.threads));
    }

    /// The same for the consumer whose turn it is. A mount gathers the batch after it from then on.
    pub(super) fn make_in(&self, turn: &mut Turn, claim: Claim) {
        let Origin::Mount(mount) = &self.origin else { return self.make(claim) };
        turn.next = self.queue.claim_now();
        let next = turn.next.as_ref().and_then(|next| next.indices.as_deref().ok());
        let ahead = turn.ahead.get_or_insert_with(|| mount.ahead());
        self.make_by(claim, |step, indices| from_mount(mount, step, || ahead.gather(&indices, next)));
    }

    /// Makes the batch of what `read` reads.
    fn make_by(&self, claim: Claim, read: impl FnOnce(u64, Vec<u64>) -> Result<Batch, Failure>) {
        let Claim { ticket, step, indices } = claim;
        let begin = Instant::now();
        // Set when the records are read.
        let read_for = Cell::new(None);
        let bytes = Cell::new(0);
        let made = catch_unwind(AssertUnwindSafe(|| {
            let batch = read(step, indices?)?;
            read_for.set(Some(begin.elapsed()));
            bytes.set(batch.bytes());
            (self.work)(batch).map_err(Failure::Transform)
        }));
        let made = made.unwrap_or_else(|payload| Err(Failure::Panic(panic_message(payload))));
        let total = begin.elapsed();
        let reading = read_for.get().unwrap_or(total);
        let spent = Spent { reading, transforming: total.saturating_sub(reading) };
        let result = made.map_err(|failure| LoadError { step, failure });
        self.queue.finish(ticket, Outcome { result, bytes: bytes.get(), spent });
    }
}

/// What consumers that make batches themselves hand on from one to the next.
#[derive(Default)]
pub(super) struct Turn {
    /// The claim that is to be made next, whose batch a mount gathers.
    pub(super) next: Option<Claim>,
    ahead: Option<Ahead>,
}

/// What a worker's thread runs until the loader is closed.
pub(super) fn run<T>(shared: Arc<Shared<T>>) {
    /// Counts the worker out, however it ends.
    struct Counted<T>(Arc<Shared<T>>);
    impl<T> Drop for Counted<T> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                // Something of the user's panicked while it was dropped. Rather than wait for this thread, all end.
                self.0.queue.close();
            }
            self.0.queue.worker(false);
        }
    }
    let counted = Counted(shared);
    while let Some(claim) = counted.0.queue.claim() {
        counted.0.make(claim);
    }
}

/// A worker that has not ended within this time of a close (it waits for a disk, or runs a long transform) is left to end
/// on its own, after its batch.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);
