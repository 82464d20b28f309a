//! The examples in docs/FORMAT.md, decoded by the code.

use zrfs::format::header::Note;
use zrfs::format::schema::Schema;
use zrfs::format::sums::{Head, NO_SUM, offset_of, sum_of};
use zrfs::format::{Codec, Entry, Header, Kind};

/// The bytes of the page's block ```` ```hex NAME ````.
fn example(name: &str) -> Vec<u8> {
    let page = include_str!("../docs/FORMAT.md");
    let start = page.find(&format!("```hex {name}\n")).unwrap_or_else(|| panic!("FORMAT.md has no example {name}"));
    let block = page[start..].lines().skip(1).take_while(|line| *line != "```");
    let digits: Vec<u32> = block.flat_map(str::chars).filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

#[test]
fn header() {
    let header = Header { tail_offset: 80, length: 7, ..Header::new(Codec::Raw) };
    assert_eq!(Header::decode(&example("header")), Ok(header));
    assert_eq!(header.encode().to_vec(), example("header"));
}

#[test]
fn noted() {
    let header = Header { tail_offset: 80, length: 7, note: Note::Synced(7), ..Header::new(Codec::Raw) };
    assert_eq!(Header::decode(&example("noted")), Ok(header));
    assert_eq!(header.encode().to_vec(), example("noted"));
}

#[test]
fn sums() {
    let bytes = example("sums");
    let head = Head::decode(bytes.first_chunk().unwrap()).unwrap();
    assert_eq!(head.doubtful, 1);
    assert_eq!(head.until, std::time::UNIX_EPOCH + std::time::Duration::new(1_798_761_600, 500_000_000));
    assert_eq!(head.encode(), bytes[..32]);
    for (i, sum) in [sum_of(crc32fast::hash(b"first")), sum_of(crc32fast::hash(b"second")), NO_SUM].iter().enumerate() {
        let at = offset_of(i as u64) as usize;
        assert_eq!(bytes[at..at + 4], sum.to_le_bytes());
    }
}

#[test]
fn entry() {
    let entry = Entry { offset: 4096, phys_length: 300, logic_length: 784, chunk_id: 2 };
    assert_eq!(entry.encode().to_vec(), example("entry"));
}

#[test]
fn schema() {
    let bytes = example("schema");
    let (schema, shapes) = Schema::decode(&bytes[..]).unwrap();
    assert_eq!(shapes, None);
    assert_eq!(schema.kind, Kind::Dense { item_shape: vec![3] });
    assert_eq!((schema.dtype.as_str(), schema.codec), ("<f4", Some(Codec::Raw)));
    assert_eq!(schema.encode(0), bytes);
}

#[test]
fn shapes() {
    use zrfs::format::shapes::{Base, BlockHead, HEAD_LEN};
    let bytes = example("shapes");
    let (head, block) = bytes.split_first_chunk::<HEAD_LEN>().unwrap();
    let base = Base { end: 90, count: 2, start_crc: 0x1122_3344, tail_crc: 0x5566_7788 };
    assert_eq!((Base::decode(head), base.encode()), (Some(base), head.to_vec()));
    let mut shapes = Vec::new();
    [&[3, 4][..], &[5]].iter().for_each(|shape| zrfs::format::schema::encode_shape(shape, &mut shapes));
    assert_eq!(BlockHead::encode(2, 2, &shapes), block);
}

#[test]
fn dataset() {
    use zrfs::format::dataset::Intent;
    let intent = Intent::Delete { length: 9, indices: vec![7, 3] };
    assert_eq!(Intent::decode(&example("dataset")), Some(intent.clone()));
    assert_eq!(intent.encode(), example("dataset"));
}

/// The tables of the tree index name each field's place; a tree that is written has them there.
#[test]
fn tree() {
    use zrfs::storage::Disk;
    use zrfs::tree::{Meta, Mtime, TreeBuilder};
    let dir = tempfile::tempdir().unwrap();
    let meta = Meta { mode: 0o755, mtime: Mtime { secs: 5, nanos: 6 }, uid: 7, gid: 8 };
    let mut builder = TreeBuilder::new(dir.path(), meta, 4 << 20).unwrap();
    let root = builder.root();
    builder.file(root, b"file", meta, 3, 9_000_000).unwrap();
    builder.bind((1, 2));
    let path = dir.path().join("tree.zr");
    builder.finish(&Disk::default(), &path).unwrap();
    let bytes = std::fs::read(path).unwrap();

    let page = include_str!("../docs/FORMAT.md");
    let page = &page[page.find("## tree.zr").unwrap()..];
    let field = |table: &str, name: &str| -> u64 {
        let table = &page[page.find(table).unwrap()..];
        let row = table.lines().find(|line| line.contains(&format!("| {name} |"))).unwrap();
        let number = |k: usize| row.split('|').nth(k).unwrap().trim().parse::<usize>().unwrap();
        let base = if table.starts_with("Node,") { bytes.len() - 64 } else { 0 };
        let at = base + number(1);
        bytes[at..at + number(2)].iter().rev().fold(0, |value, &b| value << 8 | u64::from(b))
    };
    for (name, want) in [
        ("version", 1),
        ("piece_bytes", 4 << 20),
        ("node_count", 2),
        ("heap_offset", 128),
        ("heap_len", 4),
        ("nodes_offset", 192),
        ("file_count", 1),
        ("dir_count", 1),
        ("symlink_count", 0),
        ("total_bytes", 9_000_000),
        ("record_count", 6),
        ("data_chunk", 1),
        ("data_offset", 2),
        ("crc32", u64::from(crc32fast::hash(&bytes[..124]))),
    ] {
        assert_eq!(field("Header:\n", name), want, "{name}");
    }
    for (name, want) in [
        ("name_off", 0),
        ("name_len", 4),
        ("kind", 2),
        ("mode", 0o755),
        ("mtime_s", 5),
        ("mtime_ns", 6),
        ("nlink", 1),
        ("uid", 7),
        ("gid", 8),
        ("parent", 0),
        ("first", 3),
        ("size", 9_000_000),
    ] {
        assert_eq!(field("Node, named by its position:\n", name), want, "{name}");
    }
}
