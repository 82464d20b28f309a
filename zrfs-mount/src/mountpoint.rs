//! Where a mount may go: an existing, empty directory outside of the store, cleared of what a killed server left.

use crate::mounting;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Checks the mountpoint, after detaching mounts there whose server was killed; returns its absolute path.
///
/// # Errors
/// A sentence that says why nothing can be mounted there.
pub fn check(given: &Path, store: &Path, nonempty: bool, note: &mut dyn FnMut(String)) -> Result<PathBuf, String> {
    let shown = given.display();
    // Mounts may lie on each other, but hardly many.
    for _ in 0..16 {
        match look_at(given) {
            Ok(true) => break,
            Ok(false) => return Err(format!("{shown} is not a directory, and a mount needs one")),
            Err(e) => match Errno::from_io_error(&e) {
                Some(Errno::NOTCONN | Errno::CONNABORTED) => detach_stale(given, note)?,
                Some(Errno::NOENT) => return Err(format!("{shown} does not exist; create it with mkdir")),
                _ => return Err(format!("{shown}: {e}")),
            },
        }
    }
    let mountpoint = given.canonicalize().map_err(|e| format!("{shown}: {e}"))?;
    if mountpoint.starts_with(store) {
        return Err(format!("{shown} is inside the store {}; mount it elsewhere", store.display()));
    }
    if store.starts_with(&mountpoint) {
        return Err(format!(
            "the store {} is inside {shown}, which a mount would hide; mount it elsewhere",
            store.display()
        ));
    }
    if !nonempty
        && let Some(there) = mounting::mounts().into_iter().rev().find(|m| m.mountpoint == mountpoint)
        && there.kind == "fuse.zrfs"
    {
        return Err(format!("a zrfs mount is at {shown} already; unmount it first: zrfs-mount --unmount {shown}"));
    }
    if !nonempty {
        let mut entries = std::fs::read_dir(&mountpoint).map_err(|e| format!("{shown}: {e}"))?;
        if entries.next().is_some() {
            return Err(format!("{shown} is not empty; choose an empty directory, or hide its files with -o nonempty"));
        }
    }
    Ok(mountpoint)
}

/// Whether there is a directory. A mount whose server was killed is an error, also while the kernel still remembers
/// its attributes.
fn look_at(path: &Path) -> io::Result<bool> {
    let is_dir = std::fs::metadata(path)?.is_dir();
    let place = absolute(path)?;
    if mounting::mounts().iter().any(|m| m.mountpoint == place && m.kind.starts_with("fuse")) {
        rustix::fs::statvfs(path)?;
    }
    Ok(is_dir)
}

/// Takes away a mount whose server was killed.
fn detach_stale(mountpoint: &Path, note: &mut dyn FnMut(String)) -> Result<(), String> {
    let shown = mountpoint.display();
    let path = absolute(mountpoint).map_err(|e| format!("{shown}: {e}"))?;
    mounting::unmount(&path, true).map_err(|e| {
        let how = format!("run umount -l {shown}, or fusermount3 -u -z {shown}");
        format!("the server of an earlier mount at {shown} was killed, and it can't be detached ({e:?}); {how}")
    })?;
    note(format!("{shown} was still mounted although its server was killed; detached it"));
    Ok(())
}

/// The absolute path of what can't be asked for its own.
///
/// # Errors
/// Those of resolving its parent.
pub fn absolute(path: &Path) -> io::Result<PathBuf> {
    if let Ok(target) = path.read_link() {
        return absolute(&path.parent().unwrap_or(Path::new("")).join(target));
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(parent.canonicalize()?.join(name))
        }
        _ => path.canonicalize(),
    }
}
