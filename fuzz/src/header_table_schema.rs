//! Any bytes to the decoders of a store's small files: what decodes must be the same when it is encoded and decoded
//! again.

use zrfs::format::schema::{decode_shape, encode_shape};
use zrfs::format::{Entry, Header, Layout, Schema};

/// Takes any bytes.
pub fn target(data: &[u8]) {
    let Some((&which, data)) = data.split_first() else { return };
    match which % 4 {
        0 => {
            if let Ok(header) = Header::decode(data) {
                assert_eq!(header.encode(), data, "a header has one spelling");
            }
        }
        1 => {
            let Some((header, entries)) = data.split_at_checked(32) else { return };
            let Ok(header) = Header::decode(header) else { return };
            for entry in entries.as_chunks::<16>().0 {
                let decoded = Entry::decode(entry);
                assert_eq!(decoded.encode(), *entry, "an entry has one spelling");
                if decoded.validate(&header, Layout::STANDARD).is_ok() {
                    assert!(decoded.chunk_id <= header.tail_chunk && decoded.logic_length > 0);
                }
            }
        }
        2 => {
            if let Ok((schema, shapes)) = Schema::decode(data) {
                let count = shapes.map_or(0, |s| s.count);
                let encoded = schema.encode(count);
                // The shapes follow what is encoded here; without any, it is whole.
                if count == 0 {
                    let (again, shapes_again) = Schema::decode(&encoded[..]).expect("an encoded schema decodes");
                    // Debug, as a NaN among the user's values equals nothing.
                    assert_eq!(format!("{again:?}"), format!("{schema:?}"));
                    assert_eq!(shapes_again.map(|s| s.count), shapes.map(|s| s.count));
                }
            }
        }
        _ => {
            let (mut rest, mut shape) = (data, Vec::new());
            while decode_shape(&mut rest, &mut shape).is_ok() {
                let (mut encoded, mut again) = (Vec::new(), Vec::new());
                encode_shape(&shape, &mut encoded);
                decode_shape(&mut &encoded[..], &mut again).expect("an encoded shape decodes");
                assert_eq!(again, shape);
            }
        }
    }
}
