//! Sentences of the dashboard that depend on the state of a row: headlines, next steps and timeline entries.
//!
//! Fixed labels are in `templates/`.

use symphony_db::event::reader::EventState;
use symphony_db::metadata::Status;
use symphony_db::metadata::reader::MetadataEntry;
use symphony_db::payment::reader::{Operation, Outbox, TimelineEvent};
use symphony_db::payment::{
    AWAITING_CONFIRMATION, AttemptState, EventKind, OperationKind, OutboxState, Resolution,
};

use super::outbox_row::tone;
use super::percent_encode;
use super::time::{clock, millis, span};
use crate::api::MetadataDetails;

/// The state of a row in one sentence, and the operator's next step.
pub(super) struct Summary {
    pub(super) tone: &'static str,
    pub(super) headline: String,
    pub(super) next_step: String,
    /// The page of the next step and its label, if it is another page.
    pub(super) link: Option<(String, &'static str)>,
}

impl Summary {
    fn new(tone: &'static str, headline: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { tone, headline: headline.into(), next_step: next_step.into(), link: None }
    }

    fn with_link(self, path: String, label: &'static str) -> Self {
        Self { link: Some((path, label)), ..self }
    }
}

/// What the page of a payment says first.
pub(super) fn outbox_summary(outbox: &Outbox) -> Summary {
    let tone = tone(outbox.state, outbox.outcome_unknown);
    match outbox.state {
        OutboxState::Dispatched => Summary::new("ok", "Dispatched: the bank executed it.", "Nothing to do."),
        OutboxState::Failed => failed_summary(outbox),
        OutboxState::Due => {
            let waits = jiff::Timestamp::now().duration_since(outbox.next_attempt_at.unwrap_or(outbox.created_at));
            Summary::new(
                tone,
                format!("Due for {}: the next claim can take it.", span(waits)),
                "Nothing to do. If it stays due: check that a relayer serves its rail, and the rail's in-flight limit.",
            )
        }
        OutboxState::Leased => Summary::new(
            tone,
            format!("Leased: {} is dispatching it.", outbox.worker_id.as_deref().unwrap_or("a relayer")),
            "Nothing to do: the relayer records the result. If its lease expires, another relayer sends an inquiry first.",
        ),
        OutboxState::LeaseExpired => Summary::new(
            tone,
            "Lease expired: the relayer recorded no result. The payment may have been made.",
            "Nothing to do while a relayer runs: the next one takes it over and sends an inquiry before it sends again.",
        ),
        OutboxState::Scheduled => {
            let at = outbox.next_attempt_at.map(clock).unwrap_or_default();
            let why = outbox.error_code.as_deref().map(|code| format!(" after {code}")).unwrap_or_default();
            let next_step = if outbox.outcome_unknown {
                "Nothing to do: the last attempt has an unknown outcome, so the relayer sends an inquiry first."
            } else {
                "Nothing to do: the error may be temporary."
            };
            Summary::new(tone, format!("Scheduled{why}: next attempt at {at}."), next_step)
        }
        OutboxState::AwaitingConfirmation => {
            let at = outbox.next_attempt_at.map(clock).unwrap_or_default();
            Summary::new(
                tone,
                format!("Accepted by the rail, awaiting confirmation: next inquiry at {at}. It is not paid yet."),
                "Nothing to do: relayers only inquire, or the bank sends a callback. Without a confirmation within the rail's max \
                 attempts it becomes a dead letter with an unknown outcome.",
            )
        }
        OutboxState::Parked => Summary::new(
            tone,
            "Parked (head-of-line): an earlier payment of the same participant is not finished.",
            "Nothing to do here: this rail is ordered.",
        )
        .with_link(
            format!("/participants/{}", percent_encode(&outbox.participant_id)),
            "See the earlier payments.",
        ),
        OutboxState::HeldByFailure => Summary::new(
            tone,
            "Held by a failure: an earlier payment of the same participant has failed.",
            "Redrive, resolve or skip the earlier payment: on this rail it holds the later ones.",
        )
        .with_link(
            format!("/participants/{}", percent_encode(&outbox.participant_id)),
            "See the earlier payments.",
        ),
        OutboxState::Paused => Summary::new(tone, "Its rail is paused.", "Resume the rail to dispatch it.")
            .with_link("/rails".to_owned(), "Go to the rails."),
        OutboxState::Held => Summary::new(
            tone,
            "Its rail is held since a new epoch: the database may have lost attempts of this payment.",
            "Compare the rail with the bank, then release it: symphony recover release.",
        )
        .with_link("/rails".to_owned(), "Go to the rails."),
    }
}

/// Whether it ended by a cancellation: it was never sent, and is no failure.
pub(super) fn is_cancelled(outbox: &Outbox) -> bool {
    outbox.state == OutboxState::Failed && outbox.error_code.as_deref() == Some("CANCELLED")
}

fn failed_summary(outbox: &Outbox) -> Summary {
    if let Some(other) = outbox.redriven_as {
        return Summary::new("retry", "It failed and was redriven.", "It continues as another outbox.")
            .with_link(format!("/outboxes/{other}"), "Open it.");
    }
    if is_cancelled(outbox) {
        return Summary::new(
            "wait",
            "Cancelled before it was sent.",
            "Nothing to do. Enqueue a new instruction if it is to be paid after all.",
        );
    }
    match outbox.resolution {
        Some(Resolution::Paid) => {
            Summary::new("ok", "Resolved as PAID by an operator.", "Nothing to do: it cannot be redriven.")
        }
        Some(Resolution::NotPaid) if outbox.payload_erased_at.is_some() => Summary::new(
            "wait",
            "Resolved as NOT_PAID by an operator; its payload was erased since.",
            "Nothing to do: it cannot be redriven. Enqueue a new instruction if it is still to be paid.",
        ),
        Some(Resolution::NotPaid) => Summary::new(
            "bad",
            "Resolved as NOT_PAID by an operator.",
            "Redrive it below if it is still to be paid.",
        ),
        Some(Resolution::Skipped) => Summary::new(
            "wait",
            "It failed without a payment. An operator skipped it.",
            "Nothing to do. Enqueue a new instruction if it is to be paid after all.",
        ),
        None if outbox.outcome_unknown => Summary::new(
            "bad",
            "Unknown outcome: the payment may have been made.",
            format!(
                "Ask the bank about the idempotency key {}. Then record its answer below. A payment that was not made \
                 can be redriven after that.",
                outbox.idempotency_key
            ),
        ),
        None => Summary::new(
            "bad",
            format!(
                "Failed: no payment was made ({}).",
                outbox.error_code.as_deref().unwrap_or("no error code was recorded")
            ),
            "Remove the cause, then redrive it below, or resolve it as SKIPPED.",
        ),
    }
}

/// What the page of an event says first.
pub(super) fn event_summary(event: &EventState) -> String {
    match (event.processed_at, event.process_after) {
        (Some(at), _) => format!("Published at {}. Nothing to do.", clock(at)),
        (None, _) if event.claimed_at.is_some() => {
            "A relayer is publishing it. If that takes more than 5 minutes, another relayer takes it over."
                .to_owned()
        }
        (None, Some(at)) if at == jiff::Timestamp::UNIX_EPOCH => {
            "Parked: an earlier event of its aggregate waits for its retry. Nothing to do here: check that one."
                .to_owned()
        }
        (None, Some(at)) => format!(
            "Failed {} times; next attempt at {}. Retries do not end. Nothing to do here: check the broker.",
            event.retry_count,
            clock(at)
        ),
        (None, None) => {
            "Due: the next claim can take it. If it stays due: check that a relayer has a route for it.".to_owned()
        }
    }
}

/// What the page of a metadata entry says first.
pub(super) fn metadata_summary(details: &MetadataDetails, tone: &'static str) -> Summary {
    let entry = &details.entry;
    let is_superseded = details
        .versions
        .iter()
        .any(|other| other.created_at > entry.created_at && other.status == Status::Published);
    match entry.status {
        Status::Published => Summary::new(tone, "Published: the second store has it.", "Nothing to do."),
        Status::Pending => Summary::new(
            tone,
            "Due: the next claim can take it.",
            "Nothing to do. If it stays due: check that a relayer has a route for it.",
        ),
        Status::Processing => Summary::new(
            tone,
            format!("{} is writing it now.", entry.claimed_by.as_deref().unwrap_or("A relayer")),
            "Nothing to do: if it records no result within 5 minutes, the entry is retried.",
        ),
        Status::Failed => Summary::new(
            tone,
            entry.next_retry_at.map_or_else(
                || "Failed with no retries left: the next repair moves it to the DLQ.".to_owned(),
                |at| format!("Failed {} times; next attempt at {}.", entry.retry_count, clock(at)),
            ),
            "Nothing to do here: check the second store.",
        ),
        Status::Dlq if is_superseded => Summary::new(
            tone,
            "In the DLQ. A later version of the entity was published since.",
            "Nothing to do: the second store has a newer version.",
        ),
        Status::Dlq => Summary::new(
            tone,
            "In the DLQ: the second store does not have it.",
            "Entries never leave the DLQ. Remove the cause, then let the producer write the entity again as a new entry.",
        ),
    }
}

/// The tone and the title of one event on a payment's timeline.
pub(super) fn event_title(event: &TimelineEvent, outcome_unknown: bool) -> (&'static str, String) {
    let attempt = event.attempt_no.unwrap_or_default();
    match event.event {
        EventKind::Enqueued => ("wait", "Enqueued".to_owned()),
        EventKind::LeaseClaimed => {
            ("wait", format!("Attempt {attempt}: claimed by {}", event.worker_id.as_deref().unwrap_or("a worker")))
        }
        EventKind::LeaseExpiredRepaired => {
            ("bad", format!("Attempt {attempt}: the lease expired without a result; unknown outcome"))
        }
        EventKind::AttemptCompleted => match event.state {
            Some(AttemptState::Dispatched) => ("ok", format!("Attempt {attempt}: dispatched")),
            Some(AttemptState::Retryable) if event.error_code.as_deref() == Some(AWAITING_CONFIRMATION) => {
                ("wait", format!("Attempt {attempt}: accepted by the rail, awaiting confirmation"))
            }
            Some(AttemptState::Failed) if outcome_unknown => {
                ("bad", format!("Attempt {attempt}: unknown outcome"))
            }
            Some(AttemptState::Failed) => ("bad", format!("Attempt {attempt}: failed terminally")),
            Some(AttemptState::Retryable | AttemptState::ZombieRequeue) | None => {
                ("retry", format!("Attempt {attempt}: failed; retry scheduled"))
            }
        },
        EventKind::Confirmed => match event.state {
            Some(AttemptState::Dispatched) => ("ok", "Confirmed by the bank: executed".to_owned()),
            _ => ("bad", "Confirmed by the bank: refused".to_owned()),
        },
        EventKind::Cancelled => ("wait", "Cancelled before it was sent".to_owned()),
        EventKind::Redriven => ("retry", "Redriven as another outbox".to_owned()),
    }
}

/// What the ledger recorded with one event of a payment's timeline.
pub(super) fn event_details(event: &TimelineEvent) -> String {
    let mut details: Vec<String> =
        [&event.error_code, &event.error_message].into_iter().flatten().cloned().collect();
    // Once per attempt.
    let endpoint = event.endpoint.as_ref().filter(|_| event.event == EventKind::LeaseClaimed);
    details.extend(endpoint.map(|endpoint| format!("to {endpoint}")));
    details.extend(event.rail_reference.as_ref().map(|reference| format!("reference {reference}")));
    details.extend(event.rail_code.as_ref().map(|code| format!("rail code {code}")));
    details.extend(event.confirmation_id.as_ref().map(|id| format!("callback {id}")));
    details.extend(event.latency_ms.map(|length| format!("latency {}", millis(Some(i64::from(length))))));
    details.join("; ")
}

/// The tone and the title of an operator's action on a payment's timeline.
pub(super) fn operation_title(operation: &Operation) -> (&'static str, String) {
    match (operation.operation, operation.resolution) {
        (OperationKind::Redrive, _) if operation.policy_after.is_some() => {
            ("retry", "Redriven by an operator under a new key".to_owned())
        }
        (OperationKind::Redrive, _) => ("retry", "Redriven by an operator".to_owned()),
        (OperationKind::Cancel, _) => ("wait", "Cancelled before it was sent".to_owned()),
        (OperationKind::Erase, _) => ("wait", "Payload erased".to_owned()),
        (_, Some(Resolution::Paid)) => ("ok", "Resolved as PAID".to_owned()),
        (_, Some(resolution)) => ("wait", format!("Resolved as {resolution}")),
        (other, None) => ("wait", other.to_string()),
    }
}

/// The timeline of a metadata entry: tone, time and title. Of several failures the database keeps only the last.
pub(super) fn metadata_steps(entry: &MetadataEntry) -> Vec<(&'static str, jiff::Timestamp, String)> {
    let mut steps = vec![("wait", entry.created_at, "Created".to_owned())];
    if let Some(at) = entry.processing_started_at {
        let worker = entry.claimed_by.as_deref().unwrap_or("a worker");
        steps.push((
            "wait",
            at,
            format!("Last claimed by {worker}, after {} failures", failures_before_claim(entry)),
        ));
    }
    let error = entry.last_error.as_deref().unwrap_or_default();
    match entry.status {
        Status::Failed => steps.push(("retry", entry.updated_at, format!("Failed: {error}"))),
        Status::Dlq => steps.push(("bad", entry.updated_at, format!("Moved to the DLQ: {error}"))),
        Status::Published => {
            steps.push(("ok", entry.processed_at.unwrap_or(entry.updated_at), "Published".to_owned()));
        }
        Status::Pending | Status::Processing => {}
    }
    steps
}

/// How many failures were counted before the last claim.
fn failures_before_claim(entry: &MetadataEntry) -> i32 {
    match entry.status {
        Status::Failed | Status::Dlq => (entry.retry_count - 1).max(0),
        Status::Pending | Status::Processing | Status::Published => entry.retry_count,
    }
}
