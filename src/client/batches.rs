//! One batch after the other, of which the mount gathers the next while the caller uses the last.

use super::Mount;
use super::view::Slot;
use crate::error::Result;
use crate::loader::Batch;
use std::io;
use std::iter::Fuse;
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
        Batches { mount: self.clone(), lists: lists.into_iter().fuse(), started: None, upcoming: None }
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

    fn wait(&self, slot: &Slot) -> io::Result<abi::View> {
        self.call(abi::WAIT, &mut abi::View { view: slot.view, ..abi::View::default() }.encode())
    }
}

/// An iterator over batches; see [`Mount::batches`].
#[derive(Debug)]
pub struct Batches<I: Iterator> {
    mount: Mount,
    lists: Fuse<I>,
    /// The batch that is gathered, and its list.
    started: Option<(Slot, I::Item)>,
    /// A list that could not be started.
    upcoming: Option<I::Item>,
}

impl<I: Iterator<Item: AsRef<[u64]>>> Batches<I> {
    /// Gives the batch that was started, and starts that of the list behind it.
    fn go_on(&mut self, slot: Slot, list: I::Item) -> Result<Batch> {
        let answer = if !slot.is_ours() {
            // A fork must not gather into memory that its parent reads.
            self.upcoming = self.lists.next();
            Err(io::ErrorKind::Unsupported.into())
        } else if let Some(next) = self.lists.next() {
            match self.mount.start(next.as_ref(), Some(&slot)) {
                Ok((started, answer)) => {
                    self.started = Some((started, next));
                    Ok(answer)
                }
                Err(e) => {
                    self.upcoming = Some(next);
                    Err(e)
                }
            }
        } else {
            self.mount.wait(&slot)
        };
        match answer {
            Ok(sealed) => self.mount.batch(slot, &sealed, 0),
            // Whichever of the two it was about: asked for on its own it says what is wrong, or is right.
            Err(_) => {
                self.mount.shared.idle.end(&slot);
                self.mount.gather(list.as_ref())
            }
        }
    }
}

impl<I: Iterator<Item: AsRef<[u64]>>> Iterator for Batches<I> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((slot, list)) = self.started.take() {
            return Some(self.go_on(slot, list));
        }
        let list = self.upcoming.take().or_else(|| self.lists.next())?;
        if self.mount.shared.server.features & abi::FEATURE_START == 0 {
            return Some(self.mount.gather(list.as_ref()));
        }
        Some(match self.mount.start(list.as_ref(), None) {
            Ok((slot, _)) => self.go_on(slot, list),
            Err(_) => self.mount.gather(list.as_ref()),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let held = usize::from(self.started.is_some()) + usize::from(self.upcoming.is_some());
        let (least, most) = self.lists.size_hint();
        (least.saturating_add(held), most.and_then(|most| most.checked_add(held)))
    }
}

impl<I: Iterator> Drop for Batches<I> {
    fn drop(&mut self) {
        if let Some((slot, _)) = &self.started {
            self.mount.shared.idle.end(slot);
        }
    }
}
