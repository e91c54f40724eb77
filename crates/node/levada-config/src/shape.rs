//! Compares a file with the schema: unknown and missing keys, types, ranges and formats of text.
//!
//! A wrong value is reported and left out of the result. The rest is still read, so that one
//! mistake does not hide the next.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::schema::{describe, example, format_of, words};
use levada_types::document::{Entry, Findings, Node, Path, Value, did_you_mean};

/// Reads `node` by `schema`. `None` when it is wrong as a whole; the error has been reported then.
///
/// In a table, a wrong key is left out. A list of tables keeps its length, so that positions stay as
/// in the file; any other list with a wrong value is left out as a whole.
pub(crate) fn read(
    node: &Node,
    schema: &Json,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Json> {
    let schema = branch(node, schema);
    match (schema["type"].as_str(), &node.value) {
        (Some("object"), Value::Table(table)) => {
            Some(read_table(node, table, schema, path, findings))
        }
        (Some("array"), Value::List(list)) => read_list(list, node, schema, path, findings),
        (Some("boolean"), Value::Switch(on)) => Some(Json::from(*on)),
        (Some("integer"), Value::Integer(number)) if is_within(*number as f64, schema) => {
            Some(Json::from(*number))
        }
        (Some("number"), Value::Integer(number)) if is_within(*number as f64, schema) => {
            Some(Json::from(*number as f64))
        }
        (Some("number"), Value::Number(number)) if is_within(*number, schema) => {
            Some(Json::from(*number))
        }
        (Some("string"), Value::Text(text)) => read_text(text, node, schema, path, findings),
        (_, Value::Reported) => None,
        _ => {
            findings.error(path, must_be(node, schema));
            None
        }
    }
}

/// Of several schemas, the one for the type of `node`; if none fits, the whole, because it names
/// them all.
fn branch<'a>(node: &Node, schema: &'a Json) -> &'a Json {
    let fits = |branch: &&Json| {
        matches!(
            (branch["type"].as_str(), &node.value),
            (Some("object"), Value::Table(_))
                | (Some("array"), Value::List(_))
                | (Some("boolean"), Value::Switch(_))
                | (Some("integer" | "number"), Value::Integer(_))
                | (Some("number"), Value::Number(_))
                | (Some("string"), Value::Text(_))
        )
    };
    schema["anyOf"].as_array().and_then(|branches| branches.iter().find(fits)).unwrap_or(schema)
}

fn read_table(
    node: &Node,
    table: &BTreeMap<String, Entry>,
    schema: &Json,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Json {
    let mut read_so_far = Map::new();
    let known = schema["properties"].as_object();
    for (key, entry) in table {
        let inner = known.and_then(|known| known.get(key)).unwrap_or_else(|| further(schema));
        if inner.is_null() {
            let help = known.and_then(|known| unknown_key_help(key, known));
            findings
                .error_at(entry.key.clone(), &path.key(key.clone()), "unknown key")
                .maybe_help(help);
        } else if let Some(value) = read(&entry.node, inner, &path.key(key.clone()), findings) {
            read_so_far.insert(key.clone(), value);
        }
    }
    for key in schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str) {
        if !table.contains_key(key) {
            let help = known.and_then(|known| missing_key_help(key, &known[key]));
            findings
                .error_at(node.span.clone(), &path.key(key.to_owned()), "is missing")
                .maybe_help(help);
        }
    }
    Json::Object(read_so_far)
}

/// The schema of keys that are not listed; null where such keys are errors.
fn further(schema: &Json) -> &Json {
    match &schema["additionalProperties"] {
        Json::Bool(_) => &Json::Null,
        other => other,
    }
}

fn unknown_key_help(key: &str, known: &Map<String, Json>) -> Option<String> {
    let names = || known.keys().map(String::as_str);
    did_you_mean(key, names())
        .or_else(|| Some(format!("known here: {}", names().collect::<Vec<_>>().join(", "))))
}

fn missing_key_help(key: &str, schema: &Json) -> Option<String> {
    if schema["items"]["type"] == "object" {
        return Some(format!("add a `[[{key}]]` table"));
    }
    example(schema).map(|example| format!("for example `{key} = {example}`"))
}

fn read_list(
    list: &[Node],
    node: &Node,
    schema: &Json,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Json> {
    if (list.len() as u64) < schema["minItems"].as_u64().unwrap_or(0) {
        findings.error_at(node.span.clone(), path, "must not be empty");
        return None;
    }
    let read_so_far: Vec<Json> = list
        .iter()
        .enumerate()
        .filter_map(|(position, item)| {
            read(item, &schema["items"], &path.index(position), findings)
        })
        .collect();
    if read_so_far.len() == list.len() { Some(Json::Array(read_so_far)) } else { None }
}

fn read_text(
    text: &str,
    node: &Node,
    schema: &Json,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Json> {
    let words = words(schema);
    // Policies are looked up later, where the error can say more about an unknown policy.
    let is_policy_name = schema["enum"].is_array();
    let help = if !words.is_empty() && !is_policy_name && !words.contains(&text) {
        did_you_mean(text, words)
    } else if !is_of_its_form(text, schema) || !is_of_its_length(text, schema) {
        None
    } else {
        return Some(Json::from(text));
    };
    findings.error(path, must_be(node, schema)).maybe_help(help);
    None
}

fn is_of_its_form(text: &str, schema: &Json) -> bool {
    // The only pattern in the schema.
    if schema["pattern"] == "^/" && !text.starts_with('/') {
        return false;
    }
    let Some(format) = format_of(schema) else { return true };
    let measure = |text: &str| (format.measure)(text).flatten();
    let bound = |key: &str| schema[key].as_str().and_then(measure);
    match (format.measure)(text) {
        None => false,
        Some(None) => true,
        Some(Some(amount)) => {
            bound("x-minimum").is_none_or(|low| low <= amount)
                && bound("x-maximum").is_none_or(|high| amount <= high)
        }
    }
}

fn is_of_its_length(text: &str, schema: &Json) -> bool {
    let bound = |key: &str| schema[key].as_u64();
    let length = text.chars().count() as u64;
    bound("minLength").is_none_or(|low| low <= length)
        && bound("maxLength").is_none_or(|high| length <= high)
}

fn is_within(number: f64, schema: &Json) -> bool {
    schema["minimum"].as_f64().is_none_or(|low| low <= number)
        && schema["maximum"].as_f64().is_none_or(|high| number <= high)
}

/// "must be ..., not ...". A secret is not repeated, because errors end in logs.
fn must_be(node: &Node, schema: &Json) -> String {
    let expected = describe(schema);
    let length = match (schema["minLength"].as_u64(), schema["maxLength"].as_u64()) {
        (Some(low), Some(high)) => format!(" of {low} to {high} characters"),
        (Some(1), None) => " that is not empty".to_owned(),
        _ if schema["pattern"] == "^/" => " that begins with `/`".to_owned(),
        _ => String::new(),
    };
    match schema["writeOnly"].as_bool() {
        Some(true) => format!("must be {expected}{length}"),
        _ => format!("must be {expected}{length}, not {}", node.brief()),
    }
}
