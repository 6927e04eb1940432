//! The early release of events whose relayer is gone: what shows that it is, and what does not.

use symphony_db::claim_session::ClaimSession;
use symphony_db::connect::Target;
use symphony_db::error::CompleteError;
use symphony_db::event::worker::{Outcome, claim, complete};
use symphony_db::{BatchSize, WorkerId};
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::fixture::{Fixture, OUTBOX};

async fn session(fixture: &Fixture) -> ClaimSession {
    let url = fixture.database.url_as_login(&["symphony_executor"]).await.unwrap();
    ClaimSession::open(&Target::parse(&url).unwrap()).await.unwrap()
}

/// Makes the claims older than a release leaves to the next.
async fn age(fixture: &Fixture) {
    let sql = "update m10_recovery.outbox set claimed_at = claimed_at - interval '10 seconds' where claimed_at is not null";
    fixture.root.batch_execute(sql).await.unwrap();
}

#[tokio::test]
async fn events_are_released_once_their_claim_session_has_ended_and_not_before() {
    let fixture = Fixture::new().await;
    for number in 1..=3 {
        fixture.publish(number).await;
    }
    let (ours, theirs) = (session(&fixture).await, session(&fixture).await);
    let name = theirs.claim_name(&"worker-1".into());
    let held = claim(&fixture.root, &name, BatchSize::MAX).await.unwrap();
    assert!(held.processor.as_str().starts_with("worker-1#"));
    age(&fixture).await;
    assert_eq!(ours.release_abandoned_events().await.unwrap(), 0, "its session lives");
    assert!(!theirs.is_closed());

    drop(theirs);
    let released = async || ours.release_abandoned_events().await.unwrap() == 3;
    until("they are released", DEFAULT_TIMEOUT, released).await.unwrap();
    let failed_once = format!(
        "{OUTBOX} where claimed_by is null and retry_count = 1 and process_after > now() - interval '1 minute'"
    );
    assert_eq!(fixture.count(&failed_once).await, 3, "as a failure, by the contract");
    let late = complete(&fixture.root, &held.processor, held.events[0].id, &Outcome::Delivered).await;
    assert!(matches!(late, Err(CompleteError::LeaseLost(_))), "{late:?}");
}

#[tokio::test]
async fn claims_without_a_session_or_of_an_earlier_start_of_the_server_last_their_full_time() {
    let fixture = Fixture::new().await;
    let ours = session(&fixture).await;
    let gone = session(&fixture).await;
    let marked = gone.claim_name(&"worker-1".into());
    drop(gone);
    let mark = marked.as_str().rsplit_once('#').unwrap().1;
    let (start, key) = mark.split_once('.').unwrap();
    let earlier = format!("{:x}", i64::from_str_radix(start, 16).unwrap() - 1);
    for name in ["worker-1".to_owned(), format!("worker-1#{earlier}.{key}"), format!("worker-1#{mark}x")] {
        fixture.publish(1).await;
        assert_eq!(claim(&fixture.root, &WorkerId::from(name), BatchSize::MAX).await.unwrap().events.len(), 1);
    }
    age(&fixture).await;
    assert_eq!(ours.release_abandoned_events().await.unwrap(), 0);
    assert_eq!(fixture.count(&format!("{OUTBOX} where claimed_by is not null")).await, 3);
}

#[tokio::test]
async fn the_longest_name_fits_with_the_mark() {
    let fixture = Fixture::new().await;
    fixture.publish(1).await;
    let name = session(&fixture).await.claim_name(&WorkerId::from("ä".repeat(200)));
    let held = claim(&fixture.root, &name, BatchSize::MAX).await.unwrap();
    assert_eq!(held.events.len(), 1);
    age(&fixture).await;
    let ours = session(&fixture).await;
    let released = async || ours.release_abandoned_events().await.unwrap() == 1;
    until("the mark is whole", DEFAULT_TIMEOUT, released).await.unwrap();
}
