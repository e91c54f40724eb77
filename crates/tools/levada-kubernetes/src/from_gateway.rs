//! The rules of HTTPRoutes, at the listeners of Gateways.

use crate::{
    action,
    problem::Problems,
    resources::{
        Cluster, Owner,
        gateway::{Gateway, GatewayClass, HttpRoute, Listener, Matched, Reference, RouteMatch},
    },
    rule::{Action, Condition, Path, Rule, Text},
    status::CONTROLLER,
};

/// The group of these resources.
pub(crate) const GROUP: &str = "gateway.networking.k8s.io";

/// The class, if it names this program.
pub(crate) fn class<'a>(cluster: &'a Cluster, class: &str) -> Option<&'a GatewayClass> {
    let known = cluster.classes.get(&(String::new(), class.to_owned()));
    known.filter(|known| known.spec.controller_name == CONTROLLER)
}

/// The Gateways of this class.
pub(crate) fn of_class<'a>(
    cluster: &'a Cluster,
    name: &'a str,
) -> impl Iterator<Item = &'a Gateway> {
    let is_own = class(cluster, name).is_some();
    cluster.gateways.values().filter(move |one| is_own && one.spec.gateway_class_name == name)
}

/// Why a listener cannot be opened, if so.
pub(crate) fn unusable(listener: &Listener) -> Option<&'static str> {
    let tls = listener.tls.clone().unwrap_or_default();
    match (listener.protocol.as_str(), listener.port) {
        ("HTTP", 80) => None,
        ("HTTPS", 443) if tls.mode.as_deref().unwrap_or("Terminate") != "Terminate" => {
            Some("its TLS is not terminated")
        }
        ("HTTPS", 443) => None,
        ("HTTP" | "HTTPS", _) => Some("its port is not 80 for HTTP, or 443 for HTTPS"),
        _ => Some("its protocol is neither HTTP nor HTTPS"),
    }
}

/// The Secrets with certificates that a listener names, or why one cannot be used.
pub(crate) fn secrets(
    gateway: &Gateway,
    listener: &Listener,
) -> impl Iterator<Item = Result<(String, String), String>> {
    let own = &gateway.metadata.namespace;
    let of = |reference: &Reference| match reference.is("", "Secret")
        && reference.namespace(own) == own
    {
        true => Ok((own.clone(), reference.name.clone())),
        false => Err(format!("{} is no Secret of this namespace", reference.name)),
    };
    let all: Vec<_> = listener.tls.iter().flat_map(|tls| &tls.certificate_refs).map(of).collect();
    all.into_iter()
}

/// The listeners of this class that a route is attached to by a reference: those that take it.
pub(crate) fn listeners<'a>(
    route: &HttpRoute,
    parent: &Reference,
    (cluster, class): (&'a Cluster, &'a str),
) -> Vec<&'a Listener> {
    let own = &route.metadata.namespace;
    let key = (parent.namespace(own).to_owned(), parent.name.clone());
    let mut gateways = of_class(cluster, class).filter(|_| parent.is(GROUP, "Gateway"));
    let is_named =
        |one: &&Gateway| (&one.metadata.namespace, &one.metadata.name) == (&key.0, &key.1);
    let Some(gateway) = gateways.find(is_named) else { return Vec::new() };
    let takes = |listener: &&Listener| {
        let is_named = parent.section_name.as_ref().is_none_or(|name| *name == listener.name)
            && parent.port.is_none_or(|port| port == listener.port);
        is_named
            && unusable(listener).is_none()
            && allows(listener, own == &gateway.metadata.namespace)
    };
    gateway.spec.listeners.iter().filter(takes).collect()
}

/// Whether a listener takes routes of this kind, of its own namespace or of others.
fn allows(listener: &Listener, is_own: bool) -> bool {
    let allowed = &listener.allowed_routes;
    let is_kind = |kind: &Reference| kind.is(GROUP, "HTTPRoute");
    let is_there = match allowed.namespaces.from.as_deref() {
        None | Some("Same") => is_own,
        Some(from) => from == "All",
    };
    is_there && (allowed.kinds.is_empty() || allowed.kinds.iter().any(is_kind))
}

/// The rules of a route at all listeners of the class.
pub(crate) fn rules(
    route: &HttpRoute,
    (cluster, class): (&Cluster, &str),
    problems: &mut Problems,
) -> Vec<Rule> {
    let owner = Owner::new("HTTPRoute", &route.metadata);
    let places = places(route, (cluster, class));
    let mut all = Vec::new();
    for rule in route.spec.rules.iter().filter(|_| !places.is_empty()) {
        let everything = [RouteMatch::default()];
        let matches = if rule.matches.is_empty() { &everything[..] } else { &rule.matches };
        for one in matches {
            let condition = condition(one);
            let action = match &condition {
                Err(reason) => {
                    problems.add(&owner, reason);
                    Action::ClosesHost(action::CLOSED)
                }
                Ok(condition) => action::of_rule(&owner, rule, condition, cluster, problems),
            };
            let condition = condition.unwrap_or_default();
            all.extend(places.iter().map(|(host, scheme)| Rule {
                owner: owner.clone(),
                host: host.clone(),
                one_label: false,
                scheme: *scheme,
                condition: condition.clone(),
                action: action.clone(),
            }));
        }
    }
    all
}

/// The hosts of a route, each with the scheme that it is served by; `None`: both.
fn places(route: &HttpRoute, within: (&Cluster, &str)) -> Vec<(String, Option<&'static str>)> {
    let mut places: Vec<(String, Option<&'static str>)> = Vec::new();
    for parent in &route.spec.parent_refs {
        for listener in listeners(route, parent, within) {
            let scheme = if listener.protocol == "HTTPS" { "https" } else { "http" };
            for host in hosts(listener.hostname.as_deref(), &route.spec.hostnames) {
                match places.iter_mut().find(|(known, _)| *known == host) {
                    Some((_, known)) if *known != Some(scheme) => *known = None,
                    Some(_) => {}
                    None => places.push((host, Some(scheme))),
                }
            }
        }
    }
    places
}

/// The hosts that a listener and a route have in common.
fn hosts(listener: Option<&str>, route: &[String]) -> Vec<String> {
    let listener = listener.filter(|host| !host.is_empty()).unwrap_or("*").to_ascii_lowercase();
    if route.is_empty() {
        return vec![listener];
    }
    route.iter().filter_map(|host| common(&listener, &host.to_ascii_lowercase())).collect()
}

/// The narrower one of two hosts, if it is within the other.
fn common(a: &str, b: &str) -> Option<String> {
    let within = |narrow: &str, wide: &str| {
        wide == "*"
            || narrow == wide
            || wide.strip_prefix('*').is_some_and(|end| narrow.ends_with(end))
    };
    match (within(a, b), within(b, a)) {
        (true, _) => Some(a.to_owned()),
        (_, true) => Some(b.to_owned()),
        _ => None,
    }
}

fn condition(one: &RouteMatch) -> Result<Condition, String> {
    if let Some(name) = one.unknown.keys().next() {
        return Err(format!("the condition {name} is not known"));
    }
    let path = one.path.as_ref();
    let text = path.and_then(|path| path.value.clone()).unwrap_or_else(|| "/".to_owned());
    let path = match path.and_then(|path| path.r#type.as_deref()).unwrap_or("PathPrefix") {
        "Exact" => Path::Exact(text),
        "PathPrefix" => Path::Prefix(text),
        "RegularExpression" => Path::Regex(text),
        other => return Err(format!("paths cannot be compared by {other}")),
    };
    if let Some(name) = one.headers.iter().map(|header| &header.name).find(|name| is_hidden(name)) {
        return Err(format!("the header field {name} cannot be compared"));
    }
    let texts = |all: &[Matched]| all.iter().map(text_of).collect::<Result<_, _>>();
    Ok(Condition {
        path,
        method: one.method.clone(),
        headers: texts(&one.headers)?,
        query: texts(&one.query_params)?,
        is_last: false,
    })
}

fn text_of(matched: &Matched) -> Result<(String, Text), String> {
    let value = matched.value.clone().unwrap_or_default();
    let text = match matched.r#type.as_deref().unwrap_or("Exact") {
        "Exact" => Text::Exact(value),
        "RegularExpression" => Text::Regex(value),
        other => return Err(format!("{} cannot be compared by {other}", matched.name)),
    };
    Ok((matched.name.clone(), text))
}

/// Whether expressions do not have a field: docs/operate/expressions.md.
fn is_hidden(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let fields = [
        "host",
        "via",
        "forwarded",
        "x-real-ip",
        "cdn-loop",
        "content-length",
        "connection",
        "upgrade",
        "transfer-encoding",
        "te",
        "trailer",
        "keep-alive",
        "proxy-connection",
        "http2-settings",
    ];
    fields.contains(&&*name) || name.starts_with("x-forwarded-") || name.starts_with("levada-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_listener_and_route_are_those_in_common() {
        for (listener, route, expected) in [
            (None, &[][..], &["*"][..]),
            (None, &["a.test", "*.b.test"], &["a.test", "*.b.test"]),
            (Some("*.b.test"), &["x.b.test", "a.test", "B.test"], &["x.b.test"]),
            (Some("x.b.test"), &["*.b.test"], &["x.b.test"]),
            (Some("*.b.test"), &["*.y.b.test"], &["*.y.b.test"]),
            (Some("a.test"), &[], &["a.test"]),
        ] {
            let route: Vec<_> = route.iter().map(|host| (*host).to_owned()).collect();
            assert_eq!(hosts(listener, &route), expected, "{listener:?} {route:?}");
        }
    }
}
