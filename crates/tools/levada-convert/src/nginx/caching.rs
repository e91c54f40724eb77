//! The cache: responses that are stored, their keys and their lifetimes.

use super::{
    conditions,
    converter::Converter,
    setting::{Reader, Setting, Turn, at, key, stores, value},
};
use crate::{
    ledger::{Outcome, TAKEN, differs, left, needless},
    matchers::{LONGEST, Part, field_name, part},
    rows::Row,
    table::{Table, Value},
    units,
};

pub(super) const TABLE: &[Row<Reader>] = &[
    at(Turn::Http, "proxy_cache_path", "cache.disk", cache_path),
    stores("proxy_cache", "cache", zone),
    key("proxy_cache_valid", "status_ttl", lifetime),
    key(
        "proxy_cache_use_stale",
        "stale_while_revalidate, stale_if_error, stale_if_unreachable",
        use_stale,
    ),
    Row::needless(
        "proxy_cache_background_update",
        "stale_while_revalidate fetches beside the answer",
    ),
    Row::needless("proxy_cache_min_uses = 1", "it is the default"),
    value("proxy_cache_min_uses", "min_uses", min_uses),
    stores("proxy_cache_key", "cache_key", cache_key),
    key("proxy_cache_methods", "GET and HEAD are stored", methods),
    stores("proxy_cache_bypass", "bypass, bypass_when", |s| selected(s, "bypass")),
    stores("proxy_no_cache", "no_store, no_store_when", |s| selected(s, "no_store")),
    key("proxy_ignore_headers", "ignore_headers, store_cookies", ignored_headers),
    Row::needless(
        "proxy_cache_lock proxy_cache_lock_timeout proxy_cache_lock_age",
        "requests for one object always share one fetch",
    ),
    Row::needless(
        "proxy_cache_revalidate proxy_cache_convert_head etag if_modified_since",
        "a node follows RFC 9110 and 9111 here",
    ),
];

/// All caches of nginx are one in a node.
fn cache_path(s: &mut Setting<'_>) -> Outcome {
    const LEAST: u64 = 16 << 20;
    let inactive = s.directive.parameter("inactive").and_then(units::nginx_time);
    let zone = s.directive.parameter("keys_zone").and_then(|zone| zone.split(':').next());
    let is_first = s.converter.caches.is_empty();
    if let Some(zone) = zone {
        let inactive = units::duration(inactive.unwrap_or(600_000));
        s.converter.caches.insert(zone.to_owned(), inactive);
    }
    if !is_first {
        return differs("a node has one cache: the first path counts for all");
    }
    let size = s.directive.parameter("max_size").and_then(units::byte_size);
    let disk = s.converter.plan.cache.inline("disk");
    disk.set("path", s.directive.arg(0));
    disk.set("size", units::size(size.unwrap_or(10 << 30).max(LEAST)));
    match size {
        Some(_) => TAKEN,
        None => differs("nginx's cache without max_size fills the disk; here it has 10GiB"),
    }
}

fn zone(s: &mut Setting<'_>) -> Outcome {
    let zone = s.arg(0);
    if zone.contains('$') {
        return left("the zone does not come from a variable");
    }
    s.put("cache", zone != "off")?;
    match zone {
        "off" => TAKEN,
        _ => differs(
            "a client's `Cache-Control: no-cache` is obeyed (RFC 9111, 5.2.1.4), X-Accel-Expires is not",
        ),
    }
}

/// nginx's lifetimes count where the origin states none, as Levada's do.
fn lifetime(s: &mut Setting<'_>) -> Outcome {
    let (time, statuses) = s.directive.args.split_last().ok_or("has no time")?;
    let time = units::nginx_time(time).map(units::duration).ok_or("is no time")?;
    let statuses = if statuses.is_empty() { "200 301 302".to_owned() } else { statuses.join(" ") };
    s.table.push("status_ttl", format!("{statuses} {time}"));
    TAKEN
}

fn use_stale(s: &mut Setting<'_>) -> Outcome {
    let zone = s.scope.nearest_arg("proxy_cache").unwrap_or_default();
    let window = s.converter.caches.get(zone).map_or("10m", String::as_str);
    for kind in &s.directive.args {
        let (key, window) = match kind.as_str() {
            "updating" => ("stale_while_revalidate", window),
            "error" | "timeout" => ("stale_if_unreachable", window),
            "off" => ("stale_if_unreachable", "0s"),
            status if status.starts_with("http_5") => ("stale_if_error", window),
            _ => return left(format!("no stale response stands for `{kind}`")),
        };
        s.table.set(key, window);
    }
    TAKEN
}

fn min_uses(text: &str) -> Result<Value, String> {
    let uses = text.parse::<u64>().ok().filter(|uses| (1..=100).contains(uses));
    Ok(uses.ok_or("is no number from 1 to 100")?.into())
}

fn cache_key(s: &mut Setting<'_>) -> Outcome {
    let rules = key_rules(&s.directive.args.join("")).ok_or("there are no rules for this key")?;
    match rules.is_empty() {
        true => needless("the key is scheme, host, path and query"),
        false => s.put("cache_key", rules),
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
            _ => match part(name)? {
                Part::Argument(name) => rules.push("query_only", name),
                Part::Cookie(name) => rules.push("cookies", name),
                Part::Field(name) => rules.push("headers", field_name(&name)),
            },
        }
    }
    if has_query {
        rules.remove("query_only");
    } else if !rules.has_any(&["query_only"]) {
        rules.set("query", "none");
    }
    has_path.then_some(rules)
}

fn methods(s: &mut Setting<'_>) -> Outcome {
    const STORED: &str = "responses to GET and HEAD are stored";
    match s.directive.args.iter().all(|method| method == "GET" || method == "HEAD") {
        true => needless(STORED),
        false => left(STORED),
    }
}

/// Requests that one of these variables selects: it is there, neither empty nor 0.
fn selected(s: &mut Setting<'_>, key: &str) -> Outcome {
    for variable in &s.directive.args {
        if let Some(selector) = selector(variable) {
            s.table.push(key, selector);
            continue;
        }
        let Some(text) = s.converter.expression(variable)? else { continue };
        let when = format!("{key}_when");
        let all = match s.table.get(&when) {
            Some(Value::Text(own)) => format!("{own} || {text}"),
            _ => text,
        };
        if all.len() > LONGEST {
            return left("the expression for these requests would be too long");
        }
        s.table.set(&when, all);
    }
    TAKEN
}

fn selector(variable: &str) -> Option<String> {
    Some(match part(variable.trim_start_matches('$'))? {
        Part::Cookie(name) => format!("cookie.{name}"),
        Part::Field(name) => format!("header.{name}"),
        Part::Argument(name) => format!("query.{name}"),
    })
}

impl Converter {
    /// The requests that a variable selects, as an expression; none if it selects none.
    fn expression(&self, variable: &str) -> Result<Option<String>, String> {
        let name = variable.trim_start_matches('$');
        if self.unknown.contains(name) {
            return Err(format!("the requests that `{variable}` is set for are not known"));
        }
        if self.constants.get(name).is_some_and(|value| ["", "0"].contains(&value.as_str())) {
            return Ok(None);
        }
        let Some(condition) = conditions::selected(name, &self.maps, &self.flags)? else {
            return Ok(None);
        };
        let text = condition.text().map(str::to_owned);
        Ok(Some(text.ok_or_else(|| format!("requests are not selected by `{variable}`"))?))
    }
}

fn ignored_headers(s: &mut Setting<'_>) -> Outcome {
    let mut outcome = TAKEN;
    for field in &s.directive.args {
        outcome = match field.to_ascii_lowercase().as_str() {
            "set-cookie" => s.put("store_cookies", "always"),
            name if name.starts_with("x-accel-") => {
                needless("the fields X-Accel- mean nothing to a node")
            }
            name @ ("cache-control" | "expires" | "vary") => {
                s.table.push("ignore_headers", name);
                TAKEN
            }
            _ => return left("a node cannot ignore this field"),
        };
    }
    outcome
}
