//! The stores that a command works on: one, or the streams of a dataset.

use std::path::Path;
use zrfs::format::META_FILE;
use zrfs::{Error, Result, Source, Stream};

/// Calls `each` with the name (empty for a single store) and the stream of everything in `source`.
pub(super) fn each<E>(source: &Source, mut each: impl FnMut(&str, &Stream) -> Result<(), E>) -> Result<(), E> {
    match source {
        Source::Store(stream) => each("", stream),
        Source::Dataset(dataset) => dataset.streams().iter().try_for_each(|(name, stream)| each(name, stream)),
    }
}

/// How one of them is called in messages.
pub(super) fn label(source: &Path, name: &str) -> String {
    super::print::path(&if name.is_empty() { source.to_path_buf() } else { source.join(name) })
}

/// Whether `path` is a directory of stores, rather than one.
///
/// # Errors
/// [`Error::NotAStore`] if it is neither.
pub(super) fn is_dataset(path: &Path) -> Result<bool> {
    if path.is_dir() && !path.join(META_FILE).exists() {
        return Ok(true);
    }
    if path.join(META_FILE).exists() {
        return Ok(false);
    }
    let reason =
        if path.exists() { "it is a file, and a store is a directory" } else { "there is nothing of that name" };
    Err(Error::NotAStore { path: path.to_path_buf(), reason: reason.into() })
}

/// # Errors
/// [`Error::Invalid`] if the store at `path` is a stream of a dataset, which a change of it alone would tear apart, unless
/// the user knows that it is not.
pub(super) fn refuse_stream(path: &Path, alone: bool) -> Result<()> {
    let tree = path.canonicalize().ok().and_then(|path| Some(path.parent()?.join(zrfs::format::TREE_FILE)));
    if alone && tree.is_some_and(|tree| tree.is_file()) {
        let reason = "belongs to files that were packed, whose paths are bound to its records; pack them again";
        return Err(Error::invalid(format!("{} {reason}", super::print::path(path))));
    }
    match zrfs::pack::dataset_of(path) {
        Some(dataset) if !alone => {
            let (path, dataset) = (super::print::path(path), super::print::path(&dataset));
            let reason = format!(
                "{path} is a stream of the dataset {dataset}, and its records belong to those of the others: name the \
                 dataset (or give --alone, if these are stores that have nothing to do with each other)"
            );
            Err(Error::invalid(reason))
        }
        _ => Ok(()),
    }
}
