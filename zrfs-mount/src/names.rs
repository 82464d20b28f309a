//! `--names`: what the files of a stream's `files` directory are called.

use std::fmt;
use std::str::FromStr;
use zrfs::names::NamePattern;

/// At the end of a pattern: the extension that a record's content tells.
const EXTENSION: &str = ".{ext}";
/// What `auto` stands for.
const AUTO: &str = "{index:08}.{ext}";
/// Room that an extension and its dot take in a name, at most.
const EXTENSION_MAX: usize = 16;
const EXAMPLE: &str = "names look like {index:08}.jpg, {index:08}.{ext}, or auto";

/// How records are named, and how a name leads back to its record, without a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Naming {
    pattern: NamePattern,
    by_content: bool,
}

impl Naming {
    /// Whether a name ends in the extension that the record's content tells (see [`zrfs::sniff`]).
    pub fn by_content(&self) -> bool {
        self.by_content
    }

    /// Spells the name of record `index` into `name`, replacing what was there. `extension` counts where names go
    /// [`by_content`](Self::by_content).
    pub fn write(&self, index: u64, extension: &str, name: &mut Vec<u8>) {
        name.clear();
        name.extend_from_slice(self.pattern.name(index).as_bytes());
        if self.by_content {
            name.push(b'.');
            name.extend_from_slice(extension.as_bytes());
        }
    }

    /// The index and the extension that a name is made of; `None` for what is no such name. The extension is empty
    /// where the pattern has none.
    pub fn parse<'n>(&self, name: &'n [u8]) -> Option<(u64, &'n str)> {
        let name = std::str::from_utf8(name).ok()?;
        let (stem, extension) = if self.by_content { name.rsplit_once('.')? } else { (name, "") };
        Some((self.pattern.index(stem)?, extension))
    }
}

impl FromStr for Naming {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let whole = if text == "auto" { AUTO } else { text };
        let (pattern, by_content) = match whole.strip_suffix(EXTENSION) {
            Some(stem) => (stem, true),
            None => (whole, false),
        };
        let pattern: NamePattern = pattern.parse()?;
        let longest = pattern.name(u64::MAX);
        if longest.contains('/') {
            return Err(format!("the pattern {text:?} has a slash, and records are files of one directory; {EXAMPLE}"));
        }
        if by_content && longest.len() + EXTENSION_MAX > crate::fs::NAME_MAX {
            return Err(format!("the pattern {text:?} makes names that are too long; {EXAMPLE}"));
        }
        Ok(Naming { pattern, by_content })
    }
}

impl fmt::Display for Naming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.pattern, if self.by_content { EXTENSION } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_back() {
        for (pattern, extension, name) in [
            ("{index:08}.jpg", "", "00000042.jpg"),
            ("auto", "png", "00000042.png"),
            ("{index}.{ext}", "gz", "42.gz"),
            ("img-{index:04}", "", "img-0042"),
            ("{{x}}{index}.a.{ext}", "bin", "{x}42.a.bin"),
        ] {
            let naming: Naming = pattern.parse().unwrap();
            let mut spelled = b"old".to_vec();
            naming.write(42, extension, &mut spelled);
            assert_eq!(spelled, name.as_bytes());
            assert_eq!(naming.parse(name.as_bytes()), Some((42, extension)));
            assert_eq!(naming.to_string().parse(), Ok(naming));
        }
        let auto: Naming = "auto".parse().unwrap();
        for wrong in ["42.png", "00000042", "00000042.", "000000042.png", "00000042.a.png", "x", ""] {
            let found = auto.parse(wrong.as_bytes());
            assert!(found.is_none() || found == Some((42, "")), "{wrong}: no extension is empty, so this is ENOENT");
        }
        assert_eq!(auto.parse(b"00000042.p\xff"), None);
    }

    #[test]
    fn patterns_that_are_refused_say_why() {
        let long = format!("{}{{index}}.{{ext}}", "x".repeat(225));
        for (bad, why) in [
            ("a/{index}", "slash"),
            ("x.jpg", "{index"),
            ("{ext}", "{ext}"),
            ("{index}.{ext}.gz", "{ext}"),
            (long.as_str(), "too long"),
        ] {
            let error = bad.parse::<Naming>().unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
