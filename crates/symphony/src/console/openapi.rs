//! The description of the API, in OpenAPI 3.1, from the list of its endpoints.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::endpoint::Endpoint;
use super::problem::Problem;

/// The whole description.
pub(crate) fn document(endpoints: &[Endpoint]) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    let mut generator = settings.into_generator();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for endpoint in endpoints {
        let operation = operation(endpoint, &mut generator);
        let path = paths.entry(format!("/api/v1{}", endpoint.path)).or_default();
        path.insert(endpoint.method.as_str().to_lowercase(), operation);
    }
    // It is named by every operation, and so must be among the definitions.
    let _ = generator.subschema_for::<Problem>();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Symphony",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What the console of `symphony run` answers. Times are RFC 3339 in UTC. Lists come in pages: give next_cursor back as cursor.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of console.tokens. Each operation names the scope that it needs.",
                },
            },
        },
    })
}

fn operation(endpoint: &Endpoint, generator: &mut SchemaGenerator) -> Value {
    let mut parameters: Vec<Value> = in_path(endpoint.path)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    let takes = (endpoint.takes)(generator).to_value();
    let gives = (endpoint.gives)(generator).to_value();
    let content: Map<String, Value> =
        endpoint.media.iter().map(|media| ((*media).to_owned(), json!({ "schema": gives }))).collect();
    let mut operation = json!({
        "operationId": operation_id(endpoint),
        "summary": endpoint.summary,
        "security": [{ "token": [endpoint.scope.word()] }],
        "responses": {
            "200": { "description": "Done, or what was asked.", "content": content },
            "default": {
                "description": "Why not.",
                "content": { "application/problem+json": { "schema": { "$ref": format!("#/components/schemas/{}", Problem::schema_name()) } } },
            },
        },
    });
    if endpoint.method == "GET" {
        parameters.extend(in_query(&takes, generator));
    } else {
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": takes } } });
    }
    operation["parameters"] = Value::Array(parameters);
    operation
}

/// The names in the braces of a path.
fn in_path(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// The fields of a query, which is described as an object.
fn in_query(takes: &Value, generator: &SchemaGenerator) -> Vec<Value> {
    let name = takes["$ref"].as_str().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    let object = generator.definitions().get(name).unwrap_or(takes);
    let Some(fields) = object["properties"].as_object() else { return Vec::new() };
    let needed = object["required"].as_array().cloned().unwrap_or_default();
    let field = |(name, schema): (&String, &Value)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        json!({ "name": name, "in": "query", "required": needed.contains(&json!(name)), "description": description, "schema": schema })
    };
    fields.iter().map(field).collect()
}

fn operation_id(endpoint: &Endpoint) -> String {
    let words = endpoint.path.split(['/', '-', '{', '}', '.', '_']).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(str::to_owned).collect();
    format!("{}_{}", endpoint.method.as_str().to_lowercase(), words.join("_"))
}
