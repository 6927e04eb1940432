//! Audit exports: a row that is committed late is in the next export.

use tokio_postgres::Client;

use super::evidence::{Evidence, Failure, Recorder, describe, require};
use super::server_state::{is_in_pg_sleep, pid};
use super::sessions::{Outcome, Payment, Sessions, claim, complete, count, enqueue, set_rail, text};
use symphony_testkit::test_database::Database;

/// The end of an export up to now, as text, so that no digit is lost.
const END: &str = "select symphony.audit_export_end('infinity', $1)::text";
const OPERATIONS: &str = "select count(*) from symphony.payment_outbox_operations_log
                          where created_at >= $1::text::timestamptz and created_at < $2::text::timestamptz";
const LEDGER: &str = "select count(*) from symphony.payment_outbox_attempts
                      where completed_at >= $1::text::timestamptz and completed_at < $2::text::timestamptz";
/// Longer than any step here takes.
const WAIT_MS: i32 = 20_000;

async fn end(auditor: &Client, wait_ms: i32) -> Result<String, tokio_postgres::Error> {
    Ok(auditor.query_one(END, &[&wait_ms]).await?.get(0))
}

/// Proof 33: `a_row_committed_after_an_export_is_in_the_next_export`.
pub(super) async fn is_exported_once(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    let auditor = database.connect_as("symphony_auditor").await?;
    let watcher = database.connect().await?;
    set_rail(&sessions.operator, "bank", "{}").await?;
    for name in ["early", "late"] {
        enqueue(&sessions.ingest, &Payment::new(name, "alice", "bank")).await?;
    }
    let leases = claim(&sessions.executor, 10, "worker").await?;
    require(|| "claiming".into(), 2, leases.len())?;

    // A transaction that begins before the export and commits after it.
    let before = end(&auditor, WAIT_MS).await?;
    sessions.operator.batch_execute("begin").await?;
    sessions.executor.batch_execute("begin").await?;
    let first = end(&auditor, WAIT_MS).await?;
    pause(&sessions.operator).await?;
    sessions.operator.batch_execute("commit").await?;
    complete(&sessions.executor, &leases[0], Outcome::DISPATCHED).await?;
    sessions.executor.batch_execute("commit").await?;
    let second = end(&auditor, WAIT_MS).await?;
    for (what, question) in [("operations", OPERATIONS), ("ledger rows", LEDGER)] {
        let exported = [
            count(&auditor, question, &[&before, &first]).await?,
            count(&auditor, question, &[&first, &second]).await?,
        ];
        recorder.check_equal(
            format!(
                "a transaction begins, an export ends, the transaction writes and commits, the next export: {what}"
            ),
            "in the first and in the second export",
            "[0, 1]".to_owned(),
            format!("{exported:?}"),
        )?;
    }

    stays_open(
        [&sessions.operator, &auditor, &watcher],
        OPERATIONS,
        &second,
        &mut recorder,
        "an operation",
        async || pause(&sessions.operator).await,
    )
    .await?;
    let third = end(&auditor, WAIT_MS).await?;
    stays_open(
        [&sessions.executor, &auditor, &watcher],
        LEDGER,
        &third,
        &mut recorder,
        "a ledger row",
        async || complete(&sessions.executor, &leases[1], Outcome::DISPATCHED).await.map(drop),
    )
    .await?;

    auditor.batch_execute("begin isolation level repeatable read").await?;
    recorder.check_refused(
        "asking for the end of an export in REPEATABLE READ",
        "25000",
        end(&auditor, 0).await,
    )?;
    auditor.batch_execute("rollback").await?;
    recorder.check_refused("asking it to wait without a limit", "P7005", end(&auditor, -1).await)?;
    Ok(recorder.finish())
}

/// An uncommitted row: the export is refused and names the session, then waits for it, then contains the row once.
async fn stays_open(
    [writer, auditor, watcher]: [&Client; 3],
    question: &str,
    from: &str,
    recorder: &mut Recorder,
    what: &str,
    write: impl AsyncFnOnce() -> Result<(), tokio_postgres::Error>,
) -> Result<(), Failure> {
    let name =
        format!("session {} of {}", pid(writer).await?, text(writer, "select session_user::text", &[]).await?);
    writer.batch_execute("begin").await?;
    write().await?;
    let refusal = end(auditor, 0).await.err();
    let refused = refusal.as_ref().map_or_else(|| "allowed".to_owned(), describe);
    recorder.check(
        format!("exporting while {what} is not committed"),
        format!("refused with 55P03, naming {name}"),
        refused.clone(),
        refused.starts_with("55P03") && refused.contains(&name),
    )?;
    // The writer commits only after the export waits.
    let reader = pid(auditor).await?;
    let waiting = end(auditor, WAIT_MS);
    let committing = async {
        is_in_pg_sleep(watcher, reader).await?;
        writer.batch_execute("commit").await?;
        Ok::<_, Failure>(())
    };
    let (end, committed) = tokio::join!(waiting, committing);
    committed?;
    let exported = count(auditor, question, &[&from, &end?]).await?;
    recorder.check_equal(format!("exporting while {what} is committed"), "in the export that waited", 1, exported)
}

async fn pause(operator: &Client) -> Result<(), tokio_postgres::Error> {
    operator.batch_execute("select symphony.pause_payment_rail('bank', 'ana', 'a proof')").await?;
    // pause_payment_rail sets a short idle timeout for its transaction; an attacker resets it.
    operator.batch_execute("set local idle_in_transaction_session_timeout = 0").await
}
