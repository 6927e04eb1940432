//! Compares all committed state with the model: ledger, sequences, rails, operations, and the views.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use super::id_map::IdMap;
use super::pending;
use super::reference::{Attempt, AttemptState, Micros, Outbox, OutboxNo, Policy, State};
use super::sessions::{Caller, Sessions, attempt_state};

/// Compares all of it.
pub(crate) async fn audit(sessions: &mut Sessions, committed: &mut State) -> Result<(), String> {
    let (owner, id_map) = sessions.owner();
    let queue = pending::read(owner, id_map).await;
    pending::compare(committed, &queue, id_map)?;
    ledger(owner, id_map, committed).await?;
    same("sequences", sequences(owner, id_map).await, committed.next_sequence.clone())?;
    same("rails", rails(owner).await, committed.rails.clone())?;
    same("operations", operations(owner, id_map).await, committed.operations())?;
    dead_letters(owner, id_map, committed).await?;
    same("the fold of the events", timeline(owner, id_map).await, committed.timeline())?;
    statuses(owner, id_map, committed).await?;
    conservation(owner, id_map, committed).await
}

fn same<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}:\n  expected {expected:?}\n  found    {found:?}")) }
}

/// The participants of this sequence.
fn participants(id_map: &IdMap) -> Vec<String> {
    (0..2).map(|no| id_map.participant(no)).collect()
}

async fn ledger(owner: &mut Caller, id_map: &mut IdMap, state: &State) -> Result<(), String> {
    let sql = "select outbox_id::text, attempt_no, state::text, error_code, rail_reference, worker_id,
                      micros(claimed_at), micros(completed_at), instruction_id, participant_id, idempotency_key,
                      rail_type, payload::text, sequence_id, micros(created_at)
               from symphony.payment_outbox_attempts
               where participant_id = any ($1)
               order by outbox_id, attempt_no";
    let mut found: BTreeMap<OutboxNo, Vec<Attempt>> = BTreeMap::new();
    for row in owner.rows(sql, &[&participants(id_map)]).await? {
        let no = id_map.outbox(row.get(0));
        let Some(outbox) = state.outboxes.get(&no) else {
            return Err(format!("outbox {no} is in the ledger and was never committed"));
        };
        let as_it_was: ([String; 5], i64, Micros) =
            ([8, 9, 10, 11, 12].map(|column| row.get(column)), row.get(13), row.get(14));
        let identity = (id_map.identity(&outbox.what), outbox.sequence, outbox.created_at);
        same(&format!("outbox {no} in the ledger"), as_it_was, identity)?;
        let attempts = found.entry(no).or_default();
        // By the clock: not before its transaction began.
        let begun = outbox.attempts.get(attempts.len()).map(|attempt| attempt.completed_at);
        let completed_at: Micros = row.get(7);
        attempts.push(Attempt {
            no: row.get(1),
            state: attempt_state(row.get(2)),
            error_code: row.get(3),
            rail_reference: row.get(4),
            worker: row.get(5),
            claimed_at: row.get(6),
            completed_at: begun.filter(|begun| *begun <= completed_at).unwrap_or(completed_at),
        });
    }
    for (no, outbox) in &state.outboxes {
        let attempts = found.remove(no).unwrap_or_default();
        same(&format!("the ledger of outbox {no}"), &attempts, &outbox.attempts)?;
    }
    Ok(())
}

async fn sequences(owner: &mut Caller, id_map: &IdMap) -> BTreeMap<usize, i64> {
    let sql = "select participant_id, next_sequence_id from symphony.participant_outbox_sequences
               where participant_id = any ($1)";
    let participants = participants(id_map);
    let rows = owner.rows(sql, &[&participants]).await.unwrap();
    let no = |name: &str| participants.iter().position(|other| other == name).unwrap();
    rows.iter().map(|row| (no(row.get(0)), row.get(1))).collect()
}

async fn rails(owner: &mut Caller) -> BTreeMap<usize, Policy> {
    let sql = "select max_attempts, backoff_base_seconds, backoff_cap_seconds, ordered, max_in_flight, paused
               from symphony.payment_rail_policies
               order by rail_type";
    let rows = owner.rows(sql, &[]).await.unwrap();
    let policy = |row: &tokio_postgres::Row| Policy {
        max_attempts: row.get(0),
        backoff_base_seconds: row.get(1),
        backoff_cap_seconds: row.get(2),
        ordered: row.get(3),
        max_in_flight: row.get(4),
        paused: row.get(5),
    };
    rows.iter().map(policy).enumerate().collect()
}

/// Redrives and resolutions, by outbox: the new outbox, or the resolution.
type Operations = BTreeMap<OutboxNo, Vec<(Option<OutboxNo>, Option<String>)>>;

async fn operations(owner: &mut Caller, id_map: &mut IdMap) -> Operations {
    let sql = "select outbox_id::text, new_outbox_id::text, resolution
               from symphony.payment_outbox_operations_log
               where outbox_id = any ($1::text[]::uuid[])
               order by created_at, operation_id";
    let ids = id_map.all_outboxes().to_vec();
    let mut found = Operations::new();
    for row in owner.rows(sql, &[&ids]).await.unwrap() {
        let new = row.get::<_, Option<String>>(1).map(|id| id_map.outbox(id));
        found.entry(id_map.outbox(row.get(0))).or_default().push((new, row.get(2)));
    }
    for done in found.values_mut() {
        // Within one transaction they are of the same time.
        done.sort();
    }
    found
}

async fn dead_letters(owner: &mut Caller, id_map: &mut IdMap, state: &State) -> Result<(), String> {
    let sql = "select outbox_id::text, outcome_unknown, micros(failed_at), attempt_no, error_code
               from symphony.payment_outbox_dlq
               where participant_id = any ($1)";
    let mut found = BTreeSet::new();
    let mut order = Vec::new();
    for row in owner.rows(sql, &[&participants(id_map)]).await? {
        order.push((!row.get::<_, bool>(1), row.get::<_, Micros>(2)));
        found.insert((id_map.outbox(row.get(0)), row.get::<_, i32>(3), row.get::<_, Option<String>>(4)));
    }
    if !order.is_sorted() {
        return Err(format!("the dead letters are out of order: {order:?}"));
    }
    let dead = |(no, outbox): (&OutboxNo, &Outbox)| {
        let untouched = outbox.redriven_as.is_none() && outbox.resolutions.is_empty();
        let last = outbox.attempts.last().filter(|last| untouched && last.state == AttemptState::Failed)?;
        Some((*no, last.no, last.error_code.clone()))
    };
    same("the dead letters", found, state.outboxes.iter().filter_map(dead).collect())
}

/// The state that the events of an outbox fold to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Timeline {
    attempts: i32,
    leased_to: Option<String>,
    ended_as: Option<AttemptState>,
    redrive_of: Option<OutboxNo>,
    redriven_as: Option<OutboxNo>,
}

async fn timeline(owner: &mut Caller, id_map: &mut IdMap) -> BTreeMap<OutboxNo, Timeline> {
    let sql = "select outbox_id::text, event, attempt_no, state::text, worker_id, related_outbox_id::text
               from symphony.payment_outbox_events
               where participant_id = any ($1)
               order by outbox_id, event_no";
    let mut stories: BTreeMap<OutboxNo, Timeline> = BTreeMap::new();
    for row in owner.rows(sql, &[&participants(id_map)]).await.unwrap() {
        let timeline = stories.entry(id_map.outbox(row.get(0))).or_default();
        let related = row.get::<_, Option<String>>(5).map(|id| id_map.outbox(id));
        match row.get(1) {
            "ENQUEUED" => *timeline = Timeline { redrive_of: related, ..Timeline::default() },
            "LEASE_CLAIMED" => timeline.leased_to = row.get(4),
            "ATTEMPT_COMPLETED" | "LEASE_EXPIRED_REPAIRED" => {
                timeline.leased_to = None;
                timeline.attempts = row.get(2);
                timeline.ended_as = Some(attempt_state(row.get(3))).filter(|state| state.terminal());
            }
            "REDRIVEN" => timeline.redriven_as = related,
            other => panic!("there is no event {other}"),
        }
    }
    stories
}

/// The status view of each pending row, and the totals.
async fn statuses(owner: &mut Caller, id_map: &mut IdMap, state: &State) -> Result<(), String> {
    let sql = "select micros(now()), outbox_id::text, status, last_attempt_no, outcome_unknown
               from symphony.outbox_operational_status";
    let mut now = Micros::MIN;
    let mut found = BTreeMap::new();
    for row in owner.rows(sql, &[]).await? {
        now = row.get(0);
        let status: (String, Option<i32>, bool) = (row.get(2), row.get(3), row.get(4));
        found.insert(id_map.outbox(row.get(1)), status);
    }
    let expected = state.pending().map(|(no, outbox)| {
        let last = outbox.attempts.last().map(|last| last.no);
        (no, (state.status(outbox, now).to_owned(), last, outbox.outcome_unknown()))
    });
    same("the status of each", found, expected.collect())?;

    let sql = "select micros(now()), due_unleased_count, leased_count, expired_lease_count, scheduled_count
               from symphony.supervisor_outbox_status";
    let rows = owner.rows(sql, &[]).await?;
    let now: Micros = rows[0].get(0);
    let count = |counted: &dyn Fn(&Outbox) -> bool| {
        i64::try_from(state.pending().filter(|(_, outbox)| counted(outbox)).count()).unwrap_or(i64::MAX)
    };
    let unleased = |outbox: &Outbox, due| {
        outbox.pending.as_ref().is_some_and(|p| p.lease.is_none() && (p.next_attempt_at <= now) == due)
    };
    let expected = [
        count(&|outbox| unleased(outbox, true)),
        count(&|outbox| outbox.live_lease(now).is_some()),
        count(&|outbox| outbox.expired_lease(now).is_some()),
        count(&|outbox| unleased(outbox, false)),
    ];
    same("the totals due, leased, expired, scheduled", [1, 2, 3, 4].map(|column| rows[0].get(column)), expected)
}

/// Every granted lease is live, was released, or has its ledger row.
async fn conservation(owner: &mut Caller, id_map: &mut IdMap, state: &State) -> Result<(), String> {
    let sql = "select (select count(*) from symphony.payment_outbox_attempts where participant_id = any ($1)),
                      (select count(*) from symphony.payment_outbox_pending where lease_token is not null)";
    let rows = owner.rows(sql, &[&participants(id_map)]).await?;
    let ended = usize::try_from(rows[0].get::<_, i64>(0)).unwrap_or(usize::MAX);
    let there = usize::try_from(rows[0].get::<_, i64>(1)).unwrap_or(usize::MAX);
    let given_back = state.given_back.len();
    if state.granted.len() == there + given_back + ended {
        return Ok(());
    }
    let granted = state.granted.len();
    Err(format!(
        "{granted} leases were granted, but {there} are there, {given_back} given back, {ended} in the ledger"
    ))
}

impl State {
    fn operations(&self) -> Operations {
        let mut all = Operations::new();
        for (no, outbox) in &self.outboxes {
            let redrive = outbox.redriven_as.map(|new| (Some(new), None));
            let resolutions = outbox.resolutions.iter().map(|resolution| (None, Some((*resolution).to_owned())));
            let mut done: Vec<_> = redrive.into_iter().chain(resolutions).collect();
            done.sort();
            if !done.is_empty() {
                all.insert(*no, done);
            }
        }
        all
    }

    fn timeline(&self) -> BTreeMap<OutboxNo, Timeline> {
        let timeline = |outbox: &Outbox| Timeline {
            attempts: outbox.attempts.last().map_or(0, |last| last.no),
            leased_to: outbox.pending.as_ref().and_then(|p| p.lease.as_ref()).map(|lease| lease.worker.clone()),
            ended_as: outbox.ended_as(),
            redrive_of: outbox.redrive_of,
            redriven_as: outbox.redriven_as,
        };
        self.outboxes.iter().map(|(&no, outbox)| (no, timeline(outbox))).collect()
    }

    fn status(&self, outbox: &Outbox, now: Micros) -> &'static str {
        let rail = &self.rails[&outbox.what.rail];
        let due = outbox.pending.as_ref().is_some_and(|pending| pending.next_attempt_at <= now);
        if outbox.live_lease(now).is_some() {
            "LEASED"
        } else if outbox.expired_lease(now).is_some() {
            "LEASE_EXPIRED"
        } else if rail.paused {
            "PAUSED"
        } else if outbox.was_accepted() {
            "AWAITING_CONFIRMATION"
        } else if rail.ordered && self.waits(outbox) {
            "PARKED"
        } else if due {
            "DUE"
        } else {
            "SCHEDULED"
        }
    }
}
