//! Writers are killed with SIGKILL at random moments, again and again: all that they reported is in the store, to the last
//! byte. A writer is a forked child, so that a kill costs a few milliseconds; `ZRFS_KILL_SECONDS` asks for more of them.

#[path = "common/forked.rs"]
mod forked;

use forked::{Kind, complain, delete_from, doomed, fork, kill, seconds};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{PipeWriter, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use zrfs::format::Codec;

/// What a child is about to do: a letter, the number it has, and a count.
const MESSAGE: usize = 17;
/// A writer lives for up to so many microseconds, and every fifth up to four times as long.
const LIFE: u64 = 9000;

/// Writes until it is killed. Says what it is about to do before each operation, and "done" after it.
fn write(kind: Kind, path: &Path, mut id: u64, mut out: PipeWriter) -> zrfs::Result<()> {
    let mut say = |what: u8, id: u64, count: u64| {
        let mut message = [what; MESSAGE];
        message[1..9].copy_from_slice(&id.to_le_bytes());
        message[9..].copy_from_slice(&count.to_le_bytes());
        out.write_all(&message).unwrap();
    };
    let mut writer = kind.open(path)?;
    loop {
        let count = 1 + id % 11;
        say(b'a', id, count);
        writer.append(id..id + count)?;
        say(b'.', 0, 0);
        id += count;
        match id % 7 {
            0 | 1 => {
                say(b'd', id, 0);
                writer.delete(&doomed(id, writer.len()))?;
            }
            2 => {
                say(b's', id, 0);
                writer.sync()?;
            }
            3 | 4 => {
                // Nothing is lost here, neither by the end of a writer nor by a compaction.
                say(b'c', id, 0);
                writer.close()?;
                if id % 7 == 4 {
                    kind.compact(path)?;
                }
                writer = kind.open(path)?;
            }
            _ => continue,
        }
        say(b'.', 0, 0);
    }
}

/// Runs a child on the store for a while and kills it. Returns how many operations it completed.
fn kill_one(kind: Kind, path: &Path, model: &mut Vec<u64>, next: &mut u64, wait: Duration) -> u64 {
    let (mut input, output) = std::io::pipe().unwrap();
    let child = fork(|| write(kind, path, *next, output).inspect_err(complain).is_ok());
    std::thread::sleep(wait);
    kill(child);
    let mut said = Vec::new();
    input.read_to_end(&mut said).unwrap();
    let (mut pending, mut completed): (Option<Vec<u64>>, u64) = (None, 0);
    for message in said.as_chunks::<MESSAGE>().0 {
        let number = |at: usize| u64::from_le_bytes(message[at..at + 8].try_into().unwrap());
        let (id, count) = (number(1), number(9));
        let mut after = model.clone();
        match message[0] {
            b'a' => {
                // Whatever becomes of it, these numbers do not come again.
                *next = id + count;
                after.extend(id..id + count);
            }
            b'd' => delete_from(&mut after, &doomed(id, model.len() as u64)),
            b'.' => {
                *model = pending.take().expect("an operation was announced");
                completed += 1;
                continue;
            }
            _ => {}
        }
        pending = Some(after);
    }
    let seen = kind.read(path).unwrap();
    if seen != *model {
        let after = pending.as_ref().is_some_and(|after| seen == *after);
        assert!(after, "{kind:?}: {seen:?} is neither {model:?} nor {pending:?}");
        *model = seen;
    }
    completed
}

#[test]
fn killed_writers_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let random = || RandomState::new().build_hasher().finish();
    let time = seconds("ZRFS_KILL_SECONDS", 20);
    let (begin, mut stores, mut kills, mut operations, mut next) = (Instant::now(), 0, 0, 0, 1);
    while begin.elapsed() < time {
        let kind = [Kind::Bytes, Kind::Ragged, Kind::Dataset][stores % 3];
        let path = dir.path().join(format!("{stores}"));
        kind.create(&path, [Codec::Raw, Codec::Zstd][stores / 3 % 2]);
        stores += 1;
        let mut model = Vec::new();
        for n in 0..25 {
            let life = Duration::from_micros(random() % if n % 5 == 4 { 4 * LIFE } else { LIFE });
            operations += kill_one(kind, &path, &mut model, &mut next, life);
            kills += 1;
        }
        std::fs::remove_dir_all(&path).unwrap();
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "kills: {kills} writers of {stores} stores and datasets killed in {seconds:.0} s, {operations} operations had \
         completed, nothing was lost"
    );
    assert!(operations > 0, "no writer lived long enough to do anything");
}
