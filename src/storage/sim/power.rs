//! Crashes of the simulated file system: what may be left of what was pending.

use super::{Names, Node, Pages, SECTOR, Sim, Versions};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

/// What is left after a crash.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    /// Everything pending reached the disk.
    Kept,
    /// Nothing pending did.
    Lost,
    /// Some did, as this seed has it.
    Some(u64),
}

/// A moment at which a crash may come.
#[derive(Clone)]
pub(crate) struct Moment {
    pub(super) nodes: Vec<Arc<Node>>,
    /// The step of the test that was under way, as told to [`Sim::step`].
    pub(crate) step: usize,
}

impl Moment {
    /// The files that a power cut at this moment leaves, all of them durable.
    pub(crate) fn power_cut(&self, outcome: Outcome) -> Sim {
        let mut dice = Dice::new(outcome);
        let mut settle = |node: &Node| match node {
            Node::File(file) => {
                let file = &file.versions;
                dice.next_file();
                let len = dice.version(file).len();
                let mut bytes = vec![0; len];
                for at in (0..len).step_by(SECTOR) {
                    let end = len.min(at + SECTOR);
                    let version = dice.version(file);
                    let have = version.get(at..version.len().min(end)).unwrap_or_default();
                    bytes[at..at + have.len()].copy_from_slice(have);
                }
                Node::File(Pages::new(bytes))
            }
            Node::Dir(dir) => {
                dice.next_file();
                let all: BTreeSet<&OsString> = dir.0.iter().flat_map(|names| names.nodes.keys()).collect();
                // What a rename tied together is of one version.
                let mut chosen: BTreeMap<&OsString, usize> = BTreeMap::new();
                for [from, to] in &dir.cached().renames {
                    let version = chosen.get(from).or(chosen.get(to)).copied();
                    let version = version.unwrap_or_else(|| dice.pick(dir.0.len()));
                    chosen.insert(from, version);
                    chosen.insert(to, version);
                }
                let survive = |name: &OsString| {
                    let version = chosen.get(name).copied().unwrap_or_else(|| dice.pick(dir.0.len()));
                    Some((name.clone(), *dir.0[version].nodes.get(name)?))
                };
                let nodes = all.into_iter().filter_map(survive).collect();
                Node::Dir(Versions::new(Names { nodes, renames: Vec::new() }))
            }
        };
        Sim::from_nodes(self.nodes.iter().map(|node| Arc::new(settle(node))).collect())
    }

    /// The files that are left when all processes are killed at this moment, and the power stays.
    pub(crate) fn killed(&self) -> Sim {
        Sim::from_nodes(self.nodes.clone())
    }
}

/// What was tried already. Many outcomes are the same: after a sync all of them, and before it those of neighbouring
/// moments, of which nothing or everything is left. What opens the same files does the same again.
#[derive(Default)]
pub(crate) struct Tried(Mutex<HashSet<u64>>);

impl Tried {
    /// Whether these files were not there before with the same promise. What is pending does not count, which only
    /// another power cut could tell.
    pub(crate) fn is_new(&self, sim: &Sim, promise: impl Hash) -> bool {
        let mut state = DefaultHasher::new();
        promise.hash(&mut state);
        let world = sim.world();
        world.hash_cached(world.names(0).expect("the root").cached(), &mut state);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(state.finish())
    }
    /// How many were new.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Decides which version of a sector, a length or a name survives.
struct Dice {
    outcome: Outcome,
    state: u64,
    /// Chance out of 8 that this file is at its oldest, and at its newest.
    bias: (u64, u64),
}

impl Dice {
    fn new(outcome: Outcome) -> Self {
        let state = if let Outcome::Some(seed) = outcome { seed.wrapping_mul(0xd1b5_4a32_d192_ed03) } else { 0 };
        Dice { outcome, state, bias: (0, 0) }
    }
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// Files are written back at different times: some are old, some new, some in between.
    fn next_file(&mut self) {
        self.bias = [(0, 0), (7, 1), (1, 7), (8, 0), (0, 8), (4, 4)][(self.next() % 6) as usize];
    }
    fn version<'v, T>(&mut self, versions: &'v Versions<T>) -> &'v T {
        &versions.0[self.pick(versions.0.len())]
    }
    fn pick(&mut self, versions: usize) -> usize {
        match self.outcome {
            Outcome::Kept => versions - 1,
            Outcome::Lost => 0,
            Outcome::Some(_) => match self.next() % 8 {
                n if n < self.bias.0 => 0,
                n if n >= 8 - self.bias.1 => versions - 1,
                _ => (self.next() % versions as u64) as usize,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::SUMS_FILE;
    use crate::format::sums::Head;
    use crate::storage::Storage;
    use std::io::IoSlice;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn the_same_files_with_the_same_promise_are_told() {
        let tried = Tried::default();
        let new = |name: &str, bytes: &[u8], promise: u32| {
            let sim = Sim::new();
            let file = sim.create_new(name.as_ref()).unwrap();
            assert_eq!(file.write_vectored_at(&[IoSlice::new(bytes)], 0).unwrap(), bytes.len());
            tried.is_new(&sim, promise)
        };
        assert!(new("a", b"one", 1) && !new("a", b"one", 1));
        assert!(new("a", b"two", 1) && new("b", b"one", 1) && new("a", b"one", 2));
        let head = |doubtful, seconds| Head { doubtful, until: UNIX_EPOCH + Duration::from_secs(seconds) }.encode();
        assert!(new(SUMS_FILE, &head(1, 100), 1) && !new(SUMS_FILE, &head(1, 200), 1));
        assert!(new(SUMS_FILE, &head(2, 100), 1) && new("a", &head(1, 100), 1) && new("a", &head(1, 200), 1));
        let mut torn = head(1, 100);
        torn[20] ^= 1;
        assert!(new(SUMS_FILE, &torn, 1) && new(SUMS_FILE, &torn[..20], 1));
        assert_eq!(tried.count(), 10);
    }
}
