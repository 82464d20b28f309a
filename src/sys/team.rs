//! Threads that help a caller with its work.
//!
//! Whoever has work does it himself and asks others to do the same until nothing is left of it; those who have not begun
//! by then are not waited for. So nobody ever waits for a thread that is not at work: work within work ends, and a late
//! thread costs nothing. An idle thread sleeps: one that looks for work by yielding its processor again and again makes it look busy,
//! and the system then puts others behind it that could run there.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The last of a batch takes a helper about so long; within that a caller looks for the end, for to sleep and to be
/// woken takes as long.
const NEARLY_DONE: Duration = Duration::from_micros(100);

/// Threads that help, until the process ends.
#[derive(Debug)]
pub(crate) struct Team {
    shared: Arc<Shared>,
    members: usize,
}

#[derive(Debug, Default)]
struct Shared {
    /// A job stands here once for each thread that is asked.
    jobs: Mutex<VecDeque<Arc<Job>>>,
    some: Condvar,
}

/// Work that is shared out.
struct Job {
    work: Work,
    help: Mutex<Help>,
    /// How many threads are at work, to be looked at without the lock.
    at_work: AtomicUsize,
    ended: Condvar,
}

/// Who helps.
#[derive(Default)]
struct Help {
    /// No one may begin any more.
    over: bool,
    at_work: usize,
    panic: Option<Box<dyn Any + Send>>,
}

/// The caller's closure, without its lifetime.
struct Work(*const (dyn Fn() + Sync));

// SAFETY: it points to what is `Sync`, and is only followed while the caller waits (see `Team::with`).
unsafe impl Send for Work {}
// SAFETY: as above.
unsafe impl Sync for Work {}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("at_work", &self.at_work).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Team {
    /// Starts up to so many threads; fewer where the system gives no more.
    pub(crate) fn start(wanted: usize) -> Team {
        let shared = Arc::<Shared>::default();
        let start = |n: &usize| {
            let shared = shared.clone();
            let serve = move || {
                loop {
                    shared.next().help();
                }
            };
            let started = std::thread::Builder::new().name(format!("zrfs-{n}")).spawn(serve);
            started.inspect_err(|e| log::warn!("working on {n} threads beside the callers': {e}")).is_ok()
        };
        let members = (0..wanted).take_while(start).count();
        Team { shared, members }
    }

    /// How many threads help.
    pub(crate) fn members(&self) -> usize {
        self.members
    }

    /// Runs `here` while up to `helpers` threads each run `work`; returns when all that began have ended.
    ///
    /// # Panics
    /// With the panic of `here`, or of a `work`.
    pub(crate) fn with<R>(&self, helpers: usize, work: &(dyn Fn() + Sync), here: impl FnOnce() -> R) -> R {
        // SAFETY: only the lifetime is taken off. The work is run by `Job::help` alone, which counts itself as at work
        // before, unless the job is over; and `End` makes it over and waits until nobody is at work, before this function is
        // left in any way. Whoever finds the job later finds it over.
        let work = unsafe { std::mem::transmute::<*const (dyn Fn() + Sync + '_), *const (dyn Fn() + Sync)>(work) };
        let job = Arc::new(Job {
            work: Work(work),
            help: Mutex::default(),
            at_work: AtomicUsize::new(0),
            ended: Condvar::new(),
        });
        let end = End(&job);
        self.shared.ask(&job, helpers.min(self.members));
        let done = here();
        drop(end);
        if let Some(panic) = lock(&job.help).panic.take() {
            resume_unwind(panic);
        }
        done
    }
}

impl Shared {
    fn ask(&self, job: &Arc<Job>, helpers: usize) {
        lock(&self.jobs).extend(std::iter::repeat_n(job, helpers).cloned());
        (0..helpers).for_each(|_| self.some.notify_one());
    }

    /// The next job, when there is one.
    fn next(&self) -> Arc<Job> {
        let mut jobs = lock(&self.jobs);
        loop {
            match jobs.pop_front() {
                Some(job) => return job,
                None => jobs = self.some.wait(jobs).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Job {
    /// Does the work, unless it is over.
    fn help(&self) {
        let mut help = lock(&self.help);
        if help.over {
            return;
        }
        help.at_work += 1;
        self.at_work.store(help.at_work, Ordering::Release);
        drop(help);
        // SAFETY: whoever made the job waits for this thread, which is at work on it (see `Team::with`).
        let done = catch_unwind(AssertUnwindSafe(|| unsafe { (*self.work.0)() }));
        let mut help = lock(&self.help);
        help.at_work -= 1;
        self.at_work.store(help.at_work, Ordering::Release);
        if let Err(panic) = done {
            help.panic.get_or_insert(panic);
        }
        if help.over && help.at_work == 0 {
            self.ended.notify_one();
        }
    }
}

/// Makes a job over, and waits until nobody is at work on it.
struct End<'j>(&'j Job);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let Job { help, at_work, ended, .. } = self.0;
        let mut now = lock(help);
        now.over = true;
        if now.at_work > 0 {
            drop(now);
            let begin = Instant::now();
            while at_work.load(Ordering::Acquire) > 0 && begin.elapsed() < NEARLY_DONE {
                std::hint::spin_loop();
            }
            now = lock(help);
        }
        while now.at_work > 0 {
            now = ended.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn all_help_and_nobody_is_left_when_it_returns() {
        let team = Team::start(3);
        assert_eq!(team.members(), 3);
        for round in 0..2000 {
            let (left, inside, most) = (AtomicUsize::new(40), AtomicUsize::new(0), AtomicUsize::new(0));
            let take = || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
            let work = || {
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                while take() {}
                inside.fetch_sub(1, Ordering::SeqCst);
            };
            assert_eq!(
                team.with(round % 5, &work, || {
                    work();
                    round
                }),
                round
            );
            assert_eq!((left.into_inner(), inside.into_inner()), (0, 0));
            assert!(most.into_inner() <= 1 + round % 5);
        }
    }

    #[test]
    fn who_has_not_begun_is_not_waited_for() {
        let team = Team::start(1);
        let (begun, free) = (AtomicBool::new(false), AtomicBool::new(false));
        let slow = || {
            begun.store(true, Ordering::SeqCst);
            while !free.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        };
        team.with(1, &slow, || {
            while !begun.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            // The one helper is busy until this is over.
            assert_eq!(team.with(1, &|| unreachable!("it has begun something else"), || 5), 5);
            free.store(true, Ordering::SeqCst);
        });
        // And finds nothing that is still to do.
        assert_eq!(team.with(1, &|| {}, || 6), 6);
    }

    #[test]
    fn panics_are_passed_on_and_end_nothing() {
        let team = Team::start(2);
        let begun = AtomicBool::new(false);
        let work = || {
            begun.store(true, Ordering::SeqCst);
            panic!("a bug")
        };
        let here = || {
            while !begun.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        };
        let message = |done: std::thread::Result<()>| done.unwrap_err().downcast_ref::<&str>().map(ToString::to_string);
        let helper = catch_unwind(AssertUnwindSafe(|| team.with(2, &work, here)));
        assert_eq!(message(helper).as_deref(), Some("a bug"));
        let caller = catch_unwind(AssertUnwindSafe(|| team.with(2, &|| {}, || panic!("the caller's"))));
        assert_eq!(message(caller).as_deref(), Some("the caller's"));
        assert_eq!(team.with(2, &|| {}, || 7), 7);
    }
}
