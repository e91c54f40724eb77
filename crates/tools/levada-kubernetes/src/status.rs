//! The status of the resources: where their sites are, and what of them cannot be carried out.

use std::time::SystemTime;

use levada_discovery::Metadata;
use serde_json::{Value, json};

use crate::{
    from_gateway::{self, GROUP},
    from_ingress,
    problem::Problems,
    resources::{
        Cluster, Owner,
        gateway::{Gateway, HttpRoute, Reference},
    },
};

/// The name by which a GatewayClass and an IngressClass name this program.
pub(crate) const CONTROLLER: &str = "levada.example/sites";

/// A change of a status: the path of the API server, and the patch.
pub(crate) type Change = (String, Value);

/// The changes by which the status of the resources becomes what it should be.
pub(crate) fn changes(
    cluster: &Cluster,
    class: &str,
    addresses: &[Value],
    problems: &Problems,
) -> Vec<Change> {
    let mut all = Vec::new();
    for ingress in from_ingress::of_class(cluster, class).filter(|_| !addresses.is_empty()) {
        let wanted = json!({ "loadBalancer": { "ingress": addresses } });
        let path = path("networking.k8s.io", "ingresses", &ingress.metadata);
        all.extend(change(path, &ingress.status, wanted));
    }
    if let Some(of_class) = from_gateway::class(cluster, class) {
        let conditions = [condition("Accepted", Ok(()), &of_class.metadata, &of_class.status)];
        let path = format!("/apis/{GROUP}/v1/gatewayclasses/{class}/status");
        all.extend(change(path, &of_class.status, json!({ "conditions": conditions })));
    }
    for gateway in from_gateway::of_class(cluster, class) {
        let path = path(GROUP, "gateways", &gateway.metadata);
        let wanted = of_gateway(gateway, cluster, class, addresses, problems);
        all.extend(change(path, &gateway.status, wanted));
    }
    for route in cluster.routes.values() {
        let path = path(GROUP, "httproutes", &route.metadata);
        let wanted = of_route(route, cluster, class, problems);
        all.extend(wanted.and_then(|wanted| change(path, &route.status, wanted)));
    }
    all
}

fn path(group: &str, plural: &str, metadata: &Metadata) -> String {
    let Metadata { namespace, name, .. } = metadata;
    format!("/apis/{group}/v1/namespaces/{namespace}/{plural}/{name}/status")
}

/// The patch, if the fields of the status differ.
fn change(path: String, before: &Value, wanted: Value) -> Option<Change> {
    let fields = wanted.as_object()?;
    let differs = fields.iter().any(|(name, value)| before.get(name) != Some(value));
    differs.then(|| (path, json!({ "status": wanted })))
}

fn of_gateway(
    gateway: &Gateway,
    cluster: &Cluster,
    class: &str,
    addresses: &[Value],
    problems: &Problems,
) -> Value {
    let owner = Owner::new("Gateway", &gateway.metadata);
    let before = |listener: &str| {
        let known = gateway.status.get("listeners").and_then(Value::as_array);
        let is_it = |one: &&Value| one.get("name").and_then(Value::as_str) == Some(listener);
        known.and_then(|all| all.iter().find(is_it)).cloned().unwrap_or_default()
    };
    let listeners: Vec<Value> = (gateway.spec.listeners.iter())
        .map(|listener| {
            let before = before(&listener.name);
            let refused = from_gateway::unusable(listener)
                .map_or(Ok(()), |why| Err(("UnsupportedValue", why.to_owned())));
            let resolved =
                first(problems, &owner).map_or(Ok(()), |why| Err(("InvalidCertificateRef", why)));
            let attached = |route: &&HttpRoute| {
                let parents = route.spec.parent_refs.iter();
                parents.into_iter().any(|parent| {
                    let taken = from_gateway::listeners(route, parent, (cluster, class));
                    taken.into_iter().any(|one| std::ptr::eq(one, listener))
                })
            };
            json!({
                "name": listener.name,
                "supportedKinds": [{ "group": GROUP, "kind": "HTTPRoute" }],
                "attachedRoutes": cluster.routes.values().filter(attached).count(),
                "conditions": [
                    condition("Accepted", refused.clone(), &gateway.metadata, &before),
                    condition("ResolvedRefs", resolved.clone(), &gateway.metadata, &before),
                    condition("Programmed", refused.and(resolved), &gateway.metadata, &before),
                ],
            })
        })
        .collect();
    let addresses = addresses.iter().filter_map(|address| match address.get("ip") {
        Some(ip) => Some(json!({ "type": "IPAddress", "value": ip })),
        None => Some(json!({ "type": "Hostname", "value": address.get("hostname")? })),
    });
    json!({
        "addresses": addresses.collect::<Vec<_>>(),
        "listeners": listeners,
        "conditions": [
            condition("Accepted", Ok(()), &gateway.metadata, &gateway.status),
            condition("Programmed", Ok(()), &gateway.metadata, &gateway.status),
        ],
    })
}

/// The status of a route: the parents of others stay. `None` if it has no parent of this class.
fn of_route(
    route: &HttpRoute,
    cluster: &Cluster,
    class: &str,
    problems: &Problems,
) -> Option<Value> {
    let owner = Owner::new("HTTPRoute", &route.metadata);
    let known = route.status.get("parents").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_own =
        |one: &Value| one.get("controllerName").and_then(Value::as_str) == Some(CONTROLLER);
    let own = &route.metadata.namespace;
    let of_class = |parent: &&Reference| {
        let key = (parent.namespace(own).to_owned(), parent.name.clone());
        from_gateway::of_class(cluster, class)
            .any(|one| (&one.metadata.namespace, &one.metadata.name) == (&key.0, &key.1))
    };
    let parents = route.spec.parent_refs.iter().filter(of_class).map(|parent| {
        let reference = reference(parent);
        let is_it = |one: &&Value| is_own(one) && one.get("parentRef") == Some(&reference);
        let before = known.iter().find(is_it).cloned().unwrap_or_default();
        let accepted = match from_gateway::listeners(route, parent, (cluster, class)).is_empty() {
            true => Err(("NoMatchingParent", "no listener takes this route".to_owned())),
            false => Ok(()),
        };
        let resolved = first(problems, &owner).map_or(Ok(()), |why| Err(("BackendNotFound", why)));
        json!({
            "parentRef": reference,
            "controllerName": CONTROLLER,
            "conditions": [
                condition("Accepted", accepted, &route.metadata, &before),
                condition("ResolvedRefs", resolved, &route.metadata, &before),
            ],
        })
    });
    let parents: Vec<Value> = parents.collect();
    let had = known.iter().any(is_own);
    let others = known.iter().filter(|one| !is_own(one)).cloned();
    (had || !parents.is_empty())
        .then(|| json!({ "parents": others.chain(parents.iter().cloned()).collect::<Vec<_>>() }))
}

/// A reference as its route states it.
fn reference(parent: &Reference) -> Value {
    let mut all = json!({ "name": parent.name });
    let texts = [
        ("group", &parent.group),
        ("kind", &parent.kind),
        ("namespace", &parent.namespace),
        ("sectionName", &parent.section_name),
    ];
    for (key, value) in texts {
        if let Some(value) = value {
            all[key] = value.clone().into();
        }
    }
    if let Some(port) = parent.port {
        all["port"] = port.into();
    }
    all
}

fn first(problems: &Problems, owner: &Owner) -> Option<String> {
    problems.of(owner).next().map(str::to_owned)
}

/// A condition. It keeps the time of the one before if it says the same.
fn condition(
    kind: &str,
    outcome: Result<(), (&'static str, String)>,
    metadata: &Metadata,
    before: &Value,
) -> Value {
    let (status, reason, message) = match outcome {
        Ok(()) => ("True", kind, String::new()),
        Err((reason, message)) => ("False", reason, message),
    };
    let known = before.get("conditions").and_then(Value::as_array).into_iter().flatten();
    let same = |one: &&Value| one["type"] == kind && one["status"] == status;
    let since = known.into_iter().find(same).and_then(|one| one["lastTransitionTime"].as_str());
    json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": metadata.generation,
        "lastTransitionTime": since.map_or_else(|| rfc3339(SystemTime::now()), str::to_owned),
    })
}

/// A time as resources have it.
fn rfc3339(time: SystemTime) -> String {
    // `Sun, 06 Nov 1994 08:49:37 GMT`, always of this form.
    let text = httpdate::fmt_http_date(time);
    let mut words = text.split(' ').skip(1);
    let mut next = || words.next().unwrap_or_default();
    let (day, month, year, clock) = (next(), next(), next(), next());
    let month = MONTHS.iter().position(|name| *name == month).unwrap_or_default() + 1;
    format!("{year}-{month:02}-{day}T{clock}Z")
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn times_are_those_of_resources() {
        let time = UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(rfc3339(time), "1994-11-06T08:49:37Z");
    }
}
