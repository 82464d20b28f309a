//! Calls whose answer does not come with their end: those that start a gather are answered before it, and those that wait for
//! one when it is done, which another thread does.

use super::Fs;
use super::views::Asked;
use crate::errno::Errno;
use crate::timing::Op;
use crate::views::started::{Answer, Job};
use crate::views::{Caller, View};
use std::sync::Arc;
use zrfs_abi as abi;

impl Fs {
    /// Whether a call is one of them.
    pub fn answers_apart(command: u32, data: &[u8]) -> bool {
        command == abi::WAIT
            || (Self::gathers(command) && abi::View::decode_front(data).is_some_and(|call| call.flags == abi::START))
    }

    /// Makes such a call, which is given its answer once, by this thread or another. Returns a gather to be run after this.
    pub fn answer_apart(
        self: &Arc<Self>,
        caller: Caller,
        ino: u64,
        command: u32,
        data: &[u8],
        answer: Answer,
    ) -> Option<Job> {
        let mut job = None;
        // Taken where it is handed on or used.
        let mut unused = Some(answer);
        let refused = self.guarded(Op::Ioctl, ino, || {
            job = self.begin_apart(caller, ino, command, data, &mut unused)?;
            Ok(())
        });
        if let (Err(e), Some(answer)) = (refused, unused) {
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
        let mut wait_for = |view: &View, job| {
            let Some(answer) = unused.take() else { return Ok(job) };
            view.wait(answer, job).map_err(|(e, answer)| {
                *unused = Some(answer);
                e
            })
        };
        if command == abi::WAIT {
            return wait_for(&*self.views.find(asked.view, caller)?, None);
        }
        let before = match asked.wait {
            0 => None,
            // The number of a new view would never be told, and what waits for itself never ends.
            id if asked.view == 0 || asked.view == id => return Err(Errno::INVAL),
            id => Some(self.views.find(id, caller)?),
        };
        let streams = if asked.begins { Some(self.chosen(node, asked.stream)?) } else { None };
        let (view, _) = self.view_for(&asked, caller)?;
        view.start()?;
        let job = self.job(view.clone(), ino, command, streams, &asked);
        let Some(before) = before else {
            let begun = abi::View { view: view.id, key: view.key, ..abi::View::default() };
            if let Some(answer) = unused.take() {
                answer(Ok(begun.encode().to_vec()));
            }
            return Ok(Some(job));
        };
        wait_for(&before, Some(job)).inspect_err(|_| view.unstart())
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
            let made = Self::caught(Op::Ioctl, ino, || {
                // It may have been closed while others were gathered before it.
                let made = if fs.views.has(&view) {
                    fs.on_view(&view, command, streams, &rest, count)
                } else {
                    Err(Errno::NOENT.into())
                };
                made.map(|view| view.encode().to_vec()).map_err(|e| fs.fail(ino, None, e))
            });
            view.gathered(made)
        })
    }
}
