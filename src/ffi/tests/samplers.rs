//! Samplers: loaderx's, and ours by their text.

use super::super::code::*;
use super::super::draw::*;
use super::super::sampler::*;
use super::last_error;
use std::ptr::null_mut;

#[test]
fn samplers_take_anything() {
    for (length, batch, mode) in [(10, 4, 3), (0, 4, 0), (0, 4, 1), (10, 0, 2), (0, 0, 2), (0, 0, 0)] {
        assert!(cinit(length, batch, mode, 1).is_null(), "{length} {batch} {mode}");
    }
    let mut out = [7u64; 8];
    for (length, batch, mode) in [(0, 4, 2), (10, 0, 0), (10, 0, 1)] {
        let s = cinit(length, batch, mode, 1);
        cseek(s, u64::MAX);
        // SAFETY: a slice of our own.
        assert_eq!(unsafe { cnext(s, out.as_mut_ptr(), 8) }, 0);
        cdeinit(s);
    }
    let s = cinit(10, 4, 2, 123);
    // SAFETY: a slice of our own; null is found out.
    unsafe {
        assert_eq!((cnext(s, out.as_mut_ptr(), 3), cnext(s, null_mut(), 4), out), (0, 0, [7; 8]));
        assert_eq!((cnext(s, out.as_mut_ptr(), usize::MAX), out), (4, [1, 4, 3, 2, 7, 7, 7, 7]));
        cseek(s, 5);
        let odd = out.as_mut_ptr().cast::<u8>().add(4).cast::<u64>();
        assert_eq!((cnext(s, odd, 4), odd.read_unaligned(), odd.add(3).read_unaligned()), (4, 8, 4));
    }
    cdeinit(s);
    cdeinit(s);
    cseek(s, 3);
    // SAFETY: a slice of our own.
    assert_eq!(unsafe { cnext(s, out.as_mut_ptr(), 8) }, 0);
    // A step that a serial generator does not reach in a lifetime, and back.
    let s = cinit(1 << 40, 1 << 30, 1, 5);
    cseek(s, 1 << 40);
    // SAFETY: null is not written to.
    assert_eq!(unsafe { cnext(s, null_mut(), usize::MAX) }, 0);
    assert!(last_error().contains("cannot reach"), "{}", last_error());
    cseek(s, 0);
    cdeinit(s);
}

#[test]
fn samplers_by_their_text() {
    let (mut sampler, mut n, mut most) = (null_mut(), 0, 0);
    let mut out = [0; 4];
    // SAFETY: values, slices and texts of our own, null where it says so.
    unsafe {
        assert_eq!(zrfs_sampler_create(c"cyclic,batch=0".as_ptr(), 10, &mut sampler), INVALID);
        assert_eq!(zrfs_sampler_create(c"cyclic,batch=4,seed=123".as_ptr(), 10, &mut sampler), 0);
        assert_eq!((zrfs_sampler_max_batch(sampler, &mut most), most), (0, 4));
        assert_eq!(zrfs_sampler_next(sampler, out.as_mut_ptr(), 3, &mut n), BUFFER);
        assert_eq!(zrfs_sampler_next(sampler, out.as_mut_ptr(), 4, null_mut()), BUFFER);
        assert_eq!((zrfs_sampler_at(sampler, 5, out.as_mut_ptr(), 4, &mut n), n, out), (0, 4, [8, 1, 7, 4]));
        assert_eq!((zrfs_sampler_next(sampler, out.as_mut_ptr(), 4, &mut n), n, out), (0, 4, [1, 4, 3, 2]));
        assert_eq!(zrfs_sampler_seek(sampler, 5), 0);
        assert_eq!((zrfs_sampler_next(sampler, out.as_mut_ptr(), 9, &mut n), out), (0, [8, 1, 7, 4]));
        zrfs_sampler_destroy(sampler);
        assert_eq!(zrfs_sampler_max_batch(sampler, &mut most), HANDLE);
    }
}
