//! The contract's table of rights, written out.

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

const ENQUEUE: [&str; 4] = [
    "symphony.enqueue_payment_outbox",
    "symphony.enqueue_payment_outbox_batch",
    "symphony.create_metadata_entry",
    "m10_recovery.publish_outbox",
];
const EXECUTE: [&str; 21] = [
    "symphony.advise_on_unknown_outcome",
    "symphony.arm_wakeup",
    "symphony.claim_outbox_batch",
    "symphony.complete_outbox_attempt",
    "symphony.complete_outbox_batch",
    "symphony.next_outbox_due",
    "symphony.outbox_trace_contexts",
    "symphony.quarantined_outboxes_total",
    "symphony.renew_outbox_leases",
    "symphony.release_outbox_leases",
    "symphony.repair_expired_leases",
    "symphony.wakeup_lock",
    "symphony.claim_metadata_batch",
    "symphony.complete_metadata_batch",
    "symphony.mark_metadata_dlq",
    "symphony.mark_metadata_failed",
    "symphony.mark_metadata_published",
    "symphony.next_metadata_due",
    "symphony.repair_metadata_entries",
    "m10_recovery.claim_outbox_events",
    "m10_recovery.complete_outbox_event",
];
const OPERATE: [&str; 9] = [
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
/// What everybody may ask who may do anything here.
const FIND: [&str; 1] = ["symphony.find_metadata_by_entity"];
/// They change nothing and show no payload.
const LOOK: [&str; 12] = [
    "symphony.audit_export_end",
    "symphony.count_payment_dead_letters",
    "symphony.list_payment_dead_letters",
    "symphony.payment_backlog",
    "symphony.payment_leases",
    "symphony.payment_pulse",
    "symphony.quarantined_outboxes_total",
    "symphony.search_payment_outboxes",
    "symphony.connected_relayers",
    "symphony.metadata_backlog",
    "symphony.metadata_pulse",
    "symphony.search_metadata_entries",
];
/// They show a payload, and so are for auditors alone.
const SHOW: [&str; 1] = ["symphony.read_metadata"];
const VIEWS: [&str; 15] = [
    "symphony.supervisor_outbox_status",
    "symphony.outbox_operational_status",
    "symphony.payment_outbox_dlq",
    "symphony.payment_outbox_events",
    "symphony.payment_rail_policies",
    "symphony.payment_outbox_operations_log",
    "symphony.payment_outboxes",
    "symphony.payment_participants",
    "symphony.quarantined_outboxes",
    "symphony.schema_status",
    "symphony.applied_migrations",
    "symphony.unknown_outcome_codes",
    "symphony.metadata_outbox_entries",
    "symphony.metadata_outbox_status",
    "m10_recovery.outbox_status",
];
/// What a relayer reads beside what it claims: policies, totals and schedules, and what `symphony verify` compares.
const RELAYED: [&str; 7] = [
    "symphony.applied_migrations",
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
/// For auditors alone.
const PAYLOAD: &str = "payload";
/// For nobody: whoever knows it can complete what another worker has claimed.
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
        .chain(of("function", &LOOK))
        .chain(of("function", &SHOW))
        .chain(of("view", &VIEWS))
        .chain(of("view", &RELAYED))
        .chain(of("table", &READABLE))
        .chain([("schema", "symphony"), ("schema", "m10_recovery")])
}

/// Whether this role, or somebody without any, has a right. What is not in the table is refused.
pub(super) fn allowed(role: Option<&str>, right: &Right) -> bool {
    let Some(role) = role else { return false };
    let object = right.object.as_str();
    let reads = matches!(right.what, "SELECT" | "SELECT of a column");
    match (right.kind, role) {
        ("schema", role) => right.what == "USAGE" && role != "symphony_auth",
        ("function", role) if role != "symphony_auth" && FIND.contains(&object) => true,
        ("function", "symphony_ingest") => ENQUEUE.contains(&object),
        ("function", "symphony_executor") => EXECUTE.contains(&object),
        ("function", "symphony_operator") => OPERATE.contains(&object) || LOOK.contains(&object),
        ("function", "symphony_readonly") => LOOK.contains(&object),
        ("function", "symphony_auditor") => LOOK.contains(&object) || SHOW.contains(&object),
        ("view", "symphony_executor") => reads && RELAYED.contains(&object),
        ("view", "symphony_operator" | "symphony_readonly" | "symphony_auditor") => {
            reads && VIEWS.contains(&object)
        }
        ("table", "symphony_readonly" | "symphony_auditor") => {
            // Where a column is kept back, all of them together are too.
            let kept_back = |column: &str| match column {
                TOKEN => true,
                PAYLOAD => role == "symphony_readonly",
                _ => false,
            };
            let whole = match object {
                "symphony.payment_outbox_pending" => false,
                "symphony.payment_outbox_attempts" | "m10_recovery.outbox" => role == "symphony_auditor",
                _ => true,
            };
            reads
                && READABLE.contains(&object)
                && right.column.as_deref().map_or(whole, |column| !kept_back(column))
        }
        ("table", "symphony_operator") => reads && object == ERRORS,
        _ => false,
    }
}
