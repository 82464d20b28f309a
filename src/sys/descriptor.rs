//! Open files that a forked child may not have.
//!
//! The system copies a process's descriptors before its memory. Where another thread closes one file and opens another in
//! between, what a child's memory calls the one is the other; where it only opens one, the number is free in the child, and
//! becomes that of a file of the child's own. And a child may close all that it inherited, as daemons do. So a process looks
//! at what it inherited before it first uses or closes it: whether the descriptor is the very one that was opened.

use super::this_process;
use rustix::fs::{SeekFrom, fstat, seek};
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that is read and written at offsets only.
#[derive(Debug)]
pub(crate) struct Descriptor {
    file: ManuallyDrop<File>,
    /// Device and inode.
    node: (u64, u64),
    /// The file's position, which nobody uses: a number that no other descriptor has that this process, or one that it was
    /// forked from, has opened in this way. `None` where it cannot be one.
    mark: Option<u64>,
    /// The last process that has this descriptor for certain.
    owner: AtomicU64,
}

impl Descriptor {
    /// # Errors
    /// The operating system's.
    pub(crate) fn new(file: File) -> io::Result<Descriptor> {
        let mark = next_mark();
        let set = seek(&file, SeekFrom::Start(mark)) == Ok(mark);
        Self::known_by(file, set.then_some(mark))
    }

    /// Of a file that another process sent, which shares its position.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn received(file: File) -> io::Result<Descriptor> {
        Self::known_by(file, None)
    }

    fn known_by(file: File, mark: Option<u64>) -> io::Result<Descriptor> {
        let node = node(&file)?;
        Ok(Descriptor { file: ManuallyDrop::new(file), node, mark, owner: AtomicU64::new(this_process()) })
    }

    /// The file. Two loads, except when a child first asks.
    ///
    /// # Errors
    /// If this is a forked child that does not have it.
    pub(crate) fn file(&self) -> io::Result<&File> {
        let here = this_process();
        // Nobody but its owner closes a descriptor: what a process has once, it goes on to have.
        if self.owner.load(Ordering::Relaxed) != here {
            if !self.is_inherited() {
                let text = "this process, a fork of the one that opened it, does not have this file; open it here anew";
                return Err(io::Error::other(text));
            }
            self.owner.store(here, Ordering::Relaxed);
        }
        Ok(&self.file)
    }

    #[cold]
    fn is_inherited(&self) -> bool {
        let same = node(&self.file).is_ok_and(|found| found == self.node);
        same && self.mark.is_none_or(|mark| seek(&*self.file, SeekFrom::Current(0)) == Ok(mark))
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if self.file().is_ok() {
            // SAFETY: it is not used any more.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

fn node(file: &File) -> io::Result<(u64, u64)> {
    // Less work for the system than all that `metadata` asks for.
    let found = fstat(file)?;
    Ok((found.st_dev, found.st_ino))
}

/// A position that files of any file system may have, directories among them, and that is unlikely for those of others. A
/// child goes on from where its parent had got.
fn next_mark() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    const SPAN: u64 = 1 << 29;
    SPAN + NEXT.fetch_add(1, Ordering::Relaxed) % SPAN
}

#[cfg(test)]
mod tests {
    use super::super::process::tests::{fork, in_child};
    use super::*;
    use std::os::fd::{AsRawFd, RawFd};
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    fn open(path: &Path) -> Descriptor {
        Descriptor::new(File::open(path).unwrap()).unwrap()
    }

    /// What a child has at the number.
    fn is_open(number: RawFd) -> bool {
        // SAFETY: asks for a flag of a number, whatever that is.
        unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
    }

    /// Makes `number` another name of `of`, or nobody's. Only in a child.
    fn replace(number: RawFd, of: Option<&File>) {
        // SAFETY: in a child, of whose descriptors this is a test.
        let done = unsafe { of.map_or_else(|| libc::close(number), |of| libc::dup2(of.as_raw_fd(), number)) };
        assert!(done >= 0);
    }

    #[test]
    fn a_child_uses_and_closes_only_what_is_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        std::fs::write(&one, "one").unwrap();
        std::fs::write(&two, "two").unwrap();
        for path in [&*one, dir.path()] {
            let inherited = |found: Option<&Path>| {
                let file = open(path);
                let number = file.file().unwrap().as_raw_fd();
                let (other, same) = (File::open(&two).unwrap(), File::open(path).unwrap());
                let as_expected = in_child(fork, || {
                    match found {
                        Some(found) if found == two => replace(number, Some(&other)),
                        Some(_) => replace(number, Some(&same)),
                        None => replace(number, None),
                    }
                    let used = file.file().is_ok();
                    drop(file);
                    !used && is_open(number) == found.is_some()
                });
                assert!(as_expected, "{}: {found:?}", path.display());
            };
            // Closed; of another file; of the same, but opened by somebody else.
            [None, Some(&*two), Some(path)].into_iter().for_each(inherited);

            let file = open(path);
            let number = file.file().unwrap().as_raw_fd();
            assert!(in_child(fork, || {
                let all_can = file.file().is_ok() && in_child(fork, || file.file().is_ok());
                drop(file);
                all_can && !is_open(number)
            }));
        }
        let (file, mut bytes) = (open(&one), [0; 3]);
        file.file().unwrap().read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"one");
    }

    /// One without a position is known by its inode.
    #[test]
    fn what_has_no_position_of_its_own_does_without() {
        let dir = tempfile::tempdir().unwrap();
        let path = rustix::fs::open(dir.path(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        for file in
            [Descriptor::new(path.into()).unwrap(), Descriptor::received(tempfile::tempfile().unwrap()).unwrap()]
        {
            assert!(file.mark.is_none());
            let (number, other) = (file.file().unwrap().as_raw_fd(), File::open("/").unwrap());
            assert!(in_child(fork, || file.file().is_ok()));
            assert!(in_child(fork, || {
                replace(number, Some(&other));
                file.file().is_err()
            }));
        }
    }
}
