//! Specs of samplers as calls have them, and how many records they draw from.

use super::{Failure, Fs};
use std::num::NonZeroU64;
use zrfs::sampler::{Mode, Spec, Tail};

/// The spec that these numbers of an ioctl stand for, mode and tail first; `None` where there is none.
pub(super) fn of_numbers([mode, tail]: [u8; 2], [batch, seed, rank, world]: [u64; 4]) -> Option<Spec> {
    let mode = *Mode::ALL.get(usize::from(mode))?;
    let tail = match tail {
        0 => mode.default_tail(),
        n => *Tail::ALL.get(usize::from(n) - 1)?,
    };
    let spec = Spec { mode, batch, seed, rank, world, tail };
    spec.validate().ok()?;
    Some(spec)
}

impl Fs {
    /// The number of records to draw from: the first `length` of the stream, if it has so many, or all that there are by
    /// now. A dataset's streams have the same.
    pub(super) fn drawn_from(&self, s: u16, length: Option<NonZeroU64>) -> Result<Option<u64>, Failure> {
        let (stream, length) = (self.stream(s)?, length.map(NonZeroU64::get));
        // What is fixed and there needs no look.
        if length.is_none_or(|length| length > stream.len()) {
            self.refresh(s)?;
        }
        let have = stream.len();
        Ok(length.map_or(Some(have), |length| (length <= have).then_some(length)))
    }
}
