//! Each check once, on the smallest file that fails it.

use std::{fs, path::Path as FilePath, time::Duration};

use crate::file::{Delivery, LargeSettings, MissLimits};
use crate::settings::{PurgeSettings, RunAs, Runtime, SiteRoute};
use levada_cache::{CacheRules, CookieStorage};
use levada_cluster::announce::{RouteLevel, Speaker};
use levada_cluster::nodes::PeerTrust;
use levada_fetch::Mode;
use levada_observe::log::access_log::AccessLog;
use levada_observe::log::{LogFormat, LogTarget};
use levada_observe::redact::RedactedArguments;
use levada_redirector::handoff::HandoffControl;
use levada_upstream::ProxyVersion;
use proptest::prelude::*;

use super::*;

/// The smallest valid file.
const LEAST: &str = r#"
name = "a"
listen = [{ address = "127.0.0.1:8080" }]
"#;

const SITE: &str = "
[[site]]
hosts = 'example.com'
origin = 'http://127.0.0.1:9000'
";

const CLUSTER: &str = "
[peering]
listen = '127.0.0.1:7070'
secret = '0123456789abcdef'
[[peer]]
name = 'a'
address = 'a:1'
[[peer]]
name = 'b'
address = 'b:1'
";

fn variable(name: &str) -> Option<String> {
    (name == "PORT").then(|| "8081".to_owned())
}

fn check_in(directory: &FilePath, text: &str) -> Checked {
    let source = Source { name: "t".to_owned(), text: text.to_owned() };
    check(&source, &Surroundings { directory, variable: &variable, start_error: &|_| None })
}

fn check_text(text: &str) -> Checked {
    check_in(FilePath::new("/nonexistent"), text)
}

fn settings(text: &str) -> Settings {
    let checked = check_text(text);
    checked.settings.unwrap_or_else(|| panic!("{}", checked.report))
}

/// The only problem of `text`.
fn only_problem(text: &str) -> Problem {
    let report = check_text(text).report;
    assert_eq!(report.problems.len(), 1, "{text}\n{report}");
    report.problems[0].clone()
}

/// Asserts that `text` has one error, at `key`, whose message and help contain `words`.
fn assert_error(text: &str, key: &str, words: &str) {
    let problem = only_problem(text);
    assert_eq!(problem.severity, Severity::Error, "{text}");
    assert_eq!(problem.key, key, "{text}");
    let said = format!("{} {}", problem.message, problem.help.unwrap_or_default());
    assert!(said.contains(words), "{said:?} does not contain {words:?}");
}

fn assert_warning(text: &str, key: &str, words: &str) {
    let problem = only_problem(text);
    assert_eq!((problem.severity, &*problem.key), (Severity::Warning, key), "{text}");
    assert!(problem.message.contains(words), "{}", problem.message);
    assert!(check_text(text).settings.is_some());
}

#[test]
fn memory_that_an_idle_node_of_many_sites_exceeds_is_refused_with_the_least_that_works() {
    let sites: String = (0..10_000)
        .map(|n| format!("[[site]]\nhosts = 's{n}.test'\norigin = 'http://127.0.0.1:9'\n"))
        .collect();
    let with = |limit: &str| format!("{LEAST}limits.memory = '{limit}'\n{sites}");
    assert_error(&with("180MiB"), "limits.memory", "write at least 181MiB");
    assert_eq!(settings(&with("181MiB")).limits.memory, Some(181 << 20));
}

#[test]
fn the_least_file_takes_every_default() {
    let settings = settings(&format!("{LEAST}{SITE}"));
    let defaults = crate::Limits::default();
    assert_eq!(format!("{:?}", settings.limits), format!("{defaults:?}"));
    let defaults = crate::HealthCheck::default();
    assert_eq!(format!("{:?}", settings.sites[0].servers.health), format!("{defaults:?}"));
    assert_eq!(settings.sites[0].servers.policy.name, "adaptive");
    assert_eq!(settings.sites[0].delivery, Delivery::Proxy);
    assert!(settings.peering.is_none() && settings.admin.is_none() && settings.seed.is_none());
    let stdout = AccessLog {
        target: LogTarget::Stdout,
        format: LogFormat::combined(),
        sampling: None,
        redact: RedactedArguments::default(),
        node: "a".to_owned(),
    };
    assert_eq!(settings.access_log, Some(stdout));
}

#[test]
fn what_is_written_is_what_is_set() {
    let text = format!(
        "{LEAST}seed = 42\nruntime = {{ mode = 'per_core', threads = 2 }}\n\
         log = {{ access = 'off' }}\n{CLUSTER}rtt = '12ms'\nclient_url = 'https://b.example/'\n\
         {SITE}default_ttl = '1.5s'\npolicy.name = 'random'\n[cache]\nmemory = '16MiB'\neviction = 'sieve'\nadmission = 'second_hit'\n\
         [limits]\nserve_rate = '8Mbit/s'\nsend_min_rate = '1kB/s'\n"
    );
    let settings = settings(&text);
    assert_eq!(settings.seed, Some(42));
    assert_eq!(settings.runtime, Runtime::PerCore(2));
    assert_eq!(settings.access_log, None);
    assert_eq!(settings.limits.serve_rate, Some(1_000_000));
    assert_eq!((settings.limits.send_min_rate, settings.limits.body_min_rate), (1000, 500));
    assert_eq!(settings.sites[0].handling.rules.default_ttl, Some(Duration::from_millis(1500)));
    assert_eq!(settings.sites[0].servers.policy.name, "random");
    assert_eq!(settings.cache.max_object, 16 << 20, "the default fits into the memory");
    assert_eq!((settings.cache.eviction.name, settings.cache.second_hit), ("sieve", true));
    let peering = settings.peering.unwrap();
    assert!(
        matches!(peering.trust, PeerTrust::Secret(secrets) if secrets == "0123456789abcdef".into())
    );
    assert_eq!(peering.peers[1].rtt, Some(Duration::from_millis(12)));
    assert_eq!(peering.peers[1].client_url.as_deref(), Some("https://b.example"));
}

#[test]
fn site_fills_in_what_its_origin_leaves_open() {
    let settings = settings(&format!(
        "{LEAST}{SITE}negative_ttl = '5s'\nheuristic_percent = 20\nheuristic_max = '1h'\n\
         stale_while_revalidate = '30s'\nstale_if_error = '10m'\nstale_if_unreachable = '0s'\n\
         revalidation_wait = '2s'\ns_maxage_allows_stale = true\nstore_cookies = 'explicit'\n\
         misses = {{ at_once = 10, queue = 0, wait = '1s' }}\n"
    ));
    let second = Duration::from_secs(1);
    let expected = CacheRules {
        negative_ttl: Some(5 * second),
        heuristic_percent: 20,
        heuristic_max: 3600 * second,
        stale_while_revalidate: 30 * second,
        stale_if_error: 600 * second,
        stale_if_unreachable: Duration::ZERO,
        revalidation_wait: 2 * second,
        s_maxage_allows_stale: true,
        cookies: CookieStorage::StoreIfExplicit,
        ..CacheRules::default()
    };
    assert_eq!(settings.sites[0].handling.rules, expected);
    assert_eq!(
        settings.sites[0].servers.misses,
        MissLimits { at_once: 10, queue: 0, wait: second }
    );
}

#[test]
fn site_fetches_large_files_in_pieces_as_it_says() {
    let large = |keys: &str| settings(&format!("{LEAST}{SITE}[site.large]\n{keys}")).sites[0].large;
    assert_eq!(large(""), None);
    assert_eq!(large("enabled = true\n"), Some(LargeSettings::default()));
    assert_eq!(large("enabled = true\nprofile = 'paper'\n"), Some(LargeSettings::paper()));
    let told = large(
        "enabled = true\nprofile = 'paper'\nthreshold = '1MiB'\nchunk_size = '256KiB'\nreplicas = 3\n\
         retry = 'hedge'\ntimeout_factor = 4.0\nfirst_timeout = '3s'\nmin_timeout = '50ms'\ntries = 4\n",
    );
    let told = told.unwrap();
    assert_eq!((told.threshold, told.replicas), (1 << 20, Some(3)));
    let plan = told.plan;
    assert_eq!((plan.chunk, plan.window, plan.mode, plan.tries), (256 << 10, 10, Mode::Hedge, 4));
    assert_eq!((plan.patience.factor, plan.patience.first.as_secs()), (4.0, 3));
    assert_eq!(plan.patience.least, Duration::from_millis(50));
}

#[test]
fn piece_is_no_more_than_a_block_and_no_less_than_the_file() {
    let large = format!(
        "{LEAST}{SITE}[site.large]\nenabled = true\nchunk_size = '2MiB'\nthreshold = '1MiB'\n"
    );
    let report = check_text(&large).report.to_string();
    for words in ["more than a block", "less than a piece of 2MiB"] {
        assert!(report.contains(words), "{words}: {report}");
    }
    let window = format!("{LEAST}{SITE}[site.large]\nenabled = true\nwindow = 1024\n");
    let report = check_text(&window).report.to_string();
    assert!(report.contains("a quarter of `cache.memory`"), "{report}");
}

#[test]
fn variables_come_from_the_environment() {
    let listen =
        |port: &str| format!("name = 'a'\nlisten = [{{ address = '127.0.0.1:{port}' }}]\n{SITE}");
    assert_eq!(settings(&listen("${PORT}")).listeners[0].address.port(), 8081);
    assert_error(&listen("${POORT}"), "listen[0].address", "POORT");
}

#[test]
fn syntax_errors_have_a_line() {
    let problem = only_problem("name = \"a\"\nlisten = [\n");
    assert!(problem.line >= 2, "{problem:?}");
}

#[test]
fn unknown_keys_are_suggested() {
    assert_error(&format!("{LEAST}{SITE}origins = 'x'\n"), "site[0].origins", "`origin`");
    assert_error(&format!("{LEAST}{SITE}[limit]\n"), "limit", "`limits`");
    assert_error(&format!("{LEAST}{SITE}[cache]\nx-y = 1\n"), "cache.x-y", "known here: memory");
}

#[test]
fn a_node_needs_a_name_a_listener_and_a_site() {
    assert_error(LEAST, "site", "[[site]]");
    assert_error(&format!("name = 'a'\n{SITE}"), "listen", "[[listen]]");
    assert_error(&format!("name = 'a'\nlisten = []\n{SITE}"), "listen", "empty");
    assert_error(&format!("listen = [{{ address = '[::1]:80' }}]\n{SITE}"), "name", "missing");
}

#[test]
fn no_two_listeners_share_an_address() {
    let admin = |address: &str| format!("{LEAST}admin.listen = '{address}'\n{SITE}");
    assert_error(&admin("127.0.0.1:8080"), "admin.listen", "taken");
    assert!(check_text(&admin("127.0.0.1:8081")).report.problems.is_empty());
    let any = format!("{LEAST}{SITE}{CLUSTER}").replace("127.0.0.1:7070", "0.0.0.0:8080");
    assert_error(&any, "peering.listen", "taken");
    let free = "name = 'a'\nlisten = [{ address = '[::1]:0' }, { address = '[::1]:0' }]\n";
    assert!(check_text(&format!("{free}{SITE}")).report.problems.is_empty());
}

#[test]
fn peers_have_names_and_addresses_of_their_own() {
    let text = format!("{LEAST}{SITE}{CLUSTER}");
    let twice = format!("{text}[[peer]]\nname = 'b'\naddress = 'c:1'\n");
    assert_error(&twice, "peer[2].name", "peer[1]");
    let twice = format!("{text}[[peer]]\nname = 'c'\naddress = 'b:1'\n");
    assert_error(&twice, "peer[2].address", "peer[1]");
}

#[test]
fn a_node_is_one_of_its_peers() {
    let text = format!("{LEAST}{SITE}{CLUSTER}").replace("name = \"a\"", "name = 'edge'");
    assert_error(&text, "name", "list this node too");
}

#[test]
fn peers_need_peering_and_peering_needs_trust() {
    let peer = "[[peer]]\nname = 'a'\naddress = 'a:1'\n";
    assert_error(&format!("{LEAST}{SITE}{peer}"), "peer", "`[peering]`");
    let open = format!("{LEAST}{SITE}{CLUSTER}").replace("secret =", "#");
    assert_error(&open, "peering", "anyone is a peer");
}

#[test]
fn a_secret_is_long_and_one() {
    let text = format!("{LEAST}{SITE}{CLUSTER}");
    assert_error(&text.replace("abcdef", ""), "peering.secret", "10 bytes");
    let both = text.replace("secret =", "secret_file = 's'\nsecret =");
    assert_error(&both, "peering.secret_file", "keep one");
}

#[test]
fn a_purge_token_is_a_secret_like_any_other() {
    let with = |purge: &str| format!("{LEAST}{SITE}[purge]\n{purge}");
    assert_eq!(settings(&with("")).purge, PurgeSettings::default());
    let given = settings(&with("token = '0123456789abcdef'\nexpose_tags = true")).purge;
    assert_eq!(given.access.token.as_deref(), Some("0123456789abcdef"));
    assert!(given.expose_tags);
    assert_error(&with("token = 'short'"), "purge.token", "5 bytes");
    assert_error(
        &with("token = '0123456789abcdef'\ntoken_file = 'x'"),
        "purge.token_file",
        "`token`",
    );
    assert_error(&with("token_file = 'x'"), "purge.token_file", "cannot read");
    let grant =
        |digest: &str| with(&format!("[[purge.grant]]\ndigest = '{digest}'\nhosts = ['a']"));
    let granted = settings(&grant(&"AB".repeat(32))).purge.access.grants;
    assert_eq!(granted[0].digest, "ab".repeat(32));
    assert_error(&grant("ab"), "purge.grant[0].digest", "64 hexadecimal digits");
}

#[test]
fn a_secret_file_is_read_without_its_white_space() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!("{LEAST}{SITE}{CLUSTER}")
        .replace("secret = '0123456789abcdef'", "secret_file = 'secret'");
    let checked = check_in(directory.path(), &text);
    assert_eq!(checked.report.problems[0].key, "peering.secret_file");
    fs::write(directory.path().join("secret"), "0123456789abcdef\n").unwrap();
    let settings = check_in(directory.path(), &text).settings.unwrap();
    let trust = settings.peering.unwrap().trust;
    assert!(matches!(trust, PeerTrust::Secret(secrets) if secrets == "0123456789abcdef".into()));
}

#[test]
fn secrets_are_a_list_or_the_lines_of_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!("{LEAST}{SITE}{CLUSTER}");
    let with = |line: &str| text.replace("secret = '0123456789abcdef'", line);
    let all = |text: &str| -> Vec<String> {
        let settings = check_in(directory.path(), text).settings.unwrap();
        let trust = settings.peering.unwrap().trust;
        trust.secrets().unwrap().iter().map(str::to_owned).collect()
    };
    let both = ["the new secret ..", "the old secret .."];
    assert_eq!(all(&with("secrets = ['the new secret ..', 'the old secret ..']")), both);
    fs::write(directory.path().join("s"), "the new secret ..\n\n the old secret ..\n").unwrap();
    assert_eq!(all(&with("secret_file = 's'")), both);
    let short = with("secrets = ['the new secret ..', 'short']");
    assert_error(&short, "peering.secrets", "5 bytes");
    assert_error(&with("secrets = []"), "peering.secrets", "0 bytes");
    let two = with("secret = 'the old secret ..'\nsecrets = ['the new secret ..']");
    assert_error(&two, "peering.secrets", "`secret` as well");
    let two = with("secret_file = 's'\nsecrets = ['the new secret ..']");
    assert_error(&two, "peering.secret_file", "`secrets` as well");
}

#[test]
fn secret_changes_if_a_common_one_is_left() {
    let of = |all: &[&str]| {
        let line = format!("secrets = {all:?}");
        let text = format!("{LEAST}{SITE}{CLUSTER}");
        settings(&text.replace("secret = '0123456789abcdef'", &line))
    };
    let (old, new) = ("the old secret ..", "the new secret ..");
    for (before, after) in [(&[old][..], &[old, new][..]), (&[old, new], &[new, old])] {
        assert_eq!(changes::between(&of(before), &of(after)).unwrap(), ["[peering]"]);
    }
    assert_eq!(changes::between(&of(&[new, old]), &of(&[new])).unwrap(), ["[peering]"]);
    let refused = changes::between(&of(&[old]), &of(&[new])).unwrap_err();
    assert!(refused.contains("its secret without the old one in `secrets`"), "{refused}");
}

#[test]
fn certificates_exist_and_are_certificates() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.pem"), "not PEM").unwrap();
    fs::write(directory.path().join("a.key"), "-----BEGIN PRIVATE KEY-----\n").unwrap();
    let text = |certificate: &str| {
        let tls = format!("tls = [{{ certificate = '{certificate}', key = 'a.key' }}]");
        format!("name = 'a'\n{SITE}[[listen]]\naddress = '[::1]:80'\n{tls}\n")
    };
    for (file, words) in [("a.pem", "no PEM block"), ("b.pem", "cannot read"), (".", "cannot read")]
    {
        let report = check_in(directory.path(), &text(file)).report;
        assert_eq!(report.problems.len(), 1, "{report}");
        assert_eq!(report.problems[0].key, "listen[0].tls[0].certificate");
        assert!(report.problems[0].message.contains(words), "{report}");
    }
}

#[test]
fn peers_may_trust_certificates_instead() {
    let text = format!("{LEAST}{SITE}{CLUSTER}").replace("secret = '0123456789abcdef'", "");
    let with_tls = |text: &str| {
        let tls = "tls = { certificate = 'n.pem', key = 'n.key', authority = 'n.pem' }";
        text.replace("[[peer]]\nname = 'a'", &format!("{tls}\n[[peer]]\nname = 'a'"))
    };
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    fs::write(file("n.pem"), "-----BEGIN CERTIFICATE-----\n").unwrap();
    fs::write(file("n.key"), "-----BEGIN EC PRIVATE KEY-----\n").unwrap();
    let problem = check_in(directory.path(), &with_tls(&text)).report.problems.remove(0);
    assert_eq!(problem.key, "peering.tls", "a node could not start: {}", problem.message);
    let key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(vec!["n.test".to_owned()]).unwrap();
    fs::write(file("n.pem"), own.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(file("n.key"), key.serialize_pem()).unwrap();
    let settings = check_in(directory.path(), &with_tls(&text)).settings.unwrap();
    assert!(matches!(settings.peering.unwrap().trust, PeerTrust::Mtls { secrets: None, .. }));
    // No receiver could distinguish a redirect of this cluster from any other.
    let redirect = with_tls(&text).replace("origin =", "delivery = 'redirect'\norigin =");
    let report = check_in(directory.path(), &redirect).report;
    assert!(report.to_string().contains("redirects are signed"), "{report}");
}

#[test]
fn hosts_belong_to_one_site() {
    let second = "[[site]]\nhosts = ['b.example', 'EXAMPLE.com']\norigin = 'http://o'\n";
    let text = format!("{LEAST}{SITE}{second}");
    assert_error(&text, "site[1].hosts[1]", "site[0]");
    let wildcard = text.replace("EXAMPLE.com", "*.example.com");
    assert!(check_text(&wildcard).report.problems.is_empty());
}

#[test]
fn redirects_need_a_cluster_and_a_url_of_every_peer() {
    let site = format!("{SITE}delivery = 'redirect'\n");
    assert_error(&format!("{LEAST}{site}"), "site[0].delivery", "needs a cluster");
    let cluster = format!("{LEAST}{site}{CLUSTER}client_url = 'http://b.example'\n");
    assert_error(&cluster, "site[0].delivery", "every peer: a");
}

#[test]
fn names_can_stand_in_header_fields() {
    assert_error(
        &format!("name = 'a b'\nlisten = [{{ address = '[::1]:80' }}]\n{SITE}"),
        "name",
        "letters",
    );
    assert_error(&format!("{LEAST}{SITE}origin_host = 'a b'\n"), "site[0].origin_host", "a host");
}

#[test]
fn group_belongs_to_a_user() {
    let text = |keys: &str| format!("{LEAST}runtime = {{ {keys} }}\n{SITE}");
    assert_error(&text("group = 'www'"), "runtime.group", "without `user`");
    let run_as = |keys: &str| check_text(&text(keys)).settings.unwrap().run_as;
    let (user, group) = ("levada".to_owned(), Some("www".to_owned()));
    let with = Some(RunAs { user: user.clone(), group });
    assert_eq!(run_as("user = 'levada', group = 'www'"), with);
    assert_eq!(run_as("user = 'levada'"), Some(RunAs { user, group: None }));
    assert_eq!(run_as(""), None);
}

#[test]
fn version_of_the_proxy_protocol_is_one_that_exists() {
    let text = |version| format!("{LEAST}{SITE}proxy_protocol = {version}\n");
    assert_error(&text("'v3'"), "site[0].proxy_protocol", "\"v1\"");
    assert_error(&text("true"), "site[0].proxy_protocol", "\"v1\"");
    let settings = check_text(&text("'v2'")).settings.unwrap();
    assert_eq!(settings.sites[0].servers.protocols.states_client, Some(ProxyVersion::V2));
}

#[test]
fn servers_are_reached_over_the_protocol_of_their_site_or_route() {
    let routes = "[[site.route]]\npath = '/rpc/*'\norigin = 'http://10.0.0.2'\nprotocol = 'h2'\n\
                  [[site.route]]\npath = '/old/*'\norigin = 'http://10.0.0.3'\n";
    let settings = check_text(&format!("{LEAST}{SITE}{routes}")).settings.unwrap();
    let of = |route: &SiteRoute| route.servers.as_ref().unwrap().protocols.h2;
    let routes: Vec<bool> = settings.sites[0].routes.all.iter().map(of).collect();
    assert_eq!((settings.sites[0].servers.protocols.h2, routes), (false, vec![true, false]));
    assert_error(&format!("{LEAST}{SITE}protocol = 'h2c'\n"), "site[0].protocol", "\"h2\"");
}

#[test]
fn origins_are_http_without_a_path() {
    for origin in ["ftp://x", "x.example:80", "http://x/path", "http://u@x"] {
        let text = format!("{LEAST}{SITE}").replace("http://127.0.0.1:9000", origin);
        assert_error(&text, "site[0].origin", "without a path");
    }
}

#[test]
fn connections_are_handed_to_servers_that_take_them() {
    let text = |site: &str, server: &str, handoff: &str| {
        format!(
            "{LEAST}[[site]]\nhosts = 'example.com'\n{site}[[site.server]]\n\
             url = 'http://10.0.1.1:80'\nhandoff = '10.0.1.1:7072'\n{server}{handoff}"
        )
    };
    let handoff = "[handoff]\ninterfaces = 'eth0'\nsecret = '0123456789abcdef'\nafter = 'on'\n";
    let settings = settings(&text("cache = false\n", "", handoff));
    let own = settings.handoff.unwrap();
    assert_eq!((own.interfaces, own.backend), (vec!["eth0".to_owned()], None));
    assert_eq!(own.after, crate::AfterHandoff::On);
    let switch = settings.sites[0].servers.switch.as_ref().unwrap();
    let control = HandoffControl { to: "10.0.1.1:7072".parse().unwrap(), also: None };
    assert_eq!(switch.servers[0].handoff, Some(control));

    assert_error(&text("", "", handoff), "site[0].cache", "cached here");
    assert_error(&text("cache = false\n", "", ""), "site[0].server[0].handoff", "[handoff]");
    let body = "cache = false\nkey = { from = 'body' }\n";
    assert_error(&text(body, "", handoff), "site[0].key", "body");
    let open = handoff.replace("secret", "#");
    assert_error(&text("cache = false\n", "", &open), "handoff", "secret");
    let takes = format!("{handoff}listen = '10.0.1.9:7072'\n");
    assert_error(&text("cache = false\n", "", &takes), "handoff.listen", "no service");
    let wide = format!("{handoff}listen = '0.0.0.0:7072'\nservices = '192.0.2.1:80'\n");
    assert_error(&text("cache = false\n", "", &wide), "handoff.listen", "no single address");
    let local = wide.replace("0.0.0.0", "[fe80::1]");
    assert_error(&text("cache = false\n", "", &local), "handoff.listen", "no single address");
}

#[test]
fn servers_may_be_at_unix_sockets() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, file) = (directory.path().join("s"), directory.path().join("f"));
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::fs::write(&file, "").unwrap();
    let site = |rest: &str| format!("{LEAST}[[site]]\nhosts = 'example.com'\n{rest}\n");
    let at = format!("unix:{}", socket.display());
    let same = crate::Origin::Unix(socket);

    let checked = check_text(&site(&format!("origin = '{at}'")));
    assert!(checked.report.problems.is_empty(), "{}", checked.report);
    assert_eq!(checked.settings.unwrap().sites[0].servers.origins, std::slice::from_ref(&same));
    let mixed = settings(&site(&format!("servers = ['{at}', 'http://a:1']")));
    let server = &mixed.sites[0].servers.switch.as_ref().unwrap().servers[0];
    assert_eq!((&server.name, &server.origin), (&at, &same));
    let twice = site(&format!("servers = ['{at}', '{at}']"));
    assert_error(&twice, "site[0].servers[1]", "address of site[0].servers[0] already");

    let missing = site("origin = ['http://a', 'unix:/nowhere/app.sock']");
    assert_warning(&missing, "site[0].origin[1]", "no socket /nowhere/app.sock now");
    let no_socket = site(&format!("[[site.server]]\nurl = 'unix:{}'", file.display()));
    assert_error(&no_socket, "site[0].server[0].url", "is not a socket");
    for wrong in ["unix:app.sock", "http://unix:/app.sock", &format!("unix:/{}", "a".repeat(107))] {
        let text = site(&format!("origin = '{wrong}'"));
        assert_error(&text, "site[0].origin", "absolute path of at most 107 bytes");
    }
}

#[test]
fn connections_are_handed_off_over_both_versions_of_ip() {
    let text = |listen: &str, control: &str| {
        format!(
            "{}[[site]]\nhosts = 'example.com'\ncache = false\n[[site.server]]\n\
             url = 'http://10.0.1.1:80'\nhandoff = {control}\n\
             [handoff]\ninterfaces = 'eth0'\nsecret = '0123456789abcdef'\n",
            LEAST.replace("127.0.0.1", listen)
        )
    };
    let control = |listen: &str, control: &str| {
        let settings = settings(&text(listen, control));
        settings.sites[0].servers.switch.as_ref().unwrap().servers[0].handoff.unwrap()
    };
    let both = "['[fd00::1]:7072', '10.0.1.1:7072']";
    let expected = HandoffControl {
        to: "[fd00::1]:7072".parse().unwrap(),
        also: Some("10.0.1.1".parse().unwrap()),
    };
    for listen in ["127.0.0.1", "[::1]", "[::]"] {
        assert_eq!(control(listen, both), expected, "{listen}");
    }
    assert_eq!(control("[::1]", "'[fd00::1]:7072'").also, None);
    for (listen, control, version) in [
        ("[::1]", "'10.0.1.1:7072'", "over IPv6 are proxied: 10.0.1.1:80"),
        ("[::]", "'[fd00::1]:7072'", "over IPv4 are proxied: 10.0.1.1:80"),
    ] {
        assert_warning(&text(listen, control), "site[0].server", version);
    }
    let twice = "['10.0.1.1:7072', '10.0.1.2:7072']";
    assert_error(&text("127.0.0.1", twice), "site[0].server[0].handoff", "more than one address");
}

const SWITCH: &str = "[[site]]\nhosts = 'example.com'\n";

#[test]
fn servers_stand_in_the_place_of_an_origin() {
    let text = format!(
        "{LEAST}{SWITCH}servers = ['http://a:1', 'https://b']\nslow_start = '30s'\n\
         key = {{ from = 'header', name = 'X-User' }}\nadmission = {{ at_once = 9, queue = 2 }}\n\
         [[site.server]]\nurl = 'http://c:1'\nname = 'web'\nweight = 2\nmax_conns = 5\n"
    );
    let site = settings(&text).sites.remove(0);
    let switch = site.servers.switch.unwrap();
    let names: Vec<_> = switch.servers.iter().map(|s| (s.name.as_str(), s.max_conns)).collect();
    assert_eq!(names, [("a:1", 1024), ("b:443", 1024), ("web", 5)]);
    assert_eq!(switch.servers[2].weight, 2.0);
    assert_eq!(switch.key, crate::KeyFrom::Header("x-user".to_owned()));
    assert_eq!((switch.admission.at_once, switch.admission.queue), (Some(9), 2));
    assert!(site.servers.origins.is_empty());
}

#[test]
fn a_site_has_an_origin_or_servers_and_each_server_once() {
    let with = |rest: &str| format!("{LEAST}{SWITCH}{rest}\n");
    assert_error(&with(""), "site[0].origin", "or `servers");
    assert_error(&with("servers = []"), "site[0].servers", "must not be empty");
    assert_error(&with("origin = 'http://a'\nservers = 'http://b'"), "site[0].servers", "beside");
    let twice = "servers = ['http://a', 'http://a:80']";
    assert_error(&with(twice), "site[0].servers[1]", "address of site[0].servers[0] already");
    let named = "[[site.server]]\nurl = 'http://a'\nname = 'x'\n[[site.server]]\nurl = 'http://b'\nname = 'x'";
    assert_error(&with(named), "site[0].server[1]", "name of site[0].server[0] already");
    assert_error(&with("[[site.server]]\nname = 'x'"), "site[0].server[0].url", "is missing");
    assert_error(
        &with("servers = 'http://a'\nlarge = { enabled = true }"),
        "site[0].large",
        "not to servers",
    );
    let misses = "servers = 'http://a'\nmisses = { at_once = 3 }";
    assert_warning(&with(misses), "site[0].misses", "no effect beside servers");
    let key = "origin = 'http://a'\nkey = { from = 'host' }";
    assert_warning(&with(key), "site[0].key", "no effect without `servers`");
}

#[test]
fn a_site_whose_routes_answer_all_requests_needs_no_origin() {
    let site = |routes: &str| format!("{LEAST}[[site]]\nhosts = 'example.com'\n{routes}");
    let redirect = "[[site.route]]\nredirect = { to = 'https://www.example.com{uri}' }\n";
    let settings = settings(&site(redirect));
    assert!(settings.sites[0].servers.origins.is_empty());
    let asks = "[[site.route]]\npath = '/a'\norigin = 'http://127.0.0.1:9000'\n";
    assert!(check_text(&site(&format!("{asks}{redirect}"))).report.is_usable());
    // One route asks the site's servers, and one site has requests that no route takes.
    let inherits = "[[site.route]]\npath = '/a'\n";
    assert_error(&site(&format!("{inherits}{redirect}")), "site[0].origin", "is missing");
    let some = "[[site.route]]\npath = '/a'\nredirect = { to = '/b' }\n";
    assert_error(&site(some), "site[0].origin", "is missing");
}

#[test]
fn a_key_has_the_name_that_it_needs() {
    let with = |key: &str| format!("{LEAST}{SWITCH}servers = 'http://a'\nkey = {key}\n");
    assert_error(&with("{ from = 'cookie' }"), "site[0].key", "needs the `name`");
    let cookie = "{ from = 'cookie', name = 'a=b' }";
    assert_error(&with(cookie), "site[0].key.name", "cannot be the name");
    let header = "{ from = 'header', name = 'a b' }";
    assert_error(&with(header), "site[0].key.name", "cannot be the name");
    assert_error(&with("{ from = 'boddy' }"), "site[0].key.from", "\"body\"");
    let large = "{ from = 'body', bytes = '2MiB' }";
    assert_error(&with(large), "site[0].key.bytes", "1MiB");
    assert_warning(&with("{ from = 'url', bytes = '2KiB' }"), "site[0].key.bytes", "no effect");
}

#[test]
fn class_rules_are_read_and_those_that_never_match_are_named() {
    let with = |rules: &str| {
        format!("{LEAST}{SWITCH}servers = 'http://a'\npolicy = {{ name = 'cap' }}\n{rules}\n")
    };
    let rule = |rest: &str| format!("[[site.class]]\nclass = 'cpu'\n{rest}\n");
    let text = with(&(rule("prefix = '/a'\nmethod = 'post'") + &rule("regex = '^/v[12]/'")));
    let classes = settings(&text).sites.remove(0).classes;
    assert_eq!(classes.rules.0[0].methods, ["POST"]);
    assert!(classes.rules.0[1].regex.is_some());
    assert_error(&with(&rule("regex = '(a'")), "site[0].class[0].regex", "no regular expression");
    assert_error(&with(&rule("regex = 'a{9999}{9999}'")), "site[0].class[0].regex", "");
    assert_error(&with(&rule("prefix = 'a'")), "site[0].class[0].prefix", "begins with `/`");
    assert_error(&with(&rule("method = 'no method'")), "site[0].class[0].method", "no method");
    assert_error(&with("[[site.class]]\nclass = 'gpu'"), "site[0].class[0].class", "disk_and_cpu");
    let covered = rule("prefix = '/a'") + &rule("prefix = '/a/b'");
    assert_warning(&with(&covered), "site[0].class[1]", "site[0].class[0] is about all of it");
    let contested = rule("prefix = '/a'") + "[[site.class]]\nclass = 'disk'\nsuffix = '.php'\n";
    assert_warning(&with(&contested), "site[0].class[1]", "overlaps site[0].class[0]");
    assert_warning(&with(&rule("regex = '^api/'")), "site[0].class[0]", "begins with `/`");
    assert_warning(&with(&rule("tls = true")), "site[0].class[0].tls", "has certificates");
    assert_warning(&with(""), "site[0]", "has no classes");
}

#[test]
fn policies_exist_and_run_on_an_edge() {
    let policy = |name: &str| format!("{LEAST}{SITE}policy = {{ name = '{name}' }}\n");
    assert_error(&policy("randm"), "site[0].policy.name", "`random`");
    assert_error(&policy("zzz"), "site[0].policy.name", "levada policies");
    let entries = levada_policy::POLICIES.iter().flat_map(|file| file.iter());
    for entry in entries {
        if entry.runs_on_an_edge() {
            assert!(check_text(&policy(entry.name)).settings.is_some(), "{}", entry.name);
        } else {
            assert_error(&policy(entry.name), "site[0].policy.name", "simulator");
        }
    }
}

#[test]
fn parameters_are_the_policys() {
    let text = format!("{LEAST}policy = {{ name = 'random', sise = 1 }}\n{SITE}");
    assert_error(&text, "policy.sise", "no such parameter");
    // The key is wrong, not its value.
    assert_eq!(only_problem(&text).column, "policy = { name = 'random', ".len() + 1);
}

#[test]
fn parameters_keep_their_ranges() {
    let text = format!("{LEAST}{SITE}policy = {{ name = 'fdr', busy = 'often' }}\n");
    assert_error(&text, "site[0].policy.busy", "must be a whole number");
}

#[test]
fn a_busy_threshold_must_be_within_reach() {
    let busy = |busy: u32| {
        format!(
            "{LEAST}policy = {{ name = 'fdr', busy = {busy} }}\nlimits.capacity = 600\n{SITE}{CLUSTER}"
        )
    };
    assert_warning(&busy(300), "policy.busy", "2 nodes");
    assert!(check_text(&busy(299)).report.problems.is_empty());
}

#[test]
fn values_keep_their_ranges() {
    for (line, key) in [
        ("[cache]\nmemory = '1kB'", "cache.memory"),
        ("[cache]\neviction = 'random'", "cache.eviction"),
        ("[cache]\nadmission = 'second'", "cache.admission"),
        ("[cache]\nmemory = '8MiB'\nmax_object = '9MiB'", "cache.max_object"),
        ("[cache]\nmemory = '4MiB'\nblock = '1MiB'", "cache.block"),
        ("[cache.disk]\npath = 'x'", "cache.disk.size"),
        ("[cache.disk]\npath = ''\nsize = '1GiB'", "cache.disk.path"),
        ("[cache.disk]\npath = 'x'\nsize = '1MiB'", "cache.disk.size"),
        (
            "[cache]\nmax_object = '3GiB'\n[cache.disk]\npath = 'x'\nsize = '2GiB'",
            "cache.max_object",
        ),
        ("[limits]\nretry_budget = 1.5", "limits.retry_budget"),
        ("[limits]\ntries = 0", "limits.tries"),
        ("[limits]\ncapacity = -1", "limits.capacity"),
        ("[limits]\nqueue_timeout = '2h'", "limits.queue_timeout"),
        ("[limits]\nserve_rate = '1MiB'", "limits.serve_rate"),
        ("[limits]\nbody_min_rate = '2MiB/s'", "limits.body_min_rate"),
        ("[limits]\nsend_min_rate = '500B'", "limits.send_min_rate"),
        ("[limits]\nsend_min_rate = '0B/s'", "limits.send_min_rate"),
        ("[limits]\ncapacity = inf", "limits.capacity"),
        ("[runtime]\nmode = 'fast'", "runtime.mode"),
        ("seed = -1", "site[0].seed"),
    ] {
        let problem = only_problem(&format!("{LEAST}{SITE}{line}\n"));
        assert_eq!((problem.severity, &*problem.key), (Severity::Error, key));
    }
}

#[test]
fn a_secret_is_not_repeated_in_errors() {
    let text = format!("{LEAST}{SITE}{CLUSTER}").replace("'0123456789abcdef'", "31415926535");
    let report = check_text(&text).report.to_string();
    assert!(report.contains("peering.secret") && !report.contains("31415926535"), "{report}");
}

#[test]
fn trusted_proxies_are_addresses_and_prefixes() {
    let with = |addresses: &str| format!("{LEAST}{SITE}[[trusted]]\naddresses = {addresses}\n");
    let text = with("['10.0.0.0/8', '2001:db8::1']")
        + "[[trusted]]\naddresses = '192.0.2.1'\nproxy_protocol = true\n";
    let trusted = settings(&text).trusted;
    let shown: Vec<_> =
        trusted.iter().map(|t| (t.addresses.to_string(), t.proxy_protocol)).collect();
    let shown: Vec<_> = shown.iter().map(|(addresses, proxy)| (&**addresses, *proxy)).collect();
    assert_eq!(shown, [("10.0.0.0/8", false), ("2001:db8::1/128", false), ("192.0.2.1/32", true)]);
    assert_error(&with("'10.0.0.1/8'"), "trusted[0].addresses", "prefix");
    assert_warning(&with("'0.0.0.0/0'"), "trusted[0].addresses", "every client");
}

#[test]
fn doubts_do_not_stop_a_node() {
    let doubt =
        |line: &str, key, words| assert_warning(&format!("{LEAST}{SITE}{line}\n"), key, words);
    doubt("debug = true", "site[0].debug", "shows");
    doubt("store_cookies = 'always'", "site[0].store_cookies", "all of them");
    let both = "default_ttl = '1m'\nheuristic_percent = 5";
    doubt(both, "site[0].heuristic_percent", "`default_ttl`");
    let admin = format!("{LEAST}admin.listen = '0.0.0.0:9180'\n{SITE}");
    assert_warning(&admin, "admin.listen", "other machines");
    let socket =
        |more: &str| format!("{LEAST}admin = {{ listen = 'unix:/tmp/a.sock'{more} }}\n{SITE}");
    assert!(check_text(&socket(", mode = '0660'")).report.problems.is_empty());
    assert_warning(&socket(", hosts = ['a']"), "admin.hosts", "no effect");
    assert_error(&socket(", mode = '0999'"), "admin.mode", "octal");
    assert_error(&socket("").replace("/tmp", "/nowhere"), "admin.listen", "no directory");
    assert_error(&socket("").replace("unix:/", "unix:"), "admin.listen", "absolute path");
    let mode = format!("{LEAST}admin = {{ listen = '127.0.0.1:9180', mode = '0660' }}\n{SITE}");
    assert_warning(&mode, "admin.mode", "no effect");
}

#[test]
fn a_thousand_mistakes_are_not_all_listed() {
    let text: String = (0..1000).map(|i| format!("k{i} = 1\n")).collect();
    let report = check_text(&text).report;
    assert!(report.problems.len() <= 100 && report.left_out >= 900);
    assert!(report.to_string().ends_with("more\n"));
}

#[test]
fn a_mebibyte_of_anything_is_answered() {
    let nested = |open: &str| format!("a = {}", open.repeat((1 << 20) / open.len()));
    let long_key = format!("{} = [{}]", "k".repeat(1 << 19), "1,".repeat(1 << 18));
    let long_table = format!("[{}a]", "a.".repeat(1 << 19));
    let lines = "a = ${\n".repeat((1 << 20) / 7);
    for text in [nested("["), nested("{a="), nested("\""), long_key, long_table, lines] {
        assert!(!check_text(&text).report.is_usable());
    }
}

#[test]
fn a_route_has_one_daemon_and_a_backup_where_one_is_given() {
    let route = |text: &str| format!("{LEAST}{SITE}[route]\n{text}");
    let bird = "[route.bird]\nprotocol = 'levada'\n";
    let found = settings(&route(bird)).route.expect("a route");
    assert_eq!((found.rules.load_high, found.rules.unwell), (None, RouteLevel::Withdrawn));
    let found = settings(&route(&format!("{bird}backup_protocol = 'other'"))).route;
    let rules = found.expect("a route").rules;
    assert_eq!((rules.load_high, rules.unwell), (Some(0.9), RouteLevel::Backup));
    let exabgp = "[route.exabgp]\nprefixes = '192.0.2.0/24'\n";
    assert!(matches!(
        settings(&route(exabgp)).route.expect("a route").speaker,
        Speaker::ExaBgp { .. }
    ));
    let twice = "[route.bird]\nprotocol = 'x'\nbackup_protocol = 'x'\n";
    for (text, key, words) in [
        ("", "route", "[route.bird]"),
        (&*format!("{bird}{exabgp}"), "route.exabgp", "one daemon"),
        ("[route.bird]\n", "route.bird.protocol", ""),
        ("[route.bird]\nprotocol = 'a\" b'\n", "route.bird.protocol", ""),
        (twice, "route.bird.backup_protocol", "the same"),
        (
            "[route.exabgp]\nprefixes = ['192.0.2.0/33']\n",
            "route.exabgp.prefixes[0]",
            "192.0.2.0/24",
        ),
        (
            "[route.exabgp]\nprefixes = '::/0'\nattributes = \"a\\nb\"\n",
            "route.exabgp.attributes",
            "",
        ),
        (&*format!("unwell = 'backup'\n{bird}"), "route.unwell", "backup_protocol"),
        (&*format!("load_low = 0.95\n{bird}backup_protocol = 'y'\n"), "route.load_low", "0.9"),
    ] {
        assert_error(&route(text), key, words);
    }
    assert_warning(&route(&format!("load_high = 0.8\n{bird}")), "route.load_high", "no effect");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn garbage_is_answered_with_an_error(text in "\\PC{0,400}") {
        prop_assert!(check_text(&text).settings.is_none());
    }

    /// Whole tokens reach deeper than single characters.
    #[test]
    fn shuffled_tokens_are_answered_with_an_error(
        tokens in prop::collection::vec(
            prop::sample::select(&[
                "name", "listen", "[[site]]\n", "[peering]\n", "[[peer]]\n", "[policy]\n", " = ",
                "\n", "'a'", "1", "-0.5", "true", "[", "]", "{", "}", ",", ".", "hosts", "address",
                "secret", "'${X}'", "1979-05-27", "nan", "weight", "'0s'", "\u{fffd}",
            ][..]),
            0..80,
        )
    ) {
        prop_assert!(check_text(&tokens.concat()).settings.is_none());
    }
}

#[test]
fn cache_rules_are_read_and_inherited_by_routes() {
    let text = |rest: &str| format!("name = 'n'\n[[listen]]\naddress = '127.0.0.1:80'\n{rest}");
    let site = "[[site]]\nhosts = 'a'\norigin = 'http://a:1'\n";
    let settings = settings(&text(&format!(
        "{site}ttl = ['200 302 10m', 'any 1m']\nstatus_ttl = '5s'\n\
         ignore_headers = ['cache-control', 'vary']\n\
         cache_key = {{ query_without = ['utm_*'], device = true }}\nbypass = ['cookie.session']\n\
         strip_cookies = 'request'\n\
         [[site.route]]\npath = '/img/**'\nmin_uses = 2\ncache_key = {{ device = false }}\nbypass = []\n"
    )));
    let site = &settings.sites[0];
    let ttl = &site.handling.rules.ttl;
    assert_eq!((ttl.len(), ttl[0].ttl), (2, Duration::from_secs(600)));
    assert!(site.handling.rules.ignored.vary && !site.handling.rules.ignored.expires);
    let rules = site.handling.caching.as_ref().unwrap();
    assert!(rules.key.device && rules.bypass.len() == 1 && rules.strips_request_cookies);
    let rules = site.routes.all[0].handling.caching.as_ref().unwrap();
    assert_eq!(rules.key.target("/a?utm_x=1&b"), "/a?b");
    assert!(!rules.key.device && rules.bypass.is_empty() && rules.min_uses == 2);
    let plain = "[[site]]\nhosts = 'a'\norigin = 'http://a:1'\n";
    assert!(self::settings(&text(plain)).sites[0].handling.caching.is_none());
}

#[test]
fn wrong_cache_rules_are_refused_with_their_place() {
    let site = |keys: &str| {
        format!(
            "name = 'n'\n[[listen]]\naddress = '127.0.0.1:80'\n[[site]]\nhosts = 'a'\norigin = 'http://a:1'\n{keys}\n"
        )
    };
    for (keys, place, why) in [
        ("ttl = '200 soon'", "site[0].ttl", "`soon` is no time"),
        ("ttl = ['10m', '99 1m']", "site[0].ttl[1]", "`99` is no status"),
        ("status_ttl = ['200 1m', '200 2m']", "site[0].status_ttl[1]", "has a lifetime already"),
        ("ttl = '304 1m'", "site[0].ttl", "no status that can be stored"),
        ("ttl = '9999d'", "site[0].ttl", "more than a year"),
        ("bypass = ['session']", "site[0].bypass[0]", "begins with neither"),
        ("no_store = ['cookie.']", "site[0].no_store[0]", "no name"),
        (
            "cache_key = { headers = ['a b'] }",
            "site[0].cache_key.headers[0]",
            "no name of a header",
        ),
        (
            "cache_key = { cookies = ['a=b'] }",
            "site[0].cache_key.cookies[0]",
            "no name of a cookie",
        ),
        (
            "cache_key = { query = 'none', query_only = ['a'] }",
            "site[0].cache_key.query_only",
            "stands beside `query`",
        ),
    ] {
        assert_error(&site(keys), place, why);
    }
    let large = "large = { enabled = true }\ncache_key = { device = true }";
    assert_error(&site(large), "site[0].large.enabled", "cannot stand beside");
}

#[test]
fn sites_get_certificates_by_the_ways_that_listeners_allow() {
    let acme = |listen: &str, acme: &str, site: &str| {
        format!(
            "name = 'a'\n[acme]\nagree = true\n{acme}\n{listen}\n\
             [[site]]\nhosts = ['www.example.com', '10.0.0.1', '*']\norigin = 'http://b'\n{site}\n"
        )
    };
    let at = |port: u16, more: &str| format!("[[listen]]\naddress = '0.0.0.0:{port}'\n{more}\n");
    let (plain, secure) = (at(80, ""), at(443, "acme = true"));
    let both = format!("{plain}{secure}");
    let dns = "dns_command = ['/bin/true']";
    let wanted = |text: &str| {
        let mut wanted = settings(text).acme.unwrap().certificates;
        let one = wanted.pop().unwrap();
        assert_eq!((one.names, wanted.len()), (vec!["www.example.com".to_owned()], 0));
        one.proofs.iter().map(|proof| proof.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(wanted(&acme(&both, "", "")), ["http-01", "tls-alpn-01"]);
    assert_eq!(wanted(&acme(&both, dns, "")), ["http-01", "tls-alpn-01", "dns-01"]);
    assert_eq!(wanted(&acme(&secure, "", "")), ["tls-alpn-01"]);
    assert_eq!(wanted(&acme(&both, dns, "acme = 'dns-01'")), ["dns-01"]);
    let off = settings(&acme(&both, "", "acme = 'off'"));
    assert!(off.acme.unwrap().certificates.is_empty());
    let eab = "[acme.external_account]\nid = 'k'\nkey = 'YSBrZXkgb2Ygc29tZSBsZW5ndGg='";
    let account = settings(&acme(&both, eab, "")).acme.unwrap().external_account.unwrap();
    assert_eq!(account.key, b"a key of some length");

    assert_error(&acme(&secure, "", "acme = 'http-01'"), "site[0].acme", "needs a listener");
    assert_error(&acme(&both, "challenge = 'dns-01'", ""), "site[0].hosts", "needs a command");
    let refused = acme(&both, "", "").replace("agree = true", "agree = false");
    assert_error(&refused, "acme.agree", "terms of service");
    let without = acme(&both, "", "").replace("[acme]\nagree = true", "");
    assert_error(&without, "listen[1].acme", "no `[acme]`");
    assert_warning(&acme(&plain, "", ""), "acme", "no listener shows");
    let high = format!("{}{}", at(8080, ""), at(8443, "acme = true"));
    assert_warning(&acme(&high, "", ""), "acme", "port 80 or 443");
}
