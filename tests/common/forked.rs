//! Writers in forked children, which are cheap to start and may be killed at any moment.
#![allow(dead_code)] // Each test binary uses its own part.

#[path = "child.rs"]
mod child;

#[allow(unused_imports)]
pub use child::{fork, wait};

use std::io::Write;
use std::path::Path;
use zrfs::dataset::{Batch, DenseWriter, RaggedWriter, StreamWriter};
use zrfs::format::Codec;
use zrfs::format::dtype::DType;
use zrfs::pack::Progress;
use zrfs::{Dataset, DatasetWriter, Error, Result, Stream, WriterOptions};

/// Kills a child; it must not have ended by itself.
pub fn kill(child: libc::pid_t) {
    // SAFETY: the child was not waited for, so the number is still its own.
    unsafe { libc::kill(child, libc::SIGKILL) };
    let status = wait(child);
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL, "it ended by itself: {status:#x}");
}

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A store of plain bytes.
    Bytes,
    /// A ragged store.
    Ragged,
    /// A dataset of a dense, a ragged and a plain stream.
    Dataset,
}

/// A kind of writer, open.
pub enum AnyWriter {
    /// Of one store.
    Stream(Box<StreamWriter>),
    /// Of three.
    Dataset(DatasetWriter),
}

/// A record's content, which follows from its number and begins with it.
pub fn record(id: u64) -> Vec<u8> {
    let len = 12 + (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57) as usize;
    id.to_le_bytes().into_iter().cycle().take(len).collect()
}

/// A record's shape.
pub fn shape(id: u64) -> Vec<u64> {
    let n = record(id).len() as u64;
    [vec![n], vec![1, n], vec![n, 1]][id as usize % 3].clone()
}

/// Which records the deletion that is called `id` takes from a store of `len`: from the lowest to the highest.
pub fn doomed(id: u64, len: u64) -> Vec<u64> {
    (0..len).filter(|i| (i * 31 + id).is_multiple_of(3)).collect()
}

/// Deletes from a model.
pub fn delete_from(model: &mut Vec<u64>, doomed: &[u64]) {
    for &i in doomed.iter().rev() {
        model.swap_remove(i as usize);
    }
}

impl Kind {
    /// Creates what is written, empty.
    pub fn create(self, path: &Path, codec: Codec) {
        let (options, u1) = (|| WriterOptions::new(codec), || DType::parse("|u1").unwrap());
        match self {
            Kind::Bytes => options().create(path).unwrap().close().unwrap(),
            Kind::Ragged => RaggedWriter::create(path, options(), u1()).unwrap().close().unwrap(),
            Kind::Dataset => {
                std::fs::create_dir(path).unwrap();
                DenseWriter::create(&path.join("a"), options(), u1(), vec![12]).unwrap().close().unwrap();
                RaggedWriter::create(&path.join("b"), options(), u1()).unwrap().close().unwrap();
                options().create(path.join("c")).unwrap().close().unwrap();
            }
        }
    }

    /// Opens it to write.
    pub fn open(self, path: &Path) -> Result<AnyWriter> {
        let options = WriterOptions::new(Codec::Raw);
        Ok(match self {
            Kind::Dataset => AnyWriter::Dataset(DatasetWriter::open(path, &options)?),
            Kind::Bytes | Kind::Ragged => AnyWriter::Stream(Box::new(StreamWriter::open(path, options)?)),
        })
    }

    /// Compacts it; nobody may have it open.
    pub fn compact(self, path: &Path) -> Result<()> {
        let streams = if self == Kind::Dataset { &["a", "b", "c"][..] } else { &[""] };
        for name in streams {
            WriterOptions::new(Codec::Raw).open(path.join(name))?.compact(&Progress::default())?;
        }
        Ok(())
    }

    /// The numbers of all records, each compared to the last byte, and aligned over the streams.
    pub fn read(self, path: &Path) -> Result<Vec<u64>> {
        if self != Kind::Dataset {
            return numbers(&Stream::open(path)?);
        }
        let dataset = Dataset::open_with(&zrfs::OpenOptions::new(), path)?;
        let streams: Vec<Vec<u64>> =
            dataset.streams().iter().map(|(_, stream)| numbers(stream)).collect::<Result<_>>()?;
        assert!(streams.iter().all(|numbers| *numbers == streams[0]), "the streams are not aligned: {streams:?}");
        Ok(streams[0].clone())
    }
}

fn numbers(stream: &Stream) -> Result<Vec<u64>> {
    let number = |index| {
        let bytes = stream.store().read(index)?;
        let id = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let dense = matches!(stream.schema().map(|s| &s.kind), Some(zrfs::format::Kind::Dense { .. }));
        let whole = record(id);
        assert_eq!(bytes, if dense { &whole[..12] } else { &whole[..] }, "record {index}");
        if !dense && let Some(found) = stream.shape(index)? {
            assert_eq!(found, shape(id), "the shape of record {index}");
        }
        Ok(id)
    };
    (0..stream.len()).map(number).collect()
}

impl AnyWriter {
    /// Appends the records of these numbers.
    pub fn append(&mut self, ids: impl IntoIterator<Item = u64>) -> Result<()> {
        let ids: Vec<u64> = ids.into_iter().collect();
        let records: Vec<Vec<u8>> = ids.iter().map(|&id| record(id)).collect();
        let shapes: Vec<Vec<u64>> = ids.iter().map(|&id| shape(id)).collect();
        let bytes: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let ragged: Vec<(&[u64], &[u8])> = shapes.iter().zip(&bytes).map(|(s, b)| (&s[..], *b)).collect();
        let dense: Vec<u8> = bytes.iter().flat_map(|b| b[..12].iter().copied()).collect();
        match self {
            AnyWriter::Stream(writer) if writer.schema().is_some() => writer.append(&Batch::Ragged(&ragged)),
            AnyWriter::Stream(writer) => writer.append(&Batch::Bytes(&bytes)),
            AnyWriter::Dataset(writer) => writer.append(&[
                ("a", Batch::Dense(&dense)),
                ("b", Batch::Ragged(&ragged)),
                ("c", Batch::Bytes(&bytes)),
            ]),
        }
    }
    pub fn delete(&mut self, indices: &[u64]) -> Result<()> {
        match self {
            AnyWriter::Stream(writer) => writer.delete(indices),
            AnyWriter::Dataset(writer) => writer.delete(indices),
        }
    }
    pub fn sync(&mut self) -> Result<()> {
        match self {
            AnyWriter::Stream(writer) => writer.sync(),
            AnyWriter::Dataset(writer) => writer.sync(),
        }
    }
    pub fn close(self) -> Result<()> {
        match self {
            AnyWriter::Stream(writer) => writer.close(),
            AnyWriter::Dataset(writer) => writer.close(),
        }
    }
    pub fn len(&self) -> u64 {
        match self {
            AnyWriter::Stream(writer) => writer.len(),
            AnyWriter::Dataset(writer) => writer.len(),
        }
    }
}

/// Says something on a child's standard error, past what a test harness catches.
pub fn complain(error: &Error) {
    let _ = writeln!(std::io::stderr().lock(), "{error}");
}

/// How long a test goes on: so many seconds, or as the environment has it.
pub fn seconds(variable: &str, usual: u64) -> std::time::Duration {
    let asked = std::env::var(variable).ok().map(|n| n.parse().unwrap_or_else(|e| panic!("{variable}: {e}")));
    std::time::Duration::from_secs(asked.unwrap_or(usual))
}
