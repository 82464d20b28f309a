//! What a running pack tells, and how it is stopped.

use crate::error::{Error, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Counters of a running job, read by another thread to show them, and the switch that stops it.
/// Clones are the same counters.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    bytes: Arc<AtomicU64>,
    items: Arc<AtomicU64>,
    total_bytes: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Progress {
    /// Bytes of the source done so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Files or records done so far.
    pub fn items(&self) -> u64 {
        self.items.load(Relaxed)
    }

    /// Bytes that there are to do; 0 while that is not known.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Relaxed)
    }

    /// Says how many bytes there are to do.
    pub fn set_total_bytes(&self, total: u64) {
        self.total_bytes.store(total, Relaxed);
    }

    /// Set to `true`, it asks the job to stop: the job ends with [`Error::Interrupted`] within moments, and leaves
    /// nothing behind.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Whether the job was asked to stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    pub(crate) fn add(&self, items: u64, bytes: u64) {
        self.items.fetch_add(items, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// # Errors
    /// [`Error::Interrupted`] once the job was asked to stop.
    pub(crate) fn check(&self) -> Result<()> {
        if self.stopped() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// Something that did not get into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice<'a> {
    /// Left out on purpose: a device, socket or FIFO, which have no contents to keep.
    LeftOut(&'a Path, &'a str),
    /// It should be in the store and is not: it could not be read, or changed while it was.
    Failed(&'a Path, &'a str),
}

/// Where a job reports to.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// The counters.
    pub progress: &'a Progress,
    /// Is called for each thing that did not get into the store.
    pub notice: &'a (dyn Fn(Notice<'_>) + Sync),
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("progress", self.progress).finish_non_exhaustive()
    }
}
