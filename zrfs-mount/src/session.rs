//! The life of a mount: checks, mounting, readiness, signals, the end.

use crate::ahead;
use crate::ahead::device::{Device, PageCache};
use crate::fs::{Fs, FsOptions};
use crate::fuse::Adaptor;
use crate::mounting::{self, UnmountError};
use crate::mountpoint::{self, absolute};
use crate::names::Naming;
use crate::namespace::ROOT;
use crate::options::MountOptions;
use crate::views::Limits;
use crate::watch::{Reserve, Watcher};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use zrfs::Source;
use zrfs::signals::is_ignored;

/// A fresh mount that does not answer for so long is given up.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Read-ahead of the mount in KiB, where the kernel lets us set it.
const READ_AHEAD_KIB: u32 = 1024;

/// Threads that go ahead of readers, at most; each holds a file of at most 4 MiB.
const MAX_WORKERS: usize = 8;

/// What to mount where, and how.
#[derive(Debug, Clone)]
pub struct Request {
    /// The store or dataset.
    pub store: PathBuf,
    /// The directory to mount at.
    pub mountpoint: PathBuf,
    /// `-o`.
    pub options: MountOptions,
    /// `--root`.
    pub root: Option<PathBuf>,
    /// Threads that serve.
    pub threads: usize,
    /// Bytes of memory for decoded records.
    pub cache_bytes: u64,
    /// Bytes that may be pushed ahead of readers.
    pub ahead_bytes: u64,
    /// What the views of one user may take.
    pub views: Limits,
    /// `--names`.
    pub names: Option<Naming>,
    /// Whether files have extended attributes.
    pub xattrs: bool,
    /// Whether the end of our standard input ends the mount: whoever started it holds the other end.
    pub until_stdin_ends: bool,
    /// Whether the mountpoint is removed in the end.
    pub remove_mountpoint: bool,
}

/// What a mount tells whoever started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Something worth knowing; the mount goes on.
    Note(String),
    /// The mount answers.
    Ready,
}

enum Event {
    Signal(i32),
    /// Whoever wanted the mount has ended.
    Unwanted,
    Ended(io::Result<()>),
}

/// Mounts and serves until the mount is gone. `report` may refuse a report, which ends the mount.
///
/// # Errors
/// A sentence that says why there is no mount, or why it ended.
pub fn serve(request: &Request, report: &mut dyn FnMut(Report) -> io::Result<()>) -> Result<(), String> {
    let options = &request.options;
    let mut note = |text: String| {
        log::warn!("{text}");
        // Whoever does not want to hear it still gets the mount.
        let _ = report(Report::Note(text));
    };
    options.notes.iter().cloned().for_each(&mut note);
    let store = request.store.canonicalize().map_err(|e| format!("{}: {e}", request.store.display()))?;
    let source = Source::open_checked(&store).map_err(|e| e.to_string())?;
    let mountpoint = mountpoint::check(&request.mountpoint, &store, options.nonempty, &mut note)?;
    let fs = Arc::new(Fs::new(source, fs_options(request))?);

    // Watched before there is a mount, so that no signal leaves one behind.
    let (events, inbox) = channel();
    let signals = watch_signals(events.clone()).map_err(|e| format!("cannot watch signals: {e}"))?;
    let mounted = mounting::mount(&store, &mountpoint, options)?;
    let unmount_after = |error: String| {
        let _ = mounting::unmount(&mountpoint, true);
        error
    };
    let mut config = fuser::Config::default();
    config.acl = match options {
        MountOptions { allow_other: true, .. } => fuser::SessionACL::All,
        MountOptions { allow_root: true, .. } => fuser::SessionACL::RootAndOwner,
        _ => fuser::SessionACL::Owner,
    };
    config.n_threads = Some(request.threads);
    config.clone_fd = mounted.may_clone;
    let device = mounted.device.try_clone().map_err(|e| unmount_after(format!("cannot copy a descriptor: {e}")))?;
    let session =
        fuser::Session::from_fd(Adaptor::new(fs.clone(), request.threads), mounted.device, config.acl, config.clone())
            .map_err(|e| unmount_after(format!("the kernel does not talk to us: {e}")))?;
    // No directory is kept from being unmounted or removed by this process; every path is absolute from here on.
    rustix::process::chdir("/").map_err(|e| unmount_after(format!("cannot change to /: {e}")))?;

    // Before any thread that serves is bound to one processor, which a thread started by it would be, too.
    log::info!("work is shared out on {} threads", zrfs::threads());
    // And before anybody is served: of a first reader, too, is taken note.
    if fs.ahead().is_on() {
        let to: Arc<dyn PageCache> = Arc::new(Device(device));
        let started = ahead::start(&fs, &to, request.threads.min(MAX_WORKERS));
        started.map_err(|e| unmount_after(format!("cannot start a thread: {e}")))?;
    }
    let end = events.clone();
    let server = std::thread::Builder::new().name("session".into()).spawn(move || {
        let _ = events.send(Event::Ended(session.run()));
    });
    server.map_err(|e| unmount_after(format!("cannot start a thread: {e}")))?;
    let device = first_answer(&mountpoint).map_err(unmount_after)?;
    raise_read_ahead(&device);
    let watcher = options.auto_unmount.then(|| Watcher::start(&device)).transpose();
    let _watcher = watcher.map_err(|e| unmount_after(format!("cannot start a process that watches us: {e}")))?;
    let mut reserve = Some(Reserve::new());
    if request.until_stdin_ends {
        watch_stdin(end).map_err(|e| unmount_after(format!("cannot start a thread: {e}")))?;
    }
    if let Err(e) = report(Report::Ready) {
        return Err(unmount_after(format!("whoever started the mount is gone: {e}")));
    }

    let mut detached = false;
    while let Ok(event) = inbox.recv() {
        match event {
            // Batch systems signal everybody; the command that uses the mount may go on for a while.
            Event::Signal(_) if request.until_stdin_ends && !detached => {}
            Event::Signal(signal) if detached => {
                log::warn!("signal {signal} again: files that are still open fail from here on");
                break;
            }
            Event::Signal(_) | Event::Unwanted => {
                drop(reserve.take());
                detached = end_mount(&device, &mountpoint);
                remove_own(request, &mountpoint);
            }
            Event::Ended(Ok(())) => break,
            Event::Ended(Err(e)) => return Err(unmount_after(format!("the mount broke down: {e}"))),
        }
    }
    signals.close();
    fs.views().end_all();
    remove_own(request, &mountpoint);
    Ok(())
}

/// Removes the mountpoint where it was made for the mount, which only succeeds when nothing is mounted there any more.
fn remove_own(request: &Request, mountpoint: &Path) {
    if request.remove_mountpoint {
        let _ = std::fs::remove_dir(mountpoint);
    }
}

fn fs_options(request: &Request) -> FsOptions {
    FsOptions {
        uid: request.options.uid.unwrap_or(rustix::process::getuid().as_raw()),
        gid: request.options.gid.unwrap_or(rustix::process::getgid().as_raw()),
        umask: request.options.umask,
        cache_bytes: request.cache_bytes,
        ahead_bytes: request.ahead_bytes,
        views: request.views,
        root: request.root.clone(),
        names: request.names.clone(),
        xattrs: request.xattrs,
    }
}

/// Waits until the mount answers; returns its device number as "major:minor".
fn first_answer(mountpoint: &Path) -> Result<String, String> {
    let (answer, answered) = channel();
    let path = mountpoint.to_path_buf();
    // On a thread of its own: who asks a mount that doesn't answer waits for ever.
    std::thread::spawn(move || {
        // Nobody listens any more once the time is up.
        let _ = answer.send(std::fs::metadata(path));
    });
    match answered.recv_timeout(READY_TIMEOUT) {
        Ok(Ok(meta)) if meta.ino() == ROOT => {
            Ok(format!("{}:{}", rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev())))
        }
        Ok(Ok(_)) => Err(format!("{} was covered by another mount", mountpoint.display())),
        Ok(Err(e)) => Err(format!("the mount at {} does not work: {e}", mountpoint.display())),
        Err(_) => Err(format!("the mount at {} does not answer", mountpoint.display())),
    }
}

fn watch_signals(events: Sender<Event>) -> io::Result<signal_hook::iterator::Handle> {
    // Started by nohup, a mount stays when its terminal goes.
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hangup))?;
    let handle = signals.handle();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                break;
            }
        }
    })?;
    Ok(handle)
}

/// Waits on a thread of its own until our standard input ends.
fn watch_stdin(events: Sender<Event>) -> io::Result<()> {
    let wait = move || {
        // An error is an end, too.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = events.send(Event::Unwanted);
    };
    std::thread::Builder::new().name("stdin".into()).spawn(wait).map(drop)
}

/// Unmounts on a signal. Where files are open the mount leaves the namespace, and the process serves them until they
/// are closed; returns whether that is so.
fn end_mount(device: &str, mountpoint: &Path) -> bool {
    // By device number, for the mount may have been moved, or another one made at its place since.
    let path = match mounting::try_mounts() {
        Ok(mounts) => match mounts.into_iter().rev().find(|m| m.device == device) {
            Some(mount) => mount.mountpoint,
            None => return true,
        },
        Err(e) => {
            log::warn!("cannot read the list of mounts, so the mount is taken to be where it was made: {e}");
            mountpoint.to_path_buf()
        }
    };
    let path = &path;
    match mounting::unmount(path, false) {
        Ok(()) => false,
        Err(UnmountError::Busy) => {
            log::warn!("{} is in use: detached, serving what is open; a second signal ends that", path.display());
            if let Err(e) = mounting::unmount(path, true) {
                log::error!("{} is still mounted: {e:?}", path.display());
            }
            true
        }
        Err(e) => {
            log::error!("{} is still mounted: {e:?}", path.display());
            true
        }
    }
}

/// Lets the kernel read further ahead than its default of 128 KiB, which root alone may change.
fn raise_read_ahead(device: &str) {
    let path = format!("/sys/class/bdi/{device}/read_ahead_kb");
    let now = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
    if now.is_some_and(|now: u32| now < READ_AHEAD_KIB)
        && let Err(e) = std::fs::write(&path, READ_AHEAD_KIB.to_string())
    {
        log::info!("read-ahead stays as it is: {path}: {e}");
    }
}

/// `--unmount`: takes away the zrfs mount at `mountpoint`.
///
/// # Errors
/// A sentence that says why it is still there.
pub fn unmount(mountpoint: &Path) -> Result<(), String> {
    let shown = mountpoint.display();
    let path = absolute(mountpoint).map_err(|e| format!("{shown}: {e}"))?;
    let mounted = mounting::mounts().into_iter().rev().find(|m| m.mountpoint == path);
    let kind = mounted.ok_or_else(|| format!("nothing is mounted at {shown}"))?.kind;
    if kind != "fuse" && !kind.starts_with("fuse.") {
        return Err(format!("{shown} is a mount of {kind}, not of zrfs; use umount"));
    }
    mounting::unmount(&path, false).map_err(|e| match e {
        UnmountError::Busy => {
            format!(
                "{shown} is in use: close what is open there (fuser -vm {shown} lists it), or detach it with umount -l"
            )
        }
        UnmountError::NotMounted => format!("nothing is mounted at {shown}"),
        UnmountError::Other(text) => format!("{shown}: {text}"),
    })
}
