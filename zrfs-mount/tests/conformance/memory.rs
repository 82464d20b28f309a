//! Memory: within its budget while large records are read in pieces, and flat however many files are looked at.

use crate::common::{Mount, TempDir, bytes, run, run_for, shell, store, succeeds};
use std::time::{Duration, Instant};

/// Large compressed records, read in pieces, backwards, by several readers at once: right bytes, each decoded few times,
/// and never more memory than the cache's budget and a fixed rest.
#[test]
fn large_records_in_pieces_stay_within_the_budget() {
    const RECORDS: usize = 24;
    const LENGTH: usize = 6_000_000;
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let mut records: Vec<Vec<u8>> = Vec::new();
    for i in 0..RECORDS {
        // Cheap to make and still different everywhere.
        records.push(bytes(i as u64, 6000).iter().cycle().take(LENGTH).copied().collect());
        std::fs::write(dir.path().join(format!("want{i}")), &records[i]).unwrap();
    }
    drop(store(&path, "zstd", &records));
    drop(records);
    for cache in [0u64, 20, 64] {
        let mount = Mount::new(&path, &["--threads", "8", "--cache-size", &format!("{cache}M")]);
        let start = mount.resident();
        let script = r#"
import os, sys, threading, random
at, want, records, length = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
errors = []
def reader(k):
    r = random.Random(k)
    try:
        for i in r.sample(range(records), 6):
            plain = open(f'{want}/want{i}', 'rb').read()
            fd = os.open(f'{at}/records/{i}', os.O_RDONLY | (os.O_DIRECT if k % 2 else 0))
            piece = r.choice([400_000, 1 << 20, 999_999])
            spots = list(range(0, length, piece))
            for spot in reversed(spots) if k % 3 else r.sample(spots, len(spots)):
                assert os.pread(fd, piece, spot) == plain[spot:spot + piece], (i, spot)
            os.close(fd)
    except BaseException as e: errors.append(e)
threads = [threading.Thread(target=reader, args=(k,)) for k in range(6)]
for t in threads: t.start()
for t in threads: t.join()
assert not errors, errors
"#;
        let args = [&mount.path(), dir.path().to_str().unwrap(), &RECORDS.to_string(), &LENGTH.to_string()]
            .map(|s| s.to_string());
        succeeds(&run("python3", &["-c", script, &args[0], &args[1], &args[2], &args[3]]));
        let peak = mount.peak();
        // Without room in the cache each thread holds the record that it reads, and malloc keeps as much once more; each
        // has the buffer of a reply and what zstd takes, too.
        let rest = 8 * (2 * 6 + 3) * 1024;
        println!("cache {cache} MiB: {start} KiB at the start, {peak} KiB at most");
        assert!(peak < start + cache * 1024 + rest, "cache {cache} MiB: {start} KiB, then {peak} KiB");
    }
}

/// gof#603: memory after a look at every file, and after the kernel forgot them, is what it was before. `ZRFS_FILES`
/// says how many; a million takes a minute.
#[test]
fn gof603_memory_is_flat_over_many_files() {
    let files: usize = std::env::var("ZRFS_FILES").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    drop(store(
        &path,
        "zstd",
        &(0..files).map(|i| format!("{i:0width$}", width = i % 60 + 8).into_bytes()).collect::<Vec<_>>(),
    ));
    let mount = Mount::new(&path, &[]);
    let at = mount.path();
    // What a first round takes (buffers, zstd's contexts) is not what grows.
    succeeds(&shell(&format!(
        "ls -f {at}/records | head -1000 | sed 's|^|{at}/records/|' | xargs cat >/dev/null 2>&1; true"
    )));
    let before = mount.resident();
    let script = "import os, sys\n\
         os.chdir(sys.argv[1])\n\
         total = 0\n\
         for e in os.scandir('.'):\n\
         \x20   st = e.stat()\n\
         \x20   fd = os.open(e.name, os.O_RDONLY)\n\
         \x20   data = os.read(fd, 200); os.close(fd)\n\
         \x20   assert len(data) == st.st_size and int(data) == int(e.name), e.name\n\
         \x20   total += 1\n\
         assert total == int(sys.argv[2]), total\n";
    let start = Instant::now();
    let args = ["-c", script, &format!("{at}/records"), &files.to_string()];
    succeeds(&run_for(Duration::from_secs(600), "python3", &args));
    let (after, peak) = (mount.resident(), mount.peak());
    println!("{files} files in {:?}: {before} KiB before, {after} KiB after, {peak} KiB at most", start.elapsed());
    assert!(peak < before + 6 * 1024, "{before} KiB before, {peak} KiB at most");
    // The kernel forgets all of them, and says so to the daemon.
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "2");
    succeeds(&shell(&format!("stat {at}/records/1")));
    let forgotten = mount.resident();
    assert!(forgotten < before + 6 * 1024, "{before} KiB before, {forgotten} KiB after the kernel forgot");
}
