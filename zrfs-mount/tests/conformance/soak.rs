//! A soak: random readers of every kind for as long as `ZRFS_SOAK_SECONDS` says (20), while the store grows.

use crate::common::{Mount, TempDir, bytes, run_for, store, succeeds, wait_until};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Reads by path, by listing, mapped, in pieces, around the cache; each checks what it reads against the record's number.
const READER: &str = r#"
import mmap, os, random, sys, time, zlib
at, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
r = random.Random(seed)
end = time.monotonic() + seconds
def check(i, data):
    assert data[:8] == i.to_bytes(8, 'little'), i
    assert int.from_bytes(data[8:12], 'little') == zlib.crc32(data[12:]), i
known, rounds = 1, 0
while time.monotonic() < end:
    rounds += 1
    kind = r.randrange(8)
    if kind == 0:
        names = os.listdir(at + '/records')
        assert len(names) >= known and set(map(int, names)) == set(range(len(names)))
        known = len(names)
        continue
    i = r.randrange(known)
    path = f'{at}/records/{i}'
    if kind == 1:
        first = r.randrange(known)
        for i in range(first, min(first + 50, known)):
            check(i, open(f'{at}/records/{i}', 'rb').read())
    elif kind == 2:
        with open(path, 'rb') as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m: check(i, m[:])
    elif kind == 3:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        check(i, os.read(fd, 1 << 24)); os.close(fd)
    elif kind == 4:
        fd, size = os.open(path, os.O_RDONLY), os.stat(path).st_size
        pieces = [os.pread(fd, 3000, at_) for at_ in range(0, size, 3000)]
        check(i, b''.join(pieces)); os.close(fd)
    elif kind == 5:
        for name in ['x', '007', str(2**63), f'{i}.npy']:
            try: os.stat(f'{at}/records/{name}'); raise AssertionError(name)
            except FileNotFoundError: pass
    elif kind == 6:
        assert os.getxattr(path, 'user.zrfs.index') == str(i).encode()
        os.statvfs(at)
    else:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        check(i, os.read(fd, 1 << 24)); os.close(fd)
print(rounds)
"#;

/// Its number, a checksum, and bytes: mostly few, sometimes many.
fn record(i: u64) -> Vec<u8> {
    let length = 20 + (i.wrapping_mul(7919) % 20_000) as usize * if i.is_multiple_of(97) { 40 } else { 1 };
    let body = bytes(i, length);
    [&i.to_le_bytes()[..], &crc32fast::hash(&body).to_le_bytes(), &body].concat()
}

#[test]
fn readers_of_every_kind_while_the_store_grows() {
    let seconds: u64 = std::env::var("ZRFS_SOAK_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let mut writer = store(&path, "zstd", &(0..200).map(record).collect::<Vec<_>>());
    // Two mounts of one store: one with room for little, one as it is by default.
    let mounts = [Mount::new(&path, &["--cache-size", "1M", "--threads", "2"]), Mount::new(&path, &["--threads", "8"])];
    let stop = AtomicBool::new(false);
    let deadline = Duration::from_secs(seconds + 60);
    let rounds: u64 = std::thread::scope(|scope| {
        let growing = scope.spawn(|| {
            let start = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                let next = writer.len();
                let batch: Vec<Vec<u8>> = (next..next + 1 + next % 40).map(record).collect();
                writer.append(&batch.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
                if next.is_multiple_of(3) {
                    writer.sync().unwrap();
                }
                // Slower and slower: a listing is to be read in full many times.
                let pause = Duration::from_millis(100 + start.elapsed().as_millis() as u64 / 200);
                std::thread::sleep(pause.min(Duration::from_secs(5)));
            }
            writer.len()
        });
        let readers: Vec<_> = (0..6)
            .map(|k| {
                let at = mounts[k % 2].path();
                scope.spawn(move || {
                    let args = ["-c", READER, &at, &k.to_string(), &seconds.to_string()];
                    run_for(deadline, "python3", &args)
                })
            })
            .collect();
        let done: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        stop.store(true, Ordering::Relaxed);
        let length = growing.join().unwrap();
        assert!(length > 200);
        for mount in &mounts {
            let last = format!("{}/records/{}", mount.path(), length - 1);
            wait_until("the last record is seen", || std::path::Path::new(&last).exists());
        }
        let rounds = done.iter().map(|d| succeeds(d).trim().parse::<u64>().unwrap()).sum();
        println!(
            "{length} records, {rounds} rounds in {seconds} s; {} and {} KiB resident",
            mounts[0].resident(),
            mounts[1].resident()
        );
        rounds
    });
    assert!(rounds >= 6);
    assert!(mounts[0].resident() < 40 << 10, "with a cache of 1 MiB: {} KiB", mounts[0].resident());
}
