//! `zrfs gather`.

use super::{Done, print};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use zrfs::client::Mount;
use zrfs::format::dtype::DType;
use zrfs::format::{Kind, npy};
use zrfs::pack::is_stdin;
use zrfs::{Error, Result, Selection, Source, Stream};

/// Gather records into one batch, from a mount or a store
///
/// The records' bytes go to standard output, one after the other, or as an array to an .npy file. On a mount the batch comes
/// in one piece through shared memory, as programs get it by ioctl.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs gather /mnt/images 5 17 0-9 > batch
  zrfs gather /mnt/images 10:100:30 -1 --npy batch.npy
  zrfs gather train.zr --stream label 5 17 | xxd")]
pub(super) struct Args {
    /// Write an array of records of one shape to this new file; - for standard output
    #[arg(long, value_name = "FILE")]
    npy: Option<PathBuf>,
    /// Replace the file that is there
    #[arg(long, requires = "npy")]
    force: bool,
    /// Gather this stream of a dataset
    #[arg(long)]
    stream: Option<String>,
    /// A mounted store or dataset, or a store or dataset itself
    #[arg(value_name = "MOUNT|STORE")]
    path: PathBuf,
    /// Which: indices, lists, ranges and slices, as 5 17,0-9 -1 10:100:30
    #[arg(value_name = "INDEX", required = true)]
    which: Vec<Selection>,
}

/// The program's arguments, where an index of `gather` that counts from the end does not look like an option. Options may
/// then stand behind indices, which `allow_hyphen_values` would take them for; a [`Selection`] ignores the space.
pub(super) fn arguments(all: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = all.collect();
    let is_option = |arg: &OsString| arg.as_encoded_bytes().starts_with(b"-");
    let command = all.iter().skip(1).position(|arg| !is_option(arg)).map(|at| at + 1);
    if let Some(at) = command.filter(|&at| all.get(at).is_some_and(|arg| arg == "gather")) {
        let mut is_value = false;
        for arg in all.iter_mut().skip(at + 1) {
            if !is_value && matches!(arg.as_encoded_bytes(), [b'-', b'0'..=b'9', ..]) {
                let mut index = OsString::from(" ");
                index.push(&*arg);
                *arg = index;
            }
            is_value = *arg == "--npy" || *arg == "--stream";
        }
    }
    all
}

pub(super) fn run(args: &Args) -> Done {
    match Mount::find(&args.path)? {
        Some(mount) => {
            let mount = match &args.stream {
                // As the store itself, which the mount only names after the path that it was mounted from.
                Some(_) if !mount.is_dataset() => return Err(no_streams(args).into()),
                Some(name) => mount.stream(name)?,
                None if mount.chosen().is_some() => mount,
                None => mount.stream(only(mount.streams().iter().map(|stream| &stream.name[..]), args)?)?,
            };
            let batch = mount.gather(&indices(args, mount.records()?)?)?;
            let Some(part) = batch.parts().first() else { return Ok(()) };
            let shape = mount.chosen().and_then(|stream| stream.shape.clone());
            let name = mount.is_dataset().then(|| part.name());
            write(args, name, part.dtype().zip(shape), batch.len(), part.bytes())
        }
        None => {
            let source = Source::open_checked(&args.path)?;
            let (name, stream) = choose(&source, args)?;
            let indices = indices(args, stream.len())?;
            let (bytes, _) = stream.store().gather_packed(&indices)?;
            let typed = stream.schema().and_then(|schema| match &schema.kind {
                Kind::Dense { item_shape } => Some((&schema.dtype, item_shape.clone())),
                Kind::Ragged => None,
            });
            write(args, name, typed, indices.len(), &bytes)
        }
    }
}

fn indices(args: &Args, length: u64) -> Result<Vec<u64>> {
    let mut all = Vec::new();
    for which in &args.which {
        all.extend(which.resolve(length)?.iter());
    }
    Ok(all)
}

/// The stream that is meant where none is said: the only one.
fn only<'a>(names: impl Iterator<Item = &'a str> + Clone, args: &Args) -> Result<&'a str> {
    let mut tried = names.clone();
    match (tried.next(), tried.next()) {
        (Some(one), None) => Ok(one),
        _ => {
            let names = names.collect::<Vec<_>>().join(", ");
            Err(Error::invalid(format!("say which with --stream: {} has {names}", print::path(&args.path))))
        }
    }
}

fn no_streams(args: &Args) -> Error {
    Error::invalid(format!("{} is one store and has no streams; leave --stream out", print::path(&args.path)))
}

/// The stream that is meant, and its name in a dataset.
fn choose<'a>(source: &'a Source, args: &'a Args) -> Result<(Option<&'a str>, &'a Stream)> {
    match (source, &args.stream) {
        (Source::Store(stream), None) => Ok((None, stream)),
        (Source::Store(_), Some(_)) => Err(no_streams(args)),
        (Source::Dataset(dataset), name) => {
            let name = match name {
                Some(name) => &name[..],
                None => only(dataset.streams().iter().map(|(name, _)| &name[..]), args)?,
            };
            let found = dataset.stream(name).map(|stream| (Some(name), stream));
            found.ok_or_else(|| Error::invalid(format!("{} has no stream {name:?}", print::path(&args.path))))
        }
    }
}

/// Writes a batch; `stream` is its name in a dataset.
fn write(args: &Args, stream: Option<&str>, typed: Option<(&DType, Vec<u64>)>, count: usize, bytes: &[u8]) -> Done {
    let header = match (&args.npy, typed) {
        (None, _) => Vec::new(),
        (Some(_), Some((dtype, shape))) => {
            let shape: Vec<u64> = std::iter::once(count as u64).chain(shape).collect();
            npy::header_bytes(dtype, &shape)
        }
        (Some(_), None) => {
            let path = print::path(&args.path);
            let what = stream.map_or_else(|| path.to_string(), |name| format!("stream {name:?} of {path}"));
            let reason =
                "has no records of one type and shape, so they are no array; leave --npy out to have their bytes";
            return Err(Error::invalid(format!("{what} {reason}")).into());
        }
    };
    if let Some(to) = args.npy.as_deref().filter(|to| !is_stdin(to)) {
        return Ok(write_file(to, args.force, &[&header, bytes])?);
    }
    let mut out = io::stdout().lock();
    if out.is_terminal() {
        return Err(Error::invalid("a batch is bytes; send it to a file or a pipe, or give --npy FILE").into());
    }
    out.write_all(&header)?;
    Ok(out.write_all(bytes)?)
}

fn write_file(to: &Path, replace: bool, parts: &[&[u8]]) -> Result<()> {
    let opened = if replace { File::create(to) } else { File::create_new(to) };
    let file = opened.map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists { path: to.to_path_buf() },
        _ => Error::io("create", to)(e),
    })?;
    let mut file = BufWriter::new(file);
    let put = parts.iter().try_for_each(|part| file.write_all(part)).and_then(|()| file.flush());
    put.map_err(|e| {
        if !replace {
            // Half an array is none, and this one was not there before.
            let _ = std::fs::remove_file(to);
        }
        Error::io("write", to)(e)
    })
}
