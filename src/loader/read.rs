//! The streams that a loader reads, and the reading of a batch.

use super::batch::{Batch, Part, Shape};
use super::error::Failure;
use crate::buffer::{Buffer, BufferPool};
use crate::client::Mount;
use crate::dataset::{Source, Stream};
use crate::error::Result;
use crate::format::Kind;
use crate::format::dtype::DType;
use crate::store::Threads;
use std::sync::Arc;

/// A stream of a source that others may use as well.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    pub(super) source: Arc<Source>,
    /// Its place in a dataset.
    pub(super) number: usize,
}

impl Handle {
    pub(super) fn stream(&self) -> &Stream {
        match &*self.source {
            Source::Store(stream) => stream,
            Source::Dataset(dataset) => &dataset.streams()[self.number].1,
        }
    }
}

/// One stream to read, and where its memory comes from.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) name: Arc<str>,
    handle: Handle,
    dtype: Option<Arc<DType>>,
    pool: BufferPool,
    padding: BufferPool,
}

impl Input {
    /// `keep` batches stay in memory at most, but for those that are in use.
    pub(super) fn new(name: Arc<str>, handle: Handle, keep: usize) -> Self {
        let dtype = handle.stream().schema().map(|schema| Arc::new(schema.dtype.clone()));
        Input { name, handle, dtype, pool: BufferPool::new(keep), padding: BufferPool::new(keep) }
    }

    pub(super) fn stream(&self) -> &Stream {
        self.handle.stream()
    }

    /// How many buffers its batches have.
    fn buffers(&self) -> usize {
        self.pool.live()
    }

    fn read(&self, indices: &[u64], threads: Threads) -> Result<Part> {
        let stream = self.stream();
        let mut buffer: Option<Buffer> = None;
        let slot = &mut buffer;
        let offsets = stream.gather_on(indices, threads, move |offsets| {
            let total = offsets.last().copied().unwrap_or_default();
            Ok(&mut **slot.insert(self.pool.get(usize::try_from(total).unwrap_or(usize::MAX))?))
        })?;
        let bytes = match buffer {
            Some(buffer) => buffer,
            None => self.pool.get(0)?,
        };
        let shape = match stream.schema().map(|schema| &schema.kind) {
            None => Shape::Bytes,
            Some(Kind::Dense { item_shape }) => {
                Shape::Dense(std::iter::once(indices.len() as u64).chain(item_shape.iter().copied()).collect())
            }
            Some(Kind::Ragged) => {
                let shape = |&index: &u64| Ok(stream.shape(index)?.unwrap_or_default());
                Shape::Ragged(indices.iter().map(shape).collect::<Result<_>>()?)
            }
        };
        let (name, dtype, padding) = (self.name.clone(), self.dtype.clone(), self.padding.clone());
        Ok(Part { name, dtype, shape, offsets, bytes, padding })
    }
}

/// A step's batch as a mount gives it.
pub(super) fn from_mount(mount: &Mount, step: u64, gather: impl FnOnce() -> Result<Batch>) -> Result<Batch, Failure> {
    let failed = |error| {
        let stream = mount.chosen().map_or_else(String::new, |stream| stream.name.clone());
        Failure::Read { stream, error }
    };
    Ok(Batch { step, ..gather().map_err(failed)? })
}

/// Where batches come from.
#[derive(Debug)]
pub(super) enum Origin {
    /// Streams that are read here.
    Streams(Vec<Input>),
    /// A mount, which reads them.
    Mount(Mount),
}

impl Origin {
    /// Reads the records `indices` of every stream.
    pub(super) fn read(&self, step: u64, indices: Vec<u64>, threads: Threads) -> Result<Batch, Failure> {
        let inputs = match self {
            Origin::Streams(inputs) => inputs,
            Origin::Mount(mount) => return from_mount(mount, step, || mount.gather(&indices)),
        };
        let mut parts = Vec::with_capacity(inputs.len());
        for input in inputs {
            let failed = |error| Failure::Read { stream: input.name.to_string(), error };
            parts.push(input.read(&indices, threads).map_err(failed)?);
        }
        Ok(Batch { step, indices, parts })
    }

    /// How many buffers each of its batches has one of.
    pub(super) fn buffers(&self) -> usize {
        match self {
            Origin::Streams(inputs) => inputs.iter().map(Input::buffers).max().unwrap_or(0),
            Origin::Mount(mount) => mount.views(),
        }
    }
}
