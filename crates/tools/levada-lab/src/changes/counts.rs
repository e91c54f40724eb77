//! The counts of a row.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use levada_testbed::cluster::{
    percentile,
    problems::{Problem, Problems},
};

/// The part of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// The caches fill.
    #[default]
    WarmUp,
    /// Load without changes.
    Before,
    /// Load with changes.
    During,
}

/// All requests of a row.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    phase: Cell<Phase>,
    /// Requests while the cluster changed.
    pub(super) requests: Cell<u64>,
    /// Requests that were sent again because a kept connection had been closed.
    pub(super) resent: Cell<u64>,
    pub(super) problems: RefCell<Problems>,
    before: RefCell<Vec<Duration>>,
    during: RefCell<Vec<Duration>>,
}

impl Counts {
    pub(super) fn enter(&self, phase: Phase) {
        self.phase.set(phase);
    }

    /// Counts a request that began now.
    pub(super) fn begun(&self) -> Phase {
        if self.phase.get() == Phase::During {
            self.requests.set(self.requests.get() + 1);
        }
        self.phase.get()
    }

    /// Counts that a small response took this long.
    pub(super) fn took(&self, begun: Phase, time: Duration) {
        match begun {
            Phase::WarmUp => {}
            Phase::Before => self.before.borrow_mut().push(time),
            Phase::During => self.during.borrow_mut().push(time),
        }
    }

    pub(super) fn resent(&self) {
        self.resent.set(self.resent.get() + 1);
    }

    /// Counts a request that went wrong, in whatever phase.
    pub(super) fn problem(&self, problem: Problem, reason: &str) {
        self.problems.borrow_mut().note(Err((problem, reason.to_lowercase())));
    }

    /// The 99th percentiles of small responses before and during the changes.
    pub(super) fn p99(&self) -> (Duration, Duration) {
        (percentile(&self.before.borrow(), 99), percentile(&self.during.borrow(), 99))
    }
}
