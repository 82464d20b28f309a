//! A writer is killed with SIGKILL at random moments, again and again: all that it reported is in the store, to the
//! last byte. The writer is this test's own binary, started anew to run the test `child`.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use zrfs::format::Codec;
use zrfs::pack::Progress;
use zrfs::{Store, WriterOptions};

/// The store that a child writes to, and the number of its first record's content.
const STORE: &str = "ZRFS_KILL_STORE";
const FIRST: &str = "ZRFS_KILL_FIRST";
/// How long the killing goes on.
const TIME: Duration = Duration::from_secs(20);

/// A record's content, which follows from its number.
fn record(id: u64) -> Vec<u8> {
    let word = format!("record {id} ");
    word.bytes().cycle().take(10 + (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize).collect()
}

/// Which records the deletion after record `id` takes from a store of `len`.
fn doomed(id: u64, len: u64) -> Vec<u64> {
    (0..len).filter(|i| (i * 31 + id).is_multiple_of(3)).collect()
}

/// Writes until it is killed. Says what it is about to do before each operation, and "done" after it.
#[test]
fn child() {
    let (Ok(path), Ok(first)) = (std::env::var(STORE), std::env::var(FIRST)) else { return };
    let mut id: u64 = first.parse().unwrap();
    let say = |text: String| {
        let mut out = std::io::stdout().lock();
        out.write_all(format!("\n{text}\n").as_bytes()).unwrap();
        out.flush().unwrap();
    };
    let mut writer = WriterOptions::new(Codec::Raw).open(path).unwrap();
    say("open".into());
    loop {
        let count = 1 + id % 23;
        let records: Vec<Vec<u8>> = (id..id + count).map(record).collect();
        say(format!("append {id} {count}"));
        writer.append(&records.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        say("done".into());
        id += count;
        if id.is_multiple_of(5) {
            say(format!("delete {id} 0"));
            writer.delete(&doomed(id, writer.len())).unwrap();
            say("done".into());
        }
        if id.is_multiple_of(3) {
            say(format!("compact {id} 0"));
            writer.compact(&Progress::default()).unwrap();
            say("done".into());
        }
        if id.is_multiple_of(7) {
            writer.sync().unwrap();
        }
    }
}

/// Runs a child on the store for a while and kills it. Returns how many operations it completed.
fn kill_one(path: &Path, model: &mut Vec<Vec<u8>>, next: &mut u64, wait: Duration) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env(STORE, path)
        .env(FIRST, next.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let killer = std::thread::spawn(move || {
        std::thread::sleep(wait);
        child.kill().unwrap();
        child.wait().unwrap()
    });
    let (mut pending, mut completed): (Option<Vec<Vec<u8>>>, u64) = (None, 0);
    for line in out.lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["append", id, count] => {
                let (id, count): (u64, u64) = (id.parse().unwrap(), count.parse().unwrap());
                // Whatever becomes of it, this content is not written again.
                *next = id + count;
                pending = Some(model.iter().cloned().chain((id..id + count).map(record)).collect());
            }
            ["delete", id, _] => {
                let mut state = model.clone();
                for i in doomed(id.parse().unwrap(), model.len() as u64).into_iter().rev() {
                    state.swap_remove(i as usize);
                }
                pending = Some(state);
            }
            ["compact", ..] => pending = Some(model.clone()),
            ["done"] => {
                *model = pending.take().expect("an operation was announced");
                completed += 1;
            }
            _ => {}
        }
    }
    let status = killer.join().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "the writer ended by itself");
    let store = Store::open(path).unwrap();
    let seen: Vec<Vec<u8>> = (0..store.len()).map(|i| store.read(i).unwrap()).collect();
    if seen != *model {
        let shorter = pending.as_ref().is_some_and(|after| seen == *after);
        assert!(shorter, "{} records, neither before nor after the operation that was killed", seen.len());
        *model = seen;
    }
    completed
}

#[test]
fn killed_writers_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let random = || RandomState::new().build_hasher().finish();
    let (begin, mut stores, mut kills, mut operations, mut next) = (Instant::now(), 0, 0, 0, 1);
    while begin.elapsed() < TIME {
        let codec = Codec::ALL[stores % 2];
        let path = dir.path().join(format!("{stores}"));
        stores += 1;
        WriterOptions::new(codec).create(&path).unwrap().close().unwrap();
        let mut model = Vec::new();
        for _ in 0..20 {
            operations += kill_one(&path, &mut model, &mut next, Duration::from_micros(3000 + random() % 40_000));
            kills += 1;
        }
        std::fs::remove_dir_all(&path).unwrap();
    }
    println!("kills: {kills} writers killed, {operations} operations had completed, nothing was lost");
}
