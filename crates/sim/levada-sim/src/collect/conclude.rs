//! Computes the reported numbers from the counts.

use levada_topology::{Hop, Role};
use levada_types::Timestamp;

use super::{Collector, Ending, LOOK_BACK, TICK, histogram::Histogram};
use crate::{End, LinkUse, Metric, Outcome, Reading, Series, ServerUse};

impl Collector {
    /// The outcome of a run with this end.
    pub(crate) fn conclude(mut self, ending: &Ending<'_>) -> Outcome {
        let mut outcome = Outcome { end: ending.end, ..Outcome::default() };
        let seconds = ending.now.as_secs_f64();
        let measured = ending.now.since(self.warm_up).as_secs_f64();
        let put = |outcome: &mut Outcome, metric: Metric, value: f64| {
            outcome.readings.insert(metric.into(), value);
        };
        if let Some(capacity) = ending.capacity {
            put(&mut outcome, Metric::Capacity, capacity);
            put(&mut outcome, Metric::Sustained, self.sustained());
        }
        put(&mut outcome, Metric::Duration, seconds);
        put(&mut outcome, Metric::Events, ending.events as f64);
        if let Some(dropped) = ending.network.dropped() {
            put(&mut outcome, Metric::Dropped, dropped as f64);
        }
        let answered = self.front_ends.map_or(0, |front_ends| front_ends.hits);
        put(&mut outcome, Metric::Requests, (self.sent + answered) as f64);
        if let Some(front_ends) = self.front_ends {
            let part = |part: u64, all: u64| part as f64 / all.max(1) as f64;
            put(&mut outcome, Metric::FrontHits, part(answered, self.sent + answered));
            put(&mut outcome, Metric::FrontBytes, part(front_ends.bytes, front_ends.all_bytes));
            put(&mut outcome, Metric::ServerRequests, self.sent as f64);
        }
        if measured > 0.0 {
            put(&mut outcome, Metric::Throughput, self.finished as f64 / measured);
            put(&mut outcome, Metric::Idle, self.idle(ending.now) / measured);
        }
        let all = (self.hits + self.disk_hits + self.confirmed + self.misses) as f64;
        if all > 0.0 {
            put(&mut outcome, Metric::HitRatio, self.hits as f64 / all);
            put(&mut outcome, Metric::MissRatio, self.misses as f64 / all);
            if self.has_disk {
                put(&mut outcome, Metric::DiskHits, self.disk_hits as f64 / all);
            }
            if self.expires {
                put(&mut outcome, Metric::Confirmed, self.confirmed as f64 / all);
            }
        }
        if self.sent > 0 {
            put(&mut outcome, Metric::Moved, self.moved as f64 / self.sent as f64);
        }
        self.add_latencies(&mut outcome);
        if let Some(losses) = &self.losses {
            losses.conclude(self.warm_up, &mut outcome);
        }
        if let Some(egress) = &ending.egress {
            egress.conclude(measured, &mut outcome);
        }
        self.add_servers(&mut outcome, ending);
        self.add_links(&mut outcome, ending);
        self.add_curves(&mut outcome);
        outcome
    }

    /// The highest rate of finished requests over half a minute, per second.
    fn sustained(&self) -> f64 {
        // The last tick is incomplete.
        let whole = &self.ticks[..self.ticks.len().saturating_sub(1)];
        let windows = whole.windows(LOOK_BACK);
        let most = windows.map(|window| window.iter().map(|tick| tick.finished).sum::<u64>()).max();
        most.unwrap_or(0) as f64 / (LOOK_BACK as f64 * TICK as f64 / 1e9)
    }

    /// The part of the time that a server was idle, mean over the servers.
    fn idle(&self, now: Timestamp) -> f64 {
        let low = self.loads.iter().map(|load| {
            let still = load.outstanding < self.low;
            load.low
                + if still { now.0.saturating_sub(load.since.0.max(self.warm_up.0)) } else { 0 }
        });
        low.sum::<u64>() as f64 / 1e9 / self.loads.len() as f64
    }

    fn add_latencies(&mut self, outcome: &mut Outcome) {
        let all = std::iter::once((None, &self.latency));
        let windows = self.windows.iter().map(|window| (Some(window.rate), &window.latency));
        for (rate, latency) in all.chain(windows) {
            add_latency(outcome, rate, latency);
        }
    }

    fn add_servers(&self, outcome: &mut Outcome, ending: &Ending<'_>) {
        // A ramp that ended in overload is measured over its last half minute, every other run over
        // the time after the warm-up.
        let overloaded = ending.end == End::Overload;
        let back = if overloaded { self.checkpoints.len().saturating_sub(LOOK_BACK) } else { 0 };
        let since = self.checkpoints.get(back);
        let from = since.map_or(0, |checkpoint| checkpoint.time.0);
        let time = ending.now.0.saturating_sub(from).max(1) as f64;
        for (n, (server, name)) in ending.servers.iter().zip(&ending.names).enumerate() {
            let (cpu, disk) = since.map_or((0, 0), |checkpoint| checkpoint.worked[n]);
            let disks = (server.disks_worked(ending.now) - disk) as f64 / server.disks.len() as f64;
            outcome.servers.push(ServerUse {
                name: name.clone(),
                requests: server.finished,
                hits: server.hits,
                cpu: (server.cpu.worked(ending.now) - cpu) as f64 / time,
                disk: disks / time,
            });
        }
        let servers = &outcome.servers;
        let (cpu, cpu_sd) = mean_and_deviation(servers.iter().map(|server| server.cpu));
        let (disk, disk_sd) = mean_and_deviation(servers.iter().map(|server| server.disk));
        let requests = || servers.iter().map(|server| server.requests as f64);
        let (mean, _) = mean_and_deviation(requests());
        let imbalance = if mean > 0.0 { requests().fold(0.0, f64::max) / mean } else { 1.0 };
        outcome.readings.extend([
            (Metric::CpuUtilisation.into(), cpu),
            (Metric::CpuUtilisationSd.into(), cpu_sd),
            (Metric::DiskUtilisation.into(), disk),
            (Metric::DiskUtilisationSd.into(), disk_sd),
            (Metric::Imbalance.into(), imbalance),
        ]);
    }

    fn add_links(&self, outcome: &mut Outcome, ending: &Ending<'_>) {
        let topology = ending.topology;
        let inner = |place: u32| {
            matches!(topology.places[place as usize].role, Role::Router | Role::Redirector)
        };
        let name = |place: u32| topology.places[place as usize].name.to_string();
        let seconds = ending.now.as_secs_f64();
        for (n, link) in topology.links.iter().enumerate() {
            if !inner(link.a) || !inner(link.b) {
                continue;
            }
            for (hop, from, to) in [
                (Hop::new(n as u32, false), link.a, link.b),
                (Hop::new(n as u32, true), link.b, link.a),
            ] {
                let bytes = ending.network.carried(hop.index()) as f64;
                let could = link.bits_per_second as f64 / 8.0 * seconds;
                let utilisation = if could > 0.0 { bytes / could } else { 0.0 };
                outcome.links.push(LinkUse { from: name(from), to: name(to), bytes, utilisation });
            }
        }
        let peak = outcome.links.iter().map(|link| link.utilisation).fold(0.0, f64::max);
        outcome.readings.insert(Metric::LinkPeak.into(), peak);
    }

    fn add_curves(&mut self, outcome: &mut Outcome) {
        let per_tick = TICK as f64 / 1e9;
        let curve = |name: &str, y: &str, value: &dyn Fn(&super::Tick) -> f64| Series {
            name: name.to_owned(),
            x: "time (s)".to_owned(),
            y: y.to_owned(),
            points: (0u32..)
                .zip(&self.ticks)
                .map(|(n, tick)| (f64::from(n) * per_tick, value(tick)))
                .collect(),
        };
        let per_request = |value: f64, tick: &super::Tick| {
            if tick.finished == 0 { 0.0 } else { value / tick.finished as f64 }
        };
        outcome.series.extend([
            curve("offered", "requests per second", &|tick| tick.offered),
            curve("finished", "requests per second", &|tick| tick.finished as f64 / per_tick),
            curve("latency_mean", "latency (s)", &|tick| per_request(tick.latency, tick)),
            curve("hit_ratio", "part of the requests", &|tick| per_request(tick.hits as f64, tick)),
        ]);
        if let Some((_, last)) = self.replicas.last() {
            outcome.readings.insert(Metric::Replicas.into(), *last);
        }
        outcome.series.push(Series {
            name: "replicas".to_owned(),
            x: "time (s)".to_owned(),
            y: "servers per object in memory".to_owned(),
            points: std::mem::take(&mut self.replicas),
        });
    }
}

fn add_latency(outcome: &mut Outcome, rate: Option<u32>, latency: &Histogram) {
    if latency.count() == 0 {
        return;
    }
    let readings = [
        (Metric::LatencyMean, latency.mean()),
        (Metric::LatencyP50, latency.percentile(0.5)),
        (Metric::LatencyP90, latency.percentile(0.9)),
        (Metric::LatencyP95, latency.percentile(0.95)),
        (Metric::LatencyP99, latency.percentile(0.99)),
        (Metric::LatencySd, latency.deviation()),
    ];
    outcome.readings.extend(readings.map(|(metric, value)| (Reading { metric, rate }, value)));
    outcome.series.push(Series {
        name: rate.map_or("latency_cdf".to_owned(), |rate| format!("latency_cdf@{rate}")),
        x: "latency (s)".to_owned(),
        y: "part of the requests".to_owned(),
        points: latency.distribution(),
    });
}

fn mean_and_deviation(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count().max(1) as f64;
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|value| (value - mean) * (value - mean)).sum::<f64>() / count;
    (mean, libm::sqrt(variance))
}
