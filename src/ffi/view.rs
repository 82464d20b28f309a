//! Views: batches that a mount gathers, for a program that has nothing but the mount.

use super::batch::{BATCHES, Held, zrfs_batch};
use super::code;
use super::handles::Handles;
use super::layout::LoaderOptions;
use super::loader::{LOADERS, builder, zrfs_loader};
use super::memory;
use crate::client::Mount;
use crate::error::Error;
use crate::sampler::{parse_length, parse_with};
use std::ffi::c_char;

/// What C sees of a mount.
#[allow(non_camel_case_types)]
pub struct zrfs_mount(());

static MOUNTS: Handles<zrfs_mount, Mount> = Handles::new("mount");

/// Finds the mount that a file or directory is on.
///
/// # Safety
/// `path` is a text, `stream` is null or one; `mount` has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_view_open(
    path: *const c_char,
    stream: *const c_char,
    mount: *mut *mut zrfs_mount,
) -> i32 {
    code::code(|| {
        // SAFETY: the caller's promise is the same.
        let path = memory::path(unsafe { memory::text(path, "path") }?.to_bytes())?;
        let find = || {
            let found = Mount::open(path)?;
            if stream.is_null() {
                return Ok(found);
            }
            // SAFETY: the caller's promise is the same.
            Ok(found.stream(unsafe { memory::utf8(stream, "stream") }?)?)
        };
        // SAFETY: the caller's promise is the same.
        unsafe { MOUNTS.hand_over(mount, "mount", find) }
    })
}

/// Lets go of a mount. Null is nothing to let go of.
#[unsafe(no_mangle)]
pub extern "C" fn zrfs_view_close(mount: *mut zrfs_mount) {
    if !mount.is_null() {
        code::code(|| MOUNTS.remove(mount).map(drop));
    }
}

/// The number of records by now.
///
/// # Safety
/// `records` has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_view_records(mount: *const zrfs_mount, records: *mut u64) -> i32 {
    code::code(|| {
        let found = MOUNTS.get(mount)?.records()?;
        // SAFETY: the caller's promise is the same.
        unsafe { memory::put(records, &[found], "records") }
    })
}

/// The records at these indices.
///
/// # Safety
/// `indices` has `n` numbers; `batch` has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_view_gather(
    mount: *const zrfs_mount,
    indices: *const u64,
    n: usize,
    batch: *mut *mut zrfs_batch,
) -> i32 {
    code::code(|| {
        let mount = MOUNTS.get(mount)?;
        // SAFETY: the caller's promise is the same.
        let indices = unsafe { memory::numbers(indices, n, "indices") }?;
        // SAFETY: the caller's promise is the same.
        unsafe { BATCHES.hand_over(batch, "batch", || Ok(Held::new(mount.gather(&indices)?))) }
    })
}

/// The batch of a sampler's step.
///
/// # Safety
/// `spec` is a text; `batch` has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_view_sample(
    mount: *const zrfs_mount,
    spec: *const c_char,
    step: u64,
    batch: *mut *mut zrfs_batch,
) -> i32 {
    code::code(|| {
        let mount = MOUNTS.get(mount)?;
        // SAFETY: the caller's promise is the same.
        let (spec, [length]) =
            parse_with(unsafe { memory::utf8(spec, "spec") }?, ["length"]).map_err(Error::invalid)?;
        let length = parse_length(length).map_err(Error::invalid)?;
        let draw = || match length {
            Some(length) => mount.sample_among(length.get(), &spec, step),
            None => mount.sample(&spec, step),
        };
        // SAFETY: the caller's promise is the same.
        unsafe { BATCHES.hand_over(batch, "batch", || Ok(Held::new(draw()?))) }
    })
}

/// A loader over the mount.
///
/// # Safety
/// `options` is null or a struct that begins with its size, whose pointers are null or lead to what they are said to;
/// `loader` has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_view_loader(
    mount: *const zrfs_mount,
    options: *const LoaderOptions,
    loader: *mut *mut zrfs_loader,
) -> i32 {
    code::code(|| {
        let make = || {
            let mount = MOUNTS.get(mount)?;
            // SAFETY: the caller's promise is the same.
            let builder = unsafe { builder(options) }?;
            Ok(builder.mount((*mount).clone()).build()?)
        };
        // SAFETY: the caller's promise is the same.
        unsafe { LOADERS.hand_over(loader, "loader", make) }
    })
}
