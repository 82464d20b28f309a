//! `zrfs rm`.

use super::{Done, print, stores};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use zrfs::dataset::{DatasetWriter, StreamWriter};
use zrfs::format::Codec;
use zrfs::pack::{array, is_stdin};
use zrfs::{Error, Result, Selection, Source, WriterOptions};

/// Remove records from a store or dataset
///
/// The last records take the places of those that are removed: their indices change, those of all others stay. From a
/// dataset the records of all streams are removed. Nobody may be reading the store meanwhile, and no mount may show it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zrfs rm images.zr 17
  zrfs rm images.zr 5,17,0-9,-1 1000:2000:2
  zrfs rm images.zr --from bad-indices.txt
  zrfs rm images.zr --mask too-dark.npy --dry-run

Indices: 17, -1 (the last), 0-9 (ten records), slices as in Python (10:100:2, -5:). The space of removed records stays
taken until `zrfs compact`.")]
pub(super) struct Args {
    /// The store or dataset
    store: PathBuf,
    /// Indices of records
    #[arg(value_name = "INDICES", allow_hyphen_values = true)]
    indices: Vec<Selection>,
    /// Read indices from a file, one or more a line; - for standard input
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Remove the records for which an array of bools, one a record, is true
    #[arg(long, value_name = "FILE.npy")]
    mask: Option<PathBuf>,
    /// Say what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Remove from a store although the stores beside it have as many records, as the streams of a dataset have
    #[arg(long)]
    alone: bool,
    /// Print nothing but warnings and errors
    #[arg(short, long)]
    quiet: bool,
}

/// What records are removed from.
enum Writer {
    Store(Box<StreamWriter>),
    Dataset(Box<DatasetWriter>),
}

pub(super) fn run(args: &Args) -> Done {
    let is_dataset = stores::is_dataset(&args.store)?;
    stores::refuse_stream(&args.store, args.alone)?;
    let mut parts = args.indices.clone();
    if let Some(path) = &args.from {
        parts.extend(read_lines(path)?);
    }
    if let Some(path) = &args.mask {
        parts.push(read_mask(path)?);
    }
    if parts.is_empty() {
        let reason = match &args.from {
            Some(path) => format!("{} names no record", path.display()),
            None => "give the records to remove: zrfs rm STORE INDICES, or --from FILE, or --mask FILE.npy".into(),
        };
        return Err(Error::invalid(reason).into());
    }
    let selection = Selection::Parts(parts);
    if args.dry_run {
        let source = Source::open(&args.store)?;
        if let Source::Dataset(dataset) = &source
            && dataset.tree().is_some()
        {
            let reason = "was packed from files, and its paths are bound to its records; pack it again";
            return Err(Error::invalid(format!("{} {reason}", args.store.display())).into());
        }
        let doomed = distinct(&selection, source.len())?;
        eprintln!(
            "zrfs: {} of {} would be removed",
            print::count(doomed.len() as u64),
            print::counted(source.len(), "record")
        );
        return Ok(());
    }
    let options = WriterOptions::new(Codec::Zstd);
    let mut writer = if is_dataset {
        Writer::Dataset(Box::new(DatasetWriter::open(&args.store, &options)?))
    } else {
        Writer::Store(Box::new(StreamWriter::open(&args.store, options)?))
    };
    let before = match &writer {
        Writer::Store(writer) => writer.len(),
        Writer::Dataset(writer) => writer.len(),
    };
    let doomed = distinct(&selection, before)?;
    match &mut writer {
        Writer::Store(writer) => writer.delete(&doomed)?,
        Writer::Dataset(writer) => writer.delete(&doomed)?,
    }
    match writer {
        Writer::Store(writer) => writer.close()?,
        Writer::Dataset(writer) => writer.close()?,
    }
    if !args.quiet {
        let removed = doomed.len() as u64;
        eprintln!(
            "zrfs: removed {}, {} left; the last ones took the freed indices; `zrfs compact {}` frees the space",
            print::counted(removed, "record"),
            print::count(before - removed),
            print::path(&args.store)
        );
    }
    Ok(())
}

/// The indices, each once.
fn distinct(selection: &Selection, length: u64) -> Result<Vec<u64>> {
    let mut indices = selection.resolve(length)?.to_vec();
    indices.sort_unstable();
    indices.dedup();
    Ok(indices)
}

fn read_lines(path: &Path) -> Result<Vec<Selection>> {
    let input: Box<dyn Read> = if is_stdin(path) {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(Error::io("open", path))?)
    };
    let mut parts = Vec::new();
    for (number, line) in BufReader::new(input).lines().enumerate() {
        let line = line.map_err(Error::io("read", path))?;
        for part in line.split(|c: char| c == ',' || c.is_whitespace()).filter(|part| !part.is_empty()) {
            let wrong = |reason| Error::invalid(format!("{}, line {}: {reason}", path.display(), number + 1));
            parts.push(part.parse().map_err(wrong)?);
        }
    }
    Ok(parts)
}

fn read_mask(path: &Path) -> Result<Selection> {
    let mut array = array::open(path)?;
    let records = array.records();
    if records.dtype().as_str() != "|b1" || !records.item_shape().is_empty() {
        let (dtype, shape) = (records.dtype().as_str(), records.item_shape());
        let reason =
            format!("{} has items of {dtype} and shape {shape:?}; a mask has one bool (|b1) a record", path.display());
        return Err(Error::invalid(reason));
    }
    let (len, mut bytes) = (records.len(), Vec::new());
    while array.read(len, &mut bytes)? > 0 {}
    Ok(Selection::Mask(bytes.iter().map(|&b| b != 0).collect()))
}
