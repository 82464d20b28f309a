//! IDX files (MNIST and its relatives) as sources of records.
//!
//! ```text
//! 0  0 │ type │ n │ n big-endian u32: the dimensions │ items, big-endian, in C order
//! ```
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use crate::error::Result;
use crate::format::dtype::DType;
use crate::pack::array::{ArraySource, FileArray, FileStart, Records, StreamArray, extend_to, open_file, refused};
use std::io::Read;
use std::path::Path;

#[cfg(test)]
mod tests;

/// The most dimensions that are believed; real files have 1 to 4.
pub const MAX_DIMS: u8 = 8;

/// The dtype of IDX's type code: bytes and integers are what they were, big-endian types stay so.
fn dtype(code: u8) -> Option<&'static str> {
    Some(match code {
        0x08 => "|u1",
        0x09 => "|i1",
        0x0b => ">i2",
        0x0c => ">i4",
        0x0d => ">f4",
        0x0e => ">f8",
        _ => return None,
    })
}

/// How many bytes the header of an IDX file has that starts with `start` (4 bytes are enough), if it is one.
pub(crate) fn header_len(start: &[u8]) -> Option<u64> {
    match start {
        [0, 0, code, dims, ..] if dtype(*code).is_some() && (1..=MAX_DIMS).contains(dims) => {
            Some(4 + 4 * u64::from(*dims))
        }
        _ => None,
    }
}

/// Opens an uncompressed IDX file. Items keep their byte order: the dtypes are `|u1`, `|i1`, `>i2`, `>i4`, `>f4`, `>f8`.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid): no IDX file, or records that a store can't hold.
/// [`Error::Corrupt`](crate::Error::Corrupt): the file is shorter or longer than its header says.
/// [`Error::Io`](crate::Error::Io).
pub fn open(path: &Path) -> Result<Box<dyn ArraySource>> {
    let file = open_file(path)?;
    let (offset, records) = read_header(&mut FileStart::new(&*file), path)?;
    Ok(Box::new(FileArray::new(file, path, offset, records)?))
}

/// Reads an IDX file from its start in `stream`, such as a decompressor or a pipe; `path` is its name in errors.
///
/// # Errors
/// Those of [`open`]. A wrong length is noticed when the last record is read.
pub fn from_stream(mut stream: Box<dyn Read + Send>, path: &Path) -> Result<Box<dyn ArraySource>> {
    let (offset, records) = read_header(&mut stream, path)?;
    Ok(Box::new(StreamArray::new(stream, path, offset, records)))
}

fn read_header(stream: &mut dyn Read, path: &Path) -> Result<(u64, Records)> {
    let mut bytes = Vec::new();
    extend_to(stream, 4, &mut bytes, path)?;
    let Some(len) = header_len(&bytes) else {
        return Err(refused(
            path,
            "is no IDX file: they start with 00 00, a type (08, 09, 0b to 0e) and 1 to 8 dimensions",
        ));
    };
    extend_to(stream, len, &mut bytes, path)?;
    if (bytes.len() as u64) < len {
        return Err(refused(
            path,
            format_args!("ends within its IDX header: {} bytes of {len} are there", bytes.len()),
        ));
    }
    let shape: Vec<u64> =
        bytes.as_chunks::<4>().0.iter().skip(1).map(|dim| u64::from(u32::from_be_bytes(*dim))).collect();
    let name = bytes.get(2).and_then(|&code| dtype(code)).unwrap_or_default();
    let records = DType::parse(name).and_then(|dtype| Records::new(dtype, &shape)).map_err(|e| refused(path, e))?;
    Ok((len, records))
}
