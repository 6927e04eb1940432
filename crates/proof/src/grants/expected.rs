//! The contract's table of privileges.

use super::objects::Right;

/// The roles that act at run time.
pub(super) const ROLES: [&str; 6] = [
    "symphony_ingest",
    "symphony_executor",
    "symphony_operator",
    "symphony_readonly",
    "symphony_auditor",
    "symphony_auth",
];

const ENQUEUE: [&str; 6] = [
    "symphony.payment_outcome",
    "symphony.cancel_payment_outbox",
    "symphony.enqueue_payment_outbox",
    "symphony.enqueue_payment_outbox_batch",
    "symphony.create_metadata_entry",
    "m10_recovery.publish_outbox",
];
const EXECUTE: [&str; 47] = [
    "symphony.confirm_payment_outbox",
    "symphony.count_refused_confirmations",
    "symphony.count_open_orphans",
    "symphony.record_payment_orphan",
    "symphony.check_worker_history",
    "symphony.open_claim_session",
    "symphony.server_epoch",
    "symphony.release_abandoned_events",
    "symphony.advise_on_unknown_outcome",
    "symphony.acquire_wakeup_lock",
    "symphony.claim_outbox_batch",
    "symphony.complete_outbox_attempt",
    "symphony.complete_outbox_batch",
    "symphony.extend_payment_ledger",
    "symphony.list_partitions_to_archive",
    "symphony.longest_lock_wait",
    "symphony.remove_ended_metadata",
    "symphony.remove_expired_keys",
    "symphony.remove_processed_events",
    "symphony.next_outbox_due",
    "symphony.outbox_trace_contexts",
    "symphony.payment_ledger_partitions",
    "symphony.payment_status",
    "symphony.quarantined_outboxes_total",
    "symphony.rail_policy_lock_holders",
    "symphony.renew_outbox_leases",
    "symphony.release_outbox_leases",
    "symphony.repair_expired_leases",
    "symphony.wakeup_lock_key",
    "symphony.claim_metadata_batch",
    "symphony.claim_metadata_by_store",
    "symphony.complete_metadata_batch",
    "symphony.mark_metadata_dlq",
    "symphony.mark_metadata_failed",
    "symphony.mark_metadata_published",
    "symphony.metadata_backlog",
    "symphony.next_metadata_due",
    "symphony.repair_metadata_entries",
    "symphony.claim_events_by_sink",
    "symphony.claim_events_in_order",
    "symphony.claim_newest_event",
    "symphony.claim_newest_metadata",
    "symphony.complete_event_batch",
    "symphony.event_backlog",
    "symphony.event_claim_timeout",
    "m10_recovery.claim_outbox_events",
    "m10_recovery.complete_outbox_event",
];
const OPERATE: [&str; 22] = [
    "symphony.cancel_payment_outbox",
    "symphony.reconcile_bank_export",
    "symphony.declare_same_endpoint",
    "symphony.revoke_same_endpoint",
    "symphony.erase_payment_payload",
    "symphony.open_epoch",
    "symphony.recover_epoch",
    "symphony.remove_ended_metadata",
    "symphony.remove_expired_keys",
    "symphony.remove_processed_events",
    "symphony.set_retention",
    "symphony.extend_payment_ledger",
    "symphony.make_payments_due",
    "symphony.redrive_payment_outbox",
    "symphony.repair_payment_rail",
    "symphony.resolve_payment_outbox",
    "symphony.register_payment_rail",
    "symphony.set_payment_rail",
    "symphony.retire_payment_rail",
    "symphony.pause_payment_rail",
    "symphony.resume_payment_rail",
    "symphony.mark_metadata_dlq",
];
/// For every role but symphony_auth.
const FIND: [&str; 1] = ["symphony.find_metadata_by_entity"];
/// Read-only functions without payloads.
const READ: [&str; 26] = [
    "symphony.count_refused_confirmations",
    "symphony.payment_outcome",
    "symphony.audit_export_end",
    "symphony.is_open_orphan",
    "symphony.count_open_orphans",
    "symphony.count_payment_dead_letters",
    "symphony.find_archived_outboxes",
    "symphony.list_archive_blockers",
    "symphony.list_partitions_to_archive",
    "symphony.retention_cutoff",
    "symphony.list_payment_dead_letters",
    "symphony.payment_backlog",
    "symphony.payment_leases",
    "symphony.payment_ledger_partitions",
    "symphony.payment_recent_stats",
    "symphony.payment_status",
    "symphony.quarantined_outboxes_total",
    "symphony.rail_policy_lock_holders",
    "symphony.search_payment_outboxes",
    "symphony.connected_relayers",
    "symphony.longest_lock_wait",
    "symphony.event_backlog",
    "symphony.event_claim_timeout",
    "symphony.metadata_backlog",
    "symphony.metadata_recent_stats",
    "symphony.search_metadata_entries",
];
/// Functions that return a payload, or say whether it was a given one: only for auditors.
const READ_PAYLOAD: [&str; 2] = ["symphony.erased_payload_matches", "symphony.read_metadata"];
const VIEWS: [&str; 23] = [
    "symphony.held_payment_streams",
    "symphony.refused_confirmations",
    "symphony.orphaned_outcomes",
    "symphony.epochs",
    "symphony.archived_ledger_partitions",
    "symphony.retention",
    "symphony.retention_removals_log",
    "symphony.supervisor_outbox_status",
    "symphony.outbox_operational_status",
    "symphony.payment_outbox_dlq",
    "symphony.payment_outbox_events",
    "symphony.payment_rail_policies",
    "symphony.payment_outbox_operations_log",
    "symphony.payment_outboxes",
    "symphony.payment_participants",
    "symphony.payment_same_endpoints",
    "symphony.quarantined_outboxes",
    "symphony.schema_status",
    "symphony.applied_migrations",
    "symphony.unknown_outcome_codes",
    "symphony.metadata_outbox_entries",
    "symphony.metadata_outbox_status",
    "m10_recovery.outbox_status",
];
/// Views that a relayer reads: policies, totals, schedules, and the schema status of `symphony verify`.
const RELAYER_VIEWS: [&str; 8] = [
    "symphony.applied_migrations",
    "symphony.epochs",
    "symphony.payment_rail_policies",
    "symphony.schema_status",
    "symphony.supervisor_outbox_status",
    "symphony.metadata_outbox_status",
    "m10_recovery.outbox_schedule",
    "m10_recovery.outbox_status",
];
const READABLE: [&str; 4] = [
    "symphony.payment_outbox_pending",
    "symphony.payment_outbox_attempts",
    "m10_recovery.outbox",
    "m10_recovery.outbox_errors",
];
/// Only auditors may read it.
const PAYLOAD: &str = "payload";
/// No role may read it: with the token a worker can complete a row that another has claimed.
const TOKEN: &str = "lease_token";
/// Without payloads, so that operators may read it as well.
const ERRORS: &str = "m10_recovery.outbox_errors";

/// Every object that the table names, with its kind.
pub(super) fn objects() -> impl Iterator<Item = (&'static str, &'static str)> {
    let of = |kind: &'static str, names: &'static [&'static str]| names.iter().map(move |name| (kind, *name));
    of("function", &ENQUEUE)
        .chain(of("function", &EXECUTE))
        .chain(of("function", &OPERATE))
        .chain(of("function", &FIND))
        .chain(of("function", &READ))
        .chain(of("function", &READ_PAYLOAD))
        .chain(of("view", &VIEWS))
        .chain(of("view", &RELAYER_VIEWS))
        .chain(of("table", &READABLE))
        .chain([("schema", "symphony"), ("schema", "m10_recovery")])
}

/// Whether this role, or a login without a role, has a privilege. What is not in the table is refused.
pub(super) fn allowed(role: Option<&str>, right: &Right) -> bool {
    let Some(role) = role else { return false };
    let object = right.object.as_str();
    let reads = matches!(right.what, "SELECT" | "SELECT of a column");
    match (right.kind, role) {
        ("schema", role) => right.what == "USAGE" && role != "symphony_auth",
        ("function", role) if role != "symphony_auth" && FIND.contains(&object) => true,
        ("function", "symphony_ingest") => ENQUEUE.contains(&object),
        ("function", "symphony_executor") => EXECUTE.contains(&object),
        ("function", "symphony_operator") => OPERATE.contains(&object) || READ.contains(&object),
        ("function", "symphony_readonly") => READ.contains(&object),
        ("function", "symphony_auditor") => READ.contains(&object) || READ_PAYLOAD.contains(&object),
        ("view", "symphony_executor") => reads && RELAYER_VIEWS.contains(&object),
        ("view", "symphony_operator" | "symphony_readonly" | "symphony_auditor") => {
            reads && VIEWS.contains(&object)
        }
        ("table", "symphony_readonly" | "symphony_auditor") => {
            // A role without the privilege on one column has none on the whole table.
            let hidden = |column: &str| match column {
                TOKEN => true,
                PAYLOAD => role == "symphony_readonly",
                _ => false,
            };
            let whole = match object {
                "symphony.payment_outbox_pending" => false,
                "symphony.payment_outbox_attempts" | "m10_recovery.outbox" => role == "symphony_auditor",
                _ => true,
            };
            reads && READABLE.contains(&object) && right.column.as_deref().map_or(whole, |column| !hidden(column))
        }
        ("table", "symphony_operator") => reads && object == ERRORS,
        _ => false,
    }
}
