//! What a batch looks like for each kind of stream.

use super::*;
use crate::buffer::BufferPool;
use crate::loader::{Part, Shape};

#[test]
fn a_batch_of_every_kind_at_once() {
    let stores = Stores::new();
    let loader = Loader::builder()
        .source(stores.open("d.zr"))
        .source(stores.open("r.zr"))
        .source_as("text", stores.open("b.zr"))
        .source_as("both", Arc::new(stores.open("set")))
        .batch(10)
        .workers(1)
        .build()
        .unwrap();
    for batch in loader.iter().take(20) {
        let batch = batch.unwrap();
        let names: Vec<&str> = batch.parts().iter().map(Part::name).collect();
        assert_eq!(names, ["d", "r", "text", "both/x", "both/y"]);
        assert_eq!(batch.len(), 10);
        let total: usize = batch.parts().iter().map(|part| part.bytes().len()).sum();
        assert_eq!(batch.bytes(), total as u64);
        let (dense, ragged, text) = (&batch.parts()[0], batch.part("r").unwrap(), batch.part("text").unwrap());
        assert_eq!((dense.shape(), dense.dtype()), (&Shape::Dense(vec![10, 2]), Some(&dtype("<u2"))));
        assert_eq!((ragged.dtype(), text.dtype()), (Some(&dtype("<i4")), None));
        assert_eq!(text.shape(), &Shape::Bytes);
        assert!(batch.part("z").is_none());
        for (k, &i) in batch.indices().iter().enumerate() {
            assert_eq!(dense.record(k).unwrap(), dense_record(i));
            assert_eq!(dense.record_shape(k).unwrap(), [2]);
            let (shape, bytes) = ragged_record(i);
            assert_eq!((ragged.record(k).unwrap(), ragged.record_shape(k).unwrap()), (&bytes[..], shape));
            assert_eq!(text.record(k).unwrap(), byte_record(i));
            assert_eq!(batch.part("both/y").unwrap().record(k).unwrap(), dense_record(i));
        }
        for part in batch.parts() {
            assert_eq!((part.len(), part.offsets().len()), (10, 11));
            assert_eq!((part.record(10), part.record(usize::MAX)), (None, None));
            assert_eq!(part.record_shape(10), None);
            assert_eq!(part.bytes().as_ptr().align_offset(4096), 0);
        }
    }
}

#[test]
fn only_some_streams() {
    let stores = Stores::new();
    let loader = Loader::builder().source(stores.open("set")).only(["y"]).workers(0).build().unwrap();
    let batch = loader.next().unwrap().unwrap();
    assert_eq!(batch.parts().iter().map(Part::name).collect::<Vec<_>>(), ["y"]);
}

#[test]
fn padding_fills_what_a_record_does_not_have() {
    let stores = Stores::new();
    let loader = Loader::builder().source(stores.open("r.zr")).batch(10).workers(1).build().unwrap();
    let fill = (-1i32).to_le_bytes();
    for batch in loader.iter().take(20) {
        let batch = batch.unwrap();
        let part = &batch.parts()[0];
        let padded = part.padded(&fill).unwrap();
        let most = |d: usize| batch.indices().iter().map(|&i| ragged_record(i).0[d]).max().unwrap() as usize;
        let (rows, columns) = (most(0), most(1));
        assert_eq!(padded.shape, [10, rows as u64, columns as u64]);
        let items: Vec<i32> = padded.bytes.as_chunks::<4>().0.iter().map(|item| i32::from_le_bytes(*item)).collect();
        for (k, &i) in batch.indices().iter().enumerate() {
            let shape = ragged_record(i).0;
            for row in 0..rows {
                for column in 0..columns {
                    let inside = (row as u64) < shape[0] && (column as u64) < shape[1];
                    let wanted =
                        if inside { i as i32 * 100 + row as i32 * shape[1] as i32 + column as i32 } else { -1 };
                    assert_eq!(items[(k * rows + row) * columns + column], wanted, "record {i} at {row}, {column}");
                }
            }
        }
        // Memory that was used before is zeros where zeros are asked for.
        drop(padded);
        let zeros = part.padded(&[]).unwrap();
        let ones: i64 = zeros.bytes.as_chunks::<4>().0.iter().map(|item| i64::from(i32::from_le_bytes(*item))).sum();
        assert_eq!(ones, items.iter().filter(|item| **item != -1).map(|&item| i64::from(item)).sum::<i64>());
        assert!(part.padded(&[1, 2]).unwrap_err().to_string().contains("where an item has 4"));
    }
}

/// A part of these shapes, of bytes 1, 2, 3 ….
fn part(shapes: &[&[u64]]) -> Part {
    let mut offsets = vec![0];
    for shape in shapes {
        offsets.push(offsets.last().unwrap() + shape.iter().product::<u64>());
    }
    let pool = BufferPool::new(1);
    let mut bytes = pool.get(*offsets.last().unwrap() as usize).unwrap();
    (1..).zip(bytes.iter_mut()).for_each(|(n, byte)| *byte = n);
    let shape = Shape::Ragged(shapes.iter().map(|shape| shape.to_vec()).collect());
    Part { name: "p".into(), dtype: Some(Arc::new(dtype("|u1"))), shape, offsets, bytes, padding: pool }
}

#[test]
fn padding_of_odd_shapes() {
    let padded =
        |shapes: &[&[u64]]| part(shapes).padded(&[9]).map(|padded| (padded.shape.clone(), padded.bytes.to_vec()));
    assert_eq!(padded(&[&[2], &[1], &[3]]).unwrap(), (vec![3, 3], vec![1, 2, 9, 3, 9, 9, 4, 5, 6]));
    assert_eq!(padded(&[&[], &[]]).unwrap(), (vec![2], vec![1, 2]));
    assert_eq!(
        padded(&[&[2, 1, 2], &[1, 2, 1]]).unwrap(),
        (vec![2, 2, 2, 2], vec![1, 2, 9, 9, 3, 4, 9, 9, 5, 9, 6, 9, 9, 9, 9, 9])
    );
    // The outermost dimension alone, and the same shapes.
    assert_eq!(padded(&[&[1, 2], &[2, 2]]).unwrap(), (vec![2, 2, 2], vec![1, 2, 9, 9, 3, 4, 5, 6]));
    assert_eq!(padded(&[]).unwrap(), (vec![0], vec![]));
    assert_eq!(padded(&[&[0, 3], &[1, 1]]).unwrap(), (vec![2, 1, 3], vec![9, 9, 9, 1, 9, 9]));
    assert_eq!(padded(&[&[0], &[0]]).unwrap(), (vec![2, 0], vec![]));
    let text = padded(&[&[1], &[1, 1]]).unwrap_err().to_string();
    assert!(text.contains("record 0 of the batch has 1 dimensions, record 1 has 2"), "{text}");
    let huge = part(&[&[1, 0], &[0, 1]]);
    let huge = Part { shape: Shape::Ragged(vec![vec![1 << 40, 0], vec![0, 1 << 40]]), ..huge };
    let text = huge.padded(&[]).unwrap_err().to_string();
    assert!(text.contains("no memory"), "{text}");
}
