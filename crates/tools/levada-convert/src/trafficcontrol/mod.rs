//! Apache Traffic Control: a snapshot of a CDN, answers of Traffic Ops, and the files of Traffic Router, as the
//! directory of a fleet.
//!
//! ```text
//! json         a file, with the line of each value
//! groups       cache groups and servers: regions and nodes
//! networks     prefixes of addresses
//! zones        coverage zones, deep coverage zones, federations
//! service      a row for each field of a delivery service
//! rewrite      texts of plugins within a delivery service
//! parameters   a row for each parameter of a profile, and for the configuration of the CDN
//! site         a delivery service as a site
//! redirects    HTTP routing and steering, for dns.toml
//! dns          dns.toml and the zone file
//! ```
//!
//! A delivery service with a rule about its clients that has no counterpart is closed: its site refuses everybody.

mod dns;
mod groups;
mod json;
mod networks;
mod parameters;
mod redirects;
mod rewrite;
mod service;
mod site;
mod zones;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    conversion::{Unreadable, report},
    files::InputFile,
    ledger::{Fate, Ledger, TAKEN, differs, left, needless},
    plan::{Plan, Site},
    rows::{self, Described, find},
    table::Table,
    trafficserver,
};
use dns::Named;
use groups::Groups;
use json::Json;
use redirects::Redirects;
use service::{Service, Take};
use zones::Coverage;

/// The directory of a fleet, as it is converted.
#[derive(Clone, Debug)]
pub struct FleetDirectory {
    /// The texts of its files, by their paths.
    pub files: BTreeMap<String, String>,
    /// The fate of each statement.
    pub ledger: Ledger,
}

/// Converts these files; the contents of each say which one it is. A file in MaxMind's format is named by its path, with
/// an empty text.
///
/// # Errors
/// When a file is no JSON, or none of Traffic Control, or when no snapshot with servers is among them.
pub fn convert(files: &[InputFile]) -> Result<FleetDirectory, Unreadable> {
    let mut converter = Converter::default();
    let mut inputs = Inputs::default();
    for file in files {
        match file.name.ends_with(".mmdb") {
            true => converter.countries = Some(file.name.clone()),
            false => inputs.add(file, Json::read(file)?)?,
        }
    }
    let name = files.first().map_or("", |file| file.name.as_str()).into();
    let no_snapshot = || Unreadable::at(&name, 1, "no file is a snapshot of a CDN (CRConfig.json)");
    let snapshot = inputs.snapshot.take().ok_or_else(no_snapshot)?;
    converter.groups = Groups::read(&snapshot, &inputs.groups, &mut converter.ledger);
    converter.redirects = Redirects::read(&snapshot, &mut converter.ledger);
    if converter.groups.nodes.is_empty() {
        let place = &snapshot.place;
        return Err(Unreadable::at(
            &place.file,
            place.line,
            "the snapshot has no edges and no mids",
        ));
    }
    Ok(converter.fleet(&snapshot, &inputs))
}

/// The fates of fields and parameters, for the documentation.
pub fn described() -> Vec<Described> {
    [
        rows::described("delivery service", service::FIELDS),
        rows::described("snapshot", service::SNAPSHOT_FIELDS),
        rows::described("snapshot, `config`", parameters::CONFIG),
        rows::described("parameter", parameters::PARAMETERS),
    ]
    .concat()
}

/// The files, by what they are.
#[derive(Default)]
struct Inputs {
    snapshot: Option<Json>,
    coverage: Option<Json>,
    deep: Option<Json>,
    services: Vec<Json>,
    federations: Vec<Json>,
    steering: Vec<Json>,
    groups: Vec<Json>,
    /// With the name of their profile, if the file states it.
    parameters: Vec<(String, Vec<Json>)>,
}

impl Inputs {
    fn add(&mut self, file: &InputFile, json: Json) -> Result<(), Unreadable> {
        let content = json.get("response").unwrap_or(&json);
        let items = || content.items().to_vec();
        let has = |key: &str| content.items().first().is_some_and(|item| item.get(key).is_some());
        if json.get("coverageZones").is_some() {
            self.coverage = Some(json);
        } else if json.get("deepCoverageZones").is_some() {
            self.deep = Some(json);
        } else if content.get("contentServers").is_some() || content.get("edgeLocations").is_some()
        {
            self.snapshot = Some(content.clone());
        } else if let Some(parameters) = json.get("parameters") {
            let profile = json.get("profile").map_or("", |profile| profile.member("name"));
            self.parameters.push((profile.to_owned(), parameters.items().to_vec()));
        } else if has("configFile") {
            self.parameters.push((String::new(), items()));
        } else if has("mappings") {
            self.federations.extend(items());
        } else if has("targets") {
            self.steering.extend(items());
        } else if has("xmlId") {
            self.services.extend(items());
        } else if has("parentCachegroupName") {
            self.groups.extend(items());
        } else if json.get("response").is_none_or(|content| !content.is_empty()) {
            let message = "is no file of Traffic Control that is known here: a snapshot, coverage zones, deep \
                coverage zones, or an answer of Traffic Ops for deliveryservices, cachegroups, federations/all, \
                steering, parameters or profiles";
            return Err(Unreadable::at(&file.name.as_str().into(), 1, message));
        }
        Ok(())
    }
}

#[derive(Default)]
struct Converter {
    ledger: Ledger,
    groups: Groups,
    redirects: Redirects,
    services: BTreeMap<String, Service>,
    /// The words of the profiles of servers to Traffic Server.
    records: trafficserver::Converter,
    /// The domain of the CDN.
    zone: String,
    ttl: Option<u64>,
    soa: Option<Json>,
    /// The path of a database of countries.
    countries: Option<String>,
    /// Fields that were said to be needless: each is said once.
    needless: BTreeSet<String>,
}

impl Converter {
    fn fleet(mut self, snapshot: &Json, inputs: &Inputs) -> FleetDirectory {
        let mut files = BTreeMap::new();
        let mut named = Named::default();
        let cdn = snapshot.get("stats").map_or("", |stats| stats.member("CDN_name"));
        let members = |name: &str| snapshot.get(name).map_or(&[][..], Json::members);
        snapshot.get("config").into_iter().for_each(|config| self.config(config));
        self.rest_of(snapshot);
        for fields in &inputs.services {
            let (name, of) = (fields.member("xmlId"), fields.member("cdnName"));
            if !of.is_empty() && !cdn.is_empty() && of != cdn {
                let outcome = needless(format!("it belongs to another CDN: {of}"));
                self.ledger.enter_line(&fields.place, &format!("delivery service {name}"), outcome);
                continue;
            }
            self.fields(name, fields, service::FIELDS);
        }
        for (name, fields) in members("deliveryServices") {
            self.fields(name, fields, service::SNAPSHOT_FIELDS);
        }
        for (profile, parameters) in &inputs.parameters {
            self.parameters(profile, parameters);
        }
        let ledger = &mut self.ledger;
        let coverage =
            inputs.coverage.as_ref().map(|file| Coverage::read(file, &self.groups, ledger));
        if let Some(coverage) = &coverage {
            files.insert("files/coverage.json".to_owned(), coverage.file());
            named.coverage = true;
        }
        if let Some(file) = &inputs.deep {
            match self.services.values().any(|service| service.is_deep) {
                true => {
                    let text = zones::deep(file, &self.groups, ledger);
                    files.insert("files/deep-coverage.json".to_owned(), text);
                    named.deep = true;
                }
                false => {
                    let outcome = left("no delivery service has deepCachingType ALWAYS");
                    ledger.enter_line(&file.place, "deepCoverageZones", outcome);
                }
            }
        }
        let coverage = coverage.unwrap_or_default();
        if let Some(text) = zones::federations(&inputs.federations, &coverage, ledger) {
            files.insert("files/federations.json".to_owned(), text);
            named.federations = true;
        }
        self.sites(&coverage, &inputs.steering, &mut files);
        self.node(&mut files);
        let cdn = name_of(if cdn.is_empty() { "cdn" } else { cdn }, []);
        files.insert("fleet.toml".to_owned(), self.groups.fleet(&cdn));
        files.insert("nodes.txt".to_owned(), std::mem::take(&mut self.groups.list));
        if !self.zone.is_empty() {
            files.insert("dns.toml".to_owned(), self.dns(&named));
            files.insert(format!("files/{}.zone", self.zone), self.zone_file());
        }
        self.ledger.close();
        files.insert("report.txt".to_owned(), report(&self.ledger));
        FleetDirectory { files, ledger: self.ledger }
    }

    /// The members of a snapshot that are no servers, groups or services.
    fn rest_of(&mut self, snapshot: &Json) {
        const ROUTERS: &str = "nodes with `[dns]` stand for Traffic Routers: docs/operate/dns.md";
        for (name, value) in snapshot.members().iter().filter(|(_, value)| !value.is_empty()) {
            let outcome = match name.as_str() {
                "config" | "contentServers" | "edgeLocations" | "deliveryServices" => continue,
                "stats" | "contentRouters" => TAKEN,
                "trafficRouterLocations" => left(ROUTERS),
                "monitors" => needless("nodes watch each other"),
                "topologies" => left("every site is on all nodes; its shield is one region"),
                _ => left("it is unknown"),
            };
            self.ledger.enter_line(&value.place, name, outcome);
        }
        let mids: Vec<_> = self.groups.mids().map(|mid| mid.region.as_str()).collect();
        if let (true, Some(shield)) = (mids.len() > 1, self.groups.shield()) {
            let outcome =
                differs(format!("{shield} is the shield of all sites; the others serve none"));
            self.ledger.enter_line(&snapshot.place, &format!("mids {}", mids.join(" ")), outcome);
        }
    }

    /// Reads the fields of a delivery service by these rows. A field without a value says nothing.
    fn fields(&mut self, name: &str, fields: &Json, rows: &[rows::Row<Take>]) {
        let service = self.services.entry(name.to_owned()).or_default();
        name.clone_into(&mut service.name);
        service.is_redirected = !self.redirects.routers.is_empty();
        service.place.get_or_insert_with(|| fields.place.clone());
        for (field, value) in fields.members().iter().filter(|(_, value)| !value.is_empty()) {
            let statement = format!("{name}: {field} {}", value.shown());
            let outcome = match find(rows, field, value.text()) {
                None => left("the field is unknown"),
                Some(row) => match row.keys() {
                    Some(take) => {
                        let taken = take(service, value);
                        service::outcome_of(service, taken)
                    }
                    None => row.outcome(|_| TAKEN),
                },
            };
            let is_needless = matches!(outcome, Ok(Fate::Needless(_)));
            if is_needless && !self.needless.insert(field.clone()) {
                continue;
            }
            self.ledger.enter_line(&value.place, &statement, outcome);
        }
    }

    /// `node.toml`, and what mids have on top of it: clients could not reach them before.
    fn node(&mut self, files: &mut BTreeMap<String, String>) {
        let mut records = std::mem::take(&mut self.records);
        records.settle();
        let trafficserver::Converter { mut plan, defaults, .. } = records;
        plan.defaults = defaults;
        if let Some(path) = &self.countries {
            plan.top.set("country_database", path.as_str());
        }
        plan.listen = vec![listener("0.0.0.0:80")];
        let text = plan.to_string();
        files.insert("node.toml".to_owned(), format!("{}\n{HTTPS}", text.trim_end()));
        let inner = Plan { listen: vec![listener("127.0.0.1:80")], ..Plan::default() };
        for group in self.groups.mids().filter(|group| group.is_mid()) {
            let text = format!("# Mids are for nodes only.\n{}", inner.to_string().trim_start());
            files.insert(format!("regions/{}.toml", group.region), text);
        }
    }
}

const HTTPS: &str = "
# For https: the keys of Traffic Vault as files, or certificates that nodes order themselves
# (docs/operate/certificates.md).
# [[listen]]
# address = \"0.0.0.0:443\"
# tls = [{ certificate = \"/etc/levada/www.pem\", key = \"/etc/levada/www.key\" }]
";

fn listener(address: &str) -> Table {
    Table::from_iter([("address", address.into())])
}

/// The text of a file with one site.
fn site_file(site: Site) -> String {
    let mut plan = Plan { sites: vec![site], ..Plan::default() };
    plan.sites.iter_mut().for_each(Site::settle);
    plan.to_string().trim_start().to_owned()
}

/// A name of a node, a region or a file: letters, digits, `-`, `_` and `.`, and none of the others.
fn name_of<'a>(text: &str, others: impl IntoIterator<Item = &'a str> + Clone) -> String {
    const MOST: usize = 60;
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name = text.chars().map(|c| if is_good(c) { c } else { '-' }).take(MOST);
    let name: String = name.collect();
    let name = if name.trim_matches('.').is_empty() { "unnamed".to_owned() } else { name };
    let is_free = |name: &String| !others.clone().into_iter().any(|other| other == name);
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or(name)
}
