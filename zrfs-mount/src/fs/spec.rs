//! Specs of samplers as names and calls have them. A name's has keys that the sampler's own text (`docs/SAMPLER.md`) does
//! not know; they are taken out before the rest is parsed.

use super::{Failure, Fs};
use crate::namespace::parse_index;
use std::num::NonZeroU64;
use zrfs::sampler::{Mode, Spec, Tail};

/// Takes the pairs of these keys out of a spec's text: the spec, and their values.
///
/// # Errors
/// A sentence if a key is given twice, or the rest is no spec.
pub(super) fn parse<'t, const N: usize>(
    text: &'t str,
    keys: [&str; N],
) -> Result<(Spec, [Option<&'t str>; N]), String> {
    let mut values = [None; N];
    let mut rest = Vec::new();
    for (place, part) in text.split(',').enumerate() {
        // First comes the mode.
        let pair = part.split_once('=').filter(|_| place > 0);
        match pair.and_then(|(key, value)| Some((keys.iter().position(|k| *k == key)?, value))) {
            None => rest.push(part),
            Some((k, value)) if values[k].replace(value).is_none() => {}
            Some((k, _)) => return Err(format!("{} is given twice", keys[k])),
        }
    }
    let spec = rest.join(",").parse().map_err(|e: zrfs::Error| e.to_string())?;
    Ok((spec, values))
}

/// The value of `length`, which fixes how many records are drawn from.
///
/// # Errors
/// A sentence if it is no number of records.
pub(super) fn parse_length(value: Option<&str>) -> Result<Option<NonZeroU64>, String> {
    let parsed = |text: &str| parse_index(text.as_bytes()).and_then(NonZeroU64::new);
    value
        .map(|text| parsed(text).ok_or_else(|| format!("length={text}: not a number of records, 1 or more")))
        .transpose()
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_ours_stand_anywhere_but_first() {
        let bare: Spec = "cyclic,batch=4,seed=7".parse().unwrap();
        for (text, length, start) in [
            ("cyclic,batch=4,seed=7", None, None),
            ("cyclic,batch=4,seed=7,length=9", Some("9"), None),
            ("cyclic,length=9,batch=4,start=x,seed=7", Some("9"), Some("x")),
            ("cyclic,start=,batch=4,seed=7", None, Some("")),
        ] {
            assert_eq!(parse(text, ["length", "start"]), Ok((bare.clone(), [length, start])), "{text}");
        }
        for bad in [
            "cyclic,batch=4,length=9,length=9",
            "length=9,cyclic,batch=4",
            "length=9",
            "cyclic,batch=4,lengths=9",
            "cyclic,batch=4,length",
            "cyclic,length=9",
            "cyclic,batch=4,start=9",
            "",
        ] {
            assert!(parse(bad, ["length"]).is_err(), "{bad}");
        }
    }

    #[test]
    fn lengths() {
        assert_eq!(parse_length(None), Ok(None));
        assert_eq!(parse_length(Some("60000")), Ok(NonZeroU64::new(60_000)));
        assert_eq!(parse_length(Some("18446744073709551615")), Ok(NonZeroU64::new(u64::MAX)));
        for bad in ["", "0", "-1", "+1", "007", "1e3", "7.0", "x", " 7", "18446744073709551616"] {
            assert!(parse_length(Some(bad)).unwrap_err().contains("length="), "{bad:?}");
        }
    }
}
