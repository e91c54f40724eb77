//! The requests: documents, and when each is asked for. Clients send them and the simulator plays them, so
//! that both meet the same moments and the same documents.

use std::time::Duration;

use levada_trace::{RICE, Trace, TraceObject};
use levada_types::{Rng, Timestamp};

use super::trace::{renamed, url};
use crate::cluster::load::poisson;

/// The documents, and the order in which they are requested.
pub struct Documents {
    /// The documents of the trace, and then the hot ones of crowds.
    objects: Vec<TraceObject>,
    order: Vec<u32>,
    /// Bytes of the documents of the trace.
    bytes: u64,
}

/// A time with one rate of requests.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// Requests per second.
    pub rate: f64,
    /// How long it lasts.
    pub length: Duration,
    /// The crowd that is there.
    pub crowd: Option<Crowd>,
}

/// A part of the requests that is for hot documents.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// From 0 to 1.
    pub share: f64,
    /// Number of hot documents.
    pub documents: usize,
}

impl Documents {
    /// So many documents, and requests for them, like Rice University's.
    pub fn new(count: usize, seed: u64) -> Self {
        let requests = count as u64 * (RICE.requests / RICE.files as u64);
        let trace = renamed(&RICE.scaled(count, requests).generate(seed));
        let hot =
            |number| TraceObject { name: url(&format!("hot-{number}"), HOT_SIZE), size: HOT_SIZE };
        let bytes = trace.objects().iter().map(|object| object.size).sum();
        let objects = trace.objects().iter().cloned().chain((0..HOT).map(hot)).collect();
        Self { objects, order: trace.requests().to_vec(), bytes }
    }

    /// Bytes of all documents but the hot ones.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The document of a number.
    pub fn get(&self, number: u32) -> &TraceObject {
        &self.objects[number as usize]
    }

    /// The requests of these phases, one after the other, for the simulator.
    pub fn trace(&self, seed: u64, phases: &[Phase]) -> Trace {
        let mut plan = RequestPlan::new(seed);
        let (mut requests, mut times, mut begin) = (Vec::new(), Vec::new(), Duration::ZERO);
        for phase in phases {
            for (at, number) in plan.next(self, *phase) {
                requests.push(number);
                times.push(Timestamp((begin + at).as_nanos() as u64));
            }
            begin += phase.length;
        }
        Trace::new(self.objects.clone(), requests).at(times)
    }
}

/// The times and documents of one phase after the other. The same seed and phases give the same requests, and
/// a phase that is cut short the first of them.
pub struct RequestPlan {
    rng: Rng,
    /// Requests for documents of the trace so far.
    played: usize,
}

impl RequestPlan {
    /// Before the first phase.
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), played: 0 }
    }

    /// The requests of a phase at exponentially distributed intervals: the time since it began, and the number
    /// of the document.
    pub fn next(&mut self, documents: &Documents, phase: Phase) -> Vec<(Duration, u32)> {
        let times = poisson(phase.rate, (Duration::ZERO, phase.length), Rng::new(self.rng.bits()));
        let mut choice = Rng::new(self.rng.bits());
        times.map(|at| (at, self.choose(documents, phase.crowd, &mut choice))).collect()
    }

    fn choose(&mut self, documents: &Documents, crowd: Option<Crowd>, rng: &mut Rng) -> u32 {
        if let Some(crowd) = crowd.filter(|crowd| rng.unit() < crowd.share) {
            let hot = rng.below(crowd.documents.clamp(1, HOT));
            return (documents.objects.len() - HOT + hot) as u32;
        }
        self.played += 1;
        documents.order[(self.played - 1) % documents.order.len()]
    }
}

const HOT: usize = 10;
const HOT_SIZE: u64 = 6_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn simulator_gets_the_requests_that_clients_send() {
        let documents = Documents::new(2_000, 1);
        let crowd = Some(Crowd { share: 0.5, documents: 1 });
        let phases = [(100.0, 2, None), (50.0, 4, crowd)];
        let phases =
            phases.map(|(rate, seconds, crowd)| Phase { rate, length: seconds * SECOND, crowd });
        let mut plan = RequestPlan::new(7);
        let sent: Vec<_> = phases.iter().flat_map(|phase| plan.next(&documents, *phase)).collect();
        let trace = documents.trace(7, &phases);
        assert_eq!(trace.requests(), sent.iter().map(|(_, number)| *number).collect::<Vec<_>>());
        let times = trace.times().unwrap();
        assert!(times.is_sorted() && times.len() == sent.len(), "{times:?}");
        let second = times.partition_point(|at| *at < Timestamp(2_000_000_000));
        let since = |at: Timestamp| Duration::from_nanos(at.0);
        assert_eq!(since(times[0]), sent[0].0);
        assert_eq!(since(times[second]), 2 * SECOND + sent[second].0);
        let hot =
            sent[second..].iter().filter(|(_, number)| documents.get(*number).size == HOT_SIZE);
        assert!((60..140).contains(&hot.count()));

        let short = [phases[0], Phase { length: SECOND, ..phases[1] }];
        let cut = documents.trace(7, &short);
        assert_eq!(cut.requests(), &trace.requests()[..cut.requests().len()]);
    }
}
