//! Who reads a large file from front to back, so that its next records can be decoded ahead.

/// Files whose readers are remembered.
const FILES: usize = 16;
/// The kernel sends the requests of its read-ahead several at a time, and they arrive in any order: so many bytes from
/// where the last one ended is still in order.
const SLACK: u64 = 2 << 20;

#[derive(Debug, Clone, Copy)]
struct Reader {
    file: u64,
    /// Where the furthest read ended.
    end: u64,
    /// The piece of the file after those that were asked for.
    asked: u64,
}

/// Readers within large files, the last one first.
#[derive(Debug, Default)]
pub struct Within {
    readers: Vec<Reader>,
}

impl Within {
    /// Takes note of a read; where it goes on from an earlier one, the numbers of the pieces that should be decoded now,
    /// so that `depth` of them are ahead of the reader.
    pub fn note(&mut self, file: u64, offset: u64, length: u64, piece: u64, depth: u64) -> std::ops::Range<u64> {
        let end = offset.saturating_add(length);
        let known = self.readers.iter().position(|r| r.file == file && offset.abs_diff(r.end) <= SLACK);
        let Some(k) = known else {
            self.readers.truncate(FILES - 1);
            self.readers.insert(0, Reader { file, end, asked: 0 });
            return 0..0;
        };
        let mut reader = self.readers.remove(k);
        reader.end = reader.end.max(end);
        let here = offset.checked_div(piece).unwrap_or_default();
        let next = here.saturating_add(1);
        let to = next.saturating_add(depth);
        // Asked for far beyond: the reader went back.
        let from = if reader.asked > to.saturating_add(depth) { next } else { reader.asked.max(next) };
        reader.asked = from.max(to);
        self.readers.insert(0, reader);
        from..to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_reader_from_front_to_back() {
        let mut within = Within::default();
        let mut note = |file, offset| within.note(file, offset * MIB, MIB, 4 * MIB, 2);
        assert!(note(7, 0).is_empty());
        assert_eq!(note(7, 1), 1..3);
        assert!(note(7, 3).is_empty(), "asked for already");
        assert!(note(7, 2).is_empty(), "the kernel's requests cross each other");
        assert_eq!(note(7, 4), 3..4);
        assert!(note(8, 5).is_empty(), "another file");
        assert_eq!(note(7, 5), 4..4);
        assert_eq!(note(7, 20), 0..0, "a leap");
        assert_eq!(note(7, 21), 6..8);
        let mut small = |offset| within.note(9, offset, MIB, MIB / 16, 2);
        assert_eq!((small(0), small(MIB)), (0..0, 17..19));
        assert_eq!(small(0), 1..3, "back, by many pieces");
    }

    #[test]
    fn hopping_about_asks_for_nothing() {
        let mut within = Within::default();
        for k in 0..1000u64 {
            let range = within.note(1, (k * 7919 % 1000) * 10 * MIB, 4096, 4 * MIB, 8);
            assert!(range.is_empty(), "{k}");
        }
        assert!(within.readers.len() <= FILES);
    }
}
