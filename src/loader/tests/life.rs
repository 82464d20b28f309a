//! A loader ends in every state within a second, and leaves nothing behind.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// In which a loader must be gone, on a machine that is busy with other things.
const LIMIT: Duration = Duration::from_secs(5);
/// After which a test says that it hangs.
const HANGS: Duration = Duration::from_secs(120);
/// Between two looks whether others have come to something. A yield instead gives way to whatever the machine does at its idle
/// priority, too, each time for milliseconds.
const MOMENT: Duration = Duration::from_micros(100);

/// Drops the loader, in time.
#[track_caller]
fn drop_in_time<T>(loader: Loader<T>, what: &str) {
    let begin = Instant::now();
    drop(loader);
    assert!(begin.elapsed() < LIMIT, "{what}: {:?}", begin.elapsed());
}

#[test]
fn it_ends_in_every_state() {
    within(HANGS, || {
        let stores = Stores::new();
        for (workers, prefetch) in [(0, 0), (1, 0), (1, 1), (4, 4), (16, 64)] {
            let new = || stores.builder().workers(workers).prefetch(prefetch);
            drop_in_time(new().build().unwrap(), "unused");
            let full = new().build().unwrap();
            while workers > 0 && full.stats().unwrap().ready < workers + prefetch {
                std::thread::sleep(MOMENT);
            }
            drop_in_time(full, "full");
            let held = new().build().unwrap();
            let batches: Vec<Batch> = held.iter().take(20).map(Result::unwrap).collect();
            drop_in_time(held, "with batches in the consumer's hands");
            batches.iter().for_each(check);
            let empty = new().transform(|_| {
                std::thread::sleep(Duration::from_millis(20));
                Ok(())
            });
            let empty = empty.build().unwrap();
            empty.next().unwrap().unwrap();
            drop_in_time(empty, "empty");
            let failing = new().transform(|_| Err("no".into())).build().unwrap();
            assert!(failing.next().unwrap().is_err());
            drop_in_time(failing, "failing");
            let panicking = new().transform(|_| panic!("as this test means to")).build().unwrap();
            assert!(panicking.next().unwrap().is_err());
            drop_in_time(panicking, "panicking");
            let closed = new().build().unwrap();
            closed.close();
            closed.close();
            assert!(closed.next().is_none() && closed.next().is_none());
            assert_eq!(closed.state().unwrap().step(), 0);
            drop_in_time(closed, "closed");
        }
    });
}

#[test]
fn a_transform_that_does_not_end_is_not_waited_for() {
    within(HANGS, || {
        let stores = Stores::new();
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::new(AtomicUsize::new(0));
        let [s, e] = [stop.clone(), stop.clone()];
        let count = ended.clone();
        let builder = stores.builder().workers(2).transform(move |_| {
            while !s.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let loader = builder.build().unwrap();
        while loader.stats().unwrap().working < 2 {
            std::thread::sleep(MOMENT);
        }
        drop_in_time(loader, "stuck");
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        // They end on their own, and are forgotten.
        e.store(true, Ordering::Relaxed);
        while ended.load(Ordering::Relaxed) < 2 {
            std::thread::sleep(MOMENT);
        }
    });
}

#[test]
fn a_consumer_that_panics_or_waits_is_let_go() {
    within(HANGS, || {
        let stores = Stores::new();
        let loader = stores.builder().build().unwrap();
        let begin = Instant::now();
        let consumer = std::thread::spawn(move || {
            let _batch = loader.next().unwrap().unwrap();
            panic!("as this test means to");
        });
        assert!(consumer.join().is_err());
        assert!(begin.elapsed() < LIMIT);
        // One who waits for a batch that takes long is told of the end.
        let slow = stores.builder().transform(|batch| {
            std::thread::sleep(Duration::from_millis(if batch.step() > 0 { 400 } else { 0 }));
            Ok(())
        });
        let slow = slow.build().unwrap();
        slow.next().unwrap().unwrap();
        let stopper = slow.stopper();
        let begin = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                stopper.stop();
                stopper.clone().stop();
            });
            assert!(slow.next().is_none());
        });
        assert!(begin.elapsed() < LIMIT);
    });
}

#[test]
fn a_loader_may_end_itself_from_a_transform() {
    within(HANGS, || {
        let stores = Stores::new();
        let own: Arc<std::sync::Mutex<Option<Loader>>> = Arc::default();
        let within = own.clone();
        let builder = stores.builder().workers(1).transform(move |batch| {
            if batch.step() == 3 {
                drop(within.lock().unwrap().take());
            }
            Ok(())
        });
        let loader = builder.build().unwrap();
        let stopper = loader.stopper();
        *own.lock().unwrap() = Some(loader);
        let begin = Instant::now();
        // The lock is held over the call, as careless code would.
        while own.lock().unwrap().as_ref().is_some_and(|loader| loader.stats().unwrap().batches < 2) {
            let guard = own.lock().unwrap();
            let Some(loader) = guard.as_ref() else { break };
            if loader.stats().unwrap().ready == 0 {
                continue;
            }
            let _ = loader.next();
        }
        stopper.stop();
        assert!(begin.elapsed() < HANGS);
    });
}

#[test]
fn whatever_is_done_at_once_it_ends() {
    within(HANGS, || {
        let stores = Stores::new();
        for round in 0..120 {
            let (workers, prefetch) = (round as usize % 4, round as usize / 4 % 3);
            let builder = stores.builder().workers(workers).prefetch(prefetch).transform(move |batch| {
                match batch.step() * 7 + round {
                    n if n % 11 == 0 => Err("no".into()),
                    // Says nothing on standard error.
                    n if n % 13 == 0 => std::panic::resume_unwind(Box::new("as this test means to")),
                    _ => Ok(()),
                }
            });
            let builder = if round % 2 == 0 { builder.in_completion_order() } else { builder };
            let (loader, taken) = (builder.build().unwrap(), AtomicUsize::new(0));
            let stopper = loader.stopper();
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        while let Some(batch) = loader.next() {
                            taken.fetch_add(1, Ordering::Relaxed);
                            batch.iter().for_each(check);
                        }
                    });
                }
                scope.spawn(|| {
                    for step in 0..20 {
                        let state = loader.state().unwrap();
                        loader.seek(step * 3).unwrap();
                        let before = taken.load(Ordering::Relaxed);
                        while taken.load(Ordering::Relaxed) < before + 2 {
                            std::thread::sleep(MOMENT);
                        }
                        loader.restore(&state).unwrap();
                    }
                    stopper.stop();
                });
            });
            drop_in_time(loader, "stopped");
        }
    });
}

#[test]
fn batches_in_memory_are_bounded() {
    let stores = Stores::new();
    for (workers, prefetch, held) in [(1, 0, 1), (2, 3, 1), (4, 4, 1), (2, 2, 9)] {
        let loader = stores.builder().workers(workers).prefetch(prefetch).build().unwrap();
        let mut hands = std::collections::VecDeque::new();
        for n in 0..300 {
            hands.push_back(loader.next().unwrap().unwrap());
            if hands.len() == held {
                hands.pop_front();
            }
            if n % 50 == 0 {
                // All that can be made ahead is.
                std::thread::sleep(Duration::from_millis(10));
            }
            let stats = loader.stats().unwrap();
            assert!(stats.ready + stats.working <= workers + prefetch, "{stats:?}");
            assert!(stats.buffers <= workers + prefetch + held, "{stats:?} with {held} held");
            if n % 40 == 17 {
                loader.seek(n).unwrap();
            }
        }
    }
}

/// Threads, open files and resident bytes of this process.
fn footprint() -> (usize, usize, u64) {
    let count = |path: &str| std::fs::read_dir(path).unwrap().count();
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split_whitespace().nth(1).unwrap().parse().unwrap();
    (count("/proc/self/task"), count("/proc/self/fd"), pages * 4096)
}

#[test]
fn nothing_is_left_of_those_that_ended() {
    // Other tests of this process come and go, so it is run in a process of its own.
    const ALONE: &str = "ZRFS_TEST_LOADERS_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let own = std::env::current_exe().unwrap();
        let name = "loader::tests::life::nothing_is_left_of_those_that_ended";
        let out = std::process::Command::new(own).args(["--exact", name]).env(ALONE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&out.stderr));
        return;
    }
    within(Duration::from_secs(120), || {
        let stores = Stores::new();
        let some = |n: usize| {
            for k in 0..n {
                let loader = stores.builder().batch([1, 10, N, N + 1][k % 4]).workers(k % 5).build().unwrap();
                for batch in loader.iter().take(k % 7) {
                    check(&batch.unwrap());
                }
            }
        };
        some(50);
        let before = footprint();
        some(500);
        // A thread that was waited for is in the system's list for a moment longer.
        let begin = Instant::now();
        while footprint().0 > before.0 && begin.elapsed() < LIMIT {
            std::thread::sleep(MOMENT);
        }
        let after = footprint();
        assert!(after.0 <= before.0, "threads: {} and then {}", before.0, after.0);
        assert_eq!(after.1, before.1, "open files");
        assert!(after.2 < before.2 + (4 << 20), "memory grew from {} to {}", before.2, after.2);
    });
}
