//! The usual file extension of a record, told by its first bytes.
//!
//! A record has no name. Tools that choose by extension (image loaders, `file` managers, servers) still want one, and what
//! a file starts with says it more reliably than any list kept beside the records.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

/// As many bytes of a record decide: a tar header's magic stands last, at byte 257.
pub const HEAD: usize = 512;
/// The extension of what is not recognized.
pub const UNKNOWN: &str = "bin";

/// What a file starts with, and its extension. The first that fits counts.
const MAGIC: &[(&[u8], &str)] = &[
    (b"\xff\xd8\xff", "jpg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"\xff\x0a", "jxl"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "jxl"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "jp2"),
    (b"\x76\x2f\x31\x01", "exr"),
    (b"8BPS", "psd"),
    (b"DDS ", "dds"),
    (b"\0\0\x01\0", "ico"),
    (b"fLaC", "flac"),
    (b"OggS", "ogg"),
    (b"ID3", "mp3"),
    (b"MThd", "mid"),
    (b"\x93NUMPY", "npy"),
    (b"\x89HDF\r\n\x1a\n", "h5"),
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
    (b"SQLite format 3\0", "sqlite"),
    (b"%PDF-", "pdf"),
    (b"%!PS", "ps"),
    (b"{\\rtf", "rtf"),
    (b"\x1f\x8b\x08", "gz"),
    (b"\x28\xb5\x2f\xfd", "zst"),
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bz2"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"Rar!\x1a\x07", "rar"),
    (b"\x1a\x45\xdf\xa3", "mkv"),
    (b"\0asm", "wasm"),
    (b"\x7fELF", "elf"),
    (b"ply\n", "ply"),
    (b"ply\r\n", "ply"),
    (b"glTF", "glb"),
];

/// The extension, without its dot, of a file that starts with `head`; [`UNKNOWN`] where it is not recognized.
///
/// `head` should have [`HEAD`] bytes, or be the whole file where that is shorter; then the same file always has the same
/// extension.
///
/// ```
/// assert_eq!(zrfs::sniff::extension(b"\xff\xd8\xff\xe0..JFIF"), "jpg");
/// assert_eq!(zrfs::sniff::extension(b"{\"a\": 1}"), "json");
/// assert_eq!(zrfs::sniff::extension(b"\0\x01\x02"), "bin");
/// ```
pub fn extension(head: &[u8]) -> &'static str {
    let head = head.get(..HEAD).unwrap_or(head);
    let magic = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)).map(|&(_, extension)| extension);
    magic.or_else(|| container(head)).or_else(|| text(head)).unwrap_or(UNKNOWN)
}

/// Formats whose magic is not all that decides, or does not stand first.
fn container(head: &[u8]) -> Option<&'static str> {
    let at = |range: std::ops::Range<usize>| head.get(range).unwrap_or_default();
    match (at(0..4), at(8..12)) {
        (b"RIFF", b"WEBP") => return Some("webp"),
        (b"RIFF", b"WAVE") => return Some("wav"),
        (b"RIFF", b"AVI ") => return Some("avi"),
        (b"FORM", b"AIFF" | b"AIFC") => return Some("aiff"),
        _ => {}
    }
    if at(4..8) == b"ftyp" {
        return Some(match at(8..12) {
            b"avif" | b"avis" => "avif",
            b"heic" | b"heix" | b"hevc" | b"mif1" | b"msf1" => "heic",
            b"qt  " => "mov",
            b"M4A " => "m4a",
            [b'3', b'g', ..] => "3gp",
            _ => "mp4",
        });
    }
    // A bitmap's third to sixth byte tell its size, the next four are zero: two letters alone would prove little.
    if at(0..2) == b"BM" && at(6..10) == [0; 4] {
        return Some("bmp");
    }
    if let &[b'P', kind @ b'1'..=b'6', b' ' | b'\n' | b'\t' | b'\r', ..] = head {
        return Some(if matches!(kind, b'1' | b'4') {
            "pbm"
        } else if matches!(kind, b'2' | b'5') {
            "pgm"
        } else {
            "ppm"
        });
    }
    if at(257..262) == b"ustar" {
        return Some("tar");
    }
    // A frame of MPEG audio, layer III: the sync bits, a bit rate and a sampling rate that there are.
    if let &[0xff, 0xfa | 0xfb | 0xf2 | 0xf3 | 0xe2 | 0xe3, rates, ..] = head
        && !matches!(rates >> 4, 0 | 15)
        && rates >> 2 & 3 != 3
    {
        return Some("mp3");
    }
    None
}

/// Formats that are text.
fn text(head: &[u8]) -> Option<&'static str> {
    // A character may be cut at the end of the head.
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(e) if e.error_len().is_none() && head.len() == HEAD => {
            std::str::from_utf8(head.get(..e.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.is_empty() || text.contains(|c: char| c.is_control() && !"\t\n\r\x0c\x1b".contains(c)) {
        return None;
    }
    let start = text.trim_start();
    let lower: String = start.chars().take(16).flat_map(char::to_lowercase).collect();
    Some(if starts_json(start) {
        "json"
    } else if lower.starts_with("<!doctype html") || lower.starts_with("<html") {
        "html"
    } else if lower.starts_with("<svg") || lower.starts_with("<?xml") && text.contains("<svg") {
        "svg"
    } else if lower.starts_with("<?xml") {
        "xml"
    } else {
        "txt"
    })
}

/// Whether a text starts as a JSON object or array does, which `[12:30] a log` does not.
fn starts_json(text: &str) -> bool {
    let mut chars = text.chars().filter(|c| !c.is_ascii_whitespace());
    match (chars.next(), chars.next()) {
        (Some('{'), second) => matches!(second, Some('"' | '}')),
        (Some('['), Some('{' | '[' | ']' | '"')) => true,
        // Numbers and words: up to the comma or the end of the array there is nothing else.
        (Some('['), Some('-' | '0'..='9' | 't' | 'f' | 'n')) => {
            let item = text.trim_start_matches(['[', ' ', '\t', '\n', '\r']);
            let end = item.find([',', ']']).unwrap_or(item.len());
            let item = item.get(..end).unwrap_or_default().trim_end();
            matches!(item, "true" | "false" | "null") || item.parse::<f64>().is_ok()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_told() {
        let mut tar = vec![0; 512];
        tar[..5].copy_from_slice(b"a.txt");
        tar[257..262].copy_from_slice(b"ustar");
        let cases: &[(&[u8], &str)] = &[
            (b"\xff\xd8\xff\xe0\0\x10JFIF", "jpg"),
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "png"),
            (b"GIF89a\x01\0", "gif"),
            (b"RIFF\x10\0\0\0WEBPVP8 ", "webp"),
            (b"RIFF\x10\0\0\0WAVEfmt ", "wav"),
            (b"BM\x10\0\0\0\0\0\0\0\x36", "bmp"),
            (b"II*\0\x08", "tiff"),
            (b"fLaC\0", "flac"),
            (b"ID3\x04\0", "mp3"),
            (b"\xff\xfb\x90\x64", "mp3"),
            (b"\0\0\0\x18ftypmp42", "mp4"),
            (b"\0\0\0\x18ftypavif", "avif"),
            (b"%PDF-1.7\n", "pdf"),
            (b"\x93NUMPY\x01\0", "npy"),
            (b"\x1f\x8b\x08\0", "gz"),
            (b"\x28\xb5\x2f\xfd\x04", "zst"),
            (b"P6\n3 2\n255\n", "ppm"),
            (&tar, "tar"),
            (b"  {\n \"a\": 1}", "json"),
            (b"[1, 2]", "json"),
            (b"[-1.5e3]", "json"),
            (b"[]", "json"),
            (b"[true]", "json"),
            (b"[12:30] started", "txt"),
            (b"[note] started, more", "txt"),
            (b"{ not json", "txt"),
            (b"<!DOCTYPE html>", "html"),
            (b"<?xml version='1.0'?><svg/>", "svg"),
            (b"<?xml version='1.0'?><a/>", "xml"),
            ("\u{feff}gr\u{fc}n\n".as_bytes(), "txt"),
            (b"plain\ttext\r\n", "txt"),
            (b"BM at the start of a text", "txt"),
            (b"a\0b", "bin"),
            (b"\xff\xfb\xf0\x64", "bin"),
            (b"gr\xfcn", "bin"),
            (b"", "bin"),
        ];
        for (head, want) in cases {
            assert_eq!(extension(head), *want, "{}", String::from_utf8_lossy(head));
        }
    }

    #[test]
    fn a_character_cut_by_the_end_of_the_head_is_still_text() {
        let long = "\u{e4}".repeat(600);
        for start in 0..2 {
            assert_eq!(extension(&format!("{}{long}", "x".repeat(start)).as_bytes()[..HEAD]), "txt");
        }
        assert_eq!(extension(b"gr\xc3"), "bin", "a whole record that ends within a character is no text");
    }
}
