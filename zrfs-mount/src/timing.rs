//! What the kernel asked of a mount and how long the answers took, for `.zrfs/stats.json`.
//!
//! Counting costs two readings of the clock and a few additions a request. Nothing is kept per file or per caller.

use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A request of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say it")]
pub enum Op {
    Lookup,
    Getattr,
    Readlink,
    Read,
    Readdir,
    Readdirplus,
    Statfs,
    Getxattr,
    Listxattr,
    Ioctl,
}

impl Op {
    /// All of them.
    pub const ALL: [Op; 10] = [
        Op::Lookup,
        Op::Getattr,
        Op::Readlink,
        Op::Read,
        Op::Readdir,
        Op::Readdirplus,
        Op::Statfs,
        Op::Getxattr,
        Op::Listxattr,
        Op::Ioctl,
    ];

    /// Its name, as FUSE has it.
    pub fn name(self) -> &'static str {
        match self {
            Op::Lookup => "lookup",
            Op::Getattr => "getattr",
            Op::Readlink => "readlink",
            Op::Read => "read",
            Op::Readdir => "readdir",
            Op::Readdirplus => "readdirplus",
            Op::Statfs => "statfs",
            Op::Getxattr => "getxattr",
            Op::Listxattr => "listxattr",
            Op::Ioctl => "ioctl",
        }
    }
}

/// Bucket k counts what took less than 2^k microseconds, the last all the rest.
const BUCKETS: usize = 26;

#[derive(Debug, Default)]
struct Counter {
    errors: AtomicU64,
    nanos: AtomicU64,
    longest: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// The requests of a mount since it was made.
#[derive(Debug, Default)]
pub struct Timings {
    counters: [Counter; Op::ALL.len()],
}

impl Timings {
    /// Counts a request that took `time`.
    pub fn count(&self, op: Op, time: Duration, failed: bool) {
        let counter = &self.counters[op as usize];
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bits = (u64::BITS - (nanos / 1000).leading_zeros()) as usize;
        counter.buckets[bits.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        counter.nanos.fetch_add(nanos, Ordering::Relaxed);
        counter.longest.fetch_max(nanos, Ordering::Relaxed);
        if failed {
            counter.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many requests of this kind there were.
    pub fn requests(&self, op: Op) -> u64 {
        self.counters[op as usize].buckets.iter().map(|b| b.load(Ordering::Relaxed)).sum()
    }

    /// Counts and times by kind of request. Those that never came are left out.
    pub fn report(&self) -> Map<String, Value> {
        let mut requests = Map::new();
        for op in Op::ALL {
            let counter = &self.counters[op as usize];
            let buckets = counter.buckets.each_ref().map(|b| b.load(Ordering::Relaxed));
            let count: u64 = buckets.iter().sum();
            if count == 0 {
                continue;
            }
            let micros = |nanos: &AtomicU64| nanos.load(Ordering::Relaxed) / 1000;
            let report = json!({
                "count": count,
                "errors": counter.errors.load(Ordering::Relaxed),
                "mean_us": micros(&counter.nanos) / count,
                "p50_us_below": quantile(&buckets, count.div_ceil(2)),
                "p99_us_below": quantile(&buckets, count - count / 100),
                "max_us": micros(&counter.longest),
            });
            requests.insert(op.name().into(), report);
        }
        requests
    }
}

/// The bound in microseconds below which the `rank` fastest lie.
fn quantile(buckets: &[u64; BUCKETS], rank: u64) -> u64 {
    let mut below = 0;
    for (k, count) in buckets.iter().enumerate() {
        below += count;
        if below >= rank {
            return 1 << k;
        }
    }
    1 << (BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_quantiles() {
        let timings = Timings::default();
        for (micros, failed) in [(0, false), (1, false), (3, true), (1000, false)] {
            timings.count(Op::Read, Duration::from_micros(micros), failed);
        }
        timings.count(Op::Lookup, Duration::from_secs(1 << 40), false);
        let report = Value::Object(timings.report());
        let want = json!({
            "count": 4, "errors": 1, "mean_us": 251, "p50_us_below": 2, "p99_us_below": 1024, "max_us": 1000,
        });
        assert_eq!(report["read"], want);
        assert_eq!(report["lookup"]["count"], 1);
        assert_eq!((timings.requests(Op::Read), timings.requests(Op::Statfs)), (4, 0));
        assert!(report.get("statfs").is_none());
        for (k, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, k);
        }
    }
}
