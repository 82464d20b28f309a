//! Reading: a store, or a dataset of streams.

use super::code::{self, Failure};
use super::handles::Handles;
use super::layout::{self, Info, MAX_DIMS, StreamInfo, put_text};
use super::memory;
use crate::dataset::{Source, Stream};
use crate::error::Error;
use crate::format::Kind;
use crate::loader::stem;
use std::ffi::{c_char, c_void};
use std::path::Path;

/// What C sees of a source.
#[allow(non_camel_case_types)]
pub struct zrfs_source(());

/// The sources that are open; loaders are made from them.
pub(super) static SOURCES: Handles<zrfs_source, Source> = Handles::new("source");

/// The header's numbers for what records are.
pub(super) const BYTES: u32 = 0;
pub(super) const DENSE: u32 = 1;
pub(super) const RAGGED: u32 = 2;

fn streams(source: &Source) -> usize {
    match source {
        Source::Store(_) => 1,
        Source::Dataset(dataset) => dataset.streams().len(),
    }
}

/// The stream of that number, and its name.
fn stream(source: &Source, number: u32) -> Result<(String, &Stream), Failure> {
    let found = match source {
        // The name that a loader gives it.
        Source::Store(stream) if number == 0 => Some((stem(stream.store().path()), &**stream)),
        Source::Store(_) => None,
        Source::Dataset(dataset) => dataset.streams().get(number as usize).map(|(name, stream)| (name.clone(), stream)),
    };
    found.ok_or_else(|| {
        let text = format!("there is no stream {number}: {} has {}", source.path().display(), streams(source));
        Failure::new(code::INVALID, text)
    })
}

/// Puts the handle of the source at `path`, which `open` opens, where the caller wants it.
///
/// # Safety
/// `path` is a text; `source` has room for a handle.
unsafe fn add(
    path: *const c_char,
    source: *mut *mut zrfs_source,
    open: impl FnOnce(&Path) -> Result<Source, Error>,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise is the same.
    let path = memory::path(unsafe { memory::text(path, "path") }?.to_bytes())?;
    // SAFETY: the caller's promise is the same.
    unsafe { SOURCES.hand_over(source, "source", || Ok(open(path)?)) }
}

/// Opens the store or dataset at `path` for reading.
///
/// # Safety
/// `path` is a text; `source` has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_open(path: *const c_char, source: *mut *mut zrfs_source) -> i32 {
    // SAFETY: the caller's promise is the same.
    code::code(|| unsafe { add(path, source, |path| Source::open(path)) })
}

/// The same, where raw records are compared with their checksums when they are read whole.
///
/// # Safety
/// As [`zrfs_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_open_checked(path: *const c_char, source: *mut *mut zrfs_source) -> i32 {
    // SAFETY: the caller's promise is the same.
    code::code(|| unsafe { add(path, source, |path| Source::open_checked(path)) })
}

/// Closes a source. Null is nothing to close.
#[unsafe(no_mangle)]
pub extern "C" fn zrfs_close(source: *mut zrfs_source) {
    if !source.is_null() {
        code::code(|| SOURCES.remove(source).map(drop));
    }
}

/// Makes records visible that were appended meanwhile.
///
/// # Safety
/// `records` is null or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_refresh(source: *mut zrfs_source, records: *mut u64) -> i32 {
    code::code(|| {
        let length = match &*SOURCES.get(source)? {
            Source::Store(stream) => stream.store().refresh()?,
            Source::Dataset(dataset) => dataset.refresh()?,
        };
        // SAFETY: the caller's promise is the same.
        unsafe { memory::put_if_wanted(records, length) };
        Ok(())
    })
}

/// What the source has.
///
/// # Safety
/// `info` is a struct that begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_get_info(source: *const zrfs_source, info: *mut Info) -> i32 {
    code::code(|| {
        let source = SOURCES.get(source)?;
        let is_dataset = matches!(&*source, Source::Dataset(_)).into();
        let found = Info { size: 0, records: source.len(), streams: streams(&source) as u32, is_dataset };
        // SAFETY: the caller's promise is the same.
        unsafe { layout::write(info, &found, "info") }
    })
}

/// What a stream has.
///
/// # Safety
/// `info` is a struct that begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_get_stream_info(source: *const zrfs_source, stream: u32, info: *mut StreamInfo) -> i32 {
    code::code(|| {
        let source = SOURCES.get(source)?;
        let (name, stream) = self::stream(&source, stream)?;
        let mut found = StreamInfo {
            size: 0,
            records: stream.len(),
            record_bytes: 0,
            item_bytes: 0,
            kind: BYTES,
            codec: stream.store().codec().number().into(),
            ndim: 0,
            reserved: 0,
            shape: [0; MAX_DIMS],
            dtype: [0; 64],
            name: [0; 256],
        };
        put_text(&mut found.name, &name);
        if let Some(schema) = stream.schema() {
            found.item_bytes = schema.dtype.itemsize();
            put_text(&mut found.dtype, schema.dtype.as_str());
            found.kind = RAGGED;
            if let Kind::Dense { item_shape } = &schema.kind {
                found.kind = DENSE;
                found.record_bytes = schema.record_bytes().unwrap_or(0);
                found.ndim = item_shape.len() as u32;
                found.shape.iter_mut().zip(item_shape).for_each(|(to, &from)| *to = from);
            }
        }
        // SAFETY: the caller's promise is the same.
        unsafe { layout::write(info, &found, "info") }
    })
}

/// The number of the stream of that name.
///
/// # Safety
/// `name` is a text; `number` has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_find_stream(source: *const zrfs_source, name: *const c_char, number: *mut u32) -> i32 {
    code::code(|| {
        let source = SOURCES.get(source)?;
        // SAFETY: the caller's promise is the same.
        let wanted = unsafe { memory::utf8(name, "name") }?;
        for k in 0..streams(&source) as u32 {
            if stream(&source, k)?.0 == wanted {
                // SAFETY: the caller's promise is the same.
                return unsafe { memory::put(number, &[k], "stream") };
            }
        }
        Err(Failure::new(code::INVALID, format!("{} has no stream called {wanted}", source.path().display())))
    })
}

/// The decoded lengths of records, in bytes.
///
/// # Safety
/// `indices` has `n` numbers, and `lengths` room for as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_lengths(
    source: *const zrfs_source,
    stream: u32,
    indices: *const u64,
    n: usize,
    lengths: *mut u32,
) -> i32 {
    code::code(|| {
        let source = SOURCES.get(source)?;
        // SAFETY: the caller's promise is the same.
        let indices = unsafe { memory::numbers(indices, n, "indices") }?;
        let found = self::stream(&source, stream)?.1.store().lengths(&indices)?;
        // SAFETY: the caller's promise is the same.
        unsafe { memory::put(lengths, &found, "lengths") }
    })
}

/// The shape of a record.
///
/// # Safety
/// `shape` has room for `max` numbers, `ndim` for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_record_shape(
    source: *const zrfs_source,
    stream: u32,
    index: u64,
    shape: *mut u64,
    max: u32,
    ndim: *mut u32,
) -> i32 {
    code::code(|| {
        let source = SOURCES.get(source)?;
        let stream = self::stream(&source, stream)?.1;
        let found = match stream.shape(index)? {
            Some(found) => found,
            None => vec![stream.store().entry(index)?.logic_length.into()],
        };
        if found.len() > max as usize {
            let (need, have) = (found.len() as u64 * 8, u64::from(max) * 8);
            return Err(Error::BufferTooSmall { need, have }.into());
        }
        // SAFETY: the caller's promise is the same; no more than `max` are put.
        unsafe {
            memory::put(shape, &found, "shape")?;
            memory::put(ndim, &[found.len() as u32], "ndim")
        }
    })
}

/// Reads records into the caller's memory.
///
/// # Safety
/// `indices` has `n` numbers, and so has `offsets` if it is not null; `dst` has `dst_len` bytes, which overlap neither and
/// nobody else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_gather(
    source: *const zrfs_source,
    stream: u32,
    indices: *const u64,
    n: usize,
    dst: *mut c_void,
    dst_len: usize,
    offsets: *const u64,
) -> i32 {
    code::code(|| {
        let source = SOURCES.get(source)?;
        let stream = self::stream(&source, stream)?.1;
        // SAFETY: the caller's promise is the same.
        let (indices, dst) =
            unsafe { (memory::numbers(indices, n, "indices")?, memory::bytes_mut(dst.cast::<u8>(), dst_len, "dst")?) };
        if offsets.is_null() {
            let have = dst.len() as u64;
            stream.gather_into(&indices, |offsets| {
                let need = offsets.last().copied().unwrap_or(0);
                let room = usize::try_from(need).ok().and_then(|need| dst.get_mut(..need));
                room.ok_or(Error::BufferTooSmall { need, have })
            })?;
            return Ok(());
        }
        // SAFETY: the caller's promise is the same.
        let offsets = unsafe { memory::numbers(offsets, n, "offsets") }?;
        Ok(stream.gather_to(&indices, dst, &offsets)?)
    })
}
