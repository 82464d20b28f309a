//! What a path holds: one store, or a dataset of streams that belong together.

mod compact;
#[cfg(test)]
mod crash_tests;
mod dense;
mod gather;
mod intent;
#[cfg(test)]
mod model_tests;
mod ragged;
mod ragged_schema;
mod read;
mod shapes;
mod stream;
#[cfg(test)]
mod tests;
mod write;
mod writer;

pub use compact::compact;
pub use dense::DenseWriter;
pub use gather::Found;
pub use ragged::{RaggedMark, RaggedWriter};
pub use read::{Records, Values};
pub use stream::Stream;
pub use write::{Batch, StreamWriter};
pub use writer::DatasetWriter;

use crate::error::{Error, Result};
use crate::format::dataset::Intent;
use crate::format::{META_FILE, TREE_FILE};
use crate::storage::Storage;
use crate::store::OpenOptions;
use crate::tree::Tree;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// More streams than this are refused: the mount numbers files by stream.
pub const MAX_STREAMS: usize = 4096;
/// The stream of a tree that holds the files' bytes.
pub const DATA_STREAM: &str = "data";
/// The stream of a tree that holds the files' paths.
pub const PATH_STREAM: &str = "path";

/// A reader tries so often to open a dataset that is being changed.
const TRIES: usize = 4;

/// A directory of streams of equal length; record i of each belong together.
#[derive(Debug)]
pub struct Dataset {
    path: PathBuf,
    streams: Vec<(String, Stream)>,
    tree: Option<Tree>,
}

/// What a path was found to hold.
#[derive(Debug)]
pub enum Source {
    /// One store.
    Store(Box<Stream>),
    /// A dataset.
    Dataset(Box<Dataset>),
}

impl Source {
    /// Opens whatever is at `path`. Costs the same for any number of records and files.
    ///
    /// # Errors
    /// [`Error::NotAStore`] if it is neither a store nor a dataset; otherwise as [`OpenOptions::open`] and
    /// [`Tree::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Source> {
        Self::open_with(&OpenOptions::new(), path)
    }

    /// The same, where raw records are compared with their checksums when they are read whole: for what copies them, shows
    /// them as files, or says what they are.
    ///
    /// # Errors
    /// As [`open`](Source::open).
    pub fn open_checked(path: impl AsRef<Path>) -> Result<Source> {
        Self::open_with(&OpenOptions::new().verify_on_read(true), path)
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`open`](Source::open).
    pub fn open_with(options: &OpenOptions, path: impl AsRef<Path>) -> Result<Source> {
        let path = path.as_ref();
        let is_dataset = path.is_dir() && !path.join(META_FILE).exists();
        if is_dataset {
            Dataset::open_with(options, path).map(|d| Source::Dataset(Box::new(d)))
        } else {
            Stream::open_with(options, path).map(|s| Source::Store(Box::new(s)))
        }
    }

    /// The directory that was opened.
    pub fn path(&self) -> &Path {
        match self {
            Source::Store(stream) => stream.store().path(),
            Source::Dataset(dataset) => dataset.path(),
        }
    }

    /// The number of records.
    pub fn len(&self) -> u64 {
        match self {
            Source::Store(stream) => stream.len(),
            Source::Dataset(dataset) => dataset.len(),
        }
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Dataset {
    /// Opens the dataset at `path`: every store in it is a stream.
    ///
    /// # Errors
    /// [`Error::NotAStore`] if it has none; [`Error::Corrupt`] if streams differ in length or the tree index does not
    /// fit; otherwise as [`OpenOptions::open`].
    pub fn open_with(options: &OpenOptions, path: impl AsRef<Path>) -> Result<Dataset> {
        let path = path.as_ref();
        let storage = options.pinned(path)?;
        let options = options.clone().storage(storage.clone());
        let mut streams = open_aligned(&storage, &options, path);
        for _ in 1..TRIES {
            // A writer began or ended between one look and the next.
            if matches!(streams, Ok(Some(_))) {
                break;
            }
            streams = open_aligned(&storage, &options, path);
        }
        let streams =
            streams?.ok_or(Error::Locked { path: path.to_path_buf(), use_: "being changed in place", holder: None })?;
        let dataset = Dataset { path: path.to_path_buf(), streams, tree: None };
        let tree_path = path.join(TREE_FILE);
        let tree = match storage.open(&tree_path) {
            Ok(_) => Some(Tree::open(&*storage, &tree_path)?),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(Error::io("open", tree_path)(e)),
        };
        if let Some(tree) = &tree {
            let (made, now) = (tree.summary().data_end, dataset.stream(DATA_STREAM).map(|data| data.store().header()));
            if made != (0, 0) && now.is_none_or(|now| made != (now.tail_chunk, now.tail_offset)) {
                let reason = "the stream data was changed since the tree was packed, so its paths no longer hold; remove \
                              this file to open the streams alone";
                return Err(Error::corrupt(tree_path, 88, reason));
            }
            let have = dataset.stream(DATA_STREAM).map_or(0, Stream::len);
            if tree.summary().records > have {
                let reason = format!("it speaks of {} records, the stream data has {have}", tree.summary().records);
                return Err(Error::corrupt(tree_path, 0, reason));
            }
        }
        Ok(Dataset { tree, ..dataset })
    }

    /// The directory that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The streams by name, in the order of their names.
    pub fn streams(&self) -> &[(String, Stream)] {
        &self.streams
    }

    /// The stream of that name.
    pub fn stream(&self, name: &str) -> Option<&Stream> {
        self.streams.iter().find(|(n, _)| n == name).map(|(_, stream)| stream)
    }

    /// The tree index, where the dataset was packed from files.
    pub fn tree(&self) -> Option<&Tree> {
        self.tree.as_ref()
    }

    /// Reads the headers again, so that records appended by another process become visible: those that all streams
    /// have by now. Returns the new length.
    ///
    /// # Errors
    /// As [`Store::refresh`](crate::Store::refresh).
    pub fn refresh(&self) -> Result<u64> {
        self.streams.iter().try_for_each(|(_, stream)| stream.store().refresh().map(drop))?;
        Ok(limit(&self.streams))
    }

    /// The number of records, the same in every stream.
    pub fn len(&self) -> u64 {
        self.streams.first().map_or(0, |(_, stream)| stream.len())
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The names of the stores in the directory `path`, in order.
///
/// # Errors
/// [`Error::NotAStore`] if there is none.
fn stream_names(storage: &dyn Storage, path: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for name in storage.list(path).map_err(Error::io("list", path))? {
        let meta = path.join(&name).join(META_FILE);
        match storage.open(&meta) {
            Ok(_) => names.push(name.into_string().map_err(|name| {
                Error::invalid(format!("{}: the stream's name {name:?} is not UTF-8; rename it", path.display()))
            })?),
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {}
            Err(e) => return Err(Error::io("open", meta)(e)),
        }
    }
    names.sort();
    if names.is_empty() {
        // A mount's own directory, which no store has.
        let mounted = storage.open(&path.join(".zrfs/info.json")).is_ok();
        let reason = if mounted {
            "it is a mount of one; give the store itself"
        } else {
            "it has no meta.zr, and no directory in it has one"
        }
        .into();
        return Err(Error::NotAStore { path: path.to_path_buf(), reason });
    }
    if names.len() > MAX_STREAMS {
        let reason = format!("{}: {} streams, at most {MAX_STREAMS} are possible", path.display(), names.len());
        return Err(Error::invalid(reason));
    }
    Ok(names)
}

/// Opens all streams such that they have one length, whatever a writer is doing or was when it was interrupted. `None` if
/// that changed meanwhile.
fn open_aligned(
    storage: &Arc<dyn Storage>,
    options: &OpenOptions,
    path: &Path,
) -> Result<Option<Vec<(String, Stream)>>> {
    let intent = intent::read(&**storage, path)?;
    let open = |name: String| Stream::open_with(options, path.join(&name)).map(|stream| (name, stream));
    let mut streams: Vec<(String, Stream)> =
        stream_names(&**storage, path)?.into_iter().map(open).collect::<Result<_>>()?;
    if intent::read(&**storage, path)? != intent {
        return Ok(None);
    }
    match intent {
        None => uneven(streams.iter().map(|(name, stream)| (&name[..], stream.len())), path)?,
        Some(Intent::Append) => {
            limit(&streams);
        }
        Some(Intent::Delete { length, indices }) => {
            for (name, stream) in &mut streams {
                let rest = writer::not_deleted(path, name, stream.len(), length, &indices)?;
                if !rest.is_empty() {
                    stream.delete_in_memory(rest)?;
                }
            }
        }
    }
    Ok(Some(streams))
}

/// Shows of each stream the records that all of them have; returns how many that are.
fn limit(streams: &[(String, Stream)]) -> u64 {
    let shortest = streams.iter().map(|(_, stream)| stream.store().whole_len()).min().unwrap_or(0);
    streams.iter().for_each(|(_, stream)| stream.store().limit(shortest));
    shortest
}

/// # Errors
/// [`Error::Corrupt`] if the streams, given with their lengths, differ.
fn uneven<'a>(mut streams: impl Iterator<Item = (&'a str, u64)>, path: &Path) -> Result<()> {
    let Some((first, one)) = streams.next() else { return Ok(()) };
    match streams.find(|&(_, len)| len != one) {
        None => Ok(()),
        Some((other, two)) => {
            let reason = format!("stream {first} has {one} records, but stream {other} has {two}");
            Err(Error::corrupt(path.join(other).join(META_FILE), 14, reason))
        }
    }
}
