//! How fast batches come through a mount, beside the engine's own gather in the same run.
//!
//!     cargo build --release -p zrfs-mount --bins --examples && target/release/examples/view_time [DIR]
//!
//! Batches of 256 records at random indices, into memory that is used again. Each client is a process, as programs are: it has
//! its own pool of threads, or its own views. The ways take turns, a few batches each, so whatever else the machine does hits
//! all of them: rates are the medians of their turns, ratios those of a turn's ratios. `native` is `Stream::gather_into`
//! into one buffer; `view` asks the mount for one batch after the other. `pipelined` has two views, and the mount gathers into
//! one while the other is used: the sum of all its words is made; `native, used` does the same with its one buffer.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use zrfs::buffer::BufferPool;
use zrfs::client::Mount;
use zrfs::{Source, WriterOptions};

const BATCH: usize = 256;
/// Turns of each way.
const TURNS: usize = 25;
/// A turn takes about so long.
const TURN: Duration = Duration::from_millis(80);
/// The first argument of a client, which this program starts itself as.
const CLIENT: &str = "--client";
/// The ways to get batches.
const WAYS: [&str; 4] = ["native", "view", "native, used", "pipelined"];

fn main() {
    let mut args = std::env::args_os().skip(1);
    let first = args.next();
    if first.as_deref() == Some(OsStr::new(CLIENT)) {
        let rest: Vec<_> = args.collect();
        let [way, seed, path] = &rest[..] else { panic!("{CLIENT} WAY SEED PATH") };
        let [way, seed] = [way, seed].map(|arg| arg.to_str().expect("an argument of ours"));
        return serve(way, seed.parse().expect("a seed"), Path::new(path));
    }
    let top = first.map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(top).expect("a directory to work in");
    println!("| records | clients | native, MiB/s | view | ratio | native, used | pipelined | ratio |");
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    for (codec, length, count) in [("raw", 12 << 10, 8192), ("raw", 256 << 10, 1024), ("zstd", 12 << 10, 8192)] {
        let path = dir.path().join(format!("{codec}-{length}"));
        make(&path, codec, length, count);
        let mount = Mounted::new(&path, dir.path());
        for clients in [1, 2, 4] {
            let [native, view, of_native, used, pipelined, of_used] = measure(&path, &mount.at, clients);
            let kib = length >> 10;
            print!("| {codec}, {kib} KiB | {clients} | {native:.0} | {view:.0} | {of_native:.2} ");
            println!("| {used:.0} | {pipelined:.0} | {of_used:.2} |");
        }
        drop(mount);
        let _ = std::fs::remove_dir_all(&path);
    }
}

/// A store of records that compress to about three quarters.
fn make(path: &Path, codec: &str, length: usize, count: usize) {
    let mut writer = WriterOptions::new(codec.parse().expect("a codec")).create(path).expect("a store");
    let mut x = 1u64;
    let mut record = vec![0u8; length];
    for _ in 0..count {
        for byte in &mut record {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (x >> 58) as u8;
        }
        writer.append(&[&record[..]]).expect("a record");
    }
    writer.close().expect("a store");
}

/// A mount by the program beside this one.
struct Mounted {
    at: PathBuf,
    server: Child,
}

impl Mounted {
    fn new(store: &Path, dir: &Path) -> Mounted {
        let at = dir.join("mount");
        let _ = std::fs::create_dir(&at);
        let me = std::env::current_exe().expect("a program");
        let program = me.ancestors().nth(2).expect("a target directory").join("zrfs-mount");
        let server = Command::new(program)
            .args(["-f", "--view-memory", "8G"])
            .arg(store)
            .arg(&at)
            .stdin(Stdio::null())
            .spawn()
            .expect("zrfs-mount");
        let begin = Instant::now();
        while !matches!(Mount::find(&at), Ok(Some(_))) {
            assert!(begin.elapsed() < Duration::from_secs(20), "no mount");
            std::thread::sleep(Duration::from_millis(5));
        }
        Mounted { at, server }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).status();
        let _ = self.server.wait();
    }
}

/// Medians: MiB/s native and by view, and their ratio; the same native and pipelined where batches are used.
fn measure(store: &Path, at: &Path, clients: usize) -> [f64; 6] {
    let mut rates = [const { Vec::new() }; 6];
    let mut ways = [(0, store), (1, at), (2, store), (3, at)]
        .map(|(way, path)| (1..=clients).map(|seed| Client::new(WAYS[way], seed, path)).collect::<Vec<_>>());
    for turn in 0..=TURNS {
        let [native, view, used, pipelined] = [0, 1, 2, 3].map(|way| turn_of(&mut ways[way]));
        // The first turn makes the memory.
        if turn > 0 {
            let all = [native, view, view / native, used, pipelined, pipelined / used];
            rates.iter_mut().zip(all).for_each(|(rates, rate)| rates.push(rate));
        }
    }
    rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    })
}

/// All clients at once for a while; MiB/s of all together.
fn turn_of(clients: &mut [Client]) -> f64 {
    clients.iter_mut().for_each(Client::begin);
    clients.iter_mut().map(Client::rate).sum::<f64>() / f64::from(1 << 20)
}

/// A process that gets batches: of a line it is sent it makes a turn, whose bytes and nanoseconds it answers.
struct Client {
    child: Child,
    /// Its end is that of the client.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Client {
    fn new(way: &str, seed: usize, path: &Path) -> Client {
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command.args([CLIENT, way, &seed.to_string()]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a client");
        let (to, from) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        Client { child, to, from: BufReader::new(from) }
    }

    fn begin(&mut self) {
        self.to.as_mut().expect("a pipe").write_all(b"\n").expect("a client");
    }

    /// Bytes a second of the turn that it began.
    fn rate(&mut self) -> f64 {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("a client");
        let numbers = line.trim().split_once(' ').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let (bytes, nanos): (f64, f64) = numbers.expect("a client that goes on");
        bytes / nanos * 1e9
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.to = None;
        let _ = self.child.wait();
    }
}

/// What a client does until nobody wants another turn.
fn serve(way: &str, seed: u64, path: &Path) {
    let mut batch = batches(way, seed, path);
    for line in std::io::stdin().lines() {
        line.expect("a pipe");
        let (begin, mut bytes) = (Instant::now(), 0);
        while begin.elapsed() < TURN {
            bytes += batch();
        }
        println!("{bytes} {}", begin.elapsed().as_nanos());
    }
}

/// Gets one batch after the other from a store or a mount; the bytes of each.
fn batches(way: &str, seed: u64, path: &Path) -> Box<dyn FnMut() -> usize> {
    if way.starts_with("native") {
        let Source::Store(stream) = Source::open(path).expect("a store") else { panic!("a store") };
        let (pool, mut indices) = (BufferPool::new(1), random(seed, stream.len()));
        let is_used = way.ends_with("used");
        return Box::new(move || {
            let mut buffer = None;
            let slot = &mut buffer;
            let offsets = stream.gather_into(&indices(), |offsets| {
                let total = offsets.last().copied().unwrap_or(0) as usize;
                Ok(&mut **slot.insert(pool.get(total)?))
            });
            if is_used {
                use_up(buffer.as_deref().expect("a batch"));
            }
            offsets.expect("a batch").last().copied().unwrap_or(0) as usize
        });
    }
    let mount = Mount::open(path).expect("a mount");
    if way == "view" {
        let mut indices = random(seed, mount.records().expect("a mount"));
        return Box::new(move || mount.gather(&indices()).expect("a batch").bytes() as usize);
    }
    let lists = random(seed, mount.records().expect("a mount"));
    let mut batches = mount.batches(std::iter::repeat_with(lists));
    Box::new(move || {
        let batch = batches.next().expect("a batch").expect("a batch");
        batch.parts().iter().for_each(|part| use_up(part.bytes()));
        batch.bytes() as usize
    })
}

/// Makes the sum of all words of a batch, as the least that a program does with it.
fn use_up(bytes: &[u8]) {
    let (words, _) = bytes.as_chunks();
    std::hint::black_box(words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word))));
}

/// The indices of one batch after the other.
fn random(seed: u64, length: u64) -> impl FnMut() -> Vec<u64> {
    let mut x = seed;
    move || {
        let next = |_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) % length
        };
        (0..BATCH).map(next).collect()
    }
}
