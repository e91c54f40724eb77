//! HTTP routing and steering: names in `redirects`, and `[[dns.steering]]`.

use std::{collections::BTreeMap, net::IpAddr};

use super::{
    json::Json,
    service::{Kind, Service},
};
use crate::{
    ledger::{Ledger, Outcome, TAKEN, differs, left},
    table::{Table, Value},
};

/// HTTP routing, as `dns.toml` and the zone file have it.
#[derive(Default)]
pub(super) struct Redirects {
    /// The addresses of Traffic Routers. Without one there is no HTTP routing.
    pub(super) routers: Vec<IpAddr>,
    /// Names relative to the zone.
    pub(super) names: Vec<String>,
    pub(super) steering: Vec<Table>,
    /// Names with targets, relative to the zone.
    pub(super) steered: Vec<String>,
}

impl Redirects {
    /// The Traffic Routers of a snapshot.
    pub(super) fn read(snapshot: &Json, ledger: &mut Ledger) -> Self {
        let mut routers = Vec::new();
        for (name, router) in snapshot.get("contentRouters").map_or(&[][..], Json::members) {
            let addresses = ["ip", "ip6"].map(|key| router.member(key));
            let own = |address: &&str| address.split('/').next()?.parse::<IpAddr>().ok();
            let before = routers.len();
            routers.extend(addresses.iter().filter_map(own));
            let outcome = match routers.len() > before {
                true => differs("run `levada dns` there, with the configuration of a node"),
                false => left("it has no address"),
            };
            ledger.enter_line(&router.place, &format!("contentRouters {name}"), outcome);
        }
        Self { routers, ..Self::default() }
    }

    /// The hosts of a service, relative to the zone, whose clients Traffic Router sends on; empty: there are none.
    pub(super) fn redirected(&self, zone: &str, service: &Service) -> Vec<String> {
        let is_routed = !self.routers.is_empty()
            && !service.is_dns
            && matches!(service.kind, Kind::Cached | Kind::Direct)
            && service.site.table.has_any(&["origin"])
            && service.is_served()
            && service.closed.is_empty();
        let own = service.hosts.iter().filter(|_| is_routed);
        own.filter_map(|host| in_zone(zone, host)).filter(|name| name.contains('.')).collect()
    }

    /// The site takes the names of all nodes, and stores under one name.
    pub(super) fn redirect(&mut self, zone: &str, service: &mut Service) {
        let names = self.redirected(zone, service);
        let Some(first) = names.first() else { return };
        service.site.table.set_path("cache_key.host", format!("{first}.{zone}"));
        for name in names {
            let parent = name.split_once('.').map_or("", |(_, parent)| parent);
            let star = format!("*.{parent}.{zone}");
            if !service.hosts.contains(&star) {
                service.hosts.push(star);
            }
            self.names.push(name);
        }
    }

    /// Takes a steering service over, if Traffic Router sends the clients of all its targets on; otherwise `None`.
    pub(super) fn steer(
        &mut self,
        zone: &str,
        (entry, service): (&Json, &Service),
        hosts: &BTreeMap<String, String>,
    ) -> Option<Outcome> {
        let host = service.hosts.first()?;
        let name = in_zone(zone, host)?;
        let redirected = |target: &Json| {
            let host = hosts.get(target.member("deliveryService"))?;
            let is_there = self.names.contains(&in_zone(zone, host)?);
            is_there.then(|| host.clone())
        };
        let all = in_order(entry);
        let mut targets = Vec::new();
        for target in &all {
            let mut table = Table::from_iter([("name", redirected(target)?.into())]);
            let number = |key| target.number(key).unwrap_or_default();
            match number("weight") {
                weight if weight > 0.0 => table.set("weight", weight.min(1e6) as u64),
                _ => table.set("order", Value::Signed(number("order") as i64)),
            }
            targets.push(Value::Inline(table));
        }
        let is_client = entry.member("clientSteering") == "true";
        let mut steering = Table::from_iter([("name", host.as_str().into())]);
        if is_client {
            steering.set("client", true);
        }
        if targets.is_empty() {
            return None;
        }
        steering.set("targets", Value::List(targets));
        let filters = entry.get("filters").filter(|_| !is_client).map_or(&[][..], Json::items);
        let (mut list, mut is_whole) = (Vec::new(), true);
        for filter in filters {
            let (pattern, target) = (filter.member("pattern"), filter.member("deliveryService"));
            // Traffic Router does not follow a filter to what is no target.
            let target = all.iter().find(|own| own.member("deliveryService") == target);
            match (regex::Regex::new(pattern), target.and_then(|target| redirected(target))) {
                (Ok(_), Some(target)) => list.push(Value::Inline(Table::from_iter([
                    ("path_regex", pattern.into()),
                    ("target", target.into()),
                ]))),
                (Err(_), _) => is_whole = false,
                (_, None) => {}
            }
        }
        if !list.is_empty() {
            steering.set("filters", Value::List(list));
        }
        self.steering.push(steering);
        self.steered.push(name);
        let has_places =
            all.iter().any(|target| target.number("geoOrder").is_some_and(|at| at != 0.0));
        Some(match (is_whole, has_places) {
            (false, _) => left("an expression is of another kind: its paths go with all others"),
            (true, true) => differs("the places of the targets' origins do not count"),
            (true, false) => TAKEN,
        })
    }
}

/// A host without the name of the zone, if it is within it.
fn in_zone(zone: &str, host: &str) -> Option<String> {
    let name = host.strip_suffix(zone)?.strip_suffix('.')?;
    (!zone.is_empty() && !name.is_empty() && !name.contains('*')).then(|| name.to_owned())
}

/// Targets, the one that most clients get first.
pub(super) fn in_order(entry: &Json) -> Vec<&Json> {
    let mut targets: Vec<_> = entry.get("targets").map_or(&[][..], Json::items).iter().collect();
    let rank = |own: &&Json| {
        let number = |key| own.number(key).unwrap_or_default();
        (number("geoOrder"), number("order"), -number("weight"))
    };
    targets.sort_by(|one, other| {
        rank(one).partial_cmp(&rank(other)).unwrap_or(std::cmp::Ordering::Equal)
    });
    targets
}
