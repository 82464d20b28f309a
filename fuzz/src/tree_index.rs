//! Any bytes as a tree index: open it, check it, walk it.
//!
//! Checksums would stop nearly every input at the door, so all but the raw ones are put together here: a byte 0 for raw;
//! else piece_bytes u32, record_count u32, the length of the names u16, the names, and nodes of 64 bytes, whose
//! checksums and the header are made to match.

use super::{Memory, take};
use std::path::Path;
use zrfs::format::tree::{Header, Kind, NODE_LEN, NodeRecord};
use zrfs::tree::{NodeKind, Tree};

/// Takes any bytes.
pub fn target(data: &[u8]) {
    let Some((&how, data)) = data.split_first() else { return };
    let bytes = if how == 0 { Some(data.to_vec()) } else { assemble(data) };
    let Some(bytes) = bytes else { return };
    let path = Path::new("/tree.zr");
    let mut files = Memory::default();
    files.put(path, &bytes);
    let Ok(tree) = Tree::open(&files, path) else { return };
    let whole = tree.verify().is_ok();
    for id in 0..tree.node_count() {
        let node = tree.node(id);
        assert!(node.is_ok() || !whole, "verified, but node {id}: {node:?}");
        let Ok(node) = node else { continue };
        if let Ok(path) = tree.path_of(id) {
            match tree.resolve(&path) {
                Ok(found) => assert!(found == Some(id) || !whole, "node {id} resolves to {found:?}"),
                Err(e) => assert!(!whole, "{e}"),
            }
        }
        match &node.kind {
            NodeKind::Dir { children } => {
                assert!(children.start > id || children.is_empty());
                let listed = tree.list(id, 0).expect("a directory lists").filter(Result::is_ok).count();
                assert!(listed as u64 == children.end - children.start || !whole);
                let _ = tree.lookup(id, b"a");
            }
            NodeKind::File { size, records, .. } => {
                assert!(tree.piece(&node.kind, *size).is_none());
                if *size > 0 {
                    let last = tree.piece(&node.kind, size - 1).expect("the last byte is somewhere");
                    assert!(last.record < tree.summary().records && last.offset < last.len && *records > 0);
                }
            }
            NodeKind::Symlink { target } => assert!(!target.is_empty()),
        }
    }
    assert!(tree.node(tree.node_count()).is_err());
}

fn assemble(mut data: &[u8]) -> Option<Vec<u8>> {
    let piece_bytes = u32::from_le_bytes(take(&mut data, 4).try_into().ok()?);
    let record_count = u32::from_le_bytes(take(&mut data, 4).try_into().ok()?).into();
    let names = u16::from_le_bytes(take(&mut data, 2).try_into().ok()?);
    let heap = take(&mut data, names.into());
    let part = |at: u64, len: u64| -> &[u8] {
        let (from, to) = (at as usize, at.saturating_add(len) as usize);
        heap.get(from..to).unwrap_or_default()
    };
    let (mut nodes, mut files, mut dirs, mut symlinks, mut total) = (Vec::new(), 0, 0, 0, 0u64);
    for (id, bytes) in (0..).zip(data.as_chunks::<NODE_LEN>().0) {
        let node = NodeRecord::decode(bytes).ok()?;
        let mut target = &[][..];
        match node.kind {
            Kind::Dir => dirs += 1,
            Kind::File => (files, total) = (files + 1, total.wrapping_add(node.size)),
            Kind::Alias => files += 1,
            Kind::Symlink => {
                symlinks += 1;
                target = part(node.first, node.size);
            }
        }
        nodes.extend(node.encode(id, part(node.name_off, node.name_len.into()), target));
    }
    let header = Header {
        piece_bytes,
        node_count: (nodes.len() / NODE_LEN) as u64,
        heap_len: heap.len() as u64,
        file_count: files,
        dir_count: dirs,
        symlink_count: symlinks,
        total_bytes: total,
        record_count,
        data_end: (0, 0),
    };
    let mut out = [&header.encode()[..], heap].concat();
    out.resize(header.nodes_offset() as usize, 0);
    out.extend(nodes);
    Some(out)
}
