//! What a mount did, in numbers: for tests and measurements, and for people as `.zrfs/stats.json`.

use super::Fs;
use serde_json::{Map, Value};
use std::sync::atomic::{AtomicU64, Ordering};

/// Length of `stats.json`, always the same: the kernel learns it before the numbers are taken.
pub(super) const STATS_BYTES: usize = 8192;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// What it is at.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What a mount did since it was made.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)*
        }

        impl Counters {
            /// The counters with their names.
            fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name.get())),*].into_iter()
            }
        }
    };
}

counters! {
    /// Names that the kernel asked for.
    lookups,
    /// Attributes that it asked for.
    getattrs,
    /// Requests to list a part of a directory.
    listings,
    /// Requests to read.
    reads,
    /// Bytes that those got.
    read_bytes,
    /// Bytes that were decoded, for readers and ahead of them.
    decoded_bytes,
    /// Reads of whole records that found them decoded, or being decoded.
    decoded_already,
    /// Files stored in the kernel's page cache ahead of readers.
    pushed,
    /// Bytes of those.
    pushed_bytes,
    /// Files that were not pushed since the kernel did not know them.
    unlisted,
    /// Files that were not pushed since their reader was there already.
    passed,
    /// Files that were not pushed since they can't be read.
    left_out,
    /// Orders that readers announced.
    announced,
    /// Batches that were gathered whole, for readers and ahead of them.
    batches,
    /// Those that were gathered ahead of readers.
    batches_ahead,
    /// Reads of batches that are too large for that, which gathered what they asked for.
    batch_ranges,
    /// Records of large files that were decoded ahead of readers.
    records_ahead,
    /// Batches that were gathered into views.
    view_batches,
    /// Bytes of those.
    view_bytes,
}

impl Fs {
    /// The bytes of `stats.json`.
    pub(super) fn stats(&self) -> Vec<u8> {
        let mut stats: Map<String, Value> = self.counters.all().map(|(name, n)| (name.into(), n.into())).collect();
        stats.insert("cache_used".into(), self.cache.used().into());
        stats.insert("cache_budget".into(), self.cache.budget().into());
        let (views, memory) = self.views.count();
        stats.insert("views".into(), views.into());
        stats.insert("view_memory".into(), memory.into());
        stats.insert("requests".into(), self.timings.report().into());
        let mut text = serde_json::to_vec_pretty(&Value::Object(stats)).unwrap_or_default();
        text.resize(STATS_BYTES - 1, b' ');
        text.push(b'\n');
        text
    }
}
