//! Storing files' bytes in the kernel's page cache: the notification `FUSE_NOTIFY_STORE`.
//!
//! fuser has it too, but takes ENOENT for success, and whether the kernel knows a file is what we must learn.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io::IoSlice;

/// The code of the notification.
const STORE: i32 = 4;
/// Bytes of `fuse_out_header` and `fuse_notify_store_out` together.
const HEAD: usize = 16 + 24;

/// Where pushed bytes go to.
pub trait PageCache: Send + Sync {
    /// Stores the bytes of a whole file. Without bytes it only asks whether the kernel knows the file.
    ///
    /// Waits while somebody reads the same pages, so no thread that serves reads may call it.
    ///
    /// # Errors
    /// `ENOENT` if the kernel does not know the file, `ENOTCONN` or `ENODEV` after the end of the mount.
    fn store(&self, ino: u64, bytes: &[u8]) -> Result<(), Errno>;
}

/// The connection of a mount.
#[derive(Debug)]
pub struct Device(pub OwnedFd);

impl PageCache for Device {
    fn store(&self, ino: u64, bytes: &[u8]) -> Result<(), Errno> {
        let head = head(ino, bytes.len()).ok_or(Errno::FBIG)?;
        rustix::io::writev(&self.0, &[IoSlice::new(&head), IoSlice::new(bytes)]).map(|_| ())
    }
}

/// What stands before the bytes: length of it all, code, no request's number; inode, offset 0, length, padding.
fn head(ino: u64, length: usize) -> Option<[u8; HEAD]> {
    let length = u32::try_from(length).ok()?;
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&length.checked_add(HEAD as u32)?.to_ne_bytes());
    head[4..8].copy_from_slice(&STORE.to_ne_bytes());
    head[16..24].copy_from_slice(&ino.to_ne_bytes());
    head[32..36].copy_from_slice(&length.to_ne_bytes());
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let head = head(0x0102_0304_0506_0708, 0x1122).unwrap();
        let want: Vec<u8> = [
            &0x114Au32.to_ne_bytes()[..],
            &4u32.to_ne_bytes(),
            &[0; 8],
            &0x0102_0304_0506_0708u64.to_ne_bytes(),
            &[0; 8],
            &0x1122u32.to_ne_bytes(),
            &[0; 4],
        ]
        .concat();
        assert_eq!(head[..], want);
        assert_eq!(super::head(1, u32::MAX as usize), None, "too long for its length field");
    }
}
