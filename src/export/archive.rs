//! Writing a tar archive front to back, with names and link targets byte for byte.
//!
//! Headers are GNU tar's: names of more than 100 bytes stand in an entry of their own before the file's, which GNU tar,
//! bsdtar, Python and zrfs all read, whatever the bytes are. Only what those headers cannot say, times before 1970 and
//! parts of a second, stands in a pax header.

use crate::error::{Error, Result};
use crate::tree::{Meta, Mtime};
use std::io::Write;
use std::path::{Path, PathBuf};
use tar::{EntryType, Header};

/// Archives are made of blocks of so many bytes.
const BLOCK: u64 = 512;
/// And are this many blocks long, or a multiple.
const RECORD: u64 = 20 * BLOCK;

/// An archive that is being written.
pub(super) struct TarWriter<'w> {
    out: &'w mut dyn Write,
    /// For errors.
    path: PathBuf,
    written: u64,
}

impl<'w> TarWriter<'w> {
    pub(super) fn new(out: &'w mut dyn Write, path: &Path) -> Self {
        TarWriter { out, path: path.to_path_buf(), written: 0 }
    }

    /// Writes the header of an entry; `size` bytes must follow through [`write`](TarWriter::write), and then
    /// [`pad`](TarWriter::pad).
    pub(super) fn entry(&mut self, kind: EntryType, name: &[u8], link: &[u8], meta: Meta, size: u64) -> Result<()> {
        if meta.mtime.secs < 0 || meta.mtime.nanos > 0 {
            let record = pax_record("mtime", &pax_time(meta.mtime));
            self.extra(EntryType::XHeader, b"././@PaxHeader", record.as_bytes())?;
        }
        let mut header = Header::new_gnu();
        // GNU's long names end with a NUL.
        let fields = header.as_old_mut();
        for (field, text, long) in
            [(&mut fields.name, name, EntryType::GNULongName), (&mut fields.linkname, link, EntryType::GNULongLink)]
        {
            if text.len() > field.len() {
                self.extra(long, b"././@LongLink", &[text, b"\0"].concat())?;
            }
            let n = text.len().min(field.len());
            field[..n].copy_from_slice(&text[..n]);
        }
        header.set_entry_type(kind);
        header.set_mode(u32::from(meta.mode));
        header.set_uid(meta.uid.into());
        header.set_gid(meta.gid.into());
        header.set_mtime(u64::try_from(meta.mtime.secs).unwrap_or(0));
        header.set_size(size);
        header.set_cksum();
        self.write(header.as_bytes())
    }

    /// An entry that says something of the next one.
    fn extra(&mut self, kind: EntryType, name: &[u8], contents: &[u8]) -> Result<()> {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(contents.len() as u64);
        header.set_cksum();
        self.write(header.as_bytes())?;
        self.write(contents)?;
        self.pad()
    }

    /// Writes a part of an entry's contents.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes).map_err(Error::io("write", &self.path))
    }

    /// Ends an entry.
    pub(super) fn pad(&mut self) -> Result<()> {
        self.fill(BLOCK)
    }

    /// Ends the archive.
    pub(super) fn finish(mut self) -> Result<()> {
        self.write(&[0; 2 * BLOCK as usize])?;
        self.fill(RECORD)?;
        self.out.flush().map_err(Error::io("write", &self.path))
    }

    fn fill(&mut self, multiple: u64) -> Result<()> {
        let n = self.written.next_multiple_of(multiple) - self.written;
        self.write(&[0; RECORD as usize][..n as usize])
    }
}

/// A pax record: its own length, a key and a value.
fn pax_record(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    // The length counts its own digits.
    let mut len = rest.len() + 1;
    while len != rest.len() + len.to_string().len() {
        len += 1;
    }
    format!("{len}{rest}")
}

/// A time as pax writes it: a decimal number of seconds.
fn pax_time(Mtime { secs, nanos }: Mtime) -> String {
    // 0.75 after -2 is -1.25.
    if secs < 0 && nanos > 0 {
        let whole = -(i128::from(secs) + 1);
        return format!("-{whole}.{:09}", 1_000_000_000 - nanos);
    }
    if nanos == 0 { secs.to_string() } else { format!("{secs}.{nanos:09}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pax_records_count_their_own_length() {
        assert_eq!(pax_record("mtime", "1"), "11 mtime=1\n");
        for n in 0..2000 {
            let record = pax_record("k", &"x".repeat(n));
            let (len, _) = record.split_once(' ').unwrap();
            assert_eq!(len.parse(), Ok(record.len()));
        }
    }

    #[test]
    fn pax_times_are_decimal_numbers() {
        for (secs, nanos, text) in [
            (5, 0, "5"),
            (5, 1, "5.000000001"),
            (-2, 750_000_000, "-1.250000000"),
            (-1, 500_000_000, "-0.500000000"),
            (-7, 0, "-7"),
            (i64::MIN, 999_999_999, "-9223372036854775807.000000001"),
        ] {
            assert_eq!(pax_time(Mtime { secs, nanos }), text);
        }
    }
}
