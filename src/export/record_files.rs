//! The records of a store as files in an archive.

use super::archive::TarWriter;
use super::{ExportOptions, Exported};
use crate::dataset::Stream;
use crate::error::Result;
use crate::format::{META_FILE, npy};
use crate::in_order::InOrder;
use crate::pack::Watch;
use crate::pool::pool;
use crate::tree::{Meta, Mtime};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tar::EntryType;

/// Writes a file a record to the archive `out`: an `.npy` file in a typed store, else its bytes.
pub(super) fn export_records(
    stream: &Stream,
    out: &mut dyn Write,
    path: &Path,
    options: &ExportOptions,
    watch: Watch<'_>,
) -> Result<Exported> {
    let store = stream.store();
    let default = if stream.schema().is_some() { "{index}.npy" } else { "{index}" };
    let names = match &options.names {
        Some(names) => names.clone(),
        None => default.parse().map_err(crate::Error::invalid)?,
    };
    // A record has no time of its own, and tar complains about 1970. The store's gives the same archive every time.
    let mtime = std::fs::metadata(store.path().join(META_FILE)).map_or(0, |meta| meta.mtime().max(0));
    let meta = Meta { mode: 0o644, mtime: Mtime { secs: mtime, nanos: 0 }, ..Meta::default() };
    let mut archive = TarWriter::new(out, path);
    let mut done = Exported::default();
    let mut records = InOrder::new(store, 0..store.len());
    while let Some(batch) = records.next_batch()? {
        watch.progress.check()?;
        let header = |&index: &u64| -> Result<Vec<u8>> {
            let Some(schema) = stream.schema() else { return Ok(Vec::new()) };
            Ok(npy::header_bytes(&schema.dtype, &stream.shape(index)?.unwrap_or_default()))
        };
        let headers = pool().map(batch.indices(), header).into_iter().collect::<Result<Vec<_>>>()?;
        for ((&index, record), header) in batch.indices().iter().zip(batch.records()).zip(&headers) {
            let size = (header.len() + record.len()) as u64;
            archive.entry(EntryType::Regular, names.name(index).as_bytes(), b"", meta, size)?;
            archive.write(header)?;
            archive.write(record)?;
            archive.pad()?;
        }
        let (n, bytes) = (batch.indices().len() as u64, batch.bytes().len() as u64);
        done = Exported { entries: done.entries + n, bytes: done.bytes + bytes };
        watch.progress.add(n, bytes);
    }
    archive.finish()?;
    Ok(done)
}
