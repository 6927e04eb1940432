//! Names for the SQLSTATEs that Symphony's functions raise.

/// An UPDATE, DELETE or TRUNCATE of an append-only table.
pub const APPEND_ONLY: &str = "P0001";
/// The row already has its terminal state.
pub const ALREADY_TERMINAL: &str = "P7001";
/// The lease expired, was taken over, or belongs to another token or worker.
pub const LEASE_LOST: &str = "P7002";
/// The state of the row does not allow the call.
pub const INVALID_STATE: &str = "P7003";
/// The idempotency key belongs to another participant, rail or payload.
pub const IDEMPOTENCY_CONFLICT: &str = "P7004";
/// An argument is blank, too long or out of range.
pub const INVALID_ARGUMENT: &str = "P7005";
/// The rail is not registered.
pub const UNKNOWN_RAIL: &str = "P7006";
/// A metadata entry may not change from its status to the requested one.
pub const ILLEGAL_TRANSITION: &str = "P7007";
/// There is no metadata entry with this id.
pub const NO_SUCH_ENTRY: &str = "P0002";

/// The unique index of the ledger that allows one terminal attempt per outbox.
pub const TERMINAL_BACKSTOP: &str = "payment_outbox_attempts_one_terminal_per_outbox";

/// Whether an index is the [`TERMINAL_BACKSTOP`] in one of the ledger's partitions. PostgreSQL reports the index of the
/// partition, whose name is between the two parts of this one.
pub fn is_terminal_backstop(index: &str) -> bool {
    index.starts_with("payment_outbox_attempts_") && index.ends_with("_one_terminal_per_outbox")
}

pub(super) const UNIQUE_VIOLATION: &str = "23505";
pub(super) const INVALID_TRANSACTION_STATE: &str = "25000";
pub(super) const INSUFFICIENT_PRIVILEGE: &str = "42501";
pub(super) const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Whether the caller must correct an argument. PostgreSQL raises class 22 for a text or a payload that it cannot
/// store, such as one with a NUL character.
pub fn is_invalid_argument(state: &str) -> bool {
    state == INVALID_ARGUMENT || state.starts_with("22")
}

/// Whether the same transaction may succeed when it is run again: serialization failure or deadlock.
pub(super) fn is_serialization_failure(state: &str) -> bool {
    matches!(state, "40001" | "40P01")
}

/// Whether a table, the schema or a function of Symphony is missing.
pub(super) fn is_missing_object(state: &str) -> bool {
    matches!(state, "42P01" | "3F000" | "42883")
}

/// Whether the server ended the connection: class 08, shutdowns and session timeouts.
pub(super) fn is_connection_failure(state: &str) -> bool {
    state.starts_with("08") || matches!(state, "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04")
}
