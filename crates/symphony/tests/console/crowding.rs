//! The console on a system with a past: what each page and endpoint takes.
//!
//! The short form sees that all of them answer. The long one, `SYMPHONY_LEDGER=10000000`, also holds them to 200 ms at the 95th percentile; it
//! prints what it measured, and takes minutes to fill the tables.

use std::time::{Duration, Instant};

use symphony_proof::kit::crowd;

use crate::http;
use crate::office::Office;

/// What the 95th percentile may be, in the long form.
const BOUND: Duration = Duration::from_millis(200);

#[tokio::test]
async fn every_page_answers_beside_a_long_past() {
    let long: Option<i32> = std::env::var("SYMPHONY_LEDGER").ok().map(|rows| rows.parse().unwrap());
    let ended = long.unwrap_or(20_000);
    let office = Office::open().await;
    crowd::rails(&office.owner).await.unwrap();
    let began = Instant::now();
    crowd::history(&office.owner, ended, ended / 10).await.unwrap();
    crowd::parked(&office.owner, ended / 100).await.unwrap();
    // The other lanes have a tenth of that: filling them takes as long as the ledger does.
    crowd::events(&office.owner, ended / 10, ended / 100).await.unwrap();
    crowd::metadata(&office.owner, ended / 10, ended / 100).await.unwrap();
    if long.is_some() {
        println!("filled {ended} ended and {} pending payments in {:?}", ended / 10, began.elapsed());
        // As autovacuum leaves them on a system that has been there for a while.
        for table in [
            "symphony.payment_outbox_attempts",
            "symphony.payment_outbox_pending",
            "m10_recovery.outbox",
            "symphony.metadata_outbox",
        ] {
            office.owner.batch_execute(&format!("vacuum (analyze) {table}")).await.unwrap();
        }
    }
    let one =
        "select outbox_id::text from symphony.payment_outbox_attempts where instruction_id = 'past-500' limit 1";
    let id: String = office.owner.query_one(one, &[]).await.unwrap().get(0);
    let console = office.console(&[]).await;
    let outbox = format!("/outboxes/{id}");
    let one = "select id::text from symphony.metadata_outbox where entity_type = 'document' and entity_id = 'past-500' limit 1";
    let entry = format!("/metadata/{}", office.owner.query_one(one, &[]).await.unwrap().get::<_, String>(0));
    let payload = format!("{entry}/payload");
    let story = format!("/audit{outbox}");
    let day = "/audit/operations?from=2020-01-01T00:00Z&to=2020-02-01T00:00Z";
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
        story.as_str(),
        day,
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
        if long.is_some() && p95 > BOUND {
            slow.push(format!("{path}: {p95:?}"));
        }
    }
    assert!(slow.is_empty(), "slower than {BOUND:?}: {slow:#?}");
}
