//! What an input is, told by its first bytes and never by its name.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use crate::error::{Error, Result};
use crate::format::npy::MAGIC;
use crate::pack::array::{read_up_to, refused};
use crate::pack::idx;
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

#[cfg(test)]
mod tests;

/// How an input is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    /// It isn't.
    None,
    /// gzip, of one or more members.
    Gzip,
    /// zstd, of one or more frames.
    Zstd,
}

/// What an input holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A directory, whose files or stores are the input.
    Directory,
    /// A numpy array.
    Npy(Compression),
    /// An IDX array.
    Idx(Compression),
    /// A tar archive.
    Tar(Compression),
}

const TAKES: &str = "zrfs takes directories, .npy and IDX arrays and tar archives, the last three also compressed \
                     with gzip or zstd";
/// A tar header; everything else shows in fewer bytes.
const HEAD: u64 = 512;
const BUFFER: usize = 1 << 20;

impl Compression {
    /// Opens `path` and decompresses it while it is read, through a buffer of 1 MiB.
    ///
    /// # Errors
    /// [`Error::Io`]. What can't be decompressed is an error of the reader's, not of this call.
    pub fn open(self, path: &Path) -> Result<Box<dyn Read + Send>> {
        self.decode(Box::new(File::open(path).map_err(Error::io("open", path))?), path)
    }

    /// Decompresses `stream` while it is read; `path` is its name in errors.
    ///
    /// # Errors
    /// [`Error::Io`] when there is no memory for the decompressor.
    pub fn decode(self, stream: Box<dyn Read + Send>, path: &Path) -> Result<Box<dyn Read + Send>> {
        let stream = BufReader::with_capacity(BUFFER, stream);
        Ok(match self {
            Compression::None => Box::new(stream),
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(stream)),
            Compression::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(stream);
                Box::new(decoder.map_err(Error::io("decompress", path))?)
            }
        })
    }
}

/// Tells what `path` is. A compressed file is told by what is in it.
///
/// # Errors
/// [`Error::Invalid`] for anything that zrfs doesn't take, saying what it looks like and what to do with it;
/// [`Error::Corrupt`] for a compressed file that can't be decompressed; [`Error::Io`].
pub fn detect(path: &Path) -> Result<Kind> {
    let meta = std::fs::metadata(path).map_err(Error::io("open", path))?;
    if meta.is_dir() {
        return Ok(Kind::Directory);
    }
    if !meta.is_file() {
        // Opening a pipe would wait for its writer, and looking into it would use up what is looked at.
        return Err(refused(path, format_args!("is neither a file nor a directory; {TAKES}")));
    }
    let file = File::open(path).map_err(Error::io("open", path))?;
    Ok(detect_stream(Box::new(file), path)?.0)
}

/// Tells what a stream holds, and gives it back from its start, decompressed. `path` is its name in errors. Never
/// [`Kind::Directory`].
///
/// # Errors
/// Those of [`detect`].
pub fn detect_stream(mut stream: Box<dyn Read + Send>, path: &Path) -> Result<(Kind, Box<dyn Read + Send>)> {
    let mut head = Vec::new();
    read_up_to(&mut stream, HEAD, &mut head, path, 0)?;
    let compression = compression(&head);
    let mut stream = compression.decode(Box::new(Cursor::new(head.clone()).chain(stream)), path)?;
    if compression == Compression::None {
        return Ok((kind(&head, compression).map_err(|e| refused(path, e))?, stream));
    }
    head.clear();
    read_up_to(&mut stream, HEAD, &mut head, path, 0)?;
    let kind =
        kind(&head, compression).map_err(|e| refused(path, format_args!("is compressed; decompressed, it {e}")))?;
    Ok((kind, Box::new(Cursor::new(head).chain(stream))))
}

fn compression(head: &[u8]) -> Compression {
    match head {
        [0x1f, 0x8b, 8, ..] => Compression::Gzip,
        // A frame, or a skippable frame before it (pzstd).
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
        _ => Compression::None,
    }
}

fn kind(head: &[u8], compression: Compression) -> Result<Kind, String> {
    if head.starts_with(MAGIC) {
        return Ok(Kind::Npy(compression));
    }
    if idx::header_len(head).is_some() {
        return Ok(Kind::Idx(compression));
    }
    if is_tar(head) {
        return Ok(Kind::Tar(compression));
    }
    if head.is_empty() {
        return Err(format!("is empty; {TAKES}"));
    }
    let known = KNOWN.iter().find(|(magic, _)| head.starts_with(magic));
    Err(match known {
        Some((_, what)) => format!("is {what}"),
        None if head.iter().all(|&b| b == 0) => format!("starts with zeros (an empty tar archive?); {TAKES}"),
        None => format!("is of a kind that zrfs does not know; {TAKES}"),
    })
}

/// What people try, and what to do with it.
const KNOWN: &[(&[u8], &str)] = &[
    (b"\xfd7zXZ\0", "compressed with xz; decompress it on the way: xz -dc x.tar.xz | zrfs pack - store.zr"),
    (b"BZh", "compressed with bzip2; decompress it on the way: bzip2 -dc x.tar.bz2 | zrfs pack - store.zr"),
    (b"\x04\x22\x4d\x18", "compressed with lz4; decompress it on the way: lz4 -dc x.tar.lz4 | zrfs pack - store.zr"),
    (b"\x1f\x8b", "no valid gzip file"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd twice; decompress it once: zstd -d"),
    (b"PK\x03\x04", "a zip file (.zip, .npz, .pt); unzip it (unzip x.npz -d x) and pack the directory or the .npy"),
    (b"PK\x05\x06", "an empty zip file"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; extract it and pack the directory"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file; save its arrays: np.save('x.npy', h5py.File('x.h5')['name'][:])"),
    (b"PAR1", "a Parquet file; save its columns: np.save('x.npy', pyarrow.parquet.read_table(p)['name'].to_numpy())"),
    (b"ARROW1", "an Arrow file; save its columns as .npy"),
    (b"hsqs", "a squashfs image; mount it or extract it (unsquashfs) and pack the directory"),
    (b"ZREC", "the header of a zrfs store; give the directory that it is in"),
    (b"\x80\x02", "a Python pickle, which zrfs never loads; save its arrays with np.save"),
    (b"\x80\x03", "a Python pickle, which zrfs never loads; save its arrays with np.save"),
    (b"\x80\x04", "a Python pickle, which zrfs never loads; save its arrays with np.save"),
    (b"\x80\x05", "a Python pickle, which zrfs never loads; save its arrays with np.save"),
];

/// Whether a file starts with a tar header: POSIX or GNU by its magic, older ones by their checksum.
fn is_tar(head: &[u8]) -> bool {
    let (Some(magic), Some(stored)) = (head.get(257..262), head.get(148..156)) else { return false };
    if magic == b"ustar" {
        return true;
    }
    // Octal digits, blanks before and a blank or NUL after them. A block of zeros has none, so it is not taken.
    let text: Vec<u8> = stored.iter().copied().filter(|&b| b != b' ' && b != 0).collect();
    let stored = std::str::from_utf8(&text).ok().and_then(|t| u32::from_str_radix(t, 8).ok());
    let sum: Option<u32> = head.get(..512).map(|header| {
        let fields = header.iter().enumerate();
        fields.map(|(i, &b)| if (148..156).contains(&i) { 32 } else { u32::from(b) }).sum()
    });
    stored.is_some() && stored == sum
}
