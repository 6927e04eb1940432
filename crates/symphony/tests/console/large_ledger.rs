//! The response time of every page and endpoint on a database with many rows.
//!
//! By default the test only checks that all of them answer. With `SYMPHONY_LEDGER=10000000` it also requires a p95 of
//! at most 200 ms and prints what it measured; filling the tables takes minutes.

use std::time::{Duration, Instant};

use symphony_testkit::bulk_rows;

use crate::fixture::Fixture;
use crate::http;

/// The largest p95 with SYMPHONY_LEDGER.
const MAX_P95: Duration = Duration::from_millis(200);

#[tokio::test]
async fn every_page_answers_on_a_large_ledger() {
    let long: Option<i32> = std::env::var("SYMPHONY_LEDGER").ok().map(|rows| rows.parse().unwrap());
    let ended = long.unwrap_or(20_000);
    let fixture = Fixture::new().await;
    bulk_rows::rails(&fixture.owner).await.unwrap();
    let began = Instant::now();
    bulk_rows::history(&fixture.owner, ended, ended / 10).await.unwrap();
    bulk_rows::parked(&fixture.owner, ended / 100).await.unwrap();
    // The other lanes get a tenth of that: filling them takes as long as filling the ledger.
    bulk_rows::events(&fixture.owner, ended / 10, ended / 100).await.unwrap();
    bulk_rows::metadata(&fixture.owner, ended / 10, ended / 100).await.unwrap();
    if long.is_some() {
        println!("filled {ended} ended and {} pending payments in {:?}", ended / 10, began.elapsed());
        // As autovacuum leaves the tables of a running system.
        for table in [
            "symphony.payment_outbox_attempts",
            "symphony.payment_outbox_pending",
            "m10_recovery.outbox",
            "symphony.metadata_outbox",
        ] {
            fixture.owner.batch_execute(&format!("vacuum (analyze) {table}")).await.unwrap();
        }
    }
    let one =
        "select outbox_id::text from symphony.payment_outbox_attempts where instruction_id = 'past-500' limit 1";
    let id: String = fixture.owner.query_one(one, &[]).await.unwrap().get(0);
    let console = fixture.console(&[]).await;
    let outbox = format!("/outboxes/{id}");
    let one = "select id::text from symphony.metadata_outbox where entity_type = 'document' and entity_id = 'past-500' limit 1";
    let entry = format!("/metadata/{}", fixture.owner.query_one(one, &[]).await.unwrap().get::<_, String>(0));
    let payload = format!("{entry}/payload");
    let timeline = format!("/audit{outbox}");
    let month = "/audit/operations?from=2020-01-01T00:00Z&to=2020-02-01T00:00Z";
    let api = [
        "/overview",
        "/rails",
        "/leases",
        "/operations",
        "/participants",
        "/participants/shop-7",
        "/dead-letters",
        outbox.as_str(),
        "/event-backlog",
        "/events",
        "/events?unprocessed=true",
        "/events/500",
        "/metadata-backlog",
        "/metadata",
        "/metadata?entity_type=document&entity_id=past-77",
        "/metadata?status=DLQ",
        "/metadata?status=PUBLISHED",
        "/metadata?status=FAILED",
        "/metadata?error=NONE",
        entry.as_str(),
        payload.as_str(),
        timeline.as_str(),
        month,
    ]
    .map(|path| format!("/api/v1{path}"));
    let searches = [
        "",
        "?instruction_id=past-77",
        "?participant_id=shop-77",
        "?idempotency_key=past-77/key",
        "?state=DUE",
        "?state=FAILED&error_code=NO_ACCOUNT",
        "?state=DISPATCHED&rail_type=strict",
        "?error_code=NONE",
    ]
    .map(|query| format!("/api/v1/outboxes{query}"));
    let pages = [
        "/",
        "/rails",
        "/search",
        "/dead-letters",
        "/operations",
        "/participants",
        "/participants/shop-7",
        outbox.as_str(),
        "/events",
        "/events/500",
        "/metadata",
        "/metadata?status=DLQ",
        entry.as_str(),
    ]
    .map(str::to_owned);
    let mut slow = Vec::new();
    for path in api.iter().chain(&searches).chain(&pages) {
        let mut took = Vec::new();
        for _ in 0..if long.is_some() { 40 } else { 1 } {
            let began = Instant::now();
            http::ask(console.address, "GET", path, &[], "").await.is(200);
            took.push(began.elapsed());
        }
        took.sort();
        let (p50, p95) = (took[took.len() / 2], took[took.len() * 95 / 100]);
        println!("{p50:>10.1?} p50 {p95:>10.1?} p95  {path}");
        if long.is_some() && p95 > MAX_P95 {
            slow.push(format!("{path}: {p95:?}"));
        }
    }
    assert!(slow.is_empty(), "slower than {MAX_P95:?}: {slow:#?}");
}
