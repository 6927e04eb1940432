//! The bank's own ledger of executed payments.

use serde::{Deserialize, Serialize};

use super::Error;

/// A line of the bank's ledger: an executed payment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// The position among all executions, from 1.
    pub ordinal: u64,
    /// The idempotency key.
    pub key: String,
    /// The instruction.
    pub instruction_id: String,
    /// Its participant.
    pub participant_id: String,
    /// Its sequence number, as in the request.
    pub sequence_id: i64,
    /// The amount, digit by digit as in the request.
    pub amount: String,
    /// The currency.
    pub currency: String,
    /// The bank's reference.
    pub reference: String,
}

/// A line of the bank's file: a request, which may have been executed.
#[derive(Deserialize)]
struct Entry {
    executed: Option<Execution>,
}

/// Reads the lines of `GET /v1/ledger`, or those of the bank's file, in order.
///
/// # Errors
/// [`Error::Bank`] at the first line that is neither.
pub fn executions(lines: &str) -> Result<Vec<Execution>, Error> {
    let mut found = Vec::new();
    for (number, line) in lines.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |source| Error::Bank { line: number + 1, source };
        // The file differs from the listing: it has a header, then every request with its execution, if any.
        if line.starts_with("{\"symphony_bank\"") {
            continue;
        }
        if line.starts_with("{\"request\"") {
            found.extend(serde_json::from_str::<Entry>(line).map_err(wrong)?.executed);
        } else {
            found.push(serde_json::from_str(line).map_err(wrong)?);
        }
    }
    Ok(found)
}
