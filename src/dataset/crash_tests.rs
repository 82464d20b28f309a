//! Power cuts, kills and errors at every storage call of a ragged store's and a dataset's writer: whatever is left opens
//! as reader and as writer, each record has its own shape, the streams are aligned, and what was promised is there.

use super::ragged::is_settled;
use super::*;
use crate::format::dtype::DType;
use crate::format::{Codec, Layout};
use crate::storage::sim::{Fault, Moment, Outcome, Sim, Tried};
use crate::store::WriterOptions;
use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// Random outcomes of the power cut at each moment, beside "all" and "nothing".
const OUTCOMES: u64 = 3;

/// A record is known by its number, which its bytes begin with; its shape follows from it.
type Ids = Vec<u32>;

#[derive(Debug, Clone)]
enum Step {
    Append(u32),
    Sync,
    Delete(Vec<u64>),
    /// Ends the writer properly and opens another.
    Close,
    /// Ends the writer as a kill would and opens another.
    Drop,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Ragged,
    Dataset,
}

/// What is written, with which codec, and the moves that a journal of a deletion has at most.
#[derive(Debug, Clone, Copy)]
struct What {
    kind: Kind,
    codec: Codec,
    moves: usize,
}

const RAGGED: [What; 2] = [
    What { kind: Kind::Ragged, codec: Codec::Zstd, moves: 100 },
    What { kind: Kind::Ragged, codec: Codec::Raw, moves: 2 },
];
const DATASETS: [What; 2] = [
    What { kind: Kind::Dataset, codec: Codec::Zstd, moves: 2 },
    What { kind: Kind::Dataset, codec: Codec::Raw, moves: 100 },
];

enum AnyWriter {
    Ragged(Box<RaggedWriter>),
    Dataset(DatasetWriter),
}

const LAYOUT: Layout = Layout { segment_entries: 40, chunk_bytes: 2600 };

fn reader_options(sim: &Sim) -> OpenOptions {
    OpenOptions::new().verify_on_read(true).layout(LAYOUT).storage(Arc::new(sim.clone()))
}

/// All shapes are of as many bytes, so that a shape at the wrong record is not noticed by the length.
fn shape(id: u32) -> Vec<u64> {
    [vec![12], vec![2, 6], vec![6, 2], vec![3, 4], vec![1, 12, 1]][id as usize % 5].clone()
}

fn bytes(id: u32) -> Vec<u8> {
    id.to_le_bytes().into_iter().chain((0..8).map(|k| (id * 37 + k * 91) as u8)).collect()
}

/// Which record this is, once it is seen to be that one to the last byte.
fn id_of(stream: &Stream, index: u64) -> Result<u32> {
    let record = stream.store().read(index)?;
    let id = u32::from_le_bytes(record[..4].try_into().unwrap());
    assert_eq!(record, bytes(id), "record {index} of {}", stream.store().path().display());
    match stream.shape(index)? {
        Some(found) if matches!(stream.schema().map(|s| &s.kind), Some(crate::format::Kind::Ragged)) => {
            assert_eq!(found, shape(id), "the shape of record {index}");
        }
        _ => {}
    }
    Ok(id)
}

fn ids_of(stream: &Stream) -> Result<Ids> {
    (0..stream.len()).map(|index| id_of(stream, index)).collect()
}

impl What {
    fn options(self, sim: &Sim) -> WriterOptions {
        WriterOptions::new(self.codec).journal_moves(self.moves).layout(LAYOUT).storage(Arc::new(sim.clone()))
    }

    fn create(self, sim: &Sim) {
        let u1 = || DType::parse("|u1").unwrap();
        match self.kind {
            Kind::Ragged => RaggedWriter::create("s".as_ref(), self.options(sim), u1()).unwrap().close().unwrap(),
            Kind::Dataset => {
                sim.create_dir("s".as_ref()).unwrap();
                sim.sync_dir(".".as_ref()).unwrap();
                let path = |name: &str| Path::new("s").join(name);
                DenseWriter::create(&path("a"), self.options(sim), u1(), vec![12]).unwrap().close().unwrap();
                RaggedWriter::create(&path("b"), self.options(sim), u1()).unwrap().close().unwrap();
                self.options(sim).create(path("c")).unwrap().close().unwrap();
            }
        }
    }

    fn open(self, sim: &Sim) -> Result<AnyWriter> {
        let path = Path::new("s");
        Ok(match self.kind {
            Kind::Ragged => AnyWriter::Ragged(Box::new(RaggedWriter::open(path, self.options(sim))?)),
            Kind::Dataset => AnyWriter::Dataset(DatasetWriter::open(path, &self.options(sim))?),
        })
    }

    fn read(self, sim: &Sim) -> Result<Ids> {
        match self.kind {
            Kind::Ragged => ids_of(&Stream::open_with(&reader_options(sim), "s")?),
            Kind::Dataset => {
                let dataset = Dataset::open_with(&reader_options(sim), "s")?;
                let streams: Vec<Ids> = dataset.streams().iter().map(|(_, s)| ids_of(s)).collect::<Result<_>>()?;
                assert!(streams.iter().all(|ids| *ids == streams[0]), "the streams are not aligned: {streams:?}");
                assert_eq!(dataset.refresh()?, dataset.len(), "a refresh changed the length, and nobody wrote");
                assert_eq!(dataset.len(), streams[0].len() as u64);
                Ok(streams[0].clone())
            }
        }
    }

    /// Whether nothing is left that only interrupted writers leave.
    fn settled(self, sim: &Sim) -> bool {
        match self.kind {
            Kind::Ragged => is_settled(sim, "s".as_ref()),
            Kind::Dataset => {
                is_settled(sim, "s/b".as_ref()) && sim.open(&Path::new("s").join(crate::format::DATASET_FILE)).is_err()
            }
        }
    }
}

impl AnyWriter {
    fn append(&mut self, ids: &[u32]) -> Result<()> {
        let (shapes, all): (Vec<_>, Vec<_>) = ids.iter().map(|&id| (shape(id), bytes(id))).unzip();
        let ragged: Vec<(&[u64], &[u8])> = shapes.iter().zip(&all).map(|(s, b)| (&s[..], &b[..])).collect();
        let records: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        match self {
            AnyWriter::Ragged(writer) => writer.append(&ragged),
            AnyWriter::Dataset(writer) => writer.append(&[
                ("c", Batch::Bytes(&records)),
                ("a", Batch::Dense(&all.concat())),
                ("b", Batch::Ragged(&ragged)),
            ]),
        }
    }
    fn sync(&mut self) -> Result<()> {
        match self {
            AnyWriter::Ragged(writer) => writer.sync(),
            AnyWriter::Dataset(writer) => writer.sync(),
        }
    }
    fn delete(&mut self, indices: &[u64]) -> Result<()> {
        match self {
            AnyWriter::Ragged(writer) => writer.delete(indices),
            AnyWriter::Dataset(writer) => writer.delete(indices),
        }
    }
    fn close(self) -> Result<()> {
        match self {
            AnyWriter::Ragged(writer) => writer.close(),
            AnyWriter::Dataset(writer) => writer.close(),
        }
    }
    fn len(&self) -> u64 {
        match self {
            AnyWriter::Ragged(writer) => writer.len(),
            AnyWriter::Dataset(writer) => writer.len(),
        }
    }
}

/// What may be there while a step is under way, as indices of the states.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    synced: usize,
    done: usize,
    top: usize,
}

/// A script as it runs, and all that it should lead to.
struct History {
    what: What,
    sim: Sim,
    writer: Option<AnyWriter>,
    states: Vec<Ids>,
    bounds: Vec<Bounds>,
    now: Bounds,
    next: u32,
}

impl History {
    fn new(what: What) -> Self {
        let sim = Sim::new();
        what.create(&sim);
        let writer = Some(what.open(&sim).unwrap());
        let now = Bounds { synced: 0, done: 0, top: 0 };
        History { what, sim, writer, states: vec![Ids::new()], bounds: Vec::new(), now, next: 0 }
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        let base = self.states[self.now.top].clone();
        let mut new = Ids::new();
        match step {
            Step::Append(n) => {
                for _ in 0..*n {
                    new.push(self.next);
                    self.next += 1;
                    self.states.push(base.iter().chain(&new).copied().collect());
                }
            }
            Step::Delete(doomed) => {
                let (mut state, falling) = (base, doomed.iter().rev().copied().collect::<Vec<_>>());
                // Of a single store, each journal is a step; of a dataset, the whole is.
                let moves = if self.what.kind == Kind::Ragged { self.what.moves } else { usize::MAX };
                for part in falling.chunks(moves) {
                    for &i in part {
                        state.swap_remove(i as usize);
                    }
                    self.states.push(state.clone());
                }
            }
            Step::Sync | Step::Close | Step::Drop => {}
        }
        self.now.top = self.states.len() - 1;
        self.bounds.push(self.now);
        let writer = self.writer.as_mut().unwrap();
        match step {
            Step::Append(_) => writer.append(&new)?,
            Step::Delete(doomed) => writer.delete(doomed)?,
            Step::Sync => writer.sync()?,
            Step::Close => {
                self.writer.take().unwrap().close()?;
                self.now.synced = self.now.top;
                assert!(self.sim.calmly(|| self.what.settled(&self.sim)), "files are left over");
                self.writer = Some(self.what.open(&self.sim)?);
            }
            Step::Drop => {
                self.writer = None;
                self.writer = Some(self.what.open(&self.sim)?);
            }
        }
        if !matches!(step, Step::Append(_) | Step::Drop) {
            self.now.synced = self.now.top;
        }
        self.now.done = self.now.top;
        Ok(())
    }

    fn run(what: What, script: &[Step]) -> (History, Vec<Moment>) {
        let mut history = History::new(what);
        for (k, step) in script.iter().enumerate() {
            history.sim.step(k);
            history.step(step).unwrap_or_else(|e| panic!("{step:?}: {e}"));
        }
        history.sim.step(script.len());
        history.bounds.push(history.now);
        let moments = history.sim.moments();
        (history, moments)
    }
}

/// Deletions name their records in rising order.
fn scripts() -> Vec<Vec<Step>> {
    use Step::{Append, Close, Delete, Drop, Sync};
    vec![
        vec![Append(3), Sync, Append(2), Close, Append(9), Append(1), Close, Append(3), Close, Append(2), Close],
        vec![
            Append(18),
            Sync,
            Append(2),
            Delete(vec![0, 5, 11, 19]),
            Append(3),
            Drop,
            Append(2),
            Delete(vec![1]),
            Close,
        ],
        vec![Append(5), Drop, Append(4), Drop, Delete((0..9).collect()), Append(3), Drop, Delete(vec![2]), Append(1)],
    ]
}

/// Opens what a crash left as reader and as writer, and goes on with it. Returns what was there, what is there now, and
/// the moments of this second life.
fn survive(what: What, sim: &Sim, allowed: &[Ids], context: &str) -> (Ids, Ids, Vec<Moment>) {
    let seen = what.read(sim).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert!(allowed.contains(&seen), "{context}: {seen:?} is none of {allowed:?}");
    sim.step(0);
    let mut writer = what.open(sim).unwrap_or_else(|e| panic!("{context}: the reader opens, the writer does not: {e}"));
    assert_eq!(writer.len(), seen.len() as u64, "{context}: reader and writer disagree");
    assert_eq!(what.read(sim).unwrap(), seen, "{context}: opening for writing changed the records");
    let new = [900, 901, 902];
    sim.step(1);
    writer.append(&new).unwrap();
    sim.step(2);
    writer.close().unwrap();
    sim.step(3);
    assert!(what.settled(sim), "{context}: files are left over");
    let after: Ids = seen.iter().chain(&new).copied().collect();
    assert_eq!(what.read(sim).unwrap(), after, "{context}: what was appended after the crash");
    (seen, after, sim.moments())
}

/// Cuts the power at a moment of a second life, which began with any of `base`, of which the first was seen, and
/// leads to `after`.
fn second_crash(
    what: What,
    (base, after): (&[Ids], &Ids),
    (moment, outcome): (&Moment, Outcome),
    tried: &Tried,
    context: &str,
) {
    let done = moment.step == 3;
    let sim = moment.power_cut(outcome);
    if !tried.is_new(&sim, (base, after, done)) {
        return;
    }
    let mut allowed = if done { Vec::new() } else { base.to_vec() };
    let growing = (base[0].len() + 1..=after.len()).map(|n| after[..n].to_vec());
    allowed.extend(growing.filter(|ids| !done || ids == after));
    survive(what, &sim, &allowed, &format!("{context} (step {}, {outcome:?})", moment.step));
}

fn crashes(what: What) {
    let (outcomes, second) = (AtomicU64::new(0), AtomicU64::new(0));
    let (mut points, mut first) = (0, 0);
    let tried_again = Tried::default();
    for (number, script) in scripts().iter().enumerate() {
        let (history, moments) = History::run(what, script);
        points += moments.len();
        let tried = Tried::default();
        moments.par_iter().enumerate().for_each(|(k, moment)| {
            let bounds = history.bounds[moment.step];
            let seeds = (0..OUTCOMES).map(|n| Some(Outcome::Some(n + 1000 * k as u64)));
            // No outcome: a kill.
            let outcomes_here = [None, Some(Outcome::Kept), Some(Outcome::Lost)].into_iter().chain(seeds);
            for (n, outcome) in outcomes_here.enumerate() {
                outcomes.fetch_add(1, Ordering::Relaxed);
                let context = format!("{what:?} {number}, {outcome:?} at {k} ({:?})", script.get(moment.step));
                let (sim, low) = match outcome {
                    None => (moment.killed(), bounds.done),
                    Some(outcome) => (moment.power_cut(outcome), bounds.synced),
                };
                let (new, twice) =
                    (tried.is_new(&sim, (moment.step, outcome.is_none())), (k + 7 * n).is_multiple_of(40));
                if !new && !twice {
                    continue;
                }
                let (seen, after, again) = survive(what, &sim, &history.states[low..=bounds.top], &context);
                if !twice {
                    continue;
                }
                // After a kill the power may still go, with what was never synced.
                let mut base = vec![seen.clone()];
                if outcome.is_none() {
                    base.extend_from_slice(&history.states[bounds.synced..=bounds.top]);
                }
                for (j, moment) in again.iter().enumerate() {
                    second.fetch_add(1, Ordering::Relaxed);
                    let outcome = Outcome::Some(j as u64 + 77 * k as u64);
                    let context = format!("{context}, then again at {j}");
                    second_crash(what, (&base, &after), (moment, outcome), &tried_again, &context);
                }
            }
        });
        first += tried.count();
    }
    let [outcomes, second] = [outcomes, second].map(AtomicU64::into_inner);
    let again = tried_again.count();
    println!(
        "{what:?}: {points} crash points, {outcomes} outcomes ({first} differ), {second} of a second crash ({again} differ)"
    );
}

#[test]
fn ragged_stores_survive() {
    RAGGED.into_iter().for_each(crashes);
}

#[test]
fn datasets_survive() {
    DATASETS.into_iter().for_each(crashes);
}

/// Every storage call fails in turn; the operation says so, and the store opened again holds what it held, also when the
/// power goes while that is done or after it: a sync that failed has left pages in the cache that pass for written.
fn faults(what: What) {
    let (injected, cuts) = (AtomicU64::new(0), AtomicU64::new(0));
    let tried = Tried::default();
    for (number, script) in scripts().iter().enumerate() {
        let count = {
            let mut history = History::new(what);
            let before = history.sim.calls();
            script.iter().for_each(|step| history.step(step).unwrap());
            history.sim.calls() - before
        };
        (0..count).into_par_iter().for_each(|at| {
            for fault in [Fault::Errno(28), Fault::Torn(5), Fault::Short] {
                let mut history = History::new(what);
                history.sim.fail(at, fault);
                for step in script {
                    let context = format!("{what:?} {number}, {fault:?} at call {at} in {step:?}");
                    let done = history.step(step);
                    if history.sim.failed().is_none() {
                        done.unwrap_or_else(|e| panic!("{context}: {e} without a fault"));
                        continue;
                    }
                    injected.fetch_add(1, Ordering::Relaxed);
                    history.sim.heal();
                    if fault == Fault::Short {
                        done.unwrap_or_else(|e| panic!("{context}: {e}"));
                    }
                    history.writer = None;
                    let now = history.now;
                    let (seen, after, moments) =
                        survive(what, &history.sim, &history.states[now.done..=now.top], &context);
                    let base: Vec<Ids> = [&[seen], &history.states[now.synced..=now.top]].concat();
                    // Of the moments some for each fault, all over the faults, and always the last.
                    let last = moments.len() - 1;
                    // A short write of the header, whose 32 bytes go together in truth, is on no disk that is meant here.
                    let some = (0..last).filter(|j| fault != Fault::Short && (j + at as usize).is_multiple_of(23));
                    for j in some.chain([last]) {
                        let context = format!("{context}, then a power cut at {j}");
                        let outcome = if j == last { Outcome::Lost } else { Outcome::Some(at + 31 * j as u64) };
                        cuts.fetch_add(1, Ordering::Relaxed);
                        second_crash(what, (&base, &after), (&moments[j], outcome), &tried, &context);
                    }
                    break;
                }
            }
        });
    }
    let [injected, cuts] = [injected, cuts].map(AtomicU64::into_inner);
    println!("{what:?}: {injected} errors, {cuts} power cuts after them ({} differ)", tried.count());
}

#[test]
fn errors_of_a_ragged_store_are_survived() {
    RAGGED.into_iter().for_each(faults);
}

#[test]
fn errors_of_a_dataset_are_survived() {
    DATASETS.into_iter().for_each(faults);
}

/// A reader opens a dataset while another process's writer repairs it: wholly between any two of its calls, or as far as
/// any of the writer's own, where it is still at it when the reader is done.
#[test]
fn readers_open_during_repair() {
    let (races, halves) = (AtomicU64::new(0), AtomicU64::new(0));
    for what in RAGGED.into_iter().chain(DATASETS) {
        let (history, moments) = History::run(what, &scripts()[1]);
        moments.par_iter().enumerate().filter(|(at, _)| at % 23 == 0).for_each(|(at, moment)| {
            let bounds = history.bounds[moment.step];
            let whole = {
                let sim = moment.killed();
                drop(what.open(&sim));
                sim.calls()
            };
            for call in 0.. {
                let steps = (at as u64 * 31 + call * 7) % whole;
                for steps in [None, Some(steps)] {
                    let sim = moment.killed();
                    let other = sim.clone();
                    sim.before(call, move || match steps {
                        None => drop(what.open(&other)),
                        Some(steps) => other.halted(steps, || drop(what.open(&other))),
                    });
                    let context = format!("{what:?}: at {at} {steps:?} of a writer came before call {call}");
                    let seen = what.read(&sim).unwrap_or_else(|e| panic!("{context}: {e}"));
                    assert!(history.states[bounds.done..=bounds.top].contains(&seen), "{context}: {seen:?}");
                    if sim.hook_waits() {
                        return;
                    }
                    let counter = if steps.is_none() { &races } else { &halves };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    let [races, halves] = [races, halves].map(AtomicU64::into_inner);
    println!("{races} readers opened while a writer repaired, {halves} while one was in the middle of it");
}
