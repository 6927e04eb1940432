//! The endpoints that read: search, details, payloads and paging.

use serde_json::Value;

use crate::fixture::{Fixture, RAIL, SECRET};

#[tokio::test]
async fn events_can_be_searched_and_read_and_only_auditors_see_payloads() {
    let fixture = Fixture::new().await;
    let publish = "select m10_recovery.publish_outbox('order', 'order-' || i, 'OrderPlaced', jsonb_build_object('iban', $1::text))
                   from generate_series(1, 5) i";
    fixture.owner.execute(publish, &[&SECRET]).await.unwrap();
    let console = fixture.console(&[("reader", &["read"]), ("auditor", &["audit"])]).await;
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

#[tokio::test]
async fn metadata_can_be_searched_and_read_and_only_auditors_see_payloads() {
    let fixture = Fixture::new().await;
    let create = "select symphony.create_metadata_entry('customer', 'c-' || i % 3, jsonb_build_object('iban', $1::text)) from generate_series(1, 5) i";
    fixture.owner.execute(create, &[&SECRET]).await.unwrap();
    fixture.dead_metadata("c-2").await;
    let console = fixture.console(&[("reader", &["read"]), ("auditor", &["audit"])]).await;
    let entities = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap().iter();
        items
            .map(|entry| format!("{} {}", entry["entity_id"].as_str().unwrap(), entry["status"].as_str().unwrap()))
            .collect()
    };
    let first = console.get("reader", "/metadata?limit=4").await;
    assert_eq!(entities(&first), ["c-2 DLQ", "c-2 PENDING", "c-1 PENDING", "c-0 PENDING"]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = console.get("reader", &format!("/metadata?limit=4&cursor={cursor}")).await;
    assert_eq!((entities(&second).len(), &second["next_cursor"]), (2, &Value::Null));
    for (query, expected) in [
        ("entity_type=customer&entity_id=c-1", vec!["c-1 PENDING", "c-1 PENDING"]),
        ("status=DLQ", vec!["c-2 DLQ"]),
        ("error=NO_SUCH_KEY", vec!["c-2 DLQ"]),
        ("status=PUBLISHED", vec![]),
        ("to=2020-01-01T00:00Z", vec![]),
    ] {
        assert_eq!(entities(&console.get("reader", &format!("/metadata?{query}")).await), expected, "{query}");
    }
    let backlog = console.get("reader", "/metadata-backlog").await;
    assert_eq!((&backlog["due"], &backlog["dlq"]), (&5.into(), &1.into()));
    let dead = first["items"][0]["id"].as_str().unwrap();
    let details = console.get("reader", &format!("/metadata/{dead}")).await;
    assert_eq!((&details["entry"]["status"], details["versions"].as_array().unwrap().len()), (&"DLQ".into(), 3));
    assert!(!details.to_string().contains(SECRET) && !first.to_string().contains(SECRET));
    assert_eq!(console.get("auditor", &format!("/metadata/{dead}/payload")).await["iban"], SECRET);
    console.ask("reader", "GET", &format!("/api/v1/metadata/{dead}/payload"), "").await.refused(403);
    for (path, status) in [
        ("/metadata/0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f", 404),
        ("/metadata/0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f/payload", 404),
        ("/metadata/x", 400),
        ("/metadata?status=LOST", 400),
        ("/metadata?limit=201", 400),
    ] {
        console.ask("auditor", "GET", &format!("/api/v1{path}"), "").await.refused(status);
    }
    console.ask("reader", "GET", &format!("/api/v1/events?cursor={cursor}"), "").await.refused(400);
}

#[tokio::test]
async fn a_lane_that_is_not_installed_is_null_in_the_overview_and_404_elsewhere() {
    let fixture = Fixture::without_events().await;
    let console = fixture.console(&[]).await;
    let overview = console.get("", "/overview").await;
    assert!(overview["events"].is_null() && overview["metadata"].is_object() && overview["payments"].is_object());
    console.ask("", "GET", "/api/v1/events", "").await.refused(404);
    console.ask("", "GET", "/", "").await.is(200);
}

fn ids(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|item| item["outbox_id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn outboxes_can_be_searched_read_and_paged_and_only_auditors_see_payloads() {
    let fixture = Fixture::new().await;
    let (paid, failed) = (fixture.dispatched(1).await.to_string(), fixture.failed(2).await.to_string());
    let unknown = fixture.unknown(3).await.to_string();
    let due = fixture.enqueue(4).await.to_string();
    let console = fixture.console(&[("reader", &["read"]), ("auditor", &["audit"])]).await;

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

    let details = console.get("reader", &format!("/outboxes/{paid}")).await;
    assert_eq!(
        (&details["outbox"]["state"], &details["outbox"]["rail_reference"]),
        (&"DISPATCHED".into(), &"ref-1".into())
    );
    assert_eq!(details["events"].as_array().unwrap().len(), 3);
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
async fn the_overview_counts_every_lane_and_responses_have_security_headers() {
    let fixture = Fixture::new().await;
    fixture.dispatched(1).await;
    fixture.failed(2).await;
    fixture.unknown(3).await;
    fixture.enqueue(4).await;
    let console = fixture.console(&[("reader", &["read"])]).await;
    let overview = console.get("reader", "/overview").await;
    let lane = &overview["payments"];
    let rails = lane["backlog"]["rails"].as_array().unwrap();
    let rail = rails.iter().find(|rail| rail["rail_type"] == RAIL).unwrap();
    assert_eq!((&lane["backlog"]["total"], &rail["due"], &rail["parked"]), (&1.into(), &1.into(), &0.into()));
    assert_eq!((&lane["dead_letters"]["known"], &lane["dead_letters"]["unknown"]), (&1.into(), &1.into()));
    assert_eq!((&lane["recent"]["attempts"], &overview["worker"]), (&3.into(), &"test-relayer".into()));
    let recent = &lane["recent"]["lane"];
    assert_eq!((&recent["done"], &recent["failed"], &recent["took_p50_ms"]), (&1.into(), &2.into(), &42.into()));
    assert_eq!(
        (&overview["events"]["backlog"]["due"], &overview["metadata"]["backlog"]["due"]),
        (&0.into(), &0.into())
    );
    // The serving relayer has a session and no attempts; the other one recorded all attempts and has no session.
    let relayer = |name: &str| {
        let all = overview["relayers"].as_array().unwrap();
        all.iter().find(|one| one["worker_id"] == name).unwrap_or_else(|| panic!("no {name}: {overview}"))
    };
    let (idle, gone) = (relayer("test-relayer"), relayer("test-worker"));
    assert!(idle["sessions"].as_i64().unwrap() > 0 && idle["attempts"] == 0, "{idle}");
    assert_eq!((&gone["sessions"], &gone["attempts"]), (&0.into(), &3.into()));
    fixture.claim().await;
    assert_eq!(console.get("reader", "/leases").await["items"][0]["leases"], 1);

    let answer = console.ask("reader", "GET", "/api/v1/rails", "").await.is(200);
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    assert_eq!(answer.header("referrer-policy"), "same-origin");
    for directive in ["default-src 'none'", "frame-ancestors 'none'"] {
        assert!(answer.header("content-security-policy").contains(directive), "{answer:?}");
    }
    assert_eq!(answer.header("access-control-allow-origin"), "");
    console.program.term();
}
