//! Bounds: of clients by zones, of bodies and rates, and of the whole node.

use super::{
    converter::{Converter, Scope, Zone, Zones},
    parse::Directive,
    setting::{Reader, Setting, Turn, at, key, value},
};
use crate::{
    ledger::{Outcome, TAKEN, differs, left, needless},
    matchers::{Part, part},
    rows::Row,
    table::{Table, Value},
    units,
};

const STATUS: &str = "refusals have status 429";

pub(super) const TABLE: &[Row<Reader>] = &[
    at(Turn::Http, "limit_req_zone", "limit", |s| {
        zone(&mut s.converter.request_zones, s.directive)
    }),
    at(Turn::Http, "limit_conn_zone", "limit", |s| {
        zone(&mut s.converter.connection_zones, s.directive)
    }),
    key("limit_req", "limit", limit_req),
    key("limit_conn", "limit", limit_conn),
    Row::needless("limit_req_status limit_conn_status = 429", STATUS),
    key("limit_req_status limit_conn_status", STATUS, |_| differs(STATUS)),
    Row::needless("limit_req_log_level limit_conn_log_level", "the access log names refusals"),
    key("limit_rate", "bandwidth.connection", limit_rate),
    key("limit_rate_after", "bandwidth.after", limit_rate_after),
    key("client_max_body_size", "max_body", max_body),
    value("keepalive_timeout", "limits.idle_timeout", time),
    value("client_header_timeout", "limits.head_timeout", time),
    value("client_body_timeout", "limits.body_timeout", time),
    value("send_timeout", "limits.send_timeout", time),
    value("proxy_connect_timeout", "limits.connect_timeout", time),
    value("proxy_read_timeout", "limits.response_timeout, limits.response_body_timeout", time),
    Row::needless("proxy_send_timeout", "a server that takes nothing is left in time"),
    key("large_client_header_buffers", "limits.head_size", head_size),
    key("proxy_next_upstream = off", "limits.tries", |s| tries(s, 1)),
    key("proxy_next_upstream_tries = 1 2 3 4 5 6 7 8 9 10", "limits.tries", |s| {
        tries(s, s.arg(0).parse().unwrap_or(1))
    }),
    key("proxy_next_upstream", "limits.tries", |s| {
        match s.directive.args.iter().find(|one| !["error", "timeout"].contains(&one.as_str())) {
            Some(other) => left(format!("the next server is not asked after `{other}`")),
            None => needless("requests that may be repeated are: [limits]"),
        }
    }),
    Row::needless(
        "proxy_next_upstream_tries proxy_next_upstream_timeout",
        "requests that may be repeated are: [limits]",
    ),
];

fn zone(zones: &mut Zones, directive: &Directive) -> Outcome {
    let zone = directive.parameter("zone").and_then(|zone| zone.split(':').next());
    let name = zone.ok_or("has no zone")?;
    let key = match directive.arg(0).trim_start_matches('$') {
        "binary_remote_addr" | "remote_addr" | "realip_remote_addr" => Ok("client".to_owned()),
        "server_name" | "host" | "http_host" => Ok("site".to_owned()),
        "uri" | "document_uri" => Ok("path".to_owned()),
        other => match part(other) {
            Some(Part::Field(field)) => Ok(format!("header:{field}")),
            Some(Part::Cookie(cookie)) => Ok(format!("cookie:{cookie}")),
            _ => Err(format!("a limit cannot count by `{}`", directive.arg(0))),
        },
    };
    let rate = directive.parameter("rate").unwrap_or_default().to_owned();
    zones.insert(name.to_owned(), Zone { key: key.clone(), rate });
    key?;
    TAKEN
}

/// A limit by the key of a zone, and the zone's rate.
fn of_zone(zones: &Zones, name: Option<&str>) -> Result<(Table, String), String> {
    let zone = name.and_then(|name| zones.get(name)).ok_or("there is no such zone")?;
    Ok((Table::from_iter([("key", zone.key.clone()?.into())]), zone.rate.clone()))
}

fn limit_req(s: &mut Setting<'_>) -> Outcome {
    let parameter = |name| s.directive.parameter(name);
    let (mut limit, rate) = of_zone(&s.converter.request_zones, parameter("zone"))?;
    limit.set("rate", rate);
    if let Some(burst) = parameter("burst").and_then(|burst| burst.parse::<u64>().ok()) {
        limit.set("burst", burst);
    }
    if s.directive.has_arg("nodelay") {
        limit.set("nodelay", true);
    }
    s.table.push("limit", limit);
    if s.scope.nearest("limit_req_status").is_empty() {
        return differs("refusals have status 429 in place of 503");
    }
    match parameter("delay") {
        Some(_) => differs("`delay` is not there: requests within the burst wait"),
        None => TAKEN,
    }
}

fn limit_conn(s: &mut Setting<'_>) -> Outcome {
    let (mut limit, _) = of_zone(&s.converter.connection_zones, Some(s.arg(0)))?;
    match s.arg(1).parse::<u64>() {
        Ok(most) if most > 0 => limit.set("concurrent", most),
        _ => return left("is no number of connections"),
    }
    s.table.push("limit", limit);
    TAKEN
}

impl Converter {
    /// A level with limits of one kind inherits those of the other kind, while a list of Levada is replaced.
    pub(super) fn other_limits(&mut self, scope: &Scope<'_>, table: &mut Table) {
        let has = |kind| scope.own(kind).next().is_some();
        let (other, read): (_, fn(&mut Setting<'_>) -> Outcome) =
            match (has("limit_req"), has("limit_conn")) {
                (true, false) => ("limit_conn", limit_conn),
                (false, true) => ("limit_req", limit_req),
                _ => return,
            };
        for directive in scope.nearest(other) {
            let _ = read(&mut Setting { converter: self, scope, directive, table });
        }
    }
}

fn limit_rate(s: &mut Setting<'_>) -> Outcome {
    let bytes = units::byte_size(s.arg(0)).ok_or("is no size")?;
    if bytes == 0 {
        return needless("it is the default");
    }
    let rate = format!("{}/s", units::size(bytes.max(1024)));
    s.put("bandwidth.connection", rate)?;
    differs("streams of one HTTP/2 connection share the rate")
}

fn limit_rate_after(s: &mut Setting<'_>) -> Outcome {
    match units::byte_size(s.arg(0)).ok_or("is no size")? {
        0 => needless("it is the default"),
        bytes => s.put("bandwidth.after", units::size(bytes)),
    }
}

fn max_body(s: &mut Setting<'_>) -> Outcome {
    match units::byte_size(s.arg(0)).ok_or("is no size")? {
        // A level within another one that has a limit.
        0 => s.put("max_body", "1024TiB"),
        bytes => s.put("max_body", units::size(bytes)),
    }
}

fn time(text: &str) -> Result<Value, String> {
    Ok(units::bounded(units::nginx_time(text).ok_or("is no time or size")?))
}

fn head_size(s: &mut Setting<'_>) -> Outcome {
    let buffers = s.arg(0).parse::<u64>().ok().zip(units::byte_size(s.arg(1)));
    let (number, size) = buffers.ok_or("is no time or size")?;
    let bytes = number.saturating_mul(size).clamp(8 << 10, 1 << 20);
    of_node(s, &["head_size"], &units::size(bytes).into())
}

/// Sets the keys of a row: of the level, or bounds of the whole node.
pub(super) fn set(s: &mut Setting<'_>, row: &Row<Reader>, value: Value) -> Outcome {
    let bounds: Vec<_> = row.key_names().filter_map(|key| key.strip_prefix("limits.")).collect();
    if !bounds.is_empty() {
        return of_node(s, &bounds, &value);
    }
    row.key_names().for_each(|key| s.table.set_path(key, value.clone()));
    TAKEN
}

fn of_node(s: &mut Setting<'_>, keys: &[&str], value: &Value) -> Outcome {
    if !s.converter.plan.limit(keys, value) {
        return left("the node has one such limit, and another value is stated for it");
    }
    match s.scope.outer {
        None => TAKEN,
        Some(_) => differs("the limit holds for the whole node"),
    }
}

fn tries(s: &mut Setting<'_>, tries: u64) -> Outcome {
    s.converter.plan.limits.set("tries", tries);
    TAKEN
}
