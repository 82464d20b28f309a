//! The file system: every operation in plain types, so that nearly all of it is tested without a kernel.
//!
//! ```text
//! store                    dataset
//! ├── records/17           ├── streams/NAME/records/17, npy/17.npy, …
//! ├── npy/17.npy           ├── samples/17/NAME, NAME.npy
//! ├── png/17.png           ├── batches/SPEC/7/NAME.npy, 7.indices.npy
//! ├── files/00000017.jpg   ├── batches/at/5,17,0-9/NAME.npy
//! ├── batches/SPEC/7.npy   ├── tree/…
//! ├── batches/at/5,17.npy  └── .zrfs/info.json, stats.json, readahead, control, views
//! └── .zrfs/…
//! ```
//! An inode is arithmetic on what it stands for (see [`crate::namespace`]), but for batches, whose names are numbered in
//! a bounded table. Nothing is kept per open file, so memory does not grow with what was visited. Operations are safe to
//! call from any number of threads.

mod ahead;
mod announce;
mod attr;
mod batches;
mod counters;
#[cfg(test)]
mod equality_tests;
mod files;
mod guard;
mod info;
mod ioctl;
mod list;
mod lookup;
mod read;
mod spec;
mod started;
#[cfg(test)]
mod tests;
mod views;
mod xattr;

pub use attr::{Attr, Kind};
pub use counters::Counters;
pub use read::Answer;

use crate::ahead::Ahead;
use crate::errno::{Errno, errno};
use crate::names::Naming;
use crate::namespace::{Node, ROOT};
use crate::timing::Timings;
use crate::views::{Limits, Views};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use zrfs::cache::DecodedCache;
use zrfs::format::META_FILE;
use zrfs::tree::{Mtime, Tree};
use zrfs::{Source, Stream};

/// The longest name in a directory, in bytes.
pub const NAME_MAX: usize = 255;
/// Records and trees never change: the kernel may keep their names and attributes for good.
pub const FOREVER: Duration = Duration::from_secs(365 * 86400);
/// What changes when another process appends is asked for again after this long.
pub const SOON: Duration = Duration::from_secs(1);
/// Above so many records, which are all in one directory, a listing gives attributes only where the kernel sees them used.
const MAX_LISTED: u64 = 100_000;
/// The same for the files of a tree, which are in many directories.
const MAX_LISTED_IN_TREE: u64 = 1 << 20;
/// A store's length is read again at most this often.
const REFRESH_MS: u64 = 100;
/// Damage is logged for at most so many files; a store damaged everywhere must not fill a disk with its log.
const MAX_REPORTS: usize = 10_000;

/// How a file system looks to its callers.
#[derive(Debug, Clone, Default)]
pub struct FsOptions {
    /// Owner of every file.
    pub uid: u32,
    /// Group of every file.
    pub gid: u32,
    /// Permission bits that no file has.
    pub umask: u16,
    /// Bytes of memory for decoded records.
    pub cache_bytes: u64,
    /// Bytes that may be pushed ahead of readers; 0 for none.
    pub ahead_bytes: u64,
    /// What the views of one user may take.
    pub views: Limits,
    /// The part of the namespace that becomes the root, as a path from the whole's root.
    pub root: Option<PathBuf>,
    /// How records are named in `files`, which there is only then.
    pub names: Option<Naming>,
    /// Whether files have extended attributes.
    pub xattrs: bool,
}

/// The size of the whole file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statfs {
    /// Stored bytes in blocks of [`Statfs::BLOCK`].
    pub blocks: u64,
    /// Records, or names of the tree where there is one.
    pub files: u64,
}

impl Statfs {
    /// Bytes of a block.
    pub const BLOCK: u32 = 4096;
}

/// Why an operation failed, before it becomes a number.
#[derive(Debug)]
enum Failure {
    /// The caller asked for what isn't there or isn't possible.
    Errno(Errno),
    /// The engine could not do it.
    Engine(zrfs::Error),
}

impl From<Errno> for Failure {
    fn from(e: Errno) -> Self {
        Failure::Errno(e)
    }
}

impl From<zrfs::Error> for Failure {
    fn from(e: zrfs::Error) -> Self {
        Failure::Engine(e)
    }
}

/// A mounted store or dataset.
#[derive(Debug)]
pub struct Fs {
    source: Source,
    options: FsOptions,
    /// The node that has the inode number [`ROOT`].
    root: Node,
    states: Vec<StreamState>,
    cache: DecodedCache,
    ahead: Ahead,
    spelled: announce::Spelled,
    table: batches::Table,
    views: Arc<Views>,
    /// What a loader would call the streams.
    stream_names: Vec<String>,
    counters: Counters,
    started: Instant,
    reported: Mutex<HashSet<u64>>,
    timings: Timings,
}

/// What the file system knows of a stream beside the engine.
#[derive(Debug)]
struct StreamState {
    /// The time of the store's header when it was mounted: that of all records, then and later, so that the kernel
    /// never drops their pages.
    mtime: Mtime,
    /// The time of the directories of records: moves when records were found appended.
    grown: Mutex<Mtime>,
    /// When the length was last read, in milliseconds since the mount.
    refreshed: AtomicU64,
    /// Whether the first record of a ragged stream is a picture, once that was asked.
    pictures: OnceLock<bool>,
}

impl Fs {
    /// The file system of what is in `source`.
    ///
    /// # Errors
    /// A sentence if the root that the options ask for is not a directory in it.
    pub fn new(source: Source, options: FsOptions) -> Result<Fs, String> {
        let state = |stream: &Stream| {
            let meta = std::fs::metadata(stream.store().path().join(META_FILE)).and_then(|m| m.modified());
            let mtime = mtime_of(meta.unwrap_or(UNIX_EPOCH));
            StreamState { mtime, grown: Mutex::new(mtime), refreshed: AtomicU64::new(0), pictures: OnceLock::new() }
        };
        let states = match &source {
            Source::Store(stream) => vec![state(stream)],
            Source::Dataset(dataset) => dataset.streams().iter().map(|(_, stream)| state(stream)).collect(),
        };
        let cache = DecodedCache::new(options.cache_bytes);
        let ahead = Ahead::new(options.ahead_bytes);
        let mut fs = Fs {
            views: Views::new(options.views),
            stream_names: source.stream_names(),
            source,
            options,
            root: Node::Root,
            states,
            cache,
            ahead,
            spelled: announce::Spelled::default(),
            table: batches::Table::default(),
            counters: Counters::default(),
            started: Instant::now(),
            reported: Mutex::default(),
            timings: Timings::default(),
        };
        if let Some(path) = fs.options.root.clone() {
            fs.root = fs.resolve(&path)?;
        }
        Ok(fs)
    }

    /// What is mounted.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// What the kernel asked of it.
    pub fn timings(&self) -> &Timings {
        &self.timings
    }

    /// What was done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The inode that `name` has in the directory `parent`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`; `EIO` where the store is damaged.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<Attr, Errno> {
        self.counters.lookups.add(1);
        let attr = || -> Result<Attr, Failure> {
            if name.len() > NAME_MAX {
                return Err(Errno::NAMETOOLONG.into());
            }
            self.attr(self.child(self.node(parent)?, name)?)
        };
        attr().map_err(|e| self.fail(parent, Some(name), e))
    }

    /// The attributes of an inode.
    ///
    /// # Errors
    /// `ENOENT` if there is no such inode; `EIO` where the store is damaged.
    pub fn getattr(&self, ino: u64) -> Result<Attr, Errno> {
        self.counters.getattrs.add(1);
        let attr = || -> Result<Attr, Failure> {
            let node = self.node(ino)?;
            let attr = self.attr(node)?;
            // What is short-lived is the name's hold on its number.
            Ok(if node.is_batch_file() { Attr { ttl: FOREVER, ..attr } } else { attr })
        };
        attr().map_err(|e| self.fail(ino, None, e))
    }

    /// Stored bytes and the number of files.
    ///
    /// # Errors
    /// None at present.
    pub fn statfs(&self) -> Result<Statfs, Errno> {
        let streams = (0..self.states.len()).filter_map(|s| self.stream(s as u16).ok());
        let bytes: u64 = streams.map(|s| s.store().chunk_bytes()).fold(0, u64::saturating_add);
        let files = self.tree().map_or_else(|_| self.source.len(), Tree::node_count);
        Ok(Statfs { blocks: bytes.div_ceil(Statfs::BLOCK.into()), files })
    }

    /// Whether listings should always come with attributes. Reading a file then costs one round trip instead of two, but
    /// the kernel keeps about 1 KiB for each file listed, and a listing alone takes several times longer.
    pub fn lists_all_attributes(&self) -> bool {
        match self.tree() {
            Ok(tree) => tree.node_count() <= MAX_LISTED_IN_TREE,
            Err(_) => self.source.len() <= MAX_LISTED,
        }
    }

    /// The node that an inode number stands for. It need not exist.
    fn node(&self, ino: u64) -> Result<Node, Errno> {
        if ino == ROOT { Ok(self.root) } else { Node::from_ino(ino).ok_or(Errno::NOENT) }
    }

    fn ino(&self, node: Node) -> Result<u64, Errno> {
        if node == self.root { Ok(ROOT) } else { node.ino().ok_or(Errno::OVERFLOW) }
    }

    fn stream(&self, s: u16) -> Result<&Stream, Errno> {
        match &self.source {
            Source::Store(stream) => (s == 0).then_some(&**stream),
            Source::Dataset(dataset) => dataset.streams().get(usize::from(s)).map(|(_, stream)| stream),
        }
        .ok_or(Errno::NOENT)
    }

    fn tree(&self) -> Result<&Tree, Errno> {
        match &self.source {
            Source::Store(_) => None,
            Source::Dataset(dataset) => dataset.tree(),
        }
        .ok_or(Errno::NOENT)
    }

    fn state(&self, s: u16) -> Result<&StreamState, Errno> {
        self.states.get(usize::from(s)).ok_or(Errno::NOENT)
    }

    /// The index, if the stream has a record of it, appended ones included.
    fn live(&self, s: u16, index: Option<u64>) -> Result<u64, Failure> {
        let (stream, index) = (self.stream(s)?, index.ok_or(Errno::NOENT)?);
        if index >= stream.len() {
            self.refresh(s)?;
        }
        if index >= stream.len() { Err(Errno::NOENT.into()) } else { Ok(index) }
    }

    /// Looks whether records were appended to the stream, if that was not asked just now.
    fn refresh(&self, s: u16) -> Result<(), Failure> {
        let (store, state) = (self.stream(s)?.store(), self.state(s)?);
        let now = self.started.elapsed().as_millis() as u64;
        let last = state.refreshed.load(Ordering::Acquire);
        if now.saturating_sub(last) >= REFRESH_MS {
            let before = store.len();
            // Of a dataset that is being appended to, only what all streams have is there.
            let looked = match &self.source {
                Source::Dataset(dataset) => dataset.refresh(),
                Source::Store(stream) => stream.store().refresh(),
            };
            if store.len() > before {
                *state.grown.lock().unwrap_or_else(PoisonError::into_inner) = mtime_of(SystemTime::now());
            }
            // Others rely on it without looking, so it is noted when it is done.
            state.refreshed.fetch_max(now, Ordering::AcqRel);
            looked?;
        }
        Ok(())
    }

    /// Turns a failure into its number. Damage is logged, once a file: whoever reads it sees no more than `EIO`.
    fn fail(&self, ino: u64, name: Option<&[u8]>, failure: Failure) -> Errno {
        let error = match failure {
            Failure::Errno(e) => return e,
            Failure::Engine(e) => e,
        };
        let number = errno(&error);
        if number == Errno::IO {
            let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
            if reported.len() < MAX_REPORTS && reported.insert(report_key(ino, name)) {
                let name = name.map(|n| format!(" {:?}", OsStr::from_bytes(n))).unwrap_or_default();
                log::error!("inode {ino:#x}{name}: {error}");
                if reported.len() == MAX_REPORTS {
                    log::error!("{MAX_REPORTS} files are damaged; further ones are not logged");
                }
            }
        }
        number
    }
}

/// What stands for a file in the set of those that were logged.
fn report_key(ino: u64, name: Option<&[u8]>) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (ino, name).hash(&mut hasher);
    hasher.finish()
}

fn mtime_of(time: SystemTime) -> Mtime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Mtime { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
}
