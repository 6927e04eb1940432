//! What a tired person must know first about an outbox: what is so, and what to do next.

use symphony_outbox::payment::reading::Outbox;
use symphony_outbox::payment::{OutboxState, Resolution};

use super::row::tone;
use super::time::{clock, span};

/// Two sentences, and perhaps a way to go.
pub(super) struct Verdict {
    pub(super) tone: &'static str,
    pub(super) headline: String,
    pub(super) next_step: String,
    /// Where the next step is taken, if elsewhere.
    pub(super) link: Option<(String, &'static str)>,
}

impl Verdict {
    pub(super) fn of(outbox: &Outbox) -> Self {
        let tone = tone(outbox.state, outbox.outcome_unknown);
        let plain = |headline: String, next_step: &str| Self {
            tone,
            headline,
            next_step: next_step.to_owned(),
            link: None,
        };
        match outbox.state {
            OutboxState::Dispatched => {
                Self { tone: "ok", ..plain("Paid: the rail took it.".to_owned(), "Nothing is left to do.") }
            }
            OutboxState::Failed => failed(outbox),
            OutboxState::Due => {
                let waits =
                    jiff::Timestamp::now().duration_since(outbox.next_attempt_at.unwrap_or(outbox.created_at));
                let headline = format!("It waits to be claimed, for {} now.", span(waits));
                plain(
                    headline,
                    "Nothing to do. Where it waits for long: does a relayer run, and is its rail at its cap?",
                )
            }
            OutboxState::Leased => plain(
                format!("{} is sending it now.", outbox.worker_id.as_deref().unwrap_or("A relayer")),
                "Nothing to do: it records what comes of it, or its lease runs out and another asks the rail.",
            ),
            OutboxState::LeaseExpired => plain(
                "Its relayer was not heard of again. It may have been paid.".to_owned(),
                "Nothing to do while a relayer runs: the next one takes it over, and asks the rail before it sends again.",
            ),
            OutboxState::Scheduled => {
                let at = outbox.next_attempt_at.map(clock).unwrap_or_default();
                let why = outbox.error_code.as_deref().map(|code| format!(" after {code}")).unwrap_or_default();
                let next = if outbox.outcome_unknown {
                    "Nothing to do: nobody knows how the last attempt ended, and the rail is asked before it is sent again."
                } else {
                    "Nothing to do: what went wrong may pass."
                };
                plain(format!("It is tried again{why}, at {at}."), next)
            }
            OutboxState::Waiting => Self {
                link: Some((
                    format!("/participants/{}", super::in_path(&outbox.participant_id)),
                    "See what is before it.",
                )),
                ..plain(
                    "It waits behind an earlier instruction of the same participant.".to_owned(),
                    "Nothing to do here: this rail keeps the order of a participant.",
                )
            },
            OutboxState::Paused => Self {
                link: Some(("/rails".to_owned(), "Go to the rails.")),
                ..plain("Its rail is paused.".to_owned(), "It leaves once the rail is resumed.")
            },
        }
    }
}

fn failed(outbox: &Outbox) -> Verdict {
    let says = |tone, headline: String, next_step: String| Verdict { tone, headline, next_step, link: None };
    if let Some(other) = outbox.redriven_as {
        return Verdict {
            link: Some((format!("/outboxes/{other}"), "Follow it.")),
            ..says(
                "again",
                "It failed, and was tried again.".to_owned(),
                "It goes on as another outbox.".to_owned(),
            )
        };
    }
    match outbox.resolution {
        Some(Resolution::Paid) => says(
            "ok",
            "Paid: a person found out.".to_owned(),
            "It is never tried again. Nothing is left to do.".to_owned(),
        ),
        Some(Resolution::NotPaid) => says(
            "bad",
            "Not paid: a person found out.".to_owned(),
            "Redrive it below if it is still to be paid.".to_owned(),
        ),
        Some(Resolution::Skipped) => says(
            "wait",
            "It failed, was not paid, and a person let it be.".to_owned(),
            "Nothing is left to do. Enqueue a new instruction if it is to be paid after all.".to_owned(),
        ),
        None if outbox.outcome_unknown => says(
            "bad",
            "Nobody knows whether this was paid.".to_owned(),
            format!(
                "Ask the bank about the key {}. Then record below what it said; what was not paid can be redriven after that.",
                outbox.idempotency_key
            ),
        ),
        None => says(
            "bad",
            format!(
                "It failed for good and was not paid: {}.",
                outbox.error_code.as_deref().unwrap_or("no reason was given")
            ),
            "Remove the cause, then redrive it below; or record that it is let be.".to_owned(),
        ),
    }
}
