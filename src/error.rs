//! One error type for the whole engine. Every variant names what failed, where, and (in its text) what to do.

use std::io;
use std::path::{Path, PathBuf};

/// What can go wrong in the engine.
///
/// The enum is exhaustive on purpose: the mount maps every variant to an `errno` without a wildcard arm, so a new
/// variant has to be given one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused an operation on a file.
    #[error("cannot {op} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb phrase: "open", "read", "sync".
        op: &'static str,
        /// The file or directory it was tried on.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The path holds no store or dataset at all.
    #[error("{} is not a zrfs store or dataset: {reason}", path.display())]
    NotAStore {
        /// The path that was opened.
        path: PathBuf,
        /// What was looked for and not found.
        reason: String,
    },
    /// A file of a store contradicts the format or the other files.
    #[error("{} is damaged at byte {offset}: {reason}", path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Where in the file the contradiction stands.
        offset: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A record could not be read; `source` says why.
    #[error("record {index}: {source}")]
    Record {
        /// The record's index in its store.
        index: u64,
        /// What is wrong with it.
        source: Box<Error>,
    },
    /// An index at or above the store's length.
    #[error("index {index} is out of range: {}", range(*length))]
    OutOfRange {
        /// The index that was asked for.
        index: u64,
        /// The store's length.
        length: u64,
    },
    /// A record of 0 bytes or of more than 2^31 bytes.
    #[error("a record of {length} bytes cannot be stored: records have 1 to 2147483648 bytes")]
    RecordLength {
        /// The refused length in bytes.
        length: u64,
    },
    /// The store has no place for another record (2^32 chunks or 2^64 records).
    #[error("{} is full", path.display())]
    Full {
        /// The store.
        path: PathBuf,
    },
    /// The destination given to a read cannot hold what was asked for.
    #[error("the buffer holds {have} bytes where {need} are needed")]
    BufferTooSmall {
        /// Bytes needed.
        need: u64,
        /// Bytes given.
        have: u64,
    },
    /// A `zstd_dict` store has no dictionary, or it could not be trained or used.
    #[error("dictionary of {}: {reason}", path.display())]
    Dictionary {
        /// The dictionary's file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Something already stands where a new store should go.
    #[error("{} exists already; choose another name or replace it with --force", path.display())]
    Exists {
        /// The occupied path.
        path: PathBuf,
    },
    /// Another process holds the store in a way that this operation cannot share.
    #[error("{} is {use_}{}", path.display(), by(*holder))]
    Locked {
        /// The store.
        path: PathBuf,
        /// What it is held for: "being written to", "open for reading or mounted", "being changed in place".
        use_: &'static str,
        /// The other process, where that can be found out.
        holder: Option<u32>,
    },
    /// An earlier write failed, so what is in the files is not known to this writer any more.
    #[error("an earlier write to {} failed; open the store again to go on", path.display())]
    Latched {
        /// The store.
        path: PathBuf,
    },
    /// An argument or an input that zrfs does not take; the text says which and what it takes.
    #[error("{0}")]
    Invalid(String),
    /// The work was stopped on request (a signal); nothing was left behind.
    #[error("interrupted")]
    Interrupted,
}

/// `Result` with the engine's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Who holds a lock, in words.
fn by(holder: Option<u32>) -> String {
    match holder {
        Some(pid) if pid == std::process::id() => " by this process".into(),
        Some(pid) => format!(" by process {pid}; wait for it or end it"),
        None => " by another process; wait for it or end it".into(),
    }
}

/// The indices that a store of that length has, in words.
fn range(length: u64) -> String {
    match length {
        0 => "the store is empty".into(),
        1 => "the store has one record, 0".into(),
        _ => format!("the store has {length} records, 0 to {}", length - 1),
    }
}

impl Error {
    /// Wraps an operating-system error with what was being done, and on which file.
    pub fn io(op: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { op, path: path.as_ref().to_path_buf(), source }
    }

    /// A contradiction at `offset` of `path`.
    pub fn corrupt(path: impl AsRef<Path>, offset: u64, reason: impl Into<String>) -> Error {
        Error::Corrupt { path: path.as_ref().to_path_buf(), offset, reason: reason.into() }
    }

    /// A refused argument or input.
    pub fn invalid(reason: impl Into<String>) -> Error {
        Error::Invalid(reason.into())
    }

    /// The same error, said of record `index`. An error that already names an index stays as it is.
    #[must_use]
    pub fn at_record(self, index: u64) -> Error {
        match self {
            Error::Record { .. } | Error::OutOfRange { .. } => self,
            source => Error::Record { index, source: Box::new(source) },
        }
    }
}
