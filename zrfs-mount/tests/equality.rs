//! Random batches through a real kernel mount, by every way that there is: views in shared memory and by their files, and
//! files below `batches`. They are the engine's. Many more, of random stores, are in `src/fs/equality_tests.rs`.

// Each test program uses a part of it.
#[allow(dead_code, unused_imports)]
mod common;

use common::random::{Form, Made, Stores, Wanted, is_native, natives, numbers, wanted};
use common::{Mount, TempDir, run, succeeds};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::path::Path;
use zrfs::format::Codec;
use zrfs::{Source, client};

/// Records of a batch that is not too large.
const MOST: usize = 5000;

/// A dataset of every form, and stores of one each; of every codec together.
fn all_stores() -> Vec<Stores> {
    let forms = [Form::Dense(vec![3, 5]), Form::Ragged(true), Form::Bytes, Form::Dense(vec![]), Form::Ragged(false)];
    let made = |seed: u64, codec: usize| {
        let (form, dtype) = (forms[seed as usize % 5].clone(), ["<f4", ">i2", "|u1"][seed as usize % 3]);
        Made { form, dtype, codec: Codec::ALL[codec % 3], longest: 60 + 30 * seed, seed }
    };
    let streams = (0..5).map(|k| made(k, k as usize)).collect();
    let alone = (0..3).map(|k| Stores { streams: vec![made(k, k as usize + 1)], dataset: false, count: 300 });
    alone.chain([Stores { streams, dataset: true, count: 500 }]).collect()
}

/// Batches of a mount by one way or another, each beside the engine's.
fn check(cases: u32, source: &Source, each: impl Fn(&Wanted)) {
    assert!(!source.is_empty());
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let batches = prop::collection::vec(wanted(), 1..4);
    let run = TestRunner::new(config).run(&batches, |batches| {
        batches.iter().for_each(&each);
        Ok(())
    });
    run.unwrap_or_else(|e| panic!("{}: {e}", source.path().display()));
}

/// That the views of a mount are the engine's, of all streams and of one.
fn views_are(views: &client::Mount, source: &Source, wanted: &Wanted) {
    let order = wanted.order(source.len(), MOST);
    let indices = &order.indices[..];
    let want = natives(source, indices);
    let batch = views.gather(indices).unwrap();
    is_native(&batch, indices, &want);
    let one = indices.len() % want.len();
    is_native(&views.stream(&want[one].name).unwrap().gather(indices).unwrap(), indices, &want[one..=one]);
    if let Some((spec, step, length)) = &order.drawn {
        let drawn = match length {
            Some(length) => views.sample_among(*length, spec, *step),
            None => views.sample(spec, *step),
        };
        is_native(&drawn.unwrap(), indices, &want);
    }
    // The first one is untouched by the others.
    is_native(&batch, indices, &want);
}

/// That the files below `batches` are.
fn paths_are(mount: &Mount, source: &Source, wanted: &Wanted) {
    let order = wanted.order(source.len(), MOST);
    let Some(path) = order.path else { return };
    let read = |path: String| std::fs::read(mount.mountpoint().join("batches").join(&path)).unwrap();
    let count = order.indices.len() as u64;
    assert!(read(format!("{path}.indices.npy")) == numbers(&[count], &order.indices), "{path}");
    for native in natives(source, &order.indices) {
        let front = if matches!(source, Source::Dataset(_)) { format!("{path}/{}", native.name) } else { path.clone() };
        for (end, want) in native.files() {
            assert!(read(format!("{front}{end}")) == want, "{front}{end}");
        }
    }
}

/// What the next test runs in a network of its own, where the mount's socket can't be reached.
#[test]
#[ignore = "a part of every_batch_is_the_engines"]
fn by_file_alone() {
    let [at, stores] = ["ZRFS_TEST_AT", "ZRFS_TEST_STORES"].map(|name| std::env::var_os(name).unwrap());
    let (views, source) = (client::Mount::open(at).unwrap(), Source::open(stores).unwrap());
    check(6, &source, |wanted| views_are(&views, &source, wanted));
}

#[test]
fn every_batch_is_the_engines() {
    let dir = TempDir::new().unwrap();
    let me = std::env::current_exe().unwrap();
    for (k, stores) in all_stores().iter().enumerate() {
        let path = dir.path().join(k.to_string());
        stores.make(&path);
        let (mount, source) = (Mount::new(&path, &[]), Source::open(&path).unwrap());
        let views = client::Mount::open(mount.mountpoint()).unwrap();
        check(16, &source, |wanted| {
            views_are(&views, &source, wanted);
            paths_are(&mount, &source, wanted);
        });
        let (at, stores) = (format!("ZRFS_TEST_AT={}", mount.path()), format!("ZRFS_TEST_STORES={}", path.display()));
        let args = ["-n", "env", &at, &stores, me.to_str().unwrap(), "--ignored", "--exact", "by_file_alone"];
        assert!(succeeds(&run("unshare", &args)).contains("1 passed"));
    }
}

/// Every codec and kind, as loaderx writes them.
#[test]
fn stores_of_loaderx_too() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/stores");
    let mut seen = 0;
    for entry in std::fs::read_dir(golden).unwrap() {
        let path = entry.unwrap().path();
        let (mount, source) = (Mount::new(&path, &[]), Source::open(&path).unwrap());
        let views = client::Mount::open(mount.mountpoint()).unwrap();
        if source.is_empty() {
            assert!(views.gather(&[]).unwrap().is_empty());
            assert!(views.sample(&"cyclic,batch=4".parse().unwrap(), 0).is_err());
        } else {
            check(5, &source, |wanted| {
                views_are(&views, &source, wanted);
                paths_are(&mount, &source, wanted);
            });
        }
        seen += 1;
    }
    assert!(seen >= 6, "{seen}");
}
