//! Queues whose behaviour is known in closed form, on the simulator's own kernel. Tests compare the
//! kernel with the formulas; a benchmark measures its speed.

use levada_types::{Rng, Timestamp};

use crate::{kernel::Agenda, server::Station};

/// A queue before one server in Kendall's notation; arrivals are a Poisson process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Exponential service times, first come, first served.
    Mm1,
    /// Equal service times, first come, first served.
    Md1,
    /// Exponential service times, all jobs served at once with equal shares: processor sharing.
    Mm1Ps,
}

impl Queue {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Mm1, Self::Md1, Self::Mm1Ps];

    /// As reports print it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mm1 => "M/M/1",
            Self::Md1 => "M/D/1",
            Self::Mm1Ps => "M/M/1-PS",
        }
    }

    /// The mean time in the system, in mean lengths of a job, when the server is busy for `load` of
    /// the time (Kleinrock, Queueing Systems I, 3.2 and 5.6; II, 4.4).
    pub fn mean_sojourn(self, load: f64) -> f64 {
        match self {
            Self::Mm1 | Self::Mm1Ps => 1.0 / (1.0 - load),
            Self::Md1 => 1.0 + load / (2.0 * (1.0 - load)),
        }
    }

    /// Simulates `jobs` jobs of `length` on average, from an empty system; gives the mean time in
    /// the system, in mean lengths.
    pub fn simulate(self, load: f64, jobs: u64, seed: u64) -> f64 {
        let arrivals = JobArrivals {
            rng: Rng::new(seed),
            mean: LENGTH / load,
            lengths: Rng::new(seed ^ 0x1e46),
            fixed: self == Self::Md1,
        };
        let total = match self {
            Self::Mm1Ps => shared(arrivals, jobs),
            Self::Mm1 | Self::Md1 => in_turn(arrivals, jobs),
        };
        total / jobs as f64 / LENGTH
    }
}

/// The mean length of a job, in ns.
const LENGTH: f64 = 1e6;

/// Draws when jobs arrive and how long they are.
struct JobArrivals {
    rng: Rng,
    mean: f64,
    lengths: Rng,
    fixed: bool,
}

impl JobArrivals {
    fn next(&mut self, now: Timestamp) -> Timestamp {
        Timestamp(now.0 + (self.rng.exponential() * self.mean) as u64)
    }

    fn length(&mut self) -> f64 {
        if self.fixed { LENGTH } else { self.lengths.exponential() * LENGTH }
    }
}

/// An event of these queues.
#[derive(Clone, Copy, Debug)]
enum QueueEvent {
    Arrival,
    /// The job that arrived at this time is done, unless the queue has changed since the change of
    /// this number.
    Departure(Timestamp, u64),
}

/// First come, first served: the sum of all times in the system, in ns.
fn in_turn(mut arrivals: JobArrivals, jobs: u64) -> f64 {
    let (mut agenda, mut station) = (Agenda::default(), Station::default());
    let (mut sum, mut come) = (0.0, 0);
    agenda.schedule(arrivals.next(Timestamp::ZERO), QueueEvent::Arrival);
    while let Some((now, event)) = agenda.next() {
        match event {
            QueueEvent::Arrival => {
                let done = station.take(now, arrivals.length() as u64);
                agenda.schedule(done, QueueEvent::Departure(now, 0));
                come += 1;
                if come < jobs {
                    agenda.schedule(arrivals.next(now), QueueEvent::Arrival);
                }
            }
            QueueEvent::Departure(came, _) => sum += (now - came).as_nanos() as f64,
        }
    }
    sum
}

/// Equal shares: the sum of all times in the system, in ns. `served` is the service that a job
/// present from the beginning would have received. It is the same for all jobs, so each job leaves
/// when `served` reaches a value known at its arrival. Only the next departure is in the agenda.
fn shared(mut arrivals: JobArrivals, jobs: u64) -> f64 {
    let mut agenda = Agenda::default();
    // The value of `served` at which each job is done, largest first.
    let mut present: Vec<(f64, Timestamp)> = Vec::new();
    let (mut served, mut changed, mut change) = (0.0, Timestamp::ZERO, 0);
    let (mut sum, mut come) = (0.0, 0);
    agenda.schedule(arrivals.next(Timestamp::ZERO), QueueEvent::Arrival);
    while let Some((now, event)) = agenda.next() {
        if matches!(event, QueueEvent::Departure(_, at) if at != change) {
            continue;
        }
        if !present.is_empty() {
            served += (now - changed).as_nanos() as f64 / present.len() as f64;
        }
        changed = now;
        match event {
            QueueEvent::Arrival => {
                let done = served + arrivals.length();
                let place = present.partition_point(|(other, _)| *other >= done);
                present.insert(place, (done, now));
                come += 1;
                if come < jobs {
                    agenda.schedule(arrivals.next(now), QueueEvent::Arrival);
                }
            }
            QueueEvent::Departure(came, _) => {
                present.pop();
                sum += (now - came).as_nanos() as f64;
            }
        }
        change += 1;
        if let Some((done, came)) = present.last() {
            let longer = ((done - served).max(0.0) * present.len() as f64).round() as u64;
            agenda.schedule(Timestamp(now.0 + longer), QueueEvent::Departure(*came, change));
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_take_as_long_as_their_closed_forms_say() {
        for queue in Queue::ALL {
            for load in [0.3, 0.6] {
                let simulated = queue.simulate(load, 2_000_000, 1);
                let known = queue.mean_sojourn(load);
                let off = simulated / known - 1.0;
                assert!(off.abs() < 0.01, "{} at {load}: {simulated} for {known}", queue.as_str());
            }
        }
    }
}
