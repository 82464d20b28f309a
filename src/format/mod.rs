//! Bytes to values and back: the layout of every file of a store, written once and here only.
//!
//! Nothing in this module does I/O. Decoding never trusts: it returns a reason on the first contradiction, and never
//! panics or allocates by a length that it read. `docs/FORMAT.md` explains the layouts with diagrams, and the golden
//! vectors in the tests hold the two together.

pub mod dataset;
pub mod dtype;
pub mod header;
pub mod journal;
pub mod npy;
pub mod schema;
pub mod shapes;
pub mod sums;
pub mod table;
pub mod tree;

pub use header::{Codec, Header};
pub use schema::{Kind, Schema};
pub use table::Entry;

/// The header's file.
pub const META_FILE: &str = "meta.zr";
/// The dictionary's file, present only in `zstd_dict` stores.
pub const DICT_FILE: &str = "dict.zr";
/// A dictionary that is being installed; left behind by a crash, it means nothing.
pub const NEW_DICT_FILE: &str = "dict.zr.new";
/// The type's file, present only in typed stores.
pub const SCHEMA_FILE: &str = "schema.msgpack";

/// The file of the shapes that were appended since the schema was written, present only in ragged stores that are being
/// written to or whose writer was interrupted.
pub const SHAPES_FILE: &str = "shapes.zr";

/// Where a ragged store's schema is written anew, before it takes the schema's name.
pub const NEW_SCHEMA_FILE: &str = "schema.new";

/// The file that says what a dataset's writer is doing, present only while it is or was interrupted.
pub const DATASET_FILE: &str = "dataset.zr";

/// The tree index's file, present only in datasets that were packed from files.
pub const TREE_FILE: &str = "tree.zr";

/// The journal's file, present only while a deletion is under way or was interrupted.
pub const DELETE_FILE: &str = "delete.zr";

/// The file of the checksums of raw records.
pub const SUMS_FILE: &str = "sums.zr";

/// The longest record in bytes, before compression.
pub const MAX_RECORD: u64 = 1 << 31;

/// The sizes at which a store rolls over to its next file.
///
/// Stores on disk always have [`Layout::STANDARD`]; smaller ones exist so that roll-over can be tested without
/// writing gigabytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Entries in one `.loc` file.
    pub segment_entries: u64,
    /// No record reaches this offset of a `.chunk` file.
    pub chunk_bytes: u64,
}

impl Layout {
    /// The layout of format version 3: 2^28 entries a segment, 2^32 bytes a chunk.
    pub const STANDARD: Layout = Layout { segment_entries: 1 << 28, chunk_bytes: 1 << 32 };
}

impl Default for Layout {
    fn default() -> Self {
        Layout::STANDARD
    }
}
