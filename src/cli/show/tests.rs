//! Every expected text is what numpy 2.4 gives for `str(array)`, unless the test says otherwise.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use super::*;

#[track_caller]
fn check(dtype: &str, shape: &[u64], bytes: &[u8], expected: &str) {
    let shown = array(&DType::parse(dtype).unwrap(), shape, bytes);
    assert_eq!(shown, expected, "\nshown:\n{shown}\nexpected:\n{expected}");
}

fn numbers<const N: usize>(count: usize, number: fn(usize) -> [u8; N]) -> Vec<u8> {
    (0..count).flat_map(number).collect()
}

fn f32_le(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn f32_be(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

fn f64_le(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn f64_be(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

#[test]
fn layout() {
    check("<i4", &[2, 3], b"\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x05\0\0\0", "[[0 1 2]\n [3 4 5]]");
    check("|u1", &[2, 2, 2], b"\0\x01\x02\x03\x04\x05\x06\x07", "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]");
    check(
        "<u2",
        &[40],
        &numbers(40, |n| (100 * n as u16).to_le_bytes()),
        "[   0  100  200  300  400  500  600  700  800  900 1000 1100 1200 1300\n 1400 1500 1600 1700 1800 1900 2000 2100 2200 2300 2400 2500 2600 2700\n 2800 2900 3000 3100 3200 3300 3400 3500 3600 3700 3800 3900]",
    );
    check(
        "|i1",
        &[1, 36],
        &numbers(36, |n| [n as u8]),
        "[[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n  24 25 26 27 28 29 30 31 32 33 34 35]]",
    );
    check("|u1", &[1, 1, 1, 1, 1], b"\0", "[[[[[0]]]]]");
    check(
        "|S80",
        &[2],
        &[b'x'; 160],
        "[b'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'\n b'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx']",
    );
    check(
        "|S36",
        &[2, 3],
        &[b'x'; 216],
        "[[b'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'\n  b'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'\n  b'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx']\n [b'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'\n  b'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'\n  b'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx']]",
    );
    check("<f4", &[0], &f32_le(&[]), "[]");
    check("<f4", &[2, 0, 3], &f32_le(&[]), "[]");
}

#[test]
fn summary() {
    check("<u2", &[1001], &numbers(1001, |n| (n as u16).to_le_bytes()), "[   0    1    2 ...  998  999 1000]");
    check(
        "|u1",
        &[120, 9],
        &[1, 2, 3, 90, 100, 200, 7, 8, 9].repeat(120),
        "[[1 2 3 ... 7 8 9]\n [1 2 3 ... 7 8 9]\n [1 2 3 ... 7 8 9]\n ...\n [1 2 3 ... 7 8 9]\n [1 2 3 ... 7 8 9]\n [1 2 3 ... 7 8 9]]",
    );
    check(
        ">i4",
        &[40, 40],
        &numbers(1600, |n| (n as i32).to_be_bytes()),
        "[[   0    1    2 ...   37   38   39]\n [  40   41   42 ...   77   78   79]\n [  80   81   82 ...  117  118  119]\n ...\n [1480 1481 1482 ... 1517 1518 1519]\n [1520 1521 1522 ... 1557 1558 1559]\n [1560 1561 1562 ... 1597 1598 1599]]",
    );
    check(
        "<f4",
        &[2, 2, 300],
        &numbers(1200, |n| (n as f32 / 8.0).to_le_bytes()),
        "[[[0.00000e+00 1.25000e-01 2.50000e-01 ... 3.71250e+01 3.72500e+01\n   3.73750e+01]\n  [3.75000e+01 3.76250e+01 3.77500e+01 ... 7.46250e+01 7.47500e+01\n   7.48750e+01]]\n\n [[7.50000e+01 7.51250e+01 7.52500e+01 ... 1.12125e+02 1.12250e+02\n   1.12375e+02]\n  [1.12500e+02 1.12625e+02 1.12750e+02 ... 1.49625e+02 1.49750e+02\n   1.49875e+02]]]",
    );
    check("|S2", &[1002], &b"a\0bb".repeat(501), "[b'a' b'bb' b'a' ... b'bb' b'a' b'bb']");
}

#[test]
fn integers() {
    check("|b1", &[3], b"\x01\0\x01", "[ True False  True]");
    check("|b1", &[1, 1], b"\0", "[[False]]");
    check("|b1", &[], b"\x01", "True");
    check("|i1", &[3], b"\x80\x7f\0", "[-128  127    0]");
    check("|u1", &[2], b"\0\xff", "[  0 255]");
    check(">i2", &[2], b"\xff\xff\x01,", "[ -1 300]");
    check("<u2", &[2], b"\xff\xff\x01\0", "[65535     1]");
    check("<i4", &[2], b"\0\0\0\x80\x05\0\0\0", "[-2147483648           5]");
    check(">u4", &[2], b"\xff\xff\xff\xff\0\0\0\x05", "[4294967295          5]");
    check(
        "<i8",
        &[2],
        b"\0\0\0\0\0\0\0\x80\xff\xff\xff\xff\xff\xff\xff\x7f",
        "[-9223372036854775808  9223372036854775807]",
    );
    check(
        ">u8",
        &[2],
        b"\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0",
        "[18446744073709551615                    0]",
    );
    check(">i8", &[], b"\xff\xff\xff\xff\xff\xff\xff\xf9", "-7");
    check("|u1", &[], b"\xc8", "200");
}

#[test]
fn floats() {
    check("<f4", &[3], &f32_le(&[0.1, 0.5, 2.0]), "[0.1 0.5 2. ]");
    check("<f8", &[3], &f64_le(&[1.0, 2.0, 3.0]), "[1. 2. 3.]");
    check("<f8", &[2], &f64_le(&[0.0, -0.0]), "[ 0. -0.]");
    check("<f8", &[3], &f64_le(&[1.5, f64::NAN, -3.0]), "[ 1.5  nan -3. ]");
    check("<f4", &[3], &f32_le(&[f32::INFINITY, -f32::INFINITY, f32::NAN]), "[ inf -inf  nan]");
    check("<f2", &[2], b"\0\xfc\0<", "[-inf   1.]");
    check("<f8", &[1], &f64_le(&[f64::NAN]), "[nan]");
    check("<f2", &[2], b"U5U9", "[0.3333 0.6665]");
    check("<f4", &[2], &f32_le(&[0.33333334, 0.6666667]), "[0.33333334 0.6666667 ]");
    check(">f8", &[2], &f64_be(&[0.3333333333333333, 66.66666666666667]), "[ 0.33333333 66.66666667]");
    check("<f8", &[2], &f64_le(&[100000000.0, 1.0]), "[1.e+08 1.e+00]");
    check("<f8", &[2], &f64_le(&[99999999.0, 1000000.0]), "[99999999.  1000000.]");
    check("<f4", &[2], &f32_le(&[1000000.0, 100000.0]), "[1.e+06 1.e+05]");
    check("<f4", &[2], &f32_le(&[999999.0, 100000.0]), "[999999. 100000.]");
    check("<f2", &[2], b"\xd0c\xcec", "[1.00e+03 9.99e+02]");
    check("<f8", &[2], &f64_le(&[0.0001, 0.0001]), "[0.0001 0.0001]");
    check("<f4", &[2], &f32_le(&[0.0001, 0.01]), "[0.0001 0.01  ]");
    check("<f8", &[1], &f64_le(&[9.9e-5]), "[9.9e-05]");
    check("<f8", &[2], &f64_le(&[1000.0, 1.0]), "[1000.    1.]");
    check("<f8", &[2], &f64_le(&[1001.0, 1.0]), "[1.001e+03 1.000e+00]");
    check("<f4", &[2], &f32_le(&[0.1, 12345.678]), "[1.0000000e-01 1.2345678e+04]");
    check("<f8", &[2], &f64_le(&[1e-300, 1e300]), "[1.e-300 1.e+300]");
    check("<f8", &[1], &f64_le(&[5e-324]), "[5.e-324]");
    check("<f8", &[3], &f64_le(&[1e100, f64::NAN, -f64::INFINITY]), "[1.e+100     nan    -inf]");
    check("<f8", &[1], &f64_le(&[10000000000.0]), "[1.e+10]");
    check("<f8", &[1], &f64_le(&[0.999999999]), "[1.]");
    check(
        "<f16",
        &[2],
        b"\0\0\0\0\0\0\0\x80\xff?wTW\x7f\0\0\xab\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xfd?wTW\x7f\0\0",
        "[1.         0.33333333]",
    );
}

#[test]
fn numbers_alone() {
    check("<f4", &[], &f32_le(&[0.1]), "0.1");
    check("<f8", &[], &f64_le(&[0.1]), "0.1");
    check("<f2", &[], b"f.", "0.1");
    check(">f8", &[], &f64_be(&[0.3333333333333333]), "0.3333333333333333");
    check("<f4", &[], &f32_le(&[1.0]), "1.0");
    check("<f4", &[], &f32_le(&[1000000.0]), "1e+06");
    check("<f4", &[], &f32_le(&[999999.0]), "999999.0");
    check("<f8", &[], &f64_le(&[1000000000000000.0]), "1000000000000000.0");
    check("<f8", &[], &f64_le(&[1e16]), "1e+16");
    check("<f8", &[], &f64_le(&[1.5e300]), "1.5e+300");
    check("<f2", &[], b"\xd0c", "1e+03");
    check("<f8", &[], &f64_le(&[1e-5]), "1e-05");
    check("<f8", &[], &f64_le(&[-0.0]), "-0.0");
    check("<f4", &[], &f32_le(&[f32::NAN]), "nan");
    check("<f2", &[], b"\0\xfc", "-inf");
    check("<c16", &[], &f64_le(&[1.0, 2.0]), "(1+2j)");
    check(">c8", &[], &f32_be(&[-1.5, -0.1]), "(-1.5-0.1j)");
    check("<c8", &[], &f32_le(&[0.0, 2.0]), "2j");
    check("<c16", &[], &f64_le(&[f64::NAN, -f64::INFINITY]), "(nan-infj)");
    check("<f16", &[], b"\xab\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xfd?\x81C\xfe\x7f\0\0", "0.33333333333333333334");
}

#[test]
fn complex() {
    check("<c8", &[2], &f32_le(&[1.0, 2.0, -0.0, -0.5]), "[ 1.+2.j  -0.-0.5j]");
    check("<c16", &[2], &f64_le(&[f64::NAN, f64::INFINITY, 1.25, -1e-5]), "[ nan   +infj 1.25-1.e-05j]");
    check(">c16", &[2, 1], &f64_be(&[10000000000.0, 1.0, 2.5, -3.0]), "[[1.0e+10+1.j]\n [2.5e+00-3.j]]");
}

#[test]
fn text() {
    check(
        "|S4",
        &[5],
        b"ab\0\0\0\0\0\0\0\xff\0\0it's\x22'\x5c\x0a",
        "[b'ab' b'' b'\\x00\\xff' b\"it's\" b'\"\\'\\\\\\n']",
    );
    check("|S4", &[], b"ab\0\0", "np.bytes_(b'ab')");
    check("<U4", &[6], b"a\0\0\0b\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0i\0\0\0t\0\0\0'\0\0\0s\0\0\0-N\0\0\0\xf6\x01\0\0\0\0\0\0\0\0\0\xad\0\0\0\x0b \0\0\0\0\0\0\0\0\0\0a\0\0\0\x01\x03\0\0\x0a\0\0\0\x85\0\0\0", "['ab' '' \"it's\" '中😀' '\\xad\\u200b' 'á\\n\\x85']");
    check(">U4", &[6], b"\0\0\0a\0\0\0b\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0i\0\0\0t\0\0\0'\0\0\0s\0\0N-\0\x01\xf6\0\0\0\0\0\0\0\0\0\0\0\0\xad\0\0 \x0b\0\0\0\0\0\0\0\0\0\0\0a\0\0\x03\x01\0\0\0\x0a\0\0\0\x85", "['ab' '' \"it's\" '中😀' '\\xad\\u200b' 'á\\n\\x85']");
    check("<U4", &[], b"a\0\0\0\x0a\0\0\0\0\xf6\x01\0\0\0\0\0", "a\n😀");
    check("|V2", &[2], b"\0aB\xff", "[b'\\x00\\x61' b'\\x42\\xFF']");
    check("|V4", &[], b"\0aB\xff", "b'\\x00\\x61\\x42\\xFF'");
}

#[test]
fn times() {
    check("<M8[Y]", &[2], b"\0\0\0\0\0\0\0\0M\xf8\xff\xff\xff\xff\xff\xff", "['1970' '-001']");
    check("<M8[M]", &[2], b"\xff\xff\xff\xff\xff\xff\xff\xff\x0d\0\0\0\0\0\0\0", "['1969-12' '1971-02']");
    check("<M8[W]", &[2], b"\x01\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", "['1970-01-08' '1969-12-25']");
    check("<M8[2D]", &[2], b"\x08+\0\0\0\0\0\0\0\0\0\0\0\0\0\x80", "['2030-04-28'        'NaT']");
    check("<M8[h]", &[1], b"\xff\xff\xff\xff\xff\xff\xff\xff", "['1969-12-31T23']");
    check("<M8[m]", &[1], b"\0\0\0\0\0\0\0\0", "['1970-01-01T00:00']");
    check("<M8[25s]", &[2], b"\x01\0\0\0\0\0\0\0\0\xca\x9a;\0\0\0\0", "['1970-01-01T00:00:25' '2762-03-21T20:26:40']");
    check("<M8[ms]", &[1], b"\xff\xff\xff\xff\xff\xff\xff\xff", "['1969-12-31T23:59:59.999']");
    check(
        "<M8[ns]",
        &[2],
        b"\x15\xcd\x85=\xfe\x9c\x97\x17\0\0\0\0\0\0\0\0",
        "['2023-11-14T22:13:20.123456789' '1970-01-01T00:00:00.000000000']",
    );
    check("<M8[as]", &[1], b"\xff\xff\xff\xff\xff\xff\xff\xff", "['1969-12-31T23:59:59.999999999999999999']");
    check(
        "<m8[s]",
        &[3],
        b"\x01\0\0\0\0\0\0\0\xec\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\x80",
        "[    1   -20 'NaT']",
    );
    check("<m8", &[2], b"\0\0\0\0\0\0\0\x80\0\0\0\0\0\0\0\x80", "['NaT' 'NaT']");
    check("<m8[7D]", &[], b"\x03\0\0\0\0\0\0\0", "21 days");
    check("<m8", &[], b"\x03\0\0\0\0\0\0\0", "3 generic time units");
    check(">M8[D]", &[], b"\0\0\0\0\0\0J8", "2022-01-08");
    check("<M8[us]", &[], b"\0\0\0\0\0\0\0\x80", "NaT");
}

/// Here numpy raises an exception, or would send control characters to a terminal.
#[test]
fn what_numpy_does_not_show() {
    check("<U2", &[1], b"\0\0\x11\0\0\xd8\0\0", r"['\U00110000\ud800']");
    check("<U3", &[], b"\x1b\0\0\0[\0\0\0\0\xd8\0\0", r"\x1b[\ud800");
    check("<M8", &[2], &numbers(2, |n| (n as i64 + 9).to_le_bytes()), "[ '9' '10']");
}

/// Bytes that are not the array they are said to be.
#[test]
fn misfits_are_shown_as_bytes() {
    check("<i4", &[2], &[1, 2, 3], "[1 2 3]");
    check("<i4", &[], &[], "[]");
    check("<i4", &[u64::MAX, u64::MAX], &[7], "[7]");
    check("<i4", &[u64::MAX, u64::MAX, 0], &[], "[]");
    check("<i4", &[u64::MAX / 4 + 1], &[7], "[7]");
}

/// Every dtype shows arbitrary bytes without a panic.
#[test]
fn any_bytes_are_shown() {
    let dtypes = [
        "|b1", "|i1", "|u1", "<i2", ">u8", "<f2", ">f2", "<f4", "<f8", "<f16", ">f16", "<c8", ">c16", "<c32",
        "<m8[as]", "<M8[Y]", "<M8[M]", "<M8[99W]", ">M8[D]", "<M8[h]", "<M8[as]", "<M8", "|S7", "<U3", ">U3", "|V5",
    ];
    let mut state = 1u64;
    for dtype in dtypes {
        let parsed = DType::parse(dtype).unwrap();
        for round in 0..16 {
            let bytes: Vec<u8> = (0..parsed.itemsize() * 6)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    match round % 4 {
                        0 => 0xff,
                        1 => [0, 0x7f, 0x80, 0xff][(state >> 60) as usize % 4],
                        _ => (state >> 56) as u8,
                    }
                })
                .collect();
            let shown = array(&parsed, &[2, 3], &bytes);
            assert!(shown.starts_with("[[") && shown.ends_with("]]"), "{dtype}: {shown}");
            array(&parsed, &[], &bytes[..parsed.itemsize() as usize]);
        }
    }
}

/// Of a large array only the edges are looked at.
#[test]
fn hidden_items_cost_nothing() {
    let bytes = vec![0; 1 << 28];
    let row = "[0 0 0 ... 0 0 0]";
    let rows = [row, row, row, "...", row, row, row].join("\n ");
    check("|u1", &[1 << 14, 1 << 14], &bytes, &format!("[{rows}]"));
    let mut items = Vec::new();
    collect(&[Axis { len: 1 << 14, cut: true }, Axis { len: 1 << 14, cut: true }], &bytes, 1, &mut items);
    assert_eq!(items.len(), 36);
}
