//! The description of the API in OpenAPI 3.1, made of the routes that serve it and of the types of their bodies.

use std::fmt::Write as _;

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{
    answer::Problem,
    routes::{Answer, Content, Form, Parameter, ROUTES, Route},
};

/// The description.
pub fn description() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut schemas = settings.into_generator();
    let mut paths = Map::new();
    for route in ROUTES {
        let operation = operation(route, &mut schemas);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "A fleet of Levada",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The orders of `levada fleet` over HTTP: docs/operate/fleet-api.md.",
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
        },
        "servers": [{ "url": "/", "description": "The address of `levada fleet serve`." }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of the fleet, as `levada fleet token` prints it.",
                },
            },
        },
    })
}

/// The routes as rows of a table in Markdown: method and path, the least role, the order.
pub fn table() -> String {
    let mut text = "\n| request | role | |\n|---|---|---|\n".to_owned();
    for Route { method, path, role, for_bound, summary, .. } in ROUTES {
        let role = role.map_or("", |role| role.as_str());
        let bound = if *for_bound && !role.is_empty() { ", or bound to sites" } else { "" };
        let _ = writeln!(text, "| `{method} {path}` | {role}{bound} | {summary} |");
    }
    text + "\n"
}

fn operation(route: &Route, schemas: &mut SchemaGenerator) -> Value {
    let mut responses = Map::new();
    for answer in route.answers {
        responses.insert(answer.status.to_string(), response(answer, schemas));
    }
    let mut refusals = Vec::new();
    if !route.parameters.is_empty() || !matches!(route.body, Content::None) {
        refusals.push((400, "A parameter or the body is wrong."));
    }
    if route.role.is_some() {
        refusals.push((401, "There is no token, or it opens nothing here."));
        refusals.push((403, "The token may not do this."));
        refusals.push((503, "The state of the fleet does not answer."));
    }
    for (status, words) in refusals {
        let content = Content::Json(|schemas| schemas.subschema_for::<Problem>());
        let answer = Answer { status, words, content };
        responses.entry(status.to_string()).or_insert_with(|| response(&answer, schemas));
    }
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "responses": responses,
    });
    let parameters: Vec<_> = path_parameter(route)
        .into_iter()
        .chain(route.parameters.iter().map(|one| parameter(one)))
        .collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(content) = content(route.body, schemas) {
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    if route.role.is_none() {
        operation["security"] = json!([]);
    }
    operation
}

/// The name of the order in the form that generators of clients expect.
fn operation_id(route: &Route) -> String {
    let name = format!("{:?}", route.order);
    let mut letters = name.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

fn path_parameter(route: &Route) -> Option<Value> {
    let name = route.path.split_once('{')?.1.split_once('}')?.0;
    Some(json!({
        "name": name,
        "in": "path",
        "required": true,
        "schema": { "type": "string" },
    }))
}

fn parameter(parameter: &Parameter) -> Value {
    let schema = match parameter.form {
        Form::Text => json!({ "type": "string" }),
        Form::Switch => json!({ "type": "boolean" }),
        Form::Count => json!({ "type": "integer", "minimum": 0 }),
        Form::Percent => json!({ "type": "integer", "minimum": 1, "maximum": 100 }),
        Form::Time => json!({ "type": "string", "examples": ["30s", "5m"] }),
    };
    json!({
        "name": parameter.name,
        "in": if parameter.is_header { "header" } else { "query" },
        "description": parameter.words,
        "schema": schema,
    })
}

fn response(answer: &Answer, schemas: &mut SchemaGenerator) -> Value {
    let mut response = json!({ "description": answer.words });
    if let Some(content) = content(answer.content, schemas) {
        response["content"] = content;
    }
    response
}

fn content(content: Content, schemas: &mut SchemaGenerator) -> Option<Value> {
    match content {
        Content::None => None,
        Content::Archive => Some(json!({ "application/x-tar": {}, "application/gzip": {} })),
        Content::Json(of) => Some(json!({ "application/json": { "schema": of(schemas) } })),
        Content::Lines(of) => Some(json!({ "application/x-ndjson": { "schema": of(schemas) } })),
        Content::Any => Some(json!({ "application/json": { "schema": { "type": "object" } } })),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Array(list) => list.iter().for_each(|one| references(one, found)),
            Value::Object(object) => {
                found.extend(object.get("$ref").and_then(Value::as_str).map(str::to_owned));
                object.values().for_each(|one| references(one, found));
            }
            _ => {}
        }
    }

    #[test]
    fn description_refers_to_what_it_has_and_names_each_operation_once() {
        let description = description();
        let mut found = BTreeSet::new();
        references(&description, &mut found);
        assert!(found.contains("#/components/schemas/Overview"), "{found:?}");
        for reference in &found {
            let at = reference.trim_start_matches('#');
            assert!(description.pointer(at).is_some(), "{reference}");
        }
        let names: BTreeSet<_> = ROUTES.iter().map(operation_id).collect();
        assert_eq!(names.len(), ROUTES.len());
        assert!(names.contains("makeToken"), "{names:?}");
    }
}
