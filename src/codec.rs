//! Compression: one zstd frame a record, with contexts that are reused from record to record.

use crate::format::Codec;
use crate::sys::Once;
use std::cell::RefCell;
use std::io::Cursor;
use std::sync::{Mutex, PoisonError};
use zstd::zstd_safe::{
    CCtx, CDict, CParameter, DCtx, DDict, DParameter, InBuffer, OutBuffer, compress_bound, get_error_name,
};

/// Largest dictionary that is loaded, in bytes; the largest that is ever trained has 1 MiB.
pub const MAX_DICT: u64 = 64 << 20;
/// What a trained dictionary starts with.
pub(crate) const DICT_MAGIC: [u8; 4] = 0xEC30_A437_u32.to_le_bytes();

/// The level that stores are written with where none is given: 3, and 19 against a dictionary.
pub fn default_level(codec: Codec) -> i32 {
    match codec {
        Codec::Raw | Codec::Zstd => 3,
        Codec::ZstdDict => 19,
    }
}

thread_local! {
    /// One decompression context a thread: it has no state between records, only memory worth keeping.
    static DCTX: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// Turns stored bytes into a record. Shared freely between threads.
pub struct Decoder {
    codec: Codec,
    /// Filled later where a store gets its dictionary after it was opened.
    dict: Once<DDict<'static>>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("codec", &self.codec).field("dict", &self.has_dict()).finish()
    }
}

impl Decoder {
    /// A decoder for `codec`; the dictionary is digested once, here.
    ///
    /// # Errors
    /// A reason, if zstd does not take the dictionary.
    pub fn new(codec: Codec, dict: Option<&[u8]>) -> Result<Self, String> {
        let decoder = Decoder { codec, dict: Once::new() };
        dict.map_or(Ok(()), |bytes| decoder.set_dict(bytes))?;
        Ok(decoder)
    }

    /// Whether it has a dictionary.
    pub fn has_dict(&self) -> bool {
        self.dict.get().is_some()
    }

    /// Gives the decoder its dictionary, if it has none yet: an empty store may get one after it was opened.
    ///
    /// # Errors
    /// A reason, if zstd does not take the dictionary.
    pub fn set_dict(&self, bytes: &[u8]) -> Result<(), String> {
        let dict = DDict::try_create(bytes).ok_or(REFUSED)?;
        self.dict.set(dict);
        Ok(())
    }

    /// Decodes all of `src` into exactly `dst`.
    ///
    /// # Errors
    /// Why `src` is not `dst.len()` bytes compressed with the store's codec.
    pub fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<(), String> {
        let wanted = dst.len();
        let got = match (self.codec, self.dict.get()) {
            (Codec::Raw, _) => {
                if src.len() != wanted {
                    return Err(format!("{} raw bytes where {wanted} were stored", src.len()));
                }
                dst.copy_from_slice(src);
                return Ok(());
            }
            (Codec::Zstd, _) => DCTX.with_borrow_mut(|ctx| ctx.decompress(dst, src)),
            (Codec::ZstdDict, Some(dict)) => DCTX.with_borrow_mut(|ctx| ctx.decompress_using_ddict(dst, src, dict)),
            (Codec::ZstdDict, None) => return Err("the store has no dictionary".into()),
        };
        match got {
            Ok(n) if n == wanted => Ok(()),
            Ok(n) => Err(format!("it decodes to {n} bytes, {wanted} were stored")),
            Err(code) => Err(format!("zstd: {}", get_error_name(code))),
        }
    }

    /// Decodes the start of a frame into `dst`, from `src`, which may be cut anywhere; returns the bytes decoded, fewer
    /// than `dst` takes where `src` does not reach so far. The checksum at a frame's end is not looked at.
    ///
    /// # Errors
    /// Why `src` is not the start of a frame, or that it can only be decoded whole (a window above 8 MiB).
    pub fn decode_head(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, String> {
        let message = |code| format!("zstd: {}", get_error_name(code));
        let mut ctx = DCtx::try_create().ok_or("zstd: out of memory")?;
        ctx.set_parameter(DParameter::WindowLogMax(23)).map_err(message)?;
        if let Some(dict) = self.dict.get() {
            ctx.ref_ddict(dict).map_err(message)?;
        }
        let wanted = dst.len();
        let (mut input, mut output) = (InBuffer::around(src), OutBuffer::around(dst));
        loop {
            let before = (input.pos(), output.pos());
            let left = ctx.decompress_stream(&mut output, &mut input).map_err(message)?;
            if left == 0 || output.pos() == wanted || (input.pos(), output.pos()) == before {
                return Ok(output.pos());
            }
        }
    }
}

/// Turns records into stored bytes. Shared freely between threads; each call borrows a context of a pool.
pub struct Encoder {
    codec: Codec,
    level: i32,
    /// Digested once for all threads: at level 19 that takes as long as compressing as many bytes.
    dict: Option<CDict<'static>>,
    /// Contexts without a dictionary. One that refers to `dict` cannot outlive the call that made it, and costs little
    /// beside compressing what a call is given.
    pool: Mutex<Vec<CCtx<'static>>>,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").field("codec", &self.codec).field("level", &self.level).finish_non_exhaustive()
    }
}

impl Encoder {
    /// An encoder for `codec` at zstd's `level`, against `dict` for [`Codec::ZstdDict`].
    ///
    /// # Errors
    /// A reason, if zstd has no such level, or does not take the dictionary.
    pub fn new(codec: Codec, level: i32, dict: Option<&[u8]>) -> Result<Self, String> {
        let levels = zstd::compression_level_range();
        if codec != Codec::Raw && !levels.contains(&level) {
            return Err(format!("zstd has no level {level}; it has {} to {}", levels.start(), levels.end()));
        }
        let dict = match dict.filter(|_| codec == Codec::ZstdDict) {
            Some(bytes) => Some(CDict::try_create(bytes, level).ok_or(REFUSED)?),
            None => None,
        };
        Ok(Encoder { codec, level, dict, pool: Mutex::new(Vec::new()) })
    }

    /// The codec this encodes for.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Compresses each of `records` to a frame of its own, appended to `out`; calls `done` with each frame's length.
    ///
    /// Frames carry their content's size and checksum, so a reader can check what it decoded.
    ///
    /// # Errors
    /// zstd's reason (out of memory is the only one that happens).
    pub fn encode(&self, records: &[&[u8]], out: &mut Vec<u8>, done: impl FnMut(usize)) -> Result<(), String> {
        if let Some(dict) = &self.dict {
            let mut ctx = self.context()?;
            ctx.ref_cdict(dict).map_err(message)?;
            return frames(&mut ctx, records, out, done);
        }
        let pooled = self.pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut ctx = pooled.map_or_else(|| self.context(), Ok)?;
        frames(&mut ctx, records, out, done)?;
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).push(ctx);
        Ok(())
    }

    /// A new context with everything set but the dictionary, which brings the level along that it was digested for.
    fn context<'c>(&self) -> Result<CCtx<'c>, String> {
        let mut ctx = CCtx::try_create().ok_or("zstd: out of memory")?;
        ctx.set_parameter(CParameter::CompressionLevel(self.level)).map_err(message)?;
        ctx.set_parameter(CParameter::ChecksumFlag(true)).map_err(message)?;
        Ok(ctx)
    }
}

fn message(code: usize) -> String {
    format!("zstd: {}", get_error_name(code))
}

fn frames(ctx: &mut CCtx<'_>, records: &[&[u8]], out: &mut Vec<u8>, mut done: impl FnMut(usize)) -> Result<(), String> {
    for record in records {
        let start = out.len();
        out.reserve(compress_bound(record.len()));
        let mut tail = Cursor::new(&mut *out);
        tail.set_position(start as u64);
        done(ctx.compress2(&mut tail, record).map_err(message)?);
    }
    Ok(())
}

const REFUSED: &str = "zstd does not take it as a dictionary";

/// Checks that `bytes` are a trained dictionary that zstd takes. zstd itself takes any bytes that do not claim to be
/// one, as text that records may refer to; given by mistake, such a file would only cost time.
///
/// # Errors
/// What speaks against it.
pub fn check_dict(bytes: &[u8]) -> Result<(), String> {
    if bytes.len() as u64 > MAX_DICT {
        return Err(format!("it has {} bytes; a dictionary has at most {MAX_DICT}", bytes.len()));
    }
    if !bytes.starts_with(&DICT_MAGIC) {
        return Err("it is no trained zstd dictionary: it does not start with 37 a4 30 ec".into());
    }
    Decoder::new(Codec::ZstdDict, Some(bytes))?;
    // Level 1 digests fastest.
    Encoder::new(Codec::ZstdDict, 1, Some(bytes)).map(|_| ())
}

/// Trains a dictionary of at most `size` bytes on samples that stand one after the other in `samples`.
///
/// # Errors
/// zstd's reason: most often that there are too few samples, or too small ones.
pub fn train_dict(samples: &[u8], sizes: &[usize], size: usize) -> Result<Vec<u8>, String> {
    if sizes.iter().sum::<usize>() != samples.len() {
        return Err("the sample sizes do not add up".into());
    }
    zstd::dict::from_continuous(samples, sizes, size).map_err(|e| e.to_string())
}
