//! What the benchmarks of stores share: made-up records, stores of them, and orders to read them in.
#![allow(dead_code)] // Each benchmark uses its own part.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use zrfs::format::{Codec, Entry, Header, Layout, META_FILE, table::ENTRY_LEN};
use zrfs::{Result, WriterOptions, codec};

/// Records in a batch.
pub const BATCH: usize = 256;
/// The records' sizes in bytes.
pub const SIZES: [usize; 4] = [200, 2 << 10, 12 << 10, 256 << 10];

/// Whether this measures, or only runs everything once to show that it runs.
pub fn measures() -> bool {
    std::env::args().any(|arg| arg == "--bench")
}

/// Bytes of records in a store: more than a processor's caches hold. Level 19, which dictionaries are used with, takes
/// a second for a few megabytes.
pub fn store_bytes(codec: Codec) -> usize {
    match codec {
        _ if !measures() => 1 << 20,
        Codec::Raw | Codec::Zstd => 256 << 20,
        Codec::ZstdDict => 16 << 20,
    }
}

/// So many records as the store of that codec has, one after the other: the first quarter of each is the same in all,
/// which is what a dictionary finds, and the rest six random bits a byte, which zstd makes 1.3 times smaller.
pub fn records(codec: Codec, size: usize) -> Vec<u8> {
    let count = (store_bytes(codec) / size).max(4);
    let mut data = Vec::with_capacity(count * size + 8);
    let mut state = 1_u64;
    while data.len() < count * size {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The upper bits are the better ones.
        data.extend((state ^ (state >> 29)).to_le_bytes().map(|b| b & 0x3f));
    }
    data.truncate(count * size);
    let (first, others) = data.split_at_mut(size);
    others.chunks_exact_mut(size).for_each(|record| record[..size / 4].copy_from_slice(&first[..size / 4]));
    data
}

/// How a store of these records is written; of [`Codec::ZstdDict`] with a dictionary of 32 KiB.
pub fn options(codec: Codec, data: &[u8], size: usize) -> WriterOptions {
    let options = WriterOptions::new(codec);
    if codec != Codec::ZstdDict {
        return options;
    }
    let samples = &data[..data.len().min(4 << 20) / size * size];
    options.dict(codec::train_dict(samples, &vec![size; samples.len() / size], 32 << 10).expect("a dictionary"))
}

/// Makes a store of [`records`] at `path`; how many there are.
pub fn make(path: &Path, codec: Codec, size: usize) -> u64 {
    let data = records(codec, size);
    let mut writer = options(codec, &data, size).create(path).expect("a new store");
    writer.append(&data.chunks_exact(size).collect::<Vec<_>>()).expect("an append");
    writer.close().expect("a sync");
    (data.len() / size) as u64
}

/// The order in which a batch asks for records.
#[derive(Debug, Clone, Copy)]
pub enum Order {
    /// Anywhere, in any order.
    Random,
    /// The same, in ascending order.
    Sorted,
    /// Sixteen runs of neighbours.
    Clustered,
    /// Sixteen records, each of them sixteen times.
    Repeated,
}

impl Order {
    /// All of them.
    pub const ALL: [Order; 4] = [Order::Random, Order::Sorted, Order::Clustered, Order::Repeated];

    /// The batch made of the indices of a random one, of a store of `length` records.
    pub fn of(self, mut random: Vec<u64>, length: u64) -> Vec<u64> {
        match self {
            Order::Random => {}
            Order::Sorted => random.sort_unstable(),
            Order::Clustered => {
                for run in random.chunks_mut(16) {
                    let first = run[0].min(length.saturating_sub(16));
                    run.iter_mut().zip(first..).for_each(|(to, index)| *to = index % length);
                }
            }
            Order::Repeated => {
                let few = random[..random.len().min(16)].to_vec();
                random.iter_mut().zip(few.iter().cycle()).for_each(|(to, &index)| *to = index);
            }
        }
        random
    }
}

/// Endless batches of random indices below a length, the same ones for the same length.
#[derive(Debug)]
pub struct Batches {
    state: u64,
    length: u64,
}

impl Batches {
    /// Of a store of `length` records, at least one.
    pub fn new(length: u64) -> Self {
        Batches { state: 7, length }
    }

    /// The next batch.
    pub fn next(&mut self, order: Order) -> Vec<u64> {
        let mut index = || {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.state >> 33) % self.length
        };
        order.of((0..BATCH).map(|_| index()).collect(), self.length)
    }
}

/// Length of the records of [`make_sparse`].
pub const SPARSE_RECORD: u64 = 2 << 10;

/// Makes a raw store that has `length` records of 2 KiB and takes little space: of its table there is only what says
/// where the records `touched` are (and the others of the same 4 KiB of the table), of its chunks only these records.
///
/// # Errors
/// From the operating system.
pub fn make_sparse(path: &Path, length: u64, touched: &[u64]) -> io::Result<()> {
    const BLOCK: u64 = (4 << 10) / ENTRY_LEN as u64;
    let layout = Layout::STANDARD;
    // A record that would reach a chunk's end starts the next one.
    let per_chunk = (layout.chunk_bytes - 1) / SPARSE_RECORD;
    let place = |index: u64| (index / per_chunk, index % per_chunk * SPARSE_RECORD);
    fs::create_dir(path)?;
    let part = |number: u64, end: &str, len: u64| -> io::Result<File> {
        let file = File::create(path.join(format!("{number}.{end}")))?;
        file.set_len(len)?;
        Ok(file)
    };
    let last = place(length - 1);
    let chunk = |n| part(n, "chunk", if n == last.0 { last.1 + SPARSE_RECORD } else { per_chunk * SPARSE_RECORD });
    let chunks: Vec<File> = (0..=last.0).map(chunk).collect::<io::Result<_>>()?;
    let entries = |n: u64| (length - n * layout.segment_entries).min(layout.segment_entries);
    let segments = length.div_ceil(layout.segment_entries);
    let segment = |n| part(n, "loc", entries(n) * ENTRY_LEN as u64);
    let tables: Vec<File> = (0..segments).map(segment).collect::<io::Result<_>>()?;

    let mut blocks: Vec<u64> = touched.iter().map(|index| index / BLOCK).collect();
    blocks.sort_unstable();
    blocks.dedup();
    for block in blocks {
        let first = block * BLOCK;
        let entry = |index| {
            let (chunk, offset) = place(index);
            let length = SPARSE_RECORD as u32;
            Entry { offset: offset as u32, phys_length: length, logic_length: length, chunk_id: chunk as u32 }.encode()
        };
        let bytes: Vec<u8> = (first..(first + BLOCK).min(length)).flat_map(entry).collect();
        let table = &tables[(first / layout.segment_entries) as usize];
        table.write_all_at(&bytes, first % layout.segment_entries * ENTRY_LEN as u64)?;
    }
    for &index in touched {
        let (chunk, offset) = place(index);
        chunks[chunk as usize].write_all_at(&index.to_le_bytes().repeat(SPARSE_RECORD as usize / 8), offset)?;
    }
    let tail = (last.0 as u32, (last.1 + SPARSE_RECORD) as u32);
    let header = Header { length, tail_chunk: tail.0, tail_offset: tail.1, ..Header::new(Codec::Raw) };
    fs::write(path.join(META_FILE), header.encode())
}

/// Bytes of a store's records `indices`, each at its place in a batch of records of equal size.
pub fn offsets(size: usize) -> Vec<u64> {
    (0..BATCH as u64).map(|k| k * size as u64).collect()
}

/// This process's memory in KiB: resident, and of that what no file stands behind.
///
/// # Errors
/// From the operating system.
pub fn memory() -> io::Result<(u64, u64)> {
    let status = fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
    };
    Ok((field("VmRSS:"), field("RssAnon:")))
}

/// A gather whose error ends the benchmark.
pub fn gather(store: &zrfs::Store, indices: &[u64], room: &mut [u8], offsets: &[u64]) {
    let done: Result<()> = store.gather(indices, room, offsets);
    done.expect("a gather");
}
