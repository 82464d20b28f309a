//! The progress bar of long jobs, the notices they print, and the signals that stop them.

use super::{Done, Failure, print};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use zrfs::pack::{Notice, Progress, Watch};
use zrfs::signals::is_ignored;
use zrfs::{Error, Result};

/// Exit status of a job that had to be stopped twice.
const KILLED: i32 = 130;
/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);

/// Runs `job` with a bar on standard error, where that is a terminal. SIGINT, SIGTERM and SIGHUP ask the job to stop;
/// a second one ends the process. Those that were ignored stay so: a job under `nohup` outlives its terminal. `unit` names
/// what is counted.
pub(super) fn run<T: Send>(unit: &str, job: impl FnOnce(Watch<'_>) -> Result<T> + Send) -> Result<T> {
    let progress = Progress::default();
    stop_on_signals(&progress.stop_flag())?;
    // A file at the process's size limit is to be an error of the write, not the end of the process.
    signal_hook::flag::register(SIGXFSZ, Arc::default())
        .map_err(|e| Error::invalid(format!("cannot handle signals: {e}")))?;
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(style("{spinner} {bytes}  {bytes_per_sec}  {msg}"));
    let known = AtomicBool::new(false);
    let show = || {
        let total = progress.total_bytes();
        if total > 0 && !known.swap(true, Ordering::Relaxed) {
            bar.set_style(style("{wide_bar} {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left  {msg}"));
        }
        if total > 0 {
            bar.set_length(total);
        }
        bar.set_position(progress.bytes());
        bar.set_message(print::counted(progress.items(), unit));
    };
    let notice = |notice: Notice<'_>| {
        let text = match notice {
            Notice::LeftOut(path, what) => format!("left out {}: {what}", print::path(path)),
            Notice::Failed(path, reason) => format!("failed: {}: {reason}", print::path(path)),
        };
        bar.suspend(|| eprintln!("zrfs: {text}"));
    };
    let result = std::thread::scope(|scope| {
        let (done, ticks) = channel::<()>();
        scope.spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ticks.recv_timeout(TICK) {
                show();
            }
        });
        let result = job(Watch { progress: &progress, notice: &notice });
        drop(done);
        result
    });
    bar.finish_and_clear();
    result
}

/// SIGINT, SIGTERM and SIGHUP set `flag`; a second one ends the process. Those that were ignored stay so.
pub(super) fn stop_on_signals(flag: &Arc<AtomicBool>) -> Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&signal| !is_ignored(signal)) {
        // In this order the first signal sets the flag, and the second finds it set.
        signal_hook::flag::register_conditional_shutdown(signal, KILLED, flag.clone())
            .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
            .map_err(|e| Error::invalid(format!("cannot handle signals: {e}")))?;
    }
    Ok(())
}

/// Ends a job that named `failed` things on the way.
pub(super) fn end(failed: u64) -> Done {
    if failed == 0 {
        return Ok(());
    }
    eprintln!("zrfs: {} could not be taken along, as named above; the rest was", print::counted(failed, "file"));
    Err(Failure::Partial)
}

pub(super) fn style(template: &str) -> ProgressStyle {
    // The templates are constants of this file; one that does not parse falls back to the plain bar.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
