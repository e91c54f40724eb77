//! Routes as users write them, right and wrong.

use std::{net::IpAddr, path::Path};

use http::{HeaderMap, Method};
use levada_config::identity::{Identity, facts};
use levada_config::{Checked, Source, Surroundings};
use levada_config::{SiteRoute, SiteSettings};
use levada_store::identity::ResourceUrl;

fn check(lines: &str) -> Checked {
    let text = format!(
        "name = 'a'
listen = [{{ address = '127.0.0.1:8080' }}]
[[site]]
hosts = 'example.com'
origin = 'http://127.0.0.1:9000'
{lines}"
    );
    let source = Source { name: "t".to_owned(), text };
    levada_config::check(
        &source,
        &Surroundings {
            directory: Path::new("/nonexistent"),
            variable: &|_| None,
            start_error: &|_| None,
        },
    )
}

fn site(lines: &str) -> SiteSettings {
    let checked = check(lines);
    checked.settings.unwrap_or_else(|| panic!("{}", checked.report)).sites.remove(0)
}

fn routes(lines: &str) -> Vec<SiteRoute> {
    site(lines).routes.all
}

/// The only problem, without its place in the file.
fn problem(lines: &str) -> String {
    let report = check(lines).report;
    assert_eq!(report.problems.len(), 1, "{lines}\n{report}");
    format!("{}: {}", report.problems[0].key, report.problems[0].message)
}

#[test]
fn routes_inherit_each_key_from_the_nearest_level() {
    let site = site(
        "default_ttl = '2m'
         [[site.route]]
         path = '/a'
         [[site.route]]
         path = '/b'
         default_ttl = '3m'
         stale_if_error = '0s'
         [defaults]
         default_ttl = '1m'
         stale_if_error = '1h'",
    );
    let lifetimes = |handling: &levada_config::Handling| {
        (handling.rules.default_ttl.unwrap().as_secs(), handling.rules.stale_if_error.as_secs())
    };
    assert_eq!(lifetimes(&site.handling), (120, 3600));
    assert_eq!(lifetimes(&site.routes.all[0].handling), (120, 3600));
    assert_eq!(lifetimes(&site.routes.all[1].handling), (180, 0));
}

#[test]
fn route_without_servers_of_its_own_has_the_sites() {
    let routes = routes(
        "origin_host = 'o.example'
         [[site.route]]
         path = '/a'
         [[site.route]]
         path = '/b'
         origin = 'http://127.0.0.1:9001'
         [[site.route]]
         path = '/c'
         servers = ['http://127.0.0.1:9002', 'http://127.0.0.1:9003']
         policy = { name = 'lard' }",
    );
    assert!(routes[0].servers.is_none());
    let own = routes[1].servers.as_ref().unwrap();
    assert_eq!((own.origins.len(), own.origin_host.as_deref()), (1, Some("o.example")));
    let own = routes[2].servers.as_ref().unwrap();
    assert!(own.origins.is_empty());
    assert_eq!(own.switch.as_ref().unwrap().servers.len(), 2);
    assert_eq!(own.policy.name, "lard");
}

#[test]
fn wrong_matchers_are_named() {
    for (lines, expected) in [
        ("path = 'img'", "path: does not begin with `/`, or with `**`"),
        (
            "path = ['/a', '/b?c']",
            "path[1]: has a `?`: a query is no part of the path, `query` matches it",
        ),
        (
            "path = '/***'",
            "path: has three stars in a row: `*` is any run of characters without `/`, `**` also with `/`",
        ),
        (
            "path_regex = '(a{1000}){1000}'",
            "path_regex: needs more than 256 KiB when it is compiled",
        ),
        ("path_regex = '(a'", "path_regex: is no regular expression: unclosed group"),
        ("method = 'G T'", "method: \"G T\" is no method"),
        ("header = { 'a b' = true }", "header.\"a b\": \"a b\" cannot be the name of one"),
        ("cookie = { 'a;b' = '1' }", "cookie.\"a;b\": \"a;b\" cannot be the name of one"),
        (
            "client = '10.0.0.1/8'",
            "client: must be an IP address, or a prefix of addresses, such as \"10.0.0.0/8\", not \"10.0.0.1/8\"",
        ),
        ("scheme = 'ftp'", "scheme: must be one of \"http\", \"https\", not \"ftp\""),
        ("pth = '/a'", "pth: unknown key"),
        ("hosts = 'a'", "hosts: unknown key"),
    ] {
        assert_eq!(
            problem(&format!("[[site.route]]\n{lines}")),
            format!("site[0].route[0].{expected}")
        );
    }
}

#[test]
fn two_routes_of_one_name_are_an_error() {
    let lines = "[[site.route]]\nname = 'a'\npath = '/a'\n[[site.route]]\nname = 'a'\npath = '/b'";
    assert_eq!(
        problem(lines),
        "site[0].route[1].name: \"a\" is the name of site[0].route[0] already"
    );
}

#[test]
fn route_that_can_never_match_is_a_warning() {
    for (first, second) in [
        ("path = '/**'", "path = '/a'"),
        ("path = '/img/**'", "path = ['/img/a/*', '/img']"),
        ("", "path_regex = 'a'"),
        ("path = ['/a', '/b']", "path = '/b'\nmethod = 'POST'"),
    ] {
        let lines = format!("[[site.route]]\n{first}\n[[site.route]]\n{second}");
        let expected = "site[0].route[1]: never matches: site[0].route[0] takes all its requests";
        assert_eq!(problem(&lines), expected, "{lines}");
    }
    let fine = "[[site.route]]\npath = '/**'\nmethod = 'GET'\n[[site.route]]\npath = '/a'";
    assert_eq!(check(fine).report.problems, []);
}

#[test]
fn inherited_mistake_is_reported_once_and_where_it_stands() {
    let lines =
        "[[site.route]]\npath = '/a'\n[[site.route]]\npath = '/b'\n[defaults]\ndebug = true";
    assert_eq!(problem(lines), "defaults.debug: shows every client how nodes are chosen");
}

#[test]
fn redirects_that_cannot_be_are_named() {
    for (lines, expected) in [
        (
            "redirect = { to = '/b/{2}' }",
            "redirect.to: there is no capture {2}: the path of the route has 1",
        ),
        ("redirect = { to = '/b/{hots}' }", "redirect.to: there is no variable {hots}"),
        ("redirect = { to = '/b/{' }", "redirect.to: has a brace without its counterpart"),
        (
            "redirect = { to = \"/b\\r\\nX: 1\" }",
            "redirect.to: cannot be the value of a header field",
        ),
        ("redirect = { to = '/b', status = 304 }", "redirect.status: 304 is no redirect"),
        ("redirect = { to = '/a/b' }", "redirect.to: leads to this route again, and so on"),
        ("redirect = { to = '/x/../a/b?c' }", "redirect.to: leads to this route again, and so on"),
        ("redirect = { to = '{uri}' }", "redirect.to: leads to this route again, and so on"),
        (
            "redirect = { to = '/b' }\nrespond = {}",
            "respond: stands beside `redirect`: a route has the one or the other",
        ),
        (
            "respond = { content_type = \"a\\nb\" }",
            "respond.content_type: cannot be the value of a header field",
        ),
    ] {
        let lines = format!("[[site.route]]\npath = '/a/**'\n{lines}");
        assert_eq!(problem(&lines), format!("site[0].route[0].{expected}"));
    }
    let fine =
        "[[site.route]]\nscheme = 'http'\nredirect = { to = 'https://{host}{uri}', status = 301 }";
    assert_eq!(check(fine).report.problems, []);
}

#[test]
fn routes_have_the_rules_of_access_of_their_site_but_for_those_that_they_state() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("users"), "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=")
        .unwrap();
    let users = directory.path().join("users").display().to_string();
    let site = site(&format!(
        "access = 'deny 192.0.2.1'
         max_body = '1MiB'
         basic_auth = {{ users_file = '{users}', realm = 'Staff' }}
         bandwidth = {{ connection = '1MiB/s', site = '9MiB/s' }}
         [[site.limit]]
         key = 'client'
         concurrent = 3
         [[site.route]]
         path = '/a'
         [[site.route]]
         name = 'b'
         path = '/b'
         access = 'allow all'
         basic_auth = 'off'
         bandwidth.site = '5MiB/s'
         limit = [{{ key = 'path', rate = '1r/s' }}]
         [[site.route]]
         path = '/c'
         limit = []
         bandwidth.after = '1MiB'
         [defaults]
         max_body = '2MiB'
         referers = 'none'"
    ));
    let words = |handling: &levada_config::Handling| handling.access.in_words();
    let own = [
        "request bodies of at most 1MiB",
        "deny 192.0.2.1/32",
        "limit by client: 3 at once, at this node",
        "referers none",
        "a password, realm \"Staff\"",
        "each connection at 1MiB/s",
        "the site at 9MiB/s",
    ];
    assert_eq!(words(&site.handling), own);
    let all = &site.routes.all;
    assert_eq!(words(&all[0].handling), own);
    assert_eq!(
        words(&all[1].handling),
        [
            "request bodies of at most 1MiB",
            "allow all",
            "limit by path (of the route b): 1r/s burst 0, at this node",
            "referers none",
            "each connection at 1MiB/s",
            "the route b at 5MiB/s",
        ]
    );
    assert!(all[2].handling.access.limits.is_empty());
    let bandwidth = all[2].handling.access.bandwidth;
    assert_eq!((bandwidth.connection, bandwidth.after), (Some(1 << 20), 1 << 20));
}

#[test]
fn wrong_rule_of_access_is_reported_once_and_where_it_is_stated() {
    let lines =
        "limit = [{ key = 'client' }]\n[[site.route]]\npath = '/a'\n[[site.route]]\npath = '/b'";
    assert_eq!(problem(lines), "site[0].limit[0]: limits nothing");
    let lines = "[[site.route]]\npath = '/a'\nbasic_auth = { users_file = 'missing' }";
    assert!(problem(lines).starts_with("site[0].route[0].basic_auth.users_file: cannot read"));
    let lines = "[[site.route]]\npath = '/a'\nbasic_auth = 'on'";
    let message = "site[0].route[0].basic_auth: must be \"off\", not \"on\"";
    assert_eq!(problem(lines), message);
    let lines = "[[site.route]]\npath = '/a'\n[defaults.signed_urls]\nform = 'hmac'";
    assert!(problem(lines).starts_with("defaults.signed_urls: needs `secret_file`"));
}

#[test]
fn hosts_of_a_site_share_what_is_stored_under_the_host_of_its_key() {
    let site = site("cache_key = { host = 'WWW.example.com' }");
    let client: IpAddr = "127.0.0.1".parse().unwrap();
    let (none, method) = (HeaderMap::new(), Method::GET);
    let text = |host| {
        let url = ResourceUrl::new("https", host, "/x?a=1");
        let facts = || facts(&url, client, &method, &none);
        let identity = Identity::of(&url, &site.handling, None, &none, facts);
        let text = identity.text(&url).to_owned();
        assert!(site.forms.identities(&url).contains(&text), "a purge finds {text}");
        text
    };
    assert_eq!(text("n1.example.com"), "https://www.example.com/x?a=1");
    assert_eq!(text("n2.example.com:8443"), text("www.example.com"));
}
