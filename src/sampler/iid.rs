//! Mode `iid`: independent draws of one serial generator, with states remembered on the way.

use super::copy_with_capacity;
use super::lemire::Below;
use super::sfc64::Sfc64;
use crate::error::{Error, Result};

/// The most draws that are replayed to reach a batch (about twenty minutes); farther ones are refused.
pub const MAX_REPLAY: u64 = 1 << 40;

/// States that are remembered at most.
const MARKS: usize = 64;
/// Draws between two of them at first: a replay of some microseconds.
const FIRST_STRIDE: u64 = 4096;

/// Which of the two walks through the stream draws.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cursor {
    /// The batches in order.
    Stream,
    /// Batches asked for by their step, between them.
    Lookup,
}

/// The generator after so many draws.
#[derive(Debug, Clone, Copy)]
struct State {
    draws: u64,
    generator: Sfc64,
}

/// The stream of draws.
///
/// Besides the states of its two cursors it remembers the states after 0, stride, 2·stride … draws. When there are
/// [`MARKS`] of them every second one is forgotten and the stride doubles, so that going back costs at most 1/32 of the
/// draws up to the farthest mark.
#[derive(Debug)]
pub(super) struct Iid {
    below: Below,
    stream: State,
    lookup: State,
    marks: Vec<State>,
    stride: u64,
}

impl Clone for Iid {
    fn clone(&self) -> Self {
        Self { marks: copy_with_capacity(&self.marks), ..*self }
    }
}

impl Iid {
    pub(super) fn new(length: u64, seed: u64) -> Self {
        let start = State { draws: 0, generator: Sfc64::new(seed) };
        let mut marks = Vec::with_capacity(MARKS);
        marks.push(start);
        Self { below: Below::new(length), stream: start, lookup: start, marks, stride: FIRST_STRIDE }
    }

    /// The nearest remembered state at or before `place`.
    fn nearest(&self, place: u128) -> State {
        let known = |state: &&State| u128::from(state.draws) <= place;
        // The state after 0 draws is always a mark.
        let fallback = State { draws: 0, ..self.stream };
        let both = [self.stream, self.lookup];
        both.iter().chain(&self.marks).filter(known).max_by_key(|state| state.draws).copied().unwrap_or(fallback)
    }

    /// How many draws lie between it and `place`.
    pub(super) fn distance(&self, place: u128) -> u128 {
        place - u128::from(self.nearest(place).draws)
    }

    /// Fills `out` with the draws from `place` on.
    pub(super) fn draw(&mut self, place: u128, mut out: &mut [u64], cursor: Cursor) -> Result<()> {
        let current = match cursor {
            Cursor::Stream => self.stream,
            Cursor::Lookup => self.lookup,
        };
        // In order, which is the usual case, there is nothing to look for.
        let mut state = if u128::from(current.draws) == place { current } else { self.nearest(place) };
        let distance = place - u128::from(state.draws);
        let end = place.checked_add(out.len() as u128).and_then(|end| u64::try_from(end).ok());
        let (Some(_), true) = (end, distance <= u128::from(MAX_REPLAY)) else {
            return Err(Error::invalid(format!(
                "iid replays its draws, and {distance} of them, more than {MAX_REPLAY}, stand before this batch; \
                 iid_counter seeks at once"
            )));
        };
        let mut skip = distance as u64;
        while skip > 0 {
            let run = skip.min(self.until_mark(state.draws));
            state.generator.skip(self.below, run);
            state.draws += run;
            skip -= run;
            self.remember(state);
        }
        while !out.is_empty() {
            let run = usize::try_from(self.until_mark(state.draws)).unwrap_or(usize::MAX).min(out.len());
            let (now, rest) = out.split_at_mut(run);
            state.generator.fill(self.below, now);
            state.draws += run as u64;
            out = rest;
            self.remember(state);
        }
        match cursor {
            Cursor::Stream => self.stream = state,
            Cursor::Lookup => self.lookup = state,
        }
        Ok(())
    }

    /// Where the next mark is to be made.
    fn next_mark(&self) -> u64 {
        self.stride.saturating_mul(self.marks.len() as u64)
    }

    /// How far to go from `draws` without missing it; never 0.
    fn until_mark(&self, draws: u64) -> u64 {
        match self.next_mark().checked_sub(draws) {
            None | Some(0) => u64::MAX,
            Some(distance) => distance,
        }
    }

    fn remember(&mut self, state: State) {
        if state.draws != self.next_mark() {
            return;
        }
        if self.marks.len() == MARKS {
            let mut even = false;
            self.marks.retain(|_| {
                even = !even;
                even
            });
            self.stride = self.stride.saturating_mul(2);
        }
        // With all marks taken the next one was at MARKS strides, which is a multiple of the doubled stride, too.
        self.marks.push(state);
    }
}
