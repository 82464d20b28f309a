//! Compared: which raw records were found to match their checksums, a bit for each.
//!
//! What has been compared since it came from the disk is not compared again: as a file system that keeps checksums does it,
//! whose page cache is trusted.

/// Words of a page: bits for 8,192 records.
const WORDS: usize = 128;
const PAGE: u64 = 64 * WORDS as u64;

/// A set of records; takes memory where there are any.
#[derive(Debug, Default)]
pub(super) struct Compared {
    pages: Vec<Option<Box<[u64; WORDS]>>>,
}

impl Compared {
    pub(super) fn has(&self, index: u64) -> bool {
        let (page, word, bit) = place(index);
        let page = usize::try_from(page).ok().and_then(|page| self.pages.get(page)?.as_ref());
        page.is_some_and(|page| page[word] & bit != 0)
    }

    /// Adds a record that there is, so that memory is bounded by the store.
    pub(super) fn add(&mut self, index: u64) {
        let (page, word, bit) = place(index);
        let Ok(page) = usize::try_from(page) else { return };
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        self.pages[page].get_or_insert_with(|| Box::new([0; WORDS]))[word] |= bit;
    }

    pub(super) fn clear(&mut self) {
        self.pages.clear();
    }
}

/// The page, the word in it and the bit in that.
fn place(index: u64) -> (u64, usize, u64) {
    (index / PAGE, (index % PAGE / 64) as usize, 1 << (index % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn is_a_set(indices in prop::collection::vec(0..3 * PAGE, 0..300)) {
            let (mut compared, mut set) = (Compared::default(), BTreeSet::new());
            for index in indices {
                prop_assert_eq!(compared.has(index), set.contains(&index));
                compared.add(index);
                set.insert(index);
                prop_assert!(compared.has(index));
            }
            let all: BTreeSet<u64> = (0..4 * PAGE).filter(|&index| compared.has(index)).collect();
            prop_assert_eq!(all, set);
            compared.clear();
            prop_assert!((0..3 * PAGE).all(|index| !compared.has(index)));
        }
    }

    #[test]
    fn takes_memory_where_there_are_any() {
        let mut compared = Compared::default();
        compared.add(100 * PAGE + 5);
        assert_eq!(compared.pages.iter().filter(|page| page.is_some()).count(), 1);
        assert!(!compared.has(u64::MAX));
    }
}
