//! Packing: directories, archives and arrays into a new store, which appears under its name only when it is whole.

mod append;
mod archive;
pub mod array;
mod arrays;
pub mod detect;
mod dict;
mod dir;
mod files;
pub mod fortran;
pub mod idx;
mod input;
pub mod npy;
mod progress;

pub use append::{AppendOptions, Appended, append, append_streams, dataset_of};
pub use arrays::pack_streams;
pub use dict::sample;
pub use dir::measure;
pub use files::{PIECE_BYTES, Report};
pub use input::{STDIN, is_stdin};
pub use progress::{Notice, Progress, Watch};

use crate::dataset::Source;
use crate::dict::DictTier;
use crate::error::{Error, Result};
use crate::format::Codec;
use crate::staging::{Existing, Staging};
use crate::store::WriterOptions;
use detect::{Kind, detect, detect_stream};
use files::TreeSink;
use std::fs;
use std::io::Read;
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
    /// The size of the dictionary that is trained for [`Codec::ZstdDict`].
    pub tier: DictTier,
    /// Files of a tree are split into records of this many bytes.
    pub piece_bytes: u32,
}

impl Default for PackOptions {
    fn default() -> Self {
        PackOptions {
            codec: Codec::Zstd,
            level: None,
            replace: false,
            tier: DictTier::default(),
            piece_bytes: PIECE_BYTES,
        }
    }
}

impl PackOptions {
    fn existing(&self) -> Existing {
        Existing::store(self.replace)
    }

    /// Refuses a source that is in what would be replaced.
    fn spare(&self, source: &Path, target: &Path) -> Result<()> {
        if is_stdin(source) { Ok(()) } else { self.existing().spare(source, target) }
    }

    fn writer(&self) -> WriterOptions {
        WriterOptions::new(self.codec).level(self.level)
    }
}

/// Packs `source` into the new store or dataset `target`. What the source is, its content tells: a directory or a tar
/// archive becomes a tree dataset, an .npy or IDX array a dense store; [`STDIN`] stands for standard input. Archives and
/// arrays may be compressed with gzip or zstd.
///
/// Memory is bounded whatever the source holds: about 100 MiB, what the codec needs a core, and some 30 bytes a file.
///
/// # Errors
/// [`Error::Exists`]; [`Error::Invalid`] for a source that is none of these; [`Error::Corrupt`] for one that is damaged
/// or cut short; [`Error::Io`] when the store cannot be written; [`Error::Interrupted`]. Nothing is left then. A file of
/// a tree that cannot be read is no error: it is named in a [`Notice`] and counted in the [`Report`].
pub fn pack(source: &Path, target: &Path, options: &PackOptions, watch: Watch<'_>) -> Result<Report> {
    // A read that was interrupted looks like a damaged input; what was asked for comes first.
    pack_any(source, target, options, watch).map_err(|e| watch.progress.check().err().unwrap_or(e))
}

fn pack_any(source: &Path, target: &Path, options: &PackOptions, watch: Watch<'_>) -> Result<Report> {
    options.spare(source, target)?;
    if is_stdin(source) {
        let name = Path::new("standard input");
        let (kind, stream) = detect_stream(input::open_stream(source, watch.progress)?, name)?;
        return match kind {
            Kind::Tar(_) => pack_tar(stream, name, target, options, watch),
            Kind::Npy(_) => arrays::pack_array(npy::from_stream(stream, name)?, source, target, options, watch),
            Kind::Idx(_) => arrays::pack_array(idx::from_stream(stream, name)?, source, target, options, watch),
            Kind::Directory => Err(Error::invalid("standard input is a directory")),
        };
    }
    match detect(source)? {
        Kind::Directory => pack_dir(source, target, options, watch),
        Kind::Tar(_) => {
            let (_, stream) = detect_stream(input::open_stream(source, watch.progress)?, source)?;
            pack_tar(stream, source, target, options, watch)
        }
        Kind::Npy(_) | Kind::Idx(_) => arrays::pack_array(array::open(source)?, source, target, options, watch),
    }
}

fn pack_dir(source: &Path, target: &Path, options: &PackOptions, watch: Watch<'_>) -> Result<Report> {
    let meta = fs::metadata(source).map_err(Error::io("read", source))?;
    let staging = Staging::new(target, options.existing())?;
    let mut writer = options.writer();
    if options.codec == Codec::ZstdDict {
        let sample = dict::sample_tree(source, options.tier.sample_bytes());
        writer = writer.dict(sample.train(options.tier, &source.display())?);
    }
    let root = dir::meta_of(&meta);
    let mut sink = TreeSink::create(&staging.path(), writer, root, options.piece_bytes, watch)?;
    dir::pack_dir(source, &mut sink, &[staging.dir(), target])?;
    finish_report(sink.finish()?, staging, watch)
}

/// Packs the uncompressed archive that `input` gives; `name` stands for it in messages.
fn pack_tar(input: impl Read, name: &Path, target: &Path, options: &PackOptions, watch: Watch<'_>) -> Result<Report> {
    if options.codec == Codec::ZstdDict {
        let reason = "a dictionary needs a sample first, and an archive is read only once; unpack it and pack the \
                      directory, or use --codec zstd";
        return Err(Error::invalid(reason));
    }
    let staging = Staging::new(target, options.existing())?;
    let writer = options.writer();
    let mut sink = TreeSink::create(&staging.path(), writer, archive::IMPLIED, options.piece_bytes, watch)?;
    archive::pack_tar(input, name, &mut sink)?;
    finish_report(sink.finish()?, staging, watch)
}

/// Measures the finished store and gives it its name.
fn finish_report(report: Report, staging: Staging, watch: Watch<'_>) -> Result<Report> {
    let stored_bytes = match Source::open(staging.path())? {
        Source::Store(stream) => stream.store().chunk_bytes(),
        Source::Dataset(dataset) => dataset.streams().iter().map(|(_, stream)| stream.store().chunk_bytes()).sum(),
    };
    watch.progress.check()?;
    staging.publish()?;
    Ok(Report { stored_bytes, ..report })
}
