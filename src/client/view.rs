//! The views of a client: used again and again, each lent to one batch at a time.

use super::sys::{FuseFile, map};
use crate::buffer::Lender;
use crate::fork::Maker;
use crate::sys::Descriptor;
use memmap2::MmapMut;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, bind, connect, recvmsg, send, socket_with, sockopt,
};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use zrfs_abi as abi;

/// A server that does not hand over memory within this time is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A view that the server knows, and its memory here.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Its number; 0 until the server gave one.
    pub(super) view: u64,
    /// The process that asked for it. A fork of it must not gather into memory that its parent reads.
    maker: Maker,
    slab: u64,
    capacity: u64,
    file: Option<Descriptor>,
    /// A mapping of all of it for each part of a batch, so that parts can be changed and dropped on their own.
    maps: Vec<Option<MmapMut>>,
}

impl Slot {
    /// One that the server does not know yet.
    pub(super) fn new() -> Slot {
        Slot { maker: Maker::here(), ..Slot::default() }
    }

    /// Whether this process asked for it.
    pub(super) fn is_ours(&self) -> bool {
        self.maker.is_here()
    }

    /// Fetches the memory that the server has for the view now, if that is not here yet.
    pub(super) fn follow(&mut self, sealed: &abi::View, socket: &[u8]) -> io::Result<()> {
        if self.file.is_some() && self.slab == sealed.slab {
            return Ok(());
        }
        self.maps.clear();
        self.file = None;
        let (slab, capacity, file) = fetch(sealed, socket)?;
        let file = Descriptor::received(file)?;
        if (slab, capacity) != (sealed.slab, sealed.capacity) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        (self.slab, self.capacity, self.file) = (slab, capacity, Some(file));
        Ok(())
    }

    /// The mapping for part `k`, to be given back.
    pub(super) fn take(&mut self, k: usize) -> io::Result<MmapMut> {
        if self.maps.len() <= k {
            self.maps.resize_with(k + 1, || None);
        }
        match (self.maps.get_mut(k).and_then(Option::take), &self.file) {
            (Some(map), _) => Ok(map),
            (None, Some(file)) => map(file.file()?, self.capacity),
            (None, None) => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Puts it back.
    pub(super) fn put(&mut self, k: usize, map: MmapMut) {
        if let Some(place) = self.maps.get_mut(k) {
            *place = Some(map);
        }
    }
}

/// Asks the socket for a view's memory: its number, its bytes, and the file.
fn fetch(sealed: &abi::View, name: &[u8]) -> io::Result<(u64, u64, File)> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // A name of the kernel's choice, to be answered at; and only the server's answer is heard.
    bind(&socket, &SocketAddrUnix::new_unnamed())?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
    let mut request = [0; abi::SOCKET_BYTES];
    request[..8].copy_from_slice(&sealed.view.to_ne_bytes());
    request[8..].copy_from_slice(&sealed.key.to_ne_bytes());
    send(&socket, &request, SendFlags::NOSIGNAL)?;
    let mut answer = [0; abi::SOCKET_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(&socket, &mut [IoSliceMut::new(&mut answer)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let (slab, capacity) = answer.split_at(8);
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).ok();
    match (files.next(), number(slab), number(capacity)) {
        (Some(file), Some(slab), Some(capacity)) if got.bytes == answer.len() => Ok((slab, capacity, file.into())),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The views that no batch has.
#[derive(Debug)]
pub(super) struct Idle {
    file: Arc<FuseFile>,
    slots: Mutex<Vec<Slot>>,
    keep: usize,
    maker: Maker,
    /// Those that batches have.
    lent: AtomicUsize,
}

impl Idle {
    pub(super) fn new(file: Arc<FuseFile>, keep: usize) -> Idle {
        Idle { file, slots: Mutex::default(), keep, maker: Maker::here(), lent: AtomicUsize::new(0) }
    }

    /// How many views there are.
    pub(super) fn count(&self) -> usize {
        let idle = if self.maker.is_here() { self.lock().len() } else { 0 };
        idle + self.lent.load(Ordering::Relaxed)
    }

    /// Not to be called in a fork, where the lock may be held for ever.
    fn lock(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that was used last, or a new one.
    pub(super) fn take(&self) -> Slot {
        let kept = if self.maker.is_here() { self.lock().pop() } else { None };
        kept.unwrap_or_else(Slot::new)
    }

    /// Puts one back that no batch has any more.
    pub(super) fn put(&self, slot: Slot) {
        if slot.view == 0 || !slot.is_ours() {
            return;
        }
        let full = !self.maker.is_here() || {
            let slots = self.lock();
            slots.len() >= self.keep
        };
        if full { self.close(&slot) } else { self.lock().push(slot) }
    }

    /// Ends one that is of no use any more: a batch may still be gathered into it.
    pub(super) fn end(&self, slot: &Slot) {
        if slot.view != 0 && slot.is_ours() {
            self.close(slot);
        }
    }

    fn close(&self, slot: &Slot) {
        let call = abi::View { view: slot.view, ..abi::View::default() };
        // One that is gone already is as well.
        let _ = self.file.ioctl(abi::CLOSE, &mut call.encode());
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        if !self.maker.is_here() {
            return;
        }
        let slots = std::mem::take(self.slots.get_mut().unwrap_or_else(PoisonError::into_inner));
        slots.iter().for_each(|slot| self.close(slot));
    }
}

/// A view that a batch has; when all parts of the batch are dropped it is free for the next.
#[derive(Debug)]
pub(super) struct Lease {
    idle: Arc<Idle>,
    slot: Mutex<Slot>,
}

impl Lease {
    pub(super) fn new(idle: Arc<Idle>, slot: Slot) -> Arc<Lease> {
        idle.lent.fetch_add(1, Ordering::Relaxed);
        Arc::new(Lease { idle, slot: Mutex::new(slot) })
    }

    /// The mapping for part `k`, and what it goes back to.
    pub(super) fn take(self: &Arc<Self>, k: usize) -> io::Result<(MmapMut, Box<dyn Lender>)> {
        let map = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take(k)?;
        Ok((map, Box::new(Lent { lease: self.clone(), k })))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.idle.lent.fetch_sub(1, Ordering::Relaxed);
        self.idle.put(std::mem::take(self.slot.get_mut().unwrap_or_else(PoisonError::into_inner)));
    }
}

/// One part's share of a lease.
#[derive(Debug)]
struct Lent {
    lease: Arc<Lease>,
    k: usize,
}

impl Lender for Lent {
    fn give_back(&mut self, memory: MmapMut) {
        // In a fork it may be taken for good; there the mapping goes, and the view is its parent's.
        if let Some(mut slot) = self.lease.idle.maker.lock(&self.lease.slot) {
            slot.put(self.k, memory);
        }
    }
}
