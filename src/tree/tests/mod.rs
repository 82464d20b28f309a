//! The builder and the reader together: against a model, against damage, and at a million files.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::arithmetic_side_effects)]

mod damage;
mod memory;
mod model;
mod rules;
mod size;

use super::*;
use memory::Memory;

const PIECE: u32 = 100;

fn builder() -> TreeBuilder {
    TreeBuilder::new(&std::env::temp_dir(), meta(1), PIECE).unwrap()
}

fn meta(n: u16) -> Meta {
    let n32 = u32::from(n);
    let mtime = Mtime { secs: i64::from(n) * 1000 - 7000, nanos: n32 * 1001 % 1_000_000_000 };
    Meta { mode: n & 0o7777, mtime, uid: n32 + 1, gid: u32::MAX - n32 }
}

fn finish(builder: TreeBuilder) -> (Memory, Summary) {
    let memory = Memory::default();
    let summary = builder.finish(&memory, Path::new("tree.zr")).unwrap();
    (memory, summary)
}

/// Everything a tree says, reached in every way there is, and the ways compared.
fn walk(tree: &Tree) -> Result<Vec<(Vec<u8>, Node)>> {
    let mut found = Vec::new();
    let mut todo = vec![(Vec::new(), tree.node(0)?)];
    while let Some((path, node)) = todo.pop() {
        assert_eq!(tree.node(node.id)?, node);
        assert_eq!(tree.path_of(node.id)?, path);
        assert_eq!(tree.resolve(&path)?, Some(node.id));
        if let NodeKind::Dir { children } = &node.kind {
            assert_eq!(tree.children(node.id)?, *children);
            for (child, id) in tree.list(node.id, 0)?.zip(children.clone()) {
                let child = child?;
                assert_eq!((child.id, child.parent), (id, node.id));
                assert_eq!(tree.lookup(node.id, &child.name)?, Some(id));
                let path = if path.is_empty() { child.name.clone() } else { [&path[..], &child.name].join(&b'/') };
                todo.push((path, child));
            }
        }
        found.push((path, node));
    }
    tree.verify()?;
    Ok(found)
}

/// A tree with one of everything.
fn small() -> TreeBuilder {
    let mut b = builder();
    let root = b.root();
    let d = b.dir(root, b"d", meta(2)).unwrap();
    let e = b.dir(d, b"e", meta(3)).unwrap();
    let a = b.file(e, b"a", meta(4), 0, 250).unwrap();
    b.file(root, b"empty", meta(5), 9, 0).unwrap();
    b.file(root, b"one\xff", meta(6), 3, 100).unwrap();
    b.symlink(d, b"link", meta(7), b"../one\xff").unwrap();
    b.hardlink(root, b"also\na", a).unwrap();
    b.dir(e, b"void", meta(8)).unwrap();
    b
}
