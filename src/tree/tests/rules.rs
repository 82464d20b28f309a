//! What the builder takes, what it refuses, and what becomes of entries that come twice.

use super::*;
use crate::format::tree::NAME_MAX;

#[test]
fn pieces_of_a_file() {
    let (memory, _) = finish(small());
    let tree = memory.open().unwrap();
    let node = tree.node(tree.resolve(b"d/e/a").unwrap().unwrap()).unwrap();
    assert_eq!(tree.piece_bytes(), PIECE);
    for (offset, record, within, len) in [(0, 0, 0, 100), (99, 0, 99, 100), (100, 1, 0, 100), (249, 2, 49, 50)] {
        assert_eq!(tree.piece(&node.kind, offset), Some(Piece { record, offset: within, len }));
    }
    assert_eq!(tree.piece(&node.kind, 250), None);
    assert_eq!(tree.piece(&node.kind, u64::MAX), None);
    assert_eq!(tree.piece(&tree.node(0).unwrap().kind, 0), None);
    let empty = tree.node(tree.resolve(b"empty").unwrap().unwrap()).unwrap();
    assert_eq!(empty.kind, NodeKind::File { first: 0, records: 0, size: 0 });
    assert_eq!(tree.piece(&empty.kind, 0), None);
}

#[test]
fn an_overwritten_file_lives_on_at_its_links() {
    let mut b = builder();
    let root = b.root();
    let old = b.file(root, b"m", meta(2), 0, 100).unwrap();
    let x = b.hardlink(root, b"x", old).unwrap();
    b.hardlink(root, b"c", x).unwrap();
    b.file(root, b"m", meta(3), 1, 50).unwrap();
    b.set_meta(x, meta(9)).unwrap();
    let (memory, summary) = finish(b);
    assert_eq!((summary.files, summary.total_bytes, summary.records), (3, 150, 2));
    let tree = memory.open().unwrap();
    let at = |name: &[u8]| tree.node(tree.lookup(0, name).unwrap().unwrap()).unwrap();
    let (c, m, x) = (at(b"c"), at(b"m"), at(b"x"));
    assert_eq!((m.meta, m.nlink, m.ino), (meta(3), 1, m.id));
    assert_eq!((c.ino, x.ino, c.nlink, x.nlink), (c.id, c.id, 2, 2));
    assert_eq!((c.meta, x.meta), (meta(9), meta(9)));
    assert_eq!(c.kind, NodeKind::File { first: 0, records: 1, size: 100 });
    assert_eq!(x.kind, c.kind);
}

#[test]
fn a_directory_that_lost_takes_its_files_along() {
    let mut b = builder();
    let root = b.root();
    let first = b.dir(root, b"d", meta(2)).unwrap();
    b.file(first, b"gone", meta(3), 0, 1).unwrap();
    b.symlink(root, b"d", meta(4), b"elsewhere").unwrap();
    let second = b.dir(root, b"d", meta(5)).unwrap();
    b.file(second, b"old", meta(6), 1, 1).unwrap();
    let third = b.dir(root, b"d", meta(7)).unwrap();
    b.file(third, b"new", meta(8), 2, 1).unwrap();
    // Late, to a directory that is one with the third by now.
    b.file(second, b"late", meta(9), 3, 1).unwrap();
    let (memory, summary) = finish(b);
    let tree = memory.open().unwrap();
    let names: Vec<Vec<u8>> = tree.list(1, 0).unwrap().map(|n| n.unwrap().name).collect();
    assert_eq!(names, [b"late".to_vec(), b"new".to_vec(), b"old".to_vec()]);
    assert_eq!(tree.node(1).unwrap().meta, meta(7));
    assert_eq!((summary.nodes, summary.symlinks, summary.records), (5, 0, 4));
    tree.verify().unwrap();
}

#[test]
fn the_builder_refuses_what_no_tree_holds_and_goes_on() {
    let dir = std::env::temp_dir();
    assert!(TreeBuilder::new(&dir, meta(0), 0).is_err());
    assert!(TreeBuilder::new(&dir, meta(0), (1 << 31) + 1).is_err());
    let mut b = builder();
    let root = b.root();
    let file = b.file(root, b"f", meta(1), 0, 1).unwrap();
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; NAME_MAX + 1]] {
        assert!(matches!(b.file(root, name, meta(1), 0, 1), Err(Error::Invalid(_))));
        assert!(b.dir(root, name, meta(1)).is_err());
    }
    let odd = Meta { mtime: Mtime { secs: 0, nanos: 1_000_000_000 }, ..meta(1) };
    assert!(b.file(root, b"g", odd, 0, 1).is_err());
    assert!(b.set_meta(file, odd).is_err());
    assert!(b.file(file, b"g", meta(1), 0, 1).is_err());
    assert!(b.file(root, b"g", meta(1), u64::MAX, 1).is_err());
    assert!(b.file(root, b"g", meta(1), 0, u64::MAX).is_err());
    assert!(b.symlink(root, b"g", meta(1), b"").is_err());
    assert!(b.symlink(root, b"g", meta(1), b"a\0").is_err());
    assert!(b.symlink(root, b"g", meta(1), &[b'x'; 4096]).is_err());
    assert!(b.hardlink(root, b"g", root).is_err());
    b.symlink(root, b"s", Meta { mode: 0xffff, ..meta(1) }, &[b'x'; 4095]).unwrap();
    let (memory, summary) = finish(b);
    assert_eq!((summary.nodes, summary.records, summary.total_bytes), (3, 1, 1));
    let tree = memory.open().unwrap();
    assert_eq!(tree.node(2).unwrap().meta.mode, 0o7777);
    assert!(matches!(tree.node(3), Err(Error::Invalid(_))));
    assert!(matches!(tree.node(u64::MAX), Err(Error::Invalid(_))));
    let again = builder().finish(&memory, Path::new("tree.zr"));
    assert!(matches!(again, Err(Error::Exists { .. })));
}

#[test]
fn the_deepest_path() {
    let mut b = builder();
    let mut at = b.root();
    for _ in 0..DEPTH_MAX {
        at = b.dir(at, b"d", meta(1)).unwrap_or(at);
    }
    assert!(b.dir(at, b"d", meta(1)).is_err());
    b.file(at, b"f", meta(1), 0, 1).unwrap();
    let (memory, summary) = finish(b);
    let tree = memory.open().unwrap();
    let path = tree.path_of(summary.nodes - 1).unwrap();
    assert_eq!(tree.resolve(&path).unwrap(), Some(summary.nodes - 1));
    tree.verify().unwrap();
}
