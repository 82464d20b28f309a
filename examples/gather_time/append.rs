//! Appends, and what they are held against: plain writes of the same bytes to the same disk, and compressing in memory.

use crate::gather::Session;
use crate::{Failure, mib};
use rayon::prelude::*;
use std::fs::{self, File};
use std::io::Write;
use std::time::Instant;
use zrfs::WriterOptions;
use zrfs::codec::{Encoder, default_level};
use zrfs::format::Codec;

/// Bytes of a call: what `zrfs pack` appends at a time, and what plain programs write at a time.
const APPEND: usize = 16 << 20;
const WRITE: usize = 4 << 20;
/// Bytes that a thread compresses at a time.
const SHARE: usize = 256 << 10;
/// Bytes of a turn, as in `benches/peers/native/contender.py`.
const MOST: usize = 64 << 20;

/// The first records.
fn some(session: &Session) -> &[u8] {
    let len = session.data.len().min(MOST.next_multiple_of(session.record));
    &session.data[..len / session.record * session.record]
}

/// Appends records to a new store; the store is made before, and removed after the time is taken.
pub fn append(session: &Session, codec: Codec, sync: bool) -> Result<f64, Failure> {
    let path = session.dir.join("append.zr");
    let data = some(session);
    let records: Vec<&[u8]> = data.chunks_exact(session.record).collect();
    let mut writer = WriterOptions::new(codec).create(&path)?;
    let start = Instant::now();
    for call in records.chunks((APPEND / session.record).max(1)) {
        writer.append(call)?;
    }
    if sync {
        writer.sync()?;
    }
    let took = start.elapsed();
    drop(writer);
    fs::remove_dir_all(&path)?;
    Ok(mib(data.len(), took))
}

/// Writes records to a new file.
pub fn write(session: &Session, sync: bool) -> Result<f64, Failure> {
    let path = session.dir.join("write.bin");
    let mut file = File::create(&path)?;
    let data = some(session);
    let start = Instant::now();
    for call in data.chunks(WRITE) {
        file.write_all(call)?;
    }
    if sync {
        file.sync_data()?;
    }
    let took = start.elapsed();
    fs::remove_file(&path)?;
    Ok(mib(data.len(), took))
}

/// Compresses records on all cores, each thread into a buffer of its own that it uses again.
pub fn compress(session: &Session) -> Result<f64, Failure> {
    let encoder = Encoder::new(Codec::Zstd, default_level(Codec::Zstd), None)?;
    let data = some(session);
    let records: Vec<&[u8]> = data.chunks_exact(session.record).collect();
    let start = Instant::now();
    records.par_chunks((SHARE / session.record).max(1)).try_for_each_init(Vec::new, |out, share| {
        out.clear();
        encoder.encode(share, out, |_| {})
    })?;
    Ok(mib(data.len(), start.elapsed()))
}
