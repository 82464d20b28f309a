//! Typed stores and datasets that are written to again, on the real file system.

use super::*;
use crate::format::dtype::DType;
use crate::format::{Codec, DATASET_FILE, SCHEMA_FILE, SHAPES_FILE};
use crate::store::WriterOptions;
use rmpv::Value;
use std::fs;

fn u1() -> DType {
    DType::parse("|u1").unwrap()
}

fn raw() -> WriterOptions {
    WriterOptions::new(Codec::Raw)
}

/// `count` records of one byte: of shape `[1]` or `[1, 1]`, in turn.
fn append_small(writer: &mut RaggedWriter, count: u64) {
    let shapes: [&[u64]; 2] = [&[1], &[1, 1]];
    let first = writer.len();
    let bytes: Vec<u8> = (first..first + count).map(|i| i as u8).collect();
    let records: Vec<(&[u64], &[u8])> =
        bytes.chunks(1).zip(first..).map(|(b, i)| (shapes[i as usize % 2], b)).collect();
    writer.append(&records).unwrap();
}

fn check_small(stream: &Stream, indices: impl IntoIterator<Item = u64>) {
    for i in indices {
        assert_eq!(stream.shape(i).unwrap().unwrap().len() as u64, 1 + i % 2, "record {i}");
        assert_eq!(stream.store().read(i).unwrap(), [i as u8]);
    }
}

/// The schema's keys but the shapes, and the shapes' number, as any msgpack library reads them.
fn keys(path: &Path) -> (Vec<String>, usize) {
    let bytes = fs::read(path.join(SCHEMA_FILE)).unwrap();
    let mut rest = &bytes[..];
    let Value::Map(pairs) = rmpv::decode::read_value(&mut rest).unwrap() else { panic!("no map") };
    assert!(rest.is_empty(), "something follows the schema");
    let shapes = pairs.iter().find(|(key, _)| key.as_str() == Some("shapes")).unwrap().1.as_array().unwrap().len();
    (pairs.iter().map(|(key, _)| key.as_str().unwrap().to_string()).collect(), shapes)
}

/// A reader that is open while the schema is written anew, with a longer length before its list: from no shape, and from
/// shapes that all look alike, so that their bytes tell nothing of where each begins.
#[test]
fn a_reader_follows_a_list_that_grew_wider() {
    let dir = tempfile::tempdir().unwrap();
    for (k, (first, more)) in [(0, 277), (0, 16), (15, 1), (65_530, 10), (0, 65_536)].into_iter().enumerate() {
        let path = dir.path().join(k.to_string());
        let alike = |writer: &mut RaggedWriter, count: usize| {
            writer.append(&vec![(&[1][..], &[7][..]); count]).unwrap();
        };
        let mut writer = RaggedWriter::create(&path, raw(), u1()).unwrap();
        alike(&mut writer, first);
        writer.close().unwrap();
        let reader = Stream::open(&path).unwrap();
        if first > 0 {
            assert_eq!(reader.shape(0).unwrap(), Some(vec![1]));
        }
        let mut writer = RaggedWriter::open(&path, raw()).unwrap();
        alike(&mut writer, more - 1);
        writer.append(&[(&[1, 1], &[8])]).unwrap();
        writer.close().unwrap();
        let last = reader.store().refresh().unwrap() - 1;
        assert_eq!(reader.shape(last).unwrap(), Some(vec![1, 1]), "{first} and {more}");
        for index in 0..last {
            assert_eq!(reader.shape(index).unwrap(), Some(vec![1]), "record {index} of {first} and {more}");
        }
    }
}

#[test]
fn shapes_come_to_the_schema_at_every_width_of_its_list() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    RaggedWriter::create(&path, raw(), u1()).unwrap().close().unwrap();
    let reader = Stream::open(&path).unwrap();
    let mut len = 0;
    for more in [0, 1, 14, 1, 3, 65_516, 1, 300, 40_000] {
        let mut writer = RaggedWriter::open(&path, raw()).unwrap();
        append_small(&mut writer, more);
        len += more;
        // A reader that has the store open finds what comes, also before the writer has closed it.
        assert_eq!(reader.store().refresh().unwrap(), len);
        check_small(&reader, len.saturating_sub(700)..len);
        assert_eq!(path.join(SHAPES_FILE).exists(), more > 0);
        writer.close().unwrap();
        assert!(!path.join(SHAPES_FILE).exists());
        assert_eq!(keys(&path).1 as u64, len);
        check_small(&Stream::open(&path).unwrap(), (0..len).step_by(997).chain(len.saturating_sub(3)..len));
        check_small(&reader, (0..len).step_by(997));
    }
    assert_eq!(Stream::open(&path).unwrap().verify(&Default::default(), &mut |bad| panic!("{bad:?}")).unwrap().bad, 0);
}

#[test]
fn a_foreign_schema_keeps_its_keys_and_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mut writer = RaggedWriter::create(&path, raw(), u1()).unwrap();
    append_small(&mut writer, 20);
    writer.close().unwrap();
    // As loaderx writes it: the user's keys come after the shapes.
    let list = Value::Array((0..20u64).map(|i| Value::Array(vec![1.into(); 1 + i as usize % 2])).collect());
    let pairs: Vec<(Value, Value)> = vec![
        ("format".into(), "loaderx-zrecord".into()),
        ("note".into(), Value::Map(vec![(7.into(), Value::Binary(vec![0, 255]))])),
        ("version".into(), 1.into()),
        ("dtype".into(), "|u1".into()),
        ("kind".into(), "ragged".into()),
        ("shapes".into(), list),
        ("after".into(), Value::F32(0.5)),
    ];
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &Value::Map(pairs)).unwrap();
    fs::write(path.join(SCHEMA_FILE), &bytes).unwrap();
    let mut writer = RaggedWriter::open(&path, raw()).unwrap();
    assert_eq!(fs::read(path.join(SCHEMA_FILE)).unwrap(), bytes, "opening alone changes nothing");
    append_small(&mut writer, 5);
    writer.close().unwrap();
    let order = ["format", "note", "version", "dtype", "kind", "after", "shapes"];
    assert_eq!(keys(&path), (order.map(String::from).to_vec(), 25));
    let stream = Stream::open(&path).unwrap();
    check_small(&stream, 0..25);
    let extra = &stream.schema().unwrap().extra;
    assert_eq!(extra[0].1, Value::Map(vec![(7.into(), Value::Binary(vec![0, 255]))]));
    drop(stream);
    let before = fs::read(path.join(SCHEMA_FILE)).unwrap();
    let mut writer = RaggedWriter::open(&path, raw()).unwrap();
    writer.delete(&[24, 3]).unwrap();
    writer.close().unwrap();
    let after = fs::read(path.join(SCHEMA_FILE)).unwrap();
    let shapes_at = before.windows(6).position(|w| w == b"shapes").unwrap();
    assert_eq!(before[..shapes_at + 6], after[..shapes_at + 6], "all but the list is as it was, byte for byte");
    let stream = Stream::open(&path).unwrap();
    check_small(&stream, (0..23).filter(|&i| i != 3));
    assert_eq!((stream.shape(3).unwrap(), stream.store().read(3).unwrap()), (Some(vec![1, 1]), vec![23]));
}

#[test]
fn a_store_without_a_shape_for_each_record_is_not_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mut writer = RaggedWriter::create(&path, raw(), u1()).unwrap();
    append_small(&mut writer, 3);
    writer.close().unwrap();
    let whole = fs::read(path.join(SCHEMA_FILE)).unwrap();
    append_small(&mut RaggedWriter::open(&path, raw()).unwrap(), 2);
    // What another program did meanwhile: the list is not what the appended shapes continue.
    let mut other = whole.clone();
    let at = other.len() - 8;
    assert_eq!(other[at], 0x93);
    other[at] = 0x92;
    other.truncate(other.len() - 2);
    fs::write(path.join(SCHEMA_FILE), other).unwrap();
    let said = RaggedWriter::open(&path, raw()).unwrap_err().to_string();
    assert!(said.contains("shapes of 2 records, the store has 5"), "{said}");
    let stream = Stream::open(&path).unwrap();
    check_small(&stream, 0..2);
    assert!(stream.shape(4).is_err());
}

#[test]
fn appends_name_what_does_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    let (dense, ragged) = (dir.path().join("d"), dir.path().join("r"));
    let f4 = DType::parse("<f4").unwrap();
    DenseWriter::create(&dense, raw(), f4.clone(), vec![2, 3]).unwrap().close().unwrap();
    RaggedWriter::create(&ragged, raw(), f4.clone()).unwrap().close().unwrap();
    let said = |e: Result<()>| e.unwrap_err().to_string();

    let mut writer = DenseWriter::open(&dense, raw()).unwrap();
    writer.append_array(&f4, &[2, 2, 3], &[7; 48]).unwrap();
    let text = said(writer.append_array(&u1(), &[2, 2, 3], &[7; 12]));
    assert!(text.contains("<f4") && text.contains("|u1"), "{text}");
    let text = said(writer.append_array(&f4, &[4, 3], &[7; 48]));
    assert!(text.contains("[2, 3]") && text.contains("[3]"), "{text}");
    said(writer.append_array(&f4, &[2, 2, 3], &[7; 47]));
    said(writer.append(&[0; 23]));
    writer.delete(&[0]).unwrap();
    assert!(matches!(writer.delete(&[1]), Err(Error::OutOfRange { index: 1, length: 1 })));
    assert_eq!(writer.len(), 1);
    writer.close().unwrap();

    let mut writer = RaggedWriter::open(&ragged, raw()).unwrap();
    writer.append_arrays(&f4, &[(&[2], &[1; 8])]).unwrap();
    said(writer.append_arrays(&u1(), &[(&[8], &[1; 8])]));
    said(writer.append(&[(&[3], &[1; 8])]));
    assert!(matches!(writer.append(&[(&[0], &[])]), Err(Error::RecordLength { length: 0 })));
    writer.close().unwrap();
    assert!(said(DenseWriter::open(&ragged, raw()).map(drop)).contains("not a dense store"));
    assert!(said(RaggedWriter::open(&dense, raw()).map(drop)).contains("not a ragged store"));
    // Bytes alone would leave a ragged record without a shape.
    let mut plain = raw().open(&ragged).unwrap();
    assert!(said(plain.append(&[b"x"]).map(drop)).contains("RaggedWriter"));
    assert!(said(plain.delete(&[0])).contains("RaggedWriter"));
    assert_eq!(plain.len(), 1);
}

#[test]
fn a_rollback_takes_shapes_back_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mut writer = RaggedWriter::create(&path, raw(), u1()).unwrap();
    for round in 0..3 {
        let mark = writer.mark();
        writer.append(&[(&[1, 1, 1], b"x"), (&[1, 1, 1], b"y")]).unwrap();
        if round == 1 {
            writer.sync().unwrap();
        }
        writer.rollback(mark).unwrap();
        append_small(&mut writer, 3);
    }
    check_small(&Stream::open(&path).unwrap(), 0..9);
    writer.close().unwrap();
    check_small(&Stream::open(&path).unwrap(), 0..9);
}

#[test]
fn a_dataset_is_changed_wholly_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    fs::create_dir(&path).unwrap();
    DenseWriter::create(&path.join("a"), raw(), u1(), vec![2]).unwrap().close().unwrap();
    raw().create(path.join("b")).unwrap().close().unwrap();
    let mut writer = DatasetWriter::open(&path, &raw()).unwrap();
    assert!(matches!(DatasetWriter::open(&path, &raw()), Err(Error::Locked { .. })));
    let (a, b): (&[u8], [&[u8]; 2]) = (&[1, 1, 2, 2], [b"one", b"two"]);
    writer.append(&[("a", Batch::Dense(a)), ("b", Batch::Bytes(&b))]).unwrap();
    for wrong in [
        &[("a", Batch::Dense(a))][..],
        &[("a", Batch::Dense(a)), ("b", Batch::Bytes(&b[..1]))],
        &[("a", Batch::Dense(&a[..3])), ("b", Batch::Bytes(&b))],
        &[("a", Batch::Dense(a)), ("b", Batch::Dense(a))],
        &[("a", Batch::Dense(a)), ("b", Batch::Bytes(&[b"", b"x"]))],
        &[("a", Batch::Dense(a)), ("c", Batch::Bytes(&b))],
        &[("a", Batch::Dense(a)), ("b", Batch::Bytes(&b)), ("b", Batch::Bytes(&b))],
    ] {
        writer.append(wrong).unwrap_err();
        assert_eq!(writer.len(), 2);
    }
    // A reader of one stream alone keeps a deletion from all of them.
    let reader = Stream::open(path.join("b")).unwrap();
    assert!(matches!(writer.delete(&[0]), Err(Error::Locked { .. })));
    drop(reader);
    let before = Dataset::open_with(&OpenOptions::new(), &path).unwrap();
    assert_eq!((before.len(), path.join(DATASET_FILE).exists()), (2, true));
    writer.append(&[("a", Batch::Dense(&[3, 3])), ("b", Batch::Bytes(&[b"three"]))]).unwrap();
    assert_eq!(before.len(), 2);
    assert_eq!(before.refresh().unwrap(), 3);
    drop(before);
    writer.delete(&[0]).unwrap();
    writer.close().unwrap();
    assert!(!path.join(DATASET_FILE).exists());
    let dataset = Dataset::open_with(&OpenOptions::new(), &path).unwrap();
    let read = |name: &str, i| dataset.stream(name).unwrap().store().read(i).unwrap();
    assert_eq!((dataset.len(), read("a", 0), read("b", 0)), (2, vec![3, 3], b"three".to_vec()));
    drop(dataset);
    // One stream alone became longer, and no writer of the dataset was at it.
    let mut alone = raw().open(path.join("b")).unwrap();
    alone.append(&[b"x"]).unwrap();
    alone.close().unwrap();
    assert!(matches!(Dataset::open_with(&OpenOptions::new(), &path), Err(Error::Corrupt { .. })));
    assert!(matches!(DatasetWriter::open(&path, &raw()), Err(Error::Corrupt { .. })));
}

/// Storage calls of opening a ragged store of `len` records, appending ten, and closing it.
fn calls_of_an_append(len: u64) -> u64 {
    let sim = crate::storage::sim::Sim::new();
    let options = || raw().storage(Arc::new(sim.clone()));
    let mut writer = RaggedWriter::create(Path::new("s"), options(), u1()).unwrap();
    append_small(&mut writer, len);
    writer.close().unwrap();
    let before = sim.calls();
    let mut writer = RaggedWriter::open(Path::new("s"), options()).unwrap();
    append_small(&mut writer, 10);
    writer.close().unwrap();
    sim.calls() - before
}

#[test]
fn appending_costs_what_is_appended() {
    assert_eq!(calls_of_an_append(3_000), calls_of_an_append(60_000));
}

/// `cargo test --lib measure_appends -- --ignored --nocapture`
#[test]
#[ignore = "measures, takes half a minute and proves nothing"]
fn measure_appends() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = dir.path().join("s");
    let mut writer = RaggedWriter::create(&path, raw(), u1()).unwrap();
    for target in [10_000, 1_000_000, 10_000_000] {
        while writer.len() < target {
            let more = (target - writer.len()).min(100_000);
            append_small(&mut writer, more);
        }
        writer.close().unwrap();
        let start = std::time::Instant::now();
        let stream = Stream::open(&path).unwrap();
        let opened = start.elapsed();
        drop(stream);
        let start = std::time::Instant::now();
        writer = RaggedWriter::open(&path, raw()).unwrap();
        append_small(&mut writer, 10);
        writer.close().unwrap();
        println!("{target} records: a reader opens in {opened:?}; open + append 10 + close {:?}", start.elapsed());
        writer = RaggedWriter::open(&path, raw()).unwrap();
    }
    let start = std::time::Instant::now();
    writer.delete(&[5]).unwrap();
    println!("{} records: a deletion takes {:?}", writer.len(), start.elapsed());
}

#[test]
fn a_mount_is_told_from_a_store() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join(".zrfs")).unwrap();
    let error = || Source::open(dir.path()).unwrap_err().to_string();
    assert!(error().contains("no meta.zr"), "{}", error());
    fs::write(dir.path().join(".zrfs/info.json"), "{}").unwrap();
    assert!(error().contains("is a mount of one; give the store itself"), "{}", error());
}

#[test]
fn the_number_of_dimensions_is_known_where_all_have_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mut writer = RaggedWriter::create(&path, raw(), u1()).unwrap();
    let one: (&[u64], &[u8]) = (&[2, 2], &[1, 2, 3, 4]);
    writer.append(&[one; 40]).unwrap();
    writer.close().unwrap();
    let stream = Stream::open(&path).unwrap();
    assert_eq!([0, 40].map(|length| stream.dimensions(length).unwrap()), [None, Some(2)]);
    // Another reader, and this one, when some were appended.
    let dimensions = |length| [&stream, &Stream::open(&path).unwrap()].map(|stream| stream.dimensions(length).unwrap());
    let mut writer = RaggedWriter::open(&path, raw()).unwrap();
    writer.append(&[one; 300]).unwrap();
    writer.sync().unwrap();
    assert_eq!(dimensions(340), [Some(2); 2]);
    writer.append(&[(&[4], &[1, 2, 3, 4])]).unwrap();
    writer.close().unwrap();
    assert_eq!(dimensions(341), [None; 2]);
    assert!(stream.dimensions(342).is_err());
    let mut writer = DenseWriter::create(&dir.path().join("d"), raw(), u1(), vec![3, 1, 2]).unwrap();
    writer.append(&[0; 6]).unwrap();
    writer.close().unwrap();
    assert_eq!(Stream::open(dir.path().join("d")).unwrap().dimensions(1).unwrap(), Some(3));
}
