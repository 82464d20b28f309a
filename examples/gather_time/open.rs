//! Opening a store of very many records.

use crate::Failure;
use crate::common::{BATCH, Batches, Order, SPARSE_RECORD, make_sparse, memory, offsets};
use std::path::Path;
use std::time::Instant;
use zrfs::Store;
use zrfs::buffer::BufferPool;

/// So many batches are gathered from it.
const GATHERS: usize = 64;

/// Makes a store that has only the records that [`time`] reads.
pub fn make(path: &Path, records: u64) -> Result<(), Failure> {
    let mut batches = Batches::new(records);
    let touched: Vec<u64> = (0..GATHERS).flat_map(|_| batches.next(Order::Random)).collect();
    Ok(make_sparse(path, records, &touched)?)
}

/// Opens the store and gathers from it; prints milliseconds of the opening and the first gather, and then pairs of KiB,
/// resident and that without a file behind it: before, once it is open, after the first gather, and after [`GATHERS`].
pub fn time(path: &Path) -> Result<(), Failure> {
    let size = SPARSE_RECORD as usize;
    let mut room = BufferPool::new(1).get(BATCH * size)?;
    room.fill(0);
    let offsets = offsets(size);
    let mut held = vec![memory()?];

    let start = Instant::now();
    let store = Store::open(path)?;
    let opened = start.elapsed();
    held.push(memory()?);
    let mut batches = Batches::new(store.len());
    let mut first = None;
    for _ in 0..GATHERS {
        let indices = batches.next(Order::Random);
        let start = Instant::now();
        store.gather(&indices, &mut room, &offsets)?;
        let took = start.elapsed();
        if !room.chunks_exact(size).zip(&indices).all(|(record, index)| record.starts_with(&index.to_le_bytes())) {
            return Err("a record holds something else than was written".into());
        }
        if first.is_none() {
            first = Some(took);
            held.push(memory()?);
        }
    }
    held.push(memory()?);
    let first = first.unwrap_or_default();
    print!("{} {}", opened.as_secs_f64() * 1000.0, first.as_secs_f64() * 1000.0);
    held.iter().for_each(|(resident, anonymous)| print!(" {resident} {anonymous}"));
    println!();
    Ok(())
}
