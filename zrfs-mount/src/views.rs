//! Views: batches that programs asked the mount for, in memory that they share with it.
//!
//! Here is who has which, how much memory that is, and when it ends; [`crate::fs`] gathers into them. A view belongs to the
//! user who began it, and nobody else may name it. It ends with the process that began it, when it is closed, or with the
//! mount. A process forked from that one may use it as long as it lasts; the threads of a process share all of them.
//!
//! Nothing that a client can write to is ever read back for a decision: lengths and places are kept here.

mod account;
pub mod life;
pub mod plan;
pub mod slab;
pub mod socket;
pub mod started;

pub use account::{Limits, Loan};

use crate::errno::Errno;
use account::{Account, Accounts};
use life::{Life, Process};
use slab::Slab;
use started::Started;
use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use zrfs::sampler::Sampler;

/// Room for so many indices is kept from batch to batch.
const KEPT: usize = 8192;

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The user, as files have owners.
    pub uid: u32,
    /// The thread, 0 where it is of another pid namespace.
    pub pid: u32,
}

/// All views of a mount.
#[derive(Debug)]
pub struct Views {
    accounts: Arc<Accounts>,
    table: Mutex<Table>,
    /// Held where two views change together; see [`started`].
    starting: Mutex<()>,
    seals: AtomicU64,
    slabs: AtomicU64,
    gathering: AtomicUsize,
    started: Instant,
    life: OnceLock<Option<Life>>,
    socket: OnceLock<Option<String>>,
}

#[derive(Debug, Default)]
struct Table {
    views: HashMap<u64, Arc<View>>,
    /// The view of each batch that can be read.
    seals: HashMap<u64, u64>,
    last: u64,
}

/// One view.
#[derive(Debug)]
pub struct View {
    /// Its number.
    pub id: u64,
    /// The user that it belongs to.
    pub uid: u32,
    /// What the socket wants to see.
    pub key: u64,
    process: Option<Arc<Process>>,
    /// When it was last used, in milliseconds since the mount.
    used: AtomicU64,
    work: Mutex<Work>,
    started: Mutex<Started>,
    shown: Mutex<Shown>,
    account: Account,
}

/// What a call works on, and no other call meanwhile.
#[derive(Debug, Default)]
pub struct Work {
    /// The streams of the batch that was begun; `None` where none was.
    pub streams: Option<Vec<u16>>,
    /// The indices of its records.
    pub indices: Vec<u64>,
    /// What drew them, kept for the next step.
    pub sampler: Option<Sampler>,
    /// The memory, kept from batch to batch.
    pub slab: Option<Slab>,
}

/// What others may see of a view while a call works on it.
#[derive(Debug, Default)]
struct Shown {
    memory: Option<Memory>,
    sealed: Option<Sealed>,
    ended: bool,
}

/// Where the memory of a view is.
#[derive(Debug, Clone)]
pub struct Memory {
    /// The number of the slab.
    pub slab: u64,
    /// Its bytes.
    pub capacity: u64,
    /// Its file.
    pub file: Arc<File>,
}

/// A batch that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sealed {
    seal: u64,
    bytes: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Views {
    /// No views yet.
    pub fn new(limits: Limits) -> Arc<Views> {
        Arc::new(Views {
            accounts: Accounts::new(limits),
            table: Mutex::default(),
            starting: Mutex::default(),
            seals: AtomicU64::new(0),
            slabs: AtomicU64::new(0),
            gathering: AtomicUsize::new(0),
            started: Instant::now(),
            life: OnceLock::new(),
            socket: OnceLock::new(),
        })
    }

    /// What they may take.
    pub fn limits(&self) -> Limits {
        self.accounts.limits
    }

    /// The abstract name of the socket that hands out their memory, which is opened when it is first asked for; `None` where
    /// that failed.
    pub fn socket(self: &Arc<Self>) -> Option<&str> {
        let open = || {
            let opened = socket::start(Arc::downgrade(self));
            opened.inspect_err(|e| log::warn!("views are read through their files only: no socket: {e}")).ok()
        };
        self.socket.get_or_init(open).as_deref()
    }

    /// A new view. What processes had that have ended by now is given back before.
    ///
    /// # Errors
    /// `EMFILE` if the user has too many, `EIO` if the system has no random numbers.
    pub fn begin(self: &Arc<Self>, caller: Caller) -> Result<Arc<View>, Errno> {
        self.end_those_of_ended_processes();
        let account = Account::open(&self.accounts, caller.uid)?;
        let watch = || {
            let started = Life::start(Arc::downgrade(self));
            started.inspect_err(|e| log::warn!("views end when they are closed or not used: no watch: {e}")).ok()
        };
        let process = self.life.get_or_init(watch).as_ref().and_then(|life| life.process(caller.pid));
        let key = socket::random().map_err(|_| Errno::IO)?;
        let mut table = lock(&self.table);
        table.last += 1;
        let view = Arc::new(View {
            id: table.last,
            uid: caller.uid,
            key,
            process,
            used: AtomicU64::new(self.now()),
            work: Mutex::default(),
            started: Mutex::default(),
            shown: Mutex::default(),
            account,
        });
        table.views.insert(view.id, view.clone());
        Ok(view)
    }

    /// The view of that number.
    ///
    /// # Errors
    /// `ENOENT` if there is none, `EACCES` if it is another user's.
    pub fn find(&self, id: u64, caller: Caller) -> Result<Arc<View>, Errno> {
        let view = lock(&self.table).views.get(&id).cloned().ok_or(Errno::NOENT)?;
        if view.uid != caller.uid {
            return Err(Errno::ACCESS);
        }
        view.used.store(self.now(), Ordering::Relaxed);
        Ok(view)
    }

    /// Ends a view, and gives back what it has. A call that is at work on it is not disturbed; its memory goes afterwards.
    pub fn end(&self, id: u64) {
        let gone = lock(&self.table).remove(id);
        if let Some(view) = gone {
            view.end();
        }
    }

    /// Ends what the thread that watches processes ends, too: it is told of an end when their parents are, and may be slower.
    fn end_those_of_ended_processes(&self) {
        let ended = self.life.get().and_then(Option::as_ref).map(Life::ended);
        ended.into_iter().flatten().for_each(|process| self.process_ended(process));
    }

    /// Ends the views of a process.
    pub fn process_ended(&self, number: u64) {
        self.end_if(|view| view.process.as_ref().is_some_and(|process| process.number == number));
    }

    /// Ends those that nobody used for so long and whose process is not known.
    pub fn end_idle(&self, idle: Duration) {
        let since = self.now().saturating_sub(idle.as_millis() as u64);
        let is_idle = |view: &View| view.process.is_none() && view.used.load(Ordering::Relaxed) < since;
        self.end_if(is_idle);
    }

    /// Ends all.
    pub fn end_all(&self) {
        self.end_if(|_| true);
    }

    fn end_if(&self, ends: impl Fn(&View) -> bool) {
        let mut table = lock(&self.table);
        let ids: Vec<u64> = table.views.values().filter(|view| ends(view)).map(|view| view.id).collect();
        let gone: Vec<_> = ids.into_iter().map(|id| table.remove(id)).collect();
        drop(table);
        gone.into_iter().flatten().for_each(|view| view.end());
    }

    /// Where the memory of a view is, for whoever knows its key.
    pub fn memory(&self, id: u64, key: u64) -> Option<Memory> {
        let view = lock(&self.table).views.get(&id).cloned()?;
        if view.key == key { view.memory() } else { None }
    }

    /// The number of the batch that a view's file has.
    pub fn seal_of(&self, id: u64) -> Option<u64> {
        let view = lock(&self.table).views.get(&id).cloned()?;
        let sealed = lock(&view.shown).sealed;
        sealed.map(|sealed| sealed.seal)
    }

    /// The owner, the bytes and the memory of a batch; `None` if it is gone.
    pub fn batch(&self, seal: u64) -> Option<(u32, u64, Arc<File>)> {
        let table = lock(&self.table);
        let view = table.views.get(table.seals.get(&seal)?)?.clone();
        drop(table);
        let shown = lock(&view.shown);
        let sealed = shown.sealed.filter(|sealed| sealed.seal == seal)?;
        Some((view.uid, sealed.bytes, shown.memory.as_ref()?.file.clone()))
    }

    /// The number of a new batch.
    pub fn next_seal(&self) -> u64 {
        self.seals.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a gather as long as what it gives lives.
    pub fn gathering(&self) -> AtWork<'_> {
        self.gathering.fetch_add(1, Ordering::Relaxed);
        AtWork(&self.gathering)
    }

    /// Shows a batch that is whole.
    pub fn show(&self, view: &View, seal: u64, bytes: u64) {
        lock(&view.shown).sealed = Some(Sealed { seal, bytes });
        let mut table = lock(&self.table);
        // It may have ended meanwhile.
        if table.views.contains_key(&view.id) {
            table.seals.insert(seal, view.id);
        }
    }

    /// Hides the batch of a view, which is about to be overwritten.
    pub fn hide(&self, view: &View) {
        // The one lock is given back before the other is taken: an end takes them the other way round.
        let old = lock(&view.shown).sealed.take();
        if let Some(old) = old {
            lock(&self.table).seals.remove(&old.seal);
        }
    }

    /// Gives the view, which has `count` indices, room for so many bytes: the memory that it has, if that is enough.
    ///
    /// # Errors
    /// `ENOSPC` if the user may not have so much, or the system has not.
    pub fn room<'w>(&self, view: &View, work: &'w mut Work, bytes: u64, count: u64) -> Result<&'w mut Slab, Errno> {
        let before = work.slab.as_ref().map_or(0, Slab::capacity);
        if work.slab.is_none() || before < bytes {
            // What does not fit goes before what does comes.
            lock(&view.shown).memory = None;
            work.slab = None;
            let indices = count.saturating_mul(8);
            // Batches that differ a little in size are not to outgrow it again and again.
            let roomy = bytes.max(before.saturating_add(before / 8));
            let fitting = || {
                let mut sizes = [roomy, bytes].into_iter().filter_map(Slab::size_for);
                sizes.find(|size| view.account.set(indices.saturating_add(*size)).is_ok())
            };
            let size = fitting().or_else(|| {
                self.end_those_of_ended_processes();
                fitting()
            });
            let Some(size) = size else {
                view.account.set(indices)?;
                return Err(Errno::NOSPC);
            };
            let slab = Slab::new(size).inspect_err(|e| {
                log::warn!("there is no memory for a view of {size} bytes: {e}");
                let _ = view.account.set(indices);
            });
            let slab = slab.map_err(|_| Errno::NOSPC)?;
            let number = self.slabs.fetch_add(1, Ordering::Relaxed) + 1;
            lock(&view.shown).memory = Some(Memory { slab: number, capacity: size, file: slab.file().clone() });
            work.slab = Some(slab);
        }
        work.slab.as_mut().ok_or(Errno::NOSPC)
    }

    /// How many there are, and the bytes that they have.
    pub fn count(&self) -> (u64, u64) {
        self.accounts.total()
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}

impl Table {
    fn remove(&mut self, id: u64) -> Option<Arc<View>> {
        let view = self.views.remove(&id)?;
        if let Some(sealed) = lock(&view.shown).sealed {
            self.seals.remove(&sealed.seal);
        }
        Some(view)
    }
}

impl View {
    /// Has a call work on it.
    ///
    /// # Errors
    /// `ENOENT` if it has ended.
    pub fn work<R>(&self, call: impl FnOnce(&mut Work) -> R) -> Result<R, Errno> {
        let mut work = lock(&self.work);
        let done = if self.has_ended() { Err(Errno::NOENT) } else { Ok(call(&mut work)) };
        drop(work);
        // Whoever ended it meanwhile found us at work, and left that to us.
        if self.has_ended() {
            self.give_back();
        }
        done
    }

    fn has_ended(&self) -> bool {
        lock(&self.shown).ended
    }

    /// No call may find it any more. Those that found it before may have it for a while; what it has does not wait for them.
    fn end(&self) {
        lock(&self.shown).ended = true;
        self.give_back();
    }

    /// Gives back what it has, unless a call is at work on it, which does so when it is done.
    fn give_back(&self) {
        let mut work = match self.work.try_lock() {
            Ok(work) => work,
            Err(TryLockError::Poisoned(work)) => work.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        *work = Work::default();
        lock(&self.shown).memory = None;
        self.account.close();
    }

    /// Where its memory is, if it has any.
    pub fn memory(&self) -> Option<Memory> {
        lock(&self.shown).memory.clone()
    }

    /// For what a call takes while it lasts.
    pub fn loan(&self) -> Loan<'_> {
        self.account.loan()
    }

    /// Charges the user for `more` indices beside those that there are.
    ///
    /// # Errors
    /// `ENOSPC` if that is too much.
    pub fn charge(&self, work: &Work, more: u64) -> Result<(), Errno> {
        let slab = work.slab.as_ref().map_or(0, Slab::capacity);
        let bytes = more.checked_mul(8).and_then(|more| more.checked_add(work.indices_bytes())?.checked_add(slab));
        self.account.set(bytes.ok_or(Errno::NOSPC)?)
    }
}

impl Work {
    fn indices_bytes(&self) -> u64 {
        self.indices.len() as u64 * 8
    }

    /// Makes room for `more` indices, which were charged.
    ///
    /// # Errors
    /// `ENOSPC` if there is no memory.
    pub fn reserve(&mut self, more: usize) -> Result<(), Errno> {
        if self.indices.capacity() - self.indices.len() >= more {
            return Ok(());
        }
        // A little more than is charged, so that many pushes do not copy all that came before them each time.
        let more = more.max(self.indices.len() / 8);
        self.indices.try_reserve_exact(more).map_err(|_| Errno::NOSPC)
    }

    /// Forgets the indices. What many of them took is given back, for it is not charged any more.
    pub fn clear(&mut self) {
        if self.indices.capacity() > KEPT {
            self.indices = Vec::new();
        }
        self.indices.clear();
    }
}

/// A gather that is counted.
#[derive(Debug)]
pub struct AtWork<'v>(&'v AtomicUsize);

impl AtWork<'_> {
    /// Whether there is no other one now.
    pub fn alone(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 1
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
