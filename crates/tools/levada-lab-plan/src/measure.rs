//! The figures of a running cluster under fresh requests, as clients, the origin and the nodes' CPU times say.

use std::time::Duration;

use levada_testbed::{
    cluster::percentile,
    emulation::open_load::{ANSWER_TIMEOUT, Ended, Load, Record},
};
use tokio::time::{sleep, timeout};

use crate::{args::PlanLabArgs, cluster::PlanCluster, origin::Sent};

/// Measured figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    pub(crate) requests: usize,
    pub(crate) failed: usize,
    /// The share of the answers that a node had, and of their bytes.
    pub(crate) hit: f64,
    pub(crate) byte_hit: f64,
    /// Mbit/s from the origin.
    pub(crate) origin: f64,
    /// The share of the time in which the busiest node's CPU worked, and all nodes' in the mean.
    pub(crate) cpu: f64,
    pub(crate) mean_cpu: f64,
    /// Seconds.
    pub(crate) p99: f64,
}

/// Offers the next requests to the cluster and measures it.
///
/// # Errors
/// If a node does not tell its CPU time.
pub(crate) async fn measure(
    args: &PlanLabArgs,
    nodes: &PlanCluster,
    load: &mut Load<'_>,
    sent: &Sent,
) -> anyhow::Result<Measured> {
    let (cpu, bytes) = (nodes.cpu().await?, sent.bytes());
    load.resume();
    let period = load.offer(args.phase()).await;
    let bytes = sent.bytes() - bytes;
    let cpu: Vec<f64> =
        nodes.cpu().await?.iter().zip(&cpu).map(|(after, before)| after - before).collect();
    // The last requests have their answers, if they get any.
    let waited = async {
        while load.records(period).iter().any(|record| record.end.is_none()) {
            sleep(LOOK).await;
        }
    };
    let _ = timeout(ANSWER_TIMEOUT, waited).await;
    Ok(Measured::of(&load.records(period), bytes, &cpu, args.duration))
}

impl Measured {
    fn of(records: &[Record], origin: u64, cpu: &[f64], time: Duration) -> Self {
        let seconds = time.as_secs_f64();
        let (mut times, mut hits, mut hit_bytes, mut bytes) = (Vec::new(), 0, 0, 0);
        for record in records {
            let Some(Ended::Answered { after, hit, .. }) = record.end else { continue };
            times.push(after);
            bytes += record.bytes;
            if hit {
                hits += 1;
                hit_bytes += record.bytes;
            }
        }
        Self {
            requests: records.len(),
            failed: records.len() - times.len(),
            hit: f64::from(hits) / f64::max(times.len() as f64, 1.0),
            byte_hit: hit_bytes as f64 / f64::max(bytes as f64, 1.0),
            origin: origin as f64 * 8e-6 / seconds,
            cpu: cpu.iter().copied().fold(0.0, f64::max) / seconds,
            mean_cpu: cpu.iter().sum::<f64>() / cpu.len().max(1) as f64 / seconds,
            p99: percentile(&times, 99).as_secs_f64(),
        }
    }
}

const LOOK: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn figures_follow_from_requests_bytes_and_cpu_times() {
        let answered = |bytes, hit| Record {
            begun: Instant::now(),
            bytes,
            end: Some(Ended::Answered { after: Duration::from_millis(bytes), hit, node: 1 }),
        };
        let waiting = Record { begun: Instant::now(), bytes: 1, end: None };
        let records = [answered(100, true), answered(200, true), answered(700, false), waiting];
        let measured = Measured::of(&records, 125_000, &[0.2, 0.6], Duration::from_secs(2));
        let expected = Measured {
            requests: 4,
            failed: 1,
            hit: 2.0 / 3.0,
            byte_hit: 0.3,
            origin: 0.5,
            cpu: 0.3,
            mean_cpu: 0.2,
            p99: 0.7,
        };
        assert_eq!(measured, expected);
    }
}
