//! The state of a running demo: clients, watcher and story write it, view and summary read it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hdrhistogram::Histogram;
use levada_cluster::events::Events;
use levada_control::status::{History, NodeStatus, Sample, SetSizes};
use serde::Serialize;
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
    /// Events, of the demo itself and of sets.
    pub(super) events: Events,
    /// The sizes of the sets of hot objects.
    pub(super) set_sizes: SetSizes,
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
    /// The last answers of the nodes.
    pub(super) told: Vec<Option<Told>>,
    /// The last minutes of the nodes, second by second.
    pub(super) samples: Vec<VecDeque<Sample>>,
    /// The policy's own sets of the hottest objects, as a redirector reported them.
    pub(super) sets: HashMap<u32, Vec<String>>,
    origin_at_begin: Count,
    /// The times at which the load was lowered.
    pub(super) lowered: Vec<Lowered>,
}

/// The last answer of a node.
#[derive(Clone)]
pub(super) struct Told {
    pub(super) at: Instant,
    pub(super) status: Arc<NodeStatus>,
}

/// The load was lowered, because the machine did not send it in time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Lowered {
    pub(super) at_seconds: f64,
    /// How late half of the requests were sent in the second before.
    pub(super) late_ms: f64,
    /// The part of the requests that is sent from then on.
    pub(super) part: f64,
}

/// The events of one phase. Requests belong to the phase of their scheduled time.
pub(super) struct PhaseTally {
    pub(super) phase: Phase,
    pub(super) requests: u64,
    pub(super) failed: u64,
    pub(super) client_retries: u64,
    pub(super) bytes: u64,
    /// Latencies in microseconds, of requests that got the right body.
    latency: Histogram<u64>,
    /// Microseconds between the scheduled time of a request and its sending.
    late: Histogram<u64>,
    /// Requests that were not sent, because the machine was too busy.
    pub(super) left_out: u64,
    /// Retries that nodes report.
    pub(super) node_retries: u64,
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
    pub(super) fn new(whole: Duration, hottest: u32, nodes: usize, origin: Count) -> Self {
        let state = BoardState {
            phase: Phase::WarmUp,
            phases: Phase::ALL.iter().map(|phase| PhaseTally::new(*phase, nodes)).collect(),
            failures: BTreeMap::new(),
            first_break: None,
            recent: VecDeque::new(),
            nodes: vec![NodeLive { up: true, ramp: 1.0, ..NodeLive::default() }; nodes],
            told: vec![None; nodes],
            samples: vec![VecDeque::new(); nodes],
            sets: HashMap::new(),
            origin_at_begin: origin,
            lowered: Vec::new(),
        };
        Self {
            whole,
            hottest,
            events: Events::default(),
            set_sizes: SetSizes::default(),
            state: Mutex::new(state),
        }
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

    /// Records that a request is sent, so late.
    pub(super) fn sent(&self, arrival: Arrival, late: Duration) {
        let phase = Phase::at(arrival.at, self.whole);
        self.look().phases[phase as usize].late.saturating_record(late.as_micros() as u64 + 1);
    }

    /// Records that a request is not sent, because the machine is too busy.
    pub(super) fn left_out(&self, arrival: Arrival) {
        let phase = Phase::at(arrival.at, self.whole);
        self.look().phases[phase as usize].left_out += 1;
    }

    /// Records retries that a node has made since its last report.
    pub(super) fn node_retries(&self, retries: u64) {
        let mut state = self.look();
        let phase = state.phase as usize;
        state.phases[phase].node_retries += retries;
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

    /// Records the answer of a node.
    pub(super) fn told(&self, node: usize, status: Arc<NodeStatus>) {
        let mut state = self.look();
        let samples = &mut state.samples[node];
        // It is asked more often than it takes samples.
        let last = samples.back().map_or(0.0, |sample| sample.time);
        if let Some(sample) = status.now.filter(|sample| sample.time > last) {
            if samples.len() == History::SECONDS {
                samples.pop_front();
            }
            samples.push_back(sample);
        }
        state.told[node] = Some(Told { at: Instant::now(), status });
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
        let histogram =
            || Histogram::new_with_bounds(1, 600_000_000, 3).expect("bounds of a histogram");
        Self {
            phase,
            requests: 0,
            failed: 0,
            client_retries: 0,
            bytes: 0,
            latency: histogram(),
            late: histogram(),
            left_out: 0,
            node_retries: 0,
            served: vec![0; nodes],
            hot: vec![0; nodes],
            hot_sets: Vec::new(),
            origin: Count::default(),
        }
    }

    /// The latency that this part of the requests stays below, in milliseconds. `None` if there are too few
    /// to tell: of ten requests, none is the hundredth.
    pub(super) fn latency_ms(&self, part: f64) -> Option<f64> {
        quantile_ms(&self.latency, part)
    }

    pub(super) fn longest_ms(&self) -> Option<f64> {
        (!self.latency.is_empty()).then(|| self.latency.max() as f64 / 1e3)
    }

    /// Requests that were sent.
    pub(super) fn sent(&self) -> u64 {
        self.late.len()
    }

    /// How late this part of the requests was sent at most, in milliseconds.
    pub(super) fn late_ms(&self, part: f64) -> Option<f64> {
        quantile_ms(&self.late, part)
    }

    /// Whether the machine was so busy that latencies are its own.
    pub(super) fn is_busy(&self) -> bool {
        self.left_out > 0 || self.late_ms(0.9).is_some_and(|late| late > BUSY_MS)
    }
}

fn quantile_ms(histogram: &Histogram<u64>, part: f64) -> Option<f64> {
    let needed = (1.0 / (1.0 - part)).round() as u64;
    let has_enough = histogram.len() >= needed.max(1);
    has_enough.then(|| histogram.value_at_quantile(part) as f64 / 1e3)
}

/// Requests that are sent this late have waited for the processor, which nodes wait for as well.
const BUSY_MS: f64 = 25.0;

/// The time span of "recently" in the view.
pub(super) const LATELY: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(latencies: u64) -> PhaseTally {
        let mut tally = PhaseTally::new(Phase::Before, 2);
        (1..=latencies).for_each(|millis| tally.latency.saturating_record(millis * 1_000));
        tally
    }

    #[test]
    fn percentiles_need_as_many_requests_as_they_divide() {
        let told =
            |requests| [0.5, 0.9, 0.99].map(|part| tally(requests).latency_ms(part).is_some());
        assert_eq!(told(0), [false, false, false]);
        assert_eq!(told(1), [false, false, false]);
        assert_eq!(told(2), [true, false, false]);
        assert_eq!(told(10), [true, true, false]);
        assert_eq!(told(100), [true, true, true]);
        assert_eq!((tally(0).longest_ms(), tally(1).longest_ms().is_some()), (None, true));
    }

    #[test]
    fn phase_is_busy_when_requests_are_sent_late_or_not_at_all() {
        let board = Board::new(Duration::from_secs(40), 0, 2, Count::default());
        let arrival = Arrival { at: Duration::ZERO, object: 0 };
        let is_busy = || board.look().phases[0].is_busy();
        (0..20).for_each(|_| board.sent(arrival, Duration::from_millis(1)));
        assert!(!is_busy());
        (0..20).for_each(|_| board.sent(arrival, Duration::from_millis(80)));
        assert!(is_busy());
        let second = Arrival { at: Duration::from_secs(9), object: 0 };
        board.left_out(second);
        assert!(board.look().phases[1].is_busy());
    }
}
