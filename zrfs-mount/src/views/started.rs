//! Batches that are gathered after the call for them was answered.
//!
//! A view has one at most. While it is gathered one call may wait for it, and the gather of another view may be put behind it,
//! to be done next by the same thread. A gather that is put behind another begins with that, in one step for both views, so
//! that none is ever behind itself.

use super::{View, Views, lock};
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

    /// Does it; returns the one behind it.
    pub fn run(self) -> Option<Job> {
        self.0()
    }
}

/// What calls do with a view, and what became of its batch that was started.
#[derive(Default)]
pub(super) enum Started {
    /// Nothing was started.
    #[default]
    Nothing,
    /// A call works on the view, and is answered afterwards.
    Busy,
    /// The batch is not there yet: who waits for it, and what is put behind it.
    Gathering(Option<Answer>, Option<Job>),
    /// What whoever waits for it is told.
    Ended(Result<Vec<u8>, Errno>),
}

impl Started {
    fn is_idle(&self) -> bool {
        matches!(self, Started::Nothing | Started::Ended(_))
    }
}

impl std::fmt::Debug for Started {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Started::Nothing => "Nothing",
            Started::Busy => "Busy",
            Started::Gathering(..) => "Gathering",
            Started::Ended(_) => "Ended",
        })
    }
}

/// A view that a call works on, as long as this lives.
#[derive(Debug)]
pub struct Busy<'v> {
    view: &'v View,
    /// What it is afterwards.
    then: Started,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        *lock(&self.view.started) = std::mem::take(&mut self.then);
    }
}

/// What the answer of a call is about.
enum Told {
    /// Another thread gives it.
    Later,
    Now(Answer, Result<Vec<u8>, Errno>),
}

impl Told {
    /// Gives it, without any lock held.
    fn tell(self) {
        if let Told::Now(answer, result) = self {
            answer(result);
        }
    }
}

impl View {
    /// For a call that works on the view before it is answered; one that begins a batch forgets the one that was started.
    ///
    /// # Errors
    /// `EBUSY` if another call does, or the batch is being gathered.
    pub fn busy(&self, begins: bool) -> Result<Busy<'_>, Errno> {
        let mut started = lock(&self.started);
        if !started.is_idle() {
            return Err(Errno::BUSY);
        }
        let before = std::mem::replace(&mut *started, Started::Busy);
        Ok(Busy { view: self, then: if begins { Started::Nothing } else { before } })
    }

    /// Answers as soon as the batch that was started is there.
    ///
    /// # Errors
    /// `EINVAL` if none was started, `EBUSY` if another call waits for it or works on the view; with the answer that was not
    /// given.
    pub fn wait(&self, answer: Answer) -> Result<(), (Errno, Answer)> {
        let (told, _) = self.wait_with(answer, || None)?;
        told.tell();
        Ok(())
    }

    /// The same with a gather, which is put behind the batch, or returned if that is there.
    fn wait_with(
        &self,
        answer: Answer,
        job: impl FnOnce() -> Option<Job>,
    ) -> Result<(Told, Option<Job>), (Errno, Answer)> {
        match &mut *lock(&self.started) {
            Started::Nothing => Err((Errno::INVAL, answer)),
            Started::Busy | Started::Gathering(Some(_), _) => Err((Errno::BUSY, answer)),
            Started::Gathering(waiting, behind) => {
                *waiting = Some(answer);
                *behind = job();
                Ok((Told::Later, None))
            }
            Started::Ended(result) => Ok((Told::Now(answer, result.clone()), job())),
        }
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

impl Views {
    /// Starts a gather of `view`, which is `job`: answers with `begun`, or as [`View::wait`] for another view, `before`. Returns
    /// the gather if it is to be done now.
    ///
    /// # Errors
    /// `EBUSY` if a call works on the view or its batch is being gathered; those of that. Nothing was started then, with the
    /// answer that was not given.
    pub fn start(
        &self,
        view: &View,
        job: Job,
        before: Option<&View>,
        begun: Vec<u8>,
        answer: Answer,
    ) -> Result<Option<Job>, (Errno, Answer)> {
        // Who holds the locks of two views holds this one, and all others hold one at most.
        let both = lock(&self.starting);
        let mut started = lock(&view.started);
        if !started.is_idle() {
            return Err((Errno::BUSY, answer));
        }
        // Also if it is refused: the one that was started before is not what is waited for any more.
        *started = Started::Nothing;
        let (told, job) = match before {
            None => (Told::Now(answer, Ok(begun)), Some(job)),
            Some(before) => before.wait_with(answer, || Some(job))?,
        };
        *started = Started::Gathering(None, None);
        drop((started, both));
        told.tell();
        Ok(job)
    }
}
