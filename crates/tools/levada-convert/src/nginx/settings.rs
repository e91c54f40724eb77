//! Directives that mean the same at every level: each is a key of `[defaults]`, a site or a route.

use super::{Converter, Scope, Zone, conditions, parse::Directive, tls, variables};
use crate::{
    ledger::{Fate, Outcome, Stated as _, TAKEN, differs, left, needless},
    matchers::LONGEST,
    table::{Table, Value},
    units,
    vocabulary::{self, Edit},
};

/// Directives that are read elsewhere, at their levels.
const ELSEWHERE: &[&str] = &[
    "http",
    "server",
    "location",
    "upstream",
    "map",
    "geo",
    "listen",
    "server_name",
    "ssl",
    "ssl_certificate",
    "ssl_certificate_key",
    "limit_req_zone",
    "limit_conn_zone",
    "proxy_cache_path",
    "proxy_pass",
    "grpc_pass",
    "root",
    "alias",
    "index",
    "autoindex",
    "try_files",
    "return",
    "rewrite",
    "if",
    "set",
    "access_log",
    "log_format",
];

const WEBSOCKET: &str = "WebSocket passes by itself: docs/operate/websocket.md";

/// Directives that keep clients out. Without them a place must not be open.
pub(super) const RESTRICTING: &[&str] = &[
    "allow",
    "deny",
    "auth_basic",
    "auth_basic_user_file",
    "auth_request",
    "auth_jwt",
    "valid_referers",
    "secure_link",
    "secure_link_md5",
    "secure_link_secret",
    "ssl_verify_client",
    "internal",
];

impl Converter {
    /// Fills `table` with the keys that the directives of this level stand for.
    pub(super) fn settings(&mut self, scope: &Scope<'_>, table: &mut Table) {
        self.read_flags(scope);
        for directive in scope.directives {
            let name = directive.name.as_str();
            if ELSEWHERE.contains(&name) || tls::is_read_elsewhere(name) {
                continue;
            }
            let mut fate = self.setting(scope, directive, table);
            if let (Err(reason), true) = (&mut fate, RESTRICTING.contains(&directive.name.as_str()))
            {
                vocabulary::refuse_everybody(table, reason);
            }
            self.enter_whole(directive, &fate);
        }
        self.other_limits(scope, table);
        keep_fields(scope, table);
        // Formats may stand behind the logs that use them.
        for directive in scope.own("log_format") {
            let fate = self.log_format(directive);
            self.enter(directive, fate);
        }
        for directive in scope.directives {
            let fate = match directive.name.as_str() {
                "access_log" => self.access_log(scope, directive, table),
                "set" => self.set(directive),
                _ => continue,
            };
            self.enter(directive, fate);
        }
    }

    fn setting(&mut self, scope: &Scope<'_>, directive: &Directive, table: &mut Table) -> Outcome {
        let name = directive.name.as_str();
        if let Some(rest) = name.strip_prefix("grpc_") {
            // The modules of nginx have the same directives under two names.
            let renamed = Directive { name: format!("proxy_{rest}"), ..directive.clone() };
            return self.setting(scope, &renamed, table);
        }
        match name {
            _ if name.starts_with("proxy_cache") || name == "proxy_no_cache" => {
                self.caching(scope, directive, table)
            }
            "proxy_ignore_headers" => ignored_headers(directive, table),
            "proxy_set_header" => self.request_header(directive, table),
            "proxy_hide_header" => vocabulary::edit_response(table, directive.arg(0), Edit::Remove),
            "proxy_pass_header" => needless("fields of the origin pass unless they are removed"),
            "add_header" => self.add_header(directive, table),
            "expires" => expires(directive, table),
            "error_page" => error_page(scope, directive, table),
            "proxy_intercept_errors" if directive.arg(0) == "on" => TAKEN,
            "proxy_intercept_errors" => needless("it is the default"),
            _ if name.starts_with("gzip") || name.starts_with("brotli") => {
                compression(scope, directive, table)
            }
            "limit_req" | "limit_conn" => self.limit(scope, directive, table),
            "limit_req_status" | "limit_conn_status" => match directive.arg(0) {
                "429" => needless("refusals have status 429"),
                _ => differs("refusals have status 429"),
            },
            "limit_req_log_level" | "limit_conn_log_level" => {
                needless("the access log names refusals")
            }
            "limit_rate" | "limit_rate_after" => bandwidth(directive, table),
            "client_max_body_size" => match units::byte_size(directive.arg(0)) {
                Some(0) => needless("bodies have no limit unless one is stated"),
                Some(bytes) => vocabulary::put(table, "max_body", units::size(bytes)),
                None => left("is no size"),
            },
            "allow" | "deny" => access(directive, table),
            "auth_basic" | "auth_basic_user_file" => basic_auth(scope, directive, table),
            "valid_referers" => {
                let kinds = directive.args.iter().filter(|kind| !kind.starts_with('~')).cloned();
                let fate = vocabulary::put(table, "referers", kinds.collect::<Vec<_>>());
                match directive.args.iter().any(|kind| kind.starts_with('~')) {
                    true => left("patterns of referers are no expressions"),
                    false => fate,
                }
            }
            "auth_request" => auth_request(scope, directive, table),
            "secure_link" | "secure_link_md5" => secure_link(scope, directive, table),
            "set_real_ip_from" => self.trust(directive),
            "real_ip_header" => match directive.arg(0).to_ascii_lowercase().as_str() {
                "x-forwarded-for" => {
                    needless("[[trusted]] proxies state clients by X-Forwarded-For")
                }
                "proxy_protocol" => self.trust_proxy_protocol(),
                _ => left("[[trusted]] proxies state clients by X-Forwarded-For"),
            },
            "real_ip_recursive" => needless("all trusted addresses are passed over"),
            "proxy_method"
            | "proxy_pass_request_body"
            | "proxy_pass_request_headers"
            | "proxy_bind" => left("requests pass as they are"),
            "proxy_next_upstream" | "proxy_next_upstream_tries" | "proxy_next_upstream_timeout" => {
                tries(&mut self.plan.limits, directive)
            }
            "proxy_redirect" if directive.arg(0) == "off" => {
                needless("`Location` of the origin passes as it is")
            }
            "proxy_redirect" => left("`Location` of the origin passes as it is"),
            _ => match self.node_limit(scope, directive) {
                Some(fate) => fate,
                None => super::needless::fate(name)
                    .unwrap_or_else(|| left("Levada has nothing for this directive")),
            },
        }
    }

    fn caching(&mut self, scope: &Scope<'_>, directive: &Directive, table: &mut Table) -> Outcome {
        match directive.name.as_str() {
            "proxy_cache" => {
                table.set("cache", directive.arg(0) != "off");
                TAKEN
            }
            "proxy_cache_valid" => lifetime(scope, directive, table),
            "proxy_cache_use_stale" => {
                let zone = scope.nearest_arg("proxy_cache").unwrap_or_default();
                let window = self.caches.get(zone).map_or("10m", String::as_str).to_owned();
                for kind in &directive.args {
                    match kind.as_str() {
                        "updating" => table.set("stale_while_revalidate", window.as_str()),
                        "error" | "timeout" => table.set("stale_if_unreachable", window.as_str()),
                        "off" => table.set("stale_if_unreachable", "0s"),
                        status if status.starts_with("http_5") => {
                            table.set("stale_if_error", window.as_str())
                        }
                        _ => return left(format!("no stale response stands for `{kind}`")),
                    }
                }
                TAKEN
            }
            "proxy_cache_background_update" => {
                needless("stale_while_revalidate fetches beside the answer")
            }
            "proxy_cache_min_uses" if directive.arg(0) == "1" => needless("it is the default"),
            "proxy_cache_min_uses" => match directive.arg(0).parse::<u64>() {
                Ok(uses @ 1..=100) => vocabulary::put(table, "min_uses", uses),
                _ => left("is no number from 1 to 100"),
            },
            "proxy_cache_key" => match directive.args.join("").as_str() {
                "$scheme$proxy_host$request_uri"
                | "$scheme$host$request_uri"
                | "$scheme://$host$request_uri"
                | "$host$request_uri"
                | "$scheme$proxy_host$uri$is_args$args"
                | "$scheme$request_method$host$request_uri"
                | "$scheme$host$uri$is_args$args"
                | "$host$uri$is_args$args" => needless("the key is scheme, host, path and query"),
                key => match key_rules(key) {
                    Some(rules) if rules.is_empty() => {
                        needless("the key is scheme, host, path and query")
                    }
                    Some(rules) => vocabulary::put(table, "cache_key", rules),
                    None => left("there are no rules for this key"),
                },
            },
            "proxy_cache_methods" => match directive.args.iter().all(|m| m == "GET" || m == "HEAD")
            {
                true => needless("responses to GET and HEAD are stored"),
                false => left("responses to GET and HEAD are stored"),
            },
            "proxy_cache_bypass" => self.selected(directive, table, "bypass"),
            "proxy_no_cache" => self.selected(directive, table, "no_store"),
            "proxy_cache_lock"
            | "proxy_cache_lock_timeout"
            | "proxy_cache_lock_age"
            | "proxy_cache_revalidate"
            | "proxy_cache_convert_head" => super::needless::fate(&directive.name)
                .unwrap_or_else(|| needless("a node does this")),
            _ => left("Levada has nothing for this directive"),
        }
    }

    /// Fields that a node sets itself are needless; `Host` is read with the server that is asked.
    fn request_header(&mut self, directive: &Directive, table: &mut Table) -> Outcome {
        let (name, value) = (directive.arg(0), directive.arg(1));
        if let Some(fate) = tls::client_field(name, value) {
            return fate;
        }
        match (name.to_ascii_lowercase().as_str(), value) {
            ("host", _) => TAKEN,
            ("x-forwarded-for", "$proxy_add_x_forwarded_for" | "$remote_addr")
            | ("x-forwarded-proto", "$scheme")
            | ("x-forwarded-host", "$host" | "$http_host") => {
                needless("a node sends this field itself")
            }
            ("upgrade", "$http_upgrade" | "websocket") => needless(WEBSOCKET),
            ("upgrade", _) => left("connections are upgraded to WebSocket only"),
            ("connection", "" | "keep-alive") => needless("connections to servers are always kept"),
            ("connection", value)
                if value.starts_with('$') || value.eq_ignore_ascii_case("upgrade") =>
            {
                needless(WEBSOCKET)
            }
            ("connection", _) => left("`Connection` is the node's own"),
            ("te", "trailers") => needless("trailers of clients that ask for them pass"),
            ("accept-encoding", "") => needless("the origin is asked for the original"),
            (_, "") => vocabulary::edit_request(table, name, Edit::Remove),
            (_, value) => match variables::translate(value, &self.constants) {
                Ok(value) => vocabulary::edit_request(table, name, Edit::Set(value)),
                Err(reason) => Err(reason),
            },
        }
    }

    fn add_header(&mut self, directive: &Directive, table: &mut Table) -> Outcome {
        if directive.arg(0).eq_ignore_ascii_case("alt-svc") && directive.arg(1).contains("h3") {
            return needless("a listener with `http3` offers it itself");
        }
        let value = variables::translate(directive.arg(1), &self.constants)?;
        let fate = vocabulary::edit_response(table, directive.arg(0), Edit::Add(value));
        match directive.args.get(2).map(String::as_str) {
            None if fate == Ok(Fate::Taken) => {
                differs("the field is added to responses of all statuses, as with `always`")
            }
            _ => fate,
        }
    }

    fn limit(&mut self, scope: &Scope<'_>, directive: &Directive, table: &mut Table) -> Outcome {
        let counts_requests = directive.name == "limit_req";
        let zones = if counts_requests { &self.request_zones } else { &self.connection_zones };
        let zone =
            if counts_requests { directive.parameter("zone") } else { Some(directive.arg(0)) };
        let Some(Zone { key, rate }) = zone.and_then(|zone| zones.get(zone)) else {
            return left("there is no such zone");
        };
        let key = match key {
            Ok(key) => key.clone(),
            Err(reason) => return Err(reason.clone()),
        };
        let mut limit = Table::from_iter([("key", Value::Text(key))]);
        let mut fate = TAKEN;
        if counts_requests {
            limit.set("rate", rate.as_str());
            if let Some(burst) =
                directive.parameter("burst").and_then(|burst| burst.parse::<u64>().ok())
            {
                limit.set("burst", burst);
            }
            if directive.has_arg("nodelay") {
                limit.set("nodelay", true);
            }
            if directive.parameter("delay").is_some() {
                fate = differs("`delay` is not there: requests within the burst wait");
            }
            if scope.nearest("limit_req_status").is_empty() {
                fate = differs("refusals have status 429 in place of 503");
            }
        } else {
            match directive.arg(1).parse::<u64>() {
                Ok(most) if most > 0 => limit.set("concurrent", most),
                _ => return left("is no number of connections"),
            }
        }
        table.push("limit", limit);
        fate
    }

    /// A level with limits of one kind inherits those of the other kind, while a list of Levada is replaced.
    fn other_limits(&mut self, scope: &Scope<'_>, table: &mut Table) {
        let kinds = ["limit_req", "limit_conn"];
        let own = kinds.map(|kind| scope.own(kind).next().is_some());
        let other = match own {
            [true, false] => kinds[1],
            [false, true] => kinds[0],
            _ => return,
        };
        for directive in scope.nearest(other) {
            let _ = self.limit(scope, directive, table);
        }
    }

    fn trust(&mut self, directive: &Directive) -> Outcome {
        let address = directive.arg(0);
        if address.parse::<std::net::IpAddr>().is_err() && !address.contains('/') {
            return left("a trusted proxy is an address or a prefix");
        }
        if self.plan.trusted.is_empty() {
            self.plan.trusted.push(Table::default());
        }
        self.plan.trusted[0].push("addresses", address);
        TAKEN
    }

    pub(super) fn trust_proxy_protocol(&mut self) -> Outcome {
        if self.plan.trusted.is_empty() {
            self.plan.trusted.push(Table::default());
        }
        self.plan.trusted[0].set("proxy_protocol", true);
        TAKEN
    }

    /// Bounds that hold for the whole node.
    fn node_limit(&mut self, scope: &Scope<'_>, directive: &Directive) -> Option<Outcome> {
        let keys: &[&str] = match directive.name.as_str() {
            "keepalive_timeout" => &["idle_timeout"],
            "client_header_timeout" => &["head_timeout"],
            "client_body_timeout" => &["body_timeout"],
            "send_timeout" => &["send_timeout"],
            "proxy_connect_timeout" => &["connect_timeout"],
            "proxy_read_timeout" => &["response_timeout", "response_body_timeout"],
            "proxy_send_timeout" => {
                return Some(needless("a server that takes nothing is left in time"));
            }
            "large_client_header_buffers" => &["head_size"],
            _ => return None,
        };
        let value = if keys == ["head_size"] {
            let buffers = directive.arg(0).parse::<u64>().ok();
            let bytes = buffers
                .zip(units::byte_size(directive.arg(1)))
                .map(|(n, size)| n.saturating_mul(size));
            bytes.map(|bytes| units::size(bytes.clamp(8 << 10, 1 << 20)))
        } else {
            units::nginx_time(directive.arg(0))
                .map(|time| units::duration(time.clamp(1, 3_600_000)))
        };
        let Some(value) = value else { return Some(left("is no time or size")) };
        let is_new = |key: &&&str| match self.plan.limits.get(key) {
            Some(Value::Text(own)) => *own != value,
            _ => false,
        };
        if keys.iter().any(|key| is_new(&key)) {
            return Some(left("the node has one such limit, and another value is stated for it"));
        }
        for key in keys {
            self.plan.limits.set(key, value.as_str());
        }
        Some(match scope.outer {
            None => TAKEN,
            Some(_) => differs("the limit holds for the whole node"),
        })
    }

    /// Requests that one of these variables selects: it is there, neither empty nor 0.
    fn selected(&mut self, directive: &Directive, table: &mut Table, key: &str) -> Outcome {
        for variable in &directive.args {
            let name = variable.trim_start_matches('$');
            let selector = name.split_once('_').and_then(|(kind, name)| match kind {
                "cookie" => Some(format!("cookie.{name}")),
                "http" => Some(format!("header.{}", name.replace('_', "-"))),
                "arg" => Some(format!("query.{name}")),
                _ => None,
            });
            if let Some(selector) = selector {
                table.push(key, selector);
                continue;
            }
            if self.constants.get(name).is_some_and(|value| ["", "0"].contains(&value.as_str())) {
                continue;
            }
            let selected = conditions::selected(name, &self.maps, &self.flags);
            let text = match selected {
                Ok(None) => continue,
                Ok(Some(condition)) => condition.text().map(str::to_owned),
                Err(reason) => return Err(reason),
            };
            let Some(text) = text else {
                return left(format!("requests are not selected by `{variable}`"));
            };
            let when = format!("{key}_when");
            let all = match table.get(&when) {
                Some(Value::Text(own)) => format!("{own} || {text}"),
                _ => text,
            };
            if all.len() > LONGEST {
                return left("the expression for these requests would be too long");
            }
            table.set(&when, all);
        }
        TAKEN
    }

    fn set(&mut self, directive: &Directive) -> Outcome {
        let name = directive.arg(0).trim_start_matches('$').to_owned();
        if self.flags.contains_key(&name) {
            return match directive.arg(1) {
                "" | "0" => TAKEN,
                _ => left("the variable has several values"),
            };
        }
        match self.constants.get(&name) {
            Some(value) if value != directive.arg(1) => {
                self.constants.remove(&name);
                left("the variable has several values")
            }
            _ => {
                self.constants.insert(name, directive.arg(1).to_owned());
                TAKEN
            }
        }
    }
}

/// A level with fields of its own does not have those of the levels around it.
fn keep_fields(scope: &Scope<'_>, table: &mut Table) {
    let Some(outer) = scope.outer else { return };
    for (name, key) in [
        ("add_header", "response_headers"),
        ("proxy_hide_header", "response_headers"),
        ("proxy_set_header", "request_headers"),
        ("grpc_set_header", "request_headers"),
    ] {
        let own: Vec<_> = scope.own(name).map(|directive| directive.arg(0)).collect();
        if own.is_empty() {
            continue;
        }
        for around in outer.nearest(name) {
            let field = around.arg(0);
            let lower = field.to_ascii_lowercase();
            let is_nodes = lower.starts_with("x-forwarded-") || lower == "accept-encoding";
            if key == "request_headers" && is_nodes {
                continue;
            }
            let is_own = own.iter().any(|own| own.eq_ignore_ascii_case(field));
            let is_set_here = table.get(key).is_some_and(|edits| {
                ["set", "add"].iter().any(|part| {
                    edits.inner(part).is_some_and(|fields| fields.inner(field).is_some())
                })
            });
            if !is_own && !is_set_here {
                vocabulary::keep_field(table, key, field);
            }
        }
    }
}

fn tries(limits: &mut Table, directive: &Directive) -> Outcome {
    match (directive.name.as_str(), directive.arg(0).parse::<u64>()) {
        ("proxy_next_upstream_tries", Ok(tries @ 1..=10)) => {
            limits.set("tries", tries);
            TAKEN
        }
        ("proxy_next_upstream", _) if directive.arg(0) == "off" => {
            limits.set("tries", 1);
            TAKEN
        }
        _ => needless("requests that may be repeated are: [limits]"),
    }
}

/// nginx's lifetimes count where the origin states none, as Levada's do.
fn lifetime(_: &Scope<'_>, directive: &Directive, table: &mut Table) -> Outcome {
    let Some((time, statuses)) = directive.args.split_last() else {
        return left("has no time");
    };
    let Some(time) = units::nginx_time(time).map(units::duration) else {
        return left("is no time");
    };
    let words = statuses.iter().map(String::as_str).chain([time.as_str()]);
    let statuses = if statuses.is_empty() {
        format!("200 301 302 {time}")
    } else {
        words.collect::<Vec<_>>().join(" ")
    };
    vocabulary::push(table, "status_ttl", statuses)
}

fn ignored_headers(directive: &Directive, table: &mut Table) -> Outcome {
    let mut fate = TAKEN;
    for field in &directive.args {
        fate = match field.to_ascii_lowercase().as_str() {
            "set-cookie" => {
                table.set("store_cookies", "always");
                TAKEN
            }
            name if name.starts_with("x-accel-") => {
                needless("the fields X-Accel- mean nothing to a node")
            }
            name @ ("cache-control" | "expires" | "vary") => {
                vocabulary::push(table, "ignore_headers", name)
            }
            _ => left("a node cannot ignore this field"),
        };
        fate.as_ref()?;
    }
    fate
}

fn expires(directive: &Directive, table: &mut Table) -> Outcome {
    let value = match directive.arg(0) {
        "off" => return needless("it is the default"),
        "epoch" => "no-cache".to_owned(),
        "max" => "max-age=315360000".to_owned(),
        "modified" => return left("lifetimes do not count from the last change"),
        time => match units::nginx_time(time) {
            Some(milliseconds) => format!("max-age={}", milliseconds / 1_000),
            None if time.starts_with('-') => "no-cache".to_owned(),
            None => return left("is no time"),
        },
    };
    match vocabulary::edit_response(table, "Cache-Control", Edit::Set(value)) {
        Ok(Fate::Taken) => differs("only `Cache-Control` is set, not `Expires`"),
        other => other,
    }
}

/// The location that a path of the configuration leads to, of the server around a level.
fn location_of<'a>(scope: &Scope<'a>, path: &str) -> Option<&'a Directive> {
    let found = scope.own("location").find(|location| {
        let args: Vec<_> = location.args.iter().map(String::as_str).collect();
        args == ["=", path] || args == [path]
    });
    found.or_else(|| location_of(scope.outer?, path))
}

/// A page is a file where its path leads to a directory, and a path at the origin otherwise.
fn error_page(scope: &Scope<'_>, directive: &Directive, table: &mut Table) -> Outcome {
    let Some((page, statuses)) = directive.args.split_last() else {
        return left("has no page");
    };
    let other_status = statuses.iter().any(|status| status.starts_with('='));
    if !page.starts_with('/') || page.contains('$') || other_status {
        return left("an error page is a path or a file, and keeps the status");
    }
    let location = location_of(scope, page);
    let inner = location.map(|location| Scope { directives: location.inner(), outer: Some(scope) });
    let at = inner.as_ref().unwrap_or(scope);
    let asks = at.own("proxy_pass").next().is_some();
    let root = at.nearest_arg("root").filter(|_| !asks);
    let target = match root {
        Some(root) => ("file", format!("{}{page}", root.trim_end_matches('/'))),
        None => ("path", page.clone()),
    };
    let mut fate = left("has no status");
    for status in statuses {
        if !status.parse::<u16>().is_ok_and(|status| (400..600).contains(&status)) {
            return left("an error page is for an error");
        }
        let one = Table::from_iter([(target.0, target.1.as_str().into())]);
        fate = vocabulary::put_inner(table, "error_pages", status, one);
    }
    match fate {
        Ok(Fate::Taken) if scope.nearest_arg("proxy_intercept_errors") != Some("on") => differs(
            "the page stands for such errors of the origin, too, as with proxy_intercept_errors",
        ),
        fate => fate,
    }
}

/// `auth_request /auth;` with the location that says which server is asked.
fn auth_request(scope: &Scope<'_>, directive: &Directive, table: &mut Table) -> Outcome {
    if directive.arg(0) == "off" {
        return match scope.outer.is_some_and(|outer| !outer.nearest("auth_request").is_empty()) {
            true => vocabulary::put(table, "forward_auth", "off"),
            false => needless("it is the default"),
        };
    }
    let Some(location) = location_of(scope, directive.arg(0)) else {
        return left("there is no such location");
    };
    let inner = Scope { directives: location.inner(), outer: None };
    let url = inner.nearest_arg("proxy_pass").unwrap_or_default();
    let is_plain = url.starts_with("http://") || url.starts_with("https://");
    if !is_plain || url.contains(['$', '{']) {
        return left("the server that is asked has a URL without variables");
    }
    let path = url.splitn(4, '/').nth(3);
    let url = match path {
        Some(_) => url.to_owned(),
        None => format!("{url}{}", directive.arg(0)),
    };
    match vocabulary::put(table, "forward_auth", Table::from_iter([("url", url.into())])) {
        Ok(Fate::Taken) => differs(
            "the server gets X-Forwarded-Uri and the like, and its refusals go to the client as they are",
        ),
        fate => fate,
    }
}

fn compression(scope: &Scope<'_>, directive: &Directive, table: &mut Table) -> Outcome {
    let coding = if directive.name.starts_with("brotli") { "br" } else { "gzip" };
    let is_on = ["gzip", "brotli"].iter().any(|name| scope.nearest_arg(name) == Some("on"));
    match directive.name.as_str() {
        "gzip" | "brotli" if directive.arg(0) == "on" => {
            let own = scope.nearest_arg("gzip") == Some("on");
            let brotli = scope.nearest_arg("brotli") == Some("on");
            let codings = [("br", brotli), ("gzip", own)].into_iter().filter(|(_, on)| *on);
            let codings = codings.map(|(name, _)| Value::from(name)).collect();
            table.inline("compress").set("codings", Value::List(codings));
            TAKEN
        }
        "gzip" | "brotli" if is_on || scope.outer.is_none() => needless("it is the default"),
        "gzip" | "brotli" => {
            vocabulary::put_inner(table, "compress", "codings", Value::List(Vec::new()))
        }
        "gzip_types" | "brotli_types" if is_on => {
            let mut types: Vec<String> =
                directive.args.iter().filter(|t| t.contains('/')).cloned().collect();
            if directive.args.iter().any(|t| t == "*") {
                types =
                    ["text/*", "application/*", "image/*", "font/*"].map(str::to_owned).to_vec();
            } else if !types.iter().any(|t| t == "text/html") {
                // nginx always compresses this type.
                types.insert(0, "text/html".to_owned());
            }
            let list = types.into_iter().map(Value::Text).collect();
            table.inline("compress").set("types", Value::List(list));
            TAKEN
        }
        "gzip_min_length" | "brotli_min_length" if is_on => {
            match units::byte_size(directive.arg(0)) {
                Some(bytes) => {
                    vocabulary::put_inner(table, "compress", "min_size", units::size(bytes))
                }
                None => left("is no size"),
            }
        }
        "gzip_comp_level" | "brotli_comp_level" if is_on => {
            match (coding, directive.arg(0).parse::<u64>()) {
                ("gzip", Ok(level @ 1..=9)) => {
                    vocabulary::put_inner(table, "compress", "gzip_level", level)
                }
                ("br", Ok(level @ 0..=11)) => {
                    vocabulary::put_inner(table, "compress", "br_level", level)
                }
                _ => left("is no level"),
            }
        }
        name => super::needless::fate(name).unwrap_or_else(|| needless("compression is off here")),
    }
}

fn bandwidth(directive: &Directive, table: &mut Table) -> Outcome {
    let Some(bytes) = units::byte_size(directive.arg(0)) else { return left("is no size") };
    match directive.name.as_str() {
        _ if bytes == 0 => needless("it is the default"),
        "limit_rate_after" => {
            vocabulary::put_inner(table, "bandwidth", "after", units::size(bytes))
        }
        _ => match vocabulary::put_inner(
            table,
            "bandwidth",
            "connection",
            format!("{}/s", units::size(bytes.max(1024))),
        ) {
            Ok(Fate::Taken) => differs("streams of one HTTP/2 connection share the rate"),
            other => other,
        },
    }
}

fn access(directive: &Directive, table: &mut Table) -> Outcome {
    let whom = directive.arg(0);
    if whom == "unix:" {
        return left("clients come over TCP");
    }
    vocabulary::push(table, "access", format!("{} {whom}", directive.name))
}

fn basic_auth(scope: &Scope<'_>, directive: &Directive, table: &mut Table) -> Outcome {
    let is_off = scope.nearest_arg("auth_basic").is_none_or(|realm| realm == "off");
    let file = scope.nearest_arg("auth_basic_user_file");
    let is_inherited = scope.outer.is_some_and(|outer| outer.nearest_arg("auth_basic").is_some());
    match (directive.name.as_str(), file) {
        ("auth_basic_user_file", _) if is_off => needless("no password is asked for here"),
        (_, _) if is_off && is_inherited => vocabulary::put(table, "basic_auth", "off"),
        (_, _) if is_off => needless("it is the default"),
        (_, None) => left("there is no auth_basic_user_file"),
        (_, Some(file)) => {
            let realm = scope.nearest_arg("auth_basic").unwrap_or_default();
            let auth = [("realm", realm.into()), ("users_file", file.into())];
            vocabulary::put(table, "basic_auth", Table::from_iter(auth))
        }
    }
}

/// `secure_link $arg_md5,$arg_expires;` with `secure_link_md5 "$secure_link_expires$uri secret";`
fn secure_link(scope: &Scope<'_>, directive: &Directive, table: &mut Table) -> Outcome {
    let (Some(link), Some(message)) =
        (scope.nearest_arg("secure_link"), scope.nearest_arg("secure_link_md5"))
    else {
        return left("a link has a signature, and a text that it is over");
    };
    let arguments = link.split_once(',').and_then(|(signature, expires)| {
        Some((signature.trim().strip_prefix("$arg_")?, expires.trim().strip_prefix("$arg_")?))
    });
    let Some((signature, expires)) = arguments else {
        return left("a link has two arguments: its signature and its end");
    };
    let mut message = message.to_owned();
    for (own, name) in
        [("$secure_link_expires", "{expires}"), ("$uri", "{path}"), ("$remote_addr", "{client}")]
    {
        message = message.replace(own, name);
    }
    let variables_end = message.rfind('}').map_or(0, |end| end + 1);
    let secret = message.split_off(variables_end);
    let begins = secret.find(|c: char| !c.is_whitespace()).unwrap_or(secret.len());
    if message.contains('$') || !message.contains("{expires}") || begins == secret.len() {
        return left("the digest is over other things than the end, the path and the client");
    }
    message.push_str(&secret[..begins]);
    message.push_str("{secret}");
    let keys = [
        ("form", "secure_link".into()),
        ("secret_file", "link.secret".into()),
        ("message", message.into()),
        ("signature", signature.into()),
        ("expires", expires.into()),
    ];
    match (directive.name.as_str(), vocabulary::put(table, "signed_urls", Table::from_iter(keys))) {
        ("secure_link_md5", TAKEN) => left(
            "all but the secret is there: write what follows the variables into the file link.secret",
        ),
        (_, fate) => fate,
    }
}

/// The rules of a cache key that is made of nginx's variables.
fn key_rules(key: &str) -> Option<Table> {
    let mut rules = Table::default();
    let (mut has_path, mut has_query) = (false, false);
    for variable in key.split('$').skip(1) {
        let variable = variable.trim_start_matches('{');
        let end = variable.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let name = &variable[..end.unwrap_or(variable.len())];
        match name {
            "request_uri" => (has_path, has_query) = (true, true),
            "uri" | "document_uri" => has_path = true,
            "args" | "query_string" => has_query = true,
            "scheme" | "host" | "http_host" | "proxy_host" | "server_name" | "is_args"
            | "request_method" | "server_port" => {}
            _ => match name.split_once('_')? {
                ("arg", argument) => rules.push("query_only", argument),
                ("cookie", cookie) => rules.push("cookies", cookie),
                ("http", field) => rules.push("headers", crate::matchers::field_name(field)),
                _ => return None,
            },
        }
    }
    if !has_path {
        return None;
    }
    if has_query {
        rules.remove("query_only");
    } else if rules.get("query_only").is_none() {
        rules.set("query", "none");
    }
    Some(rules)
}
