//! Putting collected entries in their final order and writing them.
//!
//! Two passes over the scratch files. The first decides which entries survive and where each goes; the second, which
//! then knows how long the heap is and how many names a file has, writes names and nodes side by side.

use super::Summary;
use super::build::{TreeBuilder, at};
use super::scratch::Reader;
use crate::error::{Error, Result};
use crate::format::tree::{Flaw, Header, Kind, Meta, NODE_LEN, NodeRecord};
use crate::storage::{Storage, StoreFile, write_all_at};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::path::Path;

/// Bytes collected before they are written.
const OUT: usize = 256 << 10;

pub(super) fn write(builder: TreeBuilder, storage: &dyn Storage, path: &Path) -> Result<Summary> {
    let TreeBuilder { piece_bytes, nodes, names, parents, kinds, aliases, records, data_end, .. } = builder;
    let mut entries = Entries { nodes: nodes.into_reader()?, names: names.into_reader()?, buf: Vec::new() };
    let groups = Groups::by_parent(&parents);
    drop(parents);
    let order = Order::new(&mut entries, &groups, &kinds)?;
    drop(groups);
    let mut links = Links::new(&aliases, &order.placed, &kinds);

    let mut header = Header {
        piece_bytes,
        node_count: order.placed.len() as u64,
        heap_len: order.heap_len,
        file_count: 0,
        dir_count: 0,
        symlink_count: 0,
        total_bytes: 0,
        record_count: records,
        data_end,
    };
    let file = storage.create_new(path).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists { path: path.to_path_buf() },
        _ => Error::io("create", path)(source),
    })?;
    let mut heap = Out::new(&*file, path, Header::HEAP_OFFSET);
    let mut nodes = Out::new(&*file, path, header.nodes_offset());
    let mut places = Places::new(&order, &kinds);
    let (mut name, mut target, mut name_off) = (Vec::new(), Vec::new(), 0);
    for (id, &arrival) in order.placed.iter().enumerate() {
        let id = id as u32; // There are fewer than 2^32.
        let mut record = entries.record(arrival)?;
        entries.texts(&record, &mut name, &mut target)?;
        let name_len = record.name_len;
        match record.kind {
            Kind::Dir => {
                header.dir_count += 1;
                let (first, count, subdirs) = places.children();
                record.first = if count == 0 { 0 } else { first };
                record.size = count;
                record.nlink = subdirs.saturating_add(2);
            }
            Kind::Symlink => {
                header.symlink_count += 1;
                record.first = name_off + name.len() as u64;
                record.nlink = 1;
            }
            Kind::File | Kind::Alias => {
                header.file_count += 1;
                let inode = if record.kind == Kind::Alias { record.first as u32 } else { arrival };
                let (nlink, canonical) = links.place(inode, id);
                if canonical == id {
                    record = NodeRecord { nlink, ..entries.record(inode)? };
                    header.total_bytes += record.size; // The builder refused sums beyond 2^64.
                } else {
                    let (kind, meta) = (Kind::Alias, Meta::default());
                    record = NodeRecord { kind, meta, nlink: 0, first: u64::from(canonical), size: 0, ..record };
                }
            }
        }
        (record.name_off, record.name_len) = (name_off, name_len);
        record.parent = places.parent(id);
        name_off += (name.len() + target.len()) as u64;
        heap.put(&name)?;
        heap.put(&target)?;
        nodes.put(&record.encode(u64::from(id), &name, &target))?;
    }
    let padding = header.nodes_offset() - Header::HEAP_OFFSET - name_off;
    heap.put(&[0; NODE_LEN][..padding as usize])?;
    heap.flush()?;
    nodes.flush()?;
    // The header makes the file a tree, so it must not reach the disk before what it describes.
    file.sync().map_err(Error::io("sync", path))?;
    write_all_at(&*file, path, &mut [IoSlice::new(&header.encode())], 0)?;
    file.sync().map_err(Error::io("sync", path))?;
    Ok(Summary::from(&header))
}

/// The collected entries by arrival.
struct Entries {
    nodes: Reader,
    names: Reader,
    buf: Vec<u8>,
}

impl Entries {
    fn record(&mut self, arrival: u32) -> Result<NodeRecord> {
        self.buf.clear();
        self.nodes.read(at(arrival), NODE_LEN, &mut self.buf)?;
        let wrong = |flaw: Flaw| Error::invalid(format!("a scratch file changed while it was in use: {}", flaw.reason));
        match self.buf.first_chunk::<NODE_LEN>() {
            Some(bytes) => NodeRecord::decode(bytes).map_err(wrong),
            None => Err(wrong(Flaw { at: 0, reason: "it ends early".to_owned() })),
        }
    }

    /// An entry's name and, for a symlink, its target (else empty).
    fn texts(&mut self, record: &NodeRecord, name: &mut Vec<u8>, target: &mut Vec<u8>) -> Result<()> {
        name.clear();
        target.clear();
        self.names.read(record.name_off, usize::from(record.name_len), name)?;
        let after = record.name_off + u64::from(record.name_len);
        self.names.read(after, target_len(record) as usize, target)
    }
}

fn target_len(record: &NodeRecord) -> u64 {
    if record.kind == Kind::Symlink { record.size } else { 0 }
}

/// Entries grouped by the directory they arrived for, in each group by arrival.
struct Groups {
    /// The group of directory `d` is `members[starts[d]..starts[d + 1]]`.
    starts: Vec<u32>,
    members: Vec<u32>,
}

impl Groups {
    /// A counting sort; the root is in no group.
    fn by_parent(parents: &[u32]) -> Groups {
        let mut starts = vec![0_u32; parents.len() + 1];
        for &parent in &parents[1..] {
            starts[parent as usize] += 1;
        }
        let mut end = 0;
        for start in &mut starts {
            end += *start;
            *start = end;
        }
        let mut members = vec![0; parents.len() - 1];
        for (arrival, &parent) in parents.iter().enumerate().skip(1).rev() {
            let start = &mut starts[parent as usize];
            *start -= 1;
            members[*start as usize] = arrival as u32;
        }
        Groups { starts, members }
    }

    fn of(&self, dir: u32) -> &[u32] {
        &self.members[self.starts[dir as usize] as usize..self.starts[dir as usize + 1] as usize]
    }
}

/// A name in the directory being sorted.
struct Item {
    /// Where the name is among the directory's names.
    start: usize,
    arrival: u32,
    len: u16,
    /// Bytes of a symlink's target.
    target: u16,
}

/// Which entries survive, and where they go.
struct Order {
    /// The arrivals of the survivors in breadth-first order: the index is the final id.
    placed: Vec<u32>,
    /// How many children each directory in `placed` has, in the same order.
    counts: Vec<u32>,
    heap_len: u64,
}

impl Order {
    fn new(entries: &mut Entries, groups: &Groups, kinds: &[Kind]) -> Result<Order> {
        let mut order = Order { placed: vec![0], counts: Vec::new(), heap_len: 0 };
        // By the arrival of a surviving directory: the earlier ones that are one with it.
        let mut merged: HashMap<u32, Vec<u32>> = HashMap::new();
        let (mut names, mut items) = (Vec::new(), Vec::new());
        let mut next = 0;
        while let Some(&dir) = order.placed.get(next) {
            next += 1;
            if kinds[dir as usize] != Kind::Dir {
                continue;
            }
            names.clear();
            items.clear();
            let earlier = merged.remove(&dir).unwrap_or_default();
            items.reserve_exact(earlier.iter().chain([&dir]).map(|&dir| groups.of(dir).len()).sum());
            for &arrival in earlier.iter().chain([&dir]).flat_map(|&dir| groups.of(dir)) {
                let record = entries.record(arrival)?;
                let (start, len) = (names.len(), record.name_len);
                entries.names.read(record.name_off, usize::from(len), &mut names)?;
                items.push(Item { start, arrival, len, target: target_len(&record) as u16 });
            }
            let name = |item: &Item| &names[item.start..item.start + usize::from(item.len)];
            items.sort_unstable_by(|a, b| name(a).cmp(name(b)).then(a.arrival.cmp(&b.arrival)));
            let before = order.placed.len();
            for same in items.chunk_by(|a, b| name(a) == name(b)) {
                let Some((winner, losers)) = same.split_last() else { continue };
                order.placed.push(winner.arrival);
                order.heap_len += u64::from(winner.len) + u64::from(winner.target);
                let is_dir = |item: &&Item| kinds[item.arrival as usize] == Kind::Dir;
                if !losers.is_empty() && is_dir(&winner) {
                    let one = losers.iter().rev().take_while(is_dir).map(|item| item.arrival).collect();
                    merged.insert(winner.arrival, one);
                }
            }
            order.counts.push((order.placed.len() - before) as u32);
        }
        Ok(order)
    }
}

/// Hands out the places of parents and children while nodes are written in order: both only move forward.
struct Places<'a> {
    order: &'a Order,
    kinds: &'a [Kind],
    /// How many directories were written, and where the children of the next one start.
    dirs: usize,
    first: usize,
    /// The directory whose children are being written, how many directories started before or with it, and the id
    /// after its last child.
    parent: usize,
    parents: usize,
    end: usize,
}

impl<'a> Places<'a> {
    fn new(order: &'a Order, kinds: &'a [Kind]) -> Places<'a> {
        let end = 1 + order.counts[0] as usize;
        Places { order, kinds, dirs: 0, first: 1, parent: 0, parents: 1, end }
    }

    /// First child, number of children and number of subdirectories of the next directory.
    fn children(&mut self) -> (u64, u64, u32) {
        let (first, count) = (self.first, self.order.counts[self.dirs] as usize);
        self.dirs += 1;
        self.first += count;
        let children = &self.order.placed[first..self.first];
        let subdirs = children.iter().filter(|&&child| self.kinds[child as usize] == Kind::Dir).count();
        (first as u64, count as u64, subdirs as u32)
    }

    /// The directory of node `id`; ids must come in order.
    fn parent(&mut self, id: u32) -> u32 {
        while id as usize >= self.end {
            self.parent += 1;
            if self.kinds[self.order.placed[self.parent] as usize] == Kind::Dir {
                self.end += self.order.counts[self.parents] as usize;
                self.parents += 1;
            }
        }
        self.parent as u32
    }
}

/// A file with several names.
struct Link {
    inode: u32,
    names: u32,
    /// The first of its names, once that is written.
    canonical: Option<u32>,
}

/// The files with several names, sorted by arrival.
struct Links(Vec<Link>);

impl Links {
    /// Counts the surviving names of each file in `aliases`.
    fn new(aliases: &[(u32, u32)], placed: &[u32], kinds: &[Kind]) -> Links {
        let mut inodes: Vec<u32> = aliases.iter().map(|&(_, file)| file).collect();
        inodes.sort_unstable();
        inodes.dedup();
        let mut links = Links(inodes.into_iter().map(|inode| Link { inode, names: 0, canonical: None }).collect());
        if links.0.is_empty() {
            return links;
        }
        for &arrival in placed {
            let inode = match kinds[arrival as usize] {
                Kind::File => arrival,
                Kind::Alias => match aliases.binary_search_by_key(&arrival, |&(alias, _)| alias) {
                    Ok(found) => aliases[found].1,
                    Err(_) => continue,
                },
                Kind::Dir | Kind::Symlink => continue,
            };
            if let Some(link) = links.find(inode) {
                link.names += 1;
            }
        }
        links
    }

    fn find(&mut self, inode: u32) -> Option<&mut Link> {
        let found = self.0.binary_search_by_key(&inode, |link| link.inode).ok()?;
        self.0.get_mut(found)
    }

    /// Takes node `id` as a name of `inode`: how many names it has, and the first of them, which is `id` itself the
    /// first time. So the first name that survived has the file, whichever entry brought it.
    fn place(&mut self, inode: u32, id: u32) -> (u32, u32) {
        match self.find(inode) {
            Some(link) => (link.names, *link.canonical.get_or_insert(id)),
            None => (1, id),
        }
    }
}

/// A sequential writer from some offset of a file on.
struct Out<'a> {
    file: &'a dyn StoreFile,
    path: &'a Path,
    at: u64,
    buf: Vec<u8>,
}

impl<'a> Out<'a> {
    fn new(file: &'a dyn StoreFile, path: &'a Path, at: u64) -> Out<'a> {
        Out { file, path, at, buf: Vec::with_capacity(OUT) }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buf.len() + bytes.len() > OUT {
            self.flush()?;
        }
        self.buf.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        write_all_at(self.file, self.path, &mut [IoSlice::new(&self.buf)], self.at)?;
        self.at += self.buf.len() as u64;
        self.buf.clear();
        Ok(())
    }
}
