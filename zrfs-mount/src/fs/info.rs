//! `.zrfs/info.json`: what is mounted, for programs.

use super::Fs;
use serde_json::{Map, Value, json};
use std::path::Path;
use zrfs::format::Kind;
use zrfs::{Source, Stream};

impl Fs {
    /// The file's bytes, made anew each time since the number of records may grow. Keys are in alphabetical order.
    pub(super) fn info(&self) -> Vec<u8> {
        for s in 0..self.states.len() {
            // A store that can't be refreshed still has the length it had.
            let _ = self.refresh(s as u16);
        }
        let mut info = match &self.source {
            Source::Store(stream) => {
                let mut info = describe(stream);
                info.insert("kind".into(), "store".into());
                info
            }
            Source::Dataset(dataset) => {
                let streams = dataset.streams().iter();
                let streams: Map<_, _> = streams.map(|(n, s)| (n.clone(), Value::Object(describe(s)))).collect();
                let mut info = Map::new();
                info.insert("kind".into(), "dataset".into());
                info.insert("records".into(), dataset.len().into());
                info.insert("streams".into(), streams.into());
                if let Some(tree) = dataset.tree().map(|t| t.summary()) {
                    let tree = json!({
                        "bytes": tree.total_bytes, "dirs": tree.dirs, "files": tree.files, "symlinks": tree.symlinks,
                    });
                    info.insert("tree".into(), tree);
                }
                info
            }
        };
        info.insert("name".into(), name(self.source.path()).into());
        info.insert("version".into(), env!("CARGO_PKG_VERSION").into());
        let mut text = serde_json::to_vec_pretty(&Value::Object(info)).unwrap_or_default();
        text.push(b'\n');
        text
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn describe(stream: &Stream) -> Map<String, Value> {
    let mut info = Map::new();
    info.insert("codec".into(), stream.store().codec().name().into());
    info.insert("records".into(), stream.len().into());
    info.insert("stored_bytes".into(), stream.store().chunk_bytes().into());
    if let Some(schema) = stream.schema() {
        info.insert("dtype".into(), schema.dtype.as_str().into());
        match &schema.kind {
            Kind::Dense { item_shape } => {
                info.insert("layout".into(), "dense".into());
                info.insert("shape".into(), item_shape.clone().into());
            }
            Kind::Ragged => {
                info.insert("layout".into(), "ragged".into());
                info.insert("shape".into(), Value::Null);
            }
        }
    }
    info
}
