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
//! breaks connections (the paper's companion work moves a route every 120 s at most). A node that is full again soon
//! after it has come back waits twice as long from then on. Where the node knows the routes of others, the law of
//! `others` holds as well, and the dwell counts from the last change of any of them.

use std::{sync::Arc, time::Duration};

use crate::announce::{
    OtherRoute, RouteLevel, RouteRules,
    others::{Among, RouteStanding},
};

/// The state of the node that a decision depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteView<'a> {
    /// The node drains.
    pub draining: bool,
    /// Every site has a server that is up.
    pub well: bool,
    /// Requests in service, relative to the node's capacity.
    pub load: f64,
    /// The requests that it may serve at once.
    pub capacity: u32,
    /// Its name, and the routes of the nodes that answer. Without others it decides alone.
    pub name: &'a str,
    /// See `name`.
    pub others: &'a [OtherRoute],
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
    /// The levels of other nodes, and when one of them has changed.
    levels: Vec<(Arc<str>, RouteLevel)>,
    moved_at: Duration,
    /// The part of all work that the node had when it last stepped back.
    part: Option<f64>,
    /// How often in a row it was full again soon after it had come back.
    relapses: u32,
}

impl Controller {
    /// A controller for a route that has not been announced yet.
    pub(crate) fn new(rules: RouteRules) -> Self {
        let (level, reason) = (RouteLevel::Withdrawn, RouteReason::Start);
        Self {
            rules,
            level,
            reason,
            since: Duration::ZERO,
            load: 0.0,
            decided_at: Duration::ZERO,
            levels: Vec::new(),
            moved_at: Duration::ZERO,
            part: None,
            relapses: 0,
        }
    }

    /// Decides again at `now`. Returns whether the level changed.
    pub(crate) fn decide(&mut self, now: Duration, view: &RouteView<'_>) -> bool {
        let passed = now.saturating_sub(self.decided_at);
        self.decided_at = now;
        let part = 1.0 - (-passed.as_secs_f64() / SMOOTHING.as_secs_f64()).exp();
        self.load += (view.load - self.load) * part;
        self.note_others(now, view.others);
        let (level, reason) = self.target(view);
        if level == self.level || now < self.earliest(reason) {
            return false;
        }
        if reason == RouteReason::Load {
            let soon = 2 * self.rules.dwell * (1 << self.relapses);
            let is_relapse = self.part.is_some() && now - self.since < soon;
            self.relapses = if is_relapse { (self.relapses + 1).min(MOST_RELAPSES) } else { 0 };
            self.part = Some(self.among(view).part());
        }
        (self.level, self.reason, self.since) = (level, reason, now);
        true
    }

    /// The words for other nodes.
    pub(crate) fn standing(&self, capacity: u32) -> RouteStanding {
        RouteStanding { level: self.level, load: self.load, capacity }
    }

    fn among<'a>(&self, view: &RouteView<'a>) -> Among<'a> {
        Among { name: view.name, own: self.standing(view.capacity), others: view.others }
    }

    fn note_others(&mut self, now: Duration, others: &[OtherRoute]) {
        let levels = others.iter().map(|other| (other.name.clone(), other.standing.level));
        let levels: Vec<_> = levels.collect();
        if self.levels != levels {
            (self.levels, self.moved_at) = (levels, now);
        }
    }

    /// Withdraws the route for good.
    pub(crate) fn stop(&mut self, now: Duration) {
        (self.level, self.reason, self.since) = (RouteLevel::Withdrawn, RouteReason::Stop, now);
    }

    fn target(&self, view: &RouteView<'_>) -> (RouteLevel, RouteReason) {
        match view {
            _ if self.reason == RouteReason::Stop => (RouteLevel::Withdrawn, RouteReason::Stop),
            RouteView { draining: true, .. } => (RouteLevel::Withdrawn, RouteReason::Drain),
            RouteView { well: false, .. } => match self.rules.unwell {
                RouteLevel::Withdrawn if self.among(view).is_last() => {
                    (RouteLevel::Announced, RouteReason::Health)
                }
                unwell => (unwell, RouteReason::Health),
            },
            _ if self.is_full(view) => (RouteLevel::Backup, RouteReason::Load),
            _ => (RouteLevel::Announced, RouteReason::Well),
        }
    }

    /// Whether load makes the route a backup. Hysteresis: a backup stays one until the load is at or below low.
    fn is_full(&self, view: &RouteView<'_>) -> bool {
        let Some((high, low)) = self.rules.load_high.zip(self.rules.load_low) else { return false };
        let (among, is_alone) = (self.among(view), view.others.is_empty());
        match (self.level, self.reason, self.part) {
            (RouteLevel::Backup, RouteReason::Load, Some(part)) if !is_alone => {
                !among.comes_back(part, &self.rules)
            }
            (RouteLevel::Backup, ..) => self.load > low,
            _ => self.load >= high && (is_alone || among.may_step_back(high)),
        }
    }

    /// The time before which a change for this reason waits.
    fn earliest(&self, reason: RouteReason) -> Duration {
        let RouteRules { dwell, .. } = self.rules;
        let (longer, moved_at) = (dwell * (1 << self.relapses), self.since.max(self.moved_at));
        match (self.reason, reason) {
            // The end of a drain and the first announcement take effect at once.
            (RouteReason::Start | RouteReason::Drain | RouteReason::Stop, _) => Duration::ZERO,
            // A node alone rests longer as a backup. One that knows the others comes back when they need it, and is
            // slower to leave them again.
            (_, RouteReason::Load) if self.levels.is_empty() => self.since + dwell,
            (_, RouteReason::Load) => moved_at + longer,
            (RouteReason::Load, RouteReason::Well) if self.levels.is_empty() => self.since + longer,
            (RouteReason::Load, RouteReason::Well) => moved_at + dwell,
            (_, RouteReason::Well) => self.since + dwell,
            _ => Duration::ZERO,
        }
    }
}

/// The longest wait of a node that is full again and again: 16 times the dwell.
const MOST_RELAPSES: u32 = 4;

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

    fn alone(draining: bool, well: bool, load: f64) -> RouteView<'static> {
        RouteView { draining, well, load, capacity: 100, name: "a", others: &[] }
    }

    fn follow(rules: RouteRules, lines: &[Line]) {
        let mut controller = Controller::new(rules);
        let ends = lines.iter().skip(1).map(|line| line.0).chain([lines[lines.len() - 1].0 + 1]);
        for ((from, (draining, well, load), level, reason), end) in lines.iter().zip(ends) {
            for second in *from..end {
                controller.decide(Duration::from_secs(second), &alone(*draining, *well, *load));
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
        let view = alone(false, true, 0.0);
        assert!(controller.decide(Duration::from_secs(1), &view));
        controller.stop(Duration::from_secs(2));
        assert!(!controller.decide(Duration::from_secs(500), &view));
        assert_eq!(
            (controller.level, controller.reason),
            (RouteLevel::Withdrawn, RouteReason::Stop)
        );
    }

    /// Nodes of one service in time, each with its clients' requests. The clients of a node whose route is a backup, or
    /// is gone, come to all that are announced, or only to the next one.
    struct Service {
        controllers: Vec<Controller>,
        is_split: bool,
        second: u64,
        /// Changes of routes, and seconds in which no node was announced.
        changes: usize,
        bare: usize,
    }

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    impl Service {
        fn new(nodes: usize, rules: RouteRules) -> Self {
            let controllers = (0..nodes).map(|_| Controller::new(rules)).collect();
            Self { controllers, is_split: true, second: 0, changes: 0, bare: 0 }
        }

        fn levels(&self) -> Vec<RouteLevel> {
            self.controllers.iter().map(|one| one.level).collect()
        }

        /// The load of each node when these are the loads of their clients.
        fn loads(&self, clients: &[f64]) -> Vec<f64> {
            let (count, levels) = (clients.len(), self.levels());
            let mut loads = vec![0.0; count];
            let best = levels.iter().max().copied().unwrap_or(RouteLevel::Withdrawn);
            for (at, load) in clients.iter().enumerate() {
                let served = (at..at + count).map(|node| node % count);
                let mut served: Vec<_> = served.filter(|node| levels[*node] == best).collect();
                if levels[at] == best || !self.is_split {
                    served.truncate(1);
                }
                served.iter().for_each(|node| loads[*node] += load / served.len() as f64);
            }
            loads
        }

        fn run(&mut self, seconds: u64, clients: &[f64], well: impl Fn(usize) -> bool) {
            for _ in 0..seconds {
                self.second += 1;
                let (loads, now) = (self.loads(clients), Duration::from_secs(self.second));
                let routes: Vec<_> = self.controllers.iter().map(|one| one.standing(100)).collect();
                for (at, controller) in self.controllers.iter_mut().enumerate() {
                    let others = routes.iter().enumerate().filter(|(other, _)| *other != at);
                    let others: Vec<_> = others
                        .map(|(other, standing)| OtherRoute {
                            name: NAMES[other].into(),
                            standing: *standing,
                        })
                        .collect();
                    let view = RouteView {
                        load: loads[at],
                        well: well(at),
                        name: NAMES[at],
                        others: &others,
                        ..alone(false, true, 0.0)
                    };
                    self.changes += usize::from(controller.decide(now, &view));
                }
                let has_route = |level: &RouteLevel| *level != RouteLevel::Withdrawn;
                self.bare += usize::from(self.second > 2 && !self.levels().iter().any(has_route));
            }
        }
    }

    #[test]
    fn full_node_steps_back_once_and_returns_once_its_clients_want_less() {
        let mut service = Service::new(3, RULES);
        service.run(7200, &[1.0, 0.2, 0.2], |_| true);
        assert_eq!(service.levels()[0], RouteLevel::Backup);
        assert_eq!(service.changes, 3 + 1, "all stay as they are");
        service.run(600, &[0.5, 0.1, 0.1], |_| true);
        assert_eq!((service.levels()[0], service.changes), (RouteLevel::Announced, 3 + 2));
    }

    #[test]
    fn node_whose_clients_overload_another_comes_back_and_leaves_ever_more_rarely() {
        let mut service = Service { is_split: false, ..Service::new(3, RULES) };
        service.run(200, &[1.0, 0.2, 0.2], |_| true);
        assert_eq!(service.levels()[0], RouteLevel::Backup);
        service.run(4000, &[1.0, 0.2, 0.2], |_| true);
        assert_eq!(service.levels()[0], RouteLevel::Announced, "the next one got more");
        assert!(service.changes <= 3 + 10, "{}", service.changes);
        assert_eq!(service.bare, 0);
    }

    #[test]
    fn where_all_are_full_no_route_moves() {
        let mut service = Service::new(4, RULES);
        service.run(7200, &[1.2, 1.1, 0.9, 1.0], |_| true);
        assert_eq!((service.changes, service.bare), (4, 0));
    }

    #[test]
    fn last_route_of_a_service_is_not_withdrawn() {
        let mut service = Service::new(3, RouteRules { unwell: RouteLevel::Withdrawn, ..RULES });
        service.run(300, &[0.1; 3], |_| true);
        service.run(1, &[0.1; 3], |node| node == 2);
        service.run(5, &[0.1; 3], |node| node == 2);
        assert_eq!(service.levels()[..2], [RouteLevel::Withdrawn; 2]);
        service.run(600, &[0.1; 3], |_| false);
        assert_eq!(service.levels()[2], RouteLevel::Announced, "it was the last");
        service.run(300, &[0.1; 3], |node| node == 1);
        assert_eq!(service.levels()[1..], [RouteLevel::Announced, RouteLevel::Withdrawn]);
        assert_eq!(service.bare, 0);
        service.run(300, &[0.1; 3], |_| true);
        service.run(60, &[0.1; 3], |_| false);
        let announced =
            service.levels().iter().filter(|one| **one == RouteLevel::Announced).count();
        assert_eq!((announced, service.bare), (1, 1), "all at the same time");
    }
}
