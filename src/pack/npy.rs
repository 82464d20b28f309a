//! `.npy` files as sources of records.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use crate::error::Result;
use crate::format::npy::{NpyHeader, START, data_offset};
use crate::pack::array::{ArraySource, FileArray, FileStart, Records, StreamArray, extend_to, open_file, refused};
use crate::pack::fortran::{BLOCK_BYTES, FortranArray};
use std::io::Read;
use std::path::Path;

#[cfg(test)]
mod tests;

/// Opens an uncompressed `.npy` file: versions 1 to 3, any plain dtype, C or Fortran order. It is never loaded whole;
/// Fortran order takes 32 MiB of memory, or one record where that is more.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid): no `.npy` file, objects, structured dtypes, a shape without records.
/// [`Error::Corrupt`](crate::Error::Corrupt): the file is shorter or longer than its header says.
/// [`Error::Io`](crate::Error::Io).
pub fn open(path: &Path) -> Result<Box<dyn ArraySource>> {
    let file = open_file(path)?;
    let (header, records) = read_header(&mut FileStart::new(&*file), path)?;
    if header.fortran && !same_in_both_orders(&records) {
        return Ok(Box::new(FortranArray::new(file, path, header.data_offset, records, BLOCK_BYTES)?));
    }
    Ok(Box::new(FileArray::new(file, path, header.data_offset, records)?))
}

/// Reads a `.npy` file from its start in `stream`, such as a decompressor or a pipe; `path` is its name in errors.
///
/// # Errors
/// Those of [`open`], and [`Error::Invalid`](crate::Error::Invalid) for Fortran order, whose records are spread over
/// the whole file. A wrong length is noticed when the last record is read.
pub fn from_stream(mut stream: Box<dyn Read + Send>, path: &Path) -> Result<Box<dyn ArraySource>> {
    let (header, records) = read_header(&mut stream, path)?;
    if header.fortran && !same_in_both_orders(&records) {
        return Err(refused(
            path,
            "is in Fortran order, so its records can't be read from a stream; decompress it first (gzip -dk, zstd -dk)",
        ));
    }
    Ok(Box::new(StreamArray::new(stream, path, header.data_offset, records)))
}

fn read_header(stream: &mut dyn Read, path: &Path) -> Result<(NpyHeader, Records)> {
    let mut bytes = Vec::new();
    extend_to(stream, START as u64, &mut bytes, path)?;
    let end = data_offset(&bytes).map_err(|e| refused(path, e))?;
    // At most 1 MiB, and no more than there is to read. A version 1 text can end before START.
    extend_to(stream, end, &mut bytes, path)?;
    if bytes.len() as u64 > end {
        return Err(refused(path, "has a bad .npy header: it is empty"));
    }
    let header = NpyHeader::parse(&bytes).map_err(|e| refused(path, e))?;
    let records = Records::new(header.dtype.clone(), &header.shape).map_err(|e| refused(path, e))?;
    Ok((header, records))
}

/// Whether at most one dimension is longer than 1, or nothing is stored at all.
fn same_in_both_orders(records: &Records) -> bool {
    let long = |&&dim: &&u64| dim > 1;
    records.is_empty() || [records.len()].iter().chain(records.item_shape()).filter(long).count() <= 1
}
