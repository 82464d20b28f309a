//! How numbers, paths and sizes look in messages.

use indicatif::{BinaryBytes, HumanCount};
use std::path::Path;
use std::time::Duration;

/// A path as a person can read and paste it: names that are not printable text are quoted with escapes, so that no file
/// name can play tricks with the terminal.
pub(super) fn path(path: &Path) -> String {
    match path.to_str() {
        Some(text) if !text.chars().any(char::is_control) => text.to_string(),
        _ => format!("{path:?}"),
    }
}

/// The same for the bytes of a path in a store.
pub(super) fn path_bytes(bytes: &[u8]) -> String {
    use std::os::unix::ffi::OsStrExt;
    path(Path::new(std::ffi::OsStr::from_bytes(bytes)))
}

/// 1,234,567.
pub(super) fn count(n: u64) -> String {
    HumanCount(n).to_string()
}

/// 1.2 MiB.
pub(super) fn bytes(n: u64) -> String {
    BinaryBytes(n).to_string()
}

/// How many times smaller `stored` bytes are than `bytes`: "2.31x".
pub(super) fn ratio(bytes: u64, stored: u64) -> String {
    if stored == 0 { "-".into() } else { format!("{:.2}x", bytes as f64 / stored as f64) }
}

/// "1 file", "2 files".
pub(super) fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}

/// 3.21 s.
pub(super) fn seconds(d: Duration) -> String {
    format!("{:.2} s", d.as_secs_f64())
}
