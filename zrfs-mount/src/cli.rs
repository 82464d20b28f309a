//! The command line, and what the process does with it: mount in the foreground, or start itself again in the
//! background and wait until that mount answers.

use crate::background;
use crate::names::Naming;
use crate::notify::notify;
use crate::options::{MountOptions, parse_size};
use crate::session::{self, Report, Request};
use crate::views::Limits;
use crate::{run, watch};
use clap::{ArgAction, Args, Parser};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

const EXAMPLES: &str = "\
Examples:
  zrfs-mount data.zr /mnt/data              every record is a file: /mnt/data/records/0, /mnt/data/npy/0.npy
  zrfs-mount images.zr /mnt/images --root tree   the packed files under their old paths
  zrfs-mount jpegs.zr /mnt/jpegs --names auto --root files   records as 00000000.jpg, by what they contain
  zrfs-mount -f -v data.zr /mnt/data        stay in the foreground and say what happens
  zrfs-mount data.zr /mnt/data -o allow_other,uid=1000
  zrfs-mount --unmount /mnt/data            as does umount, or fusermount3 -u
  zrfs-mount run data.zr -- COMMAND         mount only while a command runs; see zrfs-mount run --help

In /etc/fstab (with this program on the PATH of mount, as in /usr/local/bin):
  /data/images.zr  /mnt/images  fuse.zrfs-mount  ro,allow_other,nofail  0 0
For systemd there is contrib/systemd/zrfs@.service. A store that is called run is written ./run.";

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
    /// What the mount is like
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Unmount what is mounted here
    #[arg(long, value_name = "MOUNTPOINT", conflicts_with_all = ["store", "mountpoint"])]
    pub unmount: Option<PathBuf>,
    /// The process in the background: reports on its stdout whether it mounted
    #[arg(long, hide = true)]
    pub background_child: bool,
    /// The mount is for whoever holds the other end of standard input, and is made at a directory of its own
    #[arg(long, hide = true)]
    pub until_stdin_ends: bool,
    /// The mountpoint was made for this mount, and goes with it
    #[arg(long, hide = true)]
    pub remove_mountpoint: bool,
    /// From mount(8): don't write /etc/mtab
    #[arg(short = 'n', hide = true)]
    pub no_mtab: bool,
    /// From mount(8): the kind of file system
    #[arg(short = 't', hide = true, value_name = "TYPE")]
    pub kind: Option<String>,
}

/// What a mount is like, wherever it is and however long it lives.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Mount options, separated by commas: ro, allow_other, allow_root, auto_unmount, nonempty, uid=N, gid=N,
    /// umask=OCTAL, noexec, fsname=NAME, and those of fstab (noauto, user, nofail, x-…)
    #[arg(short = 'o', value_name = "OPTS")]
    pub options: Vec<String>,
    /// Take the mount away even if this process is killed with SIGKILL; a second process waits for that
    #[arg(long)]
    pub auto_unmount: bool,
    /// Mount a part only: `tree`, or another directory of the mount
    #[arg(long, value_name = "PATH")]
    pub root: Option<PathBuf>,
    /// Show the records also in a directory `files`, by names like {index:08}.jpg. Where they end in .{ext}, each has the
    /// extension that its content tells; `auto` is {index:08}.{ext}
    #[arg(long, value_name = "PATTERN")]
    pub names: Option<Naming>,
    /// Files have no extended attributes (user.zrfs.shape, …), so that the kernel stops asking for them
    #[arg(long)]
    pub no_xattrs: bool,
    /// Threads that serve [default: the number of cores, at least 2, at most 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// Memory for decoded records, as 64M or 2G
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_size)]
    pub cache_size: u64,
    /// Go at most so far ahead of readers that take files in order, as 64M; 0 for not at all
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_size)]
    pub push_size: u64,
    /// The memory that one user's views may have (batches asked for by ioctl), as 64M or 2G
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = parse_size)]
    pub view_memory: u64,
    /// The views that one user may have
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub max_views: u64,
    /// Write the log to this file (in the background it is otherwise lost)
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Say more; twice, also what the kernel asks for. RUST_LOG works too
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

impl ServeArgs {
    /// The same as arguments of this program.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = Vec::new();
        let mut valued = |name: &str, value: OsString| {
            let mut arg = OsString::from(name);
            arg.push(value);
            args.push(arg);
        };
        self.options.iter().for_each(|list| valued("-o", list.into()));
        self.root.iter().for_each(|path| valued("--root=", path.into()));
        self.names.iter().for_each(|names| valued("--names=", names.to_string().into()));
        self.threads.iter().for_each(|n| valued("--threads=", n.to_string().into()));
        valued("--cache-size=", self.cache_size.to_string().into());
        valued("--push-size=", self.push_size.to_string().into());
        valued("--view-memory=", self.view_memory.to_string().into());
        valued("--max-views=", self.max_views.to_string().into());
        self.log.iter().for_each(|path| valued("--log=", path.into()));
        args.extend(self.auto_unmount.then(|| "--auto-unmount".into()));
        args.extend(self.no_xattrs.then(|| "--no-xattrs".into()));
        args.extend((0..self.verbose).map(|_| "-v".into()));
        args
    }
}

/// The program: parses the command line and does what it says.
pub fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(first) if first == "run" => return run::main(args),
        Some(first) if first == watch::ARGUMENT => {
            return ended(watch::watch(&args.next().unwrap_or_default().to_string_lossy()));
        }
        _ => {}
    }
    let cli = Cli::parse();
    if let Some(mountpoint) = &cli.unmount {
        return ended(session::unmount(mountpoint));
    }
    if cli.background_child {
        return background_child(&cli);
    }
    ended(if cli.foreground {
        foreground(&cli)
    } else {
        request(&cli).and_then(|_| background::start(std::env::args_os().skip(1), Stdio::null())).map(drop)
    })
}

fn ended(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            complain(&text);
            ExitCode::FAILURE
        }
    }
}

/// Says a line on standard error.
pub fn complain(text: &str) {
    // A closed stderr is no reason to fail.
    let _ = writeln!(io::stderr(), "zrfs-mount: {text}");
}

fn request(cli: &Cli) -> Result<Request, String> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let serve = &cli.serve;
    let mut options = MountOptions::parse(&serve.options)?;
    options.auto_unmount |= serve.auto_unmount;
    Ok(Request {
        store: cli.store.clone().unwrap_or_default(),
        mountpoint: cli.mountpoint.clone().unwrap_or_default(),
        options,
        root: serve.root.clone(),
        threads: serve.threads.map_or(cores.clamp(2, 16), usize::from),
        cache_bytes: serve.cache_size,
        ahead_bytes: serve.push_size,
        views: Limits { memory: serve.view_memory, views: serve.max_views },
        names: serve.names.clone(),
        xattrs: !serve.no_xattrs,
        until_stdin_ends: cli.until_stdin_ends,
        remove_mountpoint: cli.remove_mountpoint,
    })
}

fn start_log(args: &ServeArgs) -> Result<(), String> {
    let level =
        [log::LevelFilter::Warn, log::LevelFilter::Info, log::LevelFilter::Debug][usize::from(args.verbose.min(2))];
    let mut builder = env_logger::Builder::new();
    builder.filter_level(level);
    // fuser logs replies that a killed reader no longer takes as errors.
    builder.filter_module("fuser", if args.verbose > 1 { level } else { log::LevelFilter::Off });
    builder.parse_default_env();
    if let Some(path) = &args.log {
        let file = File::options().append(true).create(true).open(path);
        let file = file.map_err(|e| format!("cannot open the log {}: {e}", path.display()))?;
        builder.target(env_logger::Target::Pipe(Box::new(file)));
    }
    builder.init();
    Ok(())
}

fn foreground(cli: &Cli) -> Result<(), String> {
    start_log(&cli.serve)?;
    let request = request(cli)?;
    session::serve(&request, &mut |report| {
        if report == Report::Ready {
            log::info!("{} is mounted at {}", request.store.display(), request.mountpoint.display());
            if let Err(e) = notify("READY=1") {
                log::warn!("cannot tell the service manager that the mount is ready: {e}");
            }
        }
        Ok(())
    })
}

fn background_child(cli: &Cli) -> ExitCode {
    // Fails only for who leads a session already.
    let _ = rustix::process::setsid();
    let run = || {
        start_log(&cli.serve)?;
        session::serve(&request(cli)?, &mut |report| match report {
            Report::Note(text) => say("note", &text),
            Report::Ready => {
                // What may fail does so before it is said.
                let null = File::options().write(true).open("/dev/null")?;
                say("ready", "")?;
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
        assert_eq!(cli.store, Some("s.zr".into()));
        assert_eq!(cli.serve.options, ["ro,nofail"]);
        assert!(Cli::try_parse_from(["zrfs-mount", "s.zr"]).is_err());
        assert!(Cli::try_parse_from(["zrfs-mount", "--unmount", "/mnt"]).is_ok());
        assert!(Cli::try_parse_from(["zrfs-mount", "s.zr", "/mnt", "--threads", "0"]).is_err());
    }

    #[test]
    fn arguments_are_handed_on_as_they_were() {
        let given = [
            "zrfs-mount",
            "s",
            "m",
            "-o",
            r"ro,fsname=a\,b",
            "-o=uid=5",
            "--root",
            "-x/y",
            "--names",
            "{index:03}.{ext}",
            "--threads",
            "3",
            "--cache-size",
            "5M",
            "--push-size",
            "7M",
            "--view-memory",
            "9M",
            "--max-views",
            "3",
            "--log",
            "a b",
            "--auto-unmount",
            "--no-xattrs",
            "-vv",
        ];
        let first = Cli::try_parse_from(given.map(|a| if a == "-x/y" { "x/y" } else { a })).unwrap();
        let again: Vec<OsString> =
            ["zrfs-mount".into(), "s".into(), "m".into()].into_iter().chain(first.serve.to_args()).collect();
        let again = Cli::try_parse_from(again).unwrap();
        assert_eq!(format!("{:?}", again.serve), format!("{:?}", first.serve));
    }
}
