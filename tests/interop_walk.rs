//! loaderx 1.5.2 and zrfs change one store in turn, at random: append, delete, compact, for each codec, dense and ragged.
//! After every operation both read it, and hold it to be what a list says that had the same done to it.
//! `ZRFS_WALK_SEED` repeats a walk, `ZRFS_WALK_STEPS` asks for a longer one.

#[path = "common/loaderx.rs"]
mod side;

use serde_json::{Value, json};
use side::served::Loaderx;
use side::{assert_equal, describe, open, python};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::process::Command;
use zrfs::WriterOptions;
use zrfs::dataset::{Batch, DenseWriter, RaggedWriter, StreamWriter};
use zrfs::format::Codec;
use zrfs::format::dtype::DType;
use zrfs::pack::Progress;

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % n
    }
}

/// Bytes of a dense record.
const ITEM: u64 = 40;

fn describe_record(shape: &[u64], bytes: &[u8]) -> Value {
    json!([shape, bytes.len(), crc32fast::hash(bytes)])
}

/// The records that `interop.py` appends, `count` of them.
fn theirs(ragged: bool, count: u64) -> Vec<Value> {
    let one = |n: u64| {
        if ragged {
            let bytes: Vec<u8> = (0..2 * n + 2).map(|k| (k % 7) as u8).collect();
            describe_record(&[2, n + 1], &bytes)
        } else {
            let bytes: Vec<u8> = (n * ITEM..(n + 1) * ITEM).map(|k| (k % 251) as u8).collect();
            describe_record(&[ITEM], &bytes)
        }
    };
    (0..count).map(one).collect()
}

/// Appends `count` records with zrfs; what they are.
fn append(path: &Path, ragged: bool, count: u64, dice: &mut Dice) -> Vec<Value> {
    let shape = |dice: &mut Dice| match dice.below(4) {
        _ if !ragged => vec![ITEM],
        0 => vec![1 + dice.below(9), 1 + dice.below(9)],
        1 => vec![1 + dice.below(70_000)],
        2 => vec![1, 1 + dice.below(200), 1],
        _ => vec![1 + dice.below(30)],
    };
    let shapes: Vec<Vec<u64>> = (0..count).map(|_| shape(dice)).collect();
    let mut bytes_of = |shape: &Vec<u64>| -> Vec<u8> {
        let (length, values) = (shape.iter().product::<u64>(), 1 + dice.below(200));
        (0..length).map(|_| dice.below(values) as u8).collect()
    };
    let bytes: Vec<Vec<u8>> = shapes.iter().map(&mut bytes_of).collect();
    let records: Vec<(&[u64], &[u8])> = shapes.iter().zip(&bytes).map(|(s, b)| (&s[..], &b[..])).collect();
    let mut writer = StreamWriter::open(path, WriterOptions::new(Codec::Raw)).unwrap();
    if ragged {
        writer.append(&Batch::Ragged(&records)).unwrap();
    } else {
        writer.append(&Batch::Dense(&bytes.concat())).unwrap();
    }
    writer.close().unwrap();
    records.iter().map(|(shape, bytes)| describe_record(shape, bytes)).collect()
}

fn walk(codec: Codec) {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().unwrap());
    let seed = number("ZRFS_WALK_SEED").unwrap_or_else(|| RandomState::new().build_hasher().finish() >> 32);
    let steps = number("ZRFS_WALK_STEPS").unwrap_or(30);
    println!("walk, {codec}: ZRFS_WALK_SEED={seed}");
    let (mut dice, mut loaderx) =
        (Dice(seed), Loaderx::start(Command::new(python()), Path::new(env!("CARGO_MANIFEST_DIR"))));
    let dir = tempfile::tempdir().unwrap();
    let samples: Vec<u8> = (0..40_000u32).map(|i| (i % 64 + i / 64 % 7) as u8).collect();
    let dict = zrfs::codec::train_dict(&samples, &vec![64; 625], 32 << 10).unwrap();
    let (options, u1) = (|| WriterOptions::new(codec).dict(dict.clone()), || DType::parse("|u1").unwrap());
    let paths = [dir.path().join("dense"), dir.path().join("ragged")];
    DenseWriter::create(&paths[0], options(), u1(), vec![ITEM]).unwrap().close().unwrap();
    RaggedWriter::create(&paths[1], options(), u1()).unwrap().close().unwrap();
    let mut models = [Vec::new(), Vec::new()];
    for step in 0..steps {
        // Dense and ragged in turn; half of it done by either side.
        let which = (step % 2) as usize;
        let (path, model, ragged) = (&paths[which], &mut models[which], which == 1);
        let (text, len, ours) = (path.to_str().unwrap(), model.len() as u64, dice.below(2) == 0);
        let context;
        match dice.below(6) {
            3 | 4 if len > 1 => {
                let mut doomed: Vec<u64> = (0..1 + dice.below(len.min(6))).map(|_| dice.below(len)).collect();
                context = format!("ours {ours}: delete {doomed:?}");
                if ours {
                    let mut writer = StreamWriter::open(path, WriterOptions::new(Codec::Raw)).unwrap();
                    writer.delete(&doomed).unwrap();
                    writer.close().unwrap();
                } else {
                    let names: Vec<String> = doomed.iter().map(u64::to_string).collect();
                    let command = ["delete", text].into_iter().chain(names.iter().map(String::as_str));
                    loaderx.ask(command.collect::<Vec<_>>());
                }
                doomed.sort_unstable_by(|a, b| b.cmp(a));
                doomed.dedup();
                doomed.iter().for_each(|&i| drop(model.swap_remove(i as usize)));
            }
            5 => {
                context = format!("ours {ours}: compact");
                if ours {
                    let mut writer = WriterOptions::new(Codec::Raw).open(path).unwrap();
                    writer.compact(&Progress::default()).unwrap();
                } else {
                    loaderx.ask(json!(["compact", text]));
                }
            }
            _ => {
                let count = 1 + dice.below(20);
                context = format!("ours {ours}: append {count}");
                let new = if ours {
                    append(path, ragged, count, &mut dice)
                } else {
                    loaderx.ask(json!(["append", text, count.to_string()]));
                    theirs(ragged, count)
                };
                model.extend(new);
            }
        }
        let context = format!("{codec}, ZRFS_WALK_SEED={seed}, step {step}, {} of {len}: {context}", path.display());
        let kind = if ragged { "ragged" } else { "dense" };
        let want = json!({ "kind": kind, "dtype": "|u1", "records": model });
        assert_equal(&describe(&open(path)), &want, &format!("{context}: zrfs"));
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_equal(&loaderx.ask(json!(["read", text]))[name], &want, &format!("{context}: loaderx"));
        let found = open(path).verify(&Progress::default(), &mut |bad| panic!("{context}: {}", bad.error)).unwrap();
        assert_eq!(found.records, model.len() as u64);
    }
}

#[test]
fn raw() {
    walk(Codec::Raw);
}

#[test]
fn zstd() {
    walk(Codec::Zstd);
}

#[test]
fn zstd_dict() {
    walk(Codec::ZstdDict);
}
