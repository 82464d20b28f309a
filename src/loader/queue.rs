//! The steps under way: which are claimed, made, delivered. One lock, held for moments; no user's code runs under it.
//!
//! A step is *claimed* by whoever makes its batch, in the order of the steps, and has a slot from then on until it is
//! delivered. There are at most `limit` slots, which is what bounds the memory.

use super::error::{Failure, LoadError};
use super::state::Position;
use super::stats::{Counters, Spent};
use crate::error::{Error, Result};
use crate::fork::Maker;
use crate::sampler::Sampler;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// In completion order a step is at most so many times the limit ahead of the first one that was not delivered, so that
/// a state has little to remember.
const AHEAD: u64 = 4;

/// What became of a step.
pub(super) struct Outcome<T> {
    pub(super) result: Result<T, LoadError>,
    /// Bytes of its records.
    pub(super) bytes: u64,
    pub(super) spent: Spent,
}

/// A step to be made into a batch.
pub(super) struct Claim {
    pub(super) ticket: u64,
    pub(super) step: u64,
    pub(super) indices: Result<Vec<u64>, Failure>,
}

struct Slot<T> {
    /// Tells the claims of one step from each other, before and after a seek.
    ticket: u64,
    step: u64,
    outcome: Option<Outcome<T>>,
}

struct Inner<T> {
    sampler: Sampler,
    /// The next step to be claimed.
    next: u64,
    position: Position,
    /// In the order of their tickets.
    slots: VecDeque<Slot<T>>,
    tickets: u64,
    /// Batches without a slot that are not gone yet: of claims that are still worked on, and those that are thrown away.
    stale: usize,
    closed: bool,
    /// Workers that have not ended.
    workers: usize,
    counters: Counters,
}

pub(super) struct Queue<T> {
    inner: Mutex<Inner<T>>,
    /// Told when there may be something to claim, or nothing any more.
    room: Condvar,
    /// Told when there may be something to deliver, or nothing any more, and when a worker ended.
    news: Condvar,
    limit: usize,
    in_order: bool,
    maker: Maker,
}

impl<T> Queue<T> {
    /// Steps from `position` on, in at most `limit` slots.
    pub(super) fn new(sampler: Sampler, position: Position, limit: usize, in_order: bool) -> Self {
        let inner = Inner {
            sampler,
            next: position.step,
            position,
            slots: VecDeque::new(),
            tickets: 0,
            stale: 0,
            closed: false,
            workers: 0,
            counters: Counters::default(),
        };
        let (room, news) = (Condvar::new(), Condvar::new());
        Queue { inner: Mutex::new(inner), room, news, limit, in_order, maker: Maker::here() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process that made the loader, if that is not this one. In a fork a lock may be held for good, so nothing else
    /// here is called there.
    pub(super) fn foreign(&self) -> Option<u32> {
        (!self.maker.is_here()).then(|| self.maker.pid())
    }

    /// The next step, as soon as there is room for it; `None` once the loader is closed.
    pub(super) fn claim(&self) -> Option<Claim> {
        let mut inner = self.lock();
        if !inner.closed && !self.has_room(&inner) {
            let begin = Instant::now();
            let full = |inner: &mut Inner<T>| !inner.closed && !self.has_room(inner);
            inner = self.room.wait_while(inner, full).unwrap_or_else(PoisonError::into_inner);
            inner.counters.workers_waited += begin.elapsed();
        }
        inner.claim()
    }

    /// The same without asking for room.
    pub(super) fn claim_now(&self) -> Option<Claim> {
        self.lock().claim()
    }

    /// Takes back a claim that nobody works on.
    pub(super) fn unclaim(&self, claim: &Claim) {
        let mut inner = self.lock();
        match inner.slots.binary_search_by_key(&claim.ticket, |slot| slot.ticket) {
            Ok(k) => drop(inner.slots.remove(k)),
            Err(_) => inner.stale -= 1,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn has_room(&self, inner: &Inner<T>) -> bool {
        inner.slots.len() + inner.stale < self.limit
            && (self.in_order || inner.next.wrapping_sub(inner.position.step) < self.limit as u64 * AHEAD)
    }

    /// Says what became of a claim. It is forgotten where the loader was closed or moved to another step meanwhile.
    pub(super) fn finish(&self, ticket: u64, outcome: Outcome<T>) {
        let mut inner = self.lock();
        inner.counters.spent(outcome.spent);
        let slot = inner.slots.binary_search_by_key(&ticket, |slot| slot.ticket);
        match slot.ok().and_then(|k| inner.slots.get_mut(k)) {
            Some(slot) => {
                let left = slot.outcome.replace(outcome);
                drop(inner);
                self.news.notify_all();
                drop(left);
            }
            None => {
                drop(inner);
                self.throw_away(outcome, 1);
            }
        }
    }

    /// Drops `left`, which has `count` stale batches, and makes room for others when it is gone.
    fn throw_away<L>(&self, left: L, count: usize) {
        /// Makes room, also where something of the user's panics while it is dropped.
        struct Gone<'q, T>(&'q Queue<T>, usize);
        impl<T> Drop for Gone<'_, T> {
            fn drop(&mut self) {
                self.0.lock().stale -= self.1;
                self.0.room.notify_all();
            }
        }
        let _gone = Gone(self, count);
        drop(left);
    }

    /// The next batch to deliver, as soon as there is one; `None` once the loader is closed.
    pub(super) fn take(&self) -> Option<Result<T, LoadError>> {
        let mut inner = self.lock();
        let mut begin = None;
        loop {
            if inner.closed {
                return None;
            }
            if let Some(outcome) = inner.deliver(self.in_order) {
                inner.counters.consumer_waited += begin.map_or(Duration::ZERO, |begin: Instant| begin.elapsed());
                drop(inner);
                if self.in_order {
                    self.room.notify_one();
                } else {
                    // The first step of all may have been waited for, and now there is room for several.
                    self.room.notify_all();
                }
                return Some(outcome.result);
            }
            begin.get_or_insert_with(Instant::now);
            inner = self.news.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Counts the time in which a consumer made a batch itself: it waited for it.
    pub(super) fn made_by_consumer(&self, time: Duration) {
        self.lock().counters.consumer_waited += time;
    }

    /// Goes on from `position`, with the stream of `sampler`. What was made ahead is thrown away.
    pub(super) fn go_to(&self, sampler: Sampler, position: Position) {
        let mut inner = self.lock();
        let (left, made) = inner.forget_slots();
        inner.sampler = sampler;
        inner.next = position.step;
        inner.position = position;
        drop(inner);
        self.room.notify_all();
        self.throw_away(left, made);
    }

    /// Ends everything: nothing is claimed and nothing is delivered any more.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        let (left, made) = inner.forget_slots();
        drop(inner);
        self.room.notify_all();
        self.news.notify_all();
        self.throw_away(left, made);
    }

    /// Counts a worker in (or, when it ended, out).
    pub(super) fn worker(&self, begins: bool) {
        let mut inner = self.lock();
        if begins {
            inner.workers += 1;
        } else {
            inner.workers -= 1;
            drop(inner);
            self.news.notify_all();
        }
    }

    /// Waits until all workers have ended, for so long at most; says whether they have.
    pub(super) fn ended(&self, patience: Duration) -> bool {
        let working = |inner: &mut Inner<T>| inner.workers > 0;
        let waited = self.news.wait_timeout_while(self.lock(), patience, working);
        waited.unwrap_or_else(PoisonError::into_inner).0.workers == 0
    }

    /// The sampler, and how far the deliveries have come.
    pub(super) fn at<R>(&self, read: impl FnOnce(&Sampler, &Position) -> R) -> R {
        let inner = self.lock();
        read(&inner.sampler, &inner.position)
    }

    /// The counters, and how many batches wait and are being made.
    pub(super) fn counters(&self) -> (Counters, usize, usize) {
        let inner = self.lock();
        let ready = inner.slots.iter().filter(|slot| slot.outcome.is_some()).count();
        (inner.counters, ready, inner.slots.len() - ready + inner.stale)
    }
}

impl<T> Inner<T> {
    fn claim(&mut self) -> Option<Claim> {
        if self.closed {
            return None;
        }
        // Only after a restore: steps that were delivered before it.
        while self.position.ahead.contains(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let (step, ticket) = (self.next, self.tickets);
        self.next = step.wrapping_add(1);
        self.tickets += 1;
        self.slots.push_back(Slot { ticket, step, outcome: None });
        Some(Claim { ticket, step, indices: self.draw(step).map_err(Failure::Draw) })
    }

    fn draw(&mut self, step: u64) -> Result<Vec<u64>> {
        let len = self.sampler.batch_len(step);
        let mut indices = Vec::new();
        match usize::try_from(len) {
            Ok(len) if indices.try_reserve_exact(len).is_ok() => indices.resize(len, 0),
            _ => return Err(Error::invalid(format!("there is no memory for a batch of {len} indices"))),
        }
        self.sampler.batch_at(step, &mut indices)?;
        Ok(indices)
    }

    fn deliver(&mut self, in_order: bool) -> Option<Outcome<T>> {
        let candidates = if in_order { 1 } else { self.slots.len() };
        let k = self.slots.iter().take(candidates).position(|slot| slot.outcome.is_some())?;
        let slot = self.slots.remove(k)?;
        let outcome = slot.outcome?;
        self.position.delivered(slot.step);
        self.counters.delivered(outcome.result.is_ok(), outcome.bytes);
        Some(outcome)
    }

    /// Takes out all slots, to be dropped when the lock is released, and says how many of them have a batch.
    fn forget_slots(&mut self) -> (VecDeque<Slot<T>>, usize) {
        self.stale += self.slots.len();
        let left = std::mem::take(&mut self.slots);
        let made = left.iter().filter(|slot| slot.outcome.is_some()).count();
        (left, made)
    }
}
