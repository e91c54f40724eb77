//! Every statement by which another server keeps clients out is converted, or closes its place: the new file is checked
//! and asked as a node asks it. What keeps responses out of the cache is converted, or nothing is stored.

use std::{net::IpAddr, sync::LazyLock};

use http::{HeaderMap, Method};
use levada_access::{access::AccessRequest, signed::RequestUrl, site_access::SiteAccess};
use levada_config::{HostTable, RoutedBy, Settings, Source, Surroundings};
use levada_convert::{Conversion, InputFile, NoIncludes};
use levada_rules::RouteAnswer;
use levada_store::identity::ResourceUrl;

fn file(name: &str, text: &str) -> InputFile {
    InputFile { name: name.to_owned(), text: text.to_owned() }
}

fn settings(conversion: &Conversion) -> Settings {
    let directory = tempfile::tempdir().unwrap();
    static PAIR: LazyLock<[String; 2]> = LazyLock::new(|| {
        let certified = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        [certified.cert.pem(), certified.signing_key.serialize_pem()]
    });
    std::fs::create_dir(directory.path().join("www")).unwrap();
    for (name, text) in [
        ("users", "ann:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n".to_owned()),
        ("link.secret", "a secret of a link\n".to_owned()),
        ("ca.pem", PAIR[0].clone()),
        ("a.pem", PAIR[0].clone()),
        ("a.key", PAIR[1].clone()),
    ] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let root = directory.path().display().to_string();
    let text = conversion.toml.replace("/srv", &root);
    let surroundings =
        Surroundings { directory: directory.path(), variable: &|_| None, start_error: &|_| None };
    let checked = levada_config::check(&Source { name: "t".to_owned(), text }, &surroundings);
    assert!(checked.report.is_usable(), "{}\n{}", checked.report, conversion.toml);
    checked.settings.unwrap()
}

/// The way of a request through a node.
#[derive(Debug, PartialEq)]
enum Way {
    Refused,
    Answered(u16),
    /// To a server or a file, and whether the response is stored.
    Passed {
        stored: bool,
    },
}

const CLIENT: &str = "192.0.2.77";

fn ask(conversion: &Conversion, method: &str, target: &str) -> Way {
    let settings = settings(conversion);
    let sites = HostTable::new(settings.sites.iter().map(|site| (&site.hosts[..], site)));
    let site = *sites.find("a.example").expect("a site for the host");
    let (client, headers) = (CLIENT.parse::<IpAddr>().unwrap(), HeaderMap::new());
    let method: Method = method.parse().unwrap();
    let by = RoutedBy { client, method: &method, headers: &headers };
    let url = ResourceUrl::new("http", "a.example", target);
    let mut place = site.routes.place(&by, url, None, &mut |_| {}).unwrap();
    // No file is there.
    loop {
        let route = place.number.map(|number| &site.routes.all[number]);
        let handling = route.map_or(&site.handling, |route| &route.handling);
        let servers = route.and_then(|route| route.servers.as_ref()).unwrap_or(&site.servers);
        let Some(to) = handling.without_file().filter(|_| servers.files.is_some()) else { break };
        place = site.routes.go_on(&by, place.clone(), (to, "no file"), &mut |_| {}).unwrap();
    }
    let (number, target) = (place.number, place.url.target());
    let route = number.map(|number| &site.routes.all[number]);
    let all = site.routes.all.iter().map(|route| &route.handling.access);
    let access = SiteAccess::new(&site.handling.access, all, None, 1);
    let access = match number {
        Some(number) => access.of_route(number),
        None => access.own(),
    };
    if let Some(access) = access {
        let url = RequestUrl { scheme: "http", host: "a.example", target };
        let request = AccessRequest {
            client,
            host: "a.example",
            url,
            method: &method,
            headers: &headers,
            now: 0,
            unix: 1_800_000_000,
            nodes: 1,
        };
        if access.admit(&request).is_err() || access.asks_for_password() || access.asks_server() {
            return Way::Refused;
        }
    }
    match route.and_then(|route| route.answer.as_ref()) {
        Some(RouteAnswer::Respond { status, .. } | RouteAnswer::Redirect { status, .. }) => {
            Way::Answered(status.as_u16())
        }
        None => Way::Passed { stored: route.map_or(&site.handling, |route| &route.handling).cache },
    }
}

/// The requests that were to be refused, and were not.
#[derive(Default)]
struct Tried {
    all: usize,
    open: Vec<String>,
}

impl Tried {
    fn is_kept_out(&mut self, conversion: &Conversion, method: &str, target: &str, source: &str) {
        let way = ask(conversion, method, target);
        self.all += 1;
        match way {
            Way::Refused | Way::Answered(400..) => {}
            _ => self.open.push(format!("{method} {target}: {way:?}\n  {source}")),
        }
    }

    fn end(self, least: usize) {
        let open = self.open.join("\n");
        println!("{} places were tried", self.all);
        assert!(self.open.is_empty(), "{} of {} are open:\n{open}", self.open.len(), self.all);
        assert!(self.all >= least, "{}", self.all);
    }
}

fn nginx(text: &str) -> Conversion {
    levada_convert::nginx(&file("nginx.conf", text), &NoIncludes).unwrap()
}

/// Directives with which nginx refuses a GET of the client, at all levels
const EVERYWHERE: &[&str] = &[
    "deny all;",
    "deny 192.0.2.77;",
    "allow 10.0.0.0/8; deny all;",
    "allow unix:; deny all;",
    "auth_basic Staff; auth_basic_user_file users;",
    "auth_basic $realm; auth_basic_user_file users;",
    "auth_basic Staff; auth_basic_user_file $users;",
    "auth_basic Staff;",
    "auth_request /nowhere;",
    "auth_jwt Staff;",
    "auth_jwt Staff token=$cookie_token; auth_jwt_key_file keys;",
    "auth_jwt_require $claim;",
    "auth_pam Staff;",
    "auth_ldap Staff;",
    "auth_digest Staff;",
    "auth_gss on;",
    "auth_spnego on;",
    "auth_oidc provider;",
    "accesskey on;",
    "akamai_token_validate $token;",
    "app_protect_enable on;",
    "SecRulesEnabled;",
    "access_by_lua_file access.lua;",
    "access_by_lua_block { ngx.exit(403) }",
    "rewrite_by_lua_file access.lua;",
    "js_access main.check;",
    "modsecurity on;",
    "testcookie_deny on;",
    "unknown_block { deny all; }",
    "include /nowhere/rules.conf;",
    "satisfy any; allow 10.0.0.0/8; deny all; auth_basic Staff; auth_basic_user_file users;",
    "set_real_ip_from 192.0.2.0/24; real_ip_header X-Real-IP; allow 192.0.2.0/24; deny all;",
    "set_real_ip_from 192.0.2.0/24; allow 192.0.2.0/24; deny all;",
    "set_real_ip_from balancer.example; real_ip_header X-Forwarded-For; allow 192.0.2.0/24; deny all;",
];

/// in `server` and `location`,
const IN_SERVER: &[&str] = &[
    "return 403;",
    "return 401 \"who are you\";",
    "return 403 \"not you, $remote_addr\";",
    "return 444;",
    "if ($msec) { return 403; }",
    "if ($nobody_knows_it) { return 444; }",
    "if ($nobody_knows_it) { deny all; }",
    "if ($nobody_knows_it) { return 302 https://login.example/; }",
    "if ($http_x !~ (?!a)b) { return 401; }",
    "if (-f /srv/closed) { return 503; }",
    "if ($ssl_client_verify != SUCCESS) { return 403; }",
    "if ($http_x ~ (?<=a)b) { set $bad 1; } if ($bad) { return 403; }",
    "set $bad 1; if ($msec) { set $bad 0; } if ($bad) { return 403; }",
    "if ($request_method !~ ^(POST|PUT)$) { return 405; }",
    "if ($http_authorization = \"\") { return 401; }",
    "if ($remote_addr = 192.0.2.77) { return 403; }",
    "set_real_ip_from 10.0.0.0/8; if ($remote_addr != 10.0.0.9) { return 403; }",
    "secure_link $arg_md5,$arg_expires; secure_link_md5 \"$secure_link_expires$uri word\";",
    "secure_link $arg_md5,$arg_expires; secure_link_md5 \"$secure_link_expires$cookie_a word\";",
    "secure_link_secret word;",
    "valid_referers server_names ~\\.example\\.; if ($invalid_referer) { return 403; }",
    "valid_referers server_names; if ($invalid_referer) { return 403; }",
    "rewrite (?!a)^ https://login.example/ redirect;",
];

/// and in `location` alone.
const IN_LOCATION: &[&str] = &[
    "internal;",
    "limit_except POST { deny all; }",
    "limit_except POST PUT { auth_basic Staff; auth_basic_user_file users; }",
    "limit_except POST { auth_pam Staff; }",
    "limit_except POST { allow 10.0.0.0/8; deny all; }",
];

#[test]
fn what_nginx_refuses_is_refused() {
    let mut tried = Tried::default();
    let app = "proxy_pass http://127.0.0.1:9;";
    assert_eq!(
        ask(
            &nginx(&format!("server {{ server_name a.example; location / {{ {app} }} }}")),
            "GET",
            "/x"
        ),
        Way::Passed { stored: false }
    );
    for rule in EVERYWHERE {
        let source = format!("{rule} server {{ server_name a.example; location / {{ {app} }} }}");
        tried.is_kept_out(&nginx(&source), "GET", "/x", &source);
    }
    for rule in EVERYWHERE.iter().chain(IN_SERVER) {
        let source = format!(
            "server {{ server_name a.example; {rule} location / {{ {app} }} location /x {{ {app} }} }}"
        );
        tried.is_kept_out(&nginx(&source), "GET", "/x", &source);
        tried.is_kept_out(&nginx(&source), "GET", "/", &source);
    }
    for rule in EVERYWHERE.iter().chain(IN_SERVER).chain(IN_LOCATION) {
        for at in ["/x", "= /x/y", "^~ /x/", "~ ^/x", "~ ^/(?!z)x"] {
            let source = format!(
                "server {{ server_name a.example; location / {{ {app} }} location {at} {{ {rule} {app} }} }}"
            );
            tried.is_kept_out(&nginx(&source), "GET", "/x/y", &source);
        }
        let source = format!(
            "server {{ server_name a.example; root /srv/www; location /x {{ {rule} }} location /z {{ {app} }} }}"
        );
        tried.is_kept_out(&nginx(&source), "GET", "/x/y", &source);
        let source = format!(
            "server {{ server_name a.example; location / {{ {app} location /x {{ {rule} {app} }} }} }}"
        );
        tried.is_kept_out(&nginx(&source), "GET", "/x/y", &source);
    }
    tried.end(500);
}

#[test]
fn no_way_leads_around_a_protected_location_of_nginx() {
    let mut tried = Tried::default();
    let server = |text: &str| format!("server {{ server_name a.example; {text} }}");
    for (source, target) in [
        // By a rewrite into it.
        (server("rewrite ^/y/(.*)$ /x/$1 last; location / { proxy_pass http://h; } location /x/ { deny all; proxy_pass http://h; }"), "/y/1"),
        (server("location / { proxy_pass http://h; } location /y/ { rewrite ^/y/(.*)$ /x/$1; proxy_pass http://h; } location /x/ { deny all; proxy_pass http://h; }"), "/y/1"),
        // By the file of a directory, and by the one for what is missing.
        (server("root /srv/www; location / { index index.html; } location ~ \\.html$ { deny all; }"), "/"),
        (server("root /srv/www; location / { try_files $uri /shell.html; } location = /shell.html { deny all; }"), "/q"),
        // By the absence of content.
        (server("root /srv/www; location /x/ { proxy_pass http://$nobody; }"), "/x/y"),
        (server("root /srv/www; location ~ \\.php$ { fastcgi_pass h; }"), "/x.php"),
        (server("root /srv/www; location ~ (?!a)\\.php$ { fastcgi_pass h; }"), "/x.php"),
        ("server { server_name a.example; return 403 $nobody; } server { listen 80 default_server; location / { proxy_pass http://h; } }".to_owned(), "/"),
        // By the order of locations.
        (
            server(
                "location ^~ /a/ { proxy_pass http://h; } location /a/b/ { deny all; proxy_pass http://h; } \
                 location ~ x { proxy_pass http://h; }",
            ),
            "/a/b/c",
        ),
        (
            server(
                "location ^~ /a/ { proxy_pass http://h; } location /a/b/ { proxy_pass http://h; } \
                 location ~ \\.ht { deny all; proxy_pass http://h; }",
            ),
            "/a/b/.ht",
        ),
        (
            server("location /a { deny all; proxy_pass http://h; } location /a/ { proxy_pass http://h; }"),
            "/a",
        ),
        // By a query, and by a network in another one.
        (
            server("if ($request_uri != /x) { return 403; } location / { proxy_pass http://h; }"),
            "/x?y",
        ),
        (
            server("if ($request_uri !~ ^/x$) { return 403; } location / { proxy_pass http://h; }"),
            "/x?y",
        ),
        (
            format!(
                "geo $ok {{ default 0; 192.0.2.0/24 1; 192.0.2.77 0; }} {}",
                server("location / { if ($ok) { proxy_pass http://h; } return 403; }")
            ),
            "/",
        ),
        (
            format!(
                "map $http_x $bad {{ default 0; include /nowhere; }} {}",
                server("if ($bad) { return 403; } location / { proxy_pass http://h; }")
            ),
            "/",
        ),
        // By a name that is no host, and by a socket.
        (
            "server { server_name ~^a\\.; deny all; } server { listen 80 default_server; location / { proxy_pass \
             http://h; } }"
                .to_owned(),
            "/",
        ),
        (
            "server { server_name ~^a\\.; return 403; } server { listen 80 default_server; location / { proxy_pass \
             http://h; } }"
                .to_owned(),
            "/",
        ),
        (
            "server { server_name a.*; server_name b.example; deny all; location / { proxy_pass http://h; } } \
             server { listen 80 default_server; location / { proxy_pass http://h; } }"
                .to_owned(),
            "/",
        ),
        (
            "server { listen unix:/run/s; server_name a.example; location / { proxy_pass http://inner; } } \
             server { listen 80 default_server; return 404; }"
                .to_owned(),
            "/",
        ),
        // By another port, or another address.
        ("server { listen 127.0.0.1:8080; server_name a.example; location / { proxy_pass http://h; } } server { listen 80; server_name b.example; return 404; }".to_owned(), "/"),
        ("server { listen 8080; server_name a.example; location / { proxy_pass http://h; } } server { listen 80; server_name a.example; deny all; location / { proxy_pass http://h; } }".to_owned(), "/"),
    ] {
        tried.is_kept_out(&nginx(&source), "GET", target, &source);
    }
    tried.end(19);
}

#[test]
fn a_cache_of_nginx_whose_key_or_exception_is_not_converted_stores_nothing() {
    let location = |rule: &str| {
        format!(
            "proxy_cache_path /srv/c keys_zone=z:1m; map $http_x $by_map {{ default 0; ~*(?=a)b 1; }} server {{ \
             server_name a.example; proxy_cache z; location / {{ {rule} proxy_pass http://127.0.0.1:9; }} }}"
        )
    };
    for rule in ["proxy_cache_key $scheme$host$request_uri;", "proxy_no_cache $cookie_session;"] {
        assert_eq!(ask(&nginx(&location(rule)), "GET", "/"), Way::Passed { stored: true });
    }
    for rule in [
        "proxy_cache_key $host$request_uri$remote_user;",
        "proxy_cache_key $host$request_uri$by_map;",
        "proxy_no_cache $by_map;",
        "proxy_cache_bypass $nobody_knows_it;",
        "proxy_cache_bypass $http_x$nobody;",
        "set $skip 0; if ($http_x ~ (?<=a)b) { set $skip 1; } proxy_no_cache $skip;",
        "set $skip 0; if ($msec) { set $skip 1; } proxy_cache_bypass $skip;",
        "proxy_cache $zone;",
        "srcache_fetch GET /memc;",
    ] {
        let source = location(rule);
        assert_eq!(ask(&nginx(&source), "GET", "/"), Way::Passed { stored: false }, "{source}");
    }
}

fn vcl(text: &str) -> Conversion {
    let text = format!(
        "vcl 4.1; backend b {{ .host = \"10.0.0.1\"; }} acl here {{ \"10.0.0.0\"/8; }} \
         acl odd {{ \"10.0.0.0\"/8; ! \"10.0.0.9\"; }} {text}"
    );
    levada_convert::varnish(&file("default.vcl", &text), &NoIncludes).unwrap()
}

#[test]
fn what_varnish_refuses_is_refused() {
    let mut tried = Tried::default();
    assert_eq!(ask(&vcl(""), "GET", "/x"), Way::Passed { stored: true });
    for recv in [
        "return (synth(403));",
        "return (synth(401, \"who\"));",
        "return (synth(750, \"who\"));",
        "return (fail);",
        "error 403 \"no\";",
        "call check;",
        "call nowhere;",
        "basicauth.check();",
        "if (client.ip !~ here) { return (synth(403)); }",
        "if (!(client.ip ~ here)) { return (synth(405)); }",
        "if (client.ip !~ odd) { return (synth(403)); }",
        "if (client.ip ~ nowhere) { return (synth(403)); }",
        "if (client.ip ~ odd) { set req.http.x = \"1\"; } else { return (synth(403)); }",
        "if (!req.http.Authorization) { return (synth(401)); }",
        "if (req.http.Authorization !~ \"Basic YTpi\") { return (synth(401)); }",
        "if (req.method != \"GET\" || req.url ~ \"x\") { return (synth(405)); }",
        "if (req.restarts == 0) { return (synth(403)); }",
        "if (std.port(server.ip) == 80) { return (synth(403)); }",
        "if (vsthrottle.is_denied(client.identity, 15, 10s)) { return (synth(429)); }",
        "if (req.http.x ~ \"(?!a)b\") { return (synth(403)); }",
        "if (req.http.x ~ \"(?!a)b\") { return (fail); }",
        "if (req.url ~ \"^/x\") { set req.backend_hint = b; } if (!(client.ip ~ here)) { return (synth(403)); }",
        "if (req.url ~ \"^/x\") { set req.backend_hint = b; } return (synth(403));",
        "if (req.url ~ \"^/x\") { if (req.http.y ~ \"(?!a)b\") { return (synth(403)); } set req.backend_hint = b; }",
        "if (req.http.host == \"a.example\") { return (synth(403)); } if (req.url ~ \"^/x\") { return (pass); }",
        "if (req.http.host == \"a.example\") { if (std.random(0, 1) > 2) { return (synth(403)); } }",
        "if (req.url != \"/x/\") { return (synth(403)); }",
        "if (req.url ~ \"^/y$\") { return (pass); } return (synth(403));",
        "if (client.ip ~ here) { return (pass); } else { return (synth(403)); }",
    ] {
        let source = format!("sub vcl_recv {{ {recv} }} sub check {{ return (synth(403)); }}");
        tried.is_kept_out(&vcl(&source), "GET", "/x", &source);
    }
    for sub in [
        "sub vcl_hash { return (synth(403)); }",
        "sub vcl_deliver { return (synth(403)); }",
        "sub vcl_deliver { set resp.status = 403; }",
        "sub vcl_deliver { if (req.http.x == \"\") { return (synth(403)); } }",
        "sub vcl_deliver { if (!req.http.Authorization) { return (synth(401)); } }",
        "sub vcl_backend_response { return (abandon); }",
        "sub vcl_backend_response { return (fail); }",
        "sub vcl_backend_response { set beresp.status = 403; }",
        "sub vcl_backend_response { if (beresp.http.x-private ~ \"yes\") { return (abandon); } }",
        "sub vcl_backend_fetch { return (abandon); }",
        "sub vcl_hit { return (synth(403)); }",
        "sub vcl_miss { if (req.http.x) { return (synth(403)); } }",
        "sub vcl_pass { return (fail); }",
        "sub vcl_pipe { return (synth(403)); }",
        "sub vcl_recv { call a; } sub a { call b; } sub b { return (synth(403)); }",
    ] {
        tried.is_kept_out(&vcl(sub), "GET", "/x", sub);
    }
    tried.end(40);
}

#[test]
fn what_varnish_does_not_store_by_a_condition_that_is_not_converted_is_not_stored() {
    for sub in [
        "sub vcl_recv { if (req.http.Cookie ~ \"(?!a)b\") { return (pass); } return (hash); }",
        "sub vcl_recv { if (std.random(0, 1) > 2) { return (pass); } return (hash); }",
        "sub vcl_hash { hash_data(req.http.host); hash_data(cookie.get(\"user\")); }",
        "sub vcl_backend_response { if (beresp.http.x-private ~ \"yes\") { set beresp.uncacheable = true; } }",
        "sub vcl_backend_response { set beresp.ttl = std.duration(beresp.http.x, 0s); }",
    ] {
        let source = vcl(sub);
        assert_eq!(
            ask(&source, "GET", "/x"),
            Way::Passed { stored: false },
            "{sub}\n{}",
            source.toml
        );
    }
    let errors = "sub vcl_backend_response { if (beresp.status >= 500 && bereq.is_bgfetch) { return (abandon); } }";
    assert_eq!(ask(&vcl(errors), "GET", "/x"), Way::Passed { stored: true });
}

fn trafficserver(files: &[(&str, &str)]) -> Conversion {
    let files: Vec<_> = files.iter().map(|(name, text)| file(name, text)).collect();
    levada_convert::trafficserver(&files, &NoIncludes).unwrap()
}

#[test]
fn what_traffic_server_refuses_is_refused() {
    let mut tried = Tried::default();
    let map = "map http://a.example/ http://127.0.0.1:9/";
    assert_eq!(
        ask(&trafficserver(&[("remap.config", map)]), "GET", "/x"),
        Way::Passed { stored: true }
    );
    for options in [
        "@action=deny",
        "@action=deny @src_ip=192.0.2.77",
        "@action=deny @src_ip=192.0.2.0-192.0.2.255",
        "@action=deny @src_ip=~10.0.0.0/8",
        "@action=allow @src_ip=10.0.0.0/8",
        "@action=allow @src_ip=10.0.0.0-10.0.0.9",
        "@action=allow @src_ip=10.0.0.0/8 @method=GET",
        "@action=allow @src_ip_category=STAFF",
        "@action=deny @method=GET",
        "@action=allow @method=POST",
        "@action=allow @internal",
        "@action=deny @in_ip=127.0.0.1",
        "@action=guess @src_ip=192.0.2.77",
        "@src_ip=192.0.2.77",
        "@plugin=url_sig.so @pparam=keys.config",
        "@plugin=uri_signing.so @pparam=keys.json",
        "@plugin=access_control.so @pparam=--x",
        "@plugin=header_rewrite.so @pparam=deny.config",
        "@plugin=/opt/lib/geoip_acl.so @pparam=country",
        "@plugin=tslua.so @pparam=a.lua",
        "@plugin=unknown.so",
    ] {
        let source = format!("{map} {options}");
        tried.is_kept_out(&trafficserver(&[("remap.config", &source)]), "GET", "/x", &source);
        let source = format!("{map}x/ {options}\n{map}");
        tried.is_kept_out(&trafficserver(&[("remap.config", &source)]), "GET", "/x/y", &source);
        let source = format!(
            "map https://a.example/ http://h/ {options}\nmap http://a.example/ http://h/ {options}"
        );
        tried.is_kept_out(&trafficserver(&[("remap.config", &source)]), "GET", "/x/y", &source);
        let filters: Vec<_> = options.split(' ').filter(|one| !one.starts_with("@p")).collect();
        if !filters.is_empty() {
            let source = format!(
                ".definefilter one {}\n.activatefilter one\n{map}x/\n.deactivatefilter one\n{map}",
                filters.join(" ")
            );
            tried.is_kept_out(&trafficserver(&[("remap.config", &source)]), "GET", "/x/y", &source);
        }
    }
    for source in [
        ".activatefilter nobody\nmap http://a.example/ http://h/",
        ".unknown one\nmap http://a.example/ http://h/",
        "map_with_referer http://a.example/x/ http://h/x/ http://a.example/no ~.*\nmap http://a.example/ http://h/",
        "regex_map http://(.*).example/x/ http://h/ @action=deny\nmap http://a.example/ http://h/",
        "map http://a.example/ http://h/ @action=deny\nmap http://a.example/x/ http://h/",
    ] {
        tried.is_kept_out(&trafficserver(&[("remap.config", source)]), "GET", "/x/y", source);
    }
    tried.end(70);
}

#[test]
fn the_files_of_traffic_server_that_hold_for_all_sites_close_them() {
    let mut tried = Tried::default();
    let map = ("remap.config", "map http://a.example/ http://127.0.0.1:9/");
    let default = "ip_allow:\n  - apply: in\n    ip_addrs: 127.0.0.1\n    action: allow\n    methods: ALL\n  \
        - apply: in\n    ip_addrs: 0/0\n    action: deny\n    methods:\n      - PURGE\n      - PUSH\n      - DELETE\n";
    let usual = trafficserver(&[("ip_allow.yaml", default), map]);
    assert_eq!(ask(&usual, "GET", "/x"), Way::Passed { stored: true }, "{}", usual.toml);
    tried.is_kept_out(&usual, "DELETE", "/x", default);
    for (name, text) in [
        (
            "ip_allow.yaml",
            "ip_allow:\n  - apply: in\n    ip_addrs: 192.0.2.77\n    action: deny\n    methods: ALL",
        ),
        (
            "ip_allow.yaml",
            "ip_allow:\n  - apply: in\n    ip_addrs: [192.0.2.0/24, 10.0.0.0/8]\n    action: set_deny",
        ),
        (
            "ip_allow.yaml",
            "ip_allow:\n  - apply: in\n    ip_addrs: 192.0.2.0-192.0.2.255\n    action: deny",
        ),
        (
            "ip_allow.yaml",
            "ip_allow:\n  - apply: in\n    ip_addrs: 0/0\n    action: allow\n    methods: [POST]",
        ),
        ("ip_allow.yaml", "ip_allow:\n  - apply: in\n    ip_categories: STAFF\n    action: deny"),
        ("ip_allow.yaml", "ip_allow: { apply: in, ip_addrs: 0/0, action: deny }"),
        ("ip_allow.config", "src_ip=192.0.2.77 action=ip_deny method=ALL"),
        ("ip_allow.config", "src_ip=192.0.2.0-192.0.2.255 action=ip_deny method=ALL"),
        ("ip_allow.config", "src_ip=0.0.0.0-255.255.255.255 action=ip_deny method=GET|HEAD"),
        ("plugin.config", "tslua.so rules.lua"),
        ("plugin.config", "header_rewrite.so deny.config"),
        ("sni.yaml", "sni:\n- fqdn: a.example\n  verify_client: STRICT"),
        (
            "records.config",
            "CONFIG proxy.config.http.server_ports STRING 80\nCONFIG proxy.config.ssl.client.certification_level INT 2",
        ),
        ("records.config", "CONFIG proxy.config.http.quick_filter.mask INT 0x482"),
        ("records.yaml", "records:\n  ssl:\n    client:\n      certification_level: 2\n"),
    ] {
        tried.is_kept_out(&trafficserver(&[(name, text), map]), "GET", "/x", text);
    }
    for (name, text) in [
        ("cache.config", "dest_domain=a.example suffix=php action=never-cache"),
        ("plugin.config", "cachekey.so --include-cookies=user"),
        (
            "remap.config",
            "map http://a.example/ http://h/ @plugin=cachekey.so @pparam=--include-cookies=u",
        ),
    ] {
        let files =
            if name == "remap.config" { vec![(name, text)] } else { vec![(name, text), map] };
        let conversion = trafficserver(&files);
        assert_eq!(
            ask(&conversion, "GET", "/x"),
            Way::Passed { stored: false },
            "{}",
            conversion.toml
        );
    }
    tried.end(15);
}
