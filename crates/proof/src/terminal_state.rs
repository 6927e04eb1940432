//! An outbox has one terminal row: unique indexes refuse a second one, even if a lease check were broken.

use super::evidence::{Evidence, Failure, Recorder, describe};
use super::server_state::{pid, waits_for_lock};
use super::sessions::{Outcome, Payment, Sessions, claim, complete, enqueue, set_rail, text};
use symphony_testkit::test_database::Database;

/// The ends of the names of the unique indexes; the names of a partition's indexes begin with that of the partition.
const TERMINAL: &str = "_one_terminal_per_outbox";
const NUMBER: &str = "_pkey";

/// Whether an error names this index of one of the ledger's partitions.
fn names_index(named: Option<&str>, index: &str) -> bool {
    named.is_some_and(|named| named.starts_with("payment_outbox_attempts_from_") && named.ends_with(index))
}

/// Which index may refuse a row whose number is taken.
fn allowed_index(second_end: bool) -> &'static str {
    if second_end { "either unique index" } else { NUMBER }
}

/// Proof 3: `an_outbox_has_each_attempt_number_once_and_ends_once`.
pub(super) async fn is_reached_once(database: &Database) -> Result<Evidence, Failure> {
    const COPY: &str = "insert into symphony.payment_outbox_attempts
        (attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no,
         state, claimed_at, error_code, worker_id, created_at)
        select gen_random_uuid(), outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload,
               attempt_no + $2, $3::text::symphony.outbox_attempt_state, claimed_at, 'COPY', worker_id, created_at
        from symphony.payment_outbox_attempts where outbox_id = $1::text::uuid";
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    let superuser = database.connect().await?;
    superuser.batch_execute("set session_replication_role = replica").await?;
    set_rail(&sessions.operator, "bank", "{}").await?;
    let outcomes = [Outcome::DISPATCHED, Outcome::REJECTED, Outcome::RETRY_NOW];
    for outcome in outcomes {
        enqueue(&sessions.ingest, &Payment::new(outcome.state, "alice", "bank")).await?;
        let lease = claim(&sessions.executor, 1, "worker").await?;
        complete(&sessions.executor, &lease[0], outcome).await?;
        let outbox_id = &lease[0].outbox_id;
        for (who, client) in [("the owner", &sessions.owner), ("a superuser", &superuser)] {
            for (step, state) in
                [(0, "RETRYABLE"), (0, "ZOMBIE_REQUEUE"), (0, "FAILED"), (1, "DISPATCHED"), (1, "FAILED")]
            {
                let second_end = outcome.state != "RETRYABLE" && matches!(state, "DISPATCHED" | "FAILED");
                if step == 1 && !second_end {
                    continue; // A legitimate second attempt.
                }
                let error = client.execute(COPY, &[outbox_id, &step, &state]).await.err();
                let named = error.as_ref().and_then(|error| error.as_db_error()?.constraint());
                let allowed = if step == 1 { vec![TERMINAL] } else { vec![NUMBER, TERMINAL] };
                recorder.check(
                    format!(
                        "as {who}, a second row {state} with attempt_no {} beside one {}",
                        1 + step,
                        outcome.state
                    ),
                    format!("23505 on {}", if step == 1 { TERMINAL } else { allowed_index(second_end) }),
                    error.as_ref().map_or_else(|| "it was inserted".into(), describe),
                    allowed.iter().any(|index| names_index(named, index))
                        && (second_end || names_index(named, NUMBER)),
                )?;
            }
        }
    }

    // Two concurrent transactions that do not see each other: the index decides.
    enqueue(&sessions.ingest, &Payment::new("race", "alice", "bank")).await?;
    let due = "update symphony.payment_outbox_pending set next_attempt_at = now() - interval '1 day' where instruction_id = 'instruction-race'";
    sessions.owner.execute(due, &[]).await?;
    let lease = claim(&sessions.executor, 1, "worker").await?.remove(0);
    complete(&sessions.executor, &lease, Outcome::RETRY_NOW).await?;
    sessions.owner.batch_execute("begin").await?;
    sessions.owner.execute(COPY, &[&lease.outbox_id, &1, &"DISPATCHED"]).await?;
    let second_pid = pid(&superuser).await?;
    let outbox_id = lease.outbox_id.clone();
    let second = tokio::spawn(async move { superuser.execute(COPY, &[&outbox_id, &2, &"FAILED"]).await });
    let watcher = database.connect().await?;
    let waited = waits_for_lock(&watcher, second_pid, &second).await?;
    sessions.owner.batch_execute("commit").await?;
    let error = second.await?.err();
    let named = error.as_ref().and_then(|error| error.as_db_error()?.constraint());
    recorder.check(
        "two transactions append a terminal row for one outbox, the second while the first is open",
        format!("the second waits, and then fails on {TERMINAL}"),
        format!("waited: {waited}; {}", error.as_ref().map_or_else(|| "it was inserted".into(), describe)),
        waited && names_index(named, TERMINAL),
    )?;
    let comment = "select obj_description('symphony.payment_outbox_attempts_one_terminal_per_outbox'::regclass)";
    let comment = text(&sessions.owner, comment, &[]).await?;
    recorder.check(
        "reading the comment of that index",
        "it states the invariant",
        &*comment,
        comment.starts_with("Invariant"),
    )?;
    Ok(recorder.finish())
}
