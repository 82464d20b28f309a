//! Large inputs: memory stays bounded, holes stay holes.

use crate::common::*;
use crate::zrfs;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Runs a command through Python, which tells its peak resident memory in KiB.
fn peak_kib(command: &Command) -> (Output, u64) {
    const WRAPPER: &str = "import os, resource, subprocess, sys\n\
        status = subprocess.call(sys.argv[1:])\n\
        print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n\
        sys.exit(status)";
    let mut python = tool("python3");
    python.args(["-c", WRAPPER]).arg(command.get_program()).args(command.get_args());
    let out = run(&mut python);
    assert!(out.status.success(), "{command:?}: {}", stderr(&out));
    let peak = String::from_utf8_lossy(&out.stdout).trim().lines().last().unwrap().parse().unwrap();
    (out, peak)
}

/// In MiB; what packing and unpacking are allowed, whatever the input.
const BOUND: u64 = 300;

#[test]
fn memory_is_bounded_whatever_is_packed() {
    let dir = scratch();
    let (source, packed, copy) = (dir.path().join("source"), dir.path().join("packed"), dir.path().join("copy"));
    fs::create_dir(&source).unwrap();
    // 1.5 GB in files of every size class: many small, some of a piece, a few large; and 2 GB in a hole.
    let bytes = noise(1, 300 << 20);
    let mut total = 0;
    for (count, size) in [(2000, 10_000), (600, 600_000), (40, 4 << 20), (3, 300 << 20)] {
        for i in 0..count {
            fs::write(source.join(format!("{size}-{i}")), &bytes[i..][..size - i]).unwrap();
            total += size - i;
        }
    }
    assert!(total > 1_450_000_000, "{total}");
    drop(bytes);
    File::create(source.join("sparse")).unwrap().set_len(2 << 30).unwrap();
    // The wrapper counts what it runs only, so each is measured on its own.
    for (what, command) in [
        ("pack", zrfs!["pack", "--level", "1", &source, &packed]),
        ("ls", zrfs!["ls", "--json", &packed]),
        ("unpack", zrfs!["unpack", &packed, &copy]),
    ] {
        let (_, peak) = peak_kib(&command);
        println!("{what}: {} MiB", peak >> 10);
        assert!(peak >> 10 < BOUND, "{what} took {} MiB at its peak", peak >> 10);
    }
    assert_eq!(fs::read_dir(&copy).unwrap().count(), 2644);
    let hole = fs::metadata(copy.join("sparse")).unwrap();
    assert_eq!((hole.len(), hole.blocks()), (2 << 30, 0));
    // From a pipe, too.
    let archive = format!("tar --create -C {} . | {ZRFS} pack --codec raw - {}", source.display(), packed.display());
    fs::remove_dir_all(&packed).unwrap();
    fs::remove_dir_all(&copy).unwrap();
    fs::remove_file(source.join("sparse")).unwrap();
    let mut shell = tool("sh");
    shell.arg("-c").arg(archive);
    let (_, peak) = peak_kib(&shell);
    assert!(peak >> 10 < BOUND, "pack of a pipe took {} MiB at its peak", peak >> 10);
}

#[test]
fn five_sparse_gibibytes() {
    let dir = scratch();
    let (source, packed, copy) = (dir.path().join("source"), dir.path().join("packed"), dir.path().join("copy"));
    fs::create_dir(&source).unwrap();
    let size = (5 << 30) + 12_345;
    // Something at the start, in the middle (across a piece's end), beyond 2^32 and at the very end.
    let islands = [0, (1 << 30) - 3, (4 << 30) + 5, size - 7];
    let file = File::create(source.join("sparse")).unwrap();
    file.set_len(size).unwrap();
    for at in islands {
        file.write_all_at(b"island!", at).unwrap();
    }
    let start = Instant::now();
    ok(&mut zrfs!["pack", &source, &packed]);
    ok(&mut zrfs!["unpack", &packed, &copy]);
    let took = start.elapsed();
    println!("packed and unpacked in {took:?}");
    assert!(took < Duration::from_secs(120), "{took:?}");
    let restored = File::open(copy.join("sparse")).unwrap();
    let meta = restored.metadata().unwrap();
    assert_eq!(meta.len(), size);
    assert!(meta.blocks() * 512 < 4 << 20, "unpacked, it takes {} bytes", meta.blocks() * 512);
    // Every byte that is there: holes are skipped, so that this costs nothing.
    let (mut at, mut found) = (0, Vec::new());
    while let Ok(data) = rustix::fs::seek(&restored, rustix::fs::SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&restored, rustix::fs::SeekFrom::Hole(data)).unwrap();
        let mut bytes = vec![0; (end - data) as usize];
        restored.read_exact_at(&mut bytes, data).unwrap();
        found.extend((data..).zip(bytes).filter(|(_, b)| *b != 0));
        at = end;
    }
    let want: Vec<(u64, u8)> = islands.into_iter().flat_map(|at| (at..).zip(*b"island!")).collect();
    assert_eq!(found, want);
    // The records are all of one piece, but for the last; each is found and decoded alone.
    let listed = String::from_utf8(ok(&mut zrfs!["ls", "--json", &packed])).unwrap();
    let sizes: Vec<u64> = listed
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["size"].as_u64().unwrap())
        .collect();
    assert_eq!((sizes.len() as u64, sizes.iter().sum::<u64>()), (size.div_ceil(4 << 20), size));
    let stored: u64 = fs::metadata(packed.join("data/0.chunk")).unwrap().len();
    assert!(stored < 2 << 20, "{stored}");
}
