//! Which steps of a sampler are read, so that the next one is gathered before it is asked for.

use std::collections::HashMap;

/// Several workers of a loader are at steps that lie so near to each other.
const NEAR: u64 = 16;

/// The steps of one spec that were read.
#[derive(Debug, Default)]
pub struct Seen {
    /// The highest one since the reader last hopped.
    highest: Option<u64>,
    /// Whether it came after the one before it, and not from elsewhere.
    in_order: bool,
    /// Whether a reader was seen to hop, or to go on.
    known: bool,
    /// The step of each stream that was last asked to be gathered.
    asked: HashMap<u16, u64>,
}

impl Seen {
    /// Takes note of a read at the start or the end of a step's file of stream `s`; the step that should be gathered now.
    pub fn note(&mut self, s: u16, step: u64, starts: bool, ends: bool) -> Option<u64> {
        if starts {
            self.started(step);
        }
        let next = step.checked_add(1)?;
        let wanted = (starts && self.in_order) || (ends && (self.in_order || !self.known));
        if !wanted || self.asked.get(&s) == Some(&next) {
            return None;
        }
        self.asked.insert(s, next);
        Some(next)
    }

    fn started(&mut self, step: u64) {
        let Some(highest) = self.highest.replace(step) else { return };
        // What was stored in the kernel's page cache is not asked for.
        let pushed = self.asked.values().copied().max().unwrap_or(0);
        let reach = if pushed == highest.saturating_add(1) { pushed } else { highest }.saturating_add(1);
        if step > highest && step <= reach {
            (self.in_order, self.known) = (true, true);
        } else if step <= highest && highest - step <= NEAR {
            self.highest = Some(highest);
        } else {
            (self.in_order, self.known) = (false, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_on_is_gone_ahead_of() {
        let mut seen = Seen::default();
        assert_eq!(seen.note(0, 5, true, false), None);
        assert_eq!(seen.note(0, 5, false, false), None);
        assert_eq!(seen.note(0, 5, false, true), Some(6), "a first batch, read to its end");
        assert_eq!(seen.note(0, 5, false, true), None, "once");
        assert_eq!(seen.note(0, 6, true, false), Some(7));
        assert_eq!(seen.note(1, 6, true, true), Some(7), "the other stream's");
        assert_eq!(seen.note(0, 8, true, false), Some(9), "the kernel had 7");
        // Two workers cross each other.
        assert_eq!(seen.note(0, 7, true, true), Some(8));
        assert_eq!(seen.note(0, 9, true, true), Some(10));
    }

    #[test]
    fn who_hops_is_left_alone() {
        let mut seen = Seen::default();
        let asked = (0..1000u64).filter(|k| seen.note(0, k * 7919 % 100_000, true, true).is_some()).count();
        assert_eq!(asked, 1, "after the first");
        let asked = (0..1000u64).filter(|k| seen.note(0, k * 3, true, true).is_some()).count();
        assert!(asked <= 1, "every third is another rank's business");
        assert_eq!(seen.note(0, u64::MAX, true, true), None);
    }
}
