//! Batches of random stores, by every way that there is without a kernel: views in their memory and by their files, and files
//! below `batches`. Each has the bytes, the places and the shapes of the engine's own gather.

// Each test program uses a part of it.
#[allow(dead_code)]
#[path = "../../tests/common/random.rs"]
pub mod random;

use super::batches::BRIEFLY;
use super::tests::{open_with, options, read_all, walk};
use super::{Attr, FOREVER, Fs, FsOptions, Kind};
use crate::namespace::{Node, ROOT};
use crate::views::Caller;
use proptest::prelude::*;
use proptest::sample::select;
use random::{Native, Order, Stores, Wanted, natives, numbers, stores, wanted};
use std::os::unix::fs::FileExt;
use tempfile::TempDir;
use zrfs::Source;
use zrfs::sampler::{Mode, Tail};
use zrfs_abi::*;

const ME: Caller = Caller { uid: 1000, pid: 0 };

/// A client that has one view, used for all of its batches.
struct Client<'f> {
    fs: &'f Fs,
    view: u64,
    /// How it reads files: so many bytes at a time.
    piece: usize,
}

impl Client<'_> {
    fn call(&mut self, command: u32, stream: u32, count: usize, rest: &[u8]) -> View {
        let head = View { view: self.view, stream, count: count as u64, ..View::default() };
        let mut data = [&head.encode()[..], rest].concat();
        data.resize((command >> 16 & 0x3fff) as usize, 0);
        let done = View::decode_front(&self.fs.ioctl(ME, ROOT, command, &data).unwrap()).unwrap();
        self.view = done.view;
        done
    }

    /// The view of these indices: in one call where they fit and `pushed` is 0, else that many a call.
    fn gather(&mut self, stream: u32, indices: &[u64], pushed: usize) -> View {
        let bytes = |part: &[u64]| part.iter().flat_map(|i| i.to_ne_bytes()).collect::<Vec<_>>();
        if pushed == 0 && indices.len() <= LARGE {
            let command = if indices.len() <= SMALL { GATHER_SMALL } else { GATHER_LARGE };
            return self.call(command, stream, indices.len(), &bytes(indices));
        }
        self.call(BEGIN, stream, 0, &[]);
        for part in indices.chunks(if pushed == 0 { LARGE } else { pushed }) {
            self.call(if part.len() <= SMALL { PUSH_SMALL } else { PUSH_LARGE }, 0, part.len(), &bytes(part));
        }
        self.call(SEAL, 0, 0, &[])
    }

    /// A file, and how it is read: whole, in pieces, and from somewhere on.
    fn file(&self, attr: &Attr, want: &[u8], what: &str) {
        assert_eq!((attr.kind, attr.size), (Kind::File, want.len() as u64), "{what}");
        // Not more than some hundred pieces, of which each may be gathered anew.
        for piece in [want.len() + 1, self.piece.max(want.len() / 200)] {
            assert!(read_all(self.fs, attr.ino, piece).unwrap() == want, "{what} in pieces of {piece}");
        }
        let (at, mut middle) = (want.len() * 2 / 3, [0; 77]);
        let n = self.fs.read(attr.ino, at as u64, &mut middle).unwrap();
        assert_eq!(middle[..n], want[at..want.len().min(at + 77)], "{what} from {at}");
        for beyond in [want.len() as u64, u64::MAX] {
            assert_eq!(self.fs.read(attr.ino, beyond, &mut middle), Ok(0), "{what}");
        }
    }

    /// That a sealed view has these batches in its memory, and the same in its file.
    fn view_is(&self, sealed: &View, indices: &[u64], want: &[Native], [length, step]: [u64; 2]) {
        let memory = self.fs.views.memory(sealed.view, sealed.key).unwrap();
        assert_eq!((memory.slab, memory.capacity), (sealed.slab, sealed.capacity));
        let mut slab = vec![0; sealed.bytes as usize];
        memory.file.read_exact_at(&mut slab, 0).unwrap();
        let attr = self.fs.lookup(Node::Views.ino().unwrap(), sealed.view.to_string().as_bytes()).unwrap();
        self.file(&attr, &slab, "the view's file");

        let header = SlabHeader::decode_front(&slab).unwrap();
        let said = (header.magic, header.streams as usize, header.seal, header.bytes, header.length, header.step);
        assert_eq!(said, (MAGIC, want.len(), sealed.seal, sealed.bytes, length, step));
        let numbers = |at: u64, n: usize| -> Vec<u64> {
            let bytes = slab[at as usize..][..n * 8].chunks_exact(8);
            bytes.map(|b| u64::from_ne_bytes(b.try_into().unwrap())).collect()
        };
        let bytes = |at: u64, n: u64| &slab[at as usize..][..n as usize];
        assert_eq!((header.count, sealed.count), (indices.len() as u64, indices.len() as u64));
        assert_eq!(numbers(header.indices, indices.len()), indices);
        for (k, want) in want.iter().enumerate() {
            let stream = SlabStream::decode_front(&slab[SlabHeader::BYTES + k * SlabStream::BYTES..]).unwrap();
            let dtype = want.dtype.as_ref();
            assert_eq!(bytes(stream.name, stream.name_len.into()), want.name.as_bytes());
            assert_eq!(bytes(stream.dtype, stream.dtype_len.into()), dtype.map_or("", |d| d.as_str()).as_bytes());
            assert_eq!(stream.itemsize, dtype.map_or(1, |d| d.itemsize()));
            assert_eq!(numbers(stream.offsets, indices.len() + 1), want.offsets, "stream {}", want.name);
            assert!(
                stream.data.is_multiple_of(ALIGN) && bytes(stream.data, stream.data_bytes) == want.bytes,
                "{}",
                want.name
            );
            let (kind, shapes) = match (&want.dense, &want.ragged) {
                (Some(shape), _) => (KIND_DENSE, shape.clone()),
                (_, Some(shapes)) => {
                    let starts = shapes.iter().scan(0, |at, shape| {
                        *at += shape.len() as u64;
                        Some(*at)
                    });
                    (KIND_RAGGED, [0].into_iter().chain(starts).chain(shapes.concat()).collect())
                }
                _ => (KIND_BYTES, Vec::new()),
            };
            assert_eq!((stream.kind, numbers(stream.shapes, stream.shapes_bytes as usize / 8)), (kind, shapes));
        }
    }

    /// That the files below `batches` have these batches.
    fn paths_are(&self, path: &str, indices: &[u64], want: &[Native], dataset: bool) {
        let check = |path: String, want: &[u8]| {
            let attr = walk(self.fs, &format!("batches/{path}")).unwrap_or_else(|e| panic!("{path}: {e}"));
            assert_eq!(attr.ttl, BRIEFLY);
            assert_eq!(self.fs.getattr(attr.ino), Ok(Attr { ttl: FOREVER, ..attr }));
            self.file(&attr, want, &path);
        };
        check(format!("{path}.indices.npy"), &numbers(&[indices.len() as u64], indices));
        for want in want {
            let front = if dataset { format!("{path}/{}", want.name) } else { path.into() };
            want.files().iter().for_each(|(end, bytes)| check(format!("{front}{end}"), bytes));
        }
        assert!(self.fs.cache.used() <= self.fs.cache.budget());
    }
}

/// The call's form of a sampler's spec.
fn spec_of(order: &Order) -> Option<Spec> {
    let (spec, step, length) = order.drawn.as_ref()?;
    Some(Spec {
        mode: Mode::ALL.iter().position(|mode| *mode == spec.mode)? as u8,
        tail: Tail::ALL.iter().position(|tail| *tail == spec.tail)? as u8 + 1,
        zero: Zero,
        batch: spec.batch,
        seed: spec.seed,
        rank: spec.rank,
        world: spec.world,
        step: *step,
        length: length.unwrap_or(0),
    })
}

fn check(stores: &Stores, batches: &[Wanted], cache_bytes: u64, piece: usize, pushed: usize) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("stores");
    stores.make(&path);
    let source = Source::open(&path).unwrap();
    let fs = open_with(&path, FsOptions { cache_bytes, ..options() });
    let mut client = Client { fs: &fs, view: 0, piece };
    for (k, wanted) in batches.iter().enumerate() {
        let order = wanted.order(stores.count, stores.most());
        let indices = &order.indices[..];
        let all = natives(&source, indices);
        all.iter().zip(&stores.streams).for_each(|(native, made)| native.is_as_made(made, indices));
        let of_a_gather = [stores.count, NO_STEP];
        let sealed = client.gather(STREAM_ALL, indices, pushed);
        client.view_is(&sealed, indices, &all, of_a_gather);
        let one = k % all.len();
        let sealed = client.gather(one as u32, indices, pushed);
        client.view_is(&sealed, indices, &all[one..=one], of_a_gather);
        if let Some(spec) = spec_of(&order) {
            let sealed = client.call(SAMPLE, STREAM_OWN, 0, &spec.encode());
            let length = if spec.length == 0 { stores.count } else { spec.length };
            client.view_is(&sealed, indices, &all, [length, spec.step]);
            // The same over all records, by the view whose sampler has drawn over others.
            let whole = wanted.without_length().order(stores.count, stores.most());
            let step = spec.step;
            let sealed = client.call(SAMPLE, STREAM_OWN, 0, &Spec { length: 0, ..spec }.encode());
            client.view_is(&sealed, &whole.indices, &natives(&source, &whole.indices), [stores.count, step]);
        }
        if let Some(path) = &order.path {
            client.paths_are(path, indices, &all, stores.dataset);
        }
    }
    assert_eq!(fs.views_used().0, 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_batch_is_the_engines(
        stores in stores(),
        batches in prop::collection::vec(wanted(), 1..5),
        cache_bytes in select(vec![0u64, 700, 20_000, 1 << 20]),
        piece in 1usize..3000,
        pushed in prop_oneof![2 => Just(0), 1 => 60usize..2033],
    ) {
        check(&stores, &batches, cache_bytes, piece, pushed);
    }
}
