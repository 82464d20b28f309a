//! The loader: batches without end, made ahead by threads of its own.

use super::batch::{BATCHES, Held, zrfs_batch};
use super::code::{self, Failure};
use super::handles::Handles;
use super::layout::{self, LoaderOptions};
use super::memory;
use super::source::{SOURCES, zrfs_source};
use crate::loader::{Failure as Failed, LoadError, Loader, LoaderBuilder};
use crate::sampler::Spec;
use std::ffi::c_char;

/// What C sees of a loader.
#[allow(non_camel_case_types)]
pub struct zrfs_loader(());

/// The loaders that were made and not ended.
pub(super) static LOADERS: Handles<zrfs_loader, Loader> = Handles::new("loader");

/// Hand over what is ready.
pub(super) const ANY_ORDER: u32 = 1;
/// No threads.
pub(super) const NO_WORKERS: u32 = 2;

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        let text = error.to_string();
        let code = match error.failure {
            Failed::Draw(error) | Failed::Read { error, .. } => Failure::from(error).code,
            Failed::Forked(_) => code::INVALID,
            Failed::Transform(_) | Failed::Panic(_) => code::INTERNAL,
        };
        Failure { code, text }
    }
}

/// The loader that the options describe, without its sources.
///
/// # Safety
/// `options` is null or a struct that begins with its size, whose pointers are null or lead to what they are said to.
pub(super) unsafe fn builder(options: *const LoaderOptions) -> Result<LoaderBuilder, Failure> {
    let invalid = |text: String| Err(Failure::new(code::INVALID, text));
    // SAFETY: the caller's promise is the same.
    let options = unsafe { layout::read(options, "options") }?;
    let mut builder = Loader::builder();
    if !options.sampler.is_null() {
        // SAFETY: the caller's promise is the same.
        let spec: Spec = unsafe { memory::utf8(options.sampler, "options.sampler") }?.parse()?;
        builder = builder.spec(spec);
    }
    if !options.state.is_null() {
        // SAFETY: the caller's promise is the same.
        builder = builder.resume(unsafe { memory::utf8(options.state, "options.state") }?.parse()?);
    }
    if !options.streams.is_null() {
        let n = usize::try_from(options.stream_count).unwrap_or(usize::MAX);
        // SAFETY: the caller's promise is the same.
        let names = unsafe { memory::numbers(options.streams, n, "options.streams") }?;
        // SAFETY: the caller's promise is the same.
        let name = |&name: &*const c_char| unsafe { memory::utf8(name, "a name in options.streams") };
        builder = builder.only(names.iter().map(name).collect::<Result<Vec<_>, _>>()?);
    }
    if options.flags & !(ANY_ORDER | NO_WORKERS) != 0 {
        return invalid(format!("options.flags has unknown ones: {}", options.flags));
    }
    if options.reserved != 0 {
        return invalid(format!("options.reserved is {}; it has to be 0", options.reserved));
    }
    if options.flags & ANY_ORDER != 0 {
        builder = builder.in_completion_order();
    }
    match (options.flags & NO_WORKERS != 0, options.workers) {
        (true, 0) => builder = builder.workers(0),
        (true, n) => return invalid(format!("options asks for {n} workers and for none")),
        (false, 0) => {}
        (false, n) => builder = builder.workers(n as usize),
    }
    if options.prefetch > 0 {
        builder = builder.prefetch(options.prefetch as usize);
    }
    Ok(builder)
}

/// Makes a loader.
///
/// # Safety
/// `sources` has `n` handles; `names` is null or has `n` texts, each of which may be null; `options` is null or a struct
/// that begins with its size, whose pointers are null or lead to what they are said to; `loader` has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_loader_create(
    sources: *const *mut zrfs_source,
    names: *const *const c_char,
    n: usize,
    options: *const LoaderOptions,
    loader: *mut *mut zrfs_loader,
) -> i32 {
    code::code(|| {
        let make = || {
            // SAFETY: the caller's promise is the same.
            let (mut builder, sources) = unsafe { (builder(options)?, memory::numbers(sources, n, "sources")?) };
            // SAFETY: the caller's promise is the same.
            let names = if names.is_null() { None } else { Some(unsafe { memory::numbers(names, n, "names") }?) };
            for (k, &source) in sources.iter().enumerate() {
                let source = SOURCES.get(source)?;
                builder = match names.as_ref().and_then(|names| names.get(k)).filter(|name| !name.is_null()) {
                    // SAFETY: the caller's promise is the same.
                    Some(&name) => builder.source_as(unsafe { memory::utf8(name, "a name") }?, source),
                    None => builder.source(source),
                };
            }
            Ok(builder.build()?)
        };
        // SAFETY: the caller's promise is the same.
        unsafe { LOADERS.hand_over(loader, "loader", make) }
    })
}

/// The next batch.
///
/// # Safety
/// `batch` has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_loader_next(loader: *mut zrfs_loader, batch: *mut *mut zrfs_batch) -> i32 {
    code::code(|| {
        let take = || match LOADERS.get(loader)?.next() {
            Some(next) => Ok(Held::new(next?)),
            None => Err(Failure::new(code::ENDED, "the loader was stopped")),
        };
        // SAFETY: the caller's promise is the same.
        unsafe { BATCHES.hand_over(batch, "batch", take) }
    })
}

/// The loader's state as a line of text.
///
/// # Safety
/// `text` has room for `max` bytes, `len` for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_loader_state(
    loader: *const zrfs_loader,
    text: *mut c_char,
    max: usize,
    len: *mut usize,
) -> i32 {
    code::code(|| {
        let mut state = LOADERS.get(loader)?.state()?.to_string();
        state.push('\0');
        // SAFETY: the caller's promise is the same.
        unsafe { memory::put(len, &[state.len()], "len") }?;
        if state.len() > max {
            let text = format!("the state takes {} bytes, there is room for {max}", state.len());
            return Err(Failure::new(code::BUFFER, text));
        }
        // SAFETY: the caller's promise is the same; no more than `max` bytes are put.
        unsafe { memory::put(text.cast::<u8>(), state.as_bytes(), "text") }
    })
}

/// Goes on where the state was taken.
///
/// # Safety
/// `state` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_loader_restore(loader: *mut zrfs_loader, state: *const c_char) -> i32 {
    code::code(|| {
        let loader = LOADERS.get(loader)?;
        // SAFETY: the caller's promise is the same.
        Ok(loader.restore(&unsafe { memory::utf8(state, "state") }?.parse()?)?)
    })
}

/// Makes `step` the next one.
#[unsafe(no_mangle)]
pub extern "C" fn zrfs_loader_seek(loader: *mut zrfs_loader, step: u64) -> i32 {
    code::code(|| Ok(LOADERS.get(loader)?.seek(step)?))
}

/// Ends the loader; those who wait for a batch are told.
#[unsafe(no_mangle)]
pub extern "C" fn zrfs_loader_stop(loader: *mut zrfs_loader) -> i32 {
    code::code(|| {
        LOADERS.get(loader)?.stopper().stop();
        Ok(())
    })
}

/// Ends the loader, and waits for its threads. Null is nothing to end.
#[unsafe(no_mangle)]
pub extern "C" fn zrfs_loader_destroy(loader: *mut zrfs_loader) {
    if !loader.is_null() {
        code::code(|| {
            // Another thread may be waiting for a batch, and has the loader for as long.
            LOADERS.remove(loader)?.close();
            Ok(())
        });
    }
}
