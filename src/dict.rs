//! Dictionaries of `zstd_dict` stores: their sizes, the samples they are trained on, and how well they do.

use crate::codec::{DICT_MAGIC, Encoder, default_level, train_dict};
use crate::error::{Error, Result};
use crate::format::{Codec, META_FILE};
use crate::in_order::InOrder;
use crate::pack::Progress;
use crate::pool::pool;
use crate::staging::{Existing, Staging};
use crate::store::Store;
use std::fmt;
use std::io::{Read, Write};
use std::path::Path;
use std::str::FromStr;

/// No record gives more than this to a sample: a dictionary serves the beginnings of small records.
pub(crate) const RECORD_BYTES: usize = 128 << 10;
/// One record of so many is not trained on where the dictionary is to be tested.
const HELD_OUT: usize = 9;
/// So many records tell how long they are on average.
const PROBES: u64 = 256;

/// The sizes of dictionaries that there are. A larger one compresses better and costs more cache at every read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DictTier {
    /// 32 KiB, trained on 4 MiB of records.
    Fast,
    /// 128 KiB, trained on 16 MiB.
    #[default]
    Balanced,
    /// 1 MiB, trained on 64 MiB.
    Max,
}

impl DictTier {
    /// All of them, from the smallest on.
    pub const ALL: [DictTier; 3] = [DictTier::Fast, DictTier::Balanced, DictTier::Max];

    /// The most bytes that the dictionary has.
    pub fn dict_bytes(self) -> usize {
        match self {
            DictTier::Fast => 32 << 10,
            DictTier::Balanced => 128 << 10,
            DictTier::Max => 1 << 20,
        }
    }

    /// The most bytes of records that it is trained on.
    pub fn sample_bytes(self) -> usize {
        match self {
            DictTier::Fast => 4 << 20,
            DictTier::Balanced => 16 << 20,
            DictTier::Max => 64 << 20,
        }
    }

    /// Its name on the command line, which is loaderx's.
    pub fn name(self) -> &'static str {
        match self {
            DictTier::Fast => "fast",
            DictTier::Balanced => "balanced",
            DictTier::Max => "max",
        }
    }
}

impl fmt::Display for DictTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DictTier {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let found = DictTier::ALL.into_iter().find(|tier| tier.name() == s);
        found.ok_or_else(|| format!("no tier is called {s:?}; there are fast, balanced and max"))
    }
}

/// Records to train on: every k-th of those that were pushed, where k doubles whenever there are too many bytes. Memory
/// is bounded whatever is pushed, and the same records always give the same sample.
#[derive(Debug, Clone)]
pub struct Sample {
    limit: usize,
    stride: u64,
    pushed: u64,
    bytes: Vec<u8>,
    sizes: Vec<usize>,
}

impl Sample {
    /// An empty sample that keeps at most `limit` bytes, of which a record takes 128 KiB at most.
    pub fn new(limit: usize) -> Self {
        Sample { limit: limit.max(RECORD_BYTES), stride: 1, pushed: 0, bytes: Vec::new(), sizes: Vec::new() }
    }

    /// The bytes to keep of records of which some are to be held out, so that a whole sample of `tier` is left to train on.
    pub fn tested_bytes(tier: DictTier) -> usize {
        tier.sample_bytes() / (HELD_OUT - 1) * HELD_OUT
    }

    /// Takes the next record, or passes over it.
    pub fn push(&mut self, record: &[u8]) {
        let wanted = self.pushed.is_multiple_of(self.stride) && !record.is_empty();
        self.pushed += 1;
        if !wanted {
            return;
        }
        let start = record.get(..RECORD_BYTES).unwrap_or(record);
        self.bytes.extend(start);
        self.sizes.push(start.len());
        while self.bytes.len() > self.limit && self.sizes.len() > 1 {
            self.thin(|k| k.is_multiple_of(2));
            self.stride *= 2;
        }
    }

    /// Adds what another sample has.
    pub fn append(&mut self, other: &Sample) {
        self.bytes.extend(&other.bytes);
        self.sizes.extend(&other.sizes);
    }

    /// How many records it has.
    pub fn records(&self) -> u64 {
        self.sizes.len() as u64
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether it has as much as it may have.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= self.limit
    }

    /// Every how many-th of `total` records of `record_bytes` makes a sample of `limit` bytes.
    pub(crate) fn stride(limit: usize, record_bytes: u64, total: u64) -> u64 {
        let fits = (limit as u64 / record_bytes.clamp(1, RECORD_BYTES as u64)).max(1);
        total.div_ceil(fits).max(1)
    }

    /// Keeps the records whose number `keep` says yes to; returns the others.
    fn thin(&mut self, keep: impl Fn(usize) -> bool) -> Sample {
        let mut dropped = Sample::new(self.limit);
        let (mut from, mut to, mut kept) = (0, 0, 0);
        for k in 0..self.sizes.len() {
            let n = self.sizes[k];
            if keep(k) {
                self.bytes.copy_within(from..from + n, to);
                self.sizes[kept] = n;
                (to, kept) = (to + n, kept + 1);
            } else {
                dropped.bytes.extend(&self.bytes[from..from + n]);
                dropped.sizes.push(n);
            }
            from += n;
        }
        self.bytes.truncate(to);
        self.sizes.truncate(kept);
        dropped
    }

    fn slices(&self) -> Vec<&[u8]> {
        let mut rest = &self.bytes[..];
        let cut = |&n: &usize| {
            let (record, tail) = rest.split_at(n);
            rest = tail;
            record
        };
        self.sizes.iter().map(cut).collect()
    }

    /// Trains a dictionary of `tier`; `source` says in errors where the records come from.
    ///
    /// # Errors
    /// [`Error::Invalid`] with zstd's reason, mostly that there are too few records to learn from.
    pub fn train(&self, tier: DictTier, source: &dyn fmt::Display) -> Result<Vec<u8>> {
        train_dict(&self.bytes, &self.sizes, tier.dict_bytes()).map_err(|reason| {
            let (n, bytes) = (self.records(), self.bytes());
            Error::invalid(format!(
                "no dictionary can be trained on {n} records ({bytes} bytes) of {source}: {reason}; it takes some \
                 hundred records that resemble each other, so give more of them, or use --codec zstd"
            ))
        })
    }

    /// Trains a dictionary on all but every ninth record, and compresses those with it and without. Made for a sample of
    /// [`tested_bytes`](Sample::tested_bytes).
    ///
    /// # Errors
    /// As [`train`](Sample::train); [`Error::Interrupted`].
    pub fn train_and_test(mut self, tier: DictTier, source: &dyn fmt::Display, progress: &Progress) -> Result<Trained> {
        let held = self.thin(|k| k % HELD_OUT != HELD_OUT - 1);
        let dict = self.train(tier, source)?;
        let (records, bytes) = (self.records(), self.bytes());
        drop(self);
        progress.check()?;
        let level = default_level(Codec::ZstdDict);
        let size = |encoder: Encoder| -> Result<u64> {
            let compress = |share: &&[&[u8]]| -> Result<u64> {
                progress.check()?;
                let mut out = Vec::new();
                encoder.encode(share, &mut out, |_| {}).map_err(Error::invalid)?;
                Ok(out.len() as u64)
            };
            let slices = held.slices();
            pool().map(&slices.chunks(64).collect::<Vec<_>>(), compress).into_iter().sum()
        };
        let tested = Tested {
            records: held.records(),
            bytes: held.bytes(),
            with: size(Encoder::new(Codec::ZstdDict, level, Some(&dict)).map_err(Error::invalid)?)?,
            without: size(Encoder::new(Codec::Zstd, level, None).map_err(Error::invalid)?)?,
        };
        Ok(Trained { dict, records, bytes, tested })
    }
}

/// A dictionary and what is known of it.
#[derive(Debug, Clone)]
pub struct Trained {
    /// The dictionary.
    pub dict: Vec<u8>,
    /// Records that it was trained on.
    pub records: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// How it does on others of the same source.
    pub tested: Tested,
}

/// How well a dictionary compresses records that it was not trained on, at the level that stores are written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tested {
    /// Records compressed; 0 where there were too few.
    pub records: u64,
    /// Bytes that they have.
    pub bytes: u64,
    /// Bytes that they take with the dictionary.
    pub with: u64,
    /// Bytes that they take at the same level without one.
    pub without: u64,
}

/// Trains a dictionary on `records`, a slice or an iterator of any length: a strided sample of them is kept.
///
/// ```
/// use zrfs::dict::{DictTier, train};
/// let records = (0..3000u32).map(|i| format!("{{\"id\": {i}, \"name\": \"user-{i}\", \"score\": {}}}", i * 7 % 1000));
/// let dict = train(records, DictTier::Fast)?;
/// assert!(dict.len() <= DictTier::Fast.dict_bytes());
/// # Ok::<(), zrfs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Invalid`] if there are too few records, or too small ones.
pub fn train<R: AsRef<[u8]>>(records: impl IntoIterator<Item = R>, tier: DictTier) -> Result<Vec<u8>> {
    let mut sample = Sample::new(tier.sample_bytes());
    for record in records {
        sample.push(record.as_ref());
    }
    sample.train(tier, &"what was given")
}

/// Trains a dictionary on a strided subset of the records of `store`.
///
/// # Errors
/// As [`train`]; as [`Store::gather`] if a record cannot be read; [`Error::Interrupted`].
pub fn train_on(store: &Store, tier: DictTier, progress: &Progress) -> Result<Vec<u8>> {
    sample_store(store, tier.sample_bytes(), progress)?.train(tier, &store.path().display())
}

/// A strided subset of the records of `store`, of about `limit` bytes.
///
/// # Errors
/// As [`Store::gather`] if a record cannot be read; [`Error::Interrupted`].
pub fn sample_store(store: &Store, limit: usize, progress: &Progress) -> Result<Sample> {
    let len = store.len();
    let probes: Vec<u64> = (0..len).step_by(len.div_ceil(PROBES).max(1) as usize).collect();
    let taken: u64 = store.lengths(&probes)?.iter().map(|&n| u64::from(n).min(RECORD_BYTES as u64)).sum();
    let stride = Sample::stride(limit, taken / (probes.len() as u64).max(1), len);
    let mut sample = Sample::new(limit);
    let mut records = InOrder::new(store, (0..len).step_by(stride as usize));
    while let Some((_, record)) = records.next()? {
        progress.check()?;
        sample.push(record);
    }
    Ok(sample)
}

/// Writes a dictionary to the new file `path`, which appears when it is whole; with `replace`, in place of the file that
/// is there.
///
/// # Errors
/// [`Error::Exists`]; [`Error::Io`].
pub fn save(dict: &[u8], path: &Path, replace: bool) -> Result<()> {
    if replace && path.symlink_metadata().is_ok() {
        only_a_dictionary(path)?;
    }
    let staging = Staging::new(path, if replace { Existing::File } else { Existing::Refuse })?;
    let written = std::fs::File::create_new(staging.path()).and_then(|mut file| {
        file.write_all(dict)?;
        file.sync_all()
    });
    written.map_err(Error::io("write", staging.path()))?;
    staging.publish()
}

/// # Errors
/// [`Error::Invalid`] if what is at `path` is anything but a dictionary on its own: it is not there to be replaced.
fn only_a_dictionary(path: &Path) -> Result<()> {
    let refuse = |what: &str| Error::invalid(format!("{} {what}, so --force does not replace it", path.display()));
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if parent.join(META_FILE).exists() {
        return Err(refuse("is part of a store"));
    }
    let mut magic = [0; DICT_MAGIC.len()];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    if read.is_err() || magic != DICT_MAGIC {
        return Err(refuse("is no dictionary"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
