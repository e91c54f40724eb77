//! The servers of a backend, and how one of them is chosen.

use levada_conversion::{
    ledger::{Outcome, TAKEN, differs, left, needless},
    pool::{self, Member},
    rows::{Row, find},
    table::{Table, Value},
    units,
};

use crate::parse::Line;

/// A server while its words are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    url: String,
    weight: Option<u64>,
    max_conns: Option<u64>,
    is_backup: bool,
    is_disabled: bool,
    is_tls: bool,
    has_check: bool,
    /// Keys of the site or the route.
    keys: Table,
    tls: Table,
    check: Table,
}

type Read = fn(&mut Server, &str) -> Outcome;

/// A word of a server: how many words follow it, and how they are read.
#[derive(Clone, Copy)]
pub(crate) struct Param {
    takes: usize,
    read: Read,
}

const fn flag(read: Read) -> Param {
    Param { takes: 0, read }
}

const fn value(read: Read) -> Param {
    Param { takes: 1, read }
}

const fn ignored(takes: usize) -> Param {
    Param { takes, read: |_, _| TAKEN }
}

/// The words of `server` and `default-server`.
pub(crate) const SERVER: &[Row<Param>] = &[
    Row::writes(
        "check",
        "health_check",
        flag(|s, _| {
            s.has_check = true;
            TAKEN
        }),
    ),
    Row::writes(
        "no-check",
        "health_check.interval",
        flag(|s, _| {
            s.has_check = false;
            TAKEN
        }),
    ),
    Row::writes(
        "inter",
        "health_check.interval",
        value(|s, text| {
            let time = units::haproxy_time(text).ok_or("`inter` is a time")?;
            s.check.set("interval", units::bounded(time));
            TAKEN
        }),
    ),
    Row::writes("rise fall", "health_check.rise, health_check.fall", value(|_, _| TAKEN)),
    Row::writes(
        "weight",
        "server.weight",
        value(|s, text| {
            let weight = text.parse::<u64>().map_err(|_| "`weight` is a number")?;
            if weight == 0 {
                s.is_disabled = true;
                return differs("a server of weight 0 is left out");
            }
            s.weight = Some(weight);
            TAKEN
        }),
    ),
    Row::writes(
        "maxconn",
        "server.max_conns",
        value(|s, text| {
            let number = text.parse::<u64>().map_err(|_| "`maxconn` is a number")?;
            s.max_conns = (number > 0).then_some(number);
            TAKEN
        }),
    ),
    Row::writes(
        "backup",
        "origin",
        flag(|s, _| {
            s.is_backup = true;
            TAKEN
        }),
    ),
    Row::writes(
        "ssl",
        "origin_tls",
        flag(|s, _| {
            s.is_tls = true;
            TAKEN
        }),
    ),
    Row::writes(
        "verify",
        "origin_tls.insecure_skip_verification",
        value(|s, text| {
            match text {
                "none" => s.tls.set("insecure_skip_verification", true),
                _ => drop(s.tls.remove("insecure_skip_verification")),
            }
            TAKEN
        }),
    ),
    Row::writes(
        "ca-file",
        "origin_tls.authorities",
        value(|s, text| {
            s.tls.set("authorities", if text == "@system-ca" { "system" } else { text });
            TAKEN
        }),
    ),
    Row::writes(
        "crt",
        "origin_tls.certificate, origin_tls.key",
        value(|s, text| {
            s.tls.set("certificate", text);
            s.tls.set("key", text);
            TAKEN
        }),
    ),
    Row::writes(
        "sni",
        "origin_tls.server_name",
        value(|s, text| {
            let name = text.strip_prefix("str(").and_then(|rest| rest.strip_suffix(')'));
            s.tls.set("server_name", name.ok_or("a server has one name")?);
            TAKEN
        }),
    ),
    Row::writes(
        "verifyhost",
        "origin_tls.server_name",
        value(|s, text| {
            s.tls.set("server_name", text);
            TAKEN
        }),
    ),
    Row::writes(
        "alpn proto",
        "protocol",
        value(|s, text| {
            if text.split(',').next() == Some("h2") {
                s.keys.set("protocol", "h2");
            }
            TAKEN
        }),
    ),
    Row::writes(
        "send-proxy",
        "proxy_protocol",
        flag(|s, _| {
            s.keys.set("proxy_protocol", "v1");
            TAKEN
        }),
    ),
    Row::writes(
        "send-proxy-v2",
        "proxy_protocol",
        flag(|s, _| {
            s.keys.set("proxy_protocol", "v2");
            TAKEN
        }),
    ),
    Row::writes(
        "slowstart",
        "slow_start",
        value(|s, text| {
            let time = units::haproxy_time(text).ok_or("`slowstart` is a time")?;
            s.keys.set("slow_start", units::bounded(time));
            TAKEN
        }),
    ),
    Row::needless("no-ssl no-backup no-send-proxy enabled", "it is the default"),
    Row::writes(
        "disabled",
        "it is left out",
        flag(|s, _| {
            s.is_disabled = true;
            differs("a server that is disabled is left out")
        }),
    ),
    Row::writes("cookie", "the cookie of the backend says more", ignored(1)),
    Row::writes(
        "id pool-max-conn pool-purge-delay pool-low-conn fastinter downinter minconn maxqueue init-addr resolve-prefer resolve-net resolve-opts resolvers log-proto on-error error-limit",
        "a node has its own way for it",
        ignored(1),
    ),
    Row::writes(
        "ssl-min-ver",
        "origin_tls.min_version",
        value(|s, text| match text {
            "TLSv1.3" => {
                s.tls.set("min_version", "1.3");
                TAKEN
            }
            _ => TAKEN,
        }),
    ),
    Row::writes(
        "ssl-max-ver ciphers ciphersuites sigalgs curves",
        "the TLS library chooses it",
        ignored(1),
    ),
    Row::writes(
        "no-tls-tickets no-ssl-reuse allow-0rtt no-tlsv10 no-tlsv11 no-sslv3 force-tlsv12 force-tlsv13 tfo agent-check check-ssl no-check-ssl check-send-proxy",
        "a node has its own way for it",
        ignored(0),
    ),
    Row::writes(
        "observe",
        "health_check.eject_after",
        value(|_, text| match text {
            "layer7" | "layer4" => TAKEN,
            _ => left("a server is watched by its responses"),
        }),
    ),
    Row::writes(
        "on-marked-down",
        "a node has its own way for it",
        value(|_, text| match text {
            "shutdown-sessions" => differs("requests at a server that goes down are not cut"),
            _ => left("there is no such action"),
        }),
    ),
    Row::writes("on-marked-up", "a node has its own way for it", ignored(1)),
    Row::left(
        "port addr check-sni check-alpn check-proto agent-port agent-inter agent-addr agent-send",
        "probes go to the address of requests",
    ),
    Row::left(
        "redir track socks4 source namespace usesrc interface via-socks4 ca-verify-file crl-file npn ws set-proxy-v2-tlv-fmt proxy-v2-options non-stick tcp-ut check-via-socks4 stick shard send-proxy-v2-ssl send-proxy-v2-ssl-cn",
        "a server has no such key",
    ),
    Row::left("*", "a server has no such key"),
];

/// Reads the words of a server from `start` on.
fn words(server: &mut Server, line: &Line, start: usize) -> Outcome {
    let mut worst = TAKEN;
    let mut at = start;
    while at < line.words.len() {
        let name = line.word(at);
        let row = find(SERVER, name, "").ok_or("a server has no such key")?;
        let text = line.word(at + 1);
        let takes = row.keys().map_or(0, |param| param.takes);
        if takes > 0 && text.is_empty() {
            return left(format!("`{name}` has no value"));
        }
        let outcome = match name {
            "rise" | "fall" => match text.parse::<u64>() {
                Ok(number) => {
                    server.check.set(name, number.clamp(1, 100));
                    TAKEN
                }
                Err(_) => left(format!("`{name}` is a number")),
            },
            _ => row.outcome(|param| (param.read)(server, text)),
        };
        match outcome {
            Err(reason) => return Err(format!("`{name}`: {reason}")),
            Ok(levada_conversion::ledger::Fate::Differs(reason)) => worst = differs(reason),
            Ok(_) => {}
        }
        at += 1 + takes;
    }
    worst
}

/// The servers of a backend, with those that could not be read.
#[derive(Default)]
pub(crate) struct Pool {
    defaults: Server,
    servers: Vec<Server>,
}

impl Pool {
    /// `default-server`.
    pub(crate) fn default_server(&mut self, line: &Line) -> Outcome {
        words(&mut self.defaults, line, 1)
    }

    /// `server NAME ADDRESS ...`.
    pub(crate) fn server(&mut self, line: &Line) -> Outcome {
        let mut server = self.defaults.clone();
        let outcome = words(&mut server, line, 3)?;
        let scheme = if server.is_tls { "https" } else { "http" };
        server.url = url(scheme, line.word(2))?;
        if !server.is_disabled {
            self.servers.push(server);
        }
        Ok(outcome)
    }

    /// The keys of the pool. `policy` and `key` come from `balance`.
    pub(crate) fn keys(
        &self,
        policy: &str,
        key: Option<&Table>,
        probe: &Table,
    ) -> Result<Table, String> {
        let (backups, others): (Vec<_>, Vec<_>) =
            self.servers.iter().partition(|server| server.is_backup);
        let first = others.first().or(backups.first()).ok_or("the backend has no server")?;
        let mut keys = Table::default();
        let urls =
            |all: &[&Server]| Value::from(all.iter().map(|s| s.url.clone()).collect::<Vec<_>>());
        if others.len() < 2 && others.iter().all(|server| server.max_conns.is_none()) {
            let all: Vec<_> = others.iter().chain(&backups).copied().collect();
            keys.set("origin", urls(&all));
        } else {
            let members = others.iter().map(|server| Member {
                url: server.url.clone(),
                weight: server.weight,
                max_conns: server.max_conns,
            });
            keys = pool::keys(members.collect(), policy);
            if let Some(key) = key {
                keys.set("key", key.clone());
            }
        }
        let mut tls = first.tls.clone();
        if first.is_tls && !tls.is_empty() {
            let mut ordered = Table::default();
            for name in ["authorities", "server_name", "certificate", "key"] {
                if let Some(value) = tls.remove(name) {
                    ordered.set(name, value);
                }
            }
            ordered.lay_over(tls);
            keys.set("origin_tls", ordered);
        }
        if first.has_check {
            let mut check = Table::from_iter([("interval", "2s".into()), ("fall", 3_u64.into())]);
            check.lay_over(first.check.clone());
            check.lay_over(probe.clone());
            keys.set("health_check", check);
        }
        keys.lay_over(first.keys.clone());
        Ok(keys)
    }

    /// Whether servers are probed.
    pub(crate) fn has_check(&self) -> bool {
        self.servers.iter().any(|server| server.has_check)
    }

    /// Something that a pool has not: servers for the worst case of several, or servers that differ.
    pub(crate) fn lacks(&self) -> Option<&'static str> {
        let others: Vec<_> = self.servers.iter().filter(|server| !server.is_backup).collect();
        let same = |server: &&Server| {
            (server.is_tls, &server.tls, &server.keys, server.has_check)
                == (others[0].is_tls, &others[0].tls, &others[0].keys, others[0].has_check)
        };
        if others.len() > 1 && others.len() < self.servers.len() {
            return Some("several servers have no servers for the worst case behind them");
        }
        (!others.is_empty() && !others.iter().all(same))
            .then_some("the servers of a place are asked in one way: that of the first one counts")
    }
}

/// The URL of an address.
fn url(scheme: &str, address: &str) -> Result<String, String> {
    if let Some(path) = address.strip_prefix("unix@") {
        return socket(scheme, path);
    }
    if address.starts_with('/') {
        return socket(scheme, address);
    }
    let address = ["ipv4@", "ipv6@", "tcp@", "tcp4@", "tcp6@"]
        .iter()
        .find_map(|prefix| address.strip_prefix(prefix))
        .unwrap_or(address);
    if address.contains(['@', '$', '/', ' ']) || address.is_empty() {
        return Err("there is nothing for this kind of address".to_owned());
    }
    let (host, port) = address.rsplit_once(':').ok_or("a server has a port")?;
    let port = port
        .parse::<u16>()
        .map_err(|_| "a server has one port, which does not depend on the client's")?;
    let host = match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    };
    if host.is_empty() || host == "0.0.0.0" || host == "*" {
        return Err("the address depends on the client's".to_owned());
    }
    let usual = if scheme == "https" { 443 } else { 80 };
    Ok(if port == usual {
        format!("{scheme}://{host}")
    } else {
        format!("{scheme}://{host}:{port}")
    })
}

fn socket(scheme: &str, path: &str) -> Result<String, String> {
    match scheme == "http" && path.starts_with('/') {
        true => Ok(format!("unix:{path}")),
        false => Err("a socket has an absolute path, and speaks plain HTTP".to_owned()),
    }
}

/// The policy and the key of `balance`.
pub(crate) fn balance(line: &Line) -> Result<(&'static str, Option<Table>, Outcome), String> {
    let (algorithm, argument) = line.word(1).split_once('(').unwrap_or((line.word(1), ""));
    let argument = argument.trim_end_matches(')');
    let by = |from: &'static str, name: &str| {
        let mut key = Table::from_iter([("from", from.into())]);
        if !name.is_empty() {
            key.set("name", name);
        }
        Some(key)
    };
    Ok(match algorithm {
        "roundrobin" | "static-rr" => ("round_robin", None, TAKEN),
        "leastconn" => ("least_conn", None, TAKEN),
        "random" if argument == "1" => ("random", None, TAKEN),
        "random" => ("p2c", None, TAKEN),
        "uri" if line.has("whole") => ("ring_hash", None, TAKEN),
        "uri" => ("ring_hash", None, differs("scheme, host and query count as well as the path")),
        "hdr" if argument.eq_ignore_ascii_case("host") => ("ring_hash", by("host", ""), TAKEN),
        "hdr" => ("ring_hash", by("header", argument), TAKEN),
        "url_param" => ("ring_hash", by("query", line.word(2)), TAKEN),
        "source" => {
            return Err(
                "no key is the client's address: `key` is a cookie, a field or an argument"
                    .to_owned(),
            );
        }
        _ => return Err("there is no such policy: docs/policies/README.md".to_owned()),
    })
}

/// `hash-type`: servers that come and go move few requests in any case.
pub(crate) fn hash_type(line: &Line) -> Outcome {
    match line.word(1) {
        "consistent" => TAKEN,
        "map-based" => {
            differs("hashing is consistent: few requests move when a server joins or leaves")
        }
        _ => needless("the policy has its own function"),
    }
}

/// `option httpchk`, `http-check send` and `http-check expect`.
pub(crate) fn probe(line: &Line, probe: &mut Table) -> Outcome {
    let (method, path) = match (line.word(0), line.word(1)) {
        ("option", _) => match (line.word(2), line.word(3)) {
            ("", _) => ("OPTIONS", "/"),
            (path, "") if path.starts_with('/') => ("OPTIONS", path),
            (method, path) => (method, path),
        },
        ("http-check", "send") => {
            if line.has("body") || line.has("hdr") && !line.has("Host") && !line.has("host") {
                return left("a probe has neither fields nor a body");
            }
            (line.after("meth", 2).unwrap_or("GET"), line.after("uri", 2).unwrap_or("/"))
        }
        ("http-check", "expect") => {
            return match line.from(2).iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["status", "200-399"] => TAKEN,
                ["status", "200"] => differs("a server is up with any status below 400"),
                ["rstatus", _] | ["status", _] => {
                    differs("a server is up with any status below 400")
                }
                _ => left("a probe looks at the status only"),
            };
        }
        ("http-check", "disable-on-404") => return left("a server that answers with 404 is down"),
        ("http-check", "connect") if line.words.len() == 2 => return TAKEN,
        _ => return left("there is nothing for this probe"),
    };
    if !path.starts_with('/') {
        return left("the path of a probe begins with `/`");
    }
    probe.set("path", path);
    match method {
        "GET" => TAKEN,
        _ => differs("probes are GET"),
    }
}
