//! What a worker may rely on.

use symphony_db::BatchSize;
use symphony_db::error::{ClaimError, CompleteError, DatabaseError};
use symphony_db::event::EventId;
use symphony_db::event::worker::{Claim, Completion, Outcome, claim, claim_in_order, complete, complete_batch};

use crate::fixture::{Fixture, OUTBOX};

#[tokio::test]
async fn a_delivered_event_is_finished_and_a_failed_one_comes_back_counted() {
    let fixture = Fixture::new().await;
    let (one, two) = (fixture.publish(1).await, fixture.publish(2).await);
    let executor = fixture.login("symphony_executor").await;
    let held = claim(&executor, &"worker-1".into(), BatchSize::MAX).await.unwrap();
    assert_eq!(held.events.iter().map(|event| event.id).collect::<Vec<_>>(), [one, two]);

    complete(&executor, &held.processor, one, &Outcome::Delivered).await.unwrap();
    let failed = Outcome::Failed { error: Some("the broker is down".to_owned()) };
    complete(&executor, &held.processor, two, &failed).await.unwrap();
    assert!(fixture.claim().await.events.is_empty(), "one is finished, the other is not due");

    fixture
        .root
        .batch_execute("update m10_recovery.outbox set process_after = now() where processed_at is null")
        .await
        .unwrap();
    let held = fixture.claim().await;
    assert_eq!(held.events.iter().map(|event| (event.id, event.retry_count)).collect::<Vec<_>>(), [(two, 1)]);
}

fn completion(claim: &Claim, id: EventId, outcome: Outcome) -> Completion {
    Completion { id, processor: claim.processor.clone(), outcome }
}

fn failed(error: &str) -> Outcome {
    Outcome::Failed { error: Some(error.to_owned()) }
}

#[tokio::test]
async fn each_event_of_a_batch_is_decided_separately() {
    let fixture = Fixture::new().await;
    let mut ids = Vec::new();
    for number in 1..=5 {
        ids.push(fixture.publish(number).await);
    }
    let executor = fixture.login("symphony_executor").await;
    let late = claim(&executor, &"worker-1".into(), BatchSize::ONE).await.unwrap();
    fixture.expire_claims().await;
    let held = claim(&executor, &"worker-2".into(), BatchSize::MAX).await.unwrap();
    complete(&executor, &held.processor, ids[1], &Outcome::Delivered).await.unwrap();
    let batch = [
        completion(&held, ids[4], Outcome::Delivered),
        completion(&late, ids[0], Outcome::Delivered),
        completion(&held, ids[1], Outcome::Delivered),
        completion(&held, ids[2], failed("refused by jane@example.com")),
        completion(&held, EventId(4711), Outcome::Delivered),
        completion(&held, ids[3], Outcome::Delivered),
        completion(&held, ids[3], failed("given twice")),
    ];
    let results = complete_batch(&executor, &batch, false).await.unwrap();
    let refusals: Vec<_> = results.iter().map(|result| result.refused.as_ref().map(ToString::to_string)).collect();
    let is_lost = |at: usize| matches!(results[at].refused, Some(CompleteError::LeaseLost(_)));
    assert!(is_lost(1) && is_lost(2) && is_lost(4) && is_lost(6), "{refusals:?}");
    assert!([0, 3, 5].iter().all(|at| results[*at].refused.is_none()), "{refusals:?}");
    assert!(results.iter().all(|result| result.next.is_none()), "it was not asked for");
    assert!(refusals[2].as_ref().unwrap().contains("is processed already"), "{refusals:?}");
    assert_eq!(fixture.count(&format!("{OUTBOX} where processed_at is not null")).await, 3);
    let retry = format!(
        "{OUTBOX} where id = 3 and retry_count = 1 and claimed_at is null and process_after > now() - interval '1 hour'"
    );
    assert_eq!(fixture.count(&retry).await, 1);
    let error: String =
        fixture.root.query_one("select error from m10_recovery.outbox_errors", &[]).await.unwrap().get(0);
    assert!(error.starts_with("refused by") && !error.contains("jane"), "{error}");
}

/// An event, a processor and a result, one of them wrong, and the refusal.
type Wrong<'a> = (Option<i64>, Option<&'a str>, Option<bool>, &'a str);

#[tokio::test]
async fn a_wrong_event_of_a_batch_is_refused_and_a_wrong_batch_changes_nothing() {
    let fixture = Fixture::new().await;
    fixture.publish(1).await;
    let processor = fixture.claim().await.processor;
    let call = "select refusal, refusal_message from symphony.complete_event_batch($1, $2, $3) order by position";
    let long = "p".repeat(201);
    let wrong: [Wrong<'_>; 5] = [
        (None, Some("p"), Some(true), "p_event_id must not be null"),
        (Some(1), None, Some(true), "p_processor_id must not be null"),
        (Some(1), Some(" "), Some(false), "p_processor_id must not be blank"),
        (Some(1), Some(&long), Some(false), "p_processor_id must have at most 200 characters, not 201"),
        (Some(1), Some(processor.as_str()), None, "p_success must not be null"),
    ];
    let ids: Vec<_> = wrong.iter().map(|wrong| wrong.0).collect();
    let processors: Vec<_> = wrong.iter().map(|wrong| wrong.1).collect();
    let successes: Vec<_> = wrong.iter().map(|wrong| wrong.2).collect();
    let rows = fixture.root.query(call, &[&ids, &processors, &successes]).await.unwrap();
    for (row, (.., message)) in rows.iter().zip(wrong) {
        assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("P7005", message));
    }
    for arrays in [
        "'{}', '{}', '{}'",
        "null, null, null",
        "'{1}', '{}', '{t}'",
        "'{1}', '{p}', '{t,t}'",
        "'{1}', '{p}', '{t}', '{}'",
        "array_fill(1::bigint, array[1001]), array_fill('p'::text, array[1001]), array_fill(true, array[1001])",
    ] {
        let call = format!("select * from symphony.complete_event_batch({arrays})");
        let refusal = fixture.root.query(&call, &[]).await;
        assert_eq!(refusal.unwrap_err().code().unwrap().code(), "P7005", "{arrays}");
    }
    assert_eq!(fixture.count(&format!("{OUTBOX} where claimed_at is not null and processed_at is null")).await, 1);
    let ingest = fixture.login("symphony_ingest").await;
    let refused = ingest.query("select * from symphony.complete_event_batch('{1}', '{p}', '{t}')", &[]).await;
    assert_eq!(refused.unwrap_err().code().unwrap().code(), "42501");
}

#[tokio::test]
async fn a_worker_that_is_late_does_not_finish_what_it_claimed_again() {
    let fixture = Fixture::new().await;
    let id = fixture.publish(1).await;
    let (first, second) = {
        let first = fixture.claim().await;
        fixture.expire_claims().await;
        (first, fixture.claim().await)
    };
    assert_eq!(second.events[0].id, id);
    for outcome in [Outcome::Delivered, Outcome::Failed { error: None }] {
        let error = complete(&fixture.root, &first.processor, id, &outcome).await.unwrap_err();
        assert!(
            matches!(&error, CompleteError::LeaseLost(report) if report.sqlstate() == Some("P7002")),
            "{error:?}"
        );
    }
    complete(&fixture.root, &second.processor, id, &Outcome::Delivered).await.unwrap();
    assert_eq!(fixture.count(&format!("{OUTBOX} where processed_at is not null")).await, 1);
    let error = complete(&fixture.root, &second.processor, id, &Outcome::Delivered).await.unwrap_err();
    assert!(error.to_string().contains("is processed already"), "{error}");
}

#[tokio::test]
async fn a_late_worker_completes_what_no_other_took_over() {
    let fixture = Fixture::new().await;
    let id = fixture.publish(1).await;
    let held = fixture.claim().await;
    fixture.expire_claims().await;
    complete(&fixture.root, &held.processor, id, &Outcome::Delivered).await.unwrap();
}

#[tokio::test]
async fn an_event_that_never_was_is_a_lost_claim() {
    let fixture = Fixture::new().await;
    let held = fixture.claim().await;
    let error = complete(&fixture.root, &held.processor, EventId(1), &Outcome::Delivered).await.unwrap_err();
    assert!(matches!(error, CompleteError::LeaseLost(_)), "{error:?}");
}

#[tokio::test]
async fn a_login_without_the_role_is_told_which_one_it_lacks() {
    let fixture = Fixture::new().await;
    let ingest = fixture.login("symphony_ingest").await;
    let error = claim(&ingest, &"worker-1".into(), BatchSize::ONE).await.unwrap_err();
    assert!(
        matches!(error, ClaimError::Database(DatabaseError::MissingRole { role: "symphony_executor", .. })),
        "{error:?}"
    );
    let held = fixture.claim().await;
    let error = complete(&ingest, &held.processor, EventId(1), &Outcome::Delivered).await.unwrap_err();
    assert!(
        matches!(error, CompleteError::Database(DatabaseError::MissingRole { role: "symphony_executor", .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_name_that_the_database_cannot_hold_is_an_invalid_argument() {
    let fixture = Fixture::new().await;
    let error = claim(&fixture.root, &"a\0b".into(), BatchSize::ONE).await.unwrap_err();
    assert!(matches!(error, ClaimError::InvalidArgument(_)), "{error:?}");
}

#[tokio::test]
async fn a_claim_tells_how_many_claims_of_others_it_took_over() {
    for in_order in [false, true] {
        let fixture = Fixture::new().await;
        for number in 1..=3 {
            fixture.publish(number).await;
        }
        let take = async || {
            let (client, worker) = (&fixture.root, "worker-2".into());
            if in_order {
                claim_in_order(client, &worker, BatchSize::MAX, 9).await.unwrap()
            } else {
                claim(client, &worker, BatchSize::MAX).await.unwrap()
            }
        };
        assert_eq!((fixture.claim().await.events.len(), take().await.taken_over), (3, 0));
        fixture.expire_claims().await;
        fixture.publish(4).await;
        let held = take().await;
        assert_eq!((held.events.len(), held.taken_over), (4, 3), "in order: {in_order}");
        assert_eq!(take().await.taken_over, 0);
        // Several claims in one transaction are told apart.
        fixture.expire_claims().await;
        fixture.root.batch_execute("begin").await.unwrap();
        assert_eq!((take().await.taken_over, take().await.taken_over), (4, 0));
        fixture.root.batch_execute("rollback").await.unwrap();
    }
}
