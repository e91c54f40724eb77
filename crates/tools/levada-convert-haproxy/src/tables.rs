//! The tables of statements: what becomes of each.

use levada_conversion::{
    gate::{self, Concern},
    ledger::{Outcome, left, needless},
    rows::{Row, find},
    table::Value,
};

use crate::{converter::Converter, parse::Line, rules::ReadRule};

/// When a section runs a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Connection,
    Monitor,
    Request,
    Redirect,
    Response,
    /// The statements that are no rules.
    Rest,
    Choice,
}

impl Phase {
    /// In HAProxy's order.
    pub(crate) const ALL: [Self; 7] = [
        Self::Connection,
        Self::Monitor,
        Self::Request,
        Self::Redirect,
        Self::Response,
        Self::Rest,
        Self::Choice,
    ];
}

/// A rule, and when it runs.
#[derive(Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) phase: Phase,
    pub(crate) read: ReadRule,
}

type ReadOnce = fn(&mut Converter<'_>, &Line) -> Outcome;

/// How a statement of a section is read.
#[derive(Clone, Copy)]
pub(crate) enum Statement {
    /// In its turn, for the hosts of each site.
    Rule(Rule),
    /// Once, for the whole node.
    Once(ReadOnce),
    /// With others.
    Elsewhere,
}

const fn rule(
    names: &'static str,
    keys: &'static str,
    phase: Phase,
    read: ReadRule,
) -> Row<Statement> {
    Row::writes(names, keys, Statement::Rule(Rule { phase, read }))
}

const fn once(names: &'static str, keys: &'static str, read: ReadOnce) -> Row<Statement> {
    Row::writes(names, keys, Statement::Once(read))
}

const fn elsewhere(names: &'static str, keys: &'static str) -> Row<Statement> {
    Row::writes(names, keys, Statement::Elsewhere)
}

pub(crate) const VARIABLE: &str = "a variable of the environment: write its value";
const NOTHING: &str = "Levada has nothing for this statement";

/// The statements of `frontend`, `backend`, `listen` and `defaults`. A statement is looked up by its first word, with
/// the second one.
pub(crate) const PROXY: &[Row<Statement>] = &[
    elsewhere("bind", "[[listen]]").about(Concern::Access),
    elsewhere("mode", "[[site]]"),
    elsewhere("acl", "the conditions that name it"),
    elsewhere("default_backend", "the site"),
    elsewhere("server", "origin, servers, server"),
    elsewhere("default-server", "the words of each server"),
    elsewhere("balance", "policy, key"),
    elsewhere("hash-type", "policy"),
    elsewhere("hash-balance-factor", "policy"),
    elsewhere("option = httpchk", "health_check.path"),
    elsewhere("http-check", "health_check.path"),
    elsewhere("stick-table", "limit"),
    elsewhere("disabled", "the section is left out"),
    // Rules about connections.
    rule(
        "tcp-request = connection content session",
        "access, limit",
        Phase::Connection,
        |walk, line| match line.word(2) {
            "reject" | "silent-drop" => walk.deny(line),
            "accept" if line.split_condition().1.is_empty() => needless("it is the default"),
            track if track.starts_with("track-sc") => walk.track(line),
            _ => left(NOTHING),
        },
    )
    .about(Concern::Access),
    Row::needless("tcp-request = inspect-delay", "a request is waited for"),
    rule("monitor-uri", "respond", Phase::Monitor, |walk, line| walk.monitor(line)),
    // Rules about requests.
    rule(
        "http-request = deny tarpit reject silent-drop",
        "access, respond, limit",
        Phase::Request,
        |walk, line| walk.deny(line),
    )
    .about(Concern::Access),
    rule("http-request = auth", "basic_auth", Phase::Request, |walk, line| walk.auth(line))
        .about(Concern::Access),
    rule("http-request = allow", "the conditions after it", Phase::Request, |walk, line| {
        walk.allow(line)
    })
    .about(Concern::Access),
    rule("http-request = redirect", "redirect", Phase::Request, |walk, line| walk.redirect(line))
        .about(Concern::Access),
    rule("http-request = return", "respond", Phase::Request, |walk, line| walk.fixed(line))
        .about(Concern::Access),
    rule(
        "http-request = set-header add-header del-header",
        "request_headers, origin_host",
        Phase::Request,
        |walk, line| walk.request_field(line),
    ),
    rule("http-request = set-path replace-path", "rewrite", Phase::Request, |walk, line| {
        walk.path(line)
    }),
    rule("http-request = cache-use", "cache, default_ttl", Phase::Request, |walk, line| {
        walk.cache(line)
    }),
    rule("http-request = track-sc0 track-sc1 track-sc2", "limit", Phase::Request, |walk, line| {
        walk.track(line)
    })
    .about(Concern::Access),
    Row::left(
        "http-request = set-var set-var-fmt unset-var set-log-level set-nice set-tos set-mark set-priority-class set-priority-offset capture set-timeout",
        "Levada has nothing for this action",
    ),
    Row::left(
        "http-request = set-uri set-query set-method set-pathq replace-uri replace-pathq replace-header replace-value early-hint normalize-uri",
        "there is nothing for this rewrite",
    ),
    Row::left("http-request", "there is nothing for this action").about(Concern::Access),
    rule("redirect", "redirect", Phase::Redirect, |walk, line| walk.redirect(line))
        .about(Concern::Access),
    // Rules about responses.
    rule(
        "http-response = set-header add-header del-header",
        "response_headers",
        Phase::Response,
        |walk, line| walk.response_field(line),
    ),
    rule(
        "http-after-response = set-header add-header del-header",
        "response_headers",
        Phase::Response,
        |walk, line| walk.response_field(line),
    ),
    Row::writes("http-response = cache-store", "cache", Statement::Elsewhere),
    Row::left(
        "http-response = set-var unset-var set-log-level capture set-nice set-tos set-mark replace-header replace-value",
        "Levada has nothing for this action",
    ),
    Row::left("http-response http-after-response", "a response is not refused here")
        .about(Concern::Access),
    rule("compression = algo", "compress.codings", Phase::Response, |walk, line| {
        let codings: Vec<_> =
            line.from(2).iter().filter(|one| one.as_str() == "gzip").cloned().collect();
        match codings.len() == line.from(2).len() {
            true => walk.set("compress.codings", Value::List(vec!["gzip".into()])),
            false => left("responses are compressed by gzip, br and zstd"),
        }
    }),
    rule("compression = type", "compress.types", Phase::Response, |walk, line| {
        let types = line.from(2).iter().cloned().map(Value::Text).collect();
        walk.set("compress.types", Value::List(types))
    }),
    Row::needless("compression = offload", "servers are asked for the original"),
    Row::left("compression", NOTHING),
    Row::needless("filter = compression cache", "it is the place of a filter"),
    Row::left("filter", NOTHING).about(Concern::Access),
    rule("use_backend", "a [[site.route]]", Phase::Choice, |walk, line| walk.use_backend(line)),
    Row::left("use-server", "a policy chooses the server").about(Concern::Other),
    // The same server for a client.
    Row::left(
        "cookie",
        "a node sets no cookies: `key` is a cookie of the application, `policy` a hash",
    ),
    Row::left(
        "stick appsession",
        "a policy has no table of clients: `key` is a cookie of the application, `policy` a hash",
    ),
    // Bounds and times.
    once("timeout = connect", "limits.connect_timeout", |c, line| {
        c.time(line, &["connect_timeout"])
    }),
    once("timeout = server", "limits.response_timeout, limits.response_body_timeout", |c, line| {
        c.time(line, &["response_timeout", "response_body_timeout"])
    }),
    once("timeout = client", "limits.body_timeout, limits.send_timeout", |c, line| {
        c.time(line, &["body_timeout", "send_timeout"])
    }),
    once("timeout = http-request", "limits.head_timeout", |c, line| {
        c.time(line, &["head_timeout"])
    }),
    once("timeout = http-keep-alive", "limits.idle_timeout", |c, line| {
        c.time(line, &["idle_timeout"])
    }),
    once("timeout = queue", "limits.queue_timeout", |c, line| c.time(line, &["queue_timeout"])),
    Row::needless(
        "timeout = tunnel client-fin server-fin client-hs tarpit",
        "a node has times of its own for it",
    ),
    elsewhere("timeout = check", "health_check.timeout"),
    Row::left("timeout", NOTHING),
    once("retries", "limits.tries", |c, line| {
        let tries = line.word(1).parse::<u64>().map_err(|_| "is no number")?;
        c.limit(&["tries"], (tries + 1).min(10).into())
    }),
    once("maxconn", "limits.connections", |c, line| {
        let number = line.word(1).parse::<u64>().map_err(|_| "is no number")?;
        c.limit(&["connections"], number.clamp(1, 10_000_000).into())
    }),
    // Logs.
    once("log = global", "log.access", |_, _| needless("the log is the node's")),
    once("log", "log.access", |c, line| c.log(line)),
    once("option = httplog tcplog httpslog", "log.format", |_, _| {
        needless("the access log is of HTTP")
    }),
    Row::left(
        "log-format log-format-sd log-tag error-log-format log-steps",
        "the form of a line is `log.format`: docs/operate/logs.md",
    ),
    Row::left("capture declare", "fields in the log are named by `log.format`"),
    rule("unique-id-format", "request_id", Phase::Response, |walk, _| walk.set("request_id", true)),
    once("unique-id-header", "request_id", |_, line| {
        match line.word(1).to_ascii_lowercase().as_str() {
            "x-request-id" => needless("it is the field of `request_id`"),
            _ => left("the field is X-Request-Id"),
        }
    }),
    Row::needless(
        "option = dontlognull dontlog-normal logasap log-separate-errors log-health-checks http-server-close httpclose \
         http-keep-alive forceclose http-tunnel forwardfor redispatch abortonclose clitcpka srvtcpka tcpka \
         tcp-smart-accept tcp-smart-connect http-buffer-request splice-auto splice-request splice-response \
         contstats prefer-last-server http-use-htx http-ignore-probes http-no-delay independent-streams \
         http-pretend-keepalive nolinger idle-close-on-response http-drop-request-trailers \
         http-drop-response-trailers httpslog tcp-reuse socket-stats checkcache",
        "a node has its own way for it",
    ),
    Row::left(
        "option = http_proxy transparent persist allbackups originalto h1-case-adjust-bogus-client h1-case-adjust-bogus-server http-restrict-req-hdr-names accept-invalid-http-request accept-invalid-http-response external-check ldap-check mysql-check pgsql-check redis-check smtpchk spop-check ssl-hello-chk tcp-check disable-h2-upgrade http-use-proxy-header",
        "a node has its own way for it",
    ),
    Row::left("option", NOTHING),
    Row::left("no", "an option that is switched off is not looked at"),
    Row::needless(
        "fullconn backlog id description enabled bind-process http-reuse max-keep-alive-queue \
         hash-preserve-affinity max-session-srv-conns load-server-state-from-file server-state-file-name maxsslconn \
         clitimeout srvtimeout contimeout http-send-name-header persist guid retry-on grace",
        "a node has its own way for it",
    ),
    Row::left("stats", "there is no page of statistics: `[admin]`, docs/operate/page.md"),
    Row::left(
        "errorfile errorloc errorloc302 errorloc303 errorfiles http-error",
        "an error page is a body without a head: `error_pages`, docs/operate/rewrites.md",
    ),
    Row::left(
        "server-template",
        "servers come from a source: `discovery`, docs/operate/discovery.md",
    ),
    Row::left("tcp-check external-check", "a probe is a request, or a connection"),
    Row::left("tcp-response", "a response is not refused here").about(Concern::Access),
    Row::left("dispatch transparent source usesrc", "a server has an address of its own"),
    Row::left("email-alert", "alerts come from metrics: docs/operate/watching.md"),
    Row::left("rate-limit", "requests are limited, not connections: `limit`"),
    Row::left("monitor", "a health check of this node is `/healthz` of `[admin]`"),
    Row::left("force-persist ignore-persist", "a node sets no cookies"),
];

/// The statements of `global`.
pub(crate) const GLOBAL: &[Row<ReadOnce>] = &[
    Row::writes("maxconn", "limits.connections", |c, line| {
        let number = line.word(1).parse::<u64>().map_err(|_| "is no number")?;
        c.limit(&["connections"], number.clamp(1, 10_000_000).into())
    }),
    Row::writes("log", "log.access", |c, line| c.log(line)),
    Row::writes("crt-base ca-base", "the paths of certificates", |c, line| {
        c.bases.insert(line.word(0).to_owned(), line.word(1).to_owned());
        Ok(levada_conversion::ledger::Fate::Taken)
    }),
    Row::writes("ssl-default-bind-options", "listen.handshake.min_version", |c, line| {
        match line.after("ssl-min-ver", 1) {
            Some("TLSv1.3") => {
                c.min_version = Some("1.3");
                Ok(levada_conversion::ledger::Fate::Taken)
            }
            _ => needless("a node speaks TLS 1.2 and 1.3"),
        }
    }),
    Row::needless(
        "user group uid gid chroot daemon master-worker pidfile nbproc nbthread cpu-map numa-cpu-mapping thread-groups \
         thread-group ulimit-n stats node description hard-stop-after grace unix-bind localpeer server-state-base \
         server-state-file spread-checks busy-polling max-spread-checks maxcompcpuusage maxcomprate maxpipes maxzlibmem \
         noepoll nopoll noreuseport nosplice nokqueue noevports nogetaddrinfo nopoll quiet zero-warning \
         strict-limits set-dumpable insecure-fork-wanted insecure-setuid-wanted h1-case-adjust h1-case-adjust-file tune.* \
         profiling.* log-send-hostname log-tag ssl-engine ssl-mode-async ssl-load-extra-files \
         ssl-load-extra-del-ext ssl-dh-param-file anonkey cluster-secret expose-experimental-directives \
         expose-deprecated-directives ssl-skip-self-issued-ca pp2-never-send-local no-quic ca-base-file \
         fd-hard-limit prealloc-fd close-spread-time http-client.* httpclient.*",
        "a node has its own way for it",
    ),
    Row::needless(
        "ssl-default-bind-ciphers ssl-default-bind-ciphersuites ssl-default-bind-curves ssl-default-server-options \
         ssl-default-server-ciphers ssl-default-server-ciphersuites ssl-default-bind-sigalgs ssl-default-server-curves",
        "suites have forward secrecy: docs/operate/tls.md",
    ),
    Row::writes("ssl-server-verify", "origin_tls.insecure_skip_verification", |c, line| {
        if line.word(1) == "none" {
            c.skips_verification = true;
        }
        Ok(levada_conversion::ledger::Fate::Taken)
    }),
    Row::left(
        "lua-load lua-load-per-thread lua-prepend-path",
        "there is no Lua: the rules that call it are left",
    ),
    Row::left(
        "setenv presetenv resetenv unsetenv default-path",
        "paths and values stand as they are",
    ),
    Row::left(
        "maxconnrate maxsessrate maxsslconn maxsslrate",
        "limits are by client: `limit`, docs/operate/limits.md",
    ),
    Row::left(
        "51degrees* deviceatlas* wurfl* device-atlas*",
        "the device is known by `cache_key.device`",
    ),
];

/// Whole sections, and what becomes of them.
pub(crate) const SECTIONS: &[Row<()>] = &[
    Row::writes("global", "the node", ()),
    Row::writes("defaults", "the sections after it", ()),
    Row::writes("frontend", "[[listen]] and [[site]]", ()),
    Row::writes("listen", "[[listen]] and [[site]]", ()),
    Row::writes("backend", "[[site]] and [[site.route]]", ()),
    Row::writes("userlist", "basic_auth", ()),
    Row::writes("cache", "cache, default_ttl", ()),
    Row::needless("resolvers", "names are resolved as the system does: `[resolver]`"),
    Row::left("peers", "limits count at each node: `scope = \"cluster\"`"),
    Row::left("mailers", "alerts come from metrics: docs/operate/watching.md"),
    Row::left("program", "a node starts no other programs"),
    Row::left("http-errors", "an error page is a body without a head: `error_pages`"),
    Row::left(
        "ring log-forward log-profile traces",
        "logs go to files, syslog and collectors: docs/operate/logs.md",
    ),
    Row::left("fcgi-app", "servers speak HTTP"),
    Row::left(
        "crt-store acme",
        "certificates are named with the address, or ordered: docs/operate/certificates.md",
    ),
];

/// The row of a statement of a section that passes requests on.
pub(crate) fn row(line: &Line) -> Option<&'static Row<Statement>> {
    // `set-var(txn.a)` has its arguments behind it.
    let action = line.word(1).split('(').next().unwrap_or_default();
    find(PROXY, line.word(0), action).or_else(|| find(PROXY, line.word(0), ""))
}

/// The row of a statement, if it is a rule or nothing can be done for it.
pub(crate) fn rule_of(line: &Line) -> Option<(Rule, Concern)> {
    let row = row(line)?;
    match row.keys() {
        Some(Statement::Rule(rule)) => Some((rule, row.concern())),
        _ => None,
    }
}

/// The fate of a statement that is no rule, and its subject. None if it is read with others.
pub(crate) fn without_rule(line: &Line) -> Option<(Concern, Outcome)> {
    if line.word(0).starts_with('.') {
        return Some((Concern::Access, left("conditions of the file are not followed")));
    }
    match row(line) {
        Some(row) => row.without_keys().map(|outcome| (row.concern(), outcome)),
        None => {
            let words = line.words.join(" ");
            Some((gate::smell(&words), left(NOTHING)))
        }
    }
}
