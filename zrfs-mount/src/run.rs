//! `zrfs-mount run`: a mount for as long as a command runs.
//!
//! The mount is served by a process of its own that waits for the end of a pipe from this one. So each covers for the
//! other: when this process is killed the pipe ends and the mount goes; when the server is killed this process takes away
//! what is left.

use crate::background;
use crate::cli::{ServeArgs, complain};
use crate::mounting;
use clap::Parser;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use zrfs::signals::is_ignored;

/// There is no mount, or no process can be started; as with timeout(1) and its kind.
const FAILED: u8 = 125;
/// The command is there but can't be run.
const NOT_RUNNABLE: u8 = 126;
/// There is no such command.
const NOT_FOUND: u8 = 127;
/// What a shell adds to the number of the signal that ended a command.
const SIGNALLED: i32 = 128;
/// The server has so long to take its mount away.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// And then so long to end, where nobody has a file open.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);

const AFTER_HELP: &str = "\
The command finds the mount's path in $ZRFS_MOUNT. Signals (INT, TERM, HUP, QUIT, USR1, USR2) are passed on to it, and its
exit status is this command's: 128 and the signal's number if one ended it, 127 if there is no such command, 126 if it
can't be run, 125 if there is no mount.

Examples:
  zrfs run images.zr -- sh -c 'ls \"$ZRFS_MOUNT\"/records | wc -l'
  zrfs run images.zr --at /mnt/images --root tree -- python train.py /mnt/images";

/// Mounts a store while a command runs, and exits with its status.
#[derive(Debug, Parser)]
#[command(name = "zrfs run", version, after_help = AFTER_HELP)]
struct RunCli {
    /// The store or dataset to mount
    store: PathBuf,
    /// The empty directory to mount it at [default: a new one below $TMPDIR, removed afterwards]
    #[arg(long, value_name = "DIR")]
    at: Option<PathBuf>,
    #[command(flatten)]
    serve: ServeArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The program from the arguments after `run` on.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = RunCli::parse_from(std::iter::once("zrfs run".into()).chain(args));
    match run(&cli) {
        Ok(code) => ExitCode::from(code),
        Err((code, text)) => {
            complain(&text);
            ExitCode::from(code)
        }
    }
}

fn run(cli: &RunCli) -> Result<u8, (u8, String)> {
    let failed = |text: String| (FAILED, text);
    // Before there is a mount, so that no signal leaves one behind.
    let forward = Forward::start().map_err(|e| failed(format!("cannot watch signals: {e}")))?;
    let mount = RunMount::new(cli).map_err(failed)?;
    let status = match forward.stopped() {
        // Stopped before there was a command to tell.
        Some(signal) => return Ok((SIGNALLED + signal) as u8),
        None => command(cli, mount.path(), &forward),
    };
    drop(mount);
    status.map(|status| match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, signal) => (SIGNALLED + signal.unwrap_or_default()) as u8,
    })
}

/// Runs the command to its end.
fn command(cli: &RunCli, mountpoint: &Path, forward: &Forward) -> Result<ExitStatus, (u8, String)> {
    let (program, args) = cli.command.split_first().ok_or((FAILED, "no command".to_string()))?;
    let spawned = Command::new(program).args(args).env("ZRFS_MOUNT", mountpoint).spawn();
    let mut child = spawned.map_err(|e| {
        let code = if e.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE };
        (code, format!("cannot run {}: {e}", Path::new(program).display()))
    })?;
    let pid = Pid::from_child(&child);
    forward.to(Some(pid));
    // Until it is reaped its number stays its own, so a signal never reaches a stranger.
    let waited = loop {
        match rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other,
        }
    };
    forward.to(None);
    waited.map_err(io::Error::from).and_then(|_| child.wait()).map_err(|e| (FAILED, format!("cannot wait for it: {e}")))
}

/// The mount of a run; it goes with this value.
struct RunMount {
    path: PathBuf,
    /// Made for this mount.
    own: bool,
    device: Option<String>,
    server: Child,
}

impl RunMount {
    fn new(cli: &RunCli) -> Result<RunMount, String> {
        let (given, own) = match &cli.at {
            Some(dir) => (dir.clone(), false),
            None => (new_directory()?, true),
        };
        let mut args = cli.serve.to_args();
        args.push("--until-stdin-ends".into());
        args.extend(own.then(|| "--remove-mountpoint".into()));
        args.extend(["--".into(), cli.store.clone().into(), given.clone().into()]);
        let server = background::start(args.into_iter(), Stdio::piped()).inspect_err(|_| {
            if own {
                let _ = std::fs::remove_dir(&given);
            }
        })?;
        let path = std::path::absolute(&given).unwrap_or(given);
        let path = path.canonicalize().unwrap_or(path);
        let device = mounting::mounts().into_iter().rev().find(|m| m.mountpoint == path).map(|m| m.device);
        Ok(RunMount { path, own, device, server })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn is_there(&self) -> bool {
        mounting::mounts().iter().any(|m| m.mountpoint == self.path && Some(&m.device) == self.device.as_ref())
    }
}

impl Drop for RunMount {
    fn drop(&mut self) {
        // The end of its input ends the server.
        drop(self.server.stdin.take());
        let start = Instant::now();
        while self.is_there() && matches!(self.server.try_wait(), Ok(None)) && start.elapsed() < END_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.is_there()
            && let Err(e) = mounting::unmount(&self.path, true)
        {
            complain(&format!("{} is still mounted: {e:?}", self.path.display()));
        }
        if self.own {
            let _ = std::fs::remove_dir(&self.path);
        }
        let start = Instant::now();
        while matches!(self.server.try_wait(), Ok(None)) {
            if start.elapsed() > REAP_TIMEOUT {
                complain("files of the mount are still open; they can be read until they are closed");
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A new empty directory for a mount, which nobody else may enter before it is one.
fn new_directory() -> Result<PathBuf, String> {
    let parent = std::env::temp_dir();
    for attempt in 0..1000 {
        let path = parent.join(format!("zrfs-run-{}-{attempt}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => {
                return Err(format!(
                    "cannot make the directory {} to mount at: {e}; give one with --at",
                    path.display()
                ));
            }
        }
    }
    Err(format!("{} is full of directories of earlier runs; remove them, or give one with --at", parent.display()))
}

/// Passes signals on to the command.
struct Forward(Arc<Mutex<Target>>);

#[derive(Default)]
struct Target {
    command: Option<Pid>,
    /// The first signal that came when there was no command.
    stopped: Option<i32>,
}

impl Forward {
    fn start() -> io::Result<Forward> {
        // Those that are ignored (by nohup, or for a job in a script's background) the command ignores, too.
        let all = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];
        let mut signals = Signals::new(all.into_iter().filter(|&signal| !is_ignored(signal)))?;
        let forward = Forward(Arc::default());
        let target = forward.0.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever() {
                let mut target = target.lock().unwrap_or_else(PoisonError::into_inner);
                match (target.command, Signal::from_named_raw(signal)) {
                    // A terminal sends these to the command as well.
                    (Some(_), _) if matches!(signal, SIGINT | SIGQUIT) && in_foreground() => {}
                    (Some(pid), Some(signal)) => {
                        let _ = rustix::process::kill_process(pid, signal);
                    }
                    _ => target.stopped = target.stopped.or(Some(signal)),
                }
            }
        })?;
        Ok(forward)
    }

    /// From now on signals go to this process, or to none.
    fn to(&self, command: Option<Pid>) {
        let mut target = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(pid), Some(signal)) = (command, target.stopped.take().and_then(Signal::from_named_raw)) {
            // Came between the mount and the command.
            let _ = rustix::process::kill_process(pid, signal);
        }
        target.command = command;
    }

    fn stopped(&self) -> Option<i32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).stopped
    }
}

/// Whether the keys of a terminal signal this process and its command.
fn in_foreground() -> bool {
    File::open("/dev/tty").is_ok_and(|tty| rustix::termios::tcgetpgrp(tty).ok() == Some(rustix::process::getpgrp()))
}
