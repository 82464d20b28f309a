//! Numbers for what names spell freely, and the batches that they stand for.
//!
//! A spec or a list that is looked up gets a number that nothing else ever gets, so an inode never changes its bytes. The
//! last ones are remembered, in bounded memory. A file of one that was forgotten is `ESTALE`, upon which the kernel looks
//! the name up again.

use super::seen::Seen;
use crate::fs::Failure;
use crate::namespace::{BATCH_STEPS, Batch, MAX_BATCH, Part, parse_index};
use lru::LruCache;
use rustix::io::Errno;
use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zrfs::Result;
use zrfs::cache::Key;
use zrfs::sampler::{Mode, Sampler, Spec};

/// Specs that are remembered; of their steps, as many runs of [`BATCH_STEPS`].
const SPECS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// Lists that are remembered, and sizes of files that are no arithmetic.
const LISTS: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Samplers that are kept, of 128 KiB each at most; others are made anew for each batch.
const SAMPLERS: NonZeroUsize = NonZeroUsize::new(16).unwrap();
/// Batches that were read to the end and are kept in the cache.
const KEPT: usize = 2;
/// Batches of which it is known what was read, and parts of each.
const MAX_READING: usize = 64;
const MAX_PARTS: usize = 32;
/// Batches of mode `iid`, which replays what was drawn before, end with this draw: about a second's work.
pub const MAX_DRAWS: u128 = 1 << 28;

/// A sampler over the records that there were when its spec was looked up.
#[derive(Debug)]
pub struct Pinned {
    /// Its number.
    pub id: u64,
    pub spec: Spec,
    pub length: u64,
    /// The steps that were read.
    pub seen: Mutex<Seen>,
}

impl Pinned {
    /// Whether the batch of a step can be drawn in bounded time.
    pub fn reaches(&self, step: u64) -> bool {
        self.spec.mode != Mode::Iid || (u128::from(step) + 1) * u128::from(self.spec.batch) <= MAX_DRAWS
    }
}

/// Records at given indices.
#[derive(Debug, PartialEq, Eq)]
pub struct List {
    /// The first index of each run, and how many it has.
    runs: Vec<(u64, u64)>,
    len: u64,
}

impl List {
    /// Indices and ranges with both ends, as `5,17,0-9`; `None` for what is no such list.
    pub fn parse(text: &str) -> Option<List> {
        let mut list = List { runs: Vec::new(), len: 0 };
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (parse_index(first.as_bytes())?, parse_index(last.as_bytes())?);
            let count = last.checked_sub(first)?.checked_add(1)?;
            list.runs.push((first, count));
            list.len = list.len.checked_add(count)?;
        }
        Some(list)
    }

    /// The highest index.
    pub fn highest(&self) -> Option<u64> {
        self.runs.iter().map(|(first, count)| first + (count - 1)).max()
    }

    /// The indices from the `from`-th on, as many as `out` has room for.
    fn part(&self, mut from: u64, mut out: &mut [u64]) {
        for &(first, count) in &self.runs {
            let skip = from.min(count);
            from -= skip;
            let n = usize::try_from(count - skip).unwrap_or(usize::MAX).min(out.len());
            let (now, rest) = std::mem::take(&mut out).split_at_mut(n);
            now.iter_mut().zip(first + skip..).for_each(|(slot, index)| *slot = index);
            out = rest;
        }
    }
}

/// What a batch is made of.
#[derive(Debug, Clone)]
pub enum Order {
    Step(Arc<Pinned>, u64),
    List(Arc<List>),
}

/// Values that have a name and a number.
#[derive(Debug)]
struct Numbered<K: Hash + Eq, V> {
    ids: HashMap<K, u64>,
    values: LruCache<u64, (K, V)>,
}

impl<K: Hash + Eq + Clone, V: Clone> Numbered<K, V> {
    fn new(most: NonZeroUsize) -> Self {
        Numbered { ids: HashMap::new(), values: LruCache::new(most) }
    }

    fn find<Q: Hash + Eq + ?Sized>(&mut self, name: &Q) -> Option<(u64, V)>
    where
        K: Borrow<Q>,
    {
        let id = *self.ids.get(name)?;
        Some((id, self.get(id)?))
    }

    fn get(&mut self, id: u64) -> Option<V> {
        self.values.get(&id).map(|(_, value)| value.clone())
    }

    fn insert(&mut self, id: u64, name: K, value: V) {
        self.ids.insert(name.clone(), id);
        if let Some((_, (forgotten, _))) = self.values.push(id, (name, value)) {
            self.ids.remove(&forgotten);
        }
    }
}

#[derive(Debug)]
struct Names {
    next: u64,
    specs: Numbered<Box<str>, Arc<Pinned>>,
    /// The runs of steps of a spec, by its number and the run's place.
    runs: Numbered<(u64, u64), (Arc<Pinned>, u64)>,
    lists: Numbered<Box<str>, Arc<List>>,
}

impl Names {
    fn number(&mut self) -> Result<u64, Errno> {
        let id = self.next;
        if id >= MAX_BATCH {
            return Err(Errno::OVERFLOW);
        }
        self.next += 1;
        Ok(id)
    }
}

/// Batches in the cache whose bytes are being asked for.
#[derive(Debug, Default)]
struct Reading {
    /// The parts that were asked for, which do not touch each other.
    parts: VecDeque<(Key, Vec<(u64, u64)>)>,
    /// Those of which all was: what the kernel has now nobody else asks for, but for who reads past its page cache.
    read: VecDeque<Key>,
}

/// All that is known of batches.
#[derive(Debug)]
pub struct Table {
    names: Mutex<Names>,
    samplers: Mutex<LruCache<u64, Arc<Mutex<Sampler>>>>,
    /// Items of a file of values, or the dimensions of a file of shapes.
    sizes: Mutex<LruCache<(u16, Batch, Part), u64>>,
    reading: Mutex<Reading>,
}

impl Default for Table {
    fn default() -> Self {
        let (specs, runs, lists) = (Numbered::new(SPECS), Numbered::new(SPECS), Numbered::new(LISTS));
        Table {
            names: Mutex::new(Names { next: 0, specs, runs, lists }),
            samplers: Mutex::new(LruCache::new(SAMPLERS)),
            sizes: Mutex::new(LruCache::new(LISTS)),
            reading: Mutex::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    /// The number of the spec that is spelled so; `make` finds out what it is, and over how many records.
    pub fn spec(&self, text: &str, make: impl FnOnce() -> Result<(Spec, u64), Failure>) -> Result<u64, Failure> {
        if let Some((id, _)) = lock(&self.names).specs.find(text) {
            return Ok(id);
        }
        let (spec, length) = make()?;
        let mut names = lock(&self.names);
        // Another caller may have been here meanwhile.
        if let Some((id, _)) = names.specs.find(text) {
            return Ok(id);
        }
        let id = names.number()?;
        let pinned = Arc::new(Pinned { id, spec, length, seen: Mutex::default() });
        names.specs.insert(id, text.into(), pinned);
        Ok(id)
    }

    /// The spec of a number.
    pub fn pinned(&self, id: u64) -> Result<Arc<Pinned>, Errno> {
        lock(&self.names).specs.get(id).ok_or(Errno::STALE)
    }

    /// The batch of a step.
    pub fn step(&self, pinned: &Arc<Pinned>, step: u64) -> Result<Batch, Errno> {
        let run = step / BATCH_STEPS;
        let mut names = lock(&self.names);
        let id = match names.runs.find(&(pinned.id, run)) {
            Some((id, _)) => id,
            None => {
                let id = names.number()?;
                names.runs.insert(id, (pinned.id, run), (pinned.clone(), run));
                id
            }
        };
        Ok(Batch { id, step: (step % BATCH_STEPS) as u16 })
    }

    /// The batch of the list that is spelled so; `make` parses it.
    pub fn list(&self, text: &str, make: impl FnOnce() -> Result<List, Failure>) -> Result<Batch, Failure> {
        if let Some((id, _)) = lock(&self.names).lists.find(text) {
            return Ok(Batch { id, step: 0 });
        }
        let list = Arc::new(make()?);
        let mut names = lock(&self.names);
        let id = match names.lists.find(text) {
            Some((id, _)) => id,
            None => {
                let id = names.number()?;
                names.lists.insert(id, text.into(), list);
                id
            }
        };
        Ok(Batch { id, step: 0 })
    }

    /// What a batch is made of.
    pub fn order(&self, batch: Batch) -> Result<Order, Errno> {
        let mut names = lock(&self.names);
        if let Some((pinned, run)) = names.runs.get(batch.id) {
            let step = run * BATCH_STEPS + u64::from(batch.step);
            return if pinned.reaches(step) { Ok(Order::Step(pinned, step)) } else { Err(Errno::NOENT) };
        }
        match names.lists.get(batch.id) {
            Some(list) if batch.step == 0 => Ok(Order::List(list)),
            Some(_) => Err(Errno::NOENT),
            None => Err(Errno::STALE),
        }
    }

    /// The sampler of a spec, from anywhere in its stream.
    fn sampler(&self, pinned: &Pinned) -> Result<Arc<Mutex<Sampler>>> {
        let mut samplers = lock(&self.samplers);
        let make = || Sampler::new(pinned.spec.clone(), pinned.length).map(|s| Arc::new(Mutex::new(s)));
        samplers.try_get_or_insert(pinned.id, make).cloned()
    }

    /// The number of records in a batch.
    pub fn count(&self, order: &Order) -> Result<u64> {
        match order {
            Order::Step(pinned, step) => Ok(lock(&*self.sampler(pinned)?).batch_len(*step)),
            Order::List(list) => Ok(list.len),
        }
    }

    /// The indices from the `from`-th of a batch on, as many as `out` has room for; the batch must have them.
    pub fn indices(&self, order: &Order, from: u64, out: &mut [u64]) -> Result<()> {
        match order {
            Order::Step(pinned, step) => lock(&*self.sampler(pinned)?).part_at(*step, from, out),
            Order::List(list) => {
                list.part(from, out);
                Ok(())
            }
        }
    }

    /// How many steps a listing shows: one cycle, or where there are no cycles as many as have each record once.
    pub fn shown(&self, pinned: &Pinned) -> Result<u64> {
        let whole = lock(&*self.sampler(pinned)?).steps_per_cycle();
        let steps = whole.unwrap_or_else(|| pinned.length.div_ceil(pinned.spec.batch));
        let most = if pinned.reaches(steps.saturating_sub(1)) {
            u64::MAX
        } else {
            u64::try_from(MAX_DRAWS / u128::from(pinned.spec.batch)).unwrap_or(u64::MAX)
        };
        Ok(steps.min(most))
    }

    /// Takes note that bytes of a batch in the cache were asked for; of the batches of which all were the last ones stay,
    /// and one that need not is returned. Memory that was used lately is cheaper than what was never touched.
    pub fn read(&self, key: Key, start: u64, end: u64, size: u64) -> Option<Key> {
        let mut reading = lock(&self.reading);
        let k = reading.parts.iter().position(|(k, _)| *k == key);
        let (_, mut parts) = k.and_then(|k| reading.parts.remove(k)).unwrap_or_else(|| (key, Vec::new()));
        let (mut start, mut end) = (start, end);
        parts.retain(|&(a, b)| {
            let apart = b < start || a > end;
            if !apart {
                (start, end) = (start.min(a), end.max(b));
            }
            apart
        });
        if (start, end) == (0, size) {
            if !reading.read.contains(&key) {
                reading.read.push_back(key);
            }
            return if reading.read.len() > KEPT { reading.read.pop_front() } else { None };
        }
        parts.push((start, end));
        // Who reads here and there is left to the cache.
        if parts.len() <= MAX_PARTS {
            reading.parts.push_back((key, parts));
        }
        if reading.parts.len() > MAX_READING {
            reading.parts.pop_front();
        }
        None
    }

    /// A size that was found before, or is found now.
    pub fn size(&self, key: (u16, Batch, Part), find: impl FnOnce() -> Result<u64>) -> Result<u64> {
        if let Some(&size) = lock(&self.sizes).get(&key) {
            return Ok(size);
        }
        let size = find()?;
        lock(&self.sizes).put(key, size);
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        let list = List::parse("5,17,0-9,5,3-3").unwrap();
        assert_eq!((list.len, list.highest()), (14, Some(17)));
        let want = [5, 17, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 5, 3];
        for from in 0..=14 {
            for n in 0..=14 - from {
                let mut out = vec![99; n];
                list.part(from as u64, &mut out);
                assert_eq!(out, want[from..from + n]);
            }
        }
        for bad in ["", ",", "5,", "007", "-1", "9-5", "1-2-3", "+1", "1:5", "5 ", "x", "0-18446744073709551615"] {
            assert_eq!(List::parse(bad), None, "{bad:?}");
        }
        assert_eq!(List::parse("1-18446744073709551615").unwrap().len, u64::MAX);
        assert_eq!(List::parse("1-18446744073709551615,3"), None, "more than 2^64");
    }

    #[test]
    fn what_was_read_whole_need_not_be_kept() {
        let table = Table::default();
        // In any order, overlapping, and again.
        for (start, end) in [(0, 10), (30, 40), (8, 20), (35, 40), (0, 10)] {
            assert_eq!(table.read((1, 0), start, end, 40), None);
        }
        assert_eq!(table.read((1, 0), 20, 30, 40), None, "one that was read is kept");
        assert_eq!(table.read((1, 1), 0, 40, 40), None);
        assert_eq!(table.read((1, 1), 0, 40, 40), None);
        assert_eq!(table.read((1, 2), 0, 40, 40), Some((1, 0)));
        for k in 0..10_000u64 {
            table.read((2, k % 100), k * 7919 % 1000 * 2, k * 7919 % 1000 * 2 + 1, 1 << 30);
        }
        let reading = table.reading.lock().unwrap();
        assert!(reading.parts.len() <= MAX_READING && reading.parts.iter().all(|(_, parts)| parts.len() <= MAX_PARTS));
    }

    #[test]
    fn numbers_are_never_used_again() {
        let table = Table::default();
        let list = |text: &str| table.list(text, || List::parse(text).ok_or(Errno::NOENT.into())).unwrap();
        let first = list("7");
        assert_eq!(list("7"), first);
        for k in 0..LISTS.get() as u64 {
            assert!(list(&format!("{k},1")).id > first.id);
        }
        assert!(matches!(table.order(first), Err(Errno::STALE)));
        assert!(list("7").id > LISTS.get() as u64, "another number");
        assert!(table.names.lock().unwrap().lists.ids.len() <= LISTS.get());

        let spec = |seed: u64| {
            let spec: Spec = format!("cyclic,batch=4,seed={seed}").parse().unwrap();
            table.spec(&spec.to_string(), || Ok((spec.clone(), 100))).unwrap()
        };
        let (one, pinned) = (spec(1), table.pinned(spec(1)).unwrap());
        let batches = [0, 1, BATCH_STEPS - 1, BATCH_STEPS, u64::MAX].map(|step| table.step(&pinned, step).unwrap());
        assert!(batches[0].id == batches[2].id && batches[2].id != batches[3].id);
        assert!(matches!(table.order(batches[4]), Ok(Order::Step(_, u64::MAX))));
        (2..2 + SPECS.get() as u64).for_each(|seed| assert_ne!(spec(seed), one));
        assert!(matches!(table.pinned(one), Err(Errno::STALE)));
        assert!(table.order(batches[1]).is_ok(), "its files go on being read");
        assert_ne!(spec(1), one);
        table.names.lock().unwrap().next = MAX_BATCH;
        assert!(matches!(table.list("1,2,3", || Ok(List::parse("1").unwrap())), Err(Failure::Errno(Errno::OVERFLOW))));
    }
}
