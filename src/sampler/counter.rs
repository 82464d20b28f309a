//! Mode `iid_counter`: independent draws, each computed from its position alone.
//!
//! Philox4x64-10 (Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", 2011), numpy's `Philox`. Position p
//! takes word p mod 4 of the block of counter (p div 4 as two words, attempt, 0) and key (seed, 0); a word that
//! Lemire's method rejects is replaced by that of the next attempt.

use super::lemire::Below;

const M0: u64 = 0xD2E7_470E_E14C_6C93;
const M1: u64 = 0xCA5A_8263_9512_1157;
const W0: u64 = 0x9E37_79B9_7F4A_7C15;
const W1: u64 = 0xBB67_AE85_84CA_A73B;

#[inline(always)]
fn wide(a: u64, b: u64) -> (u64, u64) {
    let product = u128::from(a) * u128::from(b);
    ((product >> 64) as u64, product as u64)
}

/// The block of a counter under a key.
#[inline(always)]
fn philox(counter: [u64; 4], key: [u64; 2]) -> [u64; 4] {
    let ([mut x0, mut x1, mut x2, mut x3], [mut k0, mut k1]) = (counter, key);
    for _ in 0..10 {
        let (high0, low0) = wide(M0, x0);
        let (high1, low1) = wide(M1, x2);
        (x0, x1, x2, x3) = (high1 ^ x1 ^ k0, low1, high0 ^ x3 ^ k1, low0);
        (k0, k1) = (k0.wrapping_add(W0), k1.wrapping_add(W1));
    }
    [x0, x1, x2, x3]
}

/// The stream of draws.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counter {
    below: Below,
    seed: u64,
}

impl Counter {
    pub(super) fn new(length: u64, seed: u64) -> Self {
        Self { below: Below::new(length), seed }
    }

    #[inline(always)]
    fn block(&self, block: u128, attempt: u64) -> [u64; 4] {
        philox([block as u64, (block >> 64) as u64, attempt, 0], [self.seed, 0])
    }

    /// Word `lane` of `block`, drawn again until it counts; `bits` is that of attempt 0.
    #[inline(always)]
    fn number(&self, block: u128, lane: usize, bits: u64) -> u64 {
        match self.below.number(bits) {
            (number, true) => number,
            _ => self.again(block, lane),
        }
    }

    #[cold]
    fn again(&self, block: u128, lane: usize) -> u64 {
        let words = (1..=u64::MAX).filter_map(|attempt| self.block(block, attempt).get(lane).copied());
        // Each attempt succeeds with a probability above one half, so the default is never reached.
        words.map(|bits| self.below.number(bits)).find(|(_, accepted)| *accepted).map_or(0, |(number, _)| number)
    }

    /// Fills `out` with the draws from `place` on.
    pub(super) fn draw(&self, place: u128, mut out: &mut [u64]) {
        let mut block = place / 4;
        let mut first = (place % 4) as usize;
        while !out.is_empty() {
            let (now, rest) = out.split_at_mut((4 - first).min(out.len()));
            let words = self.block(block, 0);
            for (slot, (lane, &bits)) in now.iter_mut().zip(words.iter().enumerate().skip(first)) {
                *slot = self.number(block, lane, bits);
            }
            (out, block, first) = (rest, block.wrapping_add(1), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of Random123, the authors' own implementation.
    #[test]
    fn philox_equals_the_authors() {
        let zeros = [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B];
        assert_eq!(philox([0; 4], [0; 2]), zeros);
        let ones = [0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0];
        assert_eq!(philox([u64::MAX; 4], [u64::MAX; 2]), ones);
    }
}
