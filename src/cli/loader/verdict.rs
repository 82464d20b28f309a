//! What held a loader up, in words.

use super::super::print;
use zrfs::loader::Stats;

/// A consumer that waited for less than this share of the time has nothing to gain from a faster loader.
const KEEPS_UP: f64 = 0.05;
/// From this share of the bytes on, the disk is named.
const DISK: f64 = 0.1;

/// Rates, and shares of the time, between two moments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shares {
    pub(super) batches_per_second: f64,
    pub(super) bytes_per_second: f64,
    /// Of the time, that the consumer waited for a batch.
    pub(super) consumer_waited: f64,
    /// Of their time, that the workers waited for room; `None` where there are none.
    pub(super) workers_waited: Option<f64>,
}

impl Shares {
    pub(super) fn between(before: &Stats, now: &Stats) -> Self {
        let seconds = (now.elapsed.saturating_sub(before.elapsed)).as_secs_f64().max(1e-9);
        let share = |waited: f64, of: f64| (waited / of).clamp(0.0, 1.0);
        let consumer = now.consumer_waited.saturating_sub(before.consumer_waited).as_secs_f64();
        let workers = now.workers_waited.saturating_sub(before.workers_waited).as_secs_f64();
        Shares {
            batches_per_second: now.batches.saturating_sub(before.batches) as f64 / seconds,
            bytes_per_second: now.bytes.saturating_sub(before.bytes) as f64 / seconds,
            consumer_waited: share(consumer, seconds),
            workers_waited: (now.workers > 0).then(|| share(workers, seconds * now.workers as f64)),
        }
    }
}

/// What held it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bottleneck {
    Nothing,
    Consumer,
    Disk,
    Workers,
}

impl Bottleneck {
    pub(super) fn name(self) -> &'static str {
        match self {
            Bottleneck::Nothing => "nothing",
            Bottleneck::Consumer => "consumer",
            Bottleneck::Disk => "disk",
            Bottleneck::Workers => "workers",
        }
    }
}

/// The same with its reasons.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) what: Bottleneck,
    pub(super) text: String,
}

/// Judges a run of a loader whose records are compressed (`decodes`) or not; `disk` are the bytes that came from there.
pub(super) fn verdict(stats: &Stats, shares: &Shares, decodes: bool, disk: Option<u64>, cores: usize) -> Verdict {
    let waited = format!("it waited for a batch {:.0}% of the time", shares.consumer_waited * 100.0);
    let work = if decodes { "read and decode" } else { "read" };
    let (what, text) = if stats.batches == 0 {
        (Bottleneck::Nothing, "nothing was loaded".into())
    } else if shares.consumer_waited < KEEPS_UP {
        (Bottleneck::Consumer, format!("the consumer; {waited}, so a faster loader would change little"))
    } else if let Some(disk) = disk.filter(|&disk| disk as f64 > stats.bytes as f64 * DISK) {
        let rate = disk as f64 / stats.elapsed.as_secs_f64().max(1e-9);
        let rate = print::bytes(rate as u64);
        (
            Bottleneck::Disk,
            format!("the disk, most likely: {} came from it, {rate}/s; the rest was in memory", print::bytes(disk)),
        )
    } else if stats.workers == 0 {
        let text = format!(
            "the consumer makes its batches itself: {:.0}% of the time went there",
            shares.consumer_waited * 100.0
        );
        (Bottleneck::Workers, format!("{text}; workers would {work} meanwhile"))
    } else {
        let advice = if stats.workers < cores {
            format!("there are {cores} cores, so more workers may help")
        } else {
            "every core is at it".into()
        };
        let workers = print::counted(stats.workers as u64, "worker");
        (
            Bottleneck::Workers,
            format!(
                "the loader; {workers} {work} while the consumer waits, {:.0}% of the time; {advice}",
                shares.consumer_waited * 100.0
            ),
        )
    };
    Verdict { what, text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn stats(consumer_ms: u64, workers_ms: u64, workers: usize) -> Stats {
        Stats {
            elapsed: Duration::from_secs(10),
            batches: 100,
            bytes: 1000 << 20,
            consumer_waited: Duration::from_millis(consumer_ms),
            workers_waited: Duration::from_millis(workers_ms),
            workers,
            ..Stats::default()
        }
    }

    #[test]
    fn shares_are_of_the_time_between() {
        let (before, now) = (stats(1000, 4000, 4), Stats { elapsed: Duration::from_secs(15), ..stats(2000, 9000, 4) });
        let shares = Shares::between(&before, &Stats { batches: 150, ..now });
        assert_eq!((shares.batches_per_second, shares.bytes_per_second), (10.0, 0.0));
        assert_eq!((shares.consumer_waited, shares.workers_waited), (0.2, Some(0.25)));
        assert_eq!(Shares::between(&before, &stats(1, 1, 0)).workers_waited, None);
        // What waits on is only counted when it ends, which can be in a later interval.
        assert_eq!(
            Shares::between(&before, &Stats { elapsed: Duration::from_secs(11), ..stats(5000, 0, 4) }).consumer_waited,
            1.0
        );
    }

    #[test]
    fn each_bottleneck_is_named() {
        let judge = |stats: Stats, disk| {
            let verdict = verdict(&stats, &Shares::between(&Stats::default(), &stats), true, disk, 4);
            (verdict.what, verdict.text)
        };
        assert_eq!(judge(Stats::default(), None).0, Bottleneck::Nothing);
        let (what, text) = judge(stats(200, 30_000, 4), Some(900 << 20));
        assert!(what == Bottleneck::Consumer && text.contains("2% of the time"), "{text}");
        let (what, text) = judge(stats(9000, 0, 4), Some(500 << 20));
        assert!(what == Bottleneck::Disk && text.contains("500.00 MiB came from it, 50.00 MiB/s"), "{text}");
        let (what, text) = judge(stats(9000, 0, 4), Some(5 << 20));
        assert!(
            what == Bottleneck::Workers && text.contains("4 workers read and decode") && text.contains("every core"),
            "{text}"
        );
        assert!(judge(stats(9000, 0, 1), None).1.contains("more workers may help"));
        assert!(judge(stats(9000, 0, 0), None).1.contains("itself: 90%"));
    }
}
