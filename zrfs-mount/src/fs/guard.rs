//! Operations are counted, and a panic in one is an error.

use super::Fs;
use crate::errno::Errno;
use crate::timing::Op;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

impl Fs {
    /// Runs an operation and counts it.
    ///
    /// # Errors
    /// Those of the operation; `EIO` and a line in the log where it panics, which never ends the mount.
    pub fn guarded<T>(&self, op: Op, ino: u64, run: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let start = Instant::now();
        let result = Self::caught(op, ino, run);
        let time = start.elapsed();
        self.timings().count(op, time, result.is_err());
        let error = result.as_ref().err();
        log::debug!(
            "{} {ino:#x} in {} us: {}",
            op.name(),
            time.as_micros(),
            error.map_or("ok".into(), Errno::to_string)
        );
        result
    }

    /// The same without counting.
    pub(super) fn caught<T>(op: Op, ino: u64, run: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
            log::error!("{} of inode {ino:#x} panicked: this is a bug of zrfs-mount, please report it", op.name());
            Err(Errno::IO)
        })
    }
}
