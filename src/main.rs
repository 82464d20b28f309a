//! The command `zrfs`: pack, look into and unpack stores.
#![forbid(unsafe_code)]

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
