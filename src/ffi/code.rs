//! What a function returns when it fails: a code, and a text that `zrfs_last_error` gives.

use crate::error::Error;
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Out of memory.
pub(super) const MEMORY: i32 = -1;
/// The operating system refused to read or write.
pub(super) const IO: i32 = -2;
/// An index at or above the number of records.
pub(super) const INDEX: i32 = -3;
/// A record of 0 bytes or of more than 2^31.
pub(super) const RECORD_LENGTH: i32 = -4;
/// The store has no place for another record.
pub(super) const FULL: i32 = -5;
/// A buffer is null, or does not hold what is asked for.
pub(super) const BUFFER: i32 = -6;
/// A stored record, or a file of the store, is damaged.
pub(super) const CORRUPT: i32 = -7;
/// Not a store, or of a version that is not known.
pub(super) const NOT_A_STORE: i32 = -8;
/// The dictionary is missing, does not fit, or could not be trained.
pub(super) const DICTIONARY: i32 = -9;
/// An argument that is not taken.
pub(super) const INVALID: i32 = -10;
/// Another process holds the store.
pub(super) const LOCKED: i32 = -11;
/// Something stands already where a new store is to go.
pub(super) const EXISTS: i32 = -12;
/// An earlier write failed, so nothing more is written.
pub(super) const LATCHED: i32 = -13;
/// A handle that was closed, or never was one.
pub(super) const HANDLE: i32 = -14;
/// A defect of the library.
pub(super) const INTERNAL: i32 = -15;
/// The loader was stopped.
pub(super) const ENDED: i32 = -16;

/// All codes by the names that the header has them under, behind `ZRFS_E_`.
#[cfg(test)]
pub(super) const NAMES: [(&str, i32); 16] = [
    ("MEMORY", MEMORY),
    ("IO", IO),
    ("INDEX", INDEX),
    ("RECORD_LENGTH", RECORD_LENGTH),
    ("FULL", FULL),
    ("BUFFER", BUFFER),
    ("CORRUPT", CORRUPT),
    ("NOT_A_STORE", NOT_A_STORE),
    ("DICTIONARY", DICTIONARY),
    ("INVALID", INVALID),
    ("LOCKED", LOCKED),
    ("EXISTS", EXISTS),
    ("LATCHED", LATCHED),
    ("HANDLE", HANDLE),
    ("INTERNAL", INTERNAL),
    ("ENDED", ENDED),
];

/// A code and its text.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: i32,
    pub(super) text: String,
}

impl Failure {
    pub(super) fn new(code: i32, text: impl Into<String>) -> Self {
        Failure { code, text: text.into() }
    }
}

/// The code for loaderx's functions, whose codes end at -9: where one of ours has no equal there, it is "file I/O failed",
/// and for a handle "not a store".
pub(super) fn as_loaderx(code: i32) -> i32 {
    match code {
        DICTIONARY..=MEMORY => code,
        HANDLE => NOT_A_STORE,
        _ => IO,
    }
}

/// The code of an error.
fn code_of(error: &Error) -> i32 {
    match error {
        Error::Io { source, .. } if source.kind() == ErrorKind::OutOfMemory => MEMORY,
        Error::Io { .. } => IO,
        Error::NotAStore { .. } => NOT_A_STORE,
        Error::Corrupt { .. } => CORRUPT,
        Error::Record { source, .. } => code_of(source),
        Error::OutOfRange { .. } => INDEX,
        Error::RecordLength { .. } => RECORD_LENGTH,
        Error::Full { .. } => FULL,
        Error::BufferTooSmall { .. } => BUFFER,
        Error::Dictionary { .. } => DICTIONARY,
        Error::Exists { .. } => EXISTS,
        Error::Locked { .. } => LOCKED,
        Error::Latched { .. } => LATCHED,
        Error::Invalid(_) | Error::Interrupted => INVALID,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { code: code_of(&error), text: error.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the text of a failure for this thread.
fn note(text: String) {
    let text = CString::new(text).unwrap_or_else(|e| {
        let text: Vec<u8> = e.into_vec().into_iter().filter(|&byte| byte != 0).collect();
        CString::new(text).unwrap_or_default()
    });
    // A thread that is ending has no place for it any more.
    let _ = LAST.try_with(|last| last.replace(text));
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}

/// Runs the body of a function; what it gives, or the code of its failure, whose text is kept.
pub(super) fn run<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, i32> {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(failure)) => failure,
        Err(payload) => {
            let failure = Failure::new(INTERNAL, format!("a defect in zrfs: {}", panic_text(&*payload)));
            // What it was thrown with may panic again when it is dropped.
            std::mem::forget(payload);
            failure
        }
    };
    note(failure.text);
    Err(failure.code)
}

/// The same for a function that returns only a code.
pub(super) fn code(body: impl FnOnce() -> Result<(), Failure>) -> i32 {
    run(body).err().unwrap_or(0)
}

/// The text of the calling thread's last failure, "" if there was none. It is valid until the thread's next call that
/// fails, and must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn zrfs_last_error() -> *const c_char {
    const NOTHING: &CStr = c"";
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(NOTHING.as_ptr())
}

/// The library's version, as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn zrfs_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };
    VERSION.as_ptr()
}
