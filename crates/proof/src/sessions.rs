//! The sessions of a proof, one per role, and typed calls of the SQL functions.
//!
//! Every call runs with the rights of the role that the contract grants it to. The owner only reads tables and
//! changes timestamps.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use symphony_testkit::test_database::{self, Database};

/// One session for each role that calls functions.
#[derive(Debug)]
pub(super) struct Sessions {
    pub(super) ingest: Client,
    pub(super) executor: Client,
    pub(super) operator: Client,
    /// Reads tables and changes timestamps.
    pub(super) owner: Client,
}

impl Sessions {
    pub(super) async fn connect(database: &Database) -> Result<Self, test_database::Error> {
        Ok(Self {
            ingest: database.connect_as("symphony_ingest").await?,
            executor: database.connect_as("symphony_executor").await?,
            operator: database.connect_as("symphony_operator").await?,
            owner: database.connect_as("symphony_control").await?,
        })
    }
}

/// Several sessions with the rights of one role.
pub(super) async fn connect_many(
    database: &Database,
    role: &str,
    count: usize,
) -> Result<Vec<Client>, test_database::Error> {
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        clients.push(database.connect_as(role).await?);
    }
    Ok(clients)
}

/// The arguments of one enqueue.
#[derive(Clone, Debug)]
pub(super) struct Payment {
    pub(super) instruction: String,
    pub(super) participant: String,
    pub(super) key: String,
    pub(super) rail: String,
    pub(super) payload: String,
}

impl Payment {
    /// A payment whose instruction and key follow from a name.
    pub(super) fn new(name: impl AsRef<str>, participant: &str, rail: &str) -> Self {
        let name = name.as_ref();
        Self {
            instruction: format!("instruction-{name}"),
            participant: participant.to_owned(),
            key: format!("key-{name}"),
            rail: rail.to_owned(),
            payload: format!(r#"{{"amount": "10.00", "name": "{name}"}}"#),
        }
    }
}

/// The result of an enqueue.
#[derive(Clone, Debug)]
pub(super) struct Enqueued {
    pub(super) outbox_id: String,
    pub(super) sequence_id: i64,
    pub(super) replayed: bool,
}

/// A claimed row and its lease token.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) outbox_id: String,
    pub(super) token: String,
    pub(super) worker: String,
    pub(super) participant: String,
    pub(super) sequence_id: i64,
    pub(super) rail: String,
    pub(super) key: String,
    pub(super) outcome_unknown: bool,
}

/// What a completion recorded.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) attempt_no: i32,
    pub(super) state: String,
    pub(super) ended: bool,
}

/// The result of an attempt, as a worker reports it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome<'a> {
    pub(super) state: &'a str,
    pub(super) error_code: Option<&'a str>,
    pub(super) delay: Option<i32>,
}

impl Outcome<'static> {
    pub(super) const DISPATCHED: Self = Self { state: "DISPATCHED", error_code: None, delay: None };
    pub(super) const REJECTED: Self = Self { state: "FAILED", error_code: Some("REJECTED"), delay: None };
    pub(super) const UNKNOWN: Self = Self { state: "FAILED", error_code: Some("OUTCOME_UNKNOWN"), delay: None };
    /// The rail has accepted it, and its outcome comes later.
    pub(super) const ACCEPTED: Self =
        Self { state: "RETRYABLE", error_code: Some("AWAITING_CONFIRMATION"), delay: None };
    /// A retry after the backoff of the rail.
    pub(super) const RETRYABLE: Self = Self { state: "RETRYABLE", error_code: Some("BUSY"), delay: None };
    /// A retry without delay.
    pub(super) const RETRY_NOW: Self = Self { state: "RETRYABLE", error_code: Some("BUSY"), delay: Some(0) };
}

/// Registers a rail or changes its policy, which is JSON.
pub(super) async fn set_rail(operator: &Client, rail: &str, policy: &str) -> Result<(), Error> {
    let call = "select case when exists (select from symphony.payment_rail_policies where rail_type = $1)
                     then symphony.set_payment_rail($1, $2::text::jsonb, 'operator', 'a proof')
                     else symphony.register_payment_rail($1, $2::text::jsonb, 'operator', 'a proof') end";
    operator.execute(call, &[&rail, &policy]).await.map(drop)
}

pub(super) async fn enqueue(ingest: &Client, payment: &Payment) -> Result<Enqueued, Error> {
    let call = "select outbox_id::text, sequence_id, replayed
                from symphony.enqueue_payment_outbox($1, $2, $3, $4, $5::text::jsonb)";
    let Payment { instruction, participant, key, rail, payload } = payment;
    let row = ingest.query_one(call, &[instruction, participant, key, rail, payload]).await?;
    Ok(Enqueued { outbox_id: row.get(0), sequence_id: row.get(1), replayed: row.get(2) })
}

pub(super) async fn enqueue_batch(ingest: &Client, payments: &[Payment]) -> Result<Vec<Enqueued>, Error> {
    let call = "select outbox_id::text, sequence_id, replayed
                from symphony.enqueue_payment_outbox_batch($1, $2, $3, $4, ($5::text[])::jsonb[])";
    let column =
        |of: fn(&Payment) -> &String| payments.iter().map(|payment| of(payment).as_str()).collect::<Vec<_>>();
    let rows = ingest
        .query(
            call,
            &[
                &column(|payment| &payment.instruction),
                &column(|payment| &payment.participant),
                &column(|payment| &payment.key),
                &column(|payment| &payment.rail),
                &column(|payment| &payment.payload),
            ],
        )
        .await?;
    let read = |row: &Row| Enqueued { outbox_id: row.get(0), sequence_id: row.get(1), replayed: row.get(2) };
    Ok(rows.iter().map(read).collect())
}

/// Claims with a lease of 10 minutes, longer than any proof takes: leases expire only when a proof makes them.
pub(super) async fn claim(executor: &Client, batch: i32, worker: &str) -> Result<Vec<Lease>, Error> {
    let call = "select outbox_id::text, lease_token::text, participant_id, sequence_id, rail_type, idempotency_key, outcome_unknown
                from symphony.claim_outbox_batch($1, $2, 600)";
    let rows = executor.query(call, &[&batch, &worker]).await?;
    Ok(rows.iter().map(|row| lease(row, worker)).collect())
}

fn lease(row: &Row, worker: &str) -> Lease {
    Lease {
        outbox_id: row.get(0),
        token: row.get(1),
        worker: worker.to_owned(),
        participant: row.get(2),
        sequence_id: row.get(3),
        rail: row.get(4),
        key: row.get(5),
        outcome_unknown: row.get(6),
    }
}

/// Claims on one ordered rail, with up to `followers` rows behind heads.
pub(super) async fn claim_with_followers(
    executor: &Client,
    batch: i32,
    worker: &str,
    rail: &str,
    followers: i32,
) -> Result<Vec<Lease>, Error> {
    let call = "select outbox_id::text, lease_token::text, participant_id, sequence_id, rail_type, idempotency_key, outcome_unknown
                from symphony.claim_outbox_batch($1, $2, 600, jsonb_build_object($3::text, 1000), jsonb_build_object($3::text, $4::int))";
    let rows = executor.query(call, &[&batch, &worker, &rail, &followers]).await?;
    Ok(rows.iter().map(|row| lease(row, worker)).collect())
}

pub(super) async fn complete(executor: &Client, lease: &Lease, outcome: Outcome<'_>) -> Result<Recorded, Error> {
    let call = "select attempt_no, state::text, next_attempt_at is null
                from symphony.complete_outbox_attempt($1::text::uuid, $2::text::uuid, $3, $4::text::symphony.outbox_attempt_state, p_error_code => $5, p_retry_delay_seconds => $6)";
    let row = executor
        .query_one(
            call,
            &[&lease.outbox_id, &lease.token, &lease.worker, &outcome.state, &outcome.error_code, &outcome.delay],
        )
        .await?;
    Ok(Recorded { attempt_no: row.get(0), state: row.get(1), ended: row.get(2) })
}

/// Completes the leases of one worker with the same outcome; an error is the SQLSTATE of the refusal.
pub(super) async fn complete_batch(
    executor: &Client,
    leases: &[Lease],
    outcome: Outcome<'_>,
) -> Result<Vec<Result<String, String>>, Error> {
    let call = "select state::text, refusal
                from symphony.complete_outbox_batch(($1::text[])::uuid[], ($2::text[])::uuid[], $3, ($4::text[])::symphony.outbox_attempt_state[], null, null, $5, null, null, $6)";
    let worker = leases.first().map_or("", |lease| lease.worker.as_str());
    let (ids, tokens) = ids_and_tokens(leases);
    let states = vec![outcome.state; leases.len()];
    let errors = vec![outcome.error_code; leases.len()];
    let delays = vec![outcome.delay; leases.len()];
    let rows = executor.query(call, &[&ids, &tokens, &worker, &states, &errors, &delays]).await?;
    let read = |row: &Row| match row.get::<_, Option<String>>(1) {
        Some(refusal) => Err(refusal),
        None => Ok(row.get(0)),
    };
    Ok(rows.iter().map(read).collect())
}

/// Releases leases of one worker. Returns for each whether the worker still had it.
pub(super) async fn release(executor: &Client, leases: &[Lease]) -> Result<Vec<bool>, Error> {
    let call =
        "select released from symphony.release_outbox_leases(($1::text[])::uuid[], ($2::text[])::uuid[], $3)";
    let worker = leases.first().map_or("", |lease| lease.worker.as_str());
    let (ids, tokens) = ids_and_tokens(leases);
    let rows = executor.query(call, &[&ids, &tokens, &worker]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Renews leases of one worker. Returns for each whether the worker still had it.
pub(super) async fn renew(executor: &Client, leases: &[Lease]) -> Result<Vec<bool>, Error> {
    let call = "select lease_expires_at is not null
                from symphony.renew_outbox_leases(($1::text[])::uuid[], ($2::text[])::uuid[], $3, 600)";
    let worker = leases.first().map_or("", |lease| lease.worker.as_str());
    let (ids, tokens) = ids_and_tokens(leases);
    let rows = executor.query(call, &[&ids, &tokens, &worker]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Repairs expired leases and returns their outboxes.
pub(super) async fn repair(executor: &Client, batch: i32) -> Result<Vec<String>, Error> {
    let call = "select outbox_id::text from symphony.repair_expired_leases($1, 'repairer')";
    let rows = executor.query(call, &[&batch]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Cancels a payment; the result is its outbox.
pub(super) async fn cancel(client: &Client, payment: &Payment) -> Result<String, Error> {
    let call = "select outbox_id::text from symphony.cancel_payment_outbox($1, $2, 'canceller', 'a proof')";
    Ok(client.query_one(call, &[&payment.instruction, &payment.key]).await?.get(0))
}

pub(super) async fn redrive(operator: &Client, outbox_id: &str) -> Result<Enqueued, Error> {
    let call = "select outbox_id::text, sequence_id
                from symphony.redrive_payment_outbox($1::text::uuid, 'operator', 'a proof')";
    let row = operator.query_one(call, &[&outbox_id]).await?;
    Ok(Enqueued { outbox_id: row.get(0), sequence_id: row.get(1), replayed: false })
}

pub(super) async fn resolve(operator: &Client, outbox_id: &str, resolution: &str) -> Result<(), Error> {
    let call =
        "select symphony.resolve_payment_outbox($1::text::uuid, $2, 'operator', 'the statement of the bank')";
    operator.execute(call, &[&outbox_id, &resolution]).await.map(drop)
}

/// What a bank confirms about a payment of a rail, by its key. Returns the result, and the outbox that it is about.
pub(super) async fn confirm(
    executor: &Client,
    (rail, key): (&str, &str),
    outcome: &str,
    message: &str,
    endpoint: Option<&str>,
) -> Result<(String, Option<String>), Error> {
    let call = "select result, outbox_id::text
                from symphony.confirm_payment_outbox($1, $2, $3, $4, 'receiver', p_endpoint => $5, p_rail_reference => 'REF')";
    let row = executor.query_one(call, &[&rail, &key, &outcome, &message, &endpoint]).await?;
    Ok((row.get(0), row.get(1)))
}

/// The count that a query returns.
pub(super) async fn count(client: &Client, query: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<i64, Error> {
    Ok(client.query_one(query, parameters).await?.get(0))
}

/// The text that a query returns, or `none` without a row or a value.
pub(super) async fn text(
    client: &Client,
    query: &str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<String, Error> {
    let row = client.query_opt(query, parameters).await?;
    Ok(row.and_then(|row| row.get::<_, Option<String>>(0)).unwrap_or_else(|| "none".into()))
}

fn ids_and_tokens(leases: &[Lease]) -> (Vec<&str>, Vec<&str>) {
    leases.iter().map(|lease| (lease.outbox_id.as_str(), lease.token.as_str())).unzip()
}
