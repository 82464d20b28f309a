//! The right batches in the right order, whoever makes them.

use super::*;
use crate::sampler::{Mode, Sampler, Spec, Tail};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// The sampler's own batches.
fn drawn(spec: &str, n: usize) -> Vec<(u64, Vec<u64>)> {
    let mut sampler = Sampler::new(spec.parse().unwrap(), N).unwrap();
    sampler.batches().take(n).enumerate().map(|(step, batch)| (step as u64, batch.unwrap())).collect()
}

#[test]
fn batches_are_the_samplers_with_any_number_of_workers() {
    let stores = Stores::new();
    for spec in [
        "cyclic,batch=10,seed=5",
        "cyclic,batch=10,tail=keep",
        "cyclic,batch=7,tail=wrap",
        "sequential,batch=10",
        "sequential,batch=200",
        "iid,batch=9,seed=18446744073709551615",
        "iid_counter,batch=9,seed=0",
        "cyclic,batch=1",
        "cyclic,batch=103",
        "cyclic,batch=104",
        "cyclic,batch=10,rank=1,world=3,tail=keep",
        "cyclic,batch=2,rank=4,world=5",
    ] {
        let wanted = drawn(spec, 60);
        for (workers, prefetch) in [(0, 0), (0, 4), (1, 0), (1, 4), (2, 1), (8, 3)] {
            let builder = Loader::builder().spec(spec.parse().unwrap()).source(stores.open("set"));
            let loader = builder.workers(workers).prefetch(prefetch).build().unwrap();
            assert_eq!(indices(&loader, 60), wanted, "{spec}, {workers} workers");
        }
    }
}

#[test]
fn slow_workers_keep_the_order() {
    let stores = Stores::new();
    // Even steps take longer than odd ones.
    let builder = stores.builder().workers(4).transform(|batch| {
        std::thread::sleep(Duration::from_millis(if batch.step() % 2 == 0 { 5 } else { 0 }));
        Ok(())
    });
    let loader = builder.build().unwrap();
    assert_eq!(indices(&loader, 40), drawn("cyclic,batch=10", 40));
}

#[test]
fn in_completion_order_each_step_comes_once() {
    let stores = Stores::new();
    let builder = stores.builder().workers(4).in_completion_order().transform(|batch| {
        std::thread::sleep(Duration::from_millis(if batch.step() % 8 == 0 { 30 } else { 0 }));
        Ok(())
    });
    let loader = builder.build().unwrap();
    let got = indices(&loader, 80);
    let steps: Vec<u64> = got.iter().map(|(step, _)| *step).collect();
    assert!(!steps.is_sorted(), "nothing overtook: {steps:?}");
    // Whatever was not delivered yet follows, and nothing comes twice.
    let mut all: BTreeSet<u64> = steps.iter().copied().collect();
    assert_eq!(all.len(), 80);
    while all.len() as u64 != all.last().unwrap() + 1 {
        assert!(all.insert(loader.next().unwrap().unwrap().step()));
    }
    for (step, indices) in got {
        assert_eq!(drawn("cyclic,batch=10", 100)[step as usize].1, indices);
    }
}

#[test]
fn consumers_on_several_threads_share_the_batches() {
    let stores = Stores::new();
    for workers in [0, 3] {
        let loader = stores.builder().workers(workers).build().unwrap();
        let all = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let some = indices(&loader, 25);
                    assert!(some.is_sorted());
                    all.lock().unwrap().extend(some);
                });
            }
        });
        let mut all = all.into_inner().unwrap();
        all.sort();
        assert_eq!(all, drawn("cyclic,batch=10", 100));
        assert_eq!(loader.state().unwrap().step(), 100);
    }
}

#[test]
fn ranks_together_have_everything_once() {
    let stores = Stores::new();
    for world in [1, 2, 3, 7, 16] {
        let loaders: Vec<Loader> = (0..world)
            .map(|rank| stores.builder().workers(1).tail(Tail::Keep).rank(rank, world).build().unwrap())
            .collect();
        let mut seen = vec![0; N as usize];
        for _ in 0..11 {
            for loader in &loaders {
                loader.next().unwrap().unwrap().indices().iter().for_each(|&i| seen[i as usize] += 1);
            }
        }
        assert_eq!(seen, vec![1; N as usize], "{world}");
    }
}

#[test]
fn the_builder_chooses_what_the_spec_says() {
    let stores = Stores::new();
    let by_parts =
        stores.builder().mode(Mode::Sequential).seed(9).batch(11).rank(1, 2).tail(Tail::Keep).build().unwrap();
    let spec: Spec = "sequential,batch=11,seed=9,rank=1,world=2,tail=keep".parse().unwrap();
    let at_once = stores.builder().spec(spec).build().unwrap();
    assert_eq!(indices(&by_parts, 30), indices(&at_once, 30));
    // The tail is the default of the mode that counts.
    let iid = stores.builder().spec("cyclic,batch=4".parse().unwrap()).mode(Mode::IidCounter).build().unwrap();
    assert_eq!(iid.next().unwrap().unwrap().len(), 4);
}

#[test]
fn what_the_builder_refuses() {
    let stores = Stores::new();
    dense(&stores.path("short.zr"), 5, Codec::Raw);
    dense(&stores.path("empty.zr"), 0, Codec::Raw);
    let text = |builder: LoaderBuilder| builder.build().unwrap_err().to_string();
    for (builder, words) in [
        (Loader::builder(), vec!["needs a store"]),
        (stores.builder().source(stores.open("short.zr")), vec!["d.zr has 103", "short.zr has 5"]),
        (stores.builder().source(stores.open("d.zr")), vec!["two streams are called d", "name them"]),
        (Loader::builder().source(stores.open("empty.zr")), vec!["empty.zr", "no records"]),
        (stores.builder().batch(0), vec!["batch=0"]),
        (stores.builder().rank(3, 3), vec!["rank=3 of world=3"]),
        (stores.builder().mode(Mode::Iid).tail(Tail::Keep), vec!["tail=keep"]),
        (stores.builder().workers(1025), vec!["1025 workers", "1024"]),
        (stores.builder().prefetch(usize::MAX), vec!["to keep ready", "8192"]),
        (stores.builder().only(["e"]), vec!["no stream called e", "there are: "]),
    ] {
        let text = text(builder);
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
}

#[test]
fn what_memory_cannot_hold_is_an_error_of_the_step() {
    let stores = Stores::new();
    let huge = stores.builder().mode(Mode::IidCounter).batch(u64::MAX).workers(1).build().unwrap();
    for _ in 0..3 {
        let text = huge.next().unwrap().unwrap_err().to_string();
        assert!(text.contains("no memory for a batch of 18446744073709551615 indices"), "{text}");
    }
}
