//! After a power cut: how much of what was not synced is there.
//!
//! Everything below the header's durable length was synced. Beyond it the disk may hold any mixture of old and new
//! bytes, so each record there is read and checked, and the store ends before the first that is not whole: a crash
//! truncates, it never shows a wrong byte.

use super::files::{Files, Part};
use super::sums::{Match, Sums, compare, sum_at};
use super::{Writer, shapes};
use crate::codec::Decoder;
use crate::error::{Error, Result};
use crate::format::table::ENTRY_LEN;
use crate::format::{Codec, Entry, Header, Layout};
use crate::pool::pool;
use crate::storage::{read_exact_at, rewrite};

/// Records that are checked together.
const BLOCK: u64 = 1024;

impl Writer {
    /// After a crash: ends the store before the first record that is not whole, and makes the rest durable.
    pub(super) fn recover(&mut self, decoder: &Decoder) -> Result<()> {
        self.guarded(|w| {
            shapes::settle_appended(&w.files)?;
            w.header.length = whole_length(&w.files, &w.header, w.layout, decoder, w.sums.as_ref())?;
            // Before any file is extended, or the holes would pass for raw records in the next recovery.
            w.commit()?;
            w.meta.sync().map_err(Error::io("sync", &w.meta_path))?;
            // The tail stays where it was, for records before the cut may end anywhere below it. Chunks that did not
            // reach the disk, or not up to the tail, come back as holes.
            for chunk in 0..=w.header.tail_chunk {
                w.files.get_or_create(Part::Chunk(chunk))?;
            }
            let tail = Part::Chunk(w.header.tail_chunk);
            let (file, path) = (w.files.get(tail)?, w.files.path(tail));
            let end = u64::from(w.header.tail_offset);
            if file.size().map_err(Error::io("stat", &path))? < end {
                file.set_len(end).map_err(Error::io("extend", &path))?;
            }
            w.rewrite_unsynced()?;
            // Records before the cut were never synced.
            w.dirty.extend((0..=w.header.tail_chunk).map(Part::Chunk));
            let segments = w.header.length.div_ceil(w.layout.segment_entries) as u32;
            w.dirty.extend((0..segments).map(Part::Segment));
            Ok(())
        })?;
        self.sync()
    }

    /// Writes the records that were never synced over themselves; see [`rewrite`].
    fn rewrite_unsynced(&mut self) -> Result<()> {
        let mut at = self.header.durable();
        while at < self.header.length {
            let end = self.header.length.min(at + BLOCK);
            let indices: Vec<u64> = (at..end).collect();
            let entries = self.files.entries(&indices, self.layout.segment_entries)?;
            for entry in &entries {
                let part = Part::Chunk(entry.chunk_id);
                let (file, path) = (self.files.get(part)?, self.files.path(part));
                let from = u64::from(entry.offset);
                rewrite(&*file, &path, from, from + u64::from(entry.phys_length))?;
            }
            let table: Vec<u8> = entries.iter().flat_map(Entry::encode).collect();
            self.write_table(at, &table)?;
            if let Some(sums) = &mut self.sums {
                let same = sums.get(&indices)?;
                sums.put(at, &same)?;
            }
            at = end;
        }
        Ok(())
    }

    /// Cuts off whatever the files hold beyond the header: records of an append that did not come to its end, entries
    /// of records that were deleted or taken back, the zeros of a sparse file. It survives a power cut before anything
    /// is written there again. Otherwise, where a power cut takes the new bytes, the old ones could stand in their
    /// place, and pass for the new record: an old frame is as whole as a new one.
    pub(super) fn trim(&mut self) -> Result<()> {
        // Whoever wrote the header may have been killed before it was durable, and an older one counts on more.
        self.meta.sync().map_err(Error::io("sync", &self.meta_path))?;
        let header = self.header;
        let entries = self.layout.segment_entries;
        let last = header.length.saturating_sub(1);
        let table = (header.length - last / entries * entries) * ENTRY_LEN as u64;
        for part in self.files.parts()? {
            let (number, last, end) = match part {
                Part::Chunk(n) => (n.into(), header.tail_chunk.into(), header.tail_offset.into()),
                Part::Segment(n) => (u64::from(n), last / entries, table),
            };
            if number > last {
                self.files.remove(part)?;
                self.dirty.remove(&part);
            } else if number == last {
                let (file, path) = (self.files.get(part)?, self.files.path(part));
                if file.size().map_err(Error::io("stat", &path))? > end {
                    file.set_len(end).map_err(Error::io("cut", &path))?;
                }
                // Also where it has the right length: a writer may have been killed between the cut and this.
                file.sync().map_err(Error::io("sync", &path))?;
            }
        }
        if let Some(sums) = &mut self.sums {
            sums.cut(header.length)?;
        }
        self.files.storage().sync_dir(self.files.dir()).map_err(Error::io("sync", self.files.dir()))?;
        Ok(())
    }
}

/// The length up to which all records are whole. Those below [`Header::durable`] are taken for it. Raw records are held
/// against their sums, unless another program has changed the store since they were made; then, as in a store without
/// sums, it has to be enough that the files reach so far.
///
/// # Errors
/// [`Error::Io`] if the operating system refuses to read what is there.
pub(super) fn whole_length(
    files: &Files,
    header: &Header,
    layout: Layout,
    decoder: &Decoder,
    sums: Option<&Sums>,
) -> Result<u64> {
    let sums = sums.filter(|sums| sums.trusted());
    let mut at = header.durable();
    let shaped = shapes::shaped_length(files, at)?.min(header.length);
    while at < shaped {
        let end = table_end(files, at, layout)?.min(shaped).min(at + BLOCK);
        let indices: Vec<u64> = (at..end).collect();
        let entries = files.entries(&indices, layout.segment_entries)?;
        let sums = match sums {
            Some(sums) => sums.get(&indices)?.into_iter().map(Some).collect(),
            None => vec![None; indices.len()],
        };
        let records: Vec<(Entry, Option<u32>)> = entries.into_iter().zip(sums).collect();
        let whole = pool().map(&records, |(entry, sum)| is_whole(files, header, layout, decoder, entry, *sum));
        let whole: Vec<bool> = whole.into_iter().collect::<Result<_>>()?;
        let good = whole.iter().take_while(|&&whole| whole).count() as u64;
        at += good;
        if at < end || good == 0 {
            break;
        }
    }
    if at < header.length {
        log::warn!(
            "{}: the last {} of {} records were not synced before a crash and are not whole; the store ends before them",
            files.dir().display(),
            header.length - at,
            header.length
        );
    }
    Ok(at)
}

/// The index at which the table's file for entry `index` ends.
fn table_end(files: &Files, index: u64, layout: Layout) -> Result<u64> {
    let first = index / layout.segment_entries * layout.segment_entries;
    let Ok(segment) = u32::try_from(index / layout.segment_entries) else { return Ok(index) };
    let part = Part::Segment(segment);
    let file = match files.get(part) {
        Ok(file) => file,
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(index),
        Err(e) => return Err(e),
    };
    let size = file.size().map_err(Error::io("stat", files.path(part)))?;
    Ok((first + size / ENTRY_LEN as u64).min(first + layout.segment_entries).max(index))
}

/// Whether the record is there and right; a raw one must have this sum, if one is given. What cannot be read is an error,
/// what is wrong is not.
fn is_whole(
    files: &Files,
    header: &Header,
    layout: Layout,
    decoder: &Decoder,
    entry: &Entry,
    sum: Option<u32>,
) -> Result<bool> {
    if entry.validate(header, layout).is_err() {
        return Ok(false);
    }
    let part = Part::Chunk(entry.chunk_id);
    let wrong = |e: Error| match e {
        Error::Corrupt { .. } => Ok(false),
        Error::Io { ref source, .. } if source.kind() == std::io::ErrorKind::NotFound => Ok(false),
        e => Err(e),
    };
    let file = match files.get(part) {
        Ok(file) => file,
        Err(e) => return wrong(e),
    };
    let path = files.path(part);
    let end = u64::from(entry.offset) + u64::from(entry.phys_length);
    if file.size().map_err(Error::io("stat", &path))? < end {
        return Ok(false);
    }
    if header.codec == Codec::Raw {
        let Some(stored) = sum else { return Ok(true) };
        return match sum_at(&*file, &path, entry.offset.into(), entry.phys_length) {
            Ok(found) => Ok(compare(stored, found) == Match::Yes),
            Err(e) => wrong(e),
        };
    }
    let mut stored = vec![0; entry.phys_length as usize];
    if let Err(e) = read_exact_at(&*file, &path, &mut stored, entry.offset.into(), "the record") {
        return wrong(e);
    }
    let mut record = vec![0; entry.logic_length as usize];
    Ok(decoder.decode(&stored, &mut record).is_ok())
}
