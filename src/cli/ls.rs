//! `zrfs ls`.

use super::{Done, print};
use serde_json::json;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use zrfs::dataset::{DATA_STREAM, PATH_STREAM};
use zrfs::format::Entry;
use zrfs::{Error, Result, Source, Stream};

/// So many records are looked up together.
const BLOCK: u64 = 4096;

/// List records: index, size, stored size, ratio, and shape or path
///
/// Of a dataset packed from files, the files' records are listed, each with the path of its file; of another dataset,
/// the records of each stream.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs ls docs.zr | head
  zrfs ls train.zr --stream label
  zrfs ls docs.zr --json | jq -r 'select(.size > 1e6) | .path'")]
pub(super) struct Args {
    /// A store or dataset
    store: PathBuf,
    /// List this stream of a dataset
    #[arg(long)]
    stream: Option<String>,
    /// Print one JSON object a line, for programs
    #[arg(long)]
    json: bool,
}

/// What is listed: a stream, its name in a dataset, and the stream that has the paths of its records.
struct Listed<'a> {
    name: Option<&'a str>,
    stream: &'a Stream,
    paths: Option<&'a Stream>,
}

pub(super) fn run(args: &Args) -> Done {
    let source = Source::open(&args.store)?;
    let listed = choose(&source, args.stream.as_deref())?;
    let mut out = BufWriter::new(io::stdout().lock());
    if !args.json {
        writeln!(out, "{:>10} {:>12} {:>12} {:>6}  shape or path", "index", "size", "stored", "ratio")?;
    }
    for one in &listed {
        if let (Some(name), false, true) = (one.name, args.json, listed.len() > 1) {
            writeln!(out, "{name}:")?;
        }
        let len = one.stream.len();
        for start in (0..len).step_by(BLOCK as usize) {
            let indices: Vec<u64> = (start..len.min(start + BLOCK)).collect();
            let entries = one.stream.store().entries(&indices)?;
            let paths = one.paths.map(|paths| packed(paths, &indices)).transpose()?;
            for (k, (&index, entry)) in indices.iter().zip(&entries).enumerate() {
                let path = paths.as_ref().map(|paths| &paths[k][..]);
                line(&mut out, one, index, entry, path, args.json)?;
            }
        }
    }
    out.flush()?;
    Ok(())
}

fn choose<'a>(source: &'a Source, name: Option<&'a str>) -> Result<Vec<Listed<'a>>> {
    let dataset = match (source, name) {
        (Source::Store(stream), None) => return Ok(vec![Listed { name: None, stream, paths: None }]),
        (Source::Store(_), Some(_)) => {
            return Err(Error::invalid(format!("{} is one store and has no streams", source.path().display())));
        }
        (Source::Dataset(dataset), _) => dataset,
    };
    let paths = dataset.tree().and_then(|_| dataset.stream(PATH_STREAM));
    let listed = |(name, stream): &'a (String, Stream)| Listed {
        name: Some(name),
        stream,
        paths: paths.filter(|_| name == DATA_STREAM),
    };
    let name = name.or(paths.map(|_| DATA_STREAM));
    let found: Vec<_> =
        dataset.streams().iter().filter(|(n, _)| name.is_none_or(|name| n == name)).map(listed).collect();
    if found.is_empty() {
        let names: Vec<&str> = dataset.streams().iter().map(|(n, _)| n.as_str()).collect();
        let (path, name) = (source.path().display(), name.unwrap_or_default());
        return Err(Error::invalid(format!("{path} has no stream {name:?}; it has {}", names.join(", "))));
    }
    Ok(found)
}

/// The bytes of each of the records `indices`.
fn packed(stream: &Stream, indices: &[u64]) -> Result<Vec<Vec<u8>>> {
    let (bytes, offsets) = stream.store().gather_packed(indices)?;
    let ends = offsets.iter().skip(1).copied().chain([bytes.len() as u64]);
    Ok(offsets.iter().zip(ends).map(|(&from, to)| bytes[from as usize..to as usize].to_vec()).collect())
}

fn line(
    out: &mut impl Write,
    listed: &Listed<'_>,
    index: u64,
    entry: &Entry,
    path: Option<&[u8]>,
    as_json: bool,
) -> Done {
    let (size, stored) = (entry.logic_length, entry.phys_length);
    let shape = if path.is_none() { listed.stream.shape(index)? } else { None };
    if as_json {
        let mut object = json!({ "index": index, "size": size, "stored": stored });
        if let Some(name) = listed.name {
            object["stream"] = name.into();
        }
        if let Some(shape) = shape {
            object["shape"] = shape.into();
        }
        if let Some(path) = path {
            object["path"] = String::from_utf8_lossy(path).into();
            if std::str::from_utf8(path).is_err() {
                // JSON has no bytes: the exact name is given byte by byte.
                object["path_bytes"] = path.into();
            }
        }
        writeln!(out, "{object}")?;
        return Ok(());
    }
    let last = match (path, shape) {
        (Some(path), _) => print::path_bytes(path),
        (None, Some(shape)) => format!("{shape:?}"),
        (None, None) => "-".into(),
    };
    let ratio = f64::from(size) / f64::from(stored);
    writeln!(out, "{index:>10} {size:>12} {stored:>12} {ratio:>6.2}  {last}")?;
    Ok(())
}
