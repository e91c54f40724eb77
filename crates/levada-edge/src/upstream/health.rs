//! Whether a server is up: probes (rise, fall) and what requests meet (ejection with backoff).

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use levada_types::Timestamp;
use parking_lot::Mutex;

use crate::{clock::Clock, settings::HealthCheck};

/// An ejection lasts at most this many times the first one.
const LONGEST_EJECTION: u32 = 32;

/// The health of one server. Requests read and report it without a lock while all is well.
pub(crate) struct Health {
    up: AtomicBool,
    /// Whether it has answered anybody since this was last asked.
    answered: AtomicBool,
    failed_in_a_row: AtomicU32,
    up_since: AtomicU64,
    state: Mutex<HealthState>,
}

#[derive(Default)]
struct HealthState {
    probes_failed: u32,
    probes_good: u32,
    down_by_probe: bool,
    ejected_until: Option<Timestamp>,
    ejections: u32,
}

/// What a report changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    Up,
    Down,
}

impl Default for Health {
    /// Up and warm: a node that starts must not hold its peers for dead, nor for newcomers.
    fn default() -> Self {
        Self {
            up: AtomicBool::new(true),
            answered: AtomicBool::new(false),
            failed_in_a_row: AtomicU32::new(0),
            up_since: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }
}

impl Health {
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Relaxed)
    }

    /// How far a server that came up at some point has got with its slow start, in 0..=1.
    pub(crate) fn ramp(&self, slow_start: Duration, now: Timestamp) -> f64 {
        let since = self.up_since.load(Relaxed);
        if since == 0 || slow_start.is_zero() {
            return 1.0;
        }
        let warm = now.since(Timestamp(since)).as_secs_f64() / slow_start.as_secs_f64();
        warm.clamp(0.05, 1.0)
    }

    /// Has it begin slowly now: it is new among others that are warm.
    pub(crate) fn begins(&self, now: Timestamp) {
        self.up_since.store(now.0.max(1), Relaxed);
    }

    /// Takes in the result of a probe.
    pub(crate) fn probed(&self, good: bool, check: &HealthCheck, now: Timestamp) -> Change {
        let mut state = self.state.lock();
        if good {
            state.probes_failed = 0;
            state.probes_good = state.probes_good.saturating_add(1);
            if state.probes_good >= check.rise {
                state.down_by_probe = false;
            }
        } else {
            state.probes_good = 0;
            state.probes_failed = state.probes_failed.saturating_add(1);
            if state.probes_failed >= check.fall {
                state.down_by_probe = true;
            }
        }
        self.settle(&mut state, now)
    }

    /// A request was served: the run of failures is over.
    pub(crate) fn served(&self) {
        if !self.answered.load(Relaxed) {
            self.answered.store(true, Relaxed);
        }
        if self.failed_in_a_row.load(Relaxed) != 0 {
            self.failed_in_a_row.store(0, Relaxed);
        }
    }

    /// A request failed by the server's fault: enough of them in a row eject it.
    pub(crate) fn failed(&self, check: &HealthCheck, now: Timestamp) -> Change {
        let failed = self.failed_in_a_row.fetch_add(1, Relaxed) + 1;
        if check.eject_after == 0 || failed < check.eject_after {
            return Change::None;
        }
        let mut state = self.state.lock();
        if state.ejected_until.is_some_and(|until| until > now) {
            return Change::None;
        }
        let times = (1u32 << state.ejections.min(5)).min(LONGEST_EJECTION);
        state.ejections = state.ejections.saturating_add(1);
        state.ejected_until = Some(now + check.eject_for * times);
        self.settle(&mut state, now)
    }

    /// Ends an ejection whose time is over. A server that then serves well for as long as the first
    /// ejection lasted is forgiven.
    pub(crate) fn tick(&self, check: &HealthCheck, now: Timestamp) -> Change {
        let mut state = self.state.lock();
        if let Some(until) = state.ejected_until {
            if until <= now && !self.is_up() {
                // One more failure ejects it again, for longer.
                self.failed_in_a_row.store(check.eject_after.saturating_sub(1), Relaxed);
            } else if until + check.eject_for * 2 <= now {
                state.ejected_until = None;
                state.ejections = 0;
            }
        }
        self.settle(&mut state, now)
    }

    fn settle(&self, state: &mut HealthState, now: Timestamp) -> Change {
        let ejected = state.ejected_until.is_some_and(|until| until > now);
        let up = !state.down_by_probe && !ejected;
        if self.up.swap(up, Relaxed) == up {
            return Change::None;
        }
        if up {
            self.up_since.store(now.0.max(1), Relaxed);
            return Change::Up;
        }
        Change::Down
    }
}

/// What the watcher needs of a server.
pub(crate) trait WatchedServer: Send + Sync + 'static {
    /// Who it is, for the log.
    fn name(&self) -> String;
    /// Its health.
    fn health(&self) -> &Health;
    /// Asks it whether it is well; the caller bounds the time.
    fn probe(&self) -> impl Future<Output = bool> + Send;
    /// Its health changed.
    fn changed(&self, change: Change);
    /// Whether a probe that has got no answer in time is outweighed by requests that have.
    fn counts_answers(&self) -> bool {
        false
    }
    /// Closes its connections that have been idle for too long.
    fn sweep(&self);
}

/// Watches one server for ever: probes it and ends its ejections.
pub(crate) async fn watch(server: Arc<impl WatchedServer>, check: HealthCheck, clock: Clock) {
    let period = if check.interval.is_zero() { check.eject_for / 4 } else { check.interval };
    let mut ticks = tokio::time::interval(period.max(Duration::from_millis(10)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        server.sweep();
        report(&*server, server.health().tick(&check, clock.now()));
        if check.interval.is_zero() {
            continue;
        }
        if let Some(good) = probe(&*server, check.timeout).await {
            report(&*server, server.health().probed(good, &check, clock.now()));
        }
    }
}

/// What a probe says of a server; nothing, when it has got no answer in time and others have: in a crowd
/// it may well be the probe that is lost.
async fn probe(server: &impl WatchedServer, timeout: Duration) -> Option<bool> {
    let health = server.health();
    health.answered.store(false, Relaxed);
    match tokio::time::timeout(timeout, server.probe()).await {
        Ok(good) => Some(good),
        Err(_) if server.counts_answers() && health.answered.load(Relaxed) => None,
        Err(_) => Some(false),
    }
}

/// Logs a change and passes it on.
pub(crate) fn report(server: &impl WatchedServer, change: Change) {
    match change {
        Change::None => return,
        Change::Up => tracing::info!(server = server.name(), "up again"),
        Change::Down => tracing::warn!(server = server.name(), "down"),
    }
    server.changed(change);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_secs(seconds)
    }

    #[test]
    fn rise_and_fall_count_in_a_row() {
        let (health, check) = (Health::default(), HealthCheck::default());
        assert_eq!(health.probed(false, &check, at(1)), Change::None);
        assert_eq!(health.probed(true, &check, at(2)), Change::None);
        assert_eq!(health.probed(false, &check, at(3)), Change::None);
        assert_eq!(health.probed(false, &check, at(4)), Change::Down);
        assert_eq!(health.probed(true, &check, at(5)), Change::None);
        assert_eq!(health.probed(true, &check, at(6)), Change::Up);
        assert!(health.is_up());
    }

    #[test]
    fn failed_requests_eject_for_longer_each_time() {
        let (health, check) = (Health::default(), HealthCheck::default());
        assert_eq!(health.failed(&check, at(1)), Change::None);
        assert_eq!(health.failed(&check, at(1)), Change::None);
        assert_eq!(health.failed(&check, at(1)), Change::Down);
        assert_eq!(health.tick(&check, at(5)), Change::None, "ejected for five seconds");
        assert_eq!(health.tick(&check, at(6)), Change::Up);
        assert_eq!(health.failed(&check, at(7)), Change::Down, "one failure is enough now");
        assert_eq!(health.tick(&check, at(16)), Change::None, "now for ten");
        assert_eq!(health.tick(&check, at(17)), Change::Up);
    }

    #[test]
    fn a_served_request_ends_the_run_of_failures() {
        let (health, check) = (Health::default(), HealthCheck::default());
        for _ in 0..10 {
            health.failed(&check, at(1));
            health.failed(&check, at(1));
            health.served();
        }
        assert!(health.is_up());
    }

    /// A server that answers no probe, but somebody else meanwhile.
    struct Crowded {
        health: Health,
        counts: bool,
        serves: bool,
    }

    impl WatchedServer for Crowded {
        fn name(&self) -> String {
            "crowded".to_owned()
        }

        fn health(&self) -> &Health {
            &self.health
        }

        async fn probe(&self) -> bool {
            if self.serves {
                self.health.served();
            }
            std::future::pending().await
        }

        fn changed(&self, _change: Change) {}

        fn counts_answers(&self) -> bool {
            self.counts
        }

        fn sweep(&self) {}
    }

    #[tokio::test]
    async fn server_that_answers_others_is_not_taken_for_dead_because_a_probe_is_lost() {
        for (counts, serves, said) in
            [(true, true, None), (true, false, Some(false)), (false, true, Some(false))]
        {
            let server = Crowded { health: Health::default(), counts, serves };
            assert_eq!(probe(&server, Duration::from_millis(5)).await, said);
        }
    }

    #[test]
    fn slow_start_counts_from_coming_up() {
        let (health, check) = (Health::default(), HealthCheck::default());
        let slow = Duration::from_secs(10);
        assert_eq!(health.ramp(slow, at(0)), 1.0, "who was never down is warm");
        for t in 1..5 {
            health.probed(t > 2, &check, at(t));
        }
        assert!((health.ramp(slow, at(9)) - 0.5).abs() < 1e-9);
        assert_eq!(health.ramp(slow, at(30)), 1.0);
    }
}
