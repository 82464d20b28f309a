//! Arrays of bytes as PNG files, so that any viewer shows them.
//!
//! The pixels are stored, not compressed: a file's size then follows from its shape alone, before anything is read, and
//! the same array always makes the same bytes. Each file is one IDAT chunk, a zlib stream of stored blocks.

use zrfs::format::dtype::DType;

const SIGNATURE: &[u8; 8] = b"\x89PNG\r\n\x1a\n";
/// Length, kind and checksum of a chunk.
const CHUNK: u64 = 12;
/// Bytes of a header chunk's content.
const IHDR: u64 = 13;
/// A zlib stream's head and its checksum.
const ZLIB: u64 = 2 + 4;
/// The most that a stored block holds, and what stands before it.
const BLOCK: u64 = 65_535;
const BLOCK_HEAD: u64 = 5;
/// PNG counts rows, columns and a chunk's bytes in 31 bits.
const MAX: u64 = (1 << 31) - 1;

/// An array that is a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image {
    height: u32,
    width: u32,
    /// Bytes a pixel: 1 grey, 3 RGB, 4 RGB and alpha.
    channels: u32,
}

impl Image {
    /// The picture that an array of this type and shape is: bytes of shape (H, W) or (H, W, 1, 3 or 4). `None` for any
    /// other, and for those whose file would have more than 2 GiB.
    pub fn of(dtype: &DType, shape: &[u64]) -> Option<Image> {
        let (height, width, channels) = match *shape {
            [h, w] => (h, w, 1),
            [h, w, c @ (1 | 3 | 4)] => (h, w, c),
            _ => return None,
        };
        if !is_byte(dtype) || height == 0 || width == 0 || height > MAX || width > MAX {
            return None;
        }
        let image = Image { height: height as u32, width: width as u32, channels: channels as u32 };
        let row = width * channels + 1;
        let rows = row.checked_mul(height)?;
        (zlib_len(rows) <= MAX).then_some(image)
    }

    /// Bytes of a row of pixels.
    fn row(self) -> usize {
        self.width as usize * self.channels as usize
    }

    /// Bytes of the filtered rows, each with its filter's number in front.
    fn filtered(self) -> u64 {
        (self.row() as u64 + 1) * u64::from(self.height)
    }

    /// The size of the file.
    pub fn file_len(self) -> u64 {
        SIGNATURE.len() as u64 + CHUNK + IHDR + CHUNK + zlib_len(self.filtered()) + CHUNK
    }

    /// The file of `pixels`, row by row; missing ones are black.
    pub fn encode(self, pixels: &[u8]) -> Vec<u8> {
        let mut rows = Vec::with_capacity(self.filtered() as usize);
        let black = vec![0; self.row()];
        for y in 0..self.height as usize {
            // Filter 0: as they are.
            rows.push(0);
            let row = pixels.get(y * self.row()..(y + 1) * self.row());
            rows.extend_from_slice(row.unwrap_or(&black));
        }
        let mut out = Vec::with_capacity(self.file_len() as usize);
        out.extend_from_slice(SIGNATURE);
        let mut header = [0; IHDR as usize];
        header[..4].copy_from_slice(&self.width.to_be_bytes());
        header[4..8].copy_from_slice(&self.height.to_be_bytes());
        let colour = match self.channels {
            3 => 2,
            4 => 6,
            _ => 0,
        };
        header[8..10].copy_from_slice(&[8, colour]);
        chunk(&mut out, b"IHDR", |out| out.extend_from_slice(&header));
        chunk(&mut out, b"IDAT", |out| zlib_stored(out, &rows));
        chunk(&mut out, b"IEND", |_| {});
        out
    }
}

/// Whether an array's items are bytes, which a picture's are.
pub fn is_byte(dtype: &DType) -> bool {
    dtype.kind() == 'u' && dtype.itemsize() == 1
}

/// The length of a zlib stream of `bytes` bytes in stored blocks.
fn zlib_len(bytes: u64) -> u64 {
    ZLIB + bytes + bytes.div_ceil(BLOCK) * BLOCK_HEAD
}

fn chunk(out: &mut Vec<u8>, kind: &[u8; 4], content: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(kind);
    content(out);
    let length = (out.len() - start - 8) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    let sum = crc32fast::hash(&out[start + 4..]);
    out.extend_from_slice(&sum.to_be_bytes());
}

fn zlib_stored(out: &mut Vec<u8>, bytes: &[u8]) {
    // Deflate, a window of 32 KiB, the fastest level.
    out.extend_from_slice(&[0x78, 0x01]);
    let blocks = bytes.len().div_ceil(BLOCK as usize);
    for (k, block) in bytes.chunks(BLOCK as usize).enumerate() {
        let length = block.len() as u16;
        out.push(u8::from(k + 1 == blocks));
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend_from_slice(&adler32(bytes).to_be_bytes());
}

fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    // The most bytes that can be summed before 32 bits overflow.
    const RUN: usize = 5552;
    let (mut a, mut b) = (1u32, 0u32);
    for run in bytes.chunks(RUN) {
        for &byte in run {
            a += u32::from(byte);
            b += a;
        }
        (a, b) = (a % MODULUS, b % MODULUS);
    }
    b << 16 | a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(shape: &[u64]) -> Option<Image> {
        Image::of(&DType::parse("|u1").unwrap(), shape)
    }

    #[test]
    fn what_is_a_picture() {
        for shape in [&[1, 1][..], &[28, 28], &[5, 7, 1], &[5, 7, 3], &[5, 7, 4]] {
            assert!(image(shape).is_some(), "{shape:?}");
        }
        for shape in [&[][..], &[9], &[5, 7, 2], &[5, 7, 5], &[2, 5, 7, 3], &[0, 5], &[1 << 31, 1], &[1 << 16, 1 << 16]]
        {
            assert!(image(shape).is_none(), "{shape:?}");
        }
        assert!(Image::of(&DType::parse("<f4").unwrap(), &[5, 7]).is_none());
        assert!(Image::of(&DType::parse("|i1").unwrap(), &[5, 7]).is_none());
    }

    #[test]
    fn the_size_is_known_before_the_bytes() {
        for shape in
            [&[1, 1][..], &[3, 21_844, 3], &[1, 65_534], &[1, 65_535], &[2, 65_534], &[300, 301, 4], &[90, 1000, 3]]
        {
            let image = image(shape).unwrap();
            let pixels: Vec<u8> = (0..shape.iter().product::<u64>()).map(|i| (i * 7 % 251) as u8).collect();
            let file = image.encode(&pixels);
            assert_eq!(file.len() as u64, image.file_len(), "{shape:?}");
            assert_eq!(file, image.encode(&pixels));
        }
    }

    /// Other programs keep what they fetched by its checksum: the bytes are part of the promise.
    #[test]
    fn golden() {
        let file = image(&[2, 2]).unwrap().encode(&[0, 85, 170, 255]);
        let want = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x02\0\0\0\x02\x08\0\0\0\0\x57\xdd\x52\xf8\
            \0\0\0\x11IDAT\x78\x01\x01\x06\0\xf9\xff\0\0\x55\0\xaa\xff\x03\xad\x01\xff";
        assert_eq!(file[..want.len()], want[..]);
        assert!(file.ends_with(b"\0\0\0\0IEND\xae\x42\x60\x82"));
        assert_eq!(adler32(b"Wikipedia"), 0x11E6_0398);
        assert_eq!(adler32(&vec![255; 1 << 20]), {
            let n = 1u64 << 20;
            let a = (1 + 255 * n) % 65_521;
            let b = (n + 255 * n * (n + 1) / 2) % 65_521;
            (b << 16 | a) as u32
        });
    }
}
