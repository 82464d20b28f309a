//! A tar archive into a tree dataset, in one pass, from a file or a pipe.

use super::files::{BATCH_BYTES, BATCH_FILES, Ready, TreeSink};
use crate::error::{Error, Result};
use crate::format::tree::{DEPTH_MAX, NAME_MAX, TARGET_MAX};
use crate::tree::{EntryId, Meta, Mtime, name_is_valid};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tar::{Archive, EntryType};

/// What a directory gets that an archive only implies.
pub(super) const IMPLIED: Meta = Meta { mode: 0o755, mtime: Mtime { secs: 0, nanos: 0 }, uid: 0, gid: 0 };

/// The names that an entry was found under, remembered by hash so that memory stays small: two independent 64-bit
/// hashes with keys of this process are as good as the name.
struct Known {
    keys: [RandomState; 2],
    entries: HashMap<[u64; 2], EntryId>,
}

impl Known {
    fn new() -> Self {
        Known { keys: [RandomState::new(), RandomState::new()], entries: HashMap::new() }
    }
    fn key(&self, path: &[u8]) -> [u64; 2] {
        self.keys.each_ref().map(|k| k.hash_one(path))
    }
    fn get(&self, path: &[u8]) -> Option<EntryId> {
        self.entries.get(&self.key(path)).copied()
    }
    fn set(&mut self, path: &[u8], id: EntryId) {
        self.entries.insert(self.key(path), id);
    }
    fn forget(&mut self, path: &[u8]) -> bool {
        self.entries.remove(&self.key(path)).is_some()
    }
}

struct Unpacker<'s, 'w> {
    sink: &'s mut TreeSink<'w>,
    /// Directories, but for those below one that something else replaced later.
    dirs: Known,
    /// Such directories: the tree has dropped all that was below them, so nothing more may go there. Few archives have
    /// any. Each stands with the directory that was the newest then: later ones are below another of that name.
    replaced: Vec<(Vec<u8>, EntryId)>,
    newest: EntryId,
    files: Known,
    /// Symbolic links, which further names may be given to as well.
    symlinks: HashMap<[u64; 2], (Meta, Vec<u8>)>,
    batch: Vec<Ready>,
    batch_bytes: u64,
    /// The names in `batch`, which get their entries later than anything else that comes now.
    waiting: HashSet<[u64; 2]>,
}

/// Packs the archive that `input` gives, uncompressed, into `sink`. `name` stands for it in messages.
pub(super) fn pack_tar(input: impl Read, name: &Path, sink: &mut TreeSink<'_>) -> Result<()> {
    let damaged = |e: std::io::Error| Error::invalid(format!("{} is no whole tar archive: {e}", name.display()));
    let root = sink.tree.root();
    let mut work = Unpacker {
        sink,
        dirs: Known::new(),
        replaced: Vec::new(),
        newest: root,
        files: Known::new(),
        symlinks: HashMap::new(),
        batch: Vec::new(),
        batch_bytes: 0,
        waiting: HashSet::new(),
    };
    work.dirs.set(b"", root);
    let mut archive = Archive::new(Ending { inner: input, zeros: 0 });
    for entry in archive.entries().map_err(damaged)? {
        work.sink.watch.progress.check()?;
        work.entry(&mut entry.map_err(damaged)?, name)?;
    }
    work.flush()?;
    let mut rest = archive.into_inner();
    if rest.zeros < BLOCK {
        return Err(damaged(std::io::Error::other("it ends without the mark that ends an archive; was it cut short?")));
    }
    // To the end of the stream, so that a compressed one's checksum is checked as well.
    std::io::copy(&mut rest.inner, &mut std::io::sink()).map_err(damaged)?;
    Ok(())
}

/// Archives are read in blocks of so many bytes, and end with at least one of zeros.
const BLOCK: u64 = 512;

/// A reader that knows how many zeros it read last.
struct Ending<R> {
    inner: R,
    zeros: u64,
}

impl<R: Read> Read for Ending<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.inner.read(buf)?;
        let read = buf.get(..n).unwrap_or_default();
        self.zeros = match read.iter().rev().position(|&b| b != 0) {
            Some(zeros) => zeros as u64,
            None => self.zeros + n as u64,
        };
        Ok(n)
    }
}

impl Unpacker<'_, '_> {
    fn entry<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>, archive: &Path) -> Result<()> {
        let damaged = |e: std::io::Error| Error::invalid(format!("{} is no whole tar archive: {e}", archive.display()));
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(());
        }
        let raw = entry.path_bytes().into_owned();
        let shown = PathBuf::from(OsStr::from_bytes(&raw));
        let path = match clean(&raw) {
            Ok(path) => path,
            Err(reason) => {
                self.sink.failed(&shown, &reason);
                return Ok(());
            }
        };
        let meta = match meta_of(entry) {
            Ok(meta) => meta,
            Err(reason) => {
                self.sink.failed(&shown, &reason);
                return Ok(());
            }
        };
        if kind.is_dir() {
            return self.dir(&path, meta).map(|_| ());
        }
        let (parent, name) = match path.iter().rposition(|&b| b == b'/') {
            Some(slash) => (self.dir_of(&path[..slash])?, path[slash + 1..].to_vec()),
            None if path.is_empty() => {
                self.sink.failed(&shown, "it has no name");
                return Ok(());
            }
            None => (self.sink.tree.root(), path.clone()),
        };
        match kind {
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                if target.is_empty() || target.len() > TARGET_MAX || target.contains(&0) {
                    let reason = format!("a symbolic link to {} bytes; a target has 1 to {TARGET_MAX}", target.len());
                    self.sink.failed(&shown, &reason);
                    return Ok(());
                }
                self.settle(&path)?;
                self.replace_dir(&path);
                self.symlinks.insert(self.files.key(&path), (meta, target.clone()));
                self.sink.symlink(parent, &name, meta, &target)
            }
            EntryType::Link => {
                self.flush()?;
                let target = entry.link_name_bytes().and_then(|t| clean(&t).ok()).unwrap_or_default();
                match self.files.get(&target) {
                    Some(id) => {
                        self.replace_dir(&path);
                        self.sink.hardlink(parent, &name, id)?;
                        self.files.set(&path, id);
                    }
                    None if self.symlinks.contains_key(&self.files.key(&target)) => {
                        // Two names of one symbolic link are two links that lead to the same place.
                        if let Some((meta, to)) = self.symlinks.get(&self.files.key(&target)).cloned() {
                            self.replace_dir(&path);
                            self.sink.symlink(parent, &name, meta, &to)?;
                        }
                    }
                    None => self.sink.failed(&shown, "a hard link to a file that the archive does not hold before it"),
                }
                Ok(())
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                if is_pax_sparse(entry).map_err(damaged)? {
                    self.sink.failed(&shown, "a sparse file in the pax format; write the archive with --format=gnu");
                    return Ok(());
                }
                self.replace_dir(&path);
                let ready = Ready { parent, name, path, meta, bytes: Vec::new() };
                self.file(entry, ready).and_then(|cut| match cut {
                    None => Ok(()),
                    Some(reason) => {
                        Err(Error::invalid(format!("{}: {}: {reason}", archive.display(), shown.display())))
                    }
                })
            }
            EntryType::Char => self.left_out(&shown, "a character device"),
            EntryType::Block => self.left_out(&shown, "a block device"),
            EntryType::Fifo => self.left_out(&shown, "a FIFO"),
            other => {
                self.sink.failed(&shown, &format!("an entry of the unknown type {:?}", other.as_byte() as char));
                Ok(())
            }
        }
    }

    fn left_out(&mut self, path: &Path, what: &str) -> Result<()> {
        self.sink.left_out(path, what);
        Ok(())
    }

    /// Before `path` becomes something else than a directory, should it be one: what comes later holds.
    fn replace_dir(&mut self, path: &[u8]) {
        if self.known_dir(path).is_some() && self.dirs.forget(path) {
            self.replaced.push((path.to_vec(), self.newest));
        }
    }

    /// The directory `path`, if it is one now.
    fn known_dir(&self, path: &[u8]) -> Option<EntryId> {
        let id = self.dirs.get(path)?;
        let below = |dir: &[u8]| path.strip_prefix(dir).is_some_and(|rest| rest.starts_with(b"/"));
        let dropped = self.replaced.iter().any(|(dir, newest)| id <= *newest && below(dir));
        (!dropped).then_some(id)
    }

    /// A directory that the archive lists.
    fn dir(&mut self, path: &[u8], meta: Meta) -> Result<EntryId> {
        if let Some(id) = self.known_dir(path) {
            self.sink.tree.set_meta(id, meta)?;
            return Ok(id);
        }
        let id = self.dir_of(path)?;
        self.sink.tree.set_meta(id, meta)?;
        Ok(id)
    }

    /// The directory `path`, made with all above it where the archive did not list it.
    fn dir_of(&mut self, path: &[u8]) -> Result<EntryId> {
        if let Some(id) = self.known_dir(path) {
            return Ok(id);
        }
        let mut parent = self.sink.tree.root();
        let mut end = 0;
        for name in path.split(|&b| b == b'/') {
            end += name.len();
            let here = &path[..end];
            parent = match self.known_dir(here) {
                Some(id) => id,
                None => {
                    self.settle(here)?;
                    let id = self.sink.dir(parent, name, IMPLIED)?;
                    self.dirs.set(here, id);
                    self.newest = id;
                    id
                }
            };
            end += 1;
        }
        Ok(parent)
    }

    /// Takes a file's contents; `Some` says that the archive ends inside them.
    fn file<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>, mut ready: Ready) -> Result<Option<String>> {
        let size = entry.size();
        let cut = |got: u64| (got < size).then(|| format!("the archive ends after {got} of its {size} bytes"));
        if size <= self.sink.piece() {
            ready.bytes.reserve_exact(size as usize);
            if let Err(e) = entry.read_to_end(&mut ready.bytes) {
                return Ok(Some(e.to_string()));
            }
            let got = ready.bytes.len() as u64;
            self.batch_bytes += got;
            self.waiting.insert(self.files.key(&ready.path));
            self.batch.push(ready);
            if self.batch_bytes >= BATCH_BYTES || self.batch.len() >= BATCH_FILES {
                self.flush()?;
            }
            return Ok(cut(got));
        }
        self.flush()?;
        let mut large = self.sink.begin_large()?;
        let (mut buf, mut got) = (Vec::with_capacity(self.sink.large_step()), 0);
        loop {
            buf.clear();
            if let Err(e) = entry.by_ref().take(self.sink.large_step() as u64).read_to_end(&mut buf) {
                return Ok(Some(e.to_string()));
            }
            if buf.is_empty() {
                break;
            }
            got += buf.len() as u64;
            self.sink.large(&mut large, &ready.path, &buf)?;
        }
        let id = self.sink.end_large(&large, ready.parent, &ready.name, ready.meta)?;
        self.files.set(&ready.path, id);
        Ok(cut(got))
    }

    /// Before `path` becomes something else: if it waits as a file, that must have its entry first, as what comes later
    /// holds.
    fn settle(&mut self, path: &[u8]) -> Result<()> {
        if self.waiting.contains(&self.files.key(path)) { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        self.waiting.clear();
        let entries = self.sink.files(&batch)?;
        for (file, id) in batch.iter().zip(entries) {
            self.files.set(&file.path, id);
        }
        Ok(())
    }
}

/// An archive's path without `.` and empty parts and without a leading slash.
///
/// # Errors
/// Why no file can have that path: a `..`, a name that no file system takes, too many directories.
fn clean(path: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(path.len());
    for (depth, name) in path.split(|&b| b == b'/').filter(|n| !n.is_empty() && *n != b".").enumerate() {
        if name == b".." {
            return Err("its path leads out of the archive".into());
        }
        if !name_is_valid(name) {
            return Err(format!("a name of {} bytes; file systems have 1 to {NAME_MAX}, none of them 0", name.len()));
        }
        if depth >= DEPTH_MAX {
            return Err(format!("it is more than {DEPTH_MAX} directories deep"));
        }
        if !out.is_empty() {
            out.push(b'/');
        }
        out.extend(name);
    }
    Ok(out)
}

/// The attributes of an entry. A pax header tells times to the nanosecond, the plain one to the second.
fn meta_of<R: Read>(entry: &mut tar::Entry<'_, R>) -> Result<Meta, String> {
    let header = entry.header();
    let field = |e: std::io::Error| format!("its header is damaged: {e}");
    let mode = header.mode().map_err(field)?;
    let plain = header.mtime().map_err(field)? as i64;
    // The largest id means "none" to chown, and a cut one would be somebody else's.
    let owner = |id: u64| u32::try_from(id).ok().filter(|&id| id != u32::MAX).ok_or("its owner is out of range");
    let (uid, gid) = (owner(header.uid().map_err(field)?)?, owner(header.gid().map_err(field)?)?);
    let mut mtime = Mtime { secs: plain, nanos: 0 };
    if let Some(extensions) = entry.pax_extensions().map_err(field)? {
        for extension in extensions {
            let extension = extension.map_err(field)?;
            if extension.key() == Ok("mtime") {
                mtime = extension.value().ok().and_then(parse_time).ok_or("its pax header has no valid mtime")?;
            }
        }
    }
    Ok(Meta { mode: (mode & 0o7777) as u16, mtime, uid, gid })
}

/// A pax time: seconds since 1970, with a sign and decimals as needed.
fn parse_time(text: &str) -> Option<Mtime> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let secs: i64 = whole.parse().ok()?;
    if !decimals.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nanos: u32 = format!("{decimals:0<9}").get(..9)?.parse().ok()?;
    // -1.25 is 0.75 after -2.
    if whole.starts_with('-') && nanos > 0 {
        return Some(Mtime { secs: secs.checked_sub(1)?, nanos: 1_000_000_000 - nanos });
    }
    Some(Mtime { secs, nanos })
}

/// Whether the entry holds a sparse file in the way of the pax format, whose map is hidden in its contents.
fn is_pax_sparse<R: Read>(entry: &mut tar::Entry<'_, R>) -> std::io::Result<bool> {
    let Some(extensions) = entry.pax_extensions()? else { return Ok(false) };
    for extension in extensions {
        if extension?.key_bytes().starts_with(b"GNU.sparse.") {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned() {
        for (raw, want) in [
            (&b"./a/b"[..], Some(&b"a/b"[..])),
            (b"/etc//x/", Some(b"etc/x")),
            (b".", Some(b"")),
            (b"a/../b", None),
            (b"\xff/\n", Some(b"\xff/\n")),
            (&[b'x'; 255], Some(&[b'x'; 255])),
            (&[b'x'; 256], None),
            (b"a\0b", None),
            (&b"d/".repeat(DEPTH_MAX), Some(&b"d/".repeat(DEPTH_MAX)[..2 * DEPTH_MAX - 1])),
            (&b"d/".repeat(DEPTH_MAX + 1), None),
        ] {
            assert_eq!(clean(raw).ok().as_deref(), want);
        }
    }

    #[test]
    fn pax_times() {
        let time = |secs, nanos| Some(Mtime { secs, nanos });
        for (text, want) in [
            ("12", time(12, 0)),
            ("12.5", time(12, 500_000_000)),
            ("1.0000000019", time(1, 1)),
            ("-1.25", time(-2, 750_000_000)),
            ("-0.5", time(-1, 500_000_000)),
            ("", None),
            ("1.x", None),
        ] {
            assert_eq!(parse_time(text), want, "{text}");
        }
    }
}
