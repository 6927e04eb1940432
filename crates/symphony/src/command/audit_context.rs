//! The audit context, `--actor` and `--reason`, that every operator command needs.

use symphony_db::payment::operator;

/// Both are written to the audit log with the operation.
#[derive(clap::Args)]
pub(super) struct AuditContext {
    /// Your name, for the audit log
    #[arg(long, value_name = "NAME")]
    actor: String,
    /// Why you do it, for the audit log; for a resolution, the evidence
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

impl AuditContext {
    pub(super) fn given(&self) -> operator::AuditContext<'_> {
        operator::AuditContext { actor: &self.actor, reason: &self.reason }
    }
}
