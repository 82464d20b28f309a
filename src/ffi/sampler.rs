//! loaderx's sampler, whose streams ours are bit for bit: the functions of its `libsampler.so`. What is undefined there
//! gives null or 0 here.

use super::code::{self, Failure};
use super::handles::{Exclusive, Handles};
use super::memory;
use crate::sampler::{Mode, Sampler as Drawn, Spec};

/// What C sees of a sampler.
pub struct Sampler(());

/// What a handle stands for.
enum Stream {
    /// A sampler; `None` since it could not be brought to the step that was asked for.
    Of(Exclusive<Option<Box<Drawn>>>, Box<Drawn>),
    /// Batches of no records, as loaderx gives them where there is nothing to draw from, or none are asked for.
    Empty,
}

static SAMPLERS: Handles<Sampler, Stream> = Handles::new("sampler");

/// A sampler over `length` records in batches of `batch_size`: mode 0 sequential, 1 with replacement, 2 cyclic. Null where
/// loaderx divides by zero sooner or later: cyclic batches of 0, other modes over 0 records, other modes' numbers.
#[unsafe(no_mangle)]
pub extern "C" fn cinit(length: u64, batch_size: u64, mode: u8, seed: u64) -> *mut Sampler {
    let init = || {
        let mode = match mode {
            0 => Mode::Sequential,
            1 => Mode::Iid,
            2 => Mode::Cyclic,
            _ => return Err(Failure::new(code::INVALID, format!("mode {mode} is none of 0, 1 and 2"))),
        };
        let cyclic = mode == Mode::Cyclic;
        if (cyclic && length == 0 && batch_size > 0) || (!cyclic && batch_size == 0 && length > 0) {
            return SAMPLERS.add(Stream::Empty);
        }
        let sampler = Box::new(Drawn::new(Spec { seed, ..Spec::new(mode, batch_size) }, length)?);
        SAMPLERS.add(Stream::Of(Exclusive::new(Some(sampler.clone())), sampler))
    };
    code::run(init).unwrap_or(std::ptr::null_mut())
}

/// Puts the indices of the next batch into `indices`, and returns how many they are: the batch size, or the length where
/// that is less in cyclic mode. 0, and the same batch the next time, if there is room for fewer.
///
/// # Safety
/// `indices` has room for `indices_len` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnext(s: *mut Sampler, indices: *mut u64, indices_len: usize) -> usize {
    let next = || {
        let stream = SAMPLERS.get(s)?;
        let Stream::Of(sampler, _) = &*stream else { return Ok(0) };
        let mut sampler = sampler.lock()?;
        let Some(sampler) = &mut *sampler else {
            return Err(Failure::new(code::INVALID, "the sampler was sought to a step that it cannot reach"));
        };
        let n = usize::try_from(sampler.max_batch_len()).unwrap_or(usize::MAX).min(indices_len);
        // SAFETY: the caller's promise is that there are `indices_len` numbers.
        unsafe { memory::fill(indices, n, "indices", |out| Ok(sampler.next(out)?)) }
    };
    code::run(next).unwrap_or(0)
}

/// Makes `step` the next one. With replacement, the draws before it are repeated, about a nanosecond each; beyond 2^40 of
/// them `cnext` gives nothing until a step is sought that can be reached.
#[unsafe(no_mangle)]
pub extern "C" fn cseek(s: *mut Sampler, step: u64) {
    let seek = || {
        let stream = SAMPLERS.get(s)?;
        let Stream::Of(sampler, start) = &*stream else { return Ok(()) };
        let mut sampler = sampler.lock()?;
        let sought = sampler.get_or_insert_with(|| start.clone()).seek(step);
        if sought.is_err() {
            *sampler = None;
        }
        Ok(sought?)
    };
    code::code(seek);
}

/// Ends a sampler. Null is none to end.
#[unsafe(no_mangle)]
pub extern "C" fn cdeinit(s: *mut Sampler) {
    if !s.is_null() {
        code::code(|| SAMPLERS.remove(s).map(drop));
    }
}
