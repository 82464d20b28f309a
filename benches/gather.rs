//! Batches gathered into a buffer that is used again: by codec and record size, and by the order of the indices. `cargo bench
//! --bench gather`. Beside other systems and the machine's limits: `benches/peers/native_peers.py`.
#![allow(missing_docs)] // Of what criterion's macros make.

mod common;

use common::{BATCH, Batches, Order, SIZES, make, measures, offsets};
use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use zrfs::Store;
use zrfs::buffer::BufferPool;
use zrfs::format::Codec;

fn time(group: &mut BenchmarkGroup<'_, WallTime>, id: BenchmarkId, store: &Store, size: usize, order: Order) {
    let mut room = BufferPool::new(1).get(BATCH * size).expect("a buffer");
    let (mut batches, offsets) = (Batches::new(store.len()), offsets(size));
    // The first gathers find out what is in the page cache, and make the buffer's pages.
    for _ in 0..if measures() { 8 } else { 0 } {
        common::gather(store, &batches.next(order), &mut room, &offsets);
    }
    group.throughput(Throughput::Bytes((BATCH * size) as u64));
    group.bench_function(id, |b| {
        b.iter_batched(
            || batches.next(order),
            |indices| common::gather(store, &indices, &mut room, &offsets),
            BatchSize::SmallInput,
        );
    });
}

fn gather(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    for codec in Codec::ALL {
        let mut group = c.benchmark_group(format!("gather/{codec}"));
        group.sample_size(20);
        // Dictionaries are for small records.
        for size in SIZES.into_iter().filter(|&size| codec != Codec::ZstdDict || size <= 2 << 10) {
            let path = dir.path().join(format!("{codec}{size}"));
            make(&path, codec, size);
            let store = Store::open(&path).expect("a store");
            time(&mut group, BenchmarkId::from_parameter(size), &store, size, Order::Random);
        }
        group.finish();
    }
}

fn order(c: &mut Criterion) {
    const SIZE: usize = 12 << 10;
    let dir = tempfile::tempdir().expect("a directory");
    for codec in [Codec::Raw, Codec::Zstd] {
        let path = dir.path().join(codec.name());
        make(&path, codec, SIZE);
        let store = Store::open(&path).expect("a store");
        let mut group = c.benchmark_group(format!("order/{codec}"));
        group.sample_size(20);
        for order in Order::ALL {
            time(&mut group, BenchmarkId::from_parameter(format!("{order:?}")), &store, SIZE, order);
        }
        group.finish();
    }
}

criterion_group!(benches, gather, order);
criterion_main!(benches);
