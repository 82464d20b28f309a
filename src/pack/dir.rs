//! A directory tree into a tree dataset.
//!
//! Entries are taken depth first, each directory's in the order of their names, which is the order in which a mount
//! lists them: a tool that walks the mount reads the records in sequence.

use super::files::{BATCH_BYTES, BATCH_FILES, Ready, TreeSink};
use super::progress::Progress;
use crate::error::{Error, Result};
use crate::pool::pool;
use crate::tree::{EntryId, Meta, Mtime};
use rustix::fs::{Mode, OFlags};
use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A file that changes while it is read is read again so often.
const TRIES: usize = 3;

/// A file that waits to be read together with others, in parallel.
struct Candidate {
    parent: EntryId,
    name: Vec<u8>,
    meta: Metadata,
    source: PathBuf,
}

/// What a small file was found to be and hold; `None` if it is not small.
type Contents = Option<(Metadata, Vec<u8>)>;

/// A directory whose entries are being taken: the rest of its names, last first.
struct Open {
    id: EntryId,
    source: PathBuf,
    names: Vec<Vec<u8>>,
}

struct Walk<'s, 'w> {
    sink: &'s mut TreeSink<'w>,
    root: PathBuf,
    batch: Vec<Candidate>,
    batch_bytes: u64,
    /// Files with several names, by device and inode.
    links: HashMap<(u64, u64), EntryId>,
    /// The store itself, while it grows inside the tree that is packed, and the one that it replaces.
    exclude: Vec<(u64, u64)>,
}

/// Packs everything below `root` into `sink`; leaves out the directories `exclude`, as far as they exist.
pub(super) fn pack_dir(root: &Path, sink: &mut TreeSink<'_>, exclude: &[&Path]) -> Result<()> {
    let exclude = exclude.iter().filter_map(|dir| fs::symlink_metadata(dir).ok());
    let mut walk = Walk {
        root: root.to_path_buf(),
        batch: Vec::new(),
        batch_bytes: 0,
        links: HashMap::new(),
        exclude: exclude.map(|own| (own.dev(), own.ino())).collect(),
        sink,
    };
    let id = walk.sink.tree.root();
    let names = names(root).map_err(Error::io("list", root))?;
    let mut stack = vec![Open { id, source: root.to_path_buf(), names }];
    while let Some(dir) = stack.last_mut() {
        walk.sink.watch.progress.check()?;
        match dir.names.pop() {
            None => {
                stack.pop();
            }
            Some(name) => {
                let source = dir.source.join(std::ffi::OsStr::from_bytes(&name));
                let id = dir.id;
                if let Some(sub) = walk.entry(id, name, source)? {
                    stack.push(sub);
                }
            }
        }
    }
    walk.flush()
}

/// The attributes that a tree keeps.
pub(super) fn meta_of(meta: &Metadata) -> Meta {
    Meta {
        mode: (meta.mode() & 0o7777) as u16,
        mtime: Mtime { secs: meta.mtime(), nanos: meta.mtime_nsec() as u32 },
        uid: meta.uid(),
        gid: meta.gid(),
    }
}

/// A directory's names, sorted from last to first.
fn names(dir: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut names = fs::read_dir(dir)?.map(|e| e.map(|e| e.file_name().into_vec())).collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

/// Adds up the regular files below `root` and tells `progress` the total, for a bar that knows its end. Stops when the
/// job does. Meant for a thread of its own beside the job.
pub fn measure(root: &Path, progress: &Progress) {
    let mut total = 0;
    let mut dirs = vec![root.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if progress.stopped() {
                return;
            }
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => dirs.push(entry.path()),
                Ok(meta) if meta.is_file() => total += meta.len(),
                _ => {}
            }
        }
    }
    progress.set_total_bytes(total);
}

impl Walk<'_, '_> {
    /// Takes one entry; returns the directory to go on with, if it is one.
    fn entry(&mut self, parent: EntryId, name: Vec<u8>, source: PathBuf) -> Result<Option<Open>> {
        let meta = match fs::symlink_metadata(&source) {
            Ok(meta) => meta,
            Err(e) => {
                self.sink.failed(&source, &e.to_string());
                return Ok(None);
            }
        };
        let kind = meta.file_type();
        if kind.is_file() {
            self.file(parent, name, source, meta)?;
        } else if kind.is_dir() {
            if self.exclude.contains(&(meta.dev(), meta.ino())) {
                return Ok(None);
            }
            let id = self.sink.dir(parent, &name, meta_of(&meta))?;
            // An unreadable directory is kept, empty, and named.
            match names(&source) {
                Ok(names) => return Ok(Some(Open { id, source, names })),
                Err(e) => self.sink.failed(&source, &e.to_string()),
            }
        } else if kind.is_symlink() {
            match fs::read_link(&source) {
                Ok(target) => self.sink.symlink(parent, &name, meta_of(&meta), target.as_os_str().as_bytes())?,
                Err(e) => self.sink.failed(&source, &e.to_string()),
            }
        } else {
            let what = match () {
                () if kind.is_fifo() => "a FIFO",
                () if kind.is_socket() => "a socket",
                () if kind.is_char_device() => "a character device",
                () => "a block device",
            };
            self.sink.left_out(&source, what);
        }
        Ok(None)
    }

    fn file(&mut self, parent: EntryId, name: Vec<u8>, source: PathBuf, meta: Metadata) -> Result<()> {
        if meta.nlink() > 1 {
            let key = (meta.dev(), meta.ino());
            if !self.links.contains_key(&key) && self.batch.iter().any(|c| (c.meta.dev(), c.meta.ino()) == key) {
                // The other name is still waiting: it must have its entry first.
                self.flush()?;
            }
            if let Some(&target) = self.links.get(&key) {
                return self.sink.hardlink(parent, &name, target);
            }
        }
        let candidate = Candidate { parent, name, meta, source };
        if candidate.meta.len() > self.sink.piece() {
            self.flush()?;
            return self.large(&candidate);
        }
        self.batch_bytes += candidate.meta.len();
        self.batch.push(candidate);
        if self.batch_bytes >= BATCH_BYTES || self.batch.len() >= BATCH_FILES {
            self.flush()?;
        }
        Ok(())
    }

    /// Reads the waiting files in parallel and writes them in order.
    fn flush(&mut self) -> Result<()> {
        self.sink.watch.progress.check()?;
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let piece = self.sink.piece();
        let progress = self.sink.watch.progress;
        let read: Vec<Result<Contents, String>> = pool().map(&batch, |c| {
            let read = read_small(&c.source, c.meta.len(), piece)?;
            progress.add(0, read.as_ref().map_or(0, |(_, bytes)| bytes.len() as u64));
            Ok(read)
        });
        let (mut ready, mut linked, mut grown) = (Vec::new(), Vec::new(), Vec::new());
        for (candidate, read) in batch.into_iter().zip(read) {
            match read {
                Ok(Some((meta, bytes))) => {
                    linked.push((meta.nlink() > 1).then_some((meta.dev(), meta.ino())));
                    let path = self.relative(&candidate.source);
                    let meta = meta_of(&meta);
                    ready.push(Ready { parent: candidate.parent, name: candidate.name, path, meta, bytes });
                }
                Ok(None) => grown.push(candidate),
                Err(reason) => self.sink.failed(&candidate.source, &reason),
            }
        }
        let entries = self.sink.files(&ready)?;
        self.links.extend(linked.into_iter().zip(entries).filter_map(|(key, entry)| Some((key?, entry))));
        // Files that are larger than they said need several records after all.
        grown.iter().try_for_each(|candidate| self.large(candidate))
    }

    /// Writes a file that needs several records; if it changes meanwhile, what was written is taken back.
    fn large(&mut self, candidate: &Candidate) -> Result<()> {
        let path = self.relative(&candidate.source);
        let mut reason = String::new();
        for _ in 0..TRIES {
            let mut large = self.sink.begin_large()?;
            match self.read_large(candidate, &path, &mut large)? {
                Ok(meta) => {
                    let id = self.sink.end_large(&large, candidate.parent, &candidate.name, meta_of(&meta))?;
                    if meta.nlink() > 1 {
                        self.links.insert((meta.dev(), meta.ino()), id);
                    }
                    return Ok(());
                }
                Err(why) => {
                    self.sink.abandon_large(&large)?;
                    reason = why;
                }
            }
        }
        self.sink.failed(&candidate.source, &reason);
        Ok(())
    }

    /// Copies a large file's contents. The outer error is the store's, the inner one the file's.
    fn read_large(
        &mut self,
        candidate: &Candidate,
        path: &[u8],
        large: &mut super::files::Large,
    ) -> Result<Result<Metadata, String>> {
        let (mut file, before) = match open(&candidate.source) {
            Ok(opened) => opened,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut buf = Vec::with_capacity(self.sink.large_step());
        loop {
            buf.clear();
            if let Err(e) = file.by_ref().take(self.sink.large_step() as u64).read_to_end(&mut buf) {
                return Ok(Err(e.to_string()));
            }
            if buf.is_empty() {
                break;
            }
            self.sink.watch.progress.add(0, buf.len() as u64);
            self.sink.large(large, path, &buf)?;
        }
        Ok(unchanged(&file, &before).map(|()| before))
    }

    /// A source path relative to the tree's root, as bytes.
    fn relative(&self, source: &Path) -> Vec<u8> {
        source.strip_prefix(&self.root).unwrap_or(source).as_os_str().as_bytes().to_vec()
    }
}

/// Reads a file of at most `piece` bytes; `None` if it has more by now. `size` is what it had when it was listed.
fn read_small(source: &Path, size: u64, piece: u64) -> Result<Contents, String> {
    let mut reason = String::new();
    for _ in 0..TRIES {
        let (file, before) = open(source)?;
        let mut bytes = Vec::with_capacity(size.min(piece) as usize + 1);
        (&file).take(piece + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
        if bytes.len() as u64 > piece {
            return Ok(None);
        }
        match unchanged(&file, &before) {
            Ok(()) => return Ok(Some((before, bytes))),
            Err(why) => reason = why,
        }
    }
    Err(reason)
}

/// Opens a regular file, and nothing else that may have come to stand in its place.
fn open(source: &Path) -> Result<(File, Metadata), String> {
    // NONBLOCK: should a FIFO stand here now, opening it does not wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(source, flags, Mode::empty()).map_err(|e| io::Error::from(e).to_string())?;
    let file = File::from(file);
    let meta = file.metadata().map_err(|e| e.to_string())?;
    if !meta.is_file() {
        return Err("something else came to stand in its place".into());
    }
    Ok((file, meta))
}

/// Whether a file is as it was when it was opened.
fn unchanged(file: &File, before: &Metadata) -> Result<(), String> {
    let after = file.metadata().map_err(|e| e.to_string())?;
    let state = |m: &Metadata| (m.len(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
    if state(before) == state(&after) { Ok(()) } else { Err("it changed while it was read".into()) }
}
