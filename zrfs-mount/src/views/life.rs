//! The processes that have views, and the end of those.
//!
//! FUSE says which thread asks. Its process is opened as a pidfd, which tells of its end and is never another process's. The
//! asking thread waits for our answer meanwhile, so its process is there, and is the right one.

use super::Views;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How often views are looked for that nobody has used for too long.
const LOOK: Timespec = Timespec { tv_sec: 15, tv_nsec: 0 };

/// A process that has views; it is watched as long as this value lives.
#[derive(Debug)]
pub struct Process {
    /// Never that of another.
    pub number: u64,
    pidfd: OwnedFd,
}

impl Process {
    /// Whether it has ended, though nobody may have been told yet.
    fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
    }
}

/// The watch over processes.
#[derive(Debug)]
pub struct Life {
    epoll: Arc<OwnedFd>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    processes: HashMap<u32, Weak<Process>>,
    next: u64,
}

impl Life {
    /// Begins to watch, on a thread of its own, which tells `views` of every end.
    ///
    /// # Errors
    /// Those of epoll and the thread.
    pub fn start(views: Weak<Views>) -> io::Result<Life> {
        let life = Life::new()?;
        let epoll = life.epoll.clone();
        std::thread::Builder::new().name("lives".into()).spawn(move || watch(&epoll, &views))?;
        Ok(life)
    }

    /// Without the thread that watches.
    fn new() -> io::Result<Life> {
        Ok(Life { epoll: Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?), known: Mutex::default() })
    }

    /// The processes that have ended and still have views.
    pub fn ended(&self) -> Vec<u64> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let with_views = known.processes.values().filter_map(Weak::upgrade);
        with_views.filter(|process| process.has_ended()).map(|process| process.number).collect()
    }

    /// The process of the thread `tid`; `None` where it can't be found out, as for those of another pid namespace.
    pub fn process(&self, tid: u32) -> Option<Arc<Process>> {
        let pid = process_of(tid)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = known.processes.get(&pid).and_then(Weak::upgrade)
            && !process.has_ended()
        {
            return Some(process);
        }
        let pidfd = pidfd_open(Pid::from_raw(pid.try_into().ok()?)?, PidfdFlags::empty()).ok()?;
        let number = known.next;
        known.next += 1;
        let (data, once) = (epoll::EventData::new_u64(number), epoll::EventFlags::IN | epoll::EventFlags::ONESHOT);
        epoll::add(&*self.epoll, &pidfd, data, once).ok()?;
        let process = Arc::new(Process { number, pidfd });
        known.processes.retain(|_, process| process.strong_count() > 0);
        known.processes.insert(pid, Arc::downgrade(&process));
        Some(process)
    }
}

/// The process that a thread is one of.
fn process_of(tid: u32) -> Option<u32> {
    if tid == 0 {
        return None;
    }
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn watch(epoll: &OwnedFd, views: &Weak<Views>) {
    let mut events = Vec::with_capacity(64);
    loop {
        events.clear();
        let waited = epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), Some(&LOOK));
        let Some(views) = views.upgrade() else { return };
        match waited {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => {
                log::error!("the watch over processes that have views broke down: {e}");
                return;
            }
        }
        for event in &events {
            let number = event.data;
            views.process_ended(number.u64());
        }
        views.end_idle(IDLE);
    }
}

/// A view whose process is not known ends when it was not used for so long.
pub const IDLE: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::super::{Caller, Limits, View};
    use super::*;
    use crate::errno::Errno;

    /// Whoever saw a process end counts on what it had, also while the thread that watches has not come to it.
    #[test]
    fn the_views_of_who_has_ended_are_in_nobodys_way() {
        let views = Views::new(Limits { memory: 1 << 20, views: 2 });
        assert!(views.life.set(Some(Life::new().unwrap())).is_ok());
        let start = || std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let end = |mut child: std::process::Child| {
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success());
        };
        let begin = |pid| views.begin(Caller { uid: 1000, pid });
        let room = |view: &View| {
            let mut work = view.work.lock().unwrap();
            views.room(view, &mut work, 700_000, 0).map(|slab| slab.capacity() >= 700_000)
        };
        let ours = begin(std::process::id()).unwrap();
        let child = start();
        let theirs = begin(child.id()).unwrap();
        assert_eq!((room(&theirs), room(&ours)), (Ok(true), Err(Errno::NOSPC)));
        end(child);
        assert_eq!((room(&ours), views.count().0), (Ok(true), 1));
        let child = start();
        begin(child.id()).unwrap();
        assert_eq!(begin(std::process::id()).unwrap_err(), Errno::MFILE, "it is there");
        end(child);
        assert!(begin(std::process::id()).is_ok() && views.count().0 == 2);
        assert_eq!(begin(std::process::id()).unwrap_err(), Errno::MFILE);
    }
}
