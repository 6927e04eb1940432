//! The bodies of requests and responses, and the lines of the ledger and request listings.
//!
//! Amounts are text from end to end.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::fault::Fault;

/// The header that names a payment: the same on every attempt.
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header with a payment's number in its participant's sequence.
pub(crate) const SEQUENCE: &str = "symphony-sequence-id";
/// The header of an idempotent replay, for which nothing was executed.
pub(crate) const IDEMPOTENT_REPLAY: &str = "idempotent-replay";

/// The body of POST /v1/payments. Further fields are allowed and belong to what a key stands for.
#[derive(Deserialize)]
pub(crate) struct PaymentRequest {
    pub(crate) instruction_id: String,
    pub(crate) participant_id: String,
    /// Where it is not in the header.
    #[serde(default)]
    pub(crate) sequence_id: i64,
    pub(crate) idempotency_key: String,
    pub(crate) payload: Box<RawValue>,
}

/// The status of a payment.
#[derive(Serialize)]
#[serde(tag = "status", rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Status {
    /// The money has left.
    Executed { reference: String },
    /// The bank will never execute this key.
    Refused { code: String },
    /// The bank has accepted it, and decides later.
    Pending,
    /// This key was never seen, or is forgotten.
    UnknownKey,
}

/// Why there is no status.
#[derive(Serialize)]
pub(crate) struct Problem {
    pub(crate) code: &'static str,
    /// A message that quotes nothing of the request except names of fields and faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Pay.
    Payment,
    /// Say what became of a key.
    Inquiry,
    /// No request: the bank decides what becomes of a payment that it had accepted.
    Settlement,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Outcome {
    /// Money has left.
    Executed,
    /// The key had been executed or refused: an idempotent replay.
    Replayed,
    /// Refused.
    Refused,
    /// Accepted: the bank decides later.
    Accepted,
    /// The key is known for another body.
    KeyReused,
    /// Nothing was done: a fault came first.
    Nothing,
    /// An inquiry was answered with what became of the key.
    Found,
    /// An inquiry was answered with: never seen.
    UnknownKey,
}

/// A line of GET /v1/requests, in the order in which requests were handled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestLine {
    /// The order of numbered.
    pub(crate) ordinal: u64,
    pub(crate) kind: Kind,
    pub(crate) key: String,
    /// The first, second, … request of this kind for this key.
    pub(crate) key_ordinal: u64,
    pub(crate) fault: Fault,
    pub(crate) outcome: Outcome,
    pub(crate) at: Timestamp,
}

/// A line of GET /v1/ledger: money that has left, in order. A key that appears twice was paid twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LedgerLine {
    /// 1, 2, 3, … over all that was executed.
    pub(crate) ordinal: u64,
    pub(crate) key: String,
    pub(crate) instruction_id: String,
    pub(crate) participant_id: String,
    pub(crate) sequence_id: i64,
    /// As written, with every digit.
    pub(crate) amount: String,
    pub(crate) currency: String,
    pub(crate) reference: String,
    pub(crate) executed_at: Timestamp,
}

/// The body of GET /v1/stats: counts over the whole ledger file, restarts included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Stats {
    /// Requests that it has received, handled or still waiting out their latency.
    pub(crate) received: u64,
    pub(crate) payments: u64,
    pub(crate) inquiries: u64,
    /// Lines of the ledger.
    pub(crate) executed: u64,
    /// Lines of the ledger whose key appeared before.
    pub(crate) executed_again: u64,
    pub(crate) refused: u64,
    /// Payments that were accepted, to be decided later.
    pub(crate) accepted: u64,
    pub(crate) replayed: u64,
    pub(crate) key_reused: u64,
    /// Requests by the fault that was applied.
    pub(crate) faults: BTreeMap<Fault, u64>,
}
