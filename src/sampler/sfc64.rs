//! Chris Doty-Humphrey's Sfc64, seeded as Zig's standard library and loaderx seed it.

use super::lemire::Below;

/// The generator's state, which cannot be jumped ahead: it is replayed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sfc64 {
    a: u64,
    b: u64,
    c: u64,
    counter: u64,
}

impl Sfc64 {
    pub(super) fn new(seed: u64) -> Self {
        let mut generator = Self { a: seed, b: seed, c: seed, counter: 1 };
        for _ in 0..12 {
            generator.bits();
        }
        generator
    }

    #[inline(always)]
    fn bits(&mut self) -> u64 {
        let bits = self.a.wrapping_add(self.b).wrapping_add(self.counter);
        self.counter = self.counter.wrapping_add(1);
        self.a = self.b ^ (self.b >> 11);
        self.b = self.c.wrapping_add(self.c << 3);
        self.c = self.c.rotate_left(24).wrapping_add(bits);
        bits
    }

    /// Fills `out` with numbers.
    pub(super) fn fill(&mut self, below: Below, out: &mut [u64]) {
        let mut generator = *self;
        let mut n = 0;
        // A rejected number is overwritten by the next one: there is no branch to mispredict, whatever the bound.
        while let Some(slot) = out.get_mut(n) {
            let (number, accepted) = below.number(generator.bits());
            *slot = number;
            n += usize::from(accepted);
        }
        *self = generator;
    }

    /// Draws `count` numbers and forgets them.
    pub(super) fn skip(&mut self, below: Below, mut count: u64) {
        let mut generator = *self;
        // The rejected draws of a pass are made up for in the next, so that no draw waits for the verdict on another.
        while count > 0 {
            let mut rejected = 0;
            for _ in 0..count {
                rejected += u64::from(!below.accepts(generator.bits()));
            }
            count = rejected;
        }
        *self = generator;
    }
}
