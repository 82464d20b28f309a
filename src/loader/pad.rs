//! Records of different shapes as one array: each at the start of its place, the rest filled.

use super::batch::Part;
use crate::buffer::Buffer;
use crate::error::{Error, Result};

/// A padded batch: one array in C order.
#[derive(Debug)]
pub struct Padded {
    /// Its shape: the number of records, and then the largest extent in each dimension.
    pub shape: Vec<u64>,
    /// Its bytes. They go back to the loader when this is dropped.
    pub bytes: Buffer,
}

impl Part {
    /// The records as one array, as large as the largest of them in each dimension; beyond a record's own items stands
    /// `fill`, the bytes of one item, or zeros where `fill` is empty.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the records differ in their number of dimensions, `fill` is no item, or there is no memory.
    pub fn padded(&self, fill: &[u8]) -> Result<Padded> {
        let name = self.name();
        let itemsize = self.dtype().map_or(1, |dtype| dtype.itemsize() as usize);
        if !fill.is_empty() && fill.len() != itemsize {
            let n = fill.len();
            return Err(Error::invalid(format!("stream {name}: {n} bytes to fill with, where an item has {itemsize}")));
        }
        let shapes: Vec<Vec<u64>> = (0..self.len()).filter_map(|k| self.record_shape(k)).collect();
        let mut extent = shapes.first().cloned().unwrap_or_default();
        for (k, shape) in shapes.iter().enumerate() {
            if shape.len() != extent.len() {
                let (one, other) = (extent.len(), shape.len());
                return Err(Error::invalid(format!(
                    "stream {name} cannot be padded: record 0 of the batch has {one} dimensions, record {k} has {other}"
                )));
            }
            extent.iter_mut().zip(shape).for_each(|(most, &d)| *most = d.max(*most));
        }
        let bytes_of = |dims: &[u64]| {
            let product = dims.iter().try_fold(itemsize, |bytes, &d| bytes.checked_mul(usize::try_from(d).ok()?));
            product.ok_or_else(|| {
                Error::invalid(format!("stream {name}: there is no memory for a batch padded to {dims:?}"))
            })
        };
        let place = bytes_of(&extent)?;
        let shape: Vec<u64> = std::iter::once(shapes.len() as u64).chain(extent.iter().copied()).collect();
        let mut bytes = self.padding.get(bytes_of(&shape)?)?;
        if fill.is_empty() {
            bytes.fill(0);
        } else {
            bytes.chunks_exact_mut(itemsize).for_each(|item| item.copy_from_slice(fill));
        }
        // A place of 0 bytes has nothing to copy.
        for (k, place) in bytes.chunks_exact_mut(place.max(1)).enumerate() {
            if let (Some(record), Some(shape)) = (self.record(k), shapes.get(k)) {
                copy(place, &extent, record, shape, itemsize);
            }
        }
        Ok(Padded { shape, bytes })
    }
}

/// Copies an array of `shape` to the start of one of `extent`, which is as large in each dimension. All sizes are known
/// to be those of real buffers.
fn copy(to: &mut [u8], extent: &[u64], from: &[u8], shape: &[u64], itemsize: usize) {
    let (Some((_, wide)), Some((&count, narrow))) = (extent.split_first(), shape.split_first()) else {
        return to.copy_from_slice(from);
    };
    // From here on inwards they are the same.
    if wide == narrow {
        return to[..from.len()].copy_from_slice(from);
    }
    let size = |dims: &[u64]| dims.iter().fold(itemsize, |bytes, &d| bytes * d as usize);
    let (stride, length) = (size(wide), size(narrow));
    if length == 0 {
        return;
    }
    for (to, from) in to.chunks_exact_mut(stride).zip(from.chunks_exact(length)).take(count as usize) {
        copy(to, wide, from, narrow, itemsize);
    }
}
