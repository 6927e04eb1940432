//! The SQLSTATEs by which the database refuses, by name.

/// Somebody tried to change what is only ever added to.
pub const APPEND_ONLY: &str = "P0001";
/// The outbox has ended.
pub const ALREADY_TERMINAL: &str = "P7001";
/// The lease is not held: expired, taken over, or another token or worker.
pub const LEASE_LOST: &str = "P7002";
/// The state does not allow it.
pub const INVALID_STATE: &str = "P7003";
/// An idempotency key is used for something else.
pub const IDEMPOTENCY_CONFLICT: &str = "P7004";
/// An argument is blank, too long or out of range.
pub const INVALID_ARGUMENT: &str = "P7005";
/// The rail is not registered.
pub const UNKNOWN_RAIL: &str = "P7006";
/// The status of an entry has no arrow to where it was to go.
pub const ILLEGAL_TRANSITION: &str = "P7007";
/// There is no such entry of the metadata lane.
pub const NO_SUCH_ENTRY: &str = "P0002";

/// The constraint behind the lease: two terminal rows of one outbox.
pub const TERMINAL_BACKSTOP: &str = "payment_outbox_attempts_one_terminal_per_outbox";

pub(super) const UNIQUE_VIOLATION: &str = "23505";
pub(super) const INVALID_TRANSACTION_STATE: &str = "25000";
pub(super) const INSUFFICIENT_PRIVILEGE: &str = "42501";
pub(super) const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Whether the caller must correct what it gave. Class 22 is PostgreSQL's own: a text or a payload that it
/// cannot hold, such as one with a NUL character.
pub(super) fn is_about_an_argument(state: &str) -> bool {
    state == INVALID_ARGUMENT || state.starts_with("22")
}

/// Whether the same transaction may succeed when it is run again: serialisation failure, deadlock.
pub(super) fn is_about_timing(state: &str) -> bool {
    matches!(state, "40001" | "40P01")
}

/// Whether something that an install would have made is missing: a table, the schema, a function.
pub(super) fn is_about_installation(state: &str) -> bool {
    matches!(state, "42P01" | "3F000" | "42883")
}

/// Whether the server ended the connection: class 08, and its shutdowns and session timeouts.
pub(super) fn is_about_the_connection(state: &str) -> bool {
    state.starts_with("08") || matches!(state, "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04")
}
