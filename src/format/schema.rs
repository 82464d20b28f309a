//! `schema.msgpack`: what the bytes of a typed store's records mean.
//!
//! The schema of a ragged store holds one shape a record, so it is as long as the store. It is therefore read up to
//! the shapes only; where they stand last, as loaderx and zrfs write them, opening costs the same for any number of
//! records.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

use super::dtype::DType;
use super::header::Codec;
use rmpv::Value;
use rmpv::decode::read_value_with_max_depth;
use std::io::Read;

/// What the key `format` must say.
const FORMAT: &str = "loaderx-zrecord";
/// The schema version that this crate reads and writes.
const VERSION: u64 = 1;
/// More dimensions than numpy has (64) are refused.
pub const MAX_DIMS: u32 = 64;
/// Everything in a schema but its shapes has at most this many bytes.
const MAX_BYTES: u64 = 64 << 20;
/// A schema's values nest at most so deep.
const MAX_DEPTH: usize = 32;
/// A schema has at most so many keys.
const MAX_KEYS: u32 = 1 << 16;

/// Whether all records of a store have one shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Every record has this shape.
    Dense {
        /// The shape of a record, outermost dimension first; empty for scalars.
        item_shape: Vec<u64>,
    },
    /// Each record has a shape of its own.
    Ragged,
}

/// The type of a store's records.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    /// Dense or ragged.
    pub kind: Kind,
    /// The type of an array's items.
    pub dtype: DType,
    /// The store's codec, which the header says too; the schemas of early stores lack it.
    pub codec: Option<Codec>,
    /// The user's own keys, in their order.
    pub extra: Vec<(Value, Value)>,
}

/// Where a ragged schema's shapes stand in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapesAt {
    /// Byte offset of the key `shapes`.
    pub key: u64,
    /// Byte offset of the list's own bytes, which say how long it is.
    pub head: u64,
    /// Byte offset of the first shape.
    pub offset: u64,
    /// How many shapes the file says it has.
    pub count: u32,
    /// Where other keys follow the last shape; `None` if it is the end of the file.
    pub end: Option<u64>,
}

impl ShapesAt {
    /// The list's own bytes for `count` shapes, if they fit where the present ones stand.
    pub fn head_in_place(&self, count: u32) -> Option<Vec<u8>> {
        let [_, _, b2, b3] = count.to_be_bytes();
        let [b0, b1, ..] = count.to_be_bytes();
        match self.offset.checked_sub(self.head)? {
            1 if count < 16 => Some(vec![0x90 | b3]),
            3 if count < 1 << 16 => Some(vec![0xdc, b2, b3]),
            5 => Some(vec![0xdd, b0, b1, b2, b3]),
            _ => None,
        }
    }
}

/// The bytes before a list of `count` shapes, as few as there can be.
pub fn encode_shapes_head(count: u32) -> Vec<u8> {
    let mut out = Vec::new();
    // Writing to a Vec cannot fail.
    let _ = rmp::encode::write_array_len(&mut out, count);
    out
}

impl Schema {
    /// Bytes of one record of a dense store; `None` for a ragged one, or if the product overflows.
    pub fn record_bytes(&self) -> Option<u64> {
        match &self.kind {
            Kind::Dense { item_shape } => bytes_of(&self.dtype, item_shape),
            Kind::Ragged => None,
        }
    }

    /// The bytes of `schema.msgpack`: all of it for a dense store, all up to the first of `shapes` shapes for a ragged
    /// one.
    pub fn encode(&self, shapes: u32) -> Vec<u8> {
        let mut pairs: Vec<(Value, Value)> = vec![
            ("format".into(), FORMAT.into()),
            ("version".into(), VERSION.into()),
            ("kind".into(), if matches!(self.kind, Kind::Ragged) { "ragged" } else { "dense" }.into()),
            ("dtype".into(), self.dtype.as_str().into()),
        ];
        pairs.extend(self.codec.map(|codec| ("codec".into(), codec.name().into())));
        if let Kind::Dense { item_shape } = &self.kind {
            pairs.push(("item_shape".into(), Value::Array(item_shape.iter().map(|&d| d.into()).collect())));
        }
        pairs.extend(self.extra.iter().cloned());
        let mut out = Vec::new();
        let ragged = self.kind == Kind::Ragged;
        let keys = pairs.len().saturating_add(usize::from(ragged)) as u32;
        // Writing to a Vec cannot fail.
        let _ = rmp::encode::write_map_len(&mut out, keys);
        for (key, value) in &pairs {
            write_value(&mut out, key);
            write_value(&mut out, value);
        }
        if ragged {
            let _ = rmp::encode::write_str(&mut out, "shapes");
            out.extend(encode_shapes_head(shapes));
        }
        out
    }

    /// Reads `schema.msgpack`, up to its shapes where they stand last.
    ///
    /// # Errors
    /// The offset in the file and the reason.
    pub fn decode(input: impl Read) -> Result<(Schema, Option<ShapesAt>), (u64, String)> {
        let mut input = Counting { inner: input, at: 0 };
        decode_map(&mut input).map_err(|reason| (input.at, reason))
    }
}

/// Bytes of an array; `None` if they overflow.
pub fn bytes_of(dtype: &DType, shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(dtype.itemsize(), |bytes, &d| bytes.checked_mul(d))
}

/// Appends one record's shape as `schema.msgpack` holds it.
pub fn encode_shape(shape: &[u64], out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = rmp::encode::write_array_len(out, shape.len() as u32);
    for &d in shape {
        let _ = rmp::encode::write_uint(out, d);
    }
}

/// Reads one record's shape; the dimensions replace those in `shape`.
///
/// # Errors
/// Why there is no shape.
pub fn decode_shape(input: &mut impl Read, shape: &mut Vec<u64>) -> Result<(), String> {
    shape.clear();
    let dims = rmp::decode::read_array_len(input).map_err(|e| format!("no list of dimensions: {e}"))?;
    if dims > MAX_DIMS {
        return Err(format!("a shape of {dims} dimensions; there are at most {MAX_DIMS}"));
    }
    for _ in 0..dims {
        shape.push(rmp::decode::read_int(input).map_err(|e| format!("no dimension: {e}"))?);
    }
    Ok(())
}

/// A reader that counts what was read, for the offsets of errors.
struct Counting<R> {
    inner: R,
    at: u64,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.at = self.at.saturating_add(n as u64);
        Ok(n)
    }
}

fn decode_map<R: Read>(input: &mut Counting<R>) -> Result<(Schema, Option<ShapesAt>), String> {
    let keys = rmp::decode::read_map_len(input).map_err(|e| format!("a schema is a msgpack map: {e}"))?;
    if keys > MAX_KEYS {
        return Err(format!("a map of {keys} keys; a schema has at most {MAX_KEYS}"));
    }
    let mut fields = Fields::default();
    let mut shapes = None;
    for left in (0..keys).rev() {
        let key_at = input.at;
        let key = value(input)?;
        if key.as_str() != Some("shapes") {
            let value = value(input)?;
            fields.take(key, value)?;
            continue;
        }
        if shapes.is_some() {
            return Err("the key shapes stands twice".into());
        }
        let head = input.at;
        let count = rmp::decode::read_array_len(input).map_err(|e| format!("shapes is no list: {e}"))?;
        let offset = input.at;
        if left > 0 {
            let mut shape = Vec::new();
            for _ in 0..count {
                decode_shape(input, &mut shape)?;
            }
        }
        shapes = Some(ShapesAt { key: key_at, head, offset, count, end: (left > 0).then_some(input.at) });
    }
    let ends = shapes.is_none_or(|s| s.end.is_some());
    if ends && input.read(&mut [0]).map_err(|e| e.to_string())? != 0 {
        return Err("something follows the schema's end".into());
    }
    let schema = fields.schema(shapes.is_some())?;
    Ok((schema, shapes))
}

/// Appends a value. rmpv alone would make binaries of texts that are not UTF-8, which Python writes.
fn write_value(out: &mut Vec<u8>, value: &Value) {
    // Writing to a Vec cannot fail.
    match value {
        Value::String(text) => {
            let _ = rmp::encode::write_str_len(out, text.as_bytes().len() as u32);
            out.extend(text.as_bytes());
        }
        Value::Array(items) => {
            let _ = rmp::encode::write_array_len(out, items.len() as u32);
            items.iter().for_each(|item| write_value(out, item));
        }
        Value::Map(pairs) => {
            let _ = rmp::encode::write_map_len(out, pairs.len() as u32);
            pairs.iter().flat_map(|(key, value)| [key, value]).for_each(|part| write_value(out, part));
        }
        other => {
            let _ = rmpv::encode::write_value(out, other);
        }
    }
}

/// One msgpack value, of bounded size.
fn value<R: Read>(input: &mut Counting<R>) -> Result<Value, String> {
    let mut limited = input.take(MAX_BYTES);
    read_value_with_max_depth(&mut limited, MAX_DEPTH).map_err(|e| format!("no msgpack value: {e}"))
}

/// The keys that make up a schema, as far as they were met.
#[derive(Default)]
struct Fields {
    format: Option<Value>,
    version: Option<Value>,
    kind: Option<Value>,
    dtype: Option<Value>,
    codec: Option<Value>,
    item_shape: Option<Value>,
    extra: Vec<(Value, Value)>,
}

impl Fields {
    fn take(&mut self, key: Value, value: Value) -> Result<(), String> {
        let slot = match key.as_str() {
            Some("format") => &mut self.format,
            Some("version") => &mut self.version,
            Some("kind") => &mut self.kind,
            Some("dtype") => &mut self.dtype,
            Some("codec") => &mut self.codec,
            Some("item_shape") => &mut self.item_shape,
            _ => {
                self.extra.push((key, value));
                return Ok(());
            }
        };
        if slot.replace(value).is_some() {
            return Err(format!("the key {key} stands twice"));
        }
        Ok(())
    }

    fn schema(self, has_shapes: bool) -> Result<Schema, String> {
        let text = |value: &Option<Value>, key: &str| -> Result<String, String> {
            let value = value.as_ref().ok_or_else(|| format!("the key {key} is missing"))?;
            Ok(value.as_str().ok_or_else(|| format!("{key} is {value}, not a text"))?.to_string())
        };
        let format = text(&self.format, "format")?;
        if format != FORMAT {
            return Err(format!("the format is {format:?}, not {FORMAT:?}"));
        }
        if self.version.as_ref().and_then(Value::as_u64) != Some(VERSION) {
            let version = self.version.unwrap_or(Value::Nil);
            return Err(format!("the schema's version is {version}; this program reads version {VERSION}"));
        }
        let kind = match text(&self.kind, "kind")?.as_str() {
            "dense" => {
                let value = self.item_shape.ok_or("a dense schema has no item_shape")?;
                let dims = value.as_array().ok_or_else(|| format!("item_shape is {value}, not a list"))?;
                if dims.len() > MAX_DIMS as usize {
                    return Err(format!("an item_shape of {} dimensions; there are at most {MAX_DIMS}", dims.len()));
                }
                let dim = |d: &Value| d.as_u64().ok_or_else(|| format!("item_shape has the dimension {d}"));
                Kind::Dense { item_shape: dims.iter().map(dim).collect::<Result<_, _>>()? }
            }
            "ragged" if has_shapes => Kind::Ragged,
            "ragged" => return Err("a ragged schema has no shapes".into()),
            other => return Err(format!("the kind is {other:?}; there are dense and ragged")),
        };
        let dtype = DType::parse(&text(&self.dtype, "dtype")?)?;
        let codec = match &self.codec {
            None => None,
            given => Some(text(given, "codec")?.parse()?),
        };
        let schema = Schema { kind, dtype, codec, extra: self.extra };
        if matches!(schema.kind, Kind::Dense { .. }) && schema.record_bytes().is_none() {
            return Err("the item_shape has more bytes than can be counted".into());
        }
        Ok(schema)
    }
}
