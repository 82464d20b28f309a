//! `tests/golden/sampler.json`: what loaderx 1.5.2 draws. And literal streams of the mode it does not have.

use super::*;
use serde_json::Value;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn list(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(number).collect()
}

#[test]
fn streams_equal_loaderx() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/sampler.json");
    let streams: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let streams = streams.as_array().unwrap();
    assert_eq!(streams.len(), 30);
    for stream in streams {
        let [length, batch, seed] = ["length", "batch", "seed"].map(|key| number(&stream[key]));
        let mode = stream["mode"].as_str().unwrap();
        let what = format!("{mode} length={length} batch={batch} seed={seed}");
        let mut sampler = sampler(&format!("{mode},batch={batch},seed={seed}"), length);
        for first in stream["first"].as_array().unwrap() {
            assert_eq!(take(&mut sampler), list(first), "{what}");
        }
        for (step, indices) in stream["seek"].as_object().unwrap() {
            let (step, indices) = (step.parse().unwrap(), list(indices));
            let mut found = at(&mut sampler, step);
            found.truncate(16);
            assert_eq!(found, indices, "{what} step {step}");
            sampler.seek(step).unwrap();
            let mut found = take(&mut sampler);
            found.truncate(16);
            assert_eq!(found, indices, "{what} seek {step}");
        }
    }
}

/// Words of numpy's `Philox(key=seed, counter=…)`, turned to indices in Python's own arithmetic.
#[test]
fn iid_counter_equals_numpys_philox() {
    let mut s = sampler("iid_counter,batch=8", 1000);
    assert_eq!(take(&mut s), [653, 298, 914, 885, 820, 189, 867, 394]);
    // From position 2^66 − 4 on, over the end of the counter's first word.
    let mut s = sampler("iid_counter,batch=9223372036854775808", 1000);
    let mut part = [0; 4];
    s.part_at(7, (1 << 63) - 4, &mut part).unwrap();
    assert_eq!(part, [376, 990, 0, 164]);
    s.part_at(8, 0, &mut part).unwrap();
    assert_eq!(part, [78, 859, 666, 343]);
    // A quarter of the words is rejected; the sixth index takes three attempts.
    let mut s = sampler("iid_counter,batch=8,seed=5", 3 << 62);
    let want = [
        13163943035642785928,
        4752973804352451897,
        8279326733582390745,
        2739543524464896958,
        10151417891405023596,
        12507113580940042578,
        2875048758466441082,
        6133954119524894398,
    ];
    assert_eq!(take(&mut s), want);
    let (batch, seed) = (u64::MAX, u64::MAX);
    let mut s = sampler(&format!("iid_counter,batch={batch},seed={seed}"), u64::MAX);
    s.part_at(7, 0, &mut part).unwrap();
    assert_eq!(part, [16451130816833426512, 17227446562079856499, 17693004464526840211, 15679188150802012331]);
}
