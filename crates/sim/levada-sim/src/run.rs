//! Plays a scenario to its end.

use std::ops::ControlFlow;

use crate::{Outcome, Prepared, Progress, cap, regions, world::World};

/// Runs `scenario`. `watch` is called several times per second of real time. If it returns
/// [`ControlFlow::Break`], the run stops and its outcome covers the time until then.
pub fn run(scenario: &Prepared, watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Outcome {
    if let Some(settings) = &scenario.scenario.cap {
        return cap::run(&scenario.scenario, settings, watch);
    }
    if let Some(settings) = &scenario.scenario.regions {
        return regions::world::run(scenario, settings, watch);
    }
    World::new(scenario).run(watch)
}
