//! Any bytes to the decoders of what zrfs adds to a store: the journal of a deletion, the heads of shapes and sums, a
//! dataset's intent. What decodes is the same when it is encoded and decoded again.
//!
//! Input: a byte that says which, and the file; its checksum is made to match.

use super::store::seal;
use zrfs::format::dataset::Intent;
use zrfs::format::journal::Journal;
use zrfs::format::{shapes, sums};

/// The files, in the order of the first byte.
pub const FILES: [&str; 4] = ["delete.zr", "shapes.zr", "sums.zr", "dataset.zr"];

/// Takes any bytes.
pub fn target(data: &[u8]) {
    let Some((&which, data)) = data.split_first() else { return };
    let name = FILES[usize::from(which) % FILES.len()];
    let mut data = data.to_vec();
    seal(name, &mut data, &[]);
    match name {
        "delete.zr" => {
            if let Some(journal) = Journal::decode(&data) {
                assert_eq!(journal.encode(), data, "a journal has one spelling");
            }
        }
        "shapes.zr" => {
            if let Some(base) = data.first_chunk().and_then(shapes::Base::decode) {
                assert_eq!(base.encode(), data[..shapes::HEAD_LEN], "a head has one spelling");
            }
            if let Some((head, rest)) = data.get(shapes::HEAD_LEN..).and_then(<[u8]>::split_first_chunk)
                && let Some(head) = shapes::BlockHead::decode(head)
                && let Some(shapes) = rest.get(..head.bytes as usize)
                && head.holds(shapes)
            {
                let again = shapes::BlockHead::encode(head.first, head.count, shapes);
                assert_eq!(again, data[shapes::HEAD_LEN..][..again.len()], "a block has one spelling");
            }
        }
        "sums.zr" => {
            if let Some(head) = data.first_chunk().and_then(sums::Head::decode) {
                assert_eq!(sums::Head::decode(&head.encode()), Some(head));
                let _ = head.covers(head.until);
            }
        }
        _ => {
            if let Some(intent) = Intent::decode(&data) {
                assert_eq!(Intent::decode(&intent.encode()), Some(intent));
            }
        }
    }
}
