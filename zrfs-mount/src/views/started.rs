//! Batches that are gathered after the call for them was answered.
//!
//! A view has one at most. While it is gathered one call may wait for it, and the gather of another view may be put behind it,
//! for the same thread: so one client's batches are gathered one after the other, each on all cores, without a pause between.
//! What is put behind another was begun after it, so nothing ever waits for itself.

use super::{View, lock};
use crate::errno::Errno;

/// Gives a call its answer.
pub type Answer = Box<dyn FnOnce(Result<Vec<u8>, Errno>) + Send>;

/// A gather that was started, and is still to be done.
pub struct Job(Box<dyn FnOnce() -> Option<Job> + Send>);

impl Job {
    /// What returns the gather that is put behind it.
    pub fn new(gather: impl FnOnce() -> Option<Job> + Send + 'static) -> Job {
        Job(Box::new(gather))
    }

    /// Does it, and those behind it.
    pub fn run(self) {
        let mut next = Some(self);
        while let Some(Job(gather)) = next {
            next = gather();
        }
    }
}

/// What became of the batch of a view that was started.
#[derive(Default)]
pub(super) enum Started {
    /// There is none.
    #[default]
    Nothing,
    /// It is not there yet: who waits for it, and what is put behind it.
    Gathering(Option<Answer>, Option<Job>),
    /// What whoever waits for it is told.
    Ended(Result<Vec<u8>, Errno>),
}

impl std::fmt::Debug for Started {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Started::Nothing => "Nothing",
            Started::Gathering(..) => "Gathering",
            Started::Ended(_) => "Ended",
        })
    }
}

impl View {
    /// Begins to gather, or forgets what was gathered before.
    ///
    /// # Errors
    /// `EBUSY` if it is being gathered.
    fn turn(&self, to: Started) -> Result<(), Errno> {
        let mut started = lock(&self.started);
        if matches!(*started, Started::Gathering(..)) {
            return Err(Errno::BUSY);
        }
        *started = to;
        Ok(())
    }

    /// Nobody else may work on the view until [`gathered`](View::gathered).
    ///
    /// # Errors
    /// `EBUSY` if a batch is being gathered.
    pub fn start(&self) -> Result<(), Errno> {
        self.turn(Started::Gathering(None, None))
    }

    /// Takes back a [`start`](View::start) that nobody heard of.
    pub fn unstart(&self) {
        *lock(&self.started) = Started::Nothing;
    }

    /// Forgets the batch that was started: another one is begun, by a call that gathers before it is answered.
    ///
    /// # Errors
    /// `EBUSY` if it is being gathered.
    pub fn forget_started(&self) -> Result<(), Errno> {
        self.turn(Started::Nothing)
    }

    /// Answers as soon as the batch that was started is there, and returns `job`, unless that is put behind it.
    ///
    /// # Errors
    /// `EINVAL` if none was started, `EBUSY` if another call waits for it; with the answer that was not given.
    pub fn wait(&self, answer: Answer, job: Option<Job>) -> Result<Option<Job>, (Errno, Answer)> {
        let mut started = lock(&self.started);
        let result = match &mut *started {
            Started::Nothing => return Err((Errno::INVAL, answer)),
            Started::Gathering(Some(_), _) => return Err((Errno::BUSY, answer)),
            Started::Gathering(waiting, behind) => {
                *waiting = Some(answer);
                *behind = job;
                return Ok(None);
            }
            Started::Ended(result) => result.clone(),
        };
        drop(started);
        answer(result);
        Ok(job)
    }

    /// The batch is there, or can't be: tells who waits for it, and returns what is put behind it.
    pub fn gathered(&self, result: Result<Vec<u8>, Errno>) -> Option<Job> {
        let before = std::mem::replace(&mut *lock(&self.started), Started::Ended(result.clone()));
        let Started::Gathering(answer, behind) = before else { return None };
        if let Some(answer) = answer {
            answer(result);
        }
        behind
    }
}
