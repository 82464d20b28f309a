//! Specs in a text that has keys of others beside the sampler's own (`docs/SAMPLER.md`), as names in a mount have: they are
//! taken out before the rest is parsed.

use super::Spec;
use super::spec::decimal;
use crate::error::Error;
use std::num::NonZeroU64;

/// Takes the pairs of these keys out of a spec's text: the spec, and their values.
///
/// # Errors
/// A sentence if a key is given twice, or the rest is no spec.
pub fn parse_with<'t, const N: usize>(text: &'t str, keys: [&str; N]) -> Result<(Spec, [Option<&'t str>; N]), String> {
    let mut values = [None; N];
    let mut rest = Vec::new();
    for (place, part) in text.split(',').enumerate() {
        // First comes the mode.
        let pair = part.split_once('=').filter(|_| place > 0);
        let ours = pair.and_then(|(key, value)| {
            let (_, slot) = keys.iter().zip(&mut values).find(|(k, _)| **k == key)?;
            Some((key, slot.replace(value)))
        });
        match ours {
            None => rest.push(part),
            Some((_, None)) => {}
            Some((key, Some(_))) => return Err(format!("{key} is given twice")),
        }
    }
    let spec = rest.join(",").parse().map_err(|e: Error| e.to_string())?;
    Ok((spec, values))
}

/// The value of `length`, which fixes how many records are drawn from. It has one spelling.
///
/// # Errors
/// A sentence if it is no number of records.
pub fn parse_length(value: Option<&str>) -> Result<Option<NonZeroU64>, String> {
    let parsed = |text: &str| decimal("length", text).ok().and_then(NonZeroU64::new);
    value
        .map(|text| parsed(text).ok_or_else(|| format!("length={text}: not a number of records, 1 or more")))
        .transpose()
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
            assert_eq!(parse_with(text, ["length", "start"]), Ok((bare.clone(), [length, start])), "{text}");
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
            assert!(parse_with(bad, ["length"]).is_err(), "{bad}");
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
