use super::{FleetDirectory, convert};
use crate::{conversion::Unreadable, files::InputFile, ledger::Remark, rows::shadowed};

fn file(name: &str, text: &str) -> InputFile {
    InputFile { name: name.to_owned(), text: text.to_owned() }
}

fn read(texts: &[&str]) -> Result<FleetDirectory, Unreadable> {
    let file = |(number, text): (usize, &&str)| file(&format!("{number}.json"), text);
    convert(&texts.iter().enumerate().map(file).collect::<Vec<_>>())
}

const SNAPSHOT: &str = r#"{"config": {"domain_name": "cdn.test"}, "contentServers":
 {"e": {"cacheGroup": "eu", "ip": "192.0.2.1", "type": "EDGE"}, "m": {"cacheGroup": "mid", "ip": "192.0.2.2", "type": "MID"}},
 "edgeLocations": {"eu": {"latitude": 1, "longitude": 2}}}"#;

/// A service with these fields, and its site.
fn site(fields: &str) -> (FleetDirectory, String) {
    let usual = r#""active": true, "routingName": "cdn", "orgServerFqdn": "http://origin.test", "protocol": 2,
        "exampleURLs": ["http://cdn.one.cdn.test"],
        "matchList": [{"type": "HOST_REGEXP", "setNumber": 0, "pattern": ".*\\.one\\..*"}]"#;
    let kind = if fields.contains("\"type\":") { "" } else { r#""type": "DNS","# };
    let services = format!(r#"{{"response": [{{"xmlId": "one", {kind} {usual}, {fields}}}]}}"#);
    let fleet = read(&[SNAPSHOT, &services]).unwrap();
    let site = fleet.files.get("sites/one.toml").cloned().unwrap_or_default();
    (fleet, site)
}

fn reasons(remarks: &[Remark]) -> String {
    remarks.iter().map(|remark| format!("{remark}\n")).collect()
}

#[test]
fn bad_files_are_refused_with_their_line_and_the_reason() {
    let wrong = |texts: &[&str]| read(texts).unwrap_err().to_string();
    assert!(wrong(&["{\n\"config\":"]).starts_with("0.json:2: is no JSON"), "{}", wrong(&["{"]));
    assert!(wrong(&["", SNAPSHOT]).starts_with("0.json:1: is no JSON"));
    assert!(wrong(&["[1, 2]"]).starts_with("0.json:1: is no file of Traffic Control"));
    assert!(wrong(&[SNAPSHOT, r#"{"response": [{"id": 1}]}"#]).starts_with("1.json:1: is no file"));
    assert!(wrong(&[r#"{"coverageZones": {}}"#]).contains("no file is a snapshot"));
    let empty = r#"{"config": {}, "contentServers": {}, "edgeLocations": {}}"#;
    assert_eq!(wrong(&[empty]), "0.json:1: the snapshot has no edges and no mids");
    assert!(read(&[SNAPSHOT, r#"{"response": []}"#]).is_ok(), "an answer may be empty");
}

#[test]
fn groups_servers_and_services_that_cannot_be_taken_are_said() {
    let snapshot = r#"{"contentServers": {
        "a": {"cacheGroup": "one", "ip": "192.0.2.1", "type": "EDGE", "status": "OFFLINE"},
        "b": {"cacheGroup": "one", "ip": "", "type": "EDGE"}, "c": {"ip": "192.0.2.2", "type": "MID"},
        "d": {"cacheGroup": "one", "ip": "home", "type": "EDGE"}, "e": {"cacheGroup": "one", "type": "RASCAL"}},
     "edgeLocations": {"one": {"latitude": 1}}}"#;
    let services = r#"{"response": [{"xmlId": "x", "type": "FTP", "active": true},
        {"xmlId": "y", "type": "ANY_MAP", "active": true}, {"xmlId": "z", "type": "STEERING", "active": true},
        {"xmlId": "w", "surprise": 1}]}"#;
    let fleet = read(&[snapshot, services]).unwrap();
    let left = reasons(&fleet.ledger.left);
    for said in [
        "`contentServers b`: it has no address",
        "`contentServers c`: it has no cache group",
        "`contentServers d`: home is no address",
        "`contentServers e`: only edges and mids become nodes",
        "`x: type FTP`: there is no type FTP",
        "`delivery service x`: no site has its type",
        "`y: type ANY_MAP`: it is a line of remap.config",
        "`delivery service z`: no host of it is known",
        "`w: surprise 1`: the field is unknown",
    ] {
        assert!(left.contains(said), "{said}\n{left}");
    }
    let differs = reasons(&fleet.ledger.differs);
    assert!(differs.contains("`edgeLocations one`: has no coordinates"), "{differs}");
    assert!(differs.contains("`contentServers a`: it is OFFLINE: drain the node"), "{differs}");
    assert_eq!(fleet.files["nodes.txt"], "a one 192.0.2.1\n");
    assert!(!fleet.files.keys().any(|path| path.starts_with("sites/")), "{:?}", fleet.files.keys());
}

#[test]
fn whatever_restricts_and_has_no_counterpart_closes_the_site() {
    for field in [
        r#""signingAlgorithm": "url_sig""#,
        r#""signingAlgorithm": "uri_signing""#,
        r#""signingAlgorithm": "of tomorrow""#,
        r#""signed": true"#,
        r#""geoLimit": 1"#,
        r#""geoLimit": 2, "geoLimitCountries": "AT,DE""#,
        r#""geoLimit": 7"#,
        r#""regionalGeoBlocking": true"#,
        r#""anonymousBlockingEnabled": true"#,
        r#""protocol": 9"#,
        r#""tlsVersions": ["1.3"]"#,
        r#""remapText": "@plugin=url_sig.so @pparam=url_sig_one.config""#,
        r#""remapText": "@action=deny @method=POST""#,
        r#""remapText": "@action=allow @src_ip=10.0.0.1-10.0.0.9""#,
        r#""remapText": "@action=deny @src_ip=10.0.0.1 @action=deny @src_ip=10.0.0.2""#,
        r#""remapText": "@plugin=tslua.so @pparam=deny.lua""#,
        r#""edgeHeaderRewrite": "cond %{CLIENT-IP} =10.0.0.1\nset-status 403""#,
        r#""midHeaderRewrite": "run-plugin access_control.so x""#,
        r#""regexRemap": "^/a(?=b) http://x/""#,
        r#""regexRemap": "^/a http://x/ @status=403""#,
        r#""remapText": "@action=allow @src_ip=10.0.0.0/8", "geoLimit": 1"#,
    ] {
        let (fleet, site) = site(field);
        assert!(
            site.starts_with("# delivery service one\n# CLOSED, everybody gets 403: "),
            "{field}\n{site}"
        );
        assert!(site.contains("\naccess = \"deny all\"\n"), "{field}\n{site}");
        assert!(!fleet.ledger.left.is_empty(), "{field}");
    }
}

#[test]
fn restrictions_with_a_counterpart_are_taken_over() {
    let has = |fields: &str, text: &str| {
        let (_, site) = site(fields);
        assert!(site.contains(text) && !site.contains("CLOSED"), "{fields}\n{site}");
    };
    has(
        r#""remapText": "@action=allow @src_ip=10.0.0.0/8""#,
        r#"access = ["allow 10.0.0.0/8", "deny all"]"#,
    );
    has(r#""protocol": 0"#, "scheme = \"https\"\nrespond = { status = 403 }");
    has(r#""protocol": 1"#, "scheme = \"http\"\nrespond = { status = 403 }");
    // Only a router could redirect.
    has(r#""protocol": 3"#, "scheme = \"http\"\nrespond = { status = 403 }");
    has(
        r#""protocol": 3, "type": "HTTP""#,
        "redirect = { to = \"https://{host}{uri}\", status = 302 }",
    );
    has(r#""dscp": 0"#, "method = [\"DELETE\", \"PUSH\"]\nrespond = { status = 403 }");
    let (_, later) = site(r#""active": "PRIMED""#);
    assert_eq!(later, "");
    let mid = &site(r#""dscp": 0"#).0.files["regions/mid.toml"];
    assert!(mid.contains("127.0.0.1:80"), "clients did not reach mids: {mid}");
}

#[test]
fn parameters_that_may_refuse_requests_close_the_services_of_their_profile() {
    let parameters = r#"{"response": [
        {"configFile": "remap.config", "name": "not_location", "value": "@plugin=x.so", "profiles": ["PAID"]},
        {"configFile": "records.config", "name": "CONFIG proxy.config.http.cache.heuristic_lm_factor",
         "value": "FLOAT 0.20", "profiles": ["EDGE"]}]}"#;
    let services = r#"{"response": [
        {"xmlId": "paid", "profileName": "PAID", "active": true, "type": "DNS", "orgServerFqdn": "http://o",
         "matchList": [{"type": "HOST_REGEXP", "setNumber": 0, "pattern": "paid.test"}]},
        {"xmlId": "free", "profileName": "FREE", "active": true, "type": "DNS", "orgServerFqdn": "http://o",
         "matchList": [{"type": "HOST_REGEXP", "setNumber": 0, "pattern": "free.test"}]}]}"#;
    let fleet = read(&[SNAPSHOT, services, parameters]).unwrap();
    assert!(
        fleet.files["sites/paid.toml"].contains("CLOSED"),
        "{}",
        fleet.files["sites/paid.toml"]
    );
    assert!(
        !fleet.files["sites/free.toml"].contains("CLOSED"),
        "{}",
        fleet.files["sites/free.toml"]
    );
    assert!(
        fleet.files["node.toml"].contains("heuristic_percent = 20"),
        "{}",
        fleet.files["node.toml"]
    );
}

#[test]
fn a_host_of_two_services_is_closed_for_both() {
    let service = |name: &str, more: &str| {
        format!(
            r#"{{"xmlId": "{name}", "active": true, "type": "DNS", "protocol": 0, "orgServerFqdn": "http://o", {more}
            "matchList": [{{"type": "HOST_REGEXP", "setNumber": 0, "pattern": "www\\.example\\.com"}}]}}"#
        )
    };
    let (one, two) = (service("one", ""), service("two", r#""signingAlgorithm": "url_sig","#));
    let fleet = read(&[SNAPSHOT, &format!(r#"{{"response": [{one}, {two}]}}"#)]).unwrap();
    let site = &fleet.files["sites/one.toml"];
    assert!(site.contains("CLOSED") && site.contains("access = \"deny all\""), "{site}");
    assert!(!fleet.files.contains_key("sites/two.toml"), "{:?}", fleet.files.keys());
}

#[test]
fn names_stay_within_the_directory() {
    let snapshot = SNAPSHOT.replace("cdn.test", "../../etc/x").replace("\"eu\"", "\"../eu\"");
    let services = r#"{"response": [{"xmlId": "../../x", "active": true, "type": "DNS", "orgServerFqdn": "http://o",
        "matchList": [{"type": "HOST_REGEXP", "setNumber": 0, "pattern": "a.test"}]}]}"#;
    let fleet = read(&[&snapshot, services]).unwrap();
    for path in fleet.files.keys() {
        let parts: Vec<_> = path.split('/').collect();
        assert!(parts.len() <= 2 && !parts.contains(&".."), "{path}");
    }
    assert!(fleet.files.contains_key("sites/..-..-x.toml"), "{:?}", fleet.files.keys());
    assert!(!fleet.files.contains_key("dns.toml"), "a zone needs a name");
}

#[test]
fn no_row_is_in_the_shadow_of_another() {
    assert_eq!(shadowed(&super::service::FIELDS.iter().collect::<Vec<_>>()), [""; 0]);
    assert_eq!(shadowed(&super::service::SNAPSHOT_FIELDS.iter().collect::<Vec<_>>()), [""; 0]);
    assert_eq!(shadowed(&super::parameters::CONFIG.iter().collect::<Vec<_>>()), [""; 0]);
    assert_eq!(shadowed(&super::parameters::PARAMETERS.iter().collect::<Vec<_>>()), [""; 0]);
}

/// A field of some service, with a value of any form.
fn fields() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    let names = super::service::FIELDS.iter().chain(super::service::SNAPSHOT_FIELDS);
    let names: Vec<_> = names.flat_map(|row| row.names()).collect();
    let value = r#"(-?[1-9][0-9]{0,30}|true|null|"[a-z$%{}()./@=*^ :\\\\\[\]_0-9]{0,40}"|\[\]|\[("[a-z*.]{0,9}"|\{"type": "HOST_REGEXP", "pattern": "[a-z.*\\\\(]{0,12}"\})\]|\{"A": 5\})"#;
    let pair = (proptest::sample::select(names), value);
    let pair =
        pair.prop_map(|(name, value)| format!("\"{name}\": {}", value.replace('\\', "\\\\")));
    proptest::collection::vec(pair, 0..12).prop_map(|pairs| pairs.join(", "))
}

proptest::proptest! {
    #[test]
    fn no_fields_lead_to_a_panic(fields in fields(), more in fields()) {
        let services = format!(r#"{{"response": [{{"xmlId": "a", {fields}}}, {{"xmlId": "b", {more}}}]}}"#);
        let services = services.replace(", }", "}");
        let states = format!(r#"{{"deliveryServices": {{"a": {{{more}}}}}, "#);
        let snapshot = SNAPSHOT.replacen('{', &states, 1);
        let fleet = read(&[&snapshot, &services]).unwrap();
        for (path, text) in fleet.files.iter().filter(|(path, _)| path.ends_with(".toml")) {
            assert!(text.parse::<toml::Table>().is_ok(), "{path}: {text}");
        }
    }

    #[test]
    fn no_text_leads_to_a_panic(text in r#"([\[\]{}:,"]|coverageZones|network|caches|1\.2\.3\.0/2[0-9]|::/[0-9]|response|mappings|targets){0,60}"#) {
        let _ = read(&[SNAPSHOT, &text]);
        let _ = read(&[&text]);
    }

    #[test]
    fn no_zones_lead_to_a_panic(networks in proptest::collection::vec(r"[0-9]{1,3}\.[0-9]{1,3}\.0\.0/[0-9]{1,2}|[0-9a-f]{0,4}::/[0-9]{1,3}", 0..20)) {
        let list = format!("{networks:?}");
        let coverage = format!(r#"{{"coverageZones": {{"eu": {{"network": {list}}}, "no": {{"network": {list}}}}}}}"#);
        let federations = format!(r#"{{"response": [{{"deliveryService": "a", "mappings": [{{"cname": "b.", "ttl": 1, "resolve4": {list}}}]}}]}}"#);
        read(&[SNAPSHOT, &coverage, &federations]).unwrap();
    }
}

#[test]
fn steering_to_services_with_http_routing_is_taken_over() {
    let service = |name: &str, kind: &str| {
        format!(
            r#"{{"xmlId": "{name}", "type": "{kind}", "active": true, "routingName": "tr", "protocol": 2,
            "orgServerFqdn": "http://{name}.test", "exampleURLs": ["http://tr.{name}.cdn.test"],
            "matchList": [{{"type": "HOST_REGEXP", "setNumber": 0, "pattern": ".*\\.{name}\\..*"}}]}}"#
        )
    };
    let all = [("a", "HTTP"), ("b", "HTTP_LIVE"), ("one", "STEERING"), ("all", "CLIENT_STEERING")];
    let services = all.map(|(name, kind)| service(name, kind)).join(",");
    let services = format!(r#"{{"response": [{services}]}}"#)
        .replace(r#""orgServerFqdn": "http://one.test", "#, "");
    let services = services.replace(r#""orgServerFqdn": "http://all.test", "#, "");
    let snapshot = SNAPSHOT.replacen(
        '{',
        r#"{"contentRouters": {"r": {"ip": "192.0.2.9", "ip6": "2001:db8::9/64"}, "s": {}}, "#,
        1,
    );
    let steering = r#"{"response": [
        {"deliveryService": "one", "clientSteering": false, "targets": [
            {"deliveryService": "a", "weight": 30}, {"deliveryService": "b", "weight": 0, "order": -1}],
         "filters": [{"deliveryService": "a", "pattern": "/img/.*"}, {"deliveryService": "c", "pattern": ".*"}]},
        {"deliveryService": "all", "clientSteering": true, "targets": [
            {"deliveryService": "a", "geoOrder": 1}, {"deliveryService": "b"}]}]}"#;
    let fleet = read(&[&snapshot, &services, steering]).unwrap();
    let (dns, zone) = (&fleet.files["dns.toml"], &fleet.files["files/cdn.test.zone"]);
    for text in [
        "redirects = [\"tr.a\", \"tr.b\"]",
        "name = \"tr.one.cdn.test\"\ntargets = [",
        "{ name = \"tr.b.cdn.test\", order = -1 }",
        "{ name = \"tr.a.cdn.test\", weight = 30 }",
        "filters = [{ path_regex = \"/img/.*\", target = \"tr.a.cdn.test\" }]",
        "name = \"tr.all.cdn.test\"\nclient = true\n",
    ] {
        assert!(dns.contains(text), "{text}\n{dns}");
    }
    for name in ["tr.a", "tr.b", "tr.one", "tr.all"] {
        let lines = format!("{name} A 192.0.2.9\n{name} AAAA 2001:db8::9\n");
        assert!(zone.contains(&lines), "{lines}\n{zone}");
    }
    assert!(!fleet.files.contains_key("sites/one.toml"), "name servers answer it");
    let site = &fleet.files["sites/a.toml"];
    assert!(site.contains("hosts = [\"tr.a.cdn.test\", \"*.a.cdn.test\"]"), "{site}");
    assert!(reasons(&fleet.ledger.left).contains("`contentRouters s`: it has no address"));
    assert!(reasons(&fleet.ledger.differs).contains("`steering all`: the places"));
}
