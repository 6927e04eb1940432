//! The audit export: complete, in order, and only for the scope `audit`.

use serde_json::{Value, json};

use crate::fixture::{Fixture, SECRET};

const ALL_TIME: &str = "from=2020-01-01T00:00Z&to=2099-01-01T00:00Z";

#[tokio::test]
async fn the_audit_log_of_a_period_is_exported_completely_and_in_order() {
    let fixture = Fixture::new().await;
    // More than two pages, with several operations at the same time.
    let log = "insert into symphony.payment_outbox_operations (operation_id, operation, rail_type, actor, reason, created_at)
               select gen_random_uuid(), 'REPAIR', 'sepa', 'bulk', 'reason ' || i, '2026-05-01 00:00Z'::timestamptz + i / 3 * interval '1 minute'
               from generate_series(0, 1199) i";
    fixture.owner.batch_execute(log).await.unwrap();
    let console = fixture.console(&[("reader", &["read"]), ("auditor", &["audit"])]).await;
    let path = "/api/v1/audit/operations?from=2026-05-01T00:00Z&to=2026-05-01T06:00Z&format=ndjson";
    let export = console.ask("auditor", "GET", path, "").await.is(200);
    assert_eq!(export.header("content-type"), "application/x-ndjson");
    let lines: Vec<Value> = export.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1080, "three a minute for six hours");
    let keys =
        lines.iter().map(|line| (line["created_at"].as_str().unwrap(), line["operation_id"].as_str().unwrap()));
    assert!(keys.is_sorted(), "by time, then by id");
    let mut reasons: Vec<_> = lines.iter().map(|line| line["reason"].as_str().unwrap()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    assert_eq!(reasons.len(), 1080, "each once");

    let export = console.ask("auditor", "GET", &path.replace("ndjson", "csv"), "").await.is(200);
    assert_eq!(export.header("content-type"), "text/csv; charset=utf-8; header=present");
    assert!(export.header("content-disposition").ends_with("operations-20260501T000000Z-20260501T060000Z.csv\""));
    assert!(export.body.starts_with("created_at,operation_id,operation,"), "{}", export.body);
    assert_eq!(export.body.lines().count(), 1081);

    console.ask("reader", "GET", path, "").await.refused(403);
    for wrong in [
        "",
        "?from=2026-05-01T00:00Z",
        "?from=2026-05-02T00:00Z&to=2026-05-01T00:00Z",
        &format!("?{ALL_TIME}&format=pdf"),
    ] {
        console.ask("auditor", "GET", &format!("/api/v1/audit/operations{wrong}"), "").await.refused(400);
    }
}

#[tokio::test]
async fn an_export_says_where_it_ends_and_is_refused_while_an_operation_is_not_committed() {
    let fixture = Fixture::new().await;
    let console = fixture.console(&[]).await;
    let export = async |from: &str| {
        let path = format!("/api/v1/audit/operations?from={from}&to=2099-01-01T00:00Z&format=ndjson");
        console.ask("", "GET", &path, "").await
    };
    let first = export("2020-01-01T00:00Z").await.is(200);
    let end = first.header("symphony-export-end").to_owned();
    assert!(end.starts_with("20") && end.as_str() < "2099", "{end}");

    let operator = fixture.database.connect_as_login(&["symphony_operator"]).await.unwrap();
    operator.batch_execute("begin").await.unwrap();
    let pause = "select symphony.pause_payment_rail('sepa', 'mallory', 'late'); set local idle_in_transaction_session_timeout = 0";
    operator.batch_execute(pause).await.unwrap();
    let words = export(&end).await.refused(503);
    assert!(words.contains("is still open") && words.contains("session "), "{words}");
    operator.batch_execute("commit").await.unwrap();
    let second = export(&end).await.is(200).body;
    assert_eq!((first.body.matches("PAUSE_RAIL").count(), second.matches("PAUSE_RAIL").count()), (0, 1));
}

#[tokio::test]
async fn a_period_with_too_many_operations_is_refused_before_the_first_line() {
    let fixture = Fixture::new().await;
    let log = "insert into symphony.payment_outbox_operations (operation_id, operation, rail_type, actor, reason)
               select gen_random_uuid(), 'REPAIR', 'sepa', 'bulk', 'reason' from generate_series(1, 100001) i";
    fixture.owner.batch_execute(log).await.unwrap();
    let console = fixture.console(&[]).await;
    let words = console.ask("", "GET", &format!("/api/v1/audit/operations?{ALL_TIME}"), "").await.refused(400);
    assert!(words.contains("100000") && words.contains("shorter"), "{words}");
}

#[tokio::test]
async fn the_timeline_of_an_outbox_is_exported_with_operator_actions_and_without_its_payload() {
    let fixture = Fixture::new().await;
    let unknown = fixture.unknown(1).await;
    let console = fixture.console(&[("duty", &["operate"]), ("auditor", &["audit"])]).await;
    let resolution = json!({ "resolution": "NOT_PAID", "actor": "=cmd()", "reason": "asked, and \"no\"" });
    console.post("duty", &format!("/outboxes/{unknown}/resolve"), &resolution).await.is(200);
    let path = format!("/api/v1/audit/outboxes/{unknown}");
    let export = console.ask("auditor", "GET", &format!("{path}?format=ndjson"), "").await.is(200);
    let lines: Vec<Value> = export.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let what: Vec<_> = lines.iter().map(|line| line["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["ENQUEUED", "LEASE_CLAIMED", "ATTEMPT_COMPLETED", "RESOLVE"]);
    assert_eq!((&lines[2]["error_code"], &lines[3]["actor"]), (&"OUTCOME_UNKNOWN".into(), &"duty: =cmd()".into()));
    assert!(lines.iter().all(|line| line["idempotency_key"] == "pay-1/key"));
    let export = console.ask("auditor", "GET", &path, "").await.is(200).body;
    assert!(export.contains("\"asked, and \"\"no\"\"\"") && !export.contains(SECRET), "{export}");
    console.ask("duty", "GET", &path, "").await.refused(403);
    console
        .ask("auditor", "GET", "/api/v1/audit/outboxes/0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f", "")
        .await
        .refused(404);
}
