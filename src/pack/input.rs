//! A source as a stream of bytes: a file or standard input, decompressed by what its first bytes say.

use super::progress::Progress;
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Stands for standard input where a path is expected.
pub const STDIN: &str = "-";

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// What else archives are compressed with, and the program that undoes it.
const OTHERS: [(&[u8], &str, &str); 3] =
    [(b"\xfd7zXZ\0", "xz", "xz -dc"), (b"BZh", "bzip2", "bzip2 -dc"), (b"\x04\x22\x4d\x18", "lz4", "lz4 -dc")];

/// Counts the bytes of the source that were read, compressed or not, for the progress shown.
struct Counted<'p, R> {
    inner: R,
    progress: &'p Progress,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.progress.stopped() {
            return Err(io::Error::other("interrupted"));
        }
        let n = self.inner.read(buf)?;
        self.progress.add(0, n as u64);
        Ok(n)
    }
}

/// Opens `path`, or standard input for [`STDIN`], and decompresses gzip (of several members too) and zstd (of several
/// frames too).
///
/// # Errors
/// [`Error::Io`]; [`Error::Invalid`] for another compression, which names the program that undoes it.
pub(super) fn open_stream<'p>(path: &Path, progress: &'p Progress) -> Result<Box<dyn Read + 'p>> {
    let plain: Box<dyn Read> = if path.as_os_str() == STDIN {
        Box::new(io::stdin())
    } else {
        let file = File::open(path).map_err(Error::io("open", path))?;
        progress.set_total_bytes(file.metadata().map_err(Error::io("stat", path))?.len());
        Box::new(file)
    };
    let mut input = BufReader::with_capacity(1 << 18, Counted { inner: plain, progress });
    let start = input.fill_buf().map_err(Error::io("read", path))?;
    if let Some((_, what, program)) = OTHERS.iter().find(|(magic, ..)| start.starts_with(magic)) {
        let reason = format!("{} is compressed with {what}; use `{program} {0} | zrfs pack - STORE`", path.display());
        return Err(Error::invalid(reason));
    }
    if start.starts_with(&GZIP) {
        Ok(Box::new(BufReader::with_capacity(1 << 18, flate2::bufread::MultiGzDecoder::new(input))))
    } else if start.starts_with(&ZSTD) {
        let decoder = zstd::Decoder::with_buffer(input).map_err(Error::io("read", path))?;
        Ok(Box::new(BufReader::with_capacity(1 << 18, decoder)))
    } else {
        Ok(Box::new(input))
    }
}
