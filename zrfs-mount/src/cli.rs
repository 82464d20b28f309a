//! The command line, and what the process does with it: mount in the foreground, or start itself again in the
//! background and wait until that mount answers.

use crate::options::{MountOptions, parse_size};
use crate::session::{self, Report, Request};
use clap::{ArgAction, Parser};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

const EXAMPLES: &str = "\
Examples:
  zrfs-mount data.zr /mnt/data              every record is a file: /mnt/data/records/0, /mnt/data/npy/0.npy
  zrfs-mount images.zr /mnt/images --root tree   the packed files under their old paths
  zrfs-mount -f -v data.zr /mnt/data        stay in the foreground and say what happens
  zrfs-mount data.zr /mnt/data -o allow_other,uid=1000
  zrfs-mount --unmount /mnt/data            as does umount, or fusermount3 -u

In /etc/fstab (with this program on the PATH of mount, as in /usr/local/bin):
  /data/images.zr  /mnt/images  fuse.zrfs-mount  ro,allow_other,nofail  0 0";

/// Mounts a zrfs store or dataset as ordinary read-only files.
#[derive(Debug, Parser)]
#[command(name = "zrfs-mount", version, after_help = EXAMPLES)]
pub struct Cli {
    /// The store or dataset to mount
    #[arg(required_unless_present = "unmount")]
    pub store: Option<PathBuf>,
    /// The empty directory to mount it at
    #[arg(required_unless_present = "unmount")]
    pub mountpoint: Option<PathBuf>,
    /// Stay in the foreground; Ctrl-C unmounts
    #[arg(short, long)]
    pub foreground: bool,
    /// Mount options, separated by commas: ro, allow_other, allow_root, nonempty, uid=N, gid=N, umask=OCTAL, noexec,
    /// fsname=NAME, and those of fstab (noauto, user, nofail, x-…)
    #[arg(short = 'o', value_name = "OPTS")]
    pub options: Vec<String>,
    /// Mount a part only: `tree`, or another directory of the mount
    #[arg(long, value_name = "PATH")]
    pub root: Option<PathBuf>,
    /// Threads that serve [default: the number of cores, at least 2, at most 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// Memory for decoded records, as 64M or 2G
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_size)]
    pub cache_size: u64,
    /// Go at most so far ahead of readers that take files in order, as 64M; 0 for not at all
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_size)]
    pub push_size: u64,
    /// Write the log to this file (in the background it is otherwise lost)
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Unmount what is mounted here
    #[arg(long, value_name = "MOUNTPOINT", conflicts_with_all = ["store", "mountpoint"])]
    pub unmount: Option<PathBuf>,
    /// Say more; twice, also what the kernel asks for
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
    /// The process in the background: reports on its stdout whether it mounted
    #[arg(long, hide = true)]
    pub background_child: bool,
    /// From mount(8): don't write /etc/mtab
    #[arg(short = 'n', hide = true)]
    pub no_mtab: bool,
    /// From mount(8): the kind of file system
    #[arg(short = 't', hide = true, value_name = "TYPE")]
    pub kind: Option<String>,
}

/// The program: parses the command line and does what it says.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = if let Some(mountpoint) = &cli.unmount {
        session::unmount(mountpoint)
    } else if cli.background_child {
        return background_child(&cli);
    } else if cli.foreground {
        foreground(&cli)
    } else {
        request(&cli).and_then(|_| background())
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            complain(&text);
            ExitCode::FAILURE
        }
    }
}

fn complain(text: &str) {
    // A closed stderr is no reason to fail.
    let _ = writeln!(io::stderr(), "zrfs-mount: {text}");
}

fn request(cli: &Cli) -> Result<Request, String> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    Ok(Request {
        store: cli.store.clone().unwrap_or_default(),
        mountpoint: cli.mountpoint.clone().unwrap_or_default(),
        options: MountOptions::parse(&cli.options)?,
        root: cli.root.clone(),
        threads: cli.threads.map_or(cores.clamp(2, 16), usize::from),
        cache_bytes: cli.cache_size,
        ahead_bytes: cli.push_size,
    })
}

fn start_log(cli: &Cli) -> Result<(), String> {
    let level =
        [log::LevelFilter::Warn, log::LevelFilter::Info, log::LevelFilter::Debug][usize::from(cli.verbose.min(2))];
    let mut builder = env_logger::Builder::new();
    builder.filter_level(level);
    // fuser logs replies that a killed reader no longer takes as errors.
    builder.filter_module("fuser", if cli.verbose > 1 { level } else { log::LevelFilter::Off });
    builder.parse_default_env();
    if let Some(path) = &cli.log {
        let file = File::options().append(true).create(true).open(path);
        let file = file.map_err(|e| format!("cannot open the log {}: {e}", path.display()))?;
        builder.target(env_logger::Target::Pipe(Box::new(file)));
    }
    builder.init();
    Ok(())
}

fn foreground(cli: &Cli) -> Result<(), String> {
    start_log(cli)?;
    let request = request(cli)?;
    session::serve(&request, &mut |report| {
        if report == Report::Ready {
            log::info!("{} is mounted at {}", request.store.display(), request.mountpoint.display());
        }
        Ok(())
    })
}

/// Starts this program again in the background and waits until it says that the mount answers.
///
/// The child's stdout is the pipe that it reports through, and nothing else of ours is open in it: whoever waits for
/// our output to end, as Python's `subprocess` does, is not kept waiting by the mount.
fn background() -> Result<(), String> {
    let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut child = Command::new(program)
        .arg("--background-child")
        .args(std::env::args_os().skip(1))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("cannot start a process: {e}"))?;
    let reports = child.stdout.take().map(BufReader::new);
    for line in reports.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("ready", _) => return Ok(()),
            ("note", text) => complain(text),
            ("error", text) => {
                let _ = child.wait();
                return Err(text.into());
            }
            _ => {}
        }
    }
    let status = child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
    Err(format!("the process in the background ended without a mount: {status}"))
}

fn background_child(cli: &Cli) -> ExitCode {
    // Fails only for who leads a session already.
    let _ = rustix::process::setsid();
    let run = || {
        start_log(cli)?;
        session::serve(&request(cli)?, &mut |report| match report {
            Report::Note(text) => say("note", &text),
            Report::Ready => {
                say("ready", "")?;
                let null = File::options().write(true).open("/dev/null")?;
                Ok(rustix::stdio::dup2_stdout(null)?)
            }
        })
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            log::error!("{text}");
            let _ = say("error", &text);
            ExitCode::FAILURE
        }
    }
}

/// Sends a line to the process that waits for the mount.
fn say(kind: &str, text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{kind} {}", text.replace('\n', "; "))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_order_of_mount_helpers() {
        let cli = Cli::try_parse_from(["mount.zrfs", "s.zr", "/mnt", "-n", "-o", "ro,nofail", "-t", "zrfs"]).unwrap();
        assert_eq!((cli.store, cli.options), (Some("s.zr".into()), vec!["ro,nofail".to_string()]));
        assert!(Cli::try_parse_from(["zrfs-mount", "s.zr"]).is_err());
        assert!(Cli::try_parse_from(["zrfs-mount", "--unmount", "/mnt"]).is_ok());
        assert!(Cli::try_parse_from(["zrfs-mount", "s.zr", "/mnt", "--threads", "0"]).is_err());
    }
}
