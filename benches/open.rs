//! Opening stores of a thousand and of a hundred million records, the first gather after it, and the memory that this takes.
//! `cargo bench --bench open`.
#![allow(missing_docs)] // Of what criterion's macros make.

mod common;

use common::{BATCH, Batches, Order, SPARSE_RECORD, make_sparse, memory, offsets};
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use zrfs::Store;
use zrfs::buffer::BufferPool;

fn open(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut group = c.benchmark_group("open");
    group.sample_size(20);
    for length in [1_000, 100_000_000] {
        let path = dir.path().join(length.to_string());
        let indices = Batches::new(length).next(Order::Random);
        make_sparse(&path, length, &indices).expect("a sparse store");
        let size = SPARSE_RECORD as usize;
        let mut room = BufferPool::new(1).get(BATCH * size).expect("a buffer");
        room.fill(0);
        let offsets = offsets(size);

        let before = memory().expect("/proc");
        let store = Store::open(&path).expect("a store");
        let opened = memory().expect("/proc");
        common::gather(&store, &indices, &mut room, &offsets);
        let gathered = memory().expect("/proc");
        assert!(room.chunks_exact(size).zip(&indices).all(|(record, index)| record.starts_with(&index.to_le_bytes())));
        drop(store);
        println!(
            "{length} records: KiB resident (of that without a file) {} ({}), opened {} ({}), first gather {} ({})",
            before.0, before.1, opened.0, opened.1, gathered.0, gathered.1
        );

        group.bench_function(BenchmarkId::new("open", length), |b| b.iter(|| Store::open(&path).expect("a store")));
        group.bench_function(BenchmarkId::new("first gather", length), |b| {
            b.iter_batched_ref(
                || Store::open(&path).expect("a store"),
                |store| common::gather(store, &indices, &mut room, &offsets),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, open);
criterion_main!(benches);
