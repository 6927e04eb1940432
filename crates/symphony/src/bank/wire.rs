//! What goes over the wire: the bodies of requests and answers, and the lines of the listings.
//!
//! Amounts are text from end to end. Nothing here decides anything.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::fault::Fault;

/// The header that names a payment: the same on every attempt.
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header of an answer that was given before. Nothing was executed for it.
pub(crate) const IDEMPOTENT_REPLAY: &str = "idempotent-replay";

/// The body of POST /v1/payments. Further fields are allowed and belong to what a key stands for.
#[derive(Deserialize)]
pub(crate) struct PaymentRequest {
    pub(crate) instruction_id: String,
    pub(crate) participant_id: String,
    pub(crate) sequence_id: i64,
    pub(crate) idempotency_key: String,
    pub(crate) payload: Box<RawValue>,
}

/// What became of a payment, to whoever sent it or asks for it.
#[derive(Serialize)]
#[serde(tag = "status", rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Status {
    /// The money has left.
    Executed { reference: String },
    /// It will never leave under this key.
    Refused { code: String },
    /// This key was never seen, or is forgotten.
    UnknownKey,
}

/// Why there is no status.
#[derive(Serialize)]
pub(crate) struct Problem {
    pub(crate) code: &'static str,
    /// For people. It quotes nothing of the request but names of fields and faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
}

/// What a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Pay.
    Payment,
    /// Say what became of a key.
    Inquiry,
}

/// What a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Outcome {
    /// Money has left.
    Executed,
    /// The key was known, and had been executed or refused: what was said then is said again.
    Replayed,
    /// Refused for good.
    Refused,
    /// The key is known for another body.
    KeyReused,
    /// Nothing was done: a fault came first.
    Nothing,
    /// An inquiry was answered with what became of the key.
    Found,
    /// An inquiry was answered with: never seen.
    UnknownKey,
}

/// A line of GET /v1/requests, in the order in which requests were dealt with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestLine {
    /// The order of arrival.
    pub(crate) ordinal: u64,
    pub(crate) kind: Kind,
    pub(crate) key: String,
    /// The first, second, … request of this kind for this key.
    pub(crate) key_ordinal: u64,
    pub(crate) fault: Fault,
    pub(crate) outcome: Outcome,
    pub(crate) at: Timestamp,
}

/// A line of GET /v1/ledger: money that has left, in order. A key that stands here twice was paid twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LedgerLine {
    /// 1, 2, 3, … over all that was executed.
    pub(crate) ordinal: u64,
    pub(crate) key: String,
    pub(crate) instruction_id: String,
    pub(crate) participant_id: String,
    pub(crate) sequence_id: i64,
    /// As it was written, to the last digit.
    pub(crate) amount: String,
    pub(crate) currency: String,
    pub(crate) reference: String,
    pub(crate) executed_at: Timestamp,
}

/// The body of GET /v1/stats: counts over the whole ledger file, restarts included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Stats {
    pub(crate) payments: u64,
    pub(crate) inquiries: u64,
    /// Lines of the ledger.
    pub(crate) executed: u64,
    /// Lines of the ledger whose key stands there before.
    pub(crate) executed_again: u64,
    pub(crate) refused: u64,
    pub(crate) replayed: u64,
    pub(crate) key_reused: u64,
    /// Requests by the fault that was applied.
    pub(crate) faults: BTreeMap<Fault, u64>,
}
