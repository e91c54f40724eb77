//! The rules of Ingresses.

use std::collections::BTreeSet;

use toml::Table;

use crate::{
    problem::Problems,
    resources::{
        Cluster, Owner,
        ingress::{Backend, Ingress, Path as IngressPath},
    },
    rule::{Action, Condition, Endpoints, Path, Rule},
};

/// The status of a rule that cannot be carried out.
pub(crate) const CLOSED: u16 = 503;

/// The Ingresses of this class.
pub(crate) fn of_class<'a>(
    cluster: &'a Cluster,
    class: &'a str,
) -> impl Iterator<Item = &'a Ingress> {
    let is_of_class = |one: &&Ingress| one.spec.ingress_class_name.as_deref() == Some(class);
    cluster.ingresses.values().filter(is_of_class)
}

/// The rules of an Ingress.
pub(crate) fn rules(ingress: &Ingress, cluster: &Cluster, problems: &mut Problems) -> Vec<Rule> {
    let owner = Owner::new("Ingress", &ingress.metadata);
    let mut all = Vec::new();
    let mut hosts = BTreeSet::from(["*".to_owned()]);
    for rule in &ingress.spec.rules {
        let host = rule.host.as_deref().filter(|host| !host.is_empty()).unwrap_or("*");
        let host = host.to_ascii_lowercase();
        hosts.insert(host.clone());
        for path in rule.http.iter().flat_map(|http| &http.paths) {
            let condition = Condition { path: condition(path), ..Condition::default() };
            let action = action(&owner, &path.backend, cluster, problems);
            all.push(of_host(&owner, host.clone(), condition, action));
        }
    }
    if let Some(backend) = &ingress.spec.default_backend {
        let action = action(&owner, backend, cluster, problems);
        let last = Condition { is_last: true, ..Condition::default() };
        all.extend(
            hosts.into_iter().map(|host| of_host(&owner, host, last.clone(), action.clone())),
        );
    }
    all
}

fn of_host(owner: &Owner, host: String, condition: Condition, action: Action) -> Rule {
    Rule { owner: owner.clone(), host, one_label: true, scheme: None, condition, action }
}

fn condition(path: &IngressPath) -> Path {
    let text = path.path.clone().filter(|text| !text.is_empty()).unwrap_or_else(|| "/".to_owned());
    match path.path_type.as_str() {
        "Exact" => Path::Exact(text),
        _ => Path::Prefix(text),
    }
}

fn action(owner: &Owner, backend: &Backend, cluster: &Cluster, problems: &mut Problems) -> Action {
    match endpoints(owner, backend, cluster) {
        Ok(endpoints) => Action::Does(Table::new(), Some(endpoints)),
        Err(reason) => {
            problems.add(owner, reason);
            Action::Closed(CLOSED)
        }
    }
}

fn endpoints(owner: &Owner, backend: &Backend, cluster: &Cluster) -> Result<Endpoints, String> {
    let named = backend.service.as_ref().ok_or("a backend is no service")?;
    let key = (owner.namespace.clone(), named.name.clone());
    let absent = || format!("there is no service {}/{}", owner.namespace, named.name);
    let service = cluster.services.get(&key).ok_or_else(absent)?;
    let port = service.port(&named.port)?.to_owned();
    Ok(Endpoints { namespace: owner.namespace.clone(), service: named.name.clone(), port })
}

/// The Secrets with certificates that an Ingress names, by namespace and name.
pub(crate) fn secrets(ingress: &Ingress) -> impl Iterator<Item = (String, String)> {
    let names = ingress.spec.tls.iter().filter_map(|tls| tls.secret_name.clone());
    names.map(|name| (ingress.metadata.namespace.clone(), name))
}
