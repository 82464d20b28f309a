//! PyPI's loaderx in a process that serves one command of `interop.py` after the other. The tests of `capi` have it, too, so
//! it is told where the repository is.
#![allow(dead_code)] // Each test binary uses its own part.

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The Python that has loaderx.
pub fn python(root: &Path) -> PathBuf {
    let path = std::env::var_os("ZRFS_PYTHON").map_or_else(|| root.join("target/venv/bin/python"), PathBuf::from);
    let what = "run `scripts/setup`, which makes it with loaderx==1.5.2, or name one in ZRFS_PYTHON";
    assert!(path.is_file(), "{} is missing: {what}", path.display());
    path
}

/// The process.
pub struct Loaderx {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Loaderx {
    /// Run by a Python that has it.
    pub fn start(mut python: Command, root: &Path) -> Self {
        python.arg(root.join("tests/interop.py")).arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Loaderx { child, stdin, stdout }
    }

    /// What it answers to the words of a command.
    #[track_caller]
    pub fn ask(&mut self, command: impl Into<Value>) -> Value {
        let command = command.into();
        writeln!(self.stdin.as_mut().unwrap(), "{command}").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{command}: {e}: {line:?}"))
    }
}

impl Drop for Loaderx {
    fn drop(&mut self) {
        // It ends at the end of its input.
        self.stdin = None;
        let _ = self.child.wait();
    }
}
