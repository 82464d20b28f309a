//! Compacting whatever a path holds: a store, or each stream of a dataset.

use super::{DATA_STREAM, Source};
use crate::error::{Error, Result};
use crate::format::{Codec, TREE_FILE};
use crate::pack::Progress;
use crate::store::{Compacted, WriterOptions};
use std::path::{Path, PathBuf};

/// Compacts the store at `path`, or each stream of the dataset, one after the other; calls `done` for each with its name
/// (empty for a single store) when it is compacted.
///
/// # Errors
/// [`Error::Invalid`] for a tree, whose files are never deleted one by one and whose index is bound to its records'
/// places; otherwise as [`Source::open`] and [`Writer::compact`](crate::Writer::compact). The streams before the one that
/// fails are compacted.
pub fn compact(
    path: impl AsRef<Path>,
    progress: &Progress,
    mut done: impl FnMut(&str, Compacted) -> Result<()>,
) -> Result<()> {
    let path = path.as_ref();
    let streams: Vec<(String, PathBuf)> = match Source::open(path)? {
        Source::Store(stream) => {
            refuse_part_of_tree(path)?;
            vec![(String::new(), stream.store().path().to_path_buf())]
        }
        Source::Dataset(dataset) => {
            if dataset.tree().is_some() {
                let reason =
                    "a tree has nothing to free, for its files are not deleted one by one; pack it anew instead";
                return Err(Error::invalid(format!("{}: {reason}", path.display())));
            }
            let path = |(name, stream): &(String, super::Stream)| (name.clone(), stream.store().path().to_path_buf());
            dataset.streams().iter().map(path).collect()
        }
    };
    // By now the dataset is closed again: its own readers would be in the way.
    for (name, path) in streams {
        // The store's own codec holds.
        let compacted = WriterOptions::new(Codec::Raw).open(path)?.compact(progress)?;
        done(&name, compacted)?;
    }
    Ok(())
}

/// Refuses the stream that a tree's index beside it is bound to.
fn refuse_part_of_tree(path: &Path) -> Result<()> {
    let path = path.canonicalize().map_err(Error::io("resolve", path))?;
    let tree = path.parent().map(|dataset| dataset.join(TREE_FILE));
    match tree {
        Some(tree) if path.ends_with(DATA_STREAM) && tree.exists() => {
            let reason = format!("its records' places are bound to {}; pack the tree anew instead", tree.display());
            Err(Error::invalid(format!("{}: {reason}", path.display())))
        }
        _ => Ok(()),
    }
}
