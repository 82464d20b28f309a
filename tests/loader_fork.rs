//! A process that forks while a loader runs: the child is told, and nothing there waits for threads that it does not have.

#[path = "common/child.rs"]
mod child;

use child::{alone, ends_well, fork};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zrfs::dataset::DenseWriter;
use zrfs::format::Codec;
use zrfs::format::dtype::DType;
use zrfs::loader::{Batch, Failure};
use zrfs::{Loader, Source, WriterOptions};

fn make(path: &Path) {
    let dtype = DType::parse("|u1").unwrap();
    let mut writer = DenseWriter::create(path, WriterOptions::new(Codec::Zstd), dtype, vec![512]).unwrap();
    writer.append(&(0..500u32).flat_map(|i| vec![i as u8; 512]).collect::<Vec<u8>>()).unwrap();
    writer.close().unwrap();
}

fn open(path: &Path) -> Arc<Source> {
    Arc::new(Source::open(path).unwrap())
}

fn loader(source: &Arc<Source>, workers: usize) -> Loader {
    Loader::builder().source(source.clone()).batch(50).workers(workers).prefetch(2).build().unwrap()
}

fn is_right(batch: &Batch) -> bool {
    let part = &batch.parts()[0];
    batch.indices().iter().enumerate().all(|(k, &i)| part.record(k) == Some(&[i as u8; 512][..]))
}

/// Forks; the child does `work` and must end well.
#[track_caller]
fn in_child(what: &str, work: impl FnOnce() -> bool) {
    ends_well(fork(work), what);
}

/// Everything that one can do with an inherited loader.
fn is_told(loader: Loader, batch: Batch) -> bool {
    let first = loader.next();
    let Some(Err(error)) = first else { return false };
    let told = matches!(error.failure, Failure::Forked(parent) if parent != std::process::id());
    let text = error.to_string();
    let state = loader.state();
    let refused = state.is_err() && loader.stats().is_err() && loader.seek(1).is_err();
    loader.stopper().stop();
    loader.close();
    let ended = loader.next().is_none() && loader.iter().count() == 0;
    drop(loader);
    // The batch of the parent is whole here as well, and can be dropped.
    let whole = is_right(&batch);
    drop(batch);
    told && refused && ended && whole && text.contains("of which this is a fork")
}

#[test]
fn a_child_is_told_and_makes_its_own() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    make(&path);
    let source = open(&path);
    for n in 0..40 {
        for workers in [0, 1, 4] {
            let mut inherited = Some(loader(&source, workers));
            let mut batch = Some(inherited.as_ref().unwrap().next().unwrap().unwrap());
            in_child(&format!("fork {n}, {workers} workers"), || {
                let told = is_told(inherited.take().unwrap(), batch.take().unwrap());
                // Over the store that the parent opened, which its workers may just be reading.
                let own = loader(&source, n % 3);
                let loaded = own.iter().take(20).all(|batch| batch.is_ok_and(|batch| is_right(&batch)));
                drop(own);
                told && loaded
            });
            // The parent goes on.
            let loader = inherited.unwrap();
            assert!(loader.iter().take(5).all(|batch| is_right(&batch.unwrap())));
            assert_eq!(loader.state().unwrap().step(), 6);
        }
    }
}

#[test]
fn a_fork_may_come_at_any_moment() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    make(&path);
    let (busy, stop) = (loader(&open(&path), 3), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(is_right(&busy.next().unwrap().unwrap()));
                let state = busy.state().unwrap();
                if state.step() % 16 == 0 {
                    busy.restore(&state).unwrap();
                }
            }
        });
        for n in 0..100 {
            in_child(&format!("fork {n}"), || {
                let told = busy.next().is_some_and(|batch| batch.is_err()) && busy.next().is_none();
                busy.close();
                told && busy.state().is_err()
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
}
