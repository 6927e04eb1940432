//! Exports by time: what is committed late is in the next export, and never in none.

use tokio_postgres::Client;

use super::crew::{Crew, Order, Outcome, claim, complete, count, enqueue, set_rail, text};
use super::evidence::{Evidence, Failure, Trial, require, words};
use super::signals::{pid, sleeps};
use crate::kit::scratch::Database;

/// The end of an export that asks for everything, as text: every digit counts.
const END: &str = "select symphony.audit_export_end('infinity', $1)::text";
const OPERATIONS: &str = "select count(*) from symphony.payment_outbox_operations_log
                          where created_at >= $1::text::timestamptz and created_at < $2::text::timestamptz";
const LEDGER: &str = "select count(*) from symphony.payment_outbox_attempts
                      where completed_at >= $1::text::timestamptz and completed_at < $2::text::timestamptz";
/// Longer than any step here takes.
const PATIENT: i32 = 20_000;

async fn end(auditor: &Client, wait_ms: i32) -> Result<String, tokio_postgres::Error> {
    Ok(auditor.query_one(END, &[&wait_ms]).await?.get(0))
}

/// Proof 33.
pub(super) async fn is_exported_once(database: &Database) -> Result<Evidence, Failure> {
    let mut trial = Trial::default();
    let crew = Crew::hire(database).await?;
    let auditor = database.connect_as("symphony_auditor").await?;
    let watcher = database.connect().await?;
    set_rail(&crew.operator, "bank", "{}").await?;
    for name in ["early", "late"] {
        enqueue(&crew.ingest, &Order::new(name, "alice", "bank")).await?;
    }
    let leases = claim(&crew.executor, 10, "worker").await?;
    require(|| "claiming".into(), 2, leases.len())?;

    // Begun before the export, done after it.
    let before = end(&auditor, PATIENT).await?;
    crew.operator.batch_execute("begin").await?;
    crew.executor.batch_execute("begin").await?;
    let first = end(&auditor, PATIENT).await?;
    pause(&crew.operator).await?;
    crew.operator.batch_execute("commit").await?;
    complete(&crew.executor, &leases[0], Outcome::DISPATCHED).await?;
    crew.executor.batch_execute("commit").await?;
    let second = end(&auditor, PATIENT).await?;
    for (what, question) in [("operations", OPERATIONS), ("ledger rows", LEDGER)] {
        let exported = [
            count(&auditor, question, &[&before, &first]).await?,
            count(&auditor, question, &[&first, &second]).await?,
        ];
        trial.same(
            format!(
                "a transaction begins, an export ends, the transaction writes and commits, the next export: {what}"
            ),
            "in the first and in the second export",
            "[0, 1]".to_owned(),
            format!("{exported:?}"),
        )?;
    }

    stays_open(
        [&crew.operator, &auditor, &watcher],
        OPERATIONS,
        &second,
        &mut trial,
        "an operation",
        async || pause(&crew.operator).await,
    )
    .await?;
    let third = end(&auditor, PATIENT).await?;
    stays_open([&crew.executor, &auditor, &watcher], LEDGER, &third, &mut trial, "a ledger row", async || {
        complete(&crew.executor, &leases[1], Outcome::DISPATCHED).await.map(drop)
    })
    .await?;

    auditor.batch_execute("begin isolation level repeatable read").await?;
    trial.refused("asking for the end of an export on an old snapshot", "25000", end(&auditor, 0).await)?;
    auditor.batch_execute("rollback").await?;
    trial.refused("asking it to wait for ever", "P7005", end(&auditor, -1).await)?;
    Ok(trial.evidence())
}

/// Written and not committed: refused by name, then waited for, then exported once.
async fn stays_open(
    [writer, auditor, watcher]: [&Client; 3],
    question: &str,
    from: &str,
    trial: &mut Trial,
    what: &str,
    write: impl AsyncFnOnce() -> Result<(), tokio_postgres::Error>,
) -> Result<(), Failure> {
    let name =
        format!("session {} of {}", pid(writer).await?, text(writer, "select session_user::text", &[]).await?);
    writer.batch_execute("begin").await?;
    write().await?;
    let refusal = end(auditor, 0).await.err();
    let said = refusal.as_ref().map_or_else(|| "it was allowed".to_owned(), words);
    trial.holds(
        format!("exporting while {what} is not committed"),
        format!("refused with 55P03, naming {name}"),
        said.clone(),
        said.starts_with("55P03") && said.contains(&name),
    )?;
    // The writer commits only once the export is seen to wait.
    let reader = pid(auditor).await?;
    let waiting = end(auditor, PATIENT);
    let committing = async {
        sleeps(watcher, reader).await?;
        writer.batch_execute("commit").await?;
        Ok::<_, Failure>(())
    };
    let (end, committed) = tokio::join!(waiting, committing);
    committed?;
    let exported = count(auditor, question, &[&from, &end?]).await?;
    trial.same(format!("exporting while {what} is committed"), "in the export that waited", 1, exported)
}

async fn pause(operator: &Client) -> Result<(), tokio_postgres::Error> {
    operator.batch_execute("select symphony.pause_payment_rail('bank', 'ana', 'a proof')").await?;
    // A change of policy lets its session end soon where it is left open: an attacker does not.
    operator.batch_execute("set local idle_in_transaction_session_timeout = 0").await
}
