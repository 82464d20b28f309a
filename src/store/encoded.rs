//! Records on their way to a chunk: compressed, and put together to pieces that are written at once.

use super::sums;
use crate::codec::Encoder;
use crate::error::{Error, Result};
use crate::format::Codec;
use std::io::IoSlice;

/// A thread compresses at least this many bytes of records at a time.
pub(super) const MIN_SHARE: usize = 64 << 10;

/// From so many bytes of large raw records on, another thread makes the checksums.
pub(super) const RAW_ROUND: usize = 2 << 20;
/// Of so many at a time.
pub(super) const RAW_SHARE: usize = 1 << 20;

/// Frames of less than this, on average, are copied together and written as one: the kernel takes longer to find the next
/// buffer than to copy a small one.
pub(super) const SMALL: usize = 64 << 10;
/// So many bytes of small frames are put together: a processor's cache holds them from the one to the other.
const TOGETHER: usize = 1 << 20;
/// So many bytes are written at a time.
const PIECE: usize = 4 << 20;

/// Records as they will stand in the chunks, before they have a place there.
pub(super) enum Encoded {
    /// Raw records stay as they are; these are their checksums, where they were made beforehand.
    Raw(Option<Vec<u32>>),
    /// Frames that stand one after the other, and the length of each.
    Frames(Vec<u8>, Vec<usize>),
}

impl Encoded {
    /// Compresses, or makes checksums, on the calling thread.
    pub(super) fn here(encoder: &Encoder, records: &[&[u8]]) -> Result<Self> {
        if encoder.codec() == Codec::Raw {
            return Ok(Encoded::Raw(Some(records.iter().map(|r| sums::sum(r)).collect())));
        }
        let (mut frames, mut lengths) = (Vec::new(), Vec::with_capacity(records.len()));
        encoder.encode(records, &mut frames, |n| lengths.push(n)).map_err(Error::invalid)?;
        Ok(Encoded::Frames(frames, lengths))
    }

    /// The records' checksums, where they were made.
    pub(super) fn sums(&self) -> Option<&[u32]> {
        match self {
            Encoded::Raw(sums) => sums.as_deref(),
            // Frames carry checksums of their own.
            Encoded::Frames(..) => Some(&[]),
        }
    }

    /// Each record's frame and its own length.
    pub(super) fn frames<'f>(&'f self, records: &'f [&'f [u8]]) -> Box<dyn Iterator<Item = (&'f [u8], usize)> + 'f> {
        let own = records.iter().map(|r| r.len());
        match self {
            Encoded::Raw(_) => Box::new(records.iter().copied().zip(own)),
            Encoded::Frames(frames, lengths) => {
                let mut rest = &frames[..];
                let cut = lengths.iter().map(move |&n| {
                    let (frame, tail) = rest.split_at(n);
                    rest = tail;
                    frame
                });
                Box::new(cut.zip(own))
            }
        }
    }
}

/// Cuts `records` into consecutive shares of about `bytes` bytes, each of at least one record.
pub(super) fn shares<'s, 'r>(records: &'s [&'r [u8]], bytes: usize) -> impl Iterator<Item = &'s [&'r [u8]]> {
    let mut rest = records;
    std::iter::from_fn(move || {
        let mut sum = 0usize;
        let fits = rest.iter().take_while(|r| {
            sum = sum.saturating_add(r.len());
            sum <= bytes
        });
        let n = fits.count().max(1).min(rest.len());
        let (share, tail) = rest.split_at(n);
        rest = tail;
        (!share.is_empty()).then_some(share)
    })
}

/// Frames that go to one place of a chunk, one after the other.
pub(super) struct Piece<'f> {
    frames: Vec<&'f [u8]>,
    bytes: usize,
    room: Vec<u8>,
    /// Where the frames' checksums go, if somebody wants them.
    sums: Option<&'f mut Vec<u32>>,
}

impl<'f> Piece<'f> {
    /// An empty one, which copies small frames to `room`.
    pub(super) fn new(room: Vec<u8>, sums: Option<&'f mut Vec<u32>>) -> Self {
        Piece { frames: Vec::new(), bytes: 0, room, sums }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether it is to be written before more comes to it.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= if self.is_small() { TOGETHER } else { PIECE }
    }

    /// Whether its frames are copied together.
    fn is_small(&self) -> bool {
        self.bytes < SMALL * self.frames.len()
    }

    pub(super) fn push(&mut self, frame: &'f [u8]) {
        self.frames.push(frame);
        self.bytes += frame.len();
    }

    /// What is to be written; nothing of it is left here. Makes the checksums.
    pub(super) fn take(&mut self) -> Vec<IoSlice<'_>> {
        let small = self.is_small();
        self.room.clear();
        let mut slices = Vec::with_capacity(if small { 1 } else { self.frames.len() });
        for frame in self.frames.drain(..) {
            if let Some(sums) = &mut self.sums {
                sums.push(sums::sum(frame));
            }
            if small {
                self.room.extend_from_slice(frame);
            } else {
                slices.push(IoSlice::new(frame));
            }
        }
        self.bytes = 0;
        if small {
            slices.push(IoSlice::new(&self.room));
        }
        slices
    }

    /// The room, to be used again.
    pub(super) fn into_room(self) -> Vec<u8> {
        self.room
    }
}
