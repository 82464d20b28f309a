//! Handing the memory of a view to its client: a datagram in, and one with the file out.
//!
//! A socket without connections keeps nothing of its clients, and none of them can make it wait. Whoever knows a view's key,
//! which only its owner's ioctl tells, is given its memory; so this works across user namespaces and for programs that
//! changed their user, as far as the network namespace reaches.

use super::Views;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, bind, recvfrom, sendmsg_addr, socket_with,
};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Weak;

/// A number that nobody can guess.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    let mut done = 0;
    while done < bytes.len() {
        done += getrandom(&mut bytes[done..], GetRandomFlags::empty())?;
    }
    Ok(u64::from_ne_bytes(bytes))
}

/// Opens the socket and serves it on a thread of its own; returns its abstract name.
///
/// # Errors
/// Those of the socket and the thread.
pub fn start(views: Weak<Views>) -> io::Result<String> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let name = format!("zrfs-views-{}-{:016x}", std::process::id(), random()?);
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    std::thread::Builder::new().name("views".into()).spawn(move || serve(&socket, &views))?;
    Ok(name)
}

fn serve(socket: &OwnedFd, views: &Weak<Views>) {
    loop {
        // One byte more than a request has, so that a longer one is known.
        let mut request = [0; zrfs_abi::SOCKET_BYTES + 1];
        let (bytes, from) = match recvfrom(socket, &mut request[..], RecvFlags::empty()) {
            Ok((bytes, _, from)) => (bytes, from),
            Err(e) if e == rustix::io::Errno::INTR => continue,
            Err(e) => {
                log::error!("the socket of views broke down: {e}");
                return;
            }
        };
        let Some(views) = views.upgrade() else { return };
        let Some((view, key)) = parse(&request[..bytes]) else { continue };
        let (Some(from), Some(memory)) = (from, views.memory(view, key)) else { continue };
        let mut answer = [0; zrfs_abi::SOCKET_BYTES];
        answer[..8].copy_from_slice(&memory.slab.to_ne_bytes());
        answer[8..].copy_from_slice(&memory.capacity.to_ne_bytes());
        let files = [memory.file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if control.push(SendAncillaryMessage::ScmRights(&files)) {
            // A client that does not take it asks again, or reads the view's file.
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            if let Err(e) = sendmsg_addr(socket, &from, &[IoSlice::new(&answer)], &mut control, flags) {
                log::debug!("the memory of view {view} was not taken: {e}");
            }
        }
    }
}

fn parse(request: &[u8]) -> Option<(u64, u64)> {
    let request: &[u8; zrfs_abi::SOCKET_BYTES] = request.try_into().ok()?;
    let (view, key) = request.split_first_chunk::<8>()?;
    Some((u64::from_ne_bytes(*view), u64::from_ne_bytes(key.try_into().ok()?)))
}
