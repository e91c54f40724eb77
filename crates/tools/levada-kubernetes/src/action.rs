//! The effects of a rule of an HTTPRoute, as the keys of a route.

use toml::{Table, Value};

use crate::{
    problem::Problems,
    resources::{
        Cluster, Owner,
        gateway::{Filter, Modifier, PathChange, Redirect, Reference, RouteRule},
        ingress::Port,
    },
    rule::{Action, Condition, Endpoints, Path, plain},
};

/// The status of a rule that cannot be carried out: as the Gateway API says of references that are invalid.
pub(crate) const CLOSED: u16 = 500;

/// The effects of a rule on requests of this condition.
pub(crate) fn of_rule(
    owner: &Owner,
    rule: &RouteRule,
    condition: &Condition,
    cluster: &Cluster,
    problems: &mut Problems,
) -> Action {
    match carried_out(owner, rule, &condition.path, cluster) {
        Ok((keys, endpoints)) => Action::Does(keys, endpoints),
        Err(reason) => {
            problems.add(owner, reason);
            Action::Closed(CLOSED)
        }
    }
}

fn carried_out(
    owner: &Owner,
    rule: &RouteRule,
    path: &Path,
    cluster: &Cluster,
) -> Result<(Table, Option<Endpoints>), String> {
    let mut keys = Table::new();
    for filter in &rule.filters {
        apply(filter, path, &mut keys)?;
    }
    if keys.contains_key("redirect") {
        return Ok((keys, None));
    }
    let endpoints = backend(owner, &rule.backend_refs, cluster)?;
    Ok((keys, Some(endpoints)))
}

/// The one backend that gets requests.
fn backend(
    owner: &Owner,
    references: &[Reference],
    cluster: &Cluster,
) -> Result<Endpoints, String> {
    let mut used = references.iter().filter(|reference| reference.weight != Some(0));
    let reference = used.next().ok_or("a rule has no backend")?;
    if used.next().is_some() {
        return Err("a rule has several backends with a weight".to_owned());
    }
    let name = &reference.name;
    if !reference.is("", "Service") {
        return Err(format!("the backend {name} is no service"));
    }
    if reference.namespace(&owner.namespace) != owner.namespace {
        return Err(format!("the service {name} is in another namespace"));
    }
    if !reference.filters.is_empty() {
        return Err(format!("the backend {name} has filters of its own"));
    }
    let key = (owner.namespace.clone(), name.clone());
    let absent = || format!("there is no service {}/{name}", owner.namespace);
    let service = cluster.services.get(&key).ok_or_else(absent)?;
    let port = service.port(&Port { name: None, number: reference.port })?.to_owned();
    Ok(Endpoints { namespace: owner.namespace.clone(), service: name.clone(), port })
}

fn apply(filter: &Filter, path: &Path, keys: &mut Table) -> Result<(), String> {
    match filter.r#type.as_str() {
        "RequestHeaderModifier" => {
            let changes = filter.request_header_modifier.clone().unwrap_or_default();
            keys.insert("request_headers".into(), fields(&changes).into());
        }
        "ResponseHeaderModifier" => {
            let changes = filter.response_header_modifier.clone().unwrap_or_default();
            keys.insert("response_headers".into(), fields(&changes).into());
        }
        "RequestRedirect" => {
            redirect(&filter.request_redirect.clone().unwrap_or_default(), path, keys)?;
        }
        "URLRewrite" => {
            let rewrite = filter.url_rewrite.clone().unwrap_or_default();
            if let Some(host) = rewrite.hostname {
                keys.insert("origin_host".into(), host.into());
            }
            if let Some(change) = &rewrite.path {
                let to = changed(change, path, keys)?;
                keys.insert("rewrite".into(), to.into());
            }
        }
        other => return Err(format!("the filter {other} cannot be carried out")),
    }
    Ok(())
}

fn fields(changes: &Modifier) -> Table {
    let texts = |fields: &[crate::resources::gateway::Field]| {
        let pairs = fields.iter().map(|field| (field.name.clone(), plain(&field.value).into()));
        Value::Table(pairs.collect())
    };
    let remove = changes.remove.iter().map(|name| Value::from(name.clone())).collect::<Vec<_>>();
    Table::from_iter([
        ("set".to_owned(), texts(&changes.set)),
        ("add".to_owned(), texts(&changes.add)),
        ("remove".to_owned(), remove.into()),
    ])
}

fn redirect(redirect: &Redirect, path: &Path, keys: &mut Table) -> Result<(), String> {
    let scheme = redirect.scheme.as_deref();
    let host = redirect.hostname.as_deref().map_or_else(|| "{host}".to_owned(), plain);
    let port = match (redirect.port, scheme) {
        (None, _) | (Some(80), Some("http")) | (Some(443), Some("https")) => String::new(),
        (Some(port), _) => format!(":{port}"),
    };
    let rest = match &redirect.path {
        None => "{uri}".to_owned(),
        Some(change) => format!("{}{{?query}}", changed(change, path, keys)?),
    };
    let to = format!("{}://{host}{port}{rest}", scheme.unwrap_or("{scheme}"));
    let status = i64::from(redirect.status_code.unwrap_or(302));
    let table = [("to".to_owned(), to.into()), ("status".to_owned(), status.into())];
    keys.insert("redirect".into(), Table::from_iter(table).into());
    Ok(())
}

/// The path after a change, as a text with variables.
fn changed(change: &PathChange, path: &Path, keys: &mut Table) -> Result<String, String> {
    match (change.r#type.as_str(), path) {
        ("ReplaceFullPath", _) => Ok(plain(change.replace_full_path.as_deref().unwrap_or("/"))),
        ("ReplacePrefixMatch", Path::Prefix(prefix)) => {
            let to = change.replace_prefix_match.as_deref().unwrap_or("/").trim_end_matches('/');
            let prefix = regex::escape(prefix.trim_end_matches('/'));
            // Without a path of its own, the new one begins with the slash.
            let (expression, to) = match to {
                "" => (format!("^{prefix}(?:/(?<rest>.*))?$"), "/{rest}".to_owned()),
                to => (format!("^{prefix}(?<rest>/.*)?$"), format!("{}{{rest}}", plain(to))),
            };
            keys.insert("path_regex".into(), expression.into());
            Ok(to)
        }
        ("ReplacePrefixMatch", _) => Err("a prefix is replaced where there is none".to_owned()),
        (other, _) => Err(format!("a path cannot be changed by {other}")),
    }
}
