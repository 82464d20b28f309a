//! `zrfs run`: hands over to `zrfs-mount run`, which mounts a store while a command runs.

use super::Done;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use zrfs::Error;

const PROGRAM: &str = "zrfs-mount";

/// Mount a store while a command runs, and exit with its status: zrfs run STORE [--at DIR] -- COMMAND
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct Args {
    /// The arguments of `zrfs-mount run`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARG")]
    args: Vec<OsString>,
}

/// Becomes `zrfs-mount`: signals reach it and its status is ours without anything in between. Returns only if it can't be
/// run.
pub(super) fn run(args: &Args) -> Done {
    // Beside us first: programs of one version belong together.
    let beside = std::env::current_exe().ok().and_then(|me| Some(me.parent()?.join(PROGRAM))).filter(|p| p.is_file());
    let program = beside.unwrap_or_else(|| PathBuf::from(PROGRAM));
    let failed = Command::new(&program).arg("run").args(&args.args).exec();
    Err(match failed.kind() {
        io::ErrorKind::NotFound => Error::invalid(format!(
            "{PROGRAM}, which does the mounting, is neither beside this program nor on the PATH; install it with \
             cargo install --path {PROGRAM}"
        )),
        _ => Error::io("run", program)(failed),
    }
    .into())
}
