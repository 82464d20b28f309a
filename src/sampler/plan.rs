//! Where batches lie: which positions of which cycle a step has, and which of them a rank has.

use super::Tail;

/// How the positions of the cycles are cut into batches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    length: u64,
    batch: u64,
    /// The batches of a cycle and the size of the last one; `None` where batches run on into the next cycle.
    cycle: Option<(u64, u64)>,
}

impl Plan {
    /// `length` and `batch` are at least 1.
    pub(super) fn new(length: u64, batch: u64, tail: Tail) -> Self {
        let cycle = match tail {
            Tail::Wrap => None,
            // A store shorter than a batch is one short batch, also where tails are dropped, or nothing would be left.
            _ if length < batch => Some((1, length)),
            Tail::Drop => Some((length / batch, batch)),
            Tail::Keep => {
                let steps = length.div_ceil(batch);
                Some((steps, length - (steps - 1) * batch))
            }
        };
        Self { length, batch, cycle }
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn steps_per_cycle(&self) -> Option<u64> {
        self.cycle.map(|(steps, _)| steps)
    }

    /// The size of the global batch of `step`.
    pub(super) fn batch_len(&self, step: u64) -> u64 {
        match self.cycle {
            Some((steps, last)) if step % steps == steps - 1 => last,
            _ => self.batch,
        }
    }

    /// How many indices stand before index `offset` of the batch of `step`, where all batches are full.
    pub(super) fn place(&self, step: u64, offset: u64) -> u128 {
        // Below 2^128: (2^64 − 1)² + 2^64 − 1.
        u128::from(step) * u128::from(self.batch) + u128::from(offset)
    }

    /// The cycle and the position in it of index `offset` of the batch of `step`. Cycles are numbered modulo 2^64.
    fn locate(&self, step: u64, offset: u64) -> (u64, u64) {
        match self.cycle {
            // Within the cycle, so below the length.
            Some((steps, _)) => (step / steps, (step % steps) * self.batch + offset),
            None => {
                let place = self.place(step, offset);
                match u64::try_from(place) {
                    Ok(place) => (place / self.length, place % self.length),
                    Err(_) => {
                        let length = u128::from(self.length);
                        ((place / length) as u64, (place % length) as u64)
                    }
                }
            }
        }
    }

    /// Calls `each(cycle, first position, indices)` for the runs of `out` that lie within one cycle.
    pub(super) fn runs(&self, step: u64, offset: u64, mut out: &mut [u64], mut each: impl FnMut(u64, u64, &mut [u64])) {
        let (mut cycle, mut position) = self.locate(step, offset);
        while !out.is_empty() {
            let room = usize::try_from(self.length - position).unwrap_or(usize::MAX);
            let (run, rest) = out.split_at_mut(room.min(out.len()));
            each(cycle, position, run);
            (out, cycle, position) = (rest, cycle.wrapping_add(1), 0);
        }
    }
}

/// Where the part of `rank` of `world` in a batch of `len` indices starts and ends. The parts of all ranks, one after
/// the other, are the batch; the first `len` mod `world` ranks have one index more than the others.
pub(super) fn share(len: u64, rank: u64, world: u64) -> (u64, u64) {
    let (each, more) = (len / world, len % world);
    // At most `len`, as rank + 1 ≤ world.
    let start = |rank: u64| rank * each + rank.min(more);
    (start(rank), start(rank + 1))
}
