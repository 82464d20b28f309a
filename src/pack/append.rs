//! Appending to stores that are there: arrays to dense stores, arrays and files to ragged ones, files to stores of bytes.

use super::array::{self, ArraySource};
use super::detect::{self, detect, detect_stream};
use super::files::BATCH_BYTES;
use super::input::{is_stdin, open_stream};
use super::progress::{Notice, Watch};
use super::{idx, npy};
use crate::dataset::{Batch, DatasetWriter, StreamWriter};
use crate::error::{Error, Result};
use crate::format::{Kind, MAX_RECORD, META_FILE, Schema};
use crate::store::WriterOptions;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How records are appended.
#[derive(Debug, Clone, Copy, Default)]
pub struct AppendOptions {
    /// zstd's level; the codec's usual one where there is none.
    pub level: Option<i32>,
    /// To a dense store, an array is one record, rather than one a row.
    pub whole: bool,
}

/// What was appended, also where the job did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Appended {
    /// Records in the store before.
    pub first: u64,
    /// Records that were appended.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One record: its shape, where it has one, and its bytes.
type Record = (Vec<u64>, Vec<u8>);

/// Appends the records of `sources` to the store at `path`; `appended` says how many that are by now. All sources are
/// opened, and their types compared with that of the store, before anything is written.
///
/// - A dense store takes arrays (`.npy`, IDX, also compressed): one record a row, or the whole array with
///   [`whole`](AppendOptions::whole).
/// - A ragged store takes arrays, each one record. One of `|u1` takes any other file as well, and directories and tar
///   archives of them.
/// - A store of bytes takes files as they are, each one record, and directories and tar archives of them.
///
/// [`super::STDIN`] stands for standard input.
///
/// # Errors
/// [`Error::Invalid`] for a source that does not fit the store, naming both; [`Error::Corrupt`] for one that is damaged;
/// [`Error::Io`]; [`Error::Interrupted`]. The store is whole whatever happens, and keeps what was appended before.
pub fn append(
    path: &Path,
    sources: &[PathBuf],
    options: &AppendOptions,
    watch: Watch<'_>,
    appended: &mut Appended,
) -> Result<()> {
    // The codec of the options does not count for a store that is there.
    let mut writer = StreamWriter::open(path, WriterOptions::new(crate::format::Codec::Zstd).level(options.level))?;
    appended.first = writer.len();
    let feeds: Vec<Feed> =
        sources.iter().map(|source| Feed::open(source, &writer, options.whole, watch)).collect::<Result<_>>()?;
    watch.progress.set_total_bytes(feeds.iter().map(|feed| feed.total_bytes).sum());
    let mut batch = Owned::default();
    let mut done = Ok(());
    for feed in feeds {
        done = feed.each(watch, &mut |record| {
            batch.push(record);
            if batch.bytes.len() as u64 >= BATCH_BYTES { batch.flush(&mut writer, watch, appended) } else { Ok(()) }
        });
        if done.is_err() {
            break;
        }
    }
    let done = match done {
        Ok(()) => batch.flush(&mut writer, watch, appended),
        // A read that was interrupted looks like a damaged input; what was asked for comes first.
        Err(e) => Err(watch.progress.check().err().unwrap_or(e)),
    };
    let closed = writer.close();
    done.and(closed)
}

/// Appends to all streams of the dataset at `path`, from one source each, which must have equally many records.
///
/// # Errors
/// As [`append`]; [`Error::Invalid`] for sources that differ in the number of records or whose number is not known before
/// they are read (archives and standard input), before anything is written.
pub fn append_streams(
    path: &Path,
    sources: &[(String, PathBuf)],
    options: &AppendOptions,
    watch: Watch<'_>,
    appended: &mut Appended,
) -> Result<()> {
    let codec = crate::format::Codec::Zstd;
    let mut writer = DatasetWriter::open(path, &WriterOptions::new(codec).level(options.level))?;
    appended.first = writer.len();
    let names: Vec<String> = writer.streams().map(|(name, _)| name.to_string()).collect();
    let mut feeds = Vec::with_capacity(names.len());
    for (name, stream) in writer.streams() {
        let mut given = sources.iter().filter(|(given, _)| given == name);
        let (Some((_, source)), None) = (given.next(), given.next()) else {
            let (path, names) = (path.display(), names.join(", "));
            return Err(Error::invalid(format!("{path} has the streams {names}; give one source for each")));
        };
        feeds.push((source, Feed::open(source, stream, options.whole, watch)?));
    }
    if let Some((name, _)) = sources.iter().find(|(name, _)| !names.contains(name)) {
        let (path, names) = (path.display(), names.join(", "));
        return Err(Error::invalid(format!("{path} has no stream {name:?}; it has {names}")));
    }
    let mut expected: Option<(&Path, u64)> = None;
    for (source, feed) in &feeds {
        let Some(count) = feed.count else {
            let reason = "its records are not counted before they are read; unpack it, or save it to a file";
            return Err(Error::invalid(format!("{}: {reason}", source.display())));
        };
        match expected {
            Some((other, first)) if first != count => {
                let (other, source) = (other.display(), source.display());
                let reason = format!("{other} has {first} records, but {source} has {count}: streams belong together");
                return Err(Error::invalid(reason));
            }
            _ => expected = Some((source, count)),
        }
    }
    watch.progress.set_total_bytes(feeds.iter().map(|(_, feed)| feed.total_bytes).sum());
    let mut feeds: Vec<Feed> = feeds.into_iter().map(|(_, feed)| feed).collect();
    let done = in_step(&mut writer, &names, &mut feeds, watch, appended);
    let closed = writer.close();
    done.and(closed)
}

/// Appends as many records of each feed at a time.
fn in_step(
    writer: &mut DatasetWriter,
    names: &[String],
    feeds: &mut [Feed],
    watch: Watch<'_>,
    appended: &mut Appended,
) -> Result<()> {
    loop {
        watch.progress.check()?;
        let mut batches: Vec<Owned> = feeds.iter().map(|_| Owned::default()).collect();
        let mut bytes = 0;
        let mut ended = false;
        while bytes < BATCH_BYTES && !ended {
            let records: Vec<Option<Record>> = feeds.iter_mut().map(|feed| feed.next(watch)).collect::<Result<_>>()?;
            ended = records.iter().any(Option::is_none);
            if ended && records.iter().any(Option::is_some) {
                return Err(Error::invalid("a source has fewer records than it had when it was counted"));
            }
            for (batch, record) in batches.iter_mut().zip(records.into_iter().flatten()) {
                bytes += record.1.len() as u64;
                batch.push(record);
            }
        }
        let count = batches.first().map_or(0, |batch| batch.lengths.len() as u64);
        if count > 0 {
            let parts: Vec<Parts<'_>> = batches.iter().map(Owned::parts).collect();
            let mut given = Vec::with_capacity(parts.len());
            for ((name, part), (_, stream)) in names.iter().zip(&parts).zip(writer.streams()) {
                given.push((&name[..], part.batch(stream)));
            }
            writer.append(&given)?;
            appended.records += count;
            appended.bytes += bytes;
            watch.progress.add(count, bytes);
        }
        if ended {
            return Ok(());
        }
    }
}

/// Records that wait to be appended together.
#[derive(Default)]
struct Owned {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
    shapes: Vec<Vec<u64>>,
}

/// The same, as the writers take them.
struct Parts<'a> {
    all: &'a [u8],
    records: Vec<&'a [u8]>,
    shaped: Vec<(&'a [u64], &'a [u8])>,
}

impl Owned {
    fn push(&mut self, (shape, bytes): Record) {
        self.bytes.extend(&bytes);
        self.lengths.push(bytes.len());
        self.shapes.push(shape);
    }

    fn parts(&self) -> Parts<'_> {
        let mut rest = &self.bytes[..];
        let mut records = Vec::with_capacity(self.lengths.len());
        for &length in &self.lengths {
            let (record, tail) = rest.split_at(length.min(rest.len()));
            records.push(record);
            rest = tail;
        }
        let shaped = self.shapes.iter().map(Vec::as_slice).zip(records.iter().copied()).collect();
        Parts { all: &self.bytes, records, shaped }
    }

    fn flush(&mut self, writer: &mut StreamWriter, watch: Watch<'_>, appended: &mut Appended) -> Result<()> {
        watch.progress.check()?;
        let (count, bytes) = (self.lengths.len() as u64, self.bytes.len() as u64);
        let parts = self.parts();
        let batch = parts.batch(writer);
        writer.append(&batch)?;
        appended.records += count;
        appended.bytes += bytes;
        watch.progress.add(count, bytes);
        *self = Owned::default();
        Ok(())
    }
}

impl Parts<'_> {
    fn batch(&self, writer: &StreamWriter) -> Batch<'_> {
        match writer {
            StreamWriter::Dense(_) => Batch::Dense(self.all),
            StreamWriter::Ragged(_) => Batch::Ragged(&self.shaped),
            StreamWriter::Bytes(_) => Batch::Bytes(&self.records),
        }
    }
}

/// A source of records for one store.
struct Feed {
    source: Records,
    /// How many records it has, where that is known.
    count: Option<u64>,
    total_bytes: u64,
}

enum Records {
    /// The rows of an array.
    Rows { array: Box<dyn ArraySource>, block: Vec<u8>, at: usize },
    /// An array as one record.
    Whole(Option<Box<dyn ArraySource>>),
    /// Files, the last one first. Arrays among them are read as such where the store has a type.
    Files { files: Vec<PathBuf>, schema: Option<Schema> },
    /// A tar archive, uncompressed, of files.
    Tar(Box<dyn Read + Send>, PathBuf),
}

impl Feed {
    /// Opens `path` as a source for `writer`, and compares the types.
    fn open(path: &Path, writer: &StreamWriter, whole: bool, watch: Watch<'_>) -> Result<Feed> {
        let schema = writer.schema().cloned();
        let store = writer.path().display();
        if !is_stdin(path) {
            // Opening a FIFO would wait for whoever writes to it.
            let kind = std::fs::metadata(path).map_err(Error::io("open", path))?.file_type();
            if !kind.is_file() && !kind.is_dir() {
                let reason = "is neither a file nor a directory; to append what comes from a pipe, give - for it";
                return Err(Error::invalid(format!("{} {reason}", path.display())));
            }
        }
        let Some(schema) = schema else { return Self::open_files(path, None, watch) };
        if matches!(schema.kind, Kind::Ragged) {
            return Self::open_files(path, Some(schema), watch);
        }
        let array = open_array(path, watch)?;
        let Kind::Dense { item_shape } = &schema.kind else { return Err(Error::invalid(format!("{store} is ragged"))) };
        let records = array.records();
        if *records.dtype() != schema.dtype {
            let (have, given) = (schema.dtype.as_str(), records.dtype().as_str());
            let reason = format!("{} is an array of {given}, but the records of {store} are of {have}", path.display());
            return Err(Error::invalid(reason));
        }
        let full: Vec<u64> = std::iter::once(records.len()).chain(records.item_shape().iter().copied()).collect();
        let total_bytes = records.total_bytes();
        if whole && full == *item_shape {
            return Ok(Feed { source: Records::Whole(Some(array)), count: Some(1), total_bytes });
        }
        if !whole && records.item_shape() == item_shape {
            let count = Some(records.len());
            return Ok(Feed { source: Records::Rows { array, block: Vec::new(), at: 0 }, count, total_bytes });
        }
        let hint = match () {
            () if !whole && full == *item_shape => "; --whole appends the array as one record",
            () if whole && records.item_shape() == item_shape => "; without --whole each row is a record",
            () => "",
        };
        let (what, shape) = if whole { ("is an array", &full[..]) } else { ("has rows", records.item_shape()) };
        let path = path.display();
        Err(Error::invalid(format!(
            "{path} {what} of shape {shape:?}, but the records of {store} have {item_shape:?}{hint}"
        )))
    }

    /// Files, a directory or an archive of them, each a record of a ragged store or one of bytes.
    fn open_files(path: &Path, schema: Option<Schema>, watch: Watch<'_>) -> Result<Feed> {
        let takes_bytes = schema.as_ref().is_none_or(|schema| schema.dtype.as_str() == "|u1");
        let no_bytes = |what: &str| {
            let dtype = schema.as_ref().map_or("bytes", |schema| schema.dtype.as_str());
            Error::invalid(format!(
                "{} {what}; the records of the store are arrays of {dtype}: give .npy files",
                path.display()
            ))
        };
        if is_stdin(path) {
            let (kind, stream) = detect_stream(open_stream(path, watch.progress)?, Path::new("standard input"))?;
            return match kind {
                detect::Kind::Tar(_) if takes_bytes => {
                    Ok(Feed { source: Records::Tar(stream, path.to_path_buf()), count: None, total_bytes: 0 })
                }
                detect::Kind::Npy(_) | detect::Kind::Idx(_) if schema.is_some() => {
                    let array = stream_array(kind, stream)?;
                    let source = Records::Whole(Some(array));
                    Ok(Feed { source, count: None, total_bytes: 0 })
                }
                _ => Err(no_bytes("gives no files")),
            };
        }
        let meta = std::fs::metadata(path).map_err(Error::io("open", path))?;
        if meta.is_dir() {
            let mut files = Vec::new();
            let mut total_bytes = 0;
            list(path, &mut files, &mut total_bytes, watch)?;
            files.reverse();
            let count = Some(files.len() as u64);
            return Ok(Feed { source: Records::Files { files, schema }, count, total_bytes });
        }
        if let (Ok(detect::Kind::Tar(_)), true) = (detect(path), takes_bytes) {
            let (_, stream) = detect_stream(open_stream(path, watch.progress)?, path)?;
            return Ok(Feed { source: Records::Tar(stream, path.to_path_buf()), count: None, total_bytes: 0 });
        }
        if let Some(schema) = &schema {
            match detect(path) {
                Ok(detect::Kind::Npy(_) | detect::Kind::Idx(_)) => check_array(&*array::open(path)?, path, schema)?,
                _ if takes_bytes => {}
                Ok(_) => return Err(no_bytes("is no array")),
                Err(e) => return Err(e),
            }
        }
        let files = vec![path.to_path_buf()];
        Ok(Feed { source: Records::Files { files, schema }, count: Some(1), total_bytes: meta.len() })
    }

    /// Calls `each` with every record.
    fn each(mut self, watch: Watch<'_>, each: &mut dyn FnMut(Record) -> Result<()>) -> Result<()> {
        if let Records::Tar(stream, path) = self.source {
            return each_member(stream, &path, watch, each);
        }
        while let Some(record) = self.next(watch)? {
            each(record)?;
        }
        Ok(())
    }

    /// The next record, of anything but an archive.
    fn next(&mut self, watch: Watch<'_>) -> Result<Option<Record>> {
        match &mut self.source {
            Records::Rows { array, block, at } => {
                let record = array.records().record_bytes() as usize;
                if *at >= block.len() {
                    watch.progress.check()?;
                    block.clear();
                    *at = 0;
                    let count = (BATCH_BYTES / array.records().record_bytes()).max(1);
                    if array.read(count, block)? == 0 {
                        return Ok(None);
                    }
                }
                let bytes = block.get(*at..*at + record).unwrap_or_default().to_vec();
                *at += record;
                Ok(Some((Vec::new(), bytes)))
            }
            Records::Whole(array) => array.take().map(whole).transpose(),
            Records::Files { files, schema } => {
                let Some(path) = files.pop() else { return Ok(None) };
                watch.progress.check()?;
                if let Some(schema) = schema
                    && let Ok(detect::Kind::Npy(_) | detect::Kind::Idx(_)) = detect(&path)
                {
                    let array = array::open(&path)?;
                    check_array(&*array, &path, schema)?;
                    return whole(array).map(Some);
                }
                if let Some(schema) = schema
                    && schema.dtype.as_str() != "|u1"
                {
                    let (path, dtype) = (path.display(), schema.dtype.as_str());
                    return Err(Error::invalid(format!("{path} is no array; the records of the store are of {dtype}")));
                }
                let file = File::open(&path).map_err(Error::io("open", &path))?;
                let mut bytes = Vec::new();
                file.take(MAX_RECORD + 1).read_to_end(&mut bytes).map_err(Error::io("read", &path))?;
                Ok(Some((vec![bytes.len() as u64], bytes)))
            }
            Records::Tar(..) => Ok(None),
        }
    }
}

/// The records of an array as one.
fn whole(mut array: Box<dyn ArraySource>) -> Result<Record> {
    let records = array.records();
    let (len, total) = (records.len(), records.total_bytes());
    let shape: Vec<u64> = std::iter::once(len).chain(records.item_shape().iter().copied()).collect();
    if total > MAX_RECORD || total == 0 {
        return Err(Error::RecordLength { length: total });
    }
    let mut bytes = Vec::new();
    while array.read(len, &mut bytes)? > 0 {}
    Ok((shape, bytes))
}

/// Compares an array's type with that of a ragged store.
fn check_array(array: &dyn ArraySource, path: &Path, schema: &Schema) -> Result<()> {
    let (have, given) = (&schema.dtype, array.records().dtype());
    if have == given {
        return Ok(());
    }
    let (path, have, given) = (path.display(), have.as_str(), given.as_str());
    Err(Error::invalid(format!("{path} is an array of {given}, but the records of the store are of {have}")))
}

fn open_array(path: &Path, watch: Watch<'_>) -> Result<Box<dyn ArraySource>> {
    if !is_stdin(path) {
        return array::open(path);
    }
    let (kind, stream) = detect_stream(open_stream(path, watch.progress)?, Path::new("standard input"))?;
    stream_array(kind, stream)
}

fn stream_array(kind: detect::Kind, stream: Box<dyn Read + Send>) -> Result<Box<dyn ArraySource>> {
    let name = Path::new("standard input");
    match kind {
        detect::Kind::Npy(_) => npy::from_stream(stream, name),
        detect::Kind::Idx(_) => idx::from_stream(stream, name),
        _ => Err(Error::invalid("standard input is no array")),
    }
}

/// The regular files below `dir`, depth first in the order of their names, and their bytes. Others are left out, each
/// with a notice.
fn list(dir: &Path, files: &mut Vec<PathBuf>, bytes: &mut u64, watch: Watch<'_>) -> Result<()> {
    let entries = std::fs::read_dir(dir).map_err(Error::io("list", dir))?;
    let mut paths: Vec<PathBuf> =
        entries.map(|e| e.map(|e| e.path())).collect::<std::io::Result<_>>().map_err(Error::io("list", dir))?;
    paths.sort();
    for path in paths {
        watch.progress.check()?;
        let meta = path.symlink_metadata().map_err(Error::io("stat", &path))?;
        if meta.is_dir() {
            list(&path, files, bytes, watch)?;
        } else if !meta.is_file() {
            (watch.notice)(Notice::LeftOut(&path, "neither a file nor a directory"));
        } else if meta.len() == 0 {
            (watch.notice)(Notice::LeftOut(&path, EMPTY));
        } else {
            *bytes += meta.len();
            files.push(path);
        }
    }
    Ok(())
}

const EMPTY: &str = "an empty file, and a record has at least one byte";

/// Calls `each` with every regular file of an archive.
fn each_member(
    stream: Box<dyn Read + Send>,
    name: &Path,
    watch: Watch<'_>,
    each: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    let damaged = |e: std::io::Error| Error::invalid(format!("{} is no whole tar archive: {e}", name.display()));
    let mut archive = tar::Archive::new(stream);
    for entry in archive.entries().map_err(damaged)? {
        watch.progress.check()?;
        let mut entry = entry.map_err(damaged)?;
        let kind = entry.header().entry_type();
        let path = PathBuf::from(OsStr::from_bytes(&entry.path_bytes()));
        if kind.is_dir() {
            continue;
        }
        if !kind.is_file() {
            (watch.notice)(Notice::LeftOut(&path, "neither a file nor a directory"));
            continue;
        }
        let size = entry.size();
        if size == 0 {
            (watch.notice)(Notice::LeftOut(&path, EMPTY));
            continue;
        }
        if size > MAX_RECORD {
            return Err(Error::RecordLength { length: size });
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(damaged)?;
        if bytes.len() as u64 != size {
            return Err(damaged(std::io::Error::other(format!("it ends inside {}", path.display()))));
        }
        each((vec![size], bytes))?;
    }
    Ok(())
}

/// The dataset that the store at `path` is a stream of, if it is one: alone it must not be changed.
pub fn dataset_of(path: &Path) -> Option<PathBuf> {
    let parent = path.canonicalize().ok()?.parent()?.to_path_buf();
    if parent.join(META_FILE).exists() {
        return None;
    }
    // A directory with stores of different lengths is none.
    let dataset = crate::Dataset::open_with(&crate::OpenOptions::new(), &parent).ok()?;
    (dataset.streams().len() > 1 || dataset.tree().is_some()).then_some(parent)
}
