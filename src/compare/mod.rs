//! Comparing what two stores, datasets or trees hold, whatever their codecs and levels.

mod records;
mod tree;

use crate::dataset::{DATA_STREAM, Dataset, PATH_STREAM, Source};
use crate::error::Result;
use crate::pack::Progress;
use records::{Pair, compare_records};

/// One thing that is not the same in both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Where it is.
    pub place: Place,
    /// What differs, as a clause: "byte 17 differs".
    pub what: String,
}

/// Where a difference is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In the whole.
    Whole,
    /// In the stream of that name; a single store's is empty.
    Stream(String),
    /// In that record of a stream.
    Record(String, u64),
    /// At that path of a tree; the root's is empty.
    Path(Vec<u8>),
}

/// What a comparison covered and found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compared {
    /// Records that both have, in streams compared by index.
    pub records: u64,
    /// Files, directories and links that both trees have.
    pub entries: u64,
    /// Bytes of the records and files that both have.
    pub bytes: u64,
    /// Records that differ, in streams compared by index.
    pub different_records: u64,
    /// Paths that differ or that one tree lacks, a directory with all below it once.
    pub different_paths: u64,
    /// Differences in all, those of whole streams included.
    pub differences: u64,
}

/// A comparison under way.
struct Job<'j> {
    progress: &'j Progress,
    found: &'j mut dyn FnMut(&Difference),
    done: Compared,
}

impl Job<'_> {
    fn differ(&mut self, place: Place, what: impl Into<String>) {
        match place {
            Place::Record(..) => self.done.different_records += 1,
            Place::Path(_) => self.done.different_paths += 1,
            Place::Whole | Place::Stream(_) => {}
        }
        self.done.differences += 1;
        (self.found)(&Difference { place, what: what.into() });
    }
}

/// Compares the records of `a` and `b`, on all cores, and calls `found` for each difference. Streams are compared by
/// name, their records by index: type, shape, length and bytes. Two trees are compared path by path: kind, mode, time of
/// modification, number of names, target, length and bytes, in whatever order and pieces their records are; owners and
/// the user's keys of schemas are not compared.
///
/// # Errors
/// [`crate::Error::Record`] for the first record of either that cannot be read; [`crate::Error::Corrupt`] if the index of
/// a tree is damaged; [`crate::Error::Interrupted`].
pub fn compare(a: &Source, b: &Source, progress: &Progress, found: &mut dyn FnMut(&Difference)) -> Result<Compared> {
    let mut job = Job { progress, found, done: Compared::default() };
    match (a, b) {
        (Source::Store(a), Source::Store(b)) => {
            progress.set_total_bytes(a.store().stats()?.bytes);
            compare_records(&mut job, "", Pair { a, b })?;
        }
        (Source::Dataset(a), Source::Dataset(b)) => datasets(&mut job, a, b)?,
        (Source::Store(_), Source::Dataset(_)) => job.differ(Place::Whole, "one is a store, the other a dataset"),
        (Source::Dataset(_), Source::Store(_)) => job.differ(Place::Whole, "one is a dataset, the other a store"),
    }
    Ok(job.done)
}

fn datasets(job: &mut Job<'_>, a: &Dataset, b: &Dataset) -> Result<()> {
    let sizes = a.streams().iter().map(|(_, stream)| Ok(stream.store().stats()?.bytes));
    job.progress.set_total_bytes(sizes.sum::<Result<u64>>()?);
    // The paths of a tree lead to its data: the order of its records is not part of what it holds.
    let by_path = match (a.tree(), b.tree()) {
        (Some(_), Some(_)) => {
            tree::compare_trees(job, a, b)?;
            true
        }
        (None, None) => false,
        (Some(_), None) => {
            job.differ(Place::Whole, "the first is a tree, the second has no paths");
            false
        }
        (None, Some(_)) => {
            job.differ(Place::Whole, "the second is a tree, the first has no paths");
            false
        }
    };
    let covered = |name: &str| by_path && [DATA_STREAM, PATH_STREAM].contains(&name);
    for (name, one) in a.streams().iter().filter(|(name, _)| !covered(name)) {
        match b.stream(name) {
            Some(other) => compare_records(job, name, Pair { a: one, b: other })?,
            None => job.differ(Place::Stream(name.clone()), "only the first has this stream"),
        }
    }
    for (name, _) in b.streams().iter().filter(|(name, _)| !covered(name) && a.stream(name).is_none()) {
        job.differ(Place::Stream(name.clone()), "only the second has this stream");
    }
    Ok(())
}
