//! A sampler's memory: a small constant when it is made, nothing while it draws, whatever the length.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use zrfs::sampler::Sampler;

/// The system's allocator, which counts what each thread asks it for.
struct Counting;

thread_local! {
    static BYTES: Cell<usize> = const { Cell::new(0) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came; the counters are constant-initialised and have no
// destructor, so using them allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.set(BYTES.get() + layout.size());
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn drawing_allocates_nothing() {
    let mut batch = vec![0; 256];
    for length in [1, 255, 1_000_000, 1 << 28, 1 << 40, u64::MAX] {
        for text in ["sequential,batch=256", "iid,batch=256", "iid_counter,batch=256", "cyclic,batch=256,tail=wrap"] {
            BYTES.set(0);
            let mut sampler = Sampler::new(text.parse().unwrap(), length).unwrap();
            // Besides 128 KiB the strings of the spec's text.
            assert!(BYTES.get() < (128 << 10) + 4096, "{text} {length}: {} bytes", BYTES.get());
            let mut clone = sampler.clone();
            CALLS.set(0);
            for step in 0..2000 {
                sampler.next(&mut batch).unwrap();
                clone.batch_at(step * 7 % 1000, &mut batch).unwrap();
            }
            clone.seek(1500).unwrap();
            assert_eq!(CALLS.get(), 0, "{text} {length}");
        }
    }
    // The counter counts.
    drop(std::hint::black_box(vec![1u8; 100]));
    assert_eq!(CALLS.get(), 1);
}
