//! The bound on the requests that this node serves itself.
//!
//! Every hit takes a place, and no request waits for one. So this is one counter, not a queue.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

/// Counts the requests that this node serves itself.
pub(crate) struct Capacity {
    held: AtomicU32,
    bound: u32,
}

impl Capacity {
    pub(crate) fn new(bound: u32) -> Arc<Self> {
        Arc::new(Self { held: AtomicU32::new(0), bound })
    }

    /// A place for one request; `None` when the node is at its capacity.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<InService> {
        let place = InService(self.clone());
        (self.held.fetch_add(1, Relaxed) < self.bound).then_some(place)
    }

    pub(crate) fn held(&self) -> u32 {
        self.held.load(Relaxed)
    }
}

/// The place of one request that is being served here.
pub(crate) struct InService(Arc<Capacity>);

impl Drop for InService {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_node_takes_nothing_and_counts_nothing() {
        let capacity = Capacity::new(1);
        let place = capacity.enter();
        assert!(place.is_some() && capacity.enter().is_none());
        assert_eq!(capacity.held(), 1);
        drop(place);
        assert_eq!(capacity.held(), 0);
        assert!(capacity.enter().is_some());
    }
}
