//! Who does it, and why: what every command of an operator needs.

use symphony_outbox::payment::operator;

/// Both are kept for ever, beside what was done.
#[derive(clap::Args)]
pub(super) struct Warrant {
    /// Who does it
    #[arg(long, value_name = "NAME")]
    actor: String,
    /// Why; for a resolution, the evidence
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

impl Warrant {
    pub(super) fn given(&self) -> operator::Warrant<'_> {
        operator::Warrant { actor: &self.actor, reason: &self.reason }
    }
}
