//! How Levada says what others say: the keys of a site and of a route that more than one converter writes.

use crate::{
    ledger::{Fate, Outcome, TAKEN, left},
    table::{Table, Value},
};
use levada_rules::{FieldError, TemplateKind, editable_field};

/// Sets `key` of a site or a route.
pub(crate) fn put(table: &mut Table, key: &str, value: impl Into<Value>) -> Outcome {
    table.set(key, value);
    TAKEN
}

/// Adds to the list of `key`.
pub(crate) fn push(table: &mut Table, key: &str, value: impl Into<Value>) -> Outcome {
    table.push(key, value);
    TAKEN
}

/// Sets `key` within the table `outer` of a site or a route.
pub(crate) fn put_inner(
    table: &mut Table,
    outer: &str,
    key: &str,
    value: impl Into<Value>,
) -> Outcome {
    table.inline(outer).set(key, value);
    TAKEN
}

/// Whether a table has rules about who may come.
pub(crate) fn restricts(table: &Table) -> bool {
    ["access", "basic_auth", "referers", "signed_urls", "forward_auth"]
        .iter()
        .any(|key| table.get(key).is_some())
}

/// Closes a place whose rule of access could not be converted, and says so.
pub(crate) fn refuse_everybody(table: &mut Table, reason: &mut String) {
    reason.push_str(match put(table, "access", "deny all") {
        Ok(Fate::Taken) => "; until you write a rule, everybody is refused",
        _ => "; WARNING: everybody may pass",
    });
}

/// Sends clients to `to`.
pub(crate) fn redirect(table: &mut Table, status: u64, to: String) -> Outcome {
    let target = Table::from_iter([("to", to.into()), ("status", status.into())]);
    put(table, "redirect", target)
}

/// Answers with a status, and with a body if it is given.
pub(crate) fn respond(table: &mut Table, status: u64, body: Option<String>) -> Outcome {
    let mut answer = Table::from_iter([("status", status.into())]);
    if let Some(body) = body {
        answer.set("body", body);
    }
    put(table, "respond", answer)
}

/// Asks the origin for another path.
pub(crate) fn rewrite(table: &mut Table, to: String) -> Outcome {
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
pub(crate) fn edit_request(table: &mut Table, name: &str, edit: Edit) -> Outcome {
    edit_fields(table, "request_headers", name, edit)
}

/// A change of a field of responses to clients.
pub(crate) fn edit_response(table: &mut Table, name: &str, edit: Edit) -> Outcome {
    edit_fields(table, "response_headers", name, edit)
}

fn edit_fields(table: &mut Table, key: &str, name: &str, edit: Edit) -> Outcome {
    if let Some(fate) = unchangeable(key, name) {
        return fate;
    }
    let edits = table.inline(key);
    let was_removed = edits.take_from_list("remove", name);
    match edit {
        Edit::Add(value) if !was_removed => {
            let add = edits.inline("add");
            match add.get(name) {
                Some(Value::Text(own)) => {
                    let both = vec![own.as_str().into(), value.into()];
                    add.set(name, Value::List(both));
                }
                _ => add.push_or_set(name, value),
            }
        }
        // This takes the place of the field that was removed.
        Edit::Set(value) | Edit::Add(value) => edits.inline("set").set(name, value),
        Edit::Remove => match edits.get("add").and_then(|add| add.inner(name)).cloned() {
            Some(Value::Text(value)) => {
                edits.inline("add").remove(name);
                edits.inline("set").set(name, value);
            }
            _ => {
                if let Some(Value::Inline(set)) = edits.get("set") {
                    let mut set = set.clone();
                    set.remove(name);
                    edits.set("set", set);
                }
                edits.push("remove", name);
            }
        },
    }
    edits.retain(|value| !matches!(value, Value::Inline(inner) if inner.is_empty()));
    TAKEN
}

/// Leaves a field as it is, although a level around changes it.
pub(crate) fn keep_field(table: &mut Table, key: &str, name: &str) {
    if unchangeable(key, name).is_none() {
        table.inline(key).push("keep", name);
    }
}

/// The fate of an edit that no node makes.
fn unchangeable(key: &str, name: &str) -> Option<Outcome> {
    let kind = match key {
        "request_headers" => TemplateKind::RequestField,
        _ => TemplateKind::ResponseField,
    };
    match editable_field(name, kind) {
        Ok(_) => None,
        Err(FieldError::Name) => Some(left("is no name of a field")),
        Err(_) => Some(left("a node decides about this field: docs/operate/headers.md")),
    }
}

/// Stores responses with a status for `ttl`, whatever the origin states.
pub(crate) fn force_ttl(table: &mut Table, statuses: &str, ttl: &str) -> Outcome {
    push(table, "ttl", format!("{statuses} {ttl}"))
}
