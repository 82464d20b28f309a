//! Compact: the live records move down over the bytes of deleted ones, and the files end where they end.
//!
//! There is no journal, for every moment of a compaction is a whole store. It goes in *epochs*: the records next in the
//! order of their places are copied into space that no durable entry refers to, and synced; then their entries are
//! written, each of which lies in one sector, so that it is the old one or the new one, and both are true; only when
//! the entries are synced too do the old places count as free. What a crash leaves is a store with holes, and the next
//! compaction goes on from there.
//!
//! The free space below the next record bounds an epoch. Where it is small, even smaller than the record, some records
//! are first *moved out of the way*, to the end of the store, where they are the last to come down again: one small hole
//! at the start of a large store does not cost a sync a record.

mod copy;
mod select;

use super::Writer;
use super::files::Part;
use crate::error::{Error, Result};
use crate::format::{Header, Layout};
use crate::pack::Progress;
use select::{Move, Placed, chunk_of, offset_of};
use std::io::ErrorKind;

/// What a compaction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compacted {
    /// Records that have another place in the chunks than before. Their indices are what they were.
    pub moved: u64,
    /// Bytes that the chunks reached to before.
    pub before: u64,
    /// Bytes that the chunks reach to now.
    pub after: u64,
}

impl Compacted {
    /// Bytes that were freed.
    pub fn freed(&self) -> u64 {
        self.before.saturating_sub(self.after)
    }
}

/// How much is done at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Bytes of records in an epoch; a single larger record excepted.
    pub(super) epoch: u64,
    /// Records that are looked up together.
    pub(super) select: usize,
    /// Bytes that are copied together.
    pub(super) copy: usize,
}

impl Sizes {
    /// Few syncs, and about 110 MB of memory for a store of any size.
    const USUAL: Sizes = Sizes { epoch: 64 << 20, select: 2 << 20, copy: 8 << 20 };
}

/// With less free space than this share of what there is to move, records are moved out of the way: a compaction of few
/// epochs does without.
const FEW_EPOCHS: u64 = 4;

/// A place in the chunks, where packed records end.
#[derive(Debug, Clone, Copy)]
struct End {
    chunk: u32,
    /// Up to the size of a chunk, which a `u32` need not hold.
    offset: u64,
}

impl End {
    /// Packs `record` behind this; returns its address there.
    fn pack(&mut self, record: &Placed, layout: Layout) -> Option<u64> {
        let stays = (self.chunk, self.offset) == (chunk_of(record.at), offset_of(record.at));
        // A record that is there already stays, also where another writer filled the chunk to its last byte. So none
        // ever has to move up.
        if !stays && self.offset + u64::from(record.phys_length) >= layout.chunk_bytes {
            *self = End { chunk: self.chunk.checked_add(1)?, offset: 0 };
        }
        let at = self.address();
        self.offset += u64::from(record.phys_length);
        Some(at)
    }

    fn address(self) -> u64 {
        (u64::from(self.chunk) << 32).saturating_add(self.offset)
    }

    /// The header's form: where the next record goes.
    fn tail(self, layout: Layout) -> Option<(u32, u32)> {
        if self.offset >= layout.chunk_bytes {
            return Some((self.chunk.checked_add(1)?, 0));
        }
        Some((self.chunk, u32::try_from(self.offset).ok()?))
    }
}

/// Bytes from one address up to another.
fn distance(low: u64, high: u64, layout: Layout) -> u64 {
    let chunks = u64::from(chunk_of(high)).saturating_sub(chunk_of(low).into());
    chunks.saturating_mul(layout.chunk_bytes).saturating_add(offset_of(high)).saturating_sub(offset_of(low))
}

/// What a compaction finds before it moves anything.
struct Survey {
    /// Where the records end that need not move.
    end: End,
    /// The address of the first record that moves, where one does.
    first: Option<u64>,
    /// Bytes of the records from there on.
    bytes: u64,
}

impl Writer {
    /// Moves the records down over the space of deleted ones, in the order of their places, and cuts the files there.
    /// Indices stay. Takes about 110 MB of memory and, at the end of the store, 64 MB of disk (or a single larger record's
    /// size) for a time.
    ///
    /// When this returns, the store survives a power cut. After a crash at any moment in it, the store holds every
    /// record; compact it again to free the rest. The same holds when `progress` stops it.
    ///
    /// # Errors
    /// [`Error::Locked`] if anybody has the store open for reading or mounted, and [`Error::Record`] if a record's entry
    /// is damaged, overlaps another's or points behind its file's end: nothing was moved then. [`Error::Interrupted`]
    /// when it was stopped. [`Error::Io`], after which every further call gives [`Error::Latched`].
    pub fn compact(&mut self, progress: &Progress) -> Result<Compacted> {
        self.compact_with(Sizes::USUAL, progress)
    }

    pub(super) fn compact_with(&mut self, sizes: Sizes, progress: &Progress) -> Result<Compacted> {
        let mut result = Compacted { before: self.reach(), ..Compacted::default() };
        // A compaction that is refused or stopped leaves the writer as good as it was, so it must not latch.
        let mut ended = None;
        self.alone(|w| {
            // No rollback goes past this.
            w.deletions += 1;
            // A writer that was killed while it compacted may have left entries that are not durable yet, whose old
            // places are about to be taken for free.
            let segments = w.header.length.div_ceil(w.layout.segment_entries);
            w.dirty.extend((0..segments).filter_map(|n| u32::try_from(n).ok()).map(Part::Segment));
            w.sync_all()?;
            match w.survey(sizes, progress) {
                Ok(survey) => {
                    let stopped = w.pack(&survey, sizes, progress, &mut result.moved)?;
                    ended = stopped.then_some(Error::Interrupted);
                }
                Err(e @ Error::Io { .. }) => return Err(e),
                Err(e) => ended = Some(e),
            }
            Ok(())
        })?;
        result.after = self.reach();
        ended.map_or(Ok(result), Err)
    }

    /// Bytes that the chunks reach to.
    fn reach(&self) -> u64 {
        u64::from(self.header.tail_chunk) * self.layout.chunk_bytes + u64::from(self.header.tail_offset)
    }

    fn full(&self) -> Error {
        Error::Full { path: self.files.dir().to_path_buf() }
    }

    /// Looks at every record in the order of the places, before one is moved.
    fn survey(&self, sizes: Sizes, progress: &Progress) -> Result<Survey> {
        let mut survey = Survey { end: End { chunk: 0, offset: 0 }, first: None, bytes: 0 };
        let mut last: Option<Placed> = None;
        loop {
            progress.check()?;
            let batch = self.lowest(last.map(|last| (last.at, last.index)), sizes.select)?;
            if batch.is_empty() {
                break;
            }
            for record in &batch {
                if let Some(last) = last {
                    if last.end() > record.at {
                        let reason = format!("the record's bytes overlap those of record {}", last.index);
                        return Err(self.files.entry_error(record.index, self.layout.segment_entries, reason));
                    }
                    if chunk_of(last.at) != chunk_of(record.at) {
                        self.check_reached(&last)?;
                    }
                }
                last = Some(*record);
                if survey.first.is_none() {
                    let mut next = survey.end;
                    if next.pack(record, self.layout).ok_or_else(|| self.full())? == record.at {
                        survey.end = next;
                        continue;
                    }
                    survey.first = Some(record.at);
                }
                survey.bytes += u64::from(record.phys_length);
            }
        }
        if let Some(last) = last {
            self.check_reached(&last)?;
        }
        Ok(survey)
    }

    /// Checks that the chunk's file reaches to the end of its last record.
    fn check_reached(&self, last: &Placed) -> Result<()> {
        let part = Part::Chunk(chunk_of(last.at));
        let path = self.files.path(part);
        let have = self.files.get(part)?.size().map_err(Error::io("stat", &path))?;
        let need = offset_of(last.at) + u64::from(last.phys_length);
        if have < need {
            let reason = format!("the file ends here, but the record reaches to byte {need}");
            return Err(Error::corrupt(path, have, reason).at_record(last.index));
        }
        Ok(())
    }

    /// Moves the records down, and ends the files behind them. Returns whether `progress` stopped it before that.
    fn pack(&mut self, survey: &Survey, sizes: Sizes, progress: &Progress, moved: &mut u64) -> Result<bool> {
        let mut end = survey.end;
        let mut rest_bytes = survey.bytes;
        progress.set_total_bytes(progress.bytes().saturating_add(rest_bytes));
        // Whether there may be disk for records that are moved out of the way.
        let mut room = true;
        let mut from = survey.first;
        while let Some(start) = from {
            // Those that have moved are below, those moved out of the way are the last.
            let batch = self.lowest_from(start, sizes.select)?;
            from = batch.last().map(Placed::end);
            let mut rest = &batch[..];
            while let Some(first) = rest.first() {
                if progress.stopped() {
                    return Ok(true);
                }
                let mut next = end;
                let to = next.pack(first, self.layout).ok_or_else(|| self.full())?;
                let free = distance(to, first.at, self.layout);
                let stuck = free > 0 && next.address() > first.at;
                if stuck || (free > 0 && room && free < sizes.epoch && free < rest_bytes / FEW_EPOCHS) {
                    // Where the disk is nearly full, the one record that is in the way.
                    let bytes = if room { sizes.epoch.min(rest_bytes / FEW_EPOCHS) } else { 0 };
                    let (away, others) = rest.split_at(leading(rest, bytes));
                    match self.copy_up(away, sizes.copy) {
                        Ok((moves, tail)) => {
                            self.set_tail(tail)?;
                            self.write_entries(&moves)?;
                            rest = others;
                        }
                        Err(e) if room && is_no_room(&e) => {
                            log::info!("{}: {e}; compacting in smaller steps", self.files.dir().display());
                            room = false;
                            self.trim()?;
                        }
                        Err(Error::Io { path, source, .. }) => {
                            return Err(Error::Io { op: "move a record out of the way in", path, source });
                        }
                        Err(e) => return Err(e),
                    }
                    continue;
                }
                let (moves, done) = self.epoch(&mut end, rest, sizes.epoch)?;
                let bytes = rest[..done].iter().map(|r| u64::from(r.phys_length)).sum();
                rest = &rest[done..];
                self.copy(&moves, sizes.copy)?;
                self.sync_parts()?;
                self.write_entries(&moves)?;
                *moved += moves.len() as u64;
                rest_bytes = rest_bytes.saturating_sub(bytes);
                progress.add(done as u64, bytes);
            }
        }
        let tail = end.tail(self.layout).ok_or_else(|| self.full())?;
        if tail != (self.header.tail_chunk, self.header.tail_offset) {
            self.set_tail(tail)?;
            self.trim()?;
        }
        Ok(false)
    }

    /// Packs records behind `end` as long as they go to space that is free now, which ends at the first of them.
    /// Returns the moves, and how many records were looked at; those that stay have no move.
    fn epoch(&self, end: &mut End, records: &[Placed], limit: u64) -> Result<(Vec<Move>, usize)> {
        let fence = records.first().map_or(0, |first| first.at);
        let (mut moves, mut bytes, mut done) = (Vec::new(), 0, 0);
        for record in records {
            let mut next = *end;
            let to = next.pack(record, self.layout).ok_or_else(|| self.full())?;
            if to != record.at {
                bytes += u64::from(record.phys_length);
                if next.address() > fence || (bytes > limit && !moves.is_empty()) {
                    break;
                }
                moves.push((*record, to));
            }
            *end = next;
            done += 1;
        }
        Ok((moves, done))
    }

    /// Copies records to the end of the store, durably, where nothing counts on them yet. Returns the moves and the end
    /// behind them.
    fn copy_up(&mut self, records: &[Placed], buffer: usize) -> Result<(Vec<Move>, (u32, u32))> {
        let mut end = End { chunk: self.header.tail_chunk, offset: self.header.tail_offset.into() };
        let mut moves = Vec::with_capacity(records.len());
        for record in records {
            moves.push((*record, end.pack(record, self.layout).ok_or_else(|| self.full())?));
        }
        let tail = end.tail(self.layout).ok_or_else(|| self.full())?;
        self.copy(&moves, buffer)?;
        self.sync_parts()?;
        if tail.0 != self.header.tail_chunk {
            self.files.storage().sync_dir(self.files.dir()).map_err(Error::io("sync", self.files.dir()))?;
        }
        Ok((moves, tail))
    }

    /// Writes the entries of records that were copied, and makes them durable.
    fn write_entries(&mut self, moves: &[Move]) -> Result<()> {
        let mut order: Vec<&Move> = moves.iter().collect();
        order.sort_unstable_by_key(|(record, _)| record.index);
        for run in order.chunk_by(|(one, _), (two, _)| one.index + 1 == two.index) {
            let Some((first, _)) = run.first() else { continue };
            let bytes: Vec<u8> = run.iter().flat_map(|(record, to)| record.entry(*to).encode()).collect();
            self.write_table(first.index, &bytes)?;
        }
        self.sync_parts()
    }

    /// Makes another end of the chunks true, durably. What is bound to the header, as checksums are, has to be bound to
    /// the new one here and nowhere else.
    fn set_tail(&mut self, (tail_chunk, tail_offset): (u32, u32)) -> Result<()> {
        self.header = Header { tail_chunk, tail_offset, ..self.header };
        self.commit()?;
        self.meta.sync().map_err(Error::io("sync", &self.meta_path))
    }
}

/// How many of the first records have `bytes` bytes together, at least one.
fn leading(records: &[Placed], bytes: u64) -> usize {
    let mut sum = 0u64;
    let fits = records.iter().take_while(|record| {
        sum = sum.saturating_add(record.phys_length.into());
        sum <= bytes
    });
    fits.count().max(1).min(records.len())
}

fn is_no_room(error: &Error) -> bool {
    let full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge];
    matches!(error, Error::Io { source, .. } if full.contains(&source.kind()))
}
