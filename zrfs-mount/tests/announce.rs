//! Orders that readers announce, by a real kernel mount.

// Each test program uses a part of it.
#[allow(dead_code, unused_imports)]
mod common;

use common::{Mount, TempDir, at_best, bytes, run, shell, store, succeeds};
use std::time::Duration;
use zrfs::sampler::Sampler;

const SPEC: &str = "cyclic,batch=16,seed=7";

/// Announces an order by ioctl: PATH COMMAND BATCH SEED RANK WORLD START; prints the error's number or 0.
const IOCTL: &str = r#"
import fcntl, os, struct, sys
path, command, *numbers = sys.argv[1:]
fd = os.open(path, os.O_RDONLY)
try:
    fcntl.ioctl(fd, int(command, 16), struct.pack('=IBBH5Q', 1, 3, 0, 0, *map(int, numbers)))
    print(0)
except OSError as e:
    print(e.errno)
"#;

fn ioctl(path: &str, args: &[&str]) -> i32 {
    let args = [&["-c", IOCTL, path][..], args].concat();
    succeeds(&run("python3", &args)).trim().parse().unwrap()
}

fn stat(mount: &Mount, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("{}/.zrfs/stats.json", mount.path())).unwrap();
    let line = text.lines().find(|l| l.trim().starts_with(&format!("\"{name}\":"))).unwrap().to_string();
    line.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// Reads records of a mount in this order, compares them, and returns how many requests and pushed files that took.
fn read(mount: &Mount, records: &[Vec<u8>], order: &[u64]) -> [u64; 2] {
    let before = [stat(mount, "reads"), stat(mount, "pushed")];
    for &index in order {
        let got = std::fs::read(format!("{}/records/{index}", mount.path())).unwrap();
        assert!(got == records[index as usize], "record {index}");
        // A reader that does something with them.
        std::thread::sleep(Duration::from_micros(200));
    }
    // Reading the numbers is a request, too.
    [stat(mount, "reads") - before[0] - 1, stat(mount, "pushed") - before[1]]
}

fn order(spec: &str, length: u64, start: u64, count: usize) -> Vec<u64> {
    let mut sampler = Sampler::new(spec.parse().unwrap(), length).unwrap();
    sampler.seek(start).unwrap();
    sampler.batches().flat_map(Result::unwrap).take(count).collect()
}

#[test]
fn a_reader_in_the_announced_order_is_served_ahead() {
    let dir = TempDir::new().unwrap();
    let records: Vec<Vec<u8>> = (0..2000).map(|i| bytes(i, 3000 + i as usize)).collect();
    for codec in ["raw", "zstd"] {
        let path = dir.path().join(codec);
        store(&path, codec, &records);
        for way in ["file", "directory", "record", "step 40"] {
            let measure = || {
                let mount = Mount::new(&path, &[]);
                let at = mount.path();
                succeeds(&shell(&format!("ls -l {at}/records >/dev/null")));
                let (start, length, key) = if way == "step 40" { (40, 1500, ",length=1500") } else { (0, 2000, "") };
                match way {
                    "directory" => {
                        assert_eq!(ioctl(&format!("{at}/records"), &["40307AF1", "16", "7", "0", "1", "0"]), 0)
                    }
                    "record" => {
                        assert_eq!(ioctl(&format!("{at}/records/5"), &["40307AF1", "16", "7", "0", "1", "0"]), 0)
                    }
                    _ => {
                        let name = format!("{SPEC},start={start}{key}");
                        let said = succeeds(&run("cat", &[&format!("{at}/.zrfs/readahead/{name}")]));
                        let first: Vec<String> = order(SPEC, length, start, 4).iter().map(u64::to_string).collect();
                        let want = format!("{name}: {length} records, {} … come first\n", first.join(" "));
                        assert_eq!(said, want);
                    }
                }
                let numbers = read(&mount, &records, &order(SPEC, length, start, 1000));
                assert_eq!(stat(&mount, "announced"), 1);
                numbers
            };
            let [reads, pushed] = at_best(measure, |[reads, pushed]| *reads < 300 && *pushed > 700);
            assert!(reads < 300 && pushed > 700, "{codec} {way}: {reads} reads, {pushed} pushed");
        }
    }
}

#[test]
fn nobody_follows_it_and_nothing_is_done() {
    let dir = TempDir::new().unwrap();
    let records: Vec<Vec<u8>> = (0..2000).map(|i| bytes(i, 2000)).collect();
    store(&dir.path().join("s"), "zstd", &records);
    let mount = Mount::new(&dir.path().join("s"), &[]);
    succeeds(&shell(&format!("ls -l {}/records >/dev/null", mount.path())));
    for seed in 0..70 {
        succeeds(&run("cat", &[&format!("{}/.zrfs/readahead/cyclic,batch=8,seed={seed}", mount.path())]));
    }
    let [reads, pushed] = read(&mount, &records, &order("cyclic,batch=8,seed=99", 2000, 0, 1000));
    assert!(reads + pushed >= 1000 && pushed < 1000 / 4, "{reads} reads, {pushed} pushed");
}

#[test]
fn what_is_no_order() {
    let dir = TempDir::new().unwrap();
    store(&dir.path().join("s"), "raw", &[bytes(1, 100), bytes(2, 100)]);
    let mount = Mount::new(&dir.path().join("s"), &[]);
    let at = mount.path();
    let bad = [
        "cyclic",
        "cyclic,batch=0",
        "x",
        "cyclic,batch=4,start=-1",
        "cyclic,batch=4,start=1,start=1",
        "iid,batch=256,start=99999999999",
        "cyclic,batch=4,stream=a",
        "cyclic,batch=4,dir=npy",
        "cyclic,batch=4,dir=tree",
        "cyclic,batch=4,length=0",
        "cyclic,batch=4,length=3",
        "cyclic,batch=4,length=1,length=1",
    ];
    for spec in bad {
        let done = run("cat", &[&format!("{at}/.zrfs/readahead/{spec}")]);
        assert!(done.code == Some(1) && done.err.contains("Invalid argument"), "{spec}: {done:?}");
    }
    assert_eq!(ioctl(&at, &["40307AF1", "0", "7", "0", "1", "0"]), 22);
    assert_eq!(ioctl(&at, &["40307AF1", "4", "7", "1", "1", "0"]), 22);
    assert_eq!(ioctl(&at, &["40307AF2", "4", "7", "0", "1", "0"]), 25);
    assert_eq!(ioctl(&format!("{at}/.zrfs"), &["40307AF1", "4", "7", "0", "1", "0"]), 25);
    assert_eq!(ioctl(&at, &["40307AF1", "4", "7", "0", "1", "0"]), 0);
    assert_eq!(succeeds(&run("ls", &[&format!("{at}/.zrfs/readahead")])), "");
    let said = succeeds(&run("cat", &[&format!("{at}/.zrfs/readahead/sequential,batch=4,length=1")]));
    assert_eq!(said, "sequential,batch=4,length=1: 1 records, 0 0 0 0 … come first\n");
    let mount = Mount::new(&dir.path().join("s"), &["--push-size", "0"]);
    let done = run("cat", &[&format!("{}/.zrfs/readahead/{SPEC}", mount.path())]);
    assert!(done.err.contains("not supported"), "{done:?}");
    assert_eq!(ioctl(&mount.path(), &["40307AF1", "4", "7", "0", "1", "0"]), 95);
}
