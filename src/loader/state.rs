//! The state of a loader: how far its deliveries have come, in which stream, over which store.

use crate::error::{Error, Result};
use crate::sampler::{Mode, Sampler, Spec, Tail};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Bytes of a state whose deliveries were in order.
const LEN: usize = 56;
const MAGIC: [u8; 4] = *b"ZLST";
const VERSION: u8 = 1;
/// A state remembers at most so many steps that were delivered ahead of others.
const MAX_AHEAD: usize = u16::MAX as usize;

/// Which steps were delivered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// The first one that was not.
    pub(super) step: u64,
    /// Later ones that were, in completion order.
    pub(super) ahead: BTreeSet<u64>,
}

impl Position {
    pub(super) fn delivered(&mut self, step: u64) {
        if step != self.step {
            self.ahead.insert(step);
            return;
        }
        self.step = step.wrapping_add(1);
        while self.ahead.remove(&self.step) {
            self.step = self.step.wrapping_add(1);
        }
    }
}

/// A position in a stream of batches, small enough to be saved with every checkpoint.
///
/// It holds the step, what chooses the stream (mode, batch size, seed, tail), the number of records, and a fingerprint of
/// the store; not the rank and the number of ranks, which may be others when a run goes on. Batches that were made ahead
/// and not delivered are not counted.
///
/// Written as bytes (56, and 8 for each step delivered out of order) or as one line of JSON, both with a version and a
/// checksum:
///
/// ```text
/// {"zrfs_loader":1,"sampler":"cyclic,batch=256,seed=42","length":60000,"store":"9f0c…","step":117,"check":"5e0d…"}
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Without a rank.
    pub(super) spec: Spec,
    pub(super) length: u64,
    pub(super) store: u64,
    pub(super) position: Position,
}

impl State {
    pub(super) fn new(sampler: &Sampler, store: u64, position: Position) -> Self {
        let spec = Spec { rank: 0, world: 1, ..sampler.spec().clone() };
        State { spec, length: sampler.length(), store, position }
    }

    /// The first step that was not delivered.
    pub fn step(&self) -> u64 {
        self.position.step
    }

    /// What the stream is drawn with: mode, batch size, seed and tail.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The number of records of the store.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Checks that it is a state of a loader with that batch size over that store.
    pub(super) fn check(&self, batch: u64, length: u64, store: u64) -> Result<()> {
        let differs = |what: &str, saved: String, now: String| {
            Err(Error::invalid(format!("the loader's state does not fit: {what} was {saved}, and is {now}")))
        };
        if self.length != length {
            return differs("the number of records", self.length.to_string(), length.to_string());
        }
        if self.spec.batch != batch {
            return differs("the batch size", self.spec.batch.to_string(), batch.to_string());
        }
        if self.store != store {
            let [saved, now] = [self.store, store].map(|id| format!("{id:016x}"));
            return differs("the fingerprint of the store (it is another one, or was changed since)", saved, now);
        }
        Ok(())
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.body();
        out.extend(crc32fast::hash(&out).to_le_bytes());
        out
    }

    /// All but the checksum.
    fn body(&self) -> Vec<u8> {
        let place = |all: &[&str], name| all.iter().position(|n| *n == name).unwrap_or_default() as u8;
        let (mode, tail) = (self.spec.mode.name(), self.spec.tail.name());
        let mut out = Vec::with_capacity(LEN + 8 * self.position.ahead.len());
        out.extend(MAGIC);
        out.extend([VERSION, place(&Mode::ALL.map(Mode::name), mode), place(&Tail::ALL.map(Tail::name), tail), 0]);
        let ahead = self.position.ahead.len().min(MAX_AHEAD);
        for number in [self.position.step, self.spec.batch, self.spec.seed, self.length, self.store] {
            out.extend(number.to_le_bytes());
        }
        out.extend((ahead as u32).to_le_bytes());
        self.position.ahead.iter().take(ahead).for_each(|step| out.extend(step.to_le_bytes()));
        out
    }

    /// The state of these bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they are none, are damaged, or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::decode(bytes).map_err(|reason| Error::invalid(format!("this is no state of a loader: {reason}")))
    }

    fn decode(bytes: &[u8]) -> Result<Self, String> {
        let short = || format!("it has {} bytes; a state has {LEN} or more", bytes.len());
        let (body, check) = bytes.split_last_chunk::<4>().ok_or_else(short)?;
        let (head, rest) = body.split_first_chunk::<8>().ok_or_else(short)?;
        let [m0, m1, m2, m3, version, mode, tail, zero] = *head;
        if [m0, m1, m2, m3] != MAGIC {
            return Err("it does not begin with ZLST".into());
        }
        if version != VERSION {
            return Err(format!("it is of version {version}, this program reads version {VERSION}"));
        }
        if u32::from_le_bytes(*check) != crc32fast::hash(body) {
            return Err("its checksum is wrong".into());
        }
        let (numbers, rest) = rest.split_first_chunk::<40>().ok_or_else(short)?;
        let (count, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        let (ahead, []) = rest.as_chunks::<8>() else { return Err("its length is wrong".into()) };
        if ahead.len() != u32::from_le_bytes(*count) as usize || ahead.len() > MAX_AHEAD {
            return Err("its length is wrong".into());
        }
        let mut numbers = numbers.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number));
        let mut number = || numbers.next().unwrap_or_default();
        let (step, batch, seed, length, store) = (number(), number(), number(), number(), number());
        let (Some(&mode), Some(&tail), 0) = (Mode::ALL.get(mode as usize), Tail::ALL.get(tail as usize), zero) else {
            return Err("it has an unknown mode or tail".into());
        };
        let spec = Spec { seed, tail, ..Spec::new(mode, batch) };
        spec.validate().map_err(|e| e.to_string())?;
        let ahead = ahead.iter().map(|step| u64::from_le_bytes(*step)).collect();
        Ok(State { spec, length, store, position: Position { step, ahead } })
    }
}

/// One line of JSON.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut json = serde_json::json!({
            "zrfs_loader": VERSION,
            "sampler": self.spec.to_string(),
            "length": self.length,
            "store": format!("{:016x}", self.store),
            "step": self.position.step,
        });
        if let Some(object) = json.as_object_mut() {
            if !self.position.ahead.is_empty() {
                object.insert("ahead".into(), self.position.ahead.iter().copied().collect());
            }
            object.insert("check".into(), format!("{:08x}", crc32fast::hash(&self.body())).into());
        }
        json.fmt(f)
    }
}

impl FromStr for State {
    type Err = Error;

    /// # Errors
    /// As [`State::from_bytes`].
    fn from_str(text: &str) -> Result<Self> {
        parse(text).map_err(|reason| Error::invalid(format!("this is no state of a loader: {reason}")))
    }
}

fn parse(text: &str) -> Result<State, String> {
    let json: serde_json::Value = serde_json::from_str(text).map_err(|e| format!("it is no JSON: {e}"))?;
    let number = |key: &str| json.get(key).and_then(serde_json::Value::as_u64).ok_or(format!("{key} is no number"));
    let text = |key: &str| json.get(key).and_then(serde_json::Value::as_str).ok_or(format!("{key} is no text"));
    let hex = |key: &str| u64::from_str_radix(text(key)?, 16).map_err(|e| format!("{key}: {e}"));
    let version = number("zrfs_loader")?;
    if version != u64::from(VERSION) {
        return Err(format!("it is of version {version}, this program reads version {VERSION}"));
    }
    let ahead = match json.get("ahead").map(serde_json::Value::as_array) {
        None => BTreeSet::new(),
        Some(steps) => steps
            .filter(|steps| steps.len() <= MAX_AHEAD)
            .and_then(|steps| steps.iter().map(serde_json::Value::as_u64).collect())
            .ok_or("ahead is no list of steps")?,
    };
    let spec: Spec = text("sampler")?.parse().map_err(|e: Error| e.to_string())?;
    let spec = Spec { rank: 0, world: 1, ..spec };
    let position = Position { step: number("step")?, ahead };
    let state = State { spec, length: number("length")?, store: hex("store")?, position };
    if hex("check")? != u64::from(crc32fast::hash(&state.body())) {
        return Err("its checksum is wrong".into());
    }
    Ok(state)
}
