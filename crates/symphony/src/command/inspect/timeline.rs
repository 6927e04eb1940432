//! A story as people read it: one line per event, with how long after the one before.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use symphony_outbox::payment::{
    EventKind, OperationKind,
    reading::{Event, Operation, Pending},
};

use super::Story;
use crate::output::plain;

/// The story of every outbox, one after the other.
pub(crate) fn text(story: &Story) -> String {
    let mut text = format!("instruction {}\n", plain(&story.instruction_id));
    for events in story.events.chunk_by(|one, next| one.outbox_id == next.outbox_id) {
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
        // What people do, they do after the end; their own log says more about a redrive than the event.
        for event in events.iter().filter(|event| event.event != EventKind::Redriven) {
            lines.push(event.occurred_at, &happened(event));
        }
        for operation in story.operations.iter().filter(|done| done.outbox_id == Some(first.outbox_id)) {
            lines.push(operation.created_at, &was_done(operation));
        }
        for pending in story.pending.iter().filter(|pending| pending.outbox_id == first.outbox_id) {
            let _ = writeln!(text, "  now: {}", does(pending));
        }
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

fn happened(event: &Event) -> String {
    let attempt = event.attempt_no.map(|number| format!("attempt {number}")).unwrap_or_default();
    let worker = event.worker_id.as_deref().map(plain).unwrap_or_default();
    match event.event {
        EventKind::Enqueued => match event.related_outbox_id {
            Some(failure) => format!("ENQUEUED by a redrive of {failure}"),
            None => "ENQUEUED".to_owned(),
        },
        EventKind::LeaseClaimed => format!("CLAIMED by {worker}, {attempt}"),
        EventKind::AttemptCompleted => format!("{} by {worker}, {attempt}{}", state(event), outcome(event)),
        EventKind::LeaseExpiredRepaired => {
            format!("{}: the lease of {worker} ran out, {attempt}{}", state(event), outcome(event))
        }
        EventKind::Redriven => String::new(),
    }
}

fn state(event: &Event) -> &'static str {
    event.state.map_or("COMPLETED", |state| state.as_str())
}

fn outcome(event: &Event) -> String {
    let mut words = String::new();
    let mut say = |what: &str, value: Option<&str>| {
        if let Some(value) = value {
            let _ = write!(words, ", {what} {}", plain(value));
        }
    };
    say("rail reference", event.rail_reference.as_deref());
    say("rail code", event.rail_code.as_deref());
    say("error", event.error_code.as_deref());
    if let Some(latency) = event.latency_ms {
        say("after", Some(&format!("{latency} ms")));
    }
    say("login", event.database_user.as_deref());
    if let Some(message) = &event.error_message {
        let _ = write!(words, ": {}", plain(message));
    }
    words
}

fn was_done(operation: &Operation) -> String {
    let what = match (operation.operation, operation.resolution, operation.new_outbox_id) {
        (OperationKind::Redrive, _, Some(new)) => format!("REDRIVEN as {new}"),
        (OperationKind::Resolve, Some(resolution), _) => format!("RESOLVED as {resolution}"),
        (other, _, _) => other.to_string(),
    };
    let Operation { actor, database_user, reason, .. } = operation;
    format!("{what} by {} (login {}): {}", plain(actor), plain(database_user), plain(reason))
}

fn does(pending: &Pending) -> String {
    let lease = pending.lease_expires_at.map(|at| format!(", lease until {}", time(at))).unwrap_or_default();
    let due = if lease.is_empty() { format!(", due at {}", time(pending.next_attempt_at)) } else { lease };
    let unknown = if pending.outcome_unknown { "; nobody knows whether it was paid" } else { "" };
    format!("{}{due}{unknown}", pending.status)
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S%.3fZ").to_string()
}

/// A duration in two units at most, which is as much as an eye takes in.
fn span(duration: SignedDuration) -> String {
    // The clock of a server may be set back.
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
