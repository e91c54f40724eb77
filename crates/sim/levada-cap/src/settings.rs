//! All parameters of WWW10's cluster. The defaults are the paper's where it gives them. Otherwise the
//! comment names the assumption, and `levada sim paper cap` prints a row with another value.

use std::time::Duration;

use levada_outcome::{Share, Time};
use levada_types::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::distribution::{InverseGaussian, Lognormal, Pareto};

/// A site, its clients and its cluster.
///
/// The number of servers, the policy, the eviction and the seed are keys of the scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Sessions that begin per second (Table 1: 100 to 300; the rate of each figure is lost).
    pub clients_per_second: f64,
    /// The sessions.
    pub sessions: Sessions,
    /// The pages.
    pub mix: Mix,
    /// The site's documents.
    pub documents: Documents,
    /// The servers.
    pub hardware: WebServerHardware,
    /// The costs of secure pages.
    pub ssl: Ssl,
    /// The switch.
    pub switch: Switch,
    /// The measurement.
    pub window: MeasurementWindow,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            clients_per_second: 300.0,
            sessions: Sessions::default(),
            mix: Mix::default(),
            documents: Documents::default(),
            hardware: WebServerHardware::default(),
            ssl: Ssl::default(),
            switch: Switch::default(),
            window: MeasurementWindow::default(),
        }
    }
}

/// Sessions. The symbols of Table 1 are lost, so the values are those of the same group's other
/// papers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sessions {
    /// Pages per session.
    pub pages: InverseGaussian,
    /// Seconds between a page's last object and the next page.
    pub think: Pareto,
    /// Objects per page, its document included.
    pub objects: Pareto,
    /// Most objects of a page. The distribution has no limit; without one, a page in a million
    /// would take a minute of a server's time.
    pub most_objects: u32,
    /// Whether objects embedded in a lightly dynamic page are lightly dynamic as well. The paper
    /// leaves this open; its requests are for "a single HTML page", so by default embedded objects
    /// are files.
    pub embedded_dynamic: bool,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            pages: InverseGaussian { mu: 3.86, lambda: 9.46 },
            think: Pareto { alpha: 1.4, k: 2.0 },
            objects: Pareto { alpha: 1.33, k: 2.0 },
            most_objects: 1_000,
            embedded_dynamic: false,
        }
    }
}

/// The shares of the kinds of pages in the requests for pages (Sec. 4.2). Only their proportions
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Mix {
    /// Files.
    pub r#static: f64,
    /// Simple searches, some of whose results can be cached.
    pub lightly_dynamic: f64,
    /// Complex searches.
    pub disk_bound: f64,
    /// Files over a secure channel.
    pub cpu_bound: f64,
    /// Complex searches over a secure channel.
    pub disk_and_cpu_bound: f64,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            r#static: 1.0,
            lightly_dynamic: 0.0,
            disk_bound: 0.0,
            cpu_bound: 0.0,
            disk_and_cpu_bound: 0.0,
        }
    }
}

/// The kind of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    Static,
    LightlyDynamic,
    DiskBound,
    CpuBound,
    DiskAndCpuBound,
}

impl Mix {
    /// In the order of the fields.
    pub(super) fn shares(&self) -> [(PageKind, f64); 5] {
        [
            (PageKind::Static, self.r#static),
            (PageKind::LightlyDynamic, self.lightly_dynamic),
            (PageKind::DiskBound, self.disk_bound),
            (PageKind::CpuBound, self.cpu_bound),
            (PageKind::DiskAndCpuBound, self.disk_and_cpu_bound),
        ]
    }

    pub(super) fn draw(&self, rng: &mut Rng) -> PageKind {
        let shares = self.shares();
        let mut place = rng.unit() * shares.iter().map(|(_, share)| share).sum::<f64>();
        for (kind, share) in shares {
            if place < share {
                return kind;
            }
            place -= share;
        }
        // Only rounding leads here: return the last kind with a share.
        let there = shares.into_iter().rev().find(|(_, share)| *share > 0.0);
        there.map_or(PageKind::Static, |(kind, _)| kind)
    }
}

/// The site's document tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Documents {
    /// Number of documents. Not in the paper.
    pub count: u32,
    /// Exponent of popularity: rank to the power of minus this. Not in the paper; the workload
    /// studies that it cites found 1.
    pub zipf: f64,
    /// The sizes of most documents (Table 1, symbols lost).
    pub body: Lognormal,
    /// The sizes of the others (Table 1, symbols lost).
    pub tail: Pareto,
    /// The share of the others. Not in the paper; 7 % in SURGE, the source of these distributions.
    pub tail_share: Share,
    /// The largest size of a document, in bytes. Not in the paper.
    pub largest: u32,
    /// The share of the lightly dynamic documents that may be cached (Sec. 4.2).
    pub cacheable: Share,
    /// The capacity of a server's cache, as a share of the bytes of all documents (Sec. 4.2).
    pub cached: Share,
}

impl Default for Documents {
    fn default() -> Self {
        Self {
            count: 10_000,
            zipf: 1.0,
            body: Lognormal { mu: 7.640, sigma: 1.705 },
            tail: Pareto { alpha: 1.383, k: 2_924.0 },
            tail_share: Share(0.07),
            largest: 20_000_000,
            cacheable: Share(0.3),
            cached: Share(0.15),
        }
    }
}

/// A Web server and its back-end server (Sec. 4.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebServerHardware {
    /// CPU time of every request. Not in the paper; the value is that of LARD's server (ASPLOS'98
    /// Sec. 3.1).
    pub cpu_per_request: Time,
    /// CPU time of every 512 bytes that are sent. Not in the paper; the value is that of LARD's
    /// server.
    pub cpu_per_512_bytes: Time,
    /// The longest time that one process has the CPU while others wait.
    pub cpu_slice: Time,
    /// Bytes per second from memory.
    pub memory_rate: u64,
    /// Bytes per second from disk.
    pub disk_rate: u64,
    /// The delay of the disk's controller.
    pub disk_controller: Time,
    /// The disk's seek time.
    pub disk_seek: Time,
    /// Half a turn at 7,200 turns a minute.
    pub disk_rotation: Time,
    /// Bytes per second to the network: 100 Mbit/s.
    pub nic_rate: u64,
    /// The longest time that one response has the network card while others wait.
    pub nic_slice: Time,
    /// Seeks of the database's disk per simple search. Not in the paper.
    pub light_query_reads: u32,
    /// Seeks of the database's disk per complex search. Not in the paper.
    pub heavy_query_reads: u32,
    /// The placement of the database.
    pub database: Database,
}

/// The placement of the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Database {
    /// A replica behind each Web server. The paper's Figure 1 is lost; only with this placement can
    /// the choice of the Web server balance disk-bound requests.
    #[default]
    Attached,
    /// As many replicas as Web servers; all Web servers use them round robin.
    Shared,
    /// The Web server's own disk.
    OwnDisk,
}

impl Default for WebServerHardware {
    fn default() -> Self {
        Self {
            cpu_per_request: Time(Duration::from_micros(290)),
            cpu_per_512_bytes: Time(Duration::from_micros(40)),
            cpu_slice: Time(Duration::from_millis(10)),
            memory_rate: 100_000_000,
            disk_rate: 20_000_000,
            disk_controller: Time(Duration::from_micros(50)),
            disk_seek: Time(Duration::from_millis(9)),
            disk_rotation: Time(Duration::from_nanos(4_166_667)),
            nic_rate: 12_500_000,
            nic_slice: Time(Duration::from_millis(5)),
            light_query_reads: 1,
            heavy_query_reads: 5,
            database: Database::Attached,
        }
    }
}

/// The costs of a secure channel (Table 2, Sec. 4.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ssl {
    /// Bits that RSA works on once per session. Table 2 says "RSA(256 bit)" without an object; the
    /// usual key of the time has 1,024 bits.
    pub rsa_bits: u32,
    /// Bits per second of RSA.
    pub rsa_rate: u64,
    /// Bits per second of Triple DES.
    pub cipher_rate: u64,
    /// Bits per second of MD5.
    pub hash_rate: u64,
    /// Bytes of the server's certificate, once per session.
    pub certificate: u64,
    /// Bytes of hello and close, once per connection.
    pub hello_and_close: u64,
    /// Bytes of a record's header.
    pub record_header: u64,
    /// The largest record, in bytes: SSL's own limit.
    pub record: u64,
}

impl Default for Ssl {
    fn default() -> Self {
        Self {
            rsa_bits: 1_024,
            rsa_rate: 38_500,
            cipher_rate: 46_886_000,
            hash_rate: 331_034_000,
            certificate: 2_048,
            hello_and_close: 73,
            record_header: 29,
            record: 16_384,
        }
    }
}

impl Ssl {
    /// CPU time to negotiate keys.
    pub(super) fn handshake(&self) -> Duration {
        seconds(f64::from(self.rsa_bits) / self.rsa_rate as f64)
    }

    /// CPU time to encrypt and sign `bytes`.
    pub(super) fn encryption(&self, bytes: u64) -> Duration {
        let bits = bytes as f64 * 8.0;
        seconds(bits / self.cipher_rate as f64 + bits / self.hash_rate as f64)
    }

    /// The size of `bytes` in records.
    pub(super) fn framed(&self, bytes: u64) -> u64 {
        bytes + bytes.div_ceil(self.record) * self.record_header
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_nanos((seconds * 1e9).round() as u64)
}

/// The Web switch in front of the servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Switch {
    /// The unit of distribution.
    pub dispatch: Dispatch,
    /// The measure of a server's load for the policy.
    pub load: LoadMeasure,
    /// The interval of the servers' utilisation reports. Not in the paper's simulation; 10 s in its
    /// prototype (Sec. 5.1).
    pub gather: Time,
    /// The delay that a switch of layer 7 adds to every request (Sec. 4.1 refers to a study of
    /// hand-offs; 194 us is LARD's). A switch of layer 4 adds nothing.
    pub delay: Time,
}

/// The unit of distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dispatch {
    /// A page's connection, before its first request is read: a switch of layer 4.
    Page,
    /// Every request, as layer 7 can with multiple hand-off (Sec. 3.1).
    #[default]
    Object,
}

/// The measure of a server's load for the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadMeasure {
    /// Outstanding requests or pages, as the switch counts them.
    #[default]
    Outstanding,
    /// The percentage of the last reporting interval in which the server's busiest part worked.
    BusiestPart,
    /// The mean of that percentage over the server's CPU, disk, database and network card.
    MeanOfParts,
}

impl Default for Switch {
    fn default() -> Self {
        Self {
            dispatch: Dispatch::Object,
            load: LoadMeasure::Outstanding,
            gather: Time(Duration::from_secs(1)),
            delay: Time(Duration::from_micros(194)),
        }
    }
}

/// The choice of the measured pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MeasurementWindow {
    /// Time before the measurement, in which caches fill and sessions spread.
    pub warm_up: Time,
    /// Length of the measurement: pages that begin in it are measured.
    pub measure: Time,
    /// Time that the run waits for unfinished pages after the measurement. Pages that are still
    /// unfinished count with the time that they have taken so far.
    pub drain: Time,
}

impl Default for MeasurementWindow {
    fn default() -> Self {
        Self {
            warm_up: Time(Duration::from_secs(120)),
            measure: Time(Duration::from_secs(600)),
            drain: Time(Duration::from_secs(120)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssl_costs_are_those_of_table_2() {
        let ssl = Ssl::default();
        assert_eq!(ssl.handshake(), Duration::from_nanos(26_597_403));
        // 8,000 bytes are 64,000 bits.
        assert_eq!(ssl.encryption(8_000).as_micros(), 1_558);
        assert_eq!(ssl.framed(20_000), 20_058);
    }

    #[test]
    fn kinds_are_drawn_by_share() {
        let mix = Mix { r#static: 3.0, disk_bound: 1.0, ..Mix::default() };
        let mut rng = Rng::new(1);
        let heavy = (0..40_000).filter(|_| mix.draw(&mut rng) == PageKind::DiskBound).count();
        assert!((9_700..10_300).contains(&heavy), "{heavy}");
    }
}
