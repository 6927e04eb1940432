//! The endpoints that act, and the operator and reason that the audit log keeps.

use serde_json::{Value, json};

use crate::fixture::{Fixture, RAIL};

#[tokio::test]
async fn every_action_is_recorded_with_operator_and_reason() {
    let fixture = Fixture::new().await;
    let (failed, unknown) = (fixture.failed(1).await, fixture.unknown(2).await);
    let console = fixture.console(&[("duty", &["operate"]), ("auditor", &["audit"]), ("reader", &["read"])]).await;
    let audit_context = json!({ "actor": "ana", "reason": "a test" });

    let paused = console.post("duty", &format!("/rails/{RAIL}/pause"), &audit_context).await.is(200).json();
    assert_eq!((&paused["paused"], &paused["updated_by"]), (&true.into(), &"duty: ana".into()));
    console.post("duty", &format!("/rails/{RAIL}/resume"), &audit_context).await.is(200);
    let change =
        json!({ "policy": { "max_attempts": 7, "max_in_flight": 3 }, "actor": "ana", "reason": "a test" });
    let changed = console.post("duty", &format!("/rails/{RAIL}/policy"), &change).await.is(200).json();
    assert_eq!((&changed["max_attempts"], &changed["max_in_flight"]), (&7.into(), &3.into()));

    // An unknown outcome cannot be redriven before an operator resolves it.
    let words = console.post("duty", &format!("/outboxes/{unknown}/redrive"), &audit_context).await.refused(409);
    assert!(words.contains("is unknown"), "{words}");
    let resolution = json!({ "resolution": "NOT_PAID", "actor": "ana", "reason": "statement of 3 May" });
    console.post("duty", &format!("/outboxes/{unknown}/resolve"), &resolution).await.is(200);
    for id in [failed, unknown] {
        let redriven =
            console.post("duty", &format!("/outboxes/{id}/redrive"), &audit_context).await.is(200).json();
        let new = redriven["outbox_id"].as_str().unwrap();
        let details = console.get("reader", &format!("/outboxes/{new}")).await;
        assert_eq!(details["outbox"]["redrive_of"], id.to_string());
        console.post("duty", &format!("/outboxes/{id}/redrive"), &audit_context).await.refused(409);
    }
    fixture.claim().await;
    let expire =
        "update symphony.payment_outbox_pending set lease_expires_at = now() where lease_token is not null";
    fixture.owner.batch_execute(expire).await.unwrap();
    let repaired = console.post("duty", &format!("/rails/{RAIL}/repair"), &audit_context).await.is(200).json();
    assert_eq!(repaired, json!({ "requeued": 2, "failed": 0 }));

    let log = console.get("auditor", "/operations?limit=7").await;
    let done: Vec<_> =
        log["items"].as_array().unwrap().iter().map(|done| done["operation"].as_str().unwrap()).collect();
    assert_eq!(done, ["REPAIR", "REDRIVE", "REDRIVE", "RESOLVE", "SET_RAIL", "RESUME_RAIL", "PAUSE_RAIL"]);
    assert!(log["items"].as_array().unwrap().iter().all(|done| done["actor"] == "duty: ana"), "{log}");
    // The scope read sees what was done, and no operator.
    let path = format!("/outboxes/{unknown}");
    let (seen, known) = (console.get("reader", &path).await, console.get("duty", &path).await);
    assert_eq!(
        (&seen["operations"][0]["resolution"], known["operations"][0]["actor"].as_str()),
        (&"NOT_PAID".into(), Some("duty: ana"))
    );
    assert!(!console.get("reader", "/rails").await.to_string().contains("ana"));
    assert!(console.get("duty", "/rails").await.to_string().contains("duty: ana"));
    assert!(!seen.to_string().contains("ana") && !seen.to_string().contains("statement"), "{seen}");
}

#[tokio::test]
async fn an_operator_cancels_what_was_not_sent_and_gives_a_refused_payment_a_new_key() {
    let fixture = Fixture::new().await;
    let failed = fixture.failed(1).await;
    let console = fixture.console(&[("duty", &["operate"]), ("reader", &["read"])]).await;
    let redrive = format!("/outboxes/{failed}/redrive");
    let request = |more: Value| {
        let mut body = json!({ "actor": "ana", "reason": "a new IBAN" });
        body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        body
    };
    for replacement in [json!({ "payload": {} }), json!({ "idempotency_key": " " })] {
        console.post("duty", &redrive, &request(json!({ "replacement": replacement }))).await.refused(400);
    }
    // The fixture's failure has no code of the bank.
    let unproven = console
        .post("duty", &redrive, &request(json!({ "replacement": { "idempotency_key": "new" } })))
        .await
        .refused(409);
    assert!(unproven.contains("no code of the bank"), "{unproven}");
    let same_key = console.post("duty", &redrive, &request(json!({}))).await.is(200).json();

    let cancel = format!("/outboxes/{}/cancel", same_key["outbox_id"].as_str().unwrap());
    console.post("reader", &cancel, &request(json!({}))).await.refused(403);
    let cancelled = console.post("duty", &cancel, &request(json!({}))).await.is(200).json();
    assert_eq!(cancelled["outbox_id"], same_key["outbox_id"]);
    let again = console.post("duty", &cancel, &request(json!({}))).await.refused(409);
    assert!(again.contains("has ended as FAILED"), "{again}");
    let nowhere = "/outboxes/0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f/cancel";
    console.post("duty", nowhere, &request(json!({}))).await.refused(404);

    let seen = console.get("reader", &format!("/outboxes/{}", same_key["outbox_id"].as_str().unwrap())).await;
    assert_eq!((&seen["outbox"]["error_code"], &seen["outbox"]["attempts"]), (&"CANCELLED".into(), &0.into()));
    assert_eq!(seen["events"].as_array().unwrap().len(), 2, "{seen}");
    assert!(!seen.to_string().contains("ana"), "the scope read sees no operator: {seen}");
}

#[tokio::test]
async fn a_payload_is_erased_once_by_an_operator_and_the_audit_log_says_why() {
    let fixture = Fixture::new().await;
    let (dispatched, failed) = (fixture.dispatched(1).await, fixture.failed(2).await);
    let console = fixture.console(&[("duty", &["operate"]), ("auditor", &["audit"])]).await;
    let audit_context = json!({ "actor": "ana", "reason": "request 17" });
    let path = format!("/outboxes/{dispatched}/erase");
    console.post("auditor", &path, &audit_context).await.refused(403);
    let words = console.post("duty", &format!("/outboxes/{failed}/erase"), &audit_context).await.refused(409);
    assert!(words.contains("unresolved dead letter"), "{words}");
    console.post("duty", &path, &json!({ "actor": "ana", "reason": " " })).await.refused(400);
    assert_eq!(fixture.operations("ERASE").await, 0);

    let erased = console.post("duty", &path, &audit_context).await.is(200).json();
    assert_eq!((&erased["outbox_ids"], &erased["rows"]), (&json!([dispatched]), &1.into()));
    console.post("duty", &path, &audit_context).await.refused(409);
    let payload = console.get("auditor", &format!("/outboxes/{dispatched}/payload")).await;
    assert_eq!((&payload["erased"], payload["digest"].as_str().map(str::len)), (&true.into(), Some(64)));
    let details = console.get("duty", &format!("/outboxes/{dispatched}")).await;
    assert!(details["outbox"]["payload_erased_at"].is_string(), "{details}");
    let done = &details["operations"][0];
    assert_eq!((&done["operation"], &done["reason"]), (&"ERASE".into(), &"request 17".into()));
}

#[tokio::test]
async fn two_endpoints_are_declared_the_same_bank_and_the_declaration_is_revoked() {
    let fixture = Fixture::new().await;
    fixture.failed(1).await;
    let console = fixture.console(&[("duty", &["operate"]), ("reader", &["read"])]).await;
    let pair = json!({ "endpoint": "old#k", "same_as": "new#z", "actor": "ana", "reason": "it moved" });
    let path = format!("/rails/{RAIL}/same-endpoint");
    console.post("reader", &path, &pair).await.refused(403);
    let declared = console.post("duty", &path, &pair).await.is(200).json();
    assert!(declared["operation_id"].is_string(), "{declared}");
    console.post("duty", &path, &pair).await.refused(409);
    console.post("duty", "/rails/nowhere/same-endpoint", &pair).await.refused(404);
    let listed = &console.get("duty", "/same-endpoints").await["items"][0];
    assert_eq!((&listed["endpoint"], &listed["same_as"]), (&"old#k".into(), &"new#z".into()));
    assert_eq!((&listed["declared_by"], &listed["reason"]), (&"duty: ana".into(), &"it moved".into()));
    let hidden = &console.get("reader", "/same-endpoints").await["items"][0];
    assert!(hidden["declared_by"] != listed["declared_by"] && hidden["reason"] != listed["reason"], "{hidden}");

    let path = format!("{path}/revoke");
    console.post("duty", &path, &pair).await.is(200);
    console.post("duty", &path, &pair).await.refused(409);
    assert_eq!(console.get("duty", "/same-endpoints").await["items"], json!([]));
    let count = |kind| fixture.operations(kind);
    assert_eq!((count("DECLARE_SAME_ENDPOINT").await, count("REVOKE_SAME_ENDPOINT").await), (1, 1));
}

#[tokio::test]
async fn a_rail_is_registered_by_its_own_action_and_can_be_retired() {
    let fixture = Fixture::new().await;
    let console = fixture.console(&[("duty", &["operate"]), ("reader", &["read"])]).await;
    let change = json!({ "policy": { "max_attempts": 7 }, "actor": "ana", "reason": "a test" });
    let audit_context = json!({ "actor": "ana", "reason": "a test" });
    let words = console.post("duty", "/rails/sepaa/policy", &change).await.refused(404);
    assert!(words.contains("register_payment_rail"), "{words}");
    assert_eq!(fixture.operations("REGISTER_RAIL").await, 0);

    console.post("reader", "/rails/sepaa/register", &change).await.refused(403);
    let rail = console.post("duty", "/rails/sepaa/register", &change).await.is(200).json();
    assert_eq!((&rail["max_attempts"], &rail["retired_at"]), (&7.into(), &Value::Null));
    console.post("duty", "/rails/sepaa/register", &change).await.refused(409);
    let retired = console.post("duty", "/rails/sepaa/retire", &audit_context).await.is(200).json();
    assert!(retired["retired_at"].is_string(), "{retired}");
    console.post("duty", "/rails/sepaa/retire", &audit_context).await.refused(404);
    fixture.failed(1).await;
    fixture
        .owner
        .batch_execute("select symphony.enqueue_payment_outbox('waits', 'p', 'k', 'sepa', '{}')")
        .await
        .unwrap();
    let words = console.post("duty", &format!("/rails/{RAIL}/retire"), &audit_context).await.refused(409);
    assert!(words.contains("pending payments"), "{words}");
}

#[tokio::test]
async fn an_action_without_operator_or_reason_or_with_a_wrong_body_changes_nothing() {
    let fixture = Fixture::new().await;
    let failed = fixture.failed(1).await;
    let console = fixture.console(&[]).await;
    let redrive = format!("/outboxes/{failed}/redrive");
    for (body, status) in [
        (json!({}), 400),
        (json!({ "actor": "ana" }), 400),
        (json!({ "actor": "ana", "reason": " " }), 400),
        (json!({ "actor": " ", "reason": "a test" }), 400),
        (json!({ "actor": "ana", "reason": "a test", "force": true }), 400),
        (json!({ "actor": "a".repeat(201), "reason": "a test" }), 400),
        (json!({ "actor": "ana", "reason": format!(" {}", "a".repeat(2000)) }), 400),
        (json!({ "actor": "ana", "reason": "a".repeat(70_000) }), 413),
        (json!({ "actor": "a\0b", "reason": "a test" }), 400),
        (json!(["ana", "a test"]), 400),
    ] {
        console.post("", &redrive, &body).await.refused(status);
    }
    let audit_context = json!({ "actor": "ana", "reason": "a test" });
    let nowhere = "/outboxes/0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f/redrive";
    console.post("", nowhere, &audit_context).await.refused(404);
    console.post("", "/rails/nowhere/pause", &audit_context).await.refused(404);
    let policy = json!({ "policy": { "max_attempts": 21 }, "actor": "ana", "reason": "a test" });
    console.post("", &format!("/rails/{RAIL}/policy"), &policy).await.refused(400);
    let list = json!({ "policy": [7], "actor": "ana", "reason": "a test" });
    console.post("", &format!("/rails/{RAIL}/policy"), &list).await.refused(400);
    for kind in ["REDRIVE", "PAUSE_RAIL", "SET_RAIL"] {
        assert_eq!(fixture.operations(kind).await, 0, "{kind}");
    }
}

#[tokio::test]
async fn a_bulk_redrive_needs_the_expected_number_and_never_takes_unknown_outcomes() {
    let fixture = Fixture::new().await;
    for number in 1..=3 {
        fixture.failed(number).await;
    }
    fixture.unknown(4).await;
    let console = fixture.console(&[]).await;
    let path = "/dead-letters/redrive";
    let dry = json!({ "rail_type": RAIL, "error_code": "NO_ACCOUNT" });
    let counted = console.post("", path, &dry).await.is(200).json();
    assert_eq!((&counted["matching"], &counted["redriven"]), (&3.into(), &json!([])));
    assert_eq!(fixture.operations("REDRIVE").await, 0, "a dry run does nothing");

    let mut real = json!({ "rail_type": RAIL, "error_code": "NO_ACCOUNT", "expected": 2, "actor": "ana", "reason": "a test" });
    console.post("", path, &real).await.refused(409);
    assert_eq!(fixture.operations("REDRIVE").await, 0, "the number was another");
    real["expected"] = 3.into();
    let done = console.post("", path, &real).await.is(200).json();
    assert_eq!((done["redriven"].as_array().unwrap().len(), &done["refused"]), (3, &json!([])));
    assert_eq!(fixture.operations("REDRIVE").await, 3);
    let left = json!({ "expected": 0, "actor": "ana", "reason": "a test" });
    assert_eq!(console.post("", path, &left).await.is(200).json()["redriven"], json!([]));
    assert_eq!(fixture.operations("REDRIVE").await, 3, "unknown outcomes are not redriven");
}

#[tokio::test]
async fn orphaned_outcomes_are_listed_without_lease_tokens_and_shown_on_the_overview() {
    let fixture = Fixture::new().await;
    let console = fixture.console(&[("reader", &["read"])]).await;
    assert_eq!(console.get("reader", "/orphans").await["items"], json!([]));
    let executor = fixture.database.connect_as("symphony_executor").await.unwrap();
    let report = "select symphony.record_payment_orphan('UNKNOWN_OUTBOX', 'worker', gen_random_uuid(), gen_random_uuid(), 'DISPATCHED',
                    p_rail_reference => 'bank-1', p_idempotency_key => 'lost', p_rail_type => 'sepa')";
    executor.execute(report, &[]).await.unwrap();
    let listed = console.get("reader", "/orphans").await["items"][0].clone();
    let found = (&listed["kind"], &listed["idempotency_key"], &listed["rail_reference"]);
    assert_eq!(found, (&"UNKNOWN_OUTBOX".into(), &"lost".into(), &"bank-1".into()), "{listed}");
    assert!(listed.get("lease_token").is_none(), "{listed}");
    assert_eq!(console.get("reader", "/overview").await["payments"]["open_orphans"], 1);
}
