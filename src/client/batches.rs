//! One batch after the other, of which the mount gathers the next while the caller uses the last.

use super::Mount;
use super::view::Slot;
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
    /// A list whose batch fails gives its error, as [`gather`](Mount::gather) does, and those after it go on.
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
        Ahead { mount: self.clone(), started: None }
    }

    /// Has the batch of these indices gathered into a view that no batch has, and waits for the batch of another view that was
    /// started before, if there is one: its answer is the second.
    fn start(&self, indices: &[u64], before: Option<&Slot>) -> io::Result<(Slot, abi::View)> {
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
            Err(e) => {
                // It may have been started all the same: the answer is the other one's.
                self.shared.idle.end(&slot);
                Err(e)
            }
        }
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
}

impl Ahead {
    /// The batch of `now`; that of `next`, which should be what is asked for next, is gathered from now on.
    ///
    /// # Errors
    /// As [`Mount::gather`], about `now` alone.
    pub(crate) fn gather(&mut self, now: &[u64], next: Option<&[u64]>) -> Result<Batch> {
        let mount = self.mount.clone();
        // A fork must not gather into memory that its parent reads.
        let started = self.started.take().filter(|(slot, _)| slot.is_ours()).and_then(|(slot, indices)| {
            let is_wanted = indices == now;
            if !is_wanted {
                mount.shared.idle.end(&slot);
            }
            is_wanted.then_some(slot)
        });
        if mount.shared.server.features & abi::FEATURE_START == 0 || (started.is_none() && next.is_none()) {
            return mount.gather(now);
        }
        let started = started.map_or_else(|| mount.start(now, None).map(|(slot, _)| slot), Ok);
        // Whatever is wrong, with this batch or the next: asked for on its own it says so, or is right.
        let Ok(slot) = started else { return mount.gather(now) };
        let answer = match next {
            Some(next) => mount.start(next, Some(&slot)).map(|(later, answer)| {
                self.started = Some((later, next.to_vec()));
                answer
            }),
            None => mount.call(abi::WAIT, &mut abi::View { view: slot.view, ..abi::View::default() }.encode()),
        };
        match answer {
            Ok(sealed) => mount.batch(slot, &sealed, 0),
            Err(_) => {
                mount.shared.idle.end(&slot);
                mount.gather(now)
            }
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some((slot, _)) = &self.started {
            self.mount.shared.idle.end(slot);
        }
    }
}
