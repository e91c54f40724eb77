//! Measurement during a run, and its conclusion.

mod conclude;
mod egress;
mod histogram;
mod losses;

use std::collections::VecDeque;

pub(crate) use egress::Egress;
pub(crate) use histogram::Histogram;
use levada_policy::ParameterValue;
use levada_topology::Topology;
use levada_types::Timestamp;

use self::losses::Losses;
use crate::{End, Prepared, network::Network, server::Server, workload::Ramp};

/// The interval of points of curves and of utilisation checkpoints, in nanoseconds: the step of the
/// papers' ramp.
pub(crate) const TICK: u64 = 6_000_000_000;

/// The definition of capacity looks back this many ticks: 30 s (OSDI'02 Sec. 4.3).
const LOOK_BACK: usize = 5;

/// Latencies are collected for requests sent while the rate was this near to the requested one.
const NEAR: f64 = 0.025;

pub(crate) struct Collector {
    warm_up: Timestamp,
    latency: Histogram,
    windows: Vec<RateWindow>,
    ticks: Vec<Tick>,
    checkpoints: VecDeque<Checkpoint>,
    /// After the warm-up: requests sent, finished, found in memory, found on the disk of the cache, confirmed by
    /// the origin, and fetched.
    sent: u64,
    finished: u64,
    hits: u64,
    disk_hits: u64,
    confirmed: u64,
    misses: u64,
    /// Whether documents expire.
    expires: bool,
    /// Whether there is a disk tier.
    has_disk: bool,
    moved: u64,
    last_server: Vec<u32>,
    loads: Vec<ServerLoad>,
    /// A server with fewer outstanding requests than this counts as idle.
    low: u32,
    replicas: Vec<(f64, f64)>,
    seen: Vec<u32>,
    /// Where servers fail.
    losses: Option<Losses>,
    /// Where front-ends hold documents.
    front_ends: Option<FrontUse>,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A copy in memory that may answer at once.
    Fresh,
    /// A copy on the disk of the cache, or on its way from there.
    OnDisk,
    /// A copy that the origin has confirmed first.
    Confirmed,
    /// No copy, or one that may not answer.
    Missing,
}

/// The work of front-ends after the warm-up: requests that they answer, the bytes of these, and those of all.
#[derive(Clone, Copy, Default)]
struct FrontUse {
    hits: u64,
    bytes: u64,
    all_bytes: u64,
}

/// Requests sent around one rate.
struct RateWindow {
    rate: u32,
    from: Timestamp,
    to: Timestamp,
    latency: Histogram,
}

#[derive(Clone, Copy, Default)]
struct Tick {
    finished: u64,
    hits: u64,
    latency: f64,
    offered: f64,
}

struct Checkpoint {
    time: Timestamp,
    /// CPU and disks of each server, in nanoseconds.
    worked: Vec<(u64, u64)>,
}

/// A server's outstanding requests, and how long it was idle.
#[derive(Clone, Copy, Default)]
struct ServerLoad {
    outstanding: u32,
    since: Timestamp,
    low: u64,
}

impl Collector {
    pub(crate) fn new(prepared: &Prepared, documents: usize, servers: usize) -> Self {
        let (measure, workload) = (&prepared.scenario.measure, &prepared.scenario.workload);
        let window = |rate: &u32| {
            let ramp = Ramp::new(workload.rate, workload.growth, workload.step.0);
            let (from, to) =
                ramp.between(f64::from(*rate) * (1.0 - NEAR), f64::from(*rate) * (1.0 + NEAR));
            RateWindow { rate: *rate, from, to, latency: Histogram::new() }
        };
        let t_low = match prepared.scenario.policy.parameters.get("t_low") {
            Some(ParameterValue::Integer(low)) => *low as f64,
            _ => 25.0,
        };
        Self {
            warm_up: Timestamp::ZERO + measure.warm_up.0,
            latency: Histogram::new(),
            windows: measure.latency_at.iter().map(window).collect(),
            ticks: Vec::new(),
            checkpoints: VecDeque::new(),
            sent: 0,
            finished: 0,
            hits: 0,
            disk_hits: 0,
            confirmed: 0,
            misses: 0,
            expires: !prepared.scenario.freshness.class.is_empty(),
            has_disk: prepared.scenario.cache.disk.is_some(),
            moved: 0,
            last_server: vec![u32::MAX; documents],
            loads: vec![ServerLoad::default(); servers],
            low: (0.4 * t_low).ceil() as u32,
            replicas: Vec::new(),
            seen: vec![0; documents],
            losses: prepared.scenario.may_lose().then(Losses::new),
            front_ends: prepared.scenario.front_ends.as_ref().map(|_| FrontUse::default()),
        }
    }

    /// Counts a request for `document` that was sent to `server`.
    pub(crate) fn sent(&mut self, now: Timestamp, document: u32, server: u32) {
        self.arrived(now, server);
        let warm_up = self.warm_up;
        let last = &mut self.last_server[document as usize];
        if now >= warm_up {
            self.sent += 1;
            self.moved += u64::from(*last != server && *last != u32::MAX);
        }
        *last = server;
    }

    #[inline]
    fn arrived(&mut self, now: Timestamp, server: u32) {
        let load = &mut self.loads[server as usize];
        if load.outstanding + 1 == self.low && now >= self.warm_up {
            load.low += now.0 - load.since.0.max(self.warm_up.0);
        }
        load.outstanding += 1;
    }

    /// Counts what a lookup has found.
    pub(crate) fn looked_up(&mut self, now: Timestamp, found: Found) {
        let hit = found == Found::Fresh;
        if let Some(losses) = &mut self.losses {
            losses.looked_up(now, found != Found::Missing);
        }
        if now >= self.warm_up {
            self.hits += u64::from(hit);
            self.disk_hits += u64::from(found == Found::OnDisk);
            self.confirmed += u64::from(found == Found::Confirmed);
            self.misses += u64::from(found == Found::Missing);
        }
        self.tick(now).hits += u64::from(hit);
    }

    /// Counts a request for a document of so many bytes that came to a front-end, which answers it or does not.
    pub(crate) fn met_front_end(&mut self, now: Timestamp, bytes: u64, is_answered: bool) {
        if is_answered {
            self.tick(now).hits += 1;
        }
        if let Some(front_ends) = self.front_ends.as_mut().filter(|_| now >= self.warm_up) {
            front_ends.hits += u64::from(is_answered);
            front_ends.bytes += if is_answered { bytes } else { 0 };
            front_ends.all_bytes += bytes;
        }
    }

    /// Whether no request was sent and received in the measured time.
    pub(crate) fn measured_nothing(&self) -> bool {
        self.latency.count() == 0
    }

    /// Records that the client received the last byte at `at`, for a request sent at `sent`.
    pub(crate) fn last_byte(&mut self, sent: Timestamp, at: Timestamp) {
        let latency = at.0.saturating_sub(sent.0);
        if sent >= self.warm_up {
            self.latency.add(latency);
            if let Some(losses) = &mut self.losses {
                losses.answered(sent, latency);
            }
        }
        for window in &mut self.windows {
            if (window.from..window.to).contains(&sent) {
                window.latency.add(latency);
            }
        }
        let tick = self.tick(at);
        tick.latency += latency as f64 / 1e9;
        tick.finished += 1;
    }

    /// Records that a request to `server` ended.
    pub(crate) fn over(&mut self, now: Timestamp, server: u32) {
        self.left(now, server);
        self.finished(now);
    }

    /// Records that a request ended.
    pub(crate) fn finished(&mut self, now: Timestamp) {
        self.finished += u64::from(now >= self.warm_up);
    }

    /// Records that `server` has one request less.
    #[inline]
    pub(crate) fn left(&mut self, now: Timestamp, server: u32) {
        let load = &mut self.loads[server as usize];
        load.outstanding -= 1;
        if load.outstanding + 1 == self.low {
            load.since = now;
        }
    }

    /// Called every [`TICK`].
    pub(crate) fn checkpoint(&mut self, now: Timestamp, servers: &[Server], offered: f64) {
        self.tick(now).offered = offered;
        if self.checkpoints.len() > LOOK_BACK {
            // Keep the first checkpoint after the warm-up, and the last ones.
            let warm = self.checkpoints.front().is_some_and(|first| first.time >= self.warm_up);
            self.checkpoints.remove(usize::from(warm));
        }
        let worked =
            servers.iter().map(|server| (server.cpu.worked(now), server.disks_worked(now)));
        self.checkpoints.push_back(Checkpoint { time: now, worked: worked.collect() });
    }

    /// Counts how many servers hold each object. The world calls it at the scenario's sampling
    /// interval.
    pub(crate) fn sample(&mut self, now: Timestamp, servers: &[Server]) {
        let round = self.replicas.len() as u32 + 1;
        let (mut held, mut distinct) = (0u64, 0u64);
        for document in servers.iter().flat_map(|server| server.memory.documents()) {
            held += 1;
            let seen = &mut self.seen[document as usize];
            distinct += u64::from(*seen != round);
            *seen = round;
        }
        let mean = if distinct == 0 { 0.0 } else { held as f64 / distinct as f64 };
        self.replicas.push((now.as_secs_f64(), mean));
    }

    fn tick(&mut self, at: Timestamp) -> &mut Tick {
        let tick = (at.0 / TICK) as usize;
        if self.ticks.len() <= tick {
            self.ticks.resize(tick + 1, Tick::default());
        }
        &mut self.ticks[tick]
    }
}

/// The world's state at the end of a run.
pub(crate) struct Ending<'a> {
    pub(crate) end: End,
    pub(crate) now: Timestamp,
    pub(crate) events: u64,
    /// The offered rate by the definition of capacity, where it applies.
    pub(crate) capacity: Option<f64>,
    pub(crate) servers: &'a [Server],
    pub(crate) names: Vec<String>,
    pub(crate) topology: &'a Topology,
    pub(crate) network: &'a Network,
    /// The readings of the origin, where there is one.
    pub(crate) egress: Option<Egress>,
}
