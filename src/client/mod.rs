//! Batches from a mount, for programs that have nothing but the mount: by ioctl, into memory shared with it.
//!
//! `docs/VIEWS.md` says what mount and program say to each other. A batch here is that of the loader: its bytes are where the
//! mount put them, and its memory is used for a later batch once it is dropped.
//!
//! ```no_run
//! # fn main() -> zrfs::Result<()> {
//! use zrfs::client::Mount;
//!
//! let mount = Mount::open("/mnt/images")?;
//! let batch = mount.gather(&[5, 17, 0])?;
//! let pixels = batch.parts()[0].bytes();
//! let shuffled = mount.sample(&"cyclic,batch=256,seed=42".parse()?, 7)?;
//! # Ok(())
//! # }
//! ```
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod batches;
mod refusal;
mod slab;
mod sys;
mod view;

pub(crate) use batches::Ahead;
pub use batches::Batches;

use crate::buffer::{Buffer, BufferPool};
use crate::error::{Error, Result};
use crate::format::dtype::DType;
use crate::loader::{Batch, Part};
use crate::sampler::{Mode, Spec, Tail};
use slab::Described;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sys::FuseFile;
use view::{Idle, Lease, Slot};
use zrfs_abi as abi;

/// Views that are kept for later batches, those in use not counted.
const KEEP: usize = 8;

/// A mounted store or dataset. Clones are the same mount, and share its views; all calls can be made by any thread.
#[derive(Debug, Clone)]
pub struct Mount {
    shared: Arc<Shared>,
    /// What batches have: a stream, or all.
    stream: u32,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    file: Arc<FuseFile>,
    server: abi::Server,
    streams: Vec<StreamFacts>,
    dataset: bool,
    idle: Arc<Idle>,
    /// For batches that can't be had through shared memory, and padded ones.
    pool: BufferPool,
    padding: BufferPool,
}

/// What a mount tells of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamFacts {
    /// Its name; of a store that of its directory, without the extension.
    pub name: String,
    /// The type of the items; `None` for records of plain bytes.
    pub dtype: Option<DType>,
    /// The shape of a record, where all have the same.
    pub shape: Option<Vec<u64>>,
    /// Its codec: `raw`, `zstd` or `zstd_dict`.
    pub codec: &'static str,
}

impl Mount {
    /// The mount that `path`, any file or directory of it, is on. Batches have the stream that the file belongs to, or all
    /// where it belongs to none.
    ///
    /// # Errors
    /// [`Error::NotAStore`] if there is no zrfs mount with views; [`Error::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<Mount> {
        let path = path.as_ref();
        Self::find(path)?.ok_or_else(|| Error::NotAStore {
            path: path.to_path_buf(),
            reason: "it is not on a zrfs mount that gives batches".into(),
        })
    }

    /// The same; `None` if it is something else than a zrfs mount with views.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn find(path: impl AsRef<Path>) -> Result<Option<Mount>> {
        let path = path.as_ref();
        let failed = |op| Error::io(op, path);
        let path = path.canonicalize().map_err(failed("open"))?;
        let Some(file) = File::open(&path).and_then(FuseFile::new).map_err(failed("open"))? else { return Ok(None) };
        let mut server = [0; abi::Server::BYTES];
        match file.ioctl(abi::SERVER, &mut server) {
            Err(e) if matches!(e.raw_os_error(), Some(NOTTY | NOSYS | INVAL | OPNOTSUPP)) => return Ok(None),
            other => other.map_err(failed("ask the mount of"))?,
        }
        let server = abi::Server::decode(&server);
        let is_ours = |s: &abi::Server| s.version == abi::VERSION && s.features & abi::FEATURE_VIEWS != 0;
        let Some(server) = server.filter(is_ours) else { return Ok(None) };
        let store = store_facts(&file).map_err(failed("ask the mount of"))?;
        let facts = |number| stream_facts(&file, number).map_err(failed("ask the mount of"));
        let streams = (0..store.streams).map(facts).collect::<Result<Vec<_>>>()?;
        let file = Arc::new(file);
        let idle = Arc::new(Idle::new(file.clone(), KEEP));
        let dataset = store.flags & abi::STORE_DATASET != 0;
        let (pool, padding) = (BufferPool::new(KEEP), BufferPool::new(KEEP));
        let shared = Shared { path, file, server, streams, dataset, idle, pool, padding };
        Ok(Some(Mount { shared: Arc::new(shared), stream: store.own }))
    }

    /// The same mount, for batches of the stream of that name.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none, naming those that there are.
    pub fn stream(&self, name: &str) -> Result<Mount> {
        let found = self.streams().iter().position(|stream| stream.name == name);
        let number = found.and_then(|n| u32::try_from(n).ok()).ok_or_else(|| {
            let names: Vec<&str> = self.streams().iter().map(|stream| &stream.name[..]).collect();
            let path = self.shared.path.display();
            Error::invalid(format!("{path} has no stream {name:?}; it has {}", names.join(", ")))
        })?;
        Ok(Mount { shared: self.shared.clone(), stream: number })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// All streams, in the order of their names.
    pub fn streams(&self) -> &[StreamFacts] {
        &self.shared.streams
    }

    /// Whether it is a dataset of streams, and not one store.
    pub fn is_dataset(&self) -> bool {
        self.shared.dataset
    }

    /// The stream that batches have; `None` for all.
    pub fn chosen(&self) -> Option<&StreamFacts> {
        self.shared.streams.get(usize::try_from(self.stream).ok()?)
    }

    /// The number of records by now.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn records(&self) -> Result<u64> {
        Ok(self.facts()?.records)
    }

    /// What a loader over all streams knows the data by; see [`Source::fingerprint`](crate::Source::fingerprint).
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn fingerprint(&self) -> Result<u64> {
        Ok(self.facts()?.generation)
    }

    /// How many views it has here, used by batches and kept for later ones.
    pub fn views(&self) -> usize {
        self.shared.idle.count()
    }

    fn facts(&self) -> Result<abi::Store> {
        store_facts(&self.shared.file).map_err(Error::io("ask the mount of", &self.shared.path))
    }

    /// The records `indices` (any order, repeats allowed), of one stream or of all. One round trip for at most
    /// [`LARGE`](abi::LARGE) of them.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Io`] otherwise, in words where the mount refuses: more batches at a time than it gives
    /// one user, more memory, a damaged record, which its log names. The mount's own error is the source of what
    /// [`io::Error::get_ref`] has then.
    pub fn gather(&self, indices: &[u64]) -> Result<Batch> {
        let (slot, sealed) = self.with_slot(|slot| self.gather_call(slot, indices)).map_err(|e| {
            // The mount only says that something is wrong.
            if e.raw_os_error() == Some(INVAL)
                && let Ok(length) = self.records()
                && let Some(&index) = indices.iter().find(|&&index| index >= length)
            {
                return Error::OutOfRange { index, length };
            }
            self.refused(e, indices.len() as u64)
        })?;
        self.batch(slot, &sealed, 0)
    }

    /// The batch of a step, whose indices the mount draws among all records that there are by now.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a spec that is none, where there are no records, and for a step of mode `iid` that lies too far
    /// for the mount to replay; otherwise as [`gather`](Mount::gather).
    pub fn sample(&self, spec: &Spec, step: u64) -> Result<Batch> {
        self.drawn(spec, step, 0)
    }

    /// The same, drawn among the first `length` records alone: the batch of a step stays what it is while records are
    /// appended, whenever and by whichever mount it is drawn.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a length of 0, and for one of more records than there are; otherwise as
    /// [`sample`](Mount::sample).
    pub fn sample_among(&self, length: u64, spec: &Spec, step: u64) -> Result<Batch> {
        if length == 0 {
            return Err(Error::invalid("length 0: there is nothing to draw"));
        }
        self.drawn(spec, step, length)
    }

    /// The batch of a step among so many records, 0 for all.
    fn drawn(&self, spec: &Spec, step: u64, length: u64) -> Result<Batch> {
        spec.validate()?;
        let number = |n: Option<usize>| n.and_then(|n| u8::try_from(n).ok()).unwrap_or(u8::MAX);
        let call = abi::Spec {
            mode: number(Mode::ALL.iter().position(|mode| *mode == spec.mode)),
            tail: number(Tail::ALL.iter().position(|tail| *tail == spec.tail).map(|n| n + 1)),
            zero: abi::Zero,
            batch: spec.batch,
            seed: spec.seed,
            rank: spec.rank,
            world: spec.world,
            step,
            length,
        };
        let draw = |slot: &Slot| {
            let view = abi::View { view: slot.view, stream: self.stream, ..abi::View::default() };
            self.call(abi::SAMPLE, &mut abi::Sample { view, spec: call }.encode())
        };
        let (slot, sealed) = self.with_slot(draw).map_err(|e| {
            if e.raw_os_error() == Some(INVAL)
                && let Ok(have) = self.records()
                && let Some(reason) = refusal::undrawable(&self.shared.path, have, length, spec, step)
            {
                return Error::invalid(reason);
            }
            self.refused(e, spec.batch)
        })?;
        self.batch(slot, &sealed, step)
    }

    /// The error for a batch of so many records that the mount refused.
    fn refused(&self, answer: io::Error, records: u64) -> Error {
        Error::io("gather from", &self.shared.path)(refusal::explain(answer, records, &self.shared.server))
    }

    /// Runs a call with a view that no batch has, which is kept for a later one where the call fails.
    fn with_slot(&self, call: impl Fn(&Slot) -> io::Result<abi::View>) -> io::Result<(Slot, abi::View)> {
        let mut slot = self.shared.idle.take();
        let mut done = call(&slot);
        if slot.view != 0 && done.as_ref().is_err_and(|e| matches!(e.raw_os_error(), Some(NOENT | ACCES))) {
            // It ended with the process that this one was forked from, or with an earlier mount.
            slot = Slot::new();
            done = call(&slot);
        }
        match done {
            Ok(sealed) => {
                slot.view = sealed.view;
                Ok((slot, sealed))
            }
            Err(e) => {
                self.shared.idle.put(slot);
                Err(e)
            }
        }
    }

    fn gather_call(&self, slot: &Slot, indices: &[u64]) -> io::Result<abi::View> {
        self.gather_then(slot, indices, 0, 0)
    }

    /// The same with what the call that gathers has as flags and as the view to wait for.
    fn gather_then(&self, slot: &Slot, indices: &[u64], flags: u32, wait: u64) -> io::Result<abi::View> {
        const NOTHING: (u32, u64) = (0, 0);
        let head = |view, stream, part: &[u64], (flags, seal)| {
            let count = part.len() as u64;
            let mut data = Vec::with_capacity(abi::LARGE_BYTES);
            data.extend(abi::View { view, stream, flags, count, seal, ..abi::View::default() }.encode());
            data.extend(part.iter().flat_map(|index| index.to_ne_bytes()));
            data
        };
        if indices.len() <= abi::LARGE {
            let small = indices.len() <= abi::SMALL;
            let mut data = head(slot.view, self.stream, indices, (flags, wait));
            let call = if small { abi::GATHER_SMALL } else { abi::GATHER_LARGE };
            data.resize(if small { abi::SMALL_BYTES } else { abi::LARGE_BYTES }, 0);
            return self.call(call, &mut data);
        }
        let view = self.call(abi::BEGIN, &mut head(slot.view, self.stream, &[], NOTHING))?.view;
        let gather = || {
            for part in indices.chunks(abi::LARGE) {
                let mut data = head(view, 0, part, NOTHING);
                data.resize(abi::LARGE_BYTES, 0);
                self.call(abi::PUSH_LARGE, &mut data)?;
            }
            self.call(abi::SEAL, &mut head(view, 0, &[], (flags, wait)))
        };
        gather().inspect_err(|_| {
            if slot.view == 0 {
                let _ = self.call(abi::CLOSE, &mut head(view, 0, &[], NOTHING));
            }
        })
    }

    fn call(&self, number: u32, data: &mut [u8]) -> io::Result<abi::View> {
        self.shared.file.ioctl(number, data)?;
        abi::View::decode_front(data).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The batch that a view holds: in its memory, or read from its file where that can't be had.
    fn batch(&self, mut slot: Slot, sealed: &abi::View, step: u64) -> Result<Batch> {
        let shared = &*self.shared;
        let socket = usize::try_from(shared.server.socket_len).ok().and_then(|n| shared.server.socket.get(..n));
        let followed = match socket {
            Some(socket) if !socket.is_empty() => slot.follow(sealed, socket),
            _ => Err(io::ErrorKind::Unsupported.into()),
        };
        match followed {
            Ok(()) => self.in_memory(slot, sealed, step),
            Err(e) => {
                log::debug!("the memory of a view is not to be had ({e}); reading its file");
                let read = self.by_file(sealed, step, &e);
                shared.idle.put(slot);
                read
            }
        }
    }

    fn in_memory(&self, slot: Slot, sealed: &abi::View, step: u64) -> Result<Batch> {
        let failed = |e| Error::io("map the memory of a view of", &self.shared.path)(e);
        let lease = Lease::new(self.shared.idle.clone(), slot);
        let (first, lender) = lease.take(0).map_err(failed)?;
        let described = slab::describe(&first, sealed.bytes, sealed.seal);
        let Described { indices, parts } = described.ok_or_else(|| self.contradiction())?;
        let mut have = Some((first, lender));
        let mut made = Vec::with_capacity(parts.len());
        for (k, part) in parts.into_iter().enumerate() {
            let (memory, lender) = match have.take() {
                Some(have) => have,
                None => lease.take(k).map_err(failed)?,
            };
            let bytes = Buffer::lent(memory, part.data.clone(), lender).ok_or_else(|| self.contradiction())?;
            made.push(self.part(part, bytes));
        }
        if let Some((memory, mut lender)) = have {
            lender.give_back(memory);
        }
        Ok(Batch { step, indices, parts: made })
    }

    /// The batch from the file of its view, where its memory is not to be had for the reason `socket`.
    fn by_file(&self, sealed: &abi::View, step: u64, socket: &io::Error) -> Result<Batch> {
        let root = root_of(&self.shared.path);
        let views = root.join(".zrfs/views");
        let path = views.join(sealed.view.to_string());
        let failed = |e| Error::io("read", &path)(e);
        let file = File::open(&path).map_err(|e| {
            if views.is_dir() {
                return failed(e);
            }
            Error::io("gather from", &self.shared.path)(refusal::out_of_reach(socket, e, sealed.view, root))
        })?;
        let size = |n: u64| usize::try_from(n.min(sealed.bytes)).unwrap_or(usize::MAX);
        // Most fronts are small; a longer one is read anew.
        let mut front = vec![0; size(64 << 10)];
        file.read_exact_at(&mut front, 0).map_err(failed)?;
        let all = slab::front(&front).ok_or_else(|| self.contradiction())?;
        if size(all) > front.len() {
            front = vec![0; size(all)];
            file.read_exact_at(&mut front, 0).map_err(failed)?;
        }
        let described = slab::describe(&front, sealed.bytes, sealed.seal);
        let Described { indices, parts } = described.ok_or_else(|| self.contradiction())?;
        let mut made = Vec::with_capacity(parts.len());
        for part in parts {
            let mut bytes = self.shared.pool.get(part.data.len())?;
            file.read_exact_at(&mut bytes, part.data.start as u64).map_err(failed)?;
            made.push(self.part(part, bytes));
        }
        Ok(Batch { step, indices, parts: made })
    }

    fn part(&self, part: slab::Part, bytes: Buffer) -> Part {
        let slab::Part { name, dtype, shape, offsets, .. } = part;
        Part { name, dtype, shape, offsets, bytes, padding: self.shared.padding.clone() }
    }

    fn contradiction(&self) -> Error {
        let path = self.shared.path.display();
        Error::invalid(format!(
            "the mount of {path} gave a batch that contradicts itself; is another program writing to it?"
        ))
    }
}

const NOENT: i32 = rustix::io::Errno::NOENT.raw_os_error();
const ACCES: i32 = rustix::io::Errno::ACCESS.raw_os_error();
const INVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
const MFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();
const NOSPC: i32 = rustix::io::Errno::NOSPC.raw_os_error();
const NOTTY: i32 = rustix::io::Errno::NOTTY.raw_os_error();
const NOSYS: i32 = rustix::io::Errno::NOSYS.raw_os_error();
const OPNOTSUPP: i32 = rustix::io::Errno::OPNOTSUPP.raw_os_error();

fn store_facts(file: &FuseFile) -> io::Result<abi::Store> {
    let mut store = [0; abi::Store::BYTES];
    file.ioctl(abi::STORE, &mut store)?;
    abi::Store::decode(&store).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn stream_facts(file: &FuseFile, number: u32) -> io::Result<StreamFacts> {
    let mut data = abi::Stream { number, ..abi::Stream::default() }.encode();
    file.ioctl(abi::STREAM, &mut data)?;
    let facts = abi::Stream::decode(&data).and_then(|facts| {
        let text = |bytes: &[u8], len: u32| {
            Some(std::str::from_utf8(bytes.get(..usize::try_from(len).ok()?)?).ok()?.to_string())
        };
        let dtype = text(&facts.dtype, facts.dtype_len)?;
        let shape = facts.shape.get(..usize::try_from(facts.ndim).ok()?)?.to_vec();
        Some(StreamFacts {
            name: text(&facts.name, facts.name_len)?,
            dtype: if dtype.is_empty() { None } else { Some(DType::parse(&dtype).ok()?) },
            shape: (facts.kind == abi::KIND_DENSE).then_some(shape),
            codec: ["raw", "zstd", "zstd_dict"].get(usize::try_from(facts.codec).ok()?)?,
        })
    });
    facts.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The root of the mount that a path is on: the last directory upwards on the same device.
fn root_of(path: &Path) -> &Path {
    let device = |path: &Path| path.metadata().map(|meta| meta.dev()).ok();
    let own = device(path);
    path.ancestors().take_while(|above| device(above) == own).last().unwrap_or(path)
}
