#![allow(clippy::indexing_slicing, clippy::unwrap_used)]
use super::*;
use crate::format::dtype::DType;
use crate::pack::array::open_file;
use crate::pack::array::tests::{read_all, temp};
use proptest::prelude::*;

/// The bytes of an array in Fortran order, and of the same array in C order; every item's bytes tell its position.
fn naive(shape: &[u64], itemsize: u64) -> (Vec<u8>, Vec<u8>) {
    let items: u64 = shape.iter().product();
    let item = |n: u64| (0..itemsize).map(move |b| (n * 31 + b * 7 + (n >> 8) * 13) as u8);
    let (mut fortran, mut c) = (vec![0; (items * itemsize) as usize], Vec::new());
    for n in 0..items {
        c.extend(item(n));
        // The index of item n in C order, and where that index is in Fortran order.
        let (mut rest, mut index) = (n, Vec::new());
        for &dim in shape.iter().rev() {
            index.push(rest % dim);
            rest /= dim;
        }
        let (mut at, mut stride) = (0, 1);
        for (&dim, &i) in shape.iter().zip(index.iter().rev()) {
            at += i * stride;
            stride *= dim;
        }
        let at = (at * itemsize) as usize;
        fortran.splice(at..at + itemsize as usize, item(n));
    }
    (fortran, c)
}

fn check(shape: &[u64], dtype: &str, budget: u64, step: u64) {
    let dtype = DType::parse(dtype).unwrap();
    let (mut bytes, c) = naive(shape, dtype.itemsize());
    bytes.splice(..0, *b"head");
    let (_dir, path) = temp("x", &bytes);
    let records = Records::new(dtype, shape).unwrap();
    let mut source = FortranArray::new(open_file(&path).unwrap(), &path, 4, records, budget).unwrap();
    let size = source.records().record_bytes() as usize;
    let mut one = vec![0; size];
    for index in [0, shape[0] / 2, shape[0] - 1] {
        source.read_at(index, &mut one).unwrap();
        assert_eq!(one, c[index as usize * size..][..size], "record {index}");
    }
    assert_eq!(read_all(&mut source, step).unwrap(), c);
}

proptest! {
    #[test]
    fn transposed_as_the_naive_model_does(
        shape in prop::collection::vec(1u64..9, 1..5),
        dtype in prop::sample::select(vec!["|u1", "<i2", ">f4", "<f8", "<c16", "|V3"]),
        budget in 0u64..4000,
        step in 1u64..9,
    ) {
        check(&shape, dtype, budget, step);
    }
}

/// The three ways of reading: all columns at once, rows with their gaps, rows alone.
#[test]
fn every_way_of_reading() {
    check(&[6000, 3, 5], "|u1", 1 << 30, 1000);
    check(&[6000, 70, 3], "|u1", 4000 * 210, 77);
    check(&[6000, 3, 5], "|u1", 100 * 15, 64);
    check(&[9000, 3], "<c16", 10, 5000);
    // Spans of more than one call: 3000 rows of 800 bytes, gaps of 400.
    check(&[200, 60, 50], "<i4", 100 * 3000 * 4, 70);
}
