//! What a path holds: one store, or a dataset of streams that belong together.

mod shapes;
mod stream;
mod write;

pub use stream::Stream;
pub(crate) use write::write_schema;
pub use write::{DenseWriter, RaggedMark, RaggedWriter};

use crate::error::{Error, Result};
use crate::format::{META_FILE, TREE_FILE};
use crate::store::OpenOptions;
use crate::tree::Tree;
use std::path::{Path, PathBuf};

/// More streams than this are refused: the mount numbers files by stream.
pub const MAX_STREAMS: usize = 4096;
/// The stream of a tree that holds the files' bytes.
pub const DATA_STREAM: &str = "data";
/// The stream of a tree that holds the files' paths.
pub const PATH_STREAM: &str = "path";

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
            let reason = "it has no meta.zr, and no directory in it has one".into();
            return Err(Error::NotAStore { path: path.to_path_buf(), reason });
        }
        if names.len() > MAX_STREAMS {
            let reason = format!("{}: {} streams, at most {MAX_STREAMS} are possible", path.display(), names.len());
            return Err(Error::invalid(reason));
        }
        let open = |name: String| Stream::open_with(&options, path.join(&name)).map(|stream| (name, stream));
        let streams: Vec<(String, Stream)> = names.into_iter().map(open).collect::<Result<_>>()?;
        if let [(first, one), rest @ ..] = &streams[..]
            && let Some((other, two)) = rest.iter().find(|(_, s)| s.len() != one.len())
        {
            let reason = format!("stream {first} has {} records, but stream {other} has {}", one.len(), two.len());
            return Err(Error::corrupt(two.store().path().join(META_FILE), 14, reason));
        }
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

    /// The number of records, the same in every stream.
    pub fn len(&self) -> u64 {
        self.streams.first().map_or(0, |(_, stream)| stream.len())
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
