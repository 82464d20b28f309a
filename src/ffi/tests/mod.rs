//! The functions as a careless or hostile caller would use them, and the header against what is here.

mod header;
mod loader;
mod loaderx;
mod samplers;
mod source;

use super::code::*;
use super::layout::*;
use super::writer::*;
use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::ptr::{null, null_mut};

fn last_error() -> String {
    // SAFETY: a text that lives until the next failure of this thread.
    unsafe { CStr::from_ptr(zrfs_last_error()) }.to_str().unwrap().into()
}

fn text(path: &Path) -> CString {
    CString::new(path.to_str().unwrap()).unwrap()
}

/// A dense store of 100 records of 2×3 floats; record k is full of k.
fn dense(path: &Path) {
    let mut writer = null_mut();
    let options =
        CreateOptions { size: size_of::<CreateOptions>() as u64, codec: 1, level: 5, dict: null(), dict_len: 0 };
    let bytes: Vec<u8> = (0..100).flat_map(|k| [k as f32; 6]).flat_map(f32::to_le_bytes).collect();
    let mut first = 9;
    // SAFETY: values, slices and texts of our own.
    unsafe {
        let path = text(path);
        let create = |shape: &[u64], writer| {
            zrfs_create_dense(path.as_ptr(), c"<f4".as_ptr(), shape.as_ptr(), shape.len() as u32, &options, writer)
        };
        assert_eq!(create(&[2, 3], null_mut()), BUFFER);
        assert_eq!(create(&[2, 3], &mut writer), 0, "{}", last_error());
        assert_eq!(create(&[2, 3], &mut null_mut()), EXISTS);
        assert_eq!(zrfs_append(writer, bytes.as_ptr().cast(), bytes.len() - 1, null_mut()), INVALID);
        assert_eq!(zrfs_append(writer, bytes.as_ptr().cast(), bytes.len(), &mut first), 0);
        assert_eq!(first, 0);
        assert_eq!(zrfs_open_dense(path.as_ptr(), &mut null_mut()), LOCKED);
    }
    assert_eq!(zrfs_writer_sync(writer), 0);
    assert_eq!((zrfs_writer_close(writer), zrfs_writer_close(writer), zrfs_writer_sync(writer)), (0, HANDLE, HANDLE));
}

#[test]
fn a_panic_is_a_code() {
    assert_eq!(code(|| panic!("on purpose")), INTERNAL);
    assert_eq!(last_error(), "a defect in zrfs: on purpose");
    let other = std::thread::spawn(last_error).join().unwrap();
    assert_eq!(other, "", "a thread has failures of its own");
    // SAFETY: a text of the library's.
    assert_eq!(unsafe { CStr::from_ptr(zrfs_version() as *const c_char) }.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}
