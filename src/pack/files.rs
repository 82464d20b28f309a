//! Files into a tree dataset: what directories and archives have in common.

use super::progress::{Notice, Watch};
use crate::dataset::{DATA_STREAM, PATH_STREAM, RaggedMark, RaggedWriter};
use crate::error::{Error, Result};
use crate::format::dtype::DType;
use crate::format::{Codec, TREE_FILE};
use crate::storage::{Disk, Storage};
use crate::store::WriterOptions;
use crate::tree::{EntryId, Meta, TreeBuilder};
use std::path::{Path, PathBuf};

/// A larger file is split into records of this many bytes, so that reading its middle decodes no more than one.
pub const PIECE_BYTES: u32 = 4 << 20;

/// About so many bytes of files are held in memory before they are compressed and written together.
pub(super) const BATCH_BYTES: u64 = 16 << 20;

/// At most so many files are.
pub(super) const BATCH_FILES: usize = 4096;

/// What a pack of files put into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Regular files, names of hard links included.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Records.
    pub records: u64,
    /// Bytes of all records.
    pub bytes: u64,
    /// Bytes that they take in the store.
    pub stored_bytes: u64,
    /// Devices, sockets and FIFOs that were left out.
    pub left_out: u64,
    /// What should be in the store and is not; each was named in a notice.
    pub failed: u64,
}

/// A file that waits to be written: where it goes and what it holds.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) parent: EntryId,
    pub(super) name: Vec<u8>,
    /// Relative to the tree's root, as the stream `path` keeps it.
    pub(super) path: Vec<u8>,
    pub(super) meta: Meta,
    pub(super) bytes: Vec<u8>,
}

/// A large file that is being written piece by piece.
#[derive(Debug)]
pub(super) struct Large {
    data: RaggedMark,
    path: RaggedMark,
    first: u64,
    size: u64,
}

/// The dataset that files are packed into.
pub(super) struct TreeSink<'w> {
    dir: PathBuf,
    data: RaggedWriter,
    path: RaggedWriter,
    pub(super) tree: TreeBuilder,
    pub(super) watch: Watch<'w>,
    pub(super) report: Report,
    piece: usize,
}

impl<'w> TreeSink<'w> {
    /// Makes an empty tree dataset at `dir`.
    pub(super) fn create(dir: &Path, options: WriterOptions, root: Meta, piece: u32, watch: Watch<'w>) -> Result<Self> {
        let bytes = || DType::parse("|u1").map_err(Error::invalid);
        Disk::default().create_dir(dir).map_err(Error::io("create", dir))?;
        let data = RaggedWriter::create(&dir.join(DATA_STREAM), options, bytes()?)?;
        // Paths are short and alike; a dictionary made for the files would not suit them.
        let path = RaggedWriter::create(&dir.join(PATH_STREAM), WriterOptions::new(Codec::Zstd), bytes()?)?;
        let tree = TreeBuilder::new(dir, root, piece)?;
        let report = Report { dirs: 1, ..Report::default() };
        Ok(TreeSink { dir: dir.to_path_buf(), data, path, tree, watch, report, piece: piece as usize })
    }

    /// Adds a directory.
    pub(super) fn dir(&mut self, parent: EntryId, name: &[u8], meta: Meta) -> Result<EntryId> {
        self.report.dirs += 1;
        self.tree.dir(parent, name, meta)
    }

    /// Adds a symbolic link.
    pub(super) fn symlink(&mut self, parent: EntryId, name: &[u8], meta: Meta, target: &[u8]) -> Result<()> {
        self.report.symlinks += 1;
        self.watch.progress.add(1, 0);
        self.tree.symlink(parent, name, meta, target).map(|_| ())
    }

    /// Adds another name of a file.
    pub(super) fn hardlink(&mut self, parent: EntryId, name: &[u8], target: EntryId) -> Result<()> {
        self.report.files += 1;
        self.watch.progress.add(1, 0);
        self.tree.hardlink(parent, name, target).map(|_| ())
    }

    /// Writes files that fit into one record each, in order; returns their entries.
    pub(super) fn files(&mut self, files: &[Ready]) -> Result<Vec<EntryId>> {
        let full: Vec<&Ready> = files.iter().filter(|f| !f.bytes.is_empty()).collect();
        let mut record = self.data.len();
        self.append(full.iter().map(|f| (&f.path[..], &f.bytes[..])))?;
        let mut entries = Vec::with_capacity(files.len());
        for file in files {
            let size = file.bytes.len() as u64;
            entries.push(self.tree.file(file.parent, &file.name, file.meta, record, size)?);
            record += u64::from(size > 0);
            self.report.files += 1;
        }
        self.watch.progress.add(files.len() as u64, 0);
        Ok(entries)
    }

    /// Begins a file that needs several records.
    pub(super) fn begin_large(&mut self) -> Result<Large> {
        Ok(Large { data: self.data.mark(), path: self.path.mark(), first: self.data.len(), size: 0 })
    }

    /// Writes the next bytes of a large file: whole pieces, but for the last call.
    pub(super) fn large(&mut self, large: &mut Large, path: &[u8], bytes: &[u8]) -> Result<()> {
        large.size += bytes.len() as u64;
        self.append(bytes.chunks(self.piece).map(|piece| (path, piece)))
    }

    /// Ends a large file and gives it its name.
    pub(super) fn end_large(&mut self, large: &Large, parent: EntryId, name: &[u8], meta: Meta) -> Result<EntryId> {
        self.report.files += 1;
        self.watch.progress.add(1, 0);
        self.tree.file(parent, name, meta, large.first, large.size)
    }

    /// Takes back what was written of a large file.
    pub(super) fn abandon_large(&mut self, large: &Large) -> Result<()> {
        self.report.records -= self.data.len() - large.first;
        self.report.bytes -= large.size;
        self.data.rollback(large.data)?;
        self.path.rollback(large.path)
    }

    /// How many bytes [`large`](TreeSink::large) is best given at a time.
    pub(super) fn large_step(&self) -> usize {
        self.piece * (BATCH_BYTES as usize / self.piece).max(1)
    }

    /// The most bytes that fit into one record.
    pub(super) fn piece(&self) -> u64 {
        self.piece as u64
    }

    /// Says that something is not in the store, though it should be.
    pub(super) fn failed(&mut self, path: &Path, reason: &str) {
        self.report.failed += 1;
        (self.watch.notice)(Notice::Failed(path, reason));
    }

    /// Says that something is not in the store because it has no contents to keep.
    pub(super) fn left_out(&mut self, path: &Path, what: &str) {
        self.report.left_out += 1;
        (self.watch.notice)(Notice::LeftOut(path, what));
    }

    /// Completes the dataset and makes it survive a power cut.
    pub(super) fn finish(mut self) -> Result<Report> {
        let disk = Disk::default();
        self.tree.bind(self.data.end());
        self.data.close()?;
        self.path.close()?;
        let summary = self.tree.finish(&disk, &self.dir.join(TREE_FILE))?;
        disk.sync_dir(&self.dir).map_err(Error::io("sync", &self.dir))?;
        // An archive may name a file twice; the tree knows what is left.
        Ok(Report { files: summary.files, dirs: summary.dirs, symlinks: summary.symlinks, ..self.report })
    }

    fn append<'a>(&mut self, records: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Result<()> {
        self.watch.progress.check()?;
        let records: Vec<(&[u8], &[u8])> = records.collect();
        let shapes: Vec<[u64; 1]> = records.iter().map(|(_, bytes)| [bytes.len() as u64]).collect();
        let path_shapes: Vec<[u64; 1]> = records.iter().map(|(path, _)| [path.len() as u64]).collect();
        let data: Vec<(&[u64], &[u8])> = shapes.iter().zip(&records).map(|(s, r)| (&s[..], r.1)).collect();
        let paths: Vec<(&[u64], &[u8])> = path_shapes.iter().zip(&records).map(|(s, r)| (&s[..], r.0)).collect();
        self.data.append(&data)?;
        self.path.append(&paths)?;
        self.report.records += records.len() as u64;
        self.report.bytes += records.iter().map(|r| r.1.len() as u64).sum::<u64>();
        Ok(())
    }
}
