//! What a program learns before it asks for anything.

use crate::Zero;

layout! {
    /// The server of the mount.
    pub struct Server = 128 {
        /// [`VERSION`](crate::VERSION).
        pub version: u32,
        /// Bytes of `socket` in use.
        pub socket_len: u32,
        /// `FEATURE_…`, or-ed.
        pub features: u64,
        /// Bytes that the views of one user may have, slabs and indices.
        pub view_memory: u64,
        /// Views that one user may have.
        pub max_views: u64,
        /// The abstract name of the datagram socket that hands over the memory of views.
        pub socket: [u8; 96],
    }
}

layout! {
    /// The store or dataset of the mount.
    pub struct Store = 32 {
        /// Its records by now.
        pub records: u64,
        /// Changes when records are appended, and, most likely, differs from that of other data.
        pub generation: u64,
        /// Its streams, numbered from 0 in the order of their names; 1 of a store.
        pub streams: u32,
        /// The stream that the file of the call belongs to, or [`STREAM_ALL`](crate::STREAM_ALL).
        pub own: u32,
        /// `STORE_…`, or-ed.
        pub flags: u32,
        /// Zero.
        pub zero: Zero<4>,
    }
}

layout! {
    /// A stream. All but `number` is zero when it goes in.
    pub struct Stream = 880 {
        /// In: which.
        pub number: u32,
        /// `KIND_…`.
        pub kind: u32,
        /// 0 raw, 1 zstd, 2 zstd_dict.
        pub codec: u32,
        /// The number of dimensions of a dense record. Those after the 64th are not told.
        pub ndim: u32,
        /// Bytes of an item, 1 for bytes without a type.
        pub itemsize: u64,
        /// Bytes of a dense record, 0 where records differ.
        pub record_bytes: u64,
        /// Its records by now.
        pub records: u64,
        /// The shape of a dense record.
        pub shape: [u64; 64],
        /// Bytes of `dtype` in use.
        pub dtype_len: u32,
        /// Bytes of `name` in use.
        pub name_len: u32,
        /// numpy's string for the type of items.
        pub dtype: [u8; 64],
        /// The stream's name; a store has none.
        pub name: [u8; 256],
    }
}

impl Default for Stream {
    fn default() -> Self {
        Stream {
            number: 0,
            kind: 0,
            codec: 0,
            ndim: 0,
            itemsize: 0,
            record_bytes: 0,
            records: 0,
            shape: [0; 64],
            dtype_len: 0,
            name_len: 0,
            dtype: [0; 64],
            name: [0; 256],
        }
    }
}
