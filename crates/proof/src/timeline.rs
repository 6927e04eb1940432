//! The events of every outbox, folded, give its current state.

use std::collections::BTreeMap;
use std::fmt;

use super::evidence::{Evidence, Failure, Recorder, require};
use super::seeded_rng::{rerun_hint, seed};
use super::sessions::Sessions;
use super::workload;
use symphony_testkit::test_database::Database;

/// The state of an outbox, folded from its events or read from the tables.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    phase: String,
    attempts: i32,
    worker: Option<String>,
    redriven_as: Option<String>,
    redrive_of: Option<String>,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Proof 5: `folding_the_events_gives_the_current_state_of_every_outbox`.
pub(super) async fn folds(database: &Database) -> Result<Evidence, Failure> {
    let seed = seed();
    let tally = workload::run(database, seed).await?;
    let mut recorder = Recorder::default();
    let auditor = database.connect_as("symphony_auditor").await?;
    let owner = Sessions::connect(database).await?.owner;

    let timeline =
        "select outbox_id::text, event_no, event, state::text, worker_id, related_outbox_id::text, attempt_no
                 from symphony.payment_outbox_events order by outbox_id, event_no";
    let timeline = auditor.query(timeline, &[]).await?;
    let mut folded: BTreeMap<String, (i32, State)> = BTreeMap::new();
    for row in &timeline {
        let outbox_id: String = row.get(0);
        let (next, state) = folded.entry(outbox_id.clone()).or_default();
        // A confirmation has ended no lease: the number of its claim is missing.
        if row.get::<_, &str>(2) == "CONFIRMED" && state.phase == "PENDING" {
            *next += 1;
        }
        require(|| format!("reading the events of {outbox_id} in order"), *next, row.get(1))?;
        *next += 1;
        fold(state, row.get(2), row.get(3), row.get(4), row.get(5))?;
        let number: Option<i32> = row.get(6);
        if row.get::<_, &str>(2).starts_with("ATTEMPT") {
            require(
                || format!("numbering the attempts of {outbox_id}"),
                state.attempts,
                number.unwrap_or_default(),
            )?;
        }
    }

    let present = "select p.outbox_id::text, case when lease_token is null then 'PENDING' else 'LEASED' end, attempt_count,
                          claimed_by, null::text, redrive_of::text
                   from symphony.payment_outbox_pending p
                   union all
                   select a.outbox_id::text, a.state::text, a.attempt_no - (a.error_code is not distinct from 'CANCELLED')::int, null, r.new_outbox_id::text, f.outbox_id::text
                   from symphony.payment_outbox_attempts a
                   left join symphony.payment_outbox_operations r on r.outbox_id = a.outbox_id and r.operation = 'REDRIVE'
                   left join symphony.payment_outbox_operations f on f.new_outbox_id = a.outbox_id
                   where a.state in ('DISPATCHED', 'FAILED')";
    let mut phases: BTreeMap<String, i64> = BTreeMap::new();
    let rows = owner.query(present, &[]).await?;
    for row in &rows {
        let outbox_id: String = row.get(0);
        let state = State {
            phase: row.get(1),
            attempts: row.get(2),
            worker: row.get(3),
            redriven_as: row.get(4),
            redrive_of: row.get(5),
        };
        *phases.entry(state.phase.clone()).or_default() += 1;
        let expected = folded.remove(&outbox_id).unwrap_or_default().1;
        require(|| format!("folding the events of {outbox_id} ({})", rerun_hint(seed)), state, expected)?;
    }
    let left: Vec<_> = folded.keys().collect();
    recorder.check(
        format!(
            "folding the {} events of {} outboxes, {} of them redrives, after a random workload ({})",
            timeline.len(),
            rows.len(),
            tally.redriven,
            rerun_hint(seed)
        ),
        "the state of each in the tables, and no events of any other outbox",
        format!("{} are equal: {phases:?}; without a row: {left:?}", rows.len()),
        left.is_empty() && i64::try_from(rows.len()) == Ok(tally.made),
    )?;
    recorder.check(
        "counting the phases after the workload",
        "each of the 4 at least once, and a redrive",
        format!("{phases:?}, {} redriven", tally.redriven),
        phases.len() == 4 && tally.redriven > 0,
    )?;
    Ok(recorder.finish())
}

/// Applies an event to a state. An event that cannot follow is a failure.
fn fold(
    state: &mut State,
    event: &str,
    outcome: Option<String>,
    worker: Option<String>,
    related: Option<String>,
) -> Result<(), Failure> {
    let from = state.phase.clone();
    match (event, from.as_str()) {
        ("ENQUEUED", "") => {
            state.phase = "PENDING".into();
            state.redrive_of = related;
        }
        ("LEASE_CLAIMED", "PENDING") => {
            state.phase = "LEASED".into();
            state.worker = worker;
        }
        ("ATTEMPT_COMPLETED" | "LEASE_EXPIRED_REPAIRED", "LEASED") => {
            state.phase = match outcome.as_deref() {
                Some("RETRYABLE" | "ZOMBIE_REQUEUE") => "PENDING".into(),
                other => other.unwrap_or("nothing").to_owned(),
            };
            require(|| format!("the worker of {event}"), format!("{:?}", state.worker), format!("{worker:?}"))?;
            state.worker = None;
            state.attempts += 1;
        }
        ("CONFIRMED", "PENDING" | "LEASED") => {
            state.phase = outcome.unwrap_or_default();
            state.worker = None;
            state.attempts += 1;
        }
        ("CANCELLED", "PENDING") => state.phase = outcome.unwrap_or_default(),
        ("REDRIVEN", "FAILED") => state.redriven_as = related,
        _ => {
            return Err(Failure {
                tried: "folding the events of an outbox".into(),
                expected: format!("an event that can follow {from:?}"),
                happened: event.to_owned(),
            });
        }
    }
    Ok(())
}
