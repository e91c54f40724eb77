//! Whether a server is up: probes (rise, fall) and outcomes of requests (ejection with backoff).

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
use tokio::sync::Notify;

use crate::{Clock, Server, ServerFailure, ServerKind};

/// An ejection lasts at most this many times the first one.
const LONGEST_EJECTION: u32 = 32;

/// How a server is watched: by probes and by the outcomes of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthCheck {
    /// Time between two probes of one server; zero switches active checks off.
    pub interval: Duration,
    /// How long a probe may take.
    pub timeout: Duration,
    /// Successes in a row until a server that is down counts as up.
    pub rise: u32,
    /// Failures in a row until a server that is up counts as down.
    pub fall: u32,
    /// The path of a probe of an origin; `None` only connects. A peer has a path of its own.
    pub path: Option<String>,
    /// Failed requests in a row that eject a server without waiting for a probe; 0 never does.
    pub eject_after: u32,
    /// How long the first ejection lasts; it doubles each time, up to 32 times this.
    pub eject_for: Duration,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 2,
            path: None,
            eject_after: 3,
            eject_for: Duration::from_secs(5),
        }
    }
}

/// The health of one server. Requests read and report it without a lock while all is well.
pub struct Health {
    up: AtomicBool,
    /// Whether a head or a piece of a body has come since the flag was reset: by a probe,
    answered: AtomicBool,
    /// and by a request that took too long.
    moved: AtomicBool,
    failed_in_a_row: AtomicU32,
    up_since: AtomicU64,
    went_down: Notify,
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

/// The change of health that a report caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// None.
    None,
    /// It came up.
    Up,
    /// It went down.
    Down,
}

impl Default for Health {
    /// Up and warm: a node that starts must regard its peers neither as dead nor as new.
    fn default() -> Self {
        Self {
            up: AtomicBool::new(true),
            answered: AtomicBool::new(false),
            moved: AtomicBool::new(false),
            failed_in_a_row: AtomicU32::new(0),
            up_since: AtomicU64::new(0),
            went_down: Notify::new(),
            state: Mutex::default(),
        }
    }
}

impl Health {
    /// Whether it is up.
    pub fn is_up(&self) -> bool {
        self.up.load(Relaxed)
    }

    /// Returns when it is down.
    pub async fn down(&self) {
        loop {
            let went_down = self.went_down.notified();
            if !self.is_up() {
                return;
            }
            went_down.await;
        }
    }

    /// The progress of the server's slow start, in 0..=1.
    pub fn ramp(&self, slow_start: Duration, now: Timestamp) -> f64 {
        let since = self.up_since.load(Relaxed);
        if since == 0 || slow_start.is_zero() {
            return 1.0;
        }
        let warm = now.since(Timestamp(since)).as_secs_f64() / slow_start.as_secs_f64();
        warm.clamp(0.05, 1.0)
    }

    /// Starts its slow start now, because it is new among servers that are warm.
    pub fn begins(&self, now: Timestamp) {
        self.up_since.store(now.0.max(1), Relaxed);
    }

    /// Takes it for down until the next good probe, with which its slow start begins: it is new, and may not be
    /// there yet.
    pub fn awaits_probe(&self, check: &HealthCheck) {
        let mut state = self.state.lock();
        state.down_by_probe = true;
        state.probes_good = check.rise.saturating_sub(1);
        self.up.store(false, Relaxed);
    }

    /// Takes in the result of a probe.
    pub fn probed(&self, good: bool, check: &HealthCheck, now: Timestamp) -> Change {
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
    pub fn served(&self) {
        self.progressed();
        if self.failed_in_a_row.load(Relaxed) != 0 {
            self.failed_in_a_row.store(0, Relaxed);
        }
    }

    /// A head or a piece of a body has come. What is written by all requests all the time is written once.
    pub(crate) fn progressed(&self) {
        for flag in [&self.answered, &self.moved] {
            if !flag.load(Relaxed) {
                flag.store(true, Relaxed);
            }
        }
    }

    /// A request failed by the server's fault: enough of them in a row eject it.
    pub fn failed(&self, check: &HealthCheck, now: Timestamp) -> Change {
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
    pub fn tick(&self, check: &HealthCheck, now: Timestamp) -> Change {
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
        self.went_down.notify_waiters();
        Change::Down
    }
}

/// A server under watch.
pub trait WatchedServer: Send + Sync {
    /// The kind of the server.
    const KIND: ServerKind;
    /// The server.
    fn server(&self) -> &Arc<Server>;
    /// How it is watched.
    fn check(&self) -> &HealthCheck;
    /// Whether it is well; the caller bounds the time.
    fn probe(&self) -> impl Future<Output = bool> + Send;
    /// Takes in that its health changed.
    fn changed(&self, change: Change);
    /// Whether the progress of requests outweighs a probe that got no answer in time.
    fn counts_answers(&self) -> bool {
        false
    }
}

impl<W: WatchedServer> WatchedServer for Arc<W> {
    const KIND: ServerKind = W::KIND;

    fn server(&self) -> &Arc<Server> {
        W::server(self)
    }

    fn check(&self) -> &HealthCheck {
        W::check(self)
    }

    fn probe(&self) -> impl Future<Output = bool> + Send {
        W::probe(self)
    }

    fn changed(&self, change: Change) {
        W::changed(self, change);
    }

    fn counts_answers(&self) -> bool {
        W::counts_answers(self)
    }
}

/// Watches one server for ever: probes it, ends its ejections, and closes connections that have been idle
/// for too long.
pub async fn watch(watched: impl WatchedServer, clock: Clock) {
    let (server, check) = (watched.server(), watched.check());
    let period = if check.interval.is_zero() { check.eject_for / 4 } else { check.interval };
    let mut ticks = tokio::time::interval(period.max(Duration::from_millis(10)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        server.sweep();
        report(&watched, server.health.tick(check, clock.now()));
        if check.interval.is_zero() {
            continue;
        }
        if let Some(good) = probe(&watched).await {
            report(&watched, server.health.probed(good, check, clock.now()));
        }
    }
}

/// The result of a probe. `None` if it got no answer in time and requests made progress: on a busy server or
/// link the probe may be what is lost.
async fn probe(watched: &impl WatchedServer) -> Option<bool> {
    let health = &watched.server().health;
    health.answered.store(false, Relaxed);
    match tokio::time::timeout(watched.check().timeout, watched.probe()).await {
        Ok(good) => Some(good),
        Err(_) if watched.counts_answers() && health.answered.load(Relaxed) => None,
        Err(_) => Some(false),
    }
}

/// Takes in the outcome of a request to a server.
pub fn report_outcome(watched: &impl WatchedServer, failure: Option<ServerFailure>, clock: Clock) {
    let health = &watched.server().health;
    match failure {
        None => health.served(),
        // On a busy server or link, other requests may be in its way.
        Some(failure) if failure.is_timeout() && health.moved.swap(false, Relaxed) => {}
        Some(failure) if failure.blames_server() => {
            report(watched, health.failed(watched.check(), clock.now()));
        }
        Some(_) => {}
    }
}

/// Logs a change and passes it on.
fn report<W: WatchedServer>(watched: &W, change: Change) {
    let name = || format!("{} {}", W::KIND.as_str(), watched.server().name);
    match change {
        Change::None => return,
        Change::Up => tracing::info!(server = name(), "up again"),
        Change::Down => tracing::warn!(server = name(), "down"),
    }
    watched.changed(change);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, ServerBounds, Wire};

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
    fn one_good_probe_shows_that_a_new_server_is_there() {
        let (health, check) = (Health::default(), HealthCheck::default());
        health.awaits_probe(&check);
        assert!(!health.is_up());
        assert_eq!(health.probed(false, &check, at(1)), Change::None);
        assert_eq!(health.probed(true, &check, at(2)), Change::None, "as any other from now on");
        health.awaits_probe(&check);
        assert_eq!(health.probed(true, &check, at(3)), Change::Up);
        assert!(health.ramp(Duration::from_secs(10), at(4)) < 1.0);
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

    /// A server that answers no probe, but other requests meanwhile.
    struct Crowded {
        server: Arc<Server>,
        check: HealthCheck,
        counts: bool,
        serves: bool,
    }

    impl WatchedServer for Crowded {
        const KIND: ServerKind = ServerKind::Peer;

        fn server(&self) -> &Arc<Server> {
            &self.server
        }

        fn check(&self) -> &HealthCheck {
            &self.check
        }

        async fn probe(&self) -> bool {
            if self.serves {
                self.server.health.served();
            }
            std::future::pending().await
        }

        fn changed(&self, _change: Change) {}

        fn counts_answers(&self) -> bool {
            self.counts
        }
    }

    #[tokio::test]
    async fn server_that_answers_others_is_not_taken_for_dead_because_a_probe_is_lost() {
        for (counts, serves, said) in
            [(true, true, None), (true, false, Some(false)), (false, true, Some(false))]
        {
            let address = Address::Tcp { host: "localhost".to_owned(), port: 0 };
            let wait = Duration::from_secs(1);
            let bounds = ServerBounds {
                connections: 1,
                queue: 0,
                queue_timeout: wait,
                connect_timeout: wait,
                response_timeout: wait,
            };
            let server = Server::new("crowded".into(), address, Wire::default(), bounds, 1);
            let timeout = Duration::from_millis(5);
            let check = HealthCheck { timeout, ..HealthCheck::default() };
            assert_eq!(probe(&Crowded { server, check, counts, serves }).await, said);
        }
    }

    #[test]
    fn slow_start_counts_from_coming_up() {
        let (health, check) = (Health::default(), HealthCheck::default());
        let slow = Duration::from_secs(10);
        assert_eq!(health.ramp(slow, at(0)), 1.0, "a server that was never down is warm");
        for t in 1..5 {
            health.probed(t > 2, &check, at(t));
        }
        assert!((health.ramp(slow, at(9)) - 0.5).abs() < 1e-9);
        assert_eq!(health.ramp(slow, at(30)), 1.0);
    }
}
