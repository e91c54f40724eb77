//! The peak hour, and the requests to simulate: those of that hour, after those that fill the memories.

use std::ops::Range;

use anyhow::bail;
use levada_trace::{Trace, TraceObject};
use levada_types::{Rng, Timestamp};
use serde::Serialize;

use crate::read::{Log, Object};

/// The hour with most requests.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Peak {
    /// Requests per second, over the hour.
    pub(crate) rate: f64,
    /// Mean bytes of a requested object.
    pub(crate) mean_bytes: f64,
    /// When it begins: the hour of the day (UTC), if the log has times.
    pub(crate) hour: Option<u32>,
    /// Hours that the log covers.
    pub(crate) hours: Option<f64>,
    /// Requests by hour of the day.
    pub(crate) by_hour: Vec<u64>,
    /// The index of its first request, and of the one after its last.
    #[serde(skip)]
    pub(crate) range: (usize, usize),
}

/// Requests to measure at least, where the log has them.
const LEAST: usize = 5_000;

/// Finds the peak. `rate` replaces the rate of the log.
///
/// # Errors
/// If the log does not say when requests came, and there is no rate.
pub(crate) fn peak(log: &Log, rate: Option<f64>) -> anyhow::Result<Peak> {
    let requests = &log.requests;
    let timed = requests.iter().all(|request| request.time().is_some());
    let mut peak = Peak {
        rate: rate.unwrap_or(0.0),
        mean_bytes: 0.0,
        hour: None,
        hours: None,
        by_hour: Vec::new(),
        range: (requests.len() / 2, requests.len()),
    };
    if timed {
        let first = requests[0].seconds();
        let span = (requests[requests.len() - 1].seconds() - first).max(1.0);
        peak.by_hour = vec![0; 24];
        let mut begin = 0;
        let mut best = 0;
        for (at, request) in requests.iter().enumerate() {
            peak.by_hour[hour(request.seconds()) as usize] += 1;
            while request.seconds() - requests[begin].seconds() >= 3600.0 {
                begin += 1;
            }
            if at + 1 - begin > best {
                best = at + 1 - begin;
                peak.range = (begin, at + 1);
            }
        }
        peak.hours = Some(span / 3600.0);
        peak.rate = rate.unwrap_or(best as f64 / span.min(3600.0));
        peak.hour = Some(hour(requests[peak.range.0].seconds()));
        // A quiet hour has too few requests for figures: those around it are measured at its rate.
        let lacking = LEAST.min(requests.len() / 2).saturating_sub(best);
        let end = (peak.range.1 + lacking / 2).min(requests.len());
        peak.range = (end.saturating_sub(best + lacking), end);
        // A short log has no requests before its peak: its first half fills the memories.
        if peak.range.0 < requests.len() / 4 {
            peak.range.0 = (peak.range.0 + peak.range.1) / 2;
        }
    } else if rate.is_none() {
        bail!(
            "not every line has a time, so the peak hour is unknown; give --rate with the requests per second at the peak"
        );
    }
    let window = &requests[peak.range.0..peak.range.1];
    let bytes: f64 = window.iter().map(|r| log.objects[r.object as usize].bytes() as f64).sum();
    peak.mean_bytes = bytes / window.len().max(1) as f64;
    Ok(peak)
}

fn hour(time: f64) -> u32 {
    (time.rem_euclid(86_400.0) / 3600.0) as u32 % 24
}

/// Requests to simulate, by one model of growth.
pub(crate) struct Load {
    /// The model.
    pub(crate) model: &'static str,
    pub(crate) trace: Trace,
    /// Requests that fill the caches.
    pub(crate) warm: usize,
    /// Requests per second.
    pub(crate) rate: f64,
}

impl Load {
    /// Requests that are measured.
    pub(crate) fn measured(&self) -> usize {
        self.trace.requests().len() - self.warm
    }

    /// When a request is sent, in seconds from the first measured one: those before it as logged, all others by the rate.
    pub(crate) fn seconds(&self, at: usize) -> f64 {
        let place = at as f64 - self.warm as f64;
        match self.trace.times().filter(|_| at < self.warm) {
            Some(times) => times[at].as_secs_f64() - times[self.warm].as_secs_f64(),
            None => place / self.rate,
        }
    }

    /// The bits per second that `count` requests from `begin` on ask for.
    pub(crate) fn bits(&self, begin: usize, count: usize) -> f64 {
        let requests = self.trace.requests().iter().skip(begin).take(count);
        let sizes = requests.map(|id| self.trace.objects()[*id as usize].size as f64);
        self.rate * 8.0 * sizes.sum::<f64>() / count as f64
    }
}

/// The loads of the peak hour at `growth` times its rate, with `most` measured requests and up to `filling` before
/// them.
pub(crate) fn loads(log: &Log, peak: &Peak, growth: f64, most: usize, filling: usize) -> Vec<Load> {
    let end = peak.range.1.min(peak.range.0 + most);
    let begin = peak.range.0.saturating_sub(filling);
    let (requests, requested) = renumbered(log, begin..end);
    let objects = |copies: usize| -> Vec<TraceObject> {
        let one = |copy: usize| {
            requested.iter().map(move |object| TraceObject {
                name: format!("{:016x}-{copy}", object.key.0).into(),
                size: object.bytes(),
            })
        };
        (0..copies).flat_map(one).collect()
    };
    let (warm, rate) = (peak.range.0 - begin, peak.rate * growth);
    let times = times(log, begin..end);
    let timed = |trace: Trace, times: Option<Vec<Timestamp>>| match times {
        Some(times) => trace.at(times),
        None => trace,
    };
    let same = timed(Trace::new(objects(1), requests.clone()), times.clone());
    let mut loads = vec![Load { model: "the same objects", trace: same, warm, rate }];
    if growth > 1.0 {
        let mut rng = Rng::new(1);
        let (mut grown, mut grown_times, mut grown_warm) = (Vec::new(), times.clone(), 0);
        grown_times.iter_mut().for_each(Vec::clear);
        let count = requested.len() as u32;
        for (at, object) in requests.iter().enumerate() {
            if at == warm {
                grown_warm = grown.len();
            }
            grown.push(*object);
            let mut left = growth - 1.0;
            for copy in 1..growth.ceil() as u32 {
                if rng.unit() < left {
                    grown.push(object + copy * count);
                }
                left -= 1.0;
            }
            if let (Some(all), Some(times)) = (&mut grown_times, &times) {
                all.resize(grown.len(), times[at]);
            }
        }
        let trace = timed(Trace::new(objects(growth.ceil() as usize), grown), grown_times);
        loads.push(Load { model: "more objects", trace, warm: grown_warm, rate });
    }
    loads
}

/// Some requests as numbers of the objects that they ask for, and these objects.
fn renumbered(log: &Log, range: Range<usize>) -> (Vec<u32>, Vec<Object>) {
    let mut numbers = vec![None; log.objects.len()];
    let mut objects = Vec::new();
    let requests = log.requests[range].iter().map(|request| {
        let id = request.object as usize;
        *numbers[id].get_or_insert_with(|| {
            objects.push(log.objects[id]);
            objects.len() as u32 - 1
        })
    });
    let requests = requests.collect();
    (requests, objects)
}

/// The times of some requests from the first of them, if the log has times.
fn times(log: &Log, range: Range<usize>) -> Option<Vec<Timestamp>> {
    let requests = &log.requests[range];
    let first = requests.first()?.time()?;
    let since = |time: f64| Timestamp(((time - first).max(0.0) * 1e9) as u64);
    requests.iter().map(|request| Some(since(request.time()?))).collect()
}
