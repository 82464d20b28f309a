//! The stores that a command works on: one, or the streams of a dataset.

use std::path::Path;
use zrfs::{Source, Stream};

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
