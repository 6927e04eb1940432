//! Reads of the payment lane for the CLI, the API and the dashboard, from views and read-only functions.
//!
//! The login needs the role `symphony_readonly`, `symphony_auditor` or `symphony_operator`. Only the auditor may read a
//! payload. `symphony_executor` may read rail policies and totals. No read returns a lease token.

mod archives;
mod backlog;
mod confirmations;
mod dead_letters;
mod endpoints;
mod held_streams;
mod leases;
mod operations;
mod orphans;
mod outboxes;
mod participants;
mod partitions;
mod payload;
mod rails;
mod recent_stats;
mod status;
mod timeline;

pub use archives::{
    ArchiveBlocker, ArchivedOutbox, ArchivedPartition, PartitionToArchive, archive_blockers, archive_due_age,
    archived_outboxes, archived_partitions, partitions_to_archive,
};
pub use backlog::{Backlog, RailBacklog, backlog};
pub use confirmations::{RefusedConfirmation, refused_confirmations, refused_confirmations_total};
pub use dead_letters::{
    DeadLetter, DeadLetterCount, DeadLetterFilter, RailDeadLetters, count_dead_letters, dead_letters,
    list_dead_letters,
};
pub use endpoints::{SameEndpoint, same_endpoints};
pub use held_streams::{HeldStream, held_streams};
pub use leases::{WorkerLeases, leases};
pub use operations::{
    Operation, audit_export_end, count_operations, operations, operations_between, operations_log,
};
pub use orphans::{OrphanedOutcome, open_orphans, orphans};
pub use outboxes::{Outbox, OutboxSearch, outbox, search};
pub use participants::{Participant, participants};
pub use partitions::{LedgerPartition, ledger_partitions, partitions_ahead};
pub use payload::payload;
pub use rails::rails;
pub use recent_stats::{RailStats, RecentStats, StatsBucket, WorkerStats, recent_stats};
pub use status::{Pending, RailStatus, Status, exact_status, pending, status};
pub use timeline::{TimelineEvent, instruction_timeline, timeline};
