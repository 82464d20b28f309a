//! Putting a FUSE mount in place and taking it away: mount(2) where we may, fusermount3 where we may not.

use crate::options::MountOptions;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DEVICE: &str = "/dev/fuse";
const FUSERMOUNT: &str = "fusermount3";
const CONTAINER: &str = "in a container, start it with --device /dev/fuse --cap-add SYS_ADMIN";

/// A mount without a server yet.
#[derive(Debug)]
pub struct Mounted {
    /// The connection to the kernel.
    pub device: OwnedFd,
    /// Whether `/dev/fuse` can be opened again, for a connection a thread.
    pub may_clone: bool,
}

/// Mounts a file system of `source` at `mountpoint`, an absolute path.
///
/// # Errors
/// A sentence that names the missing piece; what fusermount3 says is passed on.
pub fn mount(source: &Path, mountpoint: &Path, options: &MountOptions) -> Result<Mounted, String> {
    let root = rustix::process::geteuid().is_root();
    let device = match File::options().read(true).write(true).open(DEVICE) {
        Ok(device) => Some(device),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Err(format!("{DEVICE} is missing: load it with modprobe fuse; {CONTAINER}"));
        }
        // fusermount3 has rights that a user lacks.
        Err(e) if e.kind() == ErrorKind::PermissionDenied && !root => None,
        Err(e) => return Err(format!("cannot open {DEVICE}: {e}: load it with modprobe fuse; {CONTAINER}")),
    };
    let may_clone = device.is_some();
    if let Some(device) = device {
        match mount_here(&device, source, mountpoint, options) {
            Ok(()) => return Ok(Mounted { device: device.into(), may_clone }),
            Err(Errno::PERM) if !root => {}
            Err(Errno::PERM) => {
                return Err(format!("the kernel does not let this root mount file systems; {CONTAINER}"));
            }
            Err(Errno::NODEV) => return Err("the kernel has no FUSE: load it with modprobe fuse".into()),
            Err(e) => return Err(format!("cannot mount at {}: {e}", mountpoint.display())),
        }
    }
    let mounted = mount_by_helper(source, mountpoint, options)?;
    Ok(Mounted { device: mounted, may_clone })
}

fn subtype(options: &MountOptions) -> &str {
    options.subtype.as_deref().unwrap_or("zrfs")
}

fn fsname<'a>(source: &'a Path, options: &'a MountOptions) -> &'a OsStr {
    options.fsname.as_deref().map_or(source.as_os_str(), OsStr::new)
}

fn mount_here(device: &File, source: &Path, mountpoint: &Path, options: &MountOptions) -> Result<(), Errno> {
    let mut flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::NOEXEC, options.noexec);
    flags.set(MountFlags::NOATIME, options.noatime);
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let others = if options.allow_other || options.allow_root { ",allow_other" } else { "" };
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions{others}",
        device.as_raw_fd(),
        uid.as_raw(),
        gid.as_raw(),
    );
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    let kind = format!("fuse.{}", subtype(options));
    rustix::mount::mount(fsname(source, options), mountpoint, kind, flags, data.as_c_str())
}

/// Mounts by the setuid helper, which sends the connection back through a socket.
fn mount_by_helper(source: &Path, mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd, String> {
    let helper = find_helper()?;
    let failed = |e: std::io::Error| format!("cannot run {}: {e}", helper.display());
    let mut list = OsString::from("ro,nosuid,nodev,default_permissions");
    for (wanted, name) in [
        (options.noexec, ",noexec"),
        (options.noatime, ",noatime"),
        (options.allow_other || options.allow_root, ",allow_other"),
    ] {
        list.push(if wanted { name } else { "" });
    }
    list.push(",subtype=");
    list.push(subtype(options));
    list.push(",fsname=");
    list.push(escaped(fsname(source, options)));
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    // Inherited by the helper. No other thread runs yet that could start a program with it.
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).map_err(|e| failed(e.into()))?;
    let child = Command::new(&helper)
        .arg("-o")
        .arg(list)
        .arg("--")
        .arg(mountpoint)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    drop(theirs);
    let device = receive(&ours);
    let said = child.wait_with_output().map_err(failed)?;
    device.ok_or_else(|| {
        let text = one_line(&said.stderr);
        let hint = if text.contains("user_allow_other") {
            " (as root, add a line user_allow_other there)"
        } else if text.contains(DEVICE) {
            " (as root, let users open it: chmod 666 /dev/fuse)"
        } else {
            ""
        };
        if text.is_empty() { format!("{} gave no mount: {}", helper.display(), said.status) } else { text + hint }
    })
}

/// The descriptor that the helper sends; `None` if it ends without sending one.
fn receive(socket: &UnixStream) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        let mut iov = [IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(socket, &mut iov, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(_) => return None,
            Ok(_) => break,
        }
    }
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })
}

/// fusermount3 cuts its options at commas, and takes a backslash before one that is part of a value.
fn escaped(value: &OsStr) -> OsString {
    let mut out = Vec::new();
    for &byte in value.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    OsString::from_vec(out)
}

fn find_helper() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/bin", "/usr/local/bin"].map(PathBuf::from);
    let found = std::env::split_paths(&path).chain(usual).map(|dir| dir.join(FUSERMOUNT)).find(|p| p.is_file());
    found.ok_or_else(|| format!("{FUSERMOUNT} is missing, and only root mounts without it: install the package fuse3"))
}

fn one_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).split('\n').map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Why a mount was not taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnmountError {
    /// Files of it are open, or it is some process's working directory.
    Busy,
    /// Nothing is mounted there.
    NotMounted,
    /// Something else; a sentence.
    Other(String),
}

/// Takes away the mount at `mountpoint`; `lazy` takes it out of the namespace at once and ends it when it is not used
/// any more.
///
/// # Errors
/// Why it is still there.
pub fn unmount(mountpoint: &Path, lazy: bool) -> Result<(), UnmountError> {
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::DETACH, lazy);
    match rustix::mount::unmount(mountpoint, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(UnmountError::Busy),
        Err(Errno::INVAL | Errno::NOENT) => Err(UnmountError::NotMounted),
        Err(Errno::PERM) => unmount_by_helper(mountpoint, lazy),
        Err(e) => Err(UnmountError::Other(e.to_string())),
    }
}

fn unmount_by_helper(mountpoint: &Path, lazy: bool) -> Result<(), UnmountError> {
    let helper = find_helper().map_err(UnmountError::Other)?;
    let said = Command::new(&helper)
        .arg("-u")
        .args(lazy.then_some("-z"))
        .arg("--")
        .arg(mountpoint)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| UnmountError::Other(format!("cannot run {}: {e}", helper.display())))?;
    match one_line(&said.stderr) {
        _ if said.status.success() => Ok(()),
        text if text.contains("busy") => Err(UnmountError::Busy),
        text if text.contains("not found in") => Err(UnmountError::NotMounted),
        text => Err(UnmountError::Other(text)),
    }
}

/// A line of the kernel's list of mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// Device number, as "major:minor".
    pub device: String,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// Kind of file system.
    pub kind: String,
}

/// The mounts of this process's namespace, in the order they were made; none if the list can't be read. Asks no server,
/// so it never hangs.
pub fn mounts() -> Vec<MountEntry> {
    try_mounts().unwrap_or_default()
}

/// The same.
///
/// # Errors
/// Those of reading `/proc/self/mountinfo`.
pub fn try_mounts() -> std::io::Result<Vec<MountEntry>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    Ok(text.split(|&b| b == b'\n').filter_map(parse_mount).collect())
}

fn parse_mount(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&b| b == b' ');
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let device = text(fields.nth(2)?);
    let mountpoint = PathBuf::from(OsString::from_vec(unescaped(fields.nth(1)?)));
    let kind = text(fields.skip_while(|f| *f != b"-").nth(1)?);
    Some(MountEntry { device, mountpoint, kind })
}

/// The kernel writes blanks, line ends and backslashes as `\040`.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo() {
        let line = br"36 35 0:45 / /mnt/a\040b\134c ro,nosuid shared:7 master:2 - fuse.zrfs /data/x\040y ro,user_id=0";
        let want = MountEntry { device: "0:45".into(), mountpoint: r"/mnt/a b\c".into(), kind: "fuse.zrfs".into() };
        assert_eq!(parse_mount(line), Some(want));
        assert_eq!(parse_mount(b""), None);
        assert!(mounts().iter().any(|m| m.mountpoint == Path::new("/proc")));
    }

    #[test]
    fn names_for_the_helper() {
        assert_eq!(escaped(OsStr::new(r"/a,b\c")), r"/a\,b\\c");
    }
}
