//! Batches as files, by the spec of a sampler and a step or by a list of indices; and the samples of a dataset.
//!
//! ```text
//! store                                     dataset
//! └── batches/                              ├── batches/
//!     ├── cyclic,batch=256,seed=42/         │   ├── cyclic,batch=256,seed=42/
//!     │   ├── 7.npy                         │   │   ├── 7/image.npy, label.npy, …
//!     │   ├── 7.indices.npy                 │   │   └── 7.indices.npy
//!     │   └── 7.offsets.npy, 7.shapes.npy   │   └── at/5,17,0-9/image.npy, …
//!     └── at/5,17,0-9.npy, …                └── samples/17/image, image.npy, label, …
//! ```
//! `batches` lists `at` alone and `at` nothing, or a tool that walks the mount would copy every batch that anybody ever
//! asked for.

mod gather;
mod packed;
mod range;
mod seen;
mod table;
#[cfg(test)]
mod tests;

pub use table::Table;

use super::list::Listing;
use super::{Attr, Failure, Fs, Kind, NAME_MAX, SOON};
use crate::errno::Errno;
use crate::namespace::{Batch, Node, Part, parse_index, write_index};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use table::{List, Order, Pinned};
use zrfs::format::Kind as SchemaKind;
use zrfs::sampler::{Sampler, Spec, parse_length, parse_with};
use zrfs::{Dataset, Source, Stream};

/// Files of batches are looked up again after this long. A name then has its number anew if that was forgotten, and in so
/// short a time no mount is asked for so many others that it could be; but one look-up is enough to open and read.
pub(super) const BRIEFLY: Duration = Duration::from_millis(20);
/// The end of the name of a batch's indices.
const INDICES: &str = ".indices.npy";

/// The end of the name of a part.
fn suffix(part: Part) -> &'static str {
    match part {
        Part::Values => ".npy",
        Part::Offsets => ".offsets.npy",
        Part::Shapes => ".shapes.npy",
    }
}

/// What a name in a directory of batches asks for, beside the batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Dir,
    Indices,
    Part(Part),
}

impl Asked {
    fn suffix(self) -> &'static str {
        match self {
            Asked::Dir => "",
            Asked::Indices => INDICES,
            Asked::Part(part) => suffix(part),
        }
    }

    fn node(self, batch: Batch) -> Node {
        match self {
            Asked::Dir => Node::BatchDir(batch),
            Asked::Indices => Node::BatchIndices(batch),
            Asked::Part(part) => Node::BatchFile(0, batch, part),
        }
    }
}

impl Fs {
    /// The node called `name` in a directory of batches or samples.
    pub(super) fn batch_child(&self, dir: Node, name: &[u8]) -> Result<Node, Failure> {
        let text = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
        match dir {
            Node::Batches if text == "at" => Ok(Node::At),
            Node::Batches => Ok(Node::Spec(self.table.spec(text, || self.parse_spec(text))?)),
            Node::At => {
                let (list, asked) = self.split(text)?;
                let batch = self.table.list(list, || self.parse_list(list))?;
                Ok(asked.node(batch))
            }
            Node::Spec(id) => {
                let pinned = self.table.pinned(id)?;
                let (step, asked) = self.split(text)?;
                let step = parse_index(step.as_bytes()).ok_or(Errno::NOENT)?;
                if !pinned.reaches(step) {
                    log::info!("step {step} of {} is too far to be replayed; iid_counter has any step", pinned.spec);
                    return Err(Errno::NOENT.into());
                }
                Ok(asked.node(self.table.step(&pinned, step)?))
            }
            Node::BatchDir(batch) => {
                self.table.order(batch)?;
                let stem = text.strip_suffix(suffix(Part::Values)).ok_or(Errno::NOENT)?;
                if let Some(s) = self.stream_number(stem) {
                    return Ok(Node::BatchFile(s, batch, Part::Values));
                }
                let side = [Part::Offsets, Part::Shapes].into_iter().find_map(|part| {
                    let s = self.stream_number(text.strip_suffix(suffix(part))?)?;
                    self.has_part(s, part).then_some(Node::BatchFile(s, batch, part))
                });
                side.ok_or(Errno::NOENT.into())
            }
            Node::Samples => {
                self.dataset()?;
                self.live(0, parse_index(name)).map(Node::Sample)
            }
            Node::Sample(index) => {
                self.live(0, Some(index))?;
                if let Some(s) = self.stream_number(text) {
                    return Ok(Node::Record(s, index));
                }
                let s = text.strip_suffix(".npy").and_then(|stem| self.stream_number(stem)).ok_or(Errno::NOENT)?;
                if self.stream(s)?.schema().is_some() { Ok(Node::Npy(s, index)) } else { Err(Errno::NOENT.into()) }
            }
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// The attributes of what belongs to batches and samples.
    pub(super) fn batch_attr(&self, node: Node) -> Result<Attr, Failure> {
        let dir = |dirs: u64| -> Result<Attr, Failure> {
            let nlink = u32::try_from(dirs).unwrap_or(u32::MAX).saturating_add(2);
            Ok(Attr { nlink, ttl: SOON, ..self.blank(node, Kind::Dir)? })
        };
        let file = |size| -> Result<Attr, Failure> { Ok(Attr { size, ttl: BRIEFLY, ..self.blank(node, Kind::File)? }) };
        match node {
            Node::Batches => dir(1),
            Node::At => dir(0),
            Node::Spec(id) => {
                let pinned = self.table.pinned(id)?;
                dir(if self.dataset().is_ok() { self.table.shown(&pinned)? } else { 0 })
            }
            Node::BatchDir(batch) => {
                self.dataset()?;
                self.table.order(batch)?;
                dir(0)
            }
            Node::BatchIndices(batch) => file(self.indices_size(batch)?),
            Node::BatchFile(s, batch, part) => {
                let attr = file(self.batch_size(s, batch, part)?)?;
                Ok(Attr { mtime: self.state(s)?.mtime, ..attr })
            }
            Node::Samples => {
                self.dataset()?;
                self.refresh(0)?;
                Ok(Attr { mtime: self.last_grown(), ..dir(self.source.len())? })
            }
            Node::Sample(index) => {
                self.dataset()?;
                self.live(0, Some(index))?;
                Ok(self.blank(node, Kind::Dir)?)
            }
            _ => Err(Errno::NOENT.into()),
        }
    }

    /// Lists a directory of batches or samples.
    pub(super) fn list_batches(&self, dir: Node, plus: bool, to: &mut Listing<'_, '_>) -> Result<(), Failure> {
        match dir {
            Node::Batches => self.offer(vec![("at".into(), Node::At)], plus, to),
            Node::Spec(id) => self.list_steps(&self.table.pinned(id)?, plus, to),
            Node::BatchDir(batch) => self.offer(self.batch_files(batch), plus, to),
            Node::Samples => {
                let (length, mut name) = (self.source.len(), Vec::with_capacity(32));
                while to.place() < length {
                    let index = to.place();
                    write_index(index, b"", &mut name);
                    if !to.put(&name, self.blank(Node::Sample(index), Kind::Dir)?) {
                        break;
                    }
                }
                Ok(())
            }
            Node::Sample(index) => self.offer(self.sample_files(index), plus, to),
            _ => Ok(()),
        }
    }

    /// The directory that a directory of batches or samples is in.
    pub(super) fn batch_parent(&self, dir: Node) -> Result<Node, Failure> {
        Ok(match dir {
            Node::Batches | Node::Samples => Node::Root,
            Node::At | Node::Spec(_) => Node::Batches,
            Node::Sample(_) => Node::Samples,
            Node::BatchDir(batch) => match self.table.order(batch)? {
                Order::Step(pinned, _) => Node::Spec(pinned.id),
                Order::List(_) => Node::At,
            },
            _ => return Err(Errno::NOTDIR.into()),
        })
    }

    /// The number of records that a directory of batches draws from, or that a batch has.
    pub(super) fn batch_records(&self, node: Node) -> Result<Option<u64>, Failure> {
        Ok(match node {
            Node::Spec(id) => Some(self.table.pinned(id)?.length),
            Node::BatchDir(batch) | Node::BatchIndices(batch) | Node::BatchFile(_, batch, _) => {
                Some(self.table.count(&self.table.order(batch)?)?)
            }
            _ => None,
        })
    }

    /// The spec of a directory, and how many records it draws from. Without `length` those are what there is by now, and from
    /// here on what this spelling draws from until it is forgotten.
    fn parse_spec(&self, text: &str) -> Result<(Spec, u64), Failure> {
        let none = |reason: String| {
            log::info!("batches/{text}: {reason}");
            Errno::NOENT
        };
        let (spec, [length]) = parse_with(text, ["length"]).map_err(none)?;
        let length = self.drawn_from(0, parse_length(length).map_err(none)?)?;
        let length = length.ok_or_else(|| none(format!("there are {} records", self.source.len())))?;
        Sampler::new(spec.clone(), length).map_err(|e| none(e.to_string()))?;
        Ok((spec, length))
    }

    fn parse_list(&self, text: &str) -> Result<List, Failure> {
        let list = List::parse(text).ok_or(Errno::NOENT)?;
        self.live(0, list.highest())?;
        Ok(list)
    }

    /// Which batch a name in a directory of them asks for, and what of it.
    fn split<'n>(&self, name: &'n str) -> Result<(&'n str, Asked), Errno> {
        let asked = self.asked().into_iter().rev();
        asked.filter_map(|asked| Some((name.strip_suffix(asked.suffix())?, asked))).next().ok_or(Errno::NOENT)
    }

    /// What there is of each batch, such that a name belongs to the last one whose end it has.
    fn asked(&self) -> Vec<Asked> {
        if self.dataset().is_ok() {
            return vec![Asked::Dir, Asked::Indices];
        }
        let parts = Part::ALL.into_iter().filter(|&part| self.has_part(0, part));
        parts.map(Asked::Part).chain([Asked::Indices]).collect()
    }

    fn list_steps(&self, pinned: &Arc<Pinned>, plus: bool, to: &mut Listing<'_, '_>) -> Result<(), Failure> {
        let (asked, mut name) = (self.asked(), Vec::with_capacity(64));
        let (files, steps) = (asked.len() as u64, self.table.shown(pinned)?);
        loop {
            let (step, k) = (to.place() / files, to.place() % files);
            let Some(asked) = asked.get(k as usize).filter(|_| step < steps) else { return Ok(()) };
            let node = asked.node(self.table.step(pinned, step)?);
            write_index(step, asked.suffix().as_bytes(), &mut name);
            if !to.put(&name, self.listed(node, plus)?) {
                return Ok(());
            }
        }
    }

    /// Lists entries, those whose names are not too long.
    fn offer(&self, entries: Vec<(String, Node)>, plus: bool, to: &mut Listing<'_, '_>) -> Result<(), Failure> {
        let skip = usize::try_from(to.place()).unwrap_or(usize::MAX);
        for (name, node) in entries.into_iter().filter(|(name, _)| name.len() <= NAME_MAX).skip(skip) {
            if !to.put(name.as_bytes(), self.listed(node, plus)?) {
                break;
            }
        }
        Ok(())
    }

    /// The attributes of an entry: only what a listing without them shows, unless it is one with.
    fn listed(&self, node: Node, plus: bool) -> Result<Attr, Failure> {
        if plus {
            return self.attr_or_unknown(node);
        }
        let kind = if matches!(node, Node::At | Node::BatchDir(_)) { Kind::Dir } else { Kind::File };
        Ok(self.blank(node, kind)?)
    }

    /// The files of a dataset's batch. Where a stream is called as a part of another would be, its own file has the name.
    fn batch_files(&self, batch: Batch) -> Vec<(String, Node)> {
        let mut files = Vec::new();
        for (s, (stream, _)) in self.streams() {
            for part in Part::ALL.into_iter().filter(|&part| self.has_part(s, part)) {
                let name = format!("{stream}{}", suffix(part));
                let stem = name.strip_suffix(suffix(Part::Values)).unwrap_or_default();
                if part == Part::Values || self.stream_number(stem).is_none() {
                    files.push((name, Node::BatchFile(s, batch, part)));
                }
            }
        }
        files
    }

    /// The files of a sample: those that its records have elsewhere.
    fn sample_files(&self, index: u64) -> Vec<(String, Node)> {
        let mut files = Vec::new();
        for (s, (name, stream)) in self.streams() {
            files.push((name.clone(), Node::Record(s, index)));
            let npy = format!("{name}.npy");
            if stream.schema().is_some() && self.stream_number(&npy).is_none() {
                files.push((npy, Node::Npy(s, index)));
            }
        }
        files
    }

    /// The streams of a dataset with their numbers.
    fn streams(&self) -> impl Iterator<Item = (u16, &(String, Stream))> {
        (0..).zip(self.dataset().map_or(&[][..], Dataset::streams))
    }

    /// Whether a stream's batches have this part.
    fn has_part(&self, s: u16, part: Part) -> bool {
        let Ok(stream) = self.stream(s) else { return false };
        match (stream.schema().map(|schema| &schema.kind), part) {
            (_, Part::Values) | (None, Part::Offsets) | (Some(SchemaKind::Ragged), _) => true,
            (Some(SchemaKind::Dense { .. }), _) | (None, Part::Shapes) => false,
        }
    }

    fn dataset(&self) -> Result<&Dataset, Errno> {
        match &self.source {
            Source::Dataset(dataset) => Ok(dataset),
            Source::Store(_) => Err(Errno::NOENT),
        }
    }

    /// The number of the stream of this name.
    fn stream_number(&self, name: &str) -> Option<u16> {
        let streams = self.dataset().ok()?.streams();
        streams.binary_search_by(|(n, _)| n.as_str().cmp(name)).ok().map(|s| s as u16)
    }

    /// Takes note that a step is being read, and has the next one gathered if it is read in order.
    fn note_step(&self, s: u16, order: &Order, starts: bool, ends: bool) {
        let Order::Step(pinned, step) = order else { return };
        if !self.ahead.is_on() || !(starts || ends) {
            return;
        }
        let next = pinned.seen.lock().unwrap_or_else(PoisonError::into_inner).note(s, *step, starts, ends);
        if let Some(next) = next.filter(|&next| pinned.reaches(next))
            && let Ok(batch) = self.table.step(pinned, next)
        {
            self.ahead.gather(Node::BatchFile(s, batch, Part::Values));
        }
    }
}
