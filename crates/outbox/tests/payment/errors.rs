//! Every way in which the database refuses is told apart, and says what to do next.

use std::error::Error;
use std::time::Duration;

use symphony_outbox::error::{CompleteError, EnqueueError, Fault, LeaseError, OperateError};
use symphony_outbox::payment::operator::{pause, redrive, resolve, set_rail};
use symphony_outbox::payment::worker::{claim, complete, complete_batch, repair};
use symphony_outbox::payment::{Instruction, Outcome, RailAnswer, RailPolicy, Resolution, producer, reading};
use symphony_outbox::{BatchSize, OutboxId};
use tokio_postgres::Client;

use crate::stage::{
    LEASE, RAIL, Stage, WARRANT, completion, connect, dispatched, failed, instruction, reason, worker,
};

#[tokio::test]
async fn a_key_used_for_another_payment_is_a_conflict() {
    let stage = Stage::set().await;
    let known = stage.enqueue(1).await;
    let other = Instruction { payload: instruction(2).payload, ..instruction(1) };
    let error = producer::enqueue(&stage.root, &other).await.unwrap_err();

    let EnqueueError::IdempotencyConflict(report) = &error else { panic!("{error:?}") };
    assert_eq!(report.sqlstate(), Some("P7004"));
    assert_eq!(
        error.to_string(),
        format!(
            "the idempotency key of instruction instruction-1 is taken, for another participant, rail or payload. \
             It belongs to outbox {}. Send what was sent first to get that outbox back, or a new idempotency key \
             for a new payment",
            known.outbox_id
        )
    );
    assert!(error.source().unwrap().is::<tokio_postgres::Error>(), "the driver's error is kept");
}

#[tokio::test]
async fn an_instruction_that_no_row_could_hold_is_an_invalid_argument() {
    let stage = Stage::set().await;
    let nul = serde_json::from_str(r#"{"name": "a\u0000b"}"#).unwrap();
    for bad in [
        Instruction { participant_id: "  ".to_owned(), ..instruction(1) },
        Instruction { idempotency_key: "k".repeat(201), ..instruction(1) },
        Instruction { instruction_id: "a\0b".to_owned(), ..instruction(1) },
        Instruction { payload: nul, ..instruction(1) },
    ] {
        let error = producer::enqueue(&stage.root, &bad).await.unwrap_err();
        assert!(matches!(error, EnqueueError::InvalidArgument(_)), "{error:?}");
    }
    for count in [0, 1001] {
        let error = producer::enqueue_batch(&stage.root, &vec![instruction(1); count]).await.unwrap_err();
        assert!(matches!(error, EnqueueError::InvalidArgument(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_refusal_in_a_log_does_not_quote_the_payload() {
    let stage = Stage::set().await;
    let payload = serde_json::from_str(r#"{"name": "Ada Lovelace\u0000"}"#).unwrap();
    let error = producer::enqueue(&stage.root, &Instruction { payload, ..instruction(1) }).await.unwrap_err();
    assert!(!format!("{error:?} {error} {}", error.source().unwrap()).contains("Lovelace"), "{error:?}");
    assert!(format!("{:?}", error.source()).contains("Lovelace"), "what the driver knows is still to be had");
}

#[tokio::test]
async fn a_rail_that_nobody_registered_is_unknown() {
    let stage = Stage::set().await;
    let typo = Instruction { rail_type: "spea".to_owned(), ..instruction(1) };
    let error = producer::enqueue(&stage.root, &typo).await.unwrap_err();
    assert!(matches!(error, EnqueueError::UnknownRail(_)), "{error:?}");
    let error = pause(&stage.root, "spea", WARRANT).await.unwrap_err();
    assert!(matches!(error, OperateError::UnknownRail(_)), "{error:?}");
}

#[tokio::test]
async fn an_outcome_after_the_end_is_refused_as_already_terminal() {
    let stage = Stage::set().await;
    let claimed = stage.claimed(1).await;
    complete(&stage.root, &worker(), &completion(&claimed, dispatched())).await.unwrap();
    let error = complete(&stage.root, &worker(), &completion(&claimed, failed("LATE"))).await.unwrap_err();
    assert!(matches!(error, CompleteError::AlreadyTerminal(_)), "{error:?}");
}

#[tokio::test]
async fn an_outcome_without_the_lease_is_refused_as_lost() {
    let stage = Stage::set().await;
    let claimed = stage.claimed(1).await;
    let error = complete(&stage.root, &"worker-2".into(), &completion(&claimed, dispatched())).await.unwrap_err();
    assert!(matches!(error, CompleteError::LeaseLost(_)), "{error:?}");

    stage.let_leases_expire().await;
    let error = complete(&stage.root, &worker(), &completion(&claimed, dispatched())).await.unwrap_err();
    assert!(matches!(error, CompleteError::LeaseLost(_)), "{error:?}");
}

#[tokio::test]
async fn a_state_that_is_no_outcome_is_refused_as_invalid() {
    let stage = Stage::set().await;
    let claimed = stage.claimed(1).await;
    // No Outcome says this, so it is said in SQL.
    let sql = "select from symphony.complete_outbox_attempt($1::text::uuid, gen_random_uuid(), 'worker-1', 'ZOMBIE_REQUEUE')";
    let error = stage.root.query_one(sql, &[&claimed.outbox_id.to_string()]).await.unwrap_err();
    let error = CompleteError::from(error);
    assert!(matches!(error, CompleteError::InvalidState(_)), "{error:?}");
}

#[tokio::test]
async fn an_outcome_that_no_row_could_hold_is_an_invalid_argument() {
    let stage = Stage::set().await;
    let claimed = stage.claimed(1).await;
    let wordy = RailAnswer { code: Some("c".repeat(201)), reference: None };
    let a_month = Duration::from_secs(2_592_001);
    for outcome in [
        Outcome::Dispatched { rail: wordy },
        failed(" "),
        Outcome::Retryable { reason: reason("BUSY"), rail: RailAnswer::default(), delay: Some(a_month) },
    ] {
        let error = complete(&stage.root, &worker(), &completion(&claimed, outcome)).await.unwrap_err();
        assert!(matches!(error, CompleteError::InvalidArgument(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_lease_of_no_time_or_for_nobody_is_an_invalid_argument() {
    let stage = Stage::set().await;
    for (name, lease) in [("worker-1", Duration::ZERO), ("worker-1", Duration::MAX), (" ", LEASE)] {
        let error = claim(&stage.root, &name.into(), BatchSize::ONE, lease).await.unwrap_err();
        assert!(matches!(error, LeaseError::InvalidArgument(_)), "{error:?}");
    }
}

#[tokio::test]
async fn the_largest_batch_of_the_type_is_the_largest_of_the_database() {
    let stage = Stage::set().await;
    claim(&stage.root, &worker(), BatchSize::MOST, LEASE).await.unwrap();
    let more = i32::from(BatchSize::MOST.get()) + 1;
    let sql = "select from symphony.claim_outbox_batch($1, 'worker-1', 60)";
    let error = LeaseError::from(stage.root.query(sql, &[&more]).await.unwrap_err());
    assert!(matches!(error, LeaseError::InvalidArgument(_)), "{error:?}");
}

#[tokio::test]
async fn what_is_decided_on_the_newest_state_is_refused_on_an_old_snapshot() {
    let stage = Stage::set().await;
    let claimed = stage.claimed(1).await;
    let root = &stage.root;
    root.batch_execute("set default_transaction_isolation = 'repeatable read'").await.unwrap();

    for error in [
        claim(root, &worker(), BatchSize::ONE, LEASE).await.unwrap_err(),
        repair(root, &worker(), BatchSize::ONE).await.unwrap_err(),
    ] {
        assert!(matches!(error, LeaseError::Fault(Fault::NotReadCommitted(_))), "{error:?}");
    }
    let done = completion(&claimed, dispatched());
    for error in [
        complete(root, &worker(), &done).await.unwrap_err(),
        complete_batch(root, &worker(), &[done]).await.unwrap_err(),
    ] {
        assert!(matches!(error, CompleteError::Fault(Fault::NotReadCommitted(_))), "{error:?}");
    }
    for error in [
        redrive(root, claimed.outbox_id, WARRANT).await.unwrap_err(),
        resolve(root, claimed.outbox_id, Resolution::Paid, WARRANT).await.unwrap_err(),
        set_rail(root, RAIL, &RailPolicy::default(), WARRANT).await.unwrap_err(),
        pause(root, RAIL, WARRANT).await.unwrap_err(),
    ] {
        let OperateError::Fault(Fault::NotReadCommitted(report)) = &error else { panic!("{error:?}") };
        assert_eq!(report.sqlstate(), Some("25000"));
        assert!(report.hint().unwrap().contains("read committed"), "{error}");
    }
}

/// A login may have a limit of its own for how long it waits.
#[tokio::test]
async fn a_producer_that_waited_long_enough_is_told_that_a_lock_is_held() {
    let stage = Stage::set().await;
    let mut slow = connect(&stage.database.url()).await;
    let open = slow.transaction().await.unwrap();
    producer::enqueue(&open, &instruction(1)).await.unwrap();
    stage.root.batch_execute("set lock_timeout = '50ms'").await.unwrap();
    let error = producer::enqueue(&stage.root, &instruction(2)).await.unwrap_err();
    assert!(matches!(error, EnqueueError::Fault(Fault::LockHeld(_))), "{error:?}");
    assert!(error.to_string().ends_with("run the whole transaction again"), "{error}");
}

#[tokio::test]
async fn what_an_operator_may_not_do_is_refused_with_the_reason() {
    let stage = Stage::set().await;
    let pending = stage.enqueue(1).await.outbox_id;
    let error = redrive(&stage.root, pending, WARRANT).await.unwrap_err();
    assert!(matches!(error, OperateError::InvalidState(_)), "{error:?}");
    let nowhere = OutboxId(uuid::Uuid::nil());
    let error = resolve(&stage.root, nowhere, Resolution::Paid, WARRANT).await.unwrap_err();
    assert!(matches!(error, OperateError::InvalidArgument(_)), "{error:?}");
    let policy = RailPolicy { max_attempts: Some(21), ..RailPolicy::default() };
    let error = set_rail(&stage.root, "sepa", &policy, WARRANT).await.unwrap_err();
    assert!(matches!(error, OperateError::InvalidArgument(_)), "{error:?}");
}

#[tokio::test]
async fn a_login_without_the_role_is_told_which_one_it_lacks() {
    let stage = Stage::set().await;
    let nobody = stage.login("symphony_auth").await;
    let ingest = stage.login("symphony_ingest").await;
    let executor = stage.login("symphony_executor").await;
    let claimed = stage.claimed(1).await;

    for client in [&nobody, &executor] {
        let error = producer::enqueue(client, &instruction(2)).await.unwrap_err();
        let EnqueueError::Fault(fault) = error else { panic!("{error:?}") };
        assert_lacks(&fault, "symphony_ingest");
    }
    for client in [&nobody, &ingest] {
        let error = claim(client, &worker(), BatchSize::ONE, LEASE).await.unwrap_err();
        let LeaseError::Fault(fault) = error else { panic!("{error:?}") };
        assert_lacks(&fault, "symphony_executor");
        let error = complete(client, &worker(), &completion(&claimed, dispatched())).await.unwrap_err();
        let CompleteError::Fault(fault) = error else { panic!("{error:?}") };
        assert_lacks(&fault, "symphony_executor");
    }
    for client in [&nobody, &ingest, &executor] {
        let error = redrive(client, claimed.outbox_id, WARRANT).await.unwrap_err();
        let OperateError::Fault(fault) = error else { panic!("{error:?}") };
        assert_lacks(&fault, "symphony_operator");
        assert_lacks(&reading::leases(client).await.unwrap_err(), "symphony_readonly");
    }
}

fn assert_lacks(fault: &Fault, wanted: &str) {
    assert!(matches!(fault, Fault::MissingRole { role, .. } if *role == wanted), "{fault:?}");
    assert!(fault.to_string().contains(&format!("grant {wanted} to")), "{fault}");
}

#[tokio::test]
async fn a_database_without_symphony_is_told_to_install_it() {
    let stage = Stage::set().await;
    stage.root.batch_execute("drop function symphony.enqueue_payment_outbox").await.unwrap();
    let older = producer::enqueue(&stage.root, &instruction(1)).await.unwrap_err();
    stage.root.batch_execute("drop schema symphony cascade").await.unwrap();
    let missing = producer::enqueue(&stage.root, &instruction(1)).await.unwrap_err();
    let unread = reading::status(&stage.root).await.unwrap_err();

    let (EnqueueError::Fault(older), EnqueueError::Fault(missing)) = (older, missing) else { panic!() };
    for (fault, sqlstate) in [(older, "42883"), (missing, "3F000"), (unread, "42P01")] {
        assert!(matches!(fault, Fault::NotInstalled(_)), "{fault:?}");
        assert_eq!(fault.report().sqlstate(), Some(sqlstate));
        assert!(fault.to_string().ends_with("run: symphony install"), "{fault}");
    }
}

#[tokio::test]
async fn a_snapshot_older_than_the_winner_is_to_be_run_again() {
    let stage = Stage::set().await;
    let mut client = stage.login("symphony_ingest").await;
    let transaction = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .start()
        .await
        .unwrap();
    transaction.batch_execute("select 1").await.unwrap();
    stage.enqueue(1).await;
    let error = producer::enqueue(&transaction, &instruction(1)).await.unwrap_err();
    assert!(matches!(error, EnqueueError::Fault(Fault::RetryTransaction(_))), "{error:?}");
}

#[tokio::test]
async fn a_deadlock_is_to_be_run_again() {
    let stage = Stage::set().await;
    let (mut one, mut two) = (connect(&stage.database.url()).await, connect(&stage.database.url()).await);
    for client in [&one, &two] {
        client.batch_execute("set deadlock_timeout = '10ms'").await.unwrap();
    }
    let of =
        |participant: &str, number| Instruction { participant_id: participant.to_owned(), ..instruction(number) };
    let (one, two) = (one.transaction().await.unwrap(), two.transaction().await.unwrap());
    producer::enqueue(&one, &of("a", 1)).await.unwrap();
    producer::enqueue(&two, &of("b", 2)).await.unwrap();

    // Whoever is chosen lets the other one go on by ending.
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
    let EnqueueError::Fault(fault) = error else { panic!("{error:?}") };
    assert!(matches!(fault, Fault::RetryTransaction(_)), "{fault:?}");
    assert_eq!(fault.report().sqlstate(), Some("40P01"));
}

#[tokio::test]
async fn a_connection_that_ends_in_the_middle_of_a_call_leaves_the_outcome_unknown() {
    let stage = Stage::set().await;
    let (mut holder, waiter) = (stage.login("symphony_ingest").await, stage.login("symphony_ingest").await);
    let held = holder.transaction().await.unwrap();
    producer::enqueue(&held, &instruction(1)).await.unwrap();
    let pid = pid_of(&waiter).await;

    let instruction = instruction(1);
    let end_it_once_it_waits = async {
        let sql =
            "select pg_terminate_backend(pid) from pg_stat_activity where pid = $1 and wait_event_type = 'Lock'";
        while stage.root.query_opt(sql, &[&pid]).await.unwrap().is_none() {}
    };
    let (result, ()) = tokio::join!(producer::enqueue(&waiter, &instruction), end_it_once_it_waits);

    let error = result.unwrap_err();
    assert!(matches!(error, EnqueueError::Fault(Fault::ConnectionLost { .. })), "{error:?}");
    assert!(error.to_string().contains("with the same idempotency key"), "{error}");
}

#[tokio::test]
async fn a_call_on_a_connection_that_has_ended_is_lost() {
    let stage = Stage::set().await;
    let client = stage.login("symphony_executor").await;
    let pid = pid_of(&client).await;
    stage.root.execute("select pg_terminate_backend($1, 10000)", &[&pid]).await.unwrap();
    let error = repair(&client, &worker(), BatchSize::ONE).await.unwrap_err();
    assert!(matches!(error, LeaseError::Fault(Fault::ConnectionLost { .. })), "{error:?}");
}

async fn pid_of(client: &Client) -> i32 {
    client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_change_to_the_ledger_is_refused_as_append_only() {
    let stage = Stage::set().await;
    let sql = "delete from symphony.payment_outbox_attempts";
    let fault = Fault::from(stage.root.batch_execute(sql).await.unwrap_err());
    assert!(matches!(fault, Fault::AppendOnly(_)), "{fault:?}");
}

#[tokio::test]
async fn a_second_terminal_outcome_is_stopped_by_the_ledger_and_told_apart() {
    let stage = Stage::set().await;
    let claimed = stage.claimed(1).await;
    // Somebody who goes round every function, at the worst moment.
    stage
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
    let error = complete(&stage.root, &worker(), &completion(&claimed, dispatched())).await.unwrap_err();
    assert!(matches!(error, CompleteError::Fault(Fault::TerminalBackstop(_))), "{error:?}");
}

#[tokio::test]
async fn any_other_refusal_is_passed_on_as_it_is() {
    let stage = Stage::set().await;
    let mut client = stage.login("symphony_ingest").await;
    let transaction = client.transaction().await.unwrap();
    transaction.batch_execute("select 1 / 0").await.unwrap_err();
    let error = producer::enqueue(&transaction, &instruction(1)).await.unwrap_err();
    let EnqueueError::Fault(Fault::Other(report)) = &error else { panic!("{error:?}") };
    assert_eq!(report.sqlstate(), Some("25P02"));
    assert_eq!(error.to_string(), report.message());
}
