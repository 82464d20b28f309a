//! Extended attributes: what the engine knows of a file, asked for by name.
//!
//! They are not in the list of a file's attributes. A copying tool lists first and then asks for each, on every file; what
//! it would find is about the store, and wrong on the copy. Who wants one asks for it, and `user.zrfs` names them all.

use super::{Failure, Fs};
use crate::errno::Errno;
use crate::namespace::Node;
use zrfs::format::Kind as SchemaKind;
use zrfs::tree::NodeKind;
use zrfs::{Source, Stream};

const PREFIX: &[u8] = b"user.zrfs";
/// All that any file has, after the prefix and a dot.
const KEYS: [&str; 9] = ["codec", "dtype", "index", "kind", "pieces", "records", "shape", "stored", "stream"];

impl Fs {
    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` where the file has none of this name; `EOPNOTSUPP` for names outside `user.`, which lets tools stop
    /// asking; `ENOSYS` where the mount has none at all, which lets the kernel stop asking; `ENOENT`, `EIO`.
    pub fn getxattr(&self, ino: u64, name: &[u8]) -> Result<Vec<u8>, Errno> {
        if !self.options.xattrs {
            return Err(Errno::NOSYS);
        }
        if !name.starts_with(b"user.") {
            return Err(Errno::OPNOTSUPP);
        }
        let rest = name.strip_prefix(PREFIX).ok_or(Errno::NODATA)?;
        self.value_of(ino, rest).map_err(|e| self.fail(ino, None, e))
    }

    /// The list of a file's extended attributes, which has none. That it is a list lets tools copy in silence, where
    /// `EOPNOTSUPP` makes some warn of every file.
    ///
    /// # Errors
    /// `ENOSYS` where the mount has no extended attributes, which lets the kernel stop asking.
    pub fn listxattr(&self) -> Result<&'static [u8], Errno> {
        if self.options.xattrs { Ok(&[]) } else { Err(Errno::NOSYS) }
    }

    fn value_of(&self, ino: u64, rest: &[u8]) -> Result<Vec<u8>, Failure> {
        let node = self.node(ino)?;
        if rest.is_empty() {
            let mut names = Vec::new();
            for key in KEYS {
                if self.value(node, key)?.is_some() {
                    names.push(key);
                }
            }
            return Ok(names.join(" ").into_bytes());
        }
        let key = rest.strip_prefix(b".").and_then(|key| KEYS.into_iter().find(|k| k.as_bytes() == key));
        let value = key.map(|key| self.value(node, key)).transpose()?.flatten();
        Ok(value.ok_or(Errno::NODATA)?.into_bytes())
    }

    fn value(&self, node: Node, key: &str) -> Result<Option<String>, Failure> {
        match node {
            Node::Record(s, index) | Node::Npy(s, index) | Node::Png(s, index) => self.of_record(s, index, key),
            Node::Records(s) | Node::Npys(s) | Node::Pngs(s) | Node::Files(s) | Node::Stream(s) => {
                self.of_stream(s, key)
            }
            Node::Root if matches!(self.source, Source::Store(_)) => self.of_stream(0, key),
            Node::Root => Ok(match key {
                "kind" => Some("dataset".into()),
                "records" => Some(self.source.len().to_string()),
                _ => None,
            }),
            Node::Tree(id) => self.of_file(id, key),
            Node::BatchFile(s, ..) => match key {
                "records" => self.count_of(node),
                "shape" => Ok(None),
                _ => self.of_stream(s, key),
            },
            Node::Spec(_) | Node::BatchDir(_) | Node::BatchIndices(_) => match key {
                "records" => self.count_of(node),
                _ => Ok(None),
            },
            Node::Batches | Node::At | Node::Samples | Node::Sample(_) => Ok(None),
            Node::Streams | Node::Zrfs | Node::Info | Node::Stats | Node::Readahead | Node::Spelled(_) => Ok(None),
            Node::Control | Node::Views | Node::View(_) => Ok(None),
        }
    }

    /// Of a sampler how many records it draws from, of a batch how many it has.
    fn count_of(&self, node: Node) -> Result<Option<String>, Failure> {
        Ok(self.batch_records(node)?.map(|n| n.to_string()))
    }

    fn of_record(&self, s: u16, index: u64, key: &str) -> Result<Option<String>, Failure> {
        let stream = self.stream(s)?;
        Ok(match key {
            "index" => Some(index.to_string()),
            "stored" => Some(stream.store().entry(index)?.phys_length.to_string()),
            "shape" => stream.shape(index)?.map(|shape| list(&shape)),
            "codec" | "dtype" | "stream" => self.of_stream(s, key)?,
            _ => None,
        })
    }

    fn of_stream(&self, s: u16, key: &str) -> Result<Option<String>, Failure> {
        let stream = self.stream(s)?;
        let kind = stream.schema().map(|schema| &schema.kind);
        Ok(match key {
            "codec" => Some(stream.store().codec().to_string()),
            "records" => {
                self.refresh(s)?;
                Some(stream.len().to_string())
            }
            "dtype" => stream.schema().map(|schema| schema.dtype.as_str().to_string()),
            "kind" => Some(match kind {
                Some(SchemaKind::Dense { .. }) => "dense".into(),
                Some(SchemaKind::Ragged) => "ragged".into(),
                None => "bytes".into(),
            }),
            "shape" => match kind {
                Some(SchemaKind::Dense { item_shape }) => Some(list(item_shape)),
                _ => None,
            },
            "stream" => match &self.source {
                Source::Dataset(dataset) => dataset.streams().get(usize::from(s)).map(|(name, _)| name.clone()),
                Source::Store(_) => None,
            },
            _ => None,
        })
    }

    /// Of a file of the tree: its first record, and how many pieces it is stored in.
    fn of_file(&self, id: u64, key: &str) -> Result<Option<String>, Failure> {
        let node = self.tree()?.node(id)?;
        let NodeKind::File { first, records, .. } = node.kind else { return Ok(None) };
        let codec = |stream: &Stream| stream.store().codec().to_string();
        Ok(match key {
            "codec" => Some(codec(self.data_stream()?.1)),
            "index" if records > 0 => Some(first.to_string()),
            "pieces" => Some(records.to_string()),
            _ => None,
        })
    }
}

/// As JSON has it: `[28,28]`.
fn list(shape: &[u64]) -> String {
    let numbers: Vec<String> = shape.iter().map(u64::to_string).collect();
    format!("[{}]", numbers.join(","))
}
