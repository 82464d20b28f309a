use super::*;
use crate::storage::sim::{Outcome, Sim};
use crate::store::{OpenOptions, Writer, WriterOptions};
use std::sync::Arc;

/// Records that resemble each other, as many different ones as are asked for.
fn records(n: u32) -> Vec<Vec<u8>> {
    let record = |i: u32| {
        let text = format!("{{\"id\": {i}, \"name\": \"user-{}\", \"tags\": [\"{}\", \"common\"]}}", i * 7919, i % 97);
        text.into_bytes()
    };
    (0..n).map(record).collect()
}

#[test]
fn tiers_have_one_spelling() {
    for tier in DictTier::ALL {
        assert_eq!(tier.to_string().parse(), Ok(tier));
        assert!(Sample::tested_bytes(tier) > tier.sample_bytes());
    }
    assert_eq!(DictTier::default(), DictTier::Balanced);
    assert!("Fast".parse::<DictTier>().unwrap_err().contains("fast, balanced and max"));
}

#[test]
fn a_sample_of_any_length_is_bounded_and_strided() {
    let limit = 256 << 10;
    let mut sample = Sample::new(limit);
    for i in 0..100_000u64 {
        sample.push(&[i.to_le_bytes(); 12].concat());
        assert!(sample.bytes() <= limit as u64);
    }
    assert!(sample.bytes() >= limit as u64 / 2 - 96, "half full at least: {}", sample.bytes());
    let kept: Vec<u64> = sample.slices().iter().map(|r| u64::from_le_bytes(r[..8].try_into().unwrap())).collect();
    assert!(kept.windows(2).all(|w| w[1] - w[0] == sample.stride) && kept[0] == 0, "at equal distances");
    assert!(kept[kept.len() - 1] + sample.stride >= 100_000, "from the beginning to the end");
    // Huge records give their beginnings, empty ones nothing.
    let mut sample = Sample::new(limit);
    for _ in 0..50 {
        sample.push(&vec![1; 3 << 20]);
        sample.push(&[]);
    }
    assert!(sample.bytes() <= limit as u64 && sample.slices().iter().all(|r| r.len() == RECORD_BYTES));
}

#[test]
fn slices_iterators_and_stores_train_the_same_dictionary() {
    let records = records(2000);
    let one = train(&records, DictTier::Fast).unwrap();
    assert!(one.len() > 1000 && one.len() <= DictTier::Fast.dict_bytes());
    assert_eq!(train(records.iter(), DictTier::Fast).unwrap(), one);
    let sim = Sim::new();
    let options = WriterOptions::new(Codec::Zstd).storage(Arc::new(sim.clone()));
    let mut writer = options.create("/s").unwrap();
    writer.append(&records.iter().map(|r| &r[..]).collect::<Vec<_>>()).unwrap();
    let store = OpenOptions::new().storage(Arc::new(sim)).open("/s").unwrap();
    assert_eq!(train_on(&store, DictTier::Fast, &Progress::default()).unwrap(), one);
    // Far more than the tier takes.
    let many = (0..200_000u32).map(|i| format!("{{\"id\": {i}, \"name\": \"user-{}\"}}", i * 7919));
    assert!(train(many, DictTier::Fast).unwrap().len() <= DictTier::Fast.dict_bytes());
}

#[test]
fn too_little_to_train_on_is_an_error_that_says_what_to_do() {
    for few in [vec![], vec![b"one".to_vec()], vec![Vec::new(); 100], records(4)] {
        let error = train(&few, DictTier::Max).unwrap_err().to_string();
        assert!(error.contains("give more of them") && error.contains("--codec zstd"), "{error}");
    }
}

#[test]
fn a_dictionary_is_tested_on_records_that_it_was_not_trained_on() {
    let records = records(3000);
    let mut sample = Sample::new(Sample::tested_bytes(DictTier::Fast));
    records.iter().for_each(|r| sample.push(r));
    let trained = sample.train_and_test(DictTier::Fast, &"here", &Progress::default()).unwrap();
    assert_eq!(trained.tested.records, 333);
    assert_eq!(trained.records, 3000 - 333);
    let all: u64 = records.iter().map(|r| r.len() as u64).sum();
    assert_eq!(trained.bytes + trained.tested.bytes, all);
    assert!(trained.tested.with * 3 < trained.tested.without * 2, "{:?}", trained.tested);
}

/// An empty `zstd_dict` store without a dictionary, as loaderx makes one.
fn waiting(sim: &Sim, dict: &[u8]) {
    let options = WriterOptions::new(Codec::ZstdDict).storage(Arc::new(sim.clone())).dict(dict.to_vec());
    options.create("/s").unwrap().close().unwrap();
    let storage: Arc<dyn crate::storage::Storage> = Arc::new(sim.clone());
    storage.remove(Path::new("/s/dict.zr")).unwrap();
    storage.sync_dir(Path::new("/s")).unwrap();
}

fn open_writer(sim: &Sim) -> Result<Writer> {
    WriterOptions::new(Codec::Raw).storage(Arc::new(sim.clone())).open("/s")
}

#[test]
fn a_dictionary_is_installed_later_and_readers_learn_of_it() {
    let records = records(500);
    let slices: Vec<&[u8]> = records.iter().map(|r| &r[..]).collect();
    let dict = train(&records, DictTier::Fast).unwrap();
    let sim = Sim::new();
    waiting(&sim, &dict);
    let options = WriterOptions::new(Codec::Raw).storage(Arc::new(sim.clone()));
    let error = open_writer(&sim).unwrap_err().to_string();
    assert!(error.contains("zrfs train-dict SOURCE --install /s"), "{error}");
    let early = OpenOptions::new().storage(Arc::new(sim.clone())).open("/s").unwrap();
    options.install_dict("/s", &dict).unwrap();
    options.install_dict("/s", &dict).unwrap();
    let mut writer = open_writer(&sim).unwrap();
    writer.append(&slices).unwrap();
    // Opened before there was a dictionary.
    assert_eq!(early.refresh().unwrap(), 500);
    assert_eq!(early.read(499).unwrap(), records[499]);
    let busy = options.install_dict("/s", &dict).unwrap_err();
    assert!(matches!(busy, Error::Locked { .. }), "{busy}");
    writer.close().unwrap();
    let other = train(&records[..400], DictTier::Fast).unwrap();
    let full = options.install_dict("/s", &other).unwrap_err().to_string();
    assert!(full.contains("500 records"), "{full}");
}

#[test]
fn what_cannot_be_installed_is_refused_with_the_reason() {
    let records = records(500);
    let dict = train(&records, DictTier::Fast).unwrap();
    let other = train(&records[..400], DictTier::Fast).unwrap();
    let sim = Sim::new();
    waiting(&sim, &dict);
    let options = WriterOptions::new(Codec::ZstdDict).storage(Arc::new(sim.clone()));
    let mut broken = dict.clone();
    broken[8..64].fill(0xff);
    for (bad, why) in
        [(&b"no dictionary"[..], "37 a4 30 ec"), (&[], "37 a4 30 ec"), (&broken[..], "zstd does not take")]
    {
        let error = options.install_dict("/s", bad).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        let error = options.clone().dict(bad.to_vec()).create("/new").unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    options.install_dict("/s", &dict).unwrap();
    let error = options.install_dict("/s", &other).unwrap_err().to_string();
    assert!(error.contains("another one already"), "{error}");
    WriterOptions::new(Codec::Zstd).storage(Arc::new(sim.clone())).create("/z").unwrap().close().unwrap();
    let error = options.install_dict("/z", &dict).unwrap_err().to_string();
    assert!(error.contains("codec is zstd"), "{error}");
}

#[test]
fn a_crash_leaves_no_dictionary_or_all_of_it() {
    let records = records(300);
    let dict = train(&records, DictTier::Fast).unwrap();
    let sim = Sim::new();
    waiting(&sim, &dict);
    sim.step(0);
    WriterOptions::new(Codec::Raw).storage(Arc::new(sim.clone())).install_dict("/s", &dict).unwrap();
    let moments = sim.moments();
    assert!(moments.len() > 5);
    let (mut without, mut with) = (0, 0);
    let last = moments.len() - 1;
    for (k, moment) in moments.iter().enumerate() {
        let outcomes = [Outcome::Kept, Outcome::Lost].into_iter().chain((0..40).map(Outcome::Some));
        for after in outcomes.map(|outcome| moment.power_cut(outcome)).chain([moment.killed()]) {
            match open_writer(&after) {
                Ok(_) => with += 1,
                Err(Error::Dictionary { .. }) if k < last => without += 1,
                Err(e) => panic!("after call {k}: {e}"),
            }
            // Whatever is left, it can be installed again, and is the same.
            WriterOptions::new(Codec::Raw).storage(Arc::new(after.clone())).install_dict("/s", &dict).unwrap();
            open_writer(&after).unwrap().append(&[&records[0]]).unwrap();
        }
    }
    assert!(with > 40 && without > 40, "{with} {without}");
}
