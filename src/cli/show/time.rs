//! Dates and durations.

use zrfs::format::dtype::DType;

/// "Not a time".
const NAT: i64 = i64::MIN;

/// The count and unit of "<M8[25s]"; a generic time has the unit "".
fn unit(dtype: &DType) -> (i64, &str) {
    let inner = dtype.as_str().split_once('[').map_or("", |(_, unit)| unit.trim_end_matches(']'));
    let digits = inner.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = inner.split_at_checked(digits).unwrap_or_default();
    (count.parse().unwrap_or(1), unit)
}

/// The times of one array, padded so that they line up.
pub(super) fn words(dtype: &DType, values: &[i64]) -> Vec<String> {
    let word = |value: i64| match dtype.kind() {
        'M' => format!("'{}'", date(dtype, value)),
        _ => value.to_string(),
    };
    let times = || values.iter().copied().filter(|&value| value != NAT);
    // As numpy has it, the width is that of the earliest and latest time.
    let longest = times().min().into_iter().chain(times().max()).map(|value| word(value).len()).max().unwrap_or(0);
    let width = if values.contains(&NAT) { longest.max("'NaT'".len()) } else { longest };
    let padded = |&value: &i64| {
        let word = if value == NAT { "'NaT'".into() } else { word(value) };
        format!("{word:>width$}")
    };
    values.iter().map(padded).collect()
}

/// One time alone: a date without quotes, a duration with its unit.
pub(super) fn scalar(dtype: &DType, value: i64) -> String {
    if value == NAT {
        return "NaT".into();
    }
    if dtype.kind() == 'M' {
        return date(dtype, value);
    }
    let (count, unit) = unit(dtype);
    let name = match unit {
        "Y" => "years",
        "M" => "months",
        "W" => "weeks",
        "D" => "days",
        "h" => "hours",
        "m" => "minutes",
        "s" => "seconds",
        "ms" => "milliseconds",
        "us" => "microseconds",
        "ns" => "nanoseconds",
        "ps" => "picoseconds",
        "fs" => "femtoseconds",
        "as" => "attoseconds",
        _ => "generic time units",
    };
    format!("{} {name}", value.wrapping_mul(count))
}

/// ISO 8601 as far as the unit reaches. Arithmetic wraps where numpy's does. A generic date has no calendar, which
/// numpy refuses to print: it is shown as the number it is.
fn date(dtype: &DType, value: i64) -> String {
    let (count, unit) = unit(dtype);
    let value = value.wrapping_mul(count);
    // Units a second, as a power of ten.
    let decimals: usize = match unit {
        "Y" => return format!("{:04}", value.wrapping_add(1970)),
        "M" => return format!("{:04}-{:02}", 1970 + value.div_euclid(12), value.rem_euclid(12) + 1),
        "W" => return day(value.wrapping_mul(7)),
        "D" => return day(value),
        "h" | "m" | "s" => 0,
        "ms" => 3,
        "us" => 6,
        "ns" => 9,
        "ps" => 12,
        "fs" => 15,
        "as" => 18,
        _ => return value.to_string(),
    };
    let seconds_a_unit = match unit {
        "h" => 3600,
        "m" => 60,
        _ => 1,
    };
    let units_a_second = 10i128.pow(decimals as u32);
    let value = i128::from(value) * seconds_a_unit;
    let (seconds, fraction) = (value.div_euclid(units_a_second), value.rem_euclid(units_a_second));
    let (days, second) = (seconds.div_euclid(86400), seconds.rem_euclid(86400));
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let mut out = format!("{}T{hour:02}", day(days as i64));
    if unit != "h" {
        out += &format!(":{minute:02}");
    }
    if !matches!(unit, "h" | "m") {
        out += &format!(":{second:02}");
    }
    if decimals > 0 {
        out += &format!(".{fraction:0decimals$}");
    }
    out
}

/// The civil date of a day counted from 1970-01-01.
fn day(days: i64) -> String {
    // numpy counts from 2000-01-01, wrapping; here a year begins in March, so that a leap day is its last.
    let days = i128::from(days.wrapping_sub(10957)) - 60;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 2000 + 400 * era + year + i128::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
