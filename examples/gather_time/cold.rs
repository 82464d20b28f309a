//! Gathers of records that have to come from the disk.

use crate::common::{BATCH, offsets};
use crate::gather::Session;
use crate::{Failure, LEAST};
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::time::{Duration, Instant};
use zrfs::Store;
use zrfs::buffer::BufferPool;
use zrfs::sampler::{Mode, Sampler, Spec};

/// Records a second, and the bytes that came from the disk for each byte of a record. Each record is read at most once; a
/// store that is read to its end before the time is over ends the turn.
pub fn gather(session: &mut Session, name: &str, limit: Duration) -> Result<(f64, f64), Failure> {
    let path = session.dir.join(name);
    // What is mapped stays in the page cache.
    session.close(name);
    for entry in fs::read_dir(&path)? {
        let file = File::open(entry?.path())?;
        // Only what is on the disk can be dropped.
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    session.turns += 1;
    let store = Store::open(&path)?;
    let spec = Spec { seed: session.turns, ..Spec::new(Mode::Cyclic, BATCH as u64) };
    let mut sampler = Sampler::new(spec, store.len())?;
    let most = store.len() as usize / BATCH;
    if most == 0 {
        return Err(format!("{name} has no whole batch").into());
    }
    let (mut indices, offsets) = (vec![0; BATCH], offsets(session.record));
    let mut room = BufferPool::new(1).get(BATCH * session.record)?;
    // The pages of the buffer do not count.
    room.fill(0);
    let before = read_bytes()?;
    let (start, mut batches) = (Instant::now(), 0);
    while batches < most.min(LEAST) || (batches < most && start.elapsed() < limit) {
        sampler.next(&mut indices)?;
        store.gather(&indices, &mut room, &offsets)?;
        batches += 1;
    }
    let took = start.elapsed().as_secs_f64();
    let read = (read_bytes()? - before) as f64 / (batches * BATCH * session.record) as f64;
    Ok(((batches * BATCH) as f64 / took, read))
}

/// Bytes that this process had the disk read.
fn read_bytes() -> Result<u64, Failure> {
    let io = fs::read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    Ok(line.ok_or("/proc/self/io has no read_bytes")?.parse()?)
}
