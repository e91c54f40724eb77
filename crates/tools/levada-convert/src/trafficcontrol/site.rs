//! A delivery service as a site.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Converter,
    json::Json,
    name_of,
    redirects::in_order,
    service::{Kind, Service},
    site_file,
    zones::Coverage,
};
use crate::{
    gate::{self, Concern},
    ledger::{Outcome, Place, TAKEN, differs, left},
    plan::Route,
    table::{Table, Value},
    vocabulary,
};

/// Beyond as many networks a list of addresses is no rule for every request.
const MOST_NETWORKS: usize = 1_000;

impl Converter {
    /// A file for each delivery service.
    pub(super) fn sites(
        &mut self,
        coverage: &Coverage,
        steering: &[Json],
        files: &mut BTreeMap<String, String>,
    ) {
        let mut services = std::mem::take(&mut self.services);
        for entry in steering {
            // Without the answer for `deliveryservices` its type is not known.
            let service = services.get_mut(entry.member("deliveryService"));
            if let Some(service) = service.filter(|own| !own.site.table.has_any(&["origin"])) {
                service.kind = Kind::Steering;
            }
        }
        for service in services.values_mut() {
            let wrong = service.settle_sets(&self.zone);
            for pattern in wrong {
                let statement = format!("{}: host {pattern}", service.name);
                let why = "is no name of a host, and not `.*\\.NAME\\..*`";
                self.enter(service, &statement, left(why));
            }
            self.settle(service, coverage);
        }
        close_shared_hosts(&mut services);
        let mut hosts = BTreeMap::new();
        for service in services.values().filter(|service| service.is_served()) {
            hosts.insert(service.name.clone(), service.hosts.first().cloned().unwrap_or_default());
        }
        services.values_mut().for_each(|service| self.redirects.redirect(&self.zone, service));
        let answered = self.steer_all(&services, steering, &hosts);
        let mut names = BTreeSet::new();
        for service in services.values_mut().filter(|service| !answered.contains(&service.name)) {
            let outcome = self.site(service, steering, &hosts);
            if outcome.is_ok() || !service.closed.is_empty() && service.is_served() {
                let file = name_of(&service.name, names.iter().map(String::as_str));
                let text = site_file(service.site.clone());
                files.insert(format!("sites/{file}.toml"), text);
                names.insert(file);
            }
            self.enter(service, &format!("delivery service {}", service.name), outcome);
        }
        for entry in steering.iter().filter(|own| !answered.contains(own.member("deliveryService")))
        {
            let name = entry.member("deliveryService");
            let outcome = match services.get(name).map(|service| service.kind) {
                Some(Kind::Steering) => steered(entry, &hosts),
                _ => left("there is no such delivery service of type STEERING"),
            };
            self.ledger.enter_line(&entry.place, &format!("steering {name}"), outcome);
        }
        self.services = services;
    }

    /// The steering services that are answered by name servers. They need no site.
    fn steer_all(
        &mut self,
        services: &BTreeMap<String, Service>,
        steering: &[Json],
        hosts: &BTreeMap<String, String>,
    ) -> BTreeSet<String> {
        let mut steered = BTreeSet::new();
        for entry in steering {
            let name = entry.member("deliveryService");
            let service = services.get(name).filter(|own| own.kind == Kind::Steering);
            let service = service.filter(|own| own.is_served() && own.closed.is_empty());
            let outcome = service
                .and_then(|service| self.redirects.steer(&self.zone, (entry, service), hosts));
            if let Some(outcome) = outcome {
                self.ledger.enter_line(&entry.place, &format!("steering {name}"), outcome);
                steered.insert(name.to_owned());
            }
        }
        steered
    }

    fn enter(&mut self, service: &Service, statement: &str, outcome: Outcome) {
        if let Some(place) = &service.place {
            self.ledger.enter_line(place, statement, outcome);
        }
    }

    /// Everything of a site that its own fields decide.
    fn settle(&self, service: &mut Service, coverage: &Coverage) {
        service.settle();
        if service.limit > 0 {
            match self.limits(service, coverage) {
                Ok(rules) => service.site.table.set("access", Value::List(rules)),
                Err(reason) => service.closed.push(reason.to_owned()),
            }
        }
        if service.kind == Kind::Cached
            && let Some(shield) = self.groups.shield()
        {
            service.site.table.set("shield", shield);
        }
        // Edges refuse these methods to all but operators; a purge has a token.
        let mut refused =
            Table::from_iter([("method", Value::from(METHODS.map(str::to_owned).to_vec()))]);
        vocabulary::respond(&mut refused, 403, None);
        let comment = "edges of Traffic Control refuse these methods".to_owned();
        service.site.routes.insert(0, Route { comment, table: refused });
    }

    /// The rules of a limit by coverage zones and countries.
    fn limits(&self, service: &Service, coverage: &Coverage) -> Result<Vec<Value>, &'static str> {
        let networks: Vec<_> = coverage.networks.values().flatten().collect();
        if service.site.table.has_any(&["access"]) {
            return Err("a geographic limit and rules by address: write them as one list");
        }
        if networks.len() > MOST_NETWORKS {
            return Err(
                "the coverage zones of its geographic limit are too many for a list of addresses",
            );
        }
        let countries = if service.limit == 1 { &[][..] } else { &service.countries };
        if !countries.is_empty() && self.countries.is_none() {
            return Err("its geographic limit needs a database of countries: name an .mmdb file");
        }
        let is_code =
            |code: &String| code.len() == 2 && code.bytes().all(|c| c.is_ascii_alphabetic());
        if !countries.iter().all(is_code) {
            return Err("its geographic limit has a country that is not two letters");
        }
        if networks.is_empty() && countries.is_empty() {
            return Err("its geographic limit needs the coverage zone file");
        }
        let networks = networks.into_iter().map(|network| format!("allow {network}"));
        let countries = countries.iter().map(|code| format!("allow country {code}"));
        let rules = networks.chain(countries).chain(["deny all".to_owned()]);
        Ok(rules.map(Value::from).collect())
    }

    fn site(
        &self,
        service: &mut Service,
        steering: &[Json],
        hosts: &BTreeMap<String, String>,
    ) -> Outcome {
        if service.is_inactive {
            return left("it is not active: there is no site for it");
        }
        if service.kind == Kind::Other {
            return left("no site has its type");
        }
        if service.hosts.is_empty() {
            return left("no host of it is known: there is no site for it");
        }
        if service.kind == Kind::Steering {
            let own = steering.iter().find(|own| own.member("deliveryService") == service.name);
            let routes = own.map_or_else(Vec::new, |own| targets(own, hosts));
            service.site.routes.extend(routes);
            vocabulary::respond(&mut service.site.table, 403, None);
        } else if !service.site.table.has_any(&["origin"]) {
            service
                .closed
                .push("its origin is not in these files: add `deliveryservices`".to_owned());
            vocabulary::respond(&mut service.site.table, 403, None);
        }
        let comment = format!("delivery service {}", service.name);
        let mut table = Table::from_iter([("hosts", service.hosts.clone().into())]);
        table.lay_over(std::mem::take(&mut service.site.table));
        let outcome = match service.closed.is_empty() {
            true => TAKEN,
            false => {
                let reasons = service.closed.join("; ");
                let at =
                    service.place.clone().unwrap_or_else(|| Place { file: "".into(), line: 0 });
                gate::pass_line(Concern::Access, &at, &service.name, left(reasons), &mut table)
            }
        };
        service.site.comment = comment;
        service.site.table = table;
        outcome
    }
}

const METHODS: [&str; 2] = ["DELETE", "PUSH"];

impl Service {
    pub(super) fn is_served(&self) -> bool {
        !self.is_inactive && self.kind != Kind::Other && !self.hosts.is_empty()
    }
}

/// A host may be in one site only. What two services have together is refused to everybody: the rules of the one are
/// not those of the other.
fn close_shared_hosts(services: &mut BTreeMap<String, Service>) {
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    let mut shared: Vec<(String, String, String)> = Vec::new();
    for service in services.values_mut().filter(|service| service.is_served()) {
        let name = service.name.clone();
        service.hosts.retain(|host| match owners.get(host) {
            None => {
                owners.insert(host.clone(), name.clone());
                true
            }
            Some(first) => {
                shared.push((first.clone(), name.clone(), host.clone()));
                false
            }
        });
    }
    for (first, other, host) in shared {
        for (name, with) in [(&first, &other), (&other, &first)] {
            if let Some(service) = services.get_mut(name) {
                service.closed.push(format!("{host} is a host of {with} as well"));
            }
        }
    }
}

/// Routes to the targets of a steering service: those with filters first, then the first or heaviest of all.
fn targets(entry: &Json, hosts: &BTreeMap<String, String>) -> Vec<Route> {
    let filters = entry.get("filters").map_or(&[][..], Json::items).iter();
    let filtered = filters.filter_map(|filter| {
        let pattern = filter.member("pattern");
        regex::Regex::new(pattern).ok()?;
        let table = Table::from_iter([("path_regex", format!("^(?:{pattern})$").into())]);
        to_target(table, filter, hosts)
    });
    let all = in_order(entry);
    let first = all.into_iter().find_map(|target| to_target(Table::default(), target, hosts));
    filtered.chain(first).collect()
}

fn to_target(mut table: Table, target: &Json, hosts: &BTreeMap<String, String>) -> Option<Route> {
    let name = target.member("deliveryService");
    let host = hosts.get(name)?;
    vocabulary::redirect(&mut table, 302, format!("{{scheme}}://{host}{{uri}}"));
    Some(Route { comment: format!("steering to {name}"), table })
}

fn steered(entry: &Json, hosts: &BTreeMap<String, String>) -> Outcome {
    let all = in_order(entry);
    let weighs = |own: &&&Json| own.number("weight").is_some_and(|weight| weight > 0.0);
    let filters = entry.get("filters").map_or(0, |filters| filters.items().len());
    if all.is_empty() || targets(entry, hosts).len() < filters + 1 {
        return left("a target has no site, or an expression is of another kind");
    }
    if entry.member("clientSteering") == "true" {
        return left("clients are sent to one target, and get no list of them");
    }
    match all.iter().filter(weighs).count() {
        0 | 1 => differs("the first target gets all clients"),
        _ => left("weights are not there: the heaviest target gets all clients"),
    }
}
