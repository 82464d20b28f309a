//! Patterns for the names of records: `{index:08}.bin`.

use std::fmt;
use std::str::FromStr;

/// The most digits that a pattern pads an index to.
const MAX_WIDTH: usize = 32;
/// The longest name in a directory, in bytes.
const MAX_NAME: usize = 255;

/// A pattern that makes a file name of an index: `{index}` stands for it, `{index:08}` for it with zeros in front up to 8
/// digits, `{{` and `}}` for braces. A name may have slashes.
///
/// ```
/// use zrfs::names::NamePattern;
/// let pattern: NamePattern = "part/{index:05}.bin".parse().unwrap();
/// assert_eq!(pattern.name(42), "part/00042.bin");
/// assert!("same.bin".parse::<NamePattern>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The index, with zeros in front up to so many digits.
    Index(usize),
}

impl NamePattern {
    /// The name of record `index`.
    pub fn name(&self, index: u64) -> String {
        self.0.iter().fold(String::new(), |name, part| match part {
            Part::Text(text) => name + text,
            Part::Index(width) => name + &format!("{index:0width$}"),
        })
    }

    /// The index whose name this is: the inverse of [`name`](NamePattern::name), at the same cost.
    ///
    /// ```
    /// # let pattern: zrfs::names::NamePattern = "{index:05}.bin".parse().unwrap();
    /// assert_eq!(pattern.index("00042.bin"), Some(42));
    /// assert_eq!(pattern.index("42.bin"), None);
    /// ```
    pub fn index(&self, name: &str) -> Option<u64> {
        let mut rest = name;
        for part in &self.0 {
            match part {
                Part::Text(text) => rest = rest.strip_prefix(text.as_str())?,
                Part::Index(_) => break,
            }
        }
        // What follows the index may itself start with digits, so each length is tried, and its name compared.
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count().min(MAX_WIDTH);
        (1..=digits).find_map(|n| rest.get(..n)?.parse().ok().filter(|&index| self.name(index) == name))
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}")),
            Part::Index(0) => f.write_str("{index}"),
            Part::Index(width) => write!(f, "{{index:0{width}}}"),
        })
    }
}

impl FromStr for NamePattern {
    type Err = String;

    fn from_str(pattern: &str) -> Result<Self, String> {
        let bad = |why: &str| format!("the pattern {pattern:?} {why}; patterns look like {{index:08}}.bin");
        let (mut parts, mut text) = (Vec::new(), String::new());
        let mut chars = pattern.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '{' | '}' if chars.next_if_eq(&c).is_some() => text.push(c),
                '{' => {
                    let mut field = String::new();
                    loop {
                        match chars.next() {
                            Some('}') => break,
                            Some(c) => field.push(c),
                            None => return Err(bad("has a { without its }")),
                        }
                    }
                    if !text.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut text)));
                    }
                    parts.push(Part::Index(width(&field).ok_or_else(|| {
                        bad(&format!(
                            "has {{{field}}}, where it may have {{index}} or {{index:0N}}, N up to {MAX_WIDTH}"
                        ))
                    })?));
                }
                '}' => return Err(bad("has a } without its {")),
                c => text.push(c),
            }
        }
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        if !parts.iter().any(|part| matches!(part, Part::Index(_))) {
            return Err(bad("has no {index}, so all records would have one name"));
        }
        let parsed = NamePattern(parts);
        // The shortest and the longest index make the two names that could be refused.
        for name in [parsed.name(0), parsed.name(u64::MAX)] {
            let valid = |part: &str| !part.is_empty() && part != "." && part != ".." && part.len() <= MAX_NAME;
            if name.contains('\0') || !name.split('/').all(valid) {
                return Err(bad("makes names that are none for files"));
            }
        }
        Ok(parsed)
    }
}

/// The digits that a field asks for, if it is one: `index`, `index:08`.
fn width(field: &str) -> Option<usize> {
    match field.strip_prefix("index")? {
        "" => Some(0),
        spec => {
            let digits = spec.strip_prefix(":0")?;
            let width = digits.parse().ok().filter(|&width| width <= MAX_WIDTH && width > 0)?;
            digits.bytes().all(|b| b.is_ascii_digit()).then_some(width)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_make_names_and_print_as_they_were_written() {
        for (pattern, index, name) in [
            ("{index}", 7, "7"),
            ("{index:08}.bin", 7, "00000007.bin"),
            ("{index:02}", 12_345, "12345"),
            ("a/{{b}}-{index}-{index:03}", 5, "a/{b}-5-005"),
        ] {
            let parsed: NamePattern = pattern.parse().unwrap();
            assert_eq!(parsed.name(index), name);
            assert_eq!(parsed.to_string(), pattern);
            assert_eq!(parsed.index(name), Some(index));
        }
    }

    #[test]
    fn names_lead_back_to_their_index() {
        for pattern in ["{index}", "{index:03}", "x{index}0", "{index}00-{index:04}.b", "{{{index}{index}", "9{index}9"]
        {
            let parsed: NamePattern = pattern.parse().unwrap();
            for index in [0, 1, 7, 9, 10, 99, 100, 999, 1000, 12_345, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
                let found = parsed.index(&parsed.name(index));
                assert_eq!(found.map(|i| parsed.name(i)), Some(parsed.name(index)), "{pattern} {index}");
            }
        }
        let parsed: NamePattern = "a{index:03}.bin".parse().unwrap();
        for wrong in
            ["", "a", "a.bin", "a7.bin", "a0007.bin", "b007.bin", "a007.bi", "a007.binx", "a+07.bin", "a00\u{663}.bin"]
        {
            assert_eq!(parsed.index(wrong), None, "{wrong}");
        }
        assert_eq!(parsed.index("a18446744073709551616.bin"), None);
    }

    #[test]
    fn patterns_that_make_no_file_names_are_refused() {
        for bad in [
            "",
            "x",
            "{",
            "}",
            "{index",
            "index}",
            "{Index}",
            "{index:8}",
            "{index:0}",
            "{index:0x}",
            "{index:099}",
            "{index:0+8}",
            "/{index}",
            "{index}/",
            "../{index}",
            "a//{index}",
            "./{index}",
            "{index}\0",
            "{path}",
        ] {
            assert!(bad.parse::<NamePattern>().is_err(), "{bad:?}");
        }
        assert!(format!("{{index}}{}", "x".repeat(240)).parse::<NamePattern>().is_err());
        assert!(format!("{{index}}{}", "x".repeat(235)).parse::<NamePattern>().is_ok());
    }
}
