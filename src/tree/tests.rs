//! The builder and the reader together: against a model, against damage, and at a million files.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::arithmetic_side_effects)]

use super::*;
use crate::format::tree::{Kind, NAME_MAX, NODE_LEN, NodeRecord};
use crate::storage::{Disk, StoreFile};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// One file in memory under every name.
#[derive(Debug, Clone, Default)]
struct Memory(Arc<Mutex<Option<Vec<u8>>>>);

impl Memory {
    fn with(bytes: &[u8]) -> Memory {
        Memory(Arc::new(Mutex::new(Some(bytes.to_vec()))))
    }
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone().unwrap()
    }
    fn open(&self) -> Result<Tree> {
        Tree::open(self, Path::new("tree.zr"))
    }
}

impl Storage for Memory {
    fn open(&self, _: &Path) -> io::Result<Arc<dyn StoreFile>> {
        Ok(Arc::new(self.clone()))
    }
    fn open_rw(&self, _: &Path) -> io::Result<Arc<dyn StoreFile>> {
        Ok(Arc::new(self.clone()))
    }
    fn open_dir(&self, _: &Path) -> io::Result<Arc<dyn StoreFile>> {
        Ok(Arc::new(self.clone()))
    }
    fn create_new(&self, _: &Path) -> io::Result<Arc<dyn StoreFile>> {
        let mut bytes = self.0.lock().unwrap();
        if bytes.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        *bytes = Some(Vec::new());
        Ok(Arc::new(self.clone()))
    }
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn list(&self, _: &Path) -> io::Result<Vec<OsString>> {
        Ok(Vec::new())
    }
    fn remove(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn pin(&self, _: &Path) -> io::Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.clone()))
    }
}

impl StoreFile for Memory {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.0.lock().unwrap();
        let rest = bytes.as_ref().unwrap().get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let mut bytes = self.0.lock().unwrap();
        let bytes = bytes.as_mut().unwrap();
        let new: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
        let end = offset as usize + new.len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset as usize..end].copy_from_slice(&new);
        Ok(new.len())
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().as_ref().unwrap().len() as u64)
    }
    fn modified(&self) -> io::Result<std::time::SystemTime> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn try_lock(&self, _: bool) -> io::Result<bool> {
        Ok(true)
    }
    fn unlock(&self) -> io::Result<()> {
        Ok(())
    }
    fn lock_holder(&self) -> Option<u32> {
        None
    }
}

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

// The model: the same rules, written for one directory at a time in plain maps.

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
                    self.node(&path, id, listed.id, want);
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

#[test]
fn memory_is_bounded() {
    const FILES: u32 = 120_000;
    let mut b = builder();
    let root = b.root();
    for i in 0..FILES {
        // Scattered arrival, so that the scratch files are read out of order.
        let name = format!("{:08x}", i.wrapping_mul(0x9E37_79B1));
        b.file(root, name.as_bytes(), meta(1), u64::from(i), 1).unwrap();
        if i % 5000 < 2 {
            // One that just arrived, and one that went to the scratch file long ago.
            b.set_meta(EntryId(i + 1), meta(7)).unwrap();
            b.set_meta(EntryId(i / 2 + 1), meta(8)).unwrap();
        }
    }
    let entries = b.parents.capacity() * 4 + b.kinds.capacity() + b.aliases.capacity() * 8;
    assert!(entries <= FILES as usize * 12, "{entries} bytes for {FILES} entries");
    let (memory, summary) = finish(b);
    assert!(summary.index_bytes <= 192 + 64 + u64::from(FILES) * (64 + 8));
    let tree = memory.open().unwrap();
    assert_eq!(tree.blocks.cached_bytes(), 0, "opening reads the header only");
    for i in (0..FILES).step_by(5) {
        let name = format!("{:08x}", i.wrapping_mul(0x9E37_79B1));
        let id = tree.lookup(0, name.as_bytes()).unwrap().unwrap();
        assert_eq!(tree.lookup(0, format!("{name}!").as_bytes()).unwrap(), None);
        if i % 100 == 0 {
            let node = tree.node(id).unwrap();
            let (late, early) = (i % 5000 < 2, i % 2500 == 0 && i < FILES / 2);
            assert_eq!(
                node.meta,
                meta(if early {
                    8
                } else if late {
                    7
                } else {
                    1
                }),
                "file {i}"
            );
            assert_eq!(node.kind, NodeKind::File { first: u64::from(i), records: 1, size: 1 });
        }
    }
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let tree = &tree;
            scope.spawn(move || {
                for id in (1 + thread..=u64::from(FILES)).step_by(997) {
                    let name = tree.node(id).unwrap().name;
                    assert_eq!(tree.lookup(0, &name).unwrap(), Some(id));
                }
            });
        }
    });
    tree.verify().unwrap();
    let cached = tree.blocks.cached_bytes();
    assert!((1 << 20..=2 << 20).contains(&cached), "{cached} bytes cached");
    let kept = tree.probes.kept();
    assert!((1 << 10..=16 << 10).contains(&kept), "{kept} names kept");
}

fn resident_kib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// `cargo test --release --lib -p zrfs a_million_files -- --ignored --nocapture --test-threads 1`
#[test]
#[ignore = "a measurement; takes seconds in a release build"]
fn a_million_files() {
    const FILES: u64 = 1_000_000;
    let dir = tempfile::tempdir().unwrap();
    let shapes = [("one directory", FILES, true), ("1000 a directory", 1000, false), ("scattered", 1000, true)];
    for (shape, per_dir, scattered) in shapes {
        let path = dir.path().join(shape);
        let _ = std::fs::write("/proc/self/clear_refs", "5"); // Forgets the peak so far.
        let before = resident_kib("VmRSS");
        let mut start = Instant::now();
        let mut b = TreeBuilder::new(dir.path(), meta(1), 4 << 20).unwrap();
        let root = b.root();
        let dirs: Vec<EntryId> =
            (0..FILES / per_dir).map(|d| b.dir(root, format!("d{d:04}").as_bytes(), meta(1)).unwrap()).collect();
        // Scattered: bit-reversed, so the files of a directory arrive as far from each other as they can.
        let place = |i: u64| if scattered { (i.reverse_bits() >> 44).wrapping_mul(FILES) >> 20 } else { i };
        for i in 0..FILES {
            let name = format!("sample_{i:07}.jpg");
            b.file(dirs[(place(i) / per_dir) as usize], name.as_bytes(), meta(2), i, 100_000).unwrap();
        }
        let added = start.elapsed();
        start = Instant::now();
        let summary = b.finish(&Disk::default(), &path).unwrap();
        let (finished, peak) = (start.elapsed(), resident_kib("VmHWM"));

        start = Instant::now();
        let tree = Tree::open(&Disk::default(), &path).unwrap();
        let opened = start.elapsed();
        let held = resident_kib("VmRSS");
        let wanted: Vec<(u64, Vec<u8>)> = (0..200_000_u64)
            .map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % FILES)
            .map(|i| (1 + place(i) / per_dir, format!("sample_{i:07}.jpg").into_bytes()))
            .collect();
        start = Instant::now();
        for (dir, name) in &wanted {
            assert!(tree.lookup(*dir, name).unwrap().is_some());
        }
        let random = start.elapsed() / wanted.len() as u32;
        start = Instant::now();
        let mut listed = 0;
        for dir in tree.children(0).unwrap() {
            listed += tree.list(dir, 0).unwrap().map(Result::unwrap).count() as u64;
        }
        let list = start.elapsed() / listed as u32;
        assert_eq!(listed, FILES);
        start = Instant::now();
        for _ in 0..1000 {
            for node in tree.list(1, 0).unwrap().take(1000) {
                node.unwrap();
            }
        }
        let cached = start.elapsed() / 1_000_000;
        start = Instant::now();
        for id in 1..=FILES {
            tree.node(id).unwrap();
        }
        let node = start.elapsed() / FILES as u32;
        start = Instant::now();
        tree.verify().unwrap();
        println!(
            "{shape}: {} B a file; add {added:?}, finish {finished:?}, peak {} MiB over; open {opened:?}; \
             random lookup {random:?}; list {list:?} a node, cached {cached:?}; node(id) {node:?}; verify {:?}; \
             reading took {} MiB",
            summary.index_bytes / FILES,
            (peak.saturating_sub(before)) >> 10,
            start.elapsed(),
            resident_kib("VmRSS").saturating_sub(held) >> 10,
        );
        assert!(opened.as_millis() < 5);
    }
}
