//! Forked children that a test waits for: one that fails says why, and of one that hangs is told where.
#![allow(dead_code)] // Each test binary uses its own part.

use std::fmt::Write;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

/// A child hangs that does nothing for so many looks, a second each. One that waits for a processor does not.
const QUIET: usize = 60;
/// Nor does a child take so long, whatever it does.
const LONGEST: Duration = Duration::from_secs(900);

/// Set in children.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Tests that fork do so one after the other, and while the test harness is in the middle of nothing: a child inherits
/// whatever locks another thread holds just then, those that std takes where threads start and end among them.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (here, begin) = (Path::new("/proc").join(fs::read_link("/proc/thread-self").unwrap()), Instant::now());
    // The harness runs until it has started the test that comes after the one that ended, and that one until it waits here.
    while threads(own()).iter().any(|thread| thread.place != here && thread.state != "S") {
        assert!(begin.elapsed() < LONGEST, "other threads are at work:\n{}", told(&[own()]));
        std::thread::sleep(Duration::from_millis(1));
    }
    alone
}

/// Forks; the child does `work` and ends with 0, or with 1 where it panics or says no. Returns the child.
pub fn fork(work: impl FnOnce() -> bool) -> libc::pid_t {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| if FORKED.load(Ordering::Relaxed) { say(info) } else { before(info) }));
    });
    // SAFETY: the child calls `work`, which its test means to be sound in a fork of a process with several threads, and
    // ends with `_exit`, so that nothing of the parent's runs there twice.
    match unsafe { libc::fork() } {
        0 => {
            FORKED.store(true, Ordering::Relaxed);
            let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
            // SAFETY: ends the process.
            unsafe { libc::_exit(if done { 0 } else { 1 }) }
        }
        -1 => panic!("cannot fork: {}", io::Error::last_os_error()),
        child => child,
    }
}

/// Says why a thread of a child panics. What the usual hook says there is caught for the test's output, of which the child has
/// a copy that nobody reads; and it takes locks.
fn say(info: &PanicHookInfo<'_>) {
    let text = format!("in child {}: {info}\n", std::process::id());
    let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
}

/// Waits for a child; how it ended, as `waitpid` has it.
pub fn wait(child: libc::pid_t) -> i32 {
    loop {
        if let Some(status) = ended(child, 0) {
            return status;
        }
    }
}

/// How the child ended, if it has.
fn ended(child: libc::pid_t, flags: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    match unsafe { libc::waitpid(child, &raw mut status, flags) } {
        0 => None,
        -1 => {
            let error = io::Error::last_os_error();
            assert_eq!(error.kind(), io::ErrorKind::Interrupted, "waitpid: {error}");
            None
        }
        _ => Some(status),
    }
}

/// Waits until the child ends well; one that hangs is killed, after its threads were told.
#[track_caller]
pub fn ends_well(child: libc::pid_t, what: &str) {
    let begin = Instant::now();
    let (mut look, mut quiet, mut ran) = (begin, 0, 0);
    loop {
        if let Some(status) = ended(child, libc::WNOHANG) {
            let status = ExitStatus::from_raw(status);
            assert!(status.success(), "{what}: the child ended with {status}");
            return;
        }
        if look.elapsed() > Duration::from_secs(1) {
            look = Instant::now();
            let threads: Vec<Thread> = children().into_iter().flat_map(threads).collect();
            let now = threads.iter().map(|thread| thread.ran).sum();
            let moves = now != ran || threads.iter().any(|thread| thread.state == "R");
            (quiet, ran) = (if moves { 0 } else { quiet + 1 }, now);
        }
        if quiet > QUIET || begin.elapsed() > LONGEST {
            let told = told(&children());
            // SAFETY: the child is this process's own, and not waited for yet.
            unsafe { libc::kill(child, libc::SIGKILL) };
            wait(child);
            panic!("{what}: the child hangs:\n{told}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A thread as `/proc` has it.
struct Thread {
    place: PathBuf,
    state: String,
    /// Nanoseconds on a processor.
    ran: u64,
}

/// The threads of a process: none when it has ended.
fn threads(process: i32) -> Vec<Thread> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let thread = |task: fs::DirEntry| {
        let place = task.path();
        let state = fields(&fs::read_to_string(place.join("stat")).ok()?)?.first()?.to_string();
        let ran = fs::read_to_string(place.join("schedstat")).ok()?.split(' ').next()?.parse().ok()?;
        Some(Thread { place, state, ran })
    };
    tasks.filter_map(thread).collect()
}

/// What stands in a `stat` file behind the name, which may be anything: the state, the parent, …
fn fields(stat: &str) -> Option<Vec<&str>> {
    Some(stat.rsplit_once(") ")?.1.split(' ').collect())
}

/// The number that this process has in `/proc`, which may be another pid namespace's.
fn own() -> i32 {
    fs::read_link("/proc/self").unwrap().to_str().unwrap().parse().unwrap()
}

/// All that this process has started and what that has, as far as it lives, by the numbers in `/proc`.
fn children() -> Vec<i32> {
    let parent = |entry: fs::DirEntry| {
        let child: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        Some((child, fields(&stat)?.get(1)?.parse().ok()?))
    };
    let all: Vec<(i32, i32)> = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(parent).collect();
    let mut family = vec![own()];
    let mut next = 0;
    while let Some(&one) = family.get(next) {
        family.extend(all.iter().filter(|(_, parent)| *parent == one).map(|(child, _)| child));
        next += 1;
    }
    family.split_off(1)
}

/// What all threads of some processes are at.
fn told(processes: &[i32]) -> String {
    let mut text = String::new();
    for Thread { place, state, ran } in processes.iter().flat_map(|&process| threads(process)) {
        let at =
            ["comm", "wchan", "syscall", "stack"].map(|name| fs::read_to_string(place.join(name)).unwrap_or_default());
        let (place, at) = (place.display(), at.join(" ").replace('\n', " "));
        let _ = writeln!(text, "{place}: {state}, ran {} ms, {at}", ran / 1_000_000);
    }
    text
}
