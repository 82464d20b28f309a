//! What the tests beside PyPI's loaderx share: loaderx itself, and stores in the words of `interop.py`.

#[path = "served.rs"]
pub mod served;

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use zrfs::Stream;
use zrfs::format::Kind;

/// The Python that has loaderx.
pub fn python() -> PathBuf {
    served::python(Path::new(env!("CARGO_MANIFEST_DIR")))
}

/// What zrfs reads, in the words of `interop.py`.
pub fn describe(stream: &Stream) -> Value {
    let schema = stream.schema().unwrap();
    let kind = match schema.kind {
        Kind::Dense { .. } => "dense",
        Kind::Ragged => "ragged",
    };
    let all: Vec<u64> = (0..stream.len()).collect();
    let (batch, offsets) = stream.store().gather_packed(&all).unwrap();
    let record = |(&i, &offset): (&u64, &u64)| {
        let record = stream.store().read(i).unwrap();
        assert_eq!(batch[offset as usize..][..record.len()], record, "a batch differs from single records");
        json!([stream.shape(i).unwrap().unwrap(), record.len(), crc32fast::hash(&record)])
    };
    let records: Vec<Value> = all.iter().zip(&offsets).map(record).collect();
    json!({ "kind": kind, "dtype": schema.dtype.as_str(), "records": records })
}

#[track_caller]
pub fn open(path: &Path) -> Stream {
    Stream::open(path).unwrap_or_else(|e| panic!("{e}"))
}

/// Two descriptions must be equal; the first record that differs is named.
#[track_caller]
pub fn assert_equal(one: &Value, two: &Value, what: &str) {
    let (a, b) = (one["records"].as_array().unwrap(), two["records"].as_array().unwrap());
    assert_eq!((&one["kind"], &one["dtype"], a.len()), (&two["kind"], &two["dtype"], b.len()), "{what}");
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert_eq!(a, b, "{what}: record {i}");
    }
}
