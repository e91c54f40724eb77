//! Whether a server is up: probes (rise, fall) and outcomes of requests (ejection with backoff).

use std::{
    cell::Cell,
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use http::HeaderValue;
use levada_types::{
    Timestamp,
    text::{As, Time},
};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::{MutexGuard, Notify};

use crate::{
    Clock, Server, ServerFailure, ServerKind, SharedProbes,
    fault::LastFault,
    probes::{ProbeResult, SharedProbe},
};

/// Progress of requests is recent until the watch has looked this often.
const RECENT: u8 = 2;

/// The interval at which a request that waits for its server checks whether the server is still up. Most requests
/// are answered earlier.
pub(crate) const WAIT_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Servers are looked at no more often than this.
const SHORTEST_PERIOD: Duration = Duration::from_millis(10);

/// An ejection lasts at most this many times the first one.
const LONGEST_EJECTION: u32 = 32;

/// Health checks of servers, by probes and by the results of requests.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HealthCheck {
    /// Time between two probes of one server; `"0s"` switches probes off.
    #[schemars(extend("x-maximum" = "1h"))]
    #[serde(with = "As::<Time>")]
    pub interval: Duration,
    /// How long a probe may take.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1m"))]
    #[serde(with = "As::<Time>")]
    pub timeout: Duration,
    /// Successes in a row until a server that was down is up.
    #[schemars(range(min = 1, max = 100))]
    pub rise: u32,
    /// Failures in a row until a server that was up is down.
    #[schemars(range(min = 1, max = 100))]
    pub fall: u32,
    /// The path that a probe of an origin requests, with a leading `/`. Without it, connecting is enough.
    /// Probes of peers always send a request.
    #[schemars(regex(pattern = "^/"), extend("examples" = ["/healthz"]))]
    pub path: Option<String>,
    /// Failed requests in a row that eject a server at once, without waiting for a probe; 0 switches this
    /// off.
    #[schemars(range(max = 1000))]
    pub eject_after: u32,
    /// Time that an ejected server is out the first time; each further time doubles it, up to 32
    /// times.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "1h"))]
    #[serde(with = "As::<Time>")]
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
    /// Whether a head or a piece of a body has come since the last probe ended,
    answered: AtomicBool,
    /// and for how many more looks of the watch that is recent.
    recent: AtomicU8,
    failed_in_a_row: AtomicU32,
    up_since: AtomicU64,
    went_down: Notify,
    /// The thing that an operator has to mend.
    pub(crate) fault: LastFault,
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
            recent: AtomicU8::new(0),
            failed_in_a_row: AtomicU32::new(0),
            up_since: AtomicU64::new(0),
            went_down: Notify::new(),
            fault: LastFault::default(),
            state: Mutex::default(),
        }
    }
}

impl Health {
    /// Whether it is up.
    pub fn is_up(&self) -> bool {
        self.up.load(Relaxed)
    }

    /// Why it is down, in words; `None` if it is up.
    pub fn why_down(&self) -> Option<String> {
        if self.is_up() {
            return None;
        }
        let state = self.state.lock();
        let why = match (state.down_by_probe, state.probes_failed) {
            (true, 0) if state.probes_good > 0 => {
                "too few good probes since it was down".to_owned()
            }
            (true, 0) => "it has answered no probe yet".to_owned(),
            (true, failed) => format!("{failed} probes in a row failed"),
            (false, _) => "requests to it failed in a row".to_owned(),
        };
        Some(match self.fault.get() {
            Some(fault) => format!("{why}: {fault}"),
            None => why,
        })
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
            self.fault.set(None);
        }
    }

    /// A head or a piece of a body has come. What is written by all requests all the time is written once.
    pub(crate) fn progressed(&self) {
        if !self.answered.load(Relaxed) {
            self.answered.store(true, Relaxed);
        }
        if self.recent.load(Relaxed) != RECENT {
            self.recent.store(RECENT, Relaxed);
        }
    }

    /// Whether responses of the server have made progress lately: within the last two looks of the watch.
    pub fn is_moving(&self) -> bool {
        self.recent.load(Relaxed) > 0
    }

    /// The watch looks at the server: progress is less recent now. An update that meets progress may be lost.
    fn ages(&self) {
        self.recent.store(self.recent.load(Relaxed).saturating_sub(1), Relaxed);
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
    /// The host of its probes, if it is not that of its address.
    fn host(&self) -> Option<&HeaderValue> {
        None
    }
    /// Whether it is well; the caller bounds the time.
    fn probe(&self) -> impl Future<Output = bool> + Send {
        self.server().passes(self.check(), self.host())
    }
    /// Takes in that its health changed.
    fn changed(&self, change: Change);
    /// Takes in the time of the answer to a probe.
    fn measured(&self, _took: Duration) {}
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

    fn host(&self) -> Option<&HeaderValue> {
        W::host(self)
    }

    fn probe(&self) -> impl Future<Output = bool> + Send {
        W::probe(self)
    }

    fn changed(&self, change: Change) {
        W::changed(self, change);
    }

    fn measured(&self, took: Duration) {
        W::measured(self, took);
    }

    fn counts_answers(&self) -> bool {
        W::counts_answers(self)
    }
}

impl HealthCheck {
    /// The time between two looks at a server.
    fn period(&self) -> Duration {
        let period = if self.interval.is_zero() { self.eject_for / 4 } else { self.interval };
        period.max(SHORTEST_PERIOD)
    }
}

/// Spreads the first looks at many servers, so that neither they nor all later ones come at the same moment.
#[derive(Debug)]
pub struct FirstLooks<'a> {
    count: Cell<u32>,
    probes: &'a SharedProbes,
}

impl<'a> FirstLooks<'a> {
    pub(crate) fn new(probes: &'a SharedProbes) -> Self {
        Self { count: Cell::default(), probes }
    }

    /// The time until the first look at one more server: a millisecond after the one before, within the period.
    fn wait(&self, check: &HealthCheck) -> Duration {
        let number = self.count.get();
        self.count.set(number.wrapping_add(1));
        Duration::from_millis(u64::from(number) % check.period().as_millis() as u64)
    }
}

/// Watches one of many servers for ever, as [`watch`] does. Its probes are those of [`Server::passes`], which it shares.
pub fn watch_in_turn<W: WatchedServer>(
    watched: W,
    clock: Clock,
    looks: &FirstLooks<'_>,
) -> impl Future<Output = ()> + Send + use<W> {
    let wait = looks.wait(watched.check());
    let shared = looks.probes.of(watched.server(), watched.check(), watched.host());
    async move {
        tokio::time::sleep(wait).await;
        let _leads = follow(&watched, clock, &shared).await;
        lead(&watched, clock, &shared).await;
    }
}

/// Watches one server for ever: probes it, ends its ejections, and closes connections that have been idle
/// for too long.
pub async fn watch(watched: impl WatchedServer, clock: Clock) {
    lead(&watched, clock, &SharedProbe::default()).await;
}

/// Takes the results of another watch, as long as that leads. Returns with the lead.
async fn follow<'p>(
    watched: &impl WatchedServer,
    clock: Clock,
    shared: &'p SharedProbe,
) -> MutexGuard<'p, ()> {
    let (mut results, mut leads) = (shared.results.subscribe(), pin!(shared.leads.lock()));
    // A result that is there is as recent as any other.
    results.mark_changed();
    loop {
        tokio::select! {
            biased;
            leads = &mut leads => return leads,
            Ok(()) = results.changed() => {}
        }
        let result = *results.borrow_and_update();
        if let Some(result) = result {
            if matches!(result, ProbeResult::Good(_)) && watched.check().path.is_some() {
                watched.server().health.fault.set(None);
            }
            look(watched, clock);
            take_in(watched, result, clock);
        }
    }
}

/// Looks at a server and probes it, for ever.
async fn lead(watched: &impl WatchedServer, clock: Clock, shared: &SharedProbe) {
    let check = watched.check();
    let mut ticks = tokio::time::interval(check.period());
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut late = None;
    loop {
        ticks.tick().await;
        look(watched, clock);
        if check.interval.is_zero() {
            continue;
        }
        let result = probe(watched, &mut late).await;
        shared.results.send_replace(Some(result));
        take_in(watched, result, clock);
    }
}

/// Closes connections that have been idle for too long, and ends an ejection whose time is over.
fn look(watched: &impl WatchedServer, clock: Clock) {
    let server = watched.server();
    server.sweep();
    server.health.ages();
    report(watched, server.health.tick(watched.check(), clock.now()));
}

/// Takes in the result of a probe. It counts nothing if it got no answer in time and requests made progress since the
/// one before: on a full link the probe may be what is lost.
fn take_in(watched: &impl WatchedServer, result: ProbeResult, clock: Clock) {
    let health = &watched.server().health;
    let moved = health.answered.swap(false, Relaxed);
    if result == ProbeResult::Late && watched.counts_answers() && moved {
        return;
    }
    if let ProbeResult::Good(Some(took)) = result {
        watched.measured(took);
    }
    let good = matches!(result, ProbeResult::Good(_));
    report(watched, health.probed(good, watched.check(), clock.now()));
}

/// A probe under way.
type Probe<'w> = Pin<Box<dyn Future<Output = bool> + Send + 'w>>;

/// Probes a server. On a full link an answer may take longer than a probe may. The probe stays in `late` then, and its
/// answer counts while the next one is under way.
async fn probe<'w>(watched: &'w impl WatchedServer, late: &mut Option<Probe<'w>>) -> ProbeResult {
    let begun = Instant::now();
    let mut fresh: Probe<'w> = Box::pin(watched.probe());
    let answer = {
        let answered_late = async {
            let good = match late.take() {
                Some(late) => late.await,
                None => false,
            };
            if !good {
                std::future::pending::<()>().await;
            }
        };
        let either = async {
            tokio::select! {
                good = &mut fresh => (good, Some(begun.elapsed())),
                () = answered_late => (true, None),
            }
        };
        tokio::time::timeout(watched.check().timeout, either).await
    };
    match answer {
        Ok((true, took)) => ProbeResult::Good(took),
        Ok((false, _)) => ProbeResult::Bad,
        Err(_) => {
            *late = Some(fresh);
            ProbeResult::Late
        }
    }
}

/// Takes in the outcome of a request to a server.
pub fn report_outcome(watched: &impl WatchedServer, failure: Option<ServerFailure>, clock: Clock) {
    let health = &watched.server().health;
    match failure {
        None => health.served(),
        // On a busy server or link, other requests may be in its way.
        Some(failure) if failure.is_timeout() && health.is_moving() => {}
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

    #[test]
    fn server_that_is_down_tells_why() {
        let (check, health) = (HealthCheck::default(), Health::default());
        assert_eq!(health.why_down(), None);
        (0..2).for_each(|second| _ = health.probed(false, &check, at(second)));
        assert_eq!(health.why_down().as_deref(), Some("2 probes in a row failed"));
        let health = Health::default();
        (0..3).for_each(|_| _ = health.failed(&check, at(1)));
        assert_eq!(health.why_down().as_deref(), Some("requests to it failed in a row"));
    }

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
    fn first_looks_at_many_servers_come_one_after_another_within_the_period() {
        let (probes, check) = (SharedProbes::default(), HealthCheck::default());
        let looks = probes.first_looks();
        let waits: Vec<_> = (0..4_000).map(|_| looks.wait(&check).as_millis()).collect();
        let expected: Vec<u128> = (0..2_000).chain(0..2_000).collect();
        assert_eq!(waits, expected);
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

    fn server() -> Arc<Server> {
        let address = Address::Tcp { host: "localhost".to_owned(), port: 0 };
        let wait = Duration::from_secs(1);
        let bounds = ServerBounds {
            connections: 1,
            queue: 0,
            queue_timeout: wait,
            connect_timeout: wait,
            response_timeout: wait,
        };
        Server::new("crowded".into(), address, Wire::default(), bounds, 1)
    }

    fn crowded(counts: bool, serves: bool) -> Crowded {
        let timeout = Duration::from_millis(5);
        let check = HealthCheck { timeout, ..HealthCheck::default() };
        Crowded { server: server(), check, counts, serves }
    }

    /// Probes a server, and returns how many probes in a row have failed.
    async fn failed_probes(watched: &Crowded) -> u32 {
        take_in(watched, probe(watched, &mut None).await, Clock::start());
        watched.server.health.state.lock().probes_failed
    }

    #[tokio::test]
    async fn server_that_answers_others_is_not_taken_for_dead_because_a_probe_is_lost() {
        for (counts, serves, fails) in [(true, true, 0), (true, false, 1), (false, true, 1)] {
            assert_eq!(failed_probes(&crowded(counts, serves)).await, fails);
        }
    }

    #[tokio::test]
    async fn what_came_since_the_last_probe_outweighs_one_that_is_lost() {
        let server = crowded(true, false);
        server.server.health.progressed();
        assert_eq!(failed_probes(&server).await, 0);
        assert_eq!(failed_probes(&server).await, 1, "nothing came since");
    }

    #[tokio::test]
    async fn timeouts_do_not_eject_a_server_whose_responses_move() {
        let server = crowded(true, false);
        let clock = Clock::start();
        let times_out = || {
            let failures = [
                ServerFailure::ResponseTimeout,
                ServerFailure::Late,
                ServerFailure::ConnectTimeout,
            ];
            failures.iter().for_each(|failure| report_outcome(&server, Some(*failure), clock));
            server.server.health.is_up()
        };
        server.server.health.progressed();
        assert!(times_out() && times_out(), "the link is full");
        (0..RECENT).for_each(|_| server.server.health.ages());
        assert!(!times_out(), "nothing has moved for a while");
    }

    /// A server whose answers to probes take so long.
    struct Far(Arc<Server>, HealthCheck, Duration);

    impl WatchedServer for Far {
        const KIND: ServerKind = ServerKind::Peer;

        fn server(&self) -> &Arc<Server> {
            &self.0
        }

        fn check(&self) -> &HealthCheck {
            &self.1
        }

        async fn probe(&self) -> bool {
            tokio::time::sleep(self.2).await;
            true
        }

        fn changed(&self, _change: Change) {}
    }

    // The clock stands still, and goes on to the next timer when there is nothing to do.
    #[tokio::test(start_paused = true)]
    async fn answer_that_comes_while_the_next_probe_is_under_way_counts() {
        // Two seconds between probes, and a second for one.
        for (takes, stays_up) in [(2500, true), (3500, false)] {
            let server = server();
            let far = Far(server.clone(), HealthCheck::default(), Duration::from_millis(takes));
            let watching = watch(far, Clock::start());
            assert!(tokio::time::timeout(Duration::from_secs(60), watching).await.is_err());
            assert_eq!(server.health.is_up(), stays_up, "{takes} ms");
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
