//! Sources: what they say, what they give, and what they find damaged.

use super::super::code::*;
use super::super::layout::*;
use super::super::source::*;
use super::super::writer::*;
use super::{dense, last_error, text};
use std::ffi::CStr;
use std::ptr::{null, null_mut};

#[test]
fn a_source_says_what_it_has_and_gives_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("images.zr");
    dense(&path);
    let mut source = null_mut();
    let path = text(&path);
    // SAFETY: values, slices and texts of our own, null where it says so.
    unsafe {
        assert_eq!(zrfs_open(null(), &mut source), INVALID);
        assert_eq!(zrfs_open(path.as_ptr(), null_mut()), BUFFER);
        assert_eq!(zrfs_open(c"/nowhere".as_ptr(), &mut source), NOT_A_STORE);
        assert!(source.is_null() && last_error().starts_with("/nowhere is not a zrfs store"), "{}", last_error());
        assert_eq!(zrfs_open(path.as_ptr(), &mut source), 0);

        let mut info: Info = std::mem::zeroed();
        assert_eq!(zrfs_get_info(source, &mut info), INVALID);
        assert!(last_error().contains("sizeof, which is 24"), "{}", last_error());
        info.size = 24;
        assert_eq!(zrfs_get_info(source, &mut info), 0);
        assert_eq!((info.size, info.records, info.streams, info.is_dataset), (24, 100, 1, 0));
        let mut stream: StreamInfo = std::mem::zeroed();
        stream.size = size_of::<StreamInfo>() as u64 + 8;
        let mut room = (stream, 77u64);
        assert_eq!(zrfs_get_stream_info(source, 0, &mut room.0), 0, "a caller of a later version");
        let stream = room.0;
        assert_eq!((stream.records, stream.record_bytes, stream.item_bytes), (100, 24, 4));
        assert_eq!((stream.kind, stream.codec, stream.ndim, &stream.shape[..3]), (DENSE, 1, 2, &[2, 3, 0][..]));
        assert_eq!(CStr::from_ptr(stream.dtype.as_ptr()).to_str(), Ok("<f4"));
        assert_eq!(CStr::from_ptr(stream.name.as_ptr()).to_str(), Ok("images"));
        assert_eq!((room.1, zrfs_get_stream_info(source, 1, &mut room.0)), (77, INVALID));
        let mut number = 9;
        assert_eq!((zrfs_find_stream(source, c"images".as_ptr(), &mut number), number), (0, 0));
        assert_eq!(zrfs_find_stream(source, c"labels".as_ptr(), &mut number), INVALID);
        assert_eq!(zrfs_find_stream(source, c"\xff".as_ptr(), &mut number), INVALID);

        let indices = [5u64, 99, 5];
        let (mut lengths, mut shape, mut ndim) = ([0; 3], [0; 4], 0);
        assert_eq!((zrfs_lengths(source, 0, indices.as_ptr(), 3, lengths.as_mut_ptr()), lengths), (0, [24; 3]));
        assert_eq!(zrfs_record_shape(source, 0, 5, shape.as_mut_ptr(), 4, &mut ndim), 0);
        assert_eq!((shape, ndim), ([2, 3, 0, 0], 2));
        assert_eq!(zrfs_record_shape(source, 0, 5, shape.as_mut_ptr(), 1, &mut ndim), BUFFER);
        assert_eq!(zrfs_record_shape(source, 0, 100, shape.as_mut_ptr(), 4, &mut ndim), INDEX);
        let mut dst = [0f32; 18];
        let mut gather =
            |len, offsets| zrfs_gather(source, 0, indices.as_ptr(), 3, dst.as_mut_ptr().cast(), len, offsets);
        assert_eq!((gather(71, null()), gather(72, null())), (BUFFER, 0));
        assert_eq!(gather(72, [48, 0, 24].as_ptr()), 0);
        assert_eq!(gather(72, [0, 0, 24].as_ptr()), INVALID);
        assert_eq!(gather(72, [48, 0, 24].as_ptr()), 0);
        assert_eq!((dst[0], dst[6], dst[17]), (99.0, 5.0, 5.0));

        // Appended to, and seen after a refresh.
        let (mut writer, mut records) = (null_mut(), 0);
        assert_eq!(zrfs_open_dense(path.as_ptr(), &mut writer), 0);
        assert_eq!(zrfs_append(writer, dst.as_ptr().cast(), 48, &mut records), 0);
        assert_eq!((records, zrfs_writer_close(writer)), (100, 0));
        assert_eq!((zrfs_refresh(source, &mut records), records), (0, 102));
        zrfs_close(source);
        assert_eq!(zrfs_refresh(source, null_mut()), HANDLE);
    }
    zrfs_close(source);
    zrfs_close(null_mut());
}

#[test]
fn damage_of_a_dense_store_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("numbers.zr");
    let mut writer = null_mut();
    let options =
        CreateOptions { size: size_of::<CreateOptions>() as u64, codec: 0, level: 0, dict: null(), dict_len: 0 };
    let values = [1u8; 80];
    let name = text(&path);
    let open = |checked: bool| {
        let mut source = null_mut();
        let open = if checked { zrfs_open_checked } else { zrfs_open };
        // SAFETY: a text and a place of our own.
        assert_eq!(unsafe { open(name.as_ptr(), &mut source) }, 0, "{}", last_error());
        source
    };
    let gather = |source, index: u64, offsets: Option<&u64>| {
        let mut dst = [0u8; 8];
        let offsets = offsets.map_or(null(), |offset| &raw const *offset);
        // SAFETY: values and slices of our own.
        unsafe { zrfs_gather(source, 0, &index, 1, dst.as_mut_ptr().cast(), 8, offsets) }
    };
    // SAFETY: values, slices and texts of our own.
    unsafe {
        assert_eq!(zrfs_create_dense(name.as_ptr(), c"<i8".as_ptr(), null(), 0, &options, &mut writer), 0);
        assert_eq!(zrfs_append(writer, values.as_ptr().cast(), 80, null_mut()), 0);
    }
    assert_eq!(zrfs_writer_close(writer), 0);

    // A bit of record 3.
    let chunk = path.join("0.chunk");
    let mut bytes = std::fs::read(&chunk).unwrap();
    bytes[3 * 8 + 5] ^= 4;
    std::fs::write(&chunk, &bytes).unwrap();
    let (plain, checked) = (open(false), open(true));
    assert_eq!((gather(plain, 3, None), gather(checked, 2, None), gather(checked, 2, Some(&0))), (0, 0, 0));
    assert_eq!((gather(checked, 3, None), gather(checked, 3, Some(&0))), (CORRUPT, CORRUPT));
    assert!(last_error().starts_with("record 3"), "{}", last_error());
    zrfs_close(plain);
    zrfs_close(checked);

    // The lengths of records 4, longer than all others, and 5, shorter.
    let table = path.join("0.loc");
    let mut bytes = std::fs::read(&table).unwrap();
    for (index, length) in [(4, 16u32), (5, 4)] {
        bytes[index * 16 + 4..][..4].copy_from_slice(&length.to_le_bytes());
        bytes[index * 16 + 8..][..4].copy_from_slice(&length.to_le_bytes());
    }
    std::fs::write(&table, &bytes).unwrap();
    let source = open(false);
    for index in [4, 5] {
        assert_eq!(
            (gather(source, index, None), gather(source, index, Some(&0))),
            (CORRUPT, CORRUPT),
            "{}",
            last_error()
        );
        assert!(last_error().starts_with(&format!("record {index}")), "{}", last_error());
    }
    assert_eq!(gather(source, 6, None), 0);
    zrfs_close(source);
}

#[test]
fn a_writer_is_told_what_is_no_store() {
    let dir = tempfile::tempdir().unwrap();
    dense(&dir.path().join("numbers"));
    let file = dir.path().join("file");
    std::fs::write(&file, "text").unwrap();
    for (path, why) in [(dir.path(), "dataset"), (&file, "file"), (&dir.path().join("absent"), "nothing of that name")]
    {
        // SAFETY: a text and a place of our own.
        assert_eq!(unsafe { zrfs_open_dense(text(path).as_ptr(), &mut null_mut()) }, NOT_A_STORE, "{why}");
        assert!(last_error().contains(why), "{}", last_error());
    }
}
