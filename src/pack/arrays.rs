//! Arrays into dense stores: one, or several that belong together.

use super::array::{self, ArraySource};
use super::files::{BATCH_BYTES, Report};
use super::input::is_stdin;
use super::progress::Watch;
use super::{PackOptions, finish_report};
use crate::dataset::DenseWriter;
use crate::dict::Sample;
use crate::error::{Error, Result};
use crate::format::{Codec, META_FILE, TREE_FILE};
use crate::staging::Staging;
use crate::storage::{Disk, Storage};
use std::path::{Path, PathBuf};

/// Packs the records of `source`, which came from `path`, into a new store at `target`.
pub(super) fn pack_array(
    source: Box<dyn ArraySource>,
    path: &Path,
    target: &Path,
    options: &PackOptions,
    watch: Watch<'_>,
) -> Result<Report> {
    let staging = Staging::new(target, options.existing())?;
    watch.progress.set_total_bytes(source.records().total_bytes());
    let mut report = Report::default();
    write(source, path, &staging.path(), options, watch, &mut report)?;
    finish_report(report, staging, watch)
}

/// Packs arrays of equal length into a new dataset at `target`, a stream each.
///
/// # Errors
/// As [`super::pack`]; [`Error::Invalid`] if the arrays differ in length, or a name is none for a directory or is given
/// twice.
pub fn pack_streams(
    streams: &[(String, PathBuf)],
    target: &Path,
    options: &PackOptions,
    watch: Watch<'_>,
) -> Result<Report> {
    let mut sources: Vec<(&str, &Path, Box<dyn ArraySource>)> = Vec::with_capacity(streams.len());
    for (name, path) in streams {
        if name.is_empty() || name.contains(['/', '\0']) || name.starts_with('.') || name.len() > 255 {
            return Err(Error::invalid(format!("a stream cannot be called {name:?}: it becomes a directory's name")));
        }
        if [META_FILE, TREE_FILE].contains(&&name[..]) {
            return Err(Error::invalid(format!("a stream cannot be called {name}: a file of a dataset has that name")));
        }
        options.spare(path, target)?;
        if sources.iter().any(|(other, ..)| other == name) {
            return Err(Error::invalid(format!("the stream {name} is given twice")));
        }
        sources.push((name, path, array::open(path)?));
    }
    if let [(_, first, one), rest @ ..] = &sources[..]
        && let Some((_, other, two)) = rest.iter().find(|(_, _, s)| s.records().len() != one.records().len())
    {
        let (a, b) = (one.records().len(), two.records().len());
        let reason =
            format!("{} has {a} records, but {} has {b}: streams belong together", first.display(), other.display());
        return Err(Error::invalid(reason));
    }
    let staging = Staging::new(target, options.existing())?;
    let dir = staging.path();
    Disk::default().create_dir(&dir).map_err(Error::io("create", &dir))?;
    watch.progress.set_total_bytes(sources.iter().map(|(_, _, s)| s.records().total_bytes()).sum());
    let mut report = Report::default();
    for (name, path, source) in sources {
        // A record of the dataset is one of each stream.
        report.records = 0;
        write(source, path, &dir.join(name), options, watch, &mut report)?;
    }
    Disk::default().sync_dir(&dir).map_err(Error::io("sync", &dir))?;
    finish_report(report, staging, watch)
}

/// Copies all records of `source` into a new store at `to`.
fn write(
    mut source: Box<dyn ArraySource>,
    path: &Path,
    to: &Path,
    options: &PackOptions,
    watch: Watch<'_>,
    report: &mut Report,
) -> Result<()> {
    let mut writer = options.writer();
    if options.codec == Codec::ZstdDict {
        let sample = sample(&mut *source, path, options.tier.sample_bytes(), watch)?;
        writer = writer.dict(sample.train(options.tier, &path.display())?);
    }
    let records = source.records();
    let record_bytes = records.record_bytes();
    let mut store = DenseWriter::create(to, writer, records.dtype().clone(), records.item_shape().to_vec())?;
    let count = (BATCH_BYTES / record_bytes).max(1);
    let mut block = Vec::new();
    loop {
        watch.progress.check()?;
        block.clear();
        let n = source.read(count, &mut block)?;
        if n == 0 {
            break;
        }
        store.append(&block)?;
        watch.progress.add(n, block.len() as u64);
        report.records += n;
        report.bytes += block.len() as u64;
    }
    store.close()
}

/// A strided sample of the records, of about `limit` bytes. A source that can only be read forward is read once more for
/// it.
pub(super) fn sample(source: &mut dyn ArraySource, path: &Path, limit: usize, watch: Watch<'_>) -> Result<Sample> {
    let (len, record_bytes) = (source.records().len(), source.records().record_bytes());
    let stride = Sample::stride(limit, record_bytes, len);
    let mut sample = Sample::new(limit);
    let mut record = vec![0; record_bytes as usize];
    if source.seekable() {
        for index in (0..len).step_by(stride as usize) {
            watch.progress.check()?;
            source.read_at(index, &mut record)?;
            sample.push(&record);
        }
        return Ok(sample);
    }
    if is_stdin(path) {
        let reason = "a dictionary needs a sample first, and standard input is read only once; use --codec zstd";
        return Err(Error::invalid(reason));
    }
    let mut again = array::open(path)?;
    for index in 0..len {
        watch.progress.check()?;
        record.clear();
        if again.read(1, &mut record)? == 0 || sample.is_full() {
            break;
        }
        if index.is_multiple_of(stride) {
            sample.push(&record);
        }
    }
    Ok(sample)
}
