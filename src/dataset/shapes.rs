//! The shapes of a ragged store's records, found without holding them in memory.
//!
//! `schema.msgpack` lists them one after the other in as few bytes as each takes, and `shapes.zr` goes on in blocks, so
//! the place of shape i is not known before all earlier ones were read. That scan is made once, when the first shape is
//! asked for, and leaves a checkpoint every [`STRIDE`] shapes; after it a shape costs one short read. Where the store
//! has grown since, the scan goes on from where it ended.

use crate::error::{Error, Result};
use crate::format::schema::{ShapesAt, decode_shape};
use crate::format::shapes::{BLOCK_SHAPES, Base, HEAD_LEN};
use crate::storage::At;
use crate::store::shapes::{Blocks, Typed};
use std::io::Read;

/// Shapes between two checkpoints: 8 bytes of memory for so many records.
const STRIDE: u64 = 32;

/// An index over the shapes of one store.
#[derive(Debug, Clone)]
pub(super) struct ShapeIndex {
    typed: Typed,
    /// Where in the schema each [`STRIDE`]th shape is.
    checkpoints: Vec<u64>,
    /// The shapes in the schema, and what tells it from another.
    base: Base,
    /// Blocks of `shapes.zr`, [`BLOCK_SHAPES`] records apart or further: the first record and where the block begins.
    blocks: Vec<(u64, u64)>,
    /// The number of shapes in all, and where the next block will begin.
    count: u64,
    next_block: u64,
    /// The fewest and the most dimensions of a shape.
    dimensions: (usize, usize),
}

impl ShapeIndex {
    /// Scans the shapes of a ragged store.
    pub(super) fn scan(typed: Typed) -> Result<Self> {
        let path = &typed.path;
        let at = typed.shapes.ok_or_else(|| Error::corrupt(path, 0, "a ragged schema has no shapes"))?;
        let base = Base { end: at.offset, count: 0, start_crc: 0, tail_crc: 0 };
        let next_block = HEAD_LEN as u64;
        let (checkpoints, blocks, dimensions) = (Vec::new(), Vec::new(), (usize::MAX, 0));
        ShapeIndex { typed, checkpoints, base, blocks, count: 0, next_block, dimensions }.go_on()
    }

    /// The index over the store as `typed` has it now: what was scanned before is not scanned again, if it is still so.
    pub(super) fn update(&self, typed: Typed) -> Result<Self> {
        // Where the list of shapes begins elsewhere, because its length takes more bytes now, so does each shape.
        let same_start = |at: &ShapesAt| self.typed.shapes.is_some_and(|before| before.offset == at.offset);
        let continues = match typed.shapes {
            Some(at) if same_start(&at) && at.end.is_none() && u64::from(at.count) >= self.base.count => {
                let now = typed.base(&at, self.base.end)?;
                (now.start_crc, now.tail_crc) == (self.base.start_crc, self.base.tail_crc)
            }
            _ => false,
        };
        if !continues {
            return Self::scan(typed);
        }
        let index = ShapeIndex { typed, blocks: Vec::new(), next_block: HEAD_LEN as u64, ..self.clone() };
        index.go_on()
    }

    /// The index with what was appended to the same files since.
    pub(super) fn grown(&self) -> Result<Self> {
        let mut index = self.clone();
        index.scan_blocks()?;
        Ok(index)
    }

    /// Scans the schema from `base` on, and then the blocks.
    fn go_on(mut self) -> Result<Self> {
        let (file, path) = (&*self.typed.file, &self.typed.path);
        let at = self.typed.shapes.ok_or_else(|| Error::corrupt(path, 0, "a ragged schema has no shapes"))?;
        let mut input = At::buffered(file, path, self.base.end, 1 << 16);
        let mut shape = Vec::new();
        for k in self.base.count..u64::from(at.count) {
            if k % STRIDE == 0 {
                self.checkpoints.push(At::position(&input));
            }
            decode_shape(&mut input, &mut shape).map_err(|reason| {
                Error::corrupt(path, At::position(&input), format!("shape of record {k}: {reason}"))
            })?;
            self.dimensions = with(self.dimensions, shape.len());
        }
        let end = At::position(&input);
        // A writer that completes the schema writes beyond the last shape, and then the number.
        let complete = at.end.is_none() && self.typed.appended.is_none();
        if complete && input.read(&mut [0]).map_err(Error::io("read", path))? != 0 {
            return Err(Error::corrupt(path, end, "something follows the last shape"));
        }
        self.base = self.typed.base(&at, end)?;
        self.count = self.base.count;
        self.scan_blocks()?;
        Ok(self)
    }

    fn scan_blocks(&mut self) -> Result<()> {
        let Some(((file, path), _)) = &self.typed.appended else { return Ok(()) };
        let mut blocks = Blocks::from((&**file, path), self.next_block, self.count, 1 << 16);
        while let Some(block) = blocks.next()? {
            if self.blocks.last().is_none_or(|&(first, _)| block.first - first >= BLOCK_SHAPES as u64) {
                self.blocks.push((block.first, block.at));
            }
            self.count = block.end();
            self.next_block = block.after();
            let (mut rest, mut shape) = (&block.shapes[..], Vec::new());
            for _ in 0..block.count {
                // What cannot be read is an error of its record, and may have any number.
                let read = decode_shape(&mut rest, &mut shape);
                self.dimensions = read.map_or((0, usize::MAX), |()| with(self.dimensions, shape.len()));
            }
        }
        Ok(())
    }

    /// Of how many records it has the shape.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The number of dimensions that all records have; `None` if it differs.
    pub(super) fn dimensions(&self) -> Option<usize> {
        let (fewest, most) = self.dimensions;
        (fewest == most).then_some(most)
    }

    /// The shape of record `index`, which must be below [`count`](ShapeIndex::count).
    pub(super) fn shape(&self, index: u64) -> Result<Vec<u64>> {
        let out_of_range = || Error::OutOfRange { index, length: self.count };
        if index >= self.base.count {
            return self.appended(index)?.ok_or_else(out_of_range);
        }
        let offset = usize::try_from(index / STRIDE).ok().and_then(|k| self.checkpoints.get(k)).copied();
        let path = &self.typed.path;
        let mut input = At::buffered(&*self.typed.file, path, offset.ok_or_else(out_of_range)?, 2048);
        let mut shape = Vec::new();
        for _ in 0..=index % STRIDE {
            decode_shape(&mut input, &mut shape)
                .map_err(|reason| Error::corrupt(path, At::position(&input), reason).at_record(index))?;
        }
        Ok(shape)
    }

    /// The shape of a record that `shapes.zr` has.
    fn appended(&self, index: u64) -> Result<Option<Vec<u64>>> {
        let Some(((file, path), _)) = &self.typed.appended else { return Ok(None) };
        let k = self.blocks.partition_point(|&(first, _)| first <= index);
        let Some(&(first, at)) = k.checked_sub(1).and_then(|k| self.blocks.get(k)) else { return Ok(None) };
        let mut blocks = Blocks::from((&**file, path), at, first, 2048);
        while let Some(block) = blocks.next()? {
            if index >= block.end() {
                continue;
            }
            let (mut rest, mut shape) = (&block.shapes[..], Vec::new());
            for _ in block.first..=index {
                decode_shape(&mut rest, &mut shape)
                    .map_err(|reason| Error::corrupt(path, block.at, reason).at_record(index))?;
            }
            return Ok(Some(shape));
        }
        Ok(None)
    }
}

/// The fewest and the most dimensions, with another shape's.
fn with((fewest, most): (usize, usize), dimensions: usize) -> (usize, usize) {
    (fewest.min(dimensions), most.max(dimensions))
}
