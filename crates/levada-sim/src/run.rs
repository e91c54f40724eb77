//! Plays a scenario to its end.

use std::ops::ControlFlow;

use levada_types::Timestamp;

use crate::{Outcome, Prepared, cap, world::World};

/// Progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Simulated time.
    pub now: Timestamp,
    /// Requests finished.
    pub finished: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// The offered rate, in requests per second; 0 in a closed loop.
    pub rate: f64,
    /// Events of the kernel so far.
    pub events: u64,
}

/// Runs `scenario`. `watch` is called several times per second of real time. If it returns
/// [`ControlFlow::Break`], the run stops and its outcome covers the time until then.
pub fn run(scenario: &Prepared, watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Outcome {
    if let Some(settings) = &scenario.scenario.cap {
        return cap::run(&scenario.scenario, settings, watch);
    }
    World::new(scenario).run(watch)
}
