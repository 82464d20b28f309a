//! From names to nodes: which files a directory has.

use super::{Failure, Fs, Kind};
use crate::errno::Errno;
use crate::namespace::{Node, parse_index};
use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use zrfs::Source;
use zrfs::tree::NodeKind;

impl Fs {
    /// Walks `path` from the whole's root to a directory, following no symlinks.
    pub(super) fn resolve(&self, path: &Path) -> Result<Node, String> {
        let mut node = Node::Root;
        for part in path.components() {
            let name = match part {
                Component::RootDir | Component::CurDir => continue,
                Component::Normal(name) => name,
                _ => return Err(format!("--root {}: it must not have ..", path.display())),
            };
            node = self.child(node, name.as_bytes()).map_err(|e| match e {
                Failure::Engine(e) => format!("--root {}: {e}", path.display()),
                Failure::Errno(_) => {
                    format!("--root {}: the mount has no {}", path.display(), Path::new(name).display())
                }
            })?;
        }
        match self.attr(node).map(|a| a.kind) {
            // Its number may be forgotten, which the root's must not be.
            Ok(Kind::Dir) if matches!(node, Node::Spec(_) | Node::BatchDir(_)) => {
                Err(format!("--root {}: one batch or sampler can't be the root; batches can", path.display()))
            }
            Ok(Kind::Dir) => Ok(node),
            _ => Err(format!("--root {} is not a directory of the mount", path.display())),
        }
    }

    /// The node called `name` in the directory `dir`.
    pub(super) fn child(&self, dir: Node, name: &[u8]) -> Result<Node, Failure> {
        match dir {
            Node::Records(s) => self.live(s, parse_index(name)).map(|index| Node::Record(s, index)),
            Node::Npys(s) => {
                let stem = name.strip_suffix(b".npy").and_then(parse_index);
                self.live(s, stem).map(|index| Node::Npy(s, index))
            }
            Node::Pngs(s) => {
                let index = self.live(s, name.strip_suffix(b".png").and_then(parse_index))?;
                self.image(s, index)?.map(|_| Node::Png(s, index)).ok_or(Errno::NOENT.into())
            }
            Node::Files(s) => self.named(s, name),
            Node::Tree(id) => {
                let tree = self.tree()?;
                if !matches!(tree.node(id)?.kind, NodeKind::Dir { .. }) {
                    return Err(Errno::NOTDIR.into());
                }
                let id = tree.lookup(id, name)?.ok_or(Errno::NOENT)?;
                // All names of a hard-linked file are one inode.
                Ok(Node::Tree(tree.node(id)?.ino))
            }
            Node::Streams => {
                let Source::Dataset(dataset) = &self.source else { return Err(Errno::NOENT.into()) };
                let found = dataset.streams().binary_search_by(|(n, _)| n.as_bytes().cmp(name));
                found.map(|s| Node::Stream(s as u16)).map_err(|_| Errno::NOENT.into())
            }
            Node::Root | Node::Stream(_) | Node::Zrfs => (0..)
                .map_while(|k| self.fixed_child(dir, k))
                .find_map(|(n, node)| (*n == *name).then_some(node))
                .ok_or(Failure::Errno(Errno::NOENT)),
            Node::Readahead => self.spelled(name),
            Node::Batches | Node::At | Node::Spec(_) | Node::BatchDir(_) | Node::Samples | Node::Sample(_) => {
                self.batch_child(dir, name)
            }
            Node::Views => Ok(self.view_file(parse_index(name))?),
            Node::BatchIndices(_) | Node::BatchFile(..) => Err(Errno::NOTDIR.into()),
            Node::Record(..) | Node::Npy(..) | Node::Png(..) => Err(Errno::NOTDIR.into()),
            Node::Info | Node::Stats | Node::Spelled(_) | Node::Control | Node::View(_) => Err(Errno::NOTDIR.into()),
        }
    }

    /// The k-th entry of a directory whose entries don't come from a store's table or tree.
    pub(super) fn fixed_child(&self, dir: Node, k: u64) -> Option<(Cow<'_, [u8]>, Node)> {
        let stream_dirs = |s: u16| {
            let typed = self.stream(s).is_ok_and(|stream| stream.schema().is_some());
            [
                (true, "records", Node::Records(s)),
                (typed, "npy", Node::Npys(s)),
                (self.has_pictures(s), "png", Node::Pngs(s)),
                (self.options.names.is_some(), "files", Node::Files(s)),
            ]
        };
        let pick = |all: &[(bool, &'static str, Node)]| {
            let mut there = all.iter().filter(|(there, ..)| *there);
            let (_, name, node) = there.nth(usize::try_from(k).ok()?)?;
            Some((Cow::Borrowed(name.as_bytes()), *node))
        };
        match (dir, &self.source) {
            (Node::Root, Source::Store(_)) => {
                let [records, npy, png, files] = stream_dirs(0);
                pick(&[records, npy, png, files, (true, "batches", Node::Batches), (true, ".zrfs", Node::Zrfs)])
            }
            (Node::Root, Source::Dataset(dataset)) => pick(&[
                (true, "streams", Node::Streams),
                (true, "samples", Node::Samples),
                (true, "batches", Node::Batches),
                (dataset.tree().is_some(), "tree", Node::Tree(0)),
                (true, ".zrfs", Node::Zrfs),
            ]),
            (Node::Streams, Source::Dataset(dataset)) => {
                let s = usize::try_from(k).ok()?;
                let (name, _) = dataset.streams().get(s)?;
                Some((Cow::Borrowed(name.as_bytes()), Node::Stream(s as u16)))
            }
            (Node::Stream(s), Source::Dataset(_)) => pick(&stream_dirs(s)),
            (Node::Zrfs, _) => pick(&[
                (true, "info.json", Node::Info),
                (true, "readahead", Node::Readahead),
                (true, "control", Node::Control),
                (true, "views", Node::Views),
                // Found by its name and not listed: to what copies the whole mount it would change while it is read.
                (true, "stats.json", Node::Stats),
            ]),
            _ => None,
        }
    }

    /// Fails for a directory of records that the stream has not.
    pub(super) fn check_dir(&self, dir: Node, s: u16) -> Result<(), Failure> {
        let stream = self.stream(s)?;
        let there = match dir {
            Node::Npys(_) => stream.schema().is_some(),
            Node::Pngs(_) => self.has_pictures(s),
            Node::Files(_) => self.options.names.is_some(),
            _ => true,
        };
        if there { Ok(()) } else { Err(Errno::NOENT.into()) }
    }
}
