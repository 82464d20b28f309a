//! Mode `cyclic`: a keyed permutation of [0, length) for each cycle, by a Feistel network and cycle walking.

use super::copy_with_capacity;

/// Rounds of the network.
const ROUNDS: usize = 4;
/// Positions that are permuted together, so that the processor works on several at once.
const LANES: usize = 64;
/// Networks whose halves have at most so many bits (stores of at most 2^28 records) get tables of their rounds: 128 KiB,
/// which stay in the processor's second cache. Larger tables gain nothing over computing the rounds.
const TABLE_BITS: u32 = 14;

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
const ROUND: u64 = 0xD1B5_4A32_D192_ED03;

/// mix(s, v, r) of the format, of z = s ^ (v · GOLDEN) ^ (r · ROUND).
#[inline(always)]
fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The network of one cycle.
#[derive(Debug, Clone, Copy)]
struct Network {
    length: u64,
    /// Bits of a half, 0 to 32.
    half: u32,
    /// 2^half − 1.
    mask: u64,
    /// What `mix` has of the cycle and the round.
    keys: [u64; ROUNDS],
}

impl Network {
    fn new(length: u64, seed: u64, cycle: u64) -> Self {
        // The smallest even number of bits that can count to `length`.
        let half = (u64::BITS - length.saturating_sub(1).leading_zeros()).div_ceil(2);
        let cycle_seed = mix(seed ^ cycle.wrapping_mul(GOLDEN));
        let keys = [0, 1, 2, 3].map(|round: u64| cycle_seed ^ round.wrapping_mul(ROUND));
        Self { length, half, mask: (1 << half) - 1, keys }
    }

    #[inline(always)]
    fn round(&self, key: u64, value: u64) -> u64 {
        mix(key ^ value.wrapping_mul(GOLDEN)) & self.mask
    }

    /// One pass of the network, with its rounds computed.
    #[inline(always)]
    fn computed(&self, x: u64) -> u64 {
        let (mut left, mut right) = (x >> self.half, x & self.mask);
        for key in self.keys {
            (left, right) = (right, left ^ self.round(key, right));
        }
        left << self.half | right
    }

    /// One pass of the network, with its rounds looked up.
    #[inline(always)]
    fn looked_up(&self, table: &[[u16; ROUNDS]], x: u64) -> u64 {
        let (mut left, mut right) = (x >> self.half, x & self.mask);
        let look = |value: u64| table.get(value as usize).copied().unwrap_or_default();
        let [f, _, _, _] = look(right);
        (left, right) = (right, left ^ u64::from(f));
        let [_, f, _, _] = look(right);
        (left, right) = (right, left ^ u64::from(f));
        let [_, _, f, _] = look(right);
        (left, right) = (right, left ^ u64::from(f));
        let [_, _, _, f] = look(right);
        (left, right) = (right, left ^ u64::from(f));
        left << self.half | right
    }

    /// Permutes the positions from `position` on into `out`: each walks through `pass` until it is below the length.
    #[inline(always)]
    fn walk(&self, mut position: u64, out: &mut [u64], pass: impl Fn(u64) -> u64) {
        for lanes in out.chunks_mut(LANES) {
            // Those that are not yet below the length. Whether one is, is as good as random: it must not be a branch.
            let mut walking = [0u8; LANES];
            let mut count = 0;
            for (i, (lane, at)) in lanes.iter_mut().zip(position..).enumerate() {
                *lane = pass(at);
                if let Some(slot) = walking.get_mut(count) {
                    *slot = i as u8;
                }
                count += usize::from(*lane >= self.length);
            }
            while count > 0 {
                let mut left = 0;
                for k in 0..count {
                    let i = walking.get(k).copied().unwrap_or_default();
                    let Some(lane) = lanes.get_mut(usize::from(i)) else { continue };
                    *lane = pass(*lane);
                    // Never ahead of k, so what is overwritten has been read.
                    if let Some(slot) = walking.get_mut(left) {
                        *slot = i;
                    }
                    left += usize::from(*lane >= self.length);
                }
                count = left;
            }
            position = position.wrapping_add(lanes.len() as u64);
        }
    }
}

/// The permutations of all cycles, with what is known of the cycle drawn from last.
#[derive(Debug)]
pub(super) struct Cycles {
    seed: u64,
    cycle: u64,
    network: Network,
    /// The rounds of `network` for every value of a half, where `ready`.
    table: Vec<[u16; ROUNDS]>,
    ready: bool,
    /// Positions of `cycle` that were computed without the table.
    computed: u64,
}

impl Clone for Cycles {
    fn clone(&self) -> Self {
        Self { table: copy_with_capacity(&self.table), ..*self }
    }
}

impl Cycles {
    pub(super) fn new(length: u64, seed: u64) -> Self {
        let network = Network::new(length, seed, 0);
        let entries = if network.half <= TABLE_BITS { 1 << network.half } else { 0 };
        Self { seed, cycle: 0, network, table: Vec::with_capacity(entries), ready: false, computed: 0 }
    }

    /// The indices at the positions of `cycle` from `position` on, all of which are below the length.
    pub(super) fn permute(&mut self, cycle: u64, position: u64, out: &mut [u64]) {
        if cycle != self.cycle {
            self.network = Network::new(self.network.length, self.seed, cycle);
            (self.cycle, self.ready, self.computed) = (cycle, false, 0);
        }
        if self.network.length == 1 {
            out.fill(0);
            return;
        }
        let network = self.network;
        if self.prepare(out.len()) {
            network.walk(position, out, |x| network.looked_up(&self.table, x));
        } else {
            network.walk(position, out, |x| network.computed(x));
        }
    }

    /// Whether to look rounds up for the next `count` positions. The table costs what computing 2^half positions
    /// costs: it is made when so many have been asked for, so that jumping between cycles stays cheap, too.
    fn prepare(&mut self, count: usize) -> bool {
        if self.ready || self.network.half > TABLE_BITS {
            return self.ready;
        }
        self.computed = self.computed.saturating_add(count as u64);
        if self.computed > self.network.mask {
            let network = self.network;
            self.table.clear();
            // At most TABLE_BITS bits, so they fit.
            let row = |value| network.keys.map(|key| network.round(key, value) as u16);
            self.table.extend((0..=network.mask).map(row));
            self.ready = true;
        }
        self.ready
    }
}
