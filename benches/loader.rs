//! What a batch from a loader costs a loop that does nothing else: by codec and record size, beside the gather that it is
//! made of. `cargo bench --bench loader`. Beside other systems: `benches/peers/loader_peers.py`.
#![allow(missing_docs)] // Of what criterion's macros make.

mod common;

use common::{BATCH, Batches, Order, make, offsets};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::sync::Arc;
use zrfs::buffer::BufferPool;
use zrfs::format::Codec;
use zrfs::{Loader, Source, Store};

fn loader(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    for codec in [Codec::Raw, Codec::Zstd] {
        let mut group = c.benchmark_group(format!("loader/{codec}"));
        group.sample_size(20);
        for size in common::SIZES {
            let path = dir.path().join(format!("{codec}{size}"));
            make(&path, codec, size);
            group.throughput(Throughput::Bytes((BATCH * size) as u64));

            let store = Store::open(&path).expect("a store");
            let (mut batches, offsets) = (Batches::new(store.len()), offsets(size));
            let mut room = BufferPool::new(1).get(BATCH * size).expect("a buffer");
            group.bench_function(BenchmarkId::new("gather", size), |b| {
                b.iter_batched(
                    || batches.next(Order::Random),
                    |indices| common::gather(&store, &indices, &mut room, &offsets),
                    BatchSize::SmallInput,
                );
            });

            let source = Arc::new(Source::open(&path).expect("a store"));
            // A batch has as many records as there are, where there are fewer.
            let loader = Loader::builder().source(source).batch(BATCH as u64).build().expect("a loader");
            group.bench_function(BenchmarkId::new("loader", size), |b| {
                b.iter(|| loader.next().expect("an endless loader").expect("a batch").bytes());
            });
        }
        group.finish();
    }
}

criterion_group!(benches, loader);
criterion_main!(benches);
