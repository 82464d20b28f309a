//! Orders that readers announce: by an ioctl, or by reading a file whose name is the order.

use super::{Failure, Fs, spec};
use crate::ahead::announced::{Announcement, Line};
use crate::ahead::order::Space;
use crate::errno::Errno;
use crate::namespace::{MAX_INDEX, Node};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use zrfs::Source;
use zrfs::sampler::{Spec, parse_length, parse_with};
use zrfs_abi::Announce;

/// Files in `.zrfs/readahead` that were looked up, of which the last are remembered.
const SPELLED: usize = 64;
/// Indices that such a file shows.
const SHOWN: usize = 4;

/// The files in `.zrfs/readahead` that were looked up, with their numbers.
#[derive(Debug, Default)]
pub(super) struct Spelled(Mutex<(u64, VecDeque<(u64, File)>)>);

/// One of them: what it announces, and its text.
#[derive(Debug, Clone)]
struct File {
    announcement: Announcement,
    text: String,
}

impl Spelled {
    fn lock(&self) -> MutexGuard<'_, (u64, VecDeque<(u64, File)>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fs {
    /// The ioctl that announces an order of the records beside or in a file or directory.
    pub(super) fn announce(&self, node: Node, data: &[u8]) -> Result<(), Failure> {
        let space = match node {
            Node::Root if matches!(self.source, Source::Store(_)) => Space::Records(0),
            Node::Stream(s) | Node::Records(s) | Node::Files(s) | Node::Record(s, _) => Space::Records(s),
            Node::Npys(s) | Node::Npy(s, _) => Space::Npys(s),
            _ => return Err(Errno::NOTTY.into()),
        };
        let (spec, start) = parse_ioctl(data).ok_or(Errno::INVAL)?;
        let line = self.line(Announcement { space, spec, start, length: None })?;
        self.ahead.announce(line);
        self.counters.announced.add(1);
        Ok(())
    }

    fn line(&self, announcement: Announcement) -> Result<Line, Failure> {
        let (Space::Records(s) | Space::Npys(s)) = announcement.space else { return Err(Errno::NOTTY.into()) };
        if !self.ahead.is_on() {
            return Err(Errno::OPNOTSUPP.into());
        }
        let said = announcement.spec.to_string();
        let Some(length) = self.drawn_from(s, announcement.length)? else {
            log::warn!("{said} was announced for more records than the {} that there are", self.stream(s)?.len());
            return Err(Errno::INVAL.into());
        };
        Line::new(announcement, length).map_err(|e| {
            log::warn!("{said} was announced: {e}");
            Errno::INVAL.into()
        })
    }

    /// The file `.zrfs/readahead/NAME`.
    pub(super) fn spelled(&self, name: &[u8]) -> Result<Node, Failure> {
        let text = std::str::from_utf8(name).map_err(|_| Errno::INVAL)?;
        let announcement = self.parse(text).map_err(|e| {
            log::warn!(".zrfs/readahead/{text}: {e}");
            Errno::INVAL
        })?;
        let line = self.line(announcement.clone())?;
        let first: Vec<String> = line.indices(1, SHOWN).iter().map(u64::to_string).collect();
        let text = format!("{text}: {} records, {} … come first\n", line.length(), first.join(" "));
        let mut spelled = self.spelled.lock();
        let (next, files) = &mut *spelled;
        let id = *next % MAX_INDEX;
        *next += 1;
        if files.len() == SPELLED {
            files.pop_front();
        }
        files.push_back((id, File { announcement, text }));
        Ok(Node::Spelled(id))
    }

    /// The text of such a file; the ones looked up long ago are gone.
    pub(super) fn spelled_text(&self, id: u64) -> Result<String, Failure> {
        Ok(self.spelled_file(id)?.text)
    }

    /// The text of the file that is being read, which announces its order.
    pub(super) fn read_spelled(&self, id: u64) -> Result<String, Failure> {
        let file = self.spelled_file(id)?;
        self.ahead.announce(self.line(file.announcement)?);
        self.counters.announced.add(1);
        Ok(file.text)
    }

    fn spelled_file(&self, id: u64) -> Result<File, Errno> {
        let spelled = self.spelled.lock();
        spelled.1.iter().find(|(k, _)| *k == id).map(|(_, file)| file.clone()).ok_or(Errno::STALE)
    }

    /// A sampler's spec with the keys `start`, `length`, `dir` and `stream`, which say where the order starts, over how many
    /// records it goes and of which files it is.
    fn parse(&self, text: &str) -> Result<Announcement, String> {
        let (spec, [start, length, dir, stream]) = parse_with(text, ["start", "length", "dir", "stream"])?;
        let start = start.map_or(Ok(0), |n| n.parse().map_err(|_| format!("start={n}: not a step")))?;
        let length = parse_length(length)?;
        let s = match (&self.source, stream) {
            (Source::Store(_), None) => 0,
            (Source::Store(_), Some(_)) => return Err("stream=: only a dataset has streams".into()),
            (Source::Dataset(dataset), Some(name)) => {
                let found = dataset.streams().iter().position(|(n, _)| n == name);
                found.ok_or_else(|| format!("stream={name}: there is no such stream"))? as u16
            }
            (Source::Dataset(_), None) => return Err("of a dataset, stream=NAME says which records are read".into()),
        };
        let typed = self.stream(s).is_ok_and(|stream| stream.schema().is_some());
        let space = match dir {
            None | Some("records") => Space::Records(s),
            Some("npy") if typed => Space::Npys(s),
            Some(other) => return Err(format!("dir={other}: records, or npy of a typed store")),
        };
        Ok(Announcement { space, spec, start, length })
    }
}

/// What the ioctl says: the spec, and the step to start at.
fn parse_ioctl(data: &[u8]) -> Option<(Spec, u64)> {
    let call = Announce::decode(data.try_into().ok()?)?;
    if call.version != zrfs_abi::VERSION {
        return None;
    }
    let Announce { batch, seed, rank, world, start, .. } = call;
    Some((spec::of_numbers([call.mode, call.tail], [batch, seed, rank, world])?, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What programs send; it must not change.
    #[test]
    fn golden() {
        let mut data = vec![1, 0, 0, 0, 3, 2, 0, 0];
        [256u64, 42, 1, 8, 1000].iter().for_each(|n| data.extend(n.to_le_bytes()));
        let (spec, start) = parse_ioctl(&data).unwrap();
        assert_eq!((spec.to_string().as_str(), start), ("cyclic,batch=256,seed=42,rank=1,world=8,tail=keep", 1000));
        for (at, byte) in [(0, 2), (3, 1), (4, 4), (5, 4), (5, 255), (6, 1), (7, 1), (24, 8), (32, 1)] {
            let mut bad = data.clone();
            bad[at] = byte;
            assert_eq!(parse_ioctl(&bad), None, "byte {at}");
        }
        for length in [0, 1, 8, 47] {
            assert_eq!(parse_ioctl(&data[..length]), None);
        }
        data.push(0);
        assert_eq!(parse_ioctl(&data), None);
    }
}
