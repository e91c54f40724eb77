//! The workload: clients, documents and the times of requests.

mod catalogue;
mod drift;
mod flash;
mod ramp;

use catalogue::Catalogue;
use drift::Drift;
pub(crate) use flash::Crowd;
pub(crate) use ramp::Ramp;

use std::sync::Arc;

use levada_trace::Trace;
use levada_types::{Key, Rng, Timestamp};

use crate::scenario::{Arrivals, Flash, Scenario};

/// A document that clients request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Document {
    pub(crate) key: Key,
    pub(crate) size: u64,
}

/// The documents of a trace, by number, and after them those of a crowd that do not exist.
pub(crate) fn documents(trace: &Trace, flash: Option<&Flash>) -> Vec<Document> {
    let document = |object: &levada_trace::TraceObject| Document {
        key: Key::of(object.name.as_bytes()),
        size: object.size,
    };
    let absent = flash.filter(|flash| !flash.exist).into_iter().flat_map(|flash| {
        (0..flash.urls).map(|number| Document {
            key: Key::of(format!("/absent/{number}").as_bytes()),
            size: flash.mean_size.0,
        })
    });
    trace.objects().iter().map(document).chain(absent).collect()
}

/// The source of requests: each has a client, a document and a time.
pub(crate) struct Demand {
    trace: Arc<Trace>,
    /// The next request of the trace.
    place: usize,
    played: u64,
    clients: u32,
    crowd: Option<Crowd>,
    drift: Option<Drift>,
    catalogue: Option<Catalogue>,
    /// Whether the trace begins again at its end.
    repeats: bool,
    pace: Pace,
    rng: Rng,
}

/// The rule for the time of the next request.
enum Pace {
    /// A Poisson process at a rate that may grow.
    Rate(Ramp),
    /// When another request finishes.
    Closed,
    /// At the times of the trace.
    Recorded,
}

impl Demand {
    pub(crate) fn new(
        scenario: &Scenario,
        trace: Arc<Trace>,
        documents: &[Document],
        clients: u32,
    ) -> Self {
        let workload = &scenario.workload;
        let mut rng = Rng::new(scenario.seed ^ CHANCE);
        let crowd =
            workload.flash.as_ref().map(|flash| Crowd::new(flash, documents, clients, &mut rng));
        let pace = match workload.arrivals {
            Arrivals::Ramp => {
                Pace::Rate(Ramp::new(workload.rate, workload.growth, workload.step.0))
            }
            Arrivals::Constant if !workload.steps.is_empty() => {
                Pace::Rate(Ramp::steps(&workload.steps, workload.step.0))
            }
            Arrivals::Constant => {
                Pace::Rate(match (workload.rate_at_end, scenario.measure.duration) {
                    (Some(end), Some(over)) => Ramp::line(workload.rate, end, over.0),
                    _ => Ramp::level(workload.rate),
                })
            }
            Arrivals::Closed => Pace::Closed,
            Arrivals::Recorded => Pace::Recorded,
        };
        let part = workload.drift.0;
        let drift = (part > 0.0).then(|| Drift::new(part, &documents[..trace.objects().len()]));
        let catalogue = workload.catalogue.as_ref().map(|growth| {
            let over =
                scenario.measure.duration.map_or(Timestamp::ZERO, |time| Timestamp::ZERO + time.0);
            let hot = crowd.as_ref().map_or(&[][..], Crowd::documents);
            Catalogue::new(growth, over, &trace, hot, &mut rng)
        });
        let repeats = scenario.repeats();
        let place = scenario.cache.warm_requests as usize % trace.requests().len();
        Self { trace, place, played: 0, clients, crowd, drift, catalogue, repeats, pace, rng }
    }

    /// The client and the document of request `number` before the run, when memories are filled.
    pub(crate) fn before(&mut self, number: u64) -> (u32, u32) {
        let requests = self.trace.requests();
        let client = levada_types::hash64(&number.to_le_bytes()) % u64::from(self.clients);
        let document = requests[number as usize % requests.len()];
        (client as u32, self.present(document, Timestamp::ZERO))
    }

    /// The document that is there at `now` in place of one of the trace.
    fn present(&mut self, document: u32, now: Timestamp) -> u32 {
        self.catalogue.as_mut().map_or(document, |catalogue| catalogue.instead_of(document, now))
    }

    /// The time of request `number` of `all` before the run, in nanoseconds from its beginning: that of the trace, or
    /// by the rate.
    pub(crate) fn time_before(&self, number: u64, all: u64, rate: f64) -> i64 {
        let time = |number: u64| Some(self.trace.times()?.get(number as usize)?.0 as i64);
        match (time(number), time(all)) {
            (Some(then), Some(beginning)) => then - beginning,
            _ => -((all - number) as f64 / rate * 1e9) as i64,
        }
    }

    /// The time of the request after the one sent at `now`; `None` in a closed loop and after the
    /// last request of a trace.
    pub(crate) fn next_time(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.is_at_its_end() {
            return None;
        }
        match &mut self.pace {
            Pace::Rate(ramp) => Some(ramp.next(now, &mut self.rng)),
            Pace::Closed => None,
            Pace::Recorded => self.trace.times()?.get(self.place).copied(),
        }
    }

    /// The request at `now`: its client and its document.
    ///
    /// Clients share the trace, read it in order, and start again at its end if it repeats. Clients
    /// of a flash crowd have their own documents.
    pub(crate) fn next(&mut self, now: Timestamp) -> (u32, u32) {
        let client = self.rng.below(self.clients as usize) as u32;
        self.played += 1;
        if let Some(crowd) = &self.crowd
            && let Some(document) = crowd.document(client, now, &mut self.rng)
        {
            return (client, document);
        }
        let document = self.trace.requests()[self.place];
        self.place += 1;
        if self.place == self.trace.requests().len() && self.repeats {
            self.place = 0;
        }
        let drift = self.drift.as_mut();
        let document = drift.map_or(document, |d| d.instead_of(document, now, &mut self.rng));
        (client, self.present(document, now))
    }

    /// Whether all requests of a trace that does not repeat were played.
    pub(crate) fn is_at_its_end(&self) -> bool {
        self.place >= self.trace.requests().len()
    }

    /// Requests played so far.
    pub(crate) fn played(&self) -> u64 {
        self.played
    }

    /// The rate in force at `now`, where there is one.
    pub(crate) fn rate(&self, now: Timestamp) -> Option<f64> {
        match &self.pace {
            Pace::Rate(ramp) => Some(ramp.rate(now)),
            Pace::Closed | Pace::Recorded => None,
        }
    }

    /// Whether requests are sent when others finish.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.pace, Pace::Closed)
    }
}

/// Seeds the workload's random numbers apart from others.
const CHANCE: u64 = 0x6465_6d61_6e64;
