//! Orders that readers announce: those of a sampler, of which the reads alone show nothing.
//!
//! The n-th file that the reader comes to has the place n, from 1 on. Places take the part in an order that indices
//! have elsewhere: the reader is at one, and what was pushed ends at one.

use super::order::Space;
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;
use zrfs::sampler::{Sampler, Spec};
use zrfs::{Error, Result};

/// The most draws that are replayed to reach the step where an order starts (mode `iid`): some 20 ms.
const MAX_REPLAY: u128 = 1 << 24;
/// Places beyond what was pushed where its reader may be seen next: it need not ask for what is in its cache, and the
/// threads of a loader are at several batches.
const BEYOND: u64 = 1024;
/// The fewest of them.
const LEAST_BEYOND: u64 = 16;
/// One file of so many is beyond, at most: somebody who reads at random rarely comes across one.
const RARE: u64 = 256;
/// Reads that were not this order's since its last one, at most, for a read of the very next file to be believed.
const MISSES: u32 = 16;
/// The same for a read of another of the next files, which happens by chance more often.
const MISSES_AFTER_LEAP: u32 = 4;

/// What was announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The files that the indices stand for.
    pub space: Space,
    /// The order.
    pub spec: Spec,
    /// The step of the first batch.
    pub start: u64,
    /// The number of records that it is fixed to; of all that there are otherwise.
    pub length: Option<NonZeroU64>,
}

/// An announced order, as far as it is looked at.
#[derive(Debug)]
pub struct Line {
    announcement: Announcement,
    sampler: Sampler,
    /// The step and the place in its batch that come after the last of `indices`.
    next: (u64, u64),
    /// The indices at the places from `first` on.
    indices: VecDeque<u64>,
    first: u64,
    /// The places of those indices; of an index that is there more than once, the first.
    places: HashMap<u64, u64>,
    beyond: u64,
    misses: u32,
}

impl Line {
    /// The order of an announcement over `length` records.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a spec that no sampler takes, and a step that is too far into mode `iid`.
    pub fn new(announcement: Announcement, length: u64) -> Result<Line> {
        let sampler = Sampler::new(announcement.spec.clone(), length)?;
        let replay = sampler.replay(announcement.start);
        if replay > MAX_REPLAY {
            return Err(Error::Invalid(format!(
                "start={}: {replay} draws of mode iid would be replayed, and {MAX_REPLAY} are the most; iid_counter \
                 starts anywhere at once",
                announcement.start
            )));
        }
        let mut line = Line {
            next: (announcement.start, 0),
            announcement,
            sampler,
            indices: VecDeque::new(),
            first: 1,
            places: HashMap::new(),
            beyond: (length / RARE).clamp(LEAST_BEYOND, BEYOND),
            misses: 0,
        };
        line.reach(1)?;
        Ok(line)
    }

    /// What was announced.
    pub fn announcement(&self) -> &Announcement {
        &self.announcement
    }

    /// The number of records that it goes over.
    pub fn length(&self) -> u64 {
        self.sampler.length()
    }

    /// The place of a file that the reader may be at next.
    pub fn place_of(&self, index: u64) -> Option<u64> {
        self.places.get(&index).copied()
    }

    /// At most `count` indices from a place on.
    pub fn indices(&self, from: u64, count: usize) -> Vec<u64> {
        let skip = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.indices.iter().skip(skip).take(count).copied().collect()
    }

    /// Forgets the places up to `last`, where the reader is.
    pub fn pass(&mut self, last: u64) {
        while self.first <= last
            && let Some(index) = self.indices.pop_front()
        {
            if self.places.get(&index) == Some(&self.first) {
                self.places.remove(&index);
            }
            self.first += 1;
        }
    }

    /// Looks at the order until far enough beyond `frontier`, the place of what is pushed next.
    ///
    /// # Errors
    /// Those of the sampler: none, once it gave the first.
    pub fn reach(&mut self, frontier: u64) -> Result<()> {
        let end = frontier.saturating_add(self.beyond);
        let mut draw = [0; 64];
        // Batches in which this rank has no part, one after the other: all are like that.
        let mut empty = 0;
        loop {
            let have = self.first.saturating_add(self.indices.len() as u64);
            let (step, offset) = self.next;
            let rest = self.sampler.batch_len(step).saturating_sub(offset);
            let count = rest.min(end.saturating_sub(have)).min(draw.len() as u64);
            if have >= end || empty > 2 {
                return Ok(());
            }
            if rest == 0 {
                self.next = (step.wrapping_add(1), 0);
                empty += 1;
                continue;
            }
            empty = 0;
            let Some(draw) = draw.get_mut(..count as usize) else { return Ok(()) };
            self.sampler.part_at(step, offset, draw)?;
            for (&mut index, place) in draw.iter_mut().zip(have..) {
                self.indices.push_back(index);
                self.places.entry(index).or_insert(place);
            }
            self.next.1 = offset.saturating_add(count);
        }
    }

    /// The reader, or somebody who hops about, was seen at one of the places, the very `next` one or another; whether it
    /// is believed to be the reader.
    pub fn is_believed(&mut self, next: bool) -> bool {
        std::mem::take(&mut self.misses) <= if next { MISSES } else { MISSES_AFTER_LEAP }
    }

    /// A file was read, and not by this reader nor any other that is known.
    pub fn missed(&mut self) {
        self.misses = self.misses.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, start: u64, length: u64) -> Result<Line> {
        let spec = text.parse().unwrap();
        Line::new(Announcement { space: Space::Records(0), spec, start, length: None }, length)
    }

    #[test]
    fn places_are_those_of_the_sampler() {
        for text in [
            "cyclic,batch=7,seed=3",
            "iid,batch=100",
            "cyclic,batch=10,rank=1,world=3,tail=keep",
            "sequential,batch=300",
        ] {
            let mut sampler = Sampler::new(text.parse().unwrap(), 10_000).unwrap();
            sampler.seek(5).unwrap();
            let want: Vec<u64> = sampler.batches().take(2000).flat_map(Result::unwrap).take(1000).collect();
            let mut line = line(text, 5, 10_000).unwrap();
            assert_eq!(line.indices(1, 20), want[..20]);
            let mut got = Vec::new();
            for place in 1..=1000 {
                got.extend(line.indices(place, 1));
                line.pass(place);
                line.reach(place + 1).unwrap();
                assert!(line.indices.len() as u64 == line.beyond && line.places.len() <= line.indices.len());
            }
            assert_eq!(got, want, "{text}");
        }
    }

    #[test]
    fn bounds() {
        let lengths = [1, 1000, 1 << 30].map(|n| line("cyclic,batch=4", 0, n).unwrap().indices.len());
        assert_eq!(lengths, [16, 16, 1024]);
        // A rank that has no part in any batch.
        assert!(line("sequential,batch=2,rank=7,world=8", 0, 1000).unwrap().indices(1, 9).is_empty());
        assert!(line("iid,batch=256", u64::MAX, 1000).unwrap_err().to_string().contains("iid_counter"));
        assert!(line("iid,batch=256", 1 << 16, 1000).is_ok());
        assert!(line("cyclic,batch=18446744073709551615", u64::MAX, 1000).is_ok());
        assert!(line("cyclic,batch=256", 0, 0).is_err());
    }

    #[test]
    fn who_is_believed() {
        let mut line = line("cyclic,batch=4", 0, 1000).unwrap();
        assert!(line.is_believed(true));
        for (next, misses) in [(true, MISSES), (false, MISSES_AFTER_LEAP)] {
            (0..misses).for_each(|_| line.missed());
            assert!(line.is_believed(next));
            (0..=misses).for_each(|_| line.missed());
            assert!(!line.is_believed(next), "after many others once is no proof");
            assert!(line.is_believed(next), "twice is");
        }
    }
}
