//! What people did.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use symphony_outbox::payment::reading::{self, Operation};

use super::time::Moment;
use super::{Frame, Refusal, in_path, shown};
use crate::console::Desk;
use crate::console::api::Export;
use crate::console::given::Asked;
use crate::console::paging::{self, Kind};
use crate::console::session::Visitor;

/// How many a page has.
const EACH: i32 = 100;

#[derive(Template)]
#[template(path = "operations.html")]
struct Page {
    frame: Frame,
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
    State(desk): State<Desk>,
    visitor: Visitor,
    Asked(query): Asked<Query>,
) -> Result<Response, Refusal> {
    let before = paging::id(Kind::Operation, Some(&query.cursor))?;
    let log = desk.database.read(async |client| reading::log_of_operations(client, before, EACH).await).await?;
    let last = log.last().filter(|_| i32::try_from(log.len()).is_ok_and(|count| count == EACH));
    let next = last.map(|last| paging::cursor(Kind::Operation, last.operation_id.as_bytes()));
    Ok(shown(&Page {
        frame: Frame::new(&desk, &visitor, "/operations"),
        next: next.map(|cursor| format!("/operations?cursor={}", in_path(&cursor))),
        rows: log.into_iter().map(row).collect(),
    }))
}

/// The log of a time, as a file.
pub(super) async fn export(
    State(desk): State<Desk>,
    visitor: Visitor,
    Asked(export): Asked<Export>,
) -> Result<Response, Refusal> {
    Ok(export.carry_out(&desk, &visitor.caller).await?)
}

fn row(done: Operation) -> Row {
    let resolution = done.resolution.map(|resolution| format!(" as {resolution}")).unwrap_or_default();
    Row {
        at: Moment::of(done.created_at),
        what: format!("{}{resolution}", done.operation),
        outbox: done.outbox_id.map(|id| id.to_string()),
        changes: changes(done.policy_before.as_ref(), done.policy_after.as_ref()),
        rail: done.rail_type,
        actor: done.actor,
        login: done.database_user,
        reason: done.reason,
    }
}

/// What a change of policy changed, field by field.
fn changes(before: Option<&Value>, after: Option<&Value>) -> String {
    let Some(after) = after.and_then(Value::as_object) else { return String::new() };
    let Some(before) = before.and_then(Value::as_object) else { return "registered".to_owned() };
    let changed = after.iter().filter(|(name, value)| {
        !["updated_at", "updated_by"].contains(&name.as_str()) && before.get(*name) != Some(*value)
    });
    let words =
        changed.map(|(name, value)| format!("{name}: {} → {value}", before.get(name).unwrap_or(&Value::Null)));
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::changes;

    #[test]
    fn a_change_of_policy_is_told_by_what_changed() {
        let before = json!({ "paused": false, "max_attempts": 20, "updated_by": "ana" });
        let after = json!({ "paused": true, "max_attempts": 20, "updated_by": "bo" });
        assert_eq!(changes(Some(&before), Some(&after)), "paused: false → true");
        assert_eq!(changes(None, Some(&after)), "registered");
        assert_eq!(changes(None, None), "");
    }
}
