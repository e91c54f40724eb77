//! The configuration of a node: the base file, and the sites of the resources.

use std::{collections::BTreeMap, path::Path};

use levada_config::{Settings, Severity, Source, Surroundings};
use toml::{Table, Value};

use crate::{
    action,
    certificates::{self, CertificateFile},
    from_gateway, from_ingress,
    problem::Problems,
    resources::Cluster,
    rule::{Action, Rule, responds, sources},
};

/// How the resources are read.
pub(crate) struct Options<'a> {
    /// The class of the resources that count.
    pub(crate) class: &'a str,
    /// The address of the listener with the certificates.
    pub(crate) https: std::net::SocketAddr,
    /// Whether that listener serves HTTP/3.
    pub(crate) http3: bool,
    /// The keys of a source that say how the API server is reached.
    pub(crate) access: Table,
    /// The directory of the files.
    pub(crate) output: &'a Path,
    /// The reason why a node could not start by settings, if it could not.
    pub(crate) start_error: &'a dyn Fn(&Settings) -> Option<String>,
}

/// The outcome of the resources.
pub(crate) struct Derived {
    pub(crate) document: Table,
    pub(crate) certificates: Vec<CertificateFile>,
    pub(crate) problems: Problems,
}

/// Makes the configuration of a node from the base file and the resources.
pub(crate) fn derive(base: &Table, cluster: &Cluster, options: &Options<'_>) -> Derived {
    let mut problems = Problems::default();
    let mut document = base.clone();
    let own = hosts_of(base);
    let mut sites: Vec<(String, Vec<Rule>)> = Vec::new();
    for (host, mut rules) in by_host(rules(cluster, options.class, &mut problems)) {
        if own.contains(&host) {
            for rule in &rules {
                let text = format!("the configuration has a site of its own for {host}");
                problems.add(&rule.owner, text);
            }
            continue;
        }
        rules.sort_by_cached_key(Rule::rank);
        sites.push((host, rules));
    }
    close_the_unusable(&mut sites, base, &mut problems);
    for (host, rules) in &sites {
        append(&mut document, "site", site(host, rules));
    }
    for source in sources(sites.iter().flat_map(|(_, rules)| rules)) {
        append(&mut document, "discovery", source.source(&options.access));
    }
    if !document.contains_key("site") {
        append(&mut document, "site", site("*", &[]));
    }
    let certificates = certificates::of(cluster, options, &mut problems);
    listen(&mut document, &certificates, options);
    Derived { document, certificates, problems }
}

/// Whether a node could use a configuration; otherwise the reasons.
pub(crate) fn check(document: &Table, options: &Options<'_>) -> Result<(), String> {
    let text = document.to_string();
    let source = Source { name: "levada.toml".to_owned(), text };
    let checked = levada_config::check(&source, &surroundings(options.output, options.start_error));
    checked.settings.map(drop).ok_or_else(|| checked.report.to_string())
}

fn surroundings<'a>(
    directory: &'a Path,
    start_error: &'a dyn Fn(&Settings) -> Option<String>,
) -> Surroundings<'a> {
    Surroundings { directory, variable: &|name| std::env::var(name).ok(), start_error }
}

fn rules(cluster: &Cluster, class: &str, problems: &mut Problems) -> Vec<Rule> {
    let mut all = Vec::new();
    for ingress in from_ingress::of_class(cluster, class) {
        all.extend(from_ingress::rules(ingress, cluster, problems));
    }
    for route in cluster.routes.values() {
        all.extend(from_gateway::rules(route, (cluster, class), problems));
    }
    all
}

fn by_host(rules: Vec<Rule>) -> BTreeMap<String, Vec<Rule>> {
    let mut hosts: BTreeMap<String, Vec<Rule>> = BTreeMap::new();
    for rule in rules {
        hosts.entry(rule.host.clone()).or_default().push(rule);
    }
    hosts
}

/// The hosts of the sites in the base file.
fn hosts_of(base: &Table) -> Vec<String> {
    let sites = base.get("site").and_then(Value::as_array).into_iter().flatten();
    let hosts = sites.filter_map(|site| site.get("hosts"));
    let texts = hosts.flat_map(|hosts| match hosts {
        Value::Array(several) => several.iter().collect(),
        one => vec![one],
    });
    texts.filter_map(|host| Some(host.as_str()?.to_ascii_lowercase())).collect()
}

/// A site with these rules. What none of them takes is not found.
fn site(host: &str, rules: &[Rule]) -> Table {
    let closes = |rule: &&Rule| matches!(rule.action, Action::ClosesHost(_));
    let routes = match rules.iter().find(closes) {
        // Its condition is left out: it takes everything.
        Some(Rule { action: Action::ClosesHost(status), .. }) => {
            vec![responds(*status, "a rule of this host cannot be carried out")]
        }
        _ => {
            let last = [responds(404, "no rule takes this request")];
            let numbered = (1..).zip(rules);
            numbered.map(|(number, rule)| rule.route(number)).chain(last).collect()
        }
    };
    Table::from_iter([
        ("hosts".to_owned(), host.into()),
        ("route".to_owned(), routes.into_iter().map(Value::from).collect::<Vec<_>>().into()),
    ])
}

/// Closes the rules that a node refuses, so that it takes the others. They are found by halves: a check of all sites is
/// enough where nothing is wrong.
fn close_the_unusable(sites: &mut [(String, Vec<Rule>)], base: &Table, problems: &mut Problems) {
    if sites.is_empty() || refusal(sites, base).is_none() {
        return;
    }
    if let [(host, rules)] = sites {
        return rules.iter_mut().for_each(|rule| close(host, rule, base, problems));
    }
    let (first, second) = sites.split_at_mut(sites.len() / 2);
    close_the_unusable(first, base, problems);
    close_the_unusable(second, base, problems);
}

/// Closes a rule if a node refuses it by itself.
fn close(host: &str, rule: &mut Rule, base: &Table, problems: &mut Problems) {
    let refused = |rule: &Rule| refusal(&[(host.to_owned(), vec![rule.clone()])], base);
    let Some(reason) = refused(rule) else { return };
    problems.add(&rule.owner, format!("a rule for {host} cannot be used: {reason}"));
    let closed = match rule.owner.kind {
        "Ingress" => from_ingress::CLOSED,
        _ => action::CLOSED,
    };
    rule.action = Action::Closed(closed);
    if refused(rule).is_some() {
        rule.action = Action::ClosesHost(closed);
    }
}

/// Why a node could not use these sites.
fn refusal(sites: &[(String, Vec<Rule>)], base: &Table) -> Option<String> {
    let mut document = Table::from_iter([("name".to_owned(), "check".into())]);
    for key in ["defaults", "country_database"] {
        document.extend(base.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    let listener = [("address".to_owned(), "127.0.0.1:0".into())];
    append(&mut document, "listen", Table::from_iter(listener));
    for (host, rules) in sites {
        append(&mut document, "site", site(host, rules));
    }
    for source in sources(sites.iter().flat_map(|(_, rules)| rules)) {
        append(&mut document, "discovery", source.source(&Table::new()));
    }
    let source = Source { name: "check".to_owned(), text: document.to_string() };
    let checked = levada_config::check(&source, &surroundings(Path::new("/"), &|_| None));
    let mut errors = checked.report.problems.into_iter();
    errors.find(|problem| problem.severity == Severity::Error).map(|problem| problem.message)
}

/// Adds the certificates to the listener at the address for them, which the base file may have.
fn listen(document: &mut Table, certificates: &[CertificateFile], options: &Options<'_>) {
    if certificates.is_empty() {
        return;
    }
    let pairs: Vec<Value> =
        certificates.iter().map(|one| one.pair(options.output).into()).collect();
    let address = options.https.to_string();
    let listeners = document.get_mut("listen").and_then(Value::as_array_mut);
    let known = listeners.and_then(|all| {
        let is_there =
            |one: &&mut Value| one.get("address").and_then(Value::as_str) == Some(&address);
        all.iter_mut().find(is_there).and_then(Value::as_table_mut)
    });
    match known {
        Some(listener) => {
            let tls = listener.entry("tls").or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(tls) = tls {
                tls.extend(pairs);
            }
        }
        None => append(
            document,
            "listen",
            Table::from_iter([
                ("address".to_owned(), address.into()),
                ("http3".to_owned(), options.http3.into()),
                ("tls".to_owned(), pairs.into()),
            ]),
        ),
    }
}

/// Appends a table to a list of tables.
fn append(document: &mut Table, list: &str, table: Table) {
    let all = document.entry(list).or_insert_with(|| Value::Array(Vec::new()));
    // The check says so, where the base file has something else there.
    if let Value::Array(all) = all {
        all.push(table.into());
    }
}
