//! Searches and counts of the payment lane: pages continue where the last one ended, counts stop at a limit, and
//! nothing is counted twice.

use jiff::{SignedDuration, Timestamp};
use symphony_db::connect::Target;
use symphony_db::payment::operator::{redrive, resolve, set_rail};
use symphony_db::payment::reader::{self, DeadLetterFilter, Outbox, OutboxSearch};
use symphony_db::payment::worker::complete;
use symphony_db::payment::{OUTCOME_UNKNOWN, OutboxState, RailPolicy, Resolution};
use symphony_db::{OutboxId, Page, error::DatabaseError, relayers};
use symphony_testkit::wait::{self, DEFAULT_TIMEOUT};

use crate::fixture::{AUDIT, Fixture, RAIL, completion, dispatched, failed, retryable, worker};

/// Seven outboxes: dispatched, failed, failed with an unknown outcome, scheduled, leased, and two that are due.
async fn outboxes_in_every_state() -> (Fixture, Vec<OutboxId>) {
    let fixture = Fixture::new().await;
    for number in 1..=5 {
        fixture.enqueue(number).await;
    }
    let mut claimed = fixture.claim().await;
    claimed.sort_by_key(|claimed| claimed.sequence_id);
    let ends = [dispatched(), failed("NO_ACCOUNT"), failed(OUTCOME_UNKNOWN), retryable(None)];
    for (claimed, outcome) in claimed.iter().zip(ends) {
        complete(&fixture.root, &worker(), &completion(claimed, outcome)).await.unwrap();
    }
    let mut ids: Vec<_> = claimed.iter().map(|claimed| claimed.outbox_id).collect();
    for number in 6..=7 {
        ids.push(fixture.enqueue(number).await.outbox_id);
    }
    (fixture, ids)
}

fn found(page: &Page<Outbox, OutboxId>) -> Vec<OutboxId> {
    page.rows.iter().map(|outbox| outbox.outbox_id).collect()
}

#[tokio::test]
async fn a_search_without_words_pages_through_everything_newest_first() {
    let (fixture, mut ids) = outboxes_in_every_state().await;
    let readonly = fixture.login("symphony_readonly").await;
    ids.reverse();
    let (mut all, mut search) = (Vec::new(), OutboxSearch::default());
    loop {
        let page = reader::search(&readonly, &search, 2).await.unwrap();
        assert!(page.rows.len() <= 2 && page.examined <= Some(3));
        all.extend(found(&page));
        search.before = page.next;
        if search.before.is_none() {
            break;
        }
    }
    assert_eq!(all, ids);
}

#[tokio::test]
async fn every_outbox_is_found_by_each_of_its_names_and_by_its_state() {
    let (fixture, ids) = outboxes_in_every_state().await;
    let operator = fixture.login("symphony_operator").await;
    let ask = async |search: OutboxSearch| found(&reader::search(&operator, &search, 200).await.unwrap());
    for (number, id) in ids.iter().enumerate() {
        let number = number + 1;
        let instruction_id = Some(format!("instruction-{number}"));
        assert_eq!(ask(OutboxSearch { instruction_id, ..OutboxSearch::default() }).await, [*id]);
        let idempotency_key = Some(format!("key-{number}"));
        assert_eq!(ask(OutboxSearch { idempotency_key, ..OutboxSearch::default() }).await, [*id]);
    }
    let newest_first: Vec<_> = ids.iter().rev().copied().collect();
    let participant_id = Some("participant-1".to_owned());
    assert_eq!(
        ask(OutboxSearch { participant_id: participant_id.clone(), ..OutboxSearch::default() }).await,
        newest_first
    );
    for (state, expected) in [
        (OutboxState::Dispatched, &ids[..1]),
        (OutboxState::Scheduled, &ids[3..4]),
        (OutboxState::Leased, &ids[4..5]),
        (OutboxState::Parked, &[]),
    ] {
        assert_eq!(ask(OutboxSearch { state: Some(state), ..OutboxSearch::default() }).await, expected, "{state}");
    }
    // Failures come in the order in which they happened, which here is that of their enqueue.
    let failures = ask(OutboxSearch { state: Some(OutboxState::Failed), ..OutboxSearch::default() }).await;
    assert_eq!(failures, [ids[2], ids[1]]);
    let error_code = Some("NO_ACCOUNT".to_owned());
    assert_eq!(ask(OutboxSearch { error_code: error_code.clone(), ..OutboxSearch::default() }).await, [ids[1]]);
    let state = Some(OutboxState::Failed);
    assert_eq!(ask(OutboxSearch { error_code, state, participant_id, ..OutboxSearch::default() }).await, [ids[1]]);
    let rail_type = Some("elsewhere".to_owned());
    assert_eq!(ask(OutboxSearch { rail_type, ..OutboxSearch::default() }).await, []);
}

#[tokio::test]
async fn a_search_by_time_keeps_to_its_range() {
    let (fixture, ids) = outboxes_in_every_state().await;
    let now = Timestamp::now();
    let hour = SignedDuration::from_hours(1);
    let ask = async |from, to| {
        let search = OutboxSearch { from, to, ..OutboxSearch::default() };
        found(&reader::search(&fixture.root, &search, 200).await.unwrap()).len()
    };
    assert_eq!(ask(Some(now - hour), Some(now + hour)).await, ids.len());
    assert_eq!(ask(Some(now + hour), None).await, 0);
    assert_eq!(ask(None, Some(now - hour)).await, 0);
}

#[tokio::test]
async fn a_search_that_finds_nothing_returns_a_cursor() {
    let fixture = Fixture::new().await;
    fixture
        .root
        .batch_execute(
            "insert into symphony.payment_outbox_pending
               (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload)
             select symphony.uuidv7_lower_bound(now() - i * interval '1 second'), 'many-' || i, 'many', i, 'key', 'sepa', '{}'
             from generate_series(1, 1500) i",
        )
        .await
        .unwrap();
    let search = OutboxSearch { error_code: Some("NO_SUCH".to_owned()), ..OutboxSearch::default() };
    let first = reader::search(&fixture.root, &search, 50).await.unwrap();
    assert_eq!((first.rows.len(), first.examined), (0, Some(1000)));
    let before = first.next;
    assert!(before.is_some());
    let second = reader::search(&fixture.root, &OutboxSearch { before, ..search }, 50).await.unwrap();
    assert_eq!((second.rows.len(), second.examined, second.next), (0, Some(500), None));
}

#[tokio::test]
async fn a_page_that_is_too_long_is_refused() {
    let fixture = Fixture::new().await;
    for size in [0, 201] {
        let refused = reader::search(&fixture.root, &OutboxSearch::default(), size).await.unwrap_err();
        assert!(
            matches!(&refused, DatabaseError::Other(report) if report.sqlstate() == Some("P7005")),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn dead_letters_are_listed_and_counted_by_kind_until_a_person_acted() {
    let (fixture, ids) = outboxes_in_every_state().await;
    let operator = fixture.login("symphony_operator").await;
    let list = async |unknown| {
        let filter = DeadLetterFilter { outcome_unknown: Some(unknown), ..DeadLetterFilter::default() };
        found(&reader::list_dead_letters(&operator, &filter, None, 50).await.unwrap())
    };
    let count = async || {
        let count = reader::count_dead_letters(&operator, &DeadLetterFilter::default()).await.unwrap();
        assert!(!count.more);
        (count.known, count.unknown)
    };
    assert_eq!((list(true).await, list(false).await, count().await), (vec![ids[2]], vec![ids[1]], (1, 1)));
    let elsewhere = DeadLetterFilter { rail_type: Some("elsewhere".to_owned()), ..DeadLetterFilter::default() };
    let elsewhere = reader::count_dead_letters(&operator, &elsewhere).await.unwrap();
    assert_eq!((elsewhere.known, elsewhere.unknown), (0, 0));

    let first = reader::list_dead_letters(&operator, &DeadLetterFilter::default(), None, 1).await.unwrap();
    assert_eq!((found(&first), first.next), (vec![ids[2]], Some(ids[2])));
    let second = reader::list_dead_letters(&operator, &DeadLetterFilter::default(), first.next, 1).await;
    assert_eq!(found(&second.unwrap()), [ids[1]]);

    resolve(&operator, ids[2], Resolution::NotPaid, AUDIT).await.unwrap();
    let again = redrive(&operator, ids[1], AUDIT).await.unwrap();
    assert_eq!((list(true).await, list(false).await, count().await), (vec![], vec![], (0, 0)));
    let resolved = reader::outbox(&operator, ids[2]).await.unwrap().unwrap();
    assert_eq!((resolved.resolution, resolved.outcome_unknown), (Some(Resolution::NotPaid), true));
    let redriven = reader::outbox(&operator, ids[1]).await.unwrap().unwrap();
    assert_eq!(redriven.redriven_as, Some(again.outbox_id));
    assert_eq!(reader::outbox(&operator, again.outbox_id).await.unwrap().unwrap().redrive_of, Some(ids[1]));
    let log = reader::operations_log(&operator, None, 10).await.unwrap();
    assert_eq!(log.iter().map(|done| done.outbox_id).collect::<Vec<_>>()[..2], [Some(ids[1]), Some(ids[2])]);
    let older = reader::operations_log(&operator, Some(log[0].operation_id), 1).await.unwrap();
    assert_eq!(older, log[1..2]);
}

#[tokio::test]
async fn a_walk_over_failures_stops_and_says_so() {
    let fixture = Fixture::new().await;
    fixture
        .root
        .batch_execute(
            "insert into symphony.payment_outbox_attempts
               (attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no,
                state, claimed_at, completed_at, error_code, worker_id, created_at)
             select h.id, h.id, 'many-' || i, 'many', i, 'key', 'sepa', '{}', 1, 'FAILED', h.at, h.at,
                    case when i = 5500 then 'OLDEST' else 'NO_ACCOUNT' end, 'w', h.at
             from generate_series(1, 5500) i
             cross join lateral (
               select now() - i * interval '1 second' as at, symphony.uuidv7_lower_bound(now() - i * interval '1 second') as id) h",
        )
        .await
        .unwrap();
    let count = reader::count_dead_letters(&fixture.root, &DeadLetterFilter::default()).await.unwrap();
    assert_eq!((count.known, count.unknown, count.more), (5_000, 0, true));
    let filter = DeadLetterFilter { error_code: Some("OLDEST".to_owned()), ..DeadLetterFilter::default() };
    let first = reader::list_dead_letters(&fixture.root, &filter, None, 50).await.unwrap();
    assert_eq!((first.rows.len(), first.examined), (0, Some(5_000)));
    let second = reader::list_dead_letters(&fixture.root, &filter, first.next, 50).await.unwrap();
    assert_eq!((second.rows.len(), second.examined, second.next), (1, Some(500), None));
}

#[tokio::test]
async fn the_backlog_the_recent_stats_and_the_leases_agree_with_what_was_done() {
    let (fixture, _) = outboxes_in_every_state().await;
    let readonly = fixture.login("symphony_readonly").await;
    let backlog = reader::backlog(&readonly).await.unwrap();
    assert_eq!(backlog.total, 4);
    let rail = &backlog.rails[0];
    assert_eq!((rail.due, rail.leased, rail.expired, rail.scheduled), (2, 1, 0, 1));
    assert!(!rail.more_due && !rail.more_scheduled && rail.oldest_due_age_seconds >= 0.0);

    let stats = reader::recent_stats(&readonly).await.unwrap();
    let rail = &stats.rails[0];
    assert_eq!((stats.attempts, stats.span_seconds, stats.buckets.len()), (4, 900.0, 30));
    assert_eq!((rail.dispatched, rail.failed, rail.retryable, rail.zombies), (1, 2, 1, 0));
    assert_eq!((rail.latency_p50_ms, rail.latency_p99_ms), (Some(42), Some(42)));
    assert_eq!(
        stats.buckets.iter().map(|bucket| bucket.dispatched + bucket.failed + bucket.retried).sum::<i64>(),
        4
    );
    assert_eq!((stats.workers[0].worker_id.as_str(), stats.workers[0].attempts), (worker().as_str(), 4));

    let leases = reader::leases(&readonly).await.unwrap();
    assert_eq!(leases.len(), 1);
    assert_eq!((leases[0].worker_id.as_str(), leases[0].leases, leases[0].expired), (worker().as_str(), 1, 0));
    fixture.let_leases_expire().await;
    assert_eq!(reader::leases(&readonly).await.unwrap()[0].expired, 1);
    assert_eq!(reader::backlog(&readonly).await.unwrap().rails[0].expired, 1);

    let participants = reader::participants(&readonly, "", 10).await.unwrap();
    assert_eq!(participants[0].participant_id, "participant-1");
    assert_eq!(reader::participants(&readonly, "participant-1", 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_payload_is_for_auditors_alone() {
    let (fixture, ids) = outboxes_in_every_state().await;
    let auditor = fixture.login("symphony_auditor").await;
    for id in &ids {
        assert!(reader::payload(&auditor, *id).await.unwrap().unwrap().as_json().contains("10.50"));
    }
    let operator = fixture.login("symphony_operator").await;
    for reader in [&operator, &fixture.login("symphony_readonly").await] {
        let refused = reader::payload(reader, ids[0]).await.unwrap_err();
        assert!(matches!(refused, DatabaseError::MissingRole { role: "symphony_auditor", .. }), "{refused}");
    }
    assert_eq!(reader::rails(&operator).await.unwrap()[0].rail_type, RAIL);
}

#[tokio::test]
async fn a_row_of_an_ordered_rail_is_parked_if_it_waits_for_longer_than_a_moment() {
    let fixture = Fixture::new().await;
    let ordered = RailPolicy { ordered: Some(true), ..RailPolicy::default() };
    set_rail(&fixture.root, RAIL, &ordered, AUDIT).await.unwrap();
    for number in 1..=20 {
        fixture.enqueue(number).await;
    }
    let readonly = fixture.login("symphony_readonly").await;
    let seen = async || {
        let rail = reader::backlog(&readonly).await.unwrap().rails.remove(0);
        (rail.due, rail.leased, rail.parked, rail.more_parked)
    };
    let set = async |assignment: &str| {
        let update = format!("update symphony.payment_outbox_pending set {assignment} where sequence_id = 1");
        fixture.root.execute(&update, &[]).await.unwrap();
    };
    assert_eq!(seen().await, (20, 0, 0, false));
    let head = fixture.claim().await;
    assert_eq!(head.len(), 1, "only the head of the stream");
    // Its lease is fresh, so it may end soon: only the rows from the 17th on are parked.
    set("claimed_at = now() + interval '1 hour'").await;
    assert!(fixture.claim().await.is_empty());
    assert_eq!(seen().await, (15, 1, 4, false));
    set("claimed_at = now() - interval '2 seconds'").await;
    assert!(fixture.claim().await.is_empty());
    assert_eq!(seen().await, (0, 1, 19, false));

    // The end of the head makes the next row due; a head that waits for its retry parks it again.
    complete(&fixture.root, &worker(), &completion(&head[0], dispatched())).await.unwrap();
    assert_eq!(seen().await, (1, 0, 18, false));
    let head = fixture.claim().await;
    complete(&fixture.root, &worker(), &completion(&head[0], dispatched())).await.unwrap();
    let head = fixture.claim().await;
    complete(&fixture.root, &worker(), &completion(&head[0], retryable(None))).await.unwrap();
    assert!(fixture.claim().await.is_empty());
    assert_eq!(seen().await, (0, 0, 17, false));
}

#[tokio::test]
async fn the_log_of_a_time_is_read_in_order_a_page_at_a_time_and_counted_no_further_than_asked() {
    let (fixture, ids) = outboxes_in_every_state().await;
    let auditor = fixture.login("symphony_auditor").await;
    redrive(&fixture.root, ids[1], AUDIT).await.unwrap();
    for resolution in [Resolution::NotPaid, Resolution::Paid] {
        resolve(&fixture.root, ids[2], resolution, AUDIT).await.unwrap();
    }
    let log = reader::operations_log(&auditor, None, 10).await.unwrap();
    let (from, to) = (log.last().unwrap().created_at, log[0].created_at);
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = reader::operations_between(&auditor, from, to, after, 2).await.unwrap();
        listed.extend(page.iter().map(|one| one.operation_id));
        let Some(last) = page.last() else { break };
        after = Some((last.created_at, last.operation_id));
    }
    let expected: Vec<_> = log.iter().rev().take(log.len() - 1).map(|one| one.operation_id).collect();
    assert_eq!(listed, expected, "the last moment is not of the time");
    assert_eq!(reader::count_operations(&auditor, from, to, 100).await.unwrap(), 3);
    assert_eq!(reader::count_operations(&auditor, from, to, 2).await.unwrap(), 2);
}

#[tokio::test]
async fn a_relayer_is_seen_by_its_sessions_and_by_nothing_else() {
    let fixture = Fixture::new().await;
    let readonly = fixture.login("symphony_readonly").await;
    assert_eq!(relayers::connected(&readonly).await.unwrap(), []);
    let url = fixture.database.url_as_login(&["symphony_executor"]).await.unwrap();
    let target = Target::parse(&url).unwrap().with_session_name(&relayers::session_name("idle-1"));
    let (one, two) = (target.connect().await.unwrap(), target.connect().await.unwrap());
    let seen = relayers::connected(&readonly).await.unwrap();
    assert_eq!(seen, [relayers::ConnectedRelayer { worker_id: "idle-1".to_owned(), sessions: 2 }]);
    // An address that names its sessions is left alone.
    let named = Target::parse(&format!("{url}?application_name=ours")).unwrap();
    let own = named.with_session_name(&relayers::session_name("idle-2")).connect().await.unwrap();
    assert_eq!(own.query_one("show application_name", &[]).await.unwrap().get::<_, String>(0), "ours");
    drop((one, two));
    let gone = async || relayers::connected(&readonly).await.unwrap().is_empty();
    wait::until("its sessions have ended", DEFAULT_TIMEOUT, gone).await.unwrap();
}
