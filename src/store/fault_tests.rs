//! Every storage call fails in turn, with every error: the operation says so, the writer latches, and the store opened
//! again holds what it held, and perhaps whole records of what was being appended.

use super::history::{History, Records, Setup, Step, read_all, scripts, setups};
use super::*;
use crate::storage::sim::{Call, Fault, Sim};
use rayon::prelude::*;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};

/// The errors, by what they leave of the write that they hit.
fn faults() -> Vec<Fault> {
    let errno = [Errno::IO, Errno::NOSPC, Errno::DQUOT].map(Errno::raw_os_error);
    errno.into_iter().flat_map(|n| [Fault::Errno(n), Fault::Torn(n)]).collect()
}

/// Runs `script` with `fault` at storage call `at`. Returns which call was hit, if the script came so far, and whether
/// the operation failed for it, or could rightly do without.
fn run(setup: &Setup, script: &[Step], at: u64, fault: Fault, context: &str) -> Option<(Call, bool)> {
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
        let writer = setup.writer(&sim).open("s");
        let (Some(seen), Ok(writer)) = (seen, writer) else {
            assert!(now.done.is_none(), "{context}: the store does not open again");
            return Some((call, failed || made_do));
        };
        assert!(check("reopened").as_ref() == Some(&seen), "{context}: opening again changed the records");
        history.resume(seen, writer);
        history.step(&Step::Append(vec![60, 60, 500])).unwrap();
        history.step(&Step::Sync).unwrap();
        history.writer = None;
        assert!(history.states.last() == read_all(&sim, setup).ok().as_ref(), "{context}: cannot go on");
        return Some((call, failed || made_do));
    }
    None
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
                    let Some((call, failed)) = run(&setup, &script, at, fault, &context) else { continue };
                    injected.fetch_add(1, Ordering::Relaxed);
                    if !failed {
                        // A file system without locks is one to read from; what a crash left is judged by what can be
                        // read of it.
                        assert!(
                            matches!(call, Call::Lock | Call::Size | Call::Open),
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
                    let Some((call, failed)) = run(&setup, &script, at, fault, &context) else { continue };
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
