//! `zrfs cat`.

use super::{Done, show};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use zrfs::dataset::DATA_STREAM;
use zrfs::tree::{NodeKind, Tree};
use zrfs::{Dataset, Error, Result, Selection, Source, Stream};

/// Print records or files
///
/// On a terminal an array is printed the way numpy would; into a pipe or file go its bytes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs cat images.zr 17
  zrfs cat images.zr -1 0-9 10:100:30     the last one, ten, a slice
  zrfs cat docs.zr base-files/README
  zrfs cat docs.zr ./17                   the file called 17, not record 17
  zrfs cat --stream label --raw train.zr 17 | xxd")]
pub(super) struct Args {
    /// A store or dataset
    store: PathBuf,
    /// Indices of records, or paths of files in a dataset packed from files
    #[arg(value_name = "INDEX|PATH", required = true, allow_hyphen_values = true)]
    what: Vec<PathBuf>,
    /// Read this stream of a dataset
    #[arg(long)]
    stream: Option<String>,
    /// Print bytes on a terminal too
    #[arg(long)]
    raw: bool,
}

pub(super) fn run(args: &Args) -> Done {
    if let Some(option) = args.what.iter().find(|what| what.as_os_str().as_encoded_bytes().starts_with(b"--")) {
        let option = option.display();
        let reason =
            format!("options come before the store and the indices; for a file of that name, write ./{option}");
        return Err(Error::invalid(format!("{option}: {reason}")).into());
    }
    let source = Source::open_checked(&args.store)?;
    let mut out = io::stdout().lock();
    let raw = args.raw || !out.is_terminal();
    for what in &args.what {
        match (index(what), &source) {
            (Some(index), _) => {
                let stream = stream(&source, args.stream.as_deref())?;
                if let (true, Source::Dataset(dataset)) = (index >= stream.len(), &source)
                    && let Some(tree) = dataset.tree()
                    && tree.resolve(what.as_os_str().as_encoded_bytes())?.is_some()
                {
                    let (index, len) = (what.display(), stream.len());
                    let reason = format!("there is no record {index} among {len}; the file of that name is ./{index}");
                    return Err(Error::invalid(reason).into());
                }
                record(&mut out, stream, index, raw)?;
            }
            (None, Source::Dataset(dataset)) if dataset.tree().is_some() => match several(what) {
                // What is a file's name is a file's name.
                Some(selection) if dataset.tree().is_some_and(|tree| !has_file(tree, what)) => {
                    records(&mut out, stream(&source, args.stream.as_deref())?, &selection, raw)?;
                }
                _ => file(&mut out, dataset, what)?,
            },
            (None, _) => match several(what) {
                Some(selection) => records(&mut out, stream(&source, args.stream.as_deref())?, &selection, raw)?,
                None => {
                    let (store, what) = (args.store.display(), what.display());
                    let reason =
                        format!("{what} is not an index, and {store} has no paths: it was not packed from files");
                    return Err(Error::invalid(reason).into());
                }
            },
        }
    }
    Ok(())
}

/// An index in its one spelling: decimal, no sign, no leading zero.
fn index(what: &std::path::Path) -> Option<u64> {
    let text = what.to_str()?;
    text.parse().ok().filter(|index: &u64| index.to_string() == text)
}

/// Several indices, or one counted from the end.
fn several(what: &std::path::Path) -> Option<Selection> {
    what.to_str()?.parse().ok()
}

fn has_file(tree: &Tree, what: &std::path::Path) -> bool {
    matches!(tree.resolve(what.as_os_str().as_encoded_bytes()), Ok(Some(_)))
}

fn records(out: &mut impl Write, stream: &Stream, selection: &Selection, raw: bool) -> Done {
    for read in stream.iter(selection)? {
        let (index, bytes) = read?;
        print(out, stream, index, &bytes, raw)?;
    }
    Ok(())
}

fn stream<'a>(source: &'a Source, name: Option<&str>) -> Result<&'a Stream> {
    let path = source.path().display();
    match (source, name) {
        (Source::Store(stream), None) => Ok(stream),
        (Source::Store(_), Some(_)) => Err(Error::invalid(format!("{path} is one store and has no streams"))),
        (Source::Dataset(dataset), name) => {
            let names = || dataset.streams().iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>().join(", ");
            match (name.or(dataset.tree().map(|_| DATA_STREAM)), dataset.streams()) {
                (Some(name), _) => dataset
                    .stream(name)
                    .ok_or_else(|| Error::invalid(format!("{path} has no stream {name:?}; it has {}", names()))),
                (None, [(_, only)]) => Ok(only),
                (None, _) => Err(Error::invalid(format!("say which with --stream: {path} has {}", names()))),
            }
        }
    }
}

fn record(out: &mut impl Write, stream: &Stream, index: u64, raw: bool) -> Done {
    let bytes = stream.store().read(index)?;
    print(out, stream, index, &bytes, raw)
}

fn print(out: &mut impl Write, stream: &Stream, index: u64, bytes: &[u8], raw: bool) -> Done {
    match (stream.schema(), raw) {
        (Some(schema), false) => {
            let shape = stream.shape(index)?.unwrap_or_default();
            writeln!(out, "{}", show::array(&schema.dtype, &shape, bytes))?;
        }
        _ => out.write_all(bytes)?,
    }
    Ok(())
}

fn file(out: &mut impl Write, dataset: &Dataset, what: &std::path::Path) -> Done {
    use std::os::unix::ffi::OsStrExt;
    let missing =
        |reason: &str| Error::invalid(format!("{} in {}: {reason}", what.display(), dataset.path().display()));
    let (Some(tree), Some(data)) = (dataset.tree(), dataset.stream(DATA_STREAM)) else {
        return Err(missing("the dataset has no tree").into());
    };
    // `./x` is how a file whose name looks like an index is meant.
    let path = what.as_os_str().as_bytes();
    let path = path.strip_prefix(b"./").unwrap_or(path);
    let id = tree.resolve(path)?.ok_or_else(|| missing("there is no such file"))?;
    match tree.node(id)?.kind {
        NodeKind::File { first, records, .. } => {
            for index in first..first + records {
                out.write_all(&data.store().read(index)?)?;
            }
            Ok(())
        }
        NodeKind::Dir { .. } => Err(missing("it is a directory").into()),
        NodeKind::Symlink { target } => {
            let target = super::print::path_bytes(&target);
            Err(missing(&format!("it is a symbolic link to {target}")).into())
        }
    }
}
