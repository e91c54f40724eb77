//! Readings of servers that fail: lost requests, misses after a failure, and the time until all is as before.

use levada_types::Timestamp;

use super::{Collector, Histogram};
use crate::{Metric, Outcome};

/// Counts around failures.
pub(super) struct Losses {
    lost: u64,
    retried: u64,
    /// Lookups and misses of each second.
    seconds: Vec<(u64, u64)>,
    failures: Vec<Timestamp>,
    /// Periods in which a server is away; the last one may have no end yet.
    away: Vec<(Timestamp, Timestamp)>,
    servers_away: u32,
    /// Latencies of requests sent in these periods.
    latency: Histogram,
}

impl Losses {
    pub(super) fn new() -> Self {
        Self {
            lost: 0,
            retried: 0,
            seconds: Vec::new(),
            failures: Vec::new(),
            away: Vec::new(),
            servers_away: 0,
            latency: Histogram::new(),
        }
    }

    pub(super) fn looked_up(&mut self, now: Timestamp, hit: bool) {
        let second = second(now);
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, (0, 0));
        }
        let (lookups, misses) = &mut self.seconds[second];
        *lookups += 1;
        *misses += u64::from(!hit);
    }

    pub(super) fn answered(&mut self, sent: Timestamp, latency: u64) {
        let next = self.away.partition_point(|(from, _)| *from <= sent);
        if next > 0 && sent < self.away[next - 1].1 {
            self.latency.add(latency);
        }
    }

    /// The readings of a run that was measured from `warm_up`.
    pub(super) fn conclude(&self, warm_up: Timestamp, outcome: &mut Outcome) {
        let mut put = |metric: Metric, value| outcome.readings.insert(metric.into(), value);
        put(Metric::Lost, self.lost as f64);
        put(Metric::Retried, self.retried as f64);
        if self.latency.count() > 0 {
            put(Metric::AwayP95, self.latency.percentile(0.95));
        }
        let Some(before) = self.miss_ratio_before(warm_up) else { return };
        let ends = self.failures.iter().skip(1).map(|next| second(*next));
        let ends = ends.chain([self.seconds.len().saturating_sub(1)]);
        let after: Vec<_> = self
            .failures
            .iter()
            .zip(ends)
            .filter(|(failure, end)| *end >= second(**failure) + BLOCK)
            .map(|(failure, end)| self.after(second(*failure), end, before))
            .collect();
        if !after.is_empty() {
            let mean =
                |of: fn(&(f64, f64)) -> f64| after.iter().map(of).sum::<f64>() / after.len() as f64;
            put(Metric::Recovery, mean(|(seconds, _)| *seconds));
            put(Metric::LossMisses, mean(|(_, misses)| *misses));
        }
    }

    /// The part of misses in whole seconds between the warm-up and the first failure.
    fn miss_ratio_before(&self, warm_up: Timestamp) -> Option<f64> {
        let first = second(*self.failures.first()?);
        let from = warm_up.0.div_ceil(SECOND) as usize;
        let (lookups, misses) = sum(self.seconds.get(from..first)?);
        (lookups > 0).then(|| misses as f64 / lookups as f64)
    }

    /// The time from a failure to the end of the last block of seconds with more misses than before,
    /// beyond chance, and the additional misses until then.
    fn after(&self, failure: usize, end: usize, before: f64) -> (f64, f64) {
        let (mut recovery, mut additional, mut so_far) = (0, 0.0, 0.0);
        for (number, block) in (1..).zip(self.seconds[failure..end].chunks_exact(BLOCK)) {
            let (lookups, misses) = sum(block);
            let expected = before * lookups as f64;
            so_far += misses as f64 - expected;
            if misses as f64 > expected + CHANCE * libm::sqrt(expected.max(1.0)) {
                (recovery, additional) = (number * BLOCK, so_far);
            }
        }
        (recovery as f64, additional)
    }
}

impl Collector {
    /// A server has failed.
    pub(crate) fn failed(&mut self, now: Timestamp) {
        let Some(losses) = &mut self.losses else { return };
        if now >= self.warm_up {
            losses.failures.push(now);
        }
        if losses.servers_away == 0 {
            losses.away.push((now, Timestamp(u64::MAX)));
        }
        losses.servers_away += 1;
    }

    /// A server is back.
    pub(crate) fn returned(&mut self, now: Timestamp) {
        let Some(losses) = &mut self.losses else { return };
        losses.servers_away -= 1;
        if losses.servers_away == 0
            && let Some(last) = losses.away.last_mut()
        {
            last.1 = now;
        }
    }

    /// A request got no whole answer.
    pub(crate) fn lost(&mut self, now: Timestamp) {
        if let Some(losses) = &mut self.losses {
            losses.lost += u64::from(now >= self.warm_up);
        }
    }

    /// A request goes on from a server that has failed to another.
    pub(crate) fn moved_on(&mut self, now: Timestamp, from: u32, to: u32) {
        self.left(now, from);
        self.arrived(now, to);
        if let Some(losses) = &mut self.losses {
            losses.retried += u64::from(now >= self.warm_up);
        }
    }
}

fn second(at: Timestamp) -> usize {
    (at.0 / SECOND) as usize
}

fn sum(seconds: &[(u64, u64)]) -> (u64, u64) {
    seconds.iter().fold((0, 0), |(a, b), (lookups, misses)| (a + lookups, b + misses))
}

const SECOND: u64 = 1_000_000_000;
/// Seconds whose misses are compared together.
const BLOCK: usize = 5;
/// Standard deviations that chance explains.
const CHANCE: f64 = 3.0;
