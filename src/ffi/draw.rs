//! Samplers by their text form: which records are in which batch.

use super::code::{self, Failure};
use super::handles::{Exclusive, Handles};
use super::memory;
use crate::sampler::Sampler;
use std::ffi::c_char;

/// What C sees of a sampler.
#[allow(non_camel_case_types)]
pub struct zrfs_sampler(());

static SAMPLERS: Handles<zrfs_sampler, Exclusive<Sampler>> = Handles::new("sampler");

/// Runs `work` with the sampler of a handle, one thread at a time.
fn with<T>(handle: *const zrfs_sampler, work: impl FnOnce(&mut Sampler) -> Result<T, Failure>) -> Result<T, Failure> {
    let sampler = SAMPLERS.get(handle)?;
    let mut sampler = sampler.lock()?;
    work(&mut sampler)
}

/// A sampler over `length` records.
///
/// # Safety
/// `spec` is a text; `sampler` has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_sampler_create(spec: *const c_char, length: u64, sampler: *mut *mut zrfs_sampler) -> i32 {
    code::code(|| {
        let make = || {
            // SAFETY: the caller's promise is the same.
            let spec = unsafe { memory::utf8(spec, "spec") }?.parse()?;
            Ok(Exclusive::new(Sampler::new(spec, length)?))
        };
        // SAFETY: the caller's promise is the same.
        unsafe { SAMPLERS.hand_over(sampler, "sampler", make) }
    })
}

/// Ends a sampler. Null is none to end.
#[unsafe(no_mangle)]
pub extern "C" fn zrfs_sampler_destroy(sampler: *mut zrfs_sampler) {
    if !sampler.is_null() {
        code::code(|| SAMPLERS.remove(sampler).map(drop));
    }
}

/// The most indices that a batch ever has.
///
/// # Safety
/// `n` has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_sampler_max_batch(sampler: *const zrfs_sampler, n: *mut u64) -> i32 {
    code::code(|| {
        let most = with(sampler, |sampler| Ok(sampler.max_batch_len()))?;
        // SAFETY: the caller's promise is the same.
        unsafe { memory::put(n, &[most], "n") }
    })
}

/// # Safety
/// `indices` has room for `max` numbers, `n` for one.
unsafe fn draw(
    sampler: *const zrfs_sampler,
    indices: *mut u64,
    max: usize,
    n: *mut usize,
    draw: impl FnOnce(&mut Sampler, &mut [u64]) -> crate::Result<usize>,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise is the same. Null is told before the sampler moves.
    unsafe { memory::put(n, &[0], "n") }?;
    let drawn = with(sampler, |sampler| {
        let room = usize::try_from(sampler.max_batch_len()).unwrap_or(usize::MAX).min(max);
        // SAFETY: the caller's promise is the same.
        unsafe { memory::fill(indices, room, "indices", |out| Ok(draw(sampler, out)?)) }
    })?;
    // SAFETY: the caller's promise is the same.
    unsafe { memory::put(n, &[drawn], "n") }
}

/// The next batch's indices.
///
/// # Safety
/// `indices` has room for `max` numbers, `n` for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_sampler_next(
    sampler: *mut zrfs_sampler,
    indices: *mut u64,
    max: usize,
    n: *mut usize,
) -> i32 {
    // SAFETY: the caller's promise is the same.
    code::code(|| unsafe { draw(sampler, indices, max, n, Sampler::next) })
}

/// The indices of the batch of any step.
///
/// # Safety
/// `indices` has room for `max` numbers, `n` for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_sampler_at(
    sampler: *mut zrfs_sampler,
    step: u64,
    indices: *mut u64,
    max: usize,
    n: *mut usize,
) -> i32 {
    // SAFETY: the caller's promise is the same.
    code::code(|| unsafe { draw(sampler, indices, max, n, |sampler, out| sampler.batch_at(step, out)) })
}

/// Makes `step` the next one.
#[unsafe(no_mangle)]
pub extern "C" fn zrfs_sampler_seek(sampler: *mut zrfs_sampler, step: u64) -> i32 {
    code::code(|| with(sampler, |sampler| Ok(sampler.seek(step)?)))
}
