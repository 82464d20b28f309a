//! The loader against the plain thing: a sampler's indices, and each record read by itself.

mod failures;
mod life;
mod order;
mod queue;
mod shapes;
mod states;

use super::{Batch, Loader, LoaderBuilder};
use crate::dataset::{DenseWriter, RaggedWriter, Source};
use crate::format::Codec;
use crate::format::dtype::DType;
use crate::store::WriterOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Records of the test stores.
const N: u64 = 103;

/// A place with a dense store of u16 pairs (`d.zr`), a ragged one of i32 (`r.zr`), one of plain bytes (`b.zr`), and a
/// dataset of two streams (`set`).
struct Stores {
    dir: tempfile::TempDir,
}

impl Stores {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        dense(&at("d.zr"), N, Codec::Raw);
        let mut ragged = RaggedWriter::create(&at("r.zr"), options(Codec::Zstd), dtype("<i4")).unwrap();
        for i in 0..N {
            let (shape, bytes) = ragged_record(i);
            ragged.append(&[(&shape, &bytes)]).unwrap();
        }
        ragged.close().unwrap();
        let mut bytes = options(Codec::Zstd).create(at("b.zr")).unwrap();
        bytes
            .append(&(0..N).map(byte_record).collect::<Vec<_>>().iter().map(Vec::as_slice).collect::<Vec<_>>())
            .unwrap();
        bytes.close().unwrap();
        std::fs::create_dir(at("set")).unwrap();
        dense(&at("set/x"), N, Codec::Zstd);
        dense(&at("set/y"), N, Codec::Raw);
        Stores { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn open(&self, name: &str) -> Source {
        Source::open(self.path(name)).unwrap()
    }

    /// Over the dense store, batches of 10.
    fn builder(&self) -> LoaderBuilder {
        Loader::builder().source(self.open("d.zr")).batch(10).workers(2).prefetch(3)
    }
}

fn options(codec: Codec) -> WriterOptions {
    WriterOptions::new(codec)
}

fn dtype(text: &str) -> DType {
    DType::parse(text).unwrap()
}

/// A dense store of `n` records of 2 u16.
fn dense(path: &Path, n: u64, codec: Codec) {
    let mut writer = DenseWriter::create(path, options(codec), dtype("<u2"), vec![2]).unwrap();
    writer.append(&(0..n).flat_map(dense_record).collect::<Vec<u8>>()).unwrap();
    writer.close().unwrap();
}

fn dense_record(i: u64) -> Vec<u8> {
    let [low, high] = (i as u16).to_le_bytes();
    vec![low, high, low ^ 0xAA, high ^ 0x55]
}

/// Of i mod 4 + 1 rows of i mod 3 + 1.
fn ragged_record(i: u64) -> (Vec<u64>, Vec<u8>) {
    let shape = vec![i % 4 + 1, i % 3 + 1];
    let items = 0..(shape[0] * shape[1]) as i32;
    (shape, items.flat_map(|k| (i as i32 * 100 + k).to_le_bytes()).collect())
}

fn byte_record(i: u64) -> Vec<u8> {
    format!("record {i}").repeat((i % 5 + 1) as usize).into_bytes()
}

/// What is in a dense batch, which must be whole.
#[track_caller]
fn check(batch: &Batch) {
    for part in batch.parts() {
        let wanted: Vec<u8> = batch.indices().iter().flat_map(|&i| dense_record(i)).collect();
        assert_eq!(part.bytes(), wanted, "step {}", batch.step());
    }
}

/// The indices of the next `n` batches, each of which is checked.
#[track_caller]
fn indices(loader: &Loader, n: usize) -> Vec<(u64, Vec<u64>)> {
    let batches = loader.iter().take(n).map(|batch| {
        let batch = batch.unwrap();
        check(&batch);
        (batch.step(), batch.indices().to_vec())
    });
    batches.collect()
}

/// Does `work` on another thread, and fails if that hangs.
#[track_caller]
fn within<R: Send + 'static>(limit: Duration, work: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, result) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _ = done.send(work());
    });
    match result.recv_timeout(limit) {
        Ok(result) => result,
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(_) => std::panic::resume_unwind(thread.join().unwrap_err()),
    }
}

#[test]
fn loaders_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Loader>();
    shared::<Batch>();
    shared::<super::LoadError>();
    shared::<super::Stopper>();
    shared::<Arc<Loader<Vec<f32>>>>();
}
