#![allow(clippy::indexing_slicing, clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;

const BUMP: &str = "the mount shows these bytes and the lengths of its files depend on them; if numpy's header really \
                    changed, bump the version of the mount's npy files";

/// Tens, the power of ten after them, and the length and checksum: text that ends on the boundary.
const ALIGNED: (usize, u32, usize, u32) = (8, 10, 192, 0x9af8222b);

fn dtype(text: &str) -> DType {
    DType::parse(text).unwrap()
}

/// A file that is only a header with this text, padded by nothing.
fn file(version: u8, text: &str) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend([version, 0]);
    match version {
        1 => out.extend((text.len() as u16).to_le_bytes()),
        _ => out.extend((text.len() as u32).to_le_bytes()),
    }
    out.extend(text.as_bytes());
    out
}

fn header_text(descr: &str, fortran: &str, shape: &str) -> String {
    format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n")
}

#[test]
fn golden_header() {
    let expected = b"\x93NUMPY\x01\x00v\x00{'descr': '>i2', 'fortran_order': False, 'shape': (1, 2, 3), }                                                       \n";
    assert_eq!(header_bytes(&dtype(">i2"), &[1, 2, 3]), expected, "{BUMP}");
    let expected = b"\x93NUMPY\x01\x00v\x00{'descr': '|V2', 'fortran_order': False, 'shape': (3,), }                                                            \n";
    assert_eq!(header_bytes(&dtype("|V2"), &[3]), expected, "{BUMP}");
    let expected = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (), }                                                              \n";
    assert_eq!(header_bytes(&dtype("<f8"), &[]), expected, "{BUMP}");
}

/// Lengths and CRC-32s of what numpy 2.4 writes, for headers too long or too many to spell out.
#[test]
fn golden_checksums() {
    let mut aligned = vec![10; ALIGNED.0];
    aligned.push(10u64.pow(ALIGNED.1));
    for (name, shape, len, crc) in [
        ("<f4", vec![60000, 28, 28], 128, 0x4de0d7df),
        ("|u1", vec![7], 128, 0x8ad2f30a),
        ("<f4", vec![], 128, 0xadd37f75),
        ("<U5", vec![0, 3], 128, 0x93b9e84b),
        ("<M8[ns]", vec![1 << 63], 128, 0xeac09043),
        (">i2", vec![1; 64], 320, 0x25f2e989),
        ("<M8[25s]", vec![3, 4], 128, 0x71a88dbc),
        ("<f4", aligned, ALIGNED.2, ALIGNED.3),
        ("<f4", vec![123456789; 7000], 77120, 0xe0301ebb),
    ] {
        let header = header_bytes(&dtype(name), &shape);
        assert_eq!((header.len(), crc32fast::hash(&header)), (len, crc), "{name} {} dims: {BUMP}", shape.len());
    }
}

proptest! {
    /// npyz and our own guard read back what is written, and numpy's alignment holds.
    #[test]
    fn written_headers_are_read_back(
        name in prop::sample::select(vec!["<f4", "|u1", "|b1", ">i2", "<c16", "|S10", "<U5", "|V2", "<M8[ns]", "<M8[25s]", "<m8"]),
        shape in prop::collection::vec(prop_oneof![0u64..3, 0u64..100_000], 0..4),
        extra in 0usize..3,
    ) {
        let dtype = dtype(name);
        let mut header = header_bytes(&dtype, &shape);
        prop_assert_eq!(header.len() % 64, 0);
        if !name.contains("m8") && !name.contains("25s") {
            let npyz = npyz::NpyHeader::from_reader(header.as_slice()).unwrap();
            prop_assert_eq!(npyz.shape(), shape.as_slice());
            prop_assert_eq!(npyz.dtype().descr(), format!("'{name}'"));
        }
        let data_offset = header.len() as u64;
        header.resize(header.len() + extra, 7);
        let parsed = NpyHeader::parse(&header);
        prop_assert_eq!(parsed, Ok(NpyHeader { dtype, shape, fortran: false, data_offset }));
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "[{}()'\"<>|,: 0-9a-zA-Z\\[\\]\\\\.+-]{0,60}|\\PC{0,20}", version in 1u8..4) {
        let _ = NpyHeader::parse(&file(version, &text));
        let _ = NpyHeader::parse(&file(version, &header_text(&text, "False", "(3,)")));
        let _ = NpyHeader::parse(&file(version, &header_text("'<f4'", "False", &text)));
    }
}

#[test]
fn every_version_and_order() {
    for version in 1..=3 {
        for (fortran, word) in [(false, "False"), (true, "True")] {
            let file = file(version, &header_text("'<f4'", word, "(2, 3)"));
            let header = NpyHeader::parse(&file).unwrap();
            let data_offset = file.len() as u64;
            assert_eq!(header, NpyHeader { dtype: dtype("<f4"), shape: vec![2, 3], fortran, data_offset });
        }
    }
}

#[test]
fn what_other_writers_wrote() {
    // Python 2, any order of the keys, double quotes, odd spaces and line ends, no trailing comma.
    for text in [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }   \n",
        "{\"shape\": (2,3), \"fortran_order\": False, \"descr\": \"<f4\"}",
        "{'descr':'<f4',\n'fortran_order':False,\t'shape':(2,3)}\r\n\n",
    ] {
        let header = NpyHeader::parse(&file(1, text)).unwrap();
        assert_eq!((header.dtype.as_str(), header.shape.as_slice()), ("<f4", [2, 3].as_slice()), "{text}");
    }
    for name in ["<M8", "<m8[25s]", ">M8[D]", "<M8[ns]", "|V2", "|S7", ">U5", "|b1", "<c32", "<f16", ">f4"] {
        let header = NpyHeader::parse(&file(1, &header_text(&format!("'{name}'"), "True", "(4,)"))).unwrap();
        assert_eq!((header.dtype.as_str(), header.shape.as_slice(), header.fortran), (name, [4].as_slice(), true));
    }
}

#[test]
fn refused_with_a_reason() {
    let ok = "'<f4'";
    for (file, reason) in [
        (b"".to_vec(), "not a .npy"),
        (b"\x93NUMPX\x01\x00".to_vec(), "not a .npy"),
        (b"\x93NUMPY".to_vec(), "ends within"),
        (b"\x93NUMPY\x01\x00v".to_vec(), "ends within"),
        (b"\x93NUMPY\x02\x00v\0\0".to_vec(), "ends within"),
        (file(4, ""), "version 4.0"),
        (b"\x93NUMPY\x01\x07v\0".to_vec(), "version 1.7"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec(), "4294967295 bytes"),
        (b"\x93NUMPY\x03\x00\x01\x00\x10\x00".to_vec(), "1048577 bytes"),
        (b"\x93NUMPY\x03\x00\x00\x00\x10\x00".to_vec(), "12 bytes of 1048588"),
        (file(1, &header_text("'|O'", "False", "(3,)")), "unpickles"),
        (file(1, &header_text("[('a', '<f4'), ('b', '|O')]", "False", "(3,)")), "structured"),
        (file(1, &header_text("'<f4,<i2'", "False", "(3,)")), "npy header"),
        (file(1, &header_text("'|V0'", "False", "(3,)")), "0 bytes"),
        (file(1, &header_text("'<é'", "False", "(3,)")), "unprintable"),
        (file(1, &header_text("'é'", "False", "(3,)")), "unprintable"),
        (file(1, &header_text("'\\x3cf4'", "False", "(3,)")), "escapes"),
        (file(1, &header_text("'''<f4'''", "False", "(3,)")), "does not end"),
        (file(1, &header_text(ok, "0", "(3,)")), "bool"),
        (file(1, &header_text(ok, "False", "3")), "shape"),
        (file(1, &header_text(ok, "False", "(-3,)")), "0x2d"),
        (file(1, &header_text(ok, "False", "(3.0,)")), "0x2e"),
        (file(1, &header_text(ok, "False", "(0x3,)")), "letters"),
        (file(1, &header_text(ok, "False", "(1_0,)")), "letters"),
        (file(1, &header_text(ok, "False", "(18446744073709551616,)")), "64 bits"),
        (file(1, &header_text(ok, "False", "(18446744073709551615, 0, 2)")), "64 bits"),
        (file(1, &header_text(ok, "False", &format!("({})", "1, ".repeat(65)))), "64 dimensions"),
        (file(1, "{'descr': '<f4', 'shape': (3,), }"), "fortran_order"),
        (file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)"), "does not end"),
        (file(1, "{'descr': '<f4"), "does not end"),
        (file(1, "{'<M8': 1, 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}"), "where none belongs"),
        (file(1, "{} {}"), "nesting"),
        (file(1, "import os"), "no dictionary"),
        (file(1, ""), "does not end"),
        (file(2, &header_text(ok, "False", &format!("{}3{}", "(".repeat(500_000), ")".repeat(500_000)))), "nesting"),
        (file(2, &"(".repeat(1 << 20)), "nesting"),
        (file(2, &format!("{{{}", "{".repeat(1 << 19))), "nesting"),
        (file(2, &header_text(ok, "False", &"[".repeat(1 << 19))), "structured"),
        (file(2, &header_text(ok, "False", &"9".repeat(1 << 19))), "64 bits"),
    ] {
        let shown = String::from_utf8_lossy(&file[..file.len().min(100)]).into_owned();
        let error = NpyHeader::parse(&file).expect_err(&shown);
        assert!(error.contains(reason) && error.len() < 1000, "{shown}: {error}");
    }
}

/// The guard and the grammar must agree where strings end, or brackets in what the guard takes for a string would
/// reach the grammar bare. Hostile numbers must not reach npyz's unchecked products either.
#[test]
fn brackets_hidden_in_strings_stay_there() {
    let deep = "(".repeat(100_000);
    for hostile in [
        format!("{{'''{deep}'''"),
        format!("{{'' '{deep}'}}"),
        format!("{{'a\\' {deep} 'b'}}"),
        format!("{{b'\\' {deep}': 1}}"),
        format!("{{\"'\" {deep}\"'\"}}"),
        format!("{{'{deep}': 1}}"),
        format!("{{'a\n{deep}': 1}}"),
    ] {
        NpyHeader::parse(&file(2, &hostile)).unwrap_err();
    }
}

#[test]
fn flipped_bytes_never_panic() {
    let good = file(1, &header_text("'<M8[ns]'", "True", "(12, 3)"));
    for at in 0..good.len() {
        for mask in [1, 2, 4, 8, 16, 32, 64, 128, 255] {
            let mut bad = good.clone();
            bad[at] ^= mask;
            let _ = NpyHeader::parse(&bad);
        }
        NpyHeader::parse(&good[..at]).unwrap_err();
    }
}
