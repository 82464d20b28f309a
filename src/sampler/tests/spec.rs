//! The text form of specs.

use super::*;

#[test]
fn texts_and_what_they_mean() {
    let cyclic = Spec::new(Mode::Cyclic, 256);
    for (text, spec, canonical) in [
        ("cyclic,batch=256,seed=42", cyclic.clone(), "cyclic,batch=256,seed=42"),
        ("cyclic,batch=256", cyclic.clone(), "cyclic,batch=256,seed=42"),
        ("cyclic,seed=0,batch=256,tail=drop", Spec { seed: 0, ..cyclic.clone() }, "cyclic,batch=256,seed=0"),
        (
            "cyclic,tail=keep,world=8,batch=256,rank=3",
            Spec { rank: 3, world: 8, tail: Tail::Keep, ..cyclic },
            "cyclic,batch=256,seed=42,rank=3,world=8,tail=keep",
        ),
        ("sequential,batch=1", Spec::new(Mode::Sequential, 1), "sequential,batch=1"),
        ("iid,batch=1,tail=wrap,rank=0,world=1", Spec::new(Mode::Iid, 1), "iid,batch=1,seed=42"),
        (
            "iid_counter,batch=18446744073709551615,seed=18446744073709551615",
            Spec { seed: u64::MAX, ..Spec::new(Mode::IidCounter, u64::MAX) },
            "iid_counter,batch=18446744073709551615,seed=18446744073709551615",
        ),
    ] {
        let parsed: Spec = text.parse().unwrap();
        assert_eq!((&parsed, parsed.to_string().as_str()), (&spec, canonical), "{text}");
    }
}

#[test]
fn texts_that_are_refused() {
    for (text, reason) in [
        ("", "\"\" is no mode; the modes are sequential, iid, iid_counter, cyclic"),
        ("batch=256", "\"batch=256\" is no mode"),
        ("Cyclic,batch=256", "\"Cyclic\" is no mode"),
        ("cyclic", "the batch size is missing"),
        ("cyclic,seed=1", "the batch size is missing"),
        ("cyclic,", "\"\" is not key=value"),
        ("cyclic,batch", "\"batch\" is not key=value"),
        ("cyclic,batch=4,", "\"\" is not key=value"),
        ("cyclic,batch=4,sed=1", "unknown key \"sed\"; the keys are batch, seed, rank, world and tail"),
        ("cyclic, batch=4", "unknown key \" batch\""),
        ("cyclic,batch=4,batch=4", "batch is given twice"),
        ("cyclic,batch=0", "batch=0: a batch has at least 1 index"),
        ("cyclic,batch=", "batch=: not a whole number"),
        ("cyclic,batch=4=4", "batch=4=4: not a whole number"),
        ("cyclic,batch=+4", "batch=+4: not a whole number"),
        ("cyclic,batch=04", "batch=04: not a whole number"),
        ("cyclic,batch=1e3", "batch=1e3: not a whole number"),
        ("cyclic,batch=٤", "batch=٤: not a whole number"),
        ("cyclic,batch=4,seed=-1", "seed=-1: not a whole number from 0 to 18446744073709551615"),
        ("cyclic,batch=4,seed=18446744073709551616", "seed=18446744073709551616: the largest is 18446744073709551615"),
        ("cyclic,batch=4,rank=1", "rank and world go together"),
        ("cyclic,batch=4,world=2", "rank and world go together"),
        ("cyclic,batch=4,rank=2,world=2", "rank=2 of world=2: ranks are 0 to 1"),
        ("cyclic,batch=4,rank=0,world=0", "world=0"),
        ("cyclic,batch=4,tail=pad", "tail=pad: the end of a cycle is one of drop, keep, wrap"),
        ("iid,batch=4,tail=drop", "tail=drop: iid has no cycles"),
    ] {
        let why = text.parse::<Spec>().unwrap_err().to_string();
        assert!(why.contains(reason) && why.starts_with(&format!("sampler {text:?}: ")), "{text}: {why}");
    }
}
