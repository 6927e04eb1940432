//! What a finished run has left behind: the attempts of each outbox, the policies of each rail, and the requests to the bank.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use symphony_db::OutboxId;
use symphony_db::payment::{AttemptState, OnUnknown};
use tokio_postgres::{Client, IsolationLevel, Row};

use super::rules::Ending;
use crate::reconciliation::Error;

// One row per attempt; a pending row has no attempt number.
const ATTEMPTS: &str = "
    select p.outbox_id, p.participant_id, p.sequence_id, p.idempotency_key, p.rail_type,
           null::int as attempt_no, null::text as state, false as outcome_unknown, false as accepted, null::timestamptz as claimed_at,
           null::timestamptz as completed_at, null::text as worker_id, null::int as epoch, null::text as confirmation
    from symphony.payment_outbox_pending p
    union all
    select a.outbox_id, a.participant_id, a.sequence_id, a.idempotency_key, a.rail_type,
           a.attempt_no, a.state::text, coalesce(a.error_code in ('OUTCOME_UNKNOWN', 'LEASE_EXPIRED'), false),
           coalesce(a.error_code = 'AWAITING_CONFIRMATION', false), coalesce(a.claimed_at, a.completed_at),
           a.completed_at, a.worker_id, a.epoch::int,
           case when a.confirmation_id is not null then case when a.claimed_at is null then 'unleased' else 'leased' end end
    from symphony.payment_outbox_attempts a
    order by outbox_id, attempt_no nulls last";
// Every policy that a rail had, because a run may change it.
const POLICIES: &str = "
    select r.rail_type, r.ordered, r.max_attempts, r.on_unknown, r.key_memory_seconds is not null as forgets
    from symphony.payment_rails r
    union
    select o.rail_type, (o.policy_after ->> 'ordered')::boolean, (o.policy_after ->> 'max_attempts')::int,
           o.policy_after ->> 'on_unknown', o.policy_after ->> 'key_memory_seconds' is not null
    from symphony.payment_outbox_operations o
    where o.rail_type is not null
      and o.policy_after ? 'max_attempts'";

/// A row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number.
    pub number: i32,
    /// How it ended.
    pub ending: Ending,
    /// When its lease was granted.
    pub claimed_at: Timestamp,
    /// When its end was recorded.
    pub completed_at: Timestamp,
    /// Whose lease it was.
    pub worker: String,
    /// The epoch of its lease; 1 in a schema without epochs.
    pub epoch: i32,
    /// Whether it is a confirmation of the bank, and then whether it has ended a lease.
    pub confirmation: Confirmation,
}

/// Whether a callback of the bank has ended a payment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confirmation {
    /// A worker has, or nothing yet.
    #[default]
    None,
    /// It has, and with it a lease.
    OfLease,
    /// It has, while no worker had a lease.
    WithoutLease,
}

/// One outbox and its attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbox {
    /// Its id.
    pub outbox_id: OutboxId,
    /// The participant.
    pub participant_id: String,
    /// Its place in the participant's sequence.
    pub sequence_id: i64,
    /// The idempotency key, which a redrive shares.
    pub key: String,
    /// The rail.
    pub rail_type: String,
    /// Whether it is pending.
    pub pending: bool,
    /// Its ledger rows, by their numbers.
    pub attempts: Vec<Attempt>,
}

/// A policy that a rail had at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether it is ordered.
    pub ordered: bool,
    /// Attempts until nothing is retried.
    pub max_attempts: i32,
    /// What it does after an unknown outcome without an answer.
    pub on_unknown: OnUnknown,
    /// Whether its bank may forget a key.
    pub forgets: bool,
}

/// The kind of a request to the bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Pay.
    Payment,
    /// Say what became of a key.
    Inquiry,
    /// No request: the bank decides about a payment that it had accepted.
    Settlement,
}

/// What the simulated bank did with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Handled {
    /// It executed the payment.
    Executed,
    /// It had executed or refused the key before.
    Replayed,
    /// It refused.
    Refused,
    /// It accepted the payment, and decides later.
    Accepted,
    /// The key stands for another body.
    KeyReused,
    /// It did nothing.
    Nothing,
    /// It answered an inquiry with what became of the key.
    Found,
    /// It answered an inquiry with: never seen.
    UnknownKey,
}

/// A request that the bank has handled.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Request {
    /// The idempotency key.
    pub key: String,
    /// The kind.
    pub kind: Kind,
    /// What the bank did.
    pub outcome: Handled,
    /// When.
    pub at: Timestamp,
}

/// What a run has left in the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Every outbox, in the order of its enqueue.
    pub outboxes: Vec<Outbox>,
    /// The policies of each rail.
    pub policies: BTreeMap<String, Vec<Policy>>,
}

/// Reads the lines of `GET /v1/requests`, in order.
///
/// # Errors
/// [`Error::Bank`] at the first line that is no request.
pub fn requests(lines: &str) -> Result<Vec<Request>, Error> {
    let lines = lines.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            serde_json::from_str(line).map_err(|source| Error::Bank { line: number + 1, source })
        })
        .collect()
}

/// Reads all attempts in one snapshot. For the owner of the schema or a superuser.
///
/// # Errors
/// When a query fails.
pub async fn read(owner: &mut Client) -> Result<Trace, Error> {
    let snapshot = owner.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    let snapshot = snapshot.start().await?;
    let mut trace = Trace::default();
    for row in snapshot.query_typed(ATTEMPTS, &[]).await? {
        let outbox_id = row.try_get("outbox_id")?;
        if trace.outboxes.last().is_none_or(|last| last.outbox_id != outbox_id) {
            trace.outboxes.push(outbox(&row, outbox_id)?);
        }
        let Some(outbox) = trace.outboxes.last_mut() else { continue };
        match row.try_get::<_, Option<i32>>("attempt_no")? {
            None => outbox.pending = true,
            Some(number) => outbox.attempts.push(attempt(&row, number)?),
        }
    }
    for row in snapshot.query_typed(POLICIES, &[]).await? {
        let policy = Policy {
            ordered: row.try_get("ordered")?,
            max_attempts: row.try_get("max_attempts")?,
            on_unknown: row.try_get("on_unknown")?,
            forgets: row.try_get("forgets")?,
        };
        trace.policies.entry(row.try_get("rail_type")?).or_default().push(policy);
    }
    snapshot.commit().await?;
    Ok(trace)
}

fn outbox(row: &Row, outbox_id: OutboxId) -> Result<Outbox, Error> {
    Ok(Outbox {
        outbox_id,
        participant_id: row.try_get("participant_id")?,
        sequence_id: row.try_get("sequence_id")?,
        key: row.try_get("idempotency_key")?,
        rail_type: row.try_get("rail_type")?,
        pending: false,
        attempts: Vec::new(),
    })
}

fn attempt(row: &Row, number: i32) -> Result<Attempt, Error> {
    let state: AttemptState = row.try_get("state")?;
    let accepted: bool = row.try_get("accepted")?;
    Ok(Attempt {
        number,
        ending: if accepted { Ending::Accepted } else { Ending::of(state, row.try_get("outcome_unknown")?) },
        claimed_at: time(row, "claimed_at")?,
        completed_at: time(row, "completed_at")?,
        worker: row.try_get("worker_id")?,
        epoch: row.try_get("epoch")?,
        confirmation: match row.try_get("confirmation")? {
            Some("leased") => Confirmation::OfLease,
            Some(_) => Confirmation::WithoutLease,
            None => Confirmation::None,
        },
    })
}

fn time(row: &Row, column: &str) -> Result<Timestamp, Error> {
    let time: std::time::SystemTime = row.try_get(column)?;
    // A time of the database that is no time of ours belongs to no run; the epoch is before every other time.
    Ok(Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH))
}
