//! What a mount keeps ready for its own end: a process that outlives it, descriptors when there are no more, and which
//! signals are none of its business.

use crate::mounting;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

/// The argument that starts the program as a watcher.
pub const ARGUMENT: &str = "--watch-mount";

/// A process that takes the mount away when this one was killed. It waits for the end of a pipe that only we hold, and
/// goes with us.
#[derive(Debug)]
pub struct Watcher {
    _child: Child,
    _ours: Option<ChildStdin>,
}

impl Watcher {
    /// Starts the watcher of the mount with this device number ("major:minor").
    ///
    /// # Errors
    /// Those of starting a process.
    pub fn start(device: &str) -> io::Result<Watcher> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([ARGUMENT, device])
            // Ctrl-C is for the mount; a directory must not be held.
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Watcher { _ours: child.stdin.take(), _child: child })
    }
}

/// The watcher's life: waits for the end of standard input, then takes away the mount if its server is gone.
///
/// # Errors
/// A sentence, if the mount is still there.
pub fn watch(device: &str) -> Result<(), String> {
    // An error is an end, too.
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    let Some(mount) = mounting::mounts().into_iter().rev().find(|m| m.device == device) else { return Ok(()) };
    let path = &mount.mountpoint;
    // The number may be that of a new mount by now, whose server answers.
    match rustix::fs::statvfs(path) {
        Err(Errno::NOTCONN | Errno::CONNABORTED) => {
            mounting::unmount(path, true).map_err(|e| format!("{} is still mounted: {e:?}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Descriptors held back for the end: reading the list of mounts and running fusermount3 take some, and must not fail
/// because files of the store took all there are.
#[derive(Debug)]
pub struct Reserve(Vec<OwnedFd>);

impl Reserve {
    /// Pipes to fusermount3, the list of mounts, and some to spare.
    const HELD: usize = 16;
    /// Where fewer than this may be open they are needed for serving.
    const WORTH_IT: u64 = 128;

    /// Sets descriptors aside, if there are plenty.
    pub fn new() -> Reserve {
        let limit = rustix::process::getrlimit(Resource::Nofile).current;
        if limit.is_some_and(|limit| limit < Self::WORTH_IT) {
            return Reserve(Vec::new());
        }
        let null = || File::open("/dev/null").map(OwnedFd::from);
        Reserve((0..Self::HELD).map_while(|_| null().ok()).collect())
    }
}

impl Default for Reserve {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        self.0.clear();
        // Somebody may have lowered the limit meanwhile; as far as we may, we raise it again.
        let limit = rustix::process::getrlimit(Resource::Nofile);
        let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}
