//! Floating point numbers by numpy's rules.

use super::digits::{self, Binary, Digits, Limit, Natural};
use std::cmp::Ordering;

/// numpy's default print option `precision`.
const PRECISION: i32 = 8;

/// A decoded IEEE 754 number of 2, 4 or 8 bytes, or the 80-bit number in 16 bytes that numpy calls `longdouble`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Float {
    negative: bool,
    class: Class,
}

#[derive(Debug, Clone, Copy)]
enum Class {
    Nan,
    Infinite,
    Finite(Binary),
}

impl Float {
    pub(super) fn new(bits: u128, size: usize) -> Float {
        // Bits of the stored mantissa and of the exponent.
        let (mantissa_bits, exponent_bits) = match size {
            2 => (10, 5),
            4 => (23, 8),
            8 => (52, 11),
            _ => (64, 15),
        };
        let explicit = mantissa_bits == 64;
        let stored = (bits & ((1 << mantissa_bits) - 1)) as u64;
        let most = (1 << exponent_bits) - 1;
        let biased = (bits >> mantissa_bits) as i32 & most;
        let negative = bits >> (mantissa_bits + exponent_bits) & 1 == 1;
        let hidden = match (explicit, biased) {
            (true, _) | (_, 0) => 0,
            (false, _) => 1u64 << mantissa_bits,
        };
        let fraction = if explicit { stored << 1 } else { stored };
        let class = match (biased == most, fraction == 0) {
            (true, true) => Class::Infinite,
            (true, false) => Class::Nan,
            (false, least) => Class::Finite(Binary {
                mantissa: stored | hidden,
                exponent: biased.max(1) - most / 2 - if explicit { 63 } else { mantissa_bits },
                near_below: least && biased > 1,
            }),
        };
        Float { negative, class }
    }

    pub(super) fn is_positive_zero(&self) -> bool {
        !self.negative && matches!(self.class, Class::Finite(Binary { mantissa: 0, .. }))
    }

    fn sign(&self, plus: bool) -> &'static str {
        match (self.negative, plus) {
            (true, _) => "-",
            (false, true) => "+",
            (false, false) => "",
        }
    }
}

/// 0.0001 as a C `long double`: a number alone that is below it is written with an exponent.
const SMALL: Binary = Binary { mantissa: 0xd1b7_1758_e219_652c, exponent: -77, near_below: false };

/// The thresholds that depend on the width of a number.
struct Rules {
    /// The numbers of an array are written with an exponent if one reaches this power of ten.
    large: u32,
    /// So is a number alone that reaches this one.
    large_alone: u32,
    /// And so are those of an array if one is below this: 0.0001, as rounded to the width.
    small: Binary,
    /// Bits of the mantissa.
    bits: u32,
}

impl Rules {
    fn new(size: u64) -> Rules {
        let small = |bits: u64, size| match Float::new(bits.into(), size).class {
            Class::Finite(number) => number,
            _ => SMALL,
        };
        match size {
            2 => Rules { large: 3, large_alone: 3, small: small(0x068e, 2), bits: 11 },
            4 => Rules { large: 6, large_alone: 6, small: small(0.0001f32.to_bits().into(), 4), bits: 24 },
            8 => Rules { large: 8, large_alone: 16, small: small(0.0001f64.to_bits(), 8), bits: 53 },
            _ => Rules { large: 8, large_alone: 16, small: small(0.0001f64.to_bits(), 8), bits: 64 },
        }
    }
}

fn power_of_ten(power: u32) -> Binary {
    Binary { mantissa: 10u64.pow(power), exponent: 0, near_below: false }
}

fn compare(a: &Binary, b: &Binary) -> Ordering {
    compare_scaled(Natural::new(a.mantissa), a.exponent, Natural::new(b.mantissa), b.exponent)
}

fn compare_scaled(a: Natural, a_exponent: i32, b: Natural, b_exponent: i32) -> Ordering {
    let least = a_exponent.min(b_exponent);
    a.shift(a_exponent.abs_diff(least)).cmp(&b.shift(b_exponent.abs_diff(least)))
}

/// Whether `max / min > 1000`, the quotient rounded to `bits` bits.
fn spread(max: &Binary, min: &Binary, bits: u32) -> bool {
    // The quotient rounds to more than 1000 if it exceeds 1000 + 2^-half, halfway to the next number.
    let half = bits.saturating_sub(9);
    let one = Natural::new(min.mantissa);
    let mut thousand = Natural::new(min.mantissa).shift(half);
    thousand.multiply(1000);
    let max_mantissa = Natural::new(max.mantissa).shift(half);
    compare_scaled(max_mantissa, max.exponent, thousand.plus(&one), min.exponent) == Ordering::Greater
}

/// A number written without padding, as the parts that are padded.
struct Parts {
    /// What is before the decimal point, with the sign.
    whole: String,
    /// The digits after it, without trailing zeros.
    fraction: String,
    exponent: i32,
}

fn text(digits: &[u8]) -> String {
    digits.iter().map(|&digit| char::from(b'0' + digit)).collect()
}

fn trim(fraction: &mut String) {
    fraction.truncate(fraction.trim_end_matches('0').len());
}

fn positional(sign: &str, number: Binary, limit: Limit) -> Parts {
    let Digits { digits, exponent } = digits::of(number, limit);
    let text = text(&digits);
    let (whole, mut fraction) = match usize::try_from(exponent) {
        Ok(exponent) => match text.split_at_checked(exponent + 1) {
            Some((whole, fraction)) => (whole.to_owned(), fraction.to_owned()),
            None => (format!("{text:0<0$}", exponent + 1), String::new()),
        },
        Err(_) => ("0".into(), "0".repeat(exponent.unsigned_abs() as usize - 1) + &text),
    };
    trim(&mut fraction);
    Parts { whole: format!("{sign}{whole}"), fraction, exponent: 0 }
}

fn scientific(sign: &str, number: Binary, limit: Limit) -> Parts {
    let Digits { digits, exponent } = digits::of(number, limit);
    let (first, rest) = digits.split_first().unwrap_or((&0, &[]));
    let mut fraction = text(rest);
    trim(&mut fraction);
    Parts { whole: format!("{sign}{first}"), fraction, exponent }
}

/// The exponent's digits: two, or as many as it takes.
fn exponent_digits(exponent: i32) -> String {
    format!("{:02}", exponent.unsigned_abs())
}

fn exponent_sign(exponent: i32) -> char {
    if exponent < 0 { '-' } else { '+' }
}

/// How the numbers of one array are written.
struct Layout {
    /// A positive number has a sign too.
    plus: bool,
    /// With an exponent of this many digits.
    exponent: Option<usize>,
    /// Columns before the decimal point.
    left: usize,
    /// Digits after it.
    fraction: usize,
    /// Columns after it.
    right: usize,
}

impl Layout {
    fn new(values: &[Float], size: u64, plus: bool) -> Layout {
        let finite: Vec<(&'static str, Binary)> = values
            .iter()
            .filter_map(|value| match value.class {
                Class::Finite(number) => Some((value.sign(plus), number)),
                _ => None,
            })
            .collect();
        let exponents = wants_exponent(finite.iter().map(|(_, number)| number), &Rules::new(size));
        let parts: Vec<Parts> = finite
            .iter()
            .map(|&(sign, number)| match exponents {
                true => scientific(sign, number, Limit::Total(0, PRECISION + 1)),
                false => positional(sign, number, Limit::Fraction(PRECISION)),
            })
            .collect();
        let longest = |length: &dyn Fn(&Parts) -> usize| parts.iter().map(length).max().unwrap_or(0);
        let mut left = longest(&|part| part.whole.len());
        let fraction = longest(&|part| part.fraction.len());
        let exponent = exponents.then(|| longest(&|part| exponent_digits(part.exponent).len()));
        let right = fraction + exponent.map_or(0, |digits| digits + 2);
        if parts.len() < values.len() {
            let minus = values.iter().any(|value| value.negative && matches!(value.class, Class::Infinite));
            left = left.max((3 + usize::from(plus || minus)).saturating_sub(right + 1));
        }
        Layout { plus, exponent, left, fraction, right }
    }

    fn word(&self, value: &Float) -> String {
        let Layout { plus, left, fraction, right, .. } = *self;
        match (value.class, self.exponent) {
            (Class::Nan, _) => {
                let nan = if plus { "+nan" } else { "nan" };
                format!("{nan:>0$}", left + right + 1)
            }
            (Class::Infinite, _) => format!("{:>1$}", format!("{}inf", value.sign(plus)), left + right + 1),
            (Class::Finite(number), None) => {
                let part = positional(value.sign(plus), number, Limit::Fraction(PRECISION));
                format!("{:>left$}.{:<right$}", part.whole, part.fraction)
            }
            (Class::Finite(number), Some(digits)) => {
                let total = fraction as i32 + 1;
                let part = scientific(value.sign(plus), number, Limit::Total(total, total));
                let exponent = exponent_digits(part.exponent);
                let sign = exponent_sign(part.exponent);
                format!("{:>left$}.{:0<fraction$}e{sign}{exponent:0>digits$}", part.whole, part.fraction)
            }
        }
    }
}

fn wants_exponent<'a>(numbers: impl Iterator<Item = &'a Binary>, rules: &Rules) -> bool {
    let mut extremes: Option<(&Binary, &Binary)> = None;
    for number in numbers.filter(|number| number.mantissa != 0) {
        let (min, max) = extremes.unwrap_or((number, number));
        let min = if compare(number, min) == Ordering::Less { number } else { min };
        let max = if compare(number, max) == Ordering::Greater { number } else { max };
        extremes = Some((min, max));
    }
    extremes.is_some_and(|(min, max)| {
        compare(max, &power_of_ten(rules.large)) != Ordering::Less
            || compare(min, &rules.small) == Ordering::Less
            || spread(max, min, rules.bits)
    })
}

/// The numbers of `size` bytes each of one array, padded so that their decimal points line up.
pub(super) fn words(values: &[Float], size: u64, plus: bool) -> Vec<String> {
    let layout = Layout::new(values, size, plus);
    values.iter().map(|value| layout.word(value)).collect()
}

/// One number of `size` bytes alone: with all its digits, and `.0` after a whole number if `point`.
pub(super) fn scalar(value: &Float, size: u64, point: bool) -> String {
    let number = match value.class {
        Class::Nan => return "nan".into(),
        Class::Infinite => return format!("{}inf", value.sign(false)),
        Class::Finite(number) => number,
    };
    let whole = number.mantissa == 0
        || compare(&number, &power_of_ten(Rules::new(size).large_alone)) == Ordering::Less
            && compare(&number, &SMALL) != Ordering::Less;
    let sign = value.sign(false);
    if whole {
        let Parts { whole, fraction, .. } = positional(sign, number, Limit::Shortest);
        match (fraction.as_str(), point) {
            ("", true) => format!("{whole}.0"),
            ("", false) => whole,
            _ => format!("{whole}.{fraction}"),
        }
    } else {
        let Parts { whole, fraction, exponent } = scientific(sign, number, Limit::Shortest);
        let point = if fraction.is_empty() { "" } else { "." };
        format!("{whole}{point}{fraction}e{}{}", exponent_sign(exponent), exponent_digits(exponent))
    }
}
