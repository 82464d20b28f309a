//! The check of a whole tree index: what reading single nodes cannot see.

use super::Tree;
use super::view::View;
use crate::error::{Error, Result};
use crate::format::tree::{Header, Kind};

impl Tree {
    /// Reads every node and checks the whole: that each node is in exactly one directory, names ascend, links, counts
    /// and bytes add up to the header's, and the names fill the heap. Reads the file once from end to end, plus one
    /// read a hard link and a directory; memory does not grow with the tree.
    ///
    /// # Errors
    /// [`Error::Corrupt`] at the first contradiction, [`Error::Io`] if the file cannot be read.
    pub fn verify(&self) -> Result<()> {
        let header = &self.header;
        // `parents` walks the directories beside `nodes`: in breadth-first order both only ever move forward.
        let (mut nodes, mut parents, mut owners) = (View::new(self), View::new(self), View::new(self));
        let (mut parent, mut children) = (0, 0..0);
        let (mut expected_first, mut heap, mut last) = (1_u64, 0_u64, Vec::new());
        let (mut files, mut dirs, mut symlinks, mut names, mut bytes) = (0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
        let (mut subdirs, mut seen_subdirs) = (0_u64, 0_u64);
        let broken = |id: u64, reason: &str| Err(Error::corrupt(self.blocks.path(), header.node_offset(id), reason));
        for id in 0..header.node_count {
            let record = nodes.record(id)?;
            if id == 0 {
                children = record.first..record.first.saturating_add(record.size);
                subdirs = u64::from(record.nlink).saturating_sub(2);
            } else {
                while !children.contains(&id) {
                    if seen_subdirs != subdirs {
                        return broken(parent, "its links do not match its subdirectories");
                    }
                    // The next directory; every node between was seen already, so it is below `id`.
                    loop {
                        parent = parent.saturating_add(1);
                        if parent >= id {
                            return broken(id, "the node is in no directory");
                        }
                        let record = parents.record(parent)?;
                        if record.kind == Kind::Dir {
                            children = record.first..record.first.saturating_add(record.size);
                            (subdirs, seen_subdirs) = (u64::from(record.nlink).saturating_sub(2), 0);
                            break;
                        }
                    }
                    last.clear();
                }
                if u64::from(record.parent) != parent {
                    return broken(id, "the node is listed in one directory and belongs to another");
                }
                if nodes.name <= last {
                    return broken(id, "its name does not come after the one before it");
                }
                last.clone_from(&nodes.name);
            }
            if record.name_off != heap {
                return broken(id, "its name does not follow the one before it");
            }
            heap = heap.saturating_add(u64::from(record.name_len));
            match record.kind {
                Kind::Dir => {
                    dirs = dirs.saturating_add(1);
                    seen_subdirs = seen_subdirs.saturating_add(u64::from(id != 0));
                    if record.size > 0 && record.first != expected_first {
                        return broken(id, "its children do not follow those of the directory before it");
                    }
                    expected_first = expected_first.saturating_add(record.size);
                }
                Kind::File => {
                    files = files.saturating_add(1);
                    names = names.saturating_add(u64::from(record.nlink));
                    bytes = bytes.saturating_add(record.size);
                }
                Kind::Symlink => {
                    symlinks = symlinks.saturating_add(1);
                    if record.first != heap {
                        return broken(id, "its target does not follow its name");
                    }
                    heap = heap.saturating_add(record.size);
                }
                Kind::Alias => {
                    files = files.saturating_add(1);
                    if owners.record(record.first)?.kind != Kind::File {
                        return broken(id, "a further name of what is no file");
                    }
                }
            }
        }
        if seen_subdirs != subdirs {
            return broken(parent, "its links do not match its subdirectories");
        }
        let counted = Header {
            file_count: files,
            dir_count: dirs,
            symlink_count: symlinks,
            heap_len: heap,
            total_bytes: bytes,
            ..*header
        };
        if counted != *header || names != files || expected_first != header.node_count {
            return Err(Error::corrupt(self.blocks.path(), 0, "the nodes do not add up to the header's counts"));
        }
        Ok(())
    }
}
