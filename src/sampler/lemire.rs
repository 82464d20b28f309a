//! A number below a bound from 64 random bits, without bias: Lemire's multiplication with rejection.

/// A bound, with what its draws have in common computed once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Below {
    bound: u64,
    /// 2^64 mod bound: so many low products, the smallest ones, are rejected.
    threshold: u64,
}

impl Below {
    /// `bound` is at least 1.
    pub(super) fn new(bound: u64) -> Self {
        Self { bound, threshold: bound.wrapping_neg() % bound }
    }

    /// The number that `bits` stand for, and whether it counts; if not, draw again.
    #[inline(always)]
    pub(super) fn number(self, bits: u64) -> (u64, bool) {
        let product = u128::from(bits) * u128::from(self.bound);
        ((product >> 64) as u64, self.counts(product as u64))
    }

    /// Whether `bits` count.
    #[inline(always)]
    pub(super) fn accepts(self, bits: u64) -> bool {
        self.counts(bits.wrapping_mul(self.bound))
    }

    #[inline(always)]
    fn counts(self, low: u64) -> bool {
        low >= self.threshold
    }
}
