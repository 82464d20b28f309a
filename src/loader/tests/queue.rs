//! The slots of steps: what bounds the memory.

use super::*;
use crate::loader::queue::{Outcome, Queue};
use crate::loader::state::Position;
use crate::loader::stats::Spent;
use crate::sampler::Sampler;
use std::sync::{Mutex, Weak};

/// A batch that notes, when it goes, how many there are by the queue's count.
struct Counted {
    queue: Weak<Queue<Counted>>,
    counts: Arc<Mutex<Vec<usize>>>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let count = self.queue.upgrade().map(|queue| all(&queue));
        self.counts.lock().unwrap().extend(count);
    }
}

fn all(queue: &Queue<Counted>) -> usize {
    let (_, ready, working) = queue.counters();
    ready + working
}

/// A worker may make another one as soon as there is room, so what is thrown away makes room when it is gone.
#[test]
fn what_is_thrown_away_counts_until_it_is_gone() {
    let sampler = || Sampler::new("cyclic,batch=10".parse().unwrap(), N).unwrap();
    let queue = Arc::new(Queue::new(sampler(), Position::default(), 3, true));
    let counts = Arc::<Mutex<Vec<usize>>>::default();
    let finish = |ticket| {
        let result = Ok(Counted { queue: Arc::downgrade(&queue), counts: counts.clone() });
        queue.finish(ticket, Outcome { result, bytes: 0, spent: Spent::default() });
    };
    let claims: Vec<u64> = (0..3).map(|_| queue.claim().unwrap().ticket).collect();
    finish(claims[0]);
    queue.go_to(sampler(), Position { step: 7, ..Position::default() });
    assert_eq!((counts.lock().unwrap().split_off(0), all(&queue)), (vec![3], 2));
    finish(claims[1]);
    assert_eq!((counts.lock().unwrap().split_off(0), all(&queue)), (vec![2], 1));
    let next = queue.claim().unwrap();
    assert_eq!(next.step, 7);
    finish(next.ticket);
    queue.close();
    assert_eq!((counts.lock().unwrap().split_off(0), all(&queue)), (vec![2], 1));
    finish(claims[2]);
    assert_eq!((counts.lock().unwrap().split_off(0), all(&queue)), (vec![1], 0));
}
