//! Notes of invalidated URIs: a response that was being fetched meanwhile must not be kept.
//!
//! An unsafe request invalidates stored responses (RFC 9111 Sec. 4.4). A response that the origin sent
//! before it, and that arrives after it, is as old as the stored ones. A purge rule would cover it as
//! well, but every rule costs a sweep, and unsafe requests are frequent. So only the last time is
//! noted, in a table of bounded size: URIs that share a slot are fetched once more than necessary.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use levada_types::Key;

const SLOTS: usize = 1 << 12;

/// When URIs were invalidated. Time is the number of invalidations.
#[derive(Debug)]
pub(crate) struct Invalidated {
    count: AtomicU64,
    slots: Box<[AtomicU64]>,
}

impl Default for Invalidated {
    fn default() -> Self {
        Self { count: AtomicU64::new(0), slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Invalidated {
    /// The current time, in invalidations.
    pub(crate) fn now(&self) -> u64 {
        self.count.load(SeqCst)
    }

    /// Notes that a URI is invalidated: a fetch that has started by now must not be kept for it.
    pub(crate) fn note(&self, uri: Key) {
        let now = self.count.fetch_add(1, SeqCst) + 1;
        self.slot(uri).fetch_max(now, SeqCst);
    }

    /// Whether a URI was invalidated since `then`.
    pub(crate) fn since(&self, then: u64, uri: Key) -> bool {
        self.slot(uri).load(SeqCst) > then
    }

    fn slot(&self, uri: Key) -> &AtomicU64 {
        &self.slots[uri.0 as usize % SLOTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_began_before_is_outdated() {
        let invalidated = Invalidated::default();
        let before = invalidated.now();
        invalidated.note(Key(1));
        let after = invalidated.now();
        assert!(invalidated.since(before, Key(1)) && !invalidated.since(before, Key(2)));
        assert!(!invalidated.since(after, Key(1)));
        invalidated.note(Key(2));
        assert!(!invalidated.since(after, Key(1)) && invalidated.since(after, Key(2)));
    }
}
