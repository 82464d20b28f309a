//! The adaptor between the kernel and [`Fs`]: it converts, calls and replies, and decides nothing.
//!
//! A panic in an operation becomes `EIO` and a line in the log; it never ends the mount.

use crate::errno::Errno;
use crate::follow::Follower;
use crate::fs::{Attr, Fs, Kind, NAME_MAX, Statfs};
use crate::gathers::Gathers;
use crate::timing::Op;
use crate::views::Caller;
use fuser::{
    AccessFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Requests that the kernel sends ahead of being asked, at most: read-ahead of several files at once.
const MAX_BACKGROUND: u16 = 64;

thread_local! {
    /// The bytes of a reply, kept from read to read.
    static REPLY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// [`Fs`] as fuser wants it.
#[derive(Debug)]
pub struct Adaptor {
    fs: Arc<Fs>,
    follower: Follower,
    gathers: Arc<Gathers>,
    /// The kernel answers opens itself, and keeps pages, once told `ENOSYS`.
    no_open: bool,
    no_opendir: bool,
}

impl Adaptor {
    /// An adaptor that serves `fs` on so many threads.
    pub fn new(fs: Arc<Fs>, threads: usize) -> Self {
        let (follower, gathers) = (Follower::default(), Arc::new(Gathers::new(threads)));
        Adaptor { fs, follower, gathers, no_open: false, no_opendir: false }
    }

    /// Does what gathers on this thread, unless it is the last one that is free to serve others; then replies.
    ///
    /// The thread counts as free before the reply: whoever gets it may ask for the next batch at once.
    fn gather<T>(&self, work: impl FnOnce(&Fs) -> T + Send + 'static, reply: impl FnOnce(T) + Send + 'static) {
        match self.gathers.enter() {
            Some(slot) => {
                let made = work(&self.fs);
                drop(slot);
                reply(made);
            }
            None => {
                let fs = self.fs.clone();
                self.gathers.later(Box::new(move || reply(work(&fs))));
            }
        }
    }

    /// Gives an answer that may take long, where `ino` says so, as a gather; at once otherwise.
    fn where_it_may_take_long(&self, ino: u64, answer: impl FnOnce(&Fs) + Send + 'static) {
        if Fs::may_gather(ino) { self.gather(answer, |()| ()) } else { answer(&self.fs) }
    }

    /// Runs an operation and counts it; a panic in it is an `EIO`.
    fn guarded<T>(&self, op: Op, ino: u64, run: impl FnOnce() -> Result<T, Errno>) -> Result<T, fuser::Errno> {
        Self::guard(&self.fs, op, ino, run)
    }

    fn guard<T>(fs: &Fs, op: Op, ino: u64, run: impl FnOnce() -> Result<T, Errno>) -> Result<T, fuser::Errno> {
        let result = fs.guarded(op, ino, run);
        result.map_err(|e| fuser::Errno::from_i32(e.raw_os_error()))
    }
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::Dir => FileType::Directory,
        Kind::File => FileType::RegularFile,
        Kind::Symlink => FileType::Symlink,
    }
}

fn file_attr(attr: &Attr) -> FileAttr {
    let whole = Duration::from_secs(attr.mtime.secs.unsigned_abs());
    let time = if attr.mtime.secs < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    let time = time.and_then(|t| t.checked_add(Duration::from_nanos(attr.mtime.nanos.into())));
    let time: SystemTime = time.unwrap_or(UNIX_EPOCH);
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.blocks(),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: file_type(attr.kind),
        perm: attr.perm,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Adaptor {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_HAS_IOCTL_DIR
            // Makes the kernel look at a directory's time before it lists it from its cache.
            | InitFlags::FUSE_AUTO_INVAL_DATA;
        let wanted = if self.fs.lists_all_attributes() { wanted } else { wanted | InitFlags::FUSE_READDIRPLUS_AUTO };
        let have = wanted & config.capabilities();
        // Only what the kernel offers is asked for, so none of these can fail.
        let _ = config.add_capabilities(have);
        let _ = config.set_max_background(MAX_BACKGROUND);
        if let Err(nearest) = config.set_max_readahead(u32::MAX) {
            let _ = config.set_max_readahead(nearest);
        }
        self.no_open = have.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.no_opendir = have.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT | InitFlags::FUSE_AUTO_INVAL_DATA);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.follower.served(req.pid(), 0);
        let name = name.as_bytes().to_vec();
        self.where_it_may_take_long(parent.0, move |fs| {
            match Self::guard(fs, Op::Lookup, parent.0, || fs.lookup(parent.0, &name)) {
                Ok(attr) => reply.entry(&attr.ttl, &file_attr(&attr), Generation(0)),
                Err(e) => reply.error(e),
            }
        });
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.follower.served(req.pid(), 0);
        self.where_it_may_take_long(ino.0, move |fs| match Self::guard(fs, Op::Getattr, ino.0, || fs.getattr(ino.0)) {
            Ok(attr) => reply.attr(&attr.ttl, &file_attr(&attr)),
            Err(e) => reply.error(e),
        });
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        self.follower.served(req.pid(), 0);
        match self.guarded(Op::Readlink, ino.0, || self.fs.readlink(ino.0)) {
            Ok(target) => reply.data(&target),
            Err(e) => reply.error(e),
        }
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.no_open {
            reply.error(fuser::Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        }
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.follower.served(req.pid(), size as usize);
        self.where_it_may_take_long(ino.0, move |fs| {
            REPLY.with_borrow_mut(|buffer| {
                let size = size as usize;
                if buffer.len() < size {
                    buffer.resize(size, 0);
                }
                match Self::guard(fs, Op::Read, ino.0, || fs.answer(ino.0, offset, &mut buffer[..size])) {
                    Ok(answer) => reply.data(answer.bytes(buffer)),
                    Err(e) => reply.error(e),
                }
            });
        });
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // The kernel stops asking.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fsyncdir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.no_opendir {
            reply.error(fuser::Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::empty());
        }
    }

    fn readdir(&self, req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.follower.served(req.pid(), 0);
        self.where_it_may_take_long(ino.0, move |fs| {
            let list = || {
                fs.readdir(ino.0, offset, &mut |e| {
                    reply.add(INodeNo(e.attr.ino), e.next, file_type(e.attr.kind), OsStr::from_bytes(e.name))
                })
            };
            match Self::guard(fs, Op::Readdir, ino.0, list) {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(e),
            }
        });
    }

    fn readdirplus(&self, req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        self.follower.served(req.pid(), 0);
        // The sizes of batches that are not dense are looked up record by record.
        self.where_it_may_take_long(ino.0, move |fs| {
            let list = || {
                fs.readdirplus(ino.0, offset, &mut |e| {
                    let (name, attr) = (OsStr::from_bytes(e.name), file_attr(&e.attr));
                    reply.add(attr.ino, e.next, name, &e.attr.ttl, &attr, Generation(0))
                })
            };
            match Self::guard(fs, Op::Readdirplus, ino.0, list) {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(e),
            }
        });
    }

    fn statfs(&self, _req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.guarded(Op::Statfs, ino.0, || self.fs.statfs()) {
            Ok(s) => reply.statfs(s.blocks, 0, 0, s.files, 0, Statfs::BLOCK, NAME_MAX as u32, Statfs::BLOCK),
            Err(e) => reply.error(e),
        }
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.follower.served(req.pid(), 0);
        match self.guarded(Op::Getxattr, ino.0, || self.fs.getxattr(ino.0, name.as_bytes())) {
            // Whoever has no room yet asks for the length first.
            Ok(value) if size == 0 => reply.size(value.len() as u32),
            Ok(value) if value.len() > size as usize => reply.error(fuser::Errno::ERANGE),
            Ok(value) => reply.data(&value),
            Err(e) => reply.error(e),
        }
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.follower.served(req.pid(), 0);
        match self.guarded(Op::Listxattr, ino.0, || self.fs.listxattr()) {
            Ok(names) if size == 0 => reply.size(names.len() as u32),
            Ok(names) => reply.data(names),
            Err(e) => reply.error(e),
        }
    }

    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        // Permissions are the kernel's part (default_permissions).
        reply.error(fuser::Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        let caller = Caller { uid: req.uid(), pid: req.pid() };
        let gathers = Fs::gathers(command);
        if Fs::answers_apart(command, data) {
            self.follower.gathered(req.pid());
            let answer = move |called: Result<Vec<u8>, Errno>| match called {
                Ok(out) => reply.ioctl(0, &out),
                Err(e) => reply.error(fuser::Errno::from_i32(e.raw_os_error())),
            };
            if let Some(job) = self.fs.answer_apart(caller, ino.0, command, data, Box::new(answer)) {
                self.gathers.run(job);
            }
            return;
        }
        if gathers {
            self.follower.gathered(req.pid());
        } else {
            self.follower.served(req.pid(), 0);
        }
        let call =
            move |fs: &Fs, data: &[u8]| Self::guard(fs, Op::Ioctl, ino.0, || fs.ioctl(caller, ino.0, command, data));
        let answer = |called: Result<Vec<u8>, fuser::Errno>| match called {
            Ok(out) => reply.ioctl(0, &out),
            Err(e) => reply.error(e),
        };
        if gathers {
            let data = data.to_vec();
            self.gather(move |fs| call(fs, &data), answer);
        } else {
            answer(call(&self.fs, data));
        }
    }

    fn lseek(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _offset: i64, _whence: i32, reply: ReplyLseek) {
        // The kernel then takes files as having no holes, which is so.
        reply.error(fuser::Errno::ENOSYS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::FsOptions;
    use zrfs::tree::Mtime;

    #[test]
    fn a_panic_is_eio_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        zrfs::WriterOptions::new(zrfs::format::Codec::Raw).create(&path).unwrap().close().unwrap();
        let fs = Fs::new(zrfs::Source::open(&path).unwrap(), FsOptions::default()).unwrap();
        let adaptor = Adaptor::new(Arc::new(fs), 2);
        let result = adaptor.guarded(Op::Read, 5, || -> Result<(), Errno> { panic!("a bug") });
        assert_eq!(result.map_err(|e| e.code()), Err(fuser::Errno::EIO.code()));
        assert_eq!(adaptor.guarded(Op::Read, 5, || Err::<(), _>(Errno::NOENT)).map_err(|e| e.code()), Err(2));
        assert!(adaptor.guarded(Op::Read, 5, || Ok(())).is_ok());
        assert_eq!(adaptor.fs.timings().requests(Op::Read), 3);
    }

    #[test]
    fn times_before_1970_and_beyond_all_bounds() {
        let attr = |secs, nanos| {
            let mtime = Mtime { secs, nanos };
            let (kind, ttl) = (Kind::File, Duration::ZERO);
            file_attr(&Attr { ino: 5, kind, size: 513, perm: 0o444, nlink: 1, uid: 0, gid: 0, mtime, ttl })
        };
        assert_eq!(attr(-3, 5).mtime, UNIX_EPOCH - Duration::from_secs(3) + Duration::from_nanos(5));
        assert_eq!(attr(7, 9).mtime, UNIX_EPOCH + Duration::new(7, 9));
        assert_eq!(attr(7, 9).blocks, 2);
        for secs in [i64::MIN, i64::MAX] {
            let _ = attr(secs, 999_999_999);
        }
    }
}
