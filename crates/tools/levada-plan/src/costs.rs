//! The costs of serving: CPU time, the time of the origin, money.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, bail};
use levada_client::command::{admin_client, block_on};
use levada_types::AdminAddress;
use serde::{Deserialize, Serialize};

use crate::{evaluate::Candidate, read::Log};

/// CPU time of a node, and the speed of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Costs {
    /// Microseconds for a request.
    pub(crate) request_us: f64,
    /// Microseconds for each KiB sent.
    pub(crate) kib_us: f64,
    /// Microseconds of a read from disk before the first byte.
    pub(crate) read_us: f64,
    /// MiB that a disk reads or writes in a second.
    pub(crate) disk_mib: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Self { request_us: 30.0, kib_us: 0.4, read_us: 100.0, disk_mib: 500.0 }
    }
}

impl Costs {
    /// The speed of a simulated CPU that takes this time for requests of `mean` bytes. At speed 1 a connection costs
    /// 290 microseconds and each KiB 80 (ASPLOS'98 Sec. 3.1).
    pub(crate) fn speed(self, mean: f64) -> f64 {
        let kib = mean / 1024.0;
        (290.0 + 80.0 * kib) / (self.request_us + self.kib_us * kib)
    }

    /// CPU seconds of a request of `mean` bytes.
    pub(crate) fn seconds(self, mean: f64) -> f64 {
        (self.request_us + self.kib_us * mean / 1024.0) * 1e-6
    }

    fn check(self) -> anyhow::Result<Self> {
        let valid = |x: f64| x.is_finite() && x >= 0.0;
        if !(valid(self.request_us) && valid(self.kib_us) && self.request_us > 0.0) {
            bail!("request_us must be a number above 0, and kib_us a number of at least 0");
        }
        if !(valid(self.read_us) && self.disk_mib.is_finite() && self.disk_mib >= 0.001) {
            bail!("read_us must be a number of at least 0, and disk_mib a number from 0.001");
        }
        Ok(self)
    }

    /// Reads a file.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let costs: Self = toml(file)?;
        costs.check().with_context(|| format!("{} has no costs", file.display()))
    }

    /// Asks a running node.
    pub(crate) fn of_node(node: &AdminAddress, mean: f64) -> anyhow::Result<Self> {
        let ask = |name: &'static str| {
            block_on(admin_client::metric(node.clone(), name, Duration::from_secs(5)))?
        };
        let (cpu, requests) =
            (ask("levada_cpu_seconds_total")?, ask("levada_http_requests_total")?);
        if requests < 1000.0 {
            bail!(
                "{node} has served {requests} requests, too few to know their cost; ask it later, or give --costs"
            );
        }
        let kib_us = Self::default().kib_us;
        let all = cpu / requests * 1e6;
        let request_us = (all - kib_us * mean / 1024.0).max(all / 10.0);
        Self { request_us, ..Self::default() }.check()
    }
}

/// The prices of a cluster, for any time.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Prices {
    /// Each node.
    pub(crate) node: f64,
    /// Each GiB of memory.
    pub(crate) memory_gib: f64,
    /// Each GiB of disk.
    pub(crate) disk_gib: f64,
    /// Each Mbit/s from the origin at the peak.
    pub(crate) origin_mbit: f64,
}

impl Prices {
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let prices: Self = toml(file)?;
        let all = [prices.node, prices.memory_gib, prices.disk_gib, prices.origin_mbit];
        if !all.iter().all(|price| price.is_finite() && *price >= 0.0) {
            bail!("{}: every price must be a number of at least 0", file.display());
        }
        Ok(prices)
    }

    /// The price of a candidate with so many Mbit/s from the origin.
    pub(crate) fn of(self, candidate: &Candidate, origin: f64) -> f64 {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let cache = self.memory_gib * gib(candidate.memory) + self.disk_gib * gib(candidate.disk);
        candidate.nodes as f64 * (self.node + cache) + self.origin_mbit * origin
    }
}

fn toml<T: for<'a> Deserialize<'a>>(file: &Path) -> anyhow::Result<T> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    toml::from_str(&text).with_context(|| format!("{} is not as it should be", file.display()))
}

/// The median time of the log's misses.
pub(crate) fn origin_latency(log: &mut Log) -> Option<Duration> {
    let middle = log.miss_seconds.len() / 2;
    if log.miss_seconds.len() < 10 {
        return None;
    }
    let (_, median, _) = log.miss_seconds.select_nth_unstable_by(middle, f32::total_cmp);
    Some(Duration::from_secs_f64(f64::from(*median).clamp(0.0, 3600.0)))
}
