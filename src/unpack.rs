//! Unpacking: a tree dataset back into the files it was packed from.

use crate::dataset::{DATA_STREAM, Dataset, Stream};
use crate::error::{Error, Result};
use crate::pack::{Notice, Report, Watch};
use crate::pool::pool;
use crate::staging::{Existing, Staging};
use crate::tree::{Meta, Node, NodeKind, Tree};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// About so many bytes of files are read together and written in parallel.
const BATCH_BYTES: u64 = 16 << 20;
/// At most so many files are.
const BATCH_FILES: usize = 1024;
/// A block of zeros this long, or longer, becomes a hole.
const HOLE: usize = 64 << 10;
static ZEROS: [u8; HOLE] = [0; HOLE];

/// A file that waits to be written.
struct Pending {
    path: PathBuf,
    meta: Meta,
    first: u64,
    records: u64,
    size: u64,
}

struct Unpack<'a> {
    tree: &'a Tree,
    data: &'a Stream,
    watch: Watch<'a>,
    /// Where the files are made, and where they will be.
    staged: PathBuf,
    target: &'a Path,
    /// Owners can be given only by root.
    owners: bool,
    files: Vec<Pending>,
    bytes: u64,
    /// Directories whose entries are all made or waiting: they get their attributes after the next flush, when nothing
    /// more changes their times.
    done: Vec<(PathBuf, Meta)>,
    /// The first path of each file with several names.
    linked: HashMap<u64, PathBuf>,
    /// Further names of files that may still wait to be written.
    links: Vec<(u64, PathBuf)>,
    report: Report,
}

/// Restores all files, directories and links of `dataset` below the new directory `target`, with their modes and
/// times, and their owners when the process is root's. Long runs of zeros become holes.
///
/// The directory appears under its name only when everything was tried. A file that cannot be restored is named in a
/// [`Notice`] and counted in the [`Report`]; the rest is restored.
///
/// # Errors
/// [`Error::Invalid`] if the dataset was not packed from files, or `target` exists and is not empty;
/// [`Error::Corrupt`] if the tree index is damaged; [`Error::Io`]; [`Error::Interrupted`].
pub fn unpack(dataset: &Dataset, target: &Path, watch: Watch<'_>) -> Result<Report> {
    let (Some(tree), Some(data)) = (dataset.tree(), dataset.stream(DATA_STREAM)) else {
        let path = dataset.path().display();
        return Err(Error::invalid(format!("{path} was not packed from files, so there is no tree to restore")));
    };
    let staging = Staging::new(target, Existing::EmptyDir)?;
    let mut job = Unpack {
        tree,
        data,
        watch,
        staged: staging.path(),
        target,
        owners: rustix::process::geteuid().is_root(),
        files: Vec::new(),
        bytes: 0,
        done: Vec::new(),
        linked: HashMap::new(),
        links: Vec::new(),
        report: Report::default(),
    };
    watch.progress.set_total_bytes(tree.summary().total_bytes);
    job.run(staging.path())?;
    let report = job.report;
    staging.publish()?;
    Ok(report)
}

impl Unpack<'_> {
    fn run(&mut self, root: PathBuf) -> Result<()> {
        let node = self.tree.node(0)?;
        make_dir(&root)?;
        self.report.dirs += 1;
        // The directories on the way down, each with how many of its children were taken.
        let mut stack = vec![(node, root, 0u64)];
        while let Some((dir, path, taken)) = stack.last_mut() {
            self.watch.progress.check()?;
            let NodeKind::Dir { children } = &dir.kind else { break };
            let id = children.start + *taken;
            if id >= children.end {
                self.done.push((std::mem::take(path), dir.meta));
                stack.pop();
                continue;
            }
            *taken += 1;
            let node = self.tree.node(id)?;
            let path = path.join(OsStr::from_bytes(&node.name));
            if let Some(dir) = self.entry(node, path)? {
                stack.push((dir.0, dir.1, 0));
            }
        }
        self.flush()
    }

    /// Makes one entry, or remembers it for the next flush; returns the directory to go on with, if it is one.
    fn entry(&mut self, node: Node, path: PathBuf) -> Result<Option<(Node, PathBuf)>> {
        match &node.kind {
            NodeKind::Dir { .. } => {
                match make_dir(&path) {
                    // A tree may be deeper than a path can be long: what is in here is left out, the rest restored.
                    Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::InvalidFilename => {
                        self.failed(&path, "its path is too long for this system; it and all below it were left out");
                        return Ok(None);
                    }
                    made => made?,
                }
                self.report.dirs += 1;
                return Ok(Some((node, path)));
            }
            NodeKind::Symlink { target } => {
                self.report.symlinks += 1;
                let made = std::os::unix::fs::symlink(OsStr::from_bytes(target), &path);
                if let Err(e) = made.and_then(|()| attributes(&path, node.meta, self.owners, true)) {
                    self.failed(&path, &e.to_string());
                }
            }
            &NodeKind::File { first, records, size } => {
                self.report.files += 1;
                if node.nlink > 1 {
                    if self.linked.contains_key(&node.ino) {
                        self.links.push((node.ino, path));
                        return Ok(None);
                    }
                    self.linked.insert(node.ino, path.clone());
                }
                self.bytes += size;
                self.files.push(Pending { path, meta: node.meta, first, records, size });
                if self.bytes >= BATCH_BYTES || self.files.len() >= BATCH_FILES {
                    self.flush()?;
                }
            }
        }
        Ok(None)
    }

    /// Writes the waiting files, then gives the finished directories their attributes.
    fn flush(&mut self) -> Result<()> {
        self.watch.progress.check()?;
        let files = std::mem::take(&mut self.files);
        self.bytes = 0;
        let (data, owners, piece, progress) = (self.data, self.owners, self.tree.piece_bytes(), self.watch.progress);
        let wrote: Vec<Result<(), String>> = pool().map(&files, |file| {
            progress.check().and_then(|()| write_file(file, data, piece, owners)).map_err(|e| {
                // Half a file is worse than none.
                let _ = fs::remove_file(&file.path);
                e.to_string()
            })?;
            progress.add(1, file.size);
            Ok(())
        });
        self.watch.progress.check()?;
        for (file, wrote) in files.iter().zip(wrote) {
            match wrote {
                Ok(()) => {
                    self.report.records += file.records;
                    self.report.bytes += file.size;
                }
                Err(reason) => self.failed(&file.path, &reason),
            }
        }
        for (ino, path) in std::mem::take(&mut self.links) {
            let made = match self.linked.get(&ino) {
                Some(first) => fs::hard_link(first, &path),
                None => Err(io::ErrorKind::NotFound.into()),
            };
            if let Err(e) = made {
                self.failed(&path, &format!("cannot link it to its other name: {e}"));
            }
        }
        for (path, meta) in std::mem::take(&mut self.done) {
            if let Err(e) = attributes(&path, meta, self.owners, false) {
                self.failed(&path, &e.to_string());
            }
        }
        Ok(())
    }

    fn failed(&mut self, path: &Path, reason: &str) {
        self.report.failed += 1;
        let path = path.strip_prefix(&self.staged).map_or(path.to_path_buf(), |below| self.target.join(below));
        (self.watch.notice)(Notice::Failed(&path, reason));
    }
}

/// A directory that only its owner can use, until it gets its own mode.
fn make_dir(path: &Path) -> Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path).map_err(Error::io("create", path))
}

fn write_file(pending: &Pending, data: &Stream, piece: u32, owners: bool) -> Result<()> {
    let path = &pending.path;
    let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(Error::io("create", path))?;
    let mut at = 0;
    for record in pending.first..pending.first + pending.records {
        let bytes = data.store().read(record)?;
        let want = (pending.size - at).min(u64::from(piece));
        if bytes.len() as u64 != want {
            let reason = format!("it has {} bytes where the tree index says {want}", bytes.len());
            return Err(Error::corrupt(data.store().path(), 0, reason).at_record(record));
        }
        write_sparse(&file, &bytes, at).map_err(Error::io("write", path))?;
        at += want;
    }
    file.set_len(pending.size).map_err(Error::io("write", path))?;
    attributes(path, pending.meta, owners, false).map_err(Error::io("set the attributes of", path))
}

/// Writes all but the blocks of zeros.
fn write_sparse(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    let mut at = at;
    for block in bytes.chunks(HOLE) {
        if block.len() < HOLE || block != ZEROS {
            file.write_all_at(block, at)?;
        }
        at += block.len() as u64;
    }
    Ok(())
}

/// Gives a path its owner, mode and time, in this order: a change of owner clears set-user-id bits, and any change
/// before the time is set could move it.
fn attributes(path: &Path, meta: Meta, owners: bool, symlink: bool) -> io::Result<()> {
    if owners {
        std::os::unix::fs::lchown(path, Some(meta.uid), Some(meta.gid))?;
    }
    if !symlink {
        fs::set_permissions(path, Permissions::from_mode(u32::from(meta.mode)))?;
    }
    let mtime = Timespec { tv_sec: meta.mtime.secs, tv_nsec: i64::from(meta.mtime.nanos) };
    let times = Timestamps { last_access: mtime, last_modification: mtime };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}
