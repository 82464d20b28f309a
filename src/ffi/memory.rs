//! The caller's memory as Rust's types.
//!
//! What cannot be known here is the caller's part, as in every C function: that pointers reach as far as they are said to,
//! and that nobody else writes there meanwhile. All else is checked. Numbers need not be aligned: numpy's may not be.

use super::code::{self, Failure};
use std::borrow::Cow;
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Checks that `n` items from `ptr` on can be there; whether there are any.
fn check<T>(ptr: *const T, n: usize, what: &str) -> Result<bool, Failure> {
    if n == 0 {
        return Ok(false);
    }
    if ptr.is_null() {
        return Err(Failure::new(code::BUFFER, format!("{what} is null, where {n} items are said to be")));
    }
    let bytes = n.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize);
    if bytes.and_then(|bytes| ptr.addr().checked_add(bytes)).is_none() {
        return Err(Failure::new(code::BUFFER, format!("{what}: no memory has {n} items of {} bytes", size_of::<T>())));
    }
    Ok(true)
}

/// `n` numbers; a copy where they are not aligned.
///
/// # Safety
/// If `ptr` is not null, `n` values of `T` are there, and stay as they are for `'a`.
pub(super) unsafe fn numbers<'a, T: Copy>(ptr: *const T, n: usize, what: &str) -> Result<Cow<'a, [T]>, Failure> {
    if !check(ptr, n, what)? {
        return Ok(Cow::Borrowed(&[]));
    }
    if ptr.is_aligned() {
        // SAFETY: not null, aligned, no longer than memory can be; the rest is the caller's promise.
        return Ok(Cow::Borrowed(unsafe { std::slice::from_raw_parts(ptr, n) }));
    }
    let mut copy = room(n)?;
    // SAFETY: each of the `n` values is there, by the caller's promise, and `check` has seen that `n` of them fit memory.
    copy.extend((0..n).map(|k| unsafe { ptr.add(k).read_unaligned() }));
    Ok(Cow::Owned(copy))
}

/// `n` bytes.
///
/// # Safety
/// As [`numbers`].
pub(super) unsafe fn bytes<'a>(ptr: *const u8, n: usize, what: &str) -> Result<&'a [u8], Failure> {
    if !check(ptr, n, what)? {
        return Ok(&[]);
    }
    // SAFETY: not null, no longer than memory can be; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(ptr, n) })
}

/// `n` bytes to write to.
///
/// # Safety
/// If `ptr` is not null, `n` bytes are there, which nobody else reads or writes for `'a`.
pub(super) unsafe fn bytes_mut<'a>(ptr: *mut u8, n: usize, what: &str) -> Result<&'a mut [u8], Failure> {
    if !check(ptr, n, what)? {
        return Ok(&mut []);
    }
    // SAFETY: not null, no longer than memory can be; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(ptr, n) })
}

/// Writes `values` to the caller's memory, aligned or not.
///
/// # Safety
/// If `ptr` is not null, there is room for as many values.
pub(super) unsafe fn put<T: Copy>(ptr: *mut T, values: &[T], what: &str) -> Result<(), Failure> {
    if check(ptr, values.len(), what)? {
        // SAFETY: the values are not in the caller's memory, which has room for them by the caller's promise; bytes need
        // no alignment.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), ptr.cast::<u8>(), size_of_val(values)) };
    }
    Ok(())
}

/// Lets `work` fill `n` numbers of the caller's memory, aligned or not; it says how many it filled.
///
/// # Safety
/// If `ptr` is not null, there is room for `n` values, which nobody else reads or writes meanwhile.
pub(super) unsafe fn fill<T: Copy + Default>(
    ptr: *mut T,
    n: usize,
    what: &str,
    work: impl FnOnce(&mut [T]) -> Result<usize, Failure>,
) -> Result<usize, Failure> {
    if !check(ptr, n, what)? {
        return work(&mut []);
    }
    if ptr.is_aligned() {
        // SAFETY: not null, aligned, no longer than memory can be; the rest is the caller's promise.
        return work(unsafe { std::slice::from_raw_parts_mut(ptr, n) });
    }
    let mut copy = room(n)?;
    copy.resize(n, T::default());
    let filled = work(&mut copy)?;
    // SAFETY: the caller's promise is that there is room for `n`, and no more are put.
    unsafe { put(ptr, copy.get(..filled.min(n)).unwrap_or_default(), what) }?;
    Ok(filled)
}

/// Writes `value` where the caller wants it, which may be nowhere.
///
/// # Safety
/// If `ptr` is not null, there is room for a value.
pub(super) unsafe fn put_if_wanted<T: Copy>(ptr: *mut T, value: T) {
    if !ptr.is_null() {
        // SAFETY: not null, with room for it by the caller's promise.
        unsafe { ptr.write_unaligned(value) };
    }
}

/// A vector with room for `n` items.
pub(super) fn room<T>(n: usize) -> Result<Vec<T>, Failure> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(n).map_err(|_| Failure::new(code::MEMORY, format!("there is no memory for {n} items")))?;
    Ok(vec)
}

/// A path of `len` bytes, which are those of the file system, in no particular encoding.
pub(super) fn path(bytes: &[u8]) -> Result<&Path, Failure> {
    if bytes.is_empty() || bytes.contains(&0) {
        let why = if bytes.is_empty() { "is empty" } else { "has a byte 0 in it" };
        return Err(Failure::new(code::INVALID, format!("the path {why}")));
    }
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// The bytes of a text that ends with a byte 0.
///
/// # Safety
/// If `ptr` is not null, such a text is there, and stays as it is for `'a`.
pub(super) unsafe fn text<'a>(ptr: *const c_char, what: &str) -> Result<&'a CStr, Failure> {
    if ptr.is_null() {
        return Err(Failure::new(code::INVALID, format!("{what} is null")));
    }
    // SAFETY: not null; the rest is the caller's promise.
    Ok(unsafe { CStr::from_ptr(ptr) })
}

/// A text that must be UTF-8.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn utf8<'a>(ptr: *const c_char, what: &str) -> Result<&'a str, Failure> {
    // SAFETY: the caller's promise is the same.
    let text = unsafe { text(ptr, what) }?;
    text.to_str().map_err(|_| Failure::new(code::INVALID, format!("{what} is not UTF-8: {text:?}")))
}
