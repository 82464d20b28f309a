//! Times one sampler for `benches/peers/sampler_peers.py`: `sample_time SPEC LENGTH ROUNDS` reads lines on standard input,
//! and for each draws ROUNDS batches and prints the nanoseconds an index took and the last index, so that peers can take
//! turns.

use std::io::BufRead;
use std::time::Instant;
use zrfs::sampler::Sampler;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [spec, length, rounds] = &args[..] else { return Err("usage: sample_time SPEC LENGTH ROUNDS".into()) };
    let mut sampler = Sampler::new(spec.parse()?, length.parse()?)?;
    let rounds: u64 = rounds.parse()?;
    let mut batch = vec![0; usize::try_from(sampler.max_batch_len())?];
    for line in std::io::stdin().lock().lines() {
        line?;
        let (start, mut drawn) = (Instant::now(), 0);
        for _ in 0..rounds {
            drawn += sampler.next(std::hint::black_box(&mut batch))?;
        }
        let nanoseconds = start.elapsed().as_nanos() as f64 / drawn as f64;
        println!("{nanoseconds} {}", batch.last().copied().unwrap_or_default());
    }
    Ok(())
}
