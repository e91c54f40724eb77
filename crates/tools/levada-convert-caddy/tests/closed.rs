//! Every directive by which Caddy keeps clients out is converted, or closes its place.

#[allow(dead_code)]
mod node;

use node::{Files, Way, ask, file};

const FILES: &Files = &Files(&[("shared", "respond /secret/* 403\n")]);

fn convert(text: &str) -> levada_conversion::conversion::Conversion {
    levada_convert_caddy::convert(&file("Caddyfile", text), FILES).unwrap()
}

fn way(directives: &str, target: &str) -> Way {
    let text = format!(
        "(refuse) {{\n  respond {{args[0]}} 403\n}}\n:80 {{\n  {}\n  reverse_proxy 10.0.0.1:80\n}}\n",
        directives.replace("; ", "\n  ")
    );
    ask(&convert(&text), "a.example", "GET", target)
}

/// Directives that refuse `GET /secret/x`, each line after a semicolon.
const REFUSED: &[&str] = &[
    "respond 403",
    "respond /secret/* 403",
    "respond /SECRET/* 403",
    "respond *x 403",
    "respond /sec*/x 403",
    "respond /secret/* \"{remote_host}\" 403",
    "respond /secret/* {; body {env.X}; }",
    "error /secret/* 404",
    "error 403",
    "abort",
    "abort /secret/*",
    "redir /secret/* https://{vars.x}/",
    "redir /secret/* /login 200",
    "import refuse /secret/*",
    "import refuse *",
    "import shared",
    "import nowhere",
    "@a path /secret/*; respond @a 403",
    "@a path /other /secret/x; respond @a 403",
    "@a {; path /secret/*; method GET; }; respond @a 403",
    "@a not path /open/*; respond @a 403",
    "@a {; not {; path /open/*; remote_ip 10.0.0.0/8; }; }; respond @a 403",
    "@a not remote_ip 10.0.0.0/8; respond @a 403",
    "@a not remote_ip private_ranges; respond @a 403",
    "@a remote_ip 203.0.113.0/24; respond @a 403",
    "@a client_ip 203.0.113.0/24; respond @a 403",
    "@a remote_ip forwarded 203.0.113.0/24; respond @a 403",
    "@a remote_ip {env.LIST}; respond @a 403",
    "@a path_regexp ^/sec; respond @a 403",
    "@a path_regexp name ^/(sec)ret; respond @a 403",
    "@a path_regexp (?!x); respond @a 403",
    "@a method GET HEAD; respond @a 403",
    "@a header !X-Key; respond @a 403",
    "@a not header X-Key secret; respond @a 403",
    "@a not header_regexp X-Key ^secret$; respond @a 403",
    "@a host a.example; respond @a 403",
    "@a host *.example; respond @a 403",
    "@a protocol http; respond @a 403",
    "@a not query key=1; respond @a 403",
    "@a expression {path}.startsWith('/secret'); respond @a 403",
    "@a expression `{method} == 'GET'`; respond @a 403",
    "@a expression path('/secret/*'); respond @a 403",
    "@a expression {http.vars.x} == 'y'; respond @a 403",
    "@a file /x; respond @a 403",
    "@a vars {x} y; respond @a 403",
    "respond @nowhere 403",
    "@a; respond @a 403",
    "@a path; respond @a 403",
    "@a path /secret/* {$MORE}; respond @a 403",
    "respond {$PLACE} 403",
    "handle /secret/* {; respond 403; }",
    "handle /secret/* {; error 404; }",
    "handle /secret/* {; abort; }",
    "handle @nowhere {; respond 403; }",
    "handle /secret/* {; forward_auth 10.0.0.9:80 {; uri /x; }; reverse_proxy 10.0.0.2:80; }",
    "handle_path /secret/* {; respond 403; }",
    "route /secret/* {; respond 403; }",
    "route {; respond /secret/* 403; }",
    "route {; basicauth /secret/* {; ann JDJh; }; reverse_proxy 10.0.0.2:80; }",
    "basicauth {; ann JDJh; }",
    "basic_auth /secret/* {; ann $2a$14$x; }",
    "basic_auth /secret/* scrypt {; ann x; }",
    "basic_auth @nowhere {; ann x; }",
    "forward_auth /secret/* 10.0.0.9:80 {; uri /verify; }",
    "forward_auth 10.0.0.9:80 {; uri /verify; copy_headers A>B; }",
    "forward_auth unix//run/auth.sock {; uri /verify; }",
    "forward_auth {; uri /verify; }",
    "request_body /secret/* {; max_size nonsense; }",
    "rewrite /open; @a path /open; respond @a 403; respond /secret/* 403",
    "route {; php_fastcgi /secret/* unix//run/php.sock; }",
    "invoke guard",
    "intercept {; @x status 200; }",
    "rate_limit {; zone x {; events 1; }; }",
    "authenticate with portal",
    "authorize with policy",
    "security {; block; }",
    "waf_handler strict",
    "reverse_proxy /secret/* 10.0.0.2:80 {; @e status 200; handle_response @e {; respond 403; }; }",
    "reverse_proxy /secret/* {; dynamic srv x; }",
    "reverse_proxy /secret/* 10.0.0.2:80 {; trusted_proxies 10.0.0.0/8; }",
    "route {; file_server /secret/* {; root /srv/www; hide x; }; }",
    "route {; file_server /secret/* {; root /srv/www; fs git; }; }",
    "handle_path /secret/* {; root * /srv/www; file_server; }",
    "tls {; client_auth {; mode require; }; }",
    "tls internal",
];

#[test]
fn every_directive_that_keeps_clients_out_is_there_or_closes_its_place() {
    let open: Vec<_> = REFUSED
        .iter()
        .filter_map(|directives| match way(directives, "/secret/x") {
            Way::Refused | Way::Answered(400..) | Way::NoSite => None,
            way => Some(format!("{directives}: {way:?}")),
        })
        .collect();
    println!("{} directives were tried", REFUSED.len());
    assert!(open.is_empty(), "{} are open:\n{}", open.len(), open.join("\n"));
}

/// Directives that let `GET /other` pass.
const OPEN: &[&str] = &[
    "respond /secret/* 403",
    "basic_auth /secret/* {; ann $2a$14$x; }",
    "handle /secret/* {; respond 403; }",
    "@a remote_ip 10.0.0.0/8; respond @a 403",
    "header X-A {vars.x}",
    "templates",
    "log {; output net x:1; }",
    "handle_errors {; respond oops; }",
    "reverse_proxy /secret/* 10.0.0.2:80 {; lb_policy ip_hash; }",
];

#[test]
fn other_places_stay_open() {
    for directives in OPEN {
        assert_eq!(way(directives, "/other"), Way::Passed { stored: false }, "{directives}");
    }
}

#[test]
fn options_that_restrict_close_all_sites() {
    for option in [
        "servers {\n  client_ip_headers X-Real-IP\n }",
        "firewall on",
        "servers {\n  trusted_proxies cloud\n }",
    ] {
        let text = format!("{{\n {option}\n}}\n:80 {{\n reverse_proxy 10.0.0.1:80\n}}\n");
        assert_eq!(ask(&convert(&text), "a.example", "GET", "/"), Way::Refused, "{option}");
    }
}

#[test]
fn an_address_that_is_not_known_is_not_listened_on() {
    let converted = convert(":80 {\n bind {$ADDRESS}\n reverse_proxy 10.0.0.1:80\n}\n");
    assert!(!converted.toml.contains("[[listen]]") && converted.toml.contains("deny all"));
}

#[test]
fn a_site_of_this_machine_is_not_opened_by_another_address() {
    let text = "http://a.example {\n bind 127.0.0.1\n reverse_proxy 10.0.0.1:80\n}\n\
        http://b.example {\n reverse_proxy 10.0.0.2:80\n}\n";
    let converted = convert(text);
    assert_eq!(ask(&converted, "a.example", "GET", "/"), Way::Refused);
    assert_eq!(ask(&converted, "b.example", "GET", "/"), Way::Passed { stored: false });
}

/// The same places, as `caddy adapt` writes them.
#[test]
fn json_is_closed_where_it_restricts() {
    let of = |routes: &str| {
        format!(
            "{{\"apps\": {{\"http\": {{\"servers\": {{\"s\": {{\"listen\": [\":80\"], \"routes\": [{routes}]}}}}}}}}}}"
        )
    };
    let proxy =
        r#"{"handle": [{"handler": "reverse_proxy", "upstreams": [{"dial": "10.0.0.1:80"}]}]}"#;
    let refusing = [
        r#"{"match": [{"path": ["/secret/*"]}], "handle": [{"handler": "static_response", "status_code": 403}]}"#,
        r#"{"match": [{"path": ["/secret/*"]}, {"path": ["/x"]}], "handle": [{"handler": "static_response", "status_code": 403}]}"#,
        r#"{"match": [{"not": [{"path": ["/open/*"]}]}], "handle": [{"handler": "static_response", "status_code": "403"}]}"#,
        r#"{"match": [{"not": [{"remote_ip": {"ranges": ["10.0.0.0/8"]}}]}], "handle": [{"handler": "static_response", "close": true}]}"#,
        r#"{"match": [{"odd": {}}], "handle": [{"handler": "static_response", "status_code": 403}]}"#,
        r#"{"handle": [{"handler": "authentication", "providers": {"http_basic": {"accounts": [{"username": "ann", "password": "x"}]}}}]}"#,
        r#"{"handle": [{"handler": "authentication", "providers": {"odd": {}}}]}"#,
        r#"{"handle": [{"handler": "odd"}]}"#,
        r#"{"match": [{"path": ["/secret/*"]}], "group": "g", "handle": [{"handler": "subroute", "routes": [{"handle": [{"handler": "static_response", "status_code": 404}]}]}]}"#,
        r#"{"match": [{"host": ["a.example"]}], "terminal": true, "handle": [{"handler": "static_response", "status_code": 403}]}"#,
    ];
    for route in refusing {
        let converted = convert(&of(&format!("{route}, {proxy}")));
        match ask(&converted, "a.example", "GET", "/secret/x") {
            Way::Refused | Way::Answered(400..) | Way::NoSite => {}
            way => panic!("{route}: {way:?}\n{}", converted.toml),
        }
    }
    assert_eq!(ask(&convert(&of(proxy)), "a.example", "GET", "/"), Way::Passed { stored: false });
}
