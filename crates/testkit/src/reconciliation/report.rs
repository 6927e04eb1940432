//! What an audit found: every way in which the two sides can disagree has a name.

use std::fmt;

use serde::Serialize;
use symphony_db::OutboxId;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Finding {
    /// The business has committed it, and the outbox does not have it.
    Lost {
        /// The instruction.
        instruction_id: String,
    },
    /// A number was given out, and no outbox has it: one has vanished.
    NumberMissing {
        /// Whose number.
        participant_id: String,
        /// The number.
        sequence_id: i64,
    },
    /// The business has not committed it, and the outbox has it all the same.
    NeverCommitted {
        /// The outbox.
        outbox_id: OutboxId,
        /// The instruction.
        instruction_id: String,
    },
    /// It has not ended: it is still in the queue.
    StillPending {
        /// The outbox.
        outbox_id: OutboxId,
    },
    /// It is neither pending nor has it ended: no worker will ever claim it.
    Forgotten {
        /// The outbox.
        outbox_id: OutboxId,
    },
    /// It has ended more than once, or was worked on after its end.
    EndedTwice {
        /// The outbox.
        outbox_id: OutboxId,
    },
    /// Its attempts are not 1, 2, 3, …: a lease is not accounted for.
    AttemptMissing {
        /// The outbox.
        outbox_id: OutboxId,
    },
    /// More than one outbox of a key was dispatched.
    DispatchedTwice {
        /// The key.
        key: String,
    },
    /// The bank has executed a key more than once: money has left twice.
    ExecutedTwice {
        /// The key.
        key: String,
        /// How often.
        times: usize,
    },
    /// The outbox says that it was paid, and the bank has not paid it.
    DispatchedNotExecuted {
        /// The outbox.
        outbox_id: OutboxId,
        /// The key.
        key: String,
    },
    /// The outbox says FAILED and not paid, and the bank has paid it.
    ExecutedThoughFailed {
        /// The outbox.
        outbox_id: OutboxId,
        /// The key.
        key: String,
    },
    /// The bank has executed a key that no outbox has.
    ExecutedUnasked {
        /// The key.
        key: String,
    },
    /// The bank has executed something else than what was asked for.
    Differs {
        /// The outbox.
        outbox_id: OutboxId,
        /// Which part: `instruction`, `participant`, `amount`, `currency` or `reference`.
        what: &'static str,
        /// What was asked for.
        asked: String,
        /// What was executed.
        executed: String,
    },
    /// On an ordered rail the bank has executed a later number of a participant first.
    OutOfOrder {
        /// Whose.
        participant_id: String,
        /// The rail.
        rail_type: String,
        /// The number that came first.
        first: i64,
        /// The earlier number that came after it.
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
                | Self::Forgotten { .. }
                | Self::DispatchedNotExecuted { .. }
        )
    }

    /// Whether money has left twice.
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
                write!(f, "lost: number {sequence_id} of {participant_id:?} was given out, and no outbox has it")
            }
            Self::NeverCommitted { outbox_id, instruction_id } => {
                write!(f, "outbox {outbox_id} is for {instruction_id:?}, which was never committed")
            }
            Self::StillPending { outbox_id } => write!(f, "outbox {outbox_id} has not ended"),
            Self::Forgotten { outbox_id } => {
                write!(f, "lost: outbox {outbox_id} is not in the queue and has not ended")
            }
            Self::EndedTwice { outbox_id } => write!(f, "outbox {outbox_id} has gone on after its end"),
            Self::AttemptMissing { outbox_id } => {
                write!(f, "the attempts of outbox {outbox_id} are not 1, 2, 3, …: a lease is not accounted for")
            }
            Self::DispatchedTwice { key } => write!(f, "key {key:?} was dispatched by more than one outbox"),
            Self::ExecutedTwice { key, times } => write!(f, "the bank has executed key {key:?} {times} times"),
            Self::DispatchedNotExecuted { outbox_id, key } => {
                write!(f, "outbox {outbox_id} is DISPATCHED, and the bank has not executed key {key:?}")
            }
            Self::ExecutedThoughFailed { outbox_id, key } => {
                write!(f, "outbox {outbox_id} is FAILED, and the bank has executed key {key:?}")
            }
            Self::ExecutedUnasked { key } => write!(f, "the bank has executed key {key:?}, which no outbox has"),
            Self::Differs { outbox_id, what, asked, executed } => {
                write!(f, "outbox {outbox_id}: {what} is {asked:?} here and {executed:?} at the bank")
            }
            Self::OutOfOrder { participant_id, rail_type, first, then } => write!(
                f,
                "on the ordered rail {rail_type:?} the bank has executed number {first} of {participant_id:?} before \
                 number {then}"
            ),
        }
    }
}

/// A dead letter of unknown outcome, with the answer of the bank. No finding: it waits for an operator.
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

/// How many there are of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Orders that the business has committed, where it was asked.
    pub committed: Option<usize>,
    /// Outboxes, pending or ended.
    pub outboxes: usize,
    /// Outboxes that ended well.
    pub dispatched: usize,
    /// Outboxes that ended badly, and were not paid.
    pub failed: usize,
    /// Outboxes that ended with an unknown outcome.
    pub unknown: usize,
    /// Outboxes that have not ended.
    pub pending: usize,
    /// Ledger rows of the outbox: one for each lease that was not released.
    pub attempts: usize,
    /// Attempts that were followed by another.
    pub retried: usize,
    /// Attempts whose lease ran out.
    pub expired: usize,
    /// Attempts with an unknown outcome.
    pub unknown_outcomes: usize,
    /// Lines of the bank's ledger.
    pub executed: usize,
    /// Payments on ordered rails whose order at the bank was looked at.
    pub in_order: usize,
}

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What was counted.
    pub counts: Counts,
    /// What must not be. Empty when the audit holds.
    pub findings: Vec<Finding>,
    /// The dead letters of unknown outcome, which wait for an operator.
    pub unknown: Vec<UnknownOutcome>,
}

impl Report {
    /// Whether nothing was found.
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

/// For the message of a test that fails: the counts, then every finding on a line.
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
