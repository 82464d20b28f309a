//! What a loader hands over: the records of a step, of every stream.

use crate::buffer::{Buffer, BufferPool};
use crate::format::dtype::DType;
use std::sync::Arc;

/// The records of one step.
///
/// Its memory goes back to the loader when it is dropped, and is used for a later batch.
#[derive(Debug)]
pub struct Batch {
    pub(crate) step: u64,
    pub(crate) indices: Vec<u64>,
    pub(crate) parts: Vec<Part>,
}

impl Batch {
    /// The step.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The records' indices, in the order in which they stand here.
    pub fn indices(&self) -> &[u64] {
        &self.indices
    }

    /// The number of records. It may be 0 for a rank of more than a batch has records.
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Bytes of the records of all streams.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes.len() as u64).sum()
    }

    /// What each stream has, in the order in which the loader was given them.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The same, to be changed in place.
    pub fn parts_mut(&mut self) -> &mut [Part] {
        &mut self.parts
    }

    /// What the stream of that name has.
    pub fn part(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|part| part.name() == name)
    }

    /// The same, to be changed in place.
    pub fn part_mut(&mut self, name: &str) -> Option<&mut Part> {
        self.parts.iter_mut().find(|part| part.name() == name)
    }
}

/// The records of one stream in a batch, in one buffer that starts at a page's boundary.
#[derive(Debug)]
pub struct Part {
    pub(crate) name: Arc<str>,
    pub(crate) dtype: Option<Arc<DType>>,
    pub(crate) shape: Shape,
    /// Where each record begins, and where the last one ends.
    pub(crate) offsets: Vec<u64>,
    pub(crate) bytes: Buffer,
    /// Where the memory of padded forms comes from.
    pub(crate) padding: BufferPool,
}

/// How the bytes of a part are to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// One array in C order: its shape, the number of records first.
    Dense(Vec<u64>),
    /// An array a record, each in C order: their shapes.
    Ragged(Vec<Vec<u64>>),
    /// Bytes without a type.
    Bytes,
}

impl Part {
    /// The stream's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of the items; `None` for records of plain bytes.
    pub fn dtype(&self) -> Option<&DType> {
        self.dtype.as_deref()
    }

    /// The shape of the one array, or of each.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All records, one after the other without gaps.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, to be changed in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Where in [`bytes`](Part::bytes) each record begins, and, last, where the last one ends.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// The bytes of record `k` of the batch; `None` if it has not so many.
    pub fn record(&self, k: usize) -> Option<&[u8]> {
        let (start, end) = (*self.offsets.get(k)?, *self.offsets.get(k.checked_add(1)?)?);
        self.bytes.get(start as usize..end as usize)
    }

    /// The shape of record `k` of the batch; of plain bytes, how many they are. `None` if the batch has not so many.
    pub fn record_shape(&self, k: usize) -> Option<Vec<u64>> {
        let length = self.record(k)?.len() as u64;
        match &self.shape {
            Shape::Dense(shape) => shape.get(1..).map(<[u64]>::to_vec),
            Shape::Ragged(shapes) => shapes.get(k).cloned(),
            Shape::Bytes => Some(vec![length]),
        }
    }
}
