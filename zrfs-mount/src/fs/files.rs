//! What records are besides their bytes: files with a name, and pictures.

use super::read::copy_from;
use super::{Failure, Fs};
use crate::errno::Errno;
use crate::namespace::Node;
use crate::png::{Image, is_byte};
use zrfs::format::Kind;
use zrfs::sniff;

/// In the cache of decoded bytes, a stream's pictures come after the 2^16 streams' records.
const PICTURES: u32 = 1 << 16;

impl Fs {
    /// Whether the stream has a directory `png`: what a record of a dense store is, or the first of a ragged one.
    pub(super) fn has_pictures(&self, s: u16) -> bool {
        let (Ok(stream), Ok(state)) = (self.stream(s), self.state(s)) else { return false };
        let Some(schema) = stream.schema() else { return false };
        // The type alone decides most cases, without a look at the shapes.
        if !is_byte(&schema.dtype) {
            return false;
        }
        match &schema.kind {
            Kind::Dense { item_shape } => Image::of(&schema.dtype, item_shape).is_some(),
            Kind::Ragged if stream.is_empty() => false,
            // The first look at a shape reads all of them, so it is put off until somebody asks.
            Kind::Ragged => *state.pictures.get_or_init(|| matches!(self.image(s, 0), Ok(Some(_)))),
        }
    }

    /// The picture that a record is, if it is one.
    pub(super) fn image(&self, s: u16, index: u64) -> Result<Option<Image>, Failure> {
        let stream = self.stream(s)?;
        let Some(schema) = stream.schema() else { return Ok(None) };
        Ok(stream.shape(index)?.and_then(|shape| Image::of(&schema.dtype, &shape)))
    }

    pub(super) fn read_png(&self, s: u16, index: u64, offset: u64, dst: &mut [u8]) -> Result<usize, Failure> {
        let image = self.image(s, index)?.ok_or(Errno::NOENT)?;
        if offset >= image.file_len() || dst.is_empty() {
            return Ok(0);
        }
        let store = self.stream(s)?.store();
        let encode = |file: &mut [u8]| {
            file.copy_from_slice(&image.encode(&store.read(index)?));
            Ok(())
        };
        let file = self.cache.get((PICTURES + u32::from(s), index), image.file_len(), encode)?;
        Ok(copy_from(&file, offset, dst))
    }

    /// The record that is called `name` in `files`.
    pub(super) fn named(&self, s: u16, name: &[u8]) -> Result<Node, Failure> {
        let naming = self.options.names.as_ref().ok_or(Errno::NOENT)?;
        let parsed = naming.parse(name);
        let index = self.live(s, parsed.map(|(index, _)| index))?;
        match parsed {
            Some((_, extension)) if !naming.by_content() || extension == self.extension(s, index) => {
                Ok(Node::Record(s, index))
            }
            _ => Err(Errno::NOENT.into()),
        }
    }

    /// Spells the name that a record has in `files`.
    pub(super) fn write_name(&self, s: u16, index: u64, name: &mut Vec<u8>) {
        name.clear();
        if let Some(naming) = &self.options.names {
            let extension = if naming.by_content() { self.extension(s, index) } else { "" };
            naming.write(index, extension, name);
        }
    }

    /// The extension of a record, told by its first bytes. One that can't be read has one too, so that it is listed and
    /// found, and whoever opens it gets its error.
    fn extension(&self, s: u16, index: u64) -> &'static str {
        let mut head = [0; sniff::HEAD];
        let read = self.stream(s).map_err(Failure::from).and_then(|st| Ok(st.store().read_head(index, &mut head)?));
        read.map_or(sniff::UNKNOWN, |n| sniff::extension(&head[..n]))
    }
}
