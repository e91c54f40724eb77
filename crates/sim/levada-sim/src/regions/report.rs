//! Counts by region, and the numbers that follow from them.

use std::collections::BTreeMap;

use levada_topology::RegionMap;
use levada_types::Timestamp;

use crate::{LinkUse, Metric, Outcome, RegionUse, collect::Histogram};

/// The requests that are counted. Requests that are sent before this time of the run count as first ones only.
pub(super) struct RegionReport {
    warm_up: u64,
    regions: Vec<Counts>,
    /// Requests at the origin for each object.
    at_origin: Vec<u64>,
    /// Bytes that a region sent to another one.
    carried: BTreeMap<(usize, usize), u64>,
}

struct Counts {
    name: String,
    asked: Vec<bool>,
    requests: u64,
    first: Histogram,
    later: Histogram,
    hits: u64,
    looked_up: u64,
}

impl RegionReport {
    pub(super) fn new(warm_up: u64, map: &RegionMap, objects: usize) -> Self {
        let counts = |name: &String| Counts {
            name: name.clone(),
            asked: vec![false; objects],
            requests: 0,
            first: Histogram::new(),
            later: Histogram::new(),
            hits: 0,
            looked_up: 0,
        };
        Self {
            warm_up,
            regions: map.names().iter().map(counts).collect(),
            at_origin: vec![0; objects],
            carried: BTreeMap::new(),
        }
    }

    /// Counts a request; returns whether it is the region's first for the object.
    pub(super) fn sent(&mut self, now: u64, region: usize, object: u32) -> bool {
        let counts = &mut self.regions[region];
        counts.requests += u64::from(now >= self.warm_up);
        !std::mem::replace(&mut counts.asked[object as usize], true)
    }

    pub(super) fn looked_up(&mut self, now: u64, region: usize, hit: bool) {
        let counts = &mut self.regions[region];
        counts.looked_up += u64::from(now >= self.warm_up);
        counts.hits += u64::from(hit && now >= self.warm_up);
    }

    pub(super) fn asked_origin(&mut self, object: u32) {
        self.at_origin[object as usize] += 1;
    }

    pub(super) fn answered(&mut self, sent: u64, region: usize, first: bool, latency: u64) {
        let counts = &mut self.regions[region];
        match first {
            true => counts.first.add(latency),
            false if sent >= self.warm_up => counts.later.add(latency),
            false => {}
        }
    }

    pub(super) fn carried(&mut self, from: usize, to: usize, bytes: u64) {
        if from != to {
            *self.carried.entry((from, to)).or_default() += bytes;
        }
    }

    pub(super) fn measured_nothing(&self) -> bool {
        self.regions.iter().all(|counts| counts.later.count() + counts.first.count() == 0)
    }

    pub(super) fn conclude(&self, now: u64, events: u64) -> Outcome {
        let mut outcome = Outcome::default();
        let asked = |object: &usize| self.regions.iter().any(|counts| counts.asked[*object]);
        let objects = (0..self.at_origin.len()).filter(asked).count().max(1);
        let at_origin: u64 = self.at_origin.iter().sum();
        outcome.readings.extend([
            (Metric::Requests.into(), self.sum(|counts| counts.requests)),
            (Metric::OriginRequests.into(), at_origin as f64 / objects as f64),
            (
                Metric::HitRatio.into(),
                self.sum(|counts| counts.hits) / self.sum(|counts| counts.looked_up).max(1.0),
            ),
            (Metric::Duration.into(), Timestamp(now).as_secs_f64()),
            (Metric::Events.into(), events as f64),
        ]);
        let measured = Timestamp(now.saturating_sub(self.warm_up)).as_secs_f64();
        if measured > 0.0 {
            let rate = self.sum(|counts| counts.requests) / measured;
            outcome.readings.insert(Metric::Throughput.into(), rate);
        }
        let bytes = |to: usize| {
            let to_it = self.carried.iter().filter(|((_, region), _)| *region == to);
            to_it.map(|(_, bytes)| *bytes).sum::<u64>() as f64
        };
        outcome.regions = self.regions.iter().map(Counts::conclude).collect();
        for (to, region) in outcome.regions.iter_mut().enumerate() {
            region.readings.insert(Metric::LongBytes.into(), bytes(to));
        }
        let all = (0..self.regions.len()).map(bytes).sum();
        outcome.readings.insert(Metric::LongBytes.into(), all);
        let name = |region: usize| self.regions[region].name.clone();
        let links = self.carried.iter().map(|((from, to), bytes)| LinkUse {
            from: name(*from),
            to: name(*to),
            bytes: *bytes as f64,
            utilisation: 0.0,
        });
        outcome.links = links.collect();
        outcome
    }

    fn sum(&self, of: impl Fn(&Counts) -> u64) -> f64 {
        self.regions.iter().map(of).sum::<u64>() as f64
    }
}

impl Counts {
    fn conclude(&self) -> RegionUse {
        let mut readings = BTreeMap::from([(Metric::Requests.into(), self.requests as f64)]);
        if self.looked_up > 0 {
            readings.insert(Metric::HitRatio.into(), self.hits as f64 / self.looked_up as f64);
        }
        for (latency, metrics) in [
            (&self.first, [Metric::FirstP50, Metric::FirstP95]),
            (&self.later, [Metric::LatencyP50, Metric::LatencyP95]),
        ] {
            if latency.count() > 0 {
                let values = [0.5, 0.95].map(|part| latency.percentile(part));
                readings.extend(metrics.map(Into::into).into_iter().zip(values));
            }
        }
        RegionUse { name: self.name.clone(), readings }
    }
}
