//! Records the results of attempts.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::{columns, whole_seconds};
use crate::WorkerId;
use crate::error::{CompleteError, ErrorDetails};
use crate::executor::Executor;
use crate::payment::{Completed, Completion};

const COMPLETE: &str = "\
    select attempt_no, state::text, next_attempt_at \
    from symphony.complete_outbox_attempt($1, $2, $3, $4::symphony.outbox_attempt_state, $5, $6, $7, $8, $9, $10)";
const COMPLETE_BATCH: &str = "\
    select attempt_no, state::text, next_attempt_at, refusal, refusal_message \
    from symphony.complete_outbox_batch($1, $2, $3, $4::symphony.outbox_attempt_state[], $5, $6, $7, $8, $9, $10)";

/// Records the result of one attempt.
///
/// # Errors
///
/// See [`CompleteError`].
pub async fn complete(
    client: &impl Executor,
    worker: &WorkerId,
    completion: &Completion,
) -> Result<Completed, CompleteError> {
    let Completion { lease, outcome, latency } = completion;
    let reason = outcome.reason();
    let row = client
        .fetch_one(
            COMPLETE,
            &[
                (&lease.outbox_id.0, Type::UUID),
                (&lease.token.0, Type::UUID),
                (&worker.as_str(), Type::TEXT),
                (&outcome.state().as_str(), Type::TEXT),
                (&outcome.rail().reference, Type::TEXT),
                (&outcome.rail().code, Type::TEXT),
                (&reason.map(|r| r.code.as_str()), Type::TEXT),
                (&reason.and_then(|r| r.message.as_deref()), Type::TEXT),
                (&latency.map(milliseconds), Type::INT4),
                (&outcome.delay().map(whole_seconds), Type::INT4),
            ],
        )
        .await?;
    Ok(completed(&row)?)
}

/// Records the results of several attempts. Each is decided separately: a refused one does not undo the others.
///
/// The results are in the order of the completions.
///
/// # Errors
///
/// If the call as a whole failed and nothing was recorded. See [`CompleteError`].
pub async fn complete_batch(
    client: &impl Executor,
    worker: &WorkerId,
    completions: &[Completion],
) -> Result<Vec<Result<Completed, CompleteError>>, CompleteError> {
    let (outbox_ids, tokens) = columns(completions.iter().map(|c| c.lease));
    let outcomes = || completions.iter().map(|c| &c.outcome);
    let states: Vec<_> = outcomes().map(|o| o.state().as_str()).collect();
    let references: Vec<_> = outcomes().map(|o| o.rail().reference.as_deref()).collect();
    let rail_codes: Vec<_> = outcomes().map(|o| o.rail().code.as_deref()).collect();
    let error_codes: Vec<_> = outcomes().map(|o| o.reason().map(|r| r.code.as_str())).collect();
    let messages: Vec<_> = outcomes().map(|o| o.reason().and_then(|r| r.message.as_deref())).collect();
    let latencies: Vec<_> = completions.iter().map(|c| c.latency.map(milliseconds)).collect();
    let delays: Vec<_> = outcomes().map(|o| o.delay().map(whole_seconds)).collect();
    let rows = client
        .fetch_all(
            COMPLETE_BATCH,
            &[
                (&outbox_ids, Type::UUID_ARRAY),
                (&tokens, Type::UUID_ARRAY),
                (&worker.as_str(), Type::TEXT),
                (&states, Type::TEXT_ARRAY),
                (&references, Type::TEXT_ARRAY),
                (&rail_codes, Type::TEXT_ARRAY),
                (&error_codes, Type::TEXT_ARRAY),
                (&messages, Type::TEXT_ARRAY),
                (&latencies, Type::INT4_ARRAY),
                (&delays, Type::INT4_ARRAY),
            ],
        )
        .await?;
    rows.iter()
        .map(|row| {
            let Some(refusal) = row.try_get("refusal")? else {
                return Ok(Ok(completed(row)?));
            };
            Ok(Err(ErrorDetails::of_row(refusal, row.try_get("refusal_message")?).into()))
        })
        .collect()
}

fn completed(row: &Row) -> Result<Completed, tokio_postgres::Error> {
    Ok(Completed {
        attempt_no: row.try_get("attempt_no")?,
        state: row.try_get("state")?,
        next_attempt_at: row.try_get("next_attempt_at")?,
    })
}

/// Capped at 24 days, because it is only a measurement.
pub(super) fn milliseconds(latency: Duration) -> i32 {
    i32::try_from(latency.as_millis()).unwrap_or(i32::MAX)
}
