//! Delete: the last records move into the holes, so that every index below the length stays a record.

use super::Writer;
use super::files::{Files, Part};
use super::shapes::adopt_new_schema;
use crate::error::{Error, Result};
use crate::format::header::Note;
use crate::format::journal::{Journal, MOVE_LEN, Moved};
use crate::format::sums::NO_SUM;
use crate::format::table::ENTRY_LEN;
use crate::format::{DELETE_FILE, Header};
use crate::storage::{StoreFile, read_exact_at, write_all_at};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::Path;

/// Moves in one journal; larger deletions are done in several.
pub(super) const MAX_MOVES: usize = 4 << 20;
/// A journal has at most so many bytes.
const MAX_JOURNAL: u64 = (MAX_MOVES * MOVE_LEN + 256) as u64;

impl Writer {
    /// Deletes the records `indices`, in any order; repeats count once. The store's last records take the freed
    /// indices, in the way that deleting one record after the other, from the highest index down, would give. The
    /// records' bytes stay in the chunks until the store is compacted.
    ///
    /// When this returns, the deletion survives a power cut, and so does everything appended before. A crash leaves it
    /// undone or done, never half.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if one of the indices is, and [`Error::Locked`] if anybody has the store open for reading
    /// or mounted: nothing is changed then. [`Error::Invalid`] if the store is ragged
    /// ([`RaggedWriter`](crate::dataset::RaggedWriter) moves the shapes too). [`Error::Io`], after which every further
    /// call gives [`Error::Latched`].
    pub fn delete(&mut self, indices: &[u64]) -> Result<()> {
        self.refuse_ragged()?;
        self.delete_with(indices, Others::KeptOut, |_, _| Ok(()))
    }

    /// The same, calling `prepare` before each journal with what it deletes, from the highest to the lowest index. What
    /// `prepare` writes beside the store takes effect with the journal.
    pub(crate) fn delete_with(
        &mut self,
        indices: &[u64],
        others: Others,
        mut prepare: impl FnMut(&mut Self, &[u64]) -> Result<()>,
    ) -> Result<()> {
        let doomed = doomed(indices, self.len())?;
        let step = |w: &mut Self| {
            w.deletions += 1;
            w.sync_all()?;
            for part in doomed.chunks(w.journal_moves) {
                prepare(w, part)?;
                let journal = w.plan(part)?;
                w.write_journal(&journal)?;
                w.apply(&journal)?;
            }
            Ok(())
        };
        match others {
            Others::KeptOut => self.alone(step),
            Others::DoNotSee => self.guarded(step),
        }
    }

    /// What deleting `doomed`, sorted from high to low, changes.
    fn plan(&self, doomed: &[u64]) -> Result<Journal> {
        let length = self.header.length - doomed.len() as u64;
        let moves = moves(doomed, self.header.length);
        let sources: Vec<u64> = moves.iter().map(|&(_, source)| source).collect();
        let entries = self.files.entries(&sources, self.layout.segment_entries)?;
        let sums = self.sums.as_ref().map_or_else(|| Ok(vec![NO_SUM; sources.len()]), |sums| sums.get(&sources))?;
        let moved = entries.into_iter().zip(sums).map(|(entry, sum)| Moved { entry, sum });
        let after = Header { length, note: Note::Synced(length), ..self.header };
        let moves = moves.iter().zip(moved).map(|(&(index, _), moved)| (index, moved)).collect();
        Ok(Journal { before: self.header, after, moves })
    }

    fn write_journal(&self, journal: &Journal) -> Result<()> {
        let path = self.files.dir().join(DELETE_FILE);
        let file = self.files.storage().create_new(&path).map_err(Error::io("create", &path))?;
        self.settle_journal(journal, &*file, &path)
    }

    /// Writes the journal and makes it durable, before anything is changed on its word.
    fn settle_journal(&self, journal: &Journal, file: &dyn StoreFile, path: &Path) -> Result<()> {
        write_all_at(file, path, &mut [IoSlice::new(&journal.encode())], 0)?;
        file.sync().map_err(Error::io("sync", path))?;
        self.files.storage().sync_dir(self.files.dir()).map_err(Error::io("sync", self.files.dir()))
    }

    /// Does what the journal says, and removes it. Doing it again changes nothing, so a crash anywhere in here is
    /// mended by another run.
    fn apply(&mut self, journal: &Journal) -> Result<()> {
        // Their files are not all kept open: there may be more than a process can have.
        let mut segments: Vec<Part> = Vec::new();
        for (index, Moved { entry, sum }) in &journal.moves {
            if let Some(sums) = &mut self.sums {
                sums.put(*index, &[*sum])?;
            }
            let (segment, at) = (index / self.layout.segment_entries, index % self.layout.segment_entries);
            let full = |_| Error::Full { path: self.files.dir().to_path_buf() };
            let part = Part::Segment(u32::try_from(segment).map_err(full)?);
            if segments.last() != Some(&part) {
                segments.push(part);
            }
            let (file, path) = (self.files.get(part)?, self.files.path(part));
            write_all_at(&*file, &path, &mut [IoSlice::new(&entry.encode())], at * ENTRY_LEN as u64)?;
        }
        for &part in &segments {
            self.files.get(part)?.sync().map_err(Error::io("sync", self.files.path(part)))?;
        }
        if let Some(sums) = &mut self.sums {
            sums.sync()?;
        }
        self.header = journal.after;
        self.commit()?;
        self.meta.sync().map_err(Error::io("sync", &self.meta_path))?;
        self.trim()?;
        adopt_new_schema(&self.files)?;
        self.remove_journal()
    }

    fn remove_journal(&self) -> Result<()> {
        let path = self.files.dir().join(DELETE_FILE);
        self.files.storage().remove(&path).map_err(Error::io("remove", &path))?;
        self.files.storage().sync_dir(self.files.dir()).map_err(Error::io("sync", self.files.dir()))
    }

    /// Finishes a deletion that a crash interrupted.
    pub(super) fn finish_delete(&mut self) -> Result<()> {
        match read_journal(&self.files)? {
            Found::Nothing => Ok(()),
            Found::Journal(journal) if is_pending(&journal, &self.header) => {
                log::warn!("{}: finishing a deletion that was interrupted", self.files.dir().display());
                // Whoever wrote it may have been killed before it was durable, or seen its sync fail: then the next
                // sync would pass over pages that the kernel takes for clean.
                let path = self.files.dir().join(DELETE_FILE);
                let file = self.files.storage().open_rw(&path).map_err(Error::io("open", &path))?;
                self.settle_journal(&journal, &*file, &path)?;
                self.apply(&journal)
            }
            // Not whole, so nothing was changed yet; or of another store, or loaderx has changed the store since.
            Found::Journal(_) | Found::Broken => self.remove_journal(),
        }
    }
}

/// Who else may have the store open during a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    /// Nobody: records change their indices.
    KeptOut,
    /// Readers who read as if it were done already.
    DoNotSee,
}

/// The records to delete from a store of `length`: from the highest to the lowest index, each once.
///
/// # Errors
/// [`Error::OutOfRange`].
pub(crate) fn doomed(indices: &[u64], length: u64) -> Result<Vec<u64>> {
    if let Some(&index) = indices.iter().find(|&&i| i >= length) {
        return Err(Error::OutOfRange { index, length });
    }
    let mut doomed = indices.to_vec();
    doomed.sort_unstable_by(|a, b| b.cmp(a));
    doomed.dedup();
    Ok(doomed)
}

/// What deleting `doomed`, sorted from high to low, moves: each hole, in the order of their indices, and the index of the
/// record that comes there. The records that move are among the last, as many as are deleted.
pub(crate) fn moves(doomed: &[u64], length: u64) -> Vec<(u64, u64)> {
    let left = length.saturating_sub(doomed.len() as u64);
    // Always the rest of the table from `left` on.
    let mut tail: Vec<u64> = (left..length).collect();
    let mut moves = BTreeMap::new();
    for &index in doomed {
        let Some(moved) = tail.pop() else { break };
        let place = index.checked_sub(left).and_then(|k| tail.get_mut(k as usize));
        match place {
            Some(place) => *place = moved,
            // The hole is the last record itself.
            None if index >= left => {}
            None => {
                moves.insert(index, moved);
            }
        }
    }
    moves.into_iter().collect()
}

/// What stands at a store's `delete.zr`.
pub(super) enum Found {
    /// No file.
    Nothing,
    /// A file whose writing was interrupted.
    Broken,
    /// A deletion.
    Journal(Journal),
}

/// Reads the journal of an interrupted deletion, where there is one.
pub(super) fn read_journal(files: &Files) -> Result<Found> {
    let path = files.dir().join(DELETE_FILE);
    let file = match files.storage().open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(e) => return Err(Error::io("open", &path)(e)),
    };
    let size = file.size().map_err(Error::io("stat", &path))?;
    if size > MAX_JOURNAL {
        return Ok(Found::Broken);
    }
    let mut bytes = vec![0; size as usize];
    read_exact_at(&*file, &path, &mut bytes, 0, "the journal")?;
    Ok(Journal::decode(&bytes).map_or(Found::Broken, Found::Journal))
}

/// Whether the deletion belongs to the store as it is: begun from its header, or done but for the journal's removal.
pub(super) fn is_pending(journal: &Journal, header: &Header) -> bool {
    *header == journal.before || *header == journal.after
}
