//! Records of an array in Fortran order, whose first index varies fastest: item j of all records, then item j + 1.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use crate::error::{Error, Result};
use crate::pack::array::{ArraySource, Records, append, destination};
use crate::storage::{StoreFile, read_exact_at};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Bytes of the block of records that is kept in memory (more only where one record is larger).
pub const BLOCK_BYTES: u64 = 32 << 20;
/// Gaps between the runs of a block that are shorter than this are read with them: the kernel reads whole pages, and
/// a system call costs what copying about a page does.
const SHORT_GAP: u64 = 4096;
/// Bytes read in one call where gaps are read too.
const SPAN_BYTES: u64 = 1 << 20;
/// Items of a record that are put in place together, so that the writes fill cache lines.
const TILE: usize = 64;
/// Records that are put together at a time.
const GROUP: usize = 16;

/// The file is a matrix with a row for each item of a record, in Fortran order, and a column for each record. A block
/// of columns is read in the order of the file and transposed from memory into what the caller asked for.
#[derive(Debug)]
pub(crate) struct FortranArray {
    file: Arc<dyn StoreFile>,
    path: PathBuf,
    offset: u64,
    records: Records,
    /// Records that a block holds, at least 1.
    block_records: u64,
    next: u64,
    block: Block,
}

/// Records `first..first + count` as a matrix of `count` columns.
#[derive(Debug, Default)]
struct Block {
    first: u64,
    count: u64,
    rows: Vec<u8>,
}

impl FortranArray {
    /// The records from `offset` of `file` on, which end with it; `budget` is in bytes.
    pub(crate) fn new(
        file: Arc<dyn StoreFile>,
        path: &Path,
        offset: u64,
        records: Records,
        budget: u64,
    ) -> Result<FortranArray> {
        records.check_length(path, offset, file.size().map_err(Error::io("measure", path))?)?;
        let block_records = (budget / records.record_bytes()).clamp(1, records.len().max(1));
        let path = path.to_path_buf();
        Ok(FortranArray { file, path, offset, records, block_records, next: 0, block: Block::default() })
    }

    /// Reads records `first..first + count`, which exist, into `rows`.
    fn load(&self, first: u64, count: u64, rows: &mut Vec<u8>) -> Result<()> {
        rows.clear();
        let itemsize = self.records.dtype().itemsize();
        // None of these overflows: all of it lies within the file, whose length was checked.
        let (stride, run) = (self.records.len() * itemsize, count * itemsize);
        let start = self.offset + first * itemsize;
        let read = |dst: &mut [u8], at: u64| read_exact_at(&*self.file, &self.path, dst, at, "its array");
        append(rows, count * self.records.record_bytes(), &self.path, |rows| {
            if stride == run {
                return read(rows, start);
            }
            let together = if stride - run < SHORT_GAP { (SPAN_BYTES / stride).max(1) } else { 1 };
            let mut span = Vec::new();
            let mut at = start;
            for rows in rows.chunks_mut(usize_of(together * run)) {
                if together == 1 {
                    read(rows, at)?;
                } else {
                    // The last row's gap is not read: it may lie beyond the end of the file.
                    let here = rows.len() as u64 / run;
                    span.resize(usize_of((here - 1) * stride + run), 0);
                    read(&mut span, at)?;
                    for (row, from) in rows.chunks_exact_mut(usize_of(run)).zip(span.chunks(usize_of(stride))) {
                        row.copy_from_slice(from.get(..usize_of(run)).unwrap_or_default());
                    }
                }
                at += together * stride;
            }
            Ok(())
        })
    }
}

/// Sizes of what is or will be in memory.
fn usize_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl ArraySource for FortranArray {
    fn records(&self) -> &Records {
        &self.records
    }

    fn read(&mut self, count: u64, dst: &mut Vec<u8>) -> Result<u64> {
        let before = dst.len();
        let end = self.next + count.min(self.records.len() - self.next);
        let start = self.next;
        while self.next < end {
            let mut block = std::mem::take(&mut self.block);
            if !(block.first..block.first + block.count).contains(&self.next) {
                block.first = self.next;
                block.count = self.block_records.min(self.records.len() - self.next);
                if let Err(e) = self.load(block.first, block.count, &mut block.rows) {
                    dst.truncate(before);
                    return Err(e);
                }
            }
            let here = end.min(block.first + block.count) - self.next;
            let bytes = here * self.records.record_bytes();
            let skip = self.next - block.first;
            append(dst, bytes, &self.path, |dst| {
                transpose(&block, skip, &self.records, dst);
                Ok(())
            })
            .inspect_err(|_| dst.truncate(before))?;
            self.block = block;
            self.next += here;
        }
        Ok(end - start)
    }

    fn seekable(&self) -> bool {
        true
    }

    /// Costs a system call for each item of the record, or for each MiB of a small file.
    fn read_at(&mut self, index: u64, dst: &mut [u8]) -> Result<()> {
        let dst = destination(&self.records, index, dst)?;
        let mut one = Block { first: index, count: 1, rows: Vec::new() };
        self.load(index, 1, &mut one.rows)?;
        transpose(&one, 0, &self.records, dst);
        Ok(())
    }
}

/// Writes the records from `skip` of the block on to `dst`, as many as it holds.
fn transpose(block: &Block, skip: u64, records: &Records, dst: &mut [u8]) {
    match records.dtype().itemsize() {
        1 => transpose_fixed::<1>(block, skip, records, dst),
        2 => transpose_fixed::<2>(block, skip, records, dst),
        4 => transpose_fixed::<4>(block, skip, records, dst),
        8 => transpose_fixed::<8>(block, skip, records, dst),
        16 => transpose_fixed::<16>(block, skip, records, dst),
        _ => transpose_any(block, skip, records, dst),
    }
}

/// Calls `each` with the next items of a record, in C order: where they go in it, and the row of each from column
/// `skip` on. A call has [`TILE`] items, the last one may have fewer.
fn for_each_tile<'a>(block: &'a Block, skip: u64, records: &Records, mut each: impl FnMut(Range<usize>, &[&'a [u8]])) {
    let itemsize = usize_of(records.dtype().itemsize());
    let (run, skip) = (usize_of(block.count) * itemsize, usize_of(skip) * itemsize);
    let mut walk = Walk::new(records.item_shape());
    let mut tile: Vec<&[u8]> = Vec::with_capacity(TILE);
    for first in (0..usize_of(records.record_items())).step_by(TILE) {
        tile.clear();
        let rows = walk.by_ref().take(TILE).map(|row| usize_of(row) * run);
        tile.extend(rows.filter_map(|at| block.rows.get(at + skip..at + run)));
        each(first * itemsize..(first + tile.len()) * itemsize, &tile);
    }
}

/// For items of `N` bytes: a group of records at a time goes through a small matrix that stays in the first cache, by
/// loops of fixed length. Several times as fast as [`transpose_any`] for small items.
fn transpose_fixed<const N: usize>(block: &Block, skip: u64, records: &Records, dst: &mut [u8]) {
    let record = usize_of(records.record_bytes());
    let mut lines = [[[0; N]; TILE]; GROUP];
    for_each_tile(block, skip, records, |place, tile| {
        for (group, out) in dst.chunks_mut(record * GROUP).enumerate() {
            for (i, row) in tile.iter().enumerate() {
                let items = row.as_chunks::<N>().0.get(group * GROUP..).unwrap_or_default();
                let set = |line: &mut [[u8; N]; TILE], item: &[u8; N]| {
                    if let Some(slot) = line.get_mut(i) {
                        *slot = *item;
                    }
                };
                match items.first_chunk::<GROUP>() {
                    Some(items) => lines.iter_mut().zip(items).for_each(|(line, item)| set(line, item)),
                    None => lines.iter_mut().zip(items).for_each(|(line, item)| set(line, item)),
                }
            }
            for (record, line) in out.chunks_exact_mut(record).zip(&lines) {
                let items = line.as_flattened().get(..place.len());
                if let (Some(to), Some(items)) = (record.get_mut(place.clone()), items) {
                    to.copy_from_slice(items);
                }
            }
        }
    });
}

/// For items of any size.
fn transpose_any(block: &Block, skip: u64, records: &Records, dst: &mut [u8]) {
    let itemsize = usize_of(records.dtype().itemsize());
    let record = usize_of(records.record_bytes());
    for_each_tile(block, skip, records, |place, tile| {
        for (i, record) in dst.chunks_exact_mut(record).enumerate() {
            let items = record.get_mut(place.clone()).unwrap_or_default().chunks_exact_mut(itemsize);
            for (to, row) in items.zip(tile) {
                if let Some(from) = row.get(i * itemsize..(i + 1) * itemsize) {
                    to.copy_from_slice(from);
                }
            }
        }
    });
}

/// Goes through the items of a record in C order and gives the Fortran position of each.
struct Walk {
    /// For each dimension, the last first: its length, its stride, and where we are.
    dims: Vec<(u64, u64, u64)>,
    position: u64,
    left: u64,
}

impl Walk {
    /// `shape`'s product fits a u64.
    fn new(shape: &[u64]) -> Walk {
        let mut stride = 1;
        let mut dims = Vec::with_capacity(shape.len());
        for &dim in shape {
            dims.push((dim, stride, 0));
            stride *= dim;
        }
        dims.reverse();
        Walk { dims, position: 0, left: stride }
    }
}

impl Iterator for Walk {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let here = self.position;
        for (dim, stride, index) in &mut self.dims {
            *index += 1;
            self.position += *stride;
            if *index < *dim {
                break;
            }
            self.position -= *dim * *stride;
            *index = 0;
        }
        Some(here)
    }
}
