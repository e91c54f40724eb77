//! The state of a running demo: clients, watcher and story write it, view and summary read it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hdrhistogram::Histogram;
use tokio::time::Instant;

use super::{
    client::{Ending, Trouble},
    origin::Count,
    plan::{Arrival, Phase},
};

/// The shared state. Every access is short.
pub(super) struct Board {
    whole: Duration,
    hottest: u32,
    state: Mutex<BoardState>,
}

/// The state itself.
pub(super) struct BoardState {
    pub(super) phase: Phase,
    pub(super) phases: Vec<PhaseTally>,
    /// Failed requests by reason.
    pub(super) failures: BTreeMap<String, u64>,
    /// The error of the first connection that broke.
    pub(super) first_break: Option<String>,
    /// Recently served requests, with their nodes.
    recent: VecDeque<(Instant, u32, Option<usize>)>,
    pub(super) nodes: Vec<NodeLive>,
    /// The policy's own sets of the hottest objects, as a redirector reported them.
    pub(super) sets: HashMap<u32, Vec<String>>,
    origin_at_begin: Count,
}

/// The events of one phase. Requests belong to the phase of their scheduled time.
pub(super) struct PhaseTally {
    pub(super) phase: Phase,
    pub(super) requests: u64,
    pub(super) failed: u64,
    pub(super) client_retries: u64,
    pub(super) bytes: u64,
    /// Latencies in microseconds, of requests that got the right body.
    pub(super) latency: Histogram<u64>,
    /// Requests served, by node.
    pub(super) served: Vec<u64>,
    /// Of these, requests for the hottest object.
    pub(super) hot: Vec<u64>,
    /// The size of the hottest object's set, in each report of a redirector.
    pub(super) hot_sets: Vec<usize>,
    pub(super) origin: Count,
}

/// A node, as its admin address and its peers report it.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeLive {
    pub(super) up: bool,
    /// Progress of its slow start, the least of all redirectors' views.
    pub(super) ramp: f64,
    /// Requests of all redirectors that it has not finished.
    pub(super) outstanding: u32,
    /// Hits and all requests served since the last poll.
    pub(super) hits: u64,
    pub(super) lookups: u64,
    /// Bytes per second from the origin.
    pub(super) origin_rate: f64,
}

impl NodeLive {
    pub(super) fn state(&self) -> &'static str {
        match (self.up, self.ramp < 1.0) {
            (false, _) => "down",
            (true, true) => "ramping",
            (true, false) => "up",
        }
    }
}

/// One of the hottest objects, over the last moments.
pub(super) struct HotObject {
    pub(super) object: u32,
    pub(super) requests: usize,
    /// Nodes that served it and their counts, highest first.
    pub(super) by: Vec<(usize, usize)>,
}

impl Board {
    pub(super) fn new(whole: Duration, hottest: u32, nodes: usize) -> Self {
        let state = BoardState {
            phase: Phase::WarmUp,
            phases: Phase::ALL.iter().map(|phase| PhaseTally::new(*phase, nodes)).collect(),
            failures: BTreeMap::new(),
            first_break: None,
            recent: VecDeque::new(),
            nodes: vec![NodeLive { up: true, ramp: 1.0, ..NodeLive::default() }; nodes],
            sets: HashMap::new(),
            origin_at_begin: Count::default(),
        };
        Self { whole, hottest, state: Mutex::new(state) }
    }

    pub(super) fn look(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a phase; the difference of the origin's counts belongs to the phase before.
    pub(super) fn enter(&self, phase: Phase, origin: Count) {
        let mut state = self.look();
        state.settle(origin);
        state.phase = phase;
    }

    /// Ends the last phase.
    pub(super) fn finish(&self, origin: Count) {
        self.look().settle(origin);
    }

    /// Records the end of a request.
    pub(super) fn ended(&self, arrival: Arrival, latency: Duration, ending: &Ending) {
        let phase = Phase::at(arrival.at, self.whole);
        let mut state = self.look();
        let tally = &mut state.phases[phase as usize];
        tally.requests += 1;
        tally.client_retries += ending.retries;
        match &ending.result {
            Ok(served) => {
                tally.bytes += served.bytes;
                let micros = latency.as_micros() as u64;
                tally.latency.saturating_record(micros.max(1));
                if let Some(node) = served.by {
                    tally.served[node] += 1;
                    tally.hot[node] += u64::from(arrival.object == self.hottest);
                }
                state.recent.push_back((Instant::now(), arrival.object, served.by));
                state.forget();
            }
            Err(trouble) => {
                tally.failed += 1;
                *state.failures.entry(trouble.as_str()).or_default() += 1;
                if let (Trouble::Broken(words), None) = (trouble, &state.first_break) {
                    state.first_break = Some(words.clone());
                }
            }
        }
    }

    /// Records a redirector's report of the number of nodes responsible for the hottest object.
    pub(super) fn hot_set(&self, size: usize) {
        let mut state = self.look();
        let phase = state.phase as usize;
        state.phases[phase].hot_sets.push(size);
    }
}

impl BoardState {
    /// Adds the origin's counts since the last time to the phase that ends.
    fn settle(&mut self, origin: Count) {
        let before = std::mem::replace(&mut self.origin_at_begin, origin);
        let tally = &mut self.phases[self.phase as usize];
        tally.origin.requests += origin.requests - before.requests;
        tally.origin.bytes += origin.bytes - before.bytes;
    }

    fn forget(&mut self) {
        let now = Instant::now();
        while self.recent.front().is_some_and(|(at, ..)| now - *at > LATELY) {
            self.recent.pop_front();
        }
    }

    /// Requests per second that each node served recently.
    pub(super) fn rates(&mut self) -> Vec<f64> {
        self.forget();
        let mut rates = vec![0.0; self.nodes.len()];
        for node in self.recent.iter().filter_map(|(.., node)| *node) {
            rates[node] += 1.0 / LATELY.as_secs_f64();
        }
        rates
    }

    /// The objects that were served most often recently.
    pub(super) fn hottest(&mut self, count: usize) -> Vec<HotObject> {
        self.forget();
        let mut objects: HashMap<u32, HashMap<usize, usize>> = HashMap::new();
        for (_, object, node) in &self.recent {
            let nodes = objects.entry(*object).or_default();
            node.iter().for_each(|node| *nodes.entry(*node).or_default() += 1);
        }
        let mut objects: Vec<HotObject> = objects
            .into_iter()
            .map(|(object, by)| {
                let mut by: Vec<_> = by.into_iter().collect();
                by.sort_by_key(|(node, requests)| (std::cmp::Reverse(*requests), *node));
                HotObject { object, requests: by.iter().map(|(_, n)| n).sum(), by }
            })
            .collect();
        objects.sort_by_key(|hot| (std::cmp::Reverse(hot.requests), hot.object));
        objects.truncate(count);
        objects
    }
}

impl PhaseTally {
    fn new(phase: Phase, nodes: usize) -> Self {
        // One microsecond to ten minutes, three digits: the bounds are right for the constructor.
        let latency = Histogram::new_with_bounds(1, 600_000_000, 3).expect("bounds of a histogram");
        Self {
            phase,
            requests: 0,
            failed: 0,
            client_retries: 0,
            bytes: 0,
            latency,
            served: vec![0; nodes],
            hot: vec![0; nodes],
            hot_sets: Vec::new(),
            origin: Count::default(),
        }
    }
}

/// The time span of "recently" in the view.
pub(super) const LATELY: Duration = Duration::from_secs(2);
