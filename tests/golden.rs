//! Stores that loaderx 1.5.2 wrote (`tests/golden`), read and appended to. `stores.json` says what each holds.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use zrfs::dataset::{Batch, StreamWriter};
use zrfs::format::header::Note;
use zrfs::format::npy::NpyHeader;
use zrfs::format::{Codec, Header, Kind, Schema};
use zrfs::{Source, Stream, WriterOptions};

/// One golden store and what it must hold.
struct Golden {
    name: String,
    path: PathBuf,
    spec: Value,
    records: Vec<Vec<u8>>,
}

fn goldens() -> Vec<Golden> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let spec: Value = serde_json::from_slice(&fs::read(dir.join("stores.json")).unwrap()).unwrap();
    let golden = |(name, spec): (&String, &Value)| {
        let records = spec["records"].as_array().unwrap().iter().map(|r| unhex(r.as_str().unwrap())).collect();
        Golden { name: name.clone(), path: dir.join("stores").join(name), spec: spec.clone(), records }
    };
    let goldens: Vec<_> = spec.as_object().unwrap().iter().map(golden).collect();
    assert_eq!(goldens.len(), 7, "there are seven golden stores");
    goldens
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn dims(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).collect()
}

fn open(path: &Path) -> Stream {
    match Source::open(path).unwrap() {
        Source::Store(stream) => *stream,
        Source::Dataset(_) => panic!("{} opened as a dataset", path.display()),
    }
}

/// Every way to read gives exactly these records.
fn assert_reads(stream: &Stream, records: &[Vec<u8>], name: &str) {
    let store = stream.store();
    let n = records.len() as u64;
    assert_eq!((stream.len(), stream.is_empty()), (n, n == 0), "{name}");
    let in_order: Vec<u64> = (0..n).collect();
    let reversed: Vec<u64> = (0..n).rev().collect();
    // Each record three times, at distances that make neighbours of far ones.
    let repeated: Vec<u64> = (0..3 * n).map(|i| i * 7 % n).collect();
    let lengths: Vec<u32> = records.iter().map(|r| r.len() as u32).collect();
    assert_eq!(store.lengths(&in_order).unwrap(), lengths, "{name}");
    for indices in [in_order, reversed, repeated] {
        let (bytes, offsets) = store.gather_packed(&indices).unwrap();
        assert_eq!(offsets.len(), indices.len(), "{name}");
        let want: Vec<u8> = indices.iter().flat_map(|&i| records[i as usize].clone()).collect();
        assert_eq!(bytes, want, "{name}");
    }
    for (i, record) in (0..).zip(records) {
        assert_eq!(&store.read(i).unwrap(), record, "{name}: record {i}");
        let mut middle = vec![0; record.len() / 2];
        let n = store.read_range(i, 1, &mut middle).unwrap();
        assert_eq!(middle[..n], record[1..1 + n], "{name}: record {i}");
        assert_eq!(n, (record.len() - 1).min(record.len() / 2), "{name}: record {i}");
    }
    assert!(store.read(n).unwrap_err().to_string().contains(&format!("index {n} ")), "{name}");
}

#[test]
fn every_record_is_read() {
    for Golden { name, path, spec, records } in goldens() {
        let stream = open(&path);
        assert_reads(&stream, &records, &name);
        let schema = stream.schema().unwrap();
        assert_eq!(schema.dtype.as_str(), spec["dtype"], "{name}");
        let codec: Codec = name.split('-').nth(1).unwrap().parse().unwrap();
        assert_eq!((stream.store().codec(), schema.codec), (codec, Some(codec)), "{name}");
        match &schema.kind {
            Kind::Dense { item_shape } => {
                assert_eq!(spec["kind"], "dense", "{name}");
                assert_eq!(*item_shape, dims(&spec["item_shape"]), "{name}");
            }
            Kind::Ragged => assert_eq!(spec["kind"], "ragged", "{name}"),
        }
    }
}

#[test]
fn a_record_behind_its_header_is_an_npy_file() {
    for Golden { name, path, spec, records } in goldens() {
        let stream = open(&path);
        for (i, record) in records.iter().enumerate() {
            let shape = match &spec["shapes"] {
                Value::Null => dims(&spec["item_shape"]),
                shapes => dims(&shapes[i]),
            };
            let header = stream.npy_header(i as u64).unwrap().unwrap();
            assert_eq!(header.len() % 64, 0, "{name}: numpy aligns the data, so that it can be mapped");
            let file = [&header[..], record].concat();
            let parsed = NpyHeader::parse(&file).unwrap();
            assert_eq!(stream.shape(i as u64).unwrap().as_ref(), Some(&shape), "{name}: record {i}");
            assert_eq!(parsed.shape, shape, "{name}: record {i}");
            assert_eq!(parsed.dtype.as_str(), spec["dtype"], "{name}: record {i}");
            assert!(!parsed.fortran, "{name}: record {i}");
            assert_eq!(file[parsed.data_offset as usize..], record[..], "{name}: record {i}");
        }
        let beyond = stream.npy_header(records.len() as u64).unwrap_err().to_string();
        assert!(beyond.contains("out of range"), "{name}: {beyond}");
    }
}

#[test]
fn the_users_keys_are_kept() {
    for Golden { name, path, .. } in goldens() {
        let source = Source::open(&path).unwrap();
        let info = zrfs::info::info(&source);
        if name == "dense-zstd-u1" {
            assert_eq!(info["user"], serde_json::json!({ "note": "kept verbatim", "mean": 0.5 }));
        } else {
            assert_eq!(info.get("user"), None, "{name}");
        }
    }
    // And they survive being written again.
    let golden = goldens().into_iter().find(|g| g.name == "dense-zstd-u1").unwrap();
    let mut bytes = fs::read(golden.path.join("schema.msgpack")).unwrap();
    // Also a text that is none: Python writes the names of files so.
    let note = bytes.windows(4).position(|w| w == b"kept").unwrap();
    bytes[note] = 0xff;
    let (schema, _) = Schema::decode(&bytes[..]).unwrap();
    let (again, _) = Schema::decode(&schema.encode(0)[..]).unwrap();
    assert_eq!(schema, again);
    assert_eq!(schema.extra.len(), 2);
}

#[test]
fn appends_to_a_copy_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    for Golden { name, path, mut records, .. } in goldens() {
        let copy = dir.path().join(&name);
        fs::create_dir(&copy).unwrap();
        for entry in fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
        let before = fs::read(copy.join("meta.zr")).unwrap();
        let schema = open(&path).schema().unwrap().clone();
        let item = schema.record_bytes().unwrap_or(48) as usize;
        // Whatever the options say, the store's own codec holds.
        let mut writer = StreamWriter::open(&copy, WriterOptions::new(Codec::Raw)).unwrap();
        for round in 0..3u8 {
            let new: Vec<Vec<u8>> = (0..5u8).map(|i| (0..item).map(|b| b as u8 ^ round ^ i << 4).collect()).collect();
            let shape = [2, item as u64 / 2 / schema.dtype.itemsize()];
            let shaped: Vec<(&[u64], &[u8])> = new.iter().map(|r| (&shape[..], &r[..])).collect();
            let dense = new.concat();
            let batch = match schema.kind {
                Kind::Dense { .. } => Batch::Dense(&dense),
                Kind::Ragged => Batch::Ragged(&shaped),
            };
            writer.append(&batch).unwrap();
            records.extend(new);
            assert_reads(&open(&copy), &records, &name);
            if schema.kind == Kind::Ragged {
                assert_eq!(open(&copy).shape(records.len() as u64 - 1).unwrap().unwrap(), shape, "{name}");
            }
        }
        assert_eq!(open(&copy).store().codec(), open(&path).store().codec(), "{name}");
        writer.close().unwrap();
        assert_reads(&open(&copy), &records, &name);
        let header = |bytes: &[u8]| Header::decode(bytes).unwrap();
        assert_eq!(header(&before).note, Note::None([0; 10]), "{name}: loaderx leaves no note");
        let after = header(&fs::read(copy.join("meta.zr")).unwrap());
        assert_eq!(after.note, Note::Synced(records.len() as u64), "{name}: the note says what was synced");
    }
}
