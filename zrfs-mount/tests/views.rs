//! Batches through a real kernel mount: whose they are, and that they are unharmed by whatever clients do. That they equal
//! the engine's is for `equality.rs` to show.

// Each test program uses a part of it.
#[allow(dead_code, unused_imports)]
mod common;

use common::random::{is_native, natives};
use common::{Mount, TempDir, bytes, run, run_as, shell, store, succeeds, wait_until};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zrfs::client;
use zrfs::dataset::{DenseWriter, RaggedWriter};
use zrfs::format::dtype::DType;
use zrfs::loader::{Batch, Loader};
use zrfs::{Error, Source, WriterOptions};

/// A repeatable source of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A number of the mount's `.zrfs/stats.json`.
fn stat(mount: &Mount, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("{}/.zrfs/stats.json", mount.path())).unwrap();
    let line = text.lines().find(|l| l.trim().starts_with(&format!("\"{name}\":"))).unwrap().to_string();
    line.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

const RECORDS: u64 = 700;

/// A dataset of a dense, a ragged and an untyped stream, each with a codec of its own.
fn dataset(dir: &Path) -> PathBuf {
    let path = dir.join("set");
    std::fs::create_dir(&path).unwrap();
    let options = |codec: &str| WriterOptions::new(codec.parse().unwrap());
    let floats = DType::parse("<f4").unwrap();
    let mut dense = DenseWriter::create(&path.join("dense"), options("zstd"), floats.clone(), vec![3, 5]).unwrap();
    let mut ragged = RaggedWriter::create(&path.join("ragged"), options("raw"), floats).unwrap();
    let mut random = Random(5);
    for i in 0..RECORDS {
        dense.append(&bytes(i, 60)).unwrap();
        let extents = [1 + random.below(4), 1 + random.below(6)];
        let shape = &extents[..i as usize % 3];
        let length = 4 * shape.iter().product::<u64>();
        ragged.append(&[(shape, &bytes(i, length as usize))]).unwrap();
    }
    dense.close().unwrap();
    ragged.close().unwrap();
    let plain: Vec<Vec<u8>> = (0..RECORDS).map(|i| bytes(i + 7, 1 + i as usize * 13 % 5000)).collect();
    store(&path.join("plain"), "zstd", &plain);
    path
}

#[test]
fn any_file_stands_for_its_stream() {
    let dir = TempDir::new().unwrap();
    let set = dataset(dir.path());
    let mount = Mount::new(&set, &[]);
    let source = Source::open(&set).unwrap();
    let views = client::Mount::open(mount.mountpoint()).unwrap();
    assert!(views.is_dataset() && views.chosen().is_none() && views.records().unwrap() == RECORDS);
    assert_eq!(views.fingerprint().unwrap(), source.fingerprint());
    let indices = [5, 699, 5];
    let all = natives(&source, &indices);
    let ragged = all.iter().position(|native| native.name == "ragged").unwrap();
    for at in ["streams/ragged", "streams/ragged/records", "streams/ragged/records/5", "streams/ragged/npy/5.npy"] {
        let one = client::Mount::open(mount.mountpoint().join(at)).unwrap();
        assert_eq!(one.chosen().unwrap().name, "ragged");
        is_native(&one.gather(&indices).unwrap(), &indices, &all[ragged..=ragged]);
    }
    let control = client::Mount::open(mount.mountpoint().join(".zrfs/control")).unwrap();
    let kept = control.gather(&indices).unwrap();
    assert!(matches!(views.gather(&[5, RECORDS]), Err(Error::OutOfRange { index: RECORDS, length: RECORDS })));
    assert!(client::Mount::find(dir.path()).unwrap().is_none());
    assert!(client::Mount::open("/dev/null").is_err());
    // A batch is untouched by later ones; a handful of views were made, and are used again and again.
    for k in 0..100 {
        drop((views.gather(&[k]).unwrap(), control.gather(&[k, k]).unwrap()));
    }
    is_native(&kept, &indices, &all);
    assert!(views.views() <= 2 && control.views() <= 2 && stat(&mount, "views") <= 4, "{}", stat(&mount, "views"));
    drop((views, control, kept));
    wait_until("views are closed", || stat(&mount, "views") == 0);
}

#[test]
fn appended_records_are_gathered() {
    let dir = TempDir::new().unwrap();
    let mut writer = store(&dir.path().join("s"), "zstd", &[b"zero".to_vec()]);
    let mount = Mount::new(&dir.path().join("s"), &[]);
    let views = client::Mount::open(mount.mountpoint()).unwrap();
    let before = views.fingerprint().unwrap();
    assert!(views.gather(&[1]).is_err());
    writer.append(&[b"one", b"two"]).unwrap();
    writer.sync().unwrap();
    wait_until("they are there", || views.gather(&[2, 0]).is_ok_and(|batch| batch.parts()[0].bytes() == b"twozero"));
    assert!(views.records().unwrap() == 3 && views.fingerprint().unwrap() != before);
}

#[test]
fn the_file_of_a_view_has_the_bytes_of_its_memory() {
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&dataset(dir.path()), &[]);
    let script =
        CLIENT.to_string() + "print(open(f'{at}/.zrfs/views/{v.view}', 'rb').read() == bytes(v.memory[:v.bytes]))";
    assert_eq!(succeeds(&run("python3", &["-c", &script, &mount.path()])), "True\n");
}

#[test]
fn a_loader_over_a_mount_is_the_loader() {
    let dir = TempDir::new().unwrap();
    let set = dataset(dir.path());
    let mount = Mount::new(&set, &[]);
    let views = client::Mount::open(mount.mountpoint()).unwrap();
    let is_same = |one: &Batch, other: &Batch| {
        assert_eq!((one.step(), one.indices()), (other.step(), other.indices()));
        for (a, b) in one.parts().iter().zip(other.parts()) {
            assert!((a.name(), a.bytes(), a.offsets(), a.shape()) == (b.name(), b.bytes(), b.offsets(), b.shape()));
        }
    };
    for workers in [0, 1, 2] {
        let native = Loader::builder().source(Source::open(&set).unwrap()).batch(64).seed(3).build().unwrap();
        let through = Loader::builder().mount(views.clone()).batch(64).seed(3).prefetch(1).workers(workers);
        let through = through.build().unwrap();
        for _ in 0..25 {
            is_same(&native.next().unwrap().unwrap(), &through.next().unwrap().unwrap());
        }
        // One for each worker or the one after this, one that is ready, and one in our hands.
        assert!(views.views() <= 2 + workers.max(1), "{}", views.views());
        // Each goes on where the other was.
        let (a, b) = (native.state().unwrap(), through.state().unwrap());
        assert_eq!(a.to_string(), b.to_string());
        for step in [5, 3, 1000, 3] {
            native.seek(step).unwrap();
            through.seek(step).unwrap();
            for _ in 0..3 {
                is_same(&native.next().unwrap().unwrap(), &through.next().unwrap().unwrap());
            }
        }
        through.restore(&a).unwrap();
        assert_eq!(through.next().unwrap().unwrap().step(), 25);
        through.close();
        assert!(through.next().is_none());
    }
    let one = Loader::builder().mount(views.clone()).only(["plain"]).batch(8).build().unwrap();
    assert_eq!(one.next().unwrap().unwrap().parts().len(), 1);
    assert!(Loader::builder().mount(views).only(["x"]).build().is_err());
}

/// The client of the examples, with one view of the mount `at` whose first records are gathered.
const CLIENT: &str = concat!(
    "import sys, os, struct, fcntl, signal, socket, mmap, ctypes, errno, time\n",
    "sys.path.insert(0, '",
    env!("CARGO_MANIFEST_DIR"),
    "/../examples')\n",
    "from mount_client import *\n",
    "at = sys.argv[1]\n",
    "class V(View):\n",
    "    def _call(self, command, *rest, **more):\n",
    "        super()._call(command, *rest, **more)\n",
    "    def _map(self, key, capacity):\n",
    "        self.key = key\n",
    "        return super()._map(key, capacity)\n",
    "v = V(at)\n",
    "first = {n: bytes(s['bytes']) for n, s in v.gather([3, 1, 2]).items()}\n",
    "v.bytes = HEADER.unpack_from(v.memory)[5]\n",
    "def check():\n",
    "    again = {n: bytes(s['bytes']) for n, s in v.gather([3, 1, 2]).items()}\n",
    "    assert again == first\n",
    "def fails(number, call, *args):\n",
    "    try: call(*args)\n",
    "    except OSError as e: assert e.errno == number, e\n",
    "    else: raise AssertionError(call)\n",
);

#[test]
fn a_client_that_dies_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let records: Vec<Vec<u8>> = (0..5000).map(|i| bytes(i, 12_000)).collect();
    store(&dir.path().join("s"), "zstd", &records);
    let mount = Mount::new(&dir.path().join("s"), &[]);
    let states = [
        "v._call(BEGIN, OWN)",
        "v._call(BEGIN, OWN); v._call(PUSH, 0, 9, b'', VIEW.size + 8 * LARGE)",
        "check()",
        "v.close(); View(at)._call(BEGIN, OWN)",
        // In the middle of a gather.
        "signal.setitimer(signal.ITIMER_REAL, 0.02)\nwhile True: v.gather(list(range(5000)))",
        // Of a batch that was started, waiting for it or not.
        "v.start_sample(5000, 1, 0)",
        "signal.setitimer(signal.ITIMER_REAL, 0.02)\nv.start_sample(5000, 1, 0)\nv.wait()\nv.start_sample(5000, 1, 1); v.wait()",
        "w = View(at); v.start_sample(5000, 1, 0); w.start_sample(5000, 1, 1, wait_for=v)",
        "import threading\nt = threading.Thread(target=lambda: [v.gather(list(range(5000))) for _ in range(99)])\nt.start()\ntime.sleep(0.05)",
        // A child goes on with its parent's view.
        "if os.fork() == 0: check(); time.sleep(0.3); os.kill(os.getpid(), 9)\nos.wait()",
    ];
    for state in states {
        let done = run("python3", &["-c", &format!("{CLIENT}{state}\nos.kill(os.getpid(), 9)"), &mount.path()]);
        assert_eq!((done.code, &done.err[..]), (None, ""), "{state}: {done:?}");
        wait_until(state, || stat(&mount, "views") == 0 && stat(&mount, "view_memory") == 0);
    }
    // A thread's view is its process's: it outlives the thread.
    let thread = "import threading\nw = []\nt = threading.Thread(target=lambda: (w.append(View(at)), w[0].gather([1])))\n\
                  t.start(); t.join(); time.sleep(0.2)\nprint(bytes(w[0].gather([4])['s']['bytes'][:8]))";
    let said = succeeds(&run("python3", &["-c", &format!("{CLIENT}{thread}"), &mount.path()]));
    assert_eq!(said, format!("b'{}'\n", String::from_utf8_lossy(&records[4][..8])));
    let still = std::fs::read(mount.mountpoint().join("records/7")).unwrap();
    assert!(still == records[7]);
}

#[test]
fn the_memory_of_views_is_empty_when_the_mount_has_ended() {
    let dir = TempDir::new().unwrap();
    store(&dir.path().join("s"), "raw", &(0..9).map(|i| bytes(i, 5000)).collect::<Vec<_>>());
    let mut mount = Mount::new(&dir.path().join("s"), &[]);
    let script = "check()\nv.gather([1, 2])\nos.close(v.fd)\nassert v.memory[:8] == b'ZRFSVIEW'\n\
                  os.kill(int(sys.argv[2]), signal.SIGTERM)\n\
                  while any(v.memory[:]): time.sleep(0.01)";
    succeeds(&run("python3", &["-c", &format!("{CLIENT}{script}"), &mount.path(), &mount.pid().to_string()]));
    assert_eq!(mount.wait(), Some(0));
}

#[test]
fn whatever_is_done_to_the_memory_does_no_harm() {
    let dir = TempDir::new().unwrap();
    store(&dir.path().join("s"), "zstd", &(0..2000).map(|i| bytes(i, 5000)).collect::<Vec<_>>());
    let mount = Mount::new(&dir.path().join("s"), &[]);
    let script = r#"
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
    s.settimeout(5); s.bind(''); s.connect(v.socket)
    # What is no request, and a key that is none, are not answered.
    for junk in [b'', b'x', bytes(15), bytes(17), bytes(4000), struct.pack('=QQ', v.view, v.key ^ 1)]: s.send(junk)
    s.send(struct.pack('=QQ', v.view, v.key))
    answer, files, _, _ = socket.recv_fds(s, 16, 1)
    fd = files[0]
    s.settimeout(0.05)
    fails(None, s.recv, 1)
capacity = struct.unpack('=QQ', answer)[1]
for size in [0, 4096, capacity - 1, capacity + 1]: fails(errno.EPERM, os.ftruncate, fd, size)
fails(errno.EPERM, fcntl.fcntl, fd, 1033, 8)   # F_ADD_SEALS, F_SEAL_WRITE
# Scribbled on, while it is gathered into and read by path too.
import threading
stop = False
def scribble():
    while not stop: v2.seek(0); v2.write(b'\xff' * capacity)
v2 = mmap.mmap(fd, capacity)
t = threading.Thread(target=scribble); t.start()
for n in range(200):
    v._call(GATHER[SMALL], OWN, 256, struct.pack('=256Q', *range(256)), VIEW.size + 8 * SMALL)
    if n % 20 == 0: open(f'{at}/.zrfs/views/{v.view}', 'rb').read()
stop = True; t.join()
check()
# Its pages given back.
libc = ctypes.CDLL(None, use_errno=True)
assert libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(capacity)) == 0
check()
# Closed while it is mapped: zeros, and no signal.
v.close()
assert not any(v2[:capacity])
# There is no way to write or remove the file.
w = V(at); w.gather([1])
path = f'{at}/.zrfs/views/{w.view}'
old = os.open(path, os.O_RDONLY)
assert os.fstat(old).st_mode & 0o777 == 0o400
fails(errno.EROFS, os.open, path, os.O_RDWR)
fails(errno.EROFS, os.unlink, path)
w.gather([2])
fails(errno.ESTALE, os.pread, old, 10, 0)
print('done')
"#;
    let done = run("python3", &["-c", &format!("{CLIENT}{script}"), &mount.path()]);
    assert_eq!(succeeds(&done), "done\n", "{done:?}");
    wait_until("its views are gone", || stat(&mount, "view_memory") == 0);
    // Random bytes to every number, on a file and a directory.
    let fuzz = r#"
import random
random.seed(1)
fds = [os.open(p, os.O_RDONLY) for p in (at, at + '/records/3', at + '/.zrfs/control', at + '/.zrfs')]
for n in range(256):
    for size in (0, 8, 56, 64, 120, 2112, 880, 16320, 16383):
        for direction in (1, 2, 3):
            data = bytearray(random.randbytes(size)) if size < 2000 else bytearray(size)
            if n % 2: data[:8] = bytes(8)[:size]
            try: fcntl.ioctl(random.choice(fds), call(direction, n, size), data)
            except OSError as e: assert e.errno in (25, 22, 2, 24, 28, 13, 16), (e, n, size)
check()
print('done')
"#;
    assert_eq!(succeeds(&run("python3", &["-c", &format!("{CLIENT}{fuzz}"), &mount.path()])), "done\n");
}

#[test]
fn users_and_limits() {
    let dir = TempDir::new().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    store(&dir.path().join("s"), "raw", &(0..100).map(|i| bytes(i, 100_000)).collect::<Vec<_>>());
    let args = ["-o", "allow_other", "--view-memory", "3M", "--max-views", "4"];
    let mount = Mount::new(&dir.path().join("s"), &args);
    let mine = client::Mount::open(mount.mountpoint()).unwrap();
    let batch = mine.gather(&[1, 2]).unwrap();
    let theirs = format!(
        "{CLIENT}v.view = 1\n\
         for c in (BEGIN, SEAL, CLOSE): fails(errno.EACCES, v._call, c, 0 if c != BEGIN else OWN)\n\
         fails(errno.EACCES, open, at + '/.zrfs/views/1')\nprint('done')"
    );
    // Theirs is the second view; the first is ours.
    let done = run_as(65534, &["/usr/bin/python3", "-B", "-c", &theirs, &mount.path()]);
    assert_eq!(succeeds(&done), "done\n", "{done:?}");
    // A fourth of the memory each: the one that is too much is refused, and what there is stays.
    let more: Vec<Batch> = (0..3).map(|k| mine.gather(&[k]).unwrap()).collect();
    let refused = mine.gather(&[5]).unwrap_err().to_string();
    assert!(["(os error 24)", "at most 4 at a time", "--max-views"].iter().all(|s| refused.contains(s)), "{refused}");
    drop(more);
    let all: Vec<u64> = (0..100).collect();
    let refused = mine.gather(&all).unwrap_err().to_string();
    assert!(["(os error 28)", "3145728 bytes", "--view-memory"].iter().all(|s| refused.contains(s)), "{refused}");
    assert!(mine.gather(&[5, 6]).unwrap().parts()[0].bytes().len() == 200_000);
    assert!(batch.parts()[0].record(1).unwrap() == bytes(2, 100_000));
    assert!(stat(&mount, "view_memory") <= 3 << 20);
}

/// As many gather at once as there are threads that serve, and more; others are served meanwhile.
#[test]
fn batches_one_after_the_other() {
    let dir = TempDir::new().unwrap();
    let set = dataset(dir.path());
    let mount = Mount::new(&set, &["--max-views", "9"]);
    let source = Source::open(&set).unwrap();
    let views = client::Mount::open(mount.mountpoint()).unwrap();
    let mut random = Random(3);
    let mut list = |n: u64| (0..n).map(|_| random.below(RECORDS)).collect::<Vec<u64>>();
    let lists: Vec<Vec<u64>> = [5, 0, 256, 257, 2032, 2033, 1, 7000, 64, 64, 64, 64].map(&mut list).into();
    let plain = views.stream("plain").unwrap();
    for hold in [0, 1, 3] {
        let mut held = std::collections::VecDeque::new();
        let mut batches = views.batches(&lists);
        assert_eq!(batches.size_hint(), (12, Some(12)));
        for (k, indices) in lists.iter().enumerate() {
            let batch = batches.next().unwrap().unwrap();
            is_native(&batch, indices, &natives(&source, indices));
            held.push_back((k, batch));
            // Those that are held stay what they are while others are gathered.
            let (old, batch) = &held[0];
            is_native(batch, &lists[*old], &natives(&source, &lists[*old]));
            if held.len() > hold {
                held.pop_front();
            }
        }
        assert!(batches.next().is_none() && batches.next().is_none());
    }
    // What fails is one batch: a record that is not there, and more than the memory of a user.
    let bad = [vec![1], vec![2, RECORDS], vec![3], vec![RECORDS + 7], vec![4]];
    let made: Vec<_> = plain.batches(&bad).collect();
    for (k, (made, indices)) in made.into_iter().zip(&bad).enumerate() {
        match made {
            Ok(batch) => assert!(k % 2 == 0 && batch.indices() == indices),
            Err(Error::OutOfRange { index, length: RECORDS }) => assert!(k % 2 == 1 && indices.contains(&index)),
            Err(e) => panic!("{e}"),
        }
    }
    // Those who stop early leave no view that cannot be used, nor do threads that share one mount.
    for n in 0..40 {
        assert!(views.batches(&lists).take(n % 3).all(|batch| batch.is_ok()));
    }
    let some = |mount: client::Mount| {
        let lists = &lists;
        let source = &source;
        move || {
            for (batch, indices) in mount.batches(lists).zip(lists) {
                is_native(&batch.unwrap(), indices, &natives(source, indices));
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(some(views.clone())))));
    drop((plain, views));
    wait_until("the views have ended", || stat(&mount, "views") == 0);
    assert_eq!(stat(&mount, "view_memory"), 0);
}

/// Where a user may not have two batches at a time they come one by one, as they are asked for on their own.
#[test]
fn batches_with_room_for_one() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s.zr");
    let records: Vec<Vec<u8>> = (0..400).map(|i| bytes(i, 12_000)).collect();
    store(&path, "raw", &records);
    let lists: Vec<Vec<u64>> = (0..20).map(|k| (0..100).map(|i| (i * 7 + k) % 400).collect()).collect();
    for option in [["--max-views", "1"], ["--view-memory", "2M"]] {
        let mount = Mount::new(&path, &option);
        let views = client::Mount::open(mount.mountpoint()).unwrap();
        for (batch, indices) in views.batches(&lists).zip(&lists) {
            let want: Vec<u8> = indices.iter().flat_map(|&i| records[i as usize].clone()).collect();
            assert!(batch.unwrap().parts()[0].bytes() == want, "{option:?}");
        }
        let loader = Loader::builder().mount(views.clone()).batch(100).workers(0).build().unwrap();
        for step in 0..20 {
            assert_eq!(loader.next().unwrap().unwrap().step(), step);
        }
    }
}

/// A batch that a damaged record is in fails, and those before and after it come.
#[test]
fn damage_ends_one_batch() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s.zr");
    let records: Vec<Vec<u8>> = (0..50).map(|i| bytes(i, 3000)).collect();
    store(&path, "zstd", &records);
    let at = Source::open(&path).unwrap();
    let Source::Store(stream) = &at else { unreachable!() };
    let entry = stream.store().entries(&[20]).unwrap()[0];
    let chunk = std::fs::OpenOptions::new().write(true).open(path.join("0.chunk")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&chunk, b"damage", u64::from(entry.offset)).unwrap();
    let mount = Mount::new(&path, &[]);
    let views = client::Mount::open(mount.mountpoint()).unwrap();
    let lists: Vec<Vec<u64>> = (0..10).map(|k| (0..5).map(|i| k * 5 + i).collect()).collect();
    for (k, (batch, indices)) in views.batches(&lists).zip(&lists).enumerate() {
        match batch {
            Ok(batch) => assert_eq!(
                (batch.parts()[0].bytes(), k == 4),
                (&records[indices[0] as usize..][..5].concat()[..], false)
            ),
            Err(e) => assert!(k == 4 && e.to_string().contains("damaged"), "{k}: {e}"),
        }
    }
}

/// Of records of one byte a batch has more to say than bytes: what the mount takes to gather one is in the budget, too.
#[test]
fn the_memory_of_a_mount_is_bounded_by_its_option() {
    const COUNT: u64 = 1_500_000;
    let dir = TempDir::new().unwrap();
    let bytes: Vec<Vec<u8>> = (0..1000).map(|i| vec![i as u8]).collect();
    store(&dir.path().join("bytes.zr"), "raw", &bytes);
    let indices: Vec<u64> = (0..COUNT).map(|i| i * 7 % 1000).collect();
    let right = |batch: &Batch| {
        let bytes = batch.parts()[0].bytes();
        bytes.len() as u64 == COUNT && indices.iter().zip(bytes).all(|(&i, &byte)| byte == i as u8)
    };
    for (limit, enough) in [(64, false), (160, true)] {
        let mount = Mount::new(&dir.path().join("bytes.zr"), &["--view-memory", &format!("{limit}M")]);
        let views = client::Mount::open(mount.mountpoint()).unwrap();
        drop(views.gather(&[5]).unwrap());
        let before = mount.resident();
        let made = views.gather(&indices);
        assert_eq!(made.as_ref().is_ok_and(right), enough, "{limit} MiB");
        let grown = mount.peak().saturating_sub(before) >> 10;
        assert!(grown <= limit, "{grown} MiB more at --view-memory {limit}M");
        assert_eq!(views.gather(&[5]).unwrap().parts()[0].bytes(), [5]);
    }
}

#[test]
fn gathers_leave_room_for_others() {
    let dir = TempDir::new().unwrap();
    store(&dir.path().join("s"), "zstd", &(0..400).map(|i| bytes(i, 100_000)).collect::<Vec<_>>());
    let mount = Arc::new(Mount::new(&dir.path().join("s"), &["--threads", "2"]));
    let gather = |k: u64| {
        let mount = mount.clone();
        std::thread::spawn(move || {
            let views = client::Mount::open(mount.mountpoint()).unwrap();
            let all: Vec<u64> = (0..400).map(|i| (i + k) % 400).collect();
            (0..3).map(|_| views.gather(&all).unwrap().bytes()).sum::<u64>()
        })
    };
    let threads: Vec<_> = (0..4).map(gather).collect();
    let (mut reads, mut slowest) = (0, std::time::Duration::ZERO);
    while threads.iter().any(|thread| !thread.is_finished()) {
        let begin = std::time::Instant::now();
        std::fs::read(mount.mountpoint().join(".zrfs/stats.json")).unwrap();
        slowest = slowest.max(begin.elapsed());
        reads += 1;
    }
    assert!(threads.into_iter().all(|thread| thread.join().unwrap() == 120_000_000));
    println!("{reads} reads meanwhile, the slowest {slowest:?}");
    assert!(reads > 3 && slowest < std::time::Duration::from_secs(5), "{reads} reads, the slowest {slowest:?}");
}

/// The programs of the examples.
#[test]
fn examples_in_python_and_c() {
    let dir = TempDir::new().unwrap();
    let records: Vec<Vec<u8>> = (0..300).map(|i| bytes(i, 1000)).collect();
    store(&dir.path().join("s.zr"), "zstd", &records);
    let mount = Mount::new(&dir.path().join("s.zr"), &[]);
    let top = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let program = dir.path().join("view");
    succeeds(&shell(&format!(
        "cc -std=c99 -Wall -Wextra -pedantic -Werror -I {top}/include {top}/examples/c/view.c -o {}",
        program.display()
    )));
    let sum: u64 = [5, 17, 0].iter().flat_map(|&i| &records[i as usize]).map(|&b| u64::from(b)).sum();
    let said = succeeds(&run(program.to_str().unwrap(), &[&mount.path(), "5", "17", "0"]));
    assert_eq!(said, format!("s: 3 records, 3000 bytes, sum {sum}\n"));
    // The last batch of so many steps is that of its step, whichever of the two views it came by.
    let views = client::Mount::open(mount.mountpoint()).unwrap();
    let drawn = |batch: u64, step| {
        let spec = format!("cyclic,batch={batch},seed=42").parse().unwrap();
        views.sample(&spec, step).unwrap().parts()[0].bytes().to_vec()
    };
    for steps in [1, 2, 19, 20] {
        let said = succeeds(&run(program.to_str().unwrap(), &[&mount.path(), "-s", &steps.to_string()]));
        let sum: u64 = drawn(256, steps - 1).iter().map(|&byte| u64::from(byte)).sum();
        assert_eq!(said, format!("s: 256 records, 256000 bytes, sum {sum}\n"));
    }
    let python = format!("{top}/examples/mount_client.py");
    for steps in [1, 2, 19, 20] {
        let steps_text = steps.to_string();
        let said = succeeds(&run("python3", &[&python, &mount.path(), "--sample", "100", "--steps", &steps_text]));
        assert!(said.contains(&format!("crc {:08x}\n", crc32fast::hash(&drawn(100, steps - 1)))), "{said}");
    }
    drop(views);
    assert!(succeeds(&run("python3", &[&python, &mount.path(), "5", "17"])).starts_with("s: 2 records, 2000 bytes"));
    assert!(
        succeeds(&run("python3", &[&python, &mount.path(), "--sample", "100", "--steps", "9"])).contains("9 batches")
    );
    wait_until("views are gone", || stat(&mount, "views") == 0);

    let [refused, elsewhere] = [&mount.path(), dir.path().to_str().unwrap()];
    for (args, why) in [
        (&[refused, "300"][..], "300 records"),
        (&[refused, "-1"], "300 records"),
        (&[refused, "abc"], "abc"),
        (&[refused], "indices"),
        (&[refused, "--sample", "8", "--steps", "0"], "--steps"),
        (&[elsewhere, "1"], "not on a zrfs mount"),
        (&["/nowhere", "1"], "/nowhere"),
    ] {
        let args: Vec<&str> = [&python[..]].into_iter().chain(args.iter().copied()).collect();
        let out = run("python3", &args);
        assert!(out.code == Some(1) && out.err.lines().count() == 1 && out.err.contains(why), "{args:?}: {out:?}");
    }
    let out = run(program.to_str().unwrap(), &[refused, "5", "abc"]);
    assert!(out.code == Some(2) && out.err.contains("abc"), "{out:?}");
    let out = run(program.to_str().unwrap(), &[refused, "5", "300"]);
    assert!(out.code == Some(1) && out.err.contains("no record 300") && out.err.contains("300 records"), "{out:?}");
    // The socket is one of the network's, and not to be reached from another.
    let program = program.to_str().unwrap();
    for here in [
        &["python3", &python, refused, "5", "17"][..],
        &["python3", &python, refused, "--sample", "100", "--steps", "3"],
        &[program, refused, "5", "17", "0"],
        &[program, &format!("{refused}/records/7"), "5"],
        &[program, refused, "-s", "5"],
    ] {
        // How fast it was differs.
        let said = |done| succeeds(&done).lines().filter(|l| !l.contains("MiB/s")).collect::<Vec<_>>().join("\n");
        assert_eq!(said(run("unshare", &[&["-n"], here].concat())), said(run(here[0], &here[1..])), "{here:?}");
    }
    // Where only a part of the mount is to be seen, so is no file of a view.
    let part = dir.path().join("part");
    std::fs::create_dir(&part).unwrap();
    let part = part.to_str().unwrap();
    for here in [&["python3", &python, part, "5"][..], &[program, part, "5"]] {
        let script = format!("mount --bind {refused}/records {part} && exec \"$@\"");
        let out = run("unshare", &[&["-nm", "sh", "-c", &script, "sh"], here].concat());
        assert!(out.code == Some(1) && common::names_the_way_out(&out.err), "{here:?}: {out:?}");
    }
}
