//! `.zrfs/info.json`: what is mounted, for programs. The keys are those of `zrfs info --json`, after the mount's own.

use super::Fs;
use serde_json::{Map, Value, json};
use std::path::Path;
use zrfs::format::Kind;
use zrfs::{Source, Stream};

impl Fs {
    /// The file's bytes, made anew each time since the number of records may grow.
    pub(super) fn info(&self) -> Vec<u8> {
        for s in 0..self.states.len() {
            // A store that can't be refreshed still has the length it had.
            let _ = self.refresh(s as u16);
        }
        let mut info = Map::new();
        info.insert("name".into(), name(self.source.path()).into());
        info.insert("version".into(), env!("CARGO_PKG_VERSION").into());
        match &self.source {
            Source::Store(stream) => info.extend(describe(stream)),
            Source::Dataset(dataset) => {
                let streams = dataset.streams().iter();
                let streams: Map<_, _> = streams.map(|(n, s)| (n.clone(), Value::Object(describe(s)))).collect();
                info.insert("kind".into(), "dataset".into());
                info.insert("records".into(), dataset.len().into());
                info.insert("streams".into(), streams.into());
                if let Some(tree) = dataset.tree().map(|t| t.summary()) {
                    let tree = json!({
                        "files": tree.files,
                        "directories": tree.dirs,
                        "symlinks": tree.symlinks,
                        "bytes": tree.total_bytes,
                        "piece_bytes": tree.piece_bytes,
                        "index_bytes": tree.index_bytes,
                    });
                    info.insert("tree".into(), tree);
                }
            }
        }
        let mut text = serde_json::to_vec_pretty(&Value::Object(info)).unwrap_or_default();
        text.push(b'\n');
        text
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn describe(stream: &Stream) -> Map<String, Value> {
    let kind = match stream.schema().map(|s| &s.kind) {
        None => "bytes",
        Some(Kind::Dense { .. }) => "dense",
        Some(Kind::Ragged) => "ragged",
    };
    let mut info = Map::new();
    info.insert("kind".into(), kind.into());
    info.insert("records".into(), stream.len().into());
    info.insert("codec".into(), stream.store().codec().name().into());
    info.insert("stored_bytes".into(), stream.store().chunk_bytes().into());
    if let Some(schema) = stream.schema() {
        info.insert("dtype".into(), schema.dtype.as_str().into());
        if let Kind::Dense { item_shape } = &schema.kind {
            info.insert("shape".into(), item_shape.clone().into());
            let bytes = schema.record_bytes().and_then(|record| record.checked_mul(stream.len()));
            info.insert("bytes".into(), bytes.into());
        }
    }
    info
}
