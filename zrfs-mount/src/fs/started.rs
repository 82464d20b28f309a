//! Calls whose answer does not come with their end: those that start a gather are answered before it, and those that wait for
//! one when it is done, which another thread does.

use super::Fs;
use super::views::Asked;
use crate::errno::Errno;
use crate::timing::Op;
use crate::views::started::{Answer, Job};
use crate::views::{Caller, View};
use std::sync::Arc;
use std::time::Instant;
use zrfs_abi as abi;

impl Fs {
    /// Whether a call is one of them.
    pub fn answers_apart(command: u32, data: &[u8]) -> bool {
        command == abi::WAIT
            || (Self::gathers(command) && abi::View::decode_front(data).is_some_and(|call| call.flags == abi::START))
    }

    /// Makes such a call, which is given its answer once, by this thread or another. Returns a gather to be done after this.
    pub fn answer_apart(
        self: &Arc<Self>,
        caller: Caller,
        ino: u64,
        command: u32,
        data: &[u8],
        answer: Answer,
    ) -> Option<Job> {
        let (begin, mut job) = (Instant::now(), None);
        // Taken where it is handed on or used.
        let mut unused = Some(answer);
        let made = Self::caught(Op::Ioctl, ino, || {
            job = self.begin_apart(caller, ino, command, data, &mut unused)?;
            Ok(())
        });
        // What is started counts when it is gathered.
        if command == abi::WAIT || made.is_err() {
            self.count(Op::Ioctl, ino, begin.elapsed(), made.as_ref().err());
        }
        if let (Err(e), Some(answer)) = (made, unused) {
            answer(Err(e));
        }
        job
    }

    fn begin_apart(
        self: &Arc<Self>,
        caller: Caller,
        ino: u64,
        command: u32,
        data: &[u8],
        unused: &mut Option<Answer>,
    ) -> Result<Option<Job>, Errno> {
        let (node, asked) = (self.node(ino)?, Asked::new(command, data)?);
        let mut with_answer = |call: &mut dyn FnMut(Answer) -> Result<Option<Job>, (Errno, Answer)>| {
            let Some(answer) = unused.take() else { return Ok(None) };
            call(answer).map_err(|(e, answer)| {
                *unused = Some(answer);
                e
            })
        };
        if command == abi::WAIT {
            let view = self.views.find(asked.view, caller)?;
            return with_answer(&mut |answer| view.wait(answer).map(|()| None));
        }
        // The number of a new view would never be told, and what waits for itself never ends.
        if asked.wait != 0 && (asked.view == 0 || asked.view == asked.wait) {
            return Err(Errno::INVAL);
        }
        let streams = if asked.begins { Some(self.chosen(node, asked.stream)?) } else { None };
        let (view, _) = self.view_for(&asked, caller)?;
        let before = match asked.wait {
            0 => None,
            id => Some(self.views.find(id, caller).inspect_err(|_| drop(view.busy(true)))?),
        };
        let begun = abi::View { view: view.id, key: view.key, ..abi::View::default() };
        with_answer(&mut |answer| {
            let job = self.job(view.clone(), ino, command, streams.clone(), &asked);
            self.views.start(&view, job, before.as_deref(), begun.encode().to_vec(), answer)
        })
    }

    /// The gather that a call starts.
    fn job(
        self: &Arc<Self>,
        view: Arc<View>,
        ino: u64,
        command: u32,
        streams: Option<Vec<u16>>,
        asked: &Asked<'_>,
    ) -> Job {
        let (fs, rest, count) = (self.clone(), asked.rest.to_vec(), asked.count);
        Job::new(move || {
            let made = fs.guarded(Op::Ioctl, ino, || {
                // It may have been closed while others were gathered before it.
                let made = view.work(|work| fs.on_view(&view, work, command, streams, &rest, count))?;
                made.map(|view| view.encode().to_vec()).map_err(|e| fs.fail(ino, None, e))
            });
            view.gathered(made)
        })
    }
}
