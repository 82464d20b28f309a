//! What stands in a view's bytes: checked before anything is taken from where it says.

use crate::format::dtype::DType;
use crate::loader::Shape;
use std::ops::Range;
use std::sync::Arc;
use zrfs_abi::{KIND_BYTES, KIND_DENSE, KIND_RAGGED, MAGIC, SlabHeader, SlabStream, VERSION};

/// A batch as its front describes it.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) indices: Vec<u64>,
    pub(super) parts: Vec<Part>,
}

/// One stream of it.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: Arc<str>,
    pub(super) dtype: Option<Arc<DType>>,
    pub(super) shape: Shape,
    pub(super) offsets: Vec<u64>,
    /// Where in the slab its records are.
    pub(super) data: Range<usize>,
}

/// How many bytes, from the start, hold all but records; `None` for what is no slab.
pub(super) fn front(slab: &[u8]) -> Option<u64> {
    let header = header(slab)?;
    let streams = streams(slab, &header)?;
    let data = streams.filter_map(|s| Some(s?.data)).min();
    Some(data.unwrap_or(header.bytes).min(header.bytes))
}

/// Reads a slab's front; `bytes` is how many the server said to be in use. `None` where it contradicts itself.
pub(super) fn describe(slab: &[u8], bytes: u64, seal: u64) -> Option<Described> {
    let header = header(slab)?;
    if header.bytes != bytes || header.seal != seal {
        return None;
    }
    let count = usize::try_from(header.count).ok()?;
    let indices = numbers(slab, header.indices, count)?;
    let part = |stream: Option<SlabStream>| part(slab, &stream?, &header, count);
    let parts = streams(slab, &header)?.map(part).collect::<Option<Vec<Part>>>()?;
    Some(Described { indices, parts })
}

fn header(slab: &[u8]) -> Option<SlabHeader> {
    SlabHeader::decode_front(slab).filter(|header| header.magic == MAGIC && header.version == VERSION)
}

fn streams<'s>(slab: &'s [u8], header: &SlabHeader) -> Option<impl Iterator<Item = Option<SlabStream>> + use<'s>> {
    let bytes = usize::try_from(header.streams).ok()?.checked_mul(SlabStream::BYTES)?;
    let all = slab.get(SlabHeader::BYTES..SlabHeader::BYTES.checked_add(bytes)?)?;
    Some(all.chunks_exact(SlabStream::BYTES).map(SlabStream::decode_front))
}

fn part(slab: &[u8], stream: &SlabStream, header: &SlabHeader, count: usize) -> Option<Part> {
    let end = stream.data.checked_add(stream.data_bytes).filter(|end| *end <= header.bytes)?;
    let data = usize::try_from(stream.data).ok()?..usize::try_from(end).ok()?;
    let offsets = numbers(slab, stream.offsets, count.checked_add(1)?)?;
    let whole = offsets.first() == Some(&0) && offsets.last() == Some(&stream.data_bytes) && offsets.is_sorted();
    let extents = numbers(slab, stream.shapes, usize::try_from(stream.shapes_bytes / 8).ok()?)?;
    let shape = match stream.kind {
        KIND_BYTES => Shape::Bytes,
        KIND_DENSE => Shape::Dense(std::iter::once(header.count).chain(extents).collect()),
        KIND_RAGGED => {
            let (starts, extents) = extents.split_at_checked(count.checked_add(1)?)?;
            let shape = |at: &[u64]| match at {
                [start, end] => {
                    extents.get(usize::try_from(*start).ok()?..usize::try_from(*end).ok()?).map(<[u64]>::to_vec)
                }
                _ => None,
            };
            Shape::Ragged(starts.windows(2).map(shape).collect::<Option<_>>()?)
        }
        _ => return None,
    };
    let dtype = text(slab, stream.dtype, stream.dtype_len)?;
    let dtype = if dtype.is_empty() { None } else { Some(Arc::new(DType::parse(dtype).ok()?)) };
    let name = text(slab, stream.name, stream.name_len)?.into();
    whole.then_some(Part { name, dtype, shape, offsets, data })
}

fn numbers(slab: &[u8], at: u64, count: usize) -> Option<Vec<u64>> {
    let bytes = slab.get(usize::try_from(at).ok()?..)?.get(..count.checked_mul(8)?)?;
    Some(bytes.chunks_exact(8).filter_map(|n| Some(u64::from_ne_bytes(n.try_into().ok()?))).collect())
}

fn text(slab: &[u8], at: u64, len: u32) -> Option<&str> {
    let bytes = slab.get(usize::try_from(at).ok()?..)?.get(..usize::try_from(len).ok()?)?;
    std::str::from_utf8(bytes).ok()
}
