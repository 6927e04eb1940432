//! The statuses of an entry, and the five arrows between them.
//!
//! The database has the same five in `symphony.metadata_move_is_legal`, and is the one that holds everybody to them; proof 24
//! tries all pairs and compares.

use crate::words::words;

words! {
    /// What an entry is doing.
    Status, "the status of an entry" {
        /// Nobody has claimed it yet.
        Pending = "PENDING",
        /// A worker holds it.
        Processing = "PROCESSING",
        /// The second store has it. For good.
        Published = "PUBLISHED",
        /// It did not get there, and is tried again while it has retries left.
        Failed = "FAILED",
        /// It is given up. For good.
        Dlq = "DLQ",
    }
}

impl Status {
    /// Whether an entry may go from this status to that one. Staying is no move.
    pub fn can_transition_to(self, to: Self) -> bool {
        match self {
            Self::Pending => to == Self::Processing,
            Self::Processing => matches!(to, Self::Published | Self::Failed),
            Self::Failed => matches!(to, Self::Processing | Self::Dlq),
            Self::Published | Self::Dlq => false,
        }
    }

    /// Whether nothing more happens to an entry after it.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Published | Self::Dlq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_twenty_pairs_five_are_arrows_and_nothing_leaves_what_is_terminal() {
        let mut arrows = Vec::new();
        for from in Status::ALL {
            for to in Status::ALL {
                if from.can_transition_to(*to) {
                    arrows.push(format!("{from}→{to}"));
                }
            }
            let leaves = Status::ALL.iter().any(|to| from.can_transition_to(*to));
            assert_eq!(leaves, !from.is_terminal(), "{from}");
        }
        assert_eq!(
            arrows,
            ["PENDING→PROCESSING", "PROCESSING→PUBLISHED", "PROCESSING→FAILED", "FAILED→PROCESSING", "FAILED→DLQ"]
        );
    }
}
