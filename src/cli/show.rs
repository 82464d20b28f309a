//! An array as numpy's `print` shows it.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

mod digits;
mod float;
#[cfg(test)]
mod tests;
mod text;
mod time;

use float::Float;
use zrfs::format::dtype::{ByteOrder, DType};

/// numpy's default print options.
const LINE_WIDTH: usize = 75;
const THRESHOLD: u64 = 1000;
const EDGE_ITEMS: u64 = 3;

/// What numpy's `str(array)` is for the array of `dtype` and `shape` whose items lie in `bytes` in C order.
///
/// Above 1000 items only the edges of each axis are shown, and only those items are looked at. Bytes that are not
/// such an array are shown as an array of `u1`.
pub(super) fn array(dtype: &DType, shape: &[u64], bytes: &[u8]) -> String {
    let count = shape.iter().try_fold(1u64, |count, &axis| count.checked_mul(axis));
    let expected = match count {
        Some(count) => count.checked_mul(dtype.itemsize()),
        // More items than can be counted, unless another axis has none.
        None => shape.contains(&0).then_some(0),
    };
    let count = match expected {
        Some(expected) if expected == bytes.len() as u64 => bytes.len() as u64 / dtype.itemsize().max(1),
        _ => return misfit(bytes),
    };
    if shape.is_empty() {
        return scalar(dtype, bytes);
    }
    if count == 0 {
        return "[]".into();
    }
    let axes: Vec<Axis> =
        shape.iter().map(|&len| Axis { len, cut: count > THRESHOLD && len > 2 * EDGE_ITEMS }).collect();
    let itemsize = dtype.itemsize() as usize;
    let mut items = Vec::new();
    collect(&axes, bytes, itemsize, &mut items);
    let mut words = words(dtype, &items).into_iter();
    layout(&axes, 1, LINE_WIDTH, &mut words)
}

/// Bytes that the dtype and shape do not describe.
fn misfit(bytes: &[u8]) -> String {
    match (bytes, DType::parse("|u1")) {
        ([_, ..], Ok(u1)) => array(&u1, &[bytes.len() as u64], bytes),
        _ => "[]".into(),
    }
}

struct Axis {
    len: u64,
    /// Only the edges are shown, with `...` between them.
    cut: bool,
}

impl Axis {
    fn shown(&self) -> impl Iterator<Item = u64> {
        let (head, tail) = if self.cut { (EDGE_ITEMS, self.len - EDGE_ITEMS) } else { (self.len, self.len) };
        (0..head).chain(tail..self.len)
    }
}

/// The items that are shown, in order.
fn collect<'a>(axes: &[Axis], bytes: &'a [u8], itemsize: usize, items: &mut Vec<&'a [u8]>) {
    let Some((axis, rest)) = axes.split_first() else {
        items.push(bytes);
        return;
    };
    let row = rest.iter().fold(itemsize, |row, axis| row.saturating_mul(axis.len as usize));
    for at in axis.shown() {
        let start = row.saturating_mul(at as usize);
        let row = bytes.get(start..start.saturating_add(row)).unwrap_or_default();
        collect(rest, row, itemsize, items);
    }
}

/// Brackets, line breaks and indentation around the words of the shown items.
fn layout(axes: &[Axis], indent: usize, width: usize, words: &mut impl Iterator<Item = String>) -> String {
    let Some((axis, rest)) = axes.split_first() else {
        return words.next().unwrap_or_default();
    };
    let width = width.saturating_sub(1);
    let mut out = String::from("[");
    if rest.is_empty() {
        // Columns of the line so far; its first `indent` are the indentation, the opening bracket among them.
        let mut used = indent;
        let mut first = true;
        let mut add = |word: &str| {
            if !first {
                out.push(' ');
                used += 1;
            }
            first = false;
            let columns = word.chars().count();
            if used + columns > width && used > indent {
                out.truncate(out.trim_end().len());
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent));
                used = indent;
            }
            out.push_str(word);
            used += columns;
        };
        for (nth, word) in axis.shown().zip(words).map(|(_, word)| word).enumerate() {
            if axis.cut && nth as u64 == EDGE_ITEMS {
                add("...");
            }
            add(&word);
        }
    } else {
        let between = "\n".repeat(rest.len()) + &" ".repeat(indent);
        for (nth, _) in axis.shown().enumerate() {
            if nth > 0 {
                out.push_str(&between);
            }
            if axis.cut && nth as u64 == EDGE_ITEMS {
                out.push_str("...");
                out.push_str(&between);
            }
            out.push_str(&layout(rest, indent + 1, width, words));
        }
    }
    out.push(']');
    out
}

/// The shown items of an array, padded so that they line up.
fn words(dtype: &DType, items: &[&[u8]]) -> Vec<String> {
    let order = dtype.byte_order();
    let each = |word: &dyn Fn(&[u8]) -> String| items.iter().map(|item| word(item)).collect();
    match dtype.kind() {
        'b' => each(&|item| if truth(item) { " True".into() } else { "False".into() }),
        'i' | 'u' => {
            let words: Vec<String> = each(&|item| integer(dtype, item).to_string());
            let width = words.iter().map(String::len).max().unwrap_or(0);
            words.iter().map(|word| format!("{word:>width$}")).collect()
        }
        'f' => {
            let values: Vec<Float> = items.iter().map(|item| real(item, order)).collect();
            float::words(&values, dtype.itemsize(), false)
        }
        'c' => {
            let (re, im): (Vec<Float>, Vec<Float>) = items.iter().map(|item| complex(item, order)).unzip();
            let re = float::words(&re, dtype.itemsize() / 2, false);
            let im = float::words(&im, dtype.itemsize() / 2, true);
            re.iter().zip(&im).map(|(re, im)| imaginary(re, im)).collect()
        }
        'm' | 'M' => {
            let values: Vec<i64> = items.iter().map(|item| number(item, order) as i64).collect();
            time::words(dtype, &values)
        }
        'S' => each(&text::bytes),
        'U' => each(&|item| text::quoted(item, order)),
        _ => each(&text::void),
    }
}

/// `re + im` with the `j` before the padding of the imaginary part.
fn imaginary(re: &str, im: &str) -> String {
    let digits = im.trim_end();
    let padding = im.len() - digits.len();
    format!("{re}{digits}j{:padding$}", "")
}

/// An array without axes is shown as numpy shows its one item.
fn scalar(dtype: &DType, item: &[u8]) -> String {
    let order = dtype.byte_order();
    match dtype.kind() {
        'b' => if truth(item) { "True" } else { "False" }.into(),
        'i' | 'u' => integer(dtype, item).to_string(),
        'f' => float::scalar(&real(item, order), dtype.itemsize(), true),
        'c' => {
            let (re, im) = complex(item, order);
            let size = dtype.itemsize() / 2;
            let part = |value: &Float| float::scalar(value, size, false);
            match part(&im) {
                im if re.is_positive_zero() => format!("{im}j"),
                im if im.starts_with('-') => format!("({}{im}j)", part(&re)),
                im => format!("({}+{im}j)", part(&re)),
            }
        }
        'm' | 'M' => time::scalar(dtype, number(item, order) as i64),
        // numpy shows this one item by its repr.
        'S' => format!("np.bytes_({})", text::bytes(item)),
        'U' => text::plain(item, order),
        _ => text::void(item),
    }
}

fn truth(item: &[u8]) -> bool {
    item.iter().any(|&byte| byte != 0)
}

/// The unsigned number of up to 16 bytes.
fn number(item: &[u8], order: ByteOrder) -> u128 {
    let push = |number: u128, byte: &u8| number << 8 | u128::from(*byte);
    match order {
        ByteOrder::Big => item.iter().fold(0, push),
        ByteOrder::Little | ByteOrder::Irrelevant => item.iter().rev().fold(0, push),
    }
}

fn integer(dtype: &DType, item: &[u8]) -> i128 {
    let value = number(item, dtype.byte_order()) as i128;
    let unused = 128u32.saturating_sub(8 * item.len() as u32);
    match dtype.kind() {
        'i' if unused < 128 => value << unused >> unused,
        _ => value,
    }
}

fn real(item: &[u8], order: ByteOrder) -> Float {
    Float::new(number(item, order), item.len())
}

fn complex(item: &[u8], order: ByteOrder) -> (Float, Float) {
    let (re, im) = item.split_at(item.len() / 2);
    (real(re, order), real(im, order))
}
