//! How a loader is made.

use super::batch::Batch;
use super::error::TransformError;
use super::identity::fingerprint;
use super::queue::Queue;
use super::read::{Handle, Input, Origin};
use super::state::{Position, State};
use super::work::{Shared, Work, run};
use super::{Loader, Started};
use crate::client::Mount;
use crate::dataset::Source;
use crate::error::{Error, Result};
use crate::sampler::{Mode, Sampler, Spec, Tail};
use crate::store::Threads;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Batches that are kept ready where nothing else is asked for.
const DEFAULT_PREFETCH: usize = 4;
/// More are refused.
const MAX_PREFETCH: usize = 8192;
/// More workers are refused.
const MAX_WORKERS: usize = 1024;

/// Chooses what a [`Loader`] reads and how; made by [`Loader::builder`]. `T` is what it hands over.
#[must_use]
pub struct LoaderBuilder<T = Batch> {
    streams: Vec<(Option<String>, Arc<Source>)>,
    mount: Option<Mount>,
    only: Option<Vec<String>>,
    spec: Spec,
    tail: Option<Tail>,
    prefetch: usize,
    workers: Option<usize>,
    in_order: bool,
    resume: Option<State>,
    work: Work<T>,
}

impl<T> std::fmt::Debug for LoaderBuilder<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoaderBuilder").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl LoaderBuilder<Batch> {
    pub(super) fn new() -> Self {
        LoaderBuilder {
            streams: Vec::new(),
            mount: None,
            only: None,
            spec: Spec::new(Mode::Cyclic, 256),
            tail: None,
            prefetch: DEFAULT_PREFETCH,
            workers: None,
            in_order: true,
            resume: None,
            work: Box::new(Ok),
        }
    }
}

impl<T: Send + 'static> LoaderBuilder<T> {
    /// Reads a store, named after its directory without the extension, or every stream of a dataset. Several sources
    /// of equal length are read together; another loader can share a source that is in an `Arc`.
    pub fn source(mut self, source: impl Into<Arc<Source>>) -> Self {
        self.streams.push((None, source.into()));
        self
    }

    /// The same, with `name` for a store, and before the names of a dataset's streams (`name/stream`).
    pub fn source_as(mut self, name: impl Into<String>, source: impl Into<Arc<Source>>) -> Self {
        self.streams.push((Some(name.into()), source.into()));
        self
    }

    /// Lets a mount read: its streams, or the one that it was opened for. Unless said otherwise one worker asks it for
    /// batches, each of which it gathers with all cores while the consumer uses the one before; see
    /// [`workers`](LoaderBuilder::workers) for none. A state is that of a loader over the same store, of all streams.
    pub fn mount(mut self, mount: Mount) -> Self {
        self.mount = Some(mount);
        self
    }

    /// Reads only the streams of these names.
    pub fn only<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.only = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Everything that chooses the batches at once, as `"cyclic,batch=256,seed=42".parse()` gives it.
    pub fn spec(mut self, spec: Spec) -> Self {
        // A default stays the default of whatever mode is chosen after this.
        self.tail = (spec.tail != spec.mode.default_tail()).then_some(spec.tail);
        self.spec = spec;
        self
    }

    /// Records in a batch of all ranks together; 256 unless said otherwise.
    pub fn batch(mut self, records: u64) -> Self {
        self.spec.batch = records;
        self
    }

    /// How records are drawn; cyclic unless said otherwise.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.spec.mode = mode;
        self
    }

    /// The seed; [`DEFAULT_SEED`](crate::sampler::DEFAULT_SEED) unless said otherwise.
    pub fn seed(mut self, seed: u64) -> Self {
        self.spec.seed = seed;
        self
    }

    /// Which part of every batch to load: that of `rank` of `world` processes.
    pub fn rank(mut self, rank: u64, world: u64) -> Self {
        (self.spec.rank, self.spec.world) = (rank, world);
        self
    }

    /// What becomes of the end of a cycle; the mode's default unless said otherwise.
    pub fn tail(mut self, tail: Tail) -> Self {
        self.tail = Some(tail);
        self
    }

    /// Batches that are kept ready; 4 unless said otherwise.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = batches;
        self
    }

    /// Threads that make batches; as many as there are cores unless said otherwise. With 0 the consumer makes each batch
    /// itself, when it asks for it; of a mount it asks for the next one as well, which is gathered while this one is used. That
    /// is the fastest way to batches of a mount that need no transform and come as fast as they are used.
    pub fn workers(mut self, threads: usize) -> Self {
        self.workers = Some(threads);
        self
    }

    /// Hands batches over as they are ready instead of in the order of their steps.
    pub fn in_completion_order(mut self) -> Self {
        self.in_order = false;
        self
    }

    /// Begins where `state` was taken, with its batch size, mode, seed and tail.
    pub fn resume(mut self, state: State) -> Self {
        let (rank, world) = (self.spec.rank, self.spec.world);
        self = self.spec(Spec { rank, world, ..state.spec.clone() });
        self.resume = Some(state);
        self
    }

    /// Changes what is handed over with `transform`, on the workers. An error or a panic of it arrives in place of the
    /// batch, at its step.
    pub fn transform(
        self,
        transform: impl Fn(&mut T) -> Result<(), TransformError> + Send + Sync + 'static,
    ) -> LoaderBuilder<T> {
        self.map(move |mut value| transform(&mut value).map(|()| value))
    }

    /// Makes what is handed over into something else with `transform`, on the workers; otherwise as
    /// [`transform`](LoaderBuilder::transform).
    pub fn map<U: Send + 'static>(
        self,
        transform: impl Fn(T) -> Result<U, TransformError> + Send + Sync + 'static,
    ) -> LoaderBuilder<U> {
        let LoaderBuilder { streams, mount, only, spec, tail, prefetch, workers, in_order, resume, work } = self;
        let work: Work<U> = Box::new(move |batch| transform(work(batch)?));
        LoaderBuilder { streams, mount, only, spec, tail, prefetch, workers, in_order, resume, work }
    }

    /// Makes the loader, whose workers begin at once.
    ///
    /// # Errors
    /// [`Error::Invalid`] without a source, for sources that differ in length, streams of one name, a stream to read that
    /// is not there, an empty store, what [`Spec::validate`] refuses, too many workers or too much to keep ready, threads
    /// that cannot be started, and a state of another store, length or batch size.
    pub fn build(self) -> Result<Loader<T>> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let workers = self.workers.unwrap_or_else(|| if self.mount.is_some() { 1 } else { cores() });
        for (what, number, most) in
            [("workers", workers, MAX_WORKERS), ("batches to keep ready", self.prefetch, MAX_PREFETCH)]
        {
            if number > most {
                return Err(Error::invalid(format!("{number} {what}: at most {most} are possible")));
            }
        }
        let limit = (self.prefetch + workers).max(1);
        let (origin, place, length, store) = self.origin(limit)?;
        let spec = Spec { tail: self.tail.unwrap_or(self.spec.mode.default_tail()), ..self.spec };
        let mut sampler =
            Sampler::new(spec, length).map_err(|e| Error::invalid(format!("{}: {e}", place.display())))?;
        let mut position = Position::default();
        if let Some(state) = self.resume {
            state.check(sampler.spec().batch, length, store)?;
            sampler.seek(state.step())?;
            position = state.position;
        }
        // Several workers share the cores by each making a batch alone.
        let threads = if workers < 2 { Threads::All } else { Threads::One };
        let queue = Queue::new(sampler, position, limit, self.in_order);
        let shared = Arc::new(Shared { queue, origin, threads, work: self.work });
        let started = Started { length, store, workers };
        let loader = Loader::new(shared.clone(), started);
        for n in 0..workers {
            let shared = shared.clone();
            shared.queue.worker(true);
            let name = format!("zrfs-loader-{n}");
            match std::thread::Builder::new().name(name).spawn({
                let shared = shared.clone();
                move || run(shared)
            }) {
                Ok(thread) => loader.keep(thread),
                Err(e) => {
                    shared.queue.worker(false);
                    return Err(Error::invalid(format!("worker {n} of {workers} cannot be started: {e}")));
                }
            }
        }
        Ok(loader)
    }

    /// What to read, where it is, its number of records, and its fingerprint.
    fn origin(&self, limit: usize) -> Result<(Origin, PathBuf, u64, u64)> {
        if let Some(mount) = &self.mount {
            let mount = match self.only.as_deref() {
                _ if !self.streams.is_empty() => {
                    return Err(Error::invalid("a loader reads a mount, or stores and datasets, but not both"));
                }
                None => mount.clone(),
                Some([one]) => mount.stream(one)?,
                Some(_) => return Err(Error::invalid("of a mount a loader reads one stream, or all")),
            };
            let (length, store) = (mount.records()?, mount.fingerprint()?);
            return Ok((Origin::Mount(mount.clone()), mount.path().to_path_buf(), length, store));
        }
        let handles = self.handles()?;
        let [(_, first), ..] = &handles[..] else {
            return Err(Error::invalid("a loader needs a store or a dataset to load from"));
        };
        let (place, length) = (first.stream().store().path().to_path_buf(), first.source.len());
        // One more for the batch in the consumer's hands.
        let inputs: Vec<Input> =
            handles.into_iter().map(|(name, handle)| Input::new(name.into(), handle, limit + 1)).collect();
        let store = fingerprint(inputs.iter().map(|input| (&*input.name, input.stream())));
        Ok((Origin::Streams(inputs), place, length, store))
    }

    /// The streams to read, by name.
    fn handles(&self) -> Result<Vec<(String, Handle)>> {
        let mut handles: Vec<(String, Handle)> = Vec::new();
        for (name, source) in &self.streams {
            let names: Vec<String> = match (&**source, name) {
                (Source::Store(_), Some(name)) => vec![name.clone()],
                (source, None) => source.stream_names(),
                (Source::Dataset(dataset), Some(prefix)) => {
                    dataset.streams().iter().map(|(name, _)| format!("{prefix}/{name}")).collect()
                }
            };
            for (number, name) in names.into_iter().enumerate() {
                let handle = Handle { source: source.clone(), number };
                if self.only.as_ref().is_some_and(|only| !only.contains(&name)) {
                    continue;
                }
                if let Some((_, other)) = handles.iter().find(|(n, _)| *n == name) {
                    let [one, two] = [other, &handle].map(|h| h.stream().store().path().display());
                    return Err(Error::invalid(format!("two streams are called {name}: {one} and {two}; name them")));
                }
                handles.push((name, handle));
            }
        }
        let names = || handles.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>().join(", ");
        if let Some(missing) = self.only.iter().flatten().find(|name| handles.iter().all(|(n, _)| n != *name)) {
            return Err(Error::invalid(format!("there is no stream called {missing}; there are: {}", names())));
        }
        if let [(_, first), rest @ ..] = &handles[..]
            && let Some((_, other)) = rest.iter().find(|(_, h)| h.source.len() != first.source.len())
        {
            let [(a, one), (b, two)] = [first, other].map(|h| (h.source.len(), h.stream().store().path().display()));
            return Err(Error::invalid(format!(
                "{one} has {a} records, but {two} has {b}: streams that are loaded together belong together"
            )));
        }
        Ok(handles)
    }
}

/// The name of a store: that of its directory, without the extension.
pub(crate) fn stem(path: &Path) -> String {
    let absolute = std::path::absolute(path);
    let path = absolute.as_deref().unwrap_or(path);
    path.file_stem().map_or_else(|| "store".into(), |stem| stem.to_string_lossy().into_owned())
}
