//! Trees of random entries against the same rules, written for one directory at a time in plain maps.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};

const NAMES: &[&[u8]] =
    &[b"a", b"b", b"ab", b"a\xff", b"new\nline", b" ", b"\xff\xfe", b"...", b"A", b"a.b", "é".as_bytes(), &[b'x'; 255]];

#[derive(Debug, Clone)]
enum Op {
    Dir(usize, usize, u16),
    File(usize, usize, u16, u64),
    Symlink(usize, usize, u16, Vec<u8>),
    Hardlink(usize, usize, usize),
    SetMeta(usize, u16),
}

fn op() -> impl Strategy<Value = Op> {
    let (at, name, n) = (any::<usize>(), 0..NAMES.len(), any::<u16>());
    prop_oneof![
        3 => (at, name.clone(), n).prop_map(|(p, name, n)| Op::Dir(p, name, n)),
        4 => (at, name.clone(), n, 0..450_u64).prop_map(|(p, name, n, size)| Op::File(p, name, n, size)),
        1 => (at, name.clone(), n, prop::collection::vec(1..=255_u8, 1..40))
            .prop_map(|(p, name, n, target)| Op::Symlink(p, name, n, target)),
        2 => (at, name, any::<usize>()).prop_map(|(p, name, target)| Op::Hardlink(p, name, target)),
        1 => (at, n).prop_map(|(id, n)| Op::SetMeta(id, n)),
    ]
}

#[derive(Debug, Clone)]
enum Body {
    Dir,
    File { first: u64, size: u64 },
    Symlink(Vec<u8>),
    Link(usize),
}

#[derive(Debug, Clone)]
struct Entry {
    parent: usize,
    name: &'static [u8],
    meta: Meta,
    body: Body,
}

#[derive(Debug)]
enum Want {
    Dir { meta: Meta, children: BTreeMap<&'static [u8], Want> },
    File { inode: usize },
    Symlink { meta: Meta, target: Vec<u8> },
}

/// What is left of the directory that arrived as each of `dirs`.
fn survivors(entries: &[Entry], dirs: &[usize]) -> BTreeMap<&'static [u8], Want> {
    let mut rivals: BTreeMap<&'static [u8], Vec<usize>> = BTreeMap::new();
    for (arrival, entry) in entries.iter().enumerate().skip(1) {
        if dirs.contains(&entry.parent) {
            rivals.entry(entry.name).or_default().push(arrival);
        }
    }
    rivals
        .into_iter()
        .map(|(name, rivals)| {
            let last = *rivals.last().unwrap();
            let want = match &entries[last].body {
                Body::Dir => {
                    let one: Vec<usize> =
                        rivals.into_iter().rev().take_while(|&r| matches!(entries[r].body, Body::Dir)).collect();
                    Want::Dir { meta: entries[last].meta, children: survivors(entries, &one) }
                }
                Body::File { .. } => Want::File { inode: last },
                Body::Link(inode) => Want::File { inode: *inode },
                Body::Symlink(target) => Want::Symlink { meta: entries[last].meta, target: target.clone() },
            };
            (name, want)
        })
        .collect()
}

fn count_names(want: &Want, names: &mut HashMap<usize, u32>) {
    match want {
        Want::Dir { children, .. } => children.values().for_each(|child| count_names(child, names)),
        Want::File { inode } => *names.entry(*inode).or_default() += 1,
        Want::Symlink { .. } => {}
    }
}

struct Compare<'a> {
    tree: &'a Tree,
    entries: &'a [Entry],
    names: HashMap<usize, u32>,
    inos: HashMap<usize, u64>,
    visited: u64,
}

impl Compare<'_> {
    fn node(&mut self, path: &[u8], parent: u64, id: u64, want: &Want) {
        self.visited += 1;
        let node = self.tree.node(id).unwrap();
        assert_eq!((node.id, node.parent), (id, parent));
        assert_eq!(self.tree.path_of(id).unwrap(), path);
        let slashes = [b"//", path, b"/"].concat();
        assert_eq!(self.tree.resolve(&slashes).unwrap(), Some(id));
        match want {
            Want::Dir { meta, children } => {
                let subdirs = children.values().filter(|c| matches!(c, Want::Dir { .. })).count() as u32;
                assert_eq!((node.meta, node.nlink, node.ino), (*meta, 2 + subdirs, id));
                let listed: Vec<Node> = self.tree.list(id, 0).unwrap().map(Result::unwrap).collect();
                let names: Vec<&[u8]> = listed.iter().map(|n| n.name.as_slice()).collect();
                assert_eq!(names, children.keys().copied().collect::<Vec<_>>());
                let ids = self.tree.children(id).unwrap();
                assert_eq!(node.kind, NodeKind::Dir { children: ids.clone() });
                assert_eq!(ids.clone().collect::<Vec<_>>(), listed.iter().map(|n| n.id).collect::<Vec<_>>());
                let skipped: Vec<Node> = self.tree.list(id, 2).unwrap().map(Result::unwrap).collect();
                assert_eq!(skipped, listed.get(2..).unwrap_or_default());
                for name in NAMES.iter().copied().chain([&b""[..], b".", b"..", b"a/b", b"zz", &[b'x'; 256]]) {
                    let found = self.tree.lookup(id, name).unwrap();
                    assert_eq!(found, children.keys().position(|k| *k == name).map(|at| ids.start + at as u64));
                }
                for (listed, (name, want)) in listed.iter().zip(children) {
                    assert_eq!(self.tree.node(listed.id).unwrap(), *listed);
                    let path = if path.is_empty() { name.to_vec() } else { [path, name].join(&b'/') };
                    // Rust 1.95 without incremental compilation takes `parent` for 0 in every call unless told that it is not.
                    self.node(&path, std::hint::black_box(id), listed.id, want);
                }
            }
            Want::File { inode } => {
                let Body::File { first, size } = self.entries[*inode].body else { panic!("the model is wrong") };
                let (first, records) = (if size == 0 { 0 } else { first }, size.div_ceil(u64::from(PIECE)));
                assert_eq!(node.kind, NodeKind::File { first, records, size });
                assert_eq!((node.meta, node.nlink), (self.entries[*inode].meta, self.names[inode]));
                assert_eq!(node.ino, *self.inos.entry(*inode).or_insert(node.ino));
                assert!(node.ino <= id);
                let inside = [path, b"a"].join(&b'/');
                assert_eq!(self.tree.resolve(&inside).unwrap(), None);
                assert!(matches!(self.tree.lookup(id, b"a"), Err(Error::Invalid(_))));
            }
            Want::Symlink { meta, target } => {
                assert_eq!((node.meta, node.nlink, node.ino), (*meta, 1, id));
                assert_eq!(node.kind, NodeKind::Symlink { target: target.clone() });
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_is_what_the_model_says(ops in prop::collection::vec(op(), 0..120)) {
        let mut builder = builder();
        let mut entries = vec![Entry { parent: 0, name: b"", meta: meta(1), body: Body::Dir }];
        let mut ids = vec![builder.root()];
        let mut record = 5;
        for op in ops {
            // Half of all entries go to the directory made last, so that trees are deep as well as wide.
            let dirs: Vec<usize> = (0..entries.len()).filter(|&i| matches!(entries[i].body, Body::Dir)).collect();
            let dir = |p: usize| if p.is_multiple_of(2) { *dirs.last().unwrap() } else { dirs[p / 2 % dirs.len()] };
            let (parent, name, n, body) = match op {
                Op::Dir(p, name, n) => (dir(p), NAMES[name], n, Body::Dir),
                Op::File(p, name, n, size) => {
                    let first = record;
                    record += size.div_ceil(u64::from(PIECE));
                    (dir(p), NAMES[name], n, Body::File { first, size })
                }
                Op::Symlink(p, name, n, target) => (dir(p), NAMES[name], n, Body::Symlink(target)),
                Op::Hardlink(p, name, target) => {
                    let target = target % entries.len();
                    let inode = match entries[target].body {
                        Body::File { .. } => target,
                        Body::Link(inode) => inode,
                        Body::Dir | Body::Symlink(_) => {
                            prop_assert!(builder.hardlink(ids[dir(p)], NAMES[name], ids[target]).is_err());
                            continue;
                        }
                    };
                    ids.push(builder.hardlink(ids[dir(p)], NAMES[name], ids[target]).unwrap());
                    entries.push(Entry { parent: dir(p), name: NAMES[name], meta: meta(0), body: Body::Link(inode) });
                    continue;
                }
                Op::SetMeta(id, n) => {
                    let id = id % entries.len();
                    builder.set_meta(ids[id], meta(n)).unwrap();
                    let id = if let Body::Link(inode) = entries[id].body { inode } else { id };
                    entries[id].meta = meta(n);
                    continue;
                }
            };
            let id = match &body {
                Body::Dir => builder.dir(ids[parent], name, meta(n)),
                Body::File { first, size } => builder.file(ids[parent], name, meta(n), *first, *size),
                Body::Symlink(target) => builder.symlink(ids[parent], name, meta(n), target),
                Body::Link(_) => unreachable!(),
            };
            ids.push(id.unwrap());
            entries.push(Entry { parent, name, meta: meta(n), body });
        }
        let (memory, summary) = finish(builder);
        let tree = memory.open().unwrap();
        let want = Want::Dir { meta: entries[0].meta, children: survivors(&entries, &[0]) };
        let mut names = HashMap::new();
        count_names(&want, &mut names);
        let sizes = names.keys().map(|&inode| match entries[inode].body { Body::File { size, .. } => size, _ => 0 });
        prop_assert_eq!(summary.total_bytes, sizes.sum::<u64>());
        prop_assert_eq!(summary.files, names.values().map(|&n| u64::from(n)).sum::<u64>());
        prop_assert_eq!(summary.nodes, summary.files + summary.dirs + summary.symlinks);
        prop_assert_eq!(summary.index_bytes, memory.bytes().len() as u64);
        prop_assert_eq!(tree.summary(), summary);
        let mut compare = Compare { tree: &tree, entries: &entries, names, inos: HashMap::new(), visited: 0 };
        compare.node(b"", 0, 0, &want);
        prop_assert_eq!(compare.visited, summary.nodes);
        tree.verify().unwrap();
        walk(&tree).unwrap();
    }
}
