//! Batches as files of a real kernel mount, read by numpy.

// Each test program uses a part of it.
#[allow(dead_code, unused_imports)]
mod common;

use common::random::options;
use common::{Mount, TempDir, bytes, run, shell, store, succeeds, wait_until};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zrfs::client;
use zrfs::dataset::{DenseWriter, RaggedWriter};
use zrfs::format::Codec;
use zrfs::format::dtype::DType;
use zrfs::sampler::Sampler;

const COUNT: u64 = 300;
const SPECS: [&str; 6] = [
    "cyclic,batch=32,seed=7",
    "cyclic,batch=70,tail=keep,rank=1,world=2",
    "sequential,batch=64",
    "iid,batch=16",
    "iid_counter,batch=16,seed=1",
    "cyclic,batch=1,rank=1,world=2",
];

/// A Python with numpy.
fn python() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/venv/bin/python");
    let path = std::env::var_os("ZRFS_PYTHON").map_or(root, PathBuf::from);
    assert!(path.is_file(), "{} is missing: run scripts/setup, or name one in ZRFS_PYTHON", path.display());
    path
}

fn numpy(script: &str, args: &[&str]) -> String {
    succeeds(&run(python().to_str().unwrap(), &[&["-c", script], args].concat()))
}

fn stat(mount: &Mount, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("{}/.zrfs/stats.json", mount.path())).unwrap();
    let line = text.lines().find(|l| l.trim().starts_with(&format!("\"{name}\":"))).unwrap().to_string();
    line.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

fn dtype(text: &str) -> DType {
    DType::parse(text).unwrap()
}

/// A dataset of a stream of each kind.
fn dataset(path: &Path, codec: Codec) {
    std::fs::create_dir(path).unwrap();
    let mut image = DenseWriter::create(&path.join("image"), options(codec), dtype("|u1"), vec![28, 30]).unwrap();
    image.append(&bytes(1, COUNT as usize * 840)).unwrap();
    image.close().unwrap();
    let mut label = DenseWriter::create(&path.join("label"), options(codec), dtype("<i8"), vec![]).unwrap();
    label.append(&(0..COUNT).flat_map(u64::to_le_bytes).collect::<Vec<_>>()).unwrap();
    label.close().unwrap();
    let mut clip = RaggedWriter::create(&path.join("clip"), options(codec), dtype("<f4")).unwrap();
    for k in 0..COUNT {
        let shape: &[u64] = if k % 4 == 0 { &[k % 9 + 1] } else { &[2, k % 7 + 1, 3] };
        clip.append(&[(shape, &bytes(k, 4 * shape.iter().product::<u64>() as usize))]).unwrap();
    }
    clip.close().unwrap();
    let mut text = options(codec).create(path.join("text")).unwrap();
    let records: Vec<Vec<u8>> = (0..COUNT).map(|k| bytes(k, 1 + k as usize * 3 % 500)).collect();
    text.append(&records.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
    text.close().unwrap();
}

/// Compares batches with the records that the mount has one by one: MOUNT STREAM (or "") ORDERS, a JSON list of
/// [directory, name, indices].
const COMPARE: &str = r#"
import functools, json, os, sys
import numpy as np
mount, stream, orders = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
whole = f'{mount}/streams/{stream}' if stream else mount
typed = os.path.exists(whole + '/npy')
@functools.cache
def record(index):
    if typed:
        return np.load(f'{whole}/npy/{index}.npy')
    return np.frombuffer(open(f'{whole}/records/{index}', 'rb').read(), 'u1')
for directory, name, indices in orders:
    at = f'{mount}/batches/{directory}/{name}'
    got = np.load(at + '.indices.npy')
    assert got.dtype == '<u8' and got.tolist() == indices, (at, got)
    path = lambda end: (f'{at}/{stream}' if stream else at) + end
    size = os.stat(path('.npy')).st_size
    values = np.load(path('.npy'), mmap_mode='r')
    assert size == os.stat(path('.npy')).st_size == values.offset + values.nbytes
    assert len(open(path('.npy'), 'rb').read()) == size
    if not os.path.exists(path('.offsets.npy')):
        assert len(values) == len(indices)
        each = values
    else:
        offsets = np.load(path('.offsets.npy'))
        assert values.ndim == 1 and len(offsets) == len(indices) + 1 and offsets[0] == 0 and offsets[-1] == len(values)
        each = [values[a:b] for a, b in zip(offsets[:-1], offsets[1:])]
        if os.path.exists(path('.shapes.npy')):
            shapes = np.load(path('.shapes.npy'), mmap_mode='r')
            assert shapes.shape[0] == len(indices)
            none = np.uint64(2**64 - 1)
            each = [a.reshape([int(d) for d in s if d != none]) for a, s in zip(each, shapes)]
    for index, a in zip(indices, each):
        want = record(index)
        assert a.dtype == want.dtype and a.shape == want.shape and np.array_equal(a, want, equal_nan=a.dtype.kind == 'f'), (at, index)
print('good')
"#;

fn orders(count: u64) -> String {
    let mut orders = Vec::new();
    for text in SPECS {
        let mut sampler = Sampler::new(text.parse().unwrap(), count).unwrap();
        for step in [0, 5, 40] {
            let mut indices = vec![0; sampler.batch_len(step) as usize];
            sampler.batch_at(step, &mut indices).unwrap();
            orders.push(serde_json::json!([text, step.to_string(), indices]));
        }
    }
    orders.push(serde_json::json!(["at", "17", [17]]));
    orders.push(serde_json::json!(["at", "299,0-3,17,17,2", [299, 0, 1, 2, 3, 17, 17, 2]]));
    serde_json::Value::from(orders).to_string()
}

#[test]
fn numpy_reads_what_the_records_are() {
    for codec in Codec::ALL {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("d");
        dataset(&path, codec);
        let mount = Mount::new(&path, &[]);
        for stream in ["image", "label", "clip", "text"] {
            assert_eq!(numpy(COMPARE, &[&mount.path(), stream, &orders(COUNT)]), "good\n");
            let alone = Mount::new(&path.join(stream), if stream == "clip" { &["--cache-size", "2K"] } else { &[] });
            assert_eq!(numpy(COMPARE, &[&alone.path(), "", &orders(COUNT)]), "good\n");
        }
        let samples = "import sys, numpy as np\n\
             m = sys.argv[1]\n\
             for i in (0, 17, 299):\n\
             \x20   assert int(np.load(f'{m}/samples/{i}/label.npy')) == i\n\
             \x20   assert np.load(f'{m}/samples/{i}/image.npy').shape == (28, 30)\n\
             \x20   assert open(f'{m}/samples/{i}/text', 'rb').read() == open(f'{m}/streams/text/records/{i}', 'rb').read()\n";
        numpy(samples, &[&mount.path()]);
    }
}

#[test]
fn listings_and_what_is_not_there() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("d");
    dataset(&path, Codec::Zstd);
    let mount = Mount::new(&path, &[]);
    let at = mount.path();
    let said = |script: &str| succeeds(&shell(&format!("cd {at} && LC_ALL=C {script}")));
    assert_eq!(said("ls"), "batches\nsamples\nstreams\n");
    assert_eq!(said("ls samples | wc -l"), "300\n");
    assert_eq!(said("ls samples/7"), "clip\nclip.npy\nimage\nimage.npy\nlabel\nlabel.npy\ntext\n");
    let spec = "batches/cyclic,batch=100";
    assert_eq!(said(&format!("ls {spec}")), "0\n0.indices.npy\n1\n1.indices.npy\n2\n2.indices.npy\n");
    let files = "clip.npy\nclip.offsets.npy\nclip.shapes.npy\nimage.npy\nlabel.npy\ntext.npy\ntext.offsets.npy\n";
    assert_eq!(said(&format!("ls {spec}/1")), files);
    assert_eq!(said("ls batches/at/5,7"), files);
    assert_eq!(said("ls batches; ls batches/at"), "at\n", "no walk comes across a batch that somebody asked for");
    assert_eq!(said(&format!("find {spec} -type f | wc -l")), (3 * 8).to_string() + "\n");
    assert_eq!(said("ls batches/iid,batch=100 | wc -l"), "6\n", "an endless mode");
    assert_eq!(said(&format!("stat -c '%F %a %h' {spec} {spec}/1 {spec}/1/label.npy")), {
        "directory 555 5\ndirectory 555 2\nregular file 444 1\n"
    });
    let copied = dir.path().join("copy");
    said(&format!("cp -r {spec}/2 {}", copied.display()));
    for name in files.lines() {
        let (copy, own) = (copied.join(name), format!("{at}/{spec}/2/{name}"));
        assert!(std::fs::read(copy).unwrap() == std::fs::read(own).unwrap(), "{name}");
    }
    for (name, error) in [
        ("batches/cyclic", "No such file"),
        ("batches/cyclic,batch=4,world=2", "No such file"),
        ("batches/cyclic,batch=4,length=0", "No such file"),
        ("batches/cyclic,batch=4,length=301", "No such file"),
        ("batches/cyclic,batch=4/x", "No such file"),
        ("batches/cyclic,batch=4/0.npy", "No such file"),
        ("batches/cyclic,batch=4/0/none.npy", "No such file"),
        ("batches/iid,batch=4/99999999999", "No such file"),
        ("batches/at/300", "No such file"),
        ("batches/at/1,,2", "No such file"),
        ("samples/300", "No such file"),
        ("batches/cyclic,batch=4/0/label.npy/x", "Not a directory"),
    ] {
        let done = run("stat", &[&format!("{at}/{name}")]);
        assert!(done.code == Some(1) && done.err.contains(error), "{name}: {done:?}");
    }
    let long = run("stat", &[&format!("{at}/batches/at/{}", vec!["1"; 200].join(","))]);
    assert!(long.err.contains("too long"), "{long:?}");
    assert!(shell(&format!("echo x > {at}/{spec}/1/label.npy")).err.contains("Read-only"));

    let mount = Mount::new(&path.join("label"), &["--root", "batches"]);
    assert_eq!(succeeds(&shell(&format!("ls {0}; cat {0}/at/3,4.npy | wc -c", mount.path()))), "at\n144\n");
}

/// Many more specs and lists than are remembered, while readers go on.
#[test]
fn what_was_forgotten_is_looked_up_again() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    store(&path, "raw", &(0..COUNT).map(|k| bytes(k, 100)).collect::<Vec<_>>());
    let mount = Mount::new(&path, &[]);
    let at = format!("{}/batches", mount.path());
    let names = [format!("{at}/at/1,2.npy"), format!("{at}/cyclic,batch=4,seed=5/0.npy")];
    let want = names.clone().map(|name| std::fs::read(name).unwrap());
    let open = names.clone().map(|name| std::fs::File::open(name).unwrap());
    let read_open = |k: usize| {
        let mut bytes = vec![0; want[k].len()];
        open[k].read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == want[k]);
    };
    // Longer than the kernel believes a look-up.
    std::thread::sleep(Duration::from_millis(50));
    (0..2).for_each(read_open);
    for k in 0..5000u64 {
        std::fs::metadata(format!("{at}/at/{},{},7.npy", k % 300, k / 300)).unwrap();
        std::fs::metadata(format!("{at}/cyclic,batch=4,seed={}/0.npy", k % 1500 + 10)).unwrap();
    }
    for (k, name) in names.iter().enumerate() {
        assert!(std::fs::read(name).unwrap() == want[k], "{name}");
        // What is open keeps its pages.
        read_open(k);
    }
}

/// What a run read of a store that grows is read again, by a mount that has forgotten it and by another one, and drawn by
/// the call.
#[test]
fn a_length_means_the_same_batches_for_ever() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let records: Vec<Vec<u8>> = (0..COUNT).map(|k| bytes(k, 100)).collect();
    let mut writer = store(&path, "zstd", &records);
    let mount = Mount::new(&path, &[]);
    let (bare, fixed) = ("cyclic,batch=40,seed=3", format!("cyclic,batch=40,seed=3,length={COUNT}"));
    let read = |mount: &Mount, spec: &str| -> Vec<Vec<u8>> {
        let read =
            |step: u64, end: &str| std::fs::read(format!("{}/batches/{spec}/{step}{end}", mount.path())).unwrap();
        [0, 1, 7, 100].iter().flat_map(|&step| [read(step, ".npy"), read(step, ".indices.npy")]).collect()
    };
    let want = read(&mount, bare);
    assert!(read(&mount, &fixed) == want);
    let more = format!("{}/batches/cyclic,batch=40,length={}", mount.path(), COUNT + 20);
    assert!(run("ls", &[&more]).err.contains("No such file"));
    writer.append(&(0..20).map(|_| &b"more"[..]).collect::<Vec<_>>()).unwrap();
    writer.sync().unwrap();
    wait_until("they are there", || std::fs::metadata(&more).is_ok());
    for seed in 0..1500 {
        std::fs::metadata(format!("{}/batches/sequential,batch=40,seed={seed}", mount.path())).unwrap();
    }
    let other = Mount::new(&path, &[]);
    for mount in [&mount, &other] {
        assert!(read(mount, &fixed) == want);
        assert!(read(mount, bare) != want, "without it the batches are those of all records");
        let views = client::Mount::open(mount.mountpoint()).unwrap();
        for (k, step) in [0, 1, 7, 100].into_iter().enumerate() {
            let batch = views.sample_among(COUNT, &bare.parse().unwrap(), step).unwrap();
            assert!(batch.parts()[0].bytes() == &want[2 * k][128..], "step {step}");
            assert!(batch.indices().iter().flat_map(|i| i.to_le_bytes()).eq(want[2 * k + 1][128..].iter().copied()));
        }
        let refused = views.sample_among(COUNT + 21, &bare.parse().unwrap(), 0).unwrap_err().to_string();
        assert!(refused.contains("has 320 records"), "{refused}");
        assert!(views.sample_among(0, &bare.parse().unwrap(), 0).is_err());
    }
}

#[test]
fn many_readers_and_little_memory() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let (records, length) = (2000, 16 << 10);
    let mut writer = DenseWriter::create(&path, options(Codec::Zstd), dtype("|u1"), vec![length]).unwrap();
    let data = bytes(3, records * length as usize);
    writer.append(&data).unwrap();
    writer.close().unwrap();
    let mut sampler = Sampler::new("cyclic,batch=1500,seed=1".parse().unwrap(), records as u64).unwrap();
    let mut indices = vec![0; 1500];
    sampler.batch_at(0, &mut indices).unwrap();
    let record = |index: &u64| &data[*index as usize * length as usize..][..length as usize];
    let want: Vec<u8> = indices.iter().flat_map(record).copied().collect();
    for (args, gathers) in [(&["--push-size", "0"][..], 1), (&["--cache-size", "4M"], 0)] {
        let mount = Mount::new(&path, args);
        let name = format!("{}/batches/cyclic,batch=1500,seed=1/0.npy", mount.path());
        let before = mount.resident();
        std::thread::scope(|s| {
            for k in 0..4 {
                let (name, want) = (&name, &want);
                s.spawn(move || {
                    let file = std::fs::File::open(name).unwrap();
                    let mut piece = vec![0; 100_000];
                    // Each begins elsewhere.
                    for at in
                        (0..want.len()).step_by(piece.len()).cycle().skip(k * 60).take(want.len() / piece.len() + 1)
                    {
                        let n = file.read_at(&mut piece, 128 + at as u64).unwrap();
                        assert!(piece[..n] == want[at..want.len().min(at + n)]);
                    }
                });
            }
        });
        assert_eq!(stat(&mount, "batches"), gathers, "{args:?}");
        if gathers == 0 {
            let grown = (mount.peak() - before) >> 10;
            assert!(grown < 20, "a batch of 24 MiB took {grown} MiB");
        }
    }
}

#[test]
fn the_next_step_is_there_before_it_is_asked_for() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let mut writer = DenseWriter::create(&path, options(Codec::Zstd), dtype("<u2"), vec![500]).unwrap();
    writer.append(&bytes(3, 2000 * 1000)).unwrap();
    writer.close().unwrap();
    for listed in [false, true] {
        let mount = Mount::new(&path, &[]);
        let spec = format!("{}/batches/cyclic,batch=50,seed=1", mount.path());
        if listed {
            succeeds(&shell(&format!("ls -l {spec} > /dev/null")));
        }
        for step in 0..40 {
            let batch = std::fs::read(format!("{spec}/{step}.npy")).unwrap();
            let indices = std::fs::read(format!("{spec}/{step}.indices.npy")).unwrap();
            for (index, got) in indices[128..].chunks(8).zip(batch[128..].chunks(1000)) {
                let index = u64::from_le_bytes(index.try_into().unwrap());
                assert!(std::fs::read(format!("{}/records/{index}", mount.path())).unwrap() == got);
            }
        }
        let (all, ahead) = (stat(&mount, "batches"), stat(&mount, "batches_ahead"));
        // Whoever is faster than the gather waits for it, or does it himself if it has not begun.
        assert!((30..60).contains(&all) && ahead > 10, "{listed}: {ahead} of {all}");
    }
}

#[test]
fn a_damaged_record_is_an_error_of_its_batches() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let mut writer = DenseWriter::create(&path, options(Codec::Zstd), dtype("|u1"), vec![3000]).unwrap();
    writer.append(&bytes(3, 100 * 3000)).unwrap();
    writer.close().unwrap();
    let table = std::fs::OpenOptions::new().write(true).open(path.join("0.loc")).unwrap();
    table.write_all_at(&u32::MAX.to_le_bytes(), 55 * 16).unwrap();
    let mount = Mount::new(&path, &[]);
    for step in 0..10 {
        let read = std::fs::read(format!("{}/batches/sequential,batch=10/{step}.npy", mount.path()));
        match read {
            Ok(batch) => assert!(step != 5 && batch.len() == 128 + 30_000),
            Err(e) => assert!(step == 5 && e.raw_os_error() == Some(5), "{step}: {e}"),
        }
    }
}

/// Steps far out of a stream that has to be replayed take a while each; who reads a record meanwhile does not wait for them.
#[test]
fn drawing_far_steps_leaves_room_for_others() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    store(&path, "raw", &(0..2000).map(|i| bytes(i, 100)).collect::<Vec<_>>()).close().unwrap();
    let mount = Mount::new(&path, &["--threads", "2"]);
    let script = r#"
        import subprocess, sys, time
        at = sys.argv[1]
        far = [subprocess.Popen(["cat", f"{at}/batches/iid,batch=1000,seed={k}/260000.npy"], stdout=subprocess.DEVNULL)
               for k in range(8)]
        begin, slowest, looks = time.monotonic(), 0, 0
        while any(one.poll() is None for one in far):
            look = time.monotonic()
            assert len(open(f"{at}/records/{looks % 2000}", "rb").read()) == 100
            slowest, looks = max(slowest, time.monotonic() - look), looks + 1
            time.sleep(0.01)
        took = time.monotonic() - begin
        assert all(one.wait() == 0 for one in far)
        assert looks > 10 and slowest < took / 3, (looks, slowest, took)
    "#;
    let script: String = script.lines().map(|l| format!("{}\n", l.strip_prefix("        ").unwrap_or(l))).collect();
    succeeds(&run("python3", &["-c", &script, &mount.path()]));
}
