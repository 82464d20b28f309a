//! The shapes of a ragged store's records, found without holding them in memory.
//!
//! `schema.msgpack` lists them one after the other in as few bytes as each takes, so the place of shape i is not known
//! before all earlier ones were read. That scan is made once, when the first shape is asked for, and leaves a
//! checkpoint every [`STRIDE`] shapes; after it a shape costs one short read.

use crate::error::{Error, Result};
use crate::format::schema::{Schema, ShapesAt, decode_shape};
use crate::storage::{StoreFile, read_at_most};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Shapes between two checkpoints: 8 bytes of memory for so many records.
const STRIDE: u64 = 32;

/// An index over the shapes in one `schema.msgpack`.
#[derive(Debug)]
pub(super) struct ShapeIndex {
    file: Arc<dyn StoreFile>,
    path: PathBuf,
    checkpoints: Vec<u64>,
    count: u64,
}

impl ShapeIndex {
    /// Scans the shapes in the schema `file`.
    pub(super) fn scan(file: Arc<dyn StoreFile>, path: &Path) -> Result<Self> {
        let (_, shapes) = read_schema(&file, path)?;
        let ShapesAt { offset, count, last } =
            shapes.ok_or_else(|| Error::corrupt(path, 0, "a ragged schema has no shapes"))?;
        let mut input = BufReader::with_capacity(1 << 16, At { file: &*file, path, at: offset });
        let mut checkpoints = Vec::new();
        let mut shape = Vec::new();
        for k in 0..u64::from(count) {
            if k % STRIDE == 0 {
                checkpoints.push(position(&input));
            }
            decode_shape(&mut input, &mut shape)
                .map_err(|reason| Error::corrupt(path, position(&input), format!("shape of record {k}: {reason}")))?;
        }
        if last && input.read(&mut [0]).map_err(Error::io("read", path))? != 0 {
            return Err(Error::corrupt(path, position(&input), "something follows the last shape"));
        }
        Ok(ShapeIndex { file, path: path.to_path_buf(), checkpoints, count: count.into() })
    }

    /// Of how many records it has the shape.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The shape of record `index`, which must be below [`count`](ShapeIndex::count).
    pub(super) fn shape(&self, index: u64) -> Result<Vec<u64>> {
        let offset = usize::try_from(index / STRIDE).ok().and_then(|k| self.checkpoints.get(k)).copied();
        let offset = offset.ok_or(Error::OutOfRange { index, length: self.count })?;
        let mut input = BufReader::with_capacity(2048, At { file: &*self.file, path: &self.path, at: offset });
        let mut shape = Vec::new();
        for _ in 0..=index % STRIDE {
            decode_shape(&mut input, &mut shape)
                .map_err(|reason| Error::corrupt(&self.path, position(&input), reason).at_record(index))?;
        }
        Ok(shape)
    }
}

/// Reads the schema up to its shapes.
pub(super) fn read_schema(file: &Arc<dyn StoreFile>, path: &Path) -> Result<(Schema, Option<ShapesAt>)> {
    let input = BufReader::with_capacity(4096, At { file: &**file, path, at: 0 });
    Schema::decode(input).map_err(|(offset, reason)| Error::corrupt(path, offset, reason))
}

/// A reader over a file from an offset on.
struct At<'a> {
    file: &'a dyn StoreFile,
    path: &'a Path,
    at: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = read_at_most(self.file, self.path, buf, self.at).map_err(io::Error::other)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// The offset in the file of the next byte that the reader gives.
fn position(input: &BufReader<At<'_>>) -> u64 {
    input.get_ref().at - input.buffer().len() as u64
}
