//! The name server: its zones and tables are read here, so that a mistake in a file is one of the configuration.

use std::path::PathBuf;

use levada_dns::{
    DnsSettings, HttpListener,
    load::{Place, WorldSource, ZoneFiles, ZoneSource},
    rate::RateLimit,
    redirect::{Steering, Target},
    route::GeoRegions,
    serve::TcpLimits,
    wire::Name,
    zone::Routing,
};
use levada_types::document::{Path, did_you_mean};

use super::{
    Check,
    parts::{each, placed},
};
use crate::file;

impl Check<'_, '_> {
    /// The outer `None` marks an error, the inner a node that is no name server.
    pub(super) fn dns(&mut self) -> Option<Option<DnsSettings>> {
        let Some(dns) = &self.file.dns else { return Some(None) };
        let path = self.root.key("dns");
        let zones = path.key("zone");
        let sources = each(dns.zone.iter().enumerate(), |(at, zone)| {
            self.dns_zone(zone, dns, &zones.index(at))
        });
        let (http, steering) = (self.dns_http(dns, &path), self.dns_steering(dns, &path));
        let secret = self.cookie_secret(dns, &path);
        let geo = self.geo(dns, &path);
        let in_directory = |name: &Option<String>| Some(self.directory.join(name.as_ref()?));
        let source = WorldSource {
            zones: sources?,
            hosts: self.hosts_in_dns(),
            steering: steering?,
            regions: self.regions_in_order(),
            default_region: dns.default_region.as_ref().map(|region| region.0.clone()),
            fallback: (dns.fallback.iter())
                .map(|(region, others)| {
                    (region.clone(), others.iter().map(|other| other.0.clone()).collect())
                })
                .collect(),
            coverage: in_directory(&dns.coverage_zones),
            deep: in_directory(&dns.deep_coverage_zones),
            federations: in_directory(&dns.federations),
            geo: geo?,
            keys: in_directory(&dns.keys),
        };
        let loaded = match source.load() {
            Ok(loaded) => loaded,
            Err(wrong) => {
                for (place, message) in wrong {
                    self.error(&place_in_file(place, &path), message);
                }
                return None;
            }
        };
        for (place, message) in loaded.warnings {
            self.warning(&place_in_file(place, &path), message);
        }
        let routes = loaded.world.zones.iter().any(|zone| zone.routed() > 0);
        let has_source =
            self.file.peering.as_ref().is_some_and(|peering| peering.discovery.is_some());
        if routes && !has_source && !self.file.peer.iter().any(|peer| !peer.public.is_empty()) {
            self.error(
                &zones,
                "names are answered with nodes, and no `[[peer]]` has `public` addresses",
            )
            .help("add the addresses for clients to each `[[peer]]`, or write `sites = false`");
            return None;
        }
        let name = self.file.name.as_ref()?.to_string();
        Some(Some(DnsSettings {
            listen: dns.listen.as_ref()?.as_slice().iter().map(|address| address.0).collect(),
            threads: dns.threads,
            tcp: TcpLimits { connections: dns.connections, idle: dns.idle_timeout.0 },
            nsid: dns.nsid.clone().unwrap_or(name).into_bytes(),
            cookie_secret: secret?,
            http: http?,
            redirect_status: dns.redirect_status,
            limit: RateLimit {
                responses: dns.rate_limit.responses,
                slip: dns.rate_limit.slip,
                signatures: dns.rate_limit.signatures,
            },
            world: loaded.world,
            version: loaded.version,
        }))
    }

    /// The addresses for HTTP.
    fn dns_http(&mut self, dns: &file::Dns, path: &Path) -> Option<Vec<HttpListener>> {
        if ![302, 307].contains(&dns.redirect_status) {
            let message = format!("{} is not 302 or 307", dns.redirect_status);
            return self.error(&path.key("redirect_status"), message).none();
        }
        let has_names = dns.zone.iter().any(|zone| !zone.redirects.is_empty());
        if has_names == dns.http.is_empty() {
            let (key, message) = match has_names {
                true => {
                    ("zone", "names are routed over HTTP, and no `[[dns.http]]` has an address")
                }
                false => ("http", "no zone has names in `redirects`: there is nothing to answer"),
            };
            return self.error(&path.key(key), message).none();
        }
        for (at, peer) in self.file.peer.iter().enumerate().filter(|_| has_names) {
            let name = peer.name.as_ref().map_or("", |name| &name.0);
            if name.contains(['.', ':']) {
                let place = self.root.key("peer").index(at).key("name");
                let message = "cannot be the first label of a name, to which clients are sent";
                return self.error(&place, message).help("use a name without dots").none();
            }
        }
        each(placed(&dns.http, &path.key("http"), false), |(path, http)| {
            let tls = path.key("tls");
            let pairs = placed(&http.tls, &tls, false);
            let tls = each(pairs, |(path, pair)| self.of_listener(pair, &path));
            Some(HttpListener { address: http.address?.0, tls: tls?, alone: http.alone })
        })
    }

    fn dns_steering(&mut self, dns: &file::Dns, path: &Path) -> Option<Vec<Steering>> {
        let list = path.key("steering");
        each(dns.steering.iter().enumerate(), |(at, steering)| {
            if steering.client && !steering.filters.is_empty() {
                let message = "stand with `client`: its clients get all targets for every path";
                return self.error(&list.index(at).key("filters"), message).none();
            }
            let target = |own: &file::DnsTarget| {
                Some(Target {
                    name: own.name.clone()?,
                    weight: own.weight.map(f64::from),
                    order: own.order,
                })
            };
            let filter = |own: &file::DnsFilter| own.path_regex.clone().zip(own.target.clone());
            Some(Steering {
                name: steering.name.clone()?,
                client: steering.client,
                targets: steering.targets.iter().map(target).collect::<Option<_>>()?,
                filters: steering.filters.iter().map(filter).collect::<Option<_>>()?,
            })
        })
    }

    fn dns_zone(
        &mut self,
        zone: &file::DnsZone,
        dns: &file::Dns,
        path: &Path,
    ) -> Option<ZoneSource> {
        if zone.dnssec && dns.keys.is_none() {
            self.error(&path.key("dnssec"), "needs a key, and `dns.keys` names no directory")
                .help("write `keys = \"/etc/levada/dnssec\"` below `[dns]`");
            return None;
        }
        let files = match (&zone.name, &zone.file, &zone.directory) {
            (Some(name), Some(file), None) => {
                let name: Name = self.name_in_dns(name, &path.key("name"))?;
                ZoneFiles::One(name, self.directory.join(file))
            }
            (None, None, Some(directory)) => ZoneFiles::Directory(self.directory.join(directory)),
            (_, _, Some(_)) => {
                let message = "stands with `name` or `file`: its zones have their own";
                return self.error(&path.key("directory"), message).none();
            }
            _ => {
                return self
                    .error(path, "has no `name` and `file`")
                    .help("add both, or a `directory` of zone files")
                    .none();
            }
        };
        let alpn = self.alpn(zone, &path.key("alpn"))?;
        let routing = Routing {
            ttl: zone.ttl.0.as_secs().max(1) as u32,
            max_answers: zone.max_answers,
            hot_rate: zone.hot_rate,
            alpn,
        };
        let (names, redirects) = (zone.names.clone(), zone.redirects.clone());
        Some(ZoneSource {
            files,
            names,
            redirects,
            sites: zone.sites,
            routing,
            signed: zone.dnssec,
        })
    }

    fn name_in_dns(&mut self, text: &str, path: &Path) -> Option<Name> {
        text.parse().map_err(|error| self.error(path, format!("{error}"))).ok()
    }

    /// The protocols on the wire: each with its length before it (RFC 9460 Sec. 7.1).
    fn alpn(&mut self, zone: &file::DnsZone, path: &Path) -> Option<Vec<u8>> {
        const LONGEST: usize = 255;
        let mut wire = Vec::new();
        for (at, protocol) in zone.alpn.iter().enumerate() {
            if protocol.is_empty() || protocol.len() > LONGEST {
                let message = format!("{protocol:?} is no protocol, such as \"h2\"");
                return self.error(&path.index(at), message).none();
            }
            wire.push(protocol.len() as u8);
            wire.extend_from_slice(protocol.as_bytes());
        }
        Some(wire)
    }

    /// The outer `None` marks an error, the inner a node that makes one by itself.
    fn cookie_secret(&mut self, dns: &file::Dns, path: &Path) -> Option<Option<[u8; 16]>> {
        let keys = ["cookie_secret", "cookie_secret_file"];
        let given = self.text_or_file(keys, &dns.cookie_secret, &dns.cookie_secret_file, path)?;
        let Some(text) = given else { return Some(None) };
        let secret = (text.len() == 32).then(|| u128::from_str_radix(&text, 16).ok()).flatten();
        let Some(secret) = secret else {
            let key = keys[usize::from(dns.cookie_secret.is_none())];
            return self
                .error(&path.key(key), "is not 32 hexadecimal digits")
                .help("make one: openssl rand -hex 16")
                .none();
        };
        Some(Some(secret.to_be_bytes()))
    }

    /// The outer `None` marks an error, the inner a server without a database.
    fn geo(&mut self, dns: &file::Dns, path: &Path) -> Option<Option<(PathBuf, GeoRegions)>> {
        if dns.countries.is_empty() && dns.continents.is_empty() {
            return Some(None);
        }
        for continent in dns.continents.keys() {
            if !CONTINENTS.contains(&continent.as_str()) {
                let message = "is no continent: AF, AN, AS, EU, NA, OC or SA";
                return self.error(&path.key("continents").key(continent.clone()), message).none();
            }
        }
        for (table, regions) in [("countries", &dns.countries), ("continents", &dns.continents)] {
            for (code, region) in regions {
                self.is_a_region(&region.0, &path.key(table).key(code.clone()))?;
            }
        }
        let key = if dns.countries.is_empty() { "continents" } else { "countries" };
        let Some(database) = &self.file.country_database else {
            return self
                .error(&path.key(key), "is about countries, and there is no `country_database`")
                .help("name a file in MaxMind's format, such as GeoLite2-Country.mmdb")
                .none();
        };
        let codes = |of: &std::collections::BTreeMap<String, crate::text::NodeName>| {
            of.iter().map(|(code, region)| (code.clone(), region.0.clone())).collect()
        };
        let regions =
            GeoRegions { countries: codes(&dns.countries), continents: codes(&dns.continents) };
        Some(Some((self.directory.join(database), regions)))
    }

    fn is_a_region(&mut self, region: &str, path: &Path) -> Option<()> {
        let known = self.regions_in_order();
        if known.iter().any(|own| **own == *region) {
            return Some(());
        }
        let help = did_you_mean(region, known.iter().map(|name| &**name));
        let message = format!("no `[[peer]]` is of the region {region:?}");
        self.error(path, message).maybe_help(help).none()
    }

    /// The regions of the nodes, in the order of the file; nodes without a region are of one without a name.
    fn regions_in_order(&self) -> Vec<std::sync::Arc<str>> {
        let mut regions: Vec<std::sync::Arc<str>> = Vec::new();
        for peer in &self.file.peer {
            let region = peer.region.as_ref().map_or("", |region| &region.0);
            if !regions.iter().any(|known| **known == *region) {
                regions.push(region.into());
            }
        }
        // A source may name nodes of any region: those of the settings are known, this node's first.
        if let Some(peering) = self.file.peering.as_ref().filter(|own| own.discovery.is_some()) {
            let own = peering.region.as_ref().map_or("", |region| &region.0);
            let dns = self.file.dns.iter();
            let stated = dns.flat_map(|dns| {
                let others = dns.fallback.values().flatten().chain(&dns.default_region);
                let by_code = dns.countries.values().chain(dns.continents.values());
                let of = dns.fallback.keys().map(String::as_str);
                of.chain(others.chain(by_code).map(|region| region.0.as_str()))
            });
            for region in std::iter::once(own).chain(stated) {
                if !regions.iter().any(|known| **known == *region) {
                    regions.push(region.into());
                }
            }
        }
        regions
    }

    /// The hosts of all sites that can be names.
    fn hosts_in_dns(&self) -> Vec<Name> {
        let hosts = self.file.site.iter().filter_map(|site| site.hosts.as_ref());
        let all = hosts.flat_map(|hosts| hosts.as_slice()).filter(|host| host.0 != "*");
        let names = all.filter(|host| host.0.parse::<std::net::IpAddr>().is_err());
        names.filter_map(|host| host.0.parse().ok()).collect()
    }
}

const CONTINENTS: [&str; 7] = ["AF", "AN", "AS", "EU", "NA", "OC", "SA"];

fn place_in_file(place: Place, dns: &Path) -> Path {
    match place {
        Place::Zone(number) => dns.key("zone").index(number),
        Place::Steering(number) => dns.key("steering").index(number),
        Place::DefaultRegion => dns.key("default_region"),
        Place::Fallback => dns.key("fallback"),
        Place::Coverage => dns.key("coverage_zones"),
        Place::Deep => dns.key("deep_coverage_zones"),
        Place::Federations => dns.key("federations"),
        Place::Geo => dns.key("countries"),
    }
}
