//! Two trees, path by path.

use super::records::differences;
use super::{Job, Place};
use crate::dataset::{DATA_STREAM, Dataset, Stream};
use crate::error::{Error, Result};
use crate::in_order::{BATCH_RECORDS, InOrder};
use crate::store::Store;
use crate::tree::{Mtime, Node, NodeKind, Tree};
use std::cmp::Ordering;

/// Both trees, and the stores of their files' bytes.
struct Trees<'t> {
    a: (&'t Tree, &'t Store),
    b: (&'t Tree, &'t Store),
    /// Files that wait to be compared together: their paths, first records in both, and number of records.
    waiting: Vec<(Vec<u8>, u64, u64, u64)>,
    records: u64,
}

/// Compares the trees of two datasets that have one each.
pub(super) fn compare_trees(job: &mut Job<'_>, a: &Dataset, b: &Dataset) -> Result<()> {
    let (Some(tree_a), Some(tree_b)) = (a.tree(), b.tree()) else { return Ok(()) };
    let (store_a, store_b) = (data(a)?, data(b)?);
    let mut trees = Trees { a: (tree_a, store_a), b: (tree_b, store_b), waiting: Vec::new(), records: 0 };
    trees.node(job, &[], &tree_a.node(0)?, &tree_b.node(0)?)?;
    let mut dirs = vec![(0, 0, Vec::new())];
    while let Some((in_a, in_b, path)) = dirs.pop() {
        trees.dir(job, in_a, in_b, &path, &mut dirs)?;
    }
    trees.flush(job)
}

/// The store of a tree's files' bytes.
fn data(dataset: &Dataset) -> Result<&Store> {
    let reason = || Error::invalid(format!("{} has paths, but no stream {DATA_STREAM}", dataset.path().display()));
    dataset.stream(DATA_STREAM).map(Stream::store).ok_or_else(reason)
}

impl Trees<'_> {
    /// Compares the names of two directories and what they stand for; adds the directories that both have to `dirs`.
    fn dir(
        &mut self,
        job: &mut Job<'_>,
        in_a: u64,
        in_b: u64,
        path: &[u8],
        dirs: &mut Vec<(u64, u64, Vec<u8>)>,
    ) -> Result<()> {
        let (mut list_a, mut list_b) = (self.a.0.list(in_a, 0)?, self.b.0.list(in_b, 0)?);
        let (mut one, mut two) = (list_a.next().transpose()?, list_b.next().transpose()?);
        loop {
            job.progress.check()?;
            let order = match (&one, &two) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(one), Some(two)) => one.name.cmp(&two.name),
            };
            if let (Ordering::Equal, Some(one), Some(two)) = (order, &one, &two) {
                let below = join(path, &one.name);
                self.node(job, &below, one, two)?;
                if let (NodeKind::Dir { .. }, NodeKind::Dir { .. }) = (&one.kind, &two.kind) {
                    dirs.push((one.id, two.id, below));
                }
            } else if let Some(only) = if order == Ordering::Less { &one } else { &two } {
                let which = if order == Ordering::Less { "first" } else { "second" };
                let what = format!("only the {which} has this {}", kind(only));
                job.differ(Place::Path(join(path, &only.name)), what);
            }
            if order != Ordering::Greater {
                one = list_a.next().transpose()?;
            }
            if order != Ordering::Less {
                two = list_b.next().transpose()?;
            }
        }
    }

    /// Compares one entry; a file's bytes are compared at once or wait for the next flush.
    fn node(&mut self, job: &mut Job<'_>, path: &[u8], one: &Node, two: &Node) -> Result<()> {
        job.done.entries += 1;
        let mut what = Vec::new();
        let mut differ = |name: &str, one: String, two: String| {
            if one != two {
                what.push(format!("{name} is {one} in the first and {two} in the second"));
            }
        };
        differ("the kind", kind(one).into(), kind(two).into());
        differ("the mode", format!("{:04o}", one.meta.mode), format!("{:04o}", two.meta.mode));
        differ("the mtime", time(one.meta.mtime), time(two.meta.mtime));
        let mut bytes = None;
        match (&one.kind, &two.kind) {
            (NodeKind::Symlink { target: one }, NodeKind::Symlink { target: two }) => {
                differ(
                    "the target",
                    format!("{:?}", one.escape_ascii().to_string()),
                    format!("{:?}", two.escape_ascii().to_string()),
                );
            }
            (
                &NodeKind::File { first, records, size },
                &NodeKind::File { first: other_first, records: other_records, size: other_size },
            ) => {
                differ("the number of names", one.nlink.to_string(), two.nlink.to_string());
                differ("the length", size.to_string(), other_size.to_string());
                if size == other_size && size > 0 {
                    bytes = Some((size, (first, records), (other_first, other_records)));
                }
            }
            _ => {}
        }
        if let Some((size, a, b)) = bytes {
            job.done.bytes += size;
            if a.1 == b.1 && (a.1 == 1 || self.a.0.piece_bytes() == self.b.0.piece_bytes()) {
                if what.is_empty() {
                    self.waiting.push((path.to_vec(), a.0, b.0, a.1));
                    self.records += a.1;
                }
            } else if let Some(at) = self.pieces(job, a, b)? {
                what.push(format!("byte {at} differs"));
            }
        }
        if !what.is_empty() {
            job.differ(Place::Path(path.to_vec()), what.join("; "));
        }
        if self.records >= BATCH_RECORDS as u64 {
            self.flush(job)?;
        }
        Ok(())
    }

    /// Compares files that are in other pieces in one tree than in the other; says where they begin to differ.
    fn pieces(&self, job: &Job<'_>, a: (u64, u64), b: (u64, u64)) -> Result<Option<u64>> {
        let mut one = InOrder::new(self.a.1, a.0..a.0.saturating_add(a.1));
        let mut two = InOrder::new(self.b.1, b.0..b.0.saturating_add(b.1));
        let (mut rest_one, mut rest_two) = (Vec::new(), Vec::new());
        let mut at = 0u64;
        loop {
            job.progress.check()?;
            if rest_one.is_empty() {
                rest_one = one.next()?.map(|(_, bytes)| bytes.to_vec()).unwrap_or_default();
            }
            if rest_two.is_empty() {
                rest_two = two.next()?.map(|(_, bytes)| bytes.to_vec()).unwrap_or_default();
            }
            let n = rest_one.len().min(rest_two.len());
            if n == 0 {
                return Ok((rest_one.len() != rest_two.len()).then_some(at));
            }
            if let Some(k) = rest_one.iter().zip(&rest_two).position(|(x, y)| x != y) {
                return Ok(Some(at + k as u64));
            }
            rest_one.drain(..n);
            rest_two.drain(..n);
            at += n as u64;
            job.progress.add(0, n as u64);
        }
    }

    /// Compares the files that wait.
    fn flush(&mut self, job: &mut Job<'_>) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        self.records = 0;
        let mut pairs = waiting
            .iter()
            .enumerate()
            .flat_map(|(file, &(_, a, b, n))| (0..n).map(move |piece| (file, piece, (a + piece, b + piece))))
            .peekable();
        let mut last = None;
        while pairs.peek().is_some() {
            job.progress.check()?;
            let block: Vec<(usize, u64, (u64, u64))> = pairs.by_ref().take(BATCH_RECORDS).collect();
            let indices: Vec<(u64, u64)> = block.iter().map(|&(.., pair)| pair).collect();
            let (bytes, mut found) = differences(self.a.1, self.b.1, &indices)?;
            job.progress.add(block.len() as u64, bytes);
            found.sort_unstable_by_key(|(k, _)| *k);
            for (k, what) in found {
                let Some(&(file, piece, _)) = block.get(k) else { continue };
                // A file is named once, at its first piece that differs.
                if last != Some(file)
                    && let Some((path, _, _, records)) = waiting.get(file)
                {
                    let what = if *records > 1 { format!("in piece {piece}, {what}") } else { what };
                    job.differ(Place::Path(path.clone()), what);
                }
                last = Some(file);
            }
        }
        Ok(())
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

fn kind(node: &Node) -> &'static str {
    match node.kind {
        NodeKind::Dir { .. } => "directory",
        NodeKind::File { .. } => "file",
        NodeKind::Symlink { .. } => "symbolic link",
    }
}

fn time(mtime: Mtime) -> String {
    format!("{}.{:09}", mtime.secs, mtime.nanos)
}
