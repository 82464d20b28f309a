//! A store's schema, and where the shapes of a ragged one's records stand: in `schema.msgpack`, and those that were
//! appended since it was written in `shapes.zr`. While a deletion is under way that brings a schema of its own
//! (`schema.new`), that one holds.

use super::files::Files;
use crate::error::{Error, Result};
use crate::format::schema::{ShapesAt, decode_shape};
use crate::format::shapes::{BLOCK_HEAD_LEN, Base, BlockHead, HEAD_LEN, TAIL};
use crate::format::{Kind, NEW_SCHEMA_FILE, SCHEMA_FILE, SHAPES_FILE, Schema};
use crate::storage::{At, Storage, StoreFile, read_at_most, rewrite};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that was opened, with its path.
pub(crate) type Opened = (Arc<dyn StoreFile>, PathBuf);

/// Opens a file that may be missing.
pub(crate) fn open_if_there(storage: &dyn Storage, path: PathBuf) -> Result<Option<Opened>> {
    match storage.open(&path) {
        Ok(file) => Ok(Some((file, path))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("open", path)(e)),
    }
}

/// Removes a file, durably; one that is not there is gone already.
pub(crate) fn remove_if_there(storage: &dyn Storage, path: &Path) -> Result<()> {
    match storage.remove(path) {
        Ok(()) => {
            let dir = path.parent().unwrap_or(Path::new("."));
            storage.sync_dir(dir).map_err(Error::io("sync", dir))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::io("remove", path)(e)),
    }
}

/// A store's schema, read up to its shapes, and the files that have those.
#[derive(Debug, Clone)]
pub(crate) struct Typed {
    pub(crate) schema: Schema,
    pub(crate) file: Arc<dyn StoreFile>,
    pub(crate) path: PathBuf,
    /// Where a ragged store's shapes are in the schema.
    pub(crate) shapes: Option<ShapesAt>,
    /// The file with the shapes after those, as far as it counts.
    pub(crate) appended: Option<(Opened, Base)>,
}

impl Typed {
    /// Opens the schema of the store in `dir`, if it has one. `deleted` says that a deletion is pending in the store,
    /// which is read as if it were done.
    pub(crate) fn open(storage: &dyn Storage, dir: &Path, deleted: bool) -> Result<Option<Typed>> {
        // The schema that a writer completes from the other file is written before that one is removed: looked at in
        // this order, one of them has each shape.
        let appended = open_if_there(storage, dir.join(SHAPES_FILE))?;
        let new = if deleted { open_if_there(storage, dir.join(NEW_SCHEMA_FILE))? } else { None };
        let appended = if new.is_some() { None } else { appended };
        let Some((file, path)) = (match new {
            Some(new) => Some(new),
            None => open_if_there(storage, dir.join(SCHEMA_FILE))?,
        }) else {
            return Ok(None);
        };
        let decoded = Schema::decode(At::buffered(&*file, &path, 0, 4096));
        let (schema, shapes) = decoded.map_err(|(offset, reason)| Error::corrupt(&path, offset, reason))?;
        let shapes = shapes.filter(|_| schema.kind == Kind::Ragged);
        let mut typed = Typed { schema, file, path, shapes, appended: None };
        if let (Some(opened), Some(at)) = (appended, typed.shapes)
            && let Some(base) = read_base(&opened)?
            && base.count == u64::from(at.count)
            && base == typed.base(&at, base.end)?
        {
            typed.appended = Some((opened, base));
        }
        Ok(Some(typed))
    }

    /// What tells this schema from others, when its shapes `at` end at `end`.
    pub(crate) fn base(&self, at: &ShapesAt, end: u64) -> Result<Base> {
        let start_crc = self.crc(0, at.head)?;
        let tail_crc = self.crc(end.saturating_sub(TAIL).max(at.offset), end)?;
        Ok(Base { end, count: u64::from(at.count), start_crc, tail_crc })
    }

    fn crc(&self, from: u64, to: u64) -> Result<u32> {
        let mut input = At::buffered(&*self.file, &self.path, from, 4096).take(to.saturating_sub(from));
        let (mut hasher, mut block) = (crc32fast::Hasher::new(), [0; 4096]);
        loop {
            match input.read(&mut block).map_err(Error::io("read", &self.path))? {
                0 => return Ok(hasher.finalize()),
                n => hasher.update(block.get(..n).unwrap_or_default()),
            }
        }
    }

    /// Where the shapes in the schema end. They must stand last.
    pub(crate) fn end(&self) -> Result<u64> {
        match &self.appended {
            Some((_, base)) => Ok(base.end),
            None => self.file.size().map_err(Error::io("stat", &self.path)),
        }
    }

    /// How many records have a shape; `None` if the store is not ragged. Reads the file of the appended ones.
    pub(crate) fn count(&self) -> Result<Option<u64>> {
        let Some(at) = self.shapes else { return Ok(None) };
        let mut count = u64::from(at.count);
        if let Some((opened, base)) = &self.appended {
            let mut blocks = Blocks::new(opened, base.count);
            while let Some(block) = blocks.next()? {
                count = block.end();
            }
        }
        Ok(Some(count))
    }
}

/// The head of `shapes.zr`; `None` if it is not whole.
fn read_base((file, path): &Opened) -> Result<Option<Base>> {
    let mut head = [0; HEAD_LEN];
    let n = read_at_most(&**file, path, &mut head, 0)?;
    Ok(if n == HEAD_LEN { Base::decode(&head) } else { None })
}

/// A block of `shapes.zr`.
#[derive(Debug)]
pub(crate) struct Block {
    /// Where in the file it begins.
    pub(crate) at: u64,
    /// The record that the first shape is of.
    pub(crate) first: u64,
    /// The number of shapes.
    pub(crate) count: u32,
    /// The shapes, encoded.
    pub(crate) shapes: Vec<u8>,
}

impl Block {
    /// The index after the last record.
    pub(crate) fn end(&self) -> u64 {
        self.first.saturating_add(u64::from(self.count))
    }

    /// Where in the file the next block begins.
    pub(crate) fn after(&self) -> u64 {
        self.at.saturating_add((BLOCK_HEAD_LEN + self.shapes.len()) as u64)
    }
}

/// Reads the blocks of `shapes.zr` up to the first that is not whole.
pub(crate) struct Blocks<'a> {
    input: std::io::BufReader<At<'a>>,
    path: &'a Path,
    next: u64,
}

impl<'a> Blocks<'a> {
    /// From the first block on, which has the shape of record `first`.
    pub(crate) fn new((file, path): &'a Opened, first: u64) -> Self {
        Self::from((&**file, path), HEAD_LEN as u64, first, 1 << 16)
    }

    /// From the block at byte `at` on, which has the shape of record `first`.
    pub(crate) fn from((file, path): (&'a dyn StoreFile, &'a Path), at: u64, first: u64, buffer: usize) -> Self {
        Blocks { input: At::buffered(file, path, at, buffer), path, next: first }
    }

    /// The next block.
    pub(crate) fn next(&mut self) -> Result<Option<Block>> {
        let at = At::position(&self.input);
        let mut head = [0; BLOCK_HEAD_LEN];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let Some(head) = BlockHead::decode(&head).filter(|head| head.first == self.next) else { return Ok(None) };
        let mut shapes = vec![0; head.bytes as usize];
        if !self.fill(&mut shapes)? || !head.holds(&shapes) {
            return Ok(None);
        }
        let block = Block { at, first: head.first, count: head.count, shapes };
        self.next = block.end();
        Ok(Some(block))
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<bool> {
        match self.input.read_exact(buf) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(e) => Err(Error::io("read", self.path)(e)),
        }
    }
}

/// The bytes of the first `count` of the encoded `shapes`.
pub(crate) fn first_shapes(shapes: &[u8], count: u64) -> Result<&[u8], String> {
    let (mut rest, mut shape) = (shapes, Vec::new());
    for _ in 0..count {
        decode_shape(&mut rest, &mut shape)?;
    }
    Ok(shapes.get(..shapes.len() - rest.len()).unwrap_or_default())
}

/// Up to which length the records of a store, synced at length `durable`, have a shape each, as far as that limits it.
/// After a power cut a record that is whole may have lost its shape.
pub(super) fn shaped_length(files: &Files, durable: u64) -> Result<u64> {
    let typed = match Typed::open(&**files.storage(), files.dir(), false) {
        Ok(Some(typed)) => typed,
        // What is wrong with the schema is told to whom opens it.
        Ok(None) | Err(Error::Corrupt { .. }) => return Ok(u64::MAX),
        Err(e) => return Err(e),
    };
    match typed.count()? {
        // Another program has written the schema since: no record is given up for what it left out.
        Some(count) if typed.appended.is_none() && count != durable => Ok(u64::MAX),
        Some(count) => Ok(count),
        None => Ok(u64::MAX),
    }
}

/// Makes the shapes that an interrupted writer appended durable, before the header promises their records.
pub(super) fn settle_appended(files: &Files) -> Result<()> {
    let path = files.dir().join(SHAPES_FILE);
    match files.storage().open_rw(&path) {
        Ok(file) => {
            rewrite(&*file, &path, 0, u64::MAX)?;
            file.sync().map_err(Error::io("sync", path))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::io("open", path)(e)),
    }
}

/// Gives the schema that a deletion brought its name. Doing it again changes nothing.
pub(super) fn adopt_new_schema(files: &Files) -> Result<()> {
    let (storage, dir) = (&**files.storage(), files.dir());
    let (new, path) = (dir.join(NEW_SCHEMA_FILE), dir.join(SCHEMA_FILE));
    if open_if_there(storage, new.clone())?.is_none() {
        return Ok(());
    }
    // First, as it must not be taken for a continuation of the new schema.
    remove_if_there(storage, &dir.join(SHAPES_FILE))?;
    storage.rename(&new, &path).map_err(Error::io("rename the new schema to", &path))?;
    storage.sync_dir(dir).map_err(Error::io("sync", dir))
}
