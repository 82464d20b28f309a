//! Power cuts and kills at every storage call, on the simulated file system: whatever is left opens, and holds what was
//! promised. `docs/RELIABILITY.md` says what follows from it.

use super::history::{History, Records, SMALL, Setup, Step, read_all, record, scripts, setups};
use super::*;
use crate::pack::Progress;
use crate::storage::sim::{Moment, Outcome, Sim, Tried};
use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// Random outcomes of the power cut at each moment, beside "all" and "nothing"; `ZRFS_CRASH_OUTCOMES` asks for more.
const OUTCOMES: u64 = 3;

fn random_outcomes() -> u64 {
    std::env::var("ZRFS_CRASH_OUTCOMES").ok().and_then(|n| n.parse().ok()).unwrap_or(OUTCOMES)
}
/// Every so many of them, a second power cut follows at each moment of the recovery.
const SECOND: u64 = 48;
/// Random outcomes of each second power cut.
const SECOND_OUTCOMES: u64 = 2;

#[derive(Default)]
struct Figures {
    moments: AtomicU64,
    outcomes: AtomicU64,
    second: AtomicU64,
    repeated: AtomicU64,
    unborn: AtomicU64,
    cut_short: AtomicU64,
}

impl Figures {
    fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
    /// One that is left out, because the same files were tried before.
    fn repeat(&self) {
        Figures::add(&self.outcomes, 1);
        Figures::add(&self.repeated, 1);
    }
    fn print(&self, what: &str) {
        let [moments, outcomes, second, repeated, unborn, cut] =
            [&self.moments, &self.outcomes, &self.second, &self.repeated, &self.unborn, &self.cut_short]
                .map(|n| n.load(Ordering::Relaxed));
        let outcomes = outcomes - second;
        println!(
            "{what}: {moments} crash points, {outcomes} outcomes, {second} of a second crash ({repeated} of them all \
             the same as others); {cut} lost records that were not synced, {unborn} had no store yet"
        );
    }
}

/// What a store may hold: any of these states, and of the promised ones every byte.
struct Allowed<'a> {
    states: Vec<&'a Records>,
    /// The store may not have been made yet.
    unborn: bool,
}

impl Allowed<'_> {
    fn check(&self, seen: &Records, context: &str) {
        let lengths: Vec<usize> = self.states.iter().map(|s| s.len()).collect();
        let all = self.states.contains(&seen);
        assert!(all, "{context}: {} records are none of the states of {lengths:?} records", seen.len());
    }
}

fn may_be_unborn(error: &Error) -> bool {
    match error {
        Error::NotAStore { .. } | Error::Corrupt { .. } | Error::Dictionary { .. } => true,
        Error::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

/// Opens what a crash left, as reader and as writer, and goes on with it: appends records as long as those that were
/// lost, and syncs. With `moments`, returns those of all this.
fn survive(
    sim: &Sim,
    setup: &Setup,
    allowed: &Allowed<'_>,
    figures: &Figures,
    context: &str,
) -> Option<(Records, Records, Vec<Moment>)> {
    Figures::add(&figures.outcomes, 1);
    let seen = match read_all(sim, setup) {
        Ok(seen) => seen,
        Err(e) => {
            assert!(allowed.unborn && may_be_unborn(&e), "{context}: {e}");
            Figures::add(&figures.unborn, 1);
            return None;
        }
    };
    allowed.check(&seen, context);
    let longest = allowed.states.iter().max_by_key(|s| s.len()).expect("some state is allowed");
    let lost = &longest[seen.len().min(longest.len())..];
    Figures::add(&figures.cut_short, u64::from(!lost.is_empty()));
    sim.step(0);
    let mut writer = match setup.writer(sim).open("s") {
        Ok(writer) => writer,
        Err(e) => {
            assert!(allowed.unborn && may_be_unborn(&e), "{context}: the reader opens, the writer does not: {e}");
            return None;
        }
    };
    assert_eq!(writer.len(), seen.len() as u64, "{context}: reader and writer disagree");
    assert!(read_all(sim, setup).unwrap() == seen, "{context}: opening for writing changed the records");
    if setup.compacts {
        writer.compact_with(SMALL, &Progress::default()).unwrap();
        assert!(read_all(sim, setup).unwrap() == seen, "{context}: compacting changed the records");
    }
    let mut more: Vec<Vec<u8>> = lost.iter().take(5).enumerate().map(|(i, r)| record(1 << 20 | i, r.len())).collect();
    more.push(record(1 << 21, 40));
    sim.step(1);
    writer.append(&more.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
    sim.step(2);
    writer.sync().unwrap();
    sim.step(3);
    let after: Records = seen.iter().cloned().chain(more.into_iter().map(Arc::new)).collect();
    drop(writer);
    assert!(read_all(sim, setup).unwrap() == after, "{context}: what was appended after the crash is not there");
    let found = setup.reader(sim).unwrap().verify(&Progress::default(), &mut |bad| panic!("{context}: {}", bad.error));
    assert_eq!(found.unwrap().unchecked, 0, "{context}: every record has its checksum");
    Some((seen, after, sim.moments()))
}

/// Cuts the power again, at every moment of a recovery from `base` to `after`. The states `base` may all survive until
/// the sync.
fn second_crash(
    (base, after): (&[&Records], &Records),
    moments: &[Moment],
    setup: &Setup,
    figures: &Figures,
    unborn: bool,
    context: &str,
) {
    let seen = base.last().expect("some state was seen").len();
    let growing: Vec<Records> = (seen + 1..=after.len()).map(|n| after[..n].to_vec()).collect();
    let tried = Tried::default();
    for (k, moment) in moments.iter().enumerate() {
        let done = moment.step == 3;
        let mut states: Vec<&Records> = if done { vec![] } else { base.to_vec() };
        states.extend(growing.iter().filter(|s| !done || s.len() == after.len()));
        let allowed = Allowed { states, unborn: unborn && !done };
        let extreme = if k.is_multiple_of(2) { Outcome::Kept } else { Outcome::Lost };
        for outcome in (0..SECOND_OUTCOMES).map(|n| Outcome::Some(n + 1000 * k as u64)).chain([extreme]) {
            Figures::add(&figures.second, 1);
            let sim = moment.power_cut(outcome);
            if !tried.is_new(&sim, done) {
                figures.repeat();
                continue;
            }
            let context = format!("{context}, then {outcome:?} at {k} (step {})", moment.step);
            survive(&sim, setup, &allowed, figures, &context);
        }
    }
}

fn power_cuts(codec: Codec) {
    let figures = Figures::default();
    for setup in setups(codec) {
        for (name, script) in scripts() {
            let setup = Setup { compacts: script.iter().any(|step| matches!(step, Step::Compact)), ..setup.clone() };
            let (history, moments) = History::run(&setup, &script);
            let tried = Tried::default();
            moments.par_iter().enumerate().for_each(|(k, moment)| {
                Figures::add(&figures.moments, 1);
                let bounds = &history.bounds[moment.step];
                let states = history.states[bounds.synced.unwrap_or(0)..=bounds.top].iter().collect();
                let allowed = Allowed { states, unborn: bounds.synced.is_none() };
                let outcomes = [Outcome::Kept, Outcome::Lost].into_iter();
                for (n, outcome) in outcomes.chain((0..random_outcomes()).map(Outcome::Some)).enumerate() {
                    let outcome =
                        if let Outcome::Some(n) = outcome { Outcome::Some(n + 1000 * k as u64) } else { outcome };
                    let sim = moment.power_cut(outcome);
                    let twice = (n as u64 + k as u64).is_multiple_of(SECOND);
                    if !tried.is_new(&sim, moment.step) && !twice {
                        figures.repeat();
                        continue;
                    }
                    let context = format!("{name} {setup:?}, {outcome:?} at {k} ({:?})", script.get(moment.step));
                    let left = survive(&sim, &setup, &allowed, &figures, &context);
                    if let Some((seen, after, moments)) = left
                        && twice
                    {
                        second_crash((&[&seen], &after), &moments, &setup, &figures, allowed.unborn, &context);
                    }
                }
            });
        }
    }
    figures.print(&format!("power cuts, {codec}"));
}

#[test]
fn power_cuts_raw() {
    power_cuts(Codec::Raw);
}

#[test]
fn power_cuts_zstd() {
    power_cuts(Codec::Zstd);
}

#[test]
fn power_cuts_zstd_dict() {
    power_cuts(Codec::ZstdDict);
}

/// All processes die and the power stays: everything whose append returned is there, to the last byte.
#[test]
fn kills() {
    let figures = Figures::default();
    for setup in Codec::ALL.into_iter().flat_map(setups) {
        for (name, script) in scripts() {
            let setup = Setup { compacts: script.iter().any(|step| matches!(step, Step::Compact)), ..setup.clone() };
            let (history, moments) = History::run(&setup, &script);
            let tried = Tried::default();
            moments.par_iter().enumerate().for_each(|(k, moment)| {
                Figures::add(&figures.moments, 1);
                let (sim, twice) = (moment.killed(), k.is_multiple_of(12));
                if !tried.is_new(&sim, moment.step) && !twice {
                    return figures.repeat();
                }
                let bounds = &history.bounds[moment.step];
                let states = history.states[bounds.done.unwrap_or(0)..=bounds.top].iter().collect();
                let allowed = Allowed { states, unborn: bounds.done.is_none() };
                let context = format!("{name} {setup:?}, killed at {k} ({:?})", script.get(moment.step));
                let Some((seen, after, moments)) = survive(&sim, &setup, &allowed, &figures, &context) else { return };
                // The power may still go before the next writer is done.
                if twice {
                    let synced = bounds.synced.unwrap_or(0);
                    let mut base: Vec<&Records> = history.states[synced..=bounds.top].iter().collect();
                    base.push(&seen);
                    second_crash((&base, &after), &moments, &setup, &figures, bounds.synced.is_none(), &context);
                }
            });
        }
    }
    figures.print("kills");
}

/// A reader opens while a writer of another process recovers: the writer does all of it between two of the reader's
/// calls, wherever that is, or a part of it, and is still at it when the reader is done.
#[test]
fn readers_open_during_recovery() {
    let (races, halves) = (AtomicU64::new(0), AtomicU64::new(0));
    for setup in setups(Codec::Zstd).into_iter().chain(setups(Codec::Raw)) {
        for (name, script) in scripts() {
            let (history, moments) = History::run(&setup, &script);
            moments.par_iter().enumerate().filter(|(at, _)| at % 11 == 0).for_each(|(at, moment)| {
                let bounds = &history.bounds[moment.step];
                let Some(synced) = bounds.synced else { return };
                let states = history.states[synced..=bounds.top].iter().collect();
                let allowed = Allowed { states, unborn: false };
                let left = || moment.power_cut(Outcome::Some(at as u64));
                let whole = {
                    let sim = left();
                    drop(setup.writer(&sim).open("s"));
                    sim.calls()
                };
                for call in 0.. {
                    let steps = (at as u64 * 31 + call * 7) % whole;
                    for steps in [None, Some(steps)] {
                        let sim = left();
                        let (other, how) = (sim.clone(), setup.clone());
                        sim.before(call, move || match steps {
                            None => drop(how.writer(&other).open("s")),
                            Some(steps) => other.halted(steps, || drop(how.writer(&other).open("s"))),
                        });
                        let context = format!("{name} {setup:?}, at {at}, {steps:?} of a writer before call {call}");
                        let seen = read_all(&sim, &setup).unwrap_or_else(|e| panic!("{context}: {e}"));
                        allowed.check(&seen, &context);
                        if sim.hook_waits() {
                            return;
                        }
                        Figures::add(if steps.is_none() { &races } else { &halves }, 1);
                    }
                }
            });
        }
    }
    let [races, halves] = [races, halves].map(AtomicU64::into_inner);
    println!("races: {races} readers opened while a writer recovered, {halves} while one was in the middle of it");
}
