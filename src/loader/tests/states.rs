//! A state is a position: restoring one gives what would have come.

use super::*;
use crate::loader::State;
use crate::sampler::Mode;
use std::collections::BTreeMap;

#[test]
fn restoring_at_every_step_goes_on_as_if_nothing_had_come_between() {
    let stores = Stores::new();
    for mode in Mode::ALL {
        for workers in [0, 1, 3] {
            let new = || stores.builder().mode(mode).workers(workers).build().unwrap();
            let wanted = indices(&new(), 25);
            let mut loader = new();
            for step in 0..20 {
                assert_eq!(loader.state().unwrap().step(), step as u64);
                let state = loader.state().unwrap();
                assert_eq!(indices(&loader, 5), wanted[step..step + 5]);
                // Here and elsewhere, as bytes and as text.
                if step % 2 == 0 {
                    loader.restore(&state).unwrap();
                } else {
                    let state = State::from_bytes(&state.to_bytes()).unwrap();
                    loader = stores.builder().workers(2 - workers.min(2)).resume(state).build().unwrap();
                }
                assert_eq!(loader.state().unwrap(), state);
                assert_eq!(indices(&loader, 1), wanted[step..=step]);
            }
        }
    }
}

#[test]
fn a_state_chooses_the_stream() {
    let stores = Stores::new();
    let other = stores.builder().mode(Mode::Iid).seed(77).build().unwrap();
    let _ = indices(&other, 4);
    let state = other.state().unwrap();
    let wanted = indices(&other, 6);
    let loader = stores.builder().build().unwrap();
    loader.restore(&state).unwrap();
    assert_eq!(indices(&loader, 6), wanted);
    loader.seek(4).unwrap();
    assert_eq!(indices(&loader, 6), wanted);
}

#[test]
fn ranks_go_on_with_another_number_of_ranks() {
    let stores = Stores::new();
    let new = |rank, world| stores.builder().rank(rank, world).workers(1);
    let whole = indices(&new(0, 1).build().unwrap(), 12);
    let first = new(2, 4).build().unwrap();
    let _ = indices(&first, 7);
    let state: State = first.state().unwrap().to_string().parse().unwrap();
    let loaders: Vec<Loader> = (0..3).map(|rank| new(rank, 3).resume(state.clone()).build().unwrap()).collect();
    for (step, wanted) in &whole[7..] {
        let parts: Vec<u64> = loaders.iter().flat_map(|loader| indices(loader, 1).remove(0).1).collect();
        assert_eq!(&parts, wanted, "step {step}");
    }
}

#[test]
fn in_completion_order_nothing_is_lost_and_nothing_comes_twice() {
    let stores = Stores::new();
    let new = || {
        stores.builder().workers(4).in_completion_order().transform(|batch| {
            std::thread::sleep(Duration::from_millis(if batch.step() % 5 == 0 { 10 } else { 0 }));
            Ok(())
        })
    };
    let wanted: BTreeMap<u64, Vec<u64>> = indices(&stores.builder().build().unwrap(), 400).into_iter().collect();
    let (mut got, mut with_ahead) = (BTreeMap::new(), 0);
    let mut loader = new().build().unwrap();
    for _ in 0..12 {
        for (step, indices) in indices(&loader, 9) {
            assert_eq!(got.insert(step, indices), None, "step {step} came twice");
        }
        let text = loader.state().unwrap().to_string();
        with_ahead += usize::from(text.contains("ahead"));
        let state: State = text.parse().unwrap();
        assert_eq!(State::from_bytes(&state.to_bytes()).unwrap(), state);
        loader = new().resume(state).build().unwrap();
    }
    assert!(with_ahead > 0, "no state had anything to remember");
    let first_missing = loader.state().unwrap().step();
    assert!((0..first_missing).all(|step| got[&step] == wanted[&step]));
    assert!(got.iter().all(|(step, indices)| wanted[step] == *indices));
}

#[test]
fn what_does_not_fit_is_refused_and_named() {
    let stores = Stores::new();
    dense(&stores.path("long.zr"), N + 1, Codec::Raw);
    dense(&stores.path("zstd.zr"), N, Codec::Zstd);
    // The same size in every way, other data.
    let mut writer = DenseWriter::create(&stores.path("data.zr"), options(Codec::Raw), dtype("<u2"), vec![2]).unwrap();
    writer.append(&vec![1; N as usize * 4]).unwrap();
    writer.close().unwrap();
    let loader = |name: &str, batch| {
        Loader::builder().source_as("d", stores.open(name)).batch(batch).workers(1).build().unwrap()
    };
    let state = loader("d.zr", 10).state().unwrap();
    for (name, batch, words) in [
        ("long.zr", 10, ["number of records was 103", "is 104"]),
        ("d.zr", 11, ["batch size was 10", "is 11"]),
        ("zstd.zr", 10, ["fingerprint of the store", "another one"]),
        ("data.zr", 10, ["fingerprint of the store", "another one"]),
    ] {
        let loader = loader(name, batch);
        let _ = indices_unchecked(&loader, 3);
        let text = loader.restore(&state).unwrap_err().to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        // It stays where it was.
        assert_eq!(loader.next().unwrap().unwrap().step(), 3);
    }
    let resumed = stores.builder().resume(state.clone()).batch(12).build().unwrap_err().to_string();
    assert!(resumed.contains("batch size was 10, and is 12"), "{resumed}");
    // A copy at another path is the same store.
    let copy = stores.path("copy.zr");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(stores.path("d.zr")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    loader("copy.zr", 10).restore(&state).unwrap();
    // Under another name it is another stream.
    let renamed = Loader::builder().source_as("e", stores.open("d.zr")).batch(10).workers(1).build().unwrap();
    assert!(renamed.restore(&state).is_err());
}

fn indices_unchecked(loader: &Loader, n: usize) -> Vec<u64> {
    loader.iter().take(n).map(|batch| batch.unwrap().step()).collect()
}

/// A state with everything in it.
fn sample() -> State {
    let stores = Stores::new();
    let loader = stores.builder().mode(Mode::Sequential).seed(u64::MAX).build().unwrap();
    let mut state = loader.state().unwrap();
    state.store = 0x0123_4567_89AB_CDEF;
    state.position.step = 300;
    state
}

#[test]
fn the_written_forms_are_these() {
    let mut state = sample();
    let golden = "5a4c535401000200\
                  2c01000000000000\
                  0a00000000000000\
                  ffffffffffffffff\
                  6700000000000000\
                  efcdab8967452301\
                  00000000";
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let bytes = state.to_bytes();
    assert_eq!(hex(&bytes[..52]), golden, "another layout needs another version");
    assert_eq!(bytes.len(), 56);
    let text = state.to_string();
    let check = hex(&bytes[52..].iter().rev().copied().collect::<Vec<u8>>());
    assert_eq!(
        text,
        format!(
            "{{\"zrfs_loader\":1,\"sampler\":\"sequential,batch=10,seed=18446744073709551615\",\"length\":103,\
             \"store\":\"0123456789abcdef\",\"step\":300,\"check\":\"{check}\"}}"
        )
    );
    state.position.ahead = [302, 305].into();
    assert_eq!(state.to_bytes().len(), 56 + 16);
    assert!(state.to_string().contains("\"ahead\":[302,305]"));
    for state in [state, sample()] {
        assert_eq!(State::from_bytes(&state.to_bytes()).unwrap(), state);
        assert_eq!(state.to_string().parse::<State>().unwrap(), state);
    }
}

#[test]
fn damage_is_noticed() {
    let mut state = sample();
    state.position.ahead = [302].into();
    let bytes = state.to_bytes();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            assert!(State::from_bytes(&changed).is_err(), "byte {at}, bit {bit}");
        }
        assert!(State::from_bytes(&bytes[..at]).is_err());
    }
    assert!(State::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
    let newer = State::from_bytes(&[&bytes[..4], &[2], &bytes[5..]].concat()).unwrap_err().to_string();
    assert!(newer.contains("version 2"), "{newer}");
    let text = state.to_string();
    for (from, to) in [
        ("\"step\":300", "\"step\":301"),
        ("103", "104"),
        ("batch=10", "batch=11"),
        ("[302]", "[303]"),
        ("0123", "0124"),
        ("zrfs_loader\":1", "zrfs_loader\":2"),
        ("zrfs_loader", "other"),
        ("sequential", "random"),
        ("\"step\":300", "\"step\":-1"),
        ("[302]", "5"),
        ("}", ""),
    ] {
        assert!(text.contains(from));
        let error = text.replacen(from, to, 1).parse::<State>().unwrap_err().to_string();
        assert!(error.contains("no state of a loader"), "{error}");
    }
}
