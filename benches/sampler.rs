//! What an index costs, for each mode and for lengths on both sides of what makes a difference: `cargo bench --bench
//! sampler`. Beside other systems: `benches/peers/sampler_peers.py`.
#![allow(missing_docs)] // Of what criterion's macros make.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use zrfs::sampler::Sampler;

const BATCH: u64 = 256;

fn sampler(mode: &str, length: u64) -> Sampler {
    let spec = format!("{mode},batch={BATCH}").parse().expect("a spec");
    Sampler::new(spec, length).expect("a sampler")
}

/// Batches in order.
fn next(c: &mut Criterion) {
    let mut group = c.benchmark_group("next");
    group.throughput(Throughput::Elements(BATCH));
    let mut batch = [0; BATCH as usize];
    for mode in ["sequential", "iid", "iid_counter", "cyclic"] {
        // Usual ones; the last with a table and the first without; the worst for cycle walking; many rejections.
        for length in [1_000_000, 1 << 28, 1 << 32, (1 << 24) + 1, 3 << 62] {
            let mut sampler = sampler(mode, length);
            group.bench_function(BenchmarkId::new(mode, length), |b| {
                b.iter(|| sampler.next(black_box(&mut batch)));
            });
        }
    }
    group.finish();
}

/// Batches at random steps of random cycles.
fn batch_at(c: &mut Criterion) {
    let mut group = c.benchmark_group("batch_at");
    group.throughput(Throughput::Elements(BATCH));
    let mut batch = [0; BATCH as usize];
    for mode in ["sequential", "iid_counter", "cyclic"] {
        let mut sampler = sampler(mode, 1_000_000);
        let mut step = 1_u64;
        group.bench_function(mode, |b| {
            b.iter(|| {
                step = step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                sampler.batch_at(step >> 34, black_box(&mut batch))
            });
        });
    }
    group.finish();
}

/// Replaying `iid`: a new sampler to step 4096.
fn replay(c: &mut Criterion) {
    let mut group = c.benchmark_group("replay");
    group.throughput(Throughput::Elements(4096 * BATCH));
    let new = sampler("iid", 1_000_000);
    group.bench_function("iid", |b| b.iter(|| new.clone().seek(black_box(4096))));
    group.finish();
}

criterion_group!(benches, next, batch_at, replay);
criterion_main!(benches);
