//! Every rule by which HAProxy keeps clients out is converted, or closes its place.

#[allow(dead_code)]
mod node;

use node::{Files, Way, ask, file};

const FILES: &Files = &Files(&[
    ("/lists/bad", "203.0.113.0/24 # a network\n198.51.100.1\n"),
    ("/lists/paths", "/secret\n/private\n"),
    ("/maps/hosts", "a.example guarded\nb.example open\n"),
    ("/maps/paths", "/secret guarded\n"),
]);

fn text(rules: &str) -> String {
    format!(
        "defaults\n  mode http\n\
         userlist staff\n  user ann password $5$x\n\
         backend table\n  stick-table type ip size 1m expire 1m store http_req_rate(10s)\n\
         backend open\n  server s 10.0.0.1:80\n\
         backend guarded\n  http-request deny\n  server s 10.0.0.2:80\n\
         frontend f\n  bind :80\n{rules}\n  default_backend open\n"
    )
}

fn way(rules: &str, target: &str) -> Way {
    let text = text(rules);
    let text = text.replace("# a network", "");
    let converted = levada_convert_haproxy::convert(&file("haproxy.cfg", &text), FILES).unwrap();
    ask(&converted, "a.example", "GET", target)
}

/// Rules of a frontend that refuse `GET /secret/x` at `a.example`.
const REFUSED: &[&str] = &[
    "http-request deny",
    "http-request deny if { path_beg /secret }",
    "http-request deny if { path_beg /secret/ }",
    "http-request deny if { path_beg -i /SECRET }",
    "http-request deny if { path_sub cret }",
    "http-request deny if { path_dir secret }",
    "http-request deny if { path_end /x }",
    "http-request deny if { path_reg ^/sec.*t }",
    "http-request deny if { path -m beg -f /lists/paths }",
    "http-request deny if { path,lower -m beg /secret }",
    "http-request deny if { path -f /lists/none }",
    "http-request deny if { url_beg /secret }",
    "http-request deny if { url_reg secret.*x }",
    "http-request deny if { url_dir secret }",
    "http-request deny if { src 203.0.113.0/24 }",
    "http-request deny if { src -f /lists/bad }",
    "http-request deny if { src nonsense }",
    "http-request deny if { src 203.0.113.0/24 } { path_beg /secret }",
    "http-request deny unless { src 10.0.0.0/8 }",
    "http-request deny if !{ src 10.0.0.0/8 }",
    "http-request deny if { path_beg /secret } !{ src 10.0.0.0/8 }",
    "http-request deny if { path_beg /other } or { path_beg /secret }",
    "http-request deny if ! { path_beg /open }",
    "http-request deny unless { path_beg /open } || { method POST }",
    "http-request deny if METH_GET",
    "http-request deny unless { src 203.0.113.0/24 }\n  http-request deny if { path_sub secret }",
    "http-request deny if { method GET HEAD }",
    "http-request deny unless { hdr(X-Key) secret }",
    "http-request deny unless { req.hdr(X-Key) -m found }",
    "http-request deny if { hdr(host) -i a.example }",
    "http-request deny if { hdr_beg(host) a. }",
    "http-request deny if { hdr_end(host) .example }",
    "http-request deny if { hdr_dom(host) example }",
    "http-request deny if { hdr_reg(host) ^a\\. }",
    "http-request deny if { req.hdr(host),lower a.example }",
    "http-request deny unless { hdr(host) b.example }",
    "http-request deny unless { cook(session) -m found }",
    "http-request deny unless { url_param(key) 1 }",
    "http-request deny unless { ssl_fc }",
    "http-request deny if { nbsrv(open) lt 1 }",
    "http-request deny if { ssl_c_verify 0 }",
    "http-request deny if { lua.check }",
    "http-request deny if { path,crc32 1 }",
    "http-request deny if { hdr(X-Forwarded-For) 1.2.3.4 }",
    "http-request deny if undefined",
    "http-request deny if { }",
    "http-request deny if {",
    "http-request deny unless",
    "http-request deny if { path_beg \"$SECRET\" }",
    "http-request deny deny_status 429 if { path_beg /secret }",
    "http-request deny deny_status nonsense if { path_beg /secret }",
    "http-request tarpit if { path_beg /secret }",
    "http-request silent-drop if { path_beg /secret }",
    "http-request reject if { path_beg /secret }",
    "http-request return status 404 if { path_beg /secret }",
    "http-request return status 404 file /x if { path_beg /secret }",
    "http-request lua.check",
    "http-request use-service lua.x if { path_beg /secret }",
    "http-request wait-for-body time 1s",
    "http-request auth unless { http_auth(staff) }",
    "http-request auth realm x if { path_beg /secret } !{ http_auth(staff) }",
    "http-request auth unless { http_auth(nowhere) }",
    "http-request auth unless { http_auth_group(staff) admin }",
    "http-request deny unless { http_auth(staff) }",
    "acl staff_ok http_auth(staff)\n  http-request auth unless staff_ok",
    "acl ok src 10.0.0.0/8\n  http-request deny if !ok",
    "acl ok src 10.0.0.0/8\n  acl ok path_beg /open\n  http-request deny unless ok",
    "acl a path_beg /secret\n  acl b method GET\n  http-request deny if a b",
    "http-request allow if { path_beg /open }\n  http-request deny",
    "http-request allow if { lua.x }\n  http-request deny",
    "http-request set-path /open\n  http-request deny if { path_beg /open }",
    "http-request set-header X-A b\n  http-request deny if { hdr(X-A) b }",
    "http-request set-var(txn.a) path\n  http-request deny if { var(txn.a) -m beg /secret }",
    "tcp-request connection reject if { src 203.0.113.0/24 }",
    "tcp-request connection reject unless { src 10.0.0.0/8 }",
    "tcp-request content reject if { path_beg /secret }",
    "tcp-request connection accept if { src 10.0.0.0/8 }\n  tcp-request connection reject",
    "http-request track-sc0 src\n  http-request deny if { sc_http_req_rate(0) gt 10 } or { path_beg /secret }",
    "http-request deny if { sc_http_req_rate(0) gt 10 }",
    "http-request track-sc0 src table table\n  http-request deny if { sc_gpc0_rate(0) gt 10 }",
    "http-response deny if { status 200 }",
    "filter spoe engine waf",
    "filter lua.x",
    "block if { path_beg /secret }",
    "reqdeny ^GET",
    "use_backend guarded if { path_beg /secret }",
    "use_backend guarded if { lua.x }",
    "use_backend guarded",
    "use_backend %[path,map_beg(/maps/paths)]",
    "use_backend %[req.hdr(host),lower,map(/maps/hosts)]",
    "use_backend %[req.hdr(host),lower,map(/maps/none)]",
    "use_backend %[lua.x]",
    ".if defined(X)",
    "waf-policy strict",
];

#[test]
fn every_rule_that_keeps_clients_out_is_there_or_closes_its_place() {
    let open: Vec<_> = REFUSED
        .iter()
        .filter_map(|rules| match way(&format!("  {rules}"), "/secret/x") {
            Way::Refused | Way::Answered(400..) => None,
            way => Some(format!("{rules}: {way:?}")),
        })
        .collect();
    println!("{} rules were tried", REFUSED.len());
    assert!(open.is_empty(), "{} are open:\n{}", open.len(), open.join("\n"));
}

#[test]
fn rules_of_defaults_and_of_the_backend_close_as_well() {
    for rule in ["http-request deny", "http-request lua.x", "http-request deny if { lua.x }"] {
        let text = format!(
            "defaults\n  mode http\n  {rule}\nfrontend f\n  bind :80\n  default_backend b\nbackend b\n  server s 10.0.0.1:80\n"
        );
        let of_backend = format!(
            "defaults\n  mode http\nfrontend f\n  bind :80\n  default_backend b\nbackend b\n  {rule}\n  server s 10.0.0.1:80\n"
        );
        let listen =
            format!("listen l\n  mode http\n  bind :80\n  {rule}\n  server s 10.0.0.1:80\n");
        for text in [text, of_backend, listen] {
            let converted =
                levada_convert_haproxy::convert(&file("haproxy.cfg", &text), FILES).unwrap();
            assert_eq!(ask(&converted, "a.example", "GET", "/"), Way::Refused, "{text}");
        }
    }
}

/// Rules that let `GET /other` pass.
const OPEN: &[&str] = &[
    "http-request deny if { path_beg /secret }",
    "http-request deny if { src 10.0.0.0/8 }",
    "http-request deny if { hdr(host) b.example }",
    "http-request deny unless { method GET }",
    "http-request auth if { path_beg /secret } !{ http_auth(staff) }",
    "http-request return status 404 file /x if { path_beg /secret }",
    "use_backend guarded if { path_beg /secret }",
    "use_backend guarded if { hdr(host) b.example }",
    "http-request set-header X-A %[lua.x]",
    "http-request set-var(txn.a) path",
    "http-response set-header X-A b if { status 200 }",
    "errorfile 503 /etc/haproxy/503.http",
    "stats enable",
];

#[test]
fn other_places_stay_open() {
    for rules in OPEN {
        assert_eq!(way(&format!("  {rules}"), "/other"), Way::Passed { stored: false }, "{rules}");
    }
}

#[test]
fn nothing_is_stored_but_where_a_cache_is_used() {
    let cache = "  http-request cache-use c if { path_beg /static }\n  http-response cache-store c";
    let text = format!("cache c\n  total-max-size 64\n  max-age 60\n{}", text(cache));
    let converted = levada_convert_haproxy::convert(&file("haproxy.cfg", &text), FILES).unwrap();
    assert_eq!(ask(&converted, "a.example", "GET", "/static/a"), Way::Passed { stored: true });
    assert_eq!(ask(&converted, "a.example", "GET", "/other"), Way::Passed { stored: false });
}

#[test]
fn ports_with_rules_of_their_own_are_not_listened_on() {
    let text = "defaults\n  mode http\n  default_backend b\nbackend b\n  server s 10.0.0.1:80\n\
        frontend one\n  bind :80\nfrontend two\n  bind :8080\nfrontend three\n  mode tcp\n  bind :9000\n";
    let converted = levada_convert_haproxy::convert(&file("haproxy.cfg", text), FILES).unwrap();
    assert!(converted.toml.contains("0.0.0.0:80\""));
    assert!(!converted.toml.contains("[[listen]]\naddress = \"0.0.0.0:8080\""));
    assert!(!converted.toml.contains("[[listen]]\naddress = \"0.0.0.0:9000\""));
    assert_eq!(converted.ledger.left.len(), 5, "{:#?}", converted.ledger.left);
}
