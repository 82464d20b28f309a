//! Training the dictionary of a `zstd_dict` store on a sample of what will be packed.

use crate::codec::train_dict;
use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The tier "balanced": the size of the dictionary and of the sample that it is trained on, in bytes.
const DICT_BYTES: usize = 128 << 10;
/// See [`DICT_BYTES`].
const SAMPLE_BYTES: usize = 16 << 20;
/// No file gives more than this to the sample: a dictionary serves the beginnings of small records.
const FILE_BYTES: u64 = 128 << 10;
/// So many files are remembered while a tree is sampled.
const FILES: usize = 4096;

/// The sample so far.
#[derive(Debug, Default)]
pub(super) struct Sample {
    bytes: Vec<u8>,
    sizes: Vec<usize>,
}

impl Sample {
    /// Whether the sample is as large as it may be.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= SAMPLE_BYTES
    }

    /// How many of `total` records of `record_bytes` make a full sample.
    pub(super) fn count(record_bytes: u64, total: u64) -> u64 {
        (SAMPLE_BYTES as u64 / record_bytes.max(1)).clamp(1, total.max(1))
    }

    /// Adds one record.
    pub(super) fn push(&mut self, record: &[u8]) {
        self.bytes.extend(record);
        self.sizes.push(record.len());
    }

    /// Trains a dictionary.
    ///
    /// # Errors
    /// [`Error::Invalid`] with zstd's reason, mostly that there are too few records to learn from.
    pub(super) fn train(&self, source: &Path) -> Result<Vec<u8>> {
        train_dict(&self.bytes, &self.sizes, DICT_BYTES).map_err(|reason| {
            let n = self.sizes.len();
            let bytes = self.bytes.len();
            Error::invalid(format!(
                "no dictionary can be trained on {n} records ({bytes} bytes) of {}: {reason}; use --codec zstd",
                source.display()
            ))
        })
    }
}

/// Samples the files below `root`, spread evenly over the tree, in bounded memory.
pub(super) fn sample_tree(root: &Path) -> Sample {
    let mut sample = Sample::default();
    for path in spread(root) {
        if sample.is_full() {
            break;
        }
        // What cannot be read is reported when it is packed.
        let file =
            fs::OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(path);
        let mut bytes = Vec::new();
        if file.is_ok_and(|f: File| f.take(FILE_BYTES).read_to_end(&mut bytes).is_ok()) && !bytes.is_empty() {
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
