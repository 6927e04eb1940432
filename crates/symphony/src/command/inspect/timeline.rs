//! Renders an instruction's history as text: one line per event, with the time since the event before.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use symphony_db::payment::{
    AWAITING_CONFIRMATION, EventKind, OperationKind,
    reader::{Operation, Pending, TimelineEvent},
};

use super::InstructionHistory;
use symphony_console::sanitize::plain;

/// Renders the history, outbox by outbox.
pub(crate) fn text(history: &InstructionHistory) -> String {
    let mut text = format!("instruction {}\n", plain(&history.instruction_id));
    for events in history.events.chunk_by(|one, next| one.outbox_id == next.outbox_id) {
        let Some(first) = events.first() else { continue };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "\noutbox {}, participant {}, sequence {}, rail {}",
            first.outbox_id,
            plain(&first.participant_id),
            first.sequence_id,
            plain(&first.rail_type)
        );
        let mut lines = Lines { text: &mut text, last: None };
        // Operations come after the terminal state, and the audit log says more about them than the events do.
        for event in
            events.iter().filter(|event| !matches!(event.event, EventKind::Cancelled | EventKind::Redriven))
        {
            lines.push(event.occurred_at, &describe_event(event));
        }
        for operation in history.operations.iter().filter(|done| done.outbox_id == Some(first.outbox_id)) {
            lines.push(operation.created_at, &describe_operation(operation));
        }
        for pending in history.pending.iter().filter(|pending| pending.outbox_id == first.outbox_id) {
            let _ = writeln!(text, "  now: {}", describe_pending(pending));
        }
    }
    for archived in &history.archived {
        let at = archived.archived_at.strftime("%Y-%m-%d");
        let place = plain(&archived.location);
        let _ = if archived.is_registered {
            let key = archived.idempotency_key.as_deref().map(plain).unwrap_or_default();
            writeln!(
                text,
                "\noutbox {}, key {key}\n  its ledger rows were archived on {at}, in {place}",
                archived.outbox_id
            )
        } else {
            writeln!(
                text,
                "\noutbox {}\n  unknown here; the ledger rows of its time were archived on {at}, in {place}",
                archived.outbox_id
            )
        };
    }
    text
}

struct Lines<'a> {
    text: &'a mut String,
    last: Option<Timestamp>,
}

impl Lines<'_> {
    fn push(&mut self, at: Timestamp, words: &str) {
        let after = self.last.map(|last| format!("+{}", span(at.duration_since(last)))).unwrap_or_default();
        let _ = writeln!(self.text, "  {}  {after:>9}  {words}", time(at));
        self.last = Some(at);
    }
}

fn describe_event(event: &TimelineEvent) -> String {
    let attempt = event.attempt_no.map(|number| format!("attempt {number}")).unwrap_or_default();
    let worker = event.worker_id.as_deref().map(plain).unwrap_or_default();
    match event.event {
        EventKind::Enqueued => match event.related_outbox_id {
            Some(failure) => format!("ENQUEUED by a redrive of {failure}"),
            None => "ENQUEUED".to_owned(),
        },
        EventKind::LeaseClaimed => {
            let endpoint = event.endpoint.as_deref().map(|at| format!(", to {}", plain(at))).unwrap_or_default();
            format!("CLAIMED by {worker}, {attempt}{endpoint}")
        }
        EventKind::AttemptCompleted if event.error_code.as_deref() == Some(AWAITING_CONFIRMATION) => {
            format!("ACCEPTED by the rail, reported by {worker}, {attempt}{}", outcome(event))
        }
        EventKind::AttemptCompleted => format!("{} by {worker}, {attempt}{}", state(event), outcome(event)),
        EventKind::Confirmed => {
            format!("{}: confirmed by the rail, received by {worker}{}", state(event), outcome(event))
        }
        EventKind::LeaseExpiredRepaired => {
            format!("{}: the lease of {worker} expired, {attempt}{}", state(event), outcome(event))
        }
        EventKind::Cancelled | EventKind::Redriven => String::new(),
    }
}

fn state(event: &TimelineEvent) -> &'static str {
    event.state.map_or("COMPLETED", |state| state.as_str())
}

fn outcome(event: &TimelineEvent) -> String {
    let mut words = String::new();
    let mut say = |what: &str, value: Option<&str>| {
        if let Some(value) = value {
            let _ = write!(words, ", {what} {}", plain(value));
        }
    };
    say("rail reference", event.rail_reference.as_deref());
    say("rail code", event.rail_code.as_deref());
    say("error", event.error_code.as_deref());
    say("callback", event.confirmation_id.as_deref());
    if let Some(latency) = event.latency_ms {
        say("after", Some(&format!("{latency} ms")));
    }
    say("login", event.database_user.as_deref());
    if let Some(message) = &event.error_message {
        let _ = write!(words, ": {}", plain(message));
    }
    words
}

fn describe_operation(operation: &Operation) -> String {
    let what = match (operation.operation, operation.resolution, operation.new_outbox_id) {
        (OperationKind::Redrive, _, Some(new)) => format!("REDRIVEN as {new}{}", new_key(operation)),
        (OperationKind::Cancel, _, _) => "CANCELLED before it was sent".to_owned(),
        (OperationKind::Resolve, Some(resolution), _) => format!("RESOLVED as {resolution}"),
        (OperationKind::Erase, _, _) => "PAYLOAD ERASED".to_owned(),
        (other, _, _) => other.to_string(),
    };
    let Operation { actor, database_user, reason, .. } = operation;
    format!("{what} by {} (login {}): {}", plain(actor), plain(database_user), plain(reason))
}

/// The key that a redrive gave the payment, if it is another.
fn new_key(operation: &Operation) -> String {
    let Some(after) = &operation.policy_after else { return String::new() };
    let key = after["idempotency_key"].as_str().map(plain).unwrap_or_default();
    let payload = if after["payload_replaced"] == true { " and a new payload" } else { "" };
    format!(" under the new key {key}{payload}")
}

fn describe_pending(pending: &Pending) -> String {
    let lease = pending.lease_expires_at.map(|at| format!(", lease until {}", time(at))).unwrap_or_default();
    let due = if lease.is_empty() { format!(", due at {}", time(pending.next_attempt_at)) } else { lease };
    if let Some(at) = pending.accepted_at {
        let at = time(at);
        return format!(
            "{}{due}; accepted by the rail at {at}: it is not paid yet, and is not sent again",
            pending.status
        );
    }
    let unknown = if pending.outcome_unknown { "; unknown outcome: it may have been paid" } else { "" };
    format!("{}{due}{unknown}", pending.status)
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S%.3fZ").to_string()
}

/// A duration in at most two units.
fn span(duration: SignedDuration) -> String {
    // A server's clock may be set back.
    let duration = duration.max(SignedDuration::ZERO);
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    match seconds {
        ..=0 => format!("{millis}ms"),
        1..60 => format!("{seconds}.{millis:03}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units_at_most() {
        let shown = |millis| span(SignedDuration::from_millis(millis));
        assert_eq!(shown(7), "7ms");
        assert_eq!(shown(-7), "0ms");
        assert_eq!(shown(1_234), "1.234s");
        assert_eq!(shown(125_999), "2m05s");
        assert_eq!(shown(3_661_000), "1h01m");
        assert_eq!(shown(93_600_000), "1d02h");
    }

    #[test]
    fn times_are_in_utc_to_the_millisecond() {
        let at: Timestamp = "2026-11-15T12:00:00.1234+02:00".parse().unwrap();
        assert_eq!(time(at), "2026-11-15 10:00:00.123Z");
    }
}
