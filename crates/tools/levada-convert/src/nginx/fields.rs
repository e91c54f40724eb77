//! Header fields of requests and responses, and error pages.

use super::{
    compression,
    converter::Scope,
    parse::Directive,
    setting::{Reader, Setting, key},
    tls, variables,
};
use crate::{
    ledger::{Outcome, Stated as _, TAKEN, differs, left, needless},
    matchers::checked_regex,
    rows::{Row, find},
    table::{Table, Value},
    units,
    vocabulary::{self, Edit},
};

const AS_IT_IS: &str = "`Location` of the origin passes as it is";

pub(super) const TABLE: &[Row<Reader>] = &[
    key("proxy_set_header", "request_headers", request_header),
    key("proxy_hide_header", "response_headers.remove", hide_header),
    Row::needless("proxy_pass_header", "fields of the origin pass unless they are removed"),
    key("add_header", "response_headers.add", add_header),
    Row::needless("expires = off", "it is the default"),
    Row::left("expires = modified", "lifetimes do not count from the last change"),
    key("expires", "response_headers.set", expires),
    key("error_page", "error_pages", error_page),
    key("proxy_intercept_errors = on", "error_pages", |_| TAKEN),
    Row::needless("proxy_intercept_errors", "it is the default"),
    Row::needless("proxy_redirect = off", AS_IT_IS),
    key("proxy_redirect", "response_headers.replace", redirects),
    key("proxy_cookie_domain proxy_cookie_path", "response_headers.replace", cookies),
    Row::left(
        "proxy_method proxy_pass_request_body proxy_pass_request_headers proxy_bind",
        "requests pass as they are",
    ),
];

/// Fields of requests that a node sets itself, by their usual values.
const OWN_FIELDS: &[Row<()>] = &[
    Row::needless("x-forwarded-for = $remote_addr", "a node sends this field itself"),
    Row::needless(
        "x-forwarded-for = $proxy_add_x_forwarded_for",
        "a node sends this field itself; lists of clients pass from [[trusted]] only",
    ),
    Row::needless("x-forwarded-proto = $scheme", "a node sends this field itself"),
    Row::needless("x-forwarded-host = $host $http_host", "a node sends this field itself"),
    Row::needless("upgrade = $http_upgrade websocket", WEBSOCKET),
    Row::left("upgrade", "connections are upgraded to WebSocket only"),
    Row::needless("connection = '' keep-alive", "connections to servers are always kept"),
    Row::needless("te = trailers", "trailers of clients that ask for them pass"),
];

const WEBSOCKET: &str = "WebSocket passes by itself: docs/operate/websocket.md";

/// `Host` is read with the server that is asked.
fn request_header(s: &mut Setting<'_>) -> Outcome {
    let (name, value) = (s.arg(0), s.arg(1));
    let lower = name.to_ascii_lowercase();
    if let Some(outcome) = tls::client_field(name, value) {
        return outcome;
    }
    if let Some(row) = find(OWN_FIELDS, &lower, value) {
        return row.outcome(|()| TAKEN);
    }
    let own = |one: &&Directive| one.arg(0).eq_ignore_ascii_case(name);
    if s.scope.own("proxy_set_header").filter(own).count() > 1 {
        return differs("nginx sends the field once for each of these");
    }
    match (lower.as_str(), value) {
        ("host", _) => TAKEN,
        ("connection", value) if value.starts_with('$') || is_upgrade(value) => needless(WEBSOCKET),
        ("connection", _) => left("`Connection` is the node's own"),
        ("accept-encoding", "") => vocabulary::edit_request(s.table, name, Edit::Remove)
            .or_else(|_| differs("only a site that compresses asks for the original")),
        (_, "") => vocabulary::edit_request(s.table, name, Edit::Remove),
        (_, value) => {
            let value = variables::translate(value, &s.converter.constants)?;
            vocabulary::edit_request(s.table, name, Edit::Set(value))
        }
    }
}

fn hide_header(s: &mut Setting<'_>) -> Outcome {
    let is_type = s.arg(0).eq_ignore_ascii_case("content-type");
    vocabulary::edit_response(s.table, s.arg(0), Edit::Remove)?;
    match is_type && compression::is_on(s.scope) {
        true => differs("the node compresses by the type that the origin states"),
        false => TAKEN,
    }
}

fn is_upgrade(value: &str) -> bool {
    value.eq_ignore_ascii_case("upgrade")
}

fn add_header(s: &mut Setting<'_>) -> Outcome {
    let name = s.arg(0);
    if name.eq_ignore_ascii_case("alt-svc") && s.arg(1).contains("h3") {
        return needless("a listener with `http3` offers it itself");
    }
    let value = variables::translate(s.arg(1), &s.converter.constants)?;
    let is_own = |one: &&Directive| one.arg(0).eq_ignore_ascii_case(name);
    let same: Vec<_> = s.scope.own("add_header").filter(is_own).collect();
    if same.iter().any(|one| one.args.len() != same[0].args.len()) {
        return left("the field has `always` in one place and not in another");
    }
    vocabulary::edit_response(s.table, name, Edit::Add(value))?;
    match s.directive.args.get(2) {
        None => {
            s.table.inline("response_headers").push("not_on_errors", name);
            TAKEN
        }
        Some(_) => TAKEN,
    }
}

/// `Location` of an origin that knows itself by another name: nginx compares its beginning.
fn redirects(s: &mut Setting<'_>) -> Outcome {
    let (from, to) = (s.arg(0), s.arg(1));
    if from == "default" {
        return needless("it is the default");
    }
    let (pattern, with) = match from.strip_prefix('~') {
        Some(text) => {
            (text.replacen('*', "(?i)", usize::from(text.starts_with('*'))), to.to_owned())
        }
        None => (format!("^{}", regex::escape(from)), to.replace('$', "$$")),
    };
    if from.contains('$') && !from.starts_with('~') || to.contains('$') && !from.starts_with('~') {
        return left("neither of the two comes from a variable");
    }
    replace_value(s.table, "Location", checked_regex(&pattern)?, with);
    TAKEN
}

/// An origin that is asked by its own name sends clients there: by default nginx puts the location's path in the place
/// of the URL that is asked.
pub(super) fn default_redirect(scope: &Scope<'_>, from: &str, to: &str, table: &mut Table) {
    let stated = scope.nearest("proxy_redirect");
    if stated.is_empty() || stated.iter().any(|one| one.arg(0) == "default") {
        let pattern = format!("^{}", regex::escape(from));
        replace_value(table, "Location", pattern, to.replace('$', "$$"));
    }
}

/// `Domain` or `Path` of cookies.
fn cookies(s: &mut Setting<'_>) -> Outcome {
    let attribute = s.directive.name.trim_start_matches("proxy_cookie_");
    let (from, to) = (s.arg(0), s.arg(1));
    if from == "off" {
        return needless("it is the default");
    }
    if from.starts_with('~') || from.contains('$') || to.contains('$') {
        return left("neither of the two is an expression or has a variable");
    }
    let (from, end) = match attribute {
        "domain" => (from.trim_start_matches('.'), "($|;)"),
        _ => (from, ""),
    };
    // The dot before a domain stays.
    let dot = if attribute == "domain" { r"\.?" } else { "" };
    let pattern = format!("(?i)(; *{attribute} *= *{dot}){}{end}", regex::escape(from));
    let with = format!("${{1}}{to}{}", if end.is_empty() { "" } else { "$2" });
    replace_value(s.table, "Set-Cookie", pattern, with);
    TAKEN
}

/// Adds a replacement in the values of a field of responses.
pub(super) fn replace_value(table: &mut Table, field: &str, pattern: String, with: String) {
    let one = Table::from_iter([("pattern", pattern.into()), ("with", with.into())]);
    table.inline("response_headers").inline("replace").push(field, one);
}

fn expires(s: &mut Setting<'_>) -> Outcome {
    let value = match s.arg(0) {
        "epoch" => "no-cache".to_owned(),
        "max" => "max-age=315360000".to_owned(),
        time => match units::nginx_time(time) {
            Some(milliseconds) => format!("max-age={}", milliseconds / 1_000),
            None if time.starts_with('-') => "no-cache".to_owned(),
            None => return left("is no time"),
        },
    };
    vocabulary::edit_response(s.table, "Cache-Control", Edit::Set(value))?;
    differs("only `Cache-Control` is set, not `Expires`, and on errors, too")
}

/// The location that a path of the configuration leads to, of the server around a level.
pub(super) fn location_of<'a>(scope: &Scope<'a>, path: &str) -> Option<&'a Directive> {
    let found = scope.own("location").find(|location| {
        let args: Vec<_> = location.args.iter().map(String::as_str).collect();
        args == ["=", path] || args == [path]
    });
    found.or_else(|| location_of(scope.outer?, path))
}

/// A page is a file where its path leads to a directory, and otherwise the answer of the route for its path or name.
fn error_page(s: &mut Setting<'_>) -> Outcome {
    let (page, statuses) = s.directive.args.split_last().ok_or("has no page")?;
    let (others, statuses): (Vec<_>, Vec<_>) =
        statuses.iter().partition(|status| status.starts_with('='));
    if !page.starts_with(['/', '@']) || page.contains('$') {
        return left("an error page is a path, or a location with a name");
    }
    if statuses.is_empty() {
        return left("has no status");
    }
    let mut target = target_of(s.scope, page);
    if let Some(other) = others.first() {
        target = Table::from_iter([("to", page.as_str().into())]);
        match other[1..].parse::<u64>() {
            Ok(status) if (200..600).contains(&status) => target.set("status", status),
            Ok(_) => return left("is no status of an answer"),
            Err(_) => target.set("status", "answer"),
        }
    }
    for status in statuses {
        if !status.parse::<u16>().is_ok_and(|status| (400..600).contains(&status)) {
            return left("an error page is for an error");
        }
        s.table.inline("error_pages").set(status, target.clone());
    }
    match s.scope.nearest_arg("proxy_intercept_errors") {
        Some("on") => TAKEN,
        _ => differs(
            "the page stands for such errors of the origin, too, as with proxy_intercept_errors",
        ),
    }
}

/// Whether a location of the server around a level is for this path by its name, or by an expression.
pub(super) fn has_location(scope: &Scope<'_>, path: &str) -> bool {
    let is_for = |location: &Directive| match (location.arg(0), location.arg(1)) {
        ("~", text) => is_found("", text, path),
        ("~*", text) => is_found("(?i)", text, path),
        _ => false,
    };
    location_of(scope, path).is_some()
        || scope.own("location").any(is_for)
        || scope.outer.is_some_and(|outer| has_location(outer, path))
}

fn is_found(flags: &str, text: &str, path: &str) -> bool {
    regex::Regex::new(&format!("{flags}{text}")).is_ok_and(|regex| regex.is_match(path))
}

/// Whether a location that may get the page answers by `return`.
fn answers_itself(scope: &Scope<'_>, page: &str) -> bool {
    let has_page = |location: &&Directive| match (location.arg(0), location.arg(1)) {
        ("=", path) => path == page,
        ("^~", path) | (path, "") => page.starts_with(path),
        ("~", text) => is_found("", text, page),
        (_, text) => is_found("(?i)", text, page),
    };
    let returns = |level: &[Directive]| level.iter().any(|one| one.name == "return");
    match location_of(scope, page) {
        Some(exact) => returns(exact.inner()),
        None => {
            returns(scope.directives)
                || scope.own("location").filter(has_page).any(|one| returns(one.inner()))
                || scope.outer.is_some_and(|outer| answers_itself(outer, page))
        }
    }
}

fn target_of(scope: &Scope<'_>, page: &str) -> Table {
    let location = location_of(scope, page);
    let inner = location.map(|location| Scope { directives: location.inner(), outer: Some(scope) });
    let level = inner.as_ref().unwrap_or(scope);
    let is_no_file = level.own("proxy_pass").next().is_some() || answers_itself(scope, page);
    let is_no_file = is_no_file || page.starts_with('@') || page.ends_with('/');
    match level.nearest_arg("root").filter(|_| !is_no_file) {
        Some(root) => {
            let file = format!("{}{page}", root.trim_end_matches('/'));
            Table::from_iter([("file", file.into())])
        }
        None => Table::from_iter([("to", page.into())]),
    }
}

/// A level with fields of its own does not have those of the levels around it.
pub(super) fn keep(scope: &Scope<'_>, table: &mut Table) {
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
        for field in outer.nearest(name).into_iter().map(|directive| directive.arg(0)) {
            let is_own = own.iter().any(|own| own.eq_ignore_ascii_case(field));
            let is_nodes = key == "request_headers" && is_of_node(field);
            if !is_own && !is_nodes && !vocabulary::is_edited(table, key, field) {
                vocabulary::keep_field(table, key, field);
            }
        }
    }
}

/// Whether a node sets a field of requests itself.
fn is_of_node(field: &str) -> bool {
    let field = field.to_ascii_lowercase();
    field.starts_with("x-forwarded-") || field == "accept-encoding"
}

/// Takes out the fields of the levels around that a level with fields of its own does not have.
pub(super) fn replace(scope: &Scope<'_>, inherited: &mut Table) {
    for (name, key, parts) in [
        ("add_header", "response_headers", &["add", "not_on_errors"][..]),
        ("proxy_hide_header", "response_headers", &["remove"]),
        ("proxy_set_header", "request_headers", &["set", "remove"]),
    ] {
        if scope.own(name).next().is_some() && inherited.has_any(&[key]) {
            inherited.inline(key).remove_all(parts);
        }
    }
}

/// Takes out the changes of fields that a table which is laid over this one leaves as they are. What this one leaves
/// as it is stays so.
pub(super) fn give_way(table: &mut Table, over: &mut Table) {
    for key in ["request_headers", "response_headers"] {
        let kept = |table: &Table| {
            let list = table.get(key).and_then(|edits| edits.inner("keep"));
            list.into_iter().flat_map(Value::texts).map(str::to_owned).collect::<Vec<_>>()
        };
        for field in kept(table) {
            if !kept(over).contains(&field) && !vocabulary::is_edited(over, key, &field) {
                vocabulary::keep_field(over, key, &field);
            }
        }
        let kept = kept(over);
        if kept.is_empty() || !table.has_any(&[key]) {
            continue;
        }
        let edits = table.inline(key);
        for field in &kept {
            edits.take_from_list("remove", field);
            edits.take_from_list("not_on_errors", field);
            for part in ["set", "add"] {
                if edits.has_any(&[part]) {
                    edits.inline(part).remove(field);
                }
            }
        }
    }
}

/// Fields of the origin that nginx does not pass on by default.
const HIDDEN: [&str; 7] = [
    "X-Accel-Expires",
    "X-Accel-Redirect",
    "X-Accel-Limit-Rate",
    "X-Accel-Buffering",
    "X-Accel-Charset",
    "X-Pad",
    "Server",
];

/// Removes the fields that nginx removes.
pub(super) fn hide(directives: &[Directive], defaults: &mut Table) {
    for field in HIDDEN {
        let is_hidden = defaults.get("response_headers").and_then(|edits| edits.inner("remove"));
        let is_hidden = is_hidden
            .is_some_and(|list| list.texts().iter().any(|own| own.eq_ignore_ascii_case(field)));
        if !is_hidden
            && !passes(directives, field)
            && !vocabulary::is_edited(defaults, "response_headers", field)
        {
            let _ = vocabulary::edit_response(defaults, field, Edit::Remove);
        }
    }
}

/// Whether `proxy_pass_header` names the field, at whatever level.
fn passes(directives: &[Directive], field: &str) -> bool {
    directives.iter().any(|one| {
        one.name == "proxy_pass_header" && one.arg(0).eq_ignore_ascii_case(field)
            || passes(one.inner(), field)
    })
}
