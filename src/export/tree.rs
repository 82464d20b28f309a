//! A tree as an archive: what `tar c` makes of its files.

use super::Exported;
use super::archive::TarWriter;
use crate::dataset::{DATA_STREAM, Dataset};
use crate::error::{Error, Result};
use crate::in_order::{BATCH_BYTES, BATCH_RECORDS, InOrder};
use crate::pack::Watch;
use crate::store::Store;
use crate::tree::{Meta, Node, NodeKind, Tree};
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use tar::EntryType;

/// An entry that waits to be written.
struct Waiting {
    kind: EntryType,
    name: Vec<u8>,
    link: Vec<u8>,
    meta: Meta,
    size: u64,
    /// First record and number of records.
    records: (u64, u64),
}

struct Export<'e> {
    tree: &'e Tree,
    data: &'e Store,
    watch: Watch<'e>,
    archive: TarWriter<'e>,
    waiting: Vec<Waiting>,
    bytes: u64,
    /// The first name of each file with several.
    linked: HashMap<u64, Vec<u8>>,
    done: Exported,
}

/// Writes the tree of `dataset` to the archive `out`: depth first, each directory's entries in the order of their names,
/// every name below `./`. Further names of a file are hard links to the first.
pub(super) fn export_tree(dataset: &Dataset, out: &mut dyn Write, path: &Path, watch: Watch<'_>) -> Result<Exported> {
    let (Some(tree), Some(data)) = (dataset.tree(), dataset.stream(DATA_STREAM)) else {
        let dataset = dataset.path().display();
        return Err(Error::invalid(format!("{dataset} has no tree with a stream {DATA_STREAM}")));
    };
    watch.progress.set_total_bytes(tree.summary().total_bytes);
    let mut export = Export {
        tree,
        data: data.store(),
        watch,
        archive: TarWriter::new(out, path),
        waiting: Vec::new(),
        bytes: 0,
        linked: HashMap::new(),
        done: Exported::default(),
    };
    // The directories on the way down: what is left of each one's listing, and its name.
    let mut stack = vec![(tree.list(0, 0)?, b"./".to_vec())];
    export.entry(tree.node(0)?, b"./".to_vec())?;
    while let Some((list, dir)) = stack.last_mut() {
        watch.progress.check()?;
        let Some(node) = list.next().transpose()? else {
            stack.pop();
            continue;
        };
        let mut name = [&dir[..], &node.name].concat();
        if let NodeKind::Dir { .. } = node.kind {
            name.push(b'/');
            stack.push((tree.list(node.id, 0)?, name.clone()));
        }
        export.entry(node, name)?;
    }
    export.flush()?;
    export.archive.finish()?;
    Ok(export.done)
}

impl Export<'_> {
    /// Adds an entry to those that wait.
    fn entry(&mut self, node: Node, name: Vec<u8>) -> Result<()> {
        let mut entry =
            Waiting { kind: EntryType::Directory, name, link: Vec::new(), meta: node.meta, size: 0, records: (0, 0) };
        match node.kind {
            NodeKind::Dir { .. } => {}
            NodeKind::Symlink { target } => (entry.kind, entry.link) = (EntryType::Symlink, target),
            NodeKind::File { first, records, size } => match self.linked.get(&node.ino) {
                Some(name) => (entry.kind, entry.link) = (EntryType::Link, name.clone()),
                None => {
                    (entry.kind, entry.size, entry.records) = (EntryType::Regular, size, (first, records));
                    if node.nlink > 1 {
                        self.linked.insert(node.ino, entry.name.clone());
                    }
                }
            },
        }
        self.bytes = self.bytes.saturating_add(entry.size);
        self.waiting.push(entry);
        // Read together, so that small files are decoded on all cores.
        if self.bytes >= BATCH_BYTES || self.waiting.len() >= BATCH_RECORDS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        self.bytes = 0;
        let indices = waiting.iter().flat_map(|entry| {
            let (first, records) = entry.records;
            first..first.saturating_add(records)
        });
        let mut records = InOrder::new(self.data, indices);
        let piece = u64::from(self.tree.piece_bytes());
        for entry in &waiting {
            self.archive.entry(entry.kind, &entry.name, &entry.link, entry.meta, entry.size)?;
            let mut left = entry.size;
            for _ in 0..entry.records.1 {
                self.watch.progress.check()?;
                let Some((index, bytes)) = records.next()? else { break };
                let want = left.min(piece);
                if bytes.len() as u64 != want {
                    let reason = format!("it has {} bytes where the tree index says {want}", bytes.len());
                    return Err(Error::corrupt(self.data.path(), 0, reason).at_record(index));
                }
                self.archive.write(bytes)?;
                left -= want;
                self.watch.progress.add(0, want);
            }
            self.archive.pad()?;
            self.watch.progress.add(1, 0);
            self.done.entries += 1;
            self.done.bytes += entry.size;
        }
        Ok(())
    }
}
