//! The audit log page: what operators did, when and why.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use symphony_db::payment::OperationKind;
use symphony_db::payment::reader::{self, Operation};

use super::time::Moment;
use super::{Layout, PageError, percent_encode, render};
use crate::ConsoleState;
use crate::api::OperationsExport;
use crate::extract::QueryParams;
use crate::paging::{self, CursorKind};
use crate::session::Visitor;

/// Operations per page.
const PAGE_SIZE: i32 = 100;

#[derive(Template)]
#[template(path = "operations.html")]
struct Page {
    layout: Layout,
    rows: Vec<Row>,
    next: Option<String>,
}

struct Row {
    at: Moment,
    what: String,
    outbox: Option<String>,
    rail: String,
    changes: String,
    actor: String,
    login: String,
    reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Query {
    cursor: String,
}

pub(super) async fn page(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    QueryParams(query): QueryParams<Query>,
) -> Result<Response, PageError> {
    let before = paging::decode_uuid(CursorKind::Operation, Some(&query.cursor))?;
    let log =
        console.database.read(async |client| reader::operations_log(client, before, PAGE_SIZE).await).await?;
    let last = log.last().filter(|_| i32::try_from(log.len()).is_ok_and(|count| count == PAGE_SIZE));
    let next = last.map(|last| paging::encode(CursorKind::Operation, last.operation_id.as_bytes()));
    Ok(render(&Page {
        layout: Layout::new(&console, &visitor, "/operations"),
        next: next.map(|cursor| format!("/operations?cursor={}", percent_encode(&cursor))),
        rows: log.into_iter().map(row).collect(),
    }))
}

/// The audit log of a period as a file.
pub(super) async fn export(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    QueryParams(export): QueryParams<OperationsExport>,
) -> Result<Response, PageError> {
    Ok(export.run(&console, &visitor.caller).await?)
}

fn row(operation: Operation) -> Row {
    let resolution = operation.resolution.map(|resolution| format!(" as {resolution}")).unwrap_or_default();
    Row {
        at: Moment::of(operation.created_at),
        what: format!("{}{resolution}", operation.operation),
        outbox: operation.outbox_id.map(|id| id.to_string()),
        changes: match operation.operation {
            OperationKind::DeclareSameEndpoint => pair(operation.policy_after.as_ref()),
            OperationKind::RevokeSameEndpoint => pair(operation.policy_before.as_ref()),
            _ => changes(operation.policy_before.as_ref(), operation.policy_after.as_ref()),
        },
        rail: operation.rail_type.unwrap_or_default(),
        actor: operation.actor,
        login: operation.database_user,
        reason: operation.reason,
    }
}

/// The two endpoints of a declaration, as text.
fn pair(endpoints: Option<&Value>) -> String {
    let name = |field| endpoints.and_then(|pair| pair[field].as_str()).unwrap_or_default();
    format!("{} = {}", name("endpoint"), name("same_as"))
}

/// The changed fields of a policy, as text.
fn changes(before: Option<&Value>, after: Option<&Value>) -> String {
    let Some(after) = after.and_then(Value::as_object) else { return String::new() };
    let Some(before) = before.and_then(Value::as_object) else { return "registered".to_owned() };
    let changed = after.iter().filter(|(name, value)| {
        !["updated_at", "updated_by"].contains(&name.as_str()) && before.get(*name) != Some(*value)
    });
    let changes =
        changed.map(|(name, value)| format!("{name}: {} → {value}", before.get(name).unwrap_or(&Value::Null)));
    changes.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::changes;

    #[test]
    fn a_policy_change_lists_the_changed_fields() {
        let before = json!({ "paused": false, "max_attempts": 20, "updated_by": "ana" });
        let after = json!({ "paused": true, "max_attempts": 20, "updated_by": "bo" });
        assert_eq!(changes(Some(&before), Some(&after)), "paused: false → true");
        assert_eq!(changes(None, Some(&after)), "registered");
        assert_eq!(changes(None, None), "");
    }
}
