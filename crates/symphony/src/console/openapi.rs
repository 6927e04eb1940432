//! The description of the API, in OpenAPI 3.1, from the list of its endpoints.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::endpoint::Endpoint;
use super::given::NAME;
use super::paging;
use super::problem::Problem;

/// Text that PostgreSQL can hold.
pub(super) const NO_NUL: &str = "^[^\\x00]*$";
/// The same, and it says something.
pub(super) const NOT_BLANK: &str = "^[^\\x00]*\\S[^\\x00]*$";
/// What is said of a refusal, by its status; no other is given.
const REFUSALS: [(&str, &str); 9] = [
    ("400", "What was given is wrong: `detail` says what."),
    ("401", "No token, or none that is known."),
    ("403", "Not with this token, or not from a page of another site."),
    ("404", "There is none of that name, or the lane is not installed."),
    ("409", "Its state does not allow it: look again."),
    ("413", "The body is longer than 64 KiB, or did not arrive whole."),
    ("415", "The body is not said to be JSON."),
    ("421", "Without tokens the console answers on this machine's own names alone."),
    ("503", "Not now: try again."),
];
/// Those of them that only a body or an action leads to.
const OF_ACTIONS: [&str; 3] = ["409", "413", "415"];

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
            "responses": BTreeMap::from(REFUSALS.map(|(status, why)| (status, refusal(status, why)))),
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
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": name_in_path(name) }))
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
        },
    });
    for (status, _) in REFUSALS {
        if endpoint.method != "GET" || !OF_ACTIONS.contains(&status) {
            operation["responses"][status] = json!({ "$ref": format!("#/components/responses/{status}") });
        }
    }
    if endpoint.method == "GET" {
        parameters.extend(in_query(&takes, generator));
    } else {
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": takes } } });
    }
    operation["parameters"] = Value::Array(parameters);
    operation
}

/// A refusal, with the header that goes with its status.
fn refusal(status: &str, why: &str) -> Value {
    let problem = format!("#/components/schemas/{}", Problem::schema_name());
    let mut refusal = json!({
        "description": why,
        "content": { "application/problem+json": { "schema": { "$ref": problem } } },
    });
    let header = match status {
        "401" => Some(("WWW-Authenticate", "string", "How to show a token.")),
        "503" => Some(("Retry-After", "integer", "Seconds after which to try again.")),
        _ => None,
    };
    if let Some((name, kind, description)) = header {
        refusal["headers"] =
            json!({ name: { "required": true, "schema": { "type": kind }, "description": description } });
    }
    refusal
}

/// What stands in a path under this name.
fn name_in_path(name: &str) -> Value {
    match name {
        "outbox_id" | "entry_id" => json!({ "type": "string", "format": "uuid" }),
        "event_id" => json!({ "type": "integer", "format": "int64", "minimum": i64::MIN, "maximum": i64::MAX }),
        _ => json!({ "type": "string", "minLength": 1, "maxLength": NAME, "pattern": NO_NUL }),
    }
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
        bound(name, &mut schema);
        json!({ "name": name, "in": "query", "required": needed.contains(&json!(name)), "description": description, "schema": schema })
    };
    fields.iter().map(field).collect()
}

/// The bounds of a field of a query, which every list shares.
fn bound(name: &str, schema: &mut Value) {
    let is_text = schema["type"].as_array().is_some_and(|kinds| kinds.contains(&json!("string")));
    match name {
        "limit" => (schema["minimum"], schema["maximum"]) = (1.into(), paging::MOST.into()),
        "cursor" => schema["maxLength"] = paging::LONGEST.into(),
        _ if is_text && schema.get("format").is_none() => {
            (schema["maxLength"], schema["pattern"]) = (NAME.into(), NO_NUL.into());
        }
        _ => {}
    }
}

fn operation_id(endpoint: &Endpoint) -> String {
    let words = endpoint.path.split(['/', '-', '{', '}', '.', '_']).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(str::to_owned).collect();
    format!("{}_{}", endpoint.method.as_str().to_lowercase(), words.join("_"))
}
