//! Exporting: records back into the files that everybody reads, `.npy` arrays and tar archives.

mod archive;
mod record_files;
mod tree;

use crate::dataset::{Source, Stream};
use crate::error::{Error, Result};
use crate::format::{Kind, npy};
use crate::in_order::InOrder;
use crate::names::NamePattern;
use crate::pack::Watch;
use crate::staging::{Existing, Staging};
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// What a store is exported to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One array of all records; dense stores only.
    Npy,
    /// An archive with a file a record, or with the files of a tree.
    Tar,
}

impl Format {
    /// The end of the names of such files, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Npy => "npy",
            Format::Tar => "tar",
        }
    }

    /// What `source` is exported to where nobody says: an array if all records have one shape, else an archive. `None` for
    /// a dataset of several streams, which becomes a directory.
    pub fn of(source: &Source) -> Option<Format> {
        match source {
            Source::Store(stream) => Some(Format::of_stream(stream)),
            Source::Dataset(dataset) => dataset.tree().map(|_| Format::Tar),
        }
    }

    fn of_stream(stream: &Stream) -> Format {
        match stream.schema().map(|schema| &schema.kind) {
            Some(Kind::Dense { .. }) => Format::Npy,
            Some(Kind::Ragged) | None => Format::Tar,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.extension())
    }
}

/// How something is exported.
#[derive(Debug, Clone, Default)]
pub struct ExportOptions {
    /// How the files of records are called in an archive; `{index}.npy` or, without a type, `{index}` where there is none.
    pub names: Option<NamePattern>,
    /// Whether an existing file at the target gives way.
    pub replace: bool,
}

/// What was exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exported {
    /// Records, or files, directories and links of a tree.
    pub entries: u64,
    /// Bytes of their contents.
    pub bytes: u64,
}

/// Exports the store or dataset at `source` to the new file `target`, whose name says the format (`.npy`, `.tar`); a
/// dataset that is no tree becomes a directory with a file a stream. What is made appears under its name when it is
/// whole.
///
/// Memory is bounded whatever the source holds: some 32 MiB, and the largest record.
///
/// # Errors
/// [`Error::Invalid`] for a name that says no format, or one that the source cannot be exported to; [`Error::Exists`];
/// [`Error::Record`] for the first record that cannot be read; [`Error::Io`]; [`Error::Interrupted`]. Nothing is left
/// then.
pub fn export(source: &Path, target: &Path, options: &ExportOptions, watch: Watch<'_>) -> Result<Exported> {
    let existing = Existing::file(options.replace);
    existing.spare(source, target)?;
    let opened = Source::open_checked(source)?;
    let create = |path: &Path| File::create_new(path).map_err(Error::io("create", path));
    let sync = |file: File, path: &Path| file.sync_all().map_err(Error::io("sync", path));
    let Source::Dataset(dataset) = &opened else {
        return export_file(&opened, target, options, watch);
    };
    if dataset.tree().is_some() {
        return export_file(&opened, target, options, watch);
    }
    if let Some(extension) = target.extension().filter(|e| *e == "npy" || *e == "tar") {
        let (source, extension) = (source.display(), extension.display());
        let reason =
            format!("{source} has several streams and becomes a directory of files, not one .{extension} file");
        return Err(Error::invalid(reason));
    }
    let staging = Staging::new(target, Existing::Refuse)?;
    let dir = staging.path();
    std::fs::create_dir(&dir).map_err(Error::io("create", &dir))?;
    let sizes = dataset.streams().iter().map(|(_, stream)| Ok(stream.store().stats()?.bytes));
    watch.progress.set_total_bytes(sizes.sum::<Result<u64>>()?);
    let mut done = Exported::default();
    for (name, stream) in dataset.streams() {
        let format = Format::of_stream(stream);
        let path = dir.join(format!("{name}.{format}"));
        let mut file = create(&path)?;
        let wrote = export_stream(stream, format, &mut file, &path, options, watch)?;
        sync(file, &path)?;
        // A record of the dataset is one of each stream.
        done = Exported { entries: wrote.entries, bytes: done.bytes + wrote.bytes };
    }
    File::open(&dir).and_then(|dir| dir.sync_all()).map_err(Error::io("sync", &dir))?;
    staging.publish()?;
    Ok(done)
}

fn export_file(source: &Source, target: &Path, options: &ExportOptions, watch: Watch<'_>) -> Result<Exported> {
    let by_name = [Format::Npy, Format::Tar];
    let extension = target.extension();
    let format = by_name.into_iter().find(|format| extension.is_some_and(|e| e == format.extension()));
    let format = format.ok_or_else(|| {
        let target = target.display();
        Error::invalid(format!("{target} says no format; end it in .npy or .tar, or give - for standard output"))
    })?;
    let staging = Staging::new(target, Existing::file(options.replace))?;
    let path = staging.path();
    let mut file = File::create_new(&path).map_err(Error::io("create", &path))?;
    let done = export_to(source, format, &mut file, target, options, watch)?;
    file.sync_all().map_err(Error::io("sync", &path))?;
    staging.publish()?;
    Ok(done)
}

/// Exports `source` to `out`, from which nothing is read and where nothing is sought: a pipe will do. `path` is its name
/// in errors.
///
/// # Errors
/// [`Error::Invalid`] for what cannot be exported to `format`; otherwise as [`export`]. What was written stays then.
pub fn export_to(
    source: &Source,
    format: Format,
    out: &mut dyn Write,
    path: &Path,
    options: &ExportOptions,
    watch: Watch<'_>,
) -> Result<Exported> {
    match source {
        Source::Store(stream) => {
            watch.progress.set_total_bytes(stream.store().stats()?.bytes);
            export_stream(stream, format, out, path, options, watch)
        }
        Source::Dataset(dataset) => match (dataset.tree(), format) {
            (Some(_), Format::Tar) if options.names.is_some() => {
                Err(Error::invalid("the files of a tree keep their names; --names is for stores without paths"))
            }
            (Some(_), Format::Tar) => tree::export_tree(dataset, out, path, watch),
            (Some(_), Format::Npy) => {
                let source = dataset.path().display();
                Err(Error::invalid(format!("{source} is a tree of files, which no array holds; export it to a .tar")))
            }
            (None, _) => {
                let source = dataset.path().display();
                let reason = format!(
                    "{source} is a dataset of several streams, which becomes a directory; give a directory's name, or \
                     export one stream: {source}/{}",
                    dataset.streams().first().map_or("NAME", |(name, _)| name)
                );
                Err(Error::invalid(reason))
            }
        },
    }
}

fn export_stream(
    stream: &Stream,
    format: Format,
    out: &mut dyn Write,
    path: &Path,
    options: &ExportOptions,
    watch: Watch<'_>,
) -> Result<Exported> {
    match format {
        Format::Npy => export_npy(stream, out, path, options, watch),
        Format::Tar => record_files::export_records(stream, out, path, options, watch),
    }
}

/// All records of a dense store as one array.
fn export_npy(
    stream: &Stream,
    out: &mut dyn Write,
    path: &Path,
    options: &ExportOptions,
    watch: Watch<'_>,
) -> Result<Exported> {
    let store = stream.store();
    let refused = |why: &str| Err(Error::invalid(format!("{} {why}; export it to a .tar", store.path().display())));
    if options.names.is_some() {
        return Err(Error::invalid("an array has no names; --names is for archives"));
    }
    let (schema, item_shape) = match stream.schema() {
        None => return refused("has no type, so it makes no array"),
        Some(schema) => match &schema.kind {
            Kind::Dense { item_shape } => (schema, item_shape),
            Kind::Ragged => return refused("has records of different shapes, which make no array"),
        },
    };
    let len = store.len();
    let shape: Vec<u64> = [len].iter().chain(item_shape).copied().collect();
    let write = |out: &mut dyn Write, bytes: &[u8]| out.write_all(bytes).map_err(Error::io("write", path));
    write(out, &npy::header_bytes(&schema.dtype, &shape))?;
    let mut done = Exported::default();
    let mut records = InOrder::new(store, 0..len);
    while let Some(batch) = records.next_batch()? {
        watch.progress.check()?;
        let odd =
            batch.indices().iter().zip(batch.records()).find(|(_, r)| Some(r.len() as u64) != schema.record_bytes());
        if let Some((&index, _)) = odd {
            // Asked for its shape, it says what is wrong.
            stream.shape(index)?;
        }
        write(out, batch.bytes())?;
        let (n, bytes) = (batch.indices().len() as u64, batch.bytes().len() as u64);
        done = Exported { entries: done.entries + n, bytes: done.bytes + bytes };
        watch.progress.add(n, bytes);
    }
    Ok(done)
}
