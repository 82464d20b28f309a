//! What each mode promises: every record once a cycle, batches by their step alone, ranks that share a stream.

use super::*;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

/// The whole of `steps` batches, one after the other.
fn stream(sampler: &mut Sampler, steps: u64) -> Vec<u64> {
    (0..steps).flat_map(|_| take(sampler)).collect()
}

/// Lengths where networks change size and cycle walking is at its longest, and small ones.
fn lengths() -> impl Iterator<Item = u64> {
    (1..=300).chain((9..=16).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]))
}

#[test]
fn a_cycle_has_every_record_once() {
    for length in lengths() {
        // Also batches that are no divisor, the length itself, and larger ones; the table is made on the way.
        for batch in [1, 7, 256, length, length + 1] {
            if length > 2000 && batch == 1 {
                continue;
            }
            let seed = length ^ batch;
            let mut keep = sampler(&format!("cyclic,batch={batch},seed={seed},tail=keep"), length);
            let steps = keep.steps_per_cycle().unwrap();
            assert_eq!(steps, length.div_ceil(batch));
            let mut orders = vec![];
            for cycle in 0..2 {
                let order = stream(&mut keep, steps);
                let mut seen = vec![false; length as usize];
                for &index in &order {
                    assert!(!std::mem::replace(&mut seen[index as usize], true), "{length} {batch}: {index} twice");
                }
                assert_eq!(order.len() as u64, length, "{batch}: cycle {cycle}");
                orders.push(order);
            }
            // Two random orders of ten records agree once in 3.6 million times; here they never do.
            assert!(length < 10 || orders[0] != orders[1], "{length}: each cycle in another order");

            // Dropping a tail and wrapping give the same orders, cut otherwise.
            let mut dropped = sampler(&format!("cyclic,batch={batch},seed={seed}"), length);
            let steps = dropped.steps_per_cycle().unwrap();
            let usable = if length < batch { length } else { length - length % batch };
            for order in &orders {
                assert_eq!(stream(&mut dropped, steps), order[..usable as usize], "{length} {batch}");
            }
            let mut wrapped = sampler(&format!("cyclic,batch={batch},seed={seed},tail=wrap"), length);
            let whole = stream(&mut wrapped, (2 * length).div_ceil(batch));
            assert_eq!(whole[..2 * length as usize], orders.concat(), "{length} {batch}");
        }
    }
}

/// The cyclic order as the format defines it, written out with no regard to speed.
fn plain_order(length: u64, seed: u64, cycle: u64) -> Vec<u64> {
    let mix = |s: u64, v: u64, r: u64| {
        let z = s ^ v.wrapping_mul(0x9E3779B97F4A7C15) ^ r.wrapping_mul(0xD1B54A32D192ED03);
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58476D1CE4E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D049BB133111EB);
        z ^ (z >> 31)
    };
    let h = (0..).find(|h| 1u128 << (2 * h) >= u128::from(length)).unwrap();
    let permute = |mut x: u64| loop {
        let (mut l, mut r) = (x >> h, x % (1 << h));
        for round in 0..4 {
            (l, r) = (r, l ^ (mix(mix(seed, cycle, 0), r, round) % (1 << h)));
        }
        x = (l << h) | r;
        if x < length {
            return x;
        }
    };
    (0..length).map(|p| if length <= 1 { 0 } else { permute(p) }).collect()
}

#[test]
fn cyclic_is_what_the_format_defines() {
    for length in (1..70).chain([255, 256, 257, 1025, 4097, 20_000]) {
        for (seed, cycle) in [(0, 0), (42, 1), (u64::MAX, 77)] {
            let mut s = sampler(&format!("cyclic,batch={length},seed={seed}"), length);
            assert_eq!(at(&mut s, cycle), plain_order(length, seed, cycle), "{length} {seed} {cycle}");
        }
    }
}

#[test]
fn the_table_changes_nothing() {
    // In pieces too few for a table, in the midst of other cycles, and with one.
    for length in [5, 17, 1000, 65_537] {
        let mut s = sampler("cyclic,batch=5,seed=9,tail=wrap", length);
        let mut pieces = sampler("cyclic,batch=5,seed=9,tail=wrap", length);
        for step in 0..(2 * length).div_ceil(5).min(2000) {
            let want = take(&mut s);
            pieces.batch_at(step + length, &mut [0; 5]).unwrap();
            assert_eq!(at(&mut pieces, step), want, "{length} {step}");
        }
    }
}

#[test]
fn long_stores_and_late_steps() {
    for length in [1 << 40, (1 << 40) + 1, 1 << 63, (1 << 63) + 1, u64::MAX] {
        for spec in ["sequential,batch=64", "iid,batch=64", "iid_counter,batch=64", "cyclic,batch=64"] {
            let mut s = sampler(spec, length);
            let first: Vec<u64> = stream(&mut s, 4);
            assert!(first.iter().all(|&i| i < length), "{spec} {length}");
            let distinct: HashSet<u64> = first.iter().copied().collect();
            assert_eq!(distinct.len(), 256, "{spec} {length}: in so many records 256 do not meet");
            if spec.starts_with("iid,") {
                let why = s.seek(u64::MAX).unwrap_err().to_string();
                assert!(why.contains("iid_counter seeks at once"), "{why}");
                assert_eq!(s.step(), 4, "a refused seek moves nothing");
                assert!(s.replay(u64::MAX) > u128::from(MAX_REPLAY));
                continue;
            }
            s.seek(u64::MAX).unwrap();
            let last = take(&mut s);
            assert_eq!((last.len(), s.step(), s.replay(u64::MAX)), (64, 0, 0), "{spec} {length}");
            assert_eq!(take(&mut s), first[..64], "after the last step comes the first");
        }
    }
    let mut s = sampler("sequential,batch=3", u64::MAX);
    // 3 · (2^64 − 1) is 0 modulo the length.
    assert_eq!(at(&mut s, u64::MAX), [0, 1, 2]);
    // Over the end without a wrap at 2^64.
    assert_eq!(at(&mut s, u64::MAX / 3 - 1), [u64::MAX - 3, u64::MAX - 2, u64::MAX - 1]);
    let mut s = sampler("sequential,batch=4", u64::MAX);
    assert_eq!(at(&mut s, (1 << 62) - 1), [u64::MAX - 3, u64::MAX - 2, u64::MAX - 1, 0]);
}

#[test]
fn seeds_are_distinct() {
    for mode in ["iid", "iid_counter", "cyclic"] {
        let mut seen = HashMap::new();
        for seed in [0, 1, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, 1 << 63, u64::MAX] {
            let first = take(&mut sampler(&format!("{mode},batch=16,seed={seed}"), 1 << 40));
            if let Some(other) = seen.insert(first, seed) {
                panic!("{mode}: seeds {other} and {seed} draw the same");
            }
        }
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let spec = Spec::new(Mode::Cyclic, 4);
    let refused = |spec: &Spec, length| Sampler::new(spec.clone(), length).unwrap_err().to_string();
    assert!(refused(&spec, 0).contains("the length is 0"));
    assert!(refused(&Spec { batch: 0, ..spec.clone() }, 9).contains("batch=0"));
    assert!(refused(&Spec { world: 0, ..spec.clone() }, 9).contains("world=0"));
    assert!(refused(&Spec { rank: 3, world: 3, ..spec.clone() }, 9).contains("ranks are 0 to 2"));
    assert!(refused(&Spec { tail: Tail::Keep, ..Spec::new(Mode::Iid, 4) }, 9).contains("tail=wrap"));

    let mut s = Sampler::new(spec, 9).unwrap();
    let why = s.next(&mut [0; 3]).unwrap_err();
    assert!(matches!(why, Error::BufferTooSmall { need: 32, have: 24 }), "{why}");
    assert_eq!(s.step(), 0, "a refused batch is not lost");
    for (offset, len) in [(0, 5), (4, 1), (5, 0), (u64::MAX, 1)] {
        let why = s.part_at(0, offset, &mut vec![0; len]).unwrap_err().to_string();
        assert!(why.contains("it has 4"), "{why}");
    }
    let huge = sampler("iid,batch=18446744073709551615", 9).batches().next().unwrap().unwrap_err().to_string();
    assert!(huge.contains("no memory"), "{huge}");
}

/// Eight threads with a clone each draw what one draws.
#[test]
fn clones_draw_the_same() {
    for spec in ["iid,batch=100", "cyclic,batch=100", "iid_counter,batch=100", "sequential,batch=100"] {
        for length in [99, 100, 101, 5000] {
            let mut one = sampler(spec, length);
            take(&mut one);
            let mut whole = one.clone();
            let want = stream(&mut whole, 200);
            std::thread::scope(|scope| {
                let draw = || scope.spawn(|| stream(&mut one.clone(), 200));
                let threads: Vec<_> = (0..8).map(|_| draw()).collect();
                assert!(threads.into_iter().all(|thread| thread.join().unwrap() == want), "{spec} {length}");
            });
        }
    }
}

/// Saved and restored at every step, in a chain: a step, a text and a length are the whole state.
#[test]
fn resumes_at_every_step() {
    for spec in
        ["sequential,batch=3", "iid,batch=3,seed=7", "iid_counter,batch=3,seed=7", "cyclic,batch=3,seed=7,tail=wrap"]
    {
        let mut straight = sampler(spec, 10);
        let mut state = (straight.spec().to_string(), straight.length(), straight.step());
        for _ in 0..60 {
            let mut resumed = sampler(&state.0, state.1);
            resumed.seek(state.2).unwrap();
            assert_eq!(take(&mut resumed), take(&mut straight), "{state:?}");
            state = (resumed.spec().to_string(), resumed.length(), resumed.step());
        }
    }
}

/// Going back in a long `iid` stream costs a small part of it, and gives the same.
#[test]
fn iid_remembers_states() {
    let mut s = sampler("iid,batch=1000,seed=3", 12345);
    let mut plain = vec![];
    for _ in 0..2000 {
        plain.push(take(&mut s));
    }
    let mut worst = 0;
    for step in (0..2000).rev().chain((0..2000).step_by(7)) {
        worst = worst.max(s.replay(step));
        assert_eq!(at(&mut s, step), plain[step as usize], "{step}");
    }
    assert!(worst <= 2_000_000 / 32, "{worst}");
    assert_eq!(s.step(), 2000, "asking for batches moves nothing");
    // In order, nothing is replayed.
    at(&mut s, 100);
    assert_eq!(s.replay(101), 0);
    assert_eq!(s.replay(2000), 0);
}

fn specs() -> impl Strategy<Value = (Spec, u64)> {
    let length = prop_oneof![1..40u64, 1..5000u64, any::<u64>().prop_map(|n| n.max(1))];
    let modes = prop_oneof![Just(Mode::Sequential), Just(Mode::Iid), Just(Mode::IidCounter), Just(Mode::Cyclic)];
    let tails = prop_oneof![Just(Tail::Drop), Just(Tail::Keep), Just(Tail::Wrap)];
    (modes, 1..60u64, any::<u64>(), 1..9u64, any::<u64>(), tails, length).prop_map(
        |(mode, batch, seed, world, rank, tail, length)| {
            let tail = if matches!(mode, Mode::Iid | Mode::IidCounter) { Tail::Wrap } else { tail };
            (Spec { mode, batch, seed, rank: rank % world, world, tail }, length)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// In order, by step, after a seek, and in pieces: the same batch.
    #[test]
    fn a_batch_is_a_function_of_its_step((spec, length) in specs(), steps in prop::collection::vec(0..3000u64, 1..8)) {
        let mut s = Sampler::new(spec.clone(), length).unwrap();
        let in_order: Vec<Vec<u64>> = (0..20).map(|_| take(&mut s)).collect();
        let mut iterated = Sampler::new(spec.clone(), length).unwrap();
        prop_assert_eq!(&iterated.batches().take(20).collect::<Result<Vec<_>>>().unwrap(), &in_order);
        for step in steps.into_iter().chain(0..20) {
            let batch = at(&mut s, step);
            prop_assert!(batch.iter().all(|&index| index < length));
            if let Some(want) = in_order.get(step as usize) {
                prop_assert_eq!(&batch, want);
            }
            let mut fresh = Sampler::new(spec.clone(), length).unwrap();
            fresh.seek(step).unwrap();
            prop_assert_eq!(fresh.step(), step);
            prop_assert_eq!(&take(&mut fresh), &batch);
            let cut = batch.len() / 3;
            let (mut front, mut back) = (vec![0; cut], vec![0; batch.len() - cut]);
            s.part_at(step, cut as u64, &mut back).unwrap();
            s.part_at(step, 0, &mut front).unwrap();
            prop_assert_eq!([front, back].concat(), batch);
        }
        prop_assert_eq!(s.step(), 20);
    }

    /// The ranks' parts are the global batch, for any number of ranks, which may change from step to step.
    #[test]
    fn ranks_share_every_batch((spec, length) in specs(), worlds in prop::collection::vec(1..70u64, 1..8)) {
        let mut whole = Sampler::new(Spec { rank: 0, world: 1, ..spec.clone() }, length).unwrap();
        for (step, world) in (0..).zip(worlds) {
            let want = take(&mut whole);
            let mut parts = vec![];
            for rank in 0..world {
                let mut s = Sampler::new(Spec { rank, world, ..spec.clone() }, length).unwrap();
                s.seek(step).unwrap();
                parts.push(take(&mut s));
            }
            let sizes = parts.iter().map(Vec::len);
            prop_assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1, "fair");
            prop_assert_eq!(parts.concat(), want, "step {}", step);
        }
    }

    /// Printing and parsing are inverse.
    #[test]
    fn the_text_is_the_spec((spec, _) in specs()) {
        let text = spec.to_string();
        prop_assert_eq!(text.parse::<Spec>().unwrap(), spec, "{}", text);
    }
}
