//! An empty store in a directory that is there already, with whatever is in it: so loaderx makes them.

use crate::error::{Error, Result};
use crate::format::{Codec, Header, META_FILE};
use crate::storage::{Storage, write_all_at};
use std::io::{ErrorKind, IoSlice};
use std::path::Path;

/// Makes the directory `dir` an empty store of `codec`, unless another process has just done it. Numbered files that an
/// older store left there do not count; whoever writes first cuts them off. A `zstd_dict` store has no dictionary yet.
pub(crate) fn create_empty(storage: &dyn Storage, dir: &Path, codec: Codec) -> Result<()> {
    let path = dir.join(META_FILE);
    let meta = match storage.create_new(&path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => return Ok(()),
        Err(e) => return Err(Error::io("create", path)(e)),
    };
    write_all_at(&*meta, &path, &mut [IoSlice::new(&Header::new(codec).encode())], 0)
}
