//! Configurations of nginx put together at random: one of which the account says that it answers alike does so.

use std::{env, fs, path::Path};

use proptest::{
    prelude::*,
    sample::{select, subsequence},
    strategy::ValueTree as _,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use crate::{
    echo, fronts,
    pair::{Asked, compared},
};

/// Configurations that are compared; `LEVADA_PORT_CONFIGURATIONS` asks for another number, and `LEVADA_PORT_SEED` for
/// other ones.
const CONFIGURATIONS: usize = 16;

/// Directives of `http`.
const OUTERMOST: &[&str] = &[
    "add_header X-C http always;",
    "client_max_body_size 2m;",
    "deny 127.0.0.2;",
    "geo $blocked { default 0; 127.0.0.0/8 1; 192.0.2.0/24 0; }",
    "gzip on;",
    "gzip_min_length 1;",
    "gzip_types text/plain;",
    "map $http_x_a $target { default \"\"; stop /stopped; ~^b /b; }",
    "map $uri $moved { default \"\"; /a/b/c /c; ~^/old/ /newer; }",
    "proxy_hide_header Set-Cookie;",
    "proxy_set_header X-B http;",
    "proxy_set_header X-C \"\";",
    "upstream app { server ORIGIN; }",
    "upstream app { server ORIGIN; server ORIGIN backup; }",
];

/// Directives of `server` and `location`.
const EVERYWHERE: &[&str] = &[
    "if ($blocked) { return 403; }",
    "if ($moved) { return 301 $moved; }",
    "if ($target) { return 302 $target; }",
    "if ($moved != \"\") { return 301 https://$host$moved; }",
    "if ($arg_x) { return 303 /x; }",
    "if ($arg_x = y) { return 301 /y?$args; }",
    "if ($cookie_a = b) { return 302 /cookie; }",
    "if ($host = www.example.com) { return 301 http://example.com$request_uri; }",
    "if ($host !~ ^www) { return 302 http://www.example.com$request_uri; }",
    "if ($http_cookie ~ \"a=(b|c)\") { return 403; }",
    "if ($http_referer ~* evil) { return 403; }",
    "if ($remote_addr = 127.0.0.1) { return 402; }",
    "if ($request_method !~ ^(GET|HEAD|POST)$) { return 405; }",
    "if ($request_uri ~ ^/a/b) { return 307 /ab; }",
    "if ($request_uri ~* \\.(css|html)$) { return 410; }",
    "if ($scheme = http) { return 301 https://$host$request_uri; }",
    "if ($uri ~ ^/deep/(.*)$) { return 302 /flat/$1; }",
    "if ($uri = /a) { return 302 /b; }",
    "add_header X-C \"$request_method $scheme\" always;",
    "proxy_hide_header Content-Type;",
    "proxy_pass_header Server;",
    "proxy_set_header X-C \"$host:$request_uri\";",
    "proxy_set_header Cookie \"\";",
    "rewrite ^/a/(.*)$ https://example.org/$1 redirect;",
    "rewrite ^/(old|older)/(.*)$ /$2/$1 redirect;",
    "rewrite (?i)^/A/b$ /ab permanent;",
    "return 410;",
    "add_header X-A one always;",
    "add_header X-B \"$host\";",
    "add_header Cache-Control no-cache always;",
    "allow 127.0.0.0/8; deny all;",
    "client_max_body_size 10m;",
    "deny 127.0.0.1;",
    "deny 192.0.2.0/24; allow all;",
    "error_page 404 /404.html;",
    "expires 1h;",
    "expires -1;",
    "gzip on;",
    "gzip on; gzip_types text/plain; gzip_min_length 1;",
    "if ($request_method = POST) { return 405; }",
    "if ($http_x_a = stop) { return 403; }",
    "if ($args ~ gone) { return 410; }",
    "if ($http_user_agent ~* bot) { return 429; }",
    "index a.html;",
    "proxy_hide_header X-Pad;",
    "proxy_intercept_errors on;",
    "proxy_set_header X-A \"$remote_addr\";",
    "proxy_set_header X-A \"\"; proxy_set_header Host $host;",
    "proxy_set_header X-B $scheme; proxy_set_header Host $http_host;",
    "proxy_redirect off;",
    "rewrite ^/old/(.*)$ /new/$1 permanent;",
    "rewrite ^/older/(.*)$ /new/$1? redirect;",
    "set $word up;",
    "types { text/html html; text/css css; }",
    "valid_referers none *.example.com; if ($invalid_referer) { return 403; }",
    "limit_except GET HEAD { deny all; }",
    "satisfy all;",
    "etag off;",
    "default_type text/plain;",
];

/// How a location answers.
const CONTENT: &[&str] = &[
    "proxy_set_header Host $host; proxy_redirect off; proxy_pass http://app;",
    "proxy_set_header Host $http_host; proxy_redirect off; proxy_pass http://app;",
    "proxy_set_header Host www.example.org; proxy_redirect off; proxy_pass http://app/x/;",
    "proxy_redirect off; proxy_pass http://ORIGIN;",
    "proxy_set_header Host $host; proxy_redirect off; proxy_pass http://ORIGIN$request_uri;",
    "rewrite ^/a/(.*)$ /$1 break; proxy_set_header Host $host; proxy_redirect off; proxy_pass http://ORIGIN;",
    "rewrite ^ /all break; proxy_set_header Host $host; proxy_redirect off; proxy_pass http://ORIGIN;",
    "return 303 $scheme://$http_host/x;",
    "return 301 /new;",
    "return 302 https://example.org$request_uri;",
    "return 308 https://$server_name$request_uri;",
    "return 418;",
    "return 503;",
    "return 500 \"no {braces} today\";",
    "proxy_pass http://ORIGIN;",
    "proxy_set_header Host $host; proxy_redirect off; proxy_pass http://ORIGIN;",
    "proxy_set_header Host $host; proxy_redirect off; proxy_pass http://ORIGIN/;",
    "proxy_set_header Host $host; proxy_redirect off; proxy_pass http://ORIGIN/base;",
    "proxy_set_header Host $host; proxy_redirect off; proxy_pass http://ORIGIN/base/;",
    "return 204;",
    "return 301 https://$host$request_uri;",
    "return 302 /new$is_args$args;",
    "return 307 http://other.example.com$uri;",
    "default_type text/plain; return 200 here;",
    "return 403;",
    "return 404;",
    "root ROOT;",
    "root ROOT; try_files $uri $uri/ =404;",
    "root ROOT; try_files $uri /a.html;",
    "alias ROOT/;",
    "alias ROOT/deep/;",
];

const PATHS: &[&str] = &[
    "= /",
    "/a/b",
    "/de",
    "/A",
    "~ ^/a/(b)/",
    "~* \\.(HTML|css)$",
    "~ ^/$",
    "^~ /a",
    "/a%2fb",
    "/cookie/",
    "/",
    "/a/",
    "/a",
    "= /a",
    "= /a.html",
    "/deep/",
    "^~ /a/b/",
    "~ \\.html$",
    "~* ^/A/([a-z]+)$",
    "~ ^/(old|older)/",
    "/404/",
];

const REQUESTS: &[Asked] = &[
    ("GET", "/", Some(("Host", "other.example.com"))),
    ("GET", "/a/x?y", Some(("Host", "other.example.com"))),
    ("GET", "/a", Some(("Host", "third.example.com"))),
    ("GET", "/a/b?x=y", Some(("Cookie", "a=b"))),
    ("GET", "/?x", Some(("Cookie", "z=1; a=c"))),
    ("GET", "/deep/x", Some(("Range", "bytes=0-3"))),
    ("GET", "/a/x", Some(("If-None-Match", "\"x\""))),
    ("GET", "/a/x", Some(("X-Forwarded-For", "192.0.2.1"))),
    ("GET", "/x", Some(("Authorization", "Basic YTpi"))),
    ("GET", "/x", Some(("Accept-Encoding", "gzip;q=0"))),
    ("GET", "/x", Some(("Accept-Encoding", "br, gzip"))),
    ("GET", "/a%20b", None),
    ("GET", "/%61", None),
    ("GET", "/x?a=%20&b=+", None),
    ("GET", "/.hidden", None),
    ("GET", "/x;y=z", None),
    ("GET", "/x?", None),
    ("PUT", "/a", None),
    ("POST", "/deep/x?x=y", None),
    ("GET", "/", None),
    ("GET", "/a", None),
    ("GET", "/a?x=y", None),
    ("GET", "/a/", None),
    ("GET", "/a/b/c", None),
    ("GET", "/A/b", None),
    ("GET", "/a.html", Some(("Accept-Encoding", "gzip"))),
    ("HEAD", "/a.html", None),
    ("GET", "/a.css", None),
    ("GET", "/deep", None),
    ("GET", "/deep/", None),
    ("GET", "/deep/a.html?q", None),
    ("GET", "/nowhere", Some(("Referer", "http://evil.example.org/"))),
    ("GET", "/404/x", None),
    ("GET", "/500/x", None),
    ("GET", "/moved/x", None),
    ("GET", "/cookie/x", Some(("X-A", "stop"))),
    ("GET", "/fresh/x", None),
    ("GET", "/html/x?gone", Some(("Accept-Encoding", "gzip"))),
    ("GET", "/old/x?y=z", Some(("User-Agent", "a Bot"))),
    ("GET", "/older/x?y=z", None),
    ("GET", "/a%2fb//c/../d", None),
    ("POST", "/a", None),
    ("OPTIONS", "/a", None),
    ("DELETE", "/deep/a.html", Some(("X-A", "b"))),
];

fn some(of: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(of, 0..=most)
}

/// The blocks of `http`.
fn configuration() -> impl Strategy<Value = String> {
    let location = (select(PATHS), some(EVERYWHERE, 2), select(CONTENT));
    let locations = prop::collection::vec(location, 0..4);
    let other = prop::option::of((some(EVERYWHERE, 1), select(CONTENT)));
    let around = (some(OUTERMOST, 3), other);
    let parts = (around, some(EVERYWHERE, 2), locations, select(CONTENT));
    parts.prop_map(|((outermost, other), settings, locations, last)| {
        let mut text = outermost.join("\n");
        if let Some((settings, content)) = other {
            let settings = settings.join("\n");
            text += &format!("server {{ listen 80; server_name other.example.com;\n{settings}\n");
            text += &format!("location / {{ {content} }} }}\n");
        }
        text += "server { listen 80; server_name www.example.com;\n";
        text += &settings.join("\n");
        text.push('\n');
        let mut seen = Vec::new();
        for (path, settings, content) in locations {
            // nginx refuses a path twice.
            if seen.contains(&path) || path == "/" {
                continue;
            }
            seen.push(path);
            text += &format!("location {path} {{ {} {content} }}\n", settings.join(" "));
        }
        text + &format!("location / {{ {last} }}\n}}\n")
    })
}

fn furnish(root: &Path) {
    fs::create_dir_all(root.join("deep")).unwrap();
    for name in ["a.css", "a.html", "404.html", "deep/a.html"] {
        fs::write(root.join(name), format!("this is {name} ").repeat(50)).unwrap();
    }
}

/// The differences that the account is silent about, with the configuration, and whether it says that everything went over.
fn silent(http: &str) -> (Option<String>, bool) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    furnish(&root);
    let http = http.replace("ROOT", &root.display().to_string());
    if !compared(directory.path(), &http, &[]).is_said_to_be_alike() {
        return (None, false);
    }
    let account = compared(directory.path(), &http, REQUESTS);
    let first: Vec<_> = account.differences.lines().take(8).collect();
    let found = account.code == Some(1);
    (found.then(|| format!("{http}\n{}\n", first.join("\n"))), true)
}

#[test]
fn nothing_differs_in_silence() {
    if !fronts::nginx_is_here() {
        return;
    }
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse().ok());
    let configurations = number("LEVADA_PORT_CONFIGURATIONS").unwrap_or(CONFIGURATIONS);
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&(number("LEVADA_PORT_SEED").unwrap_or(1) as u64).to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let origin = echo::start("", &["cookie", "host", "x-a", "x-b", "x-c"]);
    let text = |tree: &dyn Fn() -> String| tree().replace("ORIGIN", &origin.to_string());
    let (mut wrong, mut alike, mut tried) = (String::new(), 0, 0);
    while alike < configurations && tried < 50 * configurations {
        tried += 1;
        let mut tree = configuration().new_tree(&mut runner).unwrap();
        let (found, is_said) = silent(&text(&|| tree.current()));
        alike += usize::from(is_said);
        let Some(mut found) = found else { continue };
        // The smallest part that still differs.
        for _ in 0..40 {
            if !tree.simplify() {
                break;
            }
            match silent(&text(&|| tree.current())).0 {
                Some(smaller) => found = smaller,
                None => drop(tree.complicate()),
            }
        }
        wrong += &format!("configuration {tried}:\n{found}\n");
    }
    let responses = alike * REQUESTS.len();
    println!("{tried} configurations, {alike} said to be alike, {responses} responses");
    assert!(wrong.is_empty(), "{wrong}");
    assert!(alike >= configurations, "{alike} of {tried} are compared");
}
