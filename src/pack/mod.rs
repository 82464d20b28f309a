//! Packing: directories, archives and arrays into a new store, which appears under its name only when it is whole.

mod archive;
mod dict;
mod dir;
mod files;
mod input;
mod progress;

pub use dir::measure;
pub use files::{PIECE_BYTES, Report};
pub use input::STDIN;
pub use progress::{Notice, Progress, Watch};

use crate::error::{Error, Result};
use crate::format::Codec;
use crate::staging::{Existing, Staging};
use crate::store::WriterOptions;
use files::TreeSink;
use std::fs;
use std::path::Path;

/// How something is packed.
#[derive(Debug, Clone)]
pub struct PackOptions {
    /// How records are compressed.
    pub codec: Codec,
    /// zstd's level; the codec's usual one where there is none.
    pub level: Option<i32>,
    /// Whether an existing store at the target gives way.
    pub replace: bool,
    /// Files of a tree are split into records of this many bytes.
    pub piece_bytes: u32,
}

impl Default for PackOptions {
    fn default() -> Self {
        PackOptions { codec: Codec::Zstd, level: None, replace: false, piece_bytes: PIECE_BYTES }
    }
}

impl PackOptions {
    fn existing(&self) -> Existing {
        if self.replace { Existing::Store } else { Existing::Refuse }
    }

    fn writer(&self) -> WriterOptions {
        WriterOptions::new(self.codec).level(self.level)
    }
}

/// Packs a directory tree into the new tree dataset `target`.
///
/// Memory is bounded whatever the tree holds: about 64 MiB, what the codec needs, and some 10 bytes a file.
///
/// # Errors
/// [`Error::Exists`]; [`Error::Io`] when the store cannot be written; [`Error::Interrupted`]. Nothing is left then.
/// What of the source cannot be read is no error: it is named in a [`Notice`] and counted in the [`Report`].
pub fn pack_dir(source: &Path, target: &Path, options: &PackOptions, watch: Watch<'_>) -> Result<Report> {
    let meta = fs::metadata(source).map_err(Error::io("read", source))?;
    if !meta.is_dir() {
        return Err(Error::invalid(format!("{} is not a directory", source.display())));
    }
    let staging = Staging::new(target, options.existing())?;
    let mut writer = options.writer();
    if options.codec == Codec::ZstdDict {
        writer = writer.dict(dict::sample_tree(source).train(source)?);
    }
    let root = dir::meta_of(&meta);
    let mut sink = TreeSink::create(&staging.path(), writer, root, options.piece_bytes, watch)?;
    dir::pack_dir(source, &mut sink, staging.dir())?;
    let report = sink.finish()?;
    watch.progress.check()?;
    staging.publish()?;
    Ok(report)
}

/// Packs a tar archive, also a compressed one, into the new tree dataset `target`. `source` is read once, from its
/// beginning to its end; [`STDIN`] stands for standard input.
///
/// # Errors
/// As [`pack_dir`]; [`Error::Invalid`] if the archive is damaged or cut short.
pub fn pack_tar(source: &Path, target: &Path, options: &PackOptions, watch: Watch<'_>) -> Result<Report> {
    if options.codec == Codec::ZstdDict {
        let reason = "a dictionary needs a sample first, and an archive is read only once; unpack it and pack the \
                      directory, or use --codec zstd";
        return Err(Error::invalid(reason));
    }
    let input = input::open_stream(source, watch.progress)?;
    let staging = Staging::new(target, options.existing())?;
    let mut sink = TreeSink::create(&staging.path(), options.writer(), archive::IMPLIED, options.piece_bytes, watch)?;
    // An interrupted read looks like a damaged archive; what was asked for comes first.
    archive::pack_tar(input, source, &mut sink).map_err(|e| watch.progress.check().err().unwrap_or(e))?;
    let report = sink.finish()?;
    watch.progress.check()?;
    staging.publish()?;
    Ok(report)
}
