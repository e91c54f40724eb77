//! The events that the cluster meets: a ramp, a cold start, a crowd, or nodes that are killed.

use std::time::Duration;

use anyhow::anyhow;
use tokio::time::{Instant, sleep_until};

use super::{
    cluster::{ClusterHosts, NodeCluster},
    load::{Crowd, LIMIT, Load, Period},
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

/// The crowd that is there from the beginning.
pub(super) fn crowd(scenario: PoliciesScenario) -> Option<Crowd> {
    use PoliciesScenario::{DiskFlash, LinksFlash};
    matches!(scenario, LinksFlash | DiskFlash).then_some(Crowd { share: 0.25, documents: 10 })
}

/// The rates of a ramp.
pub(super) fn rates(from: f64) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(from), |rate| Some(rate * GROWTH))
}

/// Plays the scenario.
pub(super) async fn play(
    scenario: PoliciesScenario,
    args: &PoliciesArgs,
    load: Load<'_>,
    (hosts, cluster): (&ClusterHosts, &mut NodeCluster),
) -> anyhow::Result<ScenarioOutcome> {
    Ok(match scenario {
        PoliciesScenario::Cold => cold(args, load).await,
        PoliciesScenario::Crowd => one_document(args, load).await,
        PoliciesScenario::Killed => killed(args, load, hosts, cluster).await?,
        _ => ramp(args, crowd(scenario), load).await,
    })
}

/// Raises the rate until [`MISSED`] steps in a row are not carried.
async fn ramp(args: &PoliciesArgs, crowd: Option<Crowd>, mut load: Load<'_>) -> ScenarioOutcome {
    load.offer(args.from, args.warm_up, crowd).await;
    let mut carried = None;
    let mut missed = 0;
    let mut before = None;
    for rate in rates(args.from) {
        let now = load.offer(rate, args.step, crowd).await;
        // All requests of the step before are older than the limit.
        if let Some((rate, period)) = before.replace((rate, now)) {
            let period = load.judge(period);
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

/// Meets empty caches with a constant rate.
async fn cold(args: &PoliciesArgs, mut load: Load<'_>) -> ScenarioOutcome {
    load.offer(COLD_RATE, args.duration * 2 / 3, None).await;
    let last = load.offer(COLD_RATE, args.duration / 3, None).await;
    tokio::time::sleep(LIMIT).await;
    ScenarioOutcome::Cold(load.judge(last))
}

/// Kills one node after the other.
async fn killed(
    args: &PoliciesArgs,
    mut load: Load<'_>,
    hosts: &ClusterHosts,
    cluster: &mut NodeCluster,
) -> anyhow::Result<ScenarioOutcome> {
    let (before, _) = load.offer(KILLED_RATE, args.warm_up, None).await;
    let begin = before + args.warm_up;
    let killing = async {
        for turn in 0.. {
            sleep_until(begin + KILLED_EVERY * turn).await;
            cluster.kill(hosts, (turn % u32::from(args.nodes)) as usize, KILLED_FOR).await?;
        }
        Ok(())
    };
    let period = tokio::select! {
        ended = killing => return Err(ended.err().unwrap_or_else(|| anyhow!("there is no end of turns"))),
        period = load.offer(KILLED_RATE, args.duration, None) => period,
    };
    tokio::time::sleep(LIMIT).await;
    Ok(ScenarioOutcome::Killed(load.judge(period)))
}

/// Has half of the requests ask for one document from one moment on.
async fn one_document(args: &PoliciesArgs, mut load: Load<'_>) -> ScenarioOutcome {
    load.offer(CROWD_RATE, args.warm_up, None).await;
    let crowd = Crowd { share: 0.5, documents: 1 };
    let (begin, end) = load.offer(CROWD_RATE, args.duration, Some(crowd)).await;
    tokio::time::sleep(LIMIT).await;
    let seconds = (0..args.duration.as_secs() as u32).map(|at| SECOND * at);
    let is_slow = |at: &Duration| {
        let second: (Instant, Instant) = (begin + *at, begin + *at + SECOND);
        !load.judge(second).is_fine()
    };
    let settled = seconds.rev().find(is_slow).map_or(Duration::ZERO, |last| last + SECOND);
    ScenarioOutcome::Crowd {
        onset: load.judge((begin, begin + ONSET)),
        settled: Some(settled).filter(|settled| *settled < args.duration),
        all: load.judge((begin, end)),
    }
}

/// How many steps in a row that are not carried end a ramp: one is noise.
pub(super) const MISSED: u32 = 2;
/// Growth of a ramp at each step.
const GROWTH: f64 = 1.05;
/// Requests per second.
pub(super) const COLD_RATE: f64 = 150.0;
pub(super) const CROWD_RATE: f64 = 170.0;
pub(super) const KILLED_RATE: f64 = 130.0;
/// The first seconds of a crowd.
pub(super) const ONSET: Duration = Duration::from_secs(10);
/// Time from one node that is killed to the next.
pub(super) const KILLED_EVERY: Duration = Duration::from_secs(20);
/// Time until a node that was killed is started again: as long as it is ejected by a node's defaults.
pub(super) const KILLED_FOR: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);
