//! The sampler held against loaderx's streams, against its definition written out plainly, and against chance.

mod chance;
mod golden;
mod orders;
mod spec;

use super::*;

/// A sampler of a spec's text.
fn sampler(spec: &str, length: u64) -> Sampler {
    Sampler::new(spec.parse().unwrap(), length).unwrap()
}

/// The next batch.
fn take(sampler: &mut Sampler) -> Vec<u64> {
    let mut out = vec![u64::MAX; sampler.max_batch_len() as usize];
    let n = sampler.next(&mut out).unwrap();
    assert!(out[n..].iter().all(|&i| i == u64::MAX), "only the batch is written");
    out.truncate(n);
    out
}

/// The batch of `step`.
fn at(sampler: &mut Sampler, step: u64) -> Vec<u64> {
    let mut out = vec![0; sampler.batch_len(step) as usize];
    assert_eq!(sampler.batch_at(step, &mut out).unwrap(), out.len());
    out
}
