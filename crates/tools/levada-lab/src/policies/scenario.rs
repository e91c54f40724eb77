//! The events that the cluster meets: a ramp, a cold start, a crowd, or nodes that are killed.

use std::{iter, time::Duration};

use anyhow::anyhow;
use levada_testbed::emulation::{
    open_load::Load,
    requests::{Crowd, Phase},
};
use tokio::time::{Instant, sleep_until};

use super::{
    cluster::{ClusterHosts, NodeCluster},
    period::{LIMIT, Period},
};
use crate::args::policies::{PoliciesArgs, PoliciesScenario};

/// The results of a scenario.
#[derive(Clone, Debug)]
pub(super) enum ScenarioOutcome {
    /// The highest rate of the ramp that was carried, and the step at this rate. `None` if not even
    /// the first was.
    Capacity(Option<(f64, Period)>),
    /// The last third of a cold start.
    Cold(Period),
    /// The time in which nodes are killed.
    Killed(Period),
    Crowd {
        /// The first ten seconds.
        onset: Period,
        /// The time from which every second was carried. `None` if the last one was not.
        settled: Option<Duration>,
        all: Period,
    },
}

/// Speeds of the nodes' emulated disks.
pub(super) fn disks(scenario: PoliciesScenario, nodes: u8) -> Vec<f64> {
    let slow = if scenario == PoliciesScenario::Mixed { 0.5 } else { 1.0 };
    (0..nodes).map(|at| disk(scenario) * if at % 2 == 1 { slow } else { 1.0 }).collect()
}

/// How often front-ends try a request: a failure is counted, not hidden, but where nodes are killed.
pub(super) fn tries(scenario: PoliciesScenario) -> u32 {
    if scenario == PoliciesScenario::Killed { 3 } else { 1 }
}

/// Speed of an emulated disk, relative to that of ASPLOS'98. That disk is too fast to limit a node behind
/// a slow link: one request in seven is a miss, and takes it 32 ms.
fn disk(scenario: PoliciesScenario) -> f64 {
    match scenario {
        PoliciesScenario::Links | PoliciesScenario::LinksFlash | PoliciesScenario::Crowd => 1000.0,
        PoliciesScenario::Disk | PoliciesScenario::DiskFlash | PoliciesScenario::Mixed => 0.25,
        PoliciesScenario::Cold | PoliciesScenario::Killed => 1.0,
    }
}

/// The warm-up of a scenario, and the phase that is measured; for a ramp, its first step.
pub(super) fn phases(scenario: PoliciesScenario, args: &PoliciesArgs) -> [Phase; 2] {
    use PoliciesScenario::{Cold, Crowd as OneDocument, DiskFlash, Killed, LinksFlash};
    let (step, length) = (args.step, args.duration);
    let few = matches!(scenario, LinksFlash | DiskFlash);
    let crowd = few.then_some(Crowd { share: 0.25, documents: 10 });
    let one = Some(Crowd { share: 0.5, documents: 1 });
    let phases = match scenario {
        Cold => [(COLD_RATE, length * 2 / 3, None), (COLD_RATE, length / 3, None)],
        OneDocument => [(CROWD_RATE, args.warm_up, None), (CROWD_RATE, length, one)],
        Killed => [(KILLED_RATE, args.warm_up, None), (KILLED_RATE, length, None)],
        _ => [(args.from, args.warm_up, crowd), (args.from, step, crowd)],
    };
    phases.map(|(rate, length, crowd)| Phase { rate, length, crowd })
}

/// The steps of a ramp from the first on.
pub(super) fn steps(first: Phase) -> impl Iterator<Item = Phase> {
    iter::successors(Some(first), |last| Some(Phase { rate: last.rate * GROWTH, ..*last }))
}

/// Whether the scenario has one rate.
pub(super) fn is_constant(scenario: PoliciesScenario) -> bool {
    use PoliciesScenario::{Cold, Crowd, Killed};
    matches!(scenario, Cold | Crowd | Killed)
}

/// Plays the scenario.
pub(super) async fn play(
    scenario: PoliciesScenario,
    args: &PoliciesArgs,
    mut load: Load<'_>,
    (hosts, cluster): (&ClusterHosts, &mut NodeCluster),
) -> anyhow::Result<ScenarioOutcome> {
    let [warm_up, phase] = phases(scenario, args);
    load.offer(warm_up).await;
    if !is_constant(scenario) {
        return Ok(ramp(phase, load).await);
    }
    let period = match scenario {
        PoliciesScenario::Killed => killed(args, phase, &mut load, hosts, cluster).await?,
        _ => load.offer(phase).await,
    };
    tokio::time::sleep(LIMIT).await;
    Ok(match scenario {
        PoliciesScenario::Cold => ScenarioOutcome::Cold(Period::of(&load.records(period))),
        PoliciesScenario::Killed => ScenarioOutcome::Killed(Period::of(&load.records(period))),
        _ => one_document(phase, period, &load),
    })
}

/// Raises the rate until [`MISSED`] steps in a row are not carried.
async fn ramp(first: Phase, mut load: Load<'_>) -> ScenarioOutcome {
    let mut carried = None;
    let mut missed = 0;
    let mut before = None;
    for phase in steps(first) {
        let now = load.offer(phase).await;
        // All requests of the step before are older than the limit.
        if let Some((rate, period)) = before.replace((phase.rate, now)) {
            let period = Period::of(&load.records(period));
            match period.is_fine() {
                true => (carried, missed) = (Some((rate, period)), 0),
                false => missed += 1,
            }
            tracing::debug!(rate, missed, "a step of the ramp was judged");
        }
        if missed == MISSED {
            break;
        }
    }
    ScenarioOutcome::Capacity(carried)
}

/// Kills one node after the other while the phase lasts.
async fn killed(
    args: &PoliciesArgs,
    phase: Phase,
    load: &mut Load<'_>,
    hosts: &ClusterHosts,
    cluster: &mut NodeCluster,
) -> anyhow::Result<(Instant, Instant)> {
    let begin = load.due();
    let killing = async {
        for turn in 0.. {
            sleep_until(begin + KILLED_EVERY * turn).await;
            cluster.kill(hosts, (turn % u32::from(args.nodes)) as usize, KILLED_FOR).await?;
        }
        Ok(())
    };
    tokio::select! {
        ended = killing => Err(ended.err().unwrap_or_else(|| anyhow!("there is no end of turns"))),
        period = load.offer(phase) => Ok(period),
    }
}

/// The results of a phase in which half of the requests ask for one document.
fn one_document(
    phase: Phase,
    (begin, end): (Instant, Instant),
    load: &Load<'_>,
) -> ScenarioOutcome {
    let seconds = (0..phase.length.as_secs() as u32).map(|at| SECOND * at);
    let is_slow = |at: &Duration| {
        let second: (Instant, Instant) = (begin + *at, begin + *at + SECOND);
        !Period::of(&load.records(second)).is_fine()
    };
    let settled = seconds.rev().find(is_slow).map_or(Duration::ZERO, |last| last + SECOND);
    ScenarioOutcome::Crowd {
        onset: Period::of(&load.records((begin, begin + ONSET))),
        settled: Some(settled).filter(|settled| *settled < phase.length),
        all: Period::of(&load.records((begin, end))),
    }
}

/// How many steps in a row that are not carried end a ramp: one is noise.
pub(super) const MISSED: u32 = 2;
/// Growth of a ramp at each step.
const GROWTH: f64 = 1.05;
/// Requests per second.
const COLD_RATE: f64 = 150.0;
const CROWD_RATE: f64 = 170.0;
const KILLED_RATE: f64 = 130.0;
/// The first seconds of a crowd.
pub(super) const ONSET: Duration = Duration::from_secs(10);
/// Time from one node that is killed to the next.
pub(super) const KILLED_EVERY: Duration = Duration::from_secs(20);
/// Time until a node that was killed is started again: as long as it is ejected by a node's defaults.
pub(super) const KILLED_FOR: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);
