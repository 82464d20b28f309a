//! A mount in the background: this program started again, and waited for until that mount answers.

use crate::cli::complain;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Starts this program again in the background and waits until it says that the mount answers; returns its process.
///
/// The child's stdout is the pipe that it reports through, and nothing else of ours is open in it: whoever waits for
/// our output to end, as Python's `subprocess` does, is not kept waiting by the mount.
///
/// # Errors
/// The sentence with which the child says why there is no mount.
pub fn start(args: impl Iterator<Item = OsString>, stdin: Stdio) -> Result<Child, String> {
    let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut child = Command::new(program)
        .arg("--background-child")
        .args(args)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("cannot start a process: {e}"))?;
    let reports = child.stdout.take().map(BufReader::new);
    for line in reports.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("ready", _) => return Ok(child),
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
