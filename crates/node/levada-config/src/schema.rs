//! The JSON Schema of the configuration file, made from its declaration.
//!
//! It has three readers: the shape check, which compares a file with it; editors, which complete
//! keys; and the documents, whose tables are generated from it. It extends JSON Schema with the
//! formats of [`text::FORMATS`](super::text::FORMATS), and `x-minimum` and `x-maximum` for amounts in
//! text.

use levada_cache::eviction::{self, EVICTIONS};
use levada_policy::{Kind, POLICIES, Parameter, PolicyEntry, Setting};
use levada_types::format_duration;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value as Json, json};

use super::{
    file::File,
    text::{FORMATS, Format},
};

/// The schema of the whole file. Declarations are inlined wherever they occur, so that the schema is
/// easy to walk; only the policies' parameters are references.
pub fn schema() -> Json {
    let mut schema = of::<File>();
    with_policies(&mut schema["properties"]["policy"]);
    let site = &mut schema["properties"]["site"]["items"]["properties"];
    with_policies(&mut site["policy"]);
    with_policies(shield_policy(site));
    let route = &mut site["route"]["items"]["properties"];
    with_policies(&mut route["policy"]);
    with_policies(shield_policy(route));
    schema["properties"]["cache"]["properties"]["eviction"]["oneOf"] = evictions();
    schema["$defs"] =
        json!({ "parameters": { "allOf": edge_policies().map(when_named).collect::<Json>() } });
    schema
}

/// The schema of a file that is declared as `T`.
pub fn of<T: JsonSchema>() -> Json {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    schema
}

/// Removes null, which TOML does not have, from optional keys. Merges the type of a list of words,
/// which is otherwise stated for each word.
fn simplify(schema: &mut Json) {
    match schema {
        Json::Array(list) => list.iter_mut().for_each(simplify),
        Json::Object(object) => {
            if object.get("default") == Some(&Json::Null) {
                object.remove("default");
            }
            if let Some(Json::Array(types)) = object.get_mut("type") {
                types.retain(|name| name != "null");
                if let [one] = &types[..] {
                    let one = one.clone();
                    object.insert("type".to_owned(), one);
                }
            }
            unwrap_optional(object);
            if object.get("oneOf").is_some_and(are_words) {
                object.insert("type".to_owned(), "string".into());
            }
            object.values_mut().for_each(simplify);
        }
        _ => {}
    }
}

/// Whether these are the variants of an enumeration.
fn are_words(branches: &Json) -> bool {
    branches.as_array().is_some_and(|branches| branches.iter().all(|b| b["const"].is_string()))
}

/// `anyOf` of something and null becomes that something.
fn unwrap_optional(object: &mut Map<String, Json>) {
    let Some(Json::Array(branches)) = object.get_mut("anyOf") else { return };
    branches.retain(|branch| branch["type"] != "null");
    if branches.len() != 1 {
        return;
    }
    if let Some(Json::Object(only)) = branches.pop() {
        object.remove("anyOf");
        for (key, value) in only {
            object.entry(key).or_insert(value);
        }
    }
}

/// Adds each policy's parameters to the policy table, for editors; the check itself asks the
/// policy.
fn with_policies(schema: &mut Json) {
    schema["properties"]["name"]["enum"] = edge_policies().map(|policy| policy.name).collect();
    schema["allOf"] = json!([{ "$ref": "#/$defs/parameters" }]);
}

/// The policy in the table form of a shield.
fn shield_policy(servers: &mut Json) -> &mut Json {
    &mut servers["shield"]["anyOf"][1]["properties"]["policy"]
}

/// Each algorithm as a word with its description.
fn evictions() -> Json {
    let word = |entry: &eviction::EvictionEntry| json!({ "const": entry.name, "description": entry.summary });
    EVICTIONS.iter().map(word).collect()
}

fn edge_policies() -> impl Iterator<Item = &'static PolicyEntry> {
    POLICIES.iter().flat_map(|file| file.iter()).filter(|policy| policy.runs_on_an_edge())
}

fn when_named(policy: &PolicyEntry) -> Json {
    let mut properties: Map<String, Json> =
        policy.parameters.iter().map(|p| (p.name.to_owned(), parameter_schema(p))).collect();
    properties.insert("name".to_owned(), json!(true));
    json!({
        "if": { "properties": { "name": { "const": policy.name } } },
        "then": { "properties": properties, "additionalProperties": false },
    })
}

fn parameter_schema(parameter: &Parameter) -> Json {
    let mut schema = match parameter.kind {
        Kind::Integer(low, high) => json!({ "type": "integer", "minimum": low, "maximum": high }),
        Kind::IntegerOr(low, high, words) => json!({
            "anyOf": [
                { "type": "integer", "minimum": low, "maximum": high },
                { "type": "string", "enum": words },
            ],
        }),
        Kind::Number(low, high) => json!({ "type": "number", "minimum": low, "maximum": high }),
        Kind::Duration(low, high) => json!({
            "type": "string",
            "format": "levada-duration",
            "x-minimum": format!("{}", format_duration(low)),
            "x-maximum": format!("{}", format_duration(high)),
        }),
        Kind::Choice(words) => json!({ "type": "string", "enum": words }),
        Kind::Switch => json!({ "type": "boolean" }),
    };
    schema["description"] = parameter.help.into();
    match parameter.default {
        Setting::Integer(value) => schema["default"] = value.into(),
        Setting::Number(value) => schema["default"] = value.into(),
        Setting::Switch(value) => schema["default"] = value.into(),
        Setting::Derived(_) => {}
        text => schema["default"] = text.to_string().into(),
    }
    schema
}

/// The expected value in words: "a whole number from 1 to 10". Errors and documents share them.
pub fn describe(schema: &Json) -> String {
    if let Some(branches) = schema["anyOf"].as_array() {
        return match &branches[..] {
            [one, many] if many["type"] == "array" && many["items"]["format"] == one["format"] => {
                format!("{}, or a list of them", describe(one))
            }
            branches => branches.iter().map(describe).collect::<Vec<_>>().join(", or "),
        };
    }
    let words = words(schema);
    if !words.is_empty() {
        let quoted: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
        return match &quoted[..] {
            [one] => one.clone(),
            several => format!("one of {}", several.join(", ")),
        };
    }
    match schema["type"].as_str() {
        Some("object") => "a table".to_owned(),
        Some("array") => format!("a list of {}", several(&describe(&schema["items"]))),
        Some("boolean") => "true or false".to_owned(),
        Some("integer") => format!("a whole number{}", range(schema)),
        Some("number") => format!("a number{}", range(schema)),
        _ => match format_of(schema) {
            Some(format) => {
                let example = example(schema).and_then(Json::as_str).unwrap_or(format.example);
                format!("{}{}, such as {example:?}", format.expected, range(schema))
            }
            None => "a text".to_owned(),
        },
    }
}

/// An example value: the declared example, or else the default.
pub(crate) fn example(schema: &Json) -> Option<&Json> {
    schema["examples"].get(0).or_else(|| schema.get("default"))
}

/// The default of a policy's parameter, in words.
pub fn describe_default(parameter: &Parameter) -> String {
    match parameter.default {
        // Whether the default describes itself.
        Setting::Derived(how) => how.to_owned(),
        value if parameter.unit.is_empty() => value.to_string(),
        value => format!("{value} {}", parameter.unit),
    }
}

fn several(thing: &str) -> String {
    match thing {
        "a table" => "tables".to_owned(),
        "a text" => "texts".to_owned(),
        other => format!("values, each {other}"),
    }
}

/// The words among which a text is chosen; empty where any text is valid.
pub(crate) fn words(schema: &Json) -> Vec<&str> {
    let listed = schema["enum"].as_array().into_iter().flatten().filter_map(Json::as_str);
    // An enumeration whose variants have comments becomes one constant per variant.
    let constants = schema["oneOf"].as_array().into_iter().flatten();
    listed.chain(constants.filter_map(|branch| branch["const"].as_str())).collect()
}

/// The kind of text, where it is one of Levada's own.
pub(crate) fn format_of(schema: &Json) -> Option<&'static Format> {
    let name = schema["format"].as_str()?;
    FORMATS.iter().find(|format| format.name == name)
}

/// " from 1 to 10", or the part of it that exists.
fn range(schema: &Json) -> String {
    let bound = |plain: &str, of_text: &str| match (&schema[plain], &schema[of_text]) {
        (Json::Null, Json::String(text)) => Some(text.clone()),
        (Json::Number(number), _) => Some(match number.as_f64() {
            // The declaration has 1.0 where people write 1.
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => format!("{float:.0}"),
            _ => number.to_string(),
        }),
        _ => None,
    };
    match (bound("minimum", "x-minimum"), bound("maximum", "x-maximum")) {
        (Some(low), Some(high)) => format!(" from {low} to {high}"),
        (Some(low), None) => format!(" of at least {low}"),
        (None, Some(high)) => format!(" of at most {high}"),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `visit` with the path of every schema below `schema`.
    fn walk<'a>(path: &str, schema: &'a Json, visit: &mut dyn FnMut(&str, &'a Json)) {
        visit(path, schema);
        for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
            walk(&format!("{path}.{key}"), inner, visit);
        }
        for inner in schema["anyOf"].as_array().into_iter().flatten() {
            walk(path, inner, visit);
        }
        if !schema["items"].is_null() {
            walk(&format!("{path}[]"), &schema["items"], visit);
        }
    }

    #[test]
    fn every_table_is_closed_and_every_key_is_explained() {
        walk("", &schema(), &mut |path, schema| {
            for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
                assert!(inner["description"].is_string(), "{path}.{key}");
            }
            let policy = path.ends_with("policy");
            // Names of header fields, cookies and arguments are the user's.
            let names = schema["properties"].is_null();
            if schema["type"] == "object" && !policy && !names {
                assert_eq!(schema["additionalProperties"], false, "{path}");
            }
        });
    }

    #[test]
    fn what_is_required_exists() {
        walk("", &schema(), &mut |path, schema| {
            for key in schema["required"].as_array().into_iter().flatten() {
                let key = key.as_str().expect("a key");
                assert!(schema["properties"][key].is_object(), "{path}.{key}");
            }
        });
    }

    #[test]
    fn every_default_and_bound_of_a_text_is_of_its_format() {
        walk("", &schema(), &mut |path, schema| {
            let Some(format) = format_of(schema) else { return };
            for key in ["default", "x-minimum", "x-maximum"] {
                if let Some(text) = schema[key].as_str() {
                    assert!((format.measure)(text).is_some(), "{path}: {key} = {text:?}");
                }
            }
        });
    }
}
