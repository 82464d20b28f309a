//! `zrfs gather`.

use super::{Done, print};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use zrfs::client::Mount;
use zrfs::dataset::DATA_STREAM;
use zrfs::format::dtype::DType;
use zrfs::format::{Kind, npy};
use zrfs::{Error, Result, Selection, Source, Stream};

/// Gather records into one batch, from a mount or a store
///
/// The records' bytes go to standard output, one after the other, or as an array to an .npy file. On a mount the batch comes
/// in one piece through shared memory, as programs get it by ioctl.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs gather /mnt/images 5 17 0-9 > batch
  zrfs gather /mnt/images --npy batch.npy 10:100:30
  zrfs gather train.zr --stream label 5 17 | xxd")]
pub(super) struct Args {
    /// Write an array of records of one shape to this file
    #[arg(long, value_name = "FILE")]
    npy: Option<PathBuf>,
    /// Gather this stream of a dataset
    #[arg(long)]
    stream: Option<String>,
    /// A mounted store or dataset, or a store or dataset itself
    #[arg(value_name = "MOUNT|STORE")]
    path: PathBuf,
    /// Which: indices, lists, ranges and slices, as 5 17,0-9 -1 10:100:30
    #[arg(value_name = "INDEX", required = true, allow_hyphen_values = true)]
    which: Vec<Selection>,
}

pub(super) fn run(args: &Args) -> Done {
    match Mount::find(&args.path)? {
        Some(mount) => {
            let mount = match &args.stream {
                Some(name) => mount.stream(name)?,
                None if mount.chosen().is_some() => mount,
                None => mount.stream(only(mount.streams().iter().map(|stream| &stream.name[..]), args)?)?,
            };
            let batch = mount.gather(&indices(args, mount.records()?)?)?;
            let Some(part) = batch.parts().first() else { return Ok(()) };
            let shape = mount.chosen().and_then(|stream| stream.shape.clone());
            write(args, part.dtype().zip(shape), batch.len(), part.bytes())
        }
        None => {
            let source = Source::open_checked(&args.path)?;
            let stream = choose(&source, args)?;
            let indices = indices(args, stream.len())?;
            let (bytes, _) = stream.store().gather_packed(&indices)?;
            let typed = stream.schema().and_then(|schema| match &schema.kind {
                Kind::Dense { item_shape } => Some((&schema.dtype, item_shape.clone())),
                Kind::Ragged => None,
            });
            write(args, typed, indices.len(), &bytes)
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

/// The stream that is meant where none is said: the only one, or that of the files.
fn only<'a>(names: impl Iterator<Item = &'a str> + Clone, args: &Args) -> Result<&'a str> {
    let mut tried = names.clone();
    match (tried.next(), tried.next()) {
        (Some(one), None) => Ok(one),
        _ => names.clone().find(|name| *name == DATA_STREAM).ok_or_else(|| {
            let names = names.collect::<Vec<_>>().join(", ");
            Error::invalid(format!("say which with --stream: {} has {names}", print::path(&args.path)))
        }),
    }
}

fn choose<'a>(source: &'a Source, args: &Args) -> Result<&'a Stream> {
    let path = print::path(&args.path);
    match (source, &args.stream) {
        (Source::Store(stream), None) => Ok(stream),
        (Source::Store(_), Some(_)) => Err(Error::invalid(format!("{path} is one store and has no streams"))),
        (Source::Dataset(dataset), name) => {
            let name = match name {
                Some(name) => &name[..],
                None => only(dataset.streams().iter().map(|(name, _)| &name[..]), args)?,
            };
            dataset.stream(name).ok_or_else(|| Error::invalid(format!("{path} has no stream {name:?}")))
        }
    }
}

fn write(args: &Args, typed: Option<(&DType, Vec<u64>)>, count: usize, bytes: &[u8]) -> Done {
    let Some(to) = &args.npy else {
        let mut out = io::stdout().lock();
        if out.is_terminal() {
            return Err(Error::invalid("a batch is bytes; send it to a file or a pipe, or give --npy FILE").into());
        }
        return Ok(out.write_all(bytes)?);
    };
    let Some((dtype, shape)) = typed else {
        let path = print::path(&args.path);
        return Err(Error::invalid(format!("{path} has no records of one type and shape, so they are no array")).into());
    };
    let shape: Vec<u64> = std::iter::once(count as u64).chain(shape).collect();
    let put = || -> io::Result<()> {
        let mut file = BufWriter::new(File::create(to)?);
        file.write_all(&npy::header_bytes(dtype, &shape))?;
        file.write_all(bytes)?;
        file.flush()
    };
    Ok(put().map_err(Error::io("write", to))?)
}
