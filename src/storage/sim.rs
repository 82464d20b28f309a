//! A file system in memory that can fail, and lose what a power cut may lose.
//!
//! What it keeps apart: the *cached* state, which every process sees, and what is *durable*. A file's writes and length
//! are pending until that file is synced, a directory's names until that directory is synced; syncing a file makes no
//! name durable. After a power cut, each sector of 512 bytes of a file holds what it held at any one moment since the
//! file's last sync, independently of its neighbours; so does the file's length, and so does each name. That is more
//! than ext4 and XFS let happen (their journals keep names and lengths in order), so whatever survives this survives
//! them. After a sync that failed, the next one takes what was pending for written.

mod power;

pub(crate) use power::{Moment, Outcome, Tried};

use super::{Storage, StoreFile};
use crate::format::{SUMS_FILE, sums};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io::{self, IoSlice};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a disk writes wholly or not at all.
const SECTOR: usize = 512;

#[derive(Clone, Default)]
struct Names {
    nodes: BTreeMap<OsString, usize>,
    /// Names that a rename changed together since the directory was synced: both changes survive or neither.
    renames: Vec<[OsString; 2]>,
}

/// A thing with a durable version, the first, and pending ones, up to the cached one, the last.
#[derive(Clone)]
struct Versions<T>(Vec<Arc<T>>);

impl<T: Clone> Versions<T> {
    fn new(value: T) -> Self {
        Versions(vec![Arc::new(value)])
    }
    fn cached(&self) -> &T {
        self.0.last().expect("there is always one")
    }
    fn change(&mut self, change: impl FnOnce(&mut T)) {
        let mut new = self.cached().clone();
        change(&mut new);
        self.0.push(Arc::new(new));
    }
    fn sync(&mut self) {
        self.0.drain(..self.0.len() - 1);
    }
}

/// A file's bytes, and what the cache has of them that the disk never gets.
#[derive(Clone)]
struct Pages {
    versions: Versions<Vec<u8>>,
    /// Sectors that a failed sync left in the cache as if they had been written, and what the disk has in their place.
    /// The next sync passes over them, unless they are written to again.
    clean: BTreeMap<usize, Vec<u8>>,
}

/// Sector `number` of a file, which may end in it or before.
fn sector(bytes: &[u8], number: usize) -> &[u8] {
    let at = (number * SECTOR).min(bytes.len());
    &bytes[at..bytes.len().min(at + SECTOR)]
}

impl Pages {
    fn new(bytes: Vec<u8>) -> Self {
        Pages { versions: Versions::new(bytes), clean: BTreeMap::new() }
    }
    fn cached(&self) -> &Vec<u8> {
        self.versions.cached()
    }
    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.clean.retain(|&n, _| (n + 1) * SECTOR <= at || n * SECTOR >= at + bytes.len());
        self.versions.change(|file| {
            file.resize(file.len().max(at + bytes.len()), 0);
            file[at..at + bytes.len()].copy_from_slice(bytes);
        });
    }
    fn set_len(&mut self, len: usize) {
        self.clean.retain(|&n, _| n * SECTOR < len);
        self.versions.change(|file| file.resize(len, 0));
    }
    fn sync(&mut self) {
        let mut disk = self.cached().clone();
        for (n, old) in &self.clean {
            let end = disk.len().min((n + 1) * SECTOR);
            let place = &mut disk[n * SECTOR..end];
            place.fill(0);
            let n = place.len().min(old.len());
            place[..n].copy_from_slice(&old[..n]);
        }
        let cached = self.versions.0.pop().expect("there is always one");
        self.versions.0.clear();
        if *cached != disk {
            self.versions.0.push(Arc::new(disk));
        }
        self.versions.0.push(cached);
    }
    /// What Linux does when it cannot write pages: it takes them for clean all the same.
    fn fail_sync(&mut self) {
        let (disk, cached) = (self.versions.0[0].clone(), self.cached().clone());
        for n in 0..cached.len().div_ceil(SECTOR) {
            let old = sector(&disk, n);
            if old != sector(&cached, n) {
                self.clean.entry(n).or_insert_with(|| old.to_vec());
            }
        }
    }
}

impl Versions<Names> {
    fn sync_names(&mut self) {
        self.sync();
        if let Some(names) = self.0.first_mut() {
            Arc::make_mut(names).renames.clear();
        }
    }
}

#[derive(Clone)]
enum Node {
    File(Pages),
    Dir(Versions<Names>),
}

/// What a storage call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Call {
    Open,
    Create,
    List,
    Remove,
    Rename,
    Read,
    Write,
    Size,
    SetLen,
    Sync,
    Lock,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// With this error; nothing happens.
    Errno(i32),
    /// A write does all whole sectors but the last before the error; other calls just fail.
    Torn(i32),
    /// A read or write is interrupted before it begins; other calls succeed.
    Interrupted,
    /// A read or write does half of what it was asked to; other calls succeed.
    Short,
}

type Hook = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct World {
    /// Shared with the moments, which are many: a call copies the one that it changes.
    nodes: Vec<Arc<Node>>,
    /// Locks by file: the handles that hold it and whether alone.
    locks: BTreeMap<usize, BTreeMap<u64, bool>>,
    calls: u64,
    fault: Option<(u64, Fault)>,
    /// The call that the fault was injected into.
    failed: Option<Call>,
    hook: Option<(u64, Hook)>,
    /// Calls from this one on fail, and locks stay.
    stop: Option<u64>,
    /// Bytes that all files together may have.
    capacity: Option<usize>,
    step: usize,
    moments: Option<Vec<Moment>>,
}

/// The file system; clones are the same one.
#[derive(Clone)]
pub(crate) struct Sim {
    world: Arc<Mutex<World>>,
    /// The directory that paths below this one are found in.
    pinned: Option<(PathBuf, usize)>,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sim")
    }
}

/// The error that the fault is, where it is one.
fn errno_of(fault: Option<Fault>) -> Option<io::Error> {
    match fault? {
        Fault::Errno(n) | Fault::Torn(n) => Some(io::Error::from_raw_os_error(n)),
        Fault::Interrupted | Fault::Short => None,
    }
}

fn errno(n: rustix::io::Errno) -> io::Error {
    io::Error::from_raw_os_error(n.raw_os_error())
}

impl Sim {
    /// An empty file system.
    pub(crate) fn new() -> Self {
        Self::from_nodes(vec![Arc::new(Node::Dir(Versions::new(Names::default())))])
    }

    fn from_nodes(nodes: Vec<Arc<Node>>) -> Self {
        Sim { world: Arc::new(Mutex::new(World { nodes, ..World::default() })), pinned: None }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no call panics")
    }

    /// Counts calls from 0 again and lets call `k` fail.
    pub(crate) fn fail(&self, k: u64, fault: Fault) {
        let mut world = self.world();
        (world.calls, world.fault, world.failed) = (0, Some((k, fault)), None);
    }

    /// Makes the disk full once it has `more` bytes more than now.
    pub(crate) fn limit(&self, more: usize) {
        let mut world = self.world();
        world.capacity = Some(world.bytes() + more);
    }

    /// Ends injection.
    pub(crate) fn heal(&self) {
        self.world().fault = None;
    }

    /// Does something that is not counted and does not fail.
    pub(crate) fn calmly<T>(&self, act: impl FnOnce() -> T) -> T {
        let (calls, fault) = {
            let mut world = self.world();
            (world.calls, world.fault.take())
        };
        let done = act();
        let mut world = self.world();
        (world.calls, world.fault) = (calls, fault);
        done
    }

    /// Which call the fault hit so far.
    pub(crate) fn failed(&self) -> Option<Call> {
        self.world().failed
    }

    /// Counts calls from 0 again and runs `hook` just before call `k`, as another process could.
    pub(crate) fn before(&self, k: u64, hook: impl FnOnce() + Send + 'static) {
        let mut world = self.world();
        world.calls = 0;
        world.hook = Some((k, Box::new(hook)));
    }

    /// Does the first `calls` calls of `act`, as a process that is halted then: it goes on holding its locks.
    pub(crate) fn halted(&self, calls: u64, act: impl FnOnce()) {
        let before = std::mem::replace(&mut self.world().calls, 0);
        self.world().stop = Some(calls);
        act();
        let mut world = self.world();
        (world.calls, world.stop) = (before, None);
    }

    /// Whether the hook is still waiting.
    pub(crate) fn hook_waits(&self) -> bool {
        self.world().hook.is_some()
    }

    /// Storage calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.world().calls
    }

    /// Says which step of the test comes now, and records moments from here on.
    pub(crate) fn step(&self, step: usize) {
        let mut world = self.world();
        world.step = step;
        let nodes = world.nodes.clone();
        world.moments.get_or_insert_default().push(Moment { nodes, step });
    }

    /// All moments recorded: one after each call that changed something.
    pub(crate) fn moments(&self) -> Vec<Moment> {
        self.world().moments.take().unwrap_or_default()
    }

    /// Does a call: counts it, fails it where that was asked for, and records the moment after it.
    fn call<T>(&self, call: Call, act: impl FnOnce(&mut World, Option<Fault>) -> io::Result<T>) -> io::Result<T> {
        let mut world = self.world();
        let k = world.calls;
        if world.hook.as_ref().is_some_and(|(at, _)| *at == k)
            && let Some((_, hook)) = world.hook.take()
        {
            drop(world);
            hook();
            world = self.world();
        }
        world.calls += 1;
        if world.stop.is_some_and(|at| k >= at) {
            return Err(errno(rustix::io::Errno::IO));
        }
        let fault = world.fault.filter(|(at, _)| *at == k).map(|(_, fault)| fault);
        if fault.is_some() {
            world.failed = Some(call);
        }
        let io = matches!(call, Call::Read | Call::Write);
        let done = match fault {
            // A sync that fails does something all the same.
            fault if call == Call::Sync => act(&mut world, fault),
            Some(Fault::Errno(n)) => Err(io::Error::from_raw_os_error(n)),
            Some(Fault::Torn(n)) if call != Call::Write => Err(io::Error::from_raw_os_error(n)),
            Some(Fault::Interrupted) if io => Err(errno(rustix::io::Errno::INTR)),
            fault => act(&mut world, fault),
        };
        if matches!(call, Call::Create | Call::Remove | Call::Rename | Call::Write | Call::SetLen | Call::Sync) {
            let (nodes, step) = (world.nodes.clone(), world.step);
            if let Some(moments) = &mut world.moments {
                moments.push(Moment { nodes, step });
            }
        }
        done
    }

    /// The directory and the last name of `path`.
    fn locate<'p>(&self, world: &World, path: &'p Path) -> io::Result<(usize, Option<&'p OsStr>)> {
        let (mut at, below) = match &self.pinned {
            Some((dir, node)) if path.starts_with(dir) => (*node, path.strip_prefix(dir).expect("just tried")),
            _ => (0, path),
        };
        let mut names: Vec<&OsStr> = Vec::new();
        for part in below.components() {
            if let Component::Normal(name) = part {
                names.push(name);
            }
        }
        let last = names.pop();
        for name in names {
            at = world.find(at, name)?;
        }
        Ok((at, last))
    }

    fn resolve(&self, world: &World, path: &Path) -> io::Result<usize> {
        match self.locate(world, path)? {
            (dir, Some(name)) => world.find(dir, name),
            (dir, None) => Ok(dir),
        }
    }

    fn handle(&self, node: usize) -> Arc<dyn StoreFile> {
        static HANDLES: AtomicU64 = AtomicU64::new(0);
        Arc::new(SimFile { sim: self.clone(), node, handle: HANDLES.fetch_add(1, Ordering::Relaxed) })
    }

    fn open_kind(&self, path: &Path, want_dir: bool) -> io::Result<Arc<dyn StoreFile>> {
        let node = self.call(Call::Open, |world, _| {
            let node = self.resolve(world, path)?;
            match (&*world.nodes[node], want_dir) {
                (Node::File(_), true) => Err(errno(rustix::io::Errno::NOTDIR)),
                _ => Ok(node),
            }
        })?;
        Ok(self.handle(node))
    }

    fn create(&self, path: &Path, new: Node) -> io::Result<usize> {
        self.call(Call::Create, |world, _| {
            let (dir, name) = self.locate(world, path)?;
            let name = name.ok_or_else(|| errno(rustix::io::Errno::EXIST))?;
            let node = world.nodes.len();
            if world.names(dir)?.cached().nodes.contains_key(name) {
                return Err(errno(rustix::io::Errno::EXIST));
            }
            world.names_mut(dir)?.change(|names| {
                names.nodes.insert(name.into(), node);
            });
            world.nodes.push(Arc::new(new));
            Ok(node)
        })
    }
}

impl World {
    /// Hashes what can be found in a directory, names and bytes. Not the time of day in the head of checksums, which is
    /// after all times here.
    fn hash_cached(&self, dir: &Names, state: &mut impl Hasher) {
        dir.nodes.len().hash(state);
        for (name, &node) in &dir.nodes {
            name.hash(state);
            match &*self.nodes[node] {
                Node::Dir(names) => self.hash_cached(names.cached(), state),
                Node::File(file) => {
                    let bytes = file.cached();
                    let head = bytes.first_chunk().filter(|_| *name == *SUMS_FILE).and_then(sums::Head::decode);
                    let rest = &bytes[if head.is_some() { sums::HEAD_LEN } else { 0 }..];
                    (head.map(|head| head.doubtful), rest).hash(state);
                }
            }
        }
    }
    /// Bytes of all files, removed ones too.
    fn bytes(&self) -> usize {
        let bytes = |node: &Arc<Node>| if let Node::File(file) = &**node { file.cached().len() } else { 0 };
        self.nodes.iter().map(bytes).sum()
    }
    fn node_mut(&mut self, node: usize) -> Option<&mut Node> {
        self.nodes.get_mut(node).map(Arc::make_mut)
    }
    fn names(&self, node: usize) -> io::Result<&Versions<Names>> {
        match self.nodes.get(node).map(|node| &**node) {
            Some(Node::Dir(names)) => Ok(names),
            _ => Err(errno(rustix::io::Errno::NOTDIR)),
        }
    }
    fn names_mut(&mut self, node: usize) -> io::Result<&mut Versions<Names>> {
        match self.node_mut(node) {
            Some(Node::Dir(names)) => Ok(names),
            _ => Err(errno(rustix::io::Errno::NOTDIR)),
        }
    }
    fn find(&self, dir: usize, name: &OsStr) -> io::Result<usize> {
        let found = self.names(dir)?.cached().nodes.get(name);
        found.copied().ok_or_else(|| errno(rustix::io::Errno::NOENT))
    }
    fn file(&self, node: usize) -> io::Result<&Pages> {
        match self.nodes.get(node).map(|node| &**node) {
            Some(Node::File(file)) => Ok(file),
            _ => Err(errno(rustix::io::Errno::ISDIR)),
        }
    }
    fn file_mut(&mut self, node: usize) -> io::Result<&mut Pages> {
        match self.node_mut(node) {
            Some(Node::File(file)) => Ok(file),
            _ => Err(errno(rustix::io::Errno::ISDIR)),
        }
    }
}

impl Storage for Sim {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>> {
        self.open_kind(path, false)
    }
    fn open_rw(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>> {
        self.open_kind(path, false)
    }
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>> {
        self.open_kind(path, true)
    }
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn StoreFile>> {
        Ok(self.handle(self.create(path, Node::File(Pages::new(Vec::new())))?))
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.create(path, Node::Dir(Versions::new(Names::default()))).map(drop)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.call(Call::List, |world, _| {
            let dir = self.resolve(world, path)?;
            Ok(world.names(dir)?.cached().nodes.keys().cloned().collect())
        })
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(Call::Remove, |world, _| {
            let (dir, name) = self.locate(world, path)?;
            let name = name.ok_or_else(|| errno(rustix::io::Errno::ISDIR))?;
            world.find(dir, name)?;
            world.names_mut(dir)?.change(|names| {
                names.nodes.remove(name);
            });
            Ok(())
        })
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(Call::Rename, |world, _| {
            let ((dir, from), (to_dir, to)) = (self.locate(world, from)?, self.locate(world, to)?);
            let (Some(from), Some(to), true) = (from, to, dir == to_dir) else {
                return Err(errno(rustix::io::Errno::XDEV));
            };
            let node = world.find(dir, from)?;
            world.names_mut(dir)?.change(|names| {
                names.nodes.remove(from);
                names.nodes.insert(to.into(), node);
                names.renames.push([from.into(), to.into()]);
            });
            Ok(())
        })
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.call(Call::Sync, |world, fault| {
            if let Some(e) = errno_of(fault) {
                return Err(e);
            }
            let dir = self.resolve(world, path)?;
            world.names_mut(dir)?.sync_names();
            Ok(())
        })
    }
    fn pin(&self, dir: &Path) -> io::Result<Arc<dyn Storage>> {
        let node = self.call(Call::Open, |world, _| {
            let node = self.resolve(world, dir)?;
            world.names(node).map(|_| node)
        })?;
        Ok(Arc::new(Sim { world: self.world.clone(), pinned: Some((dir.to_path_buf(), node)) }))
    }
}

struct SimFile {
    sim: Sim,
    node: usize,
    handle: u64,
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({})", self.node)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut world = self.sim.world();
        if world.stop.is_none()
            && let Some(held) = world.locks.get_mut(&self.node)
        {
            held.remove(&self.handle);
        }
    }
}

impl StoreFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.sim.call(Call::Read, |world, fault| {
            let bytes = world.file(self.node)?.cached();
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            let mut n = rest.len().min(buf.len());
            if fault.is_some() {
                n = n.div_ceil(2);
            }
            buf[..n].copy_from_slice(&rest[..n]);
            Ok(n)
        })
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.sim.call(Call::Write, |world, fault| {
            let at = offset as usize;
            let mut bytes: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
            match fault {
                Some(Fault::Short) => bytes.truncate(bytes.len().div_ceil(2)),
                Some(Fault::Torn(_)) => bytes.truncate(((at + bytes.len()) / SECTOR * SECTOR).saturating_sub(at)),
                _ => {}
            }
            let grows = (at + bytes.len()).saturating_sub(world.file(self.node)?.cached().len());
            if world.capacity.is_some_and(|most| world.bytes() + grows > most) {
                return Err(errno(rustix::io::Errno::NOSPC));
            }
            if !bytes.is_empty() {
                world.file_mut(self.node)?.write(at, &bytes);
            }
            match fault {
                Some(Fault::Torn(n)) => Err(io::Error::from_raw_os_error(n)),
                _ => Ok(bytes.len()),
            }
        })
    }
    fn size(&self) -> io::Result<u64> {
        self.sim.call(Call::Size, |world, _| Ok(world.file(self.node)?.cached().len() as u64))
    }
    /// Time stands still here.
    fn modified(&self) -> io::Result<SystemTime> {
        self.sim.call(Call::Size, |_, _| Ok(UNIX_EPOCH + Duration::new(1, 1)))
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.sim.call(Call::SetLen, |world, _| {
            world.file_mut(self.node)?.set_len(len as usize);
            Ok(())
        })
    }
    fn sync(&self) -> io::Result<()> {
        self.sim.call(Call::Sync, |world, fault| {
            let failed = errno_of(fault);
            match Arc::make_mut(&mut world.nodes[self.node]) {
                Node::File(file) if failed.is_some() => file.fail_sync(),
                Node::Dir(_) if failed.is_some() => {}
                Node::File(file) => file.sync(),
                Node::Dir(names) => names.sync_names(),
            }
            failed.map_or(Ok(()), Err)
        })
    }
    fn try_lock(&self, alone: bool) -> io::Result<bool> {
        self.sim.call(Call::Lock, |world, _| {
            let held = world.locks.entry(self.node).or_default();
            // The kernel gives up the old lock before it tries for the new one.
            held.remove(&self.handle);
            if held.values().any(|&other| alone || other) {
                return Ok(false);
            }
            held.insert(self.handle, alone);
            Ok(true)
        })
    }
    fn unlock(&self) -> io::Result<()> {
        self.sim.call(Call::Lock, |world, _| {
            world.locks.entry(self.node).or_default().remove(&self.handle);
            Ok(())
        })
    }
    fn lock_holder(&self) -> Option<u32> {
        None
    }
}
