//! Decides how a node's route is announced, without clock or socket.
//!
//! ```text
//!            drain, stop: at once
//!   announced ───────────────────> withdrawn
//!      │ ▲  <───────────────────── (back: at once)
//!      │ │ well, and load at or below low: after the dwell
//!      ▼ │
//!    backup     load at or above high: after the dwell; unwell: at once
//! ```
//!
//! Load never withdraws a route: the other nodes would get its load, and would withdraw one after the
//! other. A backup route is used only where no other node's route is, so that when all routes are
//! backups none has lost anything. The dwell time keeps a route from flapping, since every change
//! breaks connections (the paper's companion work moves a route every 120 s at most).

use std::time::Duration;

use crate::announce::{RouteLevel, RouteRules};

/// The state of the node that a decision depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteView {
    /// The node drains.
    pub draining: bool,
    /// Every site has a server that is up.
    pub well: bool,
    /// Requests in service, relative to the node's capacity.
    pub load: f64,
}

/// The reason of a route's level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RouteReason {
    Start,
    Drain,
    Stop,
    Health,
    Load,
    /// The node is well, and its load is low.
    Well,
}

impl RouteReason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Drain => "drain",
            Self::Stop => "stop",
            Self::Health => "health",
            Self::Load => "load",
            Self::Well => "well",
        }
    }
}

/// The last decision, and the state that the next one depends on.
#[derive(Debug)]
pub(crate) struct Controller {
    rules: RouteRules,
    pub(crate) level: RouteLevel,
    pub(crate) reason: RouteReason,
    /// The time of the decision, since the node's start.
    pub(crate) since: Duration,
    /// Smoothed, so that a short peak does not move the route.
    pub(crate) load: f64,
    decided_at: Duration,
}

impl Controller {
    /// A controller for a route that has not been announced yet.
    pub(crate) fn new(rules: RouteRules) -> Self {
        let (level, reason) = (RouteLevel::Withdrawn, RouteReason::Start);
        Self { rules, level, reason, since: Duration::ZERO, load: 0.0, decided_at: Duration::ZERO }
    }

    /// Decides again at `now`. Returns whether the level changed.
    pub(crate) fn decide(&mut self, now: Duration, view: &RouteView) -> bool {
        let passed = now.saturating_sub(self.decided_at);
        self.decided_at = now;
        let part = 1.0 - (-passed.as_secs_f64() / SMOOTHING.as_secs_f64()).exp();
        self.load += (view.load - self.load) * part;
        let (level, reason) = self.target(view);
        let dwells = now.saturating_sub(self.since) < self.rules.dwell;
        if level == self.level || (dwells && self.waits_for_dwell(reason)) {
            return false;
        }
        (self.level, self.reason, self.since) = (level, reason, now);
        true
    }

    /// Withdraws the route for good.
    pub(crate) fn stop(&mut self, now: Duration) {
        (self.level, self.reason, self.since) = (RouteLevel::Withdrawn, RouteReason::Stop, now);
    }

    fn target(&self, view: &RouteView) -> (RouteLevel, RouteReason) {
        let RouteRules { unwell, load_high, load_low, .. } = self.rules;
        let is_backup = self.level == RouteLevel::Backup;
        let threshold = if is_backup { load_low } else { load_high };
        match view {
            _ if self.reason == RouteReason::Stop => (RouteLevel::Withdrawn, RouteReason::Stop),
            RouteView { draining: true, .. } => (RouteLevel::Withdrawn, RouteReason::Drain),
            RouteView { well: false, .. } => (unwell, RouteReason::Health),
            // Hysteresis: a backup stays one until the load is at or below low.
            _ if threshold.is_some_and(|at| self.load > at || (!is_backup && self.load >= at)) => {
                (RouteLevel::Backup, RouteReason::Load)
            }
            _ => (RouteLevel::Announced, RouteReason::Well),
        }
    }

    /// Whether a change for this reason waits for the dwell time.
    fn waits_for_dwell(&self, reason: RouteReason) -> bool {
        match reason {
            RouteReason::Start | RouteReason::Drain | RouteReason::Stop | RouteReason::Health => {
                false
            }
            // The end of a drain and the first announcement take effect at once.
            RouteReason::Load | RouteReason::Well => {
                !matches!(self.reason, RouteReason::Start | RouteReason::Drain | RouteReason::Stop)
            }
        }
    }
}

/// The time constant of the smoothed load: after this time it has covered two thirds of a change.
const SMOOTHING: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: RouteRules = RouteRules {
        dwell: Duration::from_secs(120),
        load_high: Some(0.9),
        load_low: Some(0.6),
        unwell: RouteLevel::Backup,
    };

    /// The view from a second on, and the expected route at the next line.
    type Line = (u64, (bool, bool, f64), RouteLevel, RouteReason);

    fn follow(rules: RouteRules, lines: &[Line]) {
        let mut controller = Controller::new(rules);
        let ends = lines.iter().skip(1).map(|line| line.0).chain([lines[lines.len() - 1].0 + 1]);
        for ((from, (draining, well, load), level, reason), end) in lines.iter().zip(ends) {
            for second in *from..end {
                let view = RouteView { draining: *draining, well: *well, load: *load };
                controller.decide(Duration::from_secs(second), &view);
            }
            let found = (controller.level, controller.reason);
            assert_eq!(found, (*level, *reason), "from {from} to {end}: {controller:?}");
        }
    }

    const WELL: (bool, bool, f64) = (false, true, 0.1);

    #[test]
    fn a_node_that_is_well_is_announced_at_once_and_a_drain_goes_before_all() {
        follow(
            RULES,
            &[
                (0, WELL, RouteLevel::Announced, RouteReason::Well),
                (5, (true, true, 0.1), RouteLevel::Withdrawn, RouteReason::Drain),
                (6, (true, false, 2.0), RouteLevel::Withdrawn, RouteReason::Drain),
                (7, WELL, RouteLevel::Announced, RouteReason::Well),
            ],
        );
    }

    #[test]
    fn load_makes_it_a_backup_after_the_dwell_and_not_for_a_moment() {
        follow(
            RULES,
            &[
                (0, WELL, RouteLevel::Announced, RouteReason::Well),
                (60, (false, true, 1.0), RouteLevel::Announced, RouteReason::Well),
                (120, (false, true, 1.0), RouteLevel::Backup, RouteReason::Load),
                // Below high is not yet low.
                (130, (false, true, 0.7), RouteLevel::Backup, RouteReason::Load),
                (300, (false, true, 0.5), RouteLevel::Backup, RouteReason::Load),
                (303, (false, true, 0.5), RouteLevel::Announced, RouteReason::Well),
                (500, (false, true, 2.0), RouteLevel::Announced, RouteReason::Well),
                (503, WELL, RouteLevel::Announced, RouteReason::Well),
            ],
        );
    }

    #[test]
    fn load_never_withdraws() {
        let rules = RouteRules { load_high: None, load_low: None, ..RULES };
        follow(rules, &[(0, (false, true, 9.0), RouteLevel::Announced, RouteReason::Well)]);
        follow(
            RULES,
            &[
                (0, WELL, RouteLevel::Announced, RouteReason::Well),
                (200, (false, true, 9.0), RouteLevel::Backup, RouteReason::Load),
                (900, (false, true, 9.0), RouteLevel::Backup, RouteReason::Load),
            ],
        );
    }

    #[test]
    fn an_unwell_node_goes_at_once_and_comes_back_after_the_dwell() {
        for unwell in [RouteLevel::Backup, RouteLevel::Withdrawn] {
            follow(
                RouteRules { unwell, ..RULES },
                &[
                    (0, WELL, RouteLevel::Announced, RouteReason::Well),
                    (10, (false, false, 0.1), unwell, RouteReason::Health),
                    (12, WELL, unwell, RouteReason::Health),
                    (129, WELL, unwell, RouteReason::Health),
                    (130, WELL, RouteLevel::Announced, RouteReason::Well),
                    (131, (false, false, 0.1), unwell, RouteReason::Health),
                ],
            );
        }
    }

    #[test]
    fn a_node_that_stops_is_not_announced_again() {
        let mut controller = Controller::new(RULES);
        let view = RouteView { draining: false, well: true, load: 0.0 };
        assert!(controller.decide(Duration::from_secs(1), &view));
        controller.stop(Duration::from_secs(2));
        assert!(!controller.decide(Duration::from_secs(500), &view));
        assert_eq!(
            (controller.level, controller.reason),
            (RouteLevel::Withdrawn, RouteReason::Stop)
        );
    }
}
