//! The measurements of a run: above all page latencies (WWW10 Sec. 4.3), from a page's first request
//! to its last object.

use levada_outcome::{End, Metric, Outcome, Series, ServerUse};
use levada_policy::NodeIndex;
use levada_types::Timestamp;

use super::server::{Part, WebServer};
use super::settings::MeasurementWindow;

/// The measurements of one run.
pub(super) struct Report {
    begin: Timestamp,
    until: Timestamp,
    end: Timestamp,
    /// Pages that are being loaded.
    open: u64,
    /// Pages in progress that are measured.
    measured_open: u64,
    /// Latencies of the measured pages, in seconds.
    latencies: Vec<f32>,
    unfinished: usize,
    objects: u64,
    /// Objects per server in the window.
    served: Vec<u64>,
    /// The servers' totals when the window began and when it ended.
    at_begin: Option<(Timestamp, Vec<Done>)>,
    at_until: Option<(Timestamp, Vec<Done>)>,
    stopped: bool,
    now: Timestamp,
}

/// The totals of a server so far.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    busy: [u64; Part::COUNT],
    looked_up: u64,
    found: u64,
}

impl Done {
    fn of(server: &WebServer, now: Timestamp) -> Self {
        let busy = Part::ALL.map(|part| server.busy(part, now));
        Self { busy, looked_up: server.looked_up, found: server.found }
    }
}

impl Report {
    pub(super) fn new(window: &MeasurementWindow, servers: usize) -> Self {
        let begin = Timestamp::ZERO + window.warm_up.0;
        let until = begin + window.measure.0;
        Self {
            begin,
            until,
            end: until + window.drain.0,
            open: 0,
            measured_open: 0,
            latencies: Vec::new(),
            unfinished: 0,
            objects: 0,
            served: vec![0; servers],
            at_begin: None,
            at_until: None,
            stopped: false,
            now: Timestamp::ZERO,
        }
    }

    /// The end of the run, even with unfinished pages.
    pub(super) fn end(&self) -> Timestamp {
        self.end
    }

    /// Whether all measured pages are finished by `now`.
    pub(super) fn is_complete(&self, now: Timestamp) -> bool {
        now >= self.until && self.measured_open == 0
    }

    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    pub(super) fn pages_open(&self) -> u64 {
        self.open
    }

    /// Records the servers' totals when the window begins and ends. The world calls it before every
    /// event.
    #[inline]
    pub(super) fn watch_servers(&mut self, now: Timestamp, servers: &[WebServer]) {
        let done = |at: Timestamp| Some((at, servers.iter().map(|s| Done::of(s, at)).collect()));
        if self.at_begin.is_none() && now >= self.begin {
            self.at_begin = done(now);
        }
        if self.at_until.is_none() && now >= self.until {
            self.at_until = done(now);
        }
    }

    pub(super) fn page_began(&mut self, now: Timestamp) {
        self.open += 1;
        self.measured_open += u64::from(self.measures(now));
    }

    pub(super) fn object_sent(&mut self, now: Timestamp, node: NodeIndex) {
        self.objects += 1;
        self.served[node.get()] += u64::from(self.measures(now));
    }

    pub(super) fn page_ended(&mut self, began: Timestamp, now: Timestamp) {
        self.open -= 1;
        if self.measures(began) {
            self.measured_open -= 1;
            self.latencies.push(now.since(began).as_secs_f64() as f32);
        }
    }

    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Ends the measurement. Unfinished pages count with the time that they have taken so far;
    /// leaving them out would favour the policy that delays them most.
    pub(super) fn finish(
        &mut self,
        now: Timestamp,
        open: impl Iterator<Item = Timestamp>,
        servers: &[WebServer],
    ) {
        self.now = now;
        self.watch_servers(now.max(self.until), servers);
        for began in open {
            if self.measures(began) {
                self.unfinished += 1;
                self.latencies.push(now.since(began).as_secs_f64() as f32);
            }
        }
        self.latencies.sort_by(f32::total_cmp);
    }

    fn measures(&self, time: Timestamp) -> bool {
        (self.begin..self.until).contains(&time)
    }

    /// The numbers of the run.
    pub(super) fn outcome(&self, events: u64) -> Outcome {
        let mut outcome = Outcome {
            end: if self.stopped { End::Stopped } else { End::Done },
            series: vec![self.distribution()],
            servers: self.servers(),
            ..Outcome::default()
        };
        let window = self.until.since(self.begin).as_secs_f64();
        let served: u64 = self.served.iter().sum();
        let (mean, sd) = self.moments();
        let mut give = |metric: Metric, value: f64| {
            outcome.readings.insert(metric.into(), value);
        };
        give(Metric::Throughput, served as f64 / window);
        give(Metric::Requests, served as f64);
        give(Metric::Pages, self.latencies.len() as f64);
        give(Metric::Unfinished, self.unfinished as f64 / self.latencies.len().max(1) as f64);
        give(Metric::LatencyMean, mean);
        give(Metric::LatencySd, sd);
        give(Metric::LatencyP50, self.quantile(0.5));
        give(Metric::LatencyP90, self.quantile(0.9));
        give(Metric::LatencyP99, self.quantile(0.99));
        give(Metric::Within1s, self.below(1.0));
        give(Metric::Within2s5, self.below(2.5));
        give(Metric::Within5s, self.below(5.0));
        for (part, metric) in [
            (Part::Cpu, Metric::CpuUtilisation),
            (Part::Disk, Metric::DiskUtilisation),
            (Part::Database, Metric::DatabaseUtilisation),
            (Part::Nic, Metric::NicUtilisation),
        ] {
            let servers = self.served.len().max(1) as f64;
            give(metric, self.utilisations(part).iter().sum::<f64>() / servers);
        }
        let busiest = self.served.iter().copied().max().unwrap_or(0) as f64;
        give(Metric::Imbalance, busiest * self.served.len() as f64 / served.max(1) as f64);
        let (looked_up, found) = self.cache();
        give(Metric::HitRatio, found as f64 / looked_up.max(1) as f64);
        give(Metric::Duration, self.now.as_secs_f64());
        give(Metric::Events, events as f64);
        outcome
    }

    /// The latency that this part of the pages does not exceed.
    fn quantile(&self, part: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let at = (part * self.latencies.len() as f64) as usize;
        self.latencies.get(at.min(last)).copied().map_or(0.0, f64::from)
    }

    /// The part of the pages that take `seconds` at most.
    fn below(&self, seconds: f64) -> f64 {
        let below = self.latencies.partition_point(|latency| f64::from(*latency) <= seconds);
        below as f64 / self.latencies.len().max(1) as f64
    }

    fn moments(&self) -> (f64, f64) {
        let n = self.latencies.len().max(1) as f64;
        let sum: f64 = self.latencies.iter().map(|x| f64::from(*x)).sum();
        let squares: f64 = self.latencies.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
        let mean = sum / n;
        (mean, libm::sqrt((squares / n - mean * mean).max(0.0)))
    }

    /// The cumulative frequency of Figures 4 to 6, at ten round steps per decade, 1, 2, 2.5 and 5
    /// among them.
    fn distribution(&self) -> Series {
        const STEPS: [f64; 10] = [1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0];
        let decades = [0.01, 0.1, 1.0, 10.0, 100.0];
        let at = decades.iter().flat_map(|decade| STEPS.map(|step| decade * step));
        Series {
            name: "latency_cdf".to_owned(),
            x: "page latency (s)".to_owned(),
            y: "part of the pages".to_owned(),
            points: at.map(|seconds| (seconds, self.below(seconds))).collect(),
        }
    }

    fn servers(&self) -> Vec<ServerUse> {
        let (cpu, disk) = (self.utilisations(Part::Cpu), self.utilisations(Part::Disk));
        let hits = self.between(|done| done.found);
        (0..self.served.len())
            .map(|server| ServerUse {
                name: format!("server-{server}"),
                requests: self.served[server],
                hits: hits[server],
                cpu: cpu[server],
                disk: disk[server],
            })
            .collect()
    }

    /// The part of the window in which `part` of each server worked.
    fn utilisations(&self, part: Part) -> Vec<f64> {
        let nanos = match (&self.at_begin, &self.at_until) {
            (Some((from, _)), Some((to, _))) => to.since(*from).as_nanos().max(1) as f64,
            _ => 1.0,
        };
        self.between(|done| done.busy[part as usize]).iter().map(|b| *b as f64 / nanos).collect()
    }

    fn cache(&self) -> (u64, u64) {
        let sum = |of: fn(&Done) -> u64| self.between(of).iter().sum();
        (sum(|done| done.looked_up), sum(|done| done.found))
    }

    /// The use of each server in the window.
    fn between(&self, of: impl Fn(&Done) -> u64) -> Vec<u64> {
        let (Some((_, from)), Some((_, to))) = (&self.at_begin, &self.at_until) else {
            return vec![0; self.served.len()];
        };
        from.iter().zip(to).map(|(from, to)| of(to) - of(from)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_outcome::Time;
    use std::time::Duration;

    fn seconds(seconds: u64) -> Timestamp {
        Timestamp::from_secs(seconds)
    }

    #[test]
    fn pages_that_begin_in_the_window_count_even_if_they_never_end() {
        let time = |s| Time(Duration::from_secs(s));
        let window = MeasurementWindow { warm_up: time(10), measure: time(10), drain: time(5) };
        let mut report = Report::new(&window, 0);
        for (began, ended) in
            [(9, Some(12)), (11, Some(12)), (19, Some(22)), (15, None), (21, None)]
        {
            report.page_began(seconds(began));
            if let Some(ended) = ended {
                report.page_ended(seconds(began), seconds(ended));
            }
        }
        assert!(!report.is_complete(seconds(22)));
        report.finish(seconds(25), [seconds(15), seconds(21)].into_iter(), &[]);
        assert_eq!(report.latencies, [1.0, 3.0, 10.0]);
        assert_eq!((report.quantile(0.5), report.below(3.0)), (3.0, 2.0 / 3.0));
        let outcome = report.outcome(0);
        assert_eq!(outcome.reading(Metric::Unfinished), Some(1.0 / 3.0));
    }
}
