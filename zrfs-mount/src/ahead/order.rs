//! Which order readers follow, seen from the first reads of files.
//!
//! Files of one [`Space`] lie on a line: records by their index, files of a tree by their first record. A reader that
//! is at a, then a+d, then a+2d, is expected at a+3d; what it is expected at next is an `Order`. Reads of several
//! readers come mixed, so an order is looked for among the last reads, not only between one read and the next.
//!
//! Once the pages ahead of a reader are in the kernel, nothing is seen of it until it reaches a file that was not
//! pushed. So an order accepts any place from where its reader was last to just beyond what was pushed, but for the
//! places whose pages the kernel has: a read there is of somebody who hops about, or pages were dropped.
//!
//! Orders that readers announce are followed in the same way, on a line of their own ([`Line`]).

use super::announced::{Announcement, Line};
use crate::namespace::Node;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// First reads that are remembered to find new orders among.
const RECENT: usize = 64;
/// Orders that are followed at a time; a new one takes the place of the one longest without a read.
const ORDERS: usize = 64;
/// Announced orders, at most; a new one takes the place of the oldest.
const ANNOUNCED: usize = 64;
/// Records between two reads, at most, for them to be of one order.
const FARTHEST: u64 = 64;
/// Records that a reader of a tree may leave out once its order is known: files that are in its cache, say.
const GAP: u64 = 8;
/// Files ahead of a reader when its order was just found; doubled each time the reader catches up.
const FIRST_WINDOW: usize = 4;
/// Files ahead of a reader, at most.
const MAX_WINDOW: usize = 1024;
/// The same where the kernel does not know the files yet, so that they wait decoded in our memory.
const UNLISTED_WINDOW: usize = 16;
/// How many such files a reader may leap over, since each of its reads is seen.
const UNLISTED_LEAP: usize = 4;
/// An order without a read for so long has no claim on the budget.
const IDLE: Duration = Duration::from_secs(2);

/// Files that lie on one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// `records` of a stream.
    Records(u16),
    /// `npy` of a stream.
    Npys(u16),
    /// `tree`.
    Tree,
}

/// A file on its line.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The line.
    pub space: Space,
    /// The index, or the first record of a tree's file.
    pub at: u64,
    /// One after its last record.
    pub end: u64,
    /// The file.
    pub node: Node,
}

/// Where to find the next files of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cursor {
    /// The record to come next, and the distance to the one after it.
    Index {
        /// The next record.
        next: u64,
        /// How far it is from one to the next.
        stride: i64,
    },
    /// The node of the tree after which to go on.
    After(u64),
    /// The place in an announced order.
    Announced(u64),
}

/// A file that is to be pushed.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    /// The file.
    pub node: Node,
    /// Its place on the line.
    pub at: u64,
    /// One after its last record.
    pub end: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The place of an order's reader, as far as it was seen.
#[derive(Debug)]
pub struct Reader {
    last: AtomicU64,
    forward: bool,
}

impl Reader {
    /// Whether the reader was seen at `at` or beyond it.
    pub fn has_passed(&self, at: u64) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        if self.forward { at <= last } else { at >= last }
    }
}

/// A file between a reader and the frontier.
#[derive(Debug, Clone, Copy)]
struct Sent {
    at: u64,
    bytes: u64,
    /// Whether the kernel has its pages.
    stored: bool,
}

/// A reader's order, and how far it was pushed.
#[derive(Debug)]
struct Order {
    id: u64,
    space: Space,
    stride: i64,
    reader: Arc<Reader>,
    /// What is pushed next lies here or beyond.
    frontier: u64,
    /// Files between the reader and the frontier.
    ahead: VecDeque<Sent>,
    ahead_bytes: u64,
    window: usize,
    /// `None` while a worker looks for the next files.
    cursor: Option<Cursor>,
    /// Where to go on instead, since the reader has passed what the worker looks for.
    restart: Option<(Cursor, u64)>,
    /// The kernel did not know the files that were pushed last.
    unlisted: bool,
    /// Files are being found for it, until its window is full.
    filling: bool,
    seen: Instant,
    /// Its files, if it was announced.
    line: Option<Box<Line>>,
}

/// What a worker takes to find the next files of an order.
#[derive(Debug)]
pub struct Claim {
    /// The order.
    pub id: u64,
    /// Where to go on.
    pub cursor: Cursor,
    /// The line.
    pub space: Space,
    /// How many files to find, at most.
    pub files: usize,
    /// The reader whose order it is.
    pub reader: Arc<Reader>,
    /// Whether to ask the kernel if it knows a file before decoding it.
    pub unlisted: bool,
    /// The next indices of an announced order.
    pub indices: Vec<u64>,
}

/// All orders that are being followed.
#[derive(Debug, Default)]
pub struct Orders {
    recent: VecDeque<Place>,
    orders: Vec<Order>,
    next_id: u64,
}

impl Order {
    /// An order whose reader was last at `last`; `frontier` is what comes next, found by `cursor`.
    fn new(space: Space, stride: i64, last: u64, (cursor, frontier): (Cursor, u64), now: Instant) -> Order {
        Order {
            id: 0,
            space,
            stride,
            reader: Arc::new(Reader { last: AtomicU64::new(last), forward: stride > 0 }),
            frontier,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            window: FIRST_WINDOW,
            cursor: Some(cursor),
            restart: None,
            unlisted: true,
            filling: true,
            seen: now,
            line: None,
        }
    }

    fn last(&self) -> u64 {
        self.reader.last.load(Ordering::Relaxed)
    }

    /// How far it is from the order's reader to `place`, if a read there can be of this reader, and where that is on the
    /// order's line.
    fn distance(&self, place: &Place) -> Option<(i64, u64)> {
        if self.space != place.space {
            return None;
        }
        let (last, at) = match &self.line {
            Some(line) => (self.last(), line.place_of(place.at)?),
            None => (self.last(), place.at),
        };
        let (distance, reach) = if self.stride > 0 {
            (at.checked_sub(last)?, self.frontier.saturating_sub(last))
        } else {
            (last.checked_sub(at)?, last.saturating_sub(self.frontier))
        };
        let (distance, reach) = (i64::try_from(distance).ok()?, i64::try_from(reach).ok()?);
        let stride = self.stride.saturating_abs();
        let slack = if self.space == Space::Tree { GAP as i64 } else { stride };
        let mut farthest = reach.saturating_add(slack);
        if self.line.is_some() {
            farthest = i64::MAX;
        } else if self.unlisted
            && let Some(sent) = self.ahead.get(UNLISTED_LEAP)
        {
            farthest = farthest.min(i64::try_from(sent.at.abs_diff(last)).ok()?);
        }
        let expected = distance > 0
            && distance <= farthest
            && (self.space == Space::Tree || distance % stride == 0)
            && !self.ahead.iter().any(|sent| sent.at == at && sent.stored);
        expected.then_some((distance, at))
    }

    /// The reader was seen at `at`, which is `place` on the order's line.
    fn advance(&mut self, at: u64, place: &Place, now: Instant) {
        self.reader.last.store(at, Ordering::Relaxed);
        self.seen = now;
        while let Some(sent) = self.ahead.front().filter(|sent| self.reader.has_passed(sent.at)) {
            self.ahead_bytes -= sent.bytes;
            self.ahead.pop_front();
        }
        let beyond = self.reader.has_passed(self.frontier);
        if at == self.frontier {
            // It caught up: more has to be on its way.
            self.window = (self.window * 2).clamp(FIRST_WINDOW, MAX_WINDOW);
        } else if beyond && self.line.is_none() {
            self.window = (self.window / 2).max(FIRST_WINDOW);
        } else {
            // Who announced an order leaves out what is in its cache.
            self.window = self.window.max(FIRST_WINDOW);
        }
        if beyond {
            self.restart = match &self.line {
                Some(_) => at.checked_add(1).map(|next| (Cursor::Announced(next), next)),
                None => after(place, self.stride),
            };
            self.apply_restart();
        }
        if let Some(line) = &mut self.line {
            line.pass(at);
            self.look_on();
        }
    }

    fn apply_restart(&mut self) {
        if let (Some(cursor), Some((restart, frontier))) = (&mut self.cursor, self.restart) {
            (*cursor, self.frontier, self.restart) = (restart, frontier, None);
        }
    }

    /// Looks further in an announced order.
    fn look_on(&mut self) {
        if let Some(line) = &mut self.line
            && let Err(e) = line.reach(self.frontier)
        {
            log::error!("an announced order ends: {e}");
        }
    }

    fn window(&self) -> usize {
        if self.unlisted { self.window.min(UNLISTED_WINDOW) } else { self.window }
    }

    /// How many more files may be ahead of the reader.
    fn room(&self, budget: u64) -> usize {
        if self.cursor.is_none() || !self.filling || self.ahead_bytes >= budget {
            return 0;
        }
        self.window().saturating_sub(self.ahead.len())
    }

    /// Starts to fill the window if half of it is free, so that no worker wakes for every file.
    fn refill(&mut self, budget: u64) {
        if self.filling || self.ahead.len() * 2 > self.window() || self.ahead_bytes > budget / 2 {
            return;
        }
        self.filling = true;
        if self.unlisted {
            // Each read is seen, so its reader never catches up.
            self.window = self.window.max((self.window * 2).min(UNLISTED_WINDOW));
        }
    }
}

/// Where an order goes on after its reader was seen at `place`.
fn after(place: &Place, stride: i64) -> Option<(Cursor, u64)> {
    match (place.space, place.node) {
        (Space::Tree, Node::Tree(id)) => Some((Cursor::After(id), place.end)),
        (Space::Tree, _) => None,
        _ => {
            let next = place.at.checked_add_signed(stride)?;
            Some((Cursor::Index { next, stride }, next))
        }
    }
}

impl Orders {
    /// Takes note of the first read of a file; whether there is something to push, of at most `budget` bytes for all
    /// orders together.
    pub fn note(&mut self, place: Place, budget: u64) -> bool {
        let now = Instant::now();
        let share = self.share(budget);
        let expected = self.orders.iter_mut().filter_map(|o| Some((o.distance(&place)?, o)));
        let mut nearest = None;
        if let Some(((_, at), order)) = expected.min_by_key(|((distance, _), _)| *distance) {
            let next = at == order.frontier;
            if order.line.as_mut().is_none_or(|line| line.is_believed(next)) {
                order.advance(at, &place, now);
                order.refill(share);
                return order.room(share) > 0;
            }
            nearest = Some(order.id);
        }
        let others = self.orders.iter_mut().filter(|o| o.space == place.space && Some(o.id) != nearest);
        others.filter_map(|o| o.line.as_mut()).for_each(|line| line.missed());
        let found = self.stride_to(&place);
        if self.recent.len() == RECENT {
            self.recent.pop_back();
        }
        self.recent.push_front(place);
        let Some(stride) = found else { return false };
        let Some(cursor) = after(&place, stride) else { return false };
        self.add(Order::new(place.space, stride, place.at, cursor, now), ORDERS);
        true
    }

    /// Follows an announced order from here on; the same one announced before is forgotten.
    pub fn announce(&mut self, line: Line) {
        let said = line.announcement();
        // Wherever that one started.
        let same = |l: &Announcement| (l.space, &l.spec, l.length) == (said.space, &said.spec, said.length);
        self.orders.retain(|o| o.line.as_ref().is_none_or(|l| !same(l.announcement())));
        let order = Order::new(said.space, 1, 0, (Cursor::Announced(1), 1), Instant::now());
        // Nothing is done for it before somebody reads in this order.
        self.add(Order { window: 0, line: Some(Box::new(line)), ..order }, ANNOUNCED);
    }

    /// Whether an order in this space was announced.
    pub fn has_announced(&self, space: Space) -> bool {
        self.orders.iter().any(|o| o.space == space && o.line.is_some())
    }

    /// Adds an order, in place of one of its kind if there are as many as `most`.
    fn add(&mut self, mut order: Order, most: usize) {
        self.next_id += 1;
        order.id = self.next_id;
        let announced = order.line.is_some();
        let kind = || self.orders.iter().enumerate().filter(|(_, o)| o.line.is_some() == announced);
        // Of announced ones the oldest goes, of others the one longest without a read.
        let oldest = kind().min_by_key(|(_, o)| if announced { (None, o.id) } else { (Some(o.seen), o.id) });
        match oldest.map(|(k, _)| k).filter(|_| kind().count() >= most) {
            Some(k) => self.orders[k] = order,
            None => self.orders.push(order),
        }
    }

    /// The distance d for which reads at d and 2d before `place` are remembered, in this order; and at 3d, where d is not
    /// 1: among many reads at random some are equally far from each other.
    fn stride_to(&self, place: &Place) -> Option<i64> {
        // The step from `a` to `b`, if they may be neighbours in an order. In a tree they touch.
        let step = |a: &Place, b: &Place| {
            if a.space != b.space {
                return None;
            }
            if a.space == Space::Tree {
                return (a.end == b.at && a.at != b.at).then_some(1);
            }
            let distance = b.at.wrapping_sub(a.at) as i64;
            (distance != 0 && distance.unsigned_abs() <= FARTHEST).then_some(distance)
        };
        let before = |k: usize, stride: i64, place: &Place| {
            let (k, _) = self.recent.iter().enumerate().skip(k).find(|(_, p)| step(p, place) == Some(stride))?;
            Some((k, self.recent.get(k)?))
        };
        self.recent.iter().enumerate().find_map(|(k, one)| {
            let stride = step(one, place)?;
            let (k, two) = before(k + 1, stride, one)?;
            (stride == 1 || before(k + 1, stride, two).is_some()).then_some(stride)
        })
    }

    /// How much of `budget` bytes an order has.
    fn share(&self, budget: u64) -> u64 {
        let now = Instant::now();
        let active = self.orders.iter().filter(|o| now.duration_since(o.seen) < IDLE).count() as u64;
        budget / active.max(1)
    }

    /// Whether there is an order to push more files of.
    #[cfg(test)]
    pub fn has_work(&self, budget: u64) -> bool {
        let share = self.share(budget);
        self.orders.iter().any(|o| o.room(share) > 0)
    }

    /// The order that a worker should find the next files of: the one whose reader is nearest to what was pushed.
    /// `budget` is how many bytes may be ahead of all readers together.
    pub fn claim(&mut self, budget: u64, files: usize) -> Option<Claim> {
        let budget = self.share(budget);
        let order = self.orders.iter_mut().filter(|o| o.room(budget) > 0).min_by_key(|o| o.ahead.len())?;
        let files = files.min(order.room(budget));
        Some(Claim {
            id: order.id,
            files,
            indices: order.line.as_ref().map_or_else(Vec::new, |line| line.indices(order.frontier, files)),
            space: order.space,
            reader: order.reader.clone(),
            unlisted: order.unlisted,
            cursor: order.cursor.take()?,
        })
    }

    /// Gives a claim back, after the files `items` were found; `cursor` is where to go on, `None` at the end, where the
    /// order is forgotten.
    pub fn give_back(&mut self, id: u64, cursor: Option<Cursor>, items: &[Item], budget: u64) {
        let budget = self.share(budget);
        let Some(place) = self.orders.iter().position(|o| o.id == id) else { return };
        let order = &mut self.orders[place];
        for item in items {
            order.ahead.push_back(Sent { at: item.at, bytes: item.bytes, stored: false });
            order.ahead_bytes += item.bytes;
        }
        if let Some(last) = items.last() {
            let next = last.at.saturating_add_signed(order.stride);
            order.frontier = if order.space == Space::Tree { last.end } else { next };
        }
        order.filling = order.ahead.len() < order.window() && order.ahead_bytes < budget;
        order.cursor = cursor;
        order.apply_restart();
        order.look_on();
        if order.cursor.is_none() {
            self.orders.swap_remove(place);
        }
    }

    /// The kernel has the pages of the files at the places `stored`; `unlisted` says whether it did not know the last.
    pub fn settle(&mut self, id: u64, stored: &[u64], unlisted: bool) {
        let Some(order) = self.orders.iter_mut().find(|o| o.id == id) else { return };
        order.unlisted = unlisted;
        // Both are in the order's order.
        let mut stored = stored.iter().peekable();
        for sent in &mut order.ahead {
            sent.stored |= stored.next_if(|&&at| at == sent.at).is_some();
        }
    }
}
