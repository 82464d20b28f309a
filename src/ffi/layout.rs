//! The structs of `include/zrfs.h`, and how they are read and written.
//!
//! Each begins with its own size, so that later versions can add members at the end: of a shorter struct the rest is
//! taken for 0, of a longer one the rest has to be 0, and what a caller has no room for is not written.

use super::code::{self, Failure};
use std::ffi::{c_char, c_void};

/// A shape has at most so many dimensions.
pub(super) const MAX_DIMS: usize = crate::format::schema::MAX_DIMS as usize;

/// A struct that the caller and the library share, of numbers and pointers alone, of which 0 is a value.
///
/// # Safety
/// `repr(C)`; begins with a `u64`, its size; every bit pattern is a value, and it has no padding.
pub(super) unsafe trait Shared: Copy {
    /// Its first version's size, which is the least that is taken.
    const LEAST: usize = size_of::<Self>();
}

/// Declares a struct of the header, and for the tests where its members are.
macro_rules! shared {
    ($(#[$doc:meta])* $name:ident as $c:literal { $($field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy)]
        pub struct $name { $(pub(super) $field: $type,)* }

        // SAFETY: `repr(C)`, of integers, arrays of them and raw pointers; the assertion below is that their sizes add up,
        // so there is no padding.
        unsafe impl Shared for $name {}

        const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())*, "a struct with padding");

        #[cfg(test)]
        impl $name {
            /// The struct's name in C, its size, and each member's name, offset and size.
            pub(super) const LAYOUT: (&str, usize, &[(&str, usize, usize)]) = (
                $c,
                size_of::<$name>(),
                &[$((stringify!($field), std::mem::offset_of!($name, $field), size_of::<$type>()),)*],
            );
        }
    };
}

shared! {
    /// What a source has.
    Info as "zrfs_info" {
        size: u64,
        records: u64,
        streams: u32,
        is_dataset: u32,
    }
}

shared! {
    /// What a stream has.
    StreamInfo as "zrfs_stream_info" {
        size: u64,
        records: u64,
        record_bytes: u64,
        item_bytes: u64,
        kind: u32,
        codec: u32,
        ndim: u32,
        reserved: u32,
        shape: [u64; MAX_DIMS],
        dtype: [c_char; 64],
        name: [c_char; 256],
    }
}

shared! {
    /// How a store is created.
    CreateOptions as "zrfs_create_options" {
        size: u64,
        codec: u32,
        level: i32,
        dict: *const c_void,
        dict_len: u64,
    }
}

shared! {
    /// How a loader is made.
    LoaderOptions as "zrfs_loader_options" {
        size: u64,
        sampler: *const c_char,
        state: *const c_char,
        streams: *const *const c_char,
        stream_count: u64,
        workers: u32,
        prefetch: u32,
        flags: u32,
        reserved: u32,
    }
}

shared! {
    /// What a batch is.
    BatchInfo as "zrfs_batch_info" {
        size: u64,
        step: u64,
        records: u64,
        indices: *const u64,
        parts: u32,
        reserved: u32,
    }
}

shared! {
    /// What a stream has in a batch.
    Part as "zrfs_part" {
        size: u64,
        data: *mut c_void,
        bytes: u64,
        offsets: *const u64,
        shapes: *const u64,
        shape_starts: *const u64,
        kind: u32,
        ndim: u32,
        dtype: *const c_char,
        name: *const c_char,
    }
}

/// The size that the caller says a struct has.
///
/// # Safety
/// If `ptr` is not null, a struct that begins with its size is there.
unsafe fn said<T: Shared>(ptr: *const T, what: &str) -> Result<usize, Failure> {
    if ptr.is_null() {
        return Err(Failure::new(code::INVALID, format!("{what} is null")));
    }
    // SAFETY: not null, and begins with its size by the caller's promise.
    let size = unsafe { ptr.cast::<u64>().read_unaligned() };
    usize::try_from(size).ok().filter(|size| (T::LEAST..=1 << 16).contains(size)).ok_or_else(|| {
        let text = format!("{what}: its size is {size}; set it to sizeof, which is {}", size_of::<T>());
        Failure::new(code::INVALID, text)
    })
}

/// Reads a struct; null is one of zeros.
///
/// # Safety
/// If `ptr` is not null, a struct that begins with its size is there, of that size.
pub(super) unsafe fn read<T: Shared>(ptr: *const T, what: &str) -> Result<T, Failure> {
    // SAFETY: a `Shared` is of numbers and pointers, of which 0 is a value.
    let mut value: T = unsafe { std::mem::zeroed() };
    if ptr.is_null() {
        return Ok(value);
    }
    // SAFETY: the caller's promise is the same.
    let size = unsafe { said(ptr, what) }?;
    let bytes = ptr.cast::<u8>();
    let known = size.min(size_of::<T>());
    // SAFETY: the caller's struct has `size` bytes, the value at least `known`, and every bit pattern is one.
    unsafe { std::ptr::copy_nonoverlapping(bytes, (&raw mut value).cast::<u8>(), known) };
    // SAFETY: the caller's struct has `size` bytes.
    if (known..size).any(|at| unsafe { bytes.add(at).read() } != 0) {
        let text = format!("{what} has members that this version of the library does not know");
        return Err(Failure::new(code::INVALID, text));
    }
    Ok(value)
}

/// Writes a struct, but for its size, as far as the caller has room for it.
///
/// # Safety
/// If `ptr` is not null, a struct that begins with its size is there, of that size.
pub(super) unsafe fn write<T: Shared>(ptr: *mut T, value: &T, what: &str) -> Result<(), Failure> {
    // SAFETY: the caller's promise is the same.
    let size = unsafe { said(ptr, what) }?.min(size_of::<T>());
    let head = size_of::<u64>();
    // SAFETY: both have at least `size` bytes, of which the first are left out; the value is the library's own.
    unsafe {
        let from = (&raw const *value).cast::<u8>().add(head);
        std::ptr::copy_nonoverlapping(from, ptr.cast::<u8>().add(head), size.saturating_sub(head));
    }
    Ok(())
}

/// Puts a text with its byte 0 into an array of a struct; what is too long ends early, at the end of a character.
pub(super) fn put_text(to: &mut [c_char], text: &str) {
    let mut end = text.len().min(to.len().saturating_sub(1));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    to.fill(0);
    let bytes = text.get(..end).unwrap_or_default().bytes();
    to.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte as c_char);
}
