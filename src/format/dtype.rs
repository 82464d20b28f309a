//! numpy's dtype strings (`<f4`, `|u1`, `<M8[ns]`): parsed, checked, and spelled as numpy spells them.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use std::fmt;
use std::str::FromStr;

#[cfg(test)]
mod tests;

/// The largest item in bytes: numpy parses a size as a C `int`, so a longer item would be one it cannot name.
pub const MAX_ITEMSIZE: u64 = i32::MAX as u64;

/// In which order the bytes of an item's numbers are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first: `<`.
    Little,
    /// Most significant byte first: `>`.
    Big,
    /// Items of single bytes, or of bytes without a meaning: `|`.
    Irrelevant,
}

impl ByteOrder {
    const NATIVE: ByteOrder = if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };

    fn as_char(self) -> char {
        match self {
            ByteOrder::Little => '<',
            ByteOrder::Big => '>',
            ByteOrder::Irrelevant => '|',
        }
    }
}

/// The type of an array's items: one of numpy's plain dtypes of a fixed size.
///
/// Two dtypes are equal when numpy says so, because each is kept in its one canonical spelling: that of
/// `numpy.dtype(text).str`.
///
/// ```
/// use zrfs::format::dtype::DType;
/// let floats = DType::parse("=f4")?;
/// assert_eq!((floats.as_str(), floats.itemsize()), ("<f4", 4));
/// assert!(DType::parse("|O").is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DType {
    text: Box<str>,
    kind: char,
    order: ByteOrder,
    itemsize: u64,
}

impl DType {
    /// Parses a dtype string as numpy's array protocol writes it: byte order (`<`, `>`, `|`, `=` or nothing), kind
    /// (`b` bool, `i`, `u`, `f`, `c`, `m` timedelta, `M` datetime, `S` bytes, `U` text, `V` raw), size (in
    /// characters for `U`, else in bytes) and, for times, a unit in brackets.
    ///
    /// # Errors
    /// A sentence that names the string and what it lacks: objects, structured dtypes, items of 0 bytes or more than
    /// [`MAX_ITEMSIZE`], sizes that numpy has no type for, and whatever is no dtype string.
    pub fn parse(text: &str) -> Result<DType, String> {
        parse(text).map_err(|why| format!("dtype {}: {why}", Quoted(text)))
    }

    /// The canonical spelling, as `numpy.dtype(..).str` prints it: `<f4`, `|u1`, `<M8[25s]`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Bytes of one item: 1 to [`MAX_ITEMSIZE`].
    pub fn itemsize(&self) -> u64 {
        self.itemsize
    }

    /// numpy's kind letter, one of `biufcmMSUV`.
    pub fn kind(&self) -> char {
        self.kind
    }

    /// The order of the bytes of one number.
    pub fn byte_order(&self) -> ByteOrder {
        self.order
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for DType {
    type Err = String;

    fn from_str(text: &str) -> Result<DType, String> {
        DType::parse(text)
    }
}

/// Input in an error message: escaped, and cut where it is long enough to be hostile.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut: String = self.0.chars().take(40).collect();
        let more = if cut.len() < self.0.len() { "…" } else { "" };
        write!(f, "{cut:?}{more}")
    }
}

fn parse(text: &str) -> Result<DType, String> {
    if text.starts_with(['[', '{', '(']) || text.contains(',') {
        return Err("is structured; zrfs keeps one plain type a store, so pack each field as a stream of its own \
                    (a['field'])"
            .into());
    }
    let mut chars = text.chars();
    let order = match chars.next() {
        Some('<') => Some(ByteOrder::Little),
        Some('>') => Some(ByteOrder::Big),
        Some('|' | '=') => Some(ByteOrder::NATIVE),
        _ => None,
    };
    let rest = if order.is_some() { chars.as_str() } else { text };
    let mut chars = rest.chars();
    let kind = match chars.next() {
        Some('O') => {
            return Err(
                "holds Python objects, which zrfs never unpickles; convert them to a plain type (a.astype)".into()
            );
        }
        Some('?') if chars.as_str().is_empty() => return Ok(finish('b', ByteOrder::Irrelevant, 1, 1, "")),
        Some(kind) if "biufcmMSUV".contains(kind) => kind,
        _ => return Err("is no numpy dtype string; they look like '<f4', '|u1' or '<M8[ns]'".into()),
    };
    let rest = chars.as_str();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (size, unit) = rest.split_at(digits);
    if size.is_empty() {
        return Err("has no size; write 'f4', 'S10'".into());
    }
    let size: u64 = size.parse().map_err(|_| too_large())?;
    let itemsize = if kind == 'U' { size.checked_mul(4).ok_or_else(too_large)? } else { size };
    if itemsize > MAX_ITEMSIZE {
        return Err(too_large());
    }
    if itemsize == 0 {
        return Err("has items of 0 bytes, and a record has at least 1".into());
    }
    let sizes: &[u64] = match kind {
        'b' => &[1],
        'i' | 'u' => &[1, 2, 4, 8],
        'f' => &[2, 4, 8, 16],
        'c' => &[8, 16, 32],
        'm' | 'M' => &[8],
        _ => &[],
    };
    if !sizes.is_empty() && !sizes.contains(&itemsize) {
        return Err(format!("numpy has no type '{kind}' of {itemsize} bytes; it has {sizes:?}"));
    }
    let order = match kind {
        'S' | 'V' => ByteOrder::Irrelevant,
        _ if itemsize == 1 => ByteOrder::Irrelevant,
        _ => order.unwrap_or(ByteOrder::NATIVE),
    };
    let unit = match (kind, unit) {
        (_, "") => String::new(),
        ('m' | 'M', unit) => time_unit(unit)?,
        (_, more) => return Err(format!("{} follows the size", Quoted(more))),
    };
    Ok(finish(kind, order, size, itemsize, &unit))
}

fn too_large() -> String {
    format!("has items above {MAX_ITEMSIZE} bytes, the most that numpy takes")
}

fn finish(kind: char, order: ByteOrder, size: u64, itemsize: u64, unit: &str) -> DType {
    DType { text: format!("{}{kind}{size}{unit}", order.as_char()).into(), kind, order, itemsize }
}

/// `[ns]`, `[25s]` or `[generic]` in numpy's spelling: a count of 1 and the generic unit are not written.
fn time_unit(text: &str) -> Result<String, String> {
    const UNITS: [&str; 13] = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"];
    let refused = || format!("{} is no time unit; they look like [ns] or [25s]", Quoted(text));
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).ok_or_else(refused)?;
    if inner == "generic" {
        return Ok(String::new());
    }
    let digits = inner.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = inner.split_at(digits);
    if !UNITS.contains(&unit) {
        return Err(refused());
    }
    match count {
        "" => Ok(format!("[{unit}]")),
        count => match count.parse::<u32>() {
            Ok(1) => Ok(format!("[{unit}]")),
            Ok(count) if count <= i32::MAX as u32 => Ok(format!("[{count}{unit}]")),
            _ => Err(refused()),
        },
    }
}
