//! Damaged and forged trees.

use super::*;
use crate::format::tree::{Kind, NODE_LEN, NodeRecord};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Damage that someone signed: checksums are right again, so only the checks of each field are left.
    #[test]
    fn forged_bytes_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let (memory, summary) = finish(small());
        let mut bytes = memory.bytes();
        let nodes = bytes.len() - summary.nodes as usize * NODE_LEN;
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = if value % 3 == 0 { 0 } else { value };
        }
        let crc = crc32fast::hash(&bytes[..124]);
        bytes[124..128].copy_from_slice(&crc.to_le_bytes());
        let heap = bytes[128..nodes].to_vec();
        let part = |at: u64, len: u64| heap.get(at as usize..at.saturating_add(len) as usize);
        for id in 0..summary.nodes {
            let at = nodes + id as usize * NODE_LEN;
            let node: &mut [u8; NODE_LEN] = bytes[at..].first_chunk_mut().unwrap();
            let Ok(record) = NodeRecord::decode(node) else { continue };
            let Some(name) = part(record.name_off, record.name_len.into()) else { continue };
            let symlink = node[10] == 3;
            let Some(target) = (if symlink { part(record.first, record.size) } else { Some(&[][..]) }) else { continue };
            *node = record.encode(id, name, target);
        }
        if let Ok(tree) = Memory::with(&bytes).open() {
            let _ = tree.verify();
            for id in 0..tree.node_count() {
                let _ = (tree.node(id), tree.path_of(id), tree.lookup(id, b"a"), tree.lookup(id, b"zz"));
                if let Ok(list) = tree.list(id, 0) {
                    list.for_each(drop);
                }
                if let Ok(Node { kind, .. }) = tree.node(id) {
                    let _ = (tree.piece(&kind, 0), tree.piece(&kind, u64::MAX), tree.piece(&kind, 150));
                }
            }
            let _ = tree.resolve(b"d/e/a");
        }
    }
}

#[test]
fn every_flipped_byte_is_noticed_or_harmless() {
    let (memory, summary) = finish(small());
    let good = walk(&memory.open().unwrap()).unwrap();
    assert_eq!(good.len() as u64, summary.nodes);
    let bytes = memory.bytes();
    let mut unnoticed = Vec::new();
    for at in 0..bytes.len() {
        for pattern in [0x01, 0x02, 0x10, 0x40, 0x80, 0x55, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= pattern;
            match Memory::with(&bytes).open().and_then(|tree| walk(&tree)) {
                Ok(found) => {
                    assert_eq!(found, good, "byte {at} ^ {pattern:#x} changed what the tree says");
                    unnoticed.push(at);
                }
                Err(Error::Corrupt { path, reason, .. }) => {
                    assert_eq!(path, Path::new("tree.zr"));
                    assert!(!reason.is_empty());
                }
                Err(Error::Invalid(reason)) => assert!((8..12).contains(&at), "byte {at}: {reason}"),
                Err(other) => panic!("byte {at}: {other}"),
            }
        }
    }
    // Only the zeros between the names and the nodes mean nothing.
    unnoticed.dedup();
    let heap_end = 128 + good.iter().map(|(_, node)| node.name.len() + link_len(node)).sum::<usize>();
    assert_eq!(unnoticed, (heap_end..bytes.len() - summary.nodes as usize * NODE_LEN).collect::<Vec<_>>());
}

fn link_len(node: &Node) -> usize {
    if let NodeKind::Symlink { target } = &node.kind { target.len() } else { 0 }
}

#[test]
fn every_truncation_and_extension_is_refused() {
    let bytes = finish(small()).0.bytes();
    for len in 0..bytes.len() {
        assert!(matches!(Memory::with(&bytes[..len]).open(), Err(Error::Corrupt { .. })), "{len} bytes");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(Memory::with(&longer).open(), Err(Error::Corrupt { .. })));
    // A file that shrinks once it is open.
    let memory = Memory::with(&bytes);
    let tree = memory.open().unwrap();
    memory.0.lock().unwrap().as_mut().unwrap().truncate(bytes.len() - 1);
    assert!(matches!(tree.node(0), Err(Error::Corrupt { .. })));
}

/// The small tree with node `id` changed and signed again.
fn forged(id: u64, change: impl FnOnce(&mut NodeRecord)) -> Tree {
    let (memory, summary) = finish(small());
    let mut bytes = memory.bytes();
    let nodes = bytes.len() - summary.nodes as usize * NODE_LEN;
    let at = nodes + id as usize * NODE_LEN;
    let mut record = NodeRecord::decode(bytes[at..].first_chunk().unwrap()).unwrap();
    change(&mut record);
    let part = |at: u64, len: u64| bytes[128 + at as usize..][..len as usize].to_vec();
    let name = part(record.name_off, record.name_len.into());
    let target = if record.kind == Kind::Symlink { part(record.first, record.size) } else { Vec::new() };
    bytes[at..at + NODE_LEN].copy_from_slice(&record.encode(id, &name, &target));
    Memory::with(&bytes).open().unwrap()
}

fn is_damaged<T>(result: Result<T>) -> bool {
    match result {
        Err(Error::Corrupt { offset, .. }) => offset >= 128,
        _ => false,
    }
}

/// What only two nodes together can contradict; each is right on its own and signed.
#[test]
fn nodes_that_contradict_each_other_are_refused() {
    let tree = finish(small()).0.open().unwrap();
    let id = |path: &[u8]| tree.resolve(path).unwrap().unwrap();
    let (d, e, a, void, empty) = (id(b"d"), id(b"d/e"), id(b"d/e/a"), id(b"d/e/void"), id(b"empty"));
    let (also, link) = (id(b"also\na"), id(b"d/link"));
    // "also\na" comes first in breadth-first order, so it has the file and "d/e/a" is the alias.
    assert_eq!((tree.node(a).unwrap().ino, tree.node(also).unwrap().nlink), (also, 2));
    assert_eq!((d, e, link, a, void), (2, 5, 6, 7, 8));

    let stray = forged(a, |node| node.parent = d as u32);
    assert!(is_damaged(stray.list(e, 0).unwrap().collect::<Result<Vec<_>>>()));
    assert!(is_damaged(stray.lookup(e, b"a")));
    assert!(is_damaged(stray.resolve(b"d/e/a")));
    assert!(is_damaged(stray.path_of(a)));
    assert!(is_damaged(stray.verify()));

    let in_a_file = forged(a, |node| node.parent = empty as u32);
    assert!(is_damaged(in_a_file.path_of(a)));

    let overlapping = forged(d, |node| (node.first, node.size) = (6, 2));
    assert!(is_damaged(overlapping.list(d, 0).unwrap().collect::<Result<Vec<_>>>()));
    assert!(is_damaged(overlapping.path_of(e)));
    assert!(is_damaged(overlapping.verify()));

    let no_file = forged(a, |node| node.first = d);
    assert!(is_damaged(no_file.node(a)));
    assert!(is_damaged(no_file.list(e, 0).unwrap().collect::<Result<Vec<_>>>()));
    assert!(is_damaged(no_file.verify()));

    // Both named "empty": the second "empty" does not come after the first.
    let first = tree.heap_place(empty);
    let unsorted = forged(empty + 1, |node| (node.name_off, node.name_len) = first);
    let listed: Vec<Result<Node>> = unsorted.list(0, 0).unwrap().collect();
    assert!(is_damaged(listed.into_iter().collect::<Result<Vec<_>>>()));
    assert!(is_damaged(unsorted.verify()));

    for id in [0, e, also] {
        assert!(forged(id, |node| node.nlink -= 1).verify().is_err(), "links of node {id}");
    }
    assert!(is_damaged(forged(d, |node| node.nlink += 1).verify()));
    assert!(forged(also, |node| node.size -= 1).verify().is_err());
    assert!(forged(link, |node| node.first -= 1).verify().is_err());
}

impl Tree {
    fn heap_place(&self, id: u64) -> (u64, u16) {
        let record = View::new(self).record(id).unwrap();
        (record.name_off, record.name_len)
    }
}

#[test]
fn a_newer_version_is_named() {
    let mut bytes = finish(small()).0.bytes();
    bytes[8] = 2;
    let error = Memory::with(&bytes).open().unwrap_err().to_string();
    assert!(error.contains("tree.zr") && error.contains("version 2"), "{error}");
}
