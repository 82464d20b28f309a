//! The command `zrfs-mount`; see [`zrfs_mount::cli`].
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    zrfs_mount::cli::main()
}
