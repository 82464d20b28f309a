//! A store or dataset described, in the words of `zrfs info --json` and of a mount's `.zrfs/info.json`.

use crate::dataset::{Dataset, Source, Stream};
use crate::format::Kind;
use serde_json::{Map, Value, json};

/// What `source` holds: its kind, records, codec, types and sizes. Costs the same for any number of records.
pub fn info(source: &Source) -> Map<String, Value> {
    match source {
        Source::Store(stream) => store(stream),
        Source::Dataset(dataset) => dataset_info(dataset),
    }
}

fn store(stream: &Stream) -> Map<String, Value> {
    let store = stream.store();
    let mut out = Map::new();
    let kind = match stream.schema().map(|s| &s.kind) {
        None => "bytes",
        Some(Kind::Dense { .. }) => "dense",
        Some(Kind::Ragged) => "ragged",
    };
    out.insert("kind".into(), kind.into());
    out.insert("records".into(), stream.len().into());
    out.insert("codec".into(), store.codec().name().into());
    out.insert("stored_bytes".into(), store.chunk_bytes().into());
    if let Some(schema) = stream.schema() {
        out.insert("dtype".into(), schema.dtype.as_str().into());
        if let (Kind::Dense { item_shape }, Some(bytes)) = (&schema.kind, schema.record_bytes()) {
            out.insert("shape".into(), item_shape.clone().into());
            out.insert("bytes".into(), bytes.saturating_mul(stream.len()).into());
        }
        for (key, value) in &schema.extra {
            let user = out.entry("user").or_insert_with(|| json!({}));
            // What msgpack has and JSON has not (binary, other keys than texts) is shown as text.
            let shown = match value {
                rmpv::Value::Boolean(b) => (*b).into(),
                rmpv::Value::Integer(i) => i.as_i64().map(Value::from).or(i.as_u64().map(Value::from)).into(),
                rmpv::Value::F64(f) => (*f).into(),
                rmpv::Value::F32(f) => f64::from(*f).into(),
                rmpv::Value::String(s) => s.as_str().unwrap_or_default().into(),
                other => other.to_string().into(),
            };
            if let Some(user) = user.as_object_mut() {
                user.insert(key.as_str().map_or_else(|| key.to_string(), str::to_string), shown);
            }
        }
    }
    out
}

fn dataset_info(dataset: &Dataset) -> Map<String, Value> {
    let streams: Map<String, Value> =
        dataset.streams().iter().map(|(name, stream)| (name.clone(), Value::Object(store(stream)))).collect();
    let mut out = Map::new();
    out.insert("kind".into(), "dataset".into());
    out.insert("records".into(), dataset.len().into());
    out.insert("streams".into(), streams.into());
    if let Some(tree) = dataset.tree() {
        let tree = tree.summary();
        let tree = json!({
            "files": tree.files,
            "directories": tree.dirs,
            "symlinks": tree.symlinks,
            "bytes": tree.total_bytes,
            "piece_bytes": tree.piece_bytes,
            "index_bytes": tree.index_bytes,
        });
        out.insert("tree".into(), tree);
    }
    out
}
