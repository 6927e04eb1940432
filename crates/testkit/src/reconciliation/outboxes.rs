//! Reads the tables of the outbox in one snapshot.

use std::collections::BTreeMap;

use symphony_db::OutboxId;
use symphony_db::payment::AttemptState;
use tokio_postgres::{Client, IsolationLevel, Row};

use super::Error;

// A pending row has no attempt number, so that an outbox that is both pending and ended is visible.
const OUTBOXES: &str = "
    select t.*, coalesce(r.ordered, false) as ordered
    from (
      select p.outbox_id, p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key, p.rail_type,
             p.payload ->> 'amount' as amount, p.payload ->> 'currency' as currency,
             null::int as attempt_no, null::text as state, null::text as error_code, null::text as rail_reference
      from symphony.payment_outbox_pending p
      union all
      select a.outbox_id, a.instruction_id, a.participant_id, a.sequence_id, a.idempotency_key, a.rail_type,
             a.payload ->> 'amount', a.payload ->> 'currency',
             a.attempt_no, a.state::text, a.error_code, a.rail_reference
      from symphony.payment_outbox_attempts a
    ) t
    left join symphony.payment_rails r on r.rail_type = t.rail_type
    order by t.outbox_id, t.attempt_no nulls first";
const NUMBERS: &str = "
    select s.participant_id, s.next_sequence_id - 1 as last
    from symphony.participant_outbox_sequences s";

/// The error codes of an unknown outcome. Repeated here, so that reconciliation does not depend on what it checks.
const UNKNOWN: [&str; 2] = ["OUTCOME_UNKNOWN", "LEASE_EXPIRED"];

/// A row of the outbox's ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number within its outbox, from 1.
    pub number: i32,
    /// Its result.
    pub state: AttemptState,
    /// The error code, if it failed.
    pub error_code: Option<String>,
    /// The rail's reference.
    pub reference: Option<String>,
}

impl Attempt {
    /// Whether the outcome of the attempt is unknown.
    pub fn is_unknown(&self) -> bool {
        self.state != AttemptState::Dispatched
            && self.error_code.as_deref().is_some_and(|code| UNKNOWN.contains(&code))
    }

    /// Whether no other attempt may follow.
    pub fn is_terminal(&self) -> bool {
        matches!(self.state, AttemptState::Dispatched | AttemptState::Failed)
    }
}

/// One outbox: the requested payment and its attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbox {
    /// Its id.
    pub outbox_id: OutboxId,
    /// The instruction.
    pub instruction_id: String,
    /// Its participant.
    pub participant_id: String,
    /// Its sequence number within its participant.
    pub sequence_id: i64,
    /// The idempotency key.
    pub key: String,
    /// The rail.
    pub rail_type: String,
    /// Whether the rail is ordered.
    pub ordered: bool,
    /// The amount, as in the payload.
    pub amount: Option<String>,
    /// The currency.
    pub currency: Option<String>,
    /// Whether it is pending.
    pub pending: bool,
    /// Its ledger rows, in order.
    pub attempts: Vec<Attempt>,
}

/// The content of the outbox tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outboxes {
    /// Every outbox that is pending or in the ledger.
    pub outboxes: Vec<Outbox>,
    /// The last sequence number of each participant.
    pub numbers: BTreeMap<String, i64>,
}

/// Reads all outboxes in one snapshot. For the owner of the schema or a superuser: no other role may read all tables.
///
/// # Errors
/// When a query fails.
pub async fn read(owner: &mut Client) -> Result<Outboxes, Error> {
    let snapshot = owner.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    let snapshot = snapshot.start().await?;
    let mut outboxes: Vec<Outbox> = Vec::new();
    for row in snapshot.query_typed(OUTBOXES, &[]).await? {
        let outbox_id = row.try_get("outbox_id")?;
        if outboxes.last().is_none_or(|last| last.outbox_id != outbox_id) {
            outboxes.push(outbox(&row, outbox_id)?);
        }
        let Some(outbox) = outboxes.last_mut() else { continue };
        match row.try_get::<_, Option<i32>>("attempt_no")? {
            None => outbox.pending = true,
            Some(number) => outbox.attempts.push(Attempt {
                number,
                state: row.try_get("state")?,
                error_code: row.try_get("error_code")?,
                reference: row.try_get("rail_reference")?,
            }),
        }
    }
    let mut numbers = BTreeMap::new();
    for row in snapshot.query_typed(NUMBERS, &[]).await? {
        numbers.insert(row.try_get("participant_id")?, row.try_get("last")?);
    }
    snapshot.commit().await?;
    Ok(Outboxes { outboxes, numbers })
}

fn outbox(row: &Row, outbox_id: OutboxId) -> Result<Outbox, Error> {
    Ok(Outbox {
        outbox_id,
        instruction_id: row.try_get("instruction_id")?,
        participant_id: row.try_get("participant_id")?,
        sequence_id: row.try_get("sequence_id")?,
        key: row.try_get("idempotency_key")?,
        rail_type: row.try_get("rail_type")?,
        ordered: row.try_get("ordered")?,
        amount: row.try_get("amount")?,
        currency: row.try_get("currency")?,
        pending: false,
        attempts: Vec::new(),
    })
}
