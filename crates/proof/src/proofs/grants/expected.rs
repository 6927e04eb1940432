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

const ENQUEUE: [&str; 2] = ["enqueue_payment_outbox", "enqueue_payment_outbox_batch"];
const EXECUTE: [&str; 10] = [
    "advise_on_unknown_outcome",
    "arm_wakeup",
    "claim_outbox_batch",
    "complete_outbox_attempt",
    "complete_outbox_batch",
    "next_outbox_due",
    "renew_outbox_leases",
    "release_outbox_leases",
    "repair_expired_leases",
    "wakeup_lock",
];
const OPERATE: [&str; 5] = [
    "redrive_payment_outbox",
    "resolve_payment_outbox",
    "set_payment_rail",
    "pause_payment_rail",
    "resume_payment_rail",
];
const VIEWS: [&str; 8] = [
    "supervisor_outbox_status",
    "outbox_operational_status",
    "payment_outbox_dlq",
    "payment_outbox_events",
    "payment_rail_policies",
    "payment_outbox_operations_log",
    "schema_status",
    "unknown_outcome_codes",
];
const READABLE: [&str; 2] = ["payment_outbox_pending", "payment_outbox_attempts"];

/// Every object that the table names, with its kind.
pub(super) fn objects() -> impl Iterator<Item = (&'static str, &'static str)> {
    let of = |kind: &'static str, names: &'static [&'static str]| names.iter().map(move |name| (kind, *name));
    of("function", &ENQUEUE)
        .chain(of("function", &EXECUTE))
        .chain(of("function", &OPERATE))
        .chain(of("view", &VIEWS))
        .chain(of("table", &READABLE))
        .chain([("schema", "symphony")])
}

/// Whether this role, or somebody without any, has a right. What is not in the table is refused.
pub(super) fn allowed(role: Option<&str>, right: &Right) -> bool {
    let Some(role) = role else { return false };
    let object = right.object.as_str();
    let reads = matches!(right.what, "SELECT" | "SELECT of a column");
    match (right.kind, role) {
        ("schema", role) => right.what == "USAGE" && role != "symphony_auth",
        ("function", "symphony_ingest") => ENQUEUE.contains(&object),
        ("function", "symphony_executor") => EXECUTE.contains(&object),
        ("function", "symphony_operator") => OPERATE.contains(&object),
        ("view", "symphony_operator" | "symphony_readonly" | "symphony_auditor") => {
            reads && VIEWS.contains(&object)
        }
        ("table", "symphony_readonly" | "symphony_auditor") => reads && READABLE.contains(&object),
        _ => false,
    }
}
