//! Stores that one may read and not write: another user's files, and a file system that is mounted read-only.

mod common;

use common::{ZRFS, copy_of_zrfs, fails, need_root, noise, ok, tool};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use zrfs::WriterOptions;
use zrfs::format::Codec;

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A directory that every user may enter, with the command and a store in it.
fn prepare() -> (tempfile::TempDir, PathBuf, PathBuf) {
    need_root();
    let dir = tempfile::tempdir().unwrap();
    mode(dir.path(), 0o755);
    let (command, store) = (dir.path().join("zrfs"), dir.path().join("s"));
    copy_of_zrfs(&command);
    mode(&command, 0o755);
    let mut writer = WriterOptions::new(Codec::Zstd).create(&store).unwrap();
    let records: Vec<Vec<u8>> = (0..50).map(|i| noise(i, 1000)).collect();
    writer.append(&records.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
    writer.close().unwrap();
    (dir, command, store)
}

#[test]
fn another_user_reads_a_store_without_write_permission() {
    let (_dir, command, store) = prepare();
    fs::read_dir(&store).unwrap().for_each(|file| mode(&file.unwrap().path(), 0o444));
    mode(&store, 0o555);
    let as_nobody = || {
        let mut command = tool("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
        command
    };
    let said = ok(as_nobody().arg(&command).arg("verify").arg(&store));
    assert!(String::from_utf8(said).unwrap().contains("50 records"));
    // To write takes permission, and says so.
    let said = fails(as_nobody().arg(&command).arg("compact").arg(&store), 1);
    assert!(said.contains("meta.zr: Permission denied"), "{said}");
}

#[test]
fn a_read_only_mount_is_read() {
    let (_dir, command, store) = prepare();
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && ! touch \"$1/x\" && \"$2\" verify \"$1\" && \
                  ! \"$2\" compact \"$1\"";
    let out = common::run(tool("unshare").args(["--mount", "sh", "-c", script, "sh"]).args([&store, &command]));
    let (said, errors) = (String::from_utf8_lossy(&out.stdout), common::stderr(&out));
    assert!(out.status.success() && said.contains("50 records"), "{said}{errors}");
    assert!(errors.contains("meta.zr: Read-only file system"), "{errors}");
    // The mount went with its namespace.
    ok(Command::new(ZRFS).arg("compact").arg(&store));
}
