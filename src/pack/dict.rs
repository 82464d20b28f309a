//! The samples that dictionaries are trained on, of what can be packed.

use super::array::{self, ArraySource};
use super::arrays;
use super::detect::{Kind, detect};
use super::input::is_stdin;
use super::progress::Watch;
use crate::dataset::{DATA_STREAM, Source};
use crate::dict::{RECORD_BYTES, Sample, sample_store};
use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// So many files are remembered while a tree is sampled.
const FILES: usize = 4096;

/// A sample of at most `limit` bytes of what `source` holds: a store, the files of a dataset that was packed from files,
/// an array, or a directory of files.
///
/// # Errors
/// [`Error::Invalid`] for a dataset whose streams differ, an archive, and whatever else has no records to sample;
/// otherwise as [`sample_store`] and [`array::open`].
pub fn sample(source: &Path, limit: usize, watch: Watch<'_>) -> Result<Sample> {
    let refused = |reason: &str| Err(Error::invalid(format!("{} {reason}", source.display())));
    if is_stdin(source) {
        return refused("is standard input, which is read only once; give a file");
    }
    match detect(source)? {
        Kind::Directory => match Source::open(source) {
            Ok(Source::Store(stream)) => sample_store(stream.store(), limit, watch.progress),
            Ok(Source::Dataset(dataset)) => match (dataset.stream(DATA_STREAM), dataset.tree(), dataset.streams()) {
                (Some(data), Some(_), _) | (_, None, [(_, data)]) => sample_store(data.store(), limit, watch.progress),
                _ => {
                    refused("is a dataset of several streams, and each needs a dictionary of its own; name one of them")
                }
            },
            Err(Error::NotAStore { .. }) => Ok(sample_tree(source, limit)),
            Err(e) => Err(e),
        },
        Kind::Npy(_) | Kind::Idx(_) => {
            let mut array: Box<dyn ArraySource> = array::open(source)?;
            arrays::sample(&mut *array, source, limit, watch)
        }
        Kind::Tar(_) => {
            refused("is an archive; unpack it and give the directory, or give the store it was packed into")
        }
    }
}

/// Samples the files below `root`, spread evenly over the tree, in bounded memory.
pub(super) fn sample_tree(root: &Path, limit: usize) -> Sample {
    let mut sample = Sample::new(limit);
    for path in spread(root) {
        if sample.is_full() {
            break;
        }
        // What cannot be read is reported when it is packed.
        let file =
            fs::OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(path);
        let mut bytes = Vec::new();
        if file.is_ok_and(|f: File| f.take(RECORD_BYTES as u64).read_to_end(&mut bytes).is_ok()) {
            sample.push(&bytes);
        }
    }
    sample
}

/// Regular files at equal distances in a walk of the tree: all of the first [`FILES`], then every second, and so on.
fn spread(root: &Path) -> Vec<PathBuf> {
    let (mut kept, mut stride, mut seen) = (Vec::new(), 1usize, 0usize);
    let mut dirs = vec![root.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => dirs.push(entry.path()),
                Ok(kind) if kind.is_file() => {
                    if seen.is_multiple_of(stride) {
                        kept.push(entry.path());
                    }
                    seen += 1;
                }
                _ => {}
            }
            if kept.len() == FILES {
                let mut k = 0;
                kept.retain(|_| {
                    k += 1;
                    k % 2 == 1
                });
                stride *= 2;
            }
        }
    }
    kept
}
