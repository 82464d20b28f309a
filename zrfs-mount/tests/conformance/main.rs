//! A mount beside the plain files it stands for: tools, system calls, names, attributes, changes, its life and its memory.
//!
//! Each test of a case that broke another system names it, as `pt#36650` (pytorch issue 36650) does: gof is
//! hanwen/go-fuse, lf libfuse, mp mountpoint-s3, rat ratarmount, mus musefs, jfs juicedata/juicefs, gcs gcsfuse, sqt
//! squashfs-tools. Cases about the ends of a mount and about errors at its start are in `tests/mount.rs`.

#[allow(dead_code)] // Each test binary uses its own part.
#[path = "../common/mod.rs"]
mod common;

mod attributes;
mod change;
mod directories;
mod life;
mod memory;
mod names;
mod reads;
mod runs;
mod soak;
mod tools;

use common::{Mount, run, succeeds};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The program `conform.c`, compiled once.
fn conform() -> &'static str {
    static PROGRAM: OnceLock<&str> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/conform.c");
        // Under its name in one step: another run of these tests may be using it.
        let program = concat!(env!("CARGO_TARGET_TMPDIR"), "/conform");
        let new = format!("{program}-{}", std::process::id());
        succeeds(&run("cc", &["-O1", "-Wall", "-Wextra", "-Werror", "-o", &new, source]));
        std::fs::rename(new, program).unwrap();
        program
    })
}

/// Runs a part of `conform.c`, which must find nothing to complain of.
#[track_caller]
fn conforms(args: &[&str]) {
    assert_eq!(succeeds(&run(conform(), args)), "good\n");
}

/// A Python with numpy.
fn python() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/venv/bin/python");
    let path = std::env::var_os("ZRFS_PYTHON").map_or(root, PathBuf::from);
    assert!(path.is_file(), "{} is missing: run scripts/setup, or name one in ZRFS_PYTHON", path.display());
    path
}

/// A number of the mount's `.zrfs/stats.json`, by its path; 0 for what was never counted.
fn counted(mount: &Mount, path: &str) -> u64 {
    let text = succeeds(&run("cat", &[&format!("{}/.zrfs/stats.json", mount.path())]));
    let stats: serde_json::Value = serde_json::from_str(&text).unwrap();
    stats.pointer(path).and_then(serde_json::Value::as_u64).unwrap_or(0)
}
