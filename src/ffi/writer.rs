//! Writing: dense stores, created or appended to.

use super::code::{self, Failure};
use super::handles::{Exclusive, Handles};
use super::layout::{self, CreateOptions, MAX_DIMS};
use super::memory;
use crate::dataset::DenseWriter;
use crate::error::Error;
use crate::format::dtype::DType;
use crate::format::{Codec, META_FILE};
use crate::store::WriterOptions;
use std::ffi::{c_char, c_void};
use std::io::ErrorKind;
use std::path::Path;

/// What C sees of a writer.
#[allow(non_camel_case_types)]
pub struct zrfs_writer(());

/// `None` once it was closed, while another thread still has it.
type Writer = Exclusive<Option<DenseWriter>>;

static WRITERS: Handles<zrfs_writer, Writer> = Handles::new("writer");

/// Runs `work` with the writer of a handle, one thread at a time.
fn with<T>(handle: *mut zrfs_writer, work: impl FnOnce(&mut DenseWriter) -> Result<T, Failure>) -> Result<T, Failure> {
    let writer = WRITERS.get(handle)?;
    let mut writer = writer.lock()?;
    let closed = || Failure::new(code::HANDLE, "the writer was closed by another thread");
    writer.as_mut().ok_or_else(closed).and_then(work)
}

/// Puts a new writer's handle, which `make` makes, where the caller wants it.
///
/// # Safety
/// `writer` has room for a handle.
unsafe fn add(
    writer: *mut *mut zrfs_writer,
    make: impl FnOnce() -> Result<DenseWriter, Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise is the same.
    unsafe { WRITERS.hand_over(writer, "writer", || Ok(Exclusive::new(Some(make()?)))) }
}

/// # Safety
/// `path` is a text.
unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path, Failure> {
    // SAFETY: the caller's promise is the same.
    memory::path(unsafe { memory::text(path, "path") }?.to_bytes())
}

/// Says of a path that is no store what it is instead.
fn is_store(path: &Path) -> Result<(), Error> {
    let reason = match path.metadata() {
        Ok(meta) if !meta.is_dir() => "it is a file, and a store is a directory",
        Ok(_) if path.join(META_FILE).exists() => return Ok(()),
        Ok(_) => "it has no meta.zr; the streams of a dataset are stores, each opened by itself",
        Err(e) if e.kind() == ErrorKind::NotFound => "there is nothing of that name",
        Err(_) => return Ok(()),
    };
    Err(Error::NotAStore { path: path.to_path_buf(), reason: reason.into() })
}

/// Creates a dense store.
///
/// # Safety
/// `path` and `dtype` are texts; `shape` has `ndim` numbers; `options` is null or a struct that begins with its size,
/// with a dictionary of the length that it says; `writer` has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_create_dense(
    path: *const c_char,
    dtype: *const c_char,
    shape: *const u64,
    ndim: u32,
    options: *const CreateOptions,
    writer: *mut *mut zrfs_writer,
) -> i32 {
    code::code(|| {
        // SAFETY: the caller's promise is the same.
        let (path, dtype) = unsafe { (self::path(path)?, memory::utf8(dtype, "dtype")?) };
        let dtype = DType::parse(dtype).map_err(|e| Failure::new(code::INVALID, e))?;
        if ndim as usize > MAX_DIMS {
            let text = format!("a shape of {ndim} dimensions; there are at most {MAX_DIMS}");
            return Err(Failure::new(code::INVALID, text));
        }
        // SAFETY: the caller's promise is the same.
        let shape = unsafe { memory::numbers(shape, ndim as usize, "shape") }?.into_owned();
        let options = if options.is_null() {
            WriterOptions::new(Codec::Zstd)
        } else {
            // SAFETY: the caller's promise is the same.
            let given = unsafe { layout::read(options, "options") }?;
            let known = Codec::ALL.into_iter().find(|codec| u32::from(codec.number()) == given.codec);
            let Some(codec) = known else {
                return Err(Failure::new(code::INVALID, format!("there is no codec {}", given.codec)));
            };
            let options = WriterOptions::new(codec).level((given.level != 0).then_some(given.level));
            let length = usize::try_from(given.dict_len).unwrap_or(usize::MAX);
            // SAFETY: the caller's promise is the same.
            let dict = unsafe { memory::bytes(given.dict.cast(), length, "dict") }?;
            if dict.is_empty() { options } else { options.dict(dict.to_vec()) }
        };
        // SAFETY: the caller's promise is the same.
        unsafe { add(writer, || Ok(DenseWriter::create(path, options, dtype, shape)?)) }
    })
}

/// Opens an existing dense store to append to it.
///
/// # Safety
/// `path` is a text; `writer` has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_open_dense(path: *const c_char, writer: *mut *mut zrfs_writer) -> i32 {
    code::code(|| {
        // SAFETY: the caller's promise is the same.
        let path = unsafe { self::path(path) }?;
        is_store(path)?;
        // The store's own codec holds.
        let open = || Ok(DenseWriter::open(path, WriterOptions::new(Codec::Zstd))?);
        // SAFETY: the caller's promise is the same.
        unsafe { add(writer, open) }
    })
}

/// Appends records.
///
/// # Safety
/// `records` has `len` bytes; `first` is null or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_append(
    writer: *mut zrfs_writer,
    records: *const c_void,
    len: usize,
    first: *mut u64,
) -> i32 {
    code::code(|| {
        // SAFETY: the caller's promise is the same.
        let bytes = unsafe { memory::bytes(records.cast(), len, "records") }?;
        let start = with(writer, |writer| {
            let start = writer.len();
            writer.append(bytes)?;
            Ok(start)
        })?;
        // SAFETY: the caller's promise is the same.
        unsafe { memory::put_if_wanted(first, start) };
        Ok(())
    })
}

/// Makes everything appended survive a power cut.
#[unsafe(no_mangle)]
pub extern "C" fn zrfs_writer_sync(writer: *mut zrfs_writer) -> i32 {
    code::code(|| with(writer, |writer| Ok(writer.sync()?)))
}

/// The same, and closes the store.
#[unsafe(no_mangle)]
pub extern "C" fn zrfs_writer_close(writer: *mut zrfs_writer) -> i32 {
    code::code(|| {
        let writer = WRITERS.remove(writer)?;
        let writer = writer.lock()?.take();
        Ok(writer.map_or(Ok(()), DenseWriter::close)?)
    })
}
