//! One measurement: the work of the back-ends and the use of the machine between two snapshots of a
//! cluster.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use levada_net::lab::LabCluster;
use levada_sim::{machine::Usage, prototype::Measured};
use levada_types::format_duration;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    backend::UsageReport,
    cluster::{Cluster, Spec, Times},
    processor,
};
use crate::{
    cluster::{load::ClosedLoop, until_interrupted},
    options::Transport,
};

/// The results of a measurement.
#[derive(Clone, Debug)]
pub struct Run {
    /// The work of the back-ends.
    pub measured: Measured,
    /// Requests without a right answer.
    pub failed: u64,
    /// How often connections ended at a back-end or came back from it, for each answered request.
    pub handed: f64,
    /// Processor time of the front-end per request, in microseconds.
    pub front_microseconds: f64,
    /// Parts of all cores used by front-end, back-ends and clients.
    pub shares: [f64; 3],
    /// Lateness of the back-ends' timers, in milliseconds: the mean, and the maximum since they began.
    pub late: [f64; 2],
}

/// The time of a measurement, in real time.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The time before it.
    pub warm_up: Duration,
    /// Its length.
    pub measure: Duration,
    /// The time between two snapshots.
    pub sample: Duration,
}

impl Window {
    /// The sentence for reports, in emulated time.
    pub fn sentence(&self, time_scale: f64) -> String {
        format!(
            "time: {} after a warm-up of {}, of which each second takes {time_scale} s; rates are per emulated second",
            format_duration(self.measure),
            format_duration(self.warm_up)
        )
    }

    /// From emulated times.
    pub fn scaled(self, time_scale: f64) -> Self {
        let scaled = |time: Duration| time.mul_f64(time_scale);
        Self {
            warm_up: scaled(self.warm_up),
            measure: scaled(self.measure),
            sample: scaled(self.sample),
        }
    }
}

/// Starts a cluster and clients, and measures; `None` if ctrl-c was pressed before the end.
///
/// # Errors
/// If a process does not start, or dies. Handed-over connections need root.
pub fn measure(
    transport: Transport,
    spec: &Spec,
    window: Window,
    start: impl FnOnce(&Cluster) -> ClosedLoop + Send,
) -> anyhow::Result<Option<Run>> {
    let hosts = match transport.after() {
        None => None,
        Some(after) => {
            let backs = u8::try_from(spec.backends);
            let backs = backs.context("the network has no addresses for this many back-ends")?;
            Some((LabCluster::new(backs)?, after))
        }
    };
    // This thread makes all its connections on the clients' host.
    until_interrupted(hosts.as_ref().map(|(hosts, _)| &hosts.client), async || {
        let cluster = match &hosts {
            None => Cluster::on_loopback(spec).await?,
            Some((hosts, after)) => Cluster::on_hosts(spec, hosts, after).await?,
        };
        let clients = start(&cluster);
        let looks = looks(&cluster, window).await?;
        Run::of(&looks, clients.end())
    })
}

/// A snapshot of a cluster.
struct Look {
    at: Instant,
    reports: Vec<UsageReport>,
    handed: u64,
    times: Times,
}

async fn looks(cluster: &Cluster, window: Window) -> anyhow::Result<Vec<Look>> {
    let begin = Instant::now() + window.warm_up;
    let end = begin + window.measure;
    let (mut looks, mut next) = (Vec::new(), begin);
    loop {
        tokio::time::sleep_until(next).await;
        let reports = cluster.reports().await?;
        let handed = cluster.handed().await?;
        looks.push(Look { at: Instant::now(), reports, handed, times: cluster.times()? });
        if next >= end {
            return Ok(looks);
        }
        next = end.min(next + window.sample);
    }
}

impl Run {
    fn of(looks: &[Look], failed: u64) -> anyhow::Result<Self> {
        let (Some(first), Some(last)) = (looks.first(), looks.last()) else {
            anyhow::bail!("nothing was measured");
        };
        let usages = |look: &Look| look.reports.iter().map(|report| report.usage).collect();
        let samples: Vec<Vec<Usage>> = looks.iter().map(usages).collect();
        let sum = |of: fn(&UsageReport) -> u64| {
            let all = |look: &Look| look.reports.iter().map(of).sum::<u64>();
            (all(last) - all(first)) as f64
        };
        let answered = sum(|report| report.usage.answered);
        ensure!(answered > 0.0, "no request was answered in the measured time: measure for longer");
        let took = |of: fn(&Times) -> Duration| (of(&last.times) - of(&first.times)).as_secs_f64();
        let all = (last.at - first.at).as_secs_f64() * processor::cores();
        let most = last.reports.iter().map(|report| report.late.most).max();
        let most = most.context("there is no back-end")? as f64;
        let late = sum(|report| report.late.sum) / sum(|report| report.late.answers).max(1.0);
        Ok(Self {
            measured: Measured::of(&samples),
            failed,
            handed: (last.handed - first.handed) as f64 / answered,
            front_microseconds: took(|times| times.front) * 1e6 / answered,
            shares: [
                took(|times| times.front) / all,
                took(|times| times.backends) / all,
                took(|times| times.clients) / all,
            ],
            late: [late / 1e3, most / 1e3],
        })
    }

    /// The mean of several runs; the sum of failed requests, and the latest timer of all.
    pub fn mean(runs: &[Self]) -> Self {
        let mean = |of: &dyn Fn(&Self) -> f64| mean(runs.iter().map(of));
        let [front, back, clients] = [0, 1, 2].map(|at| mean(&|run| run.shares[at]));
        Self {
            measured: mean_of(runs.iter().map(|run| &run.measured)),
            failed: runs.iter().map(|run| run.failed).sum(),
            handed: mean(&|run| run.handed),
            front_microseconds: mean(&|run| run.front_microseconds),
            shares: [front, back, clients],
            late: [
                mean(&|run| run.late[0]),
                runs.iter().map(|run| run.late[1]).fold(0.0, f64::max),
            ],
        }
    }

    /// The part of all cores that the lab took.
    pub fn share(&self) -> f64 {
        self.shares.iter().sum()
    }

    /// The JSON about the quality of the measurement.
    pub fn quality(&self) -> Value {
        json!({
            "failed": self.failed,
            "handed_over": self.handed,
            "front_end_us_per_request": self.front_microseconds,
            "machine_share": {
                "front_end": self.shares[0],
                "back_ends": self.shares[1],
                "clients": self.shares[2],
            },
            "late_ms": {"mean": self.late[0], "most": self.late[1]},
        })
    }
}

/// The mean of measured, or simulated, results with different seeds.
pub fn mean_of<'a>(all: impl Iterator<Item = &'a Measured> + Clone) -> Measured {
    let mean = |of: fn(&Measured) -> f64| mean(all.clone().map(of));
    Measured {
        throughput: mean(|measured| measured.throughput),
        hit_ratio: mean(|measured| measured.hit_ratio),
        idle: mean(|measured| measured.idle),
        least_busy: mean(|measured| measured.least_busy),
        most_busy: mean(|measured| measured.most_busy),
    }
}

/// The mean of some values; 0 without any.
pub fn mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    values.clone().sum::<f64>() / values.count().max(1) as f64
}
