//! What to draw, and its text form, as commands and mounts take it: `cyclic,batch=256,seed=42`.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The seed of a spec that names none, which is also loaderx's.
pub const DEFAULT_SEED: u64 = 42;

/// How indices are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// 0, 1, 2 … and from the start again.
    Sequential,
    /// Each index drawn independently, by a serial generator: the stream of loaderx. Seeking replays it.
    Iid,
    /// Each index drawn independently, from its position: seeks at once. Another stream than that of `Iid`.
    IidCounter,
    /// Every record once a cycle, each cycle in another random order.
    Cyclic,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 4] = [Mode::Sequential, Mode::Iid, Mode::IidCounter, Mode::Cyclic];

    /// Its name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Sequential => "sequential",
            Mode::Iid => "iid",
            Mode::IidCounter => "iid_counter",
            Mode::Cyclic => "cyclic",
        }
    }

    /// What loaderx does at the end of a cycle: `drop` when cyclic, else `wrap`.
    pub fn default_tail(self) -> Tail {
        match self {
            Mode::Cyclic => Tail::Drop,
            Mode::Sequential | Mode::Iid | Mode::IidCounter => Tail::Wrap,
        }
    }

    /// Whether it has cycles that a batch can end with.
    fn has_cycles(self) -> bool {
        matches!(self, Mode::Sequential | Mode::Cyclic)
    }
}

/// What becomes of the end of a cycle whose length is no multiple of the batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tail {
    /// The last records of the cycle's order, fewer than a batch, are left out of this cycle. Of a store shorter than a
    /// batch all records make one short batch.
    Drop,
    /// They make a last, short batch.
    Keep,
    /// The batch goes on with the next cycle, so that all are full. The iid modes, which have no cycles, know only this.
    Wrap,
}

impl Tail {
    /// All policies.
    pub const ALL: [Tail; 3] = [Tail::Drop, Tail::Keep, Tail::Wrap];

    /// Its name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Tail::Drop => "drop",
            Tail::Keep => "keep",
            Tail::Wrap => "wrap",
        }
    }
}

/// What a sampler draws, but for the number of records.
///
/// The text form is the mode and `key=value` pairs in any order: `batch` (required), `seed`, `rank`, `world`, `tail`.
/// Printing a spec gives its canonical form, without what is the default; parsing that gives the same spec.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spec {
    /// How indices are drawn.
    pub mode: Mode,
    /// Indices in a batch of all ranks together; at least 1.
    pub batch: u64,
    /// Chooses the stream; without effect when sequential.
    pub seed: u64,
    /// Which part of every batch to give, below `world`.
    pub rank: u64,
    /// The number of parts; at least 1.
    pub world: u64,
    /// What becomes of the end of a cycle.
    pub tail: Tail,
}

impl Spec {
    /// Whole batches of `batch` indices, seed [`DEFAULT_SEED`], and the mode's default tail.
    pub fn new(mode: Mode, batch: u64) -> Self {
        Self { mode, batch, seed: DEFAULT_SEED, rank: 0, world: 1, tail: mode.default_tail() }
    }

    /// Checks that the values go together.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a batch or world of 0, a rank that is not below the world, and a tail other than `wrap`
    /// where there are no cycles.
    pub fn validate(&self) -> Result<()> {
        let Spec { mode, batch, rank, world, tail, .. } = self;
        let reason = if *batch == 0 {
            "batch=0: a batch has at least 1 index".into()
        } else if *world == 0 {
            "world=0: there is at least 1 rank".into()
        } else if rank >= world {
            format!("rank={rank} of world={world}: ranks are 0 to {}", world - 1)
        } else if !mode.has_cycles() && *tail != Tail::Wrap {
            format!("tail={}: {} has no cycles, so its batches are always full (tail=wrap)", tail.name(), mode.name())
        } else {
            return Ok(());
        };
        Err(Error::Invalid(reason))
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},batch={}", self.mode.name(), self.batch)?;
        if self.mode != Mode::Sequential || self.seed != DEFAULT_SEED {
            write!(f, ",seed={}", self.seed)?;
        }
        if (self.rank, self.world) != (0, 1) {
            write!(f, ",rank={},world={}", self.rank, self.world)?;
        }
        if self.tail != self.mode.default_tail() {
            write!(f, ",tail={}", self.tail.name())?;
        }
        Ok(())
    }
}

impl FromStr for Spec {
    type Err = Error;

    /// # Errors
    /// [`Error::Invalid`] for an unknown mode or key, a key given twice, a missing batch, a value that is not of its
    /// key, and what [`validate`](Spec::validate) refuses.
    fn from_str(text: &str) -> Result<Self> {
        parse(text).map_err(|reason| Error::Invalid(format!("sampler {text:?}: {reason}")))
    }
}

fn parse(text: &str) -> Result<Spec, String> {
    let mut parts = text.split(',');
    let name = parts.next().unwrap_or_default();
    let mode = Mode::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(|| {
        format!(
            "{name:?} is no mode; the modes are {}, as in cyclic,batch=256,seed=42",
            names(&Mode::ALL.map(Mode::name))
        )
    })?;
    let [mut batch, mut seed, mut rank, mut world, mut tail] = [None; 5];
    for part in parts {
        let Some((key, value)) = part.split_once('=') else {
            return Err(format!("{part:?} is not key=value, as batch=256 is"));
        };
        let slot = match key {
            "batch" => &mut batch,
            "seed" => &mut seed,
            "rank" => &mut rank,
            "world" => &mut world,
            "tail" => &mut tail,
            _ => return Err(format!("unknown key {key:?}; the keys are batch, seed, rank, world and tail")),
        };
        if slot.replace(value).is_some() {
            return Err(format!("{key} is given twice"));
        }
    }
    let number = |key: &str, value: Option<&str>| value.map(|value| decimal(key, value)).transpose();
    let Some(batch) = number("batch", batch)? else {
        return Err(format!("the batch size is missing: {name},batch=256"));
    };
    if rank.is_some() != world.is_some() {
        return Err("rank and world go together, as in rank=0,world=8".into());
    }
    let default = Spec::new(mode, batch);
    let spec = Spec {
        seed: number("seed", seed)?.unwrap_or(default.seed),
        rank: number("rank", rank)?.unwrap_or(default.rank),
        world: number("world", world)?.unwrap_or(default.world),
        tail: tail.map_or(Ok(default.tail), |value| {
            Tail::ALL.into_iter().find(|tail| tail.name() == value).ok_or_else(|| {
                format!("tail={value}: the end of a cycle is one of {}", names(&Tail::ALL.map(Tail::name)))
            })
        })?,
        ..default
    };
    spec.validate().map_err(|e| e.to_string())?;
    Ok(spec)
}

fn names(names: &[&str]) -> String {
    names.join(", ")
}

/// A number in its one canonical spelling, so that two texts of one stream differ in nothing but order and defaults.
pub(super) fn decimal(key: &str, value: &str) -> Result<u64, String> {
    let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    if !digits || (value.len() > 1 && value.starts_with('0')) {
        return Err(format!("{key}={value}: not a whole number from 0 to {}, written in plain digits", u64::MAX));
    }
    value.parse().map_err(|_| format!("{key}={value}: the largest is {}", u64::MAX))
}
