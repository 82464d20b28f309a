//! Gathers from memory and what they are held against: copying and decoding the same records.

use crate::common::{BATCH, Order, offsets};
use crate::{Failure, repeat};
use rayon::ThreadPool;
use rayon::prelude::*;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zrfs::Store;
use zrfs::buffer::{Buffer, BufferPool};
use zrfs::codec::Decoder;
use zrfs::format::{Codec, DICT_FILE};

/// A store's stored records in memory.
struct Frames {
    decoder: Decoder,
    bytes: Vec<u8>,
    places: Vec<Range<usize>>,
}

/// What all turns share: the records, the batches of their indices, and one buffer for whatever makes a batch.
pub struct Session {
    pub dir: PathBuf,
    /// Length of a record in bytes.
    pub record: usize,
    /// All records, one after the other.
    pub data: Vec<u8>,
    batches: Vec<Vec<u64>>,
    next: usize,
    /// Turns that read from the disk, each of other records first.
    pub turns: u64,
    room: Buffer,
    offsets: Vec<u64>,
    stores: HashMap<String, Store>,
    frames: HashMap<String, Frames>,
    /// By the number of their threads, which live as long as the session.
    pools: HashMap<usize, ThreadPool>,
}

impl Session {
    pub fn new(dir: &Path, record: usize) -> Result<Self, Failure> {
        let data = fs::read(dir.join("data.bin"))?;
        let indices = fs::read(dir.join("indices.u64"))?;
        let indices: Vec<u64> = indices.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let batches: Vec<Vec<u64>> = indices.chunks_exact(BATCH).map(<[u64]>::to_vec).collect();
        if record == 0 || data.len() < record || batches.is_empty() {
            return Err(format!("{} has no record or no batch", dir.display()).into());
        }
        let room = BufferPool::new(1).get(BATCH * record)?;
        Ok(Session {
            dir: dir.to_path_buf(),
            record,
            data,
            batches,
            next: 0,
            turns: 0,
            room,
            offsets: offsets(record),
            stores: HashMap::new(),
            frames: HashMap::new(),
            pools: HashMap::new(),
        })
    }

    /// Opens a store, if it is not open yet; its number of records.
    fn open(&mut self, name: &str) -> Result<u64, Failure> {
        if !self.stores.contains_key(name) {
            self.stores.insert(name.to_string(), Store::open(self.dir.join(name))?);
        }
        Ok(self.stores[name].len())
    }

    /// Closes a store, if it is open.
    pub fn close(&mut self, name: &str) {
        self.stores.remove(name);
    }

    /// A small store has the first of the records, and the indices are taken below its length.
    fn batches(&self, length: u64, order: Order) -> Vec<Vec<u64>> {
        let below = |batch: &Vec<u64>| order.of(batch.iter().map(|index| index % length).collect(), length);
        self.batches.iter().map(below).collect()
    }

    fn records(&self) -> u64 {
        (self.data.len() / self.record) as u64
    }

    /// Makes the pool of so many threads, if there is none yet.
    fn pool(&mut self, threads: usize) -> Result<(), Failure> {
        if let Entry::Vacant(free) = self.pools.entry(threads) {
            free.insert(rayon::ThreadPoolBuilder::new().num_threads(threads).build()?);
        }
        Ok(())
    }

    pub fn gather(&mut self, store: &str, order: &str, limit: Duration) -> Result<f64, Failure> {
        let order = Order::ALL.into_iter().find(|o| format!("{o:?}").eq_ignore_ascii_case(order));
        let length = self.open(store)?;
        let batches = self.batches(length, order.ok_or("no such order")?);
        let (store, room, next) = (&self.stores[store], &mut self.room, &mut self.next);
        repeat(BATCH * self.record, limit, || {
            *next = (*next + 1) % batches.len();
            Ok(store.gather(&batches[*next], room, &self.offsets)?)
        })
    }

    /// The checksum of the first batch, which all contenders must agree on.
    pub fn check(&mut self, store: &str) -> Result<u32, Failure> {
        let length = self.open(store)?;
        let batch = self.batches(length, Order::Random).swap_remove(0);
        self.room.fill(0xa5);
        self.stores[store].gather(&batch, &mut self.room, &self.offsets)?;
        Ok(crc32fast::hash(&self.room))
    }

    /// Does `each` for the index and the place of each record of a batch, on so many threads, for so long.
    fn shared(
        &mut self,
        length: u64,
        threads: usize,
        limit: Duration,
        each: impl Fn(u64, &mut [u8]) -> Result<(), Failure> + Sync,
    ) -> Result<f64, Failure> {
        self.pool(threads)?;
        let batches = self.batches(length, Order::Random);
        let (pool, record, next) = (&self.pools[&threads], self.record, &mut self.next);
        let room = &mut self.room;
        // One share a thread: what is the same for all needs no balance, and a limit is to have the least to do.
        let share = BATCH.div_ceil(threads);
        let run = |indices: &[u64], room: &mut [u8]| -> Result<(), String> {
            let places = indices.iter().zip(room.chunks_exact_mut(record));
            places.into_iter().try_for_each(|(&index, place)| each(index, place)).map_err(|e| e.to_string())
        };
        repeat(BATCH * record, limit, || {
            *next = (*next + 1) % batches.len();
            let batch = &batches[*next];
            if threads == 1 {
                return Ok(run(batch, room)?);
            }
            let shares = batch.par_chunks(share).zip(room.par_chunks_mut(share * record)).with_max_len(1);
            Ok(pool.install(|| shares.try_for_each(|(indices, room)| run(indices, room)))?)
        })
    }

    pub fn copy(&mut self, threads: usize, limit: Duration) -> Result<f64, Failure> {
        let (length, record, data) = (self.records(), self.record, std::mem::take(&mut self.data));
        let done = self.shared(length, threads, limit, |index, place| {
            place.copy_from_slice(&data[index as usize * record..][..record]);
            Ok(())
        });
        self.data = data;
        done
    }

    pub fn pread(&mut self, threads: usize, limit: Duration) -> Result<f64, Failure> {
        let (file, record) = (File::open(self.dir.join("data.bin"))?, self.record as u64);
        self.shared(self.records(), threads, limit, |index, place| Ok(file.read_exact_at(place, index * record)?))
    }

    pub fn decode(&mut self, name: &str, threads: usize, limit: Duration) -> Result<f64, Failure> {
        let length = self.open(name)?;
        let frames = match self.frames.remove(name) {
            Some(frames) => frames,
            None => Frames::of(&self.stores[name])?,
        };
        let done = self.shared(length, threads, limit, |index, place| {
            Ok(frames.decoder.decode(&frames.bytes[frames.places[index as usize].clone()], place)?)
        });
        self.frames.insert(name.to_string(), frames);
        done
    }
}

impl Frames {
    fn of(store: &Store) -> Result<Self, Failure> {
        let dict = (store.codec() == Codec::ZstdDict).then(|| fs::read(store.path().join(DICT_FILE))).transpose()?;
        let decoder = Decoder::new(store.codec(), dict.as_deref())?;
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        let mut chunk = (0, File::open(store.path().join("0.chunk"))?);
        for index in 0..store.len() {
            let entry = store.entry(index)?;
            if chunk.0 != entry.chunk_id {
                chunk = (entry.chunk_id, File::open(store.path().join(format!("{}.chunk", entry.chunk_id)))?);
            }
            let start = bytes.len();
            bytes.resize(start + entry.phys_length as usize, 0);
            chunk.1.read_exact_at(&mut bytes[start..], entry.offset.into())?;
            places.push(start..bytes.len());
        }
        Ok(Frames { decoder, bytes, places })
    }
}
