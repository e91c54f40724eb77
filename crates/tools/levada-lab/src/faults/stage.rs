//! The time of a row and the chances that its fault takes.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use levada_testbed::cluster::objects::Objects;
use levada_types::Rng;
use tokio::time::{Instant, sleep_until};

use super::{network::NODES, tally::Tally};

/// The parts of a row that a fault may need, in addition to the cluster.
pub(super) struct Stage<'a> {
    pub(super) begin: Instant,
    pub(super) end: Instant,
    pub(super) rng: RefCell<Rng>,
    pub(super) objects: &'a Objects,
    pub(super) tally: &'a RefCell<Tally>,
    /// The time from the end of an attack until all was as before.
    pub(super) recovery: Cell<Option<Duration>>,
}

impl Stage<'_> {
    /// Waits for the next multiple of `every`; false when the row is over.
    pub(super) async fn next(&self, every: Duration) -> bool {
        let passed = self.begin.elapsed().as_nanos() / every.as_nanos() + 1;
        let at = self.begin + every * u32::try_from(passed).unwrap_or(u32::MAX);
        sleep_until(at.min(self.end)).await;
        at < self.end
    }

    /// Whether there is time for an attack with all its clients.
    pub(super) fn is_long(&self) -> bool {
        self.end - self.begin >= LONG
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Any node.
    pub(super) fn any_node(&self) -> usize {
        self.rng.borrow_mut().below(NODES)
    }
}

/// A row of this length, or a longer one, has all clients of its attack.
pub(super) const LONG: Duration = Duration::from_secs(20);
