//! The simulator's prediction: the same requests at the same moments meet the same cluster and policy. The servers have the names and the eviction of the real nodes, and a rate is carried by the
//! same rule: requests without an answer count.

use std::time::Duration;

use levada_cache::eviction::DEFAULT_EVICTION;
use levada_policy::ParameterValue;
use levada_sim::prototype::server_name;
use levada_sim::{
    Arrivals, Cache, Failure, Fidelity, Metric, NetworkModel, Outcome, Scenario, Servers, Size,
    Time, Workload,
};
use levada_testbed::emulation::{
    open_load::ANSWER_TIMEOUT,
    predict::{between, cluster as emulated, play as played},
    requests::Phase,
    strategy::Strategy,
};

use super::{
    Figures, PoliciesSetup,
    cluster::{FRONTS, QUEUE},
    period::LIMIT,
    scenario::{self, KILLED_EVERY, KILLED_FOR, MISSED, ONSET, is_constant},
};
use crate::args::policies::{PoliciesArgs, PoliciesScenario};

/// The figures in virtual time.
///
/// # Errors
/// If a parameter is wrong.
pub(super) fn predict(
    args: &PoliciesArgs,
    setup: &PoliciesSetup,
    scenario: PoliciesScenario,
    strategy: &Strategy,
) -> anyhow::Result<Figures> {
    let [warm_up, measured] = scenario::phases(scenario, args);
    if !is_constant(scenario) {
        return capacity(args, setup, scenario, strategy);
    }
    // Of a crowd, its first seconds are compared.
    let length = if scenario == PoliciesScenario::Crowd { ONSET } else { measured.length };
    let phases = [warm_up, Phase { length, ..measured }];
    Ok(figures(&simulate(args, setup, scenario, strategy, &phases, 0)?, None))
}

fn figures(outcome: &Outcome, capacity: Option<f64>) -> Figures {
    let of = |metric| outcome.reading(metric).unwrap_or_default();
    let (hit_ratio, p95) = (of(Metric::HitRatio), of(Metric::LatencyP95));
    Figures { capacity, hit_ratio, p95, range: None }
}

/// The capacity by a ramp: the figures of the median of several plays, and the range of their capacities.
fn capacity(
    args: &PoliciesArgs,
    setup: &PoliciesSetup,
    scenario: PoliciesScenario,
    strategy: &Strategy,
) -> anyhow::Result<Figures> {
    let plays = (0..PLAYS).map(|play| ramp(args, setup, scenario, strategy, play));
    let mut plays = plays.collect::<anyhow::Result<Vec<_>>>()?;
    plays.sort_by(|one, other| {
        one.capacity.unwrap_or(0.0).total_cmp(&other.capacity.unwrap_or(0.0))
    });
    let [lowest, highest] =
        [&plays[0], &plays[plays.len() - 1]].map(|play| play.capacity.unwrap_or(0.0));
    Ok(Figures { range: Some((lowest, highest)), ..plays[plays.len() / 2] })
}

/// One play of a ramp.
fn ramp(
    args: &PoliciesArgs,
    setup: &PoliciesSetup,
    scenario: PoliciesScenario,
    strategy: &Strategy,
    play: u64,
) -> anyhow::Result<Figures> {
    let [warm_up, first] = scenario::phases(scenario, args);
    let mut phases = vec![warm_up];
    let (mut carried, mut missed) = (Figures::default(), 0);
    for step in scenario::steps(first) {
        phases.push(step);
        let outcome = simulate(args, setup, scenario, strategy, &phases, play)?;
        match is_fine(&outcome) {
            true => (carried, missed) = (figures(&outcome, Some(step.rate)), 0),
            false => missed += 1,
        }
        if missed == MISSED {
            break;
        }
    }
    Ok(carried)
}

/// Whether the load was carried: as [`Period::is_fine`](super::period::Period::is_fine), where a request
/// that takes longer than the client waits has failed.
fn is_fine(outcome: &Outcome) -> bool {
    let latencies = outcome.series.iter().find(|series| series.name == "latency_cdf");
    let longest = latencies.and_then(|series| series.points.last()).map(|(seconds, _)| *seconds);
    let p95 = outcome.reading(Metric::LatencyP95);
    p95.is_some_and(|seconds| seconds < LIMIT.as_secs_f64())
        && longest.is_some_and(|seconds| seconds < ANSWER_TIMEOUT.as_secs_f64())
}

/// The cluster under the requests of these phases. The last phase is measured. Processors cost nothing. Each play has
/// other chances: the front-end of a request, and the choice among nodes of equal load.
fn simulate(
    args: &PoliciesArgs,
    setup: &PoliciesSetup,
    scenario: PoliciesScenario,
    strategy: &Strategy,
    phases: &[Phase],
    play: u64,
) -> anyhow::Result<Outcome> {
    let end: Duration = phases.iter().map(|phase| phase.length).sum();
    let from = end - phases.last().map_or(Duration::ZERO, |phase| phase.length);
    let network = [
        ("server_mbps", ParameterValue::Number(args.rate as f64 * 8e-6 * PLAIN_PACKET)),
        ("queue", ParameterValue::Integer(QUEUE as i64)),
        ("front_ends", ParameterValue::Integer(FRONTS.into())),
    ];
    let base = emulated(u64::from(args.seed) + (play << 32), strategy, network);
    let failure = (scenario == PoliciesScenario::Killed).then(|| Failure {
        at: Time(from),
        r#for: Time(KILLED_FOR),
        every: Some(Time(KILLED_EVERY)),
        ..Failure::default()
    });
    let cluster = Scenario {
        servers: Servers {
            count: args.nodes.into(),
            cpu: 1000.0,
            speeds: scenario::disks(scenario, args.nodes),
            active: 10_000,
            names: (0..args.nodes.into()).map(server_name).collect(),
            tries: scenario::tries(scenario),
            noticed_after: Time(NOTICED_AFTER),
            failure: failure.into_iter().collect(),
            ..Servers::default()
        },
        workload: Workload { arrivals: Arrivals::Recorded, repeat: None, ..base.workload },
        cache: Cache {
            memory: Size(setup.memory),
            eviction: DEFAULT_EVICTION.name.to_owned(),
            ..Cache::default()
        },
        network: NetworkModel {
            fidelity: Fidelity::Packet,
            segment: SEGMENT,
            initial_window: 10,
            window: WINDOW,
            first_timeout: Time(Duration::from_secs(1)),
            least_timeout: Time(Duration::from_millis(200)),
            ack_delay: Time(Duration::from_millis(40)),
            response_head: HEAD,
            persistent: true,
            ..base.network
        },
        measure: between(from, end + DRAIN),
        ..base
    };
    played(&cluster, &setup.documents.trace(args.seed.into(), phases))
}

/// Plays of a ramp: where a step of it is carried by some of them only, the capacity of a single one says little.
const PLAYS: u64 = 9;
/// Linux has larger windows. These fill half of a link's queue, as many as a document has segments.
const WINDOW: u32 = 64;
/// TCP's segment with time stamps, in bytes.
const SEGMENT: u32 = 1448;
/// A full packet of the simulator as a part of one of Linux, which has 12 bytes of time stamps more.
const PLAIN_PACKET: f64 = 1488.0 / 1500.0;
/// The head of a node's response, and the packets that begin and end connections, as counted on the wires.
const HEAD: Size = Size(250);
/// A front-end ejects a node after three requests that found it gone, and tries it again soon after it is back.
const NOTICED_AFTER: Duration = Duration::from_millis(200);
/// Time for the last requests, longer than the client waits.
const DRAIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PoliciesArgs,
    }

    /// At 121 and 127 requests/s the 95th percentile under `fdr` is so near to the limit that the front-ends of single
    /// requests decide.
    #[test]
    fn plays_differ_where_the_limit_is_near() {
        let options = "lab --policy fdr --scenario links --warm-up 10s --step 4s";
        let args = Line::parse_from(options.split(' ')).args;
        let setup = PoliciesSetup::new(&args).unwrap();
        let figures = predict(&args, &setup, PoliciesScenario::Links, &setup.strategies[0]);
        let Figures { capacity, range, .. } = figures.unwrap();
        let (lowest, highest) = range.unwrap();
        assert!(lowest < highest, "{lowest} to {highest}");
        assert!((lowest..=highest).contains(&capacity.unwrap()));
    }
}
