//! Records in a given order, read ahead on all cores in batches of bounded bytes.

use crate::error::Result;
use crate::store::Store;
use std::collections::VecDeque;

/// A batch has about so many bytes of records; a larger record is a batch of its own.
pub(crate) const BATCH_BYTES: u64 = 16 << 20;
/// A batch has at most so many records.
pub(crate) const BATCH_RECORDS: usize = 4096;

/// Reads the records of `store` at `indices`, in their order.
#[derive(Debug)]
pub(crate) struct InOrder<'s, I> {
    store: &'s Store,
    indices: I,
    /// The next records, whose lengths are known.
    ahead: VecDeque<(u64, u32)>,
    batch: Batch,
    /// How many records of the batch were given out one by one.
    given: usize,
}

/// Records that were read together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    indices: Vec<u64>,
    offsets: Vec<u64>,
    bytes: Vec<u8>,
}

impl Batch {
    /// The indices of the records.
    pub(crate) fn indices(&self) -> &[u64] {
        &self.indices
    }

    /// The records one after the other.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The records.
    pub(crate) fn records(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.indices.len()).map(|k| self.record(k))
    }

    fn record(&self, k: usize) -> &[u8] {
        let end = self.offsets.get(k + 1).map_or(self.bytes.len(), |&end| end as usize);
        self.offsets.get(k).and_then(|&start| self.bytes.get(start as usize..end)).unwrap_or_default()
    }
}

impl<'s, I: Iterator<Item = u64>> InOrder<'s, I> {
    pub(crate) fn new(store: &'s Store, indices: I) -> Self {
        InOrder { store, indices, ahead: VecDeque::new(), batch: Batch::default(), given: 0 }
    }

    /// The next records; `None` at the end.
    ///
    /// # Errors
    /// As [`Store::gather`], for the first record of the batch that cannot be read.
    pub(crate) fn next_batch(&mut self) -> Result<Option<&Batch>> {
        let Batch { indices, offsets, bytes } = &mut self.batch;
        indices.clear();
        offsets.clear();
        self.given = 0;
        let mut total = 0;
        while indices.len() < BATCH_RECORDS {
            if self.ahead.is_empty() {
                let block: Vec<u64> = self.indices.by_ref().take(BATCH_RECORDS).collect();
                self.ahead.extend(block.iter().copied().zip(self.store.lengths(&block)?));
            }
            let Some(&(index, length)) = self.ahead.front() else { break };
            if !indices.is_empty() && total + u64::from(length) > BATCH_BYTES {
                break;
            }
            self.ahead.pop_front();
            indices.push(index);
            offsets.push(total);
            total += u64::from(length);
        }
        // The room of one huge record is not kept for the small ones after it.
        if bytes.len() as u64 > total.max(2 * BATCH_BYTES) {
            *bytes = Vec::new();
        }
        bytes.resize(total as usize, 0);
        if indices.is_empty() {
            return Ok(None);
        }
        self.store.gather(indices, bytes, offsets)?;
        Ok(Some(&self.batch))
    }

    /// The next record with its index; `None` at the end.
    ///
    /// # Errors
    /// As [`next_batch`](InOrder::next_batch).
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &[u8])>> {
        if self.given == self.batch.indices.len() && self.next_batch()?.is_none() {
            return Ok(None);
        }
        let k = self.given;
        self.given += 1;
        Ok(self.batch.indices.get(k).map(|&index| (index, self.batch.record(k))))
    }
}
