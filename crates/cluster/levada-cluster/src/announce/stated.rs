//! `[route]`: the anycast route by which clients reach a node.

use std::time::Duration;

use levada_types::{
    document::{Findings, Path},
    text::Time,
    values::OneOrMany,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::announce::{RouteLevel, RouteRules, RouteSettings, Speaker};

/// The route by which clients reach this node: a BGP daemon on the same machine announces it, keeps it as a
/// backup or withdraws it. The table `bird` or `exabgp` chooses the daemon. See docs/operate/anycast.md.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StatedRoute {
    /// BIRD, over its control socket.
    pub bird: Option<Bird>,
    /// ExaBGP, which runs `levada route exabgp`.
    pub exabgp: Option<ExaBgp>,
    /// Minimum time between two changes because of load, and before a node that was cut off from its servers
    /// announces its route again.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1d"))]
    pub dwell: Time,
    /// The load at which the route becomes a backup: requests in service relative to `limits.capacity`,
    /// averaged over some 10 s.
    #[schemars(range(min = 0.01, max = 100))]
    pub load_high: f64,
    /// The load at which the route is no longer a backup.
    #[schemars(range(min = 0, max = 100))]
    pub load_low: f64,
    /// The state of the route while every server of a site is down. The default is `backup` where
    /// there is one.
    pub unwell: Option<Unwell>,
    /// Time that routers have to notice a withdrawn route before downloads are ended or the node stops.
    #[schemars(extend("x-maximum" = "1m"))]
    pub settle: Time,
    /// Whether decisions are only logged and shown.
    pub dry_run: bool,
}

/// The state of the route while every server of a site is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unwell {
    /// The route is a backup: it carries only traffic that other nodes cannot.
    Backup,
    /// The route is withdrawn.
    Withdraw,
}

/// BIRD, over its control socket.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["protocol"]))]
pub struct Bird {
    /// Its control socket.
    #[schemars(length(min = 1))]
    pub socket: String,
    /// The static protocol of BIRD's configuration that has the route.
    #[schemars(regex(pattern = "^[A-Za-z_][A-Za-z0-9_]{0,63}$"), extend("examples" = ["levada"]))]
    pub protocol: Option<String>,
    /// The static protocol that has the route with lower preference.
    #[schemars(regex(pattern = "^[A-Za-z_][A-Za-z0-9_]{0,63}$"), extend("examples" = ["levada_backup"]))]
    pub backup_protocol: Option<String>,
}

/// ExaBGP, which runs `levada route exabgp`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["prefixes"]))]
pub struct ExaBgp {
    /// The announced prefix.
    #[schemars(extend("examples" = [["192.0.2.0/24"]]))]
    pub prefixes: Option<OneOrMany<String>>,
    /// Next hop and attributes, in ExaBGP's syntax.
    #[schemars(regex(pattern = "^[ -~]+$"))]
    pub attributes: String,
    /// Next hop and attributes of the route as a backup.
    #[schemars(regex(pattern = "^[ -~]+$"), extend("examples" = ["next-hop self med 100 community [65535:0]"]))]
    pub backup_attributes: Option<String>,
}

impl Default for StatedRoute {
    fn default() -> Self {
        Self {
            bird: None,
            exabgp: None,
            dwell: Time(Duration::from_secs(120)),
            load_high: 0.9,
            load_low: 0.6,
            unwell: None,
            settle: Time(Duration::from_secs(1)),
            dry_run: false,
        }
    }
}

impl Default for Bird {
    fn default() -> Self {
        Self { socket: "/run/bird/bird.ctl".to_owned(), protocol: None, backup_protocol: None }
    }
}

impl Default for ExaBgp {
    fn default() -> Self {
        Self { prefixes: None, attributes: "next-hop self".to_owned(), backup_attributes: None }
    }
}

impl StatedRoute {
    /// The settings of a node's route by the table at `path`, if they can be used: one daemon, and values that it accepts.
    pub fn settings(&self, path: &Path, findings: &mut Findings<'_>) -> Option<RouteSettings> {
        let speaker = match (&self.bird, &self.exabgp) {
            (Some(bird), None) => bird.speaker(&path.key("bird"), findings),
            (None, Some(exabgp)) => exabgp.speaker(&path.key("exabgp"), findings),
            (Some(_), Some(_)) => {
                findings.error(&path.key("exabgp"), "one daemon has the route").none()
            }
            (None, None) if findings.has(&path.key("bird")) => None,
            (None, None) if findings.has(&path.key("exabgp")) => None,
            (None, None) => {
                findings
                    .error(path, "no daemon announces it")
                    .help("add a table [route.bird] or [route.exabgp]");
                None
            }
        };
        let has_backup = self.bird.as_ref().is_some_and(|bird| bird.backup_protocol.is_some())
            || self.exabgp.as_ref().is_some_and(|exabgp| exabgp.backup_attributes.is_some());
        if self.load_low >= self.load_high {
            let message = format!("not below `load_high`, which is {}", self.load_high);
            findings.error(&path.key("load_low"), message);
        }
        for key in ["load_high", "load_low"] {
            if !has_backup && speaker.is_some() && findings.has(&path.key(key)) {
                let message = "has no effect without a backup, which is what load makes of a route";
                findings.warning(&path.key(key), message);
            }
        }
        let unwell = match self.unwell {
            None if has_backup => RouteLevel::Backup,
            None | Some(Unwell::Withdraw) => RouteLevel::Withdrawn,
            Some(Unwell::Backup) if has_backup => RouteLevel::Backup,
            Some(Unwell::Backup) => {
                findings
                    .error(&path.key("unwell"), "there is no backup")
                    .help("add `backup_protocol` or `backup_attributes`");
                return None;
            }
        };
        Some(RouteSettings {
            speaker: speaker?,
            rules: RouteRules {
                dwell: self.dwell.0,
                load_high: has_backup.then_some(self.load_high),
                load_low: has_backup.then_some(self.load_low),
                unwell,
            },
            settle: self.settle.0,
            dry_run: self.dry_run,
        })
    }
}

impl Bird {
    fn speaker(&self, path: &Path, findings: &mut Findings<'_>) -> Option<Speaker> {
        // A missing value has been reported.
        let protocol = self.protocol.clone();
        if protocol.is_some() && self.backup_protocol == protocol {
            return findings.error(&path.key("backup_protocol"), "the same as `protocol`").none();
        }
        for (key, name) in [("protocol", &protocol), ("backup_protocol", &self.backup_protocol)] {
            if name.as_ref().is_some_and(|name| !is_symbol(name)) {
                findings
                    .error(&path.key(key), "no name that BIRD takes without quotes")
                    .help("letters, digits and `_`, at most 64, no digit first");
                return None;
            }
        }
        Some(Speaker::Bird {
            socket: self.socket.clone().into(),
            protocol: protocol?,
            backup: self.backup_protocol.clone(),
        })
    }
}

impl ExaBgp {
    fn speaker(&self, path: &Path, findings: &mut Findings<'_>) -> Option<Speaker> {
        let prefixes = self.prefixes.as_ref()?.as_slice();
        for (position, prefix) in prefixes.iter().enumerate() {
            if !is_prefix(prefix) {
                let message = format!("{prefix:?} is no prefix");
                let path = path.key("prefixes");
                findings
                    .error(&path.index(position), message)
                    .help("write one as 192.0.2.0/24 or 2001:db8::/48");
                return None;
            }
        }
        let attributes = [
            ("attributes", Some(&self.attributes)),
            ("backup_attributes", self.backup_attributes.as_ref()),
        ];
        for (key, text) in attributes {
            if text.is_some_and(|text| !text.bytes().all(|byte| matches!(byte, b' '..=b'~'))) {
                return findings
                    .error(&path.key(key), "ExaBGP is told one line of plain text")
                    .none();
            }
        }
        Some(Speaker::ExaBgp {
            prefixes: prefixes.to_vec(),
            attributes: self.attributes.clone(),
            backup: self.backup_attributes.clone(),
        })
    }
}

fn is_symbol(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(plain)
        && !name.as_bytes()[0].is_ascii_digit()
}

fn is_prefix(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = match address.parse() {
        Ok(std::net::IpAddr::V4(_)) => 32,
        Ok(std::net::IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}
