//! The algorithm that chooses itself: the one with the most hits in miniature caches of a sample.
//!
//! ```text
//! request ──► in the sample? ──► shadows: a miniature cache for each candidate
//!     │ (one compare)               │ every 1,024 sampled requests: which leads, by the aim?
//!     ▼                             ▼
//!   order ◄── a few objects with every new one ── former order, after a switch
//! ```
//!
//! A switch loses no object and takes no time of its own: the objects of the former order move to the
//! new one a few at a time, with the hits that the former order has counted.

use super::{
    Choice, Eviction, EvictionEntry, Handle, HeldObject, Switch,
    choice::Candidate,
    gdsf, lru, s3fifo,
    shadows::{Counts, Lead, Shadow, Shadows},
    sieve,
};
use levada_types::Key;
use std::collections::VecDeque;

pub(super) const ENTRY: EvictionEntry = EvictionEntry {
    name: "auto",
    paper: PAPER,
    summary: "Uses the algorithm that answers the most requests in miniature caches of a sample.",
    build: |capacity| Box::new(Auto::new(capacity, Aim::Requests)),
};

pub(super) const BYTES: EvictionEntry = EvictionEntry {
    name: "auto-bytes",
    paper: PAPER,
    summary: "Uses the algorithm that answers the most bytes in miniature caches of a sample.",
    build: |capacity| Box::new(Auto::new(capacity, Aim::Bytes)),
};

const PAPER: &str = "Waldspurger et al., Cache Modeling and Optimization using Miniature Simulations, USENIX ATC 2017";

/// The algorithms to choose from: of `gds` and `gds-packets` the variants that count hits.
static CANDIDATES: [EvictionEntry; 5] =
    [gdsf::ENTRY, s3fifo::ENTRY, gdsf::PACKETS, sieve::ENTRY, lru::ENTRY];

/// Another algorithm must lead by this share of the requests or bytes, and by so many standard errors,
/// after so many periods.
const LEAD: f64 = 0.01;
const ERRORS: f64 = 3.0;
const LEAST_PERIODS: u32 = 4;

/// The hits of the sample that wait for a new object. While none comes, nothing is evicted, and further
/// hits say nothing of the order.
const WAITING: usize = 64;

/// The objects that move to a new order with every new object.
const MOVES: u32 = 16;

/// The hits that an object takes along to a new order, at most.
const MOST_HITS: u32 = 16;

/// The switches that [`Choice`] shows.
const SHOWN: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    Requests,
    Bytes,
}

impl Aim {
    fn of(self, counts: Counts) -> f64 {
        match self {
            Self::Requests => counts.requests,
            Self::Bytes => counts.bytes,
        }
    }

    /// The algorithm until there are counts: in general the best for this aim.
    fn first(self) -> usize {
        match self {
            Self::Requests => 0,
            Self::Bytes => 1,
        }
    }
}

struct Auto {
    aim: Aim,
    /// The candidate in use.
    current: usize,
    order: Box<dyn Eviction>,
    /// The order before the last switch, while it still has objects.
    former: Option<Box<dyn Eviction>>,
    /// The next handle of the former order to move.
    next_move: u32,
    /// The key of every handle; of one that is free, the last.
    keys: Vec<Key>,
    shadows: Shadows,
    /// Hits of the sample that the shadows have not seen, with their sizes.
    waiting: Vec<(Key, u64)>,
    /// Periods since the last switch.
    since: u32,
    judgements: u64,
    switches: u64,
    last: VecDeque<Switch>,
}

impl Auto {
    fn new(capacity: u64, aim: Aim) -> Self {
        let first = aim.first();
        Self {
            aim,
            current: first,
            order: (CANDIDATES[first].build)(capacity),
            former: None,
            next_move: 0,
            keys: Vec::new(),
            shadows: Shadows::new(capacity, &CANDIDATES),
            waiting: Vec::new(),
            since: 0,
            judgements: 0,
            switches: 0,
            last: VecDeque::new(),
        }
    }

    /// Shows a request to the shadows.
    fn sample(&mut self, key: Key, bytes: u64) {
        if self.shadows.request(key, bytes) {
            self.shadows.end_period();
            self.judge();
        }
    }

    /// Switches to the candidate that leads most, if it does so beyond chance.
    fn judge(&mut self) {
        self.judgements += 1;
        let (aim, caches) = (self.aim, &mut self.shadows.caches);
        let present = aim.of(caches[self.current].period);
        caches.iter_mut().for_each(|cache| cache.lead.add(aim.of(cache.period) - present));
        let ratio =
            |at: usize| aim.of(self.shadows.caches[at].hits) / aim.of(self.shadows.all).max(1.0);
        let sure = |at: &usize| self.shadows.caches[*at].lead.sure(ERRORS);
        let best = (0..CANDIDATES.len()).max_by(|a, b| sure(a).total_cmp(&sure(b)));
        let best = best.unwrap_or(self.current);
        let names = [self.current, best].map(|at| CANDIDATES[at].name);
        let ratios = [self.current, best].map(ratio);
        self.since += 1;
        let is_due = self.since >= LEAST_PERIODS && self.former.is_none();
        if is_due && sure(&best) > 0.0 && ratios[1] - ratios[0] > LEAD {
            self.last.truncate(SHOWN - 1);
            self.last.push_front(Switch { judgement: self.judgements, names, ratios });
            self.switches += 1;
            self.switch(best);
        }
    }

    fn switch(&mut self, to: usize) {
        self.shadows.caches.iter_mut().for_each(|cache| cache.lead = Lead::default());
        (self.current, self.since, self.next_move) = (to, 0, 0);
        let order = (CANDIDATES[to].build)(self.order.capacity());
        self.former = Some(std::mem::replace(&mut self.order, order));
    }

    /// Moves some objects of the former order to the present one.
    fn move_some(&mut self) {
        for _ in 0..MOVES {
            match self.former.as_ref().is_some_and(|former| !former.is_empty()) {
                true => self.move_over(Handle(self.next_move)),
                false => self.former = None,
            }
            self.next_move = self.next_move.wrapping_add(1);
        }
    }

    /// Moves an object to the present order, if the former one has it, with its hits.
    fn move_over(&mut self, handle: Handle) {
        let Some(former) = &mut self.former else { return };
        let Some(object) = former.find(handle) else { return };
        former.remove(handle);
        self.order.add(handle, self.keys[handle.index()], object.bytes);
        (0..object.hits.min(MOST_HITS)).for_each(|_| self.order.touch(handle));
    }
}

impl Eviction for Auto {
    fn capacity(&self) -> u64 {
        self.order.capacity()
    }

    fn set_capacity(&mut self, bytes: u64) {
        self.order.set_capacity(bytes);
        self.shadows.set_capacity(bytes);
    }

    fn used(&self) -> u64 {
        self.order.used() + self.former.as_ref().map_or(0, |former| former.used())
    }

    fn len(&self) -> usize {
        self.order.len() + self.former.as_ref().map_or(0, |former| former.len())
    }

    fn overhead(&self) -> u64 {
        let keys = self.keys.capacity() * size_of::<Key>();
        let keys = keys + self.waiting.capacity() * size_of::<(Key, u64)>();
        let last = self.last.capacity() * size_of::<Switch>();
        let former = self.former.as_ref().map_or(0, |former| former.overhead());
        (keys + last) as u64 + self.order.overhead() + former + self.shadows.overhead()
    }

    fn find(&self, handle: Handle) -> Option<HeldObject> {
        self.order.find(handle).or_else(|| self.former.as_ref()?.find(handle))
    }

    fn competes(&self) -> bool {
        true
    }

    /// Allocates nothing, as the touch of every algorithm: the sample sees the request with the next new object.
    fn touch(&mut self, handle: Handle) {
        let Some(&key) = self.keys.get(handle.index()) else { return };
        if self.shadows.has(key)
            && self.waiting.len() < self.waiting.capacity().min(WAITING)
            && let Some(object) = self.find(handle)
        {
            self.waiting.push((key, object.bytes));
        }
        match &mut self.former {
            Some(former) if former.contains(handle) => former.touch(handle),
            _ => self.order.touch(handle),
        }
    }

    fn resize(&mut self, handle: Handle, bytes: u64) {
        self.move_over(handle);
        self.order.resize(handle, bytes);
    }

    fn remove(&mut self, handle: Handle) -> bool {
        let there = self.order.remove(handle)
            || self.former.as_mut().is_some_and(|former| former.remove(handle));
        if there && self.shadows.has(self.keys[handle.index()]) {
            self.shadows.remove(self.keys[handle.index()]);
        }
        there
    }

    fn evict(&mut self) -> Option<Handle> {
        self.move_some();
        self.order.evict().or_else(|| self.former.as_mut()?.evict())
    }

    fn add(&mut self, handle: Handle, key: Key, bytes: u64) {
        if self.keys.len() <= handle.index() {
            self.keys.resize(handle.index() + 1, Key(0));
        }
        self.keys[handle.index()] = key;
        self.order.add(handle, key, bytes);
        for at in 0..self.waiting.len() {
            let (key, bytes) = self.waiting[at];
            self.sample(key, bytes);
        }
        self.waiting.clear();
        // Reserved here, because a touch must not allocate.
        if self.shadows.rate() > 0.0 {
            self.waiting.reserve_exact(WAITING);
        }
        if self.shadows.has(key) {
            self.sample(key, bytes);
        }
        self.move_some();
    }

    fn choice(&self) -> Option<Choice> {
        let Shadows { caches, all, .. } = &self.shadows;
        let ratio = |hits: f64, all: f64| if all > 0.0 { hits / all } else { 0.0 };
        let candidate = |shadow: &Shadow| Candidate {
            name: shadow.entry.name,
            hit_ratio: ratio(shadow.hits.requests, all.requests),
            byte_hit_ratio: ratio(shadow.hits.bytes, all.bytes),
        };
        Some(Choice {
            current: CANDIDATES[self.current].name,
            candidates: caches.iter().map(candidate).collect(),
            rate: self.shadows.rate(),
            objects: self.shadows.len(),
            bytes: self.shadows.overhead(),
            judgements: self.judgements,
            switches: self.switches,
            last: self.last.iter().copied().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Keyed, *};
    use levada_types::Rng;

    /// News: an object is popular for a while, most when it is new. All have one size.
    fn news(rng: &mut Rng, at: u64) -> (Key, u64) {
        (Key((at / 5).saturating_sub((-rng.unit().max(1e-9).ln() * 300.0) as u64)), 1000)
    }

    /// Small objects that are popular for ever, and some large ones.
    fn mixture(rng: &mut Rng, _: u64) -> (Key, u64) {
        match rng.below(10) {
            0 => (Key(1_000_000 + rng.below(100) as u64), 50_000),
            _ => (Key((rng.unit().powi(3) * 3000.0) as u64), 500),
        }
    }

    /// Hits from the 150,000th request on.
    fn hits(cache: &mut Keyed, request: fn(&mut Rng, u64) -> (Key, u64)) -> u32 {
        let mut rng = Rng::new(1);
        let hit = |at| {
            let (key, bytes) = request(&mut rng, at);
            u32::from(cache.request(key, bytes) && at >= 150_000)
        };
        (0..250_000).map(hit).sum()
    }

    #[test]
    fn the_best_candidate_is_used() {
        for (request, name) in [(news as fn(&mut Rng, u64) -> _, "lru"), (mixture, "gdsf")] {
            let of = |entry: &EvictionEntry| hits(&mut Keyed::new((entry.build)(400_000)), request);
            let (best, best_name) = CANDIDATES.iter().map(|one| (of(one), one.name)).max().unwrap();
            let mut auto = Keyed::new((ENTRY.build)(400_000));
            let reached = hits(&mut auto, request);
            let choice = auto.eviction().choice().unwrap();
            assert!(f64::from(reached) > f64::from(best) * 0.99, "{reached} of {best}: {choice:?}");
            assert_eq!((choice.current, best_name), (name, name), "{choice:?}");
            assert_eq!(choice.switches, choice.last.len() as u64);
        }
    }

    #[test]
    fn a_switch_loses_no_object() {
        for to in 0..CANDIDATES.len() {
            let mut auto = Auto::new(1_000_000, Aim::Requests);
            (0..1000).for_each(|n| auto.add(Handle(n), Key(n.into()), 1000));
            auto.switch(to);
            for n in 0..100 {
                assert_eq!((auto.len(), auto.used()), (1000, 1_000_000));
                assert!((0..1000).all(|n| auto.contains(Handle(n))));
                auto.remove(Handle(999 - n));
                auto.add(Handle(999 - n), Key((999 - n).into()), 1000);
            }
            assert!(auto.former.is_none() && auto.order.len() == 1000);
            assert_eq!(std::iter::from_fn(|| auto.evict()).count(), 1000);
        }
    }
}
