//! The result of one run: plain data for tables, CSV and plots.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// The offered rate in force exactly 30 s before the first server failed (OSDI'02 Sec. 4.3).
    Capacity,
    /// The highest rate at which requests finished, over half a minute, before the first server
    /// failed. The system really carried this rate; the capacity is inflated by queues that fill
    /// up.
    Sustained,
    /// Requests finished per second over the measured time.
    Throughput,
    /// Requests sent.
    Requests,
    /// From the first packet to the last byte of the response, at the client.
    LatencyMean,
    /// Its median.
    LatencyP50,
    /// Its 90th percentile.
    LatencyP90,
    /// Its 95th percentile.
    LatencyP95,
    /// Its 99th percentile.
    LatencyP99,
    /// Its standard deviation.
    LatencySd,
    /// Share of requests found in memory.
    HitRatio,
    /// Share of requests found on the disk of a cache, whether they began the read or joined one.
    DiskHits,
    /// Share of requests that waited for a body from the origin, or for a disk where there is no origin, whether
    /// they began the read or joined one.
    MissRatio,
    /// Share of requests for a copy that had expired and that the origin confirmed without a body.
    Confirmed,
    /// Share of requests that a front-end answered with a document of its own.
    FrontHits,
    /// Share of the bytes of all requested documents that front-ends answered.
    FrontBytes,
    /// Requests that front-ends sent to servers.
    ServerRequests,
    /// Part of the time in which the CPU worked before the failure, mean over the servers.
    CpuUtilisation,
    /// Standard deviation of the CPU utilisation over the servers.
    CpuUtilisationSd,
    /// Part of the time in which the disk worked before the failure, mean over the servers.
    DiskUtilisation,
    /// Standard deviation of the disk utilisation over the servers.
    DiskUtilisationSd,
    /// The part of the time in which a server has fewer outstanding requests than 40 % of T_low,
    /// mean over the servers (ASPLOS'98 Sec. 3.3).
    Idle,
    /// Requests served by the busiest server, divided by the mean over all servers.
    Imbalance,
    /// Utilisation of the busiest link between routers.
    LinkPeak,
    /// Number of servers that hold an object in memory, mean over the objects that any server
    /// holds.
    Replicas,
    /// Share of picks that chose another server than the previous pick for the same object.
    Moved,
    /// Pages whose latency is measured (WWW10 Sec. 4.3).
    Pages,
    /// Share of pages that were not finished when the run ended. They count with the time until
    /// then.
    Unfinished,
    /// Pages that take 1 s at most.
    Within1s,
    /// Pages that take 2.5 s at most.
    Within2s5,
    /// Pages that take 5 s at most.
    Within5s,
    /// The part of the time in which the back-end database's disk worked, mean over the servers.
    DatabaseUtilisation,
    /// The part of the time in which the network card worked, mean over the servers.
    NicUtilisation,
    /// Its median over the first requests of a region for each object.
    FirstP50,
    /// Its 95th percentile over them.
    FirstP95,
    /// Requests at the origin for each object that was requested.
    OriginRequests,
    /// Bytes that came from other regions, with headers.
    LongBytes,
    /// Requests that the origin answers, per second.
    OriginRate,
    /// Bits of bodies that the origin sends, per second.
    OriginEgress,
    /// The same in the busiest second.
    OriginPeak,
    /// Time that a request waits at the origin before it is worked on, mean.
    OriginWait,
    /// Requests that got no whole answer because a server failed.
    Lost,
    /// Tries of requests at another server because one had failed.
    Retried,
    /// Misses after a failure that are more than before the first failure, mean over the failures.
    LossMisses,
    /// Time from a failure until misses are as before the first failure, mean over the failures.
    Recovery,
    /// The 95th percentile of the latency of requests sent while a server was away.
    AwayP95,
    /// Simulated time.
    Duration,
    /// Events of the kernel, and of the network where it has its own.
    Events,
    /// Packets dropped at full queues, where packets are simulated.
    Dropped,
}

/// Every metric, in the order of reports.
pub const METRICS: &[Metric] = &[
    Metric::Capacity,
    Metric::Sustained,
    Metric::Throughput,
    Metric::Requests,
    Metric::LatencyMean,
    Metric::LatencyP50,
    Metric::LatencyP90,
    Metric::LatencyP95,
    Metric::LatencyP99,
    Metric::LatencySd,
    Metric::HitRatio,
    Metric::DiskHits,
    Metric::MissRatio,
    Metric::Confirmed,
    Metric::FrontHits,
    Metric::FrontBytes,
    Metric::ServerRequests,
    Metric::CpuUtilisation,
    Metric::CpuUtilisationSd,
    Metric::DiskUtilisation,
    Metric::DiskUtilisationSd,
    Metric::Idle,
    Metric::Imbalance,
    Metric::LinkPeak,
    Metric::Replicas,
    Metric::Moved,
    Metric::Pages,
    Metric::Unfinished,
    Metric::Within1s,
    Metric::Within2s5,
    Metric::Within5s,
    Metric::DatabaseUtilisation,
    Metric::NicUtilisation,
    Metric::FirstP50,
    Metric::FirstP95,
    Metric::OriginRequests,
    Metric::LongBytes,
    Metric::OriginRate,
    Metric::OriginEgress,
    Metric::OriginPeak,
    Metric::OriginWait,
    Metric::Lost,
    Metric::Retried,
    Metric::LossMisses,
    Metric::Recovery,
    Metric::AwayP95,
    Metric::Duration,
    Metric::Events,
    Metric::Dropped,
];

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Requests per second.
    PerSecond,
    /// Bits per second.
    BitsPerSecond,
    /// Seconds.
    Seconds,
    /// A part of one, printed in percent.
    Part,
    /// A number.
    Count,
}

impl Unit {
    /// As reports print it; empty for a number.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PerSecond => "req/s",
            Self::BitsPerSecond => "bit/s",
            Self::Seconds => "s",
            Self::Part => "%",
            Self::Count => "",
        }
    }
}

impl Metric {
    /// The name in CSV and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Sustained => "sustained",
            Self::Throughput => "throughput",
            Self::Requests => "requests",
            Self::LatencyMean => "latency_mean",
            Self::LatencyP50 => "latency_p50",
            Self::LatencyP90 => "latency_p90",
            Self::LatencyP95 => "latency_p95",
            Self::LatencyP99 => "latency_p99",
            Self::LatencySd => "latency_sd",
            Self::HitRatio => "hit_ratio",
            Self::DiskHits => "disk_hits",
            Self::MissRatio => "miss_ratio",
            Self::Confirmed => "confirmed",
            Self::FrontHits => "front_hits",
            Self::FrontBytes => "front_bytes",
            Self::ServerRequests => "server_requests",
            Self::CpuUtilisation => "cpu",
            Self::CpuUtilisationSd => "cpu_sd",
            Self::DiskUtilisation => "disk",
            Self::DiskUtilisationSd => "disk_sd",
            Self::Idle => "idle",
            Self::Imbalance => "imbalance",
            Self::LinkPeak => "link_peak",
            Self::Replicas => "replicas",
            Self::Moved => "moved",
            Self::Pages => "pages",
            Self::Unfinished => "unfinished",
            Self::Within1s => "within_1s",
            Self::Within2s5 => "within_2.5s",
            Self::Within5s => "within_5s",
            Self::DatabaseUtilisation => "database",
            Self::NicUtilisation => "nic",
            Self::FirstP50 => "first_p50",
            Self::FirstP95 => "first_p95",
            Self::OriginRequests => "origin_requests",
            Self::LongBytes => "long_bytes",
            Self::OriginRate => "origin_rate",
            Self::OriginEgress => "origin_egress",
            Self::OriginPeak => "origin_peak",
            Self::OriginWait => "origin_wait",
            Self::Lost => "lost",
            Self::Retried => "retried",
            Self::LossMisses => "loss_misses",
            Self::Recovery => "recovery",
            Self::AwayP95 => "away_p95",
            Self::Duration => "duration",
            Self::Events => "events",
            Self::Dropped => "packets_dropped",
        }
    }

    /// The heading of a column.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Sustained => "sustained",
            Self::Throughput => "throughput",
            Self::Requests => "requests",
            Self::LatencyMean => "mean",
            Self::LatencyP50 => "median",
            Self::LatencyP90 => "90th percentile",
            Self::LatencyP95 => "95th percentile",
            Self::LatencyP99 => "99th percentile",
            Self::LatencySd => "standard deviation",
            Self::HitRatio => "hits",
            Self::DiskHits => "disk hits",
            Self::MissRatio => "misses",
            Self::Confirmed => "confirmed",
            Self::FrontHits => "hits at front-ends",
            Self::FrontBytes => "bytes from front-ends",
            Self::ServerRequests => "at servers",
            Self::CpuUtilisation => "CPU",
            Self::CpuUtilisationSd => "CPU, deviation",
            Self::DiskUtilisation => "disk",
            Self::DiskUtilisationSd => "disk, deviation",
            Self::Idle => "idle",
            Self::Imbalance => "busiest / mean",
            Self::LinkPeak => "busiest link",
            Self::Replicas => "replicas",
            Self::Moved => "moved",
            Self::Pages => "pages",
            Self::Unfinished => "unfinished",
            Self::Within1s => "within 1 s",
            Self::Within2s5 => "within 2.5 s",
            Self::Within5s => "within 5 s",
            Self::DatabaseUtilisation => "database",
            Self::NicUtilisation => "network card",
            Self::FirstP50 => "first, median",
            Self::FirstP95 => "first, 95th percentile",
            Self::OriginRequests => "at the origin / object",
            Self::LongBytes => "bytes over long links",
            Self::OriginRate => "to the origin",
            Self::OriginEgress => "from the origin",
            Self::OriginPeak => "from the origin, busiest second",
            Self::OriginWait => "wait at the origin",
            Self::Lost => "lost",
            Self::Retried => "tried again",
            Self::LossMisses => "more misses / failure",
            Self::Recovery => "recovery",
            Self::AwayP95 => "one away, 95th percentile",
            Self::Duration => "simulated",
            Self::Events => "events",
            Self::Dropped => "packets dropped",
        }
    }

    /// The unit in which the metric counts.
    pub const fn unit(self) -> Unit {
        match self {
            Self::Capacity | Self::Sustained | Self::Throughput | Self::OriginRate => {
                Unit::PerSecond
            }
            Self::OriginEgress | Self::OriginPeak => Unit::BitsPerSecond,
            Self::LatencyMean
            | Self::LatencyP50
            | Self::LatencyP90
            | Self::LatencyP95
            | Self::LatencyP99
            | Self::LatencySd
            | Self::FirstP50
            | Self::FirstP95
            | Self::Recovery
            | Self::AwayP95
            | Self::OriginWait
            | Self::Duration => Unit::Seconds,
            Self::HitRatio
            | Self::DiskHits
            | Self::MissRatio
            | Self::Confirmed
            | Self::FrontHits
            | Self::FrontBytes
            | Self::CpuUtilisation
            | Self::CpuUtilisationSd
            | Self::DiskUtilisation
            | Self::DiskUtilisationSd
            | Self::Idle
            | Self::LinkPeak
            | Self::Moved
            | Self::Unfinished
            | Self::Within1s
            | Self::Within2s5
            | Self::Within5s
            | Self::DatabaseUtilisation
            | Self::NicUtilisation => Unit::Part,
            Self::Requests
            | Self::ServerRequests
            | Self::Pages
            | Self::Imbalance
            | Self::OriginRequests
            | Self::LongBytes
            | Self::Lost
            | Self::Retried
            | Self::LossMisses
            | Self::Replicas
            | Self::Events
            | Self::Dropped => Unit::Count,
        }
    }
}

/// A metric, of the whole run or of the time around an offered rate: `latency_p50@9300`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reading {
    /// The measured quantity.
    pub metric: Metric,
    /// The offered rate, in requests per second; `None` for the whole measured time.
    pub rate: Option<u32>,
}

impl Reading {
    /// `metric` around the offered rate `rate`.
    pub const fn at(metric: Metric, rate: u32) -> Self {
        Self { metric, rate: Some(rate) }
    }
}

impl From<Metric> for Reading {
    fn from(metric: Metric) -> Self {
        Self { metric, rate: None }
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.metric.as_str())?;
        self.rate.map_or(Ok(()), |rate| write!(f, "@{rate}"))
    }
}

/// The text names no reading.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no reading: write a metric, as in \"capacity\", or one at a rate, as in \"latency_p50@9300\""
)]
pub struct ParseReadingError(pub String);

impl FromStr for Reading {
    type Err = ParseReadingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseReadingError(text.to_owned());
        let (name, rate) = match text.split_once('@') {
            Some((name, rate)) => (name, Some(rate.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let metric = METRICS.iter().find(|metric| metric.as_str() == name).ok_or_else(wrong)?;
        Ok(Self { metric: *metric, rate })
    }
}

impl Serialize for Reading {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Reading {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// A server failed: its queue exceeded the limit.
    Overload,
    /// The time or the number of requests to simulate was reached.
    #[default]
    Done,
    /// The caller stopped the run: the numbers are incomplete.
    Stopped,
}

/// A limit to the meaning of a run's results.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remark {
    /// A server failed although the offered load was not a ramp.
    Overloaded {
        /// Seconds of simulated time.
        after: f64,
    },
    /// A ramp failed a server before its rate grew: its capacity is not known.
    StartAboveCapacity,
    /// A ramp ended before a server failed: its capacity is not known.
    CapacityNotReached,
    /// The trace does not repeat and was over before the run.
    TraceEnded {
        /// Seconds of simulated time.
        after: f64,
    },
    /// No request was sent and finished in the measured time.
    NothingMeasured,
    /// The busy threshold times the redirectors is no less than a server's capacity.
    ThresholdOutOfReach {
        /// The policy's `busy`.
        busy: u64,
        /// The number of redirectors.
        redirectors: u64,
        /// `servers.active` + `servers.queue`.
        capacity: u64,
    },
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overloaded { after } => write!(
                f,
                "overloaded: a server's queue was full after {after:.0} s, and the run ended there; \
                 lower the load, or take more servers"
            ),
            Self::StartAboveCapacity => f.write_str(
                "the rate at the start is above the capacity, which is not known: lower `workload.rate`",
            ),
            Self::CapacityNotReached => f.write_str(
                "no server failed before the run ended, so the capacity is not known: raise \
                 `workload.rate`, or give the run more time",
            ),
            Self::TraceEnded { after } => write!(
                f,
                "the trace ended after {after:.0} s, before the run: shorten the run, or let the trace \
                 begin again by `workload.repeat = true`, which raises the hit ratio"
            ),
            Self::NothingMeasured => f.write_str(
                "nothing was measured: no request was sent and finished after `measure.warm_up`",
            ),
            Self::ThresholdOutOfReach { busy, redirectors, capacity } => write!(
                f,
                "no server is ever busy before it fails: `busy` = {busy} times {redirectors} redirectors \
                 is no less than the {capacity} requests that a server holds"
            ),
        }
    }
}

/// The result of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// Limits to the meaning of the results; empty for a run that means what it says.
    pub remarks: Vec<Remark>,
    /// The numbers.
    pub readings: BTreeMap<Reading, f64>,
    /// Curves over time, and the distribution of latencies.
    pub series: Vec<Series>,
    /// Use of each server.
    pub servers: Vec<ServerUse>,
    /// Use of each link between routers, or between regions.
    pub links: Vec<LinkUse>,
    /// The numbers of each region, where there are some.
    pub regions: Vec<RegionUse>,
}

impl Outcome {
    /// One number, if the run gives it.
    pub fn reading(&self, reading: impl Into<Reading>) -> Option<f64> {
        self.readings.get(&reading.into()).copied()
    }
}

/// Points of a curve.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// A name such as `latency_cdf@9300` or `finished_per_second`.
    pub name: String,
    /// Meaning and unit of x.
    pub x: String,
    /// Meaning and unit of y.
    pub y: String,
    /// The points, ascending in x.
    pub points: Vec<(f64, f64)>,
}

/// The use of one server in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerUse {
    /// Its name.
    pub name: String,
    /// Requests that the server finished.
    pub requests: u64,
    /// Finished requests that were found in memory.
    pub hits: u64,
    /// The part of the time in which its CPU worked.
    pub cpu: f64,
    /// The part of the time in which its disk worked, mean over its disks.
    pub disk: f64,
}

/// The numbers of one region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RegionUse {
    /// Its name.
    pub name: String,
    /// The numbers of its requests.
    pub readings: BTreeMap<Reading, f64>,
}

/// The use of a link in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkUse {
    /// The place that sends.
    pub from: String,
    /// The place that receives.
    pub to: String,
    /// Bytes of responses, with headers.
    pub bytes: f64,
    /// These bytes, as a part of the link's capacity over the time.
    pub utilisation: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_written_and_read_alike() {
        for metric in METRICS {
            for reading in [Reading::from(*metric), Reading::at(*metric, 9300)] {
                assert_eq!(reading.to_string().parse(), Ok(reading));
            }
        }
        for wrong in ["", "speed", "capacity@", "capacity@fast"] {
            assert!(wrong.parse::<Reading>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_outcome_survives_json() {
        let mut outcome = Outcome::default();
        outcome.readings.insert(Reading::at(Metric::LatencyP50, 9300), 0.53);
        outcome.readings.insert(Metric::Capacity.into(), 33_237.0);
        let text = serde_json::to_string(&outcome).unwrap();
        assert!(text.contains("\"latency_p50@9300\":0.53"), "{text}");
        assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome);
    }
}
