//! The costs of serving: CPU time, the time of the origin, money.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, bail};
use levada_client::command::{admin_client, block_on};
use levada_sim::ServerUse;
use levada_types::AdminAddress;
use serde::{Deserialize, Serialize};

use crate::{evaluate::Candidate, read::Miss};

/// CPU time of a node, and the speed of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Costs {
    /// Microseconds for each request that a node answers, of a client or of another node.
    pub(crate) request_us: f64,
    /// Microseconds for each request of a client that a node passes on to another node. Without it, they are
    /// [`RELAY`] times `request_us`.
    #[serde(default)]
    pub(crate) relay_us: Option<f64>,
    /// Microseconds for each KiB sent.
    pub(crate) kib_us: f64,
    /// Microseconds of a read from disk before the first byte.
    pub(crate) read_us: f64,
    /// MiB that a disk reads or writes in a second.
    pub(crate) disk_mib: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Self { request_us: 30.0, relay_us: None, kib_us: 0.4, read_us: 100.0, disk_mib: 500.0 }
    }
}

/// A request that is passed on, in requests that are answered: instructions of both nodes for a relay of 1 KB without
/// those of a hit, over those of a hit (bench/cost.toml, `relay between two nodes 1 KB` and `hit 1 KB`).
const RELAY: f64 = (88_763.0 - 23_886.0) / 23_886.0;

impl Costs {
    /// The speed of a simulated CPU that takes this time for requests of `mean` bytes to one of `nodes`. A client's
    /// request costs what it costs all nodes together.
    pub(crate) fn speed(self, mean: f64, nodes: usize) -> f64 {
        (CONNECTION_US + TRANSMIT_US * mean / 1024.0) * 1e-6 / self.seconds(mean, nodes)
    }

    /// CPU seconds that all `nodes` together need for a client's request of `mean` bytes. A client meets any of them, and
    /// mostly another one than that which has the object: one passes the request on, the other one answers it.
    pub(crate) fn seconds(self, mean: f64, nodes: usize) -> f64 {
        let (relayed, kib) = (1.0 - 1.0 / nodes.max(1) as f64, self.kib_us * mean / 1024.0);
        (self.request_us + kib + relayed * (self.relay_us() + kib)) * 1e-6
    }

    /// Microseconds for each request that is passed on, without its bytes.
    pub(crate) fn relay_us(self) -> f64 {
        self.relay_us.unwrap_or(RELAY * self.request_us)
    }

    /// The shares of the time in which the nodes' CPUs work, by what each of them answered of `rate` requests per second
    /// of `mean` bytes. Passing requests on is the work of all nodes alike.
    ///
    /// The simulated CPUs share their time between requests and bytes as that of ASPLOS'98 does, and have the speed for
    /// requests of the mean size only: a node that answers few large ones would seem busy.
    pub(crate) fn busy(self, servers: &[ServerUse], rate: f64, mean: f64) -> Vec<f64> {
        let nodes = servers.len().max(1);
        let (kib, speed) = (mean / 1024.0, self.speed(mean, nodes));
        let relay = self.relay_us() + self.kib_us * kib;
        let passed_on = rate / nodes as f64 * (1.0 - 1.0 / nodes as f64) * relay;
        let all: u64 = servers.iter().map(|server| server.requests).sum();
        let busy = |server: &ServerUse| {
            let requests = rate * server.requests as f64 / all.max(1) as f64;
            let kib = (server.cpu * speed * 1e6 - CONNECTION_US * requests) / TRANSMIT_US;
            (requests * self.request_us + kib.max(0.0) * self.kib_us + passed_on) * 1e-6
        };
        servers.iter().map(busy).collect()
    }

    /// Time of a read from disk before the first byte.
    pub(crate) fn disk_latency(self) -> Duration {
        Duration::from_secs_f64(self.read_us.min(1e9) * 1e-6)
    }

    /// Bytes that a disk reads or writes in a second.
    pub(crate) fn disk_bytes_per_second(self) -> u64 {
        (self.disk_mib * 1_048_576.0) as u64
    }

    fn check(self) -> anyhow::Result<Self> {
        let valid = |x: f64| x.is_finite() && x >= 0.0;
        if !(valid(self.request_us) && valid(self.kib_us) && self.request_us > 0.0) {
            bail!("request_us must be a number above 0, and kib_us a number of at least 0");
        }
        if !valid(self.relay_us()) {
            bail!(
                "relay_us must be a number of at least 0; without it, it follows from request_us"
            );
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

    /// Asks running nodes.
    pub(crate) fn of_nodes(nodes: &[AdminAddress], mean: f64) -> anyhow::Result<Self> {
        let mut counted = Counted::default();
        for node in nodes {
            let page = block_on(admin_client::get(node.clone(), "/metrics", TIMEOUT))?.context(
                "--node takes the admin address of a running node (`[admin]`, `listen`)",
            )?;
            counted.add(&String::from_utf8_lossy(&page));
        }
        if counted.requests < ENOUGH {
            bail!(
                "{} has served {} requests, too few to know their cost; ask it later, or give --costs",
                names(nodes),
                counted.requests
            );
        }
        counted.costs(mean).check()
    }
}

/// CPU seconds and requests of running nodes, since their start.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    cpu: f64,
    requests: f64,
    /// Requests that were passed on to another node.
    relayed: f64,
    /// Hits and their CPU seconds, as far as nodes measure them.
    hits: f64,
    hit_cpu: f64,
    /// The same of all requests that pass the cache by, those that were passed on among them.
    passed: f64,
    pass_cpu: f64,
}

impl Counted {
    /// Adds a page of metrics.
    fn add(&mut self, page: &str) {
        let sum = |name: &str, label: &str| -> f64 {
            let lines = page.lines().filter(|line| line.starts_with(name) && line.contains(label));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        let requests = |label: &str| sum("levada_http_requests_total{", label);
        let work = |label: &str| sum("levada_cpu_seconds_total{", label);
        self.cpu += sum("process_cpu_seconds_total", "");
        self.requests += requests("");
        self.relayed += requests("cache=\"relayed\"");
        self.hits += requests("cache=\"hit\"");
        self.hit_cpu += work("work=\"hit\"");
        let passed = ["relayed", "bypass", "pieces", "none"];
        self.passed +=
            passed.map(|result| requests(&format!("cache=\"{result}\""))).iter().sum::<f64>();
        self.pass_cpu += work("work=\"pass\"");
    }

    /// A request that is passed on, in requests that are answered.
    fn relay(&self) -> f64 {
        let enough = self.hits >= ENOUGH && self.hit_cpu > 0.0 && self.relayed >= ENOUGH;
        // The nodes measure all passed requests together: they are known if nearly all were passed on.
        match enough && self.relayed >= 0.9 * self.passed {
            true => (self.pass_cpu / self.passed) / (self.hit_cpu / self.hits),
            false => RELAY,
        }
    }

    fn costs(&self, mean: f64) -> Costs {
        let (usual, relay) = (Costs::default(), self.relay());
        let bytes = usual.kib_us * mean / 1024.0 * self.requests;
        let handled = self.cpu * 1e6;
        let answered = self.requests - self.relayed + relay * self.relayed;
        let request_us = (handled - bytes).max(handled / 10.0) / answered;
        Costs { request_us, relay_us: Some(relay * request_us), ..usual }
    }
}

/// Requests of which the cost is known.
const ENOUGH: f64 = 1000.0;
const TIMEOUT: Duration = Duration::from_secs(5);

/// The addresses in words.
pub(crate) fn names(nodes: &[AdminAddress]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// CPU time of a simulated request at speed 1, and of each KiB (ASPLOS'98 Sec. 3.1).
const CONNECTION_US: f64 = 290.0;
const TRANSMIT_US: f64 = 80.0;

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

/// The time of the origin for an object.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct OriginTime {
    /// Until the first byte.
    pub(crate) latency: Duration,
    /// Bits per second of a body, if it takes time.
    pub(crate) rate: Option<f64>,
    /// Whether all bodies share this rate, as that of a link.
    pub(crate) is_shared: bool,
}

/// The time of the origin by the log's misses: the median, or, where larger objects take longer, the line through the
/// medians of small and of large ones (after Tukey's resistant line). `most` is the rate of all requested bits: an origin
/// that sends one object more slowly sends several at a time, each at this rate.
pub(crate) fn origin_time(misses: &mut [Miss], most: f64) -> Option<OriginTime> {
    if misses.len() < 10 {
        return None;
    }
    let median = |misses: &mut [Miss], of: fn(&Miss) -> f32| {
        let middle = misses.len() / 2;
        let (_, miss, _) = misses.select_nth_unstable_by(middle, |a, b| of(a).total_cmp(&of(b)));
        f64::from(of(miss))
    };
    let time = |seconds: f64| Duration::from_secs_f64(seconds.clamp(0.0, 3600.0));
    misses.sort_unstable_by(|a, b| a.bytes.total_cmp(&b.bytes));
    let point =
        |part: &mut [Miss]| (median(part, |miss| miss.bytes), median(part, |miss| miss.seconds));
    let (half, tenth) = (misses.len() / 2, misses.len() * 9 / 10);
    let (bytes, seconds) = point(&mut misses[..half]);
    let (more_bytes, more_seconds) = point(&mut misses[tenth..]);
    let slope = (more_seconds - seconds) / (more_bytes - bytes);
    let rate = 8.0 / slope;
    if slope.is_finite() && more_seconds > seconds * CLEARLY && rate >= 1.0 {
        let latency = time(seconds - bytes * slope);
        return Some(OriginTime { latency, rate: Some(rate), is_shared: rate > most });
    }
    let latency = time(median(misses, |miss| miss.seconds));
    Some(OriginTime { latency, rate: None, is_shared: false })
}

/// Large objects take longer than small ones if they take this many times as long.
const CLEARLY: f64 = 1.2;

#[cfg(test)]
mod tests {
    use super::*;

    fn misses(time: impl Fn(f32) -> f32) -> Vec<Miss> {
        let bytes = (0..200_u32).map(|n| 500.0 + (n * n * 7) as f32);
        bytes.map(|bytes| Miss { seconds: time(bytes), bytes }).collect()
    }

    #[test]
    fn origin_has_a_latency_and_a_rate_where_the_log_shows_both() {
        // 40 ms, and 20 Mbit/s.
        let time = origin_time(&mut misses(|bytes| 0.040 + bytes * 8.0 / 20e6), 10e6).unwrap();
        assert!((time.latency.as_secs_f64() - 0.040).abs() < 1e-4, "{time:?}");
        assert!((time.rate.unwrap() / 20e6 - 1.0).abs() < 0.01 && time.is_shared, "{time:?}");
    }

    #[test]
    fn origin_that_sends_more_than_the_rate_of_one_object_sends_several_at_this_rate() {
        let time = origin_time(&mut misses(|bytes| 0.040 + bytes * 8.0 / 20e6), 30e6).unwrap();
        assert!((time.rate.unwrap() / 20e6 - 1.0).abs() < 0.01 && !time.is_shared, "{time:?}");
        let same = origin_time(&mut misses(|_| 0.05), 1.0).unwrap();
        assert_eq!((same.latency.as_millis(), same.rate), (50, None));
        assert_eq!(origin_time(&mut misses(|_| 0.05)[..9], 1.0), None);
    }

    #[test]
    fn node_with_large_objects_is_as_busy_as_its_requests_make_it() {
        let (relay_us, kib_us) = (Some(300.0), 1.0);
        let costs = Costs { request_us: 100.0, relay_us, kib_us, ..Costs::default() };
        // 100 requests/s: 90 of 1 KiB at one node, and 10 of 91 KiB at the other, which sends most.
        let mean = 10.0 * 1024.0;
        let work = |requests: f64, kib: f64| (290.0 * requests + 80.0 * kib) * 1e-6;
        let at = |requests: u64, kib: f64| ServerUse {
            requests: requests * 7,
            cpu: work(requests as f64, kib) / costs.speed(mean, 2),
            ..ServerUse::default()
        };
        let busy = costs.busy(&[at(90, 90.0), at(10, 910.0)], 100.0, mean);
        // Each of them passes 25 requests/s on, of 310 us.
        let expected = [90.0 * 101.0 + 7750.0, 10.0 * 191.0 + 7750.0].map(|us| us * 1e-6);
        assert!(busy.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{busy:?}");
    }

    #[test]
    fn requests_of_a_cluster_are_mostly_handled_by_two_nodes() {
        let alike =
            Costs { request_us: 100.0, relay_us: Some(100.0), kib_us: 0.0, ..Costs::default() };
        let microseconds =
            |costs: Costs| [1, 2, 4].map(|n| (costs.seconds(1024.0, n) * 1e6).round());
        assert_eq!(microseconds(alike), [100.0, 150.0, 175.0]);
        assert!((alike.speed(1024.0, 4) - 370.0 / 175.0).abs() < 1e-9);
        // The costs of a relay follow from those of a request, if they are not given.
        let usual = Costs { relay_us: None, ..alike };
        assert_eq!(microseconds(usual), [100.0, 236.0, 304.0]);
        let wrong = Costs { relay_us: Some(-1.0), ..alike }.check().unwrap_err().to_string();
        assert!(wrong.contains("relay_us must be a number of at least 0"), "{wrong}");
    }

    /// A page of metrics: all hits are of 20 us, and other requests as stated.
    fn metrics(relayed: u32, bypass: u32, pass_cpu: f64, cpu: f64) -> Counted {
        let mut counted = Counted::default();
        counted.add(&format!(
            "process_cpu_seconds_total {cpu}\n\
             levada_http_requests_total{{site=\"a\",listener=\"client\",code=\"200\",cache=\"hit\"}} 4000\n\
             levada_http_requests_total{{site=\"a\",listener=\"peer\",code=\"200\",cache=\"hit\"}} 6000\n\
             levada_http_requests_total{{site=\"a\",listener=\"client\",code=\"200\",cache=\"relayed\"}} {relayed}\n\
             levada_http_requests_total{{site=\"a\",listener=\"client\",code=\"200\",cache=\"bypass\"}} {bypass}\n\
             levada_cpu_seconds_total{{work=\"hit\"}} 0.2\n\
             levada_cpu_seconds_total{{work=\"pass\"}} {pass_cpu}\n"
        ));
        counted
    }

    #[test]
    fn cost_of_a_relay_is_learnt_where_nodes_measure_it() {
        // A relay takes four times as long as a hit: 10,000 + 4 * 5,000 requests in 0.9 s.
        let costs = metrics(5000, 0, 0.4, 0.9).costs(0.0);
        assert!((costs.request_us - 30.0).abs() < 1e-9, "{costs:?}");
        assert!((costs.relay_us() - 120.0).abs() < 1e-9, "{costs:?}");
        // Most passed requests were no relays, so that nothing is known of these.
        let costs = metrics(5000, 5000, 4.0, 0.9).costs(0.0);
        assert!((costs.relay_us() / costs.request_us - RELAY).abs() < 1e-9, "{costs:?}");
        let costs = metrics(0, 0, 0.0, 0.3).costs(0.0);
        assert!((costs.request_us - 30.0).abs() < 1e-9, "{costs:?}");
    }

    #[test]
    fn default_of_a_relay_is_the_measured_one() {
        let ledger = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../bench/cost.toml");
        let Ok(text) = fs::read_to_string(ledger) else { return };
        let ledger: toml::Table = toml::from_str(&text).unwrap();
        let row = |name: &str| ledger["release"]["rows"][name][0].as_float().unwrap();
        let (relay, hit) = (row("relay between two nodes 1 KB"), row("hit 1 KB"));
        assert!(((relay - hit) / hit / RELAY - 1.0).abs() < 0.1, "{relay} {hit}: change RELAY");
    }
}
