//! The summary: all measurements, as text and as JSON.

use std::{fmt::Write as _, time::Duration};

use levada_types::ByteSize;
use serde::Serialize;

use super::{
    board::{BoardState, Lowered, PhaseTally},
    config::CAPACITY,
    plan::Phase,
    setup::{Setup, node_name, schedule},
};

/// All measurements of the demo.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    policy: String,
    parameters: std::collections::BTreeMap<String, String>,
    nodes: usize,
    trace: String,
    seed: u32,
    seconds: f64,
    /// Requests that were sent, per second: those of the trace and of the crowd.
    requests_per_second: f64,
    /// Requests of the trace per second, as they were planned.
    trace_requests_per_second: f64,
    /// Whether the demo reached its end.
    complete: bool,
    requests: u64,
    pub(super) failed: u64,
    failures: std::collections::BTreeMap<String, u64>,
    first_break: Option<String>,
    client_retries: u64,
    node_retries: u64,
    /// Answers per second that the machine gave before the demo.
    machine_answers_per_second: Option<f64>,
    /// The part of the usual load that was sent.
    pace: f64,
    /// Whether the machine was too busy in some phase, so that latencies are its own.
    machine_busy: bool,
    left_out: u64,
    lowered: Vec<Lowered>,
    hit_ratio: Option<f64>,
    origin_requests: u64,
    origin_bytes: u64,
    client_bytes: u64,
    origin_bytes_saved: Option<f64>,
    phases: Vec<PhaseSummary>,
    share_per_node: Vec<NodeShare>,
    hot_object: HotSummary,
    killed: Option<Killed>,
    emulated: Emulated,
    notes: Vec<String>,
    repeat: String,
}

#[derive(Debug, Serialize)]
struct PhaseSummary {
    phase: Phase,
    requests: u64,
    failed: u64,
    client_retries: u64,
    node_retries: u64,
    /// Requests that were not sent, because the machine was too busy.
    left_out: u64,
    machine_busy: bool,
    hit_ratio: Option<f64>,
    /// How late nine of ten requests were sent at most.
    sent_late_p90_ms: Option<f64>,
    /// `None` if no request got the right body.
    latency_ms: Option<Latency>,
}

#[derive(Debug, Serialize)]
struct Latency {
    // `None` if there are too few requests for the percentile.
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
    max: f64,
}

#[derive(Debug, Serialize)]
struct NodeShare {
    node: String,
    requests: u64,
    share: Option<f64>,
}

/// The first object of the crowd, by phase.
#[derive(Debug, Serialize)]
struct HotSummary {
    object: String,
    bytes: u64,
    crowd_requests_per_second: f64,
    phases: Vec<HotPhase>,
}

#[derive(Debug, Serialize)]
struct HotPhase {
    phase: Phase,
    requests: u64,
    /// Shares by node, in the order of the nodes.
    share_per_node: Vec<Option<f64>>,
    /// Nodes that served it at all.
    nodes_serving: usize,
    /// The set as the redirectors reported it.
    set_mean: Option<f64>,
    set_max: Option<usize>,
}

/// The node that was killed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Killed {
    pub(super) node: String,
    pub(super) at_seconds: f64,
    /// Time until the node was ready again; `None` if it never was.
    pub(super) back_after_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Emulated {
    link_bytes_per_second: u64,
    capacity: u32,
    cache_bytes: u64,
    working_set_bytes: u64,
    working_set_objects: u64,
}

impl Summary {
    pub(super) fn new(
        setup: &Setup,
        state: &BoardState,
        (killed, complete): (Option<Killed>, bool),
        lasted: Duration,
    ) -> Self {
        let phases = &state.phases;
        let sum = |read: fn(&PhaseTally) -> u64| phases.iter().map(read).sum::<u64>();
        let (requests, origin) = (sum(|p| p.requests), sum(|p| p.origin.requests));
        let (bytes, origin_bytes) = (sum(|p| p.bytes), sum(|p| p.origin.bytes));
        let served: u64 = phases.iter().flat_map(|p| &p.served).sum();
        let share_per_node = (0..setup.nodes)
            .map(|node| {
                let requests = phases.iter().map(|p| p.served[node]).sum();
                NodeShare { node: node_name(node), requests, share: part(requests, served) }
            })
            .collect();
        let text = |(key, value): (&String, &levada_policy::ParameterValue)| {
            let value = match value {
                levada_policy::ParameterValue::Text(text) => text.clone(),
                other => other.to_string(),
            };
            (key.clone(), value)
        };
        let hottest = setup.catalog.object(setup.hottest());
        Self {
            policy: setup.policy.name.clone(),
            parameters: setup.policy.parameters.iter().map(text).collect(),
            nodes: setup.nodes,
            trace: setup.catalog.source.clone(),
            seed: setup.seed,
            seconds: lasted.as_secs_f64(),
            requests_per_second: sum(PhaseTally::sent) as f64 / lasted.as_secs_f64().max(1e-3),
            trace_requests_per_second: setup.rate,
            complete,
            requests,
            failed: sum(|p| p.failed),
            failures: state.failures.clone(),
            first_break: state.first_break.clone(),
            client_retries: sum(|p| p.client_retries),
            node_retries: sum(|p| p.node_retries),
            machine_answers_per_second: setup.answers_per_second,
            pace: setup.pace,
            machine_busy: phases.iter().any(PhaseTally::is_busy),
            left_out: sum(|p| p.left_out),
            lowered: state.lowered.clone(),
            hit_ratio: saved(origin, requests),
            origin_requests: origin,
            origin_bytes,
            client_bytes: bytes,
            origin_bytes_saved: saved(origin_bytes, bytes),
            phases: phases.iter().map(phase).collect(),
            share_per_node,
            hot_object: HotSummary {
                object: hottest.target.to_string(),
                bytes: hottest.size,
                crowd_requests_per_second: setup.crowd_rate / setup.hot.len() as f64,
                phases: phases.iter().map(hot_phase).collect(),
            },
            killed,
            emulated: Emulated {
                link_bytes_per_second: setup.link,
                capacity: CAPACITY,
                cache_bytes: setup.cache,
                working_set_objects: setup.working_set.0,
                working_set_bytes: setup.working_set.1,
            },
            notes: setup.notes.clone(),
            repeat: format!("levada demo --policy NAME {}", setup.options),
        }
    }

    /// The summary as text.
    pub(super) fn text(&self, setup: &Setup) -> String {
        let mut text = String::new();
        self.totals(&mut text);
        self.phases(&mut text);
        self.business(&mut text);
        self.shares(&mut text);
        let _ = writeln!(text, "\n{}", emulation(setup));
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        let _ = writeln!(text, "repeat with another policy: {}", self.repeat);
        text
    }

    fn totals(&self, text: &mut String) {
        let cut = if self.complete { "" } else { ", stopped before its end" };
        let _ = writeln!(
            text,
            "\n{} on {} nodes: {:.0} requests/s for {:.0} s{cut}",
            self.policy, self.nodes, self.requests_per_second, self.seconds
        );
        let how = self.parameters.iter().map(|(key, value)| format!("{key}={value}"));
        let how = how.collect::<Vec<_>>().join(", ");
        if !how.is_empty() {
            let _ = writeln!(text, "parameters    {how}");
        }
        let _ = writeln!(
            text,
            "trace         {:.0} requests/s planned, of {}",
            self.trace_requests_per_second, self.trace
        );
        let reasons: Vec<_> = self.failures.iter().map(|(why, n)| format!("{n} {why}")).collect();
        let reasons =
            if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
        let _ = writeln!(
            text,
            "requests      {}, failed {}{reasons}, retries of clients {}, of nodes {}",
            self.requests, self.failed, self.client_retries, self.node_retries
        );
        let _ = writeln!(
            text,
            "hit ratio     {} (the origin was asked {} times)",
            percent(self.hit_ratio),
            self.origin_requests
        );
        let _ = writeln!(
            text,
            "origin bytes  {} for {} to clients: {} saved",
            ByteSize(self.origin_bytes),
            ByteSize(self.client_bytes),
            percent(self.origin_bytes_saved)
        );
        if let Some(killed) = &self.killed {
            let back = match killed.back_after_seconds {
                Some(seconds) => {
                    format!("ready again {:.0} ms after its new start", seconds * 1e3)
                }
                None => "did not come back".to_owned(),
            };
            let _ = writeln!(
                text,
                "node killed   {} at {:.0} s; {back}",
                killed.node, killed.at_seconds
            );
        }
    }

    fn phases(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\nphase        requests  failed  retries  hit ratio  p50 ms  p90 ms  p99 ms  max ms"
        );
        for phase in &self.phases {
            let numbers = phase.latency_ms.as_ref().map(|l| [l.p50, l.p90, l.p99, Some(l.max)]);
            let [p50, p90, p99, max] = numbers.unwrap_or_default().map(|number| {
                number.map_or_else(|| "-".to_owned(), |number| format!("{number:.1}"))
            });
            let _ = writeln!(
                text,
                "{:<11} {:>9} {:>7} {:>8} {:>10} {p50:>7} {p90:>7} {p99:>7} {max:>7}",
                phase.phase.as_str(),
                phase.requests,
                phase.failed,
                phase.client_retries,
                percent(phase.hit_ratio),
            );
        }
    }

    /// How far the machine, and not the nodes, is the reason of latencies.
    fn business(&self, text: &mut String) {
        let busy = self.phases.iter().filter(|phase| phase.machine_busy);
        let busy: Vec<_> = busy.map(|phase| phase.phase.as_str()).collect();
        if busy.is_empty() {
            return;
        }
        let latest = self.phases.iter().filter_map(|phase| phase.sent_late_p90_ms);
        let _ = writeln!(
            text,
            "\nthe machine was busy in {}: one request in ten was sent {:.0} ms late or more, and \
             latencies there show other programs as well",
            busy.join(", "),
            latest.fold(0.0, f64::max)
        );
        for Lowered { at_seconds, late_ms, part } in &self.lowered {
            let _ = writeln!(
                text,
                "at {at_seconds:.0} s requests were {late_ms:.0} ms late: from then on {:.1} % of the load",
                part * 100.0
            );
        }
        if self.left_out > 0 {
            let _ = writeln!(text, "{} requests of the schedule were left out", self.left_out);
        }
    }

    fn shares(&self, text: &mut String) {
        let hot = &self.hot_object;
        let _ = writeln!(
            text,
            "\nshare per node of all requests, and of {} ({}), which the crowd asks for {:.0} \
             times a second:",
            hot.object,
            ByteSize(hot.bytes),
            hot.crowd_requests_per_second
        );
        let _ = write!(text, "node          all");
        for phase in &hot.phases {
            let _ = write!(text, " {:>11}", phase.phase.as_str());
        }
        for (index, node) in self.share_per_node.iter().enumerate() {
            let _ = write!(text, "\n{:<9} {:>7}", node.node, percent(node.share));
            for phase in &hot.phases {
                let _ = write!(text, " {:>11}", percent(phase.share_per_node[index]));
            }
        }
        let _ = write!(text, "\nset, mean (max) ");
        for phase in &hot.phases {
            let set = match (phase.set_mean, phase.set_max) {
                (Some(mean), Some(max)) => format!("{mean:.1} ({max})"),
                _ => "-".to_owned(),
            };
            let _ = write!(text, " {set:>11}");
        }
        text.push('\n');
    }
}

/// Limits that the demo sets in addition to the machine's speed, one sentence each.
pub(super) fn emulation(setup: &Setup) -> String {
    let (objects, bytes) = setup.working_set;
    format!(
        "emulated: each node's link, {:.0} Mbit/s (limits.serve_rate); what a node can hold, \
         {CAPACITY} requests (limits.capacity)\n\
         small on purpose: each node's cache, {}, for {objects} objects of {} together\n\
         phases: {}",
        setup.link as f64 * 8.0 / 1e6,
        ByteSize(setup.cache),
        ByteSize(bytes),
        schedule(setup.duration)
    )
}

fn phase(tally: &PhaseTally) -> PhaseSummary {
    PhaseSummary {
        phase: tally.phase,
        requests: tally.requests,
        failed: tally.failed,
        client_retries: tally.client_retries,
        node_retries: tally.node_retries,
        left_out: tally.left_out,
        machine_busy: tally.is_busy(),
        sent_late_p90_ms: tally.late_ms(0.9),
        hit_ratio: saved(tally.origin.requests, tally.requests),
        latency_ms: tally.longest_ms().map(|max| Latency {
            p50: tally.latency_ms(0.5),
            p90: tally.latency_ms(0.9),
            p99: tally.latency_ms(0.99),
            max,
        }),
    }
}

fn hot_phase(tally: &PhaseTally) -> HotPhase {
    let requests = tally.hot.iter().sum();
    let sets = &tally.hot_sets;
    HotPhase {
        phase: tally.phase,
        requests,
        share_per_node: tally.hot.iter().map(|n| part(*n, requests)).collect(),
        nodes_serving: tally.hot.iter().filter(|n| **n > 0).count(),
        set_mean: (!sets.is_empty()).then(|| sets.iter().sum::<usize>() as f64 / sets.len() as f64),
        set_max: sets.iter().max().copied(),
    }
}

fn part(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// The saved part: negative if the origin served more than the clients received.
fn saved(spent: u64, whole: u64) -> Option<f64> {
    part(spent, whole).map(|part| 1.0 - part)
}

fn percent(part: Option<f64>) -> String {
    part.map_or("-".to_owned(), |part| format!("{:.1} %", part * 100.0))
}
