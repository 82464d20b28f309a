//! Random stores and batches, and what each batch must be: by the engine's own gather, which must be what was written.

use proptest::prelude::*;
use proptest::sample::select;
use std::path::Path;
use std::sync::OnceLock;
use zrfs::dataset::{DenseWriter, RaggedWriter, Values};
use zrfs::dict::{DictTier, train};
use zrfs::format::Codec;
use zrfs::format::dtype::DType;
use zrfs::format::npy::header_bytes;
use zrfs::loader::{Batch, Shape};
use zrfs::sampler::{Mode, Sampler, Spec, Tail};
use zrfs::{Selection, Source, Stream, WriterOptions};

/// Bytes that the records of one stream in a batch have, about.
const MOST: usize = 2 << 20;

#[derive(Debug, Clone)]
pub enum Form {
    /// The extents, which are made small enough for the stream's records.
    Dense(Vec<u64>),
    /// Whether the number of dimensions differs, too.
    Ragged(bool),
    Bytes,
}

/// How to make a stream.
#[derive(Debug, Clone)]
pub struct Made {
    pub form: Form,
    pub dtype: &'static str,
    pub codec: Codec,
    /// Bytes of its largest records.
    pub longest: u64,
    pub seed: u64,
}

/// A store, or a dataset where there are several streams or it says so.
#[derive(Debug, Clone)]
pub struct Stores {
    pub streams: Vec<Made>,
    pub dataset: bool,
    pub count: u64,
}

pub fn stream() -> impl Strategy<Value = Made> {
    let form = prop_oneof![
        2 => prop::collection::vec(1u64..9, 0..4).prop_map(Form::Dense),
        2 => any::<bool>().prop_map(Form::Ragged),
        1 => Just(Form::Bytes),
    ];
    let dtypes = select(vec!["|u1", "<i2", ">f4", "<f8"]);
    let longest = prop_oneof![2 => 8u64..40, 4 => 40u64..900, 1 => 10_000u64..40_000];
    let parts = (form, dtypes, select(&Codec::ALL[..]), longest, any::<u64>());
    parts.prop_map(|(form, dtype, codec, longest, seed)| Made { form, dtype, codec, longest, seed })
}

pub fn stores() -> impl Strategy<Value = Stores> {
    let streams = prop_oneof![2 => prop::collection::vec(stream(), 1), 1 => prop::collection::vec(stream(), 2..4)];
    let count = prop_oneof![1 => 1u64..4, 4 => 4u64..90];
    (streams, any::<bool>(), count).prop_map(|(streams, alone_in_dataset, count)| {
        let dataset = streams.len() > 1 || alone_in_dataset;
        Stores { streams, dataset, count }
    })
}

/// A number that looks like chance.
fn mix(seed: u64, k: u64) -> u64 {
    let x = (seed ^ k.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (x ^ x >> 29).wrapping_mul(0x94D0_49BB_1331_11EB) >> 11
}

impl Made {
    fn dtype(&self) -> DType {
        DType::parse(self.dtype).unwrap()
    }

    /// Items of the largest records.
    fn items(&self) -> u64 {
        (self.longest / self.dtype().itemsize()).max(1)
    }

    /// The shape of a dense record: as drawn, without the dimensions for which there is no room.
    fn dense(&self, extents: &[u64]) -> Vec<u64> {
        let mut room = self.items();
        let shape = extents.iter().map(|&extent| {
            let extent = extent.min(room);
            room /= extent;
            extent
        });
        shape.collect()
    }

    /// The shape of a record (none of bytes), and what it holds.
    pub fn record(&self, index: u64) -> (Option<Vec<u64>>, Vec<u8>) {
        let chance = |k: u64| mix(self.seed, index * 8 + k);
        let shape = match &self.form {
            Form::Dense(extents) => Some(self.dense(extents)),
            Form::Ragged(mixed) => {
                let dimensions = if *mixed { chance(0) % 4 } else { self.seed % 4 };
                let mut room = self.items();
                let shape = (1..=dimensions).map(|k| {
                    let extent = 1 + chance(k) % room.min(if k == dimensions { u64::MAX } else { 5 });
                    room /= extent;
                    extent
                });
                Some(shape.collect())
            }
            Form::Bytes => None,
        };
        let length = match &shape {
            Some(shape) => shape.iter().product::<u64>() * self.dtype().itemsize(),
            None => 1 + chance(0) % self.longest,
        };
        // Few values, so that it compresses.
        let bytes = (0..length).map(|k| (mix(self.seed ^ index << 20, k / 3) % 11) as u8);
        (shape, bytes.collect())
    }

    fn make(&self, path: &Path, count: u64) {
        let options = options(self.codec);
        let records: Vec<_> = (0..count).map(|index| self.record(index)).collect();
        match &self.form {
            Form::Dense(extents) => {
                let mut writer = DenseWriter::create(path, options, self.dtype(), self.dense(extents)).unwrap();
                let all: Vec<u8> = records.into_iter().flat_map(|(_, bytes)| bytes).collect();
                writer.append(&all).unwrap();
                writer.close().unwrap();
            }
            Form::Ragged(_) => {
                let mut writer = RaggedWriter::create(path, options, self.dtype()).unwrap();
                let all: Vec<(&[u64], &[u8])> =
                    records.iter().map(|(shape, bytes)| (&shape.as_ref().unwrap()[..], &bytes[..])).collect();
                writer.append(&all).unwrap();
                writer.close().unwrap();
            }
            Form::Bytes => {
                let mut writer = options.create(path).unwrap();
                writer.append(&records.iter().map(|(_, bytes)| &bytes[..]).collect::<Vec<_>>()).unwrap();
                writer.close().unwrap();
            }
        }
    }
}

impl Stores {
    pub fn make(&self, path: &Path) {
        if self.dataset {
            std::fs::create_dir(path).unwrap();
            self.streams.iter().enumerate().for_each(|(k, made)| made.make(&path.join(format!("s{k}")), self.count));
        } else {
            self.streams[0].make(path, self.count);
        }
    }

    /// So many records at most that a batch is not too large.
    pub fn most(&self) -> usize {
        MOST / self.streams.iter().map(|made| made.longest as usize).max().unwrap_or(1)
    }
}

/// Those of a codec; the dictionary is trained once.
pub fn options(codec: Codec) -> WriterOptions {
    let options = WriterOptions::new(codec);
    if codec == Codec::ZstdDict {
        static DICT: OnceLock<Vec<u8>> = OnceLock::new();
        let sample = |k| (0..400).map(|at| b'a' + (mix(k, at / 3) % 8) as u8).collect::<Vec<u8>>();
        let dict = DICT.get_or_init(|| train((0..500).map(sample), DictTier::Fast).unwrap());
        options.level(Some(3)).dict(dict.clone())
    } else {
        options
    }
}

/// A batch. Numbers of records are taken as remainders of how many there are.
#[derive(Debug, Clone)]
pub enum Wanted {
    Indices(Vec<u64>),
    /// So many at random.
    Many(usize, u64),
    /// Where each begins, and how many records it has.
    Ranges(Vec<(u64, u64)>),
    /// A step of a sampler, over the first so many records.
    Step(Spec, u64, Option<u64>),
}

pub fn wanted() -> impl Strategy<Value = Wanted> {
    let sizes = select(vec![0usize, 1, 255, 256, 257, 2032, 2033, 5000]);
    let ranges = prop::collection::vec((any::<u64>(), prop_oneof![3 => 1u64..5, 1 => 1u64..400]), 1..12);
    prop_oneof![
        2 => prop::collection::vec(any::<u64>(), 0..12).prop_map(Wanted::Indices),
        2 => (prop_oneof![sizes, 0usize..5000], any::<u64>()).prop_map(|(n, seed)| Wanted::Many(n, seed)),
        3 => ranges.prop_map(Wanted::Ranges),
        5 => step(),
    ]
}

fn step() -> impl Strategy<Value = Wanted> {
    let batch = prop_oneof![3 => 1u64..12, 2 => 12u64..300, 1 => 300u64..5000];
    let part = prop_oneof![2 => Just((0, 1)), 1 => (0u64..4, 1u64..5).prop_map(|(rank, more)| (rank, rank + more))];
    let step = prop_oneof![3 => 0u64..8, 1 => any::<u64>()];
    let parts = (select(&Mode::ALL[..]), batch, any::<u64>(), part, select(&Tail::ALL[..]), step);
    (parts, prop::option::of(any::<u64>())).prop_map(|((mode, batch, seed, (rank, world), tail, step), length)| {
        let tail = if matches!(mode, Mode::Iid | Mode::IidCounter) { Tail::Wrap } else { tail };
        // Far steps of what has to be replayed take long.
        let step = if mode == Mode::Iid { step % 100 } else { step };
        Wanted::Step(Spec { mode, batch, seed, rank, world, tail }, step, length)
    })
}

/// A batch of a store that is there.
#[derive(Debug)]
pub struct Order {
    pub indices: Vec<u64>,
    /// What stands for it below `batches`.
    pub path: Option<String>,
    /// The sampler, the step, and the number of records that it is fixed to.
    pub drawn: Option<(Spec, u64, Option<u64>)>,
}

impl Wanted {
    /// The same, over all records.
    pub fn without_length(&self) -> Wanted {
        match self {
            Wanted::Step(spec, step, _) => Wanted::Step(spec.clone(), *step, None),
            other => other.clone(),
        }
    }

    /// This batch of a store of `count` records, of at most `most` of them.
    pub fn order(&self, count: u64, most: usize) -> Order {
        let listed = |ranges: &mut dyn Iterator<Item = (u64, u64)>| {
            let (mut indices, mut text) = (Vec::new(), Vec::new());
            for (first, last) in ranges {
                if indices.len() + (last - first + 1) as usize <= most {
                    indices.extend(first..=last);
                    text.push(if first == last { first.to_string() } else { format!("{first}-{last}") });
                }
            }
            let path = Some(format!("at/{}", text.join(","))).filter(|path| !text.is_empty() && path.len() < 230);
            Order { indices, path, drawn: None }
        };
        match self {
            Wanted::Indices(all) => listed(&mut all.iter().map(|n| (n % count, n % count))),
            Wanted::Many(n, seed) => {
                listed(&mut (0..*n as u64).map(|k| (mix(*seed, k) % count, mix(*seed, k) % count)))
            }
            Wanted::Ranges(all) => {
                listed(&mut all.iter().map(|(first, n)| (first % count, (first % count + n - 1).min(count - 1))))
            }
            Wanted::Step(spec, step, length) => {
                let spec = Spec { batch: spec.batch.min(most as u64), ..spec.clone() };
                let length = length.map(|n| 1 + n % count);
                let mut sampler = Sampler::new(spec.clone(), length.unwrap_or(count)).unwrap();
                let mut indices = vec![0; sampler.batch_len(*step) as usize];
                sampler.batch_at(*step, &mut indices).unwrap();
                let key = length.map(|n| format!(",length={n}")).unwrap_or_default();
                Order { indices, path: Some(format!("{spec}{key}/{step}")), drawn: Some((spec, *step, length)) }
            }
        }
    }
}

/// What a batch of a stream must be.
#[derive(Debug)]
pub struct Native {
    pub name: String,
    pub dtype: Option<DType>,
    /// The shape of a record, where all have the same.
    pub dense: Option<Vec<u64>>,
    /// The shape of each, where they differ.
    pub ragged: Option<Vec<Vec<u64>>>,
    /// Where each begins, and where the last one ends.
    pub offsets: Vec<u64>,
    pub bytes: Vec<u8>,
}

/// The streams of a source with their names.
pub fn streams(source: &Source) -> Vec<(String, &Stream)> {
    let streams = match source {
        Source::Store(stream) => vec![&**stream],
        Source::Dataset(dataset) => dataset.streams().iter().map(|(_, stream)| stream).collect(),
    };
    source.stream_names().into_iter().zip(streams).collect()
}

/// What the engine gathers of a stream.
pub fn native(name: &str, stream: &Stream, indices: &[u64]) -> Native {
    let (dtype, dense, ragged, mut offsets, bytes) = match stream.get(&Selection::from(indices)).unwrap() {
        Values::Dense { dtype, shape, bytes } => {
            assert_eq!(shape[0], indices.len() as u64);
            let record = shape[1..].iter().product::<u64>() * dtype.itemsize();
            let offsets = (0..shape[0]).map(|k| k * record).collect();
            (Some(dtype), Some(shape[1..].to_vec()), None, offsets, bytes)
        }
        Values::Ragged { dtype, bytes, offsets, shapes } => (Some(dtype), None, Some(shapes), offsets, bytes),
        Values::Bytes { bytes, offsets } => (None, None, None, offsets, bytes),
    };
    offsets.push(bytes.len() as u64);
    Native { name: name.into(), dtype, dense, ragged, offsets, bytes }
}

/// The same of all streams.
pub fn natives(source: &Source, indices: &[u64]) -> Vec<Native> {
    streams(source).iter().map(|(name, stream)| native(name, stream, indices)).collect()
}

/// That a client's batch is what the engine gathers of these streams.
#[track_caller]
pub fn is_native(batch: &Batch, indices: &[u64], want: &[Native]) {
    assert_eq!((batch.indices(), batch.parts().len()), (indices, want.len()));
    for (part, want) in batch.parts().iter().zip(want) {
        let shape = match (&want.dense, &want.ragged) {
            (Some(shape), _) => Shape::Dense([&[indices.len() as u64], &shape[..]].concat()),
            (_, Some(shapes)) => Shape::Ragged(shapes.clone()),
            _ => Shape::Bytes,
        };
        assert_eq!((part.name(), part.dtype(), part.shape()), (&want.name[..], want.dtype.as_ref(), &shape));
        assert_eq!(part.offsets(), want.offsets, "stream {}", want.name);
        assert!(part.bytes() == want.bytes, "stream {}", want.name);
    }
}

impl Native {
    /// That it is what was written.
    #[track_caller]
    pub fn is_as_made(&self, made: &Made, indices: &[u64]) {
        assert_eq!(self.offsets.len(), indices.len() + 1);
        for (k, &index) in indices.iter().enumerate() {
            let (shape, bytes) = made.record(index);
            assert!(self.bytes[self.offsets[k] as usize..self.offsets[k + 1] as usize] == bytes, "record {index}");
            let found = self.ragged.as_ref().map(|shapes| &shapes[k]).or(self.dense.as_ref());
            assert_eq!(found, shape.as_ref(), "record {index}");
        }
    }

    /// The files that a batch has, but for that of its indices, by the ends of their names.
    pub fn files(&self) -> Vec<(&'static str, Vec<u8>)> {
        let pack = |dtype: &DType, shape: &[u64]| [&header_bytes(dtype, shape)[..], &self.bytes].concat();
        let dtype = self.dtype.clone().unwrap_or_else(|| DType::parse("|u1").unwrap());
        let (n, item) = (self.offsets.len() as u64 - 1, dtype.itemsize());
        if let Some(shape) = &self.dense {
            return vec![(".npy", pack(&dtype, &[&[n], &shape[..]].concat()))];
        }
        let offsets: Vec<u64> = self.offsets.iter().map(|at| at / item).collect();
        let mut files = vec![
            (".npy", pack(&dtype, &[self.bytes.len() as u64 / item])),
            (".offsets.npy", numbers(&[n + 1], &offsets)),
        ];
        if let Some(shapes) = &self.ragged {
            let most = shapes.iter().map(Vec::len).max().unwrap_or(0);
            // Rows of fewer dimensions are filled up.
            let rows: Vec<u64> = shapes
                .iter()
                .flat_map(|s| s.iter().copied().chain([u64::MAX; 9]).take(most).collect::<Vec<_>>())
                .collect();
            files.push((".shapes.npy", numbers(&[n, most as u64], &rows)));
        }
        files
    }
}

/// A file of numbers.
pub fn numbers(shape: &[u64], numbers: &[u64]) -> Vec<u8> {
    let header = header_bytes(&DType::parse("<u8").unwrap(), shape);
    header.into_iter().chain(numbers.iter().flat_map(|n| n.to_le_bytes())).collect()
}
