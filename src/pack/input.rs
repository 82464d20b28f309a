//! Standard input and archives as streams whose bytes are counted.

use super::progress::Progress;
use crate::error::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

/// Stands for standard input where a path is expected.
pub const STDIN: &str = "-";

/// Whether `path` stands for standard input.
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == STDIN
}

/// Counts the bytes of the source that were read, compressed as they are, for the progress shown.
struct Counted<R> {
    inner: R,
    progress: Progress,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.progress.stopped() {
            return Err(io::Error::other("interrupted"));
        }
        let n = self.inner.read(buf)?;
        self.progress.add(0, n as u64);
        Ok(n)
    }
}

/// How long a read waits for a pipe's writer before it looks whether the job was stopped.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A pipe whose reads end when the job is stopped, also while nobody writes to it.
struct Patient {
    pipe: File,
    progress: Progress,
}

impl Read for Patient {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&PATIENCE)) {
                Ok(0) | Err(rustix::io::Errno::INTR) if self.progress.stopped() => {
                    return Err(io::Error::other("interrupted"));
                }
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return self.pipe.read(buf),
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// Opens `path`, or standard input for [`STDIN`], as it is.
pub(super) fn open_stream(path: &Path, progress: &Progress) -> Result<Box<dyn Read + Send>> {
    let progress = progress.clone();
    if is_stdin(path) {
        let pipe = io::stdin().as_fd().try_clone_to_owned().map_err(Error::io("open", "standard input"))?;
        let patient = Patient { pipe: pipe.into(), progress: progress.clone() };
        return Ok(Box::new(Counted { inner: patient, progress }));
    }
    let file = File::open(path).map_err(Error::io("open", path))?;
    progress.set_total_bytes(file.metadata().map_err(Error::io("stat", path))?.len());
    Ok(Box::new(Counted { inner: file, progress }))
}
