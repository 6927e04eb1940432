//! What the API shows, to whom, and a page at a time.

use serde_json::Value;

use crate::office::{Office, RAIL, SECRET};

#[tokio::test]
async fn events_are_searched_and_told_and_their_payload_is_for_auditors() {
    let office = Office::open().await;
    let publish = "select m10_recovery.publish_outbox('order', 'order-' || i, 'OrderPlaced', jsonb_build_object('iban', $1::text))
                   from generate_series(1, 5) i";
    office.owner.execute(publish, &[&SECRET]).await.unwrap();
    let console = office.console(&[("reader", &["read"]), ("auditor", &["audit"])]).await;
    let numbers = |page: &Value| -> Vec<i64> {
        page["items"].as_array().unwrap().iter().map(|event| event["id"].as_i64().unwrap()).collect()
    };
    let first = console.get("reader", "/events?limit=3").await;
    assert_eq!(numbers(&first), [5, 4, 3]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = console.get("reader", &format!("/events?limit=3&cursor={cursor}")).await;
    assert_eq!((numbers(&second), &second["next_cursor"]), (vec![2, 1], &Value::Null));
    assert_eq!(numbers(&console.get("reader", "/events?aggregate_id=order-2&unprocessed=true").await), [2]);
    assert_eq!(numbers(&console.get("reader", "/events?event_type=OrderLost").await), [0_i64; 0]);
    assert_eq!(console.get("reader", "/event-backlog").await["due"], 5);
    assert_eq!(console.get("reader", "/events/3").await["event"]["aggregate_id"], "order-3");
    assert_eq!(console.get("auditor", "/events/3/payload").await["iban"], SECRET);
    console.ask("reader", "GET", "/api/v1/events/3/payload", "").await.refused(403);
    console.ask("reader", "GET", "/api/v1/events/99", "").await.refused(404);
    console.ask("reader", "GET", "/api/v1/events/x", "").await.refused(400);
    // A cursor of another list.
    console.ask("reader", "GET", &format!("/api/v1/outboxes?cursor={cursor}"), "").await.refused(400);
}

fn ids(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|item| item["outbox_id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn outboxes_are_found_told_and_paged_and_their_payload_is_for_auditors() {
    let office = Office::open().await;
    let (paid, failed) = (office.dispatched(1).await.to_string(), office.failed(2).await.to_string());
    let unknown = office.unknown(3).await.to_string();
    let due = office.enqueue(4).await.to_string();
    let console = office.console(&[("reader", &["read"]), ("auditor", &["audit"])]).await;

    let first = console.get("reader", "/outboxes?limit=3").await;
    assert_eq!(ids(&first), [&due, &unknown, &failed]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = console.get("reader", &format!("/outboxes?limit=3&cursor={cursor}")).await;
    assert_eq!((ids(&second), &second["next_cursor"]), (vec![paid.as_str()], &Value::Null));
    for (query, expected) in [
        ("instruction_id=pay-1", &paid),
        ("idempotency_key=pay-2/key", &failed),
        ("state=DUE", &due),
        ("error_code=OUTCOME_UNKNOWN", &unknown),
        ("participant_id=shop-0&state=FAILED", &failed),
    ] {
        assert_eq!(ids(&console.get("reader", &format!("/outboxes?{query}")).await), [expected], "{query}");
    }
    assert_eq!(ids(&console.get("reader", "/participants/shop-1").await), [&unknown, &paid]);
    assert_eq!(console.get("reader", "/participants").await["items"][1]["participant_id"], "shop-1");
    assert_eq!(ids(&console.get("reader", "/dead-letters?outcome_unknown=true").await), [&unknown]);

    let told = console.get("reader", &format!("/outboxes/{paid}")).await;
    assert_eq!(
        (&told["outbox"]["state"], &told["outbox"]["rail_reference"]),
        (&"DISPATCHED".into(), &"ref-1".into())
    );
    assert_eq!(told["events"].as_array().unwrap().len(), 3);
    for path in ["/outboxes", "/dead-letters", "/overview", &format!("/outboxes/{paid}")] {
        assert!(!console.get("auditor", path).await.to_string().contains(SECRET), "{path}");
    }
    let payload = format!("/outboxes/{paid}/payload");
    assert_eq!(console.get("auditor", &payload).await["destination"]["iban"], SECRET);
    console.ask("reader", "GET", &format!("/api/v1{payload}"), "").await.refused(403);

    for (path, status) in [
        ("/outboxes?limit=201", 400),
        ("/outboxes?limit=0", 400),
        ("/outboxes?cursor=nonsense", 400),
        ("/outboxes?state=LOST", 400),
        ("/outboxes?colour=red", 400),
        ("/outboxes?instruction_id=a%00b", 400),
        ("/outboxes/not-a-uuid", 400),
        ("/outboxes/0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f", 404),
        ("/rails/nowhere", 404),
    ] {
        console.ask("reader", "GET", &format!("/api/v1{path}"), "").await.refused(status);
    }
    let long = "x".repeat(300);
    console.ask("reader", "GET", &format!("/api/v1/outboxes?instruction_id={long}"), "").await.refused(400);
}

#[tokio::test]
async fn the_overview_counts_what_there_is_and_every_answer_is_guarded() {
    let office = Office::open().await;
    office.dispatched(1).await;
    office.failed(2).await;
    office.unknown(3).await;
    office.enqueue(4).await;
    let console = office.console(&[("reader", &["read"])]).await;
    let overview = console.get("reader", "/overview").await;
    let rail =
        overview["backlog"]["rails"].as_array().unwrap().iter().find(|rail| rail["rail_type"] == RAIL).unwrap();
    assert_eq!((&overview["backlog"]["total"], &rail["due"]), (&1.into(), &1.into()));
    assert_eq!((&overview["dead_letters"]["known"], &overview["dead_letters"]["unknown"]), (&1.into(), &1.into()));
    assert_eq!((&overview["pulse"]["attempts"], &overview["worker"]), (&3.into(), &"office-relayer".into()));
    office.claim().await;
    assert_eq!(console.get("reader", "/leases").await["items"][0]["leases"], 1);

    let answer = console.ask("reader", "GET", "/api/v1/rails", "").await.is(200);
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    assert_eq!(answer.header("referrer-policy"), "no-referrer");
    assert!(answer.header("content-security-policy").contains("default-src 'none'"), "{answer:?}");
    assert_eq!(answer.header("access-control-allow-origin"), "");
    console.program.term();
}
