//! What a running loader shows: a line that is drawn again and again on a terminal, a line a second elsewhere.

use super::super::{bar, print};
use super::verdict::{Shares, verdict};
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};
use zrfs::loader::{Loader, Stats};

/// How often a terminal's line is drawn.
const REDRAW: Duration = Duration::from_millis(250);
/// How often a line is printed where there is no terminal.
const REPRINT: Duration = Duration::from_secs(1);

pub(super) struct View {
    json: bool,
    prefetch: usize,
    decodes: bool,
    line: Option<ProgressBar>,
    shown: Instant,
    /// As they were when the last line was shown.
    last: Stats,
    disk_before: Option<u64>,
}

impl View {
    pub(super) fn new(json: bool, prefetch: usize, decodes: bool) -> Self {
        let terminal = !json && io::stderr().is_terminal();
        let line = terminal.then(|| {
            let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            line.set_style(bar::style("{spinner} {msg}"));
            line
        });
        let disk_before = read_from_disk();
        View { json, prefetch, decodes, line, shown: Instant::now(), last: Stats::default(), disk_before }
    }

    /// Shows how it goes, when it is time for that.
    pub(super) fn tick(&mut self, loader: &Loader) -> io::Result<()> {
        let every = if self.line.is_some() { REDRAW } else { REPRINT };
        if self.shown.elapsed() < every {
            return Ok(());
        }
        self.shown = Instant::now();
        let Ok(now) = loader.stats() else { return Ok(()) };
        let shares = Shares::between(&self.last, &now);
        if self.json {
            say(&self.json(&now, &shares))?;
        } else {
            let text = self.text(&now, &shares);
            match &self.line {
                Some(line) => {
                    line.set_message(text);
                    line.tick();
                }
                None => eprintln!("zrfs: {text}"),
            }
        }
        self.last = now;
        Ok(())
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        if let Some(line) = &self.line {
            line.finish_and_clear();
        }
    }

    fn text(&self, now: &Stats, shares: &Shares) -> String {
        let workers = match shares.workers_waited {
            Some(share) => {
                format!("  workers wait {}  ready {} of {}", percent(share), now.ready, self.prefetch + now.workers)
            }
            None => String::new(),
        };
        format!(
            "{}  {}/s  {}/s  consumer waits {}{workers}  memory {}",
            batches(now.batches),
            rate(shares.batches_per_second),
            print::bytes(shares.bytes_per_second as u64),
            percent(shares.consumer_waited),
            print::bytes(memory("VmRSS:").unwrap_or(0)),
        )
    }

    fn json(&self, now: &Stats, shares: &Shares) -> Value {
        json!({
            "seconds": now.elapsed.as_secs_f64(),
            "batches": now.batches,
            "bytes": now.bytes,
            "batches_per_second": shares.batches_per_second,
            "bytes_per_second": shares.bytes_per_second,
            "consumer_waited": shares.consumer_waited,
            "workers_waited": shares.workers_waited,
            "workers": now.workers,
            "ready": now.ready,
            "working": now.working,
            "memory": memory("VmRSS:"),
        })
    }

    /// What it was on the whole, and what held it up.
    pub(super) fn summary(&self, loader: &Loader) -> io::Result<()> {
        let Ok(now) = loader.stats() else { return Ok(()) };
        let shares = Shares::between(&Stats::default(), &now);
        let disk = read_from_disk().zip(self.disk_before).map(|(after, before)| after.saturating_sub(before));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let verdict = verdict(&now, &shares, self.decodes, disk, cores);
        let peak = memory("VmHWM:");
        if self.json {
            let mut json = self.json(&now, &shares);
            json["peak_memory"] = peak.into();
            json["read_from_disk"] = disk.into();
            json["bottleneck"] = verdict.what.name().into();
            json["verdict"] = verdict.text.into();
            return say(&json);
        }
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "{} ({}) in {}: {}/s, {}/s",
            batches(now.batches),
            print::bytes(now.bytes),
            print::seconds(now.elapsed),
            rate(shares.batches_per_second),
            print::bytes(shares.bytes_per_second as u64),
        )?;
        write!(out, "the consumer waited {} of the time", percent(shares.consumer_waited))?;
        if let Some(waited) = shares.workers_waited {
            write!(out, ", {} {} of theirs", print::counted(now.workers as u64, "worker"), percent(waited))?;
        }
        writeln!(out)?;
        if let Some(peak) = peak {
            writeln!(out, "memory: {} at most", print::bytes(peak))?;
        }
        writeln!(out, "bottleneck: {}", verdict.text)
    }
}

fn say(json: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{json}")?;
    out.flush()
}

fn batches(n: u64) -> String {
    format!("{} batch{}", print::count(n), if n == 1 { "" } else { "es" })
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// "1,234 batches", "0.52 batches".
fn rate(per_second: f64) -> String {
    if per_second < 10.0 { format!("{per_second:.2} batches") } else { batches(per_second.round() as u64) }
}

/// A size from /proc/self/status, in bytes.
fn memory(key: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// Bytes that this process had read from a disk, where the system tells.
fn read_from_disk() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}
