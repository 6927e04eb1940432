//! The OpenAPI 3.1 description, generated from the list of endpoints.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::endpoint::Endpoint;
use super::extract::MAX_NAME_CHARS;
use super::paging;
use super::problem::Problem;

/// Text that PostgreSQL can store.
pub(super) const NO_NUL: &str = "^[^\\x00]*$";
/// Text that PostgreSQL can store and that is not blank.
pub(super) const NOT_BLANK: &str = "^[^\\x00]*\\S[^\\x00]*$";
/// Every error status and its description.
const PROBLEMS: [(&str, &str); 9] = [
    ("400", "The request is wrong; `detail` says how."),
    ("401", "The token is missing or unknown."),
    ("403", "The token lacks the scope, or the request comes from a page of another site."),
    ("404", "The resource does not exist, or its lane is not installed."),
    ("409", "The state of the resource does not allow the action: read it again."),
    ("413", "The body is longer than 64 KiB, or is incomplete."),
    ("415", "The content type is not application/json."),
    ("421", "Without tokens the console answers only requests for localhost, 127.0.0.1 and [::1]."),
    ("503", "Temporarily unavailable: try again."),
];
/// The statuses that only endpoints with a body return.
const ACTION_ONLY_STATUSES: [&str; 3] = ["409", "413", "415"];

/// The complete document.
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
    // Every operation refers to it.
    let _ = generator.subschema_for::<Problem>();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Symphony",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The API of the console of `symphony run`. Times are RFC 3339 in UTC. Lists are paged: send next_cursor back as cursor.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "responses": BTreeMap::from(PROBLEMS.map(|(status, why)| (status, problem_response(status, why)))),
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
    let mut parameters: Vec<Value> = path_parameters(endpoint.path)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": path_parameter_schema(name) }))
        .collect();
    let request = (endpoint.request_schema)(generator).to_value();
    let response = (endpoint.response_schema)(generator).to_value();
    let content: Map<String, Value> =
        endpoint.media.iter().map(|media| ((*media).to_owned(), json!({ "schema": response }))).collect();
    let mut operation = json!({
        "operationId": operation_id(endpoint),
        "summary": endpoint.summary,
        "security": [{ "token": [endpoint.scope.as_str()] }],
        "responses": {
            "200": { "description": "Success.", "content": content },
        },
    });
    for (status, _) in PROBLEMS {
        if endpoint.method != "GET" || !ACTION_ONLY_STATUSES.contains(&status) {
            operation["responses"][status] = json!({ "$ref": format!("#/components/responses/{status}") });
        }
    }
    if endpoint.method == "GET" {
        parameters.extend(query_parameters(&request, generator));
    } else {
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": request } } });
    }
    operation["parameters"] = Value::Array(parameters);
    operation
}

/// An error response, with the header that belongs to its status.
fn problem_response(status: &str, why: &str) -> Value {
    let problem = format!("#/components/schemas/{}", Problem::schema_name());
    let mut problem_response = json!({
        "description": why,
        "content": { "application/problem+json": { "schema": { "$ref": problem } } },
    });
    let header = match status {
        "401" => Some(("WWW-Authenticate", "string", "How to send a token.")),
        "503" => Some(("Retry-After", "integer", "Seconds to wait before the next request.")),
        _ => None,
    };
    if let Some((name, kind, description)) = header {
        problem_response["headers"] =
            json!({ name: { "required": true, "schema": { "type": kind }, "description": description } });
    }
    problem_response
}

/// The schema of a path parameter.
fn path_parameter_schema(name: &str) -> Value {
    match name {
        "outbox_id" | "entry_id" => json!({ "type": "string", "format": "uuid" }),
        "event_id" => json!({ "type": "integer", "format": "int64", "minimum": i64::MIN, "maximum": i64::MAX }),
        _ => json!({ "type": "string", "minLength": 1, "maxLength": MAX_NAME_CHARS, "pattern": NO_NUL }),
    }
}

/// The names of the parameters of a path.
fn path_parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// The query parameters, from the schema of the query struct.
fn query_parameters(query: &Value, generator: &SchemaGenerator) -> Vec<Value> {
    let name = query["$ref"].as_str().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    let object = generator.definitions().get(name).unwrap_or(query);
    let Some(fields) = object["properties"].as_object() else { return Vec::new() };
    let needed = object["required"].as_array().cloned().unwrap_or_default();
    let field = |(name, schema): (&String, &Value)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        add_bounds(name, &mut schema);
        json!({ "name": name, "in": "query", "required": needed.contains(&json!(name)), "description": description, "schema": schema })
    };
    fields.iter().map(field).collect()
}

/// Adds the limits of a query parameter.
fn add_bounds(name: &str, schema: &mut Value) {
    let is_text = schema["type"].as_array().is_some_and(|kinds| kinds.contains(&json!("string")));
    match name {
        "limit" => (schema["minimum"], schema["maximum"]) = (1.into(), paging::MAX_LIMIT.into()),
        "cursor" => schema["maxLength"] = paging::MAX_CURSOR_CHARS.into(),
        _ if is_text && schema.get("format").is_none() => {
            (schema["maxLength"], schema["pattern"]) = (MAX_NAME_CHARS.into(), NO_NUL.into());
        }
        _ => {}
    }
}

fn operation_id(endpoint: &Endpoint) -> String {
    let words = endpoint.path.split(['/', '-', '{', '}', '.', '_']).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(str::to_owned).collect();
    format!("{}_{}", endpoint.method.as_str().to_lowercase(), words.join("_"))
}
