//! Batches appended, without a sync: by codec and record size. `cargo bench --bench append`. Beside plain writes, compressing
//! in memory and other systems: `benches/peers/native_peers.py`.
#![allow(missing_docs)] // Of what criterion's macros make.

mod common;

use common::{BATCH, SIZES, options, records};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::time::{Duration, Instant};
use zrfs::format::Codec;

/// A store is begun anew when it has so many bytes of records, so that a long run does not fill the disk.
const ENOUGH: usize = 1 << 30;

fn append(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    for codec in Codec::ALL {
        let mut group = c.benchmark_group(format!("append/{codec}"));
        group.sample_size(10);
        // Dictionaries are for small records.
        for size in SIZES.into_iter().filter(|&size| codec != Codec::ZstdDict || size <= 2 << 10) {
            let data = records(codec, size);
            let options = options(codec, &data, size);
            let all: Vec<&[u8]> = data.chunks_exact(size).collect();
            let mut batches = all.iter().copied().cycle();
            group.throughput(Throughput::Bytes((BATCH * size) as u64));
            group.bench_function(BenchmarkId::from_parameter(size), |b| {
                b.iter_custom(|times| {
                    let (mut took, mut left) = (Duration::ZERO, times as usize);
                    while left > 0 {
                        let mut writer = options.clone().create(&path).expect("a new store");
                        for _ in 0..left.min(ENOUGH / (BATCH * size)) {
                            let batch: Vec<&[u8]> = batches.by_ref().take(BATCH).collect();
                            let start = Instant::now();
                            writer.append(&batch).expect("an append");
                            took += start.elapsed();
                            left -= 1;
                        }
                        drop(writer);
                        std::fs::remove_dir_all(&path).expect("the store removed");
                    }
                    took
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, append);
criterion_main!(benches);
