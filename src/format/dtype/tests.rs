#![allow(clippy::indexing_slicing, clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;

/// `numpy.dtype(given).str` and `.itemsize` of numpy 2.4 on x86-64.
const NUMPY: &[(&str, &str, u64)] = &[
    ("f4", "<f4", 4),
    ("=f4", "<f4", 4),
    ("|f4", "<f4", 4),
    ("<f4", "<f4", 4),
    (">f4", ">f4", 4),
    ("<u1", "|u1", 1),
    ("|u1", "|u1", 1),
    (">i1", "|i1", 1),
    ("|b1", "|b1", 1),
    ("<b1", "|b1", 1),
    ("?", "|b1", 1),
    ("c8", "<c8", 8),
    ("<c32", "<c32", 32),
    ("S10", "|S10", 10),
    ("<S10", "|S10", 10),
    ("S01", "|S1", 1),
    (">U5", ">U5", 20),
    ("|U5", "<U5", 20),
    ("V2", "|V2", 2),
    (">V3", "|V3", 3),
    ("M8[ns]", "<M8[ns]", 8),
    ("<M8", "<M8", 8),
    ("M8[generic]", "<M8", 8),
    ("M8[1ns]", "<M8[ns]", 8),
    ("M8[25s]", "<M8[25s]", 8),
    ("M8[0s]", "<M8[0s]", 8),
    (">m8[D]", ">m8[D]", 8),
    ("f16", "<f16", 16),
    ("S2147483647", "|S2147483647", 2147483647),
    ("U536870911", "<U536870911", 2147483644),
    ("<M8[2147483647s]", "<M8[2147483647s]", 8),
];

#[test]
#[cfg(target_endian = "little")]
fn spelled_as_numpy_spells_it() {
    for &(given, canonical, itemsize) in NUMPY {
        let dtype = DType::parse(given).unwrap();
        assert_eq!((dtype.as_str(), dtype.itemsize()), (canonical, itemsize), "{given}");
        assert_eq!(DType::parse(canonical).unwrap(), dtype, "{given}");
        assert_eq!(Some(dtype.kind()), canonical.chars().nth(1), "{given}");
        assert_eq!(Some(dtype.byte_order().as_char()), canonical.chars().next(), "{given}");
        assert_eq!(dtype.to_string(), canonical);
    }
}

#[test]
fn refused_with_a_reason() {
    for (given, reason) in [
        ("|O", "unpickles"),
        ("O8", "unpickles"),
        ("S0", "0 bytes"),
        ("<U0", "0 bytes"),
        ("|V0", "0 bytes"),
        ("S2147483648", "above"),
        ("U536870912", "above"),
        ("U18446744073709551615", "above"),
        ("V99999999999999999999999", "above"),
        ("[('a', '<f4')]", "structured"),
        ("u1,u1", "structured"),
        ("(2,)f4", "structured"),
        ("i3", "no type 'i' of 3"),
        ("f12", "no type"),
        ("c4", "no type"),
        ("b2", "no type"),
        ("M4", "no type"),
        ("<f", "no size"),
        ("S", "no size"),
        ("?1", "no numpy dtype"),
        ("", "no numpy dtype"),
        ("<", "no numpy dtype"),
        ("2f4", "no numpy dtype"),
        ("float32", "no size"),
        ("é4", "no numpy dtype"),
        ("<f+4", "no size"),
        ("<f4 ", "follows"),
        ("<f4[ns]", "follows"),
        ("M8[foo]", "time unit"),
        ("M8[ns", "time unit"),
        ("M8[]", "time unit"),
        ("M8[ns]]", "time unit"),
        ("M8[2147483648s]", "time unit"),
        ("M8[us/1000]", "time unit"),
    ] {
        let error = DType::parse(given).expect_err(given);
        assert!(error.contains(reason), "{given}: {error}");
    }
    let error = DType::parse(&"\u{1b}".repeat(1 << 20)).unwrap_err();
    assert!(error.len() < 500 && !error.contains('\u{1b}'), "hostile input is cut and escaped: {error}");
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in "[<>|=]?[biufcmMSUVO?]?[0-9]{0,11}(\\[[0-9]{0,11}[a-zA-Z]{0,3}\\]?)?|\\PC*") {
        if let Ok(dtype) = DType::parse(&text) {
            prop_assert!((1..=MAX_ITEMSIZE).contains(&dtype.itemsize()));
            prop_assert_eq!(DType::parse(dtype.as_str()).unwrap(), dtype);
        }
    }
}
