//! `zrfs run` hands over to `zrfs-mount`; what that does with it is tested there.

mod common;

use common::{copy_of_zrfs, fails, ok, scratch};
use std::path::Path;
use std::process::Command;

/// Writes a program, by another process as [`copy_of_zrfs`] does.
fn program(at: &Path, text: &str) {
    let write = r#"printf %s "$2" > "$1" && chmod 755 "$1""#;
    ok(Command::new("sh").args(["-c", write, "sh"]).arg(at).arg(text));
}

/// The program beside us is run with all arguments as they are, and becomes us: its status is ours.
#[test]
fn arguments_and_status_are_handed_over() {
    let dir = scratch();
    let (zrfs, mounter) = (dir.path().join("zrfs"), dir.path().join("zrfs-mount"));
    copy_of_zrfs(&zrfs);
    program(&mounter, "#!/bin/sh\nprintf '%s|' $$ \"$@\"; exit 7\n");
    let args = ["run", "a store", "--at", "m", "-vv", "--", "sh", "-c", "x  y", "--help"];
    let child = Command::new(&zrfs).args(args).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let id = child.id();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(7));
    let want = format!("{id}|run|a store|--at|m|-vv|--|sh|-c|x  y|--help|");
    assert_eq!(String::from_utf8_lossy(&out.stdout), want);
    program(&mounter, "#!/bin/sh\necho \"help of $2\"\n");
    assert_eq!(ok(Command::new(&zrfs).args(["run", "--help"])), b"help of --help\n");
}

#[test]
fn a_missing_mounter_is_named() {
    let dir = scratch();
    let zrfs = dir.path().join("zrfs");
    copy_of_zrfs(&zrfs);
    let text = fails(Command::new(&zrfs).args(["run", "s", "--", "true"]).env("PATH", dir.path()), 1);
    assert!(text.contains("zrfs-mount") && text.contains("cargo install"), "{text}");
}
