//! A copy of a tree index for a copy of its records.

use super::Tree;
use crate::error::{Error, Result};
use crate::format::tree::{HEADER_LEN, Header};
use crate::storage::{Storage, read_exact_at, write_all_at};
use std::io::IoSlice;
use std::path::Path;

/// Bytes copied at a time.
const STEP: u64 = 1 << 20;

impl Tree {
    /// Writes the same tree to `path`, which must not exist, bound to a stream `data` that holds the same records and ends
    /// at `data_end` (see [`TreeBuilder::bind`](super::TreeBuilder::bind)), and syncs it. A tree that was never bound
    /// stays so.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] if the index became shorter since it was opened.
    pub(crate) fn copy_to(&self, storage: &dyn Storage, path: &Path, data_end: (u32, u32)) -> Result<()> {
        let (source, source_path) = (self.blocks.file(), self.blocks.path());
        let file = storage.create_new(path).map_err(Error::io("create", path))?;
        let len = self.header.file_len();
        let mut at = HEADER_LEN as u64;
        let mut buf = vec![0; STEP.min(len) as usize];
        while at < len {
            let n = usize::try_from(len.saturating_sub(at)).unwrap_or(usize::MAX).min(buf.len());
            let part = buf.get_mut(..n).unwrap_or_default();
            read_exact_at(source, source_path, part, at, "the tree index")?;
            write_all_at(&*file, path, &mut [IoSlice::new(part)], at)?;
            at = at.saturating_add(n as u64);
        }
        let data_end = if self.header.data_end == (0, 0) { (0, 0) } else { data_end };
        // The header comes last, so that a file cut off by a crash is never taken for a tree.
        let header = Header { data_end, ..self.header }.encode();
        file.sync().map_err(Error::io("sync", path))?;
        write_all_at(&*file, path, &mut [IoSlice::new(&header)], 0)?;
        file.sync().map_err(Error::io("sync", path))
    }
}
