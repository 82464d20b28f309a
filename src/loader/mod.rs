//! An endless loader: draw indices, gather every stream at them, hand over the batch, again and again.
//!
//! `docs/LOADER.md` says what it promises. A training loop, resumed from its last checkpoint:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let [pixels, labels, checkpoint] = ["pixels.zr", "labels.zr", "checkpoint"].map(|name| dir.path().join(name));
//! # for (path, shape) in [(&pixels, vec![4, 4]), (&labels, vec![])] {
//! #     let options = zrfs::WriterOptions::new(zrfs::format::Codec::Raw);
//! #     let dtype = zrfs::format::dtype::DType::parse("|u1")?;
//! #     let n = if shape.is_empty() { 100 } else { 1600 };
//! #     let mut writer = zrfs::dataset::DenseWriter::create(path, options, dtype, shape)?;
//! #     writer.append(&vec![1; n])?;
//! #     writer.close()?;
//! # }
//! use zrfs::loader::{Loader, Shape, State};
//! use zrfs::{Source, sampler::Mode};
//!
//! let builder = Loader::builder()
//!     .source(Source::open(&pixels)?)               // a store: one stream
//!     .source_as("label", Source::open(&labels)?)   // another, under a name of our choice
//!     .mode(Mode::Cyclic)
//!     .batch(32)
//!     .seed(7)
//!     .workers(2)
//!     .prefetch(4)
//!     .transform(|batch| {
//!         // On the workers: normalize, augment, check.
//!         let pixels = batch.part_mut("pixels").ok_or("no pixels")?;
//!         pixels.bytes_mut().iter_mut().for_each(|byte| *byte = 255 - *byte);
//!         Ok(())
//!     });
//! // A state is a line of text, kept beside the model's weights.
//! let loader = match std::fs::read_to_string(&checkpoint) {
//!     Ok(text) => builder.resume(text.parse()?).build()?,
//!     Err(_) => builder.build()?,
//! };
//!
//! for batch in loader.iter().take(6) {
//!     let batch = batch?;                           // an error names its step; the loader goes on after it
//!     let (pixels, labels) = (&batch.parts()[0], &batch.parts()[1]);
//!     assert_eq!(pixels.shape(), &Shape::Dense(vec![32, 4, 4]));
//!     assert_eq!((pixels.bytes().len(), labels.bytes().len()), (32 * 16, 32));
//!     // … train on them …
//! }                                                 // dropped: its memory is used for a later batch
//!
//! std::fs::write(&checkpoint, loader.state()?.to_string())?;
//! assert_eq!(loader.state()?.step(), 6);
//! # let again: State = std::fs::read_to_string(&checkpoint)?.parse()?;
//! # loader.restore(&again)?;
//! # assert_eq!(loader.next().unwrap()?.step(), 6);
//! # Ok(())
//! # }
//! ```
#![deny(clippy::unwrap_used, clippy::expect_used)]

mod batch;
mod builder;
mod error;
mod identity;
mod pad;
mod queue;
mod read;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod work;

pub use batch::{Batch, Part, Shape};
pub use builder::LoaderBuilder;
#[cfg(feature = "capi")]
pub(crate) use builder::stem;
pub use error::{Failure, LoadError, TransformError};
pub use pad::Padded;
pub use state::State;
pub use stats::Stats;

use crate::error::{Error, Result};
use error::forked;
use state::Position;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use work::{PATIENCE, Shared, Turn};

/// Batches without end; see [the module](self).
///
/// Workers make batches ahead while the consumer is busy. Every call takes `&self`, so several threads can take batches
/// from one loader; each gets the next one. Dropping the loader ends it, in every state within a second.
///
/// A fork of the process has none of its threads: there every call gives an error (and `next` nothing after it), and
/// dropping it does nothing.
pub struct Loader<T = Batch> {
    shared: Arc<Shared<T>>,
    started: Started,
    begin: Instant,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Held by the consumer who makes a batch itself, where there are no workers.
    turn: Mutex<Turn>,
    told: AtomicBool,
}

/// What does not change about a loader.
#[derive(Debug, Clone, Copy)]
struct Started {
    length: u64,
    /// The fingerprint of its streams.
    store: u64,
    workers: usize,
}

impl<T> std::fmt::Debug for Loader<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader").field("started", &self.started).finish_non_exhaustive()
    }
}

impl Loader {
    /// Begins to make a loader.
    pub fn builder() -> LoaderBuilder {
        LoaderBuilder::new()
    }
}

impl<T> Loader<T> {
    fn new(shared: Arc<Shared<T>>, started: Started) -> Self {
        let (threads, turn, told) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Loader { shared, started, begin: Instant::now(), threads, turn, told }
    }

    /// Keeps a worker's thread, to be waited for at the end.
    fn keep(&self, thread: JoinHandle<()>) {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
    }

    /// The next batch, as soon as it is there; `None` once the loader is closed.
    ///
    /// # Errors
    /// [`LoadError`], at the step where it happened and after all earlier ones. It counts as delivered: the next call
    /// gives the step after it.
    pub fn next(&self) -> Option<Result<T, LoadError>> {
        let queue = &self.shared.queue;
        if let Some(maker) = queue.foreign() {
            let failure = Failure::Forked(maker);
            return (!self.told.swap(true, Ordering::Relaxed)).then_some(Err(LoadError { step: 0, failure }));
        }
        if self.started.workers > 0 {
            return queue.take();
        }
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = Instant::now();
        let claim = match turn.next.take() {
            Some(next) if queue.is_closed() => {
                queue.unclaim(&next);
                return None;
            }
            Some(next) => next,
            None => queue.claim_now()?,
        };
        self.shared.make_in(&mut turn, claim);
        queue.made_by_consumer(begin.elapsed());
        queue.take()
    }

    /// The batches from here on; ends when the loader is closed.
    pub fn iter(&self) -> impl Iterator<Item = Result<T, LoadError>> {
        std::iter::from_fn(|| self.next())
    }

    /// How far the deliveries have come: what is ready, but was not handed over, is not counted. Costs a lock.
    ///
    /// # Errors
    /// [`Error::Invalid`] in a fork of the process that made the loader.
    pub fn state(&self) -> Result<State> {
        let queue = self.here()?;
        Ok(queue.at(|sampler, position| State::new(sampler, self.started.store, position.clone())))
    }

    /// Goes on where `state` was taken, exactly as if nothing had come between, with its mode, seed and tail. It may have
    /// been taken by a loader with another rank, number of ranks, workers or path of the store.
    ///
    /// # Errors
    /// [`Error::Invalid`], saying what differs, for a state of another store, length or batch size; in a fork; and if
    /// [`Sampler::seek`](crate::sampler::Sampler::seek) refuses. The loader stays where it was.
    pub fn restore(&self, state: &State) -> Result<()> {
        let mut spec = self.here()?.at(|sampler, _| sampler.spec().clone());
        state.check(spec.batch, self.started.length, self.started.store)?;
        (spec.mode, spec.seed, spec.tail) = (state.spec.mode, state.spec.seed, state.spec.tail);
        self.go_to(spec, state.position.clone())
    }

    /// Makes `step` the next one.
    ///
    /// # Errors
    /// [`Error::Invalid`] in a fork, and if [`Sampler::seek`](crate::sampler::Sampler::seek) refuses. The loader stays
    /// where it was.
    pub fn seek(&self, step: u64) -> Result<()> {
        let spec = self.here()?.at(|sampler, _| sampler.spec().clone());
        self.go_to(spec, Position { step, ..Position::default() })
    }

    fn go_to(&self, spec: crate::sampler::Spec, position: Position) -> Result<()> {
        let queue = self.here()?;
        // A stream that has to be replayed is, before anybody has to wait for it; what it remembers is kept.
        let mut sampler = queue.at(|sampler, _| sampler.clone());
        if *sampler.spec() != spec {
            sampler = crate::sampler::Sampler::new(spec, self.started.length)?;
        }
        sampler.seek(position.step)?;
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = turn.next.take() {
            queue.unclaim(&next);
        }
        queue.go_to(sampler, position);
        Ok(())
    }

    /// What it did so far.
    ///
    /// # Errors
    /// [`Error::Invalid`] in a fork of the process that made the loader.
    pub fn stats(&self) -> Result<Stats> {
        let (counters, ready, working) = self.here()?.counters();
        Ok(Stats {
            elapsed: self.begin.elapsed(),
            batches: counters.batches,
            failed: counters.failed,
            bytes: counters.bytes,
            consumer_waited: counters.consumer_waited,
            workers_waited: counters.workers_waited,
            reading: counters.reading,
            transforming: counters.transforming,
            ready,
            working,
            buffers: self.shared.origin.buffers(),
            workers: self.started.workers,
        })
    }

    /// Something that ends the loader from another thread, or from a signal's handler thread.
    pub fn stopper(&self) -> Stopper
    where
        T: Send + 'static,
    {
        Stopper { shared: self.shared.clone() }
    }

    /// Ends the loader: callers who wait for a batch get `None`, workers end after the batch that they are at. One that
    /// takes longer than half a second for it is not waited for.
    pub fn close(&self) {
        let queue = &self.shared.queue;
        let threads = match queue.foreign() {
            // The threads are not there, nor can they be waited for.
            Some(_) => return,
            None => {
                queue.close();
                std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner))
            }
        };
        if queue.ended(PATIENCE) {
            for thread in threads {
                // It ended, and what it panicked with was told at its step.
                let _ = thread.join();
            }
        }
    }

    /// The queue, in the process that made it.
    fn here(&self) -> Result<&queue::Queue<T>> {
        match self.shared.queue.foreign() {
            None => Ok(&self.shared.queue),
            Some(maker) => Err(Error::invalid(forked(maker))),
        }
    }
}

impl<T> Drop for Loader<T> {
    fn drop(&mut self) {
        self.close();
        if self.shared.queue.foreign().is_some() {
            // Handles of threads that this process never had.
            let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::take(threads));
        }
    }
}

/// Ends a loader, or several times none; see [`Loader::stopper`].
#[derive(Clone)]
pub struct Stopper {
    shared: Arc<dyn Stop + Send + Sync>,
}

impl std::fmt::Debug for Stopper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stopper").finish_non_exhaustive()
    }
}

impl Stopper {
    /// Ends the loader, without waiting for its workers.
    pub fn stop(&self) {
        self.shared.stop();
    }
}

trait Stop {
    fn stop(&self);
}

impl<T> Stop for Shared<T> {
    fn stop(&self) {
        if self.queue.foreign().is_none() {
            self.queue.close();
        }
    }
}
