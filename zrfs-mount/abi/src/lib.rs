//! What programs and a zrfs mount say to each other: ioctl numbers, the bytes that go with them, and the bytes of a view in
//! shared memory. `docs/VIEWS.md` tells how they are used; `include/zrfs-abi.h` is the same for C, held to this by a test.
//!
//! All numbers have the machine's byte order, as ioctl structures have it: both ends are on one machine. Every field has a
//! fixed width and stands at a multiple of its width, so callers of 32 and of 64 bits have the same layout. Padding is
//! explicit and must be zero. No structure reaches 16,384 bytes, the most that the number of an ioctl can say.
#![no_std]
#![forbid(unsafe_code)]

#[macro_use]
mod layout;
mod call;
mod facts;
mod slab;

pub use call::{Announce, Sample, Spec, View};
pub use facts::{Server, Store, Stream};
pub use layout::{Value, Zero};
pub use slab::{SlabHeader, SlabStream};

/// The version of everything here. Another version has other ioctl numbers or says so in [`Server::version`].
pub const VERSION: u32 = 1;

/// As [`View::stream`]: the stream that the file of the call belongs to; all streams, where it belongs to none.
pub const STREAM_OWN: u32 = u32::MAX;
/// As [`View::stream`]: all streams.
pub const STREAM_ALL: u32 = u32::MAX - 1;

/// In [`Server::features`]: the mount has views.
pub const FEATURE_VIEWS: u64 = 1;
/// In [`Server::features`]: the memory of views is handed over by a socket.
pub const FEATURE_SOCKET: u64 = 2;
/// In [`Server::features`]: announced orders are gone ahead of.
pub const FEATURE_ANNOUNCE: u64 = 4;

/// In [`Server::features`]: gathers go on after their answer; see [`START`].
pub const FEATURE_START: u64 = 8;

/// In [`View::flags`], of a call that gathers: it is answered at once, and the batch gathered meanwhile. [`WAIT`] waits for it.
/// Where [`View::seal`] names another view whose batch was started before, the call is answered as [`WAIT`] for that one: one
/// round trip a batch, and the next one is gathered while the caller uses this one.
pub const START: u32 = 1;

/// In [`Store::flags`]: it is a dataset of streams, and not one store.
pub const STORE_DATASET: u32 = 1;
/// In [`Store::flags`]: it was packed from files.
pub const STORE_TREE: u32 = 2;

/// As the kind of a stream: its records are bytes without a type.
pub const KIND_BYTES: u32 = 0;
/// As the kind of a stream: all records have one shape.
pub const KIND_DENSE: u32 = 1;
/// As the kind of a stream: each record has its own shape.
pub const KIND_RAGGED: u32 = 2;

/// Indices that go with a small call.
pub const SMALL: usize = 256;
/// Indices that go with a large call.
pub const LARGE: usize = 2032;
/// Bytes of a small call with indices.
pub const SMALL_BYTES: usize = View::BYTES + 8 * SMALL;
/// Bytes of a large call with indices.
pub const LARGE_BYTES: usize = View::BYTES + 8 * LARGE;
/// The bytes of each stream's records begin at a multiple of this in a slab.
pub const ALIGN: u64 = 4096;
/// What a slab begins with.
pub const MAGIC: [u8; 8] = *b"ZRFSVIEW";
/// As [`SlabHeader::step`]: no sampler drew the indices.
pub const NO_STEP: u64 = u64::MAX;

const NONE: u32 = 0;
const WRITE: u32 = 1;
const READ: u32 = 2;
const BOTH: u32 = READ | WRITE;

/// The number of an ioctl, as `_IOC` of the kernel's headers makes it on most machines.
const fn number(direction: u32, call: u32, bytes: usize) -> u32 {
    assert!(bytes < 1 << 14 && direction != NONE);
    direction << 30 | (bytes as u32) << 16 | (b'z' as u32) << 8 | call
}

/// Takes an [`Announce`]: readers of files will follow this order.
pub const ANNOUNCE: u32 = number(WRITE, 0xF1, Announce::BYTES);
/// Gives the [`Server`].
pub const SERVER: u32 = number(READ, 0xC0, Server::BYTES);
/// Gives the [`Store`].
pub const STORE: u32 = number(READ, 0xC1, Store::BYTES);
/// Takes the number of a [`Stream`] and gives the rest of it.
pub const STREAM: u32 = number(BOTH, 0xC2, Stream::BYTES);
/// Begins a [`View`], or begins one anew for another batch.
pub const BEGIN: u32 = number(BOTH, 0xC3, View::BYTES);
/// Adds at most [`SMALL`] indices to a [`View`] that was begun.
pub const PUSH_SMALL: u32 = number(BOTH, 0xC4, SMALL_BYTES);
/// Adds at most [`LARGE`] indices.
pub const PUSH_LARGE: u32 = number(BOTH, 0xC4, LARGE_BYTES);
/// Gathers the records of the indices that were pushed.
pub const SEAL: u32 = number(BOTH, 0xC5, View::BYTES);
/// Begin, push and seal in one, of at most [`SMALL`] indices.
pub const GATHER_SMALL: u32 = number(BOTH, 0xC6, SMALL_BYTES);
/// Begin, push and seal in one, of at most [`LARGE`] indices.
pub const GATHER_LARGE: u32 = number(BOTH, 0xC6, LARGE_BYTES);
/// Takes a [`Sample`]: begin, draw and seal in one. Gives its [`View`].
pub const SAMPLE: u32 = number(BOTH, 0xC7, Sample::BYTES);
/// Ends a [`View`], whose memory reads as zeros from then on.
pub const CLOSE: u32 = number(WRITE, 0xC8, View::BYTES);

/// Gives the [`View`] whose batch was started, as soon as that batch is there. What it gives is given again until the view is
/// begun anew.
pub const WAIT: u32 = number(BOTH, 0xC9, View::BYTES);

/// What a client sends to the socket for the memory of a view: [`View::view`] and [`View::key`]. The answer is the number of
/// the slab and its capacity, with the file; or nothing.
pub const SOCKET_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// What programs were compiled with; it must not change without another [`VERSION`].
    #[test]
    fn golden() {
        let numbers = [
            (ANNOUNCE, 0x4030_7AF1),
            (SERVER, 0x8080_7AC0),
            (STORE, 0x8020_7AC1),
            (STREAM, 0xC370_7AC2),
            (BEGIN, 0xC040_7AC3),
            (PUSH_SMALL, 0xC840_7AC4),
            (PUSH_LARGE, 0xFFC0_7AC4),
            (SEAL, 0xC040_7AC5),
            (GATHER_SMALL, 0xC840_7AC6),
            (GATHER_LARGE, 0xFFC0_7AC6),
            (SAMPLE, 0xC078_7AC7),
            (CLOSE, 0x4040_7AC8),
            (WAIT, 0xC040_7AC9),
        ];
        for (number, want) in numbers {
            assert_eq!(number, want, "{number:#x}");
        }
    }

    #[test]
    fn bytes_come_back_and_padding_is_zero() {
        let spec = Spec { mode: 3, tail: 1, zero: Zero, batch: 256, seed: 42, rank: 1, world: 8, step: 7, length: 0 };
        let bytes = spec.encode();
        assert_eq!(Spec::decode(&bytes), Some(spec));
        for at in 2..8 {
            let mut bad = bytes;
            bad[at] = 1;
            assert_eq!(Spec::decode(&bad), None, "byte {at}");
        }
        let view = View { view: 1, stream: STREAM_ALL, count: 9, key: u64::MAX, ..View::default() };
        let sample = Sample { view, spec };
        assert_eq!(Sample::decode(&sample.encode()), Some(sample));
        assert_eq!(view.encode()[16..24], 9u64.to_ne_bytes());
    }
}
