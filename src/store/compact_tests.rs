//! Compaction: what it frees, where records move out of the way, and what it refuses. `crash_tests` cuts its power.

use super::compact::Sizes;
use super::history::{SMALL, record};
use super::*;
use crate::pack::Progress;
use crate::storage::sim::{Fault, Sim};
use crate::storage::write_all_at;
use proptest::prelude::*;
use rustix::io::Errno;
use std::io::IoSlice;
use std::sync::atomic::Ordering;

/// A store `s` of records whose number and length follow from their content, of which some are deleted.
struct Case {
    sim: Sim,
    layout: Layout,
    model: Vec<Vec<u8>>,
}

impl Case {
    fn new(layout: Layout, lengths: &[usize], doomed: &[u64]) -> Self {
        let case = Case { sim: Sim::new(), layout, model: Vec::new() };
        let records: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(i, &n)| record(i, n)).collect();
        let mut writer = case.options().create("s").unwrap();
        writer.append(&records.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        writer.delete(doomed).unwrap();
        let mut model = records;
        let mut doomed = doomed.to_vec();
        doomed.sort_unstable();
        doomed.dedup();
        doomed.iter().rev().for_each(|&i| drop(model.swap_remove(i as usize)));
        Case { model, ..case }
    }

    fn options(&self) -> WriterOptions {
        WriterOptions::new(Codec::Raw).layout(self.layout).storage(Arc::new(self.sim.clone()))
    }

    fn open(&self) -> Writer {
        self.options().open("s").unwrap()
    }

    fn compact(&self, sizes: Sizes) -> Result<Compacted> {
        self.open().compact_with(sizes, &Progress::default())
    }

    #[track_caller]
    fn check(&self) {
        let store = OpenOptions::new().layout(self.layout).storage(Arc::new(self.sim.clone())).open("s").unwrap();
        assert_eq!(store.len(), self.model.len() as u64);
        for (i, record) in self.model.iter().enumerate() {
            assert_eq!(&store.read(i as u64).unwrap(), record, "record {i}");
        }
    }

    /// The records are right and packed, and the files end with them.
    #[track_caller]
    fn check_packed(&self) {
        self.check();
        let end = self.open().end();
        assert_eq!(self.compact(SMALL).unwrap().moved, 0, "a compacted store has nothing to move");
        assert_eq!(self.open().end(), end);
        let names = self.sim.list(Path::new("s")).unwrap();
        let chunks = names.iter().filter(|name| name.to_str().unwrap().ends_with(".chunk")).count();
        assert_eq!(chunks as u32, end.0 + 1);
        let last = self.sim.open(Path::new(&format!("s/{}.chunk", end.0))).unwrap();
        assert_eq!(last.size().unwrap(), u64::from(end.1));
    }

    /// Where the records end when each chunk but the last is as full as records of `length` make it.
    fn optimum(&self, length: u64) -> (u32, u32) {
        let each = (self.layout.chunk_bytes - 1) / length;
        let (n, mut tail) = (self.model.len() as u64, (0, 0));
        if n > 0 {
            let chunk = (n - 1) / each;
            tail = (chunk as u32, ((n - chunk * each) * length) as u32);
        }
        tail
    }
}

const WIDE: Layout = Layout { segment_entries: 100_000, chunk_bytes: 1 << 32 };
const NARROW: Layout = Layout { segment_entries: 7, chunk_bytes: 700 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn compacted_stores_hold_the_same(
        lengths in prop::collection::vec(prop::sample::select(vec![1usize, 9, 60, 61, 200, 600]), 1..60),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        epoch in prop::sample::select(vec![1u64, 100, 400, 100_000]),
        select in 1usize..30,
        copy in prop::sample::select(vec![1usize, 64, 5000]),
        narrow in any::<bool>(),
    ) {
        let doomed: Vec<u64> = picks.iter().map(|p| p.index(lengths.len()) as u64).collect();
        let case = Case::new(if narrow { NARROW } else { WIDE }, &lengths, &doomed);
        case.compact(Sizes { epoch, select, copy }).unwrap();
        case.check_packed();
        if !narrow {
            let bytes: usize = case.model.iter().map(Vec::len).sum();
            prop_assert_eq!(case.open().end(), (0, bytes as u32));
        }
    }
}

#[test]
fn one_small_hole_costs_no_sync_a_record() {
    let mut lengths = vec![300; 2001];
    lengths[0] = 12;
    // The last record, of 300 bytes, takes index 0; the hole of 12 bytes is smaller than any record.
    let case = Case::new(WIDE, &lengths, &[0]);
    let mut writer = case.open();
    let before = case.sim.calls();
    let sizes = Sizes { epoch: 30_000, select: 5000, copy: 10_000 };
    let done = writer.compact_with(sizes, &Progress::default()).unwrap();
    let calls = case.sim.calls() - before;
    drop(writer);
    assert_eq!((done.moved, done.freed(), done.before), (2000, 12, 600_012));
    assert!(calls < 400, "{calls} storage calls for 2000 records");
    case.check_packed();
}

#[test]
fn nothing_to_free_writes_nothing_but_the_sync() {
    for layout in [WIDE, NARROW] {
        let case = Case::new(layout, &[60; 50], &[]);
        let mut writer = case.open();
        writer.sync().unwrap();
        case.sim.step(0);
        let done = writer.compact(&Progress::default()).unwrap();
        let moments = case.sim.moments().len();
        case.sim.step(0);
        writer.sync().unwrap();
        // The sync of a compaction syncs all segments.
        let segments = 50_u64.div_ceil(layout.segment_entries) as usize;
        assert_eq!(moments, case.sim.moments().len() + segments);
        assert_eq!((done.moved, done.freed()), (0, 0));
    }
}

#[test]
fn a_store_without_records_ends_with_one_empty_chunk() {
    let case = Case::new(NARROW, &[60; 50], &(0..50).collect::<Vec<_>>());
    let done = case.compact(SMALL).unwrap();
    assert_eq!((done.moved, done.after), (0, 0));
    case.check_packed();
    assert_eq!(case.open().end(), (0, 0));
    let mut writer = case.open();
    writer.append(&[b"more"]).unwrap();
    writer.close().unwrap();
}

/// Interrupted at every storage call, by an error and by the end of the process, and run again, it comes to the same end.
#[test]
fn an_interrupted_compaction_goes_on_to_the_same_end() {
    let mut interrupted = 0;
    for (layout, sizes) in [(WIDE, SMALL), (NARROW, SMALL), (NARROW, Sizes { epoch: 5000, select: 100, copy: 5000 })] {
        for doomed in [vec![0], vec![3, 4, 17], (0..30).step_by(2).collect()] {
            let case = || Case::new(layout, &[60; 30], &doomed);
            let mut at = 0;
            loop {
                let case = case();
                case.sim.fail(at, Fault::Errno(Errno::IO.raw_os_error()));
                let _ = case.options().open("s").and_then(|mut w| w.compact_with(sizes, &Progress::default()));
                let hit = case.sim.failed().is_some();
                case.sim.heal();
                case.check();
                case.compact(sizes).unwrap();
                case.check_packed();
                assert_eq!(case.open().end(), case.optimum(60), "{layout:?}, {doomed:?}, interrupted at call {at}");
                if !hit {
                    break;
                }
                interrupted += 1;
                at += 1;
            }
        }
    }
    println!("compact: interrupted at {interrupted} storage calls and finished by another");
}

#[test]
fn a_full_disk_is_survived_or_named() {
    // The hole has room for a record, so small epochs do.
    let case = Case::new(WIDE, &[60; 200], &[0]);
    case.sim.limit(0);
    assert_eq!(case.compact(SMALL).unwrap().freed(), 60);
    case.check_packed();
    // It has not, so a record would have to move out of the way.
    let mut lengths = vec![60; 200];
    lengths[0] = 59;
    for more in [0, 30, 59] {
        let case = Case::new(WIDE, &lengths, &[0]);
        let end = case.open().end();
        case.sim.limit(more);
        let error = case.compact(SMALL).unwrap_err();
        assert!(error.to_string().contains("move a record out of the way in s/0.chunk"), "{error}");
        case.check();
        assert_eq!(case.open().end(), end);
        case.sim.limit(60);
        case.compact(SMALL).unwrap();
        case.check_packed();
    }
}

#[test]
fn stopped_between_epochs_it_goes_on_later() {
    let mut stopped = 0;
    for at in (0..).step_by(5) {
        let case = Case::new(NARROW, &[60; 60], &[0, 1, 2, 3, 50]);
        let mut writer = case.open();
        let progress = Progress::default();
        let stop = progress.stop_flag();
        case.sim.before(at, move || stop.store(true, Ordering::Relaxed));
        match writer.compact_with(SMALL, &progress) {
            Err(Error::Interrupted) => stopped += 1,
            done => {
                done.unwrap();
                assert!(case.sim.hook_waits() || progress.bytes() == progress.total_bytes());
            }
        }
        // Stopped, the writer does not latch.
        writer.append(&[&[1; 60]]).unwrap();
        writer.compact_with(SMALL, &Progress::default()).unwrap();
        drop(writer);
        let case = Case { model: [&case.model[..], &[vec![1; 60]]].concat(), ..case };
        case.check_packed();
        assert_eq!(case.open().end(), case.optimum(60));
        if case.sim.hook_waits() {
            break;
        }
    }
    assert!(stopped > 20, "stopped {stopped} times");
}

/// Entries that cannot all be true are refused by the record's number, before anything moves.
#[test]
fn contradictions_are_refused_before_anything_moves() {
    let entry = |offset, length, chunk_id| Entry { offset, phys_length: length, logic_length: length, chunk_id };
    for (bad, text) in [
        (entry(90, 60, 0), "record 10: s/1.loc is damaged at byte 48: the record's bytes overlap those of record 1"),
        (entry(60, 60, 0), "overlap"),
        (entry(0, 0, 0), "record 10"),
        (entry(0, 60, 9), "record 10"),
        (entry(690, 60, 0), "record 10"),
        // Behind the end of a chunk's file, which has no other record there.
        (entry(661, 30, 0), "record 10: s/0.chunk is damaged at byte 660"),
    ] {
        let case = Case::new(NARROW, &[60; 30], &[5, 20]);
        let table = case.sim.open_rw(Path::new("s/1.loc")).unwrap();
        write_all_at(&*table, Path::new("s/1.loc"), &mut [IoSlice::new(&bad.encode())], 3 * 16).unwrap();
        let mut writer = case.open();
        case.sim.step(0);
        let error = writer.compact_with(SMALL, &Progress::default()).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
        let compacting = case.sim.moments().len();
        // It has synced and no more, and does not latch.
        case.sim.step(0);
        writer.sync().unwrap();
        assert_eq!(compacting, case.sim.moments().len() + 4, "{error}");
    }
}

#[test]
fn compaction_needs_the_store_to_itself() {
    let case = Case::new(WIDE, &[60; 30], &[5]);
    let reader = OpenOptions::new().storage(Arc::new(case.sim.clone())).layout(WIDE).open("s").unwrap();
    assert!(matches!(case.compact(SMALL), Err(Error::Locked { .. })));
    drop(reader);
    case.compact(SMALL).unwrap();
    case.check_packed();
}

#[test]
fn no_rollback_goes_past_a_compaction() {
    let case = Case::new(WIDE, &[60; 30], &[5]);
    let mut writer = case.open();
    let mark = writer.mark();
    writer.append(&[b"x"]).unwrap();
    writer.compact_with(SMALL, &Progress::default()).unwrap();
    assert!(matches!(writer.rollback(mark), Err(Error::Invalid(_))));
}

/// Another writer may fill a chunk to its very last byte; nothing has to move up for it.
#[test]
fn a_chunk_that_is_full_to_its_end_stays() {
    let case = Case::new(NARROW, &[100; 14], &[13]);
    // 6 records a chunk; a seventh is put where the format would not: at the end of chunk 0, in place of record 12.
    let (table, chunk) = ("s/1.loc", "s/0.chunk");
    let entry = Entry { offset: 600, phys_length: 100, logic_length: 100, chunk_id: 0 };
    let write = |path: &str, bytes: &[u8], at| {
        let file = case.sim.open_rw(Path::new(path)).unwrap();
        write_all_at(&*file, Path::new(path), &mut [IoSlice::new(bytes)], at).unwrap();
    };
    write(table, &entry.encode(), 5 * 16);
    write(chunk, &case.model[12], 600);
    let done = case.compact(SMALL).unwrap();
    assert_eq!(done.moved, 0);
    case.check_packed();
    assert_eq!(case.open().end(), (1, 600));
}
