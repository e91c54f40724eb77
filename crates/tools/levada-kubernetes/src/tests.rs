//! Resources as the API server has them, and the configurations that they come to. `UPDATE_EXPECT=1` writes what is expected.

use std::{fs, path::PathBuf};

use levada_discovery::{Object, Objects};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use toml::Table;

use crate::{
    document::{Derived, Options, check, derive},
    files,
    resources::Cluster,
    status,
};

/// A cluster with these resources.
fn cluster(resources: &[Value]) -> Cluster {
    Cluster {
        ingresses: of_kind(resources, "Ingress"),
        classes: of_kind(resources, "GatewayClass"),
        gateways: of_kind(resources, "Gateway"),
        routes: of_kind(resources, "HTTPRoute"),
        services: of_kind(resources, "Service"),
        secrets: of_kind(resources, "Secret"),
    }
}

fn of_kind<T: Object + DeserializeOwned>(resources: &[Value], kind: &str) -> Objects<T> {
    let of_kind = resources.iter().filter(|one| one["kind"] == kind);
    let objects = of_kind.map(|one| serde_json::from_value::<T>(one.clone()).unwrap());
    let key = |object: &T| (object.metadata().namespace.clone(), object.metadata().name.clone());
    objects.map(|object| (key(&object), object)).collect()
}

const BASE: &str = "name = 'a'\n[[listen]]\naddress = '127.0.0.1:0'\n";

fn derived(base: &str, resources: &[Value]) -> Derived {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        class: "levada",
        https: ([127, 0, 0, 1], 8443).into(),
        http3: true,
        access: Table::new(),
        output: directory.path(),
        start_error: &|_| None,
    };
    let base: Table = base.parse().unwrap();
    let derived = derive(&base, &cluster(resources), &options);
    for one in &derived.certificates {
        files::write_certificate(one, directory.path()).unwrap();
    }
    check(&derived.document, &options).unwrap_or_else(|report| panic!("{report}"));
    derived
}

/// The configuration without that of the base, and the problems.
fn shown(derived: &Derived) -> String {
    let mut document = derived.document.clone();
    for key in ["name", "listen"] {
        document.remove(key);
    }
    let problems = derived.problems.0.iter().map(|problem| format!("# {problem}\n"));
    problems.chain([document.to_string()]).collect()
}

fn case(name: &str) {
    let path = |end: &str| {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("cases").join(format!("{name}.{end}"))
    };
    let resources: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(path("json")).unwrap()).unwrap();
    let found = shown(&derived(BASE, &resources));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(path("toml"), &found).unwrap();
    }
    assert_eq!(found, fs::read_to_string(path("toml")).unwrap());
}

#[test]
fn ingresses_are_sites() {
    case("ingress");
}

#[test]
fn routes_of_gateways_are_sites() {
    case("gateway");
}

#[test]
fn what_cannot_be_expressed_is_closed() {
    case("closed");
}

fn ingress(name: &str, host: &str, path: &str) -> Value {
    let backend = json!({ "service": { "name": "web", "port": { "number": 80 } } });
    let path = json!({ "path": path, "pathType": "Prefix", "backend": backend });
    json!({
        "kind": "Ingress",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "ingressClassName": "levada",
            "tls": [{ "secretName": "pair" }],
            "rules": [{ "host": host, "http": { "paths": [path] } }],
        },
    })
}

fn service() -> Value {
    json!({
        "kind": "Service",
        "metadata": { "name": "web", "namespace": "default" },
        "spec": { "ports": [{ "name": "http", "port": 80 }] },
    })
}

#[test]
fn site_of_the_base_file_keeps_its_host() {
    let base = format!("{BASE}[[site]]\nhosts = ['WWW.a.test']\norigin = 'http://127.0.0.1:9'\n");
    let found = derived(&base, &[service(), ingress("one", "www.a.test", "/")]);
    assert_eq!(found.document["site"].as_array().unwrap().len(), 1);
    assert!(found.problems.0[0].text.contains("a site of its own for www.a.test"));
}

#[test]
fn secret_without_a_pair_keeps_no_other_out() {
    use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
    let secret = |name: &str, chain: &str, key: &str| {
        json!({
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": { "name": name, "namespace": "default" },
            "data": { "tls.crt": BASE64.encode(chain), "tls.key": BASE64.encode(key) },
        })
    };
    let mut other = ingress("two", "www.b.test", "/");
    other["spec"]["tls"][0]["secretName"] = "none".into();
    let pair = rcgen::generate_simple_self_signed(["www.a.test".to_owned()]).unwrap();
    let (chain, key) = (pair.cert.pem(), pair.signing_key.serialize_pem());
    let all = [
        service(),
        ingress("one", "www.a.test", "/"),
        other,
        secret("pair", &chain, &key),
        secret("none", "a", &key),
    ];
    let found = derived(BASE, &all);
    let said: Vec<_> = found.problems.0.iter().map(ToString::to_string).collect();
    let expected = "Ingress default/two: Secret default/none: tls/default.none.pem holds no PEM block \
                    of the kind CERTIFICATE";
    assert_eq!(said, [expected]);
    let listeners = found.document["listen"].as_array().unwrap();
    assert_eq!(listeners[1]["address"].as_str(), Some("127.0.0.1:8443"));
    assert_eq!(listeners[1]["tls"].as_array().unwrap().len(), 1);
    assert_eq!(found.certificates[0].chain, chain.as_bytes());
}

#[test]
fn status_is_written_until_it_is_there() {
    let mut resources = vec![
        service(),
        ingress("one", "www.a.test", "/"),
        json!({
            "kind": "GatewayClass",
            "metadata": { "name": "levada" },
            "spec": { "controllerName": status::CONTROLLER },
        }),
        json!({
            "kind": "Gateway",
            "metadata": { "name": "edge", "namespace": "default", "generation": 3 },
            "spec": {
                "gatewayClassName": "levada",
                "listeners": [
                    { "name": "web", "port": 80, "protocol": "HTTP" },
                    { "name": "odd", "port": 81, "protocol": "HTTP" },
                ],
            },
        }),
        json!({
            "kind": "HTTPRoute",
            "metadata": { "name": "r", "namespace": "default" },
            "spec": {
                "parentRefs": [{ "name": "edge" }, { "name": "other" }],
                "rules": [{ "backendRefs": [{ "name": "absent", "port": 80 }] }],
            },
            "status": { "parents": [{ "controllerName": "x.test/y", "parentRef": { "name": "other" } }] },
        }),
    ];
    let changes = |resources: &[Value]| {
        let problems = derived(BASE, resources).problems;
        status::changes(&cluster(resources), "levada", &[json!({ "ip": "192.0.2.1" })], &problems)
    };
    let first = changes(&resources);
    let paths: Vec<_> = first.iter().map(|(path, _)| path.rsplit('/').nth(2).unwrap()).collect();
    assert_eq!(paths, ["ingresses", "gatewayclasses", "gateways", "httproutes"]);
    assert_eq!(first[0].1["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.1");
    let listeners = &first[2].1["status"]["listeners"];
    assert_eq!(listeners[0]["attachedRoutes"], 1);
    assert_eq!(listeners[1]["conditions"][0]["status"], "False");
    let parents = first[3].1["status"]["parents"].as_array().unwrap();
    assert_eq!(parents[0]["controllerName"], "x.test/y");
    let resolved = &parents[1]["conditions"][1];
    assert_eq!(
        (&resolved["status"], &resolved["reason"]),
        (&json!("False"), &json!("BackendNotFound"))
    );

    for (at, (_, change)) in [1, 2, 3, 4].into_iter().zip(first) {
        resources[at]["status"] = change["status"].clone();
    }
    assert_eq!(changes(&resources), []);
}
