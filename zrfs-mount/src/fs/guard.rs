//! Operations are counted, and a panic in one is an error.

use super::Fs;
use crate::errno::Errno;
use crate::timing::Op;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

impl Fs {
    /// Runs an operation and counts it.
    ///
    /// # Errors
    /// Those of the operation; `EIO` and a line in the log where it panics, which never ends the mount.
    pub fn guarded<T>(&self, op: Op, ino: u64, run: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let start = Instant::now();
        let result = Self::caught(op, ino, run);
        self.count(op, ino, start.elapsed(), result.as_ref().err());
        result
    }

    /// Counts an operation that took so long.
    pub(super) fn count(&self, op: Op, ino: u64, time: Duration, error: Option<&Errno>) {
        self.timings().count(op, time, error.is_some());
        log::debug!(
            "{} {ino:#x} in {} us: {}",
            op.name(),
            time.as_micros(),
            error.map_or("ok".into(), Errno::to_string)
        );
    }

    /// The same without counting.
    pub(super) fn caught<T>(op: Op, ino: u64, run: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
            log::error!("{} of inode {ino:#x} panicked: this is a bug of zrfs-mount, please report it", op.name());
            Err(Errno::IO)
        })
    }
}
