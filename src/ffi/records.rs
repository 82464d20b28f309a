//! loaderx's functions on a store: records of bytes, read and written through one handle. Names, meaning and codes are
//! those of its `libzrecord.so`; what is undefined there gives a code here. `docs/C.md` lists the differences.

use super::code::{self, Failure};
use super::handles::Handles;
use super::live::Live;
use super::memory;
use crate::codec::train_dict;
use crate::error::Error;
use crate::format::{Codec, MAX_RECORD, META_FILE};

/// What C sees of a store.
pub struct Zrecord(());

static STORES: Handles<Zrecord, Live> = Handles::new("store");

/// No codec has this number.
const NO_CODEC: u8 = u8::MAX;

/// Runs the body of a function; what it gives, or one of loaderx's codes.
fn run<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, i32> {
    code::run(body).map_err(code::as_loaderx)
}

/// The same for a function that returns only a code.
fn coded(body: impl FnOnce() -> Result<(), Failure>) -> i32 {
    run(body).err().unwrap_or(0)
}

/// The body of a function that says by a pointer why it failed.
///
/// # Safety
/// If `why` is not null, there is room for a code.
unsafe fn told<T>(why: *mut i32, body: impl FnOnce() -> Result<T, Failure>) -> Result<T, i32> {
    // SAFETY: the caller's promise is the same.
    run(body).inspect_err(|&code| unsafe { memory::put_if_wanted(why, code) })
}

/// The largest record: 2^31 bytes.
#[unsafe(no_mangle)]
pub extern "C" fn zr_max_record_len() -> u32 {
    MAX_RECORD as u32
}

/// Opens the store at the path of `path_len` bytes for reading and writing. Where there is none, an empty one of `codec`
/// (0 raw, 1 zstd, 2 zstd_dict) is made, and directories that lead there; an existing store keeps its own. Null if it
/// fails, with the code in `code` unless that is null.
///
/// # Safety
/// `path` has `path_len` bytes; `code` is null or has room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_open(path: *const u8, path_len: usize, codec: u8, code: *mut i32) -> *mut Zrecord {
    let open = || {
        let Some(codec) = Codec::ALL.into_iter().find(|known| known.number() == codec) else {
            let text = format!("codec {codec} is none of 0 (raw), 1 (zstd) and 2 (zstd_dict)");
            return Err(Failure::new(code::NOT_A_STORE, text));
        };
        // SAFETY: the caller's promise is the same.
        let path = memory::path(unsafe { memory::bytes(path, path_len, "path") }?)?;
        let live = Live::open(path, codec).map_err(|e| match e {
            Error::Corrupt { ref path, .. } if path.ends_with(META_FILE) => {
                Failure::new(code::NOT_A_STORE, e.to_string())
            }
            e => e.into(),
        })?;
        STORES.add(live)
    };
    // SAFETY: the caller's promise is the same.
    unsafe { told(code, open) }.unwrap_or(std::ptr::null_mut())
}

/// Makes what was appended durable and closes the handle. Null is nothing to close.
#[unsafe(no_mangle)]
pub extern "C" fn zr_close(zr: *mut Zrecord) {
    if !zr.is_null() {
        coded(|| {
            STORES.remove(zr)?.close();
            Ok(())
        });
    }
}

/// The number of the store's codec; 255 if `zr` is no handle.
#[unsafe(no_mangle)]
pub extern "C" fn zr_codec(zr: *mut Zrecord) -> u8 {
    run(|| Ok(STORES.get(zr)?.codec().number())).unwrap_or(NO_CODEC)
}

/// The number of records; 0 if `zr` is no handle.
#[unsafe(no_mangle)]
pub extern "C" fn zr_len(zr: *mut Zrecord) -> u64 {
    run(|| Ok(STORES.get(zr)?.len())).unwrap_or(0)
}

/// Makes what was appended survive a power cut.
#[unsafe(no_mangle)]
pub extern "C" fn zr_sync(zr: *mut Zrecord) -> i32 {
    coded(|| Ok(STORES.get(zr)?.sync()?))
}

/// Puts the decoded lengths of `n` records into `out`.
///
/// # Safety
/// `idxs` has `n` indices, and `out` room for as many lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_lengths(zr: *mut Zrecord, idxs: *const u64, n: usize, out: *mut u32) -> i32 {
    coded(|| {
        let live = STORES.get(zr)?;
        // SAFETY: the caller's promise is the same.
        let indices = unsafe { memory::numbers(idxs, n, "idxs") }?;
        let lengths = live.lengths(&indices)?;
        // SAFETY: the caller's promise is the same.
        unsafe { memory::put(out, &lengths, "out") }
    })
}

/// Reads `n` records into `dst`: record `idxs[k]` goes to `dst + offsets[k]`. Several threads may do so at once, also
/// while another appends. Where places overlap, later records of the batch are over earlier ones.
///
/// # Safety
/// `idxs` and `offsets` have `n` numbers, and `dst` has `dst_len` bytes, which overlap neither and nobody else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_gather(
    zr: *mut Zrecord,
    idxs: *const u64,
    n: usize,
    dst: *mut u8,
    dst_len: usize,
    offsets: *const u64,
) -> i32 {
    coded(|| {
        let live = STORES.get(zr)?;
        // SAFETY: the caller's promise is the same.
        let (indices, offsets) =
            unsafe { (memory::numbers(idxs, n, "idxs")?, memory::numbers(offsets, n, "offsets")?) };
        if n == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise is the same.
        let dst = unsafe { memory::bytes_mut(dst, dst_len, "dst") }?;
        Ok(live.gather(&indices, dst, &offsets)?)
    })
}

/// Appends `n` records that stand one after the other in `src`: record `k` begins at `offsets[k]` and ends where the next
/// begins, the last one where `src` ends. Returns the index of the first, or a code.
///
/// # Safety
/// `src` has `src_len` bytes, and `offsets` has `n` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_append(
    zr: *mut Zrecord,
    src: *const u8,
    src_len: usize,
    offsets: *const u64,
    n: usize,
) -> i64 {
    let append = || {
        let live = STORES.get(zr)?;
        // SAFETY: the caller's promise is the same.
        let offsets = unsafe { memory::numbers(offsets, n, "offsets") }?;
        if n == 0 {
            return Ok(live.len());
        }
        // SAFETY: the caller's promise is the same.
        let records = records(unsafe { memory::bytes(src, src_len, "src") }?, &offsets)?;
        Ok(live.append(&records)?.start)
    };
    match run(append) {
        Ok(first) => i64::try_from(first).unwrap_or(i64::MAX),
        Err(code) => code.into(),
    }
}

/// The records that begin at `offsets` of `src`.
fn records<'s>(src: &'s [u8], offsets: &[u64]) -> Result<Vec<&'s [u8]>, Failure> {
    let mut records = memory::room(offsets.len())?;
    let total = src.len() as u64;
    let ends = offsets.iter().skip(1).copied().chain([total]);
    for (k, (&start, end)) in offsets.iter().zip(ends).enumerate() {
        let refuse = |code, why: &str| Err(Failure::new(code, format!("record {k} of the batch, at {start}, {why}")));
        if start > total {
            return refuse(code::BUFFER, &format!("begins after the end of src, which has {total} bytes"));
        }
        match end.checked_sub(start) {
            None => return refuse(code::RECORD_LENGTH, &format!("ends before it begins, at {end}")),
            Some(length) if length == 0 || length > MAX_RECORD => return Err(Error::RecordLength { length }.into()),
            Some(_) => {}
        }
        // One that ends after `src` is followed by one that begins there, which is told of that.
        records.push(src.get(start as usize..end.min(total) as usize).unwrap_or_default());
    }
    Ok(records)
}

/// Deletes records, in any order; repeats count once. The last records take the freed indices.
///
/// # Safety
/// `idxs` has `n` indices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_delete(zr: *mut Zrecord, idxs: *const u64, n: usize) -> i32 {
    coded(|| {
        let live = STORES.get(zr)?;
        // SAFETY: the caller's promise is the same.
        let indices = unsafe { memory::numbers(idxs, n, "idxs") }?;
        if n == 0 {
            return Ok(());
        }
        Ok(live.delete(&indices)?)
    })
}

/// Gives the space of deleted records back.
#[unsafe(no_mangle)]
pub extern "C" fn zr_compact(zr: *mut Zrecord) -> i32 {
    coded(|| Ok(STORES.get(zr)?.compact()?))
}

/// The number of records, the bytes that they take in the chunks, and the bytes that the chunks reach to, each where the
/// pointer is not null. Reads the whole table.
///
/// # Safety
/// Each pointer is null or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_stats(zr: *mut Zrecord, records: *mut u64, live_bytes: *mut u64, chunk_bytes: *mut u64) {
    let stats = run(|| Ok(STORES.get(zr)?.stats()?)).unwrap_or_default();
    // SAFETY: the caller's promise is the same.
    unsafe {
        memory::put_if_wanted(records, stats.records);
        memory::put_if_wanted(live_bytes, stats.live_bytes);
        memory::put_if_wanted(chunk_bytes, stats.chunk_bytes);
    }
}

/// Trains a dictionary of at most `target` bytes on `n` samples of `sizes[k]` bytes, which stand one after the other in
/// `samples`, and puts it into `out`. Returns its size; or -1, with the code in `code` unless that is null.
///
/// # Safety
/// `samples` has `samples_len` bytes, `sizes` has `n` numbers, `out` has room for `out_len` bytes; `code` is null or has
/// room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_build_dict(
    samples: *const u8,
    samples_len: usize,
    sizes: *const usize,
    n: usize,
    target: usize,
    out: *mut u8,
    out_len: usize,
    code: *mut i32,
) -> i64 {
    let build = || {
        // SAFETY: the caller's promise is the same.
        let (samples, sizes) =
            unsafe { (memory::bytes(samples, samples_len, "samples")?, memory::numbers(sizes, n, "sizes")?) };
        let total = sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
        let Some(samples) = total.and_then(|total| samples.get(..total)) else {
            let text = format!("the sizes add up to more than the {samples_len} bytes of samples");
            return Err(Failure::new(code::BUFFER, text));
        };
        if u32::try_from(n).is_err() {
            return Err(Failure::new(code::DICTIONARY, format!("{n} samples are too many for zstd")));
        }
        // What cannot be had is told here; zstd's own buffer of this size would end the process.
        drop(memory::room::<u8>(target)?);
        let dict = train_dict(samples, &sizes, target).map_err(|e| Failure::new(code::DICTIONARY, e))?;
        if dict.len() > out_len {
            return Err(Error::BufferTooSmall { need: dict.len() as u64, have: out_len as u64 }.into());
        }
        // SAFETY: the caller's promise is that there are `out_len` bytes.
        unsafe { memory::put(out, &dict, "out") }?;
        Ok(dict.len() as i64)
    };
    // SAFETY: the caller's promise is the same.
    unsafe { told(code, build) }.unwrap_or(-1)
}

/// Installs a dictionary of `zr_build_dict` in a `zstd_dict` store that has no records. Returns 0 or a code, which is also
/// put into `code` unless that is null.
///
/// # Safety
/// `dict` has `dict_len` bytes; `code` is null or has room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_install_dict(zr: *mut Zrecord, dict: *const u8, dict_len: usize, code: *mut i32) -> i32 {
    let install = || {
        let live = STORES.get(zr)?;
        // SAFETY: the caller's promise is the same.
        Ok(live.install_dict(unsafe { memory::bytes(dict, dict_len, "dict") }?)?)
    };
    // SAFETY: the caller's promise is the same.
    unsafe { told(code, install) }.err().unwrap_or(0)
}

/// 1 if the store has a dictionary, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn zr_has_dict(zr: *mut Zrecord) -> u32 {
    run(|| Ok(STORES.get(zr)?.has_dict())).unwrap_or(false).into()
}
