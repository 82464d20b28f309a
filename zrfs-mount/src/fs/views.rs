//! The calls about views: batches that programs ask for, gathered into memory that they share with us.

#[cfg(test)]
mod tests;

use super::{Failure, Fs, spec as specs};
use crate::errno::Errno;
use crate::namespace::Node;
use crate::views::plan::{Part, Plan};
use crate::views::{Caller, Loan, View, Work, slab};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;
use zrfs::Error;
use zrfs::dataset::Found;
use zrfs::format::Kind;
use zrfs::sampler::Sampler;
use zrfs_abi as abi;

/// A step that is further away than so many draws of a sampler that has to replay them (some seconds) is refused.
const MAX_REPLAY: u128 = 1 << 28;
/// The memory of so many shapes, of up to 64 numbers each, is counted when they are there.
const SHAPES: usize = 1024;

/// The calls about views, and the bytes that go in with each.
const CALLS: [(u32, usize); 9] = [
    (abi::BEGIN, abi::View::BYTES),
    (abi::PUSH_SMALL, abi::SMALL_BYTES),
    (abi::PUSH_LARGE, abi::LARGE_BYTES),
    (abi::SEAL, abi::View::BYTES),
    (abi::GATHER_SMALL, abi::SMALL_BYTES),
    (abi::GATHER_LARGE, abi::LARGE_BYTES),
    (abi::SAMPLE, abi::Sample::BYTES),
    (abi::CLOSE, abi::View::BYTES),
    (abi::WAIT, abi::View::BYTES),
];

/// A call about a view, as far as it is right in itself.
pub(super) struct Asked<'d> {
    /// The view, 0 for a new one.
    pub(super) view: u64,
    pub(super) stream: u32,
    /// Whether it begins a batch.
    pub(super) begins: bool,
    /// Whether the batch is gathered after the answer.
    starts: bool,
    /// The view that the answer waits for, or 0.
    pub(super) wait: u64,
    /// The number of indices that follow.
    pub(super) count: u64,
    pub(super) rest: &'d [u8],
}

impl<'d> Asked<'d> {
    pub(super) fn new(command: u32, data: &'d [u8]) -> Result<Self, Errno> {
        let bytes = CALLS.iter().find(|(call, _)| *call == command).ok_or(Errno::NOTTY)?.1;
        let (head, rest) = data.split_first_chunk().filter(|_| data.len() == bytes).ok_or(Errno::INVAL)?;
        let call = abi::View::decode(head).ok_or(Errno::INVAL)?;
        let abi::View { view, stream, flags, count, seal: wait, .. } = call;
        if call != (abi::View { view, stream, flags, count, seal: wait, ..abi::View::default() }) {
            return Err(Errno::INVAL);
        }
        let begins = matches!(command, abi::BEGIN | abi::GATHER_SMALL | abi::GATHER_LARGE | abi::SAMPLE);
        let takes = matches!(command, abi::PUSH_SMALL | abi::PUSH_LARGE | abi::GATHER_SMALL | abi::GATHER_LARGE);
        let starts = flags == abi::START && Fs::gathers(command);
        let is_possible = (stream == 0 || begins)
            && (count == 0 || takes)
            && count <= (rest.len() / 8) as u64
            && (flags == 0 || starts)
            && (wait == 0 || starts);
        is_possible.then_some(Asked { view, stream, begins, starts, wait, count, rest }).ok_or(Errno::INVAL)
    }
}

impl Fs {
    /// The views of all users.
    pub fn views(&self) -> &crate::views::Views {
        &self.views
    }

    /// A call about a view.
    pub(super) fn view_call(&self, caller: Caller, node: Node, command: u32, data: &[u8]) -> Result<Vec<u8>, Failure> {
        let asked = Asked::new(command, data)?;
        if asked.starts || command == abi::WAIT {
            // Answered apart.
            return Err(Errno::INVAL.into());
        }
        if command == abi::CLOSE {
            self.views.find(asked.view, caller)?;
            self.views.end(asked.view);
            return Ok(Vec::new());
        }
        let streams = if asked.begins { Some(self.chosen(node, asked.stream)?) } else { None };
        let (view, is_new) = self.view_for(&asked, caller)?;
        let _busy = view.busy(asked.begins)?;
        let done = view
            .work(|work| self.on_view(&view, work, command, streams, asked.rest, asked.count))
            .unwrap_or_else(|e| Err(e.into()));
        if done.is_err() && is_new {
            self.views.end(view.id);
        }
        done.map(|view| view.encode().to_vec())
    }

    /// The view of a call, and whether it is a new one: of a new view whose call fails a client never learns the number.
    pub(super) fn view_for(&self, asked: &Asked<'_>, caller: Caller) -> Result<(Arc<View>, bool), Errno> {
        match asked.view {
            0 if asked.begins => Ok((self.views.begin(caller)?, true)),
            id => Ok((self.views.find(id, caller)?, false)),
        }
    }

    /// Works on a view as a call says.
    pub(super) fn on_view(
        &self,
        view: &View,
        work: &mut Work,
        command: u32,
        streams: Option<Vec<u16>>,
        rest: &[u8],
        count: u64,
    ) -> Result<abi::View, Failure> {
        if streams.is_some() {
            self.views.hide(view);
            work.clear();
            work.streams = streams;
        } else if work.streams.is_none() {
            return Err(Errno::INVAL.into());
        }
        let indices =
            rest.chunks_exact(8).take(count as usize).filter_map(|n| Some(u64::from_ne_bytes(n.try_into().ok()?)));
        match command {
            abi::PUSH_SMALL | abi::PUSH_LARGE | abi::GATHER_SMALL | abi::GATHER_LARGE => {
                view.charge(work, count)?;
                work.reserve(count as usize)?;
                work.indices.extend(indices);
            }
            abi::SAMPLE => {
                let spec = rest.try_into().ok().and_then(abi::Spec::decode).ok_or(Errno::INVAL)?;
                let drawn = self.draw(view, work, &spec)?;
                return self.seal(view, work, Some(drawn));
            }
            _ => {}
        }
        match command {
            abi::SEAL | abi::GATHER_SMALL | abi::GATHER_LARGE => self.seal(view, work, None),
            _ => Ok(self.said(view, work, 0, 0)),
        }
    }

    /// The streams that a call means.
    pub(super) fn chosen(&self, node: Node, stream: u32) -> Result<Vec<u16>, Errno> {
        let all = || (0..self.states.len() as u16).collect();
        match stream {
            abi::STREAM_ALL => Ok(all()),
            abi::STREAM_OWN => Ok(self.own_stream(node).map_or_else(all, |s| vec![s])),
            number => match u16::try_from(number) {
                Ok(s) if self.stream(s).is_ok() => Ok(vec![s]),
                _ => Err(Errno::INVAL),
            },
        }
    }

    /// Draws the indices of a step; returns the step and the number of records drawn from.
    fn draw(&self, view: &View, work: &mut Work, spec: &abi::Spec) -> Result<(u64, u64), Failure> {
        let &abi::Spec { batch, seed, rank, world, step, length, .. } = spec;
        let wanted = specs::of_numbers([spec.mode, spec.tail], [batch, seed, rank, world]).ok_or(Errno::INVAL)?;
        let length = self.drawn_from(0, NonZeroU64::new(length))?.filter(|&length| length > 0).ok_or(Errno::INVAL)?;
        let mut sampler = match work.sampler.take().filter(|old| *old.spec() == wanted && old.length() == length) {
            Some(sampler) => sampler,
            None => Sampler::new(wanted, length).map_err(|_| Errno::INVAL)?,
        };
        if sampler.replay(step) > MAX_REPLAY {
            return Err(Errno::INVAL.into());
        }
        let count = sampler.batch_len(step);
        view.charge(work, count)?;
        let count = usize::try_from(count).map_err(|_| Errno::NOSPC)?;
        work.reserve(count)?;
        work.indices.resize(count, 0);
        sampler.batch_at(step, &mut work.indices)?;
        work.sampler = Some(sampler);
        Ok((step, length))
    }

    /// Gathers what was begun. Whatever comes of it, the next batch has to be begun anew.
    fn seal(&self, view: &View, work: &mut Work, drawn: Option<(u64, u64)>) -> Result<abi::View, Failure> {
        let streams = work.streams.take().ok_or(Errno::INVAL)?;
        if work.indices.iter().any(|&index| index >= self.source.len()) {
            self.refresh(0)?;
        }
        let length = self.source.len();
        if work.indices.iter().any(|&index| index >= length) {
            return Err(Errno::INVAL.into());
        }
        // Out of the work, so that it can be changed while they are read.
        let indices = std::mem::take(&mut work.indices);
        let done = self.fill_view(view, work, &streams, &indices, drawn.unwrap_or((abi::NO_STEP, length)));
        work.indices = indices;
        let (seal, bytes) = done?;
        self.counters.view_batches.add(1);
        self.counters.view_bytes.add(bytes);
        self.views.show(view, seal, bytes);
        Ok(self.said(view, work, bytes, seal))
    }

    /// What a stream puts into a slab, and its records. The memory of both is on `loan`.
    fn part<'f>(&'f self, s: u16, indices: &'f [u64], loan: &mut Loan<'_>) -> Result<(Part, Found<'f>), Failure> {
        let stream = self.stream(s)?;
        let count = indices.len() as u64;
        // Offsets and starts of shapes are written to the slab from numbers of our own.
        loan.take(Found::memory(count).saturating_add(2 * size_of::<u64>() as u64 * count))?;
        let found = stream.look_up(indices).map_err(|e| self.damaged(s, e))?;
        let mut part = Part {
            number: s,
            name: self.stream_name(s)?.into(),
            kind: abi::KIND_BYTES,
            dtype: String::new(),
            itemsize: 1,
            record_bytes: None,
            offsets: Vec::new(),
            shapes: Vec::new(),
        };
        if let Some(schema) = stream.schema() {
            part.dtype = schema.dtype.as_str().into();
            part.itemsize = schema.dtype.itemsize();
            match &schema.kind {
                Kind::Dense { item_shape } => {
                    part.kind = abi::KIND_DENSE;
                    part.record_bytes = Some(schema.record_bytes().ok_or(Errno::IO)?);
                    part.shapes.clone_from(item_shape);
                }
                Kind::Ragged => {
                    part.kind = abi::KIND_RAGGED;
                    let mut extents = Vec::new();
                    part.shapes.reserve(indices.len() + 1);
                    part.shapes.push(0);
                    for some in indices.chunks(SHAPES) {
                        let before = extents.len();
                        for &index in some {
                            let shape = stream.shape(index).map_err(|e| self.damaged(s, e))?;
                            extents.extend(shape.unwrap_or_default());
                            part.shapes.push(extents.len() as u64);
                        }
                        // They are moved behind the starts, and vectors grow by as much as they have.
                        loan.take(4 * size_of::<u64>() as u64 * (extents.len() - before) as u64)?;
                    }
                    part.shapes.append(&mut extents);
                }
            }
        }
        if part.record_bytes.is_none() {
            part.offsets = found.offsets().to_vec();
        }
        Ok((part, found))
    }

    /// Gathers into the view's memory; returns the number of the batch, and its bytes.
    fn fill_view(
        &self,
        view: &View,
        work: &mut Work,
        streams: &[u16],
        indices: &[u64],
        (step, length): (u64, u64),
    ) -> Result<(u64, u64), Failure> {
        // Where others gather as well each does so alone: the cores are busy, and nobody has to be woken.
        let at_work = self.views.gathering();
        let mut loan = view.loan();
        let all = streams.iter().map(|&s| self.part(s, indices, &mut loan)).collect::<Result<Vec<_>, Failure>>()?;
        let (parts, found): (Vec<Part>, Vec<Found<'_>>) = all.into_iter().unzip();
        let plan = Plan::new(&parts, indices.len() as u64)?;
        let seal = self.views.next_seal();
        let memory = self.views.room(view, work, plan.bytes, indices.len() as u64)?.bytes_mut();
        plan.write(memory, &parts, indices, [seal, length, step]);
        for ((part, found), place) in parts.iter().zip(found).zip(&plan.data) {
            let room = memory.get_mut(place.start as usize..place.end as usize).ok_or(Errno::NOSPC)?;
            let read = if at_work.alone() { found.read(room) } else { found.read_here(room) };
            read.map_err(|e| self.damaged(part.number, e))?;
        }
        Ok((seal, plan.bytes))
    }

    /// The failure of a gather. Damage is logged as that of the record's own file, once.
    fn damaged(&self, s: u16, error: Error) -> Failure {
        match error {
            Error::Record { index, .. } => {
                let ino = Node::Record(s, index).ino().unwrap_or(crate::namespace::ROOT);
                self.fail(ino, None, error.into()).into()
            }
            error => error.into(),
        }
    }

    fn said(&self, view: &View, work: &Work, bytes: u64, seal: u64) -> abi::View {
        let memory = view.memory();
        abi::View {
            view: view.id,
            stream: 0,
            flags: 0,
            count: work.indices.len() as u64,
            bytes,
            slab: memory.as_ref().map_or(0, |memory| memory.slab),
            capacity: memory.as_ref().map_or(0, |memory| memory.capacity),
            key: view.key,
            seal,
        }
    }

    /// The file of a view in `.zrfs/views`.
    pub(super) fn view_file(&self, id: Option<u64>) -> Result<Node, Errno> {
        id.and_then(|id| self.views.seal_of(id)).map(Node::View).ok_or(Errno::NOENT)
    }

    /// Its attributes: another file for each batch, so that the kernel never shows the bytes of an earlier one.
    pub(super) fn view_attr(&self, seal: u64) -> Result<super::Attr, Failure> {
        let (uid, size, _) = self.views.batch(seal).ok_or(Errno::STALE)?;
        let blank = self.blank(Node::View(seal), super::Kind::File)?;
        Ok(super::Attr { size, uid, perm: 0o400, ttl: Duration::ZERO, ..blank })
    }

    /// Reads its bytes.
    pub(super) fn read_view(&self, seal: u64, offset: u64, dst: &mut [u8]) -> Result<usize, Failure> {
        let (_, bytes, file) = self.views.batch(seal).ok_or(Errno::STALE)?;
        let n = bytes.saturating_sub(offset).min(dst.len() as u64) as usize;
        // Offsets from 2^63 on are beyond the end here, and an error of the file.
        let n = if n == 0 { 0 } else { slab::read_at(&file, offset, &mut dst[..n])? };
        // The next batch may have come over it.
        self.views.batch(seal).map(|_| n).ok_or(Errno::STALE.into())
    }

    /// The number of views, and the bytes that they have.
    pub fn views_used(&self) -> (u64, u64) {
        self.views.count()
    }
}
