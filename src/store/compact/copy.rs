//! Copying records within the chunks, in few large reads and writes.

use super::select::{Move, chunk_of, offset_of};
use crate::error::Result;
use crate::storage::{read_exact_at, write_all_at};
use crate::store::Writer;
use crate::store::files::Part;
use std::io::IoSlice;

/// Bytes on their way, which go to consecutive places of one chunk.
struct Outgoing {
    bytes: Vec<u8>,
    /// How many of `bytes` there are.
    len: usize,
    /// The address of the first.
    to: u64,
}

impl Writer {
    /// Copies each of `moves` to its address, by way of at most `buffer` bytes of memory. The moves are in the order of
    /// both their places, and no place that one is copied to has bytes of another.
    pub(super) fn copy(&mut self, moves: &[Move], buffer: usize) -> Result<()> {
        let total: u64 = moves.iter().map(|(record, _)| u64::from(record.phys_length)).sum();
        let room = usize::try_from(total).unwrap_or(usize::MAX).min(buffer);
        let mut out = Outgoing { bytes: vec![0; room], len: 0, to: 0 };
        // Neighbours that stay neighbours are read together. The address behind a chunk's last byte is that of the next
        // chunk's first, so the chunks are compared too.
        let together = |(one, to): &Move, (two, then): &Move| {
            one.end() == two.at
                && to + u64::from(one.phys_length) == *then
                && chunk_of(one.at) == chunk_of(two.at)
                && chunk_of(*to) == chunk_of(*then)
        };
        for run in moves.chunk_by(together) {
            let Some((first, to)) = run.first() else { continue };
            let length: u64 = run.iter().map(|(record, _)| u64::from(record.phys_length)).sum();
            let part = Part::Chunk(chunk_of(first.at));
            let (file, path) = (self.files.get(part)?, self.files.path(part));
            let mut done = 0;
            while done < length {
                let follows = out.to + out.len as u64 == to + done && chunk_of(out.to) == chunk_of(*to);
                if out.len == out.bytes.len() || !follows {
                    self.flush(&mut out)?;
                }
                if out.len == 0 {
                    out.to = to + done;
                }
                let free = &mut out.bytes[out.len..];
                let n = free.len().min(usize::try_from(length - done).unwrap_or(usize::MAX));
                read_exact_at(&*file, &path, &mut free[..n], offset_of(first.at) + done, "the record")?;
                out.len += n;
                done += n as u64;
            }
        }
        self.flush(&mut out)
    }

    fn flush(&mut self, out: &mut Outgoing) -> Result<()> {
        if out.len == 0 {
            return Ok(());
        }
        let part = Part::Chunk(chunk_of(out.to));
        let file = self.files.get_or_create(part)?;
        self.dirty.insert(part);
        let mut bytes = [IoSlice::new(&out.bytes[..out.len])];
        write_all_at(&*file, &self.files.path(part), &mut bytes, offset_of(out.to))?;
        out.len = 0;
        Ok(())
    }
}
