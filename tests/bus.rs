//! SIGBUS of a mapping that is none of ours, once batches were read through maps: it goes where it went before.

#[path = "common/forked.rs"]
mod forked;

use forked::{fork, wait};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use zrfs::format::Codec;
use zrfs::{Store, WriterOptions};

/// How a child ends whose own handler was reached.
const REACHED: i32 = 77;

extern "C" fn reached(_: libc::c_int) {
    // SAFETY: ends the process, which a handler may do.
    unsafe { libc::_exit(REACHED) }
}

fn handler() -> usize {
    // SAFETY: the call only fills the structure.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut now), 0);
        now.sa_sigaction
    }
}

fn handle_by(handler: usize) {
    // SAFETY: the structure is whole; the handler is a function of this kind, or the default.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = handler;
        assert_eq!(libc::sigaction(libc::SIGBUS, &new, std::ptr::null_mut()), 0);
    }
}

/// A process that the signal ends leaves no file behind.
fn no_core() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is whole.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) }, 0);
}

/// Reads batches through maps, which installs our handler in place of `before`.
fn gather(path: &Path, before: usize) -> Store {
    let store = Store::open(path).unwrap();
    let indices: Vec<u64> = (0..store.len()).collect();
    // The first finds out that the records are in the page cache.
    for _ in 0..3 {
        assert_eq!(store.gather_packed(&indices).unwrap().0.len(), 100 * indices.len());
    }
    assert_ne!(handler(), before, "no batch was read through a map");
    store
}

/// Reads a mapping of a file that was cut short.
fn read_beyond_the_end(file: &File) {
    // SAFETY: the mapping is this function's own, and stays; reading it is to raise the signal.
    unsafe {
        let (prot, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        let start = libc::mmap(std::ptr::null_mut(), 8192, prot, flags, file.as_raw_fd(), 0);
        assert_ne!(start, libc::MAP_FAILED);
        file.set_len(0).unwrap();
        start.cast::<u8>().add(4096).read_volatile();
    }
}

/// How a child ends in which a thread that never gathers does `raise`, after another gathered.
fn ends(path: &Path, before: usize, raise: impl FnOnce(&File) + Send) -> i32 {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[1; 8192]).unwrap();
    wait(fork(|| {
        no_core();
        handle_by(before);
        let store = gather(path, before);
        std::thread::scope(|scope| scope.spawn(|| raise(&file)).join()).unwrap();
        drop(store);
        true
    }))
}

#[test]
fn what_is_not_ours_goes_where_it_went_before() {
    // On a disk: what is in tmpfs is not read through maps.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("store");
    let mut writer = WriterOptions::new(Codec::Raw).create(&path).unwrap();
    writer.append(&vec![&[7; 100][..]; 1000]).unwrap();
    writer.close().unwrap();

    let sent = |_: &File| {
        // SAFETY: to the calling thread.
        unsafe { libc::raise(libc::SIGBUS) };
    };
    for raise in [read_beyond_the_end, sent] {
        let status = ends(&path, libc::SIG_DFL, raise);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS, "{status:#x}");
        let status = ends(&path, reached as *const () as usize, raise);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == REACHED, "{status:#x}");
    }
    // What was sent is ignored where it was, and what a read raises is not.
    assert_eq!(ends(&path, libc::SIG_IGN, sent), 0);
    let status = ends(&path, libc::SIG_IGN, read_beyond_the_end);
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS, "{status:#x}");
}
