//! Every way in which the database refuses has its own error, which says what to do next.

use std::error::Error;
use std::time::Duration;

use symphony_client::error::EnqueueError;
use symphony_client::payment::tokio_postgres as producer;
use symphony_db::error::{ClaimError, CompleteError, DatabaseError, OperateError};
use symphony_db::locks::{longest_wait, rail_policy_holders};
use symphony_db::payment::operator::{pause, redrive, resolve, set_rail};
use symphony_db::payment::worker::{claim, complete, complete_batch, repair};
use symphony_db::payment::{Outcome, RailAnswer, RailPolicy, Resolution, reader};
use symphony_db::{BatchSize, OutboxId};
use symphony_testkit::wait::until_some;
use tokio_postgres::Client;

use crate::fixture::{
    AUDIT, Fixture, LEASE, RAIL, changed, completion, connect, dispatched, failed, instruction, reason, worker,
};

#[tokio::test]
async fn a_key_used_for_another_payment_is_a_conflict() {
    let fixture = Fixture::new().await;
    let known = fixture.enqueue(1).await;
    let other = changed(instruction(1), |it| it.payload = instruction(2).payload);
    let error = producer::enqueue(&fixture.root, &other).await.unwrap_err();

    let EnqueueError::IdempotencyConflict(report) = &error else { panic!("{error:?}") };
    assert_eq!(report.sqlstate(), Some("P7004"));
    assert_eq!(
        error.to_string(),
        format!(
            "the idempotency key of instruction instruction-1 is already used for another participant, rail or payload. \
             It belongs to outbox {}. Repeat the first content to get that outbox, or use a new idempotency key \
             for a new payment",
            known.outbox_id
        )
    );
    assert!(error.source().unwrap().is::<tokio_postgres::Error>(), "the driver's error is kept");
}

#[tokio::test]
async fn an_instruction_that_no_row_could_hold_is_an_invalid_argument() {
    let fixture = Fixture::new().await;
    let nul = serde_json::from_str(r#"{"name": "a\u0000b"}"#).unwrap();
    for bad in [
        changed(instruction(1), |it| it.participant_id = "  ".to_owned()),
        changed(instruction(1), |it| it.idempotency_key = "k".repeat(201)),
        changed(instruction(1), |it| it.instruction_id = "a\0b".to_owned()),
        changed(instruction(1), |it| it.payload = nul),
    ] {
        let error = producer::enqueue(&fixture.root, &bad).await.unwrap_err();
        assert!(matches!(error, EnqueueError::InvalidArgument(_)), "{error:?}");
    }
    for count in [0, 501] {
        let error = producer::enqueue_batch(&fixture.root, &vec![instruction(1); count]).await.unwrap_err();
        assert!(matches!(error, EnqueueError::InvalidArgument(_)), "{error:?}");
    }
    let largest = producer::enqueue_batch(&fixture.root, &vec![instruction(1); 500]).await.unwrap();
    assert_eq!(largest.iter().filter(|enqueued| !enqueued.replayed).count(), 1);
}

#[tokio::test]
async fn a_refusal_in_a_log_does_not_quote_the_payload() {
    let fixture = Fixture::new().await;
    let payload = serde_json::from_str(r#"{"name": "Ada Lovelace\u0000"}"#).unwrap();
    let error =
        producer::enqueue(&fixture.root, &changed(instruction(1), |it| it.payload = payload)).await.unwrap_err();
    assert!(!format!("{error:?} {error} {}", error.source().unwrap()).contains("Lovelace"), "{error:?}");
    assert!(format!("{:?}", error.source()).contains("Lovelace"), "what the driver knows is still to be had");
}

#[tokio::test]
async fn an_unregistered_rail_is_unknown() {
    let fixture = Fixture::new().await;
    let typo = changed(instruction(1), |it| it.rail_type = "spea".to_owned());
    let error = producer::enqueue(&fixture.root, &typo).await.unwrap_err();
    assert!(matches!(error, EnqueueError::UnknownRail(_)), "{error:?}");
    let error = pause(&fixture.root, "spea", AUDIT).await.unwrap_err();
    assert!(matches!(error, OperateError::UnknownRail(_)), "{error:?}");
}

#[tokio::test]
async fn an_outcome_after_the_end_is_refused_as_already_terminal() {
    let fixture = Fixture::new().await;
    let claimed = fixture.claimed(1).await;
    complete(&fixture.root, &worker(), &completion(&claimed, dispatched())).await.unwrap();
    let error = complete(&fixture.root, &worker(), &completion(&claimed, failed("LATE"))).await.unwrap_err();
    assert!(matches!(error, CompleteError::AlreadyTerminal(_)), "{error:?}");
}

#[tokio::test]
async fn an_outcome_without_the_lease_is_refused_as_lost() {
    let fixture = Fixture::new().await;
    let claimed = fixture.claimed(1).await;
    let error =
        complete(&fixture.root, &"worker-2".into(), &completion(&claimed, dispatched())).await.unwrap_err();
    assert!(matches!(error, CompleteError::LeaseLost(_)), "{error:?}");

    fixture.let_leases_expire().await;
    let error = complete(&fixture.root, &worker(), &completion(&claimed, dispatched())).await.unwrap_err();
    assert!(matches!(error, CompleteError::LeaseLost(_)), "{error:?}");
}

#[tokio::test]
async fn a_state_that_is_no_outcome_is_refused_as_invalid() {
    let fixture = Fixture::new().await;
    let claimed = fixture.claimed(1).await;
    // No Outcome says this, so it is said in SQL.
    let sql = "select from symphony.complete_outbox_attempt($1::text::uuid, gen_random_uuid(), 'worker-1', 'ZOMBIE_REQUEUE')";
    let error = fixture.root.query_one(sql, &[&claimed.outbox_id.to_string()]).await.unwrap_err();
    let error = CompleteError::from(error);
    assert!(matches!(error, CompleteError::InvalidState(_)), "{error:?}");
}

#[tokio::test]
async fn an_outcome_that_no_row_could_hold_is_an_invalid_argument() {
    let fixture = Fixture::new().await;
    let claimed = fixture.claimed(1).await;
    let wordy = RailAnswer { code: Some("c".repeat(201)), reference: None };
    let a_month = Duration::from_secs(2_592_001);
    for outcome in [
        Outcome::Dispatched { rail: wordy },
        failed(" "),
        Outcome::Retryable { reason: reason("BUSY"), rail: RailAnswer::default(), delay: Some(a_month) },
    ] {
        let error = complete(&fixture.root, &worker(), &completion(&claimed, outcome)).await.unwrap_err();
        assert!(matches!(error, CompleteError::InvalidArgument(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_lease_without_duration_or_worker_is_an_invalid_argument() {
    let fixture = Fixture::new().await;
    for (name, lease) in [("worker-1", Duration::ZERO), ("worker-1", Duration::MAX), (" ", LEASE)] {
        let error = claim(&fixture.root, &name.into(), BatchSize::ONE, lease).await.unwrap_err();
        assert!(matches!(error, ClaimError::InvalidArgument(_)), "{error:?}");
    }
}

#[tokio::test]
async fn the_largest_batch_of_the_type_is_the_largest_of_the_database() {
    let fixture = Fixture::new().await;
    claim(&fixture.root, &worker(), BatchSize::MAX, LEASE).await.unwrap();
    let more = i32::from(BatchSize::MAX.get()) + 1;
    let sql = "select from symphony.claim_outbox_batch($1, 'worker-1', 60)";
    let error = ClaimError::from(fixture.root.query(sql, &[&more]).await.unwrap_err());
    assert!(matches!(error, ClaimError::InvalidArgument(_)), "{error:?}");
}

#[tokio::test]
async fn what_is_decided_on_the_newest_state_is_refused_on_an_old_snapshot() {
    let fixture = Fixture::new().await;
    let claimed = fixture.claimed(1).await;
    let root = &fixture.root;
    root.batch_execute("set default_transaction_isolation = 'repeatable read'").await.unwrap();

    for error in [
        claim(root, &worker(), BatchSize::ONE, LEASE).await.unwrap_err(),
        repair(root, &worker(), BatchSize::ONE).await.unwrap_err(),
    ] {
        assert!(matches!(error, ClaimError::Database(DatabaseError::NotReadCommitted(_))), "{error:?}");
    }
    let done = completion(&claimed, dispatched());
    for error in [
        complete(root, &worker(), &done).await.unwrap_err(),
        complete_batch(root, &worker(), &[done]).await.unwrap_err(),
    ] {
        assert!(matches!(error, CompleteError::Database(DatabaseError::NotReadCommitted(_))), "{error:?}");
    }
    for error in [
        redrive(root, claimed.outbox_id, AUDIT).await.unwrap_err(),
        resolve(root, claimed.outbox_id, Resolution::Paid, AUDIT).await.unwrap_err(),
        set_rail(root, RAIL, &RailPolicy::default(), AUDIT).await.unwrap_err(),
        pause(root, RAIL, AUDIT).await.unwrap_err(),
    ] {
        let OperateError::Database(DatabaseError::NotReadCommitted(report)) = &error else { panic!("{error:?}") };
        assert_eq!(report.sqlstate(), Some("25000"));
        assert!(report.hint().unwrap().contains("read committed"), "{error}");
    }
}

/// A login may have a limit of its own for how long it waits.
#[tokio::test]
async fn a_producer_that_waited_long_enough_is_told_that_a_lock_is_held() {
    let fixture = Fixture::new().await;
    let mut slow = connect(&fixture.database.url()).await;
    let open = slow.transaction().await.unwrap();
    producer::enqueue(&open, &instruction(1)).await.unwrap();
    fixture.root.batch_execute("set lock_timeout = '50ms'").await.unwrap();
    let error = producer::enqueue(&fixture.root, &instruction(2)).await.unwrap_err();
    assert!(matches!(error, EnqueueError::Database(DatabaseError::LockHeld(_))), "{error:?}");
    assert!(error.to_string().ends_with("run the whole transaction again"), "{error}");
}

#[tokio::test]
async fn what_an_operator_may_not_do_is_refused_with_the_reason() {
    let fixture = Fixture::new().await;
    let pending = fixture.enqueue(1).await.outbox_id;
    let error = redrive(&fixture.root, pending, AUDIT).await.unwrap_err();
    assert!(matches!(error, OperateError::InvalidState(_)), "{error:?}");
    let nowhere = OutboxId(uuid::Uuid::nil());
    let error = resolve(&fixture.root, nowhere, Resolution::Paid, AUDIT).await.unwrap_err();
    assert!(matches!(error, OperateError::InvalidArgument(_)), "{error:?}");
    let policy = RailPolicy { max_attempts: Some(21), ..RailPolicy::default() };
    let error = set_rail(&fixture.root, "sepa", &policy, AUDIT).await.unwrap_err();
    assert!(matches!(error, OperateError::InvalidArgument(_)), "{error:?}");
}

#[tokio::test]
async fn a_login_without_the_role_is_told_which_one_it_lacks() {
    let fixture = Fixture::new().await;
    let auth = fixture.login("symphony_auth").await;
    let ingest = fixture.login("symphony_ingest").await;
    let executor = fixture.login("symphony_executor").await;
    let claimed = fixture.claimed(1).await;

    for client in [&auth, &executor] {
        let error = producer::enqueue(client, &instruction(2)).await.unwrap_err();
        let EnqueueError::Database(fault) = error else { panic!("{error:?}") };
        assert_lacks(&fault, "symphony_ingest");
    }
    for client in [&auth, &ingest] {
        let error = claim(client, &worker(), BatchSize::ONE, LEASE).await.unwrap_err();
        let ClaimError::Database(fault) = error else { panic!("{error:?}") };
        assert_lacks(&fault, "symphony_executor");
        let error = complete(client, &worker(), &completion(&claimed, dispatched())).await.unwrap_err();
        let CompleteError::Database(fault) = error else { panic!("{error:?}") };
        assert_lacks(&fault, "symphony_executor");
    }
    for client in [&auth, &ingest, &executor] {
        let error = redrive(client, claimed.outbox_id, AUDIT).await.unwrap_err();
        let OperateError::Database(fault) = error else { panic!("{error:?}") };
        assert_lacks(&fault, "symphony_operator");
        assert_lacks(&reader::leases(client).await.unwrap_err(), "symphony_readonly");
    }
}

fn assert_lacks(fault: &DatabaseError, wanted: &str) {
    assert!(matches!(fault, DatabaseError::MissingRole { role, .. } if *role == wanted), "{fault:?}");
    assert!(fault.to_string().contains(&format!("grant {wanted} to")), "{fault}");
}

#[tokio::test]
async fn a_database_without_symphony_is_told_to_install_it() {
    let fixture = Fixture::new().await;
    fixture.root.batch_execute("drop function symphony.enqueue_payment_outbox").await.unwrap();
    let older = producer::enqueue(&fixture.root, &instruction(1)).await.unwrap_err();
    fixture.root.batch_execute("drop schema symphony cascade").await.unwrap();
    let missing = producer::enqueue(&fixture.root, &instruction(1)).await.unwrap_err();
    let unread = reader::status(&fixture.root).await.unwrap_err();

    let (EnqueueError::Database(older), EnqueueError::Database(missing)) = (older, missing) else { panic!() };
    for (fault, sqlstate) in [(older, "42883"), (missing, "3F000"), (unread, "42P01")] {
        assert!(matches!(fault, DatabaseError::NotInstalled(_)), "{fault:?}");
        assert_eq!(fault.details().sqlstate(), Some(sqlstate));
        assert!(fault.to_string().ends_with("run: symphony install"), "{fault}");
    }
}

#[tokio::test]
async fn a_snapshot_older_than_the_winner_is_to_be_run_again() {
    let fixture = Fixture::new().await;
    let mut client = fixture.login("symphony_ingest").await;
    let transaction = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .start()
        .await
        .unwrap();
    transaction.batch_execute("select 1").await.unwrap();
    fixture.enqueue(1).await;
    let error = producer::enqueue(&transaction, &instruction(1)).await.unwrap_err();
    assert!(matches!(error, EnqueueError::Database(DatabaseError::RetryTransaction(_))), "{error:?}");
}

#[tokio::test]
async fn a_deadlock_is_to_be_run_again() {
    let fixture = Fixture::new().await;
    let (mut one, mut two) = (connect(&fixture.database.url()).await, connect(&fixture.database.url()).await);
    for client in [&one, &two] {
        client.batch_execute("set deadlock_timeout = '10ms'").await.unwrap();
    }
    let of =
        |participant: &str, number| changed(instruction(number), |it| it.participant_id = participant.to_owned());
    let (one, two) = (one.transaction().await.unwrap(), two.transaction().await.unwrap());
    producer::enqueue(&one, &of("a", 1)).await.unwrap();
    producer::enqueue(&two, &of("b", 2)).await.unwrap();

    // The victim of the deadlock ends, so the other one continues.
    let (wants_b, wants_a) = (of("b", 2), of("a", 1));
    let first = async {
        let result = producer::enqueue(&one, &wants_b).await;
        one.rollback().await.unwrap();
        result
    };
    let second = async {
        let result = producer::enqueue(&two, &wants_a).await;
        two.rollback().await.unwrap();
        result
    };
    let (first, second) = tokio::join!(first, second);
    let error = first.and(second).unwrap_err();
    let EnqueueError::Database(fault) = error else { panic!("{error:?}") };
    assert!(matches!(fault, DatabaseError::RetryTransaction(_)), "{fault:?}");
    assert_eq!(fault.details().sqlstate(), Some("40P01"));
}

#[tokio::test]
async fn a_connection_that_ends_in_the_middle_of_a_call_leaves_the_outcome_unknown() {
    let fixture = Fixture::new().await;
    let (mut holder, waiter) = (fixture.login("symphony_ingest").await, fixture.login("symphony_ingest").await);
    let held = holder.transaction().await.unwrap();
    producer::enqueue(&held, &instruction(1)).await.unwrap();
    let pid = pid_of(&waiter).await;

    let instruction = instruction(1);
    let end_it_once_it_waits = async {
        let sql =
            "select pg_terminate_backend(pid) from pg_stat_activity where pid = $1 and wait_event_type = 'Lock'";
        while fixture.root.query_opt(sql, &[&pid]).await.unwrap().is_none() {}
    };
    let (result, ()) = tokio::join!(producer::enqueue(&waiter, &instruction), end_it_once_it_waits);

    let error = result.unwrap_err();
    assert!(matches!(error, EnqueueError::Database(DatabaseError::ConnectionLost { .. })), "{error:?}");
    assert!(error.to_string().contains("with the same idempotency key"), "{error}");
}

#[tokio::test]
async fn a_call_on_a_connection_that_has_ended_is_lost() {
    let fixture = Fixture::new().await;
    let client = fixture.login("symphony_executor").await;
    let pid = pid_of(&client).await;
    fixture.root.execute("select pg_terminate_backend($1, 10000)", &[&pid]).await.unwrap();
    let error = repair(&client, &worker(), BatchSize::ONE).await.unwrap_err();
    assert!(matches!(error, ClaimError::Database(DatabaseError::ConnectionLost { .. })), "{error:?}");
}

async fn pid_of(client: &Client) -> i32 {
    client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_change_to_the_ledger_is_refused_as_append_only() {
    let fixture = Fixture::new().await;
    let sql = "delete from symphony.payment_outbox_attempts";
    let fault = DatabaseError::from(fixture.root.batch_execute(sql).await.unwrap_err());
    assert!(matches!(fault, DatabaseError::AppendOnly(_)), "{fault:?}");
}

#[tokio::test]
async fn a_second_terminal_outcome_is_stopped_by_the_ledger_and_told_apart() {
    let fixture = Fixture::new().await;
    let claimed = fixture.claimed(1).await;
    // A trigger of a superuser adds a second terminal row, past every function.
    fixture
        .root
        .batch_execute(
            "create function another_end() returns trigger language plpgsql as $$
             begin
               insert into symphony.payment_outbox_attempts
               select (jsonb_populate_record(new, jsonb_build_object('attempt_id', gen_random_uuid(), 'attempt_no', 20))).*;
               return new;
             end $$;
             create trigger another_end before insert on symphony.payment_outbox_attempts
               for each row when (pg_trigger_depth() = 0) execute function another_end()",
        )
        .await
        .unwrap();
    let error = complete(&fixture.root, &worker(), &completion(&claimed, dispatched())).await.unwrap_err();
    assert!(matches!(error, CompleteError::Database(DatabaseError::TerminalBackstop(_))), "{error:?}");
}

#[tokio::test]
async fn any_other_refusal_is_passed_on_as_it_is() {
    let fixture = Fixture::new().await;
    let mut client = fixture.login("symphony_ingest").await;
    let transaction = client.transaction().await.unwrap();
    transaction.batch_execute("select 1 / 0").await.unwrap_err();
    let error = producer::enqueue(&transaction, &instruction(1)).await.unwrap_err();
    let EnqueueError::Database(DatabaseError::Other(report)) = &error else { panic!("{error:?}") };
    assert_eq!(report.sqlstate(), Some("25P02"));
    assert_eq!(error.to_string(), report.message());
}

#[tokio::test]
async fn single_and_batch_enqueues_store_the_digest_that_is_defined() {
    let fixture = Fixture::new().await;
    producer::enqueue(&fixture.root, &instruction(1)).await.unwrap();
    producer::enqueue_batch(&fixture.root, &[instruction(2), instruction(3)]).await.unwrap();
    let equal = "select count(*) from symphony.payment_outbox_keys k \
                 join symphony.payment_outbox_pending p using (outbox_id) \
                 where k.content_digest = symphony.outbox_content_digest( \
                   k.idempotency_key, k.instruction_id, p.participant_id, p.rail_type, p.payload)";
    let equal: i64 = fixture.root.query_one(equal, &[]).await.unwrap().get(0);
    assert_eq!(equal, 3);
}

#[tokio::test]
async fn an_enqueue_behind_a_hung_producer_ends_at_the_lock_timeout_of_its_session_and_the_wait_is_seen() {
    let fixture = Fixture::new().await;
    let executor = fixture.login("symphony_executor").await;
    assert_eq!(longest_wait(&executor).await.unwrap(), None);
    let hung = fixture.login("symphony_ingest").await;
    hung.batch_execute("set application_name = 'hung orders'; begin").await.unwrap();
    producer::enqueue(&hung, &instruction(1)).await.unwrap();

    let mut waiting = fixture.login("symphony_ingest").await;
    waiting.batch_execute("set application_name = 'orders'; set lock_timeout = '2s'").await.unwrap();
    let own_table = waiting.transaction().await.unwrap();
    let enqueue = async {
        let refused = producer::enqueue(&own_table, &instruction(2)).await.unwrap_err();
        assert!(matches!(refused, EnqueueError::Database(DatabaseError::LockHeld(_))), "{refused:?}");
        assert!(refused.to_string().contains("Another session holds the lock"), "{refused}");
    };
    let watch = async {
        let wait = until_some("the wait is seen", Duration::from_secs(60), async || {
            longest_wait(&executor).await.unwrap()
        });
        let wait = wait.await.unwrap();
        assert_eq!((&*wait.waiting_application, &*wait.blocking_application), ("orders", "hung orders"));
        assert_eq!(wait.table_name, "symphony.participant_outbox_sequences");
        assert!((0.0..60.0).contains(&wait.seconds) && wait.waiting_pid != wait.blocking_pid, "{wait:?}");
    };
    tokio::join!(enqueue, watch);
    own_table.rollback().await.unwrap();
    hung.batch_execute("rollback").await.unwrap();
    assert_eq!(producer::enqueue(&waiting, &instruction(2)).await.unwrap().sequence_id, 1);

    // A session that waits for a table of its own is not ours to report.
    hung.batch_execute("begin; lock table orders").await.unwrap();
    let mut other = fixture.login("symphony_ingest").await;
    other.batch_execute("set lock_timeout = '1s'").await.unwrap();
    let transaction = other.transaction().await.unwrap();
    producer::enqueue(&transaction, &instruction(3)).await.unwrap();
    let (refused, wait) = tokio::join!(transaction.batch_execute("insert into orders values ('x')"), async {
        longest_wait(&executor).await.unwrap()
    });
    assert!(refused.is_err());
    assert_eq!(wait, None);
}

#[tokio::test]
async fn a_worker_that_leaves_its_transaction_open_is_named_as_the_holder_of_the_rails() {
    let fixture = Fixture::new().await;
    let executor = fixture.login("symphony_executor").await;
    assert_eq!(rail_policy_holders(&executor).await.unwrap(), []);
    let producer = fixture.login("symphony_ingest").await;
    producer.batch_execute("begin").await.unwrap();
    producer::enqueue(&producer, &instruction(1)).await.unwrap();
    assert_eq!(rail_policy_holders(&executor).await.unwrap(), [], "a producer holds nothing up");

    let hung = fixture.login("symphony_executor").await;
    let claim = "begin; select from symphony.claim_outbox_batch(1, 'worker', 60)";
    hung.batch_execute(&format!("set application_name = 'left open'; {claim}")).await.unwrap();
    let held = rail_policy_holders(&executor).await.unwrap();
    assert_eq!((held.len(), &*held[0].application), (1, "left open"));
    assert_eq!(rail_policy_holders(&executor).await.unwrap(), held, "the same transaction");
    hung.batch_execute(&format!("rollback; {claim}")).await.unwrap();
    let next = rail_policy_holders(&executor).await.unwrap();
    assert_eq!((next.len(), next[0].pid), (1, held[0].pid));
    assert_ne!(next[0].transaction_key, held[0].transaction_key, "another transaction of the same session");
}
