//! How fast batches come through a mount, beside the engine's own gather in the same run.
//!
//!     cargo build --release -p zrfs-mount --bins --examples && target/release/examples/view_time [DIR]
//!
//! Batches of 256 records at random indices, into memory that is used again. The ways take turns, a few batches each, so
//! whatever else the machine does hits all of them: rates are the medians of their turns, ratios those of a turn's ratios. `native` is [`Stream::gather_into`]
//! into one buffer; `view` asks the mount for one batch after the other; `pipelined` has two views, and the mount gathers into
//! one while the other is used.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};
use zrfs::client::Mount;
use zrfs::loader::Loader;
use zrfs::{Source, Stream, WriterOptions};

const BATCH: usize = 256;
/// Turns of each way.
const TURNS: usize = 25;
/// A turn takes about so long.
const TURN: Duration = Duration::from_millis(80);

fn main() {
    let top = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(top).expect("a directory to work in");
    println!("| records | clients | native, MiB/s | view | pipelined | view : native | pipelined : native |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for (codec, length, count) in [("raw", 12 << 10, 8192), ("raw", 256 << 10, 1024), ("zstd", 12 << 10, 8192)] {
        let path = dir.path().join(format!("{codec}-{length}"));
        make(&path, codec, length, count);
        let mount = Mounted::new(&path, dir.path());
        for clients in [1, 2, 4] {
            let [native, view, pipelined, of_view, of_pipelined] = measure(&path, &mount.at, clients);
            let kib = length >> 10;
            println!(
                "| {codec}, {kib} KiB | {clients} | {native:.0} | {view:.0} | {pipelined:.0} | {of_view:.2} | {of_pipelined:.2} |"
            );
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

/// A way to get batches: of a client's state, the bytes of one more.
type Way<'a> = Box<dyn FnMut() -> usize + Send + 'a>;

/// Medians: MiB/s native, by view and pipelined, and the ratios of the latter two to the first.
fn measure(store: &Path, at: &Path, clients: usize) -> [f64; 5] {
    let source = Source::open(store).expect("a store");
    let Source::Store(stream) = &source else { panic!("a store") };
    let mut rates = [const { Vec::new() }; 5];
    let mut ways: Vec<Vec<Way<'_>>> =
        (0..3).map(|way| (0..clients).map(|k| client(way, k, stream, at)).collect()).collect();
    for turn in 0..=TURNS {
        let [native, view, pipelined] = [0, 1, 2].map(|way| turn_of(&mut ways[way]));
        // The first turn makes the memory.
        if turn > 0 {
            let all = [native, view, pipelined, view / native, pipelined / native];
            rates.iter_mut().zip(all).for_each(|(rates, rate)| rates.push(rate));
        }
    }
    rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    })
}

/// All clients at once for a while; MiB/s of all together.
fn turn_of(clients: &mut [Way<'_>]) -> f64 {
    let start = Barrier::new(clients.len());
    let start = &start;
    let one = |way: &mut Way<'_>| {
        start.wait();
        let (begin, mut bytes) = (Instant::now(), 0);
        while begin.elapsed() < TURN {
            bytes += way();
        }
        bytes as f64 / begin.elapsed().as_secs_f64()
    };
    let sum: f64 = std::thread::scope(|scope| {
        let threads: Vec<_> = clients.iter_mut().map(|way| scope.spawn(move || one(way))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client")).sum()
    });
    sum / f64::from(1 << 20)
}

fn client<'a>(way: usize, k: usize, stream: &'a Stream, at: &Path) -> Way<'a> {
    let length = stream.len();
    let mut x = k as u64 + 1;
    let mut indices = move || -> Vec<u64> {
        let next = |_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) % length
        };
        (0..BATCH).map(next).collect()
    };
    let mount = Mount::open(at).expect("a mount");
    match way {
        0 => {
            let pool = zrfs::buffer::BufferPool::new(1);
            Box::new(move || {
                let mut buffer = None;
                let slot = &mut buffer;
                let offsets = stream.gather_into(&indices(), |offsets| {
                    let total = offsets.last().copied().unwrap_or(0) as usize;
                    Ok(&mut **slot.insert(pool.get(total)?))
                });
                offsets.expect("a batch").last().copied().unwrap_or(0) as usize
            })
        }
        1 => Box::new(move || mount.gather(&indices()).expect("a batch").bytes() as usize),
        _ => {
            let loader = Loader::builder().mount(mount).batch(BATCH as u64).seed(k as u64).workers(2).prefetch(1);
            let loader = loader.build().expect("a loader");
            Box::new(move || loader.next().expect("a batch").expect("a batch").bytes() as usize)
        }
    }
}
