//! Parameters of profiles, and the configuration of the whole CDN in a snapshot.

use super::{Converter, json::Json, service::Closed};
use crate::{
    ledger::{Outcome, TAKEN, left},
    rows::{Row, find},
};

/// The effect of a parameter.
#[derive(Clone, Copy)]
pub(crate) enum Effect {
    /// A key of the configuration of DNS.
    Dns(&'static str),
    /// A key of `records`, as Traffic Server has it.
    Record,
    /// Of a delivery service: it may refuse requests. Of a server, it is left.
    Restricts,
}

const PLUGINS: &str = "closes the services of the profile: it may refuse requests";

/// Parameters by their configuration file and name.
pub(crate) const PARAMETERS: &[Row<Effect>] = &[
    Row::needless(
        "*/location */header",
        "it is where a file of Traffic Server is, and its first line",
    ),
    Row::writes("records.config/*", "as in records of Traffic Server", Effect::Record),
    Row::writes(
        "remap.config/* hdr_rw_*/* url_sig*/* uri_signing*/* regex_remap*/* sni.yaml/* ssl_server_name.yaml/*",
        PLUGINS,
        Effect::Restricts,
    ),
    Row::left(
        "storage.config/* volume.config/* hosting.config/*",
        "a node has one directory with a size: [cache.disk] in node.toml",
    ),
    Row::left(
        "parent.config/* strategies.yaml/*",
        "a region and its nodes are chosen by [fleet] and the policy",
    ),
    Row::left("cachekey.*/* cacheurl*/*", "write `cache_key` into the site"),
    Row::left("*.pparam/*", "plugins are not there"),
    Row::left("logging*/* logs_xml.config/*", "write `[log]` into node.toml"),
    Row::left(
        "rascal.properties/* rascal-config.txt/* health/*",
        "a node refuses what it cannot carry: [limits]",
    ),
    Row::needless("ip_allow.*/*", "nodes know each other by a secret, and purges need a token"),
    Row::needless(
        "astats.config/* plugin.config/* cache.config/* regex_revalidate.config/* 50-ats.rules/* bg_fetch.config/*",
        "it belongs to Traffic Server",
    ),
    Row::needless(
        "package/* chkconfig/* sysctl.config/* traffic_stats.config/* global/* grove-tc.cfg/* latch_string/*",
        "it belongs to the machine, or to another program of Traffic Control",
    ),
    Row::needless("CRConfig.json/*", "the snapshot has it"),
    Row::left("*", "there is nothing for it"),
];

const ROUTERS: &str = "nodes with `[dns]` stand for Traffic Routers: docs/operate/dns.md";

/// The configuration of the CDN.
pub(crate) const CONFIG: &[Row<Effect>] = &[
    Row::writes("domain_name", "the zone in dns.toml", Effect::Dns("zone")),
    Row::writes("ttls", "the TTL in dns.toml", Effect::Dns("ttl")),
    Row::writes("soa", "the zone file", Effect::Dns("soa")),
    Row::left(
        "dnssec.enabled = true",
        "a zone is signed with keys of its own: docs/operate/dns.md",
    ),
    Row::left("edge.dns.* edge.http.* trafficRouterLocations", ROUTERS),
    Row::left("maxmindDefaultOverride", "a country has a region, no coordinates"),
    Row::left(
        "geolocation.polling.url alt.geolocation.polling.url neustar.polling.url",
        "name a database in MaxMind's format in dns.toml and node.toml",
    ),
    Row::left(
        "regional_geoblock.* anonymousip.*",
        "such rules are not there: the services are closed",
    ),
    Row::needless(
        "*.polling.* certificates.* api.* keystore.* zonemanager.* dnssec.* weight confighandler.* ecsEnable consistent.dns.routing strip.special.query.params dns.* requestHeaders",
        "it is about how Traffic Router works",
    ),
    Row::left("*", "there is nothing for it"),
];

impl Converter {
    /// The configuration of a snapshot.
    pub(super) fn config(&mut self, config: &Json) {
        for (name, value) in config.members() {
            let Some(row) = find(CONFIG, name, value.text()) else { continue };
            let outcome = row.outcome(|effect| {
                match effect {
                    Effect::Dns("zone") => self.zone = domain(value.text())?,
                    Effect::Dns("ttl") => self.ttl = value.member("A").parse().ok(),
                    _ => self.soa = Some(value.clone()),
                }
                TAKEN
            });
            self.ledger.enter_line(
                &value.place,
                &format!("config {name} {}", value.shown()),
                outcome,
            );
        }
    }

    /// The parameters of profiles; those of delivery services belong to the services with this profile.
    pub(super) fn parameters(&mut self, of: &str, parameters: &[Json]) {
        for parameter in parameters {
            let file = [parameter.member("configFile"), parameter.member("config_file")].concat();
            let (name, value) = (parameter.member("name"), parameter.member("value"));
            let mut profiles = parameter.texts("profiles");
            profiles.extend(Some(of).filter(|of| !of.is_empty()));
            let path = format!("{file}/{name}").replace(char::is_whitespace, "_");
            let Some(row) = find(PARAMETERS, &path, value) else { continue };
            let outcome = row.outcome(|effect| match effect {
                Effect::Record => self.record(name, value),
                _ => self.close_profiles(&profiles, &format!("{file} {name}")),
            });
            let statement = format!("parameter {file} {name} {value}");
            self.ledger.enter_line(&parameter.place, &statement, outcome);
        }
    }

    /// `CONFIG proxy.config.http.x` with the value `INT 1`.
    fn record(&mut self, name: &str, value: &str) -> Outcome {
        let key = name.split_whitespace().last().unwrap_or_default();
        let key = key.strip_prefix("proxy.config.").unwrap_or(key);
        let value = value.split_once(char::is_whitespace).map_or("", |(_, value)| value);
        self.records.key(key, value.trim())
    }

    fn close_profiles(&mut self, profiles: &[&str], what: &str) -> Outcome {
        let mut is_of_service = false;
        for service in self.services.values_mut() {
            if profiles.contains(&service.profile.as_str()) && !service.profile.is_empty() {
                is_of_service = true;
                let closed = Closed(format!("the parameter {what} may refuse requests"));
                drop(super::service::outcome_of(service, Err(closed)));
            }
        }
        match is_of_service {
            true => left("it may refuse requests: the services of its profile are closed"),
            false => left("no service has this profile"),
        }
    }
}

/// The name of a zone, which is the name of a file as well.
fn domain(text: &str) -> Result<String, String> {
    let name = text.trim_matches('.').to_ascii_lowercase();
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_".contains(&c))
    };
    match name.split('.').all(is_label) {
        true => Ok(name),
        false => Err("is no name of a domain".to_owned()),
    }
}
