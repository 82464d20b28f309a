//! The command line: arguments, messages, exit status. Everything else is the library's.

mod append;
mod bar;
mod bench;
mod cat;
mod compact;
mod compare;
mod export;
mod gather;
mod info;
mod loader;
mod ls;
mod pack;
mod print;
mod recode;
mod rm;
mod run;
mod sample;
mod show;
mod stats;
mod stores;
mod train_dict;
mod unpack;
mod verify;

use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;
use zrfs::Error;

/// Keep a dataset as one store: packed once, mounted as files, gathered at memory speed.
#[derive(Debug, Parser)]
#[command(
    name = "zrfs",
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "\
Examples:
  zrfs pack /usr/share/doc docs.zr        a directory becomes a store
  zrfs ls docs.zr | head                  what is in it
  zrfs cat docs.zr base-files/README      one file of it
  zrfs-mount docs.zr mnt                  all of it, as files below mnt/tree
  zrfs run docs.zr -- COMMAND             the same while a command runs
  zrfs unpack docs.zr copy                all of it, copied back

`zrfs COMMAND --help` has more."
)]
struct Cli {
    /// Say more in the log on standard error (twice: everything). RUST_LOG works too.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(visible_alias = "import")]
    Pack(pack::Args),
    Info(info::Args),
    Ls(ls::Args),
    Cat(cat::Args),
    Unpack(unpack::Args),
    Verify(verify::Args),
    Stats(stats::Args),
    Compact(compact::Args),
    Run(run::Args),
    Sample(sample::Args),
    Gather(gather::Args),
    Loader(loader::Args),
    Bench(bench::Args),
    Append(append::Args),
    Rm(rm::Args),
    Recode(recode::Args),
    #[command(visible_alias = "cp-check")]
    Compare(compare::Args),
    Export(export::Args),
    TrainDict(train_dict::Args),
}

/// Why a command ends without success.
#[derive(Debug)]
enum Failure {
    /// The reason has yet to be printed.
    Error(Error),
    /// Everything that went wrong was printed, and the rest was done.
    Partial,
    /// A signal stopped it; what is left of the work done.
    Interrupted(String),
    /// A comparison could not be made; the reason has yet to be printed. Its exit status is not that of a difference.
    Trouble(Error),
    /// Nobody reads the output any more, which is how `head` ends a listing.
    Closed,
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Failure::Error(e)
    }
}

/// Failures of standard output.
impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Error(Error::io("write", "standard output")(e)),
        }
    }
}

type Done = Result<(), Failure>;

/// Runs the command; 0 is success, 1 failure, a part of the work left undone or a difference, 2 wrong arguments or a
/// comparison that could not be made, 130 an interrupt.
pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse_from(gather::arguments(std::env::args_os()));
    let level = ["warn", "info", "trace"][usize::from(cli.verbose.min(2))];
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level)).format_timestamp(None).init();
    let done = match cli.command {
        Command::Pack(args) => pack::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Cat(args) => cat::run(&args),
        Command::Unpack(args) => unpack::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Compact(args) => compact::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Sample(args) => sample::run(&args),
        Command::Gather(args) => gather::run(&args),
        Command::Loader(args) => loader::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Append(args) => append::run(&args),
        Command::Rm(args) => rm::run(&args),
        Command::Recode(args) => recode::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Export(args) => export::run(&args),
        Command::TrainDict(args) => train_dict::run(&args),
    };
    match done.and_then(|()| Ok(io::stdout().flush()?)) {
        Ok(()) | Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(Failure::Partial) => ExitCode::FAILURE,
        Err(Failure::Error(Error::Interrupted) | Failure::Trouble(Error::Interrupted)) => {
            interrupted("nothing was left behind")
        }
        Err(Failure::Interrupted(then)) => interrupted(&then),
        Err(Failure::Error(e)) => {
            eprintln!("zrfs: {e}");
            ExitCode::FAILURE
        }
        Err(Failure::Trouble(e)) => {
            eprintln!("zrfs: {e}");
            ExitCode::from(2)
        }
    }
}

fn interrupted(then: &str) -> ExitCode {
    eprintln!("zrfs: interrupted; {then}");
    ExitCode::from(130)
}
