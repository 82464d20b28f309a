//! Readers, in threads and in processes of their own, while a writer appends, syncs, closes and opens again: everything
//! that they read is right, and they see what comes. `ZRFS_CONCURRENCY_SECONDS` asks for another time than 10 s.

#[path = "common/forked.rs"]
mod forked;

use forked::{Kind, fork, record, seconds, shape, wait};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zrfs::format::Codec;
use zrfs::{Dataset, OpenOptions, Result, Stream};

/// What is read: a store, or all streams of a dataset.
enum Reader {
    Stream(Box<Stream>),
    Dataset(Dataset),
}

impl Reader {
    fn open(kind: Kind, path: &Path) -> Result<Self> {
        let options = OpenOptions::new().verify_on_read(true);
        Ok(match kind {
            Kind::Dataset => Reader::Dataset(Dataset::open_with(&options, path)?),
            Kind::Bytes | Kind::Ragged => Reader::Stream(Box::new(Stream::open_with(&options, path)?)),
        })
    }
    fn len(&self) -> u64 {
        match self {
            Reader::Stream(stream) => stream.len(),
            Reader::Dataset(dataset) => dataset.len(),
        }
    }
    fn refresh(&self) -> Result<u64> {
        match self {
            Reader::Stream(stream) => stream.store().refresh(),
            Reader::Dataset(dataset) => dataset.refresh(),
        }
    }
    /// Reads the records at `indices` in one batch and one by one; record `i` must be the one of that number.
    fn check(&self, indices: &[u64]) -> Result<()> {
        let streams: Vec<&Stream> = match self {
            Reader::Stream(stream) => vec![stream],
            Reader::Dataset(dataset) => dataset.streams().iter().map(|(_, stream)| stream).collect(),
        };
        for stream in streams {
            let dense = matches!(stream.schema().map(|s| &s.kind), Some(zrfs::format::Kind::Dense { .. }));
            let (bytes, offsets) = stream.store().gather_packed(indices)?;
            let ends = offsets.iter().copied().skip(1).chain([bytes.len() as u64]);
            for ((&i, &from), to) in indices.iter().zip(&offsets).zip(ends) {
                let whole = record(i);
                let want = if dense { &whole[..12] } else { &whole[..] };
                assert_eq!(&bytes[from as usize..to as usize], want, "record {i} in a batch");
                if i % 5 == 0 {
                    assert_eq!(stream.store().read(i)?, want, "record {i}");
                }
                if stream.schema().is_some() && !dense {
                    assert_eq!(stream.shape(i)?, Some(shape(i)), "the shape of record {i}");
                }
            }
        }
        Ok(())
    }
}

/// Reads until `stop`, now with one reader that is refreshed and now with new ones; never sees fewer records than before.
/// Returns how many records it read.
fn read_on(kind: Kind, path: &Path, seed: u64, stop: impl Fn() -> bool) -> u64 {
    let mut state = seed;
    let mut random = |below: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 20) % below
    };
    let (mut least, mut count) = (0, 0);
    while !stop() {
        let reader = Reader::open(kind, path).unwrap_or_else(|e| panic!("{kind:?}: opening: {e}"));
        for _ in 0..20 {
            let len = reader.len();
            assert!(len >= least, "{kind:?}: {len} records, and there were {least}");
            least = len;
            if len > 0 {
                // Half of them among the last, where the writer is.
                let mut indices: Vec<u64> = (0..random(40)).map(|_| random(len)).collect();
                indices.extend((0..random(40)).map(|_| len - 1 - random(len.min(50))));
                reader.check(&indices).unwrap_or_else(|e| panic!("{kind:?} of {len} records: {e}"));
                count += indices.len() as u64;
            }
            reader.refresh().unwrap_or_else(|e| panic!("{kind:?}: refreshing: {e}"));
            if stop() {
                break;
            }
        }
    }
    count
}

#[test]
fn readers_beside_a_writer_read_what_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let cases: Vec<(Kind, Codec)> = [Kind::Bytes, Kind::Ragged, Kind::Dataset]
        .into_iter()
        .flat_map(|kind| [Codec::Raw, Codec::Zstd].map(|codec| (kind, codec)))
        .collect();
    let time = seconds("ZRFS_CONCURRENCY_SECONDS", 10) / cases.len() as u32;
    for (kind, codec) in cases {
        let path = dir.path().join(format!("{kind:?}-{codec}"));
        kind.create(&path, codec);
        let end = Instant::now() + time.max(Duration::from_secs(1));
        let stop_file = path.with_extension("stop");
        // Before there are threads.
        let children: Vec<_> =
            (0..2).map(|n| fork(|| read_on(kind, &path, 100 + n, || stop_file.exists()) > 0)).collect();
        let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
        let (mut next, mut opened) = (0, 0);
        std::thread::scope(|scope| {
            for n in 0..2 {
                let (stop, reads, path) = (&stop, &reads, &path);
                scope.spawn(move || {
                    let count = read_on(kind, path, n, || stop.load(Ordering::Relaxed));
                    reads.fetch_add(count, Ordering::Relaxed);
                });
            }
            while Instant::now() < end {
                let mut writer = kind.open(&path).unwrap();
                opened += 1;
                assert_eq!(writer.len(), next);
                for round in 0..1 + opened % 9 {
                    let count = 1 + (next * 7 + round) % 60;
                    writer.append(next..next + count).unwrap();
                    next += count;
                    if round % 3 == 0 {
                        writer.sync().unwrap();
                    }
                }
                // One in three ends without closing.
                if opened % 3 > 0 {
                    writer.close().unwrap();
                }
            }
            stop.store(true, Ordering::Relaxed);
            std::fs::write(&stop_file, "").unwrap();
        });
        for child in children {
            assert_eq!(wait(child), 0, "{kind:?} {codec}: a reading process failed");
        }
        assert_eq!(kind.read(&path).unwrap(), (0..next).collect::<Vec<_>>());
        let reads = reads.into_inner();
        println!(
            "concurrency, {kind:?} {codec}: {next} records by {opened} writers, {reads} read meanwhile by threads"
        );
        assert!(reads > 0, "nothing was read");
    }
}
