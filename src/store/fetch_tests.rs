//! Batches with repeats in any order against a plain `Vec`, and files that are cut short while their store is open.

use super::tests::{samples, write};
use super::*;
use proptest::prelude::*;
use std::fs;

const SMALL: Layout = Layout { segment_entries: 7, chunk_bytes: 900 };

fn gathered(store: &Store, indices: &[u64], gap: u64) -> Result<Vec<Vec<u8>>> {
    let lengths = store.lengths(indices)?;
    let (mut end, mut offsets) = (0, Vec::new());
    for &length in &lengths {
        offsets.push(end + gap);
        end += gap + u64::from(length);
    }
    let mut dst = vec![0xaa; end as usize];
    store.gather(indices, &mut dst, &offsets)?;
    let at = |(&offset, &length): (&u64, &u32)| dst[offset as usize..][..length as usize].to_vec();
    assert!(
        offsets.iter().all(|&o| dst[(o - gap) as usize..o as usize].iter().all(|&b| b == 0xaa)),
        "a gap was written"
    );
    Ok(offsets.iter().zip(&lengths).map(at).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn batches_with_repeats(
        codec in prop::sample::select(Codec::ALL.to_vec()),
        layout in prop::sample::select(vec![SMALL, Layout::STANDARD]),
        picks in prop::collection::vec(prop::collection::vec(0u64..120, 0..60), 1..5),
        gap in 0u64..3,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (path, records) = (dir.path().join("s"), samples(120));
        write(&path, codec, layout, &[&records]);
        let store = OpenOptions::new().layout(layout).open(&path).unwrap();
        // Of the first batch it is not known where the records are; of later ones it is.
        for indices in &picks {
            let wanted: Vec<Vec<u8>> = indices.iter().map(|&i| records[i as usize].clone()).collect();
            prop_assert_eq!(&gathered(&store, indices, gap).unwrap(), &wanted);
        }
    }
}

/// Where files are in memory anyway, as on tmpfs, and where they were just written, nothing is asked of a disk.
#[test]
fn what_is_in_memory_is_known_to_be() {
    for top in [std::env::temp_dir(), "/dev/shm".into()] {
        let dir = tempfile::tempdir_in(&top).unwrap();
        let path = dir.path().join("s");
        write(&path, Codec::Raw, Layout::STANDARD, &[&samples(120)]);
        let store = Store::open(&path).unwrap();
        assert!(store.place.is_cold(), "not known yet");
        gathered(&store, &(0..120).collect::<Vec<_>>(), 0).unwrap();
        assert!(!store.place.is_cold(), "{}", top.display());
    }
}

/// Whatever is cut, and wherever: what lies before is read, what lies behind is an error, and nobody gets a signal.
#[test]
fn files_cut_short_under_a_reader() {
    let records = samples(500);
    for codec in Codec::ALL {
        for file in ["0.chunk", "0.loc"] {
            for kept in [0, 1, 3, 8] {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("s");
                write(&path, codec, Layout::STANDARD, &[&records]);
                let store = Store::open(&path).unwrap();
                let all: Vec<u64> = (0..500).collect();
                assert_eq!(gathered(&store, &all, 0).unwrap(), records);
                assert_eq!(gathered(&store, &all, 0).unwrap(), records, "now from memory");
                let whole = fs::metadata(path.join(file)).unwrap().len();
                // In the middle of a page, where memory shows zeros and raises nothing.
                let cut = whole * kept / 9 + 13;
                fs::OpenOptions::new().write(true).open(path.join(file)).unwrap().set_len(cut).unwrap();
                let e = gathered(&store, &all, 0).unwrap_err().to_string();
                assert!(e.contains(file) && e.contains("ends here"), "{e}");
                let mut whole = 0;
                for batch in all.chunks(5) {
                    if let Ok(got) = gathered(&store, batch, 0) {
                        assert_eq!(got, records[batch[0] as usize..][..5]);
                        whole += 1;
                    }
                }
                // About as many as were kept.
                assert!(whole < 100 && whole * 9 + 18 >= 100 * kept, "{codec:?} {file} {kept}: {whole}");
            }
        }
    }
}
