//! Any bytes as a dictionary and as a frame against it: what zstd takes is used both ways, and nothing panics or allocates
//! by what the bytes claim.
//!
//! Input: the length of the dictionary (u16, little-endian), its bytes, the length of the record (u16), then the frame.

use super::take;
use zrfs::codec::{Decoder, Encoder, check_dict};
use zrfs::format::Codec;

/// Takes any bytes.
pub fn target(data: &[u8]) {
    let mut data = data;
    let length = take(&mut data, 2).try_into().map_or(0, u16::from_le_bytes);
    let dict = take(&mut data, length.into());
    let length = take(&mut data, 2).try_into().map_or(0, u16::from_le_bytes);
    let checked = check_dict(dict);
    let Ok(decoder) = Decoder::new(Codec::ZstdDict, Some(dict)) else {
        assert!(checked.is_err(), "no reader takes what may be installed");
        return;
    };
    let mut record = vec![0; length.into()];
    let _ = decoder.decode(data, &mut record);
    let Ok(encoder) = Encoder::new(Codec::ZstdDict, 3, Some(dict)) else {
        assert!(checked.is_err(), "no writer takes what may be installed");
        return;
    };
    let mut frame = Vec::new();
    if !data.is_empty() && encoder.encode(&[data], &mut frame, |_| {}).is_ok() {
        let mut back = vec![0; data.len()];
        decoder.decode(&frame, &mut back).expect("what a dictionary compresses, it decompresses");
        assert_eq!(back, data);
    }
}
