//! The statuses of an entry, and the five transitions between them.
//!
//! The database enforces the same five in `symphony.metadata_move_is_legal`. Proof 24 tries all pairs and compares.

use crate::text_enum::text_enum;

text_enum! {
    /// The status of an entry.
    Status, "the status of an entry" {
        /// Not claimed yet.
        Pending = "PENDING",
        /// A worker holds its lease.
        Processing = "PROCESSING",
        /// The second store has it. Terminal.
        Published = "PUBLISHED",
        /// The attempt failed. It is retried while retries are left.
        Failed = "FAILED",
        /// In the dead-letter queue. Terminal.
        Dlq = "DLQ",
    }
}

impl Status {
    /// Whether this transition is legal. From a status to itself is not.
    pub fn can_transition_to(self, to: Self) -> bool {
        match self {
            Self::Pending => to == Self::Processing,
            Self::Processing => matches!(to, Self::Published | Self::Failed),
            Self::Failed => matches!(to, Self::Processing | Self::Dlq),
            Self::Published | Self::Dlq => false,
        }
    }

    /// Whether it is terminal.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Published | Self::Dlq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_twenty_pairs_five_are_legal_and_none_leaves_a_terminal_status() {
        let mut transitions = Vec::new();
        for from in Status::ALL {
            for to in Status::ALL {
                if from.can_transition_to(*to) {
                    transitions.push(format!("{from}→{to}"));
                }
            }
            let leaves = Status::ALL.iter().any(|to| from.can_transition_to(*to));
            assert_eq!(leaves, !from.is_terminal(), "{from}");
        }
        assert_eq!(
            transitions,
            ["PENDING→PROCESSING", "PROCESSING→PUBLISHED", "PROCESSING→FAILED", "FAILED→PROCESSING", "FAILED→DLQ"]
        );
    }
}
