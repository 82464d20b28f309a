//! Scripts of operations for the crash and fault tests, and what a store may hold at each moment of one.

use super::compact::Sizes;
use super::*;
use crate::pack::Progress;
use crate::storage::sim::{Moment, Sim};
use std::sync::OnceLock;

/// What a store holds.
pub(super) type Records = Vec<Arc<Vec<u8>>>;

/// One operation on the store `s`.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// The first of every script.
    Create,
    /// Appends records of these lengths, in one call.
    Append(Vec<usize>),
    Sync,
    Delete(Vec<u64>),
    Compact,
    /// Notes the length that the next rollback goes back to.
    Mark,
    Rollback,
    /// Ends the writer without a sync, and opens the store again.
    Reopen,
}

impl Step {
    /// Whether the step needs the store to itself.
    pub(super) fn alone(&self) -> bool {
        matches!(self, Step::Delete(_) | Step::Compact | Step::Rollback)
    }
}

/// A compaction of many epochs, some of which begin with moving records out of the way.
pub(super) const SMALL: Sizes = Sizes { epoch: 300, select: 7, copy: 130 };

/// Codec and layout.
#[derive(Clone)]
pub(super) struct Setup {
    pub(super) codec: Codec,
    pub(super) layout: Layout,
    /// Whether the writer that comes after a crash compacts.
    pub(super) compacts: bool,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} entries, {} bytes", self.codec, self.layout.segment_entries, self.layout.chunk_bytes)
    }
}

/// The codec with tables and chunks that roll over soon: a sector of table and a few of data, or everything at once.
pub(super) fn setups(codec: Codec) -> Vec<Setup> {
    let layouts = [(40, 2600), (3, 900)];
    let layouts = layouts.map(|(segment_entries, chunk_bytes)| Layout { segment_entries, chunk_bytes });
    layouts.into_iter().map(|layout| Setup { codec, layout, compacts: false }).collect()
}

impl Setup {
    pub(super) fn writer(&self, sim: &Sim) -> WriterOptions {
        static DICT: OnceLock<Vec<u8>> = OnceLock::new();
        let options = WriterOptions::new(self.codec).layout(self.layout).storage(Arc::new(sim.clone()));
        match self.codec {
            Codec::Raw | Codec::Zstd => options,
            Codec::ZstdDict => {
                let dict = DICT.get_or_init(|| {
                    let samples: Vec<Vec<u8>> =
                        (0..300).map(|i| format!("sample {i} of {}", i * 7919).into()).collect();
                    let sizes: Vec<usize> = samples.iter().map(Vec::len).collect();
                    crate::codec::train_dict(&samples.concat(), &sizes, 1024).unwrap()
                });
                options.level(Some(1)).dict(dict.clone())
            }
        }
    }

    pub(super) fn reader(&self, sim: &Sim) -> Result<Store> {
        OpenOptions::new().verify_on_read(true).layout(self.layout).storage(Arc::new(sim.clone())).open("s")
    }
}

/// All records of the store.
pub(super) fn read_all(sim: &Sim, setup: &Setup) -> Result<Records> {
    let store = setup.reader(sim)?;
    let seen: Records = (0..store.len()).map(|i| store.read(i).map(Arc::new)).collect::<Result<_>>()?;
    assert_eq!(store.refresh()?, seen.len() as u64, "a refresh changed the length, and nobody wrote");
    Ok(seen)
}

/// A record that does not compress, so that records of one length have frames of one length: old bytes at the place of
/// new ones would look whole.
pub(super) fn record(id: usize, len: usize) -> Vec<u8> {
    let mut state = id as u64;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    next();
    (0..len).map(|_| next()).collect()
}

/// What may be in the store while a step is under way, as indices of [`History::states`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// The state that survives a power cut, once the store itself does.
    pub(super) synced: Option<usize>,
    /// The state that survives the process.
    pub(super) done: Option<usize>,
    /// The last state that the step leads to.
    pub(super) top: usize,
}

/// A script as it runs, and all that it should lead to.
pub(super) struct History {
    setup: Setup,
    sim: Sim,
    pub(super) states: Vec<Records>,
    /// By step; one more at the end.
    pub(super) bounds: Vec<Bounds>,
    now: Bounds,
    pub(super) writer: Option<Writer>,
    mark: Option<(Mark, Records)>,
    ids: usize,
}

impl History {
    pub(super) fn new(setup: &Setup, sim: &Sim) -> Self {
        History {
            setup: setup.clone(),
            sim: sim.clone(),
            states: vec![Vec::new()],
            bounds: Vec::new(),
            now: Bounds { synced: None, done: None, top: 0 },
            writer: None,
            mark: None,
            ids: 0,
        }
    }

    /// Runs a whole script on a new file system; returns the moments of it as well.
    pub(super) fn run(setup: &Setup, script: &[Step]) -> (History, Vec<Moment>) {
        let sim = Sim::new();
        let mut history = History::new(setup, &sim);
        for (k, step) in script.iter().enumerate() {
            sim.step(k);
            history.step(step).unwrap_or_else(|e| panic!("{step:?}: {e}"));
        }
        sim.step(script.len());
        history.bounds.push(history.now);
        let moments = sim.moments();
        history.writer = None;
        (history, moments)
    }

    pub(super) fn now(&self) -> Bounds {
        self.now
    }

    /// Takes what a reopened store was found to hold for the present state.
    pub(super) fn resume(&mut self, seen: Records, writer: Writer) {
        self.states.push(seen);
        self.now.top = self.states.len() - 1;
        self.now.done = Some(self.now.top);
        self.writer = Some(writer);
        self.mark = None;
    }

    fn writer(&mut self) -> &mut Writer {
        self.writer.as_mut().expect("the script has created the store")
    }

    /// Runs one step. If it fails, the store may hold anything from `now().done` to `now().top`.
    pub(super) fn step(&mut self, step: &Step) -> Result<()> {
        let base = self.states[self.now.top].clone();
        let mut batch = Vec::new();
        match step {
            Step::Append(lengths) => {
                for (k, &len) in lengths.iter().enumerate() {
                    batch.push(Arc::new(record(self.ids + k, len)));
                    self.states.push(base.iter().chain(&batch).cloned().collect());
                }
                self.ids += lengths.len();
            }
            Step::Delete(doomed) => {
                let mut doomed = doomed.clone();
                doomed.sort_unstable();
                doomed.dedup();
                let mut state = base;
                doomed.iter().rev().for_each(|&i| drop(state.swap_remove(i as usize)));
                self.states.push(state);
            }
            Step::Rollback => self.states.extend(self.mark.clone().map(|(_, state)| state)),
            Step::Mark => self.mark = Some((self.writer().mark(), base)),
            Step::Create | Step::Sync | Step::Compact | Step::Reopen => {}
        }
        self.now.top = self.states.len() - 1;
        self.bounds.push(self.now);
        let top = Some(self.now.top);
        match step {
            Step::Create => self.writer = Some(self.setup.writer(&self.sim).create("s")?),
            Step::Append(_) => {
                let records: Vec<&[u8]> = batch.iter().map(|r| r.as_slice()).collect();
                self.writer().append(&records)?;
            }
            Step::Sync => {
                self.writer().sync()?;
                self.now.synced = top;
            }
            Step::Delete(doomed) => {
                self.writer().delete(doomed)?;
                self.now.synced = top;
            }
            Step::Compact => {
                self.writer().compact_with(SMALL, &Progress::default())?;
                self.now.synced = top;
            }
            Step::Mark => {}
            Step::Rollback => {
                let (mark, _) = self.mark.clone().expect("the script has a mark before");
                self.writer().rollback(mark)?;
                self.now.synced = top;
            }
            Step::Reopen => {
                self.writer = None;
                self.writer = Some(self.setup.writer(&self.sim).open("s")?);
            }
        }
        self.now.done = top;
        Ok(())
    }
}

/// The scripts. Lengths come again and again, so that lost and new records are exchangeable at sight.
pub(super) fn scripts() -> Vec<(&'static str, Vec<Step>)> {
    use Step::{Append, Compact, Create, Delete, Mark, Reopen, Rollback, Sync};
    let n = |count: usize, len: usize| Append(vec![len; count]);
    let mixed = || Append(vec![1, 600, 30, 90, 30, 255, 700, 4]);
    let mut scripts = vec![
        ("append", vec![Create, n(3, 60), mixed(), Sync, n(1, 700), n(12, 50), Reopen, mixed(), Sync, n(2, 60)]),
        (
            "delete",
            vec![
                Create,
                n(12, 60),
                Sync,
                Delete(vec![0, 5, 11]),
                n(4, 60),
                Delete(vec![1]),
                n(3, 60),
                Sync,
                Delete(vec![0, 2, 4, 6, 8, 10]),
                n(6, 60),
                Reopen,
                Delete((0..12).collect()),
                n(2, 60),
                Sync,
            ],
        ),
        (
            "rollback",
            vec![
                Create,
                n(4, 60),
                Sync,
                Mark,
                n(6, 60),
                Rollback,
                n(6, 60),
                Sync,
                n(2, 60),
                Mark,
                mixed(),
                Sync,
                n(2, 60),
                Rollback,
                mixed(),
                Sync,
                Reopen,
                n(3, 60),
            ],
        ),
        (
            "compact",
            vec![
                Create,
                Append(vec![20, 150, 150, 150, 60, 60, 700, 60, 60, 60, 60, 60]),
                Delete(vec![0]),
                Compact,
                n(6, 60),
                Delete(vec![1, 2, 3, 9, 14]),
                n(2, 60),
                Compact,
                mixed(),
                Reopen,
                Compact,
                Delete((0..18).collect()),
                Compact,
                n(3, 60),
            ],
        ),
        ("reopen", vec![Create, Reopen, n(5, 60), Reopen, n(5, 60), Reopen, Delete(vec![2, 3]), Reopen, mixed()]),
    ];
    scripts.extend((0..RANDOM).map(|seed| ("random", random_script(seed))));
    scripts
}

/// So many random scripts come after the written ones.
const RANDOM: usize = 3;

fn random_script(seed: usize) -> Vec<Step> {
    let dice = record(seed + 77, 200);
    let mut dice = dice.chunks(2).map(|d| (usize::from(d[0]), usize::from(d[1])));
    let (mut script, mut len, mut marked) = (vec![Step::Create], 0, None);
    for (what, how) in dice.by_ref().take(18) {
        script.push(match what % 8 {
            0..=2 => {
                len += 1 + how % 7;
                Step::Append(vec![[60, 60, 61, 500][how % 4]; 1 + how % 7])
            }
            3 => Step::Sync,
            4 | 5 if len > 0 => {
                let doomed: Vec<u64> = (0..len as u64).filter(|i| (i * 37 + how as u64).is_multiple_of(3)).collect();
                len -= doomed.len();
                marked = None;
                Step::Delete(doomed)
            }
            6 if marked.is_some() => {
                len = marked.take().unwrap_or(0);
                Step::Rollback
            }
            6 => {
                marked = Some(len);
                Step::Mark
            }
            7 if how % 2 == 0 => {
                marked = None;
                Step::Compact
            }
            _ => Step::Reopen,
        });
        if matches!(script.last(), Some(Step::Reopen)) {
            marked = None;
        }
    }
    script
}
