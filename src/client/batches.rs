//! One batch after the other, of which the mount gathers the next while the caller uses the last.

use super::view::Slot;
use super::{MFILE, Mount, NOSPC};
use crate::error::Result;
use crate::loader::Batch;
use std::io;
use std::iter::{Fuse, Peekable};
use zrfs_abi as abi;

impl Mount {
    /// The batch of each of these lists of indices, in their order. While the caller uses one the mount gathers the next into
    /// another view, without a thread of the caller's: one round trip a batch, which waits for no gather that is done by then. A
    /// batch that is dropped before the next is asked for gives its memory to the one after that.
    ///
    /// A list whose batch fails gives its error, as [`gather`](Mount::gather) does, and those after it go on. The list behind a batch
    /// is taken before the batch is given. It takes two views and the memory of two batches; a user who may not have so much
    /// gets one after the other.
    ///
    /// ```no_run
    /// # fn main() -> zrfs::Result<()> {
    /// # let mount = zrfs::client::Mount::open("/mnt/images")?;
    /// for batch in mount.batches([vec![5, 17], vec![0, 3]]) {
    ///     let pixels = batch?.parts()[0].bytes().len();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn batches<I>(&self, lists: I) -> Batches<I::IntoIter>
    where
        I: IntoIterator,
        I::Item: AsRef<[u64]>,
    {
        Batches { lists: lists.into_iter().fuse().peekable(), ahead: self.ahead() }
    }

    /// For batches one after the other.
    pub(crate) fn ahead(&self) -> Ahead {
        let one_by_one = self.shared.server.features & abi::FEATURE_START == 0;
        Ahead { mount: self.clone(), started: None, one_by_one }
    }

    /// Has the batch of these indices gathered into a view that no batch has, and waits for the batch of another view that was
    /// started before, if there is one: its answer is the second.
    ///
    /// # Errors
    /// Those of the mount, about either, with the first view: it may have been started all the same.
    fn start(
        &self,
        indices: &[u64],
        before: Option<&Slot>,
    ) -> std::result::Result<(Slot, abi::View), (Slot, io::Error)> {
        let mut slot = self.shared.idle.take();
        let wait = before.map_or(0, |before| before.view);
        let mut start = || {
            if slot.view == 0 {
                let mut call = abi::View { stream: self.stream, ..abi::View::default() }.encode();
                slot.view = self.call(abi::BEGIN, &mut call)?.view;
            }
            self.gather_then(&slot, indices, abi::START, wait)
        };
        match start() {
            Ok(answer) => Ok((slot, answer)),
            Err(e) => Err((slot, e)),
        }
    }

    /// Waits for the batch of a view that was started.
    fn wait(&self, slot: &Slot) -> io::Result<abi::View> {
        self.call(abi::WAIT, &mut abi::View { view: slot.view, ..abi::View::default() }.encode())
    }
}

/// An iterator over batches; see [`Mount::batches`].
pub struct Batches<I: Iterator> {
    lists: Peekable<Fuse<I>>,
    ahead: Ahead,
}

impl<I: Iterator> std::fmt::Debug for Batches<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batches").field("ahead", &self.ahead).finish_non_exhaustive()
    }
}

impl<I: Iterator<Item: AsRef<[u64]>>> Iterator for Batches<I> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let now = self.lists.next()?;
        Some(self.ahead.gather(now.as_ref(), self.lists.peek().map(AsRef::as_ref)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.lists.size_hint()
    }
}

/// Batches of which each is known before the last one is asked for.
#[derive(Debug)]
pub(crate) struct Ahead {
    mount: Mount,
    /// Where the next batch is gathered, and of which indices.
    started: Option<(Slot, Vec<u64>)>,
    /// The user may not have two batches at a time: each is asked for when it is wanted.
    one_by_one: bool,
}

impl Ahead {
    /// The batch of `now`; that of `next`, which should be what is asked for next, is gathered from now on.
    ///
    /// # Errors
    /// As [`Mount::gather`], about `now` alone.
    pub(crate) fn gather(&mut self, now: &[u64], next: Option<&[u64]>) -> Result<Batch> {
        let mount = self.mount.clone();
        let started = self.started_for(now);
        if self.one_by_one || (started.is_none() && next.is_none()) {
            return mount.gather(now);
        }
        let slot = match started.map_or_else(|| mount.start(now, None).map(|(slot, _)| slot), Ok) {
            Ok(slot) => slot,
            Err((_, error)) => {
                self.heed(&error);
                return mount.gather(now);
            }
        };
        let answer = match next.map(|next| (next, mount.start(next, Some(&slot)))) {
            None => mount.wait(&slot),
            Some((next, Ok((later, sealed)))) => {
                self.started = Some((later, next.to_vec()));
                Ok(sealed)
            }
            Some((_, Err((later, error)))) => {
                self.heed(&error);
                // It is about either. What this one's own answer is tells, and until then it keeps its memory.
                let own = mount.wait(&slot);
                if own.is_err() {
                    let _ = mount.wait(&later);
                }
                mount.shared.idle.end(&later);
                own
            }
        };
        match answer {
            Ok(sealed) => mount.batch(slot, &sealed, 0),
            // Asked for on its own it says what is wrong, or is right.
            Err(error) => {
                self.heed(&error);
                mount.shared.idle.end(&slot);
                mount.gather(now)
            }
        }
    }

    /// The view that this batch was started in.
    fn started_for(&mut self, now: &[u64]) -> Option<Slot> {
        let (slot, indices) = self.started.take()?;
        // A fork must not gather into memory that its parent reads.
        if slot.is_ours() && indices == now {
            return Some(slot);
        }
        self.mount.shared.idle.end(&slot);
        None
    }

    /// Asks for no batch ahead where two at a time are more than the user may have.
    fn heed(&mut self, error: &io::Error) {
        self.one_by_one |= matches!(error.raw_os_error(), Some(MFILE | NOSPC));
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some((slot, _)) = &self.started {
            self.mount.shared.idle.end(slot);
        }
    }
}
