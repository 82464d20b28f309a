//! The header of a `.npy` file: read from files nobody vouches for, and written byte for byte as `np.save` does.
//!
//! ```text
//! 0      6   8             10 or 12                         data_offset, a multiple of 64
//! ┌──────┬───┬─────────────┬────────────────────────────────┬──────
//! │\x93NUMPY│ver│ text length │ {'descr': '<f4', …}    \n      │ items
//! └──────┴───┴─────────────┴────────────────────────────────┴──────
//! ```
//! The text length is a little-endian u16 in version 1 and a u32 in versions 2 and 3.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use crate::format::dtype::DType;
use std::borrow::Cow;
use std::fmt::Display;

#[cfg(test)]
mod tests;

/// What every `.npy` file starts with.
pub const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// How many bytes of a file's start [`data_offset`] needs.
pub const START: usize = 12;
/// The longest header text that is read, in bytes. numpy itself refuses more than 10,000 unless told otherwise.
pub const MAX_TEXT: u64 = 1 << 20;
/// The most dimensions an array has in numpy.
pub const MAX_DIMS: usize = 64;

/// numpy leaves room for the first dimension to grow to this many digits in place.
const GROWTH_DIGITS: usize = 21;
/// numpy starts the items at a multiple of this.
const ALIGN: usize = 64;

/// What a `.npy` header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyHeader {
    /// The type of the items.
    pub dtype: DType,
    /// The dimensions, at most [`MAX_DIMS`]; empty for a scalar. The product of those that are not 0 fits a u64.
    pub shape: Vec<u64>,
    /// Whether the first index varies fastest in the file (else the last does).
    pub fortran: bool,
    /// Where the items start in the file, in bytes.
    pub data_offset: u64,
}

/// Where the items start, told by a file's first [`START`] bytes (more are not looked at): how many bytes
/// [`NpyHeader::parse`] needs. At most [`START`] + [`MAX_TEXT`], so it is safe to allocate; still compare it with the
/// file's length.
///
/// # Errors
/// A sentence: not a `.npy` file, an unknown version, or a header text above [`MAX_TEXT`].
pub fn data_offset(start: &[u8]) -> Result<u64, String> {
    let rest = start.strip_prefix(MAGIC.as_slice()).ok_or("is not a .npy file: it does not start with \\x93NUMPY")?;
    let (length, text_at) = match rest {
        [1, 0, a, b, ..] => (u64::from(u16::from_le_bytes([*a, *b])), 10),
        [2 | 3, 0, a, b, c, d, ..] => (u64::from(u32::from_le_bytes([*a, *b, *c, *d])), 12),
        [1..=3, 0, ..] | [] | [_] => return Err("ends within its .npy header".into()),
        [major, minor, ..] => {
            return Err(format!(
                "has .npy version {major}.{minor}; zrfs reads 1.0, 2.0 and 3.0, so save it with np.save"
            ));
        }
    };
    if length > MAX_TEXT {
        return Err(format!("has a .npy header of {length} bytes; zrfs reads up to {MAX_TEXT}"));
    }
    Ok(text_at + length)
}

impl NpyHeader {
    /// Parses the header at the start of `file`, which holds at least the first [`data_offset`] bytes (more are not
    /// looked at). Versions 1, 2 and 3, and the `3L` that Python 2 wrote. Nothing is ever unpickled.
    ///
    /// The shape is not compared with any file's length; that is the caller's part.
    ///
    /// # Errors
    /// A sentence that says what is wrong, to be put after the file's name: a header that is cut short or no header,
    /// objects and structured dtypes, an element count above u64, more than [`MAX_DIMS`] dimensions.
    pub fn parse(file: &[u8]) -> Result<NpyHeader, String> {
        let data_offset = data_offset(file)?;
        let header = usize::try_from(data_offset).ok().and_then(|end| file.get(..end));
        let header = header
            .ok_or_else(|| format!("ends within its .npy header: {} bytes of {data_offset} are there", file.len()))?;
        // Version and text length are kept as they are, since the guard never changes how long the text is.
        let (start, text) = header.split_at(if header.get(6) == Some(&1) { 10 } else { 12 });
        let Guarded { text, time } = guard(text)?;
        let safe = [start, &text].concat();
        let parsed = npyz::NpyHeader::from_reader(safe.as_slice()).map_err(bad)?;
        let dtype = match (parsed.dtype(), time) {
            (npyz::DType::Plain(plain), Some(time)) if plain.to_string() == "|V8" => time,
            (npyz::DType::Plain(plain), None) => DType::parse(&plain.to_string())?,
            (npyz::DType::Plain(_), Some(_)) => return Err(bad("a dtype where none belongs")),
            _ => return Err(STRUCTURED.into()),
        };
        let fortran = parsed.order() == npyz::Order::Fortran;
        Ok(NpyHeader { dtype, shape: parsed.shape().to_vec(), fortran, data_offset })
    }
}

const STRUCTURED: &str = "has a structured dtype; zrfs keeps one plain type a store, so save each field as an array of \
                          its own (np.save('x.npy', a['x']))";

fn bad(why: impl Display) -> String {
    format!("has a bad .npy header: {why}")
}

/// A header text that the parser may be given.
struct Guarded<'a> {
    text: Cow<'a, [u8]>,
    /// The dtype where it is a time, which the parser knows with single units only; the text has `'|V8'` for it.
    time: Option<DType>,
}

/// Lets through only flat dictionaries of plain words, short strings and decimal numbers.
///
/// npyz hands the text to a grammar for any Python literal. That grammar recurses, and tries alternatives again, so
/// nested brackets cost 2^depth steps and a stack frame each; it takes numbers of any length; and npyz multiplies the
/// dimensions without a check and takes the second character of any dtype of two bytes. The header of an array of a
/// plain dtype is `{…(…)…}`, so nothing deeper than that gets there, nor any escape, which could make the two readings
/// of a string differ.
fn guard(text: &[u8]) -> Result<Guarded<'_>, String> {
    let mut out = Cow::Borrowed(text);
    let mut time = None;
    let (mut depth, mut closed) = (0, false);
    let (mut dims, mut elements) = (0, 1u64);
    let mut bytes = text.iter().copied().enumerate().peekable();
    while let Some((at, byte)) = bytes.next() {
        match (byte, depth) {
            (b' ' | b'\t', _) => {}
            (b'\n' | b'\r' | 0x0c, _) => blank(&mut out, at, 1),
            (b'{', 0) if !closed => depth = 1,
            (b'(', 1) => depth = 2,
            (b')', 2) => depth = 1,
            (b'}', 1) => (depth, closed) = (0, true),
            (b'{' | b'(' | b'}' | b')', _) => {
                return Err(bad(format_args!("unexpected nesting at byte {at} of its text")));
            }
            (b'[', _) => return Err(STRUCTURED.into()),
            (_, 0) => return Err(bad(format_args!("it is no dictionary (byte {at} of its text)"))),
            (b':' | b',', _) => {}
            (b'A'..=b'Z' | b'a'..=b'z', _) => {}
            (b'0'..=b'9', _) => {
                let mut number = u64::from(byte - b'0');
                while let Some((_, digit)) = bytes.next_if(|(_, b)| b.is_ascii_digit()) {
                    let more = number.checked_mul(10).and_then(|n| n.checked_add(u64::from(digit - b'0')));
                    number = more.ok_or_else(|| bad("a dimension does not fit 64 bits"))?;
                }
                match bytes.peek() {
                    Some(&(long, b'L')) => blank(&mut out, long, 1),
                    Some((_, b'A'..=b'Z' | b'a'..=b'z' | b'_')) => return Err(bad("a number with letters in it")),
                    _ => {}
                }
                bytes.next_if(|&(_, b)| b == b'L');
                dims += 1;
                if dims > MAX_DIMS {
                    return Err(bad(format_args!("more than {MAX_DIMS} dimensions")));
                }
                let more = elements.checked_mul(number.max(1));
                elements = more.ok_or_else(|| bad("its dimensions multiply to more than 64 bits"))?;
            }
            (quote @ (b'\'' | b'"'), _) => {
                let string: String =
                    std::iter::from_fn(|| bytes.next_if(|&(_, b)| b != quote)).map(|(_, b)| char::from(b)).collect();
                if bytes.next().is_none() || bytes.peek().is_some_and(|&(_, b)| b == b'\'' || b == b'"') {
                    return Err(bad(format_args!("a string that starts at byte {at} of its text does not end")));
                }
                if !string.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'\\') {
                    return Err(bad("a string with unprintable bytes or escapes"));
                }
                // No key of a header is a dtype, so this is the one dtype there is.
                if string.starts_with(['<', '>'])
                    && let Some(dtype) = DType::parse(&string).ok().filter(|d| matches!(d.kind(), 'm' | 'M'))
                {
                    blank(&mut out, at, string.len() + 2);
                    write(&mut out, at, b"'|V8'");
                    time = Some(dtype);
                }
            }
            (other, _) => return Err(bad(format_args!("unexpected byte 0x{other:02x} at byte {at} of its text"))),
        }
    }
    if !closed {
        return Err(bad("its dictionary does not end"));
    }
    Ok(Guarded { text: out, time })
}

fn blank(text: &mut Cow<'_, [u8]>, at: usize, count: usize) {
    if let Some(bytes) = text.to_mut().get_mut(at..at + count) {
        bytes.fill(b' ');
    }
}

fn write(text: &mut Cow<'_, [u8]>, at: usize, new: &[u8]) {
    if let Some(bytes) = text.to_mut().get_mut(at..at + new.len()) {
        bytes.copy_from_slice(new);
    }
}

/// The header that `np.save` writes for an array in C order: the items follow it directly.
///
/// Its length is a multiple of 64 and depends on the arguments alone; for the shapes that occur it is 128. It is of
/// version 1, or of version 2 when 65,535 bytes don't hold it. (npyz writes headers too, but not these bytes: it
/// spells shapes differently and leaves no room to grow.)
pub fn header_bytes(dtype: &DType, shape: &[u64]) -> Vec<u8> {
    const START_1: [u8; 10] = *b"\x93NUMPY\x01\x00\0\0";
    let mut out = Vec::with_capacity(2 * ALIGN);
    out.extend_from_slice(&START_1);
    out.extend_from_slice(b"{'descr': '");
    out.extend_from_slice(dtype.as_str().as_bytes());
    out.extend_from_slice(b"', 'fortran_order': False, 'shape': (");
    let mut first_digits = GROWTH_DIGITS;
    for (i, &dim) in shape.iter().enumerate() {
        if i > 0 {
            out.extend_from_slice(b", ");
        }
        let digits = push_decimal(&mut out, dim);
        if i == 0 {
            first_digits = digits;
        }
    }
    out.extend_from_slice(if shape.len() == 1 { b",), }" } else { b"), }" });
    out.resize(out.len() + GROWTH_DIGITS.saturating_sub(first_digits), b' ');
    // As in numpy, text that ends on the boundary with its newline still gets a whole line of padding.
    let pad = |start: usize, text: usize| text + 1 + (ALIGN - (start + text + 1) % ALIGN);
    let text = out.len() - START_1.len();
    let (start, length) = match u16::try_from(pad(START_1.len(), text)) {
        Ok(length) => {
            if let Some(slot) = out.get_mut(8..10) {
                slot.copy_from_slice(&length.to_le_bytes());
            }
            (START_1.len(), usize::from(length))
        }
        Err(_) => {
            let length = pad(START, text);
            let start = [MAGIC.as_slice(), &[2, 0], &(length as u32).to_le_bytes()].concat();
            out.splice(..START_1.len(), start);
            (START, length)
        }
    };
    out.resize(start + length - 1, b' ');
    out.push(b'\n');
    out
}

/// Appends `number` in decimal, returns how many digits that took.
fn push_decimal(out: &mut Vec<u8>, mut number: u64) -> usize {
    let mut digits = [0; 20];
    let mut count = 0;
    for slot in digits.iter_mut().rev() {
        *slot = b'0' + (number % 10) as u8;
        number /= 10;
        count += 1;
        if number == 0 {
            break;
        }
    }
    out.extend(digits.iter().skip(digits.len() - count));
    count
}
