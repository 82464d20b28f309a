//! The random modes against chance. All seeds are fixed, so that a test fails always or never.
//!
//! A chi-square statistic of k cells has mean k − 1 and standard deviation √(2(k − 1)); it is to be within 5 of those,
//! on both sides: too even is as wrong as too uneven.

use super::*;

fn assert_uniform(counts: &[u64], what: &str) {
    let total: u64 = counts.iter().sum();
    let expected = total as f64 / counts.len() as f64;
    assert!(expected >= 20.0, "{what}: enough draws a cell");
    let chi: f64 = counts.iter().map(|&n| (n as f64 - expected).powi(2) / expected).sum();
    let freedom = counts.len() as f64 - 1.0;
    let deviations = (chi - freedom) / (2.0 * freedom).sqrt();
    assert!(
        deviations.abs() < 5.0,
        "{what}: chi² {chi:.1} of {freedom} degrees of freedom, {deviations:.1} deviations"
    );
}

#[test]
fn iid_is_uniform() {
    for mode in ["iid", "iid_counter"] {
        for seed in [0, 42, 1 << 32, u64::MAX] {
            // 3 · 2^62: without rejection every third index would come up twice as often as the others.
            for (length, cells) in [(2, 2), (7, 7), (1000, 1000), (3 << 62, 96)] {
                let mut s = sampler(&format!("{mode},batch=50000,seed={seed}"), length);
                let mut counts = vec![0; cells];
                let mut pairs = vec![0; 64];
                for _ in 0..4 {
                    let batch = take(&mut s);
                    for &index in &batch {
                        counts[(index % cells as u64) as usize] += 1;
                    }
                    if length == 3 << 62 {
                        for pair in batch.chunks_exact(2) {
                            let eighth = |index: u64| (u128::from(index) * 8 / u128::from(length)) as usize;
                            pairs[eighth(pair[0]) * 8 + eighth(pair[1])] += 1;
                        }
                    }
                }
                assert_uniform(&counts, &format!("{mode} {length} seed {seed}"));
                if length == 3 << 62 {
                    assert_uniform(&pairs, &format!("{mode} {length} seed {seed}, pairs"));
                }
            }
        }
    }
}

/// Over many cycles every record comes first, last and in the middle equally often, and what follows it is anything.
#[test]
fn cyclic_positions_are_uniform() {
    for seed in [0, 42, u64::MAX] {
        for length in [100, 257, 1000] {
            let mut s = sampler(&format!("cyclic,batch={length},seed={seed}"), length);
            let cells = length as usize;
            let [mut first, mut middle, mut last, mut place] = [0; 4].map(|_: u8| vec![0; cells]);
            let mut steps = vec![0; cells - 1];
            for _ in 0..40 * length {
                let order = take(&mut s);
                first[order[0] as usize] += 1;
                middle[order[cells / 2] as usize] += 1;
                last[order[cells - 1] as usize] += 1;
                place[order.iter().position(|&index| index == length / 3).unwrap()] += 1;
                // The distance from the first to the second, around the circle.
                steps[((order[1] + length - order[0]) % length) as usize - 1] += 1;
            }
            for (counts, what) in
                [(first, "first"), (middle, "middle"), (last, "last"), (place, "place"), (steps, "steps")]
            {
                assert_uniform(&counts, &format!("cyclic {length} seed {seed}: {what}"));
            }
        }
    }
}

/// One long cycle: every stretch of it is spread over all records.
#[test]
fn cyclic_stretches_are_uniform() {
    for length in [1_000_000, (1 << 33) + 17, (1 << 63) + 1] {
        let mut s = sampler("cyclic,batch=100000,seed=42", length);
        for step in 0..3 {
            let mut counts = vec![0; 128];
            for index in at(&mut s, step) {
                counts[(u128::from(index) * 128 / u128::from(length)) as usize] += 1;
            }
            if length == 1_000_000 {
                // A tenth of all records without replacement: a little more even than chance, within the bounds still.
                assert!(counts.iter().all(|&n| (600..960).contains(&n)), "{counts:?}");
            }
            assert_uniform(&counts, &format!("cyclic {length} step {step}"));
        }
    }
}
