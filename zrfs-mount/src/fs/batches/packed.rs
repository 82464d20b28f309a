//! The files of numbers: a batch's indices, and where in the values of a stream that is not dense each record begins, and
//! its shape.

use super::gather::{File, key};
use crate::errno::Errno;
use crate::fs::read::copy_from;
use crate::fs::{Failure, Fs};
use crate::namespace::{Batch, Node, Part};
use std::sync::Arc;
use zrfs::Error;
use zrfs::format::dtype::DType;
use zrfs::format::npy::header_bytes;

/// Records of a batch of a stream that is not dense, at most: their offsets are kept in memory.
pub const MAX_PACKED: u64 = 1 << 20;
/// In a file of shapes, the place of a dimension that a record has not: the batch has records of more.
pub const NO_DIMENSION: u64 = u64::MAX;

/// The type of offsets, shapes and indices.
pub(super) fn numbers() -> Result<DType, Errno> {
    DType::parse("<u8").map_err(|_| Errno::NOENT)
}

/// Bytes of the header of a file of offsets of `count` records.
pub(super) fn header_of(offsets: &[u8], count: u64) -> usize {
    offsets.len().saturating_sub((count as usize + 1) * 8)
}

/// A number of an array of them behind its header.
pub(super) fn number(file: &[u8], header: usize, k: u64) -> Option<u64> {
    let at = usize::try_from(k).ok()?.checked_mul(8)?.checked_add(header)?;
    let bytes = file.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

impl Fs {
    /// The size of a batch's indices as a file.
    pub(in crate::fs) fn indices_size(&self, batch: Batch) -> Result<u64, Failure> {
        let count = self.table.count(&self.table.order(batch)?)?;
        let header = header_bytes(&numbers()?, &[count]).len() as u64;
        let size = count.checked_mul(8).and_then(|n| n.checked_add(header));
        Ok(size.filter(|&n| i64::try_from(n).is_ok()).ok_or(Errno::FBIG)?)
    }

    /// Reads the indices of a batch.
    pub(in crate::fs) fn read_indices(&self, batch: Batch, offset: u64, dst: &mut [u8]) -> Result<usize, Failure> {
        let order = self.table.order(batch)?;
        let count = self.table.count(&order)?;
        let header = header_bytes(&numbers()?, &[count]);
        self.read_rows(&header, 1, count, offset, dst, |first, rows, out| {
            let mut indices = vec![0; rows];
            self.table.indices(&order, first, &mut indices)?;
            out.extend(indices.iter().flat_map(|index| index.to_le_bytes()));
            Ok(())
        })
    }

    /// Items of all records of a stream that is not dense, and where each record's begin.
    fn count_items(&self, file: &File<'_>, mut each: impl FnMut(u64)) -> zrfs::Result<u64> {
        let (item, mut total) = (file.form.dtype.itemsize(), 0u64);
        self.for_chunks(&file.order, 0, file.count, |_, indices| {
            for (&length, &index) in file.stream.store().lengths(indices)?.iter().zip(indices) {
                let length = u64::from(length);
                if length % item != 0 {
                    // The stream says what is wrong with it.
                    file.stream.shape(index)?;
                    let reason = format!("{length} bytes are no number of items of {}", file.form.dtype);
                    return Err(file.corrupt(reason).at_record(index));
                }
                each(total);
                total = total.saturating_add(length / item);
            }
            Ok(())
        })?;
        each(total);
        Ok(total)
    }

    pub(super) fn items(&self, file: &File<'_>) -> zrfs::Result<u64> {
        // Whoever asks for the size of the values mostly reads the offsets next, or needs them for the values.
        let offsets = self.offsets(file)?;
        number(&offsets, header_of(&offsets, file.count), file.count)
            .ok_or_else(|| file.corrupt("it has no offsets".into()))
    }

    /// The most dimensions that a record of a batch has.
    pub(super) fn dimensions(&self, file: &File<'_>) -> zrfs::Result<u64> {
        // Where not all have a shape, the one that has none is found below.
        if file.count > 0
            && let Ok(Some(all)) = file.stream.dimensions(file.stream.len())
        {
            return Ok(all as u64);
        }
        let mut most = 0;
        self.for_chunks(&file.order, 0, file.count, |_, indices| {
            for &index in indices {
                most = file.stream.shape(index)?.map_or(0, |shape| shape.len() as u64).max(most);
            }
            Ok(())
        })?;
        Ok(most)
    }

    /// The file of offsets, in items.
    pub(super) fn offsets(&self, file: &File<'_>) -> zrfs::Result<Arc<Vec<u8>>> {
        let dtype = numbers().map_err(|e| Error::invalid(e.to_string()))?;
        let header = header_bytes(&dtype, &[file.count + 1]);
        let size = header.len() as u64 + (file.count + 1) * 8;
        let key = key(Node::BatchFile(file.s, file.batch, Part::Offsets));
        let key = key.ok_or_else(|| Error::invalid("a batch without a number"))?;
        self.cache.get(key, size, |bytes| {
            let (head, body) = bytes.split_at_mut(header.len());
            head.copy_from_slice(&header);
            let mut slots = body.chunks_exact_mut(8);
            self.count_items(file, |at| {
                if let Some(slot) = slots.next() {
                    slot.copy_from_slice(&at.to_le_bytes());
                }
            })?;
            Ok(())
        })
    }

    pub(super) fn read_shapes(&self, file: &File<'_>, offset: u64, dst: &mut [u8]) -> Result<usize, Failure> {
        let dimensions = (file.body / 8).checked_div(file.count).unwrap_or(0);
        self.read_rows(&file.header, dimensions, file.count, offset, dst, |first, rows, out| {
            self.for_chunks(&file.order, first, rows as u64, |_, indices| {
                for &index in indices {
                    let shape = file.stream.shape(index)?.unwrap_or_default();
                    let filled = shape.into_iter().chain(std::iter::repeat(NO_DIMENSION)).take(dimensions as usize);
                    out.extend(filled.flat_map(u64::to_le_bytes));
                }
                Ok(())
            })
        })
    }

    /// Reads an array of `rows` rows of `width` numbers, of which `make` appends those that are asked for.
    fn read_rows(
        &self,
        header: &[u8],
        width: u64,
        rows: u64,
        offset: u64,
        dst: &mut [u8],
        make: impl FnOnce(u64, usize, &mut Vec<u8>) -> zrfs::Result<()>,
    ) -> Result<usize, Failure> {
        let done = copy_from(header, offset, dst);
        let (dst, row) = (&mut dst[done..], width * 8);
        let at = (offset + done as u64).saturating_sub(header.len() as u64);
        let first = at.checked_div(row).unwrap_or(rows);
        if dst.is_empty() || first >= rows {
            return Ok(done);
        }
        let last = at.saturating_add(dst.len() as u64).div_ceil(row).min(rows);
        let count = (last - first) as usize;
        let mut bytes = Vec::with_capacity(count.saturating_mul(row as usize));
        make(first, count, &mut bytes)?;
        Ok(done + copy_from(&bytes, at - first * row, dst))
    }
}
