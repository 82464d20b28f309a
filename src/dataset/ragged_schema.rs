//! Writing the schema of a ragged store: its list of shapes completed in place, written anew, or without the shapes of
//! deleted records. All other keys stay as they are, byte for byte.

use super::write::open_typed;
use crate::error::{Error, Result};
use crate::format::schema::{ShapesAt, decode_shape, encode_shape, encode_shapes_head};
use crate::format::{NEW_SCHEMA_FILE, SCHEMA_FILE};
use crate::storage::{At, Out, StoreFile, read_exact_at, write_all_at};
use crate::store::shapes::{Blocks, Opened, Typed, first_shapes, remove_if_there};
use crate::store::{Writer, moves};
use std::collections::HashMap;
use std::io::IoSlice;

/// What a disk writes wholly or not at all.
const SECTOR: u64 = 512;

/// A ragged schema and where its shapes are.
pub(super) struct RaggedSchema {
    pub(super) typed: Typed,
    pub(super) at: ShapesAt,
}

/// Opens the schema of a ragged store.
pub(super) fn ragged(w: &Writer) -> Result<RaggedSchema> {
    let typed = open_typed(w)?.ok_or_else(|| Error::corrupt(w.path().join(SCHEMA_FILE), 0, "the file is missing"))?;
    let at = typed.shapes.ok_or_else(|| Error::corrupt(&typed.path, 0, "a ragged schema has no shapes"))?;
    Ok(RaggedSchema { typed, at })
}

impl RaggedSchema {
    /// Copies bytes of the file.
    fn copy(&self, from: u64, to: u64, out: &mut Out<'_>) -> Result<()> {
        let path = &self.typed.path;
        let (mut at, mut block) = (from, vec![0; 1 << 16]);
        while at < to {
            let n = block.len().min((to - at) as usize);
            let part = block.get_mut(..n).unwrap_or_default();
            read_exact_at(&*self.typed.file, path, part, at, "the schema")?;
            out.write(part)?;
            at += n as u64;
        }
        Ok(())
    }

    /// Copies the shapes in the schema.
    pub(super) fn copy_shapes(&self, out: &mut Out<'_>) -> Result<()> {
        let end = match self.at.end {
            Some(end) => end,
            None => self.typed.end()?,
        };
        self.copy(self.at.offset, end, out)
    }

    /// Calls `each` with every shape in the schema.
    fn each_shape(&self, mut each: impl FnMut(u64, &[u64]) -> Result<()>) -> Result<()> {
        let path = &self.typed.path;
        let mut input = At::buffered(&*self.typed.file, path, self.at.offset, 1 << 16);
        let mut shape = Vec::new();
        for k in 0..u64::from(self.at.count) {
            decode_shape(&mut input, &mut shape).map_err(|reason| {
                Error::corrupt(path, At::position(&input), format!("shape of record {k}: {reason}"))
            })?;
            each(k, &shape)?;
        }
        Ok(())
    }
}

/// Writes the appended shapes of the first `len` records behind those in the schema, in place where that is possible.
pub(super) fn complete_schema(w: &Writer, schema: &RaggedSchema, appended: &Opened, len: u64) -> Result<()> {
    let count = u32::try_from(len).map_err(|_| Error::Full { path: w.path().to_path_buf() })?;
    let RaggedSchema { typed, at } = schema;
    let end = typed.end()?;
    let add = |out: &mut Out<'_>| copy_blocks(appended, u64::from(at.count), len, out);
    let in_place =
        at.head_in_place(count).filter(|head| at.head / SECTOR == (at.head + head.len() as u64 - 1) / SECTOR);
    let Some(head) = in_place else {
        return write_new_schema(w, schema, count, |out| {
            schema.copy_shapes(out)?;
            add(out)
        })
        .and_then(|()| rename_new_schema(w));
    };
    let file = w.storage().open_rw(&typed.path).map_err(Error::io("open", &typed.path))?;
    let sync = |file: &dyn StoreFile| file.sync().map_err(Error::io("sync", &typed.path));
    let mut out = Out::new(&*file, &typed.path, end);
    add(&mut out)?;
    let end = out.finish()?;
    // An interrupted run may have written more.
    file.set_len(end).map_err(Error::io("cut", &typed.path))?;
    sync(&*file)?;
    // The number comes last: until then the schema is what it was, and the other file counts.
    write_all_at(&*file, &typed.path, &mut [IoSlice::new(&head)], at.head)?;
    sync(&*file)
}

/// Copies the shapes of the records `first..len` from `shapes.zr`.
fn copy_blocks(appended: &Opened, first: u64, len: u64, out: &mut Out<'_>) -> Result<()> {
    let mut blocks = Blocks::new(appended, first);
    let mut at = first;
    while at < len {
        let Some(block) = blocks.next()? else {
            let reason = format!("the shapes of records {at} to {} are missing", len - 1);
            return Err(Error::corrupt(&appended.1, 0, reason));
        };
        let wanted = block.end().min(len) - block.first;
        let shapes =
            first_shapes(&block.shapes, wanted).map_err(|reason| Error::corrupt(&appended.1, block.at, reason))?;
        out.write(shapes)?;
        at = block.first + wanted;
    }
    Ok(())
}

/// Writes the schema anew for `count` shapes, which `shapes` writes: all other keys as they are, the shapes last.
pub(super) fn write_new_schema(
    w: &Writer,
    schema: &RaggedSchema,
    count: u32,
    shapes: impl FnOnce(&mut Out<'_>) -> Result<()>,
) -> Result<()> {
    let (storage, path, at) = (w.storage(), w.path().join(NEW_SCHEMA_FILE), &schema.at);
    remove_if_there(&**storage, &path)?;
    let file = storage.create_new(&path).map_err(Error::io("create", &path))?;
    let mut out = Out::new(&*file, &path, 0);
    schema.copy(0, at.key, &mut out)?;
    if let Some(end) = at.end {
        let size = schema.typed.file.size().map_err(Error::io("stat", &schema.typed.path))?;
        schema.copy(end, size, &mut out)?;
    }
    schema.copy(at.key, at.head, &mut out)?;
    out.write(&encode_shapes_head(count))?;
    shapes(&mut out)?;
    out.finish()?;
    file.sync().map_err(Error::io("sync", &path))?;
    // Its name, before anything counts on it.
    storage.sync_dir(w.path()).map_err(Error::io("sync", w.path()))
}

/// Gives it the schema's name, durably.
pub(super) fn rename_new_schema(w: &Writer) -> Result<()> {
    let (storage, path) = (w.storage(), w.path().join(SCHEMA_FILE));
    storage.rename(&w.path().join(NEW_SCHEMA_FILE), &path).map_err(Error::io("rename the new schema to", &path))?;
    storage.sync_dir(w.path()).map_err(Error::io("sync", w.path()))
}

/// Writes the schema that holds once `doomed`, sorted from high to low, are deleted. All shapes must be in the schema.
pub(super) fn write_schema_without(w: &Writer, doomed: &[u64]) -> Result<()> {
    let schema = ragged(w)?;
    let left = w.len().saturating_sub(doomed.len() as u64);
    let moves: HashMap<u64, u64> = moves(doomed, w.len()).into_iter().collect();
    // The shapes that move are among the last, as many as are deleted.
    let (mut tail, mut ends) = (Vec::new(), Vec::new());
    if !moves.is_empty() {
        schema.each_shape(|k, shape| {
            if k >= left {
                encode_shape(shape, &mut tail);
                ends.push(tail.len());
            }
            Ok(())
        })?;
    }
    let moved = |source: u64| {
        let k = usize::try_from(source.checked_sub(left)?).ok()?;
        let start = k.checked_sub(1).map_or(Some(0), |k| ends.get(k).copied())?;
        tail.get(start..*ends.get(k)?)
    };
    let count = u32::try_from(left).map_err(|_| Error::Full { path: w.path().to_path_buf() })?;
    write_new_schema(w, &schema, count, |out| {
        let mut own = Vec::new();
        schema.each_shape(|k, shape| {
            if k >= left {
                return Ok(());
            }
            match moves.get(&k) {
                Some(&source) => {
                    let lost = || Error::corrupt(&schema.typed.path, 0, format!("no shape of record {source}"));
                    out.write(moved(source).ok_or_else(lost)?)
                }
                None => {
                    own.clear();
                    encode_shape(shape, &mut own);
                    out.write(&own)
                }
            }
        })
    })
}
