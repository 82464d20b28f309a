//! Times a loader beside the gather that it is made of, for `benches/peers/loader_peers.py`: `loader_time STORE BATCH
//! SECONDS` reads lines on standard input, and for each does a turn and prints its MiB/s and the MiB that were read for it:
//! "gather" gathers batches into one buffer of a pool on all cores, "gather vec" into one `Vec`, and "loader WORKERS
//! PREFETCH" takes them from a loader.

use std::collections::HashMap;
use std::io::BufRead;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zrfs::buffer::{Buffer, BufferPool};
use zrfs::sampler::{Mode, Sampler, Spec};
use zrfs::{Loader, Source};

/// A turn has at least so many batches.
const LEAST: usize = 4;

/// A loader, the batches that it has ready when a turn begins, and its workers.
type Made = (Loader, usize, usize);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [store, batch, seconds] = &args[..] else { return Err("usage: loader_time STORE BATCH SECONDS".into()) };
    let (batch, limit) = (batch.parse()?, Duration::from_secs_f64(seconds.parse()?));
    let source = Arc::new(Source::open(store)?);
    let mut sampler = Sampler::new(Spec::new(Mode::Cyclic, batch), source.len())?;
    let mut loaders: HashMap<String, Made> = HashMap::new();
    let (mut room, mut buffer) = (Vec::new(), None::<Buffer>);
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (mut bytes, mut drained) = (0, 0);
        let (begin, elapsed);
        if line.starts_with("gather") {
            let Source::Store(stream) = &*source else { return Err("gather takes one store".into()) };
            let mut indices = vec![0; batch as usize];
            let record = u64::from(*stream.store().lengths(&[0])?.first().ok_or("an empty store")?);
            let offsets: Vec<u64> = (0..batch).map(|k| k * record).collect();
            let len = (batch * record) as usize;
            let room: &mut [u8] = if line == "gather vec" {
                room.resize(len, 0);
                &mut room
            } else {
                if buffer.as_ref().is_none_or(|buffer| buffer.len() < len) {
                    buffer = Some(BufferPool::new(1).get(len)?);
                }
                buffer.as_mut().ok_or("no buffer")?
            };
            begin = Instant::now();
            while begin.elapsed() < limit || bytes < LEAST * room.len() {
                sampler.next(&mut indices)?;
                stream.store().gather(&indices, room, &offsets)?;
                bytes += std::hint::black_box(&*room).len();
            }
            elapsed = begin.elapsed();
        } else {
            if !loaders.contains_key(&line) {
                let numbers: Vec<usize> = line.split(' ').skip(1).map(str::parse).collect::<Result<_, _>>()?;
                let [workers, prefetch] = numbers[..] else { return Err("loader WORKERS PREFETCH".into()) };
                let builder = Loader::builder().source(source.clone()).batch(batch);
                let loader = builder.workers(workers).prefetch(prefetch).build()?;
                let ready = if workers == 0 { 0 } else { workers + prefetch };
                loaders.insert(line.clone(), (loader, ready, workers));
            }
            let (loader, ready, workers) = &loaders[&line];
            // What is ready was not made in this turn.
            for batch in loader.iter().take(*ready) {
                drained += batch?.bytes() as usize;
            }
            begin = Instant::now();
            let mut batches = 0;
            while begin.elapsed() < limit || batches < LEAST {
                batches += 1;
                let batch = loader.next().ok_or("closed")??;
                bytes += std::hint::black_box(&batch).bytes() as usize;
            }
            elapsed = begin.elapsed();
            // The next turn is not to be disturbed by what is made ahead.
            while *workers > 0 && loader.stats()?.ready < *ready {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
        println!("{} {}", mib(bytes) / elapsed.as_secs_f64(), mib(drained + bytes));
    }
    Ok(())
}
