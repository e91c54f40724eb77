//! How Levada says what others say: the keys of a site and of a route that more than one converter writes.

use crate::{
    ledger::Fate,
    table::{Table, Value},
};

/// Keys that converters know and do not write, with the reason that is reported.
const NOT_THERE: &[(&str, &str)] = &[
    ("redirect", "a site has no redirects"),
    ("respond", "a site has no fixed responses"),
    ("rewrite", "a site has no rewrites"),
    ("request_headers", "a site does not edit the fields of requests"),
    ("response_headers", "a site does not edit the fields of responses"),
    ("error_pages", "a site has no error pages"),
    ("cache_key", "a site has no rules for the key of an object"),
    ("files", "a site cannot serve a directory"),
    ("access", "this is not converted: write `access` by hand, docs/operate/access.md"),
    ("basic_auth", "this is not converted: write `basic_auth` by hand, docs/operate/access.md"),
    ("referers", "this is not converted: write `referers` by hand, docs/operate/access.md"),
    ("limit", "this is not converted: write `limit` by hand, docs/operate/limits.md"),
    ("max_body", "this is not converted: write `max_body` by hand, docs/operate/limits.md"),
    ("bandwidth", "this is not converted: write `bandwidth` by hand, docs/operate/limits.md"),
    ("forward_auth", "a site asks no other server whether a request may pass"),
    ("secure_link", "this is not converted: write `signed_urls` by hand, docs/operate/access.md"),
];

/// Why a site cannot have `key`, if it cannot.
pub(crate) fn missing(key: &str) -> Option<Fate> {
    let found = NOT_THERE.iter().find(|(own, _)| *own == key);
    found.map(|(_, reason)| Fate::left(*reason))
}

/// Sets `key` of a site or a route.
pub(crate) fn put(table: &mut Table, key: &str, value: impl Into<Value>) -> Fate {
    missing(key).unwrap_or_else(|| {
        table.set(key, value);
        Fate::Taken
    })
}

/// Adds to the list of `key`.
pub(crate) fn push(table: &mut Table, key: &str, value: impl Into<Value>) -> Fate {
    missing(key).unwrap_or_else(|| {
        table.push(key, value);
        Fate::Taken
    })
}

/// Sets `key` within the table `outer` of a site or a route.
pub(crate) fn put_inner(
    table: &mut Table,
    outer: &str,
    key: &str,
    value: impl Into<Value>,
) -> Fate {
    missing(outer).unwrap_or_else(|| {
        table.inline(outer).set(key, value);
        Fate::Taken
    })
}

/// Closes a place whose rule of access could not be converted, and says so.
pub(crate) fn refuse_everybody(table: &mut Table, reason: &mut String) {
    reason.push_str(match put(table, "access", "deny all") {
        Fate::Taken => "; until you write a rule, everybody is refused",
        _ => "; WARNING: everybody may pass",
    });
}

/// Sends clients to `to`.
pub(crate) fn redirect(table: &mut Table, status: u64, to: String) -> Fate {
    let target = Table::from_iter([("to", to.into()), ("status", status.into())]);
    put(table, "redirect", target)
}

/// Answers with a status, and with a body if it is given.
pub(crate) fn respond(table: &mut Table, status: u64, body: Option<String>) -> Fate {
    let mut answer = Table::from_iter([("status", status.into())]);
    if let Some(body) = body {
        answer.set("body", body);
    }
    put(table, "respond", answer)
}

/// Asks the origin for another path.
pub(crate) fn rewrite(table: &mut Table, to: String) -> Fate {
    put(table, "rewrite", to)
}

/// A change of a header field.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// In place of what is there.
    Set(String),
    /// Beside what is there.
    Add(String),
    /// Taken out.
    Remove,
}

/// A change of a field of requests to the origin.
pub(crate) fn edit_request(table: &mut Table, name: &str, edit: Edit) -> Fate {
    edit_fields(table, "request_headers", name, edit)
}

/// A change of a field of responses to clients.
pub(crate) fn edit_response(table: &mut Table, name: &str, edit: Edit) -> Fate {
    edit_fields(table, "response_headers", name, edit)
}

fn edit_fields(table: &mut Table, key: &str, name: &str, edit: Edit) -> Fate {
    missing(key).unwrap_or_else(|| {
        let edits = table.inline(key);
        match edit {
            Edit::Set(value) => edits.inline("set").set(name, value),
            Edit::Add(value) => edits.inline("add").set(name, value),
            Edit::Remove => edits.push("remove", name),
        }
        Fate::Taken
    })
}

/// Stores responses with a status for `ttl`, whatever the origin states.
pub(crate) fn force_ttl(table: &mut Table, statuses: &str, ttl: &str) -> Fate {
    push(table, "ttl", format!("{statuses} {ttl}"))
}

/// Takes `Set-Cookie` out of responses, so that they may be stored.
pub(crate) fn strip_cookies(table: &mut Table) -> Fate {
    put(table, "strip_cookies", "response")
}
