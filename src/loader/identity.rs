//! What tells one set of streams from another: a fingerprint that is cheap to compute and does not depend on the path.

use super::builder::stem;
use crate::dataset::{Source, Stream};
use crate::format::{Kind, Schema};

/// So many records of a stream, evenly spread, have their first bytes in the fingerprint …
const SAMPLES: u64 = 8;
/// … at most so many.
const SAMPLE_BYTES: usize = 1024;

/// The fingerprint of streams: their names, codecs, lengths, types, where their chunks end, and the first stored bytes of
/// a few records. It is the same for a copy; it changes when records are appended or deleted, the store is compacted or
/// compressed anew, and, most likely, when it holds other data.
pub(super) fn fingerprint<'a>(streams: impl IntoIterator<Item = (&'a str, &'a Stream)>) -> u64 {
    let mut hash = Fnv::default();
    for (name, stream) in streams {
        hash.bytes(name.as_bytes());
        add_stream(&mut hash, stream);
    }
    hash.0
}

impl Source {
    /// The names that a loader gives its streams: of a store that of its directory without the extension.
    pub fn stream_names(&self) -> Vec<String> {
        match self {
            Source::Store(stream) => vec![stem(stream.store().path())],
            Source::Dataset(dataset) => dataset.streams().iter().map(|(name, _)| name.clone()).collect(),
        }
    }

    /// What a loader over all of it knows it by: the same for a copy of the same name, another one when records were
    /// appended or deleted and, most likely, for other data.
    pub fn fingerprint(&self) -> u64 {
        let names = self.stream_names();
        match self {
            Source::Store(stream) => fingerprint(names.iter().map(|name| (&name[..], &**stream))),
            Source::Dataset(dataset) => fingerprint(dataset.streams().iter().map(|(name, stream)| (&name[..], stream))),
        }
    }
}

fn add_stream(hash: &mut Fnv, stream: &Stream) {
    let (store, header) = (stream.store(), stream.store().header());
    hash.bytes(store.codec().name().as_bytes());
    hash.number(header.length);
    hash.number(header.tail_chunk.into());
    hash.number(header.tail_offset.into());
    if let Some(Schema { dtype, kind, .. }) = stream.schema() {
        hash.bytes(dtype.as_str().as_bytes());
        match kind {
            Kind::Dense { item_shape } => {
                hash.number(item_shape.len() as u64);
                item_shape.iter().for_each(|&d| hash.number(d));
            }
            Kind::Ragged => hash.bytes(b"ragged"),
        }
    }
    let mut sample = [0; SAMPLE_BYTES];
    for k in 0..SAMPLES.min(header.length) {
        // From the first to the last one, without overflow for any length.
        let last = u128::from(header.length - 1);
        let index = (last * u128::from(k) / u128::from(SAMPLES - 1)) as u64;
        // A record that cannot be read fails at the step that wants it, not here.
        let n = store.read_stored(index, &mut sample).unwrap_or(0);
        hash.bytes(&sample[..n]);
    }
}

/// FNV-1a of 64 bits: the same on every machine and in every version.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xCBF2_9CE4_8422_2325)
    }
}

impl Fnv {
    fn number(&mut self, number: u64) {
        for byte in number.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }

    /// With their number, so that two texts after each other are not one.
    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_is_the_published_one() {
        let mut hash = Fnv::default();
        for byte in *b"foobar" {
            hash.0 = (hash.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        assert_eq!(hash.0, 0x8594_4171_F739_67E8);
        let [mut one, mut two] = [Fnv::default(), Fnv::default()];
        one.bytes(b"ab");
        one.bytes(b"c");
        two.bytes(b"a");
        two.bytes(b"bc");
        assert_ne!(one.0, two.0);
    }
}
