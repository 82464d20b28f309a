//! Which records: one index, ranges, lists and masks, counted from the start or, negative, from the end.

use crate::error::{Error, Result};
use std::str::FromStr;

/// A choice of records, before it is known how many there are.
///
/// Its text form is a list of parts between commas: an index (`17`, `-1` for the last), a range with both ends (`0-9`), or
/// a slice as Python has it (`10:100:2`, `-5:`, `::-1`). Indices are decimal without leading zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// One index; negative ones count from the end. Reads of it give a record, not an array of one.
    One(i128),
    /// A slice, with numpy's meaning: bounds beyond the ends are cut, the step may be negative.
    Slice {
        /// The first index.
        start: Option<i128>,
        /// The index before which it ends.
        stop: Option<i128>,
        /// From one index to the next; not 0.
        step: i128,
    },
    /// Indices in any order, repeats allowed.
    List(Vec<i128>),
    /// One bool a record: those that are true.
    Mask(Vec<bool>),
    /// One after the other.
    Parts(Vec<Selection>),
}

impl From<u64> for Selection {
    fn from(index: u64) -> Self {
        Selection::One(index.into())
    }
}

impl From<std::ops::Range<u64>> for Selection {
    fn from(range: std::ops::Range<u64>) -> Self {
        Selection::Slice { start: Some(range.start.into()), stop: Some(range.end.into()), step: 1 }
    }
}

impl From<&[u64]> for Selection {
    fn from(indices: &[u64]) -> Self {
        Selection::List(indices.iter().map(|&i| i.into()).collect())
    }
}

impl Selection {
    /// Every record, in order.
    pub fn all() -> Self {
        Selection::Slice { start: None, stop: None, step: 1 }
    }

    /// Whether it names one record, rather than a number of them that happens to be 1.
    pub fn is_one(&self) -> bool {
        matches!(self, Selection::One(_))
    }

    /// The indices in a store of `length` records.
    ///
    /// # Errors
    /// [`Error::Invalid`], naming index and length, for an index that is out of range, a mask of another length, and a
    /// step of 0.
    pub fn resolve(&self, length: u64) -> Result<Indices> {
        let mut indices = Indices::default();
        self.add(length, &mut indices)?;
        Ok(indices)
    }

    fn add(&self, length: u64, out: &mut Indices) -> Result<()> {
        match self {
            Selection::One(index) => out.push(Run { first: at(*index, length)?, step: 1, count: 1 }),
            Selection::List(indices) => {
                for &index in indices {
                    out.push(Run { first: at(index, length)?, step: 1, count: 1 });
                }
            }
            Selection::Slice { start, stop, step } => {
                if let Some(run) = slice(*start, *stop, *step, length)? {
                    out.push(run);
                }
            }
            Selection::Mask(mask) => {
                if mask.len() as u64 != length {
                    let n = mask.len();
                    return Err(Error::invalid(format!(
                        "a mask of {n} for {length} records: it has one value a record"
                    )));
                }
                for (index, _) in mask.iter().enumerate().filter(|(_, yes)| **yes) {
                    out.push(Run { first: index as u64, step: 1, count: 1 });
                }
            }
            Selection::Parts(parts) => parts.iter().try_for_each(|part| part.add(length, out))?,
        }
        Ok(())
    }
}

/// An index from the start.
fn at(index: i128, length: u64) -> Result<u64> {
    let from_start = if index < 0 { index + i128::from(length) } else { index };
    match u64::try_from(from_start) {
        Ok(i) if i < length => Ok(i),
        Ok(i) if index >= 0 => Err(Error::OutOfRange { index: i, length }),
        _ => Err(Error::invalid(format!("index {index} is out of range: the store has {length} records"))),
    }
}

/// The indices of a slice, as Python's `slice.indices` has them.
fn slice(start: Option<i128>, stop: Option<i128>, step: i128, length: u64) -> Result<Option<Run>> {
    if step == 0 {
        return Err(Error::invalid("the step of a slice is not 0"));
    }
    let len = i128::from(length);
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let bound = |given: Option<i128>, default| {
        given.map_or(default, |i| if i < 0 { i.saturating_add(len) } else { i }.clamp(low, high))
    };
    let (start, stop) =
        if step > 0 { (bound(start, low), bound(stop, high)) } else { (bound(start, high), bound(stop, low)) };
    let span = if step > 0 { stop - start } else { start - stop };
    if span <= 0 {
        return Ok(None);
    }
    let count = (span - 1) as u128 / step.unsigned_abs() + 1;
    // All of them are indices of the store, but for a step that is never taken.
    let step = i64::try_from(step).unwrap_or(1);
    Ok(Some(Run { first: start as u64, step, count: count as u64 }))
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<Selection> = text.split(',').map(|part| parse(part.trim())).collect::<Result<_, _>>()?;
        match <[Selection; 1]>::try_from(parts) {
            Ok([one]) => Ok(one),
            Err(parts) => Ok(Selection::Parts(parts)),
        }
    }
}

fn parse(part: &str) -> Result<Selection, String> {
    let wrong = || {
        if part.starts_with("--") {
            return format!("{part} is no index; options come before the store and the indices");
        }
        format!("{part:?} is no index; there are 17, -1 (the last), 0-9 (ten records) and slices like 10:100:2 or -5:")
    };
    let number = |text: &str| -> Option<i128> { text.parse().ok().filter(|n: &i128| n.to_string() == text) };
    if part.contains(':') {
        let mut bounds =
            part.split(':').map(|text| if text.is_empty() { Ok(None) } else { number(text).map(Some).ok_or(()) });
        let mut next = || bounds.next().unwrap_or(Ok(None)).map_err(|()| wrong());
        let (start, stop, step) = (next()?, next()?, next()?.unwrap_or(1));
        if bounds.next().is_some() {
            return Err(wrong());
        }
        return if step == 0 {
            Err(format!("{part:?}: the step of a slice is not 0"))
        } else {
            Ok(Selection::Slice { start, stop, step })
        };
    }
    if let Some(index) = number(part) {
        return Ok(Selection::One(index));
    }
    let (first, last) = part.split_once('-').ok_or_else(wrong)?;
    let (first, last) = (number(first).ok_or_else(wrong)?, number(last).ok_or_else(wrong)?);
    if first < 0 || last < first {
        return Err(format!("{part:?} is no range: its ends are indices from the start, the lower one first"));
    }
    // Unlike a slice, a range names its records, so those that are not there are an error.
    Ok(Selection::Parts(vec![Selection::Slice { start: Some(first), stop: Some(last), step: 1 }, Selection::One(last)]))
}

/// Indices at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first: u64,
    step: i64,
    count: u64,
}

impl Run {
    fn get(&self, k: u64) -> u64 {
        self.first.wrapping_add_signed(self.step.wrapping_mul(k as i64))
    }
}

/// Indices of records, each known to be there. Those at equal distances take no memory of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Indices {
    runs: Vec<Run>,
    len: u64,
}

impl Indices {
    /// How many there are, repeats included.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The indices, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs.iter().flat_map(|run| (0..run.count).map(|k| run.get(k)))
    }

    /// The same as an iterator of its own.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = u64> {
        self.runs.into_iter().flat_map(|run| (0..run.count).map(move |k| run.get(k)))
    }

    /// The indices as a list: 8 bytes each.
    pub fn to_vec(&self) -> Vec<u64> {
        self.iter().collect()
    }

    fn push(&mut self, run: Run) {
        self.len = self.len.saturating_add(run.count);
        // Neighbours become one.
        if let Some(last) = self.runs.last_mut()
            && last.step == 1
            && run.step == 1
            && last.first.checked_add(last.count) == Some(run.first)
        {
            last.count += run.count;
            return;
        }
        self.runs.push(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn pick(text: &str, length: u64) -> Vec<u64> {
        text.parse::<Selection>().unwrap().resolve(length).unwrap().to_vec()
    }

    #[test]
    fn the_text_form() {
        assert_eq!(pick("5,17,0-9,-1,10:100:40", 200), [5, 17, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 199, 10, 50, 90]);
        assert_eq!(pick("7", 8), [7]);
        assert_eq!(pick("3-3", 8), [3]);
        assert_eq!(pick("0-7", 8).len(), 8);
        for bad in [
            "", "x", "1-", "-", "--1", "007", "+1", "1:2:3:4", "::0", "5-3", "1..3", "1,,2", "-3--1", "1:x", "0x1",
            "-0",
        ] {
            bad.parse::<Selection>().unwrap_err();
        }
        for bad in ["8", "-9", "0-8", "18446744073709551616", "1,8"] {
            let said = bad.parse::<Selection>().unwrap().resolve(8).unwrap_err().to_string();
            assert!(said.contains('8') && said.contains("records"), "{said}");
        }
        "0".parse::<Selection>().unwrap().resolve(0).unwrap_err();
    }

    /// As Python: `list(range(n))[a:b:c]`, counted out.
    #[test]
    fn slices_are_pythons() {
        let bounds = [
            None,
            Some(-9),
            Some(-3),
            Some(-1),
            Some(0),
            Some(1),
            Some(4),
            Some(5),
            Some(9),
            Some(i128::MAX),
            Some(i128::MIN),
        ];
        for len in [0u64, 1, 5] {
            for start in bounds {
                for stop in bounds {
                    for step in [1, 2, 3, -1, -2, -7, i128::from(i64::MAX), i128::MAX, i128::MIN + 1] {
                        let n = i128::from(len);
                        let from_end = |i: i128| if i < 0 { i.saturating_add(n) } else { i };
                        let mut want = Vec::new();
                        let mut i = match start.map(from_end) {
                            None if step > 0 => 0,
                            None => n - 1,
                            Some(i) if step > 0 => i.max(0),
                            Some(i) => i.min(n - 1),
                        };
                        let ends = |i: i128| match stop.map(from_end) {
                            None => false,
                            Some(stop) if step > 0 => i >= stop,
                            Some(stop) => i <= stop,
                        };
                        while (0..n).contains(&i) && !ends(i) {
                            want.push(i as u64);
                            i = i.saturating_add(step);
                        }
                        let got = Selection::Slice { start, stop, step }.resolve(len).unwrap();
                        assert_eq!(got.to_vec(), want, "{start:?}:{stop:?}:{step} of {len}");
                        assert_eq!(got.len(), want.len() as u64);
                    }
                }
            }
        }
        assert_eq!(Selection::all().resolve(1 << 60).unwrap().runs.len(), 1);
    }

    #[test]
    fn masks_have_the_length() {
        let mask = Selection::Mask(vec![true, false, true, true]);
        assert_eq!(mask.resolve(4).unwrap().to_vec(), [0, 2, 3]);
        let said = mask.resolve(5).unwrap_err().to_string();
        assert!(said.contains("mask of 4") && said.contains("5 records"), "{said}");
    }
}
