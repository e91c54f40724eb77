//! How Levada says what others say: the keys of a site and of a route that more than one converter writes.

use crate::{
    ledger::{Outcome, TAKEN, left},
    table::{Table, Value},
};
use levada_rules::{FieldError, TemplateKind, editable_field};

/// Whether a table has rules about who may come.
pub fn restricts(table: &Table) -> bool {
    table.1.is_closed()
        || table.has_any(&["access", "basic_auth", "referers", "signed_urls", "forward_auth"])
}

/// Sends clients to `to`.
pub fn redirect(table: &mut Table, status: u64, to: String) {
    table.set("redirect", Table::from_iter([("to", to.into()), ("status", status.into())]));
}

/// Answers with a status, and with a body if it is given.
pub fn respond(table: &mut Table, status: u64, body: Option<String>) {
    let mut answer = Table::from_iter([("status", status.into())]);
    if let Some(body) = body {
        answer.set("body", body);
    }
    table.set("respond", answer);
}

/// Keys that answer without a server. Only the first answer counts.
pub const ANSWERS: &[&str] = &["redirect", "reroute", "respond"];

/// Keys that say which servers are asked.
pub const SERVERS: &[&str] = &["origin", "servers", "server"];

/// A change of a header field.
#[derive(Clone, Debug)]
pub enum Edit {
    /// In place of what is there.
    Set(String),
    /// In addition to what is there.
    Add(String),
    /// Taken out.
    Remove,
}

/// A change of a field of requests to the origin.
pub fn edit_request(table: &mut Table, name: &str, edit: Edit) -> Outcome {
    edit_fields(table, "request_headers", name, edit)
}

/// A change of a field of responses to clients.
pub fn edit_response(table: &mut Table, name: &str, edit: Edit) -> Outcome {
    edit_fields(table, "response_headers", name, edit)
}

fn edit_fields(table: &mut Table, key: &str, name: &str, edit: Edit) -> Outcome {
    changeable(key, name)?;
    let edits = table.inline(key);
    let was_removed = edits.take_from_list("remove", name);
    match edit {
        Edit::Add(value) if !was_removed => edits.inline("add").push_or_set(name, value),
        // This takes the place of the field that was removed.
        Edit::Set(value) | Edit::Add(value) => edits.inline("set").set(name, value),
        Edit::Remove => remove(edits, name),
    }
    edits.retain(|value| !matches!(value, Value::Inline(inner) if inner.is_empty()));
    TAKEN
}

/// A field that was added takes the place of the one that is removed.
fn remove(edits: &mut Table, name: &str) {
    if let Some(Value::Text(_)) = edits.get("add").and_then(|add| add.inner(name)) {
        if let Some(value) = edits.inline("add").remove(name) {
            edits.inline("set").set(name, value);
        }
        return;
    }
    if edits.has_any(&["set"]) {
        edits.inline("set").remove(name);
    }
    edits.push("remove", name);
}

/// Leaves a field as it is, although a level around changes it.
pub fn keep_field(table: &mut Table, key: &str, name: &str) {
    if changeable(key, name).is_ok() {
        table.inline(key).push("keep", name);
    }
}

/// Leaves the fields as they are that another table changes.
pub fn keep_those_of(other: &Table, table: &mut Table) {
    for key in ["request_headers", "response_headers"] {
        let edits = other.get(key).and_then(Value::table).into_iter().flat_map(Table::iter);
        for (part, value) in edits {
            let inner = value.table().into_iter().flat_map(Table::iter).map(|(name, _)| name);
            let names: Vec<_> = value.texts().into_iter().chain(inner).collect();
            let is_edit = !["keep", "not_on_errors"].contains(&part);
            for field in names.into_iter().filter(|_| is_edit) {
                if !is_edited(table, key, field) {
                    keep_field(table, key, field);
                }
            }
        }
    }
}

/// Whether a table sets or adds a field.
pub fn is_edited(table: &Table, key: &str, field: &str) -> bool {
    let edits = table.get(key);
    let has = |part| edits?.inner(part)?.inner(field);
    has("set").or_else(|| has("add")).is_some()
}

/// Whether a node changes the field.
fn changeable(key: &str, name: &str) -> Outcome {
    let kind = match key {
        "request_headers" => TemplateKind::RequestField,
        _ => TemplateKind::ResponseField,
    };
    match editable_field(name, kind) {
        Ok(_) => TAKEN,
        Err(FieldError::Name) => left("is no name of a field"),
        Err(_) => left("a node decides about this field: docs/operate/headers.md"),
    }
}
