//! Configurations put together at random: every statement has one entry in the account, and what is said to be
//! complete is a file that Levada accepts.

use levada_config::{Source, Surroundings};
use levada_convert::{Conversion, InputFile, NoIncludes};
use proptest::{prelude::*, sample::select};

fn file(name: &str, text: &str) -> InputFile {
    InputFile { name: name.to_owned(), text: text.to_owned() }
}

/// Each line of the text has one statement, and no two are alike.
fn is_accounted_for(conversion: &Conversion, statements: usize, text: &str) {
    let ledger = &conversion.ledger;
    let told = ledger.taken + ledger.needless.len() + ledger.left.len();
    assert_eq!(told, statements, "{text}\n{ledger:#?}");
    for remark in ledger.needless.iter().chain(&ledger.left).chain(&ledger.differs) {
        assert!(!remark.reason.is_empty(), "{remark}");
    }
    let all: Vec<_> = ledger.needless.iter().chain(&ledger.left).map(|one| &one.place).collect();
    let mut once = all.clone();
    once.sort();
    once.dedup();
    assert_eq!(all.len(), once.len(), "a line has one fate: {ledger:#?}");
}

fn is_accepted_if_complete(conversion: &Conversion, from: &str) {
    if !conversion.is_complete() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(directory.path().join("www/x")).unwrap();
    for page in ["404.html", "down.html"] {
        std::fs::write(directory.path().join("www").join(page), "sorry").unwrap();
    }
    std::fs::write(directory.path().join("users"), "ann:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n")
        .unwrap();
    let root = directory.path().display().to_string();
    let text = conversion.toml.replace("/srv", &root);
    let surroundings =
        Surroundings { directory: directory.path(), variable: &|_| None, start_error: &|_| None };
    let checked = levada_config::check(&Source { name: "t".to_owned(), text }, &surroundings);
    assert!(checked.report.is_usable(), "{}\n{from}\n{}", checked.report, conversion.toml);
}

/// Directives that can stand in `http`, `server` and `location`.
const EVERYWHERE: &[&str] = &[
    "gzip on",
    "gzip_types text/css application/json",
    "gzip_min_length 100",
    "brotli on",
    "client_max_body_size 10m",
    "limit_req zone=one burst=5 nodelay",
    "limit_conn two 3",
    "limit_rate 100k",
    "allow 10.0.0.0/8",
    "deny all",
    "auth_basic Staff",
    "auth_basic off",
    "auth_basic_user_file users",
    "valid_referers none *.example.com",
    "add_header X-A a always",
    "add_header X-B $host",
    "proxy_hide_header X-A",
    "proxy_set_header X-C $remote_addr",
    "proxy_set_header Host $host",
    "proxy_set_header Connection \"\"",
    "expires 1d",
    "error_page 404 /404.html",
    "error_page 502 503 /down.html",
    "proxy_cache pages",
    "proxy_cache off",
    "proxy_cache_valid 200 302 10m",
    "proxy_cache_valid any 1m",
    "proxy_cache_key $host$uri$cookie_a",
    "proxy_cache_bypass $cookie_a $flag",
    "proxy_no_cache $http_x_b $flag",
    "proxy_cache_use_stale error updating http_500",
    "proxy_cache_min_uses 3",
    "proxy_ignore_headers Cache-Control Set-Cookie",
    "root /srv/www",
    "index index.html index.htm",
    "gzip_static on",
    "keepalive_timeout 10",
    "access_log /srv/log combined",
    "etag on",
    "unknown_word of 4",
];

const IN_SERVER: &[&str] = &[
    "rewrite ^/old/(.*)$ /new/$1 permanent",
    "rewrite ^/older/(.*)$ https://example.org/$1? redirect",
    "rewrite ^/in/(.*)$ /out/$1 last",
    "if ($http_user_agent ~* (bot|crawl)) { return 403; }",
    "if ($request_method !~ ^(GET|HEAD|POST)$) { return 405; }",
    "if ($moved) { return 301 $moved; }",
    "if ($blocked) { return 403; }",
    "if ($args ~ nocache) { set $flag 1; }",
    "set $flag 0",
    "set $target https://example.net",
];

const CONTENT: &[&str] = &[
    "proxy_pass http://app",
    "proxy_pass http://10.0.0.9:8000",
    "proxy_pass http://10.0.0.9/base/",
    "return 301 https://$host$request_uri",
    "return 302 $target/x$is_args$args",
    "return 200 \"text {x}\"",
    "return 404",
    "root /srv/www",
    "try_files $uri $uri/ =404",
    "try_files $uri /index.html",
    "alias /srv/www/x/",
];

const LOCATIONS: &[&str] =
    &["/", "/a/", "/a/b/", "= /exact", "^~ /first/", "~ \\.(png|jpg)$", "~* ^/x/([a-z]+)/(.*)$"];

fn some(of: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(of, 0..=most.min(of.len()))
}

fn nginx() -> impl Strategy<Value = String> {
    let location = (select(LOCATIONS), some(EVERYWHERE, 4), select(CONTENT));
    let server =
        (some(EVERYWHERE, 4), some(IN_SERVER, 3), proptest::collection::vec(location, 1..4));
    (some(EVERYWHERE, 3), proptest::collection::vec(server, 1..3)).prop_map(|(http, servers)| {
        let mut text = "proxy_cache_path /srv/cache keys_zone=pages:10m max_size=1g;\n\
            limit_req_zone $binary_remote_addr zone=one:1m rate=5r/s;\n\
            limit_conn_zone $binary_remote_addr zone=two:1m;\n\
            map $uri $moved { default \"\"; /about /team; }\n\
            geo $blocked { default 0; 192.0.2.0/24 1; }\n\
            upstream app {\nserver 10.0.0.1:8000;\nserver 10.0.0.2:8000;\n}\n"
            .to_owned();
        let line = |text: &str| match text.contains('{') && !text.contains('"') {
            true => text.replace("{ ", "{\n").replace(" }", "\n}") + "\n",
            false => format!("{text};\n"),
        };
        text.extend(http.iter().map(|one| line(one)));
        for (number, (settings, more, locations)) in servers.iter().enumerate() {
            text += &format!("server {{\nlisten 80;\nserver_name h{number}.example;\n");
            text.extend(settings.iter().chain(more).map(|one| line(one)));
            for (at, settings, content) in locations {
                text += &format!("location {at} {{\n");
                text.extend(settings.iter().map(|one| line(one)));
                text += &line(content);
                text += "}\n";
            }
            text += "}\n";
        }
        text
    })
}

const VCL: &[&str] = &[
    "set req.backend_hint = other;",
    "unset req.http.X-A;",
    "set req.http.X-B = \"b-\" + client.ip;",
    "unset req.http.Cookie;",
    "set req.url = std.querysort(req.url);",
    "set req.url = regsub(req.url, \"^/old/\", \"/new/\");",
    "set req.http.Cookie = regsuball(req.http.Cookie, \"_ga=[^;]+(; )?\", \"\");",
    "return (pass);",
    "return (hash);",
    "return (synth(403, \"no\"));",
    "return (synth(301, \"https://example.org/\"));",
    "std.log(\"x\");",
];

const CONDITIONS: &[&str] = &[
    "req.url ~ \"^/admin\"",
    "req.url !~ \"^/(admin|login)\"",
    "req.http.host == \"a.example\"",
    "req.http.X-C",
    "!req.http.X-C",
    "client.ip ~ staff",
    "!(client.ip ~ staff)",
    "req.method == \"POST\" && req.http.Cookie ~ \"session=(a|b)\"",
    "req.http.X-D == \"1\" || req.url ~ \"\\.(png|jpg)(\\?.*)?$\"",
];

fn vcl() -> impl Strategy<Value = String> {
    let block = (select(CONDITIONS), some(VCL, 3), proptest::option::of(some(VCL, 2)));
    (proptest::collection::vec(block, 0..4), some(VCL, 3)).prop_map(|(blocks, last)| {
        let mut text = "vcl 4.1;\nimport std;\nbackend first {\n.host = \"10.0.0.1\";\n}\n\
            backend other {\n.host = \"10.0.0.2\";\n}\nacl staff {\n\"192.0.2.0\"/24;\n}\nsub vcl_recv {\n"
            .to_owned();
        for (condition, inner, otherwise) in blocks {
            text += &format!("if ({condition}) {{\n{}\n}}\n", inner.join("\n"));
            if let Some(otherwise) = otherwise {
                text += &format!("else {{\n{}\n}}\n", otherwise.join("\n"));
            }
        }
        text + &last.join("\n") + "\n}\n"
    })
}

const REMAP: &[&str] = &[
    "map http://a.example/ http://10.0.0.1:8000/",
    "map https://a.example/ http://10.0.0.1:8000/",
    "map http://a.example/b/ http://10.0.0.2/c/",
    "map http://a.example/d http://10.0.0.2/d @action=allow @src_ip=10.0.0.0/8",
    "map http://b.example/ http://10.0.0.3/x/",
    "map http://c.example/ http://10.0.0.3/ @plugin=cachekey.so @pparam=--sort-params=true",
    "map http://d.example/ http://10.0.0.3/ @plugin=unknown.so",
    "redirect http://old.example/ https://a.example/",
    "redirect_temporary http://a.example/e/ https://b.example/f/",
    "regex_map http://x(.*).example/ http://10.0.0.4/",
    "nonsense",
];

/// Lines that say something, but for braces.
fn statements(text: &str) -> usize {
    text.lines().filter(|line| !matches!(line.trim(), "" | "}")).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_directive_of_nginx_has_one_fate(text in nginx()) {
        let conversion = levada_convert::nginx(&file("nginx.conf", &text), &NoIncludes).unwrap();
        is_accounted_for(&conversion, statements(&text), &text);
        is_accepted_if_complete(&conversion, &text);
    }

    #[test]
    fn every_statement_of_vcl_has_one_fate(text in vcl()) {
        let conversion = levada_convert::varnish(&file("default.vcl", &text), &NoIncludes).unwrap();
        is_accounted_for(&conversion, statements(&text), &text);
        is_accepted_if_complete(&conversion, &text);
    }

    #[test]
    fn every_line_of_traffic_server_has_one_fate(lines in some(REMAP, REMAP.len())) {
        let text = lines.join("\n");
        let files = [file("remap.config", &text)];
        let conversion = levada_convert::trafficserver(&files, &NoIncludes).unwrap();
        is_accounted_for(&conversion, statements(&text), &text);
        if !lines.is_empty() {
            is_accepted_if_complete(&conversion, &text);
        }
    }
}

/// Fields of a delivery service that let all clients pass,
const OPEN: &[&str] = &[
    r#""qstringIgnore": 1"#,
    r#""rangeRequestHandling": 3"#,
    r#""dscp": 40"#,
    r#""maxOriginConnections": 7"#,
    r#""fqPacingRate": 100"#,
    r#""tlsVersions": ["1.2", "1.3"]"#,
    r#""edgeHeaderRewrite": "set-header X-A a\nrm-header X-B""#,
    r#""regexRemap": "^/a/([0-9]+)$ https://b.example/c/$1""#,
    r#""remapText": "@plugin=cachekey.so""#,
    r#""protocol": 2"#,
];

/// and those that do not.
const CLOSED: &[&str] = &[
    r#""signingAlgorithm": "url_sig""#,
    r#""signed": true"#,
    r#""geoLimit": 2, "geoLimitCountries": ["AT"]"#,
    r#""regionalGeoBlocking": true"#,
    r#""anonymousBlockingEnabled": true"#,
    r#""midHeaderRewrite": "cond %{CLIENT-IP} =10.0.0.1\nset-status 403""#,
];

fn service(number: usize, fields: &[&str]) -> String {
    format!(
        r#"{{"xmlId": "s{number}", "active": true, "type": "DNS", "orgServerFqdn": "http://o{number}.example",
        "matchList": [{{"type": "HOST_REGEXP", "setNumber": 0, "pattern": "h{number}.example"}}], {}}}"#,
        fields.join(", ")
    )
}

/// Whether the site refuses everybody.
fn is_closed(site: &toml::Table) -> bool {
    site["site"][0].get("access").is_some_and(|access| access.as_str() == Some("deny all"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_service_of_traffic_control_is_open_only_if_nothing_restricts_it(
        services in proptest::collection::vec((some(OPEN, 4), some(CLOSED, 1)), 1..4),
    ) {
        let texts = services.iter().enumerate().map(|(number, (open, closed))| {
            service(number, &[&["\"dscp\": 0"], &open[..], &closed[..]].concat())
        });
        let texts = format!("{{\"response\": [{}]}}", texts.collect::<Vec<_>>().join(", "));
        let snapshot = r#"{"contentServers": {"e": {"cacheGroup": "eu", "ip": "192.0.2.1", "type": "EDGE"}}}"#;
        let files = [file("snapshot.json", snapshot), file("services.json", &texts)];
        let fleet = levada_convert::trafficcontrol(&files).unwrap();
        let mut node = format!("name = \"e\"\n{}", fleet.files["node.toml"]);
        for (number, (_, closed)) in services.iter().enumerate() {
            let text = &fleet.files[&format!("sites/s{number}.toml")];
            prop_assert_eq!(is_closed(&text.parse().unwrap()), !closed.is_empty(), "{}", text);
            node += text;
        }
        let directory = tempfile::tempdir().unwrap();
        let surroundings =
            Surroundings { directory: directory.path(), variable: &|_| None, start_error: &|_| None };
        let source = Source { name: "t".to_owned(), text: node };
        let checked = levada_config::check(&source, &surroundings);
        prop_assert!(checked.report.is_usable(), "{}\n{}", checked.report, source.text);
    }
}
