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

/// Directives of `server` and `location`.
const EVERYWHERE: &[&str] = &[
    "add_header X-A one always;",
    "add_header X-B \"$host\";",
    "add_header Cache-Control no-cache always;",
    "allow 127.0.0.0/8; deny all;",
    "client_max_body_size 1;",
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
    (some(EVERYWHERE, 2), locations, select(CONTENT)).prop_map(|(settings, locations, last)| {
        let mut text = "server { listen 80; server_name www.example.com;\n".to_owned();
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
    let origin = echo::start(&["host", "x-a", "x-b"]);
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
