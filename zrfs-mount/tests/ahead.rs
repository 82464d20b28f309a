//! Files pushed ahead of readers, by a real kernel mount.

// Each test program uses a part of it.
#[allow(dead_code, unused_imports)]
mod common;

use common::{Mount, TempDir, at_best, bytes, run, shell, store, succeeds, tree, wait_until};
use std::time::{Duration, Instant};
use zrfs::pack::{PackOptions, Progress, Watch};

/// Reads every file of a directory in the order of its listing, compares it with the file of that name in another, and
/// prints two numbers of `stats.json`: reads and pushed files.
const IN_ORDER: &str = r#"
import json, os, sys
at, want, mount, step = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
names = [e.name for e in os.scandir(at) if e.is_file(follow_symlinks=False)]
sizes = [os.stat(f'{at}/{n}').st_size for n in names]
order = list(range(len(names)))[::step]
for k in order:
    got = open(f'{at}/{names[k]}', 'rb').read()
    assert len(got) == sizes[k], names[k]
    assert got == open(f'{want}/{names[k]}', 'rb').read(), names[k]
stats = json.load(open(f'{mount}/.zrfs/stats.json'))
print(stats['reads'], stats['pushed'])
"#;

fn in_order(at: &str, want: &str, mount: &str, step: i64) -> [u64; 2] {
    let out = succeeds(&run("python3", &["-c", IN_ORDER, at, want, mount, &step.to_string()]));
    let numbers: Vec<u64> = out.split_whitespace().map(|n| n.parse().unwrap()).collect();
    [numbers[0], numbers[1]]
}

fn write_all(dir: &std::path::Path, records: &[Vec<u8>]) {
    std::fs::create_dir(dir).unwrap();
    for (i, record) in records.iter().enumerate() {
        std::fs::write(dir.join(i.to_string()), record).unwrap();
    }
}

#[test]
fn what_is_pushed_is_what_was_written() {
    let dir = TempDir::new().unwrap();
    let edges = [1, 4095, 4096, 4097, 12_288, 131_071, 131_072, 131_073, 262_144, 100];
    let records: Vec<Vec<u8>> = (0..500).map(|i| bytes(i, edges[i as usize % edges.len()])).collect();
    let want = dir.path().join("want");
    write_all(&want, &records);
    for codec in ["raw", "zstd"] {
        let path = dir.path().join(codec);
        store(&path, codec, &records);
        for step in [1_i64, 2, -1] {
            let all = 500 / step.unsigned_abs();
            let measure = || {
                let mount = Mount::new(&path, &[]);
                in_order(&format!("{}/records", mount.path()), want.to_str().unwrap(), &mount.path(), step)
            };
            let [reads, pushed] = at_best(measure, |[reads, pushed]| *pushed > all / 3 && *reads < all);
            assert!(pushed > all / 3 && reads < all, "{codec} by {step}: {reads} reads, {pushed} pushed");
        }
        let mount = Mount::new(&path, &["--push-size", "0"]);
        let at = format!("{}/records", mount.path());
        let [reads, pushed] = in_order(&at, want.to_str().unwrap(), &mount.path(), 1);
        assert!(reads >= 500 && pushed == 0, "{reads} {pushed}");
    }
    // Several readers at once, each with an order of its own, and one that hops about.
    let mount = Mount::new(&dir.path().join("zstd"), &[]);
    let script = format!(
        "cd {}/records && ls -l >/dev/null; read() {{ for i in $(\"$@\"); do cmp $i {}/$i || exit 1; done; }}
         read seq 0 240 & a=$!; read seq 499 -1 260 & b=$!; read seq 1 3 490 & c=$!; read shuf -i 0-499 & d=$!
         wait $a && wait $b && wait $c && wait $d",
        mount.path(),
        want.display()
    );
    succeeds(&shell(&script));
}

#[test]
fn trees_are_pushed_in_the_order_of_a_walk() {
    let dir = TempDir::new().unwrap();
    let (files, path) = (dir.path().join("files"), dir.path().join("d.zr"));
    tree(&files, &path);
    let mount = Mount::new(&path, &[]);
    // The records of a large file are decoded ahead of who reads it from front to back, and not for who does not.
    let stat = |name: &str| {
        let text = std::fs::read_to_string(format!("{}/.zrfs/stats.json", mount.path())).unwrap();
        let line = text.lines().find(|l| l.contains(name)).unwrap().to_string();
        line.chars().filter(char::is_ascii_digit).collect::<String>().parse::<u64>().unwrap()
    };
    let large = format!("{}/tree/sub/deep/{}", mount.path(), "n".repeat(255));
    succeeds(&shell(&format!("dd if={large} bs=4096 skip=300 status=none | wc -c")));
    assert_eq!(stat("records_ahead"), 0);
    succeeds(&shell(&format!("cat {large} | cmp - {}/sub/deep/{}", files.display(), "n".repeat(255))));
    wait_until("records are decoded ahead", || stat("records_ahead") > 0);
    assert!(stat("decoded_bytes") < 2_000_000, "each was decoded once");
    for _ in 0..2 {
        succeeds(&shell(&format!("diff -r --no-dereference {} {}/tree", files.display(), mount.path())));
    }
}

#[test]
fn a_walk_of_many_directories_is_followed() {
    let dir = TempDir::new().unwrap();
    let (files, path) = (dir.path().join("files"), dir.path().join("d.zr"));
    let sizes = [0, 1, 4095, 4096, 4097, 12_288, 131_071, 131_073];
    for i in 0..600 {
        let below = files.join(format!("{}/{}", i % 5, if i % 3 == 0 { "deep/er" } else { "" }));
        std::fs::create_dir_all(&below).unwrap();
        std::fs::write(below.join(format!("f{i:03}")), bytes(i, sizes[i as usize % sizes.len()])).unwrap();
    }
    std::fs::hard_link(files.join("1/f001"), files.join("1/f001-too")).unwrap();
    std::os::unix::fs::symlink("f001", files.join("1/f001-link")).unwrap();
    let watch = Watch { progress: &Progress::default(), notice: &|_| {} };
    zrfs::pack::pack(&files, &path, &PackOptions::default(), watch).unwrap();
    let mount = Mount::new(&path, &[]);
    let at = format!("{}/tree", mount.path());
    // A listing of everything first, then a walk that reads; tar lists each directory and reads in it.
    let walk = format!("find {at} >/dev/null; cd {at} && find . -type f -exec cmp {{}} {}/{{}} \\;", files.display());
    assert_eq!(succeeds(&shell(&walk)), "");
    let text = std::fs::read_to_string(format!("{}/.zrfs/stats.json", mount.path())).unwrap();
    let pushed = text.lines().find_map(|l| l.trim().strip_prefix("\"pushed\": ")).unwrap();
    let pushed: u64 = pushed.trim_end_matches(',').parse().unwrap();
    assert!(pushed > 200, "{text}");
    let mount = Mount::new(&path, &[]);
    let tar = format!("tar c -C {0}/tree . | tar x -C {1} && diff -r {2} {1}", mount.path(), "$d", files.display());
    succeeds(&shell(&format!("d={}/copy; mkdir $d; {tar}", dir.path().display())));
}

#[test]
fn a_damaged_record_ahead_of_a_reader_is_its_own_error() {
    let dir = TempDir::new().unwrap();
    let (path, log) = (dir.path().join("s"), dir.path().join("log"));
    let records: Vec<Vec<u8>> = (0..300).map(|i| bytes(i, 5000)).collect();
    store(&path, "zstd", &records);
    let mut table = std::fs::read(path.join("0.loc")).unwrap();
    table[200 * 16..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
    std::fs::write(path.join("0.loc"), table).unwrap();
    let mount = Mount::new(&path, &["--log", log.to_str().unwrap()]);
    let read = format!("cd {}/records && ls >/dev/null; for i in $(seq 0 299); do cat $i | wc -c; done", mount.path());
    for round in 0..2 {
        let done = shell(&read);
        assert_eq!(done.out.lines().filter(|&l| l == "5000").count(), 299, "{round}");
        assert!(done.err.contains("200: Input/output error"), "{}", done.err);
    }
    let said = std::fs::read_to_string(&log).unwrap();
    assert_eq!(said.matches("record 200").count(), said.lines().count(), "{said}");
    assert!((1..=2).contains(&said.lines().count()), "once for its listing or name, once for itself: {said}");
}

#[test]
fn a_mount_ends_at_once_in_the_midst_of_pushing() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let records: Vec<Vec<u8>> = (0..2000).map(|i| bytes(i, 50_000)).collect();
    store(&path, "zstd", &records);
    for end in ["umount", "kill -TERM"] {
        let took = |files: u32| {
            let mut mount = Mount::new(&path, &[]);
            let read = format!("cd {0}/records && ls -l >/dev/null && cat $(seq 0 {files}) >/dev/null", mount.path());
            succeeds(&shell(&read));
            let start = Instant::now();
            if end == "umount" {
                succeeds(&run("umount", &[&mount.path()]));
            } else {
                mount.signal("TERM");
            }
            assert_eq!(mount.wait(), Some(0));
            let took = start.elapsed();
            wait_until("the mount is gone", || !mount.is_mounted());
            took
        };
        for files in [5, 50, 400] {
            // The machine may do other things for a second, but not each time.
            let took = [(); 3].map(|()| took(files));
            assert!(took.iter().any(|&took| took < Duration::from_secs(1)), "{end} took {took:?}");
        }
    }
}
