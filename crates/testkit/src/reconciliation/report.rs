//! The result of an audit: one variant of [`Finding`] for each way in which the records can disagree.

use std::fmt;

use serde::Serialize;
use symphony_db::OutboxId;

/// A violation found by the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Finding {
    /// The producer committed an instruction that the outbox does not have.
    Lost {
        /// The instruction.
        instruction_id: String,
    },
    /// No outbox has this allocated sequence number: a row was lost.
    NumberMissing {
        /// The participant.
        participant_id: String,
        /// The sequence number.
        sequence_id: i64,
    },
    /// The outbox has an instruction that the producer never committed.
    NeverCommitted {
        /// The outbox.
        outbox_id: OutboxId,
        /// The instruction.
        instruction_id: String,
    },
    /// The outbox is pending, so it has not ended.
    StillPending {
        /// The outbox.
        outbox_id: OutboxId,
    },
    /// The outbox is neither pending nor in a terminal state: no worker will claim it.
    NeitherPendingNorEnded {
        /// The outbox.
        outbox_id: OutboxId,
    },
    /// The outbox has more than one terminal attempt, or activity after a terminal one.
    EndedTwice {
        /// The outbox.
        outbox_id: OutboxId,
    },
    /// The attempt numbers have a gap: a lease has no ledger row.
    AttemptMissing {
        /// The outbox.
        outbox_id: OutboxId,
    },
    /// More than one outbox of a key is DISPATCHED.
    DispatchedTwice {
        /// The key.
        key: String,
    },
    /// The bank executed a key more than once: a double payment.
    ExecutedTwice {
        /// The key.
        key: String,
        /// The number of executions.
        times: usize,
    },
    /// The outbox is DISPATCHED, but the bank has no execution of its key.
    DispatchedNotExecuted {
        /// The outbox.
        outbox_id: OutboxId,
        /// The key.
        key: String,
    },
    /// The outbox is FAILED with a known outcome, but the bank executed its key.
    ExecutedThoughFailed {
        /// The outbox.
        outbox_id: OutboxId,
        /// The key.
        key: String,
    },
    /// The bank executed a key that no outbox has.
    ExecutedWithoutOutbox {
        /// The key.
        key: String,
    },
    /// The bank executed a payment that differs from the outbox.
    Differs {
        /// The outbox.
        outbox_id: OutboxId,
        /// The field: `instruction`, `participant`, `amount`, `currency` or `reference`.
        what: &'static str,
        /// The value in the outbox.
        requested: String,
        /// The value at the bank.
        executed: String,
    },
    /// On an ordered rail the bank executed a participant's payments out of sequence.
    OutOfOrder {
        /// The participant.
        participant_id: String,
        /// The rail.
        rail_type: String,
        /// The sequence number that was executed first.
        first: i64,
        /// The smaller sequence number that was executed after it.
        then: i64,
    },
}

impl Finding {
    /// Whether a payment was lost.
    pub fn is_loss(&self) -> bool {
        matches!(
            self,
            Self::Lost { .. }
                | Self::NumberMissing { .. }
                | Self::NeitherPendingNorEnded { .. }
                | Self::DispatchedNotExecuted { .. }
        )
    }

    /// Whether it is a double payment.
    pub fn is_double(&self) -> bool {
        matches!(self, Self::ExecutedTwice { .. } | Self::DispatchedTwice { .. })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { instruction_id } => {
                write!(f, "lost: {instruction_id:?} was committed, and the outbox does not have it")
            }
            Self::NumberMissing { participant_id, sequence_id } => {
                write!(f, "lost: no outbox has sequence number {sequence_id} of {participant_id:?}")
            }
            Self::NeverCommitted { outbox_id, instruction_id } => {
                write!(f, "outbox {outbox_id} is for {instruction_id:?}, which was never committed")
            }
            Self::StillPending { outbox_id } => write!(f, "outbox {outbox_id} has not ended"),
            Self::NeitherPendingNorEnded { outbox_id } => {
                write!(f, "lost: outbox {outbox_id} is neither pending nor ended")
            }
            Self::EndedTwice { outbox_id } => {
                write!(f, "outbox {outbox_id} has activity after its terminal attempt")
            }
            Self::AttemptMissing { outbox_id } => {
                write!(f, "the attempt numbers of outbox {outbox_id} have a gap: a lease has no ledger row")
            }
            Self::DispatchedTwice { key } => write!(f, "more than one outbox of key {key:?} is DISPATCHED"),
            Self::ExecutedTwice { key, times } => write!(f, "the bank executed key {key:?} {times} times"),
            Self::DispatchedNotExecuted { outbox_id, key } => {
                write!(f, "outbox {outbox_id} is DISPATCHED, and the bank has not executed key {key:?}")
            }
            Self::ExecutedThoughFailed { outbox_id, key } => {
                write!(f, "outbox {outbox_id} is FAILED, and the bank executed key {key:?}")
            }
            Self::ExecutedWithoutOutbox { key } => write!(f, "the bank executed key {key:?}, which no outbox has"),
            Self::Differs { outbox_id, what, requested, executed } => {
                write!(f, "outbox {outbox_id}: {what} is {requested:?} in the outbox and {executed:?} at the bank")
            }
            Self::OutOfOrder { participant_id, rail_type, first, then } => write!(
                f,
                "on the ordered rail {rail_type:?} the bank executed number {first} of {participant_id:?} before \
                 number {then}"
            ),
        }
    }
}

/// A dead letter with an unknown outcome, and what the bank's ledger says. Not a violation: it waits for an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownOutcome {
    /// The outbox.
    pub outbox_id: OutboxId,
    /// The instruction.
    pub instruction_id: String,
    /// The key.
    pub key: String,
    /// The bank's reference, if it has executed the key.
    pub executed: Option<String>,
}

/// The counts of an audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Orders that the producer committed, if known.
    pub committed: Option<usize>,
    /// Outboxes, pending or ended.
    pub outboxes: usize,
    /// Outboxes that ended as DISPATCHED.
    pub dispatched: usize,
    /// Outboxes that ended as FAILED and were not paid.
    pub failed: usize,
    /// Outboxes that ended with an unknown outcome.
    pub unknown: usize,
    /// Outboxes that have not ended.
    pub pending: usize,
    /// Ledger rows of the outbox: one for each lease that was not released.
    pub attempts: usize,
    /// Attempts that are not terminal.
    pub retried: usize,
    /// Attempts whose lease expired.
    pub expired: usize,
    /// Attempts with an unknown outcome.
    pub unknown_outcomes: usize,
    /// Lines of the bank's ledger.
    pub executed: usize,
    /// Payments on ordered rails whose order at the bank was checked.
    pub in_order: usize,
}

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The counts.
    pub counts: Counts,
    /// The violations. Empty when the audit passes.
    pub findings: Vec<Finding>,
    /// The dead letters with an unknown outcome, which wait for an operator.
    pub unknown: Vec<UnknownOutcome>,
}

impl Report {
    /// Whether there is no violation.
    pub fn holds(&self) -> bool {
        self.findings.is_empty()
    }

    /// How many payments were lost.
    pub fn lost(&self) -> usize {
        self.findings.iter().filter(|finding| finding.is_loss()).count()
    }

    /// How many keys were paid twice.
    pub fn executed_twice(&self) -> usize {
        self.findings.iter().filter(|finding| finding.is_double()).count()
    }
}

/// The message of a failed assertion: the counts, then one finding per line.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { outboxes, dispatched, failed, unknown, pending, executed, .. } = self.counts;
        write!(
            f,
            "{outboxes} outboxes = {dispatched} dispatched + {failed} failed + {unknown} unknown + {pending} pending; \
             {executed} executed; {} lost, {} executed twice",
            self.lost(),
            self.executed_twice()
        )?;
        for finding in &self.findings {
            write!(f, "\n  {finding}")?;
        }
        Ok(())
    }
}
