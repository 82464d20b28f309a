//! A batch in the hands of the caller.

use super::code::{self, Failure};
use super::handles::Handles;
use super::layout::{self, BatchInfo, Part};
use super::source::{BYTES, DENSE, RAGGED};
use crate::loader::{Batch, Shape};
use std::ffi::CString;
use std::ptr::null;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What C sees of a batch.
#[allow(non_camel_case_types)]
pub struct zrfs_batch(());

/// The batches that were handed over and not given back.
pub(super) static BATCHES: Handles<zrfs_batch, Held> = Handles::new("batch");

/// A batch, with what C wants to know of it in C's form. Its memory stays where it is until it is dropped.
pub(super) struct Held {
    batch: Batch,
    parts: Vec<HeldPart>,
}

struct HeldPart {
    /// The caller may write there. Nothing here looks at the bytes again.
    data: AtomicPtr<u8>,
    bytes: u64,
    kind: u32,
    ndim: u32,
    /// Dense: the shape. Ragged: the shapes one after the other, and where each begins.
    shapes: Vec<u64>,
    starts: Vec<u64>,
    dtype: CString,
    name: CString,
}

impl Held {
    pub(super) fn new(mut batch: Batch) -> Self {
        let part = |part: &mut crate::loader::Part| {
            let (kind, shapes, starts) = match part.shape() {
                Shape::Dense(shape) => (DENSE, shape.clone(), Vec::new()),
                Shape::Bytes => (BYTES, Vec::new(), Vec::new()),
                Shape::Ragged(shapes) => {
                    let (mut starts, mut at) = (vec![0], 0);
                    starts.extend(shapes.iter().map(|shape| {
                        at += shape.len() as u64;
                        at
                    }));
                    (RAGGED, shapes.concat(), starts)
                }
            };
            HeldPart {
                bytes: part.bytes().len() as u64,
                data: AtomicPtr::new(part.bytes_mut().as_mut_ptr()),
                kind,
                ndim: if kind == DENSE { shapes.len() as u32 } else { 0 },
                shapes,
                starts,
                // Neither has a byte 0 in it: a stream's name is a file's.
                dtype: CString::new(part.dtype().map_or("", |dtype| dtype.as_str())).unwrap_or_default(),
                name: CString::new(part.name()).unwrap_or_default(),
            }
        };
        let parts = batch.parts_mut().iter_mut().map(part).collect();
        Held { batch, parts }
    }
}

/// What the batch is.
///
/// # Safety
/// `info` is a struct that begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_get_batch_info(batch: *const zrfs_batch, info: *mut BatchInfo) -> i32 {
    code::code(|| {
        let held = BATCHES.get(batch)?;
        let indices = held.batch.indices();
        let found = BatchInfo {
            size: 0,
            step: held.batch.step(),
            records: indices.len() as u64,
            indices: indices.as_ptr(),
            parts: held.parts.len() as u32,
            reserved: 0,
        };
        // SAFETY: the caller's promise is the same.
        unsafe { layout::write(info, &found, "info") }
    })
}

/// What one stream has in the batch.
///
/// # Safety
/// `out` is a struct that begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zrfs_batch_part(batch: *const zrfs_batch, part: u32, out: *mut Part) -> i32 {
    code::code(|| {
        let held = BATCHES.get(batch)?;
        let k = part as usize;
        let (Some(part), Some(whole)) = (held.parts.get(k), held.batch.parts().get(k)) else {
            let text = format!("the batch has {} parts, and none is number {k}", held.parts.len());
            return Err(Failure::new(code::INVALID, text));
        };
        let numbers = |numbers: &Vec<u64>, there: bool| if there { numbers.as_ptr() } else { null() };
        let found = Part {
            size: 0,
            data: part.data.load(Ordering::Relaxed).cast(),
            bytes: part.bytes,
            offsets: whole.offsets().as_ptr(),
            shapes: numbers(&part.shapes, part.kind != BYTES),
            shape_starts: numbers(&part.starts, part.kind == RAGGED),
            kind: part.kind,
            ndim: part.ndim,
            dtype: part.dtype.as_ptr(),
            name: part.name.as_ptr(),
        };
        // SAFETY: the caller's promise is the same.
        unsafe { layout::write(out, &found, "part") }
    })
}

/// Gives the batch's memory back. Null is nothing to give back.
#[unsafe(no_mangle)]
pub extern "C" fn zrfs_batch_release(batch: *mut zrfs_batch) {
    if !batch.is_null() {
        code::code(|| BATCHES.remove(batch).map(drop));
    }
}
