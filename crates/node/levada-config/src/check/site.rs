//! Sites: their hosts, their delivery and the policy that chooses nodes for them.

use std::collections::BTreeMap;

use crate::{
    identity::KeyForms,
    settings::{
        Delivery, LargeSettings, Origin, PolicyChoice, ServerProtocols, ShieldSettings, SiteRoutes,
        SiteServers, SiteSettings,
    },
};
use levada_policy::{POLICIES, ParameterError, ParameterValue, Parameters, PolicyEntry};
use levada_rules::Conditions;
use levada_types::ByteSize;
use levada_types::document::{Path, did_you_mean};

use super::{
    Check,
    levels::KeyLevels,
    parts::{each, placed},
};
use crate::{
    file::{self, OneOrMany, ShieldOrRegion},
    text::{NodeName, Root, Upstream},
};

/// The policy of a shield where none is named: each object has one node, the same for all nodes that ask.
const SHIELD_POLICY: &str = "hrw";

impl Check<'_, '_> {
    pub(super) fn sites(&mut self) -> Option<Vec<SiteSettings>> {
        self.hosts();
        let list = self.root.key("site");
        let default = match &self.file.policy {
            Some(policy) => self.policy(policy, &self.root.key("policy")),
            None => Some(PolicyChoice::default()),
        };
        let sites = placed(&self.file.site, &list, false);
        each(sites, |(path, site)| self.site(site, default.as_ref(), &path))
    }

    /// Checks that no two sites have the same host. A name and a wildcard that covers it may belong
    /// to different sites: the more exact one wins.
    fn hosts(&mut self) {
        let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
        for (position, site) in self.file.site.iter().enumerate() {
            let path = self.root.key("site").index(position).key("hosts");
            let hosts = site.hosts.as_ref().map(OneOrMany::as_slice).unwrap_or_default();
            for (number, host) in hosts.iter().enumerate() {
                if let Some(other) = taken.insert(&host.0, position) {
                    let message = format!("{:?} is a host of site[{other}] already", host.0);
                    let path = match &site.hosts {
                        Some(OneOrMany::Many(_)) => path.index(number),
                        _ => path.clone(),
                    };
                    self.error(&path, message);
                }
            }
        }
    }

    fn site(
        &mut self,
        site: &file::Site,
        default: Option<&PolicyChoice>,
        path: &Path,
    ) -> Option<SiteSettings> {
        let levels = KeyLevels::of_site(path, &self.root);
        let name = |(at, route): (usize, &file::SiteRoute)| {
            route.name.clone().unwrap_or_else(|| (at + 1).to_string())
        };
        self.route_names = site.route.iter().enumerate().map(name).collect();
        let own = self.variables(&site.handling.variables, &levels);
        let has_variables = own.is_some();
        self.mappings = own.unwrap_or_default();
        let servers = self.site_servers((site, &site.servers), default, &levels);
        if site.delivery == Delivery::Redirect {
            self.redirect_is_possible(&path.key("delivery"));
        }
        let everywhere = Conditions::default();
        let handling = self.handling(&site.handling, &everywhere, &levels);
        let without_file = self.without_file((&site.servers, false), &everywhere, &levels);
        let classes = self.classes(site, path);
        if let Some(servers) = &servers {
            let shield = servers.shield.iter().map(|shield| &shield.policy);
            for policy in shield.chain([&servers.policy]) {
                self.classes_are_there(policy, site, path);
            }
        }
        let large = self.large(site, path);
        let access = self.access(&site.handling.clients, &levels, (None, None));
        let routes = self.routes((site, access.as_ref()), default, path);
        let log = self.site_log(site, path);
        let tls = self.site_tls(site, path);
        let settings = SiteSettings {
            hosts: site.hosts.as_ref()?.as_slice().iter().map(|host| host.0.clone()).collect(),
            classes: classes?,
            tls: tls?,
            delivery: site.delivery,
            servers: servers?,
            handling: self
                .handled(handling?, access?, (site, &levels))?
                .with_destination(without_file?),
            large,
            routes: SiteRoutes::default(),
            encoded_controls: site.encoded_controls,
            log: log?,
            forms: KeyForms::default(),
        };
        let settings = SiteSettings { routes: routes?, ..settings }.with_spaces();
        has_variables.then_some(settings)
    }

    /// The servers of a site or of a route.
    pub(super) fn site_servers(
        &mut self,
        (site, of): (&file::Site, &file::SiteServers),
        default: Option<&PolicyChoice>,
        levels: &KeyLevels,
    ) -> Option<SiteServers> {
        let policy = match &of.policy {
            Some(policy) => self.policy(policy, &levels.key(self.findings, "policy")),
            None => default.cloned(),
        };
        let files = self.site_files((site, of), levels);
        let switch = match &of.files {
            Some(_) => Some(None),
            None => self.switch((site, of), levels),
        };
        let origins = of.origin.as_ref().map(OneOrMany::as_slice).unwrap_or_default();
        let list = levels.key(self.findings, "origin");
        for (path, origin) in placed(origins, &list, origins.len() == 1) {
            self.socket(origin, &path);
        }
        let tls = self.origin_tls((site, of), levels);
        let shield = self.shield(of, levels);
        Some(SiteServers {
            tls: tls?,
            origins: origins.iter().map(origin).collect(),
            switch: switch?,
            files: files?,
            origin_host: of.origin_host.as_ref().map(ToString::to_string),
            protocols: ServerProtocols {
                h2: of.protocol == file::Protocol::H2,
                states_client: of.proxy_protocol,
            },
            policy: policy?,
            health: of.health_check.clone(),
            misses: of.misses,
            shield: shield?,
        })
    }

    /// The region through which others ask the origin, which must be one of the cluster, as far as that is known, and its
    /// policy. The outer `None` marks an error.
    fn shield(
        &mut self,
        of: &file::SiteServers,
        levels: &KeyLevels,
    ) -> Option<Option<ShieldSettings>> {
        let Some(given) = &of.shield else { return Some(None) };
        let (table, path) = (given.table(), levels.key(self.findings, "shield"));
        let policy = match &table.policy {
            Some(policy) => self.policy(policy, &path.key("policy")),
            None => {
                Some(PolicyChoice { name: SHIELD_POLICY.to_owned(), ..PolicyChoice::default() })
            }
        };
        let NodeName(region) = table.region?;
        let regions =
            || self.file.peer.iter().filter_map(|peer| Some(peer.region.as_ref()?.0.as_str()));
        let peering = self.file.peering.as_ref();
        let may_come =
            peering.is_some_and(|peering| peering.discovery.is_some() && peering.region.is_some());
        if !may_come && !regions().any(|one| one == region) {
            let help = did_you_mean(&region, regions()).unwrap_or_else(|| {
                "give each `[[peer]]` its `region`, and name one of them here".to_owned()
            });
            let path = match given {
                ShieldOrRegion::Region(_) => path,
                ShieldOrRegion::Table(_) => path.key("region"),
            };
            self.error(&path, format!("no `[[peer]]` is of the region {region:?}")).help(help);
        }
        Some(Some(ShieldSettings { region: region.into(), policy: policy? }))
    }

    /// Checks large files that are fetched in pieces: a piece fits into a block, and a window fits into
    /// the memory for all windows.
    fn large(&mut self, site: &file::Site, path: &Path) -> Option<LargeSettings> {
        let (path, cache) = (path.key("large"), &self.file.cache);
        if !site.large.enabled {
            return None;
        }
        let large = LargeSettings::from(&site.large);
        let (chunk, window) = (large.plan.chunk, large.plan.window as u64);
        if !site.handling.cache {
            let message = "has no effect while the site's `cache` is off: pieces are kept in it";
            self.warning(&path.key("enabled"), message);
        }
        let key = &site.handling.cache_key;
        let lists = [&key.headers, &key.cookies];
        if key.device || key.expression.is_some() || lists.iter().any(|list| !list.is_empty()) {
            let message =
                "cannot stand beside a `cache_key` with headers, cookies, devices or an expression";
            self.error(&path.key("enabled"), message)
                .help("give the route of large files a `cache_key` without them");
        }
        if chunk > cache.block {
            let message = format!("a piece of {} is more than a block", ByteSize(chunk));
            self.error(&path.key("chunk_size"), message)
                .help(format!("at most `cache.block`, {}", ByteSize(cache.block)));
        }
        if large.threshold < chunk {
            let message = format!("is less than a piece of {}", ByteSize(chunk));
            self.error(&path.key("threshold"), message);
        }
        if chunk.saturating_mul(window) > cache.memory / 4 {
            let message = format!(
                "{window} pieces of {} are more than a quarter of `cache.memory`, which all \
                 transfers share: no transfer ever has its whole window",
                ByteSize(chunk)
            );
            self.warning(&path.key("window"), message);
        }
        Some(large)
    }

    /// Checks that a client can be redirected to any peer, and that the peer can verify the
    /// redirect.
    fn redirect_is_possible(&mut self, path: &Path) {
        let Some(peering) = &self.file.peering else {
            if !self.findings.has(&self.root.key("peering")) {
                self.error(path, "needs a cluster: there is no `[peering]`")
                    .help("a node that stands alone delivers by \"proxy\"");
            }
            return;
        };
        let signed = ["secret", "secrets", "secret_file"]
            .iter()
            .any(|key| self.findings.has(&self.root.key("peering").key(*key)));
        // If certificates are missing too, the missing secret has been reported.
        if !signed && peering.tls.is_some() {
            self.error(path, "needs a secret that redirects are signed with")
                .help("add `peering.secret_file` or `peering.secret`");
        }
        let list = self.root.key("peer");
        let missing: Vec<String> = (self.file.peer.iter().enumerate())
            .filter(|(i, _)| !self.findings.has(&list.index(*i).key("client_url")))
            .map(|(i, peer)| match &peer.name {
                Some(name) => name.to_string(),
                None => format!("peer[{i}]"),
            })
            .collect();
        if !missing.is_empty() {
            self.error(path, format!("needs a `client_url` of every peer: {}", missing.join(", ")))
                .help("for example `client_url = \"https://b.cdn.example\"`");
        }
    }

    fn policy(&mut self, policy: &file::Policy, path: &Path) -> Option<PolicyChoice> {
        let name = policy.name.as_deref()?;
        let Some(entry) = levada_policy::find(name) else {
            let names = edge_policies().map(|entry| entry.name);
            self.error(&path.key("name"), format!("there is no policy {name:?}")).help(
                did_you_mean(name, names)
                    .unwrap_or_else(|| "`levada policies` lists them".to_owned()),
            );
            return None;
        };
        if !entry.runs_on_an_edge() {
            self.simulator_only(entry, &path.key("name"));
            return None;
        }
        let parameters = policy.parameters.clone();
        if let Err(errors) = Parameters::check(entry.name, entry.parameters, &parameters) {
            for error in errors {
                self.parameter_error(&error, path);
            }
            return None;
        }
        self.busy_is_ever_reached(&parameters, path);
        Some(PolicyChoice { name: entry.name.to_owned(), parameters })
    }

    fn simulator_only(&mut self, entry: &PolicyEntry, path: &Path) {
        let needs: Vec<_> = entry.needs.iter().map(|need| need.as_str()).collect();
        self.error(path, format!("{:?} runs in the simulator only", entry.name)).help(format!(
            "it needs {}; `levada policies` says where each runs",
            needs.join(" and ")
        ));
    }

    fn parameter_error(&mut self, error: &ParameterError, path: &Path) {
        let at = path.key(error.name().to_owned());
        match error {
            ParameterError::Unknown { policy, name, known } => {
                let message = format!("the policy {policy:?} has no such parameter");
                let place = self.findings.key_place(&at);
                self.findings.error_at(place, &at, message).help(
                    did_you_mean(name, known.iter().copied()).unwrap_or_else(|| {
                        if known.is_empty() {
                            "it takes none".to_owned()
                        } else {
                            format!("it has {}", known.join(", "))
                        }
                    }),
                );
            }
            ParameterError::Wrong { expected, given, .. } => {
                self.error(&at, format!("must be {expected}, not {given}"));
            }
        }
    }

    /// Every redirector sees only its own requests. If all redirectors together can fill a node
    /// before one of them considers it busy, none ever does (OSDI'02; the simulator shows it for 12
    /// x 300).
    fn busy_is_ever_reached(&mut self, parameters: &BTreeMap<String, ParameterValue>, path: &Path) {
        let Some(ParameterValue::Integer(busy)) = parameters.get("busy") else { return };
        let redirectors = self.file.peer.len().max(1) as u64;
        let capacity = u64::from(self.file.limits.capacity);
        if busy.unsigned_abs().saturating_mul(redirectors) < capacity {
            return;
        }
        let message = format!(
            "{redirectors} nodes that each call another busy at {busy} requests never do: it \
             refuses at {capacity} (`limits.capacity`)"
        );
        self.warning(&path.key("busy"), message).help(format!(
            "leave `busy` out, so that it is derived, or write less than {}",
            capacity.div_ceil(redirectors)
        ));
    }
}

fn edge_policies() -> impl Iterator<Item = &'static PolicyEntry> {
    POLICIES.iter().flat_map(|file| file.iter()).filter(|entry| entry.runs_on_an_edge())
}

pub(super) fn origin(upstream: &Upstream) -> Origin {
    match upstream {
        Upstream::Root(Root { tls, host, port }) => {
            Origin::Tcp { tls: *tls, host: host.clone(), port: *port }
        }
        Upstream::Unix(path) => Origin::Unix(path.clone()),
        Upstream::Discovery { tls, source } => {
            Origin::Discovered { tls: *tls, source: source.as_str().into() }
        }
    }
}
