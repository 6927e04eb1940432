//! What the API does, and that it is written down with who and why.

use serde_json::{Value, json};

use crate::office::{Office, RAIL};

#[tokio::test]
async fn every_action_is_done_and_written_down_with_who_and_why() {
    let office = Office::open().await;
    let (failed, unknown) = (office.failed(1).await, office.unknown(2).await);
    let console = office.console(&[("duty", &["operate"]), ("auditor", &["audit"]), ("reader", &["read"])]).await;
    let warrant = json!({ "actor": "ana", "reason": "a test" });

    let paused = console.post("duty", &format!("/rails/{RAIL}/pause"), &warrant).await.is(200).json();
    assert_eq!((&paused["paused"], &paused["updated_by"]), (&true.into(), &"duty: ana".into()));
    console.post("duty", &format!("/rails/{RAIL}/resume"), &warrant).await.is(200);
    let change =
        json!({ "policy": { "max_attempts": 7, "max_in_flight": 3 }, "actor": "ana", "reason": "a test" });
    let changed = console.post("duty", &format!("/rails/{RAIL}/policy"), &change).await.is(200).json();
    assert_eq!((&changed["max_attempts"], &changed["max_in_flight"]), (&7.into(), &3.into()));

    // Nobody knows whether it was paid: it cannot be tried again before somebody found out.
    let words = console.post("duty", &format!("/outboxes/{unknown}/redrive"), &warrant).await.refused(409);
    assert!(words.contains("nobody knows"), "{words}");
    let finding = json!({ "resolution": "NOT_PAID", "actor": "ana", "reason": "statement of 3 May" });
    console.post("duty", &format!("/outboxes/{unknown}/resolve"), &finding).await.is(200);
    for id in [failed, unknown] {
        let redriven = console.post("duty", &format!("/outboxes/{id}/redrive"), &warrant).await.is(200).json();
        let new = redriven["outbox_id"].as_str().unwrap();
        let told = console.get("reader", &format!("/outboxes/{new}")).await;
        assert_eq!(told["outbox"]["redrive_of"], id.to_string());
        console.post("duty", &format!("/outboxes/{id}/redrive"), &warrant).await.refused(409);
    }
    office.claim().await;
    let expire =
        "update symphony.payment_outbox_pending set lease_expires_at = now() where lease_token is not null";
    office.owner.batch_execute(expire).await.unwrap();
    let repaired = console.post("duty", &format!("/rails/{RAIL}/repair"), &warrant).await.is(200).json();
    assert_eq!(repaired, json!({ "requeued": 2, "failed": 0 }));

    let log = console.get("auditor", "/operations?limit=7").await;
    let done: Vec<_> =
        log["items"].as_array().unwrap().iter().map(|done| done["operation"].as_str().unwrap()).collect();
    assert_eq!(done, ["REPAIR", "REDRIVE", "REDRIVE", "RESOLVE", "SET_RAIL", "RESUME_RAIL", "PAUSE_RAIL"]);
    assert!(log["items"].as_array().unwrap().iter().all(|done| done["actor"] == "duty: ana"), "{log}");
    // Who may only read sees what was done, and not by whom.
    let story = format!("/outboxes/{unknown}");
    let (seen, known) = (console.get("reader", &story).await, console.get("duty", &story).await);
    assert_eq!(
        (&seen["operations"][0]["resolution"], known["operations"][0]["actor"].as_str()),
        (&"NOT_PAID".into(), Some("duty: ana"))
    );
    assert!(!console.get("reader", "/rails").await.to_string().contains("ana"));
    assert!(console.get("duty", "/rails").await.to_string().contains("duty: ana"));
    assert!(!seen.to_string().contains("ana") && !seen.to_string().contains("statement"), "{seen}");
}

#[tokio::test]
async fn a_rail_is_registered_by_an_act_of_its_own_and_can_be_retired() {
    let office = Office::open().await;
    let console = office.console(&[("duty", &["operate"]), ("reader", &["read"])]).await;
    let change = json!({ "policy": { "max_attempts": 7 }, "actor": "ana", "reason": "a test" });
    let warrant = json!({ "actor": "ana", "reason": "a test" });
    let words = console.post("duty", "/rails/sepaa/policy", &change).await.refused(404);
    assert!(words.contains("register_payment_rail"), "{words}");
    assert_eq!(office.operations("REGISTER_RAIL").await, 0);

    console.post("reader", "/rails/sepaa/register", &change).await.refused(403);
    let rail = console.post("duty", "/rails/sepaa/register", &change).await.is(200).json();
    assert_eq!((&rail["max_attempts"], &rail["retired_at"]), (&7.into(), &Value::Null));
    console.post("duty", "/rails/sepaa/register", &change).await.refused(409);
    let retired = console.post("duty", "/rails/sepaa/retire", &warrant).await.is(200).json();
    assert!(retired["retired_at"].is_string(), "{retired}");
    console.post("duty", "/rails/sepaa/retire", &warrant).await.refused(404);
    office.failed(1).await;
    office
        .owner
        .batch_execute("select symphony.enqueue_payment_outbox('waits', 'p', 'k', 'sepa', '{}')")
        .await
        .unwrap();
    let words = console.post("duty", &format!("/rails/{RAIL}/retire"), &warrant).await.refused(409);
    assert!(words.contains("pending payments"), "{words}");
}

#[tokio::test]
async fn what_is_not_signed_or_not_understood_changes_nothing() {
    let office = Office::open().await;
    let failed = office.failed(1).await;
    let console = office.console(&[]).await;
    let redrive = format!("/outboxes/{failed}/redrive");
    for (body, status) in [
        (json!({}), 400),
        (json!({ "actor": "ana" }), 400),
        (json!({ "actor": "ana", "reason": " " }), 400),
        (json!({ "actor": " ", "reason": "a test" }), 400),
        (json!({ "actor": "ana", "reason": "a test", "force": true }), 400),
        (json!({ "actor": "a".repeat(201), "reason": "a test" }), 400),
        (json!({ "actor": "ana", "reason": "a".repeat(70_000) }), 413),
        (json!({ "actor": "a\0b", "reason": "a test" }), 400),
        (json!(["ana", "a test"]), 400),
    ] {
        console.post("", &redrive, &body).await.refused(status);
    }
    let warrant = json!({ "actor": "ana", "reason": "a test" });
    let nowhere = "/outboxes/0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f/redrive";
    console.post("", nowhere, &warrant).await.refused(404);
    console.post("", "/rails/nowhere/pause", &warrant).await.refused(404);
    let policy = json!({ "policy": { "max_attempts": 21 }, "actor": "ana", "reason": "a test" });
    console.post("", &format!("/rails/{RAIL}/policy"), &policy).await.refused(400);
    let list = json!({ "policy": [7], "actor": "ana", "reason": "a test" });
    console.post("", &format!("/rails/{RAIL}/policy"), &list).await.refused(400);
    for kind in ["REDRIVE", "PAUSE_RAIL", "SET_RAIL"] {
        assert_eq!(office.operations(kind).await, 0, "{kind}");
    }
}

#[tokio::test]
async fn many_are_redriven_only_by_their_number_and_never_what_may_have_been_paid() {
    let office = Office::open().await;
    for number in 1..=3 {
        office.failed(number).await;
    }
    office.unknown(4).await;
    let console = office.console(&[]).await;
    let path = "/dead-letters/redrive";
    let dry = json!({ "rail_type": RAIL, "error_code": "NO_ACCOUNT" });
    let counted = console.post("", path, &dry).await.is(200).json();
    assert_eq!((&counted["matching"], &counted["redriven"]), (&3.into(), &json!([])));
    assert_eq!(office.operations("REDRIVE").await, 0, "a dry run does nothing");

    let mut real = json!({ "rail_type": RAIL, "error_code": "NO_ACCOUNT", "expected": 2, "actor": "ana", "reason": "a test" });
    console.post("", path, &real).await.refused(409);
    assert_eq!(office.operations("REDRIVE").await, 0, "the number was another");
    real["expected"] = 3.into();
    let done = console.post("", path, &real).await.is(200).json();
    assert_eq!((done["redriven"].as_array().unwrap().len(), &done["refused"]), (3, &json!([])));
    assert_eq!(office.operations("REDRIVE").await, 3);
    let left = json!({ "expected": 0, "actor": "ana", "reason": "a test" });
    assert_eq!(console.post("", path, &left).await.is(200).json()["redriven"], json!([]));
    assert_eq!(office.operations("REDRIVE").await, 3, "what nobody knows is left alone");
}
