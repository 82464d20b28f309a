//! Errors and panics arrive at their step, after all earlier ones, and the loader goes on.

use super::*;
use crate::Error;
use crate::loader::Failure;

#[derive(Debug, thiserror::Error, PartialEq)]
#[error("odd number {0}")]
struct Odd(u64);

#[test]
fn a_transforms_error_arrives_at_its_step() {
    let stores = Stores::new();
    for workers in [0, 1, 4] {
        let builder = stores.builder().workers(workers).map(|batch| match batch.step() {
            step @ (3 | 4 | 9) => Err(Odd(step).into()),
            5 => panic!("five {}", batch.len()),
            6 => std::panic::panic_any(6),
            step => Ok(step),
        });
        let loader = builder.build().unwrap();
        for step in 0..15 {
            let next = loader.next().unwrap();
            match step {
                3 | 4 | 9 => {
                    let error = next.unwrap_err();
                    assert_eq!(error.step, step);
                    assert_eq!(error.to_string(), format!("step {step}: the transform failed: odd number {step}"));
                    let Failure::Transform(original) = error.failure else { panic!("{:?}", error.failure) };
                    assert_eq!(original.downcast_ref::<Odd>(), Some(&Odd(step)));
                }
                5 => assert_eq!(next.unwrap_err().to_string(), "step 5: the transform panicked: five 10"),
                6 => assert!(next.unwrap_err().to_string().contains("no text")),
                _ => assert_eq!(next.unwrap(), step),
            }
        }
        let stats = loader.stats().unwrap();
        assert_eq!((stats.batches, stats.failed), (10, 5));
        // The step can be tried again.
        loader.seek(9).unwrap();
        assert_eq!(loader.next().unwrap().unwrap_err().step, 9);
    }
}

#[test]
fn a_damaged_record_fails_its_step_and_is_named() {
    let stores = Stores::new();
    let chunk = stores.path("b.zr/0.chunk");
    let store = crate::Store::open(stores.path("b.zr")).unwrap();
    let entry = store.entry(42).unwrap();
    let mut bytes = std::fs::read(&chunk).unwrap();
    bytes[entry.offset as usize + 8] ^= 0xFF;
    std::fs::write(&chunk, bytes).unwrap();
    let loader = Loader::builder().source(stores.open("b.zr")).batch(10).workers(2);
    let loader = loader.mode(crate::sampler::Mode::Sequential).build().unwrap();
    for step in 0..9 {
        match loader.next().unwrap() {
            Ok(batch) => assert_eq!(batch.step(), step),
            Err(error) => {
                assert_eq!((step, error.step), (4, 4));
                let text = error.to_string();
                assert!(text.starts_with("step 4: stream b: record 42: ") && text.contains("0.chunk"), "{text}");
                let Failure::Read { error, .. } = error.failure else { panic!("{text}") };
                assert!(matches!(error, Error::Record { index: 42, .. }));
            }
        }
    }
    assert_eq!(loader.stats().unwrap().failed, 1);
}

#[test]
fn a_dense_record_of_another_length_is_named() {
    let stores = Stores::new();
    let path = stores.path("odd.zr");
    dense(&path, 20, Codec::Raw);
    // As a writer who knows nothing of types would.
    let mut writer = options(Codec::Raw).open(&path).unwrap();
    writer.append(&[&[1, 2, 3]]).unwrap();
    writer.append(&[&[1, 2, 3, 4]]).unwrap();
    writer.close().unwrap();
    let loader = Loader::builder().source(Source::open(&path).unwrap()).batch(11).workers(1);
    let loader = loader.mode(crate::sampler::Mode::Sequential).build().unwrap();
    check(&loader.next().unwrap().unwrap());
    let text = loader.next().unwrap().unwrap_err().to_string();
    assert!(text.contains("step 1: stream odd: record 20: ") && text.contains("3 bytes"), "{text}");
    check(&loader.next().unwrap().unwrap());
}

#[test]
fn what_panics_when_it_is_dropped_ends_the_loader_rather_than_hang_it() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("dropped");
            }
        }
    }
    let stores = Stores::new();
    within(Duration::from_secs(20), move || {
        let loader = stores.builder().workers(1).prefetch(1).map(|_| Ok(Bomb)).build().unwrap();
        std::mem::forget(loader.next());
        // While a worker makes one, the loader moves: that worker has to drop it.
        for step in 0..200 {
            let moved = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| loader.seek(step)));
            if loader.next().map(std::mem::forget).is_none() {
                break;
            }
            drop(moved);
        }
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(loader)));
    });
}
