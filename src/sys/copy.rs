//! Copying records.
//!
//! glibc copies more than a few KiB by `rep movsb`. Where the destination's place in its page is up to 32 bytes further than
//! the source's, AMD processors do that four times slower than a plain loop of vector loads and stores does; and numpy's
//! large buffers begin 16 bytes into a page, where records often begin with one. So here is such a loop; shorter copies,
//! and other processors, are left to the library.

use std::mem::MaybeUninit;

/// What becomes of the copy next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// It is read soon, and may be found in the processor's cache.
    Used,
    /// It is part of more than a cache holds: it is written past the cache, and memory is not read to be overwritten.
    Left,
}

/// Below this length the library copies, which does so by vectors then.
#[cfg(target_arch = "x86_64")]
const LOOP_FROM: usize = 2 << 10;

/// Copies `from` to `to`, which has the same length.
///
/// # Panics
/// If it has not.
pub(crate) fn copy_slice(to: &mut [u8], from: &[u8], then: Then) {
    assert_eq!(to.len(), from.len(), "copied between places of one length");
    // SAFETY: both are so long, and borrowed so that they do not overlap.
    unsafe { copy(from.as_ptr(), to.as_mut_ptr().cast(), to.len(), then) };
}

/// Copies `len` bytes.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`], except that another process may write to what is copied meanwhile: then any
/// bytes come of it.
pub(super) unsafe fn copy(from: *const u8, to: *mut MaybeUninit<u8>, len: usize, then: Then) {
    #[cfg(target_arch = "x86_64")]
    if len >= LOOP_FROM && is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX; the rest is the caller's promise.
        return unsafe { x86::copy(from, to.cast(), len, then) };
    }
    let _ = then;
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to.cast(), len) };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Then;
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_store_si256, _mm256_stream_si256};
    use std::ptr::copy_nonoverlapping;

    /// Bytes of a vector, which stores are aligned to.
    const VECTOR: usize = 32;

    /// Copies at least a vector.
    #[target_feature(enable = "avx")]
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize, then: Then) {
        let head = to.align_offset(VECTOR).min(len);
        // SAFETY: `head` is at most `len`, and after it `to` is aligned.
        unsafe {
            copy_nonoverlapping(from, to, head);
            let (from, to, len) = (from.add(head), to.add(head), len - head);
            match then {
                Then::Used => aligned(from, to, len, |to, vector| _mm256_store_si256(to, vector)),
                Then::Left => {
                    aligned(from, to, len, |to, vector| _mm256_stream_si256(to, vector));
                    // Such stores are not in order with others until told so.
                    _mm_sfence();
                }
            }
        }
    }

    /// Copies to an aligned place, in blocks of four vectors, and the rest by the library.
    #[target_feature(enable = "avx")]
    unsafe fn aligned(from: *const u8, to: *mut u8, len: usize, store: impl Fn(*mut __m256i, __m256i)) {
        let blocks = len - len % (4 * VECTOR);
        for at in (0..blocks).step_by(4 * VECTOR) {
            // SAFETY: the block is inside of both.
            unsafe {
                let (from, to) = (from.add(at), to.add(at));
                let load = |k: usize| _mm256_loadu_si256(from.add(k * VECTOR).cast());
                let block = [load(0), load(1), load(2), load(3)];
                for (k, vector) in block.into_iter().enumerate() {
                    store(to.add(k * VECTOR).cast(), vector);
                }
            }
        }
        // SAFETY: so much is left of both.
        unsafe { copy_nonoverlapping(from.add(blocks), to.add(blocks), len - blocks) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Everything is copied and nothing around it changes, wherever both are and however long.
        #[test]
        fn copies(from in 0usize..70, to in 0usize..70, len in 0usize..9000, left in any::<bool>()) {
            let source: Vec<u8> = (0..9100u32).map(|k| (k.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let mut target = vec![7; 9200];
            let then = if left { Then::Left } else { Then::Used };
            copy_slice(&mut target[to..to + len], &source[from..from + len], then);
            prop_assert_eq!(&target[to..to + len], &source[from..from + len]);
            prop_assert!(target[..to].iter().chain(&target[to + len..]).all(|&b| b == 7));
        }
    }
}
