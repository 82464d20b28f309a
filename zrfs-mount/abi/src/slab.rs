//! The bytes of a sealed view, in shared memory and in its file alike.

use crate::Zero;

layout! {
    /// The front of a slab. All places are in bytes from the slab's start. A [`SlabStream`] for each stream follows, then
    /// the indices and what the streams point to, and, each from a multiple of [`ALIGN`](crate::ALIGN) on, the records.
    pub struct SlabHeader = 64 {
        /// [`MAGIC`](crate::MAGIC).
        pub magic: [u8; 8],
        /// [`VERSION`](crate::VERSION).
        pub version: u32,
        /// The number of streams.
        pub streams: u32,
        /// The number of the batch, as the seal gave it.
        pub seal: u64,
        /// The number of records.
        pub count: u64,
        /// Bytes in use.
        pub bytes: u64,
        /// Where the indices of the records are, one u64 each.
        pub indices: u64,
        /// The number of records that the store had, or that were drawn from.
        pub length: u64,
        /// The step that a sampler drew, or [`NO_STEP`](crate::NO_STEP).
        pub step: u64,
    }
}

layout! {
    /// A stream's part of a slab.
    pub struct SlabStream = 96 {
        /// The stream's number.
        pub number: u32,
        /// `KIND_…`.
        pub kind: u32,
        /// Where the records are, one after the other without gaps.
        pub data: u64,
        /// Bytes of them.
        pub data_bytes: u64,
        /// Where it stands where each record begins, from `data` on, and last where the last one ends: one u64 more than
        /// there are records.
        pub offsets: u64,
        /// Where the shapes are, in u64. Dense: the extents of a record. Ragged: as for `offsets`, which of the extents after
        /// these numbers are those of each record; then all extents.
        pub shapes: u64,
        /// Bytes of them.
        pub shapes_bytes: u64,
        /// Bytes of an item, 1 for bytes without a type.
        pub itemsize: u64,
        /// Where numpy's string for the type of items is.
        pub dtype: u64,
        /// Where the stream's name is.
        pub name: u64,
        /// Bytes of `dtype`; 0 for bytes without a type.
        pub dtype_len: u32,
        /// Bytes of `name`.
        pub name_len: u32,
        /// Bytes of a dense record, 0 where records differ.
        pub record_bytes: u64,
        /// Zero.
        pub zero: Zero<8>,
    }
}
