//! `dns.toml`, and the zone file of the CDN.

use std::fmt::Write as _;

use super::{Converter, json::Json, redirects::Redirects};
use crate::{
    table::{Table, Value},
    units,
};

/// The files that `dns.toml` names.
#[derive(Default)]
pub(super) struct Named {
    pub(super) coverage: bool,
    pub(super) deep: bool,
    pub(super) federations: bool,
}

/// Machines that are nothing but name servers send clients on.
const HTTP: &str = "
# For https add `tls = [{ certificate = \"/etc/levada/www.pem\", key = \"/etc/levada/www.key\" }]` at port 443.
[[dns.http]]
address = \"0.0.0.0:80\"
alone = true
";

/// As many name servers are named.
const SERVERS: usize = 4;

impl Converter {
    /// `dns.toml`.
    pub(super) fn dns(&self, named: &Named) -> String {
        let mut dns = Table::default();
        let of_services = |value: fn(&super::service::Service) -> Option<u64>| {
            self.services.values().filter_map(value).min()
        };
        let miss = self.services.values().find_map(|service| service.miss);
        let nearest = miss.and_then(|at| self.groups.by_distance(at).next());
        if let Some(group) = nearest {
            dns.set("default_region", group.region.as_str());
        }
        let files = [
            ("coverage_zones", "files/coverage.json", named.coverage),
            ("deep_coverage_zones", "files/deep-coverage.json", named.deep),
            ("federations", "files/federations.json", named.federations),
        ];
        for (key, file, _) in files.into_iter().filter(|(_, _, is_there)| *is_there) {
            dns.set(key, file);
        }
        let mut zone = Table::from_iter([
            ("name", self.zone.as_str().into()),
            ("file", format!("files/{}.zone", self.zone).into()),
        ]);
        let ttl = of_services(|service| service.ttl).or(self.ttl);
        if let Some(ttl) = ttl {
            zone.set("ttl", units::duration(ttl.clamp(1, 86_400) * 1_000));
        }
        if let Some(most) = of_services(|service| service.max_answers) {
            zone.set("max_answers", most.clamp(1, 16));
        }
        let Redirects { names, steering, .. } = &self.redirects;
        let mut text = format!("[dns]\nlisten = \"${{FLEET_IP}}:53\"\n{dns}");
        if !names.is_empty() {
            zone.set(
                "redirects",
                Value::List(names.iter().map(|name| name.as_str().into()).collect()),
            );
            text.push_str(HTTP);
        }
        for name in steering {
            let _ = write!(text, "\n[[dns.steering]]\n{name}");
        }
        format!("{text}\n[[dns.zone]]\n{zone}")
    }

    /// The zone file: edges are its name servers, the first of each region first.
    pub(super) fn zone_file(&self) -> String {
        let number = |key: &str, usual: u64| {
            let own = self.soa.as_ref().map_or("", |soa| soa.member(key));
            own.parse().unwrap_or(usual)
        };
        let admin = self.soa.as_ref().map_or("", |soa: &Json| soa.member("admin"));
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        // An address of mail is a whole name; other names are below the zone, unless they end with a dot.
        let whole = if admin.contains('@') { "." } else { "" };
        let admin = match admin.replace('@', ".") + whole {
            admin if !admin.is_empty() && admin.chars().all(is_name) => admin,
            _ => "hostmaster".to_owned(),
        };
        let mut text = format!(
            "$TTL 3600\n@ SOA ns1 {admin} 1 {} {} {} {}\n",
            number("refresh", 28_800),
            number("retry", 7_200),
            number("expire", 604_800),
            number("minimum", 30),
        );
        for (index, address) in self.groups.name_servers().take(SERVERS).enumerate() {
            let kind = if address.is_ipv6() { "AAAA" } else { "A" };
            let _ = write!(text, "@ NS ns{0}\nns{0} {kind} {address}\n", index + 1);
        }
        let Redirects { names, steered, routers, .. } = &self.redirects;
        for name in names.iter().chain(steered) {
            for address in routers {
                let kind = if address.is_ipv6() { "AAAA" } else { "A" };
                let _ = writeln!(text, "{name} {kind} {address}");
            }
        }
        for service in self.services.values() {
            for (name, record) in &service.records {
                let _ = writeln!(text, "{name}.{}. {record}", service.domain);
            }
        }
        text
    }
}
