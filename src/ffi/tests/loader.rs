//! Loaders, from the first batch to the last.

use super::super::batch::*;
use super::super::code::*;
use super::super::layout::*;
use super::super::loader::*;
use super::super::source::*;
use super::{dense, last_error, text};
use std::ffi::CStr;
use std::ptr::{null, null_mut};

fn loader_options() -> LoaderOptions {
    // SAFETY: 0 is a value of each member.
    LoaderOptions { size: size_of::<LoaderOptions>() as u64, ..unsafe { std::mem::zeroed() } }
}

/// The step and first values of the next batch.
fn next(loader: *mut zrfs_loader) -> Result<(u64, Vec<f32>), i32> {
    let mut batch = null_mut();
    // SAFETY: values of our own, and what the library says there is.
    unsafe {
        match zrfs_loader_next(loader, &mut batch) {
            0 => {}
            code => return Err(code),
        }
        let (mut info, mut part): (BatchInfo, Part) = std::mem::zeroed();
        (info.size, part.size) = (size_of::<BatchInfo>() as u64, size_of::<Part>() as u64);
        assert_eq!((zrfs_get_batch_info(batch, &mut info), zrfs_batch_part(batch, 0, &mut part)), (0, 0));
        assert_eq!(zrfs_batch_part(batch, info.parts, &mut part), INVALID);
        assert_eq!((part.kind, part.ndim, part.bytes, info.records), (DENSE, 3, 8 * 24, 8));
        assert_eq!(std::slice::from_raw_parts(part.shapes, 3), [8, 2, 3]);
        assert!(part.shape_starts.is_null() && part.data.addr() % 4096 == 0);
        assert_eq!(CStr::from_ptr(part.dtype).to_str(), Ok("<f4"));
        let values = std::slice::from_raw_parts(part.data.cast::<f32>(), 48);
        let indices = std::slice::from_raw_parts(info.indices, 8);
        let offsets = std::slice::from_raw_parts(part.offsets, 9);
        assert!(indices.iter().enumerate().all(|(k, &i)| values[6 * k] == i as f32 && offsets[k] == 24 * k as u64));
        part.data.cast::<f32>().write(-1.0);
        let found = (info.step, values.iter().step_by(6).skip(1).copied().collect());
        zrfs_batch_release(batch);
        assert_eq!(zrfs_get_batch_info(batch, &mut info), HANDLE);
        zrfs_batch_release(batch);
        Ok(found)
    }
}

#[test]
fn a_loader_gives_batches_resumes_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("images.zr");
    dense(&path);
    let (mut source, mut loader) = (null_mut(), null_mut());
    let mut options = loader_options();
    options.sampler = c"cyclic,batch=8,seed=3".as_ptr();
    // SAFETY: values, slices and texts of our own, null where it says so.
    unsafe {
        assert_eq!(zrfs_open(text(&path).as_ptr(), &mut source), 0);
        let create = |options: &LoaderOptions, loader| zrfs_loader_create(&source, null(), 1, options, loader);
        assert_eq!(create(&options, null_mut()), BUFFER);
        assert_eq!(zrfs_loader_create(null(), null(), 1, &options, &mut loader), BUFFER);
        assert_eq!(zrfs_loader_create(null(), null(), 0, null(), &mut loader), INVALID);
        assert_eq!(create(&LoaderOptions { flags: 8, ..options }, &mut loader), INVALID);
        assert_eq!(create(&LoaderOptions { reserved: 1, ..options }, &mut loader), INVALID);
        assert!(last_error().contains("reserved"), "{}", last_error());
        assert_eq!(create(&LoaderOptions { workers: 2, flags: NO_WORKERS, ..options }, &mut loader), INVALID);
        assert_eq!(create(&LoaderOptions { size: 3, ..options }, &mut loader), INVALID);
        assert_eq!(create(&LoaderOptions { sampler: c"cyclic".as_ptr(), ..options }, &mut loader), INVALID);
        assert!(last_error().contains("batch size is missing"), "{}", last_error());
        // Of a later version: what is not known has to be 0.
        let longer = LoaderOptions { size: options.size + 8, ..options };
        for (rest, code) in [(1u64, INVALID), (0, 0)] {
            let later = [(longer, rest)];
            assert_eq!(create(&later[0].0, &mut loader), code, "{}", last_error());
        }
        zrfs_loader_destroy(loader);
        assert_eq!(create(&options, &mut loader), 0, "{}", last_error());
        zrfs_close(source);
        assert_eq!(create(&options, &mut null_mut()), HANDLE);
    }
    let first: Vec<_> = (0..5).map(|_| next(loader).unwrap()).collect();
    assert_eq!(first.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    let (mut state, mut len) = ([0; 400], 0);
    // SAFETY: values, slices and texts of our own, null where it says so.
    unsafe {
        assert_eq!((zrfs_loader_state(loader, null_mut(), 0, &mut len), len > 100), (BUFFER, true));
        assert_eq!(zrfs_loader_state(loader, state.as_mut_ptr(), len, &mut len), 0);
        let after = next(loader).unwrap();
        assert_eq!(zrfs_loader_seek(loader, 1), 0);
        assert_eq!(next(loader).unwrap(), first[1]);
        assert_eq!(zrfs_loader_restore(loader, state.as_ptr()), 0);
        assert_eq!(next(loader).unwrap(), after);
        assert_eq!(zrfs_loader_restore(loader, c"{}".as_ptr()), INVALID);
        // Another loader, from the text, without threads.
        let mut other = null_mut();
        assert_eq!(zrfs_open(text(&path).as_ptr(), &mut source), 0);
        let options = LoaderOptions { state: state.as_ptr(), flags: NO_WORKERS, ..options };
        assert_eq!(zrfs_loader_create(&source, &c"x".as_ptr(), 1, &options, &mut other), INVALID, "of another stream");
        assert_eq!(zrfs_loader_create(&source, null(), 1, &options, &mut other), 0, "{}", last_error());
        assert_eq!(next(other).unwrap(), after);
        zrfs_loader_destroy(other);
        zrfs_close(source);
    }
    // Ended from another thread while one waits.
    let handle = loader.expose_provenance();
    let waits = std::thread::spawn(move || {
        let loader = std::ptr::with_exposed_provenance_mut(handle);
        while next(loader).is_ok() {}
        next(loader)
    });
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(zrfs_loader_stop(loader), 0);
    assert_eq!(waits.join().unwrap(), Err(ENDED));
    zrfs_loader_destroy(loader);
    assert_eq!((next(loader), zrfs_loader_stop(loader)), (Err(HANDLE), HANDLE));
}
