//! The calls without a kernel: what they do in order, and that no bytes do harm.

use crate::fs::{Errno, Fs, FsOptions};
use crate::namespace::{Node, ROOT};
use crate::views::started::Job;
use crate::views::{Caller, Limits};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use zrfs::dataset::DenseWriter;
use zrfs::format::Codec;
use zrfs::format::dtype::DType;
use zrfs::{Source, WriterOptions};
use zrfs_abi::*;

const ME: Caller = Caller { uid: 1000, pid: 0 };
const OTHER: Caller = Caller { uid: 1001, pid: 0 };

/// Ten records of 5 numbers each.
fn dense(path: &Path) {
    let mut writer =
        DenseWriter::create(path, WriterOptions::new(Codec::Zstd), DType::parse("<u2").unwrap(), vec![5]).unwrap();
    let bytes: Vec<u8> = (0..50u16).flat_map(u16::to_le_bytes).collect();
    writer.append(&bytes).unwrap();
    writer.close().unwrap();
}

fn open(limits: Limits) -> (tempfile::TempDir, Fs) {
    let dir = tempfile::tempdir().unwrap();
    dense(&dir.path().join("numbers.zr"));
    let options = FsOptions { views: limits, ..FsOptions::default() };
    let fs = Fs::new(Source::open(dir.path().join("numbers.zr")).unwrap(), options).unwrap();
    (dir, fs)
}

fn view(view: u64, stream: u32, count: u64) -> View {
    View { view, stream, count, ..View::default() }
}

/// A call with a view and what follows it, filled up to the bytes of the call.
fn call(fs: &Fs, caller: Caller, command: u32, head: View, rest: &[u8]) -> Result<View, Errno> {
    let mut data = head.encode().to_vec();
    data.extend(rest);
    data.resize((command >> 16 & 0x3fff) as usize, 0);
    let out = fs.ioctl(caller, ROOT, command, &data)?;
    Ok(if out.is_empty() { View::default() } else { View::decode_front(&out).unwrap() })
}

/// Does a gather, and those behind it.
fn run(job: Job) {
    let mut next = Some(job);
    while let Some(job) = next {
        next = job.run();
    }
}

/// A call whose answer comes when it likes, and the gather that it leaves to be run.
fn apart(
    fs: &Arc<Fs>,
    command: u32,
    head: View,
    rest: &[u8],
) -> (impl FnMut() -> Option<Result<View, Errno>> + use<>, Option<Job>) {
    let mut data = head.encode().to_vec();
    data.extend(rest);
    data.resize((command >> 16 & 0x3fff) as usize, 0);
    assert!(Fs::answers_apart(command, &data));
    let (answer, answered) = channel();
    let job = fs.answer_apart(ME, ROOT, command, &data, Box::new(move |out| answer.send(out).unwrap()));
    let decode = |out: Vec<u8>| View::decode_front(&out).unwrap();
    (move || answered.try_recv().ok().map(|out| out.map(decode)), job)
}

fn starts(view: u64, count: u64, wait: u64) -> View {
    View { view, stream: STREAM_OWN, flags: START, count, seal: wait, ..View::default() }
}

fn indices(all: &[u64]) -> Vec<u8> {
    all.iter().flat_map(|i| i.to_ne_bytes()).collect()
}

/// The bytes of a sealed view by its file.
fn read(fs: &Fs, caller: Caller, sealed: &View) -> Vec<u8> {
    let name = sealed.view.to_string();
    let attr = fs.lookup(Node::Views.ino().unwrap(), name.as_bytes()).unwrap();
    assert_eq!((attr.size, attr.perm, attr.uid), (sealed.bytes, 0o400, caller.uid));
    let mut bytes = vec![0; attr.size as usize + 10];
    assert_eq!(fs.read(attr.ino, 0, &mut bytes), Ok(attr.size as usize));
    bytes.truncate(attr.size as usize);
    bytes
}

fn records(slab: &[u8]) -> Vec<u8> {
    let stream = SlabStream::decode_front(&slab[SlabHeader::BYTES..]).unwrap();
    slab[stream.data as usize..][..stream.data_bytes as usize].to_vec()
}

fn numbers(records: &[u64]) -> Vec<u8> {
    records.iter().flat_map(|r| (0..5).flat_map(move |k| (*r as u16 * 5 + k).to_le_bytes())).collect()
}

#[test]
fn begin_push_seal_again_and_close() {
    let (_dir, fs) = open(Limits::default());
    let begun = call(&fs, ME, BEGIN, view(0, STREAM_OWN, 0), &[]).unwrap();
    assert!(begun.view != 0 && begun.slab == 0, "{begun:?}");
    let id = begun.view;
    call(&fs, ME, PUSH_SMALL, view(id, 0, 2), &indices(&[9, 0])).unwrap();
    let pushed = call(&fs, ME, PUSH_LARGE, view(id, 0, 1), &indices(&[9])).unwrap();
    assert_eq!((pushed.count, pushed.bytes), (3, 0));
    assert_eq!(fs.lookup(Node::Views.ino().unwrap(), id.to_string().as_bytes()), Err(Errno::NOENT), "not sealed");
    let sealed = call(&fs, ME, SEAL, view(id, 0, 0), &[]).unwrap();
    assert_eq!((sealed.view, sealed.count, sealed.bytes), (id, 3, 4096 + 30));
    let slab = read(&fs, ME, &sealed);
    let header = SlabHeader::decode_front(&slab).unwrap();
    assert_eq!((header.count, header.step, header.length, header.seal), (3, NO_STEP, 10, sealed.seal));
    assert_eq!(records(&slab), numbers(&[9, 0, 9]));
    let old = fs.lookup(Node::Views.ino().unwrap(), id.to_string().as_bytes()).unwrap();
    // Sealed once.
    assert_eq!(call(&fs, ME, SEAL, view(id, 0, 0), &[]), Err(Errno::INVAL));
    assert_eq!(call(&fs, ME, PUSH_SMALL, view(id, 0, 1), &indices(&[1])), Err(Errno::INVAL));
    // The same memory for the next one, in one call.
    let again = call(&fs, ME, GATHER_SMALL, view(id, 0, 2), &indices(&[4, 5])).unwrap();
    assert!(again.slab == sealed.slab && again.seal != sealed.seal && again.key == sealed.key, "{again:?}");
    assert_eq!(records(&read(&fs, ME, &again)), numbers(&[4, 5]));
    assert_eq!(fs.read(old.ino, 0, &mut [0; 10]), Err(Errno::STALE));
    let spec = Spec { mode: 3, tail: 0, zero: Zero, batch: 4, seed: 123, rank: 0, world: 1, step: 5, length: 0 };
    let drawn = call(&fs, ME, SAMPLE, view(id, 0, 0), &spec.encode()).unwrap();
    let slab = read(&fs, ME, &drawn);
    assert_eq!((records(&slab), SlabHeader::decode_front(&slab).unwrap().step), (numbers(&[8, 1, 7, 4]), 5));
    // Of more records than there are is nothing drawn.
    let too_many = Spec { length: 11, ..spec };
    assert_eq!(call(&fs, ME, SAMPLE, view(id, 0, 0), &too_many.encode()), Err(Errno::INVAL));
    for (length, drawn_from) in [(10, 10), (3, 3), (0, 10)] {
        let drawn = call(&fs, ME, SAMPLE, view(id, 0, 0), &Spec { length, ..spec }.encode()).unwrap();
        assert_eq!(SlabHeader::decode_front(&read(&fs, ME, &drawn)).unwrap().length, drawn_from);
    }
    assert_eq!(fs.views_used(), (1, again.capacity + 32));
    call(&fs, ME, CLOSE, view(id, 0, 0), &[]).unwrap();
    assert_eq!(call(&fs, ME, CLOSE, view(id, 0, 0), &[]), Err(Errno::NOENT));
    assert_eq!(fs.views_used(), (0, 0));
}

#[test]
fn a_view_is_its_users_own_and_limits_hold() {
    let (_dir, fs) = open(Limits { memory: 20_000, views: 2 });
    let mine = call(&fs, ME, GATHER_SMALL, view(0, 0, 1), &indices(&[1])).unwrap();
    for command in [SEAL, CLOSE, PUSH_SMALL, GATHER_SMALL, BEGIN, SAMPLE] {
        let count = u64::from(command == PUSH_SMALL);
        assert_eq!(call(&fs, OTHER, command, view(mine.view, 0, count), &[]), Err(Errno::ACCESS), "{command:#x}");
    }
    call(&fs, ME, BEGIN, view(0, 0, 0), &[]).unwrap();
    assert_eq!(call(&fs, ME, BEGIN, view(0, 0, 0), &[]), Err(Errno::MFILE));
    // Others have limits of their own.
    let theirs = call(&fs, OTHER, BEGIN, view(0, 0, 0), &[]).unwrap();
    for _ in 0..2 {
        let pushed = call(&fs, OTHER, PUSH_LARGE, view(theirs.view, 0, 1000), &[]);
        assert!(pushed.is_ok(), "{pushed:?}");
    }
    assert_eq!(call(&fs, OTHER, PUSH_LARGE, view(theirs.view, 0, 1000), &[]), Err(Errno::NOSPC));
    assert_eq!(call(&fs, OTHER, SEAL, view(theirs.view, 0, 0), &[]), Err(Errno::NOSPC));
    assert!(fs.views_used().1 <= 20_000 + 8200, "{:?}", fs.views_used());
    // A batch of a sampler that no memory holds.
    for batch in [3000, 1 << 40, u64::MAX] {
        let spec = Spec { mode: 0, tail: 3, zero: Zero, batch, seed: 0, rank: 0, world: 1, step: 0, length: 0 };
        assert_eq!(call(&fs, OTHER, SAMPLE, view(theirs.view, 0, 0), &spec.encode()), Err(Errno::NOSPC), "{batch}");
    }
    assert_eq!(fs.views_used().0, 3);
    // One that fails is not kept.
    call(&fs, ME, CLOSE, view(mine.view, 0, 0), &[]).unwrap();
    assert_eq!(call(&fs, ME, GATHER_SMALL, view(0, 0, 1), &indices(&[10])), Err(Errno::INVAL));
    assert_eq!(fs.views_used().0, 2);
}

#[test]
fn a_started_batch_is_gathered_after_the_answer() {
    let (_dir, fs) = open(Limits::default());
    let fs = Arc::new(fs);
    let (mut answer, job) = apart(&fs, GATHER_SMALL, starts(0, 2, 0), &indices(&[9, 4]));
    let begun = answer().unwrap().unwrap();
    assert!(begun.view != 0 && begun.seal == 0, "{begun:?}");
    let id = begun.view;
    for command in [BEGIN, GATHER_SMALL, PUSH_SMALL, SEAL, SAMPLE] {
        assert_eq!(call(&fs, ME, command, view(id, 0, 0), &[]), Err(Errno::BUSY), "{command:#x}");
    }
    assert_eq!(apart(&fs, SEAL, View { stream: 0, ..starts(id, 0, 0) }, &[]).0(), Some(Err(Errno::BUSY)));
    let (mut waits, none) = apart(&fs, WAIT, view(id, 0, 0), &[]);
    assert!(waits().is_none() && none.is_none());
    assert_eq!(apart(&fs, WAIT, view(id, 0, 0), &[]).0(), Some(Err(Errno::BUSY)), "one waits");
    run(job.unwrap());
    let sealed = waits().unwrap().unwrap();
    assert_eq!(records(&read(&fs, ME, &sealed)), numbers(&[9, 4]));
    assert_eq!(apart(&fs, WAIT, view(id, 0, 0), &[]).0(), Some(Ok(sealed)), "as often as it is asked");
    // Pushed, drawn, and with an index that is none, which is told to whoever waits.
    call(&fs, ME, BEGIN, view(id, 0, 0), &[]).unwrap();
    assert_eq!(apart(&fs, WAIT, view(id, 0, 0), &[]).0(), Some(Err(Errno::INVAL)), "nothing was started");
    call(&fs, ME, PUSH_SMALL, view(id, 0, 1), &indices(&[7])).unwrap();
    let spec = Spec { mode: 3, tail: 0, zero: Zero, batch: 4, seed: 123, rank: 0, world: 1, step: 5, length: 0 };
    let later = [
        (SEAL, View { stream: 0, ..starts(id, 0, 0) }, Vec::new(), Ok(numbers(&[7]))),
        (SAMPLE, starts(id, 0, 0), spec.encode().to_vec(), Ok(numbers(&[8, 1, 7, 4]))),
        (GATHER_LARGE, starts(id, 1, 0), indices(&[10]), Err(Errno::INVAL)),
    ];
    for (command, head, rest, want) in later {
        let (mut answer, job) = apart(&fs, command, head, &rest);
        assert_eq!(answer().unwrap().unwrap().view, id);
        run(job.unwrap());
        let made = apart(&fs, WAIT, view(id, 0, 0), &[]).0().unwrap();
        assert_eq!(made.map(|sealed| records(&read(&fs, ME, &sealed))), want);
    }
    // A view that is closed before its turn.
    let (_, job) = apart(&fs, GATHER_SMALL, starts(id, 1, 0), &indices(&[1]));
    let (mut waits, _) = apart(&fs, WAIT, view(id, 0, 0), &[]);
    call(&fs, ME, CLOSE, view(id, 0, 0), &[]).unwrap();
    run(job.unwrap());
    assert_eq!(waits(), Some(Err(Errno::NOENT)));
    assert_eq!(fs.views_used(), (0, 0));
}

/// Whoever has the answer may close the view and count on what it had, though other threads still know of it.
#[test]
fn what_is_closed_is_given_back_at_once() {
    let (_dir, fs) = open(Limits { memory: 1 << 16, views: 1 });
    let fs = Arc::new(fs);
    let sealed = call(&fs, ME, GATHER_SMALL, view(0, STREAM_OWN, 2), &indices(&[1, 2])).unwrap();
    let known = fs.views.find(sealed.view, ME).unwrap();
    call(&fs, ME, CLOSE, view(sealed.view, 0, 0), &[]).unwrap();
    assert_eq!(fs.views.count(), (0, 0));
    assert!(known.memory().is_none());
    assert_eq!(known.work(|_| ()), Err(Errno::NOENT));

    // The thread that gathered has not ended when it gives the answer.
    let id = call(&fs, ME, BEGIN, view(0, STREAM_OWN, 0), &[]).unwrap().view;
    let (_, job) = apart(&fs, GATHER_SMALL, starts(id, 2, 0), &indices(&[1, 2]));
    let (counted, count) = channel();
    let head = view(id, 0, 0).encode();
    let others = fs.clone();
    let closes = move |gathered: Result<Vec<u8>, Errno>| {
        assert!(gathered.is_ok());
        call(&others, ME, CLOSE, view(id, 0, 0), &[]).unwrap();
        let begun = call(&others, ME, BEGIN, view(0, STREAM_OWN, 0), &[]);
        counted.send((begun.is_ok(), others.views.count())).unwrap();
    };
    assert!(fs.answer_apart(ME, ROOT, WAIT, &head, Box::new(closes)).is_none());
    run(job.unwrap());
    assert_eq!(count.recv().unwrap(), (true, (1, 0)));

    // What a call is at work on goes when that is done.
    let known = fs.views.find(fs.views.begin(OTHER).unwrap().id, OTHER).unwrap();
    let during = known.work(|work| {
        known.charge(work, 4).unwrap();
        fs.views.end(known.id);
        fs.views.count()
    });
    assert_eq!((during, fs.views.count()), (Ok((2, 32)), (1, 0)));
}

#[test]
fn one_call_starts_a_batch_and_waits_for_another() {
    let (_dir, fs) = open(Limits { memory: 1 << 20, views: 3 });
    let fs = Arc::new(fs);
    let [a, b] = [0; 2].map(|_| call(&fs, ME, BEGIN, view(0, 0, 0), &[]).unwrap().view);
    let theirs = call(&fs, OTHER, BEGIN, view(0, 0, 0), &[]).unwrap().view;
    let gather = |head, index| apart(&fs, GATHER_SMALL, head, &indices(&[index]));
    let refused = [
        (starts(0, 1, a), Errno::INVAL),
        (starts(a, 1, a), Errno::INVAL),
        (starts(a, 1, b), Errno::INVAL),
        (starts(a, 1, 99), Errno::NOENT),
        (starts(a, 1, theirs), Errno::ACCESS),
        (starts(theirs, 1, a), Errno::ACCESS),
    ];
    for (head, error) in refused {
        let (mut answer, job) = gather(head, 1);
        assert_eq!((answer(), job.is_none()), (Some(Err(error)), true), "{head:?}");
    }
    assert_eq!(call(&fs, ME, WAIT, View { flags: START, ..view(a, 0, 0) }, &[]), Err(Errno::INVAL));
    assert!(call(&fs, ME, BEGIN, view(a, 0, 0), &[]).is_ok(), "what was refused holds nothing up");
    // Nor is the batch before it taken for the one that was refused.
    for (wait, error) in [(b, Errno::INVAL), (99, Errno::NOENT)] {
        run(gather(starts(a, 1, 0), 7).1.unwrap());
        assert!(apart(&fs, WAIT, view(a, 0, 0), &[]).0().unwrap().is_ok());
        assert_eq!(gather(starts(a, 1, wait), 8).0(), Some(Err(error)));
        assert_eq!(apart(&fs, WAIT, view(a, 0, 0), &[]).0(), Some(Err(Errno::INVAL)));
    }

    let first = gather(starts(a, 1, 0), 1).1.unwrap();
    // Behind the one that is still to be gathered, and behind that one.
    let (mut of_a, none) = gather(starts(b, 1, a), 2);
    assert!(of_a().is_none() && none.is_none());
    assert_eq!(gather(starts(a, 1, b), 3).0(), Some(Err(Errno::BUSY)), "it is being gathered");
    run(first);
    assert_eq!(records(&read(&fs, ME, &of_a().unwrap().unwrap())), numbers(&[1]));
    // Gathered by the same run.
    let (mut of_b, third) = gather(starts(a, 1, b), 10);
    assert_eq!(records(&read(&fs, ME, &of_b().unwrap().unwrap())), numbers(&[2]));
    // A batch that fails says so to whoever waits for it, and the next one is started all the same.
    run(third.unwrap());
    let (mut of_a, fourth) = gather(starts(b, 1, a), 4);
    assert_eq!(of_a(), Some(Err(Errno::INVAL)));
    run(fourth.unwrap());
    let (mut of_b, _) = apart(&fs, WAIT, view(b, 0, 0), &[]);
    assert_eq!(records(&read(&fs, ME, &of_b().unwrap().unwrap())), numbers(&[4]));
}

/// Threads that start views which wait for each other's, in every order: each call is answered, and nothing is left.
#[test]
fn views_that_wait_for_each_other_end() {
    let (_dir, fs) = open(Limits { memory: 1 << 20, views: 8 });
    let fs = Arc::new(fs);
    let ids: Vec<u64> = (0..4).map(|_| call(&fs, ME, BEGIN, view(0, 0, 0), &[]).unwrap().view).collect();
    let worker = |seed: u64| {
        let mut x = seed;
        let mut random = |n: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) % n
        };
        let mut answers = Vec::new();
        for _ in 0..3000 {
            let mut id = || if random(5) == 0 { 0 } else { ids[random(4) as usize] };
            let (own, other) = (id().max(ids[0]), id());
            let (answer, job) = match random(4) {
                0 => apart(&fs, WAIT, view(own, 0, 0), &[]),
                1 => {
                    let _ = call(&fs, ME, GATHER_SMALL, view(own, 0, 1), &indices(&[2]));
                    continue;
                }
                _ => apart(&fs, GATHER_SMALL, starts(own, 1, other), &indices(&[random(10)])),
            };
            answers.push(answer);
            if let Some(job) = job {
                run(job);
            }
        }
        answers
    };
    let answers: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || worker(seed))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut told = [0; 3];
    for mut answer in answers {
        match answer().expect("all that was begun has ended") {
            Ok(_) => told[0] += 1,
            Err(Errno::BUSY | Errno::INVAL) => told[1] += 1,
            Err(e) => panic!("{e}"),
        }
    }
    // How often they are in each other's way depends on what else the machine does.
    assert!(told[0] > 50 && told[1] > 50, "{told:?}");
    for id in ids {
        assert!(call(&fs, ME, BEGIN, view(id, 0, 0), &[]).is_ok(), "none is busy");
    }
}

#[test]
fn what_a_gather_takes_counts_while_it_lasts() {
    // Bytes of the indices, of the slab in pages, and of what is looked up; the records are 10 bytes each.
    let count = 2000u64;
    let steady = count * 8 + (4096 + count * 10 + count * 16).next_multiple_of(4096);
    let gather = |memory| {
        let (_dir, fs) = open(Limits { memory, views: 2 });
        let made = call(&fs, ME, GATHER_LARGE, view(0, 0, count), &indices(&vec![7; count as usize]));
        (made.map(|view| view.bytes), fs.views_used())
    };
    let (made, used) = gather(1 << 20);
    assert!(made.unwrap() > count * 26, "{made:?}");
    assert_eq!(used.0, 1);
    assert!(used.1 <= steady, "{used:?}: given back");
    // Enough for what stays, and not for what it takes to make it.
    let (made, used) = gather(steady + 4096);
    assert_eq!((made, used), (Err(Errno::NOSPC), (0, 0)));
}

#[test]
fn ten_thousand_views() {
    let (_dir, fs) = open(Limits { memory: 1 << 30, views: 10_000 });
    let ids: Vec<u64> = (0..10_000).map(|_| call(&fs, ME, BEGIN, view(0, 0, 0), &[]).unwrap().view).collect();
    assert_eq!(call(&fs, ME, BEGIN, view(0, 0, 0), &[]), Err(Errno::MFILE));
    for &id in &ids {
        call(&fs, ME, CLOSE, view(id, 0, 0), &[]).unwrap();
    }
    for _ in 0..10_000 {
        let one = call(&fs, ME, GATHER_SMALL, view(0, 0, 1), &indices(&[3])).unwrap();
        call(&fs, ME, CLOSE, view(one.view, 0, 0), &[]).unwrap();
    }
    assert_eq!(fs.views_used(), (0, 0));
}

/// Every field of every call with values that mean something somewhere, every length, and random bytes.
#[test]
fn no_bytes_do_harm() {
    let (_dir, fs) = open(Limits { memory: 100_000, views: 3 });
    let fs = Arc::new(fs);
    let ioctl = |command, data: &[u8]| {
        if !Fs::answers_apart(command, data) {
            return fs.ioctl(ME, ROOT, command, data);
        }
        let (answer, answered) = channel();
        if let Some(job) = fs.answer_apart(ME, ROOT, command, data, Box::new(move |out| answer.send(out).unwrap())) {
            run(job);
        }
        answered.try_recv().unwrap()
    };
    let id = call(&fs, ME, GATHER_SMALL, view(0, 0, 1), &indices(&[1])).unwrap().view;
    let commands = [
        ANNOUNCE,
        SERVER,
        STORE,
        STREAM,
        BEGIN,
        PUSH_SMALL,
        PUSH_LARGE,
        SEAL,
        GATHER_SMALL,
        GATHER_LARGE,
        SAMPLE,
        CLOSE,
        WAIT,
    ];
    let mut x = 1u64;
    let mut random = move || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        x >> 33
    };
    let known = [Errno::NOTTY, Errno::INVAL, Errno::NOENT, Errno::MFILE, Errno::NOSPC, Errno::ACCESS, Errno::OPNOTSUPP];
    let mut done = [0; 2];
    let mut check = |result: Result<Vec<u8>, Errno>, what: &str| match result {
        Ok(_) => done[0] += 1,
        Err(e) => {
            assert!(known.contains(&e), "{what}: {e}");
            done[1] += 1;
        }
    };
    for command in commands {
        let bytes = (command >> 16 & 0x3fff) as usize;
        // A good call, with one field changed.
        let spec = Spec { mode: 3, tail: 0, zero: Zero, batch: 4, seed: 1, rank: 0, world: 1, step: 5, length: 0 };
        let mut good = view(id, 0, 0).encode().to_vec();
        good.extend(spec.encode());
        good.resize(bytes, 0);
        for at in (0..bytes.min(128)).step_by(4) {
            for value in [1u32, 2, 255, 256, 2032, 2033, 1 << 31, u32::MAX - 1, u32::MAX] {
                let mut bad = good.clone();
                bad[at..at + 4].copy_from_slice(&value.to_ne_bytes());
                check(ioctl(command, &bad), "a field");
            }
        }
        for length in [0, 1, 47, 48, 63, 64, 65, 119, bytes.saturating_sub(1), bytes + 1, 16_383] {
            check(ioctl(command, &vec![0; length]), "a length");
        }
        for _ in 0..300 {
            let data: Vec<u8> = (0..bytes).map(|_| if random() % 3 == 0 { random() as u8 } else { 0 }).collect();
            check(ioctl(command, &data), "random bytes");
        }
    }
    for number in 0..=255u32 {
        let command = 3 << 30 | 64 << 16 | (b'z' as u32) << 8 | number;
        if !commands.contains(&command) {
            assert_eq!(ioctl(command, &[0; 64]), Err(Errno::NOTTY), "{command:#x}");
        }
    }
    assert!(done[0] > 20 && done[1] > 1000, "{done:?}");
    assert!(fs.views_used().0 <= 3 && fs.views_used().1 <= 100_000, "{:?}", fs.views_used());
}

#[test]
fn facts() {
    let (_dir, fs) = open(Limits::default());
    let server = Server::decode_front(&fs.ioctl(ME, ROOT, SERVER, &[]).unwrap()).unwrap();
    assert_eq!((server.version, server.view_memory, server.max_views), (1, 1 << 30, 64));
    assert_eq!(server.features & FEATURE_VIEWS, FEATURE_VIEWS);
    let record = Node::Record(0, 3).ino().unwrap();
    let store = Store::decode_front(&fs.ioctl(ME, record, STORE, &[]).unwrap()).unwrap();
    assert_eq!((store.records, store.streams, store.own, store.flags), (10, 1, 0, 0));
    assert_eq!(store.generation, fs.source().fingerprint());
    let stream = Stream::decode_front(&fs.ioctl(ME, ROOT, STREAM, &[0; Stream::BYTES]).unwrap()).unwrap();
    assert_eq!((stream.kind, stream.codec, stream.ndim, stream.shape[0]), (KIND_DENSE, 1, 1, 5));
    assert_eq!((stream.itemsize, stream.record_bytes, stream.records), (2, 10, 10));
    assert_eq!(&stream.dtype[..stream.dtype_len as usize], b"<u2");
    assert_eq!(&stream.name[..stream.name_len as usize], b"numbers");
}

/// Threads that use, read and end the same views at random: no deadlock, nothing left.
#[test]
fn many_at_once() {
    let (_dir, fs) = open(Limits { memory: 1 << 20, views: 8 });
    let fs = &fs;
    let worker = |seed: u64| {
        let mut x = seed;
        let mut random = |n: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) % n
        };
        for _ in 0..3000 {
            let id = 1 + random(12);
            let done = match random(5) {
                0 => call(fs, ME, GATHER_SMALL, view(0, 0, 2), &indices(&[random(10), 3])),
                1 => call(fs, ME, GATHER_SMALL, view(id, 0, 1), &indices(&[random(10)])),
                2 => call(fs, ME, CLOSE, view(id, 0, 0), &[]),
                3 => fs.lookup(Node::Views.ino().unwrap(), id.to_string().as_bytes()).and_then(|attr| {
                    let mut bytes = vec![0; 5000];
                    fs.read(attr.ino, 0, &mut bytes).map(|_| View::default())
                }),
                _ => call(fs, ME, BEGIN, view(id, 0, 0), &[]),
            };
            let known = [Errno::NOENT, Errno::BUSY, Errno::MFILE, Errno::STALE];
            assert!(done.is_ok() || known.contains(&done.unwrap_err()), "{done:?}");
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|seed| drop(scope.spawn(move || worker(seed)))));
    for id in 0..10_000 {
        let _ = call(fs, ME, CLOSE, view(id, 0, 0), &[]);
    }
    assert_eq!(fs.views_used(), (0, 0));
}

#[test]
fn a_view_of_nobody_we_know_ends_when_it_is_idle() {
    let (_dir, fs) = open(Limits::default());
    let unknown = call(&fs, ME, GATHER_SMALL, view(0, 0, 1), &indices(&[1])).unwrap();
    let known = Caller { uid: 1000, pid: std::process::id() };
    let watched = call(&fs, known, GATHER_SMALL, view(0, 0, 1), &indices(&[1])).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs.views.end_idle(std::time::Duration::from_secs(60));
    assert_eq!(fs.views_used().0, 2);
    fs.views.end_idle(std::time::Duration::from_millis(5));
    assert_eq!(call(&fs, ME, BEGIN, view(unknown.view, 0, 0), &[]), Err(Errno::NOENT));
    assert!(call(&fs, ME, BEGIN, view(watched.view, 0, 0), &[]).is_ok());
}
