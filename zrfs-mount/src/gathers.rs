//! Which threads gather, so that others are served meanwhile.
//!
//! Gathers may take long. The threads that serve do them, but for the last one that is free, which gives its gather to a thread
//! that does nothing else. Gathers that were started one behind the other stay on one thread as long as nobody waits for that one;
//! then they go behind who waits, one by one: an endless row of them holds nobody up for longer than one takes.

use crate::views::started::Job;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};

/// A gather that waits for the thread that does nothing else.
type Waiting = Box<dyn FnOnce() + Send>;

/// The places where a thread may gather.
#[derive(Debug)]
pub struct Gathers {
    free: Arc<AtomicUsize>,
    waiting: Arc<AtomicUsize>,
    later: OnceLock<Option<Sender<Waiting>>>,
}

/// One of the places of threads that serve.
#[derive(Debug)]
pub struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Gathers {
    /// For so many threads that serve.
    pub fn new(threads: usize) -> Gathers {
        let free = Arc::new(AtomicUsize::new(threads.saturating_sub(1)));
        Gathers { free, waiting: Arc::default(), later: OnceLock::new() }
    }

    /// A place for the calling thread, which serves; `None` if it is the last one.
    pub fn enter(&self) -> Option<Slot> {
        let taken = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1));
        taken.is_ok().then(|| Slot(self.free.clone()))
    }

    /// Has a gather done by the thread that does nothing else, behind those that wait for it.
    pub fn later(&self, job: Waiting) {
        let start = || {
            let (sender, jobs) = channel::<Waiting>();
            let waiting = self.waiting.clone();
            let work = move || {
                for job in jobs {
                    waiting.fetch_sub(1, Ordering::Relaxed);
                    job();
                }
            };
            std::thread::Builder::new().name("gather".into()).spawn(work).ok().map(|_| sender)
        };
        match self.later.get_or_init(start) {
            // It never ends, so this never fails; the reply that is dropped otherwise is an error.
            Some(sender) => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                drop(sender.send(job));
            }
            None => job(),
        }
    }

    /// Does a gather that was started, and those behind it.
    pub fn run(self: &Arc<Self>, job: Job) {
        let rest = match self.enter() {
            Some(_slot) => self.run_until_others_wait(job),
            None => Some(job),
        };
        if let Some(job) = rest {
            self.put_off(job);
        }
    }

    /// Returns the one behind them once somebody waits.
    fn run_until_others_wait(&self, job: Job) -> Option<Job> {
        let mut next = job.run();
        while self.waiting.load(Ordering::Relaxed) == 0 {
            next = next?.run();
        }
        next
    }

    fn put_off(self: &Arc<Self>, job: Job) {
        let gathers = self.clone();
        let work = move || {
            if let Some(job) = gathers.run_until_others_wait(job) {
                gathers.put_off(job);
            }
        };
        self.later(Box::new(work));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    /// A gather with another one behind it, until it is the end.
    fn endless(end: Arc<AtomicBool>) -> Job {
        Job::new(move || {
            std::thread::sleep(Duration::from_millis(1));
            (!end.load(Ordering::Relaxed)).then(|| endless(end))
        })
    }

    #[test]
    fn who_has_an_endless_row_of_gathers_holds_nobody_up() {
        for threads in 1..3 {
            let gathers = Arc::new(Gathers::new(threads));
            let end = Arc::new(AtomicBool::new(false));
            let row = || {
                let (gathers, job) = (gathers.clone(), endless(end.clone()));
                std::thread::spawn(move || gathers.run(job))
            };
            // More than there are threads, so that some of them wait for the one that does nothing else.
            let rows: Vec<_> = (0..3).map(|_| row()).collect();
            for _ in 0..20 {
                let (done, is_done) = channel();
                gathers.later(Box::new(move || done.send(()).unwrap()));
                is_done.recv_timeout(Duration::from_secs(10)).expect("it has its turn");
            }
            // None keeps a thread that serves, once others wait.
            rows.into_iter().for_each(|row| row.join().unwrap());
            assert_eq!(gathers.enter().is_some(), threads > 1);
            end.store(true, Ordering::Relaxed);
        }
    }
}
