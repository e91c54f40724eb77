//! `gzip` and `brotli` as `compress`.

use super::{
    converter::Scope,
    setting::{Read, Reader, Setting, key},
};
use crate::{
    ledger::{Outcome, TAKEN, left, needless},
    rows::Row,
    table::Value,
    units,
};

const OFF: &str = "compression is off here";

pub(super) const TABLE: &[Row<Reader>] = &[
    key("gzip brotli", "compress.codings", codings),
    key("gzip_types brotli_types", "compress.types", types),
    key("gzip_min_length brotli_min_length", "compress.min_size", min_size),
    key("gzip_comp_level", "compress.gzip_level", |s| level(s, "compress.gzip_level", 1, 9)),
    key("brotli_comp_level", "compress.br_level", |s| level(s, "compress.br_level", 0, 11)),
    Row::needless(
        "gzip_vary gzip_proxied gzip_buffers gzip_http_version gzip_disable gzip_static gunzip \
         brotli_static brotli_window brotli_buffers gzip_window gzip_hash",
        "codings are negotiated and stored by RFC 9110",
    ),
    Row::needless("gzip* brotli*", OFF),
];

pub(super) fn is_on(scope: &Scope<'_>) -> bool {
    ["gzip", "brotli"].iter().any(|name| scope.nearest_arg(name) == Some("on"))
}

fn codings(s: &mut Setting<'_>) -> Outcome {
    if s.arg(0) != "on" && (is_on(s.scope) || s.scope.outer.is_none()) {
        return needless("it is the default");
    }
    let codings = [("br", "brotli"), ("gzip", "gzip")].into_iter();
    let is_on = |name| s.arg(0) == "on" && s.scope.nearest_arg(name) == Some("on");
    let codings = codings.filter(|(_, name)| is_on(name)).map(|(coding, _)| Value::from(coding));
    let codings = Value::List(codings.collect());
    s.put("compress.codings", codings)?;
    of_levels_around(s);
    TAKEN
}

/// Statements of the levels around about compression hold from the level on that turns it on.
fn of_levels_around(s: &mut Setting<'_>) {
    const ROWS: [(&[&str], Read); 2] = [
        (&["gzip_types", "brotli_types"], types),
        (&["gzip_min_length", "brotli_min_length"], min_size),
    ];
    for (names, read) in ROWS {
        for name in names.iter().filter(|name| s.scope.own(name).next().is_none()) {
            for directive in s.scope.nearest(name) {
                let (scope, table) = (s.scope, &mut *s.table);
                let outcome =
                    read(&mut Setting { converter: s.converter, scope, directive, table });
                s.converter.enter(directive, outcome);
            }
        }
    }
    // nginx's own defaults.
    let has = |names: [&str; 2]| names.iter().any(|name| s.scope.nearest_arg(name).is_some());
    if !has(["gzip_types", "brotli_types"]) {
        s.table.set_path("compress.types", Value::List(vec!["text/html".into()]));
    }
    if !has(["gzip_min_length", "brotli_min_length"]) {
        s.table.set_path("compress.min_size", "20B");
    }
}

fn types(s: &mut Setting<'_>) -> Outcome {
    if !is_on(s.scope) {
        return needless(OFF);
    }
    let mut types: Vec<_> =
        s.directive.args.iter().map(String::as_str).filter(|name| name.contains('/')).collect();
    if s.directive.has_arg("*") {
        types = vec!["text/*", "application/*", "image/*", "font/*"];
    } else if !types.contains(&"text/html") {
        // nginx always compresses this type.
        types.insert(0, "text/html");
    }
    // nginx's type of scripts, and that of RFC 9239.
    let scripts = ["application/javascript", "text/javascript", "application/x-javascript"];
    if types.iter().any(|own| scripts.contains(own)) {
        types.extend(scripts[..2].iter().filter(|own| !s.directive.has_arg(own)));
    }
    s.put("compress.types", Value::List(types.into_iter().map(Value::from).collect()))
}

fn min_size(s: &mut Setting<'_>) -> Outcome {
    if !is_on(s.scope) {
        return needless(OFF);
    }
    let bytes = units::byte_size(s.arg(0)).ok_or("is no size")?;
    s.put("compress.min_size", units::size(bytes))
}

fn level(s: &mut Setting<'_>, key: &str, least: u64, most: u64) -> Outcome {
    match s.arg(0).parse::<u64>() {
        _ if !is_on(s.scope) => needless(OFF),
        Ok(level) if (least..=most).contains(&level) => s.put(key, level),
        _ => left("is no level"),
    }
}
