//! Times the engine's gathers and appends, and the limits that they are held against, for `benches/peers/native_peers.py`.
//!
//! `gather_time DIR RECORD` finds in DIR `data.bin`, records of RECORD bytes one after the other, `indices.u64`, indices
//! of them, and stores of the same records. It reads lines on standard input, and for each does a turn and prints one
//! number, MiB/s unless said otherwise:
//!
//! - `gather STORE ORDER SECONDS`: batches of the store into one buffer; ORDER is random, sorted, clustered or repeated
//! - `copy ram|pread THREADS SECONDS`: the same records copied out of memory, or read from `data.bin`
//! - `decode STORE THREADS SECONDS`: the same records decoded from frames that are in memory
//! - `check STORE`: the checksum of the first batch
//! - `append CODEC sync|nosync`, `write sync|nosync`, `compress`: the first 64 MiB of `data.bin`, into a store, into a file, and nowhere
//! - `cold STORE SECONDS`: records a second of a store that is not in the page cache, and the bytes read from the disk for
//!   each byte of a record
//! - `threads`: on how many threads a batch is shared out
//!
//! `gather_time sparse PATH RECORDS` makes a store of so many records that takes little space, and `gather_time open PATH`
//! opens it in a process of its own; see [`open`].

#[path = "../../benches/common/mod.rs"]
mod common;

mod append;
mod cold;
mod gather;
mod open;

use gather::Session;
use std::io::BufRead;
use std::time::{Duration, Instant};

/// Whatever went wrong.
type Failure = Box<dyn std::error::Error>;

/// A turn has at least so many batches.
const LEAST: usize = 4;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sparse", path, records] => open::make(path.as_ref(), records.parse()?),
        ["open", path] => open::time(path.as_ref()),
        [dir, record] => serve(Session::new(dir.as_ref(), record.parse()?)?),
        _ => Err("usage: gather_time DIR RECORD | sparse PATH RECORDS | open PATH".into()),
    }
}

fn serve(mut session: Session) -> Result<(), Failure> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["gather", store, order, seconds] => println!("{}", session.gather(store, order, turn(seconds)?)?),
            ["copy", "ram", threads, seconds] => println!("{}", session.copy(threads.parse()?, turn(seconds)?)?),
            ["copy", "pread", threads, seconds] => println!("{}", session.pread(threads.parse()?, turn(seconds)?)?),
            ["decode", store, threads, seconds] => {
                println!("{}", session.decode(store, threads.parse()?, turn(seconds)?)?);
            }
            ["check", store] => println!("{}", session.check(store)?),
            ["append", codec, sync] => println!("{}", append::append(&session, codec.parse()?, sync == "sync")?),
            ["write", sync] => println!("{}", append::write(&session, sync == "sync")?),
            ["compress"] => println!("{}", append::compress(&session)?),
            ["cold", store, seconds] => {
                let (rate, read) = cold::gather(&mut session, store, turn(seconds)?)?;
                println!("{rate} {read}");
            }
            ["threads"] => println!("{}", zrfs::threads()),
            _ => return Err(format!("no such line: {line:?}").into()),
        }
    }
    Ok(())
}

fn turn(seconds: &str) -> Result<Duration, Failure> {
    Ok(Duration::try_from_secs_f64(seconds.parse()?)?)
}

fn mib(bytes: usize, took: Duration) -> f64 {
    bytes as f64 / f64::from(1 << 20) / took.as_secs_f64()
}

/// Does a step for so long, and [`LEAST`] times; MiB/s, where a step is so many bytes.
fn repeat(bytes: usize, limit: Duration, mut step: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let (start, mut steps) = (Instant::now(), 0);
    while start.elapsed() < limit || steps < LEAST {
        step()?;
        steps += 1;
    }
    Ok(mib(bytes * steps, start.elapsed()))
}
