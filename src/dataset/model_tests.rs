//! Random operations beside a plain list of records: on stores of bytes, ragged stores and datasets of three streams, of
//! every codec, on the real file system and on the simulated one with power cuts, kills and faults within them.
//!
//! `ZRFS_MODEL_CASES` asks for another number of cases. A case that fails is shrunk, and its seed is kept in
//! `proptest-regressions`, from where it runs first from then on.

use super::*;
use crate::format::dtype::DType;
use crate::format::{Codec, Layout};
use crate::pack::Progress;
use crate::storage::Disk;
use crate::storage::sim::{Fault, Outcome, Sim};
use crate::store::{Mark, WriterOptions};
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::OnceLock;
use tempfile::TempDir;

/// Small enough that chunks and segments roll over all the time.
const LAYOUT: Layout = Layout { segment_entries: 40, chunk_bytes: 2600 };
/// A deletion of more moves takes several journals.
const MOVES: usize = 3;

/// What the store, or each stream, should hold.
type State = Vec<Vec<u8>>;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Bytes,
    Ragged,
    Dataset,
}

#[derive(Debug, Clone)]
enum Op {
    /// Records of these lengths.
    Append(Vec<u16>),
    /// Any numbers; each names a record by its remainder.
    Delete(Vec<u16>),
    Compact,
    Mark,
    Rollback,
    Sync,
    /// Ends the writer properly, and opens another.
    Close,
    /// Ends it as a kill would, and opens another.
    Drop,
    /// Opens a reader, or refreshes the one there is.
    Refresh,
}

/// What comes between while an operation runs. The numbers are taken as remainders of what there is.
#[derive(Debug, Clone)]
enum Trouble {
    None,
    /// A kill after one of its storage calls, or with a seed a power cut.
    Crash(u16, Option<u64>),
    /// One of its storage calls goes wrong.
    Fault(u8, Fault),
}

fn op() -> impl Strategy<Value = Op> {
    let length = prop_oneof![8 => 1u16..120, 1 => 120u16..900];
    prop_oneof![
        6 => prop::collection::vec(length, 1..8).prop_map(Op::Append),
        4 => prop::collection::vec(any::<u16>(), 1..12).prop_map(Op::Delete),
        2 => Just(Op::Compact),
        1 => Just(Op::Mark),
        1 => Just(Op::Rollback),
        2 => Just(Op::Sync),
        2 => Just(Op::Close),
        2 => Just(Op::Drop),
        3 => Just(Op::Refresh),
    ]
}

fn trouble() -> impl Strategy<Value = Trouble> {
    // Short writes are left to the fault tests: a power cut could take a half of the header here, and of no real disk.
    let faults = vec![Fault::Errno(5), Fault::Errno(28), Fault::Torn(5), Fault::Interrupted];
    prop_oneof![
        6 => Just(Trouble::None),
        2 => (any::<u16>(), prop::option::of(any::<u64>())).prop_map(|(at, seed)| Trouble::Crash(at, seed)),
        1 => (0..60u8, select(faults)).prop_map(|(at, fault)| Trouble::Fault(at, fault)),
    ]
}

enum AnyWriter {
    Stream(Box<StreamWriter>),
    Dataset(DatasetWriter),
}

#[derive(Clone, Copy)]
enum AnyMark {
    Bytes(Mark),
    Ragged(RaggedMark),
}

enum Reader {
    Stream(Box<Stream>),
    Dataset(Dataset),
}

/// Has as many dimensions as its first byte says.
fn shape(record: &[u8]) -> Vec<u64> {
    let n = record.len() as u64;
    [vec![n], vec![1, n], vec![n, 1]][record[0] as usize % 3].clone()
}

/// The record of the dense stream that belongs to one of any length.
fn dense(record: &[u8]) -> [u8; 12] {
    std::array::from_fn(|k| record[k % record.len()].wrapping_add(k as u8))
}

fn record(id: u64, len: u16) -> Vec<u8> {
    let mut state = id;
    let next = |_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        // Some compress, some do not.
        (state >> 56) as u8 & if id.is_multiple_of(2) { 0xff } else { 3 }
    };
    (0..len).map(next).collect()
}

impl AnyWriter {
    fn append(&mut self, records: &[Vec<u8>]) -> Result<()> {
        let bytes: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let shapes: Vec<Vec<u64>> = records.iter().map(|r| shape(r)).collect();
        let ragged: Vec<(&[u64], &[u8])> = shapes.iter().zip(&bytes).map(|(s, b)| (&s[..], *b)).collect();
        let items: Vec<u8> = records.iter().flat_map(|r| dense(r)).collect();
        match self {
            AnyWriter::Stream(writer) if writer.schema().is_some() => writer.append(&Batch::Ragged(&ragged)),
            AnyWriter::Stream(writer) => writer.append(&Batch::Bytes(&bytes)),
            AnyWriter::Dataset(writer) => writer.append(&[
                ("a", Batch::Dense(&items)),
                ("b", Batch::Ragged(&ragged)),
                ("c", Batch::Bytes(&bytes)),
            ]),
        }
    }
    fn delete(&mut self, indices: &[u64]) -> Result<()> {
        match self {
            AnyWriter::Stream(writer) => writer.delete(indices),
            AnyWriter::Dataset(writer) => writer.delete(indices),
        }
    }
    fn sync(&mut self) -> Result<()> {
        match self {
            AnyWriter::Stream(writer) => writer.sync(),
            AnyWriter::Dataset(writer) => writer.sync(),
        }
    }
    fn close(self) -> Result<()> {
        match self {
            AnyWriter::Stream(writer) => writer.close(),
            AnyWriter::Dataset(writer) => writer.close(),
        }
    }
    fn len(&self) -> u64 {
        match self {
            AnyWriter::Stream(writer) => writer.len(),
            AnyWriter::Dataset(writer) => writer.len(),
        }
    }
    fn mark(&self) -> Option<AnyMark> {
        match self {
            AnyWriter::Dataset(_) => None,
            AnyWriter::Stream(writer) => match &**writer {
                StreamWriter::Bytes(writer) => Some(AnyMark::Bytes(writer.mark())),
                StreamWriter::Ragged(writer) => Some(AnyMark::Ragged(writer.mark())),
                StreamWriter::Dense(_) => None,
            },
        }
    }
    fn rollback(&mut self, mark: AnyMark) -> Result<()> {
        let AnyWriter::Stream(writer) = self else { panic!("a dataset has no marks") };
        match (&mut **writer, mark) {
            (StreamWriter::Bytes(writer), AnyMark::Bytes(mark)) => writer.rollback(mark),
            (StreamWriter::Ragged(writer), AnyMark::Ragged(mark)) => writer.rollback(mark),
            _ => panic!("the mark is of another writer"),
        }
    }
}

/// The records of a stream, each with its shape where it should have one.
fn records(stream: &Stream, ragged: bool) -> Result<State> {
    let indices: Vec<u64> = (0..stream.len()).collect();
    let (batch, offsets) = stream.store().gather_packed(&indices)?;
    let one = |(&index, &at): (&u64, &u64)| {
        let record = stream.store().read(index)?;
        assert!(batch[at as usize..].starts_with(&record), "a batch differs from record {index}");
        if ragged {
            assert_eq!(stream.shape(index)?, Some(shape(&record)), "the shape of record {index}");
        }
        Ok(record)
    };
    indices.iter().zip(&offsets).map(one).collect()
}

impl Reader {
    fn read(&self) -> Result<State> {
        match self {
            Reader::Stream(stream) => records(stream, stream.schema().is_some()),
            Reader::Dataset(dataset) => {
                let of = |name: &str| records(dataset.stream(name).expect("there are three"), name == "b");
                let (a, b, c) = (of("a")?, of("b")?, of("c")?);
                assert_eq!(b, c, "the streams differ");
                assert!(a.iter().zip(&c).all(|(a, c)| *a == dense(c)) && a.len() == c.len(), "the streams differ");
                Ok(c)
            }
        }
    }
    fn refresh(&self) -> Result<u64> {
        match self {
            Reader::Stream(stream) => stream.store().refresh(),
            Reader::Dataset(dataset) => dataset.refresh(),
        }
    }
}

struct Walk {
    kind: Kind,
    codec: Codec,
    disk: Option<TempDir>,
    sim: Sim,
    writer: Option<AnyWriter>,
    reader: Option<Reader>,
    /// What survives a power cut, and after it what might; the last is what is there.
    states: Vec<State>,
    mark: Option<(AnyMark, State)>,
    ids: u64,
}

impl Walk {
    fn new(kind: Kind, codec: Codec, disk: bool) -> Self {
        let disk = disk.then(|| tempfile::tempdir().unwrap());
        let (sim, states) = (Sim::new(), vec![State::new()]);
        let mut walk = Walk { kind, codec, disk, sim, writer: None, reader: None, states, mark: None, ids: 0 };
        let (path, u1) = (walk.path(), || DType::parse("|u1").unwrap());
        match kind {
            Kind::Bytes => walk.options().create(path).unwrap().close().unwrap(),
            Kind::Ragged => RaggedWriter::create(&path, walk.options(), u1()).unwrap().close().unwrap(),
            Kind::Dataset => {
                walk.storage().create_dir(&path).unwrap();
                walk.storage().sync_dir(path.parent().unwrap()).unwrap();
                DenseWriter::create(&path.join("a"), walk.options(), u1(), vec![12]).unwrap().close().unwrap();
                RaggedWriter::create(&path.join("b"), walk.options(), u1()).unwrap().close().unwrap();
                walk.options().create(path.join("c")).unwrap().close().unwrap();
            }
        }
        walk.writer = Some(walk.open().unwrap());
        walk
    }

    fn storage(&self) -> Arc<dyn Storage> {
        if self.disk.is_some() { Arc::new(Disk::default()) } else { Arc::new(self.sim.clone()) }
    }

    fn path(&self) -> PathBuf {
        self.disk.as_ref().map_or(PathBuf::from("./s"), |dir| dir.path().join("s"))
    }

    fn options(&self) -> WriterOptions {
        static DICT: OnceLock<Vec<u8>> = OnceLock::new();
        let options = WriterOptions::new(self.codec).journal_moves(MOVES).layout(LAYOUT).storage(self.storage());
        if self.codec != Codec::ZstdDict {
            return options;
        }
        let dict = DICT.get_or_init(|| {
            let samples: Vec<Vec<u8>> = (0..300).map(|i| format!("sample {i} of {}", i * 7919).into()).collect();
            let sizes: Vec<usize> = samples.iter().map(Vec::len).collect();
            crate::codec::train_dict(&samples.concat(), &sizes, 1024).unwrap()
        });
        options.level(Some(1)).dict(dict.clone())
    }

    fn open(&self) -> Result<AnyWriter> {
        Ok(match self.kind {
            Kind::Dataset => AnyWriter::Dataset(DatasetWriter::open(&self.path(), &self.options())?),
            Kind::Bytes | Kind::Ragged => {
                AnyWriter::Stream(Box::new(StreamWriter::open(&self.path(), self.options())?))
            }
        })
    }

    fn open_reader(&self) -> Result<Reader> {
        let options = OpenOptions::new().verify_on_read(true).layout(LAYOUT).storage(self.storage());
        Ok(match self.kind {
            Kind::Dataset => Reader::Dataset(Dataset::open_with(&options, self.path())?),
            Kind::Bytes | Kind::Ragged => Reader::Stream(Box::new(Stream::open_with(&options, self.path())?)),
        })
    }

    fn now(&self) -> &State {
        self.states.last().expect("there is always one")
    }

    /// The states that an operation leads through, beside the present one, and the records to append or delete. `None` if
    /// there is nothing to do.
    fn plan(&mut self, op: &Op) -> Option<(Vec<State>, State, Vec<u64>)> {
        let (mut state, mut states, mut new, mut doomed) = (self.now().clone(), Vec::new(), State::new(), Vec::new());
        match op {
            Op::Append(lengths) => {
                for &len in lengths {
                    self.ids += 1;
                    new.push(record(self.ids, len));
                    states.push(state.iter().chain(&new).cloned().collect());
                }
            }
            Op::Delete(picks) => {
                let len = state.len() as u64;
                doomed = picks.iter().filter_map(|&pick| u64::from(pick).checked_rem(len)).collect();
                let mut falling = doomed.clone();
                falling.sort_unstable_by(|a, b| b.cmp(a));
                falling.dedup();
                // A dataset's deletion is one step for all streams.
                for part in falling.chunks(if self.kind == Kind::Dataset { usize::MAX } else { MOVES }) {
                    part.iter().for_each(|&i| drop(state.swap_remove(i as usize)));
                    states.push(state.clone());
                }
                if doomed.is_empty() {
                    return None;
                }
            }
            Op::Rollback => states.push(self.mark.as_ref()?.1.clone()),
            Op::Compact | Op::Mark | Op::Sync | Op::Close | Op::Drop | Op::Refresh => {}
        }
        Some((states, new, doomed))
    }

    fn act(&mut self, op: &Op, new: &[Vec<u8>], doomed: &[u64]) -> Result<()> {
        let writer = self.writer.as_mut().expect("there is always one");
        match op {
            Op::Append(_) => writer.append(new),
            Op::Delete(_) => writer.delete(doomed),
            Op::Sync => writer.sync(),
            Op::Rollback => writer.rollback(self.mark.as_ref().expect("it was planned").0),
            Op::Mark | Op::Refresh => Ok(()),
            Op::Close | Op::Compact => {
                self.writer.take().expect("there is always one").close()?;
                if matches!(op, Op::Compact) {
                    let streams = if self.kind == Kind::Dataset { &["a", "b", "c"][..] } else { &[""] };
                    for name in streams {
                        self.options().open(self.path().join(name))?.compact(&Progress::default())?;
                    }
                }
                self.writer = Some(self.open()?);
                Ok(())
            }
            Op::Drop => {
                self.writer = None;
                self.writer = Some(self.open()?);
                Ok(())
            }
        }
    }

    fn run(&mut self, op: &Op, trouble: &Trouble) {
        let Some((new_states, new, doomed)) = self.plan(op) else { return };
        if matches!(op, Op::Delete(_) | Op::Compact | Op::Rollback)
            && let Some(_reader) = self.reader.take()
            && let (Op::Delete(_), Some(writer)) = (op, &mut self.writer)
        {
            let refused = writer.delete(&doomed);
            assert!(matches!(refused, Err(Error::Locked { .. })), "somebody reads, but it deletes: {refused:?}");
        }
        let now = self.states.len() - 1;
        let failed = match trouble {
            Trouble::Crash(at, seed) if self.disk.is_none() => {
                self.reader = None;
                self.sim.step(0);
                self.act(op, &new, &doomed).unwrap();
                let moments = self.sim.moments();
                let moment = &moments[*at as usize % moments.len()];
                self.writer = None;
                self.states.extend(new_states);
                self.sim = match seed {
                    Some(seed) => moment.power_cut(Outcome::Some(*seed)),
                    None => moment.killed(),
                };
                self.resume(if seed.is_some() { 0 } else { now });
                return;
            }
            Trouble::Fault(at, fault) if self.disk.is_none() => {
                self.reader = None;
                self.sim.fail((*at).into(), *fault);
                let done = self.act(op, &new, &doomed);
                let harmless = *fault == Fault::Interrupted || self.sim.failed().is_none();
                self.sim.heal();
                assert!(done.is_ok() || !harmless, "{done:?} for {fault:?}");
                done.is_err()
            }
            _ => {
                self.act(op, &new, &doomed).unwrap();
                false
            }
        };
        self.states.extend(new_states);
        if failed {
            self.writer = None;
            return self.resume(now);
        }
        if !matches!(op, Op::Append(_) | Op::Mark | Op::Drop | Op::Refresh) {
            self.states.drain(..self.states.len() - 1);
        }
        match op {
            Op::Mark => {
                let state = self.now().clone();
                self.mark = self.writer.as_ref().and_then(AnyWriter::mark).map(|mark| (mark, state));
            }
            Op::Delete(_) | Op::Compact | Op::Close | Op::Drop => self.mark = None,
            _ => {}
        }
        let reader = match self.reader.take() {
            Some(reader) if matches!(op, Op::Refresh) => {
                assert_eq!(reader.refresh().unwrap(), self.now().len() as u64);
                reader
            }
            Some(reader) => return self.reader = Some(reader),
            None => self.open_reader().unwrap(),
        };
        assert!(reader.read().unwrap() == *self.now(), "the records are not those of the model");
        self.reader = matches!(op, Op::Refresh).then_some(reader);
    }

    /// Opens what an interruption left, as reader and as writer: one of the states from `first` on, durable by then.
    fn resume(&mut self, first: usize) {
        let seen = self.open_reader().and_then(|reader| reader.read()).unwrap();
        let found = self.states[first..].contains(&seen);
        assert!(found, "{} records are none of the states that may be left", seen.len());
        let writer = self.open().unwrap();
        assert_eq!(writer.len(), seen.len() as u64, "reader and writer disagree");
        assert!(self.open_reader().unwrap().read().unwrap() == seen, "opening for writing changed the records");
        (self.writer, self.mark) = (Some(writer), None);
        self.states = vec![seen];
    }

    /// Closes the store, and finds no fault in it.
    fn finish(mut self) {
        self.run(&Op::Close, &Trouble::None);
        let reader = self.open_reader().unwrap();
        let verify = |stream: &Stream| {
            let found = stream.verify(&Progress::default(), &mut |bad| panic!("{}", bad.error)).unwrap();
            assert_eq!((found.records, found.unchecked), (self.now().len() as u64, 0));
        };
        match &reader {
            Reader::Stream(stream) => verify(stream),
            Reader::Dataset(dataset) => dataset.streams().iter().for_each(|(_, stream)| verify(stream)),
        }
    }
}

fn cases() -> u32 {
    std::env::var("ZRFS_MODEL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 5000, ..ProptestConfig::default() })]

    #[test]
    fn stores_and_datasets_do_what_a_list_does(
        kind in select(vec![Kind::Bytes, Kind::Ragged, Kind::Dataset]),
        codec in select(Codec::ALL.to_vec()),
        disk in prop::bool::weighted(0.2),
        ops in prop::collection::vec((op(), trouble()), 1..25),
    ) {
        let mut walk = Walk::new(kind, codec, disk);
        ops.iter().for_each(|(op, trouble)| walk.run(op, trouble));
        walk.finish();
    }
}
