//! A program of 32 bits gets the batches of a mount, by the same calls as one of 64.

#![cfg(target_arch = "x86_64")]

// Each test program uses a part of it.
#[allow(dead_code, unused_imports)]
mod common;

use common::{Mount, TempDir, bytes, shell, store, succeeds};
use zrfs::client;
use zrfs_abi::{FEATURE_START, FEATURE_VIEWS, Server, SlabHeader, SlabStream, Store, Stream, VERSION, View};

#[test]
fn a_program_of_32_bits() {
    let dir = TempDir::new().unwrap();
    let records: Vec<Vec<u8>> = (0..100).map(|i| bytes(i, 300)).collect();
    store(&dir.path().join("s.zr"), "zstd", &records);
    let mount = Mount::new(&dir.path().join("s.zr"), &[]);

    // Of the C library the header wants the numbers of ioctls alone, and the kernel's headers have them.
    let here = env!("CARGO_MANIFEST_DIR");
    let at = dir.path().display();
    std::fs::create_dir(dir.path().join("sys")).unwrap();
    std::fs::write(dir.path().join("sys/ioctl.h"), "#include <asm-generic/ioctl.h>\n").unwrap();
    succeeds(&shell(&format!(
        "cc -m32 -std=gnu99 -Wall -Wextra -Werror -ffreestanding -fno-stack-protector -fno-pie -no-pie -static -nostdlib \
         -I {at} -I {here}/../include {here}/tests/c/ioctl32.c -o {at}/ioctl32"
    )));
    let done = shell(&format!("{at}/ioctl32 {0} {0}/.zrfs/views/ >{at}/out", mount.path()));
    if done.code == Some(126) && done.err.contains("Exec format error") {
        eprintln!(
            "not tested: this kernel runs no programs of 32 bits, so there are none that could ask: {}",
            done.err
        );
        return;
    }
    succeeds(&done);

    let out = std::fs::read(dir.path().join("out")).unwrap();
    let (server, rest) = out.split_at(Server::BYTES);
    let (facts, rest) = rest.split_at(Store::BYTES);
    let (stream, rest) = rest.split_at(Stream::BYTES);
    let (sealed, slab) = rest.split_at(View::BYTES);
    let server = Server::decode_front(server).unwrap();
    assert_eq!((server.version, server.max_views), (VERSION, 64));
    assert_eq!(server.features & (FEATURE_VIEWS | FEATURE_START), FEATURE_VIEWS | FEATURE_START);
    let facts = Store::decode_front(facts).unwrap();
    assert_eq!((facts.records, facts.streams, facts.own), (100, 1, 0));
    let stream = Stream::decode_front(stream).unwrap();
    assert_eq!((stream.codec, stream.itemsize, stream.records), (1, 1, 100));
    let sealed = View::decode_front(sealed).unwrap();
    assert_eq!((sealed.count, sealed.bytes), (32, slab.len() as u64));

    let header = SlabHeader::decode_front(slab).unwrap();
    assert_eq!((header.seal, header.count, header.length, header.step), (sealed.seal, 32, 100, 2));
    let part = SlabStream::decode_front(&slab[SlabHeader::BYTES..]).unwrap();
    let views = client::Mount::open(mount.mountpoint()).unwrap();
    let batch = views.sample(&"cyclic,batch=32,seed=42".parse().unwrap(), 2).unwrap();
    assert!(batch.parts()[0].bytes() == &slab[part.data as usize..][..part.data_bytes as usize]);
}
