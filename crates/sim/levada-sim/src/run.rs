//! Plays a scenario to its end.

use std::ops::ControlFlow;

use levada_cache::eviction::{DEFAULT_EVICTION, find_eviction};
use levada_policy::{Deployment, build};

use crate::{Outcome, Prepared, Progress, Scenario, regions, world::World};

/// Runs `scenario`. `watch` is called several times per second of real time. If it returns
/// [`ControlFlow::Break`], the run stops and its outcome covers the time until then.
pub fn run(scenario: &Prepared, watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Outcome {
    if let Some(settings) = &scenario.scenario.cap {
        return run_cap(&scenario.scenario, settings, watch);
    }
    if let Some(settings) = &scenario.scenario.regions {
        return regions::world::run(scenario, settings, watch);
    }
    World::new(scenario).run(watch)
}

/// WWW10's cluster has one switch, over servers that never refuse.
fn run_cap(
    scenario: &Scenario,
    settings: &levada_cap::Settings,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Outcome {
    let Scenario { policy, cache, servers, seed, .. } = scenario;
    let policy = build(&policy.name, &policy.parameters, &Deployment::default());
    let policy = policy.expect("the scenario has been prepared");
    let eviction = find_eviction(&cache.eviction).unwrap_or(DEFAULT_EVICTION);
    levada_cap::run(settings, servers.count, policy, eviction, *seed, watch)
}
