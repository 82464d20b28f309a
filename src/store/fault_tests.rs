//! Every storage call fails in turn, with every error: the operation says so, the writer latches, and the store opened
//! again holds what it held, and perhaps whole records of what was being appended.

use super::history::{History, Records, Setup, Step, read_all, scripts, setups};
use super::*;
use crate::storage::sim::{Call, Fault, Moment, Outcome, Sim};
use rayon::prelude::*;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};

/// The errors, by what they leave of the write that they hit.
fn faults() -> Vec<Fault> {
    let errno = [Errno::IO, Errno::NOSPC, Errno::DQUOT].map(Errno::raw_os_error);
    errno.into_iter().flat_map(|n| [Fault::Errno(n), Fault::Torn(n)]).collect()
}

/// What a fault hit.
struct Hit {
    call: Call,
    /// Whether the operation failed for it, or could rightly do without.
    failed: bool,
    /// Whether it hit a writer that ended to be opened again, or the one that opened.
    reopen: bool,
}

/// Runs `script` with `fault` at storage call `at`. Returns what was hit, if the script came so far.
fn run(setup: &Setup, script: &[Step], at: u64, fault: Fault, context: &str) -> Option<Hit> {
    let sim = Sim::new();
    let mut history = History::new(setup, &sim);
    sim.fail(at, fault);
    for (k, step) in script.iter().enumerate() {
        let context = format!("{context} in {step:?}");
        // A reader keeps some steps out, so there is one during the others only.
        let reader = (k > 0 && !step.alone()).then(|| sim.calmly(|| setup.reader(&sim)));
        let reader = reader.transpose().unwrap_or_else(|e| panic!("{context}: a reader before: {e}"));
        let done = history.step(step);
        let Some(call) = sim.failed() else {
            done.unwrap_or_else(|e| panic!("{context}: {e} without a fault"));
            continue;
        };
        sim.heal();
        let now = history.now();
        if let Some(reader) = &reader {
            let seen: Records = (0..reader.len()).map(|i| Arc::new(reader.read(i).unwrap())).collect();
            assert!(
                history.states[history.bounds[k].done.unwrap_or(0)] == seen,
                "{context}: a reader reads other records"
            );
        }
        drop(reader);
        let failed = done.is_err();
        // A compaction does with less room where the disk has not more.
        let full = [Errno::NOSPC, Errno::DQUOT].map(Errno::raw_os_error);
        let full = matches!(fault, Fault::Errno(n) | Fault::Torn(n) if full.contains(&n));
        let made_do = matches!(step, Step::Compact) && full;
        let hit = Hit { call, failed: failed || made_do, reopen: matches!(step, Step::Reopen) };
        if failed {
            assert!(matches!(done, Err(Error::Io { .. })), "{context}: {done:?}");
            if let Some(writer) = &mut history.writer
                && call != Call::Lock
                && !matches!(step, Step::Reopen)
            {
                let next = [writer.append(&[b"x"]).err(), writer.sync().err(), writer.delete(&[]).err()];
                assert!(next.iter().all(|e| matches!(e, Some(Error::Latched { .. }))), "{context}: then {next:?}");
            }
        }
        let states = &history.states[now.done.unwrap_or(0)..=now.top];
        let check = |when: &str| match read_all(&sim, setup) {
            Ok(seen) => {
                assert!(states.contains(&seen), "{context}, {when}: {} records are no state", seen.len());
                Some(seen)
            }
            // A writer that cannot give back the lock of a deletion keeps it until it ends.
            Err(Error::Locked { .. }) if call == Call::Lock && when == "the writer there" => None,
            Err(e) => {
                assert!(now.done.is_none(), "{context}, {when}: {e}");
                None
            }
        };
        check("the writer there");
        history.writer = None;
        let seen = check("the writer gone");
        sim.step(0);
        let writer = setup.writer(&sim).open("s");
        let (Some(seen), Ok(writer)) = (seen, writer) else {
            assert!(now.done.is_none(), "{context}: the store does not open again");
            return Some(hit);
        };
        assert!(check("reopened").as_ref() == Some(&seen), "{context}: opening again changed the records");
        // A power cut while it was mended leaves no half of anything.
        if let (Call::Sync, Some(synced)) = (call, now.synced) {
            for (k, moment) in sim.moments().iter().enumerate() {
                let left = read_all(&moment.power_cut(Outcome::Some(at * 1000 + k as u64)), setup);
                let left = left.unwrap_or_else(|e| panic!("{context}, then a power cut at {k} of the mending: {e}"));
                let whole = history.states[synced..=now.top].contains(&left);
                assert!(whole, "{context}, then a power cut at {k} of the mending: no state");
            }
        }
        // What was mended is durable, also where the fault was a sync that failed.
        let cut = |when: &str, want: Option<&Records>| {
            let left = read_all(&last_moment(&sim).power_cut(Outcome::Lost), setup);
            assert!(left.as_ref().ok() == want, "{context}, {when}, then a power cut: {:?}", left.map(|r| r.len()));
        };
        cut("opened again", Some(&seen));
        history.resume(seen, writer);
        history.step(&Step::Append(vec![60, 60, 500])).unwrap();
        history.step(&Step::Sync).unwrap();
        history.writer = None;
        assert!(history.states.last() == read_all(&sim, setup).ok().as_ref(), "{context}: cannot go on");
        cut("gone on", history.states.last());
        return Some(hit);
    }
    None
}

fn last_moment(sim: &Sim) -> Moment {
    sim.step(0);
    sim.moments().pop().expect("it was recorded just now")
}

#[test]
fn every_call_fails_in_turn() {
    let (calls, injected, survived) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    for setup in [Codec::Raw, Codec::Zstd].into_iter().flat_map(setups) {
        for (name, script) in scripts() {
            let count = calls_of(&setup, &script);
            calls.fetch_add(count, Ordering::Relaxed);
            (0..count).into_par_iter().for_each(|at| {
                // Each error somewhere near each call, all of them over the scripts.
                let faults = faults();
                for fault in [faults[at as usize % 6], faults[(at as usize + 3) % 6]] {
                    let context = format!("{name} {setup:?}, {fault:?} at call {at}");
                    let Some(Hit { call, failed, reopen }) = run(&setup, &script, at, fault, &context) else {
                        continue;
                    };
                    injected.fetch_add(1, Ordering::Relaxed);
                    if !failed {
                        // A file system without locks is one to read from; what a crash left is judged by what can be
                        // read of it; and a writer that ends has nobody to tell.
                        assert!(
                            matches!(call, Call::Lock | Call::Size | Call::Open) || reopen && call == Call::Write,
                            "{context}: {call:?} went unnoticed"
                        );
                        survived.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    }
    let [calls, injected, survived] = [calls, injected, survived].map(AtomicU64::into_inner);
    println!("faults: {calls} storage calls, {injected} errors injected, {survived} of them needless to report");
}

#[test]
fn interruptions_and_short_calls_are_survived() {
    let injected = AtomicU64::new(0);
    for setup in [Codec::Raw, Codec::Zstd].into_iter().flat_map(setups) {
        for (name, script) in scripts() {
            (0..calls_of(&setup, &script)).into_par_iter().for_each(|at| {
                for fault in [Fault::Interrupted, Fault::Short] {
                    let context = format!("{name} {setup:?}, {fault:?} at call {at}");
                    let Some(Hit { call, failed, .. }) = run(&setup, &script, at, fault, &context) else { continue };
                    assert!(!failed, "{context}: {call:?} fails");
                    injected.fetch_add(u64::from(matches!(call, Call::Read | Call::Write)), Ordering::Relaxed);
                }
            });
        }
    }
    println!("faults: {} interrupted or short reads and writes", injected.into_inner());
}

/// Storage calls of the script's steps, in an undisturbed run.
fn calls_of(setup: &Setup, script: &[Step]) -> u64 {
    let sim = Sim::new();
    let mut history = History::new(setup, &sim);
    script.iter().for_each(|step| history.step(step).unwrap());
    history.writer = None;
    sim.calls()
}
