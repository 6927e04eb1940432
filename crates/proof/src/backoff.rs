//! Backoff: the delay before each attempt equals the policy of the rail, to the microsecond.

use tokio_postgres::Client;

use super::clock::make_due;
use super::evidence::{Evidence, Failure, Recorder, require};
use super::sessions::{Lease, Outcome, Payment, Sessions, claim, complete_batch, enqueue, set_rail, text};
use symphony_testkit::test_database::Database;

/// Base and cap in seconds.
const POLICIES: [(i64, i64); 6] = [(5, 3600), (1, 2_592_000), (7, 100), (60, 60), (86_400, 2_592_000), (3, 4)];

/// Proof 16: `backoff_is_deterministic_and_equals_the_policy`.
pub(super) async fn equals_the_policy(database: &Database) -> Result<Evidence, Failure> {
    // The delay as it was scheduled, from the time of the transaction that scheduled it.
    const DELAYS: &str = "select (extract(epoch from p.next_attempt_at - $2::text::timestamptz) * 1000000)::bigint, a.attempt_no
                          from symphony.payment_outbox_pending p
                          join symphony.payment_outbox_attempts a on a.outbox_id = p.outbox_id
                          where p.rail_type = $1 and a.attempt_no = (
                            select max(l.attempt_no) from symphony.payment_outbox_attempts l where l.outbox_id = p.outbox_id)";
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "default", "{}").await?;
    for (number, (base, cap)) in POLICIES.into_iter().enumerate() {
        let rail = if number == 0 { "default".to_owned() } else { format!("rail-{number}") };
        if number > 0 {
            let policy = format!(r#"{{"backoff_base_seconds": {base}, "backoff_cap_seconds": {cap}}}"#);
            set_rail(&sessions.operator, &rail, &policy).await?;
        }
        // Two rows with the same attempts: a deterministic backoff is the same for both.
        for row in ["one", "other"] {
            enqueue(&sessions.ingest, &Payment::new(format!("{rail}-{row}"), row, &rail)).await?;
        }
        let mut seconds = Vec::new();
        for attempt in 1..=19_i32 {
            let leases: Vec<_> = claim(&sessions.executor, 100, "worker")
                .await?
                .into_iter()
                .filter(|lease| lease.rail == rail)
                .collect();
            require(|| format!("claiming for attempt {attempt}"), 2, leases.len())?;
            let at = completed_at(&sessions.executor, &leases, Outcome::RETRYABLE).await?;
            let expected = cap.min(base << (attempt - 1));
            let rows = sessions.owner.query(DELAYS, &[&rail, &at]).await?;
            require(|| format!("reading the delays after attempt {attempt}"), 2, rows.len())?;
            for row in rows {
                let tried = || format!("attempt {attempt} with base {base} s and cap {cap} s");
                require(
                    tried,
                    format!("{} µs after {attempt}", expected * 1_000_000),
                    format!("{} µs after {}", row.get::<_, i64>(0), row.get::<_, i32>(1)),
                )?;
            }
            seconds.push(expected);
            make_due(&sessions.owner).await?;
        }
        // Complete them, so that the next policy starts with an empty queue.
        let lasts: Vec<_> = claim(&sessions.executor, 100, "worker").await?;
        complete_batch(&sessions.executor, &lasts, Outcome::DISPATCHED).await?;
        let delays: Vec<String> = seconds.iter().map(ToString::to_string).collect();
        recorder.check(
            format!("2 rows through attempts 1 to 19, base {base} s, cap {cap} s"),
            format!("least({cap}, {base} × 2^(n − 1)) seconds after each, exactly"),
            format!("38 delays are {} s", delays.join(", ")),
            seconds.len() == 19,
        )?;
    }

    for delay in [0, 17, 2_592_000] {
        enqueue(&sessions.ingest, &Payment::new(format!("given-{delay}"), "given", "default")).await?;
        let leases = claim(&sessions.executor, 1, "worker").await?;
        let outcome = Outcome { delay: Some(delay), ..Outcome::RETRYABLE };
        let at = completed_at(&sessions.executor, &leases, outcome).await?;
        let rows = sessions.owner.query(DELAYS, &[&"default", &at]).await?;
        let happened = rows.first().map_or(-1, |row| row.get::<_, i64>(0));
        let tried = format!("a retry with a delay of {delay} s given by the worker");
        recorder.check_equal(tried, "microseconds", i64::from(delay) * 1_000_000, happened)?;
        make_due(&sessions.owner).await?;
        let leases = claim(&sessions.executor, 1, "worker").await?;
        complete_batch(&sessions.executor, &leases, Outcome::DISPATCHED).await?;
    }
    Ok(recorder.finish())
}

/// Completes leases and returns the transaction time from which the next attempts are scheduled.
async fn completed_at(executor: &Client, leases: &[Lease], outcome: Outcome<'_>) -> Result<String, Failure> {
    executor.batch_execute("begin").await?;
    let at = text(executor, "select now()::text", &[]).await?;
    complete_batch(executor, leases, outcome).await?;
    executor.batch_execute("commit").await?;
    Ok(at)
}
