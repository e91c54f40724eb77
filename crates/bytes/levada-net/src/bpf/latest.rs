//! The latest steering of each flow.
//!
//! A client may open a new connection with the same addresses before the end of its old one is known
//! here. The end of the old one must not stop the steering of the new one.

use std::{collections::HashMap, hash::Hash};

/// The number of the latest steering of each flow.
pub(super) struct LatestSteerings<F> {
    /// The number of steerings so far.
    count: u64,
    latest: HashMap<F, u64>,
}

impl<F> Default for LatestSteerings<F> {
    fn default() -> Self {
        Self { count: 0, latest: HashMap::new() }
    }
}

impl<F: Eq + Hash> LatestSteerings<F> {
    /// The number of a steering that is about to begin.
    pub(super) fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// The steering of this number has started.
    pub(super) fn begin(&mut self, flow: F, number: u64) {
        self.latest.insert(flow, number);
    }

    /// Whether this is the latest steering of the flow.
    pub(super) fn is_latest(&self, flow: &F, number: u64) -> bool {
        self.latest.get(flow) == Some(&number)
    }

    /// Ends a steering. Returns whether it was the latest of the flow.
    pub(super) fn end(&mut self, flow: &F, number: u64) -> bool {
        let is_latest = self.is_latest(flow, number);
        if is_latest {
            self.latest.remove(flow);
        }
        is_latest
    }
}
