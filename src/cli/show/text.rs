//! Byte strings, text and raw items.

use std::fmt::Write;
use zrfs::format::dtype::ByteOrder;

/// Zeros at the end of an item are its padding.
fn unpadded<T: Copy + PartialEq + Default>(item: &[T]) -> &[T] {
    let end = item.iter().rposition(|&unit| unit != T::default()).map_or(0, |last| last + 1);
    item.get(..end).unwrap_or_default()
}

/// Python quotes with `'`, or with `"` where that saves escapes.
fn quote(mut units: impl Iterator<Item = u32> + Clone) -> char {
    let single = units.clone().any(|unit| unit == u32::from('\''));
    if single && !units.any(|unit| unit == u32::from('"')) { '"' } else { '\'' }
}

/// The escapes that text and bytes have in common.
fn escape(unit: u32, quote: char) -> Option<&'static str> {
    Some(match char::from_u32(unit)? {
        '\t' => "\\t",
        '\n' => "\\n",
        '\r' => "\\r",
        '\\' => "\\\\",
        '\'' if quote == '\'' => "\\'",
        _ => return None,
    })
}

/// `b'…'`
pub(super) fn bytes(item: &[u8]) -> String {
    let item = unpadded(item);
    let quote = quote(item.iter().map(|&byte| byte.into()));
    let mut out = format!("b{quote}");
    for &byte in item {
        match escape(byte.into(), quote) {
            Some(escape) => out.push_str(escape),
            None if (b' '..=b'~').contains(&byte) => out.push(byte.into()),
            None => hex(&mut out, byte.into()),
        }
    }
    out.push(quote);
    out
}

/// `b'\x..'`, every byte of it and in capitals.
pub(super) fn void(item: &[u8]) -> String {
    let bytes: String = item.iter().map(|byte| format!("\\x{byte:02X}")).collect();
    format!("b'{bytes}'")
}

fn hex(out: &mut String, unit: u32) {
    let escaped = match unit {
        0..=0xff => write!(out, "\\x{unit:02x}"),
        0x100..=0xffff => write!(out, "\\u{unit:04x}"),
        _ => write!(out, "\\U{unit:08x}"),
    };
    escaped.unwrap_or_default();
}

fn code_points(item: &[u8], order: ByteOrder) -> Vec<u32> {
    let read = match order {
        ByteOrder::Big => u32::from_be_bytes,
        ByteOrder::Little | ByteOrder::Irrelevant => u32::from_le_bytes,
    };
    let units: Vec<u32> = item.as_chunks().0.iter().map(|&unit| read(unit)).collect();
    unpadded(&units).to_vec()
}

/// `'…'`: UCS-4 text as Python's `repr` writes it. What is no character is escaped.
pub(super) fn quoted(item: &[u8], order: ByteOrder) -> String {
    let units = code_points(item, order);
    let quote = quote(units.iter().copied());
    let mut out = String::from(quote);
    for &unit in &units {
        match (escape(unit, quote), char::from_u32(unit)) {
            (Some(escape), _) => out.push_str(escape),
            (None, Some(character)) if printable(character) => out.push(character),
            _ => hex(&mut out, unit),
        }
    }
    out.push(quote);
    out
}

/// The text itself. Control characters other than a line break or a tab are escaped, for it goes to a terminal, and
/// so is what is no character.
pub(super) fn plain(item: &[u8], order: ByteOrder) -> String {
    let mut out = String::new();
    for unit in code_points(item, order) {
        match char::from_u32(unit) {
            Some(character) if !character.is_control() || matches!(character, '\n' | '\t') => out.push(character),
            _ => hex(&mut out, unit),
        }
    }
    out
}

/// Python's `isprintable` by the standard library's tables: those behind `{:?}`.
fn printable(character: char) -> bool {
    if character.is_ascii() {
        return (' '..='~').contains(&character);
    }
    // Behind another character, for a combining one at the start would be escaped.
    let text = format!("a{character}");
    text.escape_debug().eq(text.chars())
}
