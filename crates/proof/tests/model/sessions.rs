//! Makes calls on a real database, through several connections.

use std::collections::HashMap;

use symphony_testkit::test_database::Database;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::call::{Answer, Call, Completed, Enqueued, Form, Instruction, Leased, RAILS};
use super::id_map::IdMap;
use super::reference::{AttemptState, Micros, Policy};
use super::transactions::SESSIONS;

/// The connections to one database: those that make calls, and the owner's.
#[derive(Debug)]
pub(crate) struct Sessions {
    callers: Vec<Caller>,
    owner: Caller,
    id_map: IdMap,
    /// Kept until the connections are closed.
    _database: Database,
}

/// One connection, with what it has prepared.
#[derive(Debug)]
pub(crate) struct Caller {
    client: Client,
    prepared: HashMap<&'static str, Statement>,
}

impl Caller {
    async fn connect(database: &Database) -> Self {
        let client = database.connect().await.unwrap();
        // No call is expected to wait: a lock timeout turns a wait into a difference.
        client.batch_execute("set lock_timeout = '10s'").await.unwrap();
        Self { client, prepared: HashMap::new() }
    }

    /// The rows of a query, or the SQLSTATE of its refusal.
    pub(crate) async fn rows(
        &mut self,
        sql: &'static str,
        arguments: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, String> {
        if !self.prepared.contains_key(sql) {
            self.prepared.insert(sql, self.client.prepare(sql).await.unwrap());
        }
        let refusal = |error: tokio_postgres::Error| match error.code() {
            Some(code) => code.code().to_owned(),
            None => panic!("the connection failed: {error}"),
        };
        self.client.query(&self.prepared[sql], arguments).await.map_err(refusal)
    }
}

impl Sessions {
    pub(crate) async fn open(database: Database) -> Self {
        let owner = Caller::connect(&database).await;
        let micros = "create function public.micros(timestamptz) returns bigint language sql stable
                      return (extract(epoch from $1) * 1000000)::bigint";
        owner.client.batch_execute(micros).await.unwrap();
        let mut callers = Vec::new();
        for _ in 0..SESSIONS {
            callers.push(Caller::connect(&database).await);
        }
        Self { callers, owner, id_map: IdMap::default(), _database: database }
    }

    /// Starts a sequence: an empty queue, new id_map, and these rails.
    pub(crate) async fn start(&mut self, sequence: usize, rails: &[Policy]) {
        for caller in &mut self.callers {
            caller.client.batch_execute("rollback").await.unwrap();
        }
        self.id_map = IdMap::of(sequence);
        symphony_testkit::bulk_rows::clear_pending(&self.owner.client).await.unwrap();
        for (no, policy) in rails.iter().enumerate() {
            let register = "select symphony.register_payment_rail($1, '{}', 'model', 'a test')
                            where not exists (select from symphony.payment_rail_policies where rail_type = $1)";
            self.owner.client.execute(register, &[&IdMap::rail(no)]).await.unwrap();
            self.make(0, &Call::SetRail(no, policy.clone())).await.1.unwrap();
            self.make(0, &Call::Resume(no)).await.1.unwrap();
        }
    }

    pub(crate) fn id_map(&self) -> &IdMap {
        &self.id_map
    }

    /// A session's connection, to read what it sees.
    pub(crate) fn look(&mut self, session: usize) -> (&mut Caller, &mut IdMap) {
        (&mut self.callers[session], &mut self.id_map)
    }

    /// The owner's connection, which sees what is committed.
    pub(crate) fn owner(&mut self) -> (&mut Caller, &mut IdMap) {
        (&mut self.owner, &mut self.id_map)
    }

    /// Makes a call. Returns the time of the transaction if it answered, and the answer or the SQLSTATE.
    pub(crate) async fn make(&mut self, session: usize, call: &Call) -> (Option<Micros>, Result<Answer, String>) {
        let made = self.try_make(session, call).await;
        match made {
            Ok((now, answer)) => (now, Ok(answer)),
            Err(code) => (None, Err(code)),
        }
    }

    async fn try_make(&mut self, session: usize, call: &Call) -> Result<(Option<Micros>, Answer), String> {
        let Self { callers, id_map, .. } = self;
        let caller = &mut callers[session];
        let done = |rows: Vec<Row>| (time(&rows), Answer::Done);
        match call {
            Call::Begin => {
                caller.client.batch_execute("begin").await.unwrap();
                caller.rows("select micros(now())", &[]).await.map(done)
            }
            Call::Commit => caller.rows("commit", &[]).await.map(done),
            Call::RollBack => caller.rows("rollback", &[]).await.map(done),
            Call::Enqueue { form, given } => {
                let columns: [Vec<String>; 5] = columns(id_map, given);
                let [instructions, participants, keys, rails, payloads] = &columns;
                let rows = match form {
                    Form::Single => {
                        let sql =
                            "select micros(now()), outbox_id::text, sequence_id, micros(created_at), replayed
                                   from symphony.enqueue_payment_outbox($1, $2, $3, $4, $5::text::jsonb)";
                        let [i, p, k, r, payload] = columns.each_ref().map(|column| &column[0]);
                        caller.rows(sql, &[i, p, k, r, payload]).await?
                    }
                    Form::Batch => {
                        let sql =
                            "select micros(now()), outbox_id::text, sequence_id, micros(created_at), replayed
                                   from symphony.enqueue_payment_outbox_batch($1, $2, $3, $4, $5::text[]::jsonb[])
                                   order by position";
                        caller.rows(sql, &[instructions, participants, keys, rails, payloads]).await?
                    }
                };
                let answers = rows.iter().map(|row| enqueued(row, id_map)).collect();
                Ok((time(&rows), Answer::Enqueued(answers)))
            }
            Call::Claim { worker, batch, lease_seconds } => {
                let sql = "select micros(t.now), c.outbox_id::text, c.lease_token::text, c.sequence_id, c.attempt_count,
                                  micros(c.lease_expires_at), c.outcome_unknown, c.instruction_id, c.participant_id,
                                  c.idempotency_key, c.rail_type, c.payload::text
                           from (select now()) t
                           left join lateral symphony.claim_outbox_batch($1, $2, $3) with ordinality c on true
                           order by c.ordinality";
                let rows = caller.rows(sql, &[batch, worker, lease_seconds]).await?;
                let leased = rows.iter().filter_map(|row| leased(row, id_map)).collect();
                Ok((time(&rows), Answer::Leased(leased)))
            }
            Call::Complete { form, worker, outcomes } => {
                let leases: Vec<_> = outcomes.iter().map(|outcome| outcome.hold.clone()).collect();
                let (ids, tokens) = id_map.ids(&leases);
                let states: Vec<_> = outcomes.iter().map(|outcome| outcome.state).collect();
                let references: Vec<_> =
                    outcomes.iter().enumerate().map(|(place, outcome)| outcome.reference(place)).collect();
                let codes: Vec<_> = outcomes.iter().map(|outcome| outcome.error_code).collect();
                let delays: Vec<_> = outcomes.iter().map(|outcome| outcome.delay_seconds).collect();
                let rows = match form {
                    Form::Single => {
                        let sql =
                            "select micros(now()), $1, attempt_no, state::text, micros(next_attempt_at), null
                                   from symphony.complete_outbox_attempt($1::text::uuid, $2::text::uuid, $3, $4::text::symphony.outbox_attempt_state,
                                     p_rail_reference => $5, p_error_code => $6, p_retry_delay_seconds => $7)";
                        caller
                            .rows(
                                sql,
                                &[&ids[0], &tokens[0], worker, &states[0], &references[0], &codes[0], &delays[0]],
                            )
                            .await?
                    }
                    Form::Batch => {
                        let sql = "select micros(now()), outbox_id::text, attempt_no, state::text,
                                          micros(next_attempt_at), refusal
                                   from symphony.complete_outbox_batch($1::text[]::uuid[], $2::text[]::uuid[], $3, $4::text[]::symphony.outbox_attempt_state[],
                                     p_rail_references => $5, p_error_codes => $6, p_retry_delays_seconds => $7)
                                   order by position";
                        caller.rows(sql, &[&ids, &tokens, worker, &states, &references, &codes, &delays]).await?
                    }
                };
                let answers = rows.iter().map(|row| completed(row, id_map, worker)).collect();
                Ok((time(&rows), Answer::Completed(answers)))
            }
            Call::Renew { worker, leases, seconds } => {
                let (ids, tokens) = id_map.ids(leases);
                let sql = "select micros(now()), micros(lease_expires_at)
                           from symphony.renew_outbox_leases($1::text[]::uuid[], $2::text[]::uuid[], $3, $4)";
                let rows = caller.rows(sql, &[&ids, &tokens, worker, seconds]).await?;
                Ok((time(&rows), Answer::Renewed(rows.iter().map(|row| row.get(1)).collect())))
            }
            Call::Release { worker, leases, delay_seconds } => {
                let (ids, tokens) = id_map.ids(leases);
                let sql = "select micros(now()), released
                           from symphony.release_outbox_leases($1::text[]::uuid[], $2::text[]::uuid[], $3, $4)";
                let rows = caller.rows(sql, &[&ids, &tokens, worker, delay_seconds]).await?;
                Ok((time(&rows), Answer::Released(rows.iter().map(|row| row.get(1)).collect())))
            }
            Call::Repair { worker, batch } => {
                let sql = "select micros(t.now), r.outbox_id::text, r.attempt_no, r.state::text,
                                  micros(r.next_attempt_at), null::text, r.lost_worker
                           from (select now()) t
                           left join lateral symphony.repair_expired_leases($1, $2) r on true";
                let rows = caller.rows(sql, &[batch, worker]).await?;
                let repaired = rows.iter().filter(|row| row.get::<_, Option<String>>(1).is_some());
                let repaired = repaired.filter_map(|row| completed(row, id_map, &row.get::<_, String>(6)).ok());
                Ok((time(&rows), Answer::Repaired(repaired.collect())))
            }
            Call::Redrive(no) => {
                let sql = "select micros(now()), outbox_id::text, sequence_id, micros(created_at), false
                           from symphony.redrive_payment_outbox($1::text::uuid, 'an operator', 'a reason')";
                let rows = caller.rows(sql, &[id_map.outbox_id(*no)]).await?;
                let answers = rows.iter().map(|row| enqueued(row, id_map)).collect();
                Ok((time(&rows), Answer::Enqueued(answers)))
            }
            Call::Resolve(no, resolution) => {
                let sql = "select micros(now())
                           from symphony.resolve_payment_outbox($1::text::uuid, $2, 'an operator', 'a reason')";
                caller.rows(sql, &[id_map.outbox_id(*no), resolution]).await.map(done)
            }
            Call::SetRail(no, policy) => {
                let sql = "select micros(now())
                           from symphony.set_payment_rail($1, $2::text::jsonb, 'an operator', 'a reason')";
                caller.rows(sql, &[&IdMap::rail(*no), &json(policy)]).await.map(done)
            }
            Call::Pause(no) => {
                let sql = "select micros(now()) from symphony.pause_payment_rail($1, 'an operator', 'a reason')";
                caller.rows(sql, &[&IdMap::rail(*no)]).await.map(done)
            }
            Call::Resume(no) => {
                let sql = "select micros(now()) from symphony.resume_payment_rail($1, 'an operator', 'a reason')";
                caller.rows(sql, &[&IdMap::rail(*no)]).await.map(done)
            }
            Call::Expire(no) => {
                let sql = "update symphony.payment_outbox_pending set lease_expires_at = now() - interval '1 day'
                           where outbox_id = $1::text::uuid returning micros(now()), micros(lease_expires_at)";
                moved(caller.rows(sql, &[id_map.outbox_id(*no)]).await?)
            }
            Call::Miscount(no) => {
                let sql = "update symphony.payment_outbox_pending set attempt_count = least(20, attempt_count + 1)
                           where outbox_id = $1::text::uuid returning micros(now()), micros(now())";
                moved(caller.rows(sql, &[id_map.outbox_id(*no)]).await?)
            }
            Call::MakeDue(no) => {
                let sql = "update symphony.payment_outbox_pending set next_attempt_at = now()
                           where outbox_id = $1::text::uuid returning micros(now()), micros(next_attempt_at)";
                moved(caller.rows(sql, &[id_map.outbox_id(*no)]).await?)
            }
        }
    }
}

/// The time of the transaction, the first column of every query.
fn time(rows: &[Row]) -> Option<Micros> {
    rows.first().map(|row| row.get(0))
}

fn moved(rows: Vec<Row>) -> Result<(Option<Micros>, Answer), String> {
    match rows.first() {
        Some(row) => Ok((time(&rows), Answer::Moved(row.get(1)))),
        None => Err("no such row".to_owned()),
    }
}

fn columns(id_map: &IdMap, given: &[Instruction]) -> [Vec<String>; 5] {
    let mut columns: [Vec<String>; 5] = Default::default();
    for instruction in given {
        let mut values = id_map.identity(instruction);
        if instruction.rail >= RAILS {
            values[3] = "an unregistered rail".to_owned();
        }
        if instruction.malformed {
            values[4] = "[]".to_owned();
        }
        for (column, value) in columns.iter_mut().zip(values) {
            column.push(value);
        }
    }
    columns
}

fn enqueued(row: &Row, id_map: &mut IdMap) -> Enqueued {
    Enqueued {
        outbox: id_map.outbox(row.get(1)),
        sequence: row.get(2),
        created_at: row.get(3),
        replayed: row.get(4),
    }
}

fn leased(row: &Row, id_map: &mut IdMap) -> Option<Leased> {
    Some(Leased {
        outbox: id_map.outbox(row.get::<_, Option<String>>(1)?),
        lease: id_map.lease(row.get(2)),
        sequence: row.get(3),
        attempt_count: row.get(4),
        lease_expires_at: row.get(5),
        outcome_unknown: row.get(6),
        identity: [7, 8, 9, 10, 11].map(|column| row.get(column)),
    })
}

fn completed(row: &Row, id_map: &mut IdMap, worker: &str) -> Result<Completed, &'static str> {
    if let Some(refusal) = row.get::<_, Option<&str>>(5) {
        let known = ["P7001", "P7002", "P7003", "P7005"];
        return Err(known.into_iter().find(|code| *code == refusal).unwrap_or("no refusal that we know"));
    }
    Ok(Completed {
        outbox: id_map.outbox(row.get(1)),
        attempt_no: row.get(2),
        state: attempt_state(row.get(3)),
        next_attempt_at: row.get(4),
        worker: worker.to_owned(),
    })
}

pub(crate) fn attempt_state(name: &str) -> AttemptState {
    let all =
        [AttemptState::Dispatched, AttemptState::Failed, AttemptState::Retryable, AttemptState::ZombieRequeue];
    all.into_iter().find(|state| state.name() == name).unwrap()
}

fn json(policy: &Policy) -> String {
    let cap = policy.max_in_flight.map_or("null".to_owned(), |cap| cap.to_string());
    format!(
        r#"{{"max_attempts": {}, "backoff_base_seconds": {}, "backoff_cap_seconds": {}, "ordered": {}, "max_in_flight": {cap}}}"#,
        policy.max_attempts, policy.backoff_base_seconds, policy.backoff_cap_seconds, policy.ordered
    )
}
