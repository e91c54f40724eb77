//! `reverse_proxy`: servers, the policy among them, health checks, fields, TLS.

use levada_conversion::{
    ledger::{Fate, Ledger, Outcome, TAKEN, differs, left, needless},
    pool::{self, Member},
    rows::{Row, find},
    table::{Table, Value},
    units, vocabulary,
};

use crate::{parse::Node, site, texts};

/// A proxy while its lines are read.
pub(crate) struct Proxy {
    upstreams: Vec<String>,
    policy: &'static str,
    is_first: bool,
    key: Option<Table>,
    weights: Vec<u64>,
    keys: Table,
    check: Table,
    tls: Table,
    is_tls: bool,
    is_host_of_upstream: bool,
}

type ReadLine = fn(&mut Proxy, &Node) -> Outcome;

const DEFAULT: &str = "a node has its own way for it";

/// The lines of `reverse_proxy`.
pub(crate) const LINES: &[Row<ReadLine>] = &[
    Row::writes("to", "origin, servers", |proxy, line| {
        proxy.upstreams.extend(line.from(1).iter().cloned());
        TAKEN
    }),
    Row::writes("lb_policy", "policy, key", policy),
    Row::writes("health_uri health_path", "health_check.path", |proxy, line| {
        if !line.word(1).starts_with('/') {
            return left("the path of a probe begins with `/`");
        }
        proxy.check.set("path", line.word(1));
        TAKEN
    }),
    Row::writes("health_interval", "health_check.interval", |proxy, line| {
        proxy.check.set("interval", time(line)?);
        TAKEN
    }),
    Row::writes("health_timeout", "health_check.timeout", |proxy, line| {
        let time = units::go_time(line.word(1)).ok_or("is no time")?;
        proxy.check.set("timeout", units::duration(time.clamp(1, 60_000)));
        TAKEN
    }),
    Row::writes("max_fails", "health_check.eject_after", |proxy, line| {
        let number = line.word(1).parse::<u64>().map_err(|_| "is no number")?;
        proxy.check.set("eject_after", number.min(1000));
        TAKEN
    }),
    Row::writes("fail_duration", "health_check.eject_for", |proxy, line| {
        proxy.check.set("eject_for", time(line)?);
        TAKEN
    }),
    Row::needless("health_status = 2xx 200", "a server is up with any status below 400"),
    Row::left(
        "health_status health_body health_headers health_port health_follow_redirects unhealthy_status unhealthy_latency unhealthy_request_count health_method health_passes health_fails health_upstream health_request_body",
        "a probe is a GET, and a server is up with any status below 400",
    ),
    Row::writes("header_up", "request_headers, origin_host", header_up),
    Row::writes("header_down", "response_headers", |proxy, line| {
        site::field(&mut proxy.keys, line.from(1), vocabulary::edit_response)
    }),
    Row::writes("transport = http", "origin_tls, protocol", transport),
    Row::left("transport", "servers speak HTTP"),
    Row::needless(
        "flush_interval buffer_requests buffer_responses max_buffer_size request_buffers response_buffers stream_timeout stream_close_delay lb_try_interval",
        DEFAULT,
    ),
    Row::needless(
        "lb_retries lb_try_duration",
        "a request is tried at other servers: `limits.tries`",
    ),
    Row::left("lb_retry_match", "requests that are safe to repeat are tried again"),
    Row::left("trusted_proxies", "proxies are trusted for the whole node: `[[trusted]]`"),
    Row::left("dynamic", "servers come from a source: `discovery`, docs/operate/discovery.md"),
    Row::left("method rewrite", "the request to a server is that of the client"),
    Row::left("handle_response replace_status @*", "a response is not handled by others"),
];

/// The lines of `transport http`.
const TRANSPORT: &[Row<ReadLine>] = &[
    Row::writes("tls", "origin_tls", |proxy, _| {
        proxy.is_tls = true;
        TAKEN
    }),
    Row::writes("tls_insecure_skip_verify", "origin_tls.insecure_skip_verification", |proxy, _| {
        proxy.is_tls = true;
        proxy.tls.set("insecure_skip_verification", true);
        TAKEN
    }),
    Row::writes("tls_server_name", "origin_tls.server_name", |proxy, line| {
        if texts::has_placeholder(line.word(1)) {
            return left("a server has one name");
        }
        proxy.is_tls = true;
        proxy.tls.set("server_name", line.word(1));
        TAKEN
    }),
    Row::writes("tls_trusted_ca_certs tls_trust_pool", "origin_tls.authorities", |proxy, line| {
        if line.word(0) == "tls_trust_pool" {
            return left("authorities are files");
        }
        proxy.is_tls = true;
        proxy.tls.set("authorities", line.from(1).to_vec());
        TAKEN
    }),
    Row::writes("tls_client_auth", "origin_tls.certificate, origin_tls.key", |proxy, line| {
        let [certificate, key] = line.from(1) else {
            return left("a certificate and its key are files");
        };
        proxy.is_tls = true;
        proxy.tls.set("certificate", certificate.as_str());
        proxy.tls.set("key", key.as_str());
        TAKEN
    }),
    Row::writes("versions", "protocol", |proxy, line| match line.from(1) {
        [one] if one == "h2c" || one == "2" => {
            proxy.keys.set("protocol", "h2");
            TAKEN
        }
        _ => needless("HTTP/1.1 is spoken, which all servers know"),
    }),
    Row::needless(
        "keepalive keepalive_interval keepalive_idle_conns keepalive_idle_conns_per_host compression read_buffer write_buffer max_response_header dial_fallback_delay expect_continue_timeout resolvers tls_timeout tls_renegotiation max_conns_per_host",
        DEFAULT,
    ),
    Row::left(
        "dial_timeout response_header_timeout read_timeout write_timeout",
        "times are those of the node: `[limits]`",
    ),
    Row::writes("proxy_protocol", "proxy_protocol", |proxy, line| match line.word(1) {
        version @ ("v1" | "v2") => {
            proxy.keys.set("proxy_protocol", version);
            TAKEN
        }
        _ => left("the versions are v1 and v2"),
    }),
];

fn time(line: &Node) -> Result<Value, String> {
    Ok(units::bounded(units::go_time(line.word(1)).ok_or("is no time")?))
}

fn policy(proxy: &mut Proxy, line: &Node) -> Outcome {
    let by = |from: &'static str, name: &str| {
        let mut key = Table::from_iter([("from", from.into())]);
        if !name.is_empty() {
            key.set("name", name);
        }
        Some(key)
    };
    match line.word(1) {
        "random" => proxy.policy = "random",
        "random_choose" => proxy.policy = "p2c",
        "round_robin" => proxy.policy = "round_robin",
        "weighted_round_robin" => {
            proxy.policy = "weighted_round_robin";
            let weights: Result<Vec<u64>, _> = line.from(2).iter().map(|one| one.parse()).collect();
            proxy.weights = weights.map_err(|_| "a weight is a number")?;
        }
        "least_conn" => proxy.policy = "least_conn",
        "first" => proxy.is_first = true,
        "uri_hash" => proxy.policy = "hrw",
        "header" => (proxy.policy, proxy.key) = ("hrw", by("header", line.word(2))),
        "query" => (proxy.policy, proxy.key) = ("hrw", by("query", line.word(2))),
        "cookie" => {
            (proxy.policy, proxy.key) =
                ("hrw", by("cookie", if line.word(2).is_empty() { "lb" } else { line.word(2) }));
            return differs("a node sets no cookies: the application sets it");
        }
        "ip_hash" | "client_ip_hash" => {
            return left(
                "no key is the client's address: `key` is a cookie, a field or an argument",
            );
        }
        _ => return left("there is no such policy: docs/policies/README.md"),
    }
    match line.block {
        Some(_) => left("a policy has no fallback"),
        None => TAKEN,
    }
}

fn header_up(proxy: &mut Proxy, line: &Node) -> Outcome {
    let name = line.word(1);
    let lower = name.to_ascii_lowercase();
    if lower == "host" {
        return match line.word(2) {
            "{upstream_hostport}" | "{http.reverse_proxy.upstream.hostport}" => {
                proxy.is_host_of_upstream = true;
                TAKEN
            }
            "{host}" | "{http.request.host}" | "{hostport}" | "{http.request.hostport}" => {
                needless("it is the default")
            }
            text if !texts::has_placeholder(text) && !text.is_empty() => {
                proxy.keys.set("origin_host", text);
                TAKEN
            }
            _ => left("the `Host` that servers get is a name"),
        };
    }
    if ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"].contains(&lower.as_str()) {
        return needless("a node sends this field itself");
    }
    site::field(&mut proxy.keys, line.from(1), vocabulary::edit_request)
}

fn transport(proxy: &mut Proxy, line: &Node) -> Outcome {
    let mut worst = TAKEN;
    for inner in line.block.as_deref().unwrap_or_default() {
        let row = find(TRANSPORT, inner.word(0), inner.word(1))
            .or_else(|| find(TRANSPORT, inner.word(0), ""));
        match row.ok_or("a connection has no such key")?.outcome(|read| read(proxy, inner)) {
            // Times of the node concern no place: the others of the transport count.
            Err(reason) => worst = Err(format!("`{}`: {reason}", inner.word(0))),
            Ok(Fate::Differs(reason)) if worst.is_ok() => worst = differs(reason),
            Ok(_) => {}
        }
    }
    worst
}

/// The keys of a proxy. Lines that are left are entered, and do not close the place.
pub(crate) fn keys(
    node: &Node,
    words: &[String],
    ledger: &mut Ledger,
) -> Result<(Table, Outcome), String> {
    let mut proxy = Proxy {
        upstreams: words.to_vec(),
        policy: "random",
        is_first: false,
        key: None,
        weights: Vec::new(),
        keys: Table::default(),
        check: Table::default(),
        tls: Table::default(),
        is_tls: false,
        is_host_of_upstream: false,
    };
    for line in node.block.as_deref().unwrap_or_default() {
        let row = find(LINES, line.word(0), line.word(1)).or_else(|| find(LINES, line.word(0), ""));
        let outcome = match row {
            Some(row) => row.outcome(|read| read(&mut proxy, line)),
            None => left("a proxy has no such key"),
        };
        // A response that is handled here, or a trust, may keep something from clients.
        let closes =
            ["handle_response", "trusted_proxies", "replace_status"].contains(&line.word(0));
        if let (true, Err(reason)) = (closes, &outcome) {
            return Err(reason.clone());
        }
        ledger.enter_whole(line, &outcome);
    }
    let urls: Vec<_> = proxy.upstreams.iter().map(|one| url(one)).collect::<Result<_, _>>()?;
    if urls.is_empty() {
        return Err("a server is named".to_owned());
    }
    let with_scheme = |url: String| match proxy.is_tls && !url.starts_with("unix:") {
        true => url.replacen("http://", "https://", 1),
        false => url,
    };
    let urls: Vec<_> = urls.into_iter().map(with_scheme).collect();
    if proxy.upstreams.iter().any(|one| one.starts_with("h2c://")) {
        proxy.keys.set("protocol", "h2");
    }
    let mut keys = Table::default();
    if urls.len() == 1 || proxy.is_first {
        keys.set("origin", urls.clone());
    } else {
        let weights = proxy.weights.iter().map(Some).chain(std::iter::repeat(None));
        let members = urls.iter().zip(weights).map(|(url, weight)| Member {
            url: url.clone(),
            weight: weight.copied(),
            max_conns: None,
        });
        keys = pool::keys(members.collect(), proxy.policy);
        if let Some(key) = proxy.key {
            keys.set("key", key);
        }
    }
    if proxy.is_host_of_upstream {
        let host = urls[0].split("://").nth(1).unwrap_or_default();
        if urls.len() > 1 || host.is_empty() {
            return Err("several servers get one `Host`".to_owned());
        }
        keys.set("origin_host", host);
    }
    if !proxy.tls.is_empty() {
        let mut ordered = Table::default();
        for name in ["authorities", "server_name", "certificate", "key"] {
            if let Some(value) = proxy.tls.remove(name) {
                ordered.set(name, value);
            }
        }
        ordered.lay_over(proxy.tls);
        keys.set("origin_tls", ordered);
    }
    if !proxy.check.is_empty() {
        let mut ordered = Table::default();
        for name in ["path", "interval", "timeout", "eject_after", "eject_for"] {
            if let Some(value) = proxy.check.remove(name) {
                ordered.set(name, value);
            }
        }
        keys.set("health_check", ordered);
    }
    keys.lay_over(proxy.keys);
    Ok((keys, TAKEN))
}

/// The URL of an upstream.
pub(crate) fn url(upstream: &str) -> Result<String, String> {
    if let Some(path) = upstream.strip_prefix("unix/") {
        return match path.starts_with('/') {
            true => Ok(format!("unix:{path}")),
            false => Err("a socket has an absolute path".to_owned()),
        };
    }
    if texts::has_placeholder(upstream) || upstream.contains(['{', '$']) {
        return Err("a server has an address without variables".to_owned());
    }
    let (scheme, rest) = upstream.split_once("://").unwrap_or(("", upstream));
    let rest = rest.trim_end_matches('/');
    if rest.is_empty() || rest.contains(['/', '?', '#', '*', ' ']) {
        return Err("a server has a host and a port".to_owned());
    }
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            (host, Some(port.parse::<u16>().map_err(|_| "a server has one port")?))
        }
        _ => (rest, None),
    };
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    let (scheme, usual) = match (scheme, port) {
        ("https", _) | ("", Some(443)) => ("https", 443),
        ("" | "http" | "h2c", _) => ("http", 80),
        _ => return Err("a server speaks HTTP".to_owned()),
    };
    Ok(match port.filter(|port| *port != usual) {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

/// A size such as `10MB` and `1MiB`.
pub(crate) fn size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" | "k" => 1_000,
        "mb" | "m" => 1_000_000,
        "gb" | "g" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}
