//! Arrays as sources of records: the first dimension counts the records, the others are a record's shape.
//!
//! Files are read with positioned reads, never through a mapping: an input that another program cuts while it is
//! packed is then an error that names it, where a mapping would kill the process with SIGBUS.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use crate::error::{Error, Result};
use crate::format::MAX_RECORD;
use crate::format::dtype::DType;
use crate::pack::detect::{Compression, Kind, detect};
use crate::pack::{idx, npy};
use crate::storage::{Disk, Storage, StoreFile, read_exact_at};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(test)]
pub(crate) mod tests;

/// How many records an array holds and what each looks like; all sizes checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Records {
    dtype: DType,
    item_shape: Vec<u64>,
    len: u64,
    record_bytes: u64,
}

impl Records {
    /// The records of an array of `dtype` and `shape`: `shape[0]` of them, each of shape `shape[1..]`.
    ///
    /// # Errors
    /// A sentence, to be put after the file's name: a shape without dimensions, records of 0 bytes or of more than
    /// [`MAX_RECORD`], more than 2^64 bytes in all.
    pub fn new(dtype: DType, shape: &[u64]) -> Result<Records, String> {
        let Some((&len, item_shape)) = shape.split_first() else {
            return Err("is a single value without dimensions, so it has no records; save it as one: \
                        np.save('x.npy', a[None])"
                .into());
        };
        let bytes = item_shape.iter().try_fold(dtype.itemsize(), |bytes, &dim| bytes.checked_mul(dim));
        let record_bytes = match bytes {
            // A 0 anywhere makes the record empty, also behind dimensions whose product overflows.
            _ if item_shape.contains(&0) => {
                return Err(format!(
                    "has shape {}: its records have 0 bytes, and a record has at least 1",
                    tuple(shape)
                ));
            }
            Some(bytes) if bytes <= MAX_RECORD => bytes,
            _ => {
                return Err(format!(
                    "has shape {} of dtype {dtype}: a record is more than the {MAX_RECORD} bytes it may have; split \
                     the records (a.reshape) so that more of them are smaller",
                    tuple(shape)
                ));
            }
        };
        if len.checked_mul(record_bytes).is_none() {
            return Err(format!("has shape {} of dtype {dtype}: more than 2^64 bytes", tuple(shape)));
        }
        Ok(Records { dtype, item_shape: item_shape.to_vec(), len, record_bytes })
    }

    /// The type of the items.
    pub fn dtype(&self) -> &DType {
        &self.dtype
    }

    /// The shape of one record: the array's dimensions but the first, none of them 0. Empty for records of one item.
    pub fn item_shape(&self) -> &[u64] {
        &self.item_shape
    }

    /// How many records there are: the array's first dimension.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of one record, 1 to [`MAX_RECORD`].
    pub fn record_bytes(&self) -> u64 {
        self.record_bytes
    }

    /// Bytes of all records.
    pub fn total_bytes(&self) -> u64 {
        self.len * self.record_bytes
    }

    /// How many items one record has.
    pub(crate) fn record_items(&self) -> u64 {
        self.record_bytes / self.dtype.itemsize()
    }

    /// The array's shape as Python writes it.
    fn shape(&self) -> String {
        let shape: Vec<u64> = [self.len].iter().chain(&self.item_shape).copied().collect();
        tuple(&shape)
    }

    /// Compares the length of a file that holds nothing but a header of `offset` bytes and these records.
    pub(crate) fn check_length(&self, path: &Path, offset: u64, have: u64) -> Result<()> {
        let need = u128::from(offset) + u128::from(self.total_bytes());
        if u128::from(have) == need {
            return Ok(());
        }
        let says = format!("its header, shape {} of dtype {}, makes it {need} bytes long", self.shape(), self.dtype);
        Err(if u128::from(have) < need {
            Error::corrupt(path, have, format!("{says}, but it ends here, cut short; copy or make it again"))
        } else {
            // have > need, so need fits.
            Error::corrupt(path, need as u64, format!("{says}, but it has {have} bytes; pack one array a file"))
        })
    }
}

/// A shape as Python writes it, cut where it is long.
fn tuple(shape: &[u64]) -> String {
    let dims: Vec<String> = shape.iter().take(16).map(u64::to_string).collect();
    let end = match shape.len() {
        1 => ",",
        0..=16 => "",
        _ => ", …",
    };
    format!("({}{end})", dims.join(", "))
}

/// A source of records of one dtype and shape, read in order, in blocks.
pub trait ArraySource: Send {
    /// How many records there are, and their dtype and shape. Always the same.
    fn records(&self) -> &Records;

    /// Appends the bytes of the next `count` records, or of all that are left, to `dst`, each in C order, and returns
    /// how many records that were; 0 at the end.
    ///
    /// `dst` grows by that many times `record_bytes`, so `count` is the caller's bound on memory. Ask for many records
    /// at once: a call costs a system call or more.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the input ends too early, goes on after its last record, or can't be decompressed;
    /// [`Error::Io`] with the operating system's reason. `dst` then holds what it held before, and the source is of
    /// no further use.
    fn read(&mut self, count: u64, dst: &mut Vec<u8>) -> Result<u64>;

    /// Whether [`read_at`](ArraySource::read_at) works: false for compressed files and pipes.
    fn seekable(&self) -> bool;

    /// Writes record `index`, in C order, to the first `record_bytes` bytes of `dst`, whatever was read before and
    /// without moving the place [`read`](ArraySource::read) goes on from.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::BufferTooSmall`], those of `read`, and [`Error::Invalid`] when the source is
    /// not seekable.
    fn read_at(&mut self, index: u64, dst: &mut [u8]) -> Result<()>;
}

/// Opens an array file of any kind that zrfs reads: `.npy`, IDX, either of them compressed with gzip or zstd. The
/// kind is told by the content, not by the name.
///
/// # Errors
/// [`Error::Invalid`] when the file is no array or one that zrfs doesn't take, and says what to do about it;
/// [`Error::Corrupt`] when its length is not what its header says; [`Error::Io`].
pub fn open(path: &Path) -> Result<Box<dyn ArraySource>> {
    match detect(path)? {
        Kind::Npy(Compression::None) => npy::open(path),
        Kind::Npy(compression) => npy::from_stream(compression.open(path)?, path),
        Kind::Idx(Compression::None) => idx::open(path),
        Kind::Idx(compression) => idx::from_stream(compression.open(path)?, path),
        Kind::Tar(_) => Err(Error::invalid(format!("{} is a tar archive, not an array", path.display()))),
        Kind::Directory => Err(Error::invalid(format!("{} is a directory, not an array", path.display()))),
    }
}

/// Checks what was asked of `read_at`; returns the part of `dst` to fill.
pub(crate) fn destination<'a>(records: &Records, index: u64, dst: &'a mut [u8]) -> Result<&'a mut [u8]> {
    if index >= records.len() {
        return Err(Error::OutOfRange { index, length: records.len() });
    }
    let (need, have) = (records.record_bytes(), dst.len() as u64);
    let dst = usize::try_from(need).ok().and_then(|need| dst.get_mut(..need));
    dst.ok_or(Error::BufferTooSmall { need, have })
}

/// Makes `dst` longer by `bytes` zeros, lets `fill` write them, and takes them back where that fails.
pub(crate) fn append(
    dst: &mut Vec<u8>,
    bytes: u64,
    path: &Path,
    fill: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<()> {
    let before = dst.len();
    let more = usize::try_from(bytes).ok().filter(|&more| dst.try_reserve(more).is_ok());
    let more = more.ok_or_else(|| Error::io("find memory to read", path)(io::ErrorKind::OutOfMemory.into()))?;
    dst.resize(before + more, 0);
    let result = fill(dst.get_mut(before..).unwrap_or_default());
    if result.is_err() {
        dst.truncate(before);
    }
    result
}

/// Records one after the other in an uncompressed file, in C order.
#[derive(Debug)]
pub(crate) struct FileArray {
    file: Arc<dyn StoreFile>,
    path: PathBuf,
    offset: u64,
    records: Records,
    next: u64,
}

impl FileArray {
    /// The records from `offset` of `file` on, which end with it.
    pub(crate) fn new(file: Arc<dyn StoreFile>, path: &Path, offset: u64, records: Records) -> Result<FileArray> {
        records.check_length(path, offset, file.size().map_err(Error::io("measure", path))?)?;
        Ok(FileArray { file, path: path.to_path_buf(), offset, records, next: 0 })
    }
}

impl ArraySource for FileArray {
    fn records(&self) -> &Records {
        &self.records
    }

    fn read(&mut self, count: u64, dst: &mut Vec<u8>) -> Result<u64> {
        let count = count.min(self.records.len() - self.next);
        // Neither overflows: the length check put all records within the file.
        let bytes = count * self.records.record_bytes();
        let at = self.offset + self.next * self.records.record_bytes();
        append(dst, bytes, &self.path, |dst| read_exact_at(&*self.file, &self.path, dst, at, "its array"))?;
        self.next += count;
        Ok(count)
    }

    fn seekable(&self) -> bool {
        true
    }

    fn read_at(&mut self, index: u64, dst: &mut [u8]) -> Result<()> {
        let dst = destination(&self.records, index, dst)?;
        let at = self.offset + index * self.records.record_bytes();
        read_exact_at(&*self.file, &self.path, dst, at, "its array")
    }
}

/// Records one after the other in a stream that can only be read forward.
pub(crate) struct StreamArray {
    stream: Box<dyn Read + Send>,
    path: PathBuf,
    /// Where the stream stands, in decompressed bytes from its start.
    at: u64,
    records: Records,
    next: u64,
    /// Whether the stream was seen to end after the last record.
    ended: bool,
}

impl StreamArray {
    /// The records that `stream` goes on with after a header of `offset` bytes. `path` is its name in errors.
    pub(crate) fn new(stream: Box<dyn Read + Send>, path: &Path, offset: u64, records: Records) -> StreamArray {
        StreamArray { stream, path: path.to_path_buf(), at: offset, records, next: 0, ended: false }
    }

    /// Reads on to the end of the stream, which must be here: that is also where gzip and zstd keep their checksums.
    fn finish(&mut self) -> Result<()> {
        let mut rest = Vec::new();
        read_up_to(&mut self.stream, 1, &mut rest, &self.path, self.at)?;
        if !rest.is_empty() {
            let reason = format!(
                "its header, shape {} of dtype {}, makes the (decompressed) data end here, but it goes on; pack one \
                 array a file",
                self.records.shape(),
                self.records.dtype
            );
            return Err(Error::corrupt(&self.path, self.at, reason));
        }
        self.ended = true;
        Ok(())
    }
}

impl ArraySource for StreamArray {
    fn records(&self) -> &Records {
        &self.records
    }

    fn read(&mut self, count: u64, dst: &mut Vec<u8>) -> Result<u64> {
        let before = dst.len();
        let count = count.min(self.records.len() - self.next);
        let need = count * self.records.record_bytes();
        let result = (|| {
            let got = read_up_to(&mut self.stream, need, dst, &self.path, self.at)?;
            self.at = self.at.saturating_add(got);
            if got < need {
                let reason = format!(
                    "the (decompressed) data ends here, in record {} of {}; it was cut short, so copy or make it again",
                    self.next + got / self.records.record_bytes(),
                    self.records.len()
                );
                return Err(Error::corrupt(&self.path, self.at, reason));
            }
            self.next += count;
            if self.next == self.records.len() && !self.ended { self.finish() } else { Ok(()) }
        })();
        match result {
            Ok(()) => Ok(count),
            Err(e) => {
                dst.truncate(before);
                Err(e)
            }
        }
    }

    fn seekable(&self) -> bool {
        false
    }

    fn read_at(&mut self, _index: u64, _dst: &mut [u8]) -> Result<()> {
        Err(Error::invalid(format!("{} is a stream, whose records are read in order only", self.path.display())))
    }
}

/// Appends up to `limit` bytes, fewer only at the end of the stream; returns how many. `dst` grows with what arrives,
/// never with what a header promised. `at` is where the stream stands, for errors.
pub(crate) fn read_up_to(stream: &mut dyn Read, limit: u64, dst: &mut Vec<u8>, path: &Path, at: u64) -> Result<u64> {
    let before = dst.len();
    match stream.take(limit).read_to_end(dst) {
        Ok(got) => Ok(got as u64),
        // Decompressors make errors of their own; the operating system's have a number.
        Err(e) if e.raw_os_error().is_none() && e.kind() != io::ErrorKind::OutOfMemory => {
            let at = at.saturating_add((dst.len() - before) as u64);
            Err(Error::corrupt(path, at, format!("counted decompressed, where it cannot be decompressed further: {e}")))
        }
        Err(e) => Err(Error::io("read", path)(e)),
    }
}

/// Reads the `have.len()..need` bytes of a header that starts a stream. Stops at the end of the stream.
pub(crate) fn extend_to(stream: &mut dyn Read, need: u64, have: &mut Vec<u8>, path: &Path) -> Result<()> {
    let at = have.len() as u64;
    read_up_to(stream, need.saturating_sub(at), have, path, at).map(drop)
}

/// Opens `path` for positioned reads.
pub(crate) fn open_file(path: &Path) -> Result<Arc<dyn StoreFile>> {
    Disk::default().open(path).map_err(Error::io("open", path))
}

/// A file read from its start, as a stream.
pub(crate) struct FileStart<'a> {
    file: &'a dyn StoreFile,
    at: u64,
}

impl FileStart<'_> {
    pub(crate) fn new(file: &dyn StoreFile) -> FileStart<'_> {
        FileStart { file, at: 0 }
    }
}

impl Read for FileStart<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read_at(buf, self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

/// `reason`, said of the file.
pub(crate) fn refused(path: &Path, reason: impl std::fmt::Display) -> Error {
    Error::invalid(format!("{} {reason}", path.display()))
}
