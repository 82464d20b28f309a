//! The layout of the tree index, byte for byte. The golden vectors were made by another program (Python's `struct` and
//! `zlib.crc32`), so they hold the checksums too.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::arithmetic_side_effects)]

use super::*;

const BUMP: &str = "the layout of tree.zr changed: bump the version, and keep reading this one";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn header() -> Header {
    Header {
        piece_bytes: 4 << 20,
        node_count: 3,
        heap_len: 11,
        file_count: 1,
        dir_count: 1,
        symlink_count: 1,
        total_bytes: 5_000_000,
        record_count: 7,
        data_end: (2, 9),
    }
}

const HEADER: &str = "
    5a52545245450001010000000000400003000000000000008000000000000000
    0b00000000000000c00000000000000001000000000000000100000000000000
    0100000000000000404b4c000000000007000000000000000200000009000000
    00000000000000000000000000000000000000000000000000000000a978d95e";

/// A file of three pieces, setuid, node 1.
const FILE: &str = "
    000000000000000005000200ed09000000f15365000000000100000001000000
    000000000000000000000000869ee1d90400000000000000ffffbf0000000000";

/// A symlink from before 1970, node 2.
const SYMLINK: &str = "
    050000000000000002000300ff010000feffffffffffffffffc99a3b01000000
    e8030000feffffff00000000edbc9f0607000000000000000400000000000000";

fn file() -> NodeRecord {
    let mtime = Mtime { secs: 1_700_000_000, nanos: 1 };
    NodeRecord {
        name_off: 0,
        name_len: 5,
        kind: Kind::File,
        meta: Meta { mode: 0o4755, mtime, uid: 0, gid: 0 },
        nlink: 1,
        parent: 0,
        first: 4,
        size: 3 * (4 << 20) - 1,
    }
}

fn symlink() -> NodeRecord {
    let mtime = Mtime { secs: -2, nanos: 999_999_999 };
    NodeRecord {
        name_off: 5,
        name_len: 2,
        kind: Kind::Symlink,
        meta: Meta { mode: 0o777, mtime, uid: 1000, gid: 0xffff_fffe },
        nlink: 1,
        parent: 0,
        first: 7,
        size: 4,
    }
}

#[test]
fn golden_header() {
    let bytes: [u8; HEADER_LEN] = hex(HEADER).try_into().unwrap();
    assert_eq!(header().encode(), bytes, "{BUMP}");
    assert_eq!(Header::decode(&bytes, 192 + 3 * 64), Ok(header()), "{BUMP}");
    assert_eq!((header().nodes_offset(), header().node_offset(2), header().file_len()), (192, 320, 384));
}

#[test]
fn golden_nodes() {
    for (id, text, record, name, target) in
        [(1, FILE, file(), &b"a.bin"[..], &b""[..]), (2, SYMLINK, symlink(), b"l\xff", b"../a")]
    {
        let bytes: [u8; NODE_LEN] = hex(text).try_into().unwrap();
        assert_eq!(record.encode(id, name, target), bytes, "{BUMP}");
        let decoded = NodeRecord::decode(&bytes).expect(BUMP);
        assert_eq!(decoded, record, "{BUMP}");
        assert_eq!(decoded.validate(id, &header()), Ok(()));
        assert_eq!(check_node(id, &bytes, name, target), Ok(()), "{BUMP}");
        assert!(check_node(id + 1, &bytes, name, target).is_err(), "a node is right at its own place only");
    }
}

/// Sets bytes of the golden header, signs it again and says at which field decoding stops.
fn header_flaw(at: usize, value: &[u8]) -> u64 {
    let mut bytes: [u8; HEADER_LEN] = hex(HEADER).try_into().unwrap();
    bytes[at..at + value.len()].copy_from_slice(value);
    let crc = crc32fast::hash(&bytes[..124]);
    bytes[124..].copy_from_slice(&crc.to_le_bytes());
    Header::decode(&bytes, 384).unwrap_err().at
}

#[test]
fn signed_but_impossible_headers_are_refused() {
    let max = u64::MAX.to_le_bytes();
    assert_eq!(header_flaw(0, b"z"), 0);
    assert_eq!(header_flaw(8, &[2]), 8);
    assert_eq!(header_flaw(12, &0_u32.to_le_bytes()), 12);
    assert_eq!(header_flaw(12, &u32::MAX.to_le_bytes()), 12);
    assert_eq!(header_flaw(16, &0_u64.to_le_bytes()), 16);
    assert_eq!(header_flaw(16, &max), 16);
    assert_eq!(header_flaw(16, &[4]), 16);
    assert_eq!(header_flaw(24, &[129]), 24);
    assert_eq!(header_flaw(32, &max), 40);
    assert_eq!(header_flaw(40, &max), 40);
    assert_eq!(header_flaw(48, &max), 48);
    assert_eq!(header_flaw(56, &[0]), 48);
    assert_eq!(header_flaw(96, &[1]), 96);
    assert_eq!(header_flaw(123, &[1]), 96);
}

#[test]
fn signed_but_impossible_nodes_are_refused() {
    let header = header();
    let dir = NodeRecord { kind: Kind::Dir, name_len: 0, nlink: 2, first: 1, size: 2, ..file() };
    let alias = NodeRecord { kind: Kind::Alias, meta: Meta::default(), nlink: 0, first: 1, size: 0, ..file() };
    assert_eq!(dir.validate(0, &header), Ok(()));
    assert_eq!(alias.validate(2, &header), Ok(()));
    let max = u64::MAX;
    let cases = [
        ("name beyond the heap", 1, NodeRecord { name_off: 7, ..file() }),
        ("name off the scale", 1, NodeRecord { name_off: max, ..file() }),
        ("no name", 1, NodeRecord { name_len: 0, ..file() }),
        ("parent is later", 1, NodeRecord { parent: 1, ..file() }),
        ("root is a file", 0, NodeRecord { name_len: 0, ..file() }),
        ("root with a name", 0, NodeRecord { name_len: 1, ..dir }),
        ("children before the directory", 0, NodeRecord { first: 0, ..dir }),
        ("children beyond the nodes", 0, NodeRecord { size: 3, ..dir }),
        ("children off the scale", 0, NodeRecord { size: max, ..dir }),
        ("no children somewhere", 0, NodeRecord { size: 0, ..dir }),
        ("too few links", 0, NodeRecord { nlink: 1, ..dir }),
        ("too many links", 0, NodeRecord { nlink: 5, ..dir }),
        ("records beyond the store", 1, NodeRecord { first: 5, ..file() }),
        ("records off the scale", 1, NodeRecord { first: max, ..file() }),
        ("size off the scale", 1, NodeRecord { size: max, ..file() }),
        ("empty with a record", 1, NodeRecord { size: 0, ..file() }),
        ("file without a name", 1, NodeRecord { nlink: 0, ..file() }),
        ("target beyond the heap", 2, NodeRecord { first: 8, ..symlink() }),
        ("no target", 2, NodeRecord { size: 0, ..symlink() }),
        ("target off the scale", 2, NodeRecord { size: 4096, ..symlink() }),
        ("symlink with two names", 2, NodeRecord { nlink: 2, ..symlink() }),
        ("alias of a later node", 2, NodeRecord { first: 2, ..alias }),
        ("alias with data", 2, NodeRecord { size: 1, ..alias }),
        ("alias with an owner", 2, NodeRecord { meta: Meta { uid: 1, ..Meta::default() }, ..alias }),
    ];
    for (what, id, record) in cases {
        assert!(record.validate(id, &header).is_err(), "{what}");
    }
    for (at, value) in [(10, 0), (10, 5), (11, 1), (13, 0x10), (15, 1), (27, 0xff)] {
        let mut bytes: [u8; NODE_LEN] = hex(FILE).try_into().unwrap();
        bytes[at] = value;
        assert!(NodeRecord::decode(&bytes).is_err(), "byte {at}");
    }
}

#[test]
fn names() {
    for name in [&b"a"[..], b"...", b"..a", b" ", b"\xff\n", &[b'x'; NAME_MAX]] {
        assert!(name_is_valid(name));
        let bytes = file().encode(1, name, b"");
        assert_eq!(check_node(1, &bytes, name, b""), Ok(()));
    }
    for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0", &[b'x'; NAME_MAX + 1]] {
        assert!(!name_is_valid(name));
        let bytes = file().encode(1, name, b"");
        assert!(check_node(1, &bytes, name, b"").is_err());
    }
    let bytes = symlink().encode(2, b"l", b"a\0b");
    assert!(check_node(2, &bytes, b"l", b"a\0b").is_err());
}
