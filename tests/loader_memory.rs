//! A loader's memory: as many batches as are ready, being made and in the consumer's hands, and a small rest.

use std::collections::VecDeque;
use std::time::Duration;
use zrfs::dataset::DenseWriter;
use zrfs::format::Codec;
use zrfs::format::dtype::DType;
use zrfs::{Loader, Source, WriterOptions};

const RECORD: usize = 256 << 10;
const BATCH: u64 = 256;
const MIB: u64 = 1 << 20;

/// A size of this process, in bytes: `VmHWM:` the most it ever had, `VmRSS:` what it has.
fn memory(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn batches_of_64_mib_with_four_ready_and_four_workers() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("s.zr");
    let dtype = DType::parse("|u1").unwrap();
    let mut writer = DenseWriter::create(&path, WriterOptions::new(Codec::Zstd), dtype, vec![RECORD as u64]).unwrap();
    for i in 0..300u32 {
        writer.append(&vec![i as u8; RECORD]).unwrap();
    }
    writer.close().unwrap();

    let before = memory("VmHWM:");
    assert!(before < 100 * MIB, "{before} before anything was loaded");
    let loader =
        Loader::builder().source(Source::open(&path).unwrap()).batch(BATCH).prefetch(4).workers(4).build().unwrap();
    let batch = BATCH * RECORD as u64;
    // Some batches in hand, then one; with time for everything to be made that can be.
    for (held, steps) in [(1, 12), (3, 8)] {
        let mut hands = VecDeque::new();
        for n in 0..steps {
            if hands.len() == held {
                hands.pop_front();
            }
            let batch = loader.next().unwrap().unwrap();
            let part = &batch.parts()[0];
            for (k, &i) in batch.indices().iter().enumerate() {
                let record = part.record(k).unwrap();
                assert!(record.len() == RECORD && record[0] == i as u8 && record[RECORD - 1] == i as u8);
            }
            hands.push_back(batch);
            while n == steps - 1 && loader.stats().unwrap().ready < 8 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let (peak, most) = (memory("VmHWM:"), (8 + held as u64) * batch + 64 * MIB);
        println!("{held} in hand: {} MiB at most", peak / MIB);
        assert!(peak < most.max(before), "{} MiB", peak / MIB);
        // It would be nothing to be proud of if the batches were not there.
        assert!(peak > (8 + held as u64) * batch, "{} MiB", peak / MIB);
        if held == 1 {
            assert!(peak < 700 * MIB, "{} MiB", peak / MIB);
        }
    }
    drop(loader);
    assert!(memory("VmRSS:") < before + 64 * MIB, "{} MiB are left", memory("VmRSS:") / MIB);
}
