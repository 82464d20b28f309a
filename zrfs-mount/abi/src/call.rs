//! What goes in and out with the calls about views, and an announced order.

use crate::Zero;

layout! {
    /// A view: what goes in with every call about it and, in the same place, what comes out. Fields that only come out must
    /// be zero when they go in. Indices follow it in the calls that take some, one u64 each.
    #[derive(Default)]
    pub struct View = 64 {
        /// In: the view, or 0 for a new one. Out: its number.
        pub view: u64,
        /// In: the stream, by its number or as [`STREAM_OWN`](crate::STREAM_OWN) or [`STREAM_ALL`](crate::STREAM_ALL).
        /// Zero where the call does not begin a batch.
        pub stream: u32,
        /// In: zero, or [`START`](crate::START).
        pub flags: u32,
        /// In: the number of indices that follow. Out: the number of those that the view has.
        pub count: u64,
        /// Out: the bytes of the slab that are in use, which are also the length of the view's file.
        pub bytes: u64,
        /// Out: the number of the slab. As long as it stays the same, the view has the same memory.
        pub slab: u64,
        /// Out: the bytes of the slab's memory, which never change.
        pub capacity: u64,
        /// Out: what to show to the socket for the slab's memory.
        pub key: u64,
        /// In: zero; with [`START`](crate::START) also another view, to wait for. Out: the number of the batch, another one for
        /// each seal of any view; 0 where there is none yet.
        pub seal: u64,
    }
}

layout! {
    /// Which batch of which stream of indices; `docs/SAMPLER.md` has the formulas.
    pub struct Spec = 56 {
        /// 0 sequential, 1 iid, 2 iid_counter, 3 cyclic.
        pub mode: u8,
        /// 0 the mode's own, 1 drop, 2 keep, 3 wrap.
        pub tail: u8,
        /// Zero.
        pub zero: Zero<6>,
        /// Indices in a batch of all ranks together.
        pub batch: u64,
        /// The seed.
        pub seed: u64,
        /// Which part of the batch, below `world`.
        pub rank: u64,
        /// The number of parts.
        pub world: u64,
        /// The number of the batch.
        pub step: u64,
        /// Draws from the first so many records, which keeps the stream the same while records are appended; 0 for all that
        /// there are now.
        pub length: u64,
    }
}

layout! {
    /// A view whose indices a sampler draws. The view's `count` is zero when it goes in.
    pub struct Sample = 120 {
        /// The view.
        pub view: View,
        /// What is drawn.
        pub spec: Spec,
    }
}

layout! {
    /// An order that readers of files will follow.
    pub struct Announce = 48 {
        /// [`VERSION`](crate::VERSION).
        pub version: u32,
        /// As [`Spec::mode`].
        pub mode: u8,
        /// As [`Spec::tail`].
        pub tail: u8,
        /// Zero.
        pub zero: Zero<2>,
        /// As [`Spec::batch`].
        pub batch: u64,
        /// As [`Spec::seed`].
        pub seed: u64,
        /// As [`Spec::rank`].
        pub rank: u64,
        /// As [`Spec::world`].
        pub world: u64,
        /// The step to start at.
        pub start: u64,
    }
}
